"""tvm-ffi: takes tensors by their exchange table, of any layout and any type."""

import ctypes

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
import tvm_ffi
from arrays import BFLOAT16, FLOAT8, Battery, layout, narrow
from helpers import address


class TestTvmFfi(Battery):
    xp = tvm_ffi

    @classmethod
    def make(cls, values):
        return tvm_ffi.from_dlpack(values)

    @classmethod
    def make_narrow(cls, dtype):
        return tvm_ffi.from_dlpack(narrow(FLOAT8.get(dtype, BFLOAT16)))

    @classmethod
    def layout(cls, theirs, name):
        values = np.from_dlpack(theirs)
        if name == "broadcast":
            # NumPy exports no read-only array without a version.
            return tvm_ffi.from_dlpack(np.lib.stride_tricks.as_strided(values, (5, 6), (0, 4), writeable=True))
        return tvm_ffi.from_dlpack(layout(values, name))

    @classmethod
    def values(cls, theirs):
        return np.from_dlpack(theirs)

    @pytest.mark.parametrize("dtype", ["complex64", "complex128"])
    def test_complex_to(self, cell, dtype):
        tensor = ad.from_dlpack(np.array([1 + 2j, 3], dtype))
        theirs = tvm_ffi.from_dlpack(tensor)
        assert address(theirs) == address(tensor)
        assert np.from_dlpack(theirs).tolist() == [1 + 2j, 3]
        with pytest.raises(ValueError, match="type_code=5"):
            assert theirs.dtype
        cell("to", "complex", "wrong", "the array is made, but raises when its dtype is asked for")


def test_read_only_is_ignored_by_tvm_ffi(cell):
    column = pa.array([1.0, 2.0])
    with ad.track_copies() as log:
        theirs = tvm_ffi.from_dlpack(ad.to_tensor(column, legacy="error"))
    assert len(log) == 0
    assert address(theirs) == column.buffers()[1].address
    ctypes.c_double.from_address(address(theirs)).value = 9
    assert column.to_pylist() == [9, 2]
    cell("to", "read-only", "wrong", "the flag is ignored: who writes, writes into Arrow's memory")
    own = tvm_ffi.from_dlpack(ad.to_tensor(column, writable=True))
    ctypes.c_double.from_address(address(own)).value = 7
    assert column.to_pylist() == [9, 2]
    cell("to", "read-only", "copy", "`writable=True` gives memory of its own")


def test_exchange_api_to(cell):
    column = pa.array([1.0, 2.0])
    result = tvm_ffi.convert(lambda tensor: tensor)(ad.to_tensor(column))
    assert type(result) is ad.Tensor
    assert address(result) == column.buffers()[1].address
    cell("to", "exchange API", "view", "takes tensors by the table of this package, and functions return them by it")


def test_negative_strides_from(cell):
    theirs = tvm_ffi.from_dlpack(np.arange(6.0)[::-1])
    tensor = ad.from_dlpack(theirs, copy=False)
    assert tensor.strides == (-1,)
    assert address(tensor) == address(theirs)
    cell("from", "negative strides", "view", "and a copy as Arrow data")
    assert pa.array(ad.to_arrow(theirs)).to_pylist() == [5, 4, 3, 2, 1, 0]


def test_device_objects():
    theirs = tvm_ffi.from_dlpack(np.arange(3))
    assert ad.from_dlpack(theirs, device=theirs.device).device == ad.Device("cpu")
