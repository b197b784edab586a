"""tvm-ffi: asks for unversioned capsules, and takes any layout of any type."""

import ctypes
from typing import ClassVar

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
import tvm_ffi
from arrays import BFLOAT16, FLOAT8, LEGACY, Battery, Expect, layout, narrow
from helpers import address


class TestTvmFfi(Battery):
    xp = tvm_ffi
    no_device = (BufferError, "dl_device of different type")
    expected: ClassVar[dict[str, Expect]] = {
        "to arrow": LEGACY,
        # A broadcast array of NumPy is read-only.
        "to strided broadcast": LEGACY,
    }

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


def test_read_only(cell):
    column = pa.array([1.0, 2.0])
    with ad.track_copies() as log:
        theirs = tvm_ffi.from_dlpack(ad.to_tensor(column))
    assert log.bytes == 16
    assert address(theirs) != column.buffers()[1].address
    cell("to", "read-only", "copy", LEGACY.note)
    vouched = tvm_ffi.from_dlpack(ad.to_tensor(column, legacy="view"))
    assert address(vouched) == column.buffers()[1].address
    ctypes.c_double.from_address(address(vouched)).value = 9
    assert column.to_pylist() == [9, 2]
    cell("to", "read-only", "view", '`legacy="view"`: who writes, writes into Arrow\'s memory')
    with pytest.raises(ad.ConversionError, match="read-only"):
        tvm_ffi.from_dlpack(ad.to_tensor(column, legacy="error"))
    cell("to", "read-only", "refused", '`legacy="error"`')


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
