"""What many tests ask of arrays: where their values are, and what they are."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pyarrow.compute as pc

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
NUMBERS = INTEGERS + FLOATS

# Arrow types that are stored as integers, with the dtype of the tensor.
TEMPORAL = [
    (pa.date32(), "int32"),
    (pa.date64(), "int64"),
    (pa.time32("s"), "int32"),
    (pa.time32("ms"), "int32"),
    (pa.time64("us"), "int64"),
    (pa.time64("ns"), "int64"),
    (pa.timestamp("s"), "int64"),
    (pa.timestamp("ns", "Europe/Berlin"), "int64"),
    (pa.duration("ms"), "int64"),
]


def address(x: Any) -> int:
    """Where the first element of a tensor is, by its own versioned capsule."""
    capsule = x.__dlpack__(max_version=(1, 3))
    _, tensor = producers.read_dlpack(capsule)
    return (tensor.data or 0) + tensor.byte_offset


def flags(x: Any, **keywords: Any) -> int:
    """The flags of a versioned capsule."""
    capsule = x.__dlpack__(max_version=(1, 3), **keywords)
    return producers.read_dlpack(capsule)[0].flags


def values_address(array: pa.Array) -> int:
    """Where the first value of a pyarrow array is, for values of whole bytes."""
    storage = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    if pa.types.is_fixed_size_list(storage.type):
        # `flatten` leaves out nulls, so that `values` and the offset are what says where they are.
        return values_address(storage.values.slice(storage.offset * storage.type.list_size))
    return storage.buffers()[-1].address + storage.offset * storage.type.bit_width // 8


def view_of(x: Any, **keywords: Any) -> ad.Tensor:
    """The tensor of data that needs no copy: asserts that none is made."""
    with ad.track_copies() as log:
        tensor = ad.to_tensor(x, copy=False, **keywords)
    assert len(log) == 0
    assert not tensor.copied
    # Nobody can write to no elements.
    assert tensor.size == 0 or not tensor.writable
    return tensor


def ticks(values: list[int | None], data_type: pa.DataType) -> pa.Array:
    """A column of a temporal type by its stored integers."""
    storage = pa.array(values, pa.int32() if data_type.bit_width == 32 else pa.int64())
    return pc.cast(storage, data_type)


def lists(values: list[Any], data_type: pa.DataType, *sizes: int) -> pa.Array:
    """Nested fixed-size lists, outermost size first."""
    for size in reversed(sizes):
        data_type = pa.list_(data_type, size)
    return pa.array(values, data_type)


def numpy_of(x: Any) -> np.ndarray:
    return np.from_dlpack(x)
