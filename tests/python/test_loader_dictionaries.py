"""Dictionaries of the arrays that a `Loader` reads: another one is refused, and known memory is not read again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from support import numpy_of

BATCHES = 5


def encoded(values: pa.Array) -> pa.RecordBatch:
    codes = pa.array([0, 1, 2, 3], pa.int16())
    return pa.record_batch({"x": pa.DictionaryArray.from_arrays(codes, values)})


@pytest.mark.parametrize("columns", [{"x": "x"}, {"x": ["x"]}], ids=["column", "matrix"])
@pytest.mark.parametrize("count", [10, 1000])
class TestDictionaries:
    def test_in_the_same_memory_are_read_once_if_they_are_long(self, count: int, columns: dict):
        content = np.arange(count)
        values = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(content)])

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(BATCHES):
                if number == 2:
                    # No producer may do so: it shows whether the values are read.
                    content[3] = -1
                yield encoded(values)

        loader = ad.Loader(batches, batch_size=4, columns=columns, prefetch=0)
        if count == 1000:
            assert [numpy_of(batch["x"]).ravel().tolist() for batch in loader] == [[0, 1, 2, 3]] * BATCHES
        else:
            with pytest.raises(ad.ConversionError, match="different dictionaries"):
                list(loader)

    def test_in_other_memory_are_compared(self, count: int, columns: dict):
        def batches(last: int) -> Iterator[pa.RecordBatch]:
            # Memory that is free may be that of the next values.
            yield from (encoded(pa.array(np.arange(count))) for _ in range(BATCHES))
            yield encoded(pa.array([*range(count - 1), last]))

        assert len(list(ad.Loader(lambda: batches(count - 1), batch_size=4, columns=columns))) == BATCHES + 1
        with pytest.raises(ad.ConversionError, match="different dictionaries") as raised:
            list(ad.Loader(lambda: batches(-1), batch_size=4, columns=columns))
        assert raised.value.column == "x"

    def test_that_are_slices_of_one_memory_are_compared(self, count: int, columns: dict):
        values = pa.array(np.arange(count + 1))
        loader = ad.Loader(
            lambda: iter([encoded(values[:-1]), encoded(values[:-1]), encoded(values[1:])]),
            batch_size=4,
            columns=columns,
        )
        with pytest.raises(ad.ConversionError, match="different dictionaries"):
            list(loader)

    def test_are_released_with_the_iteration(self, count: int, columns: dict):
        alive = []

        def batches() -> Iterator[pa.RecordBatch]:
            for _ in range(BATCHES):
                content = np.arange(count)
                alive.append(weakref.ref(content))
                yield encoded(pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(content)]))

        most = 0
        iterator = iter(ad.Loader(batches, batch_size=4, columns=columns, prefetch=0))
        for _ in iterator:
            gc.collect()
            most = max(most, sum(content() is not None for content in alive))
        assert most <= 3
        iterator.close()
        gc.collect()
        assert all(content() is None for content in alive)


def codes_of(words: list[str]) -> pa.RecordBatch:
    """Four rows of the codes 0, 1, 0, 1 of these two words."""
    return pa.record_batch({"x": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1], pa.int8()), pa.array(words))})


class TestCodesKeepTheirMeaning:
    @pytest.mark.parametrize("verify", ["replay", "all"])
    def test_after_a_resume(self, verify: str):
        """The shard that was taken is not opened again, and the next one has another dictionary."""
        sources = [(codes_of(["cat", "dog"]), 4), (codes_of(["dog", "cat"]), 4)]
        options = {"batch_size": 2, "columns": {"x": "x"}, "verify": verify}
        loader = ad.Loader(sources=sources, **options)
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state = loader.state_dict()
        assert ad.Loader(sources=sources, **options).state_dict().keys() == state.keys() - {"dictionaries"}
        resumed = ad.Loader(sources=sources, **options)
        resumed.load_state_dict(state)
        with pytest.raises(ad.ConversionError, match="dictionaries"):
            list(resumed)
        same = ad.Loader(sources=[sources[0], (codes_of(["cat", "dog"]), 4)], **options)
        same.load_state_dict(state)
        assert [numpy_of(batch["x"]).tolist() for batch in same] == [[0, 1], [0, 1]]

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_in_the_next_epoch(self, prefetch: int):
        words = iter([["cat", "dog"], ["cat", "dog"], ["dog", "cat"], ["cat", "dog"]])
        loader = ad.Loader(lambda: codes_of(next(words)), batch_size=4, columns={"x": "x"}, prefetch=prefetch)
        assert len(list(loader)) == len(list(loader)) == 1
        with pytest.raises(
            ad.ConversionError, match="other dictionaries than those of the state or of the epoch before"
        ):
            list(loader)
        assert len(list(loader)) == 1

    def test_unless_they_are_read_as_values(self):
        words = iter([["cat", "dog"], ["dog", "cat"]])
        categories = {"x": ["cat", "dog"]}
        loader = ad.Loader(
            lambda: codes_of(next(words)), batch_size=4, columns={"x": "x"}, categories=categories, prefetch=0
        )
        assert [numpy_of(batch["x"]).tolist() for _ in range(2) for batch in loader] == [[0, 1, 0, 1], [1, 0, 1, 0]]
        assert "dictionaries" not in loader.state_dict()

    def test_and_a_fingerprint_tells_them(self):
        found = []
        for words in (["cat", "dog"], ["dog", "cat"], ["cat", "dog"]):
            loader = ad.Loader(codes_of(words), batch_size=2, columns={"x": "x"})
            list(loader)
            found.append(loader.fingerprint()["dictionaries"])
        assert found[0] == found[2] != found[1]
