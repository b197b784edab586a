"""DLPack capsules that break the specification, or bend it: the right data or a clear error, released exactly once."""

import contextlib
import gc
import struct

import arrow_dlpack as ad
import numpy as np
import producers
import pytest
from producers import DLPack, Only

MAX = 2**63 - 1
MIN = -(2**63)

# What is refused, by what it breaks.
REFUSED = {
    "major version 2": {"version": (2, 0)},
    "major version 0": {"version": (0, 8)},
    "major version at its limit": {"version": (2**32 - 1, 0)},
    "negative ndim": {"ndim": -1},
    "lowest ndim": {"ndim": -(2**31)},
    "more dimensions than anybody has": {"ndim": 65},
    "highest ndim": {"ndim": 2**31 - 1},
    "no shape": {"shape": None, "ndim": 2},
    "no shape and no strides": {"shape": None, "strides": None, "ndim": 1},
    "negative extent": {"shape": (2, -3)},
    "lowest extent": {"shape": (MIN, 1)},
    "two negative extents, whose product is not": {"shape": (-2, -3)},
    "negative extent beside 0": {"shape": (0, -1)},
    "negative extent beside 0, the other way": {"shape": (-1, 0)},
    "extents that overflow": {"shape": (MAX, MAX), "strides": (1, 1)},
    "extents that overflow to 0": {"shape": (2**32, 2**32), "strides": (1, 1)},
    "extents that overflow, and no strides": {"shape": (2**32, 2**33), "strides": None},
    "bytes that overflow": {"shape": (2**61, 1), "strides": (1, 1)},
    "bytes that overflow by one": {"shape": (2**62, 2), "strides": (2, 1)},
    "stride beyond the address space": {"strides": (MAX, 1)},
    "stride below the address space": {"strides": (MIN, 1)},
    "stride that overflows when multiplied": {"shape": (3, 2), "strides": (2**62, 1)},
    "strides that cancel in wrapping arithmetic": {"shape": (3, 3), "strides": (2**62, 2**62)},
    "no data": {"data": None},
    "no data and an offset": {"data": None, "byte_offset": 64},
    "offset at its limit": {"byte_offset": 2**64 - 1},
    "offset that wraps around": {"byte_offset": 2**64 - 8},
    "data at the end of the address space": {"address": 2**64 - 8},
    "data beyond what an offset can reach": {"address": 2**63 - 16},
    "lanes 0": {"dtype": (0, 32, 0)},
    "lanes 2": {"dtype": (0, 32, 2)},
    "lanes at their limit": {"dtype": (0, 32, 65535)},
    "bits 0": {"dtype": (0, 0, 1)},
    "bits 1": {"dtype": (6, 1, 1)},
    "bits 4": {"dtype": (0, 4, 1)},
    "bits 24": {"dtype": (0, 24, 1)},
    "bits 128": {"dtype": (2, 128, 1)},
    "bits 255": {"dtype": (1, 255, 1)},
    "8-bit float of no format": {"dtype": (2, 8, 1)},
    "bool of 32 bits": {"dtype": (6, 32, 1)},
    "bfloat of 32 bits": {"dtype": (4, 32, 1)},
    "complex of 32 bits": {"dtype": (5, 32, 1)},
    "opaque handles": {"dtype": (3, 64, 1)},
    "6-bit float": {"dtype": (15, 6, 1)},
    "4-bit float": {"dtype": (17, 4, 1)},
    "type code 18": {"dtype": (18, 8, 1)},
    "type code 255": {"dtype": (255, 32, 1)},
    "a GPU": {"device": (2, 0)},
    "device type 0": {"device": (0, 0)},
    "device type 5": {"device": (5, 0)},
    "negative device type": {"device": (-1, 0)},
    "highest device type": {"device": (2**31 - 1, 2**31 - 1)},
}


def use(tensor: ad.Tensor) -> None:
    """All that reads a tensor's memory, or would."""
    repr(tensor)
    for read in (np.from_dlpack, memoryview, ad.to_arrow, ad.to_tensor, lambda t: t.__dlpack__(copy=True)):
        try:
            read(tensor)
        except (BufferError, ValueError, TypeError, RuntimeError):
            continue


@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str, versioned: bool):
    fields = REFUSED[case]
    if "version" in fields and not versioned:
        fields = {"ndim": -1}
    for convert in (ad.from_dlpack, ad.to_arrow, ad.to_tensor, ad.from_arrow, ad.validity, ad.explain):
        producer, source = producers.dlpack(versioned=versioned, **fields)
        if "device" in fields:
            # Memory on another device may be held, but never read.
            with contextlib.suppress(BufferError):
                convert(source)
        else:
            with pytest.raises((BufferError, TypeError)) as caught:
                convert(source)
            assert str(caught.value)
            del caught
        assert producer.releases == 1


@pytest.mark.parametrize("device", [(2, 0), (0, 0), (5, 3), (-1, 0), (12, 7)])
def test_memory_of_other_devices_is_held_and_not_read(device):
    producer, source = producers.dlpack(device=device, address=64)
    try:
        tensor = ad.from_dlpack(source)
    except BufferError:
        assert producer.releases == 1
        return
    assert tensor.__dlpack_device__()[0] == device[0]
    with pytest.raises(BufferError):
        memoryview(tensor)
    assert ad.to_arrow(tensor).device == tensor.device
    with pytest.raises(BufferError):
        tensor.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        ad.from_dlpack(tensor, copy=True)
    with pytest.raises(BufferError):
        tensor.__arrow_c_array__()
    repr(tensor)
    del tensor
    assert producer.releases == 1


VALUES = struct.pack("6i", *range(6))
ROWS = [[0, 1, 2], [3, 4, 5]]

# What is odd and right.
ACCEPTED = {
    "no strides": ({"strides": None}, ROWS),
    "no strides in 1.3": ({"strides": None, "version": (1, 3)}, ROWS),
    "no strides and no dimensions": ({"shape": (), "strides": None}, 0),
    "no shape and no dimensions": ({"shape": None, "strides": None, "ndim": 0}, 0),
    "strides of no dimensions": ({"shape": (), "strides": (7,)}, 0),
    "a later minor version": ({"version": (1, 2**32 - 1)}, ROWS),
    "an earlier minor version": ({"version": (1, 0)}, ROWS),
    "unknown flags": ({"flags": 2**64 - 1 - 2}, ROWS),
    "offset": ({"byte_offset": 4, "shape": (5,), "strides": (1,)}, [1, 2, 3, 4, 5]),
    "offset to where it is aligned": ({"byte_offset": 3, "misaligned_by": 1, "data": b"xxx" + VALUES}, ROWS),
    "misaligned": ({"misaligned_by": 3}, ROWS),
    "misaligned offset": ({"byte_offset": 1, "data": b"x" + VALUES}, ROWS),
    "column-major": ({"strides": (1, 2)}, [[0, 2, 4], [1, 3, 5]]),
    "negative strides": ({"strides": (-3, -1), "byte_offset": 20}, [[5, 4, 3], [2, 1, 0]]),
    "broadcast": ({"shape": (2, 2), "strides": (0, 0)}, [[0, 0], [0, 0]]),
    "overlapping": ({"shape": (3, 2), "strides": (1, 1)}, [[0, 1], [1, 2], [2, 3]]),
    "one element with a wild stride": ({"shape": (1, 1), "strides": (MAX, MIN)}, [[0]]),
    "size 1 with a wild stride": ({"shape": (1, 6), "strides": (MIN, 1)}, [[0, 1, 2, 3, 4, 5]]),
    "64 dimensions": ({"shape": (1,) * 63 + (6,), "strides": (1,) * 64}, None),
    "size 0, no data": ({"data": None, "shape": (0,), "strides": (1,)}, []),
    "size 0, wild strides": ({"shape": (0, 3), "strides": (MIN, MAX)}, []),
    "size 0 beside the largest extent": ({"shape": (0, MAX), "strides": (1, 1)}, None),
    "size 0, data at an odd place": ({"address": 1, "shape": (2, 0), "strides": (1, 1)}, [[], []]),
    "size 0, data at the end of the address space": ({"address": 2**64 - 1, "shape": (0,), "strides": (1,)}, []),
    "any id of the CPU": ({"device": (1, 7)}, ROWS),
    "id -1 of the CPU": ({"device": (1, -1)}, ROWS),
}


@pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])
@pytest.mark.parametrize("case", ACCEPTED)
def test_is_accepted(case: str, versioned: bool):
    fields, expected = ACCEPTED[case]
    fields = {name: value for name, value in fields.items() if versioned or name not in ("version", "flags")}
    producer, source = producers.dlpack(versioned=versioned, **fields)
    tensor = ad.from_dlpack(source)
    # NumPy has an upper bound of its own for the product of extents.
    if case != "size 0 beside the largest extent":
        values = np.from_dlpack(tensor)
        assert expected is None or values.tolist() == expected
        assert ad.from_dlpack(tensor, copy=True).shape == values.shape
        del values
    use(tensor)
    del tensor
    gc.collect()
    assert producer.releases == 1


def test_no_deleter():
    producer, source = producers.dlpack(deleter=False)
    assert np.from_dlpack(ad.from_dlpack(source)).tolist() == ROWS
    producer, source = producers.dlpack(deleter=False, ndim=-1)
    with pytest.raises(BufferError):
        ad.from_dlpack(source)
    assert producer.releases == 0


def test_bools_of_any_byte():
    data, dtype = bytes([0, 1, 2, 255]), (6, 8, 1)
    _, source = producers.dlpack(data=data, dtype=dtype, shape=(4,), strides=(1,))
    array = ad.to_arrow(source)
    assert np.from_dlpack(ad.to_tensor(array)).view("u1").tolist() == [0, 1, 1, 1]
    producer, source = producers.dlpack(data=data, dtype=dtype, shape=(4,), strides=(1,))
    bits = ad.to_arrow(np.arange(4), validity=source)
    assert np.from_dlpack(ad.validity(bits)).tolist() == [False, True, True, True]
    del bits
    assert producer.releases == 1


def test_a_deleter_that_raises_is_reported_and_no_more():
    def fail():
        raise RuntimeError("in the deleter")

    producer, source = producers.dlpack(on_release=fail)
    tensor = ad.from_dlpack(source)
    with pytest.MonkeyPatch.context() as patch:
        seen = []
        patch.setattr("sys.unraisablehook", lambda unraisable: seen.append(unraisable.exc_value))
        del tensor
        assert [str(error) for error in seen] == ["in the deleter"]
        seen.clear()
    assert producer.releases == 1


def test_a_deleter_that_uses_us():
    def convert():
        nested, source = producers.dlpack()
        assert np.from_dlpack(ad.from_dlpack(source)).tolist() == ROWS
        done.append(nested)

    done: list[DLPack] = []
    producer, source = producers.dlpack(on_release=convert)
    ad.from_dlpack(source)
    assert len(done) == 1
    assert producer.releases == 1


def test_a_dunder_that_consumes_its_own_capsule():
    producer = DLPack()

    def answer(**_):
        capsule = producer.capsule()
        kept.append(ad.from_dlpack(Only("__dlpack__", lambda **_: capsule)))
        return capsule

    kept: list[ad.Tensor] = []
    with pytest.raises(ValueError, match="consumed"):
        ad.from_dlpack(Only("__dlpack__", answer))
    assert np.from_dlpack(kept[0]).tolist() == ROWS
    kept.clear()
    assert producer.releases == 1
