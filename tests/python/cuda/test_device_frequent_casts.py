"""Frequent casts have kernels of their own, which take aligned elements and codes: whichever kernel makes a cast, it
gives what the host gives.
"""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray, Memory
from test_device_conversions import FLOATS, INTEGERS, bits, host

# A block casts 1,024 rows of a column at once, and the last lanes of this are empty.
ROWS = 1_500
TARGETS = ["bool", *INTEGERS, *FLOATS]


class Shifted(Memory):
    """Blocks that begin so many bytes behind an aligned address."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift = shift

    def place(self, data: bytes, room: int = 0) -> int:
        return super().place(bytes(self.shift) + data, room) + self.shift


def bounds(name: str) -> tuple[int, int]:
    """Whole numbers that a type has."""
    if name == "bool":
        return 0, 1
    return (-2048, 2048) if name in FLOATS else (int(np.iinfo(name).min), int(np.iinfo(name).max))


def numbers(name: str, seed: int, to: str = "float64") -> pa.Array:
    """Numbers that both types have, the least and the largest among them."""
    random = np.random.default_rng(seed)
    low, high = max(bounds(name)[0], bounds(to)[0]), min(bounds(name)[1], bounds(to)[1])
    if to in ("float16", "bfloat16"):
        low, high = max(low, -2048), min(high, 2048)
    data = random.integers(low, high, ROWS, dtype="uint64" if high > 2**63 else "int64", endpoint=True)
    data[[5, 6]] = low, high
    return pa.array(data.astype(name), mask=random.random(ROWS) < 0.1)


def same(data: pa.Array, shift: int, **options: Any) -> None:
    made = ad.to_tensor(DeviceArray(data, memory=Shifted(shift)).give(), **options)
    expected = ad.to_tensor(data, **options)
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(host(made), bits(expected))


@pytest.mark.parametrize("shift", [0, 1, 2, 4])
@pytest.mark.parametrize("name", ["bool", *INTEGERS, *FLOATS])
def test_elements_of_any_alignment_are_cast(name: str, shift: int) -> None:
    for to in TARGETS:
        same(numbers(name, 1, to), shift, dtype=to, nulls=1)


@pytest.mark.parametrize("shift", [0, 1, 4])
@pytest.mark.parametrize("to", ["int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_of_any_alignment_are_cast_to_a_matrix(order: str, to: str, shift: int) -> None:
    """By one kernel, whether all casts are frequent or one is not."""
    for names in (["int8", "bool", "int32"], ["int64", "uint64", "uint8"], ["float32", "float32", "float32"]):
        columns = [numbers(name, seed, to) for seed, name in enumerate(names)]
        batch = pa.StructArray.from_arrays(columns, names=["a", "b", "c"])
        same(batch, shift, dtype=to, nulls=1, order=order)


@pytest.mark.parametrize("shift", [0, 1, 4])
@pytest.mark.parametrize("codes", ["int8", "uint16", "int32", "uint64"])
def test_values_of_codes_of_any_alignment(codes: str, shift: int) -> None:
    random = np.random.default_rng(5)
    indices = pa.array(random.integers(0, 3, ROWS).astype(codes), mask=random.random(ROWS) < 0.1)
    for values in ([3, 1, 2], [3, None, 2]):
        for name in ("uint8", "uint64", "int32", "float64"):
            data = pa.DictionaryArray.from_arrays(indices, pa.array(values, name))
            for to in (name, "float32", "int64"):
                same(data, shift, dtype=to, dictionary="values", nulls=7)


def test_numbers_beyond_63_bits_are_no_frequent_ones() -> None:
    data = pa.array([2**63, 2**64 - 2**11] * (ROWS // 2), "uint64")
    for to in ("float32", "float64"):
        same(data, 0, dtype=to)
    with pytest.raises(ad.CastError):
        ad.to_tensor(DeviceArray(data).give(), dtype="int64")


def test_nulls_of_an_empty_dictionary() -> None:
    empty = pa.array([], "int32")
    data = pa.DictionaryArray.from_arrays(pa.array([None] * ROWS, "int8"), empty)
    for to in ("int32", "float32"):
        same(data, 0, dtype=to, dictionary="values", nulls=7)


@pytest.mark.parametrize("row", [0, 1023, 1024, ROWS - 1])
def test_the_first_misfit_of_a_frequent_cast_is_named(row: int) -> None:
    values = np.zeros(ROWS, dtype="int64")
    values[row:] = 2**31
    data = pa.array(values)
    with pytest.raises(ad.CastError, match=rf"row {row}\b") as on_host:
        ad.to_tensor(data, dtype="int32")
    with pytest.raises(ad.CastError) as on_device:
        ad.to_tensor(DeviceArray(data).give(), dtype="int32")
    assert str(on_device.value) == str(on_host.value)


@pytest.mark.parametrize("to", ["bool", *INTEGERS])
@pytest.mark.parametrize("name", INTEGERS)
def test_numbers_beyond_the_bounds_are_refused_as_on_the_host(name: str, to: str) -> None:
    (low, high), (least, largest) = bounds(to), bounds(name)
    for number in (low - 1, high + 1):
        if not least <= number <= largest:
            continue
        data = pa.array([0, number] * 600, name)
        with pytest.raises(ad.CastError) as on_host:
            ad.to_tensor(data, dtype=to)
        with pytest.raises(ad.CastError) as on_device:
            ad.to_tensor(DeviceArray(data).give(), dtype=to)
        assert str(on_device.value) == str(on_host.value)


@pytest.mark.parametrize("shift", [0, 1, 3, 8])
@pytest.mark.parametrize("name", ["int8", "int16", "float32", "float64"])
def test_columns_of_any_alignment_are_copied(name: str, shift: int) -> None:
    """By whole vectors, which are joined where the column is not aligned, and none is beyond its ends."""
    columns = [numbers(name, seed) for seed in (1, 2)]
    batch = pa.StructArray.from_arrays(columns, names=["a", "b"])
    same(batch, shift, nulls=1, order="F")
    same(batch.slice(3, 700), shift, nulls=1, order="F")
