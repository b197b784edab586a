"""NumPy's array interface of host tensors, for consumers that ask for nothing else."""

import arrow_dlpack as ad
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from support import FLOATS, INTEGERS, address


class Interface:
    """An object with the interface alone; it keeps its tensor alive."""

    def __init__(self, tensor: ad.Tensor) -> None:
        self.__array_interface__ = tensor.__array_interface__
        self.tensor = tensor


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "bool", "complex64", "complex128"])
def test_is_the_tensors_own_memory(dtype: str):
    source = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for view in (source, source[::-1, :, ::2], source.T, source[:, :0], np.array(source[1, 2, 3])):
        tensor = ad.from_dlpack(view)
        found = np.asarray(Interface(tensor))
        np.testing.assert_array_equal(found, view)
        assert found.dtype == view.dtype
        assert not found.size or found.ctypes.data == address(tensor)


def test_says_who_may_write():
    assert ad.to_tensor(pa.array([1, 2])).__array_interface__["data"][1]
    assert not np.asarray(Interface(ad.to_tensor(pa.array([1, 2])))).flags.writeable
    private = ad.to_tensor(pa.array([1, 2]), writable=True)
    np.asarray(Interface(private))[0] = 9
    assert np.from_dlpack(private).tolist() == [9, 2]


def test_dtypes_without_a_name_have_none():
    tensor = ad.to_tensor(pa.array([1.5]), dtype=ml_dtypes.bfloat16)
    assert not hasattr(tensor, "__array_interface__")


def test_a_row_major_tensor_has_no_strides():
    """As NumPy's own arrays: Pillow's `Image.fromarray` takes no others."""
    grid = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for view in (grid, grid.T, grid[:, ::2], grid[:0], np.array(grid[1, 2])):
        assert ad.from_dlpack(view).__array_interface__["strides"] == view.__array_interface__["strides"]
