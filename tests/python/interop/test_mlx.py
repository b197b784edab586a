"""MLX on the CPU: it copies what comes in, and what goes out is a view."""

from typing import ClassVar

import arrow_dlpack as ad
import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from arrays import Battery, Expect
from helpers import address

COPIES = Expect("copy", "memory of the CPU is always copied")
NO_FLOAT8 = Expect("absent", error=AttributeError)


class TestMlx(Battery):
    xp = mx
    expected: ClassVar[dict[str, Expect]] = {
        "to arrow": COPIES,
        "to tensor": COPIES,
        "to numbers float64": Expect("copy", "float64 becomes float32 silently", dtype="float32"),
        "to complex complex128": Expect("copy", "complex128 becomes complex64 silently", dtype="complex64"),
        "to float8": Expect("refused", "has no such type", ValueError, "Cannot convert"),
        "to negative strides": Expect("refused", "strides cannot be negative", ValueError, "negative strides"),
        "from numbers float64": Expect("view", "float64 becomes float32 when the array is made", dtype="float32"),
        "from complex complex128": Expect(
            "view", "complex128 becomes complex64 when the array is made", dtype="complex64"
        ),
        "from float8": NO_FLOAT8,
    }

    @classmethod
    def make(cls, values):
        return mx.array(values)

    @classmethod
    def make_narrow(cls, dtype):
        return mx.zeros(4, getattr(mx, dtype))

    @classmethod
    def layout(cls, theirs, name):
        return mx.broadcast_to(theirs[0], (5, 6)) if name == "broadcast" else super().layout(theirs, name)

    @classmethod
    def values(cls, theirs):
        return np.array(theirs)


def test_read_only(cell):
    column = pa.array([1, 2])
    theirs = mx.from_dlpack(ad.to_tensor(column))
    theirs[0] = 9
    assert theirs.tolist() == [9, 2]
    assert column.to_pylist() == [1, 2]
    cell("to", "read-only", "copy", COPIES.note)
    # Its capsules are unversioned, and cannot say that they may be written to.
    assert not ad.from_dlpack(mx.array([1, 2])).writable
    cell("from", "read-only", "view", "unversioned capsules: taken as read-only")


def test_device_objects(cell):
    theirs = mx.array([1, 2])
    assert str(mx.Device(mx.cpu, 0)) == "Device(cpu, 0)"
    assert address(ad.from_dlpack(theirs, device=mx.Device(mx.cpu, 0), copy=False)) == address(theirs)
    cell("from", "device", "view", "`device=mx.Device(mx.cpu, 0)`")
    for device in (mx.cpu, mx.Device(mx.gpu, 0)):
        with pytest.raises(TypeError, match="expected a device"):
            ad.from_dlpack(theirs, device=device)
    cell("from", "device", "refused", "`device=mx.cpu`, which is a kind of device, and `mx.gpu`, which names none")


def test_copy(cell):
    tensor = ad.to_tensor(pa.array([1, 2]))
    with pytest.raises(ValueError, match="without a copy"):
        mx.from_dlpack(tensor, copy=False)
    assert address(mx.from_dlpack(tensor, copy=True)) != address(tensor)


def test_buffer_protocol(cell):
    theirs = mx.array(memoryview(ad.to_tensor(pa.array([1, 2], pa.int32()))))
    assert theirs.tolist() == [1, 2]
    cell("to", "buffer protocol", "copy", "`mx.array(memoryview(tensor))`")
