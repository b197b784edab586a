"""arro3's arrays, batches and tables become tensors and come back."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from arro3.core import Array, ArrayReader, ChunkedArray, DataType, RecordBatch, RecordBatchReader, Table
from support import NUMBERS, address, view_of


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("part", [slice(0, 6), slice(2, 5)], ids=["whole", "slice"])
def test_numbers_are_views(dtype: str, part: slice):
    source = Array.from_arrow(pa.array(range(6), pa.from_numpy_dtype(dtype))).slice(part.start, part.stop - part.start)
    tensor = view_of(source)
    assert (tensor.dtype, np.from_dlpack(tensor).tolist()) == (dtype, list(range(6))[part])
    back = Array.from_arrow(tensor)
    assert back == source
    assert address(ad.to_tensor(back)) == address(tensor)


def test_bools_nulls_and_lists():
    bools = Array([True, None, False], DataType.bool())
    assert np.from_dlpack(ad.to_tensor(bools, nulls=False)).tolist() == [True, False, False]
    assert np.from_dlpack(ad.validity(bools)).tolist() == [True, False, True]
    rows = Array.from_arrow(pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)))
    assert np.from_dlpack(view_of(rows)).tolist() == [[1, 2], [3, 4]]
    assert Array.from_arrow(ad.to_tensor(rows)) == rows


def test_chunks_readers_and_tables():
    chunks = ChunkedArray([Array([1, 2], DataType.int64()), Array([3], DataType.int64())])
    assert np.from_dlpack(ad.to_tensor(chunks)).tolist() == [1, 2, 3]
    assert ChunkedArray.from_arrow(ad.from_arrow(chunks)) == chunks
    assert ArrayReader.from_arrow(ad.from_arrow(chunks)).read_all() == chunks
    batch = RecordBatch.from_arrow(pa.record_batch({"x": [1.5, 2.5], "s": ["a", "b"]}))
    assert np.from_dlpack(ad.to_tensors(batch, columns=["x"])["x"]).tolist() == [1.5, 2.5]
    assert RecordBatch.from_arrow(ad.from_arrow(batch)) == batch
    table = Table.from_batches([batch, batch])
    assert np.from_dlpack(ad.to_tensors(table, columns=["x"])["x"]).tolist() == [1.5, 2.5, 1.5, 2.5]
    reader = RecordBatchReader.from_arrow(ad.from_arrow(table))
    assert reader.read_all() == table


def test_types_of_arro3_are_types():
    array = ad.to_arrow(np.array([True, False]), type=DataType.bool())
    assert Array.from_arrow(array) == Array([True, False], DataType.bool())
