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
