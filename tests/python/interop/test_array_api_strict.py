"""array-api-strict: NumPy underneath, and nothing but the standard."""

from typing import ClassVar

import array_api_strict as xp
import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from arrays import Battery, Expect
from helpers import address

NO_TYPE = Expect("refused", "the standard has no such type", (TypeError, RuntimeError, BufferError), "dtype")
NONE = Expect("absent", error=(TypeError, AttributeError))


class TestStrict(Battery):
    xp = xp
    expected: ClassVar[dict[str, Expect]] = {
        "to numbers float16": NO_TYPE,
        "to bfloat16": NO_TYPE,
        "to float8": NO_TYPE,
        "from numbers float16": NONE,
        "from bfloat16": NONE,
        "from float8": NONE,
    }

    @classmethod
    def make(cls, values):
        return xp.asarray(values)

    @classmethod
    def make_narrow(cls, dtype):
        return xp.zeros(4, dtype=getattr(xp, dtype))

    @classmethod
    def layout(cls, theirs, name):
        if name == "broadcast":
            return xp.broadcast_to(theirs[0, :], (5, 6))
        return theirs[1:3, :] if name == "rows" else super().layout(theirs, name)

    @classmethod
    def values(cls, theirs):
        return np.from_dlpack(theirs)


def test_read_only(cell):
    column = pa.array([1.0, 2.0])
    theirs = xp.from_dlpack(ad.to_tensor(column))
    assert address(theirs) == column.buffers()[1].address
    with pytest.raises(ValueError, match="read-only"):
        theirs[0] = 9.0
    cell("to", "read-only", "view", "the flag is kept: the array is not writeable")
    own = xp.from_dlpack(ad.to_tensor(column, writable=True))
    own[0] = 9.0
    assert column.to_pylist() == [1, 2]


def test_negative_strides_from(cell):
    theirs = xp.asarray(np.arange(6.0))[::-1]
    tensor = ad.from_dlpack(theirs, copy=False)
    assert tensor.strides == (-1,)
    assert address(tensor) == address(theirs)
    cell("from", "negative strides", "view", "and a copy as Arrow data")
    assert pa.array(ad.to_arrow(theirs)).to_pylist() == [5, 4, 3, 2, 1, 0]


def test_device(cell):
    tensor = ad.to_tensor(pa.array([1, 2]))
    theirs = xp.from_dlpack(tensor, device=xp.Device("CPU_DEVICE"))
    assert address(theirs) == address(tensor)
    cell("to", "device", "view", '`device=Device("CPU_DEVICE")`')
    with pytest.raises(ValueError, match="Unsupported device"):
        xp.from_dlpack(tensor, device="cpu")


def test_device_objects(cell):
    theirs = xp.asarray([1, 2])
    assert str(theirs.device) == "array_api_strict.Device('CPU_DEVICE')"
    assert address(ad.from_dlpack(theirs, device=theirs.device, copy=False)) == address(theirs)
    cell("from", "device", "view", "`device=array.device`")


def test_devices_that_are_none():
    theirs = xp.asarray([1, 2])
    with pytest.raises(TypeError, match="device1"):
        ad.from_dlpack(theirs, device=xp.Device("device1"))


def test_copy():
    tensor = ad.to_tensor(pa.array([1, 2]))
    assert address(xp.from_dlpack(tensor, copy=False)) == address(tensor)
    assert address(xp.from_dlpack(tensor, copy=True)) != address(tensor)
