"""A matrix that lies in the order asked for already: a view, which keeps its columns alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import producers
import pyarrow as pa
import pytest
from support import address, numpy_of

ORDERS = ["F", "A"]


def batch_over(matrix: np.ndarray) -> pa.RecordBatch:
    """The columns of a column-major matrix, over its memory."""
    return pa.record_batch([pa.array(column) for column in matrix.T], names=[f"c{i}" for i in range(matrix.shape[1])])


def matrix(rows: int = 10, columns: int = 3, dtype: str = "f8") -> np.ndarray:
    return np.asfortranarray(np.arange(rows * columns).reshape(rows, columns).astype(dtype))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1"])
def test_of_a_column_major_matrix(order: Any, dtype: str):
    source = matrix(dtype=dtype)
    with ad.track_copies() as log:
        view = ad.to_tensor(batch_over(source), order=order, copy=False)
    assert (len(log), view.copied, view.writable, view.strides) == (0, False, False, (1, 10))
    assert address(view) == source.ctypes.data
    np.testing.assert_array_equal(numpy_of(view), source)


@pytest.mark.parametrize("order", ORDERS)
def test_of_some_of_its_columns(order: Any):
    source = matrix(columns=6)
    batch = batch_over(source)
    for columns in (["c1", "c2"], ["c0", "c2", "c4"], ["c5"]):
        view = ad.to_tensor(batch, columns=columns, order=order, copy=False)
        np.testing.assert_array_equal(numpy_of(view), source[:, [int(name[1]) for name in columns]])
    for columns in (["c2", "c1"], ["c0", "c1", "c3"]):
        with pytest.raises(ad.CopyError, match="packed"):
            ad.to_tensor(batch, columns=columns, order=order, copy=False)
        np.testing.assert_array_equal(
            numpy_of(ad.to_tensor(batch, columns=columns, order=order)), source[:, [int(name[1]) for name in columns]]
        )


def test_under_row_major_order_is_a_single_column_alone():
    batch = batch_over(matrix(columns=2))
    assert not ad.to_tensor(batch, columns=["c1"], copy=False).copied
    with pytest.raises(ad.CopyError, match='order="F"'):
        ad.to_tensor(batch, copy=False)
    assert ad.to_tensor(batch).copied


def test_of_a_data_frame_of_one_dtype():
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3), columns=list("abc"))
    matrix = numpy_of(ad.to_tensor(frame, order="A"))
    np.testing.assert_array_equal(matrix, frame.to_numpy())


def test_slices_of_a_small_matrix():
    source = matrix()
    for part in (batch_over(source).slice(2, 5), batch_over(source[2:7])):
        view = ad.to_tensor(part, order="F", copy=False)
        assert view.strides == (1, 10)
        np.testing.assert_array_equal(numpy_of(view), source[2:7])


def test_columns_with_a_page_between_them_are_copied():
    """Who copies all that a view spans must not leave the columns' memory."""
    source = matrix(2000, 2)
    part = batch_over(source[:10])
    with pytest.raises(ad.CopyError):
        ad.to_tensor(part, order="F", copy=False)
    tensor = ad.to_tensor(part, order="A")
    assert (tensor.copied, tensor.strides) == (True, (2, 1))
    np.testing.assert_array_equal(numpy_of(tensor), source[:10])


@pytest.mark.parametrize("gap", [0, 48, 64, 512])
def test_other_memory_between_columns_is_no_part_of_a_view(gap: int):
    """Consumers may copy all that a view spans, as `torch.save` does."""
    memory = np.zeros(400 + gap, "u1")
    parts = [memory[start : start + 160].view("f8") for start in (0, 160 + gap)]
    for values in parts:
        values[:] = np.arange(20)
    batch = pa.record_batch(
        [pa.Array.from_buffers(pa.float64(), 20, [None, pa.py_buffer(part)]) for part in parts], names="ab"
    )
    tensor = ad.to_tensor(batch, order="F")
    assert tensor.copied == (gap >= 64)
    # Slots before a slice are of the same columns.
    assert ad.to_tensor(batch.slice(12), order="F").copied == (gap >= 64)
    np.testing.assert_array_equal(numpy_of(tensor), np.arange(20.0)[:, None].repeat(2, 1))


@pytest.mark.parametrize(
    "keywords",
    [{"dtype": "float32"}, {"writable": True}, {"copy": True}, {"nulls": 0}],
    ids=["cast", "writable", "copy", "nulls"],
)
def test_what_else_is_asked_decides_too(keywords: Any):
    source = matrix()
    batch = batch_over(source)
    if "nulls" in keywords:
        # No null, nothing to fill.
        assert not ad.to_tensor(batch, order="F", **keywords).copied
        column = pa.array(source[:, 1], mask=np.arange(10) == 3)
        batch = batch.set_column(1, "c1", column)
    tensor = ad.to_tensor(batch, order="F", **keywords)
    assert (tensor.copied, tensor.writable, tensor.strides) == (True, True, (1, 10))


def test_chunks_are_joined_by_a_copy():
    batch = batch_over(matrix())
    with pytest.raises(ad.CopyError, match="2 chunks joined"):
        ad.to_tensor(pa.Table.from_batches([batch, batch]), order="F", copy=False)
    empty = batch.slice(0, 0)
    assert not ad.to_tensor(pa.Table.from_batches([empty, batch, empty]), order="F", copy=False).copied


def test_kept_nulls_are_no_reason_to_copy():
    source = matrix()
    columns = [
        pa.Array.from_buffers(pa.float64(), 10, [pa.py_buffer(b"\xfe\x03"), pa.py_buffer(column)])
        for column in source.T
    ]
    batch = pa.record_batch(columns, names=list("abc"))
    view = ad.to_tensor(batch, order="F", nulls="keep", copy=False)
    np.testing.assert_array_equal(numpy_of(view), source)
    with pytest.raises(ad.NullError):
        ad.to_tensor(batch, order="F")


def test_the_array_is_released_with_its_view_and_before_a_copy():
    producer = producers.Array(
        length=2,
        buffers=[None],
        children=[producers.Array(length=2, buffers=[None, bytes(16)]) for _ in range(2)],
    )
    schema = producers.Schema(b"+s", children=[producers.Schema(b"l", field=name) for name in (b"a", b"b")])
    copy = ad.to_tensor(producers.arrow(schema, producer))
    gc.collect()
    assert producer.released == 1
    assert numpy_of(copy).sum() == 0

    producer = producers.Array(
        length=2, buffers=[None], children=[producers.Array(length=2, buffers=[None, bytes(16)])]
    )
    schema = producers.Schema(b"+s", children=[producers.Schema(b"l", field=b"a")])
    view = ad.to_tensor(producers.arrow(schema, producer))
    array = np.from_dlpack(view)
    del view
    gc.collect()
    assert producer.released == 0
    del array
    gc.collect()
    assert producer.released == 1


def test_a_numpy_matrix_lives_as_long_as_the_view_of_its_columns():
    class Matrix(np.ndarray):
        """Weak references to arrays are of subclasses."""

    source = matrix().view(Matrix)
    alive = weakref.ref(source)
    view = ad.to_tensor(batch_over(source), order="F", copy=False)
    del source
    gc.collect()
    np.testing.assert_array_equal(numpy_of(view), matrix())
    del view
    gc.collect()
    assert alive() is None
