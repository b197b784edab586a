"""Dictionaries of the arrays that a `Loader` reads: another one is refused, and known memory is not read again."""

from __future__ import annotations

import gc
import threading
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

    def test_a_state_has_those_of_batches_that_were_handed_out_alone(self):
        """And not those that a thread has read ahead by then, or has not."""
        has_read = threading.Event()

        def batches() -> Iterator[pa.RecordBatch]:
            yield codes_of(["cat", "dog"])
            yield codes_of(["cat", "dog"])
            has_read.set()

        loader = ad.Loader(batches, batch_size=4, columns={"x": "x"}, prefetch=4)
        iterator = iter(loader)
        assert has_read.wait(60)
        assert "dictionaries" not in loader.state_dict()
        assert "dictionaries" not in loader.fingerprint()
        next(iterator)
        assert "dictionaries" in loader.state_dict()

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


def lists_of(words: list[str], first: int = 0, dictionary: list[str] | None = None) -> pa.RecordBatch:
    """Lists of three codes, of a dictionary in memory of its own."""
    codes = pa.array([(first + at) % len(words) for at in range(12)], pa.int8())
    items = pa.DictionaryArray.from_arrays(codes, pa.array(dictionary or words))
    return pa.record_batch({"l": pa.ListArray.from_arrays(pa.array(range(0, 13, 3), pa.int32()), items)})


class TestCodesOfLists:
    """Of padded and ragged groups, whose rows are copied together where they are from several arrays."""

    @pytest.mark.parametrize("form", ["padded", "ragged"])
    @pytest.mark.parametrize("options", [{}, {"shuffle_buffer": 24, "seed": 3}, {"shuffle_buffer": 7, "seed": 1}])
    @pytest.mark.parametrize("batch_size", [3, 24])
    def test_are_those_of_the_arrays(self, batch_size: int, options: dict, form: str):
        words = ["a", "b", "c", "d", "e"]
        source = pa.Table.from_batches([lists_of(words, first) for first in range(6)])
        rows = [[words.index(word) for word in row] for row in source["l"].to_pylist()]
        order = next(iter(ad.Loader(pa.table({"n": np.arange(24)}), batch_size=24, **options)))
        columns = {"l": getattr(ad, form)("l")}
        found = []
        for batch in ad.Loader(source, batch_size=batch_size, columns=columns, **options):
            if form == "padded":
                found.extend(numpy_of(batch["l"]).tolist())
            else:
                assert pa.array(batch["l"].values.dictionary).to_pylist() == words
                offsets, values = numpy_of(batch["l"].offsets), numpy_of(batch["l"].values)
                found.extend(values[offsets[at] : offsets[at + 1]].tolist() for at in range(len(offsets) - 1))
        assert found == [rows[row] for row in numpy_of(order).ravel()]

    @pytest.mark.parametrize("batch_size", [4, 8])
    @pytest.mark.parametrize("shuffle_buffer", [0, 8])
    def test_of_other_dictionaries_are_refused(self, shuffle_buffer: int, batch_size: int):
        source = [lists_of(["cat", "dog"]), lists_of(["dog", "cat"])]
        options = {"columns": {"l": ad.padded("l")}, "batch_size": batch_size, "shuffle_buffer": shuffle_buffer}
        with pytest.raises(ad.ConversionError, match="different dictionaries") as raised:
            list(ad.Loader(pa.Table.from_batches(source), **options))
        assert raised.value.column == "l"
        assert "unify_dictionaries()" in str(raised.value)
        one = pa.Table.from_batches(source).unify_dictionaries()
        rows = np.concatenate([numpy_of(batch["l"]) for batch in ad.Loader(one, **options)])
        assert sorted(rows.tolist()) == sorted([[0, 1, 0], [1, 0, 1]] * 2 + [[1, 0, 1], [0, 1, 0]] * 2)

    def test_keep_their_meaning_after_a_resume(self):
        def loader(words: list[str]) -> ad.Loader:
            source = pa.Table.from_batches([lists_of(words, first) for first in range(4)])
            return ad.Loader(source, batch_size=3, columns={"l": ad.padded("l")}, shuffle_buffer=5, seed=2)

        first = loader(["a", "b", "c"])
        iterator = iter(first)
        next(iterator)
        state = first.state_dict()
        assert "dictionaries" in state
        rest = [numpy_of(batch["l"]).tolist() for batch in iterator]
        again = loader(["a", "b", "c"])
        again.load_state_dict(state)
        assert [numpy_of(batch["l"]).tolist() for batch in again] == rest
        other = loader(["c", "b", "a"])
        other.load_state_dict(state)
        with pytest.raises(ad.ConversionError, match="dictionaries"):
            list(other)

    def test_narrow_codes_are_as_many_as_in_an_array(self):
        words = [f"word {number}" for number in range(100)]
        source = pa.Table.from_batches([lists_of(words, first) for first in range(6)])
        [batch] = ad.Loader(source, batch_size=24, columns={"l": ad.padded("l")}, shuffle_buffer=24, seed=0)
        assert numpy_of(batch["l"]).max() < 100

    def test_do_not_keep_the_first_array(self):
        """Its dictionary is copied: the memory of its rows is let go of when they were taken."""
        alive = []

        def batches() -> Iterator[pa.RecordBatch]:
            for _ in range(4):
                content = np.arange(12, dtype="int8") % 5
                alive.append(weakref.ref(content))
                codes = pa.Array.from_buffers(pa.int8(), 12, [None, pa.py_buffer(content)])
                items = pa.DictionaryArray.from_arrays(codes, pa.array(list("abcde")))
                del content, codes
                yield pa.record_batch({"l": pa.ListArray.from_arrays(pa.array(range(0, 13, 3), pa.int32()), items)})

        iterator = iter(ad.Loader(batches, batch_size=4, columns={"l": ad.padded("l")}, prefetch=0))
        for _ in range(3):
            next(iterator)
        gc.collect()
        assert alive[0]() is None
        iterator.close()


def test_rows_that_wait_may_have_more_values_than_their_codes_count() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(60):
            values = pa.array([f"{number} {value}" for value in range(100)])
            yield pa.record_batch({"c": pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), values)})

    loader = ad.Loader(batches, batch_size=20, columns={"c": ad.arrow("c")}, shuffle_buffer=400, seed=1)
    found = [text for batch in loader for text in pa.record_batch(batch["c"])["c"].to_pylist()]
    assert sorted(found) == sorted(f"{number} {value}" for number in range(60) for value in range(100))
