"""torch: views of nearly everything, and no notion of read-only."""

from typing import ClassVar

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
import torch
from arrays import FLOAT8, Battery, Expect
from helpers import address, flags, script

NO_FLOAT8 = Expect(
    "refused", "float8_e3m4, float8_e4m3 and float8_e4m3b11fnuz are no types of torch", BufferError, "Unsupported code"
)
NONE = Expect("absent", NO_FLOAT8.note, AttributeError)
UNKNOWN = ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"]


class TestTorch(Battery):
    xp = torch
    exchange = True
    # With a driver it would move there, and this package would refuse that.
    expected: ClassVar[dict[str, Expect]] = {
        **{f"to float8 {name}": NO_FLOAT8 for name in UNKNOWN},
        **{f"from float8 {name}": NONE for name in UNKNOWN},
        "to negative strides": Expect("refused", "strides cannot be negative", RuntimeError, "overflowed"),
    }

    @classmethod
    def make(cls, values):
        return torch.from_numpy(values)

    @classmethod
    def make_narrow(cls, dtype):
        of = torch.int16 if dtype == "bfloat16" else torch.uint8
        return torch.tensor([0, 1, 2, 3], dtype=of).view(getattr(torch, dtype))

    @classmethod
    def layout(cls, theirs, name):
        return theirs[0].expand(5, 6) if name == "broadcast" else super().layout(theirs, name)

    @classmethod
    def address(cls, theirs):
        return theirs.data_ptr()

    @classmethod
    def values(cls, theirs):
        return theirs.numpy()


def test_read_only_is_ignored_by_torch(cell):
    column = pa.array([1.0, 2.0])
    tensor = ad.to_tensor(column)
    assert flags(tensor) & producers.READ_ONLY
    theirs = torch.from_dlpack(tensor)
    theirs[0] = 9
    assert column.to_pylist() == [9, 2]
    cell("to", "read-only", "wrong", "the flag is ignored: who writes, writes into Arrow's memory")
    own = torch.from_dlpack(ad.to_tensor(column, writable=True))
    own[0] = 7
    assert column.to_pylist() == [9, 2]
    cell("to", "read-only", "copy", "`writable=True` gives memory of its own")


def test_float8_is_what_torch_has():
    assert [name for name in FLOAT8 if not hasattr(torch, name)] == UNKNOWN


def test_strides_of_a_flip_are_written_out(cell):
    theirs = torch.arange(4).flip(0)
    assert theirs.stride() == (1,)
    assert np.from_dlpack(ad.from_dlpack(theirs, copy=False)).tolist() == [3, 2, 1, 0]
    cell("from", "negative strides", "absent", "flips are copies")


def test_misaligned_from(cell):
    theirs = torch.frombuffer(bytearray(13), dtype=torch.float32, offset=1, count=3)
    if theirs.data_ptr() % 4 == 0:
        pytest.fail("a bytearray was expected to be aligned")
    with pytest.raises(ad.CopyError, match="aligned"):
        ad.from_dlpack(theirs, copy=False)
    tensor = ad.from_dlpack(theirs)
    assert address(tensor) != theirs.data_ptr()
    assert np.from_dlpack(tensor).tolist() == [0, 0, 0]
    cell("from", "misaligned", "copy", "realigned; `copy=False` refuses")


def test_byte_offsets(cell):
    """torch takes a byte_offset of whole elements only; this package folds it into the address."""
    producer, source = producers.dlpack(
        data=bytes(range(16)), dtype=(0, 32, 1), shape=(2,), strides=(1,), byte_offset=6
    )
    tensor = ad.from_dlpack(source)
    assert address(tensor) % 4 == 0
    values = np.frombuffer(bytes(range(6, 14)), np.int32).tolist()
    assert torch.from_dlpack(tensor).tolist() == values
    assert producer.released


@pytest.mark.parametrize("wrong", ["requires_grad", "conj"])
def test_what_torch_refuses_to_export(wrong):
    theirs = (
        torch.ones(2, requires_grad=True) if wrong == "requires_grad" else torch.ones(2, dtype=torch.complex64).conj()
    )
    with pytest.raises((BufferError, RuntimeError), match=r"grad|conj"):
        ad.from_dlpack(theirs)


def test_the_negative_bit_is_lost_by_torch(cell):
    theirs = torch.tensor([1 + 1j]).conj().imag
    assert theirs.is_neg()
    assert theirs.tolist() == [-1]
    assert np.from_dlpack(ad.from_dlpack(theirs)).tolist() == [1]
    cell(
        "from",
        "complex",
        "wrong",
        "the imaginary part of a conjugate is exported without its sign; `resolve_neg()` first",
    )
    assert np.from_dlpack(ad.from_dlpack(theirs.resolve_neg())).tolist() == [-1]


def test_device(cell):
    tensor = ad.to_tensor(pa.array([1, 2]))
    for device in ("cpu", torch.device("cpu")):
        assert torch.from_dlpack(tensor, device=device).data_ptr() == address(tensor)
    cell("to", "device", "view", '`device="cpu"`')
    theirs = torch.arange(3)
    assert ad.from_dlpack(theirs, device=theirs.device, copy=False).device == ad.Device("cpu")
    with pytest.raises((RuntimeError, AssertionError)):
        torch.from_dlpack(tensor, device="cuda")


def test_copies_are_not_said_to_be_ones():
    """torch does not set the flag, so that a copy is made by this package."""
    theirs = torch.arange(3)
    capsule = theirs.__dlpack__(max_version=(1, 3), copy=True)
    assert producers.read_dlpack(capsule)[0].flags == 0
    copy = ad.from_dlpack(theirs, copy=True)
    assert copy.copied
    assert address(copy) != theirs.data_ptr()


def test_buffer_protocol(cell):
    tensor = ad.to_tensor(pa.array([1.5, 2.5]), writable=True)
    theirs = torch.frombuffer(tensor, dtype=torch.float64)
    assert theirs.data_ptr() == address(tensor)
    assert theirs.tolist() == [1.5, 2.5]
    cell("to", "buffer protocol", "view", "`torch.frombuffer(tensor, dtype=...)`")


def test_dtypes_as_options():
    assert ad.to_tensor(pa.array([1, 2]), dtype=torch.bfloat16).dtype == "bfloat16"
    assert ad.to_tensor(pa.array([1, 2]), dtype=torch.float32, xp=torch).dtype == torch.float32


def test_views_for_torch_are_warned_about_once():
    code = """
import warnings, torch, pyarrow as pa, arrow_dlpack as ad
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    for _ in range(2):
        ad.to_tensor(pa.array([1.0, 2.0]), xp=torch)
    ad.to_tensor(pa.array([1.0, 2.0]), xp=torch, writable=True)
print(len([warning for warning in found if warning.category is ad.ReadOnlyViewWarning]))
"""
    done = script(code)
    assert done.stdout.split() == ["1"], done.stderr
