"""PaddlePaddle: views of nearly everything; it ignores byte offsets and read-only."""

from typing import ClassVar

import arrow_dlpack as ad
import numpy as np
import paddle
import producers
import pyarrow as pa
import pytest
from arrays import BFLOAT16, FLOAT8, Battery, Expect, aligned, narrow
from helpers import address, script

KNOWN = ["float8_e4m3fn", "float8_e5m2"]
NO_FLOAT8 = Expect("refused", "float8_e4m3fn and float8_e5m2 only", NotImplementedError, "is illegal")
NONE = Expect("absent", NO_FLOAT8.note, NotImplementedError)


class TestPaddle(Battery):
    xp = paddle
    exchange = True
    expected: ClassVar[dict[str, Expect]] = {
        **{f"to float8 {name}": NO_FLOAT8 for name in FLOAT8 if name not in KNOWN},
        **{f"from float8 {name}": NONE for name in FLOAT8 if name not in KNOWN},
    }

    @classmethod
    def make(cls, values):
        return paddle.from_dlpack(values)

    @classmethod
    def make_narrow(cls, dtype):
        return paddle.from_dlpack(narrow({**FLOAT8, "bfloat16": BFLOAT16}[dtype]))

    @classmethod
    def layout(cls, theirs, name):
        return theirs[:1].expand([5, 6]) if name == "broadcast" else super().layout(theirs, name)

    @classmethod
    def address(cls, theirs):
        return theirs.data_ptr()

    @classmethod
    def values(cls, theirs):
        return theirs.numpy()

    @classmethod
    def dtype(cls, theirs):
        # str() calls uint16 bfloat16.
        return theirs.dtype.name.lower()

    def test_negative_strides_to(self, cell):
        """Taken as a view, which some functions read rightly, and others not: what `numpy()` does is left to chance."""
        values = aligned(np.arange(6, dtype="float32"))[::-1]
        theirs = paddle.from_dlpack(ad.from_dlpack(values, copy=False))
        assert theirs.data_ptr() == values.ctypes.data
        assert theirs.contiguous().numpy().tolist() == values.tolist()
        # It asks for nearly 2^64 bytes, which a process that has just begun is refused.
        code = """
import numpy as np, paddle
import arrow_dlpack as ad
paddle.from_dlpack(ad.from_dlpack(np.arange(6, dtype="float32")[::-1])).numpy()
"""
        assert "MemoryError" in script(code).stderr
        cell("to", "negative strides", "wrong", "taken as a view, which `numpy()` cannot read; `contiguous()` first")


def test_read_only_is_ignored_by_paddle(cell):
    column = pa.array([1.0, 2.0])
    theirs = paddle.from_dlpack(ad.to_tensor(column))
    theirs[0] = 9
    assert column.to_pylist() == [9, 2]
    cell("to", "read-only", "wrong", "the flag is ignored: who writes, writes into Arrow's memory")
    own = paddle.from_dlpack(ad.to_tensor(column, writable=True))
    own[0] = 7
    assert column.to_pylist() == [9, 2]
    cell("to", "read-only", "copy", "`writable=True` gives memory of its own")


def test_deleters_are_called_only_with_a_context(cell):
    """Ours have one. Others leak."""
    tensor = producers.DLPack()
    tensor.expected = 0
    paddle.utils.dlpack.from_dlpack(tensor.capsule())
    assert not tensor.released
    tensor = producers.DLPack(context=True)
    paddle.utils.dlpack.from_dlpack(tensor.capsule())
    assert tensor.released


@pytest.mark.keeps_memory("PaddlePaddle does, by whichever way it was given")
def test_memory_of_which_two_arrays_were_made_is_not_given_back():
    column = pa.array([1, 2])
    before = pa.total_allocated_bytes()
    one, other = (paddle.from_dlpack(ad.to_tensor(column)) for _ in range(2))
    del one
    assert other.tolist() == [1, 2]
    del other
    assert pa.total_allocated_bytes() > before


def test_byte_offsets_are_ignored_by_paddle_but_not_through_us():
    def source():
        data = np.arange(8, dtype="int32").tobytes()
        return producers.dlpack(data=data, shape=(4,), strides=(1,), byte_offset=8, context=True)

    producer, _ = source()
    assert paddle.utils.dlpack.from_dlpack(producer.capsule()).numpy().tolist() == [0, 1, 2, 3]
    _, offset = source()
    assert paddle.from_dlpack(ad.from_dlpack(offset)).numpy().tolist() == [2, 3, 4, 5]


def test_its_device_has_no_ordinal():
    theirs = paddle.to_tensor([1, 2])
    assert theirs.__dlpack_device__()[1] is None
    for device in ("cpu", theirs.device):
        assert ad.from_dlpack(theirs, device=device, copy=False).device == ad.Device("cpu")


def test_places_are_devices(cell):
    theirs = paddle.to_tensor([1, 2])
    assert ad.from_dlpack(theirs, device=theirs.place, copy=False).device == ad.Device("cpu")
    cell("from", "device", "view", "`device=tensor.place` or `tensor.device`")


def test_device(cell):
    tensor = ad.to_tensor(pa.array([1, 2]))
    assert paddle.from_dlpack(tensor, device="cpu").data_ptr() == address(tensor)
    cell("to", "device", "view", '`device="cpu"`')


def test_flips_are_copies(cell):
    theirs = paddle.arange(4).flip(0)
    assert theirs.strides == [1]
    assert np.from_dlpack(ad.from_dlpack(theirs, copy=False)).tolist() == [3, 2, 1, 0]
    cell("from", "negative strides", "absent", "flips are copies")


def test_copies():
    tensor = ad.to_tensor(pa.array([1, 2]))
    assert paddle.from_dlpack(tensor, copy=True).data_ptr() != address(tensor)
    assert paddle.from_dlpack(tensor, copy=False).data_ptr() == address(tensor)
    theirs = paddle.to_tensor([1, 2])
    assert address(ad.from_dlpack(theirs, copy=True)) != theirs.data_ptr()


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_unsigned_integers_only_by_dlpack(dtype):
    with pytest.raises(ValueError, match="incompatible array data type"):
        paddle.to_tensor(np.arange(3, dtype=dtype))
    assert paddle.from_dlpack(ad.from_dlpack(np.arange(3, dtype=dtype))).numpy().tolist() == [0, 1, 2]


def test_views_for_paddle_are_warned_about_once():
    code = """
import warnings, paddle, pyarrow as pa, arrow_dlpack as ad
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    for _ in range(2):
        ad.to_tensor(pa.array([1.0, 2.0]), xp=paddle)
    ad.to_tensor(pa.array([1.0, 2.0]), xp=paddle, writable=True)
print(len([warning for warning in found if warning.category is ad.ReadOnlyViewWarning]))
"""
    done = script(code)
    assert done.stdout.split() == ["1"], done.stderr
