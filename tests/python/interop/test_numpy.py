"""NumPy: every layout is a view both ways, and read-only is kept."""

from typing import ClassVar

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from arrays import BFLOAT16, Battery, Expect, narrow
from helpers import address, flags

# Since 2.5 a BufferError, which names `register_dlpack_dtype`.
NO_TYPE = Expect("refused", "has no such type", (RuntimeError, BufferError), "dtype")
NONE = Expect("absent", error=TypeError)


class TestNumPy(Battery):
    xp = np
    expected: ClassVar[dict[str, Expect]] = {
        "to bfloat16": NO_TYPE,
        "to float8": NO_TYPE,
        "from bfloat16": NONE,
        "from float8": NONE,
    }

    @classmethod
    def make(cls, values):
        return values

    @classmethod
    def make_narrow(cls, dtype):
        return np.zeros(4, dtype)

    @classmethod
    def address(cls, theirs):
        return theirs.ctypes.data


def test_read_only(cell):
    column = pa.array([1.0, 2.0])
    array = np.from_dlpack(ad.to_tensor(column))
    assert array.ctypes.data == column.buffers()[1].address
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 9
    cell("to", "read-only", "view", "the flag is kept: the array is not writeable")
    own = ad.to_tensor(column, writable=True, xp=np)
    own[0] = 9
    assert own.ctypes.data != column.buffers()[1].address
    assert column.to_pylist() == [1, 2]
    cell("to", "read-only", "copy", "`writable=True` gives memory of its own")

    source = np.arange(3.0)
    source.flags.writeable = False
    tensor = ad.from_dlpack(source)
    assert address(tensor) == source.ctypes.data
    assert not tensor.writable
    assert flags(tensor) & 1
    cell("from", "read-only", "view", "the flag is kept")


def test_unversioned_capsules_of_read_only_arrays(cell):
    source = np.arange(3.0)
    source.flags.writeable = False
    with pytest.raises(BufferError, match="readonly"):
        source.__dlpack__()
    # We ask for versioned ones.
    assert ad.from_dlpack(source, copy=False).size == 3


def test_negative_strides_from(cell):
    source = np.arange(6.0)[::-1]
    tensor = ad.from_dlpack(source, copy=False)
    assert tensor.strides == (-1,)
    assert address(tensor) == source.ctypes.data
    cell("from", "negative strides", "view", "and a copy as Arrow data")
    with pytest.raises(ad.CopyError):
        ad.to_arrow(source, copy=False)
    assert pa.array(ad.to_arrow(source)).to_pylist() == [5, 4, 3, 2, 1, 0]


def test_misaligned_from(cell):
    source = np.frombuffer(b"\0" + np.arange(3.0).tobytes(), "uint8")[1:].view("float64")
    with pytest.raises(ad.CopyError, match="aligned"):
        ad.from_dlpack(source, copy=False)
    tensor = ad.from_dlpack(source)
    assert address(tensor) != source.ctypes.data
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2]
    cell("from", "misaligned", "copy", "realigned; `copy=False` refuses")


def test_device(cell):
    tensor = ad.to_tensor(pa.array([1, 2]))
    assert np.from_dlpack(tensor, device="cpu").ctypes.data == address(tensor)
    cell("to", "device", "view", '`device="cpu"`')
    with pytest.raises(ValueError, match="cuda"):
        np.from_dlpack(tensor, device="cuda")
    assert ad.from_dlpack(np.arange(3), device=np.arange(3).device).device == ad.Device("cpu")


def test_copy(cell):
    tensor = ad.to_tensor(pa.array([1, 2]))
    assert np.from_dlpack(tensor, copy=False).ctypes.data == address(tensor)
    own = np.from_dlpack(tensor, copy=True)
    assert own.ctypes.data != address(tensor)
    assert own.flags.writeable


def test_buffer_protocol(cell):
    column = pa.array([1.5, 2.5])
    tensor = ad.to_tensor(column)
    array = np.asarray(memoryview(tensor))
    assert array.dtype == "float64"
    assert array.ctypes.data == column.buffers()[1].address
    assert not array.flags.writeable
    cell("to", "buffer protocol", "view", "a NumPy array of the tensor itself, by `np.asarray`")
    assert np.asarray(tensor).ctypes.data == column.buffers()[1].address


@pytest.mark.parametrize("dtype", [">f8", "datetime64[s]", "S3", "O", "float128"])
def test_what_is_not_exported(dtype):
    with pytest.raises((BufferError, TypeError)):
        ad.from_dlpack(np.zeros(2, dtype))


def test_size_0_strides():
    """NumPy gives no elements an address and strides of 0; a tensor of ours has neither."""
    tensor = ad.from_dlpack(np.zeros((2, 0)))
    assert address(tensor) == 0
    assert tensor.strides == (1, 1)


@pytest.mark.skipif(not hasattr(np.dtypes, "register_dlpack_dtype"), reason="NumPy before 2.5 registers no dtypes")
def test_unregistered_types_say_so():
    with pytest.raises(BufferError):
        np.from_dlpack(narrow(BFLOAT16))
