"""Numba compiles functions of NumPy arrays, which are views of our tensors; it has no DLPack of its own on the CPU."""

import arrow_dlpack as ad
import numba
import numpy as np
import pyarrow as pa
import pytest
from helpers import address


@numba.njit
def total(values):
    result = 0.0
    for value in values:
        result += value
    return result


@numba.njit
def first_address(values):
    return values.ctypes.data


@numba.njit
def write(values):
    values[0] = 9


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64", "float32", "float64"])
def test_numbers(cell, dtype):
    column = pa.array([1, 2, 3], pa.from_numpy_dtype(dtype))
    values = ad.to_tensor(column, xp=np)
    assert total(values) == 6
    assert first_address(values) == column.buffers()[1].address
    cell("to", "numbers", "view", "as NumPy arrays")


@pytest.mark.keeps_memory("Numba keeps the arguments of a function that did not compile")
def test_read_only(cell):
    column = pa.array([1.0, 2.0])
    with pytest.raises(numba.TypingError, match="readonly"):
        write(ad.to_tensor(column, xp=np))
    assert total(ad.to_tensor(column, xp=np)) == 3
    cell("to", "read-only", "view", "the flag is kept: a function that writes does not compile")
    write(ad.to_tensor(column, xp=np, writable=True))
    assert column.to_pylist() == [1, 2]


def test_bool(cell):
    assert total(ad.to_tensor(pa.array([True, False, True]), xp=np)) == 2
    cell("to", "bool", "copy", "a Boolean column is bits, which are unpacked")


def test_complex(cell):
    values = np.array([1 + 2j, 3])
    tensor = ad.from_dlpack(values)
    assert first_address(np.from_dlpack(tensor)) == values.ctypes.data
    cell("to", "complex", "view", "as NumPy arrays")


@numba.njit
def sums(values, offsets):
    result = np.zeros(len(offsets) - 1)
    for row in range(len(result)):
        result[row] = values[offsets[row] : offsets[row + 1]].sum()
    return result


def test_lists(cell):
    column = pa.array([[1.0], [], [2.0, 3.0]])
    rows = ad.to_ragged(column, xp=np, copy=False)
    assert sums(rows.values, rows.offsets).tolist() == [1, 0, 5]
    assert first_address(rows.values) == column.values.buffers()[1].address
    assert first_address(rows.offsets) == column.buffers()[1].address
    cell("to", "lists", "view", "as NumPy arrays")


def test_nulls(cell):
    assert np.isnan(total(ad.to_tensor(pa.array([1.0, None]), nulls="nan", xp=np)))
    cell("to", "nulls", "copy", '`nulls="nan"` or a value to fill with')


def test_strides(cell):
    values = np.arange(12.0).reshape(3, 4)
    assert total(np.from_dlpack(ad.from_dlpack(values[:, ::2][1]))) == 10
    assert first_address(np.from_dlpack(ad.from_dlpack(values.T, copy=False))) == values.ctypes.data
    cell("to", "strided", "view", "as NumPy arrays")
    assert total(np.from_dlpack(ad.from_dlpack(values[0, ::-1], copy=False))) == 6
    assert first_address(np.from_dlpack(ad.from_dlpack(values[0, ::-1]))) == values[0, ::-1].ctypes.data
    cell("to", "negative strides", "view", "as NumPy arrays")


def test_size_0(cell):
    assert total(np.from_dlpack(ad.from_dlpack(np.zeros(0)))) == 0
    cell("to", "size 0", "view", "as NumPy arrays")


def test_buffer_protocol(cell):
    """A tensor itself is typed as a buffer, whose elements can be read."""
    column = pa.array([1.0, 2.0])

    @numba.njit
    def second(buffer):
        return buffer[1]

    assert second(ad.to_tensor(column)) == 2
    assert second(memoryview(ad.to_tensor(column))) == 2
    cell("to", "buffer protocol", "view", "a function takes the tensor itself, as a buffer without methods")


def test_what_is_compiled_comes_back(cell):
    @numba.njit
    def squares(n):
        return np.arange(n) ** 2

    values = squares(4)
    column = pa.array(ad.to_arrow(values, copy=False))
    assert column.to_pylist() == [0, 1, 4, 9]
    assert column.buffers()[1].address == values.ctypes.data == address(values)
    cell("from", "numbers", "view", "as NumPy arrays")


def test_exchange_api(cell):
    assert not hasattr(numba, "from_dlpack")
    cell("from", "exchange API", "absent")
