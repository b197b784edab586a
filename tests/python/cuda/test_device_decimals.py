"""Decimals, and ticks in another unit, that kernels cast, against what the host makes of the same data."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA_MANAGED, DeviceArray
from test_device_conversions import FLOATS, INTEGERS, bits, host
from test_device_dictionaries import failed, forget, same

BYTES = {4: pa.decimal32, 8: pa.decimal64, 16: pa.decimal128}
DIGITS = {4: 9, 8: 18, 16: 38}


def of_integers(integers: list[int | None], size: int, scale: int, *, skipped: int = 0) -> pa.Array:
    """Decimals of these unscaled integers, of any bits; `skipped` slots stand before them."""
    integers = [1] * skipped + integers
    stored = b"".join((integer or 0).to_bytes(size, "little", signed=True) for integer in integers)
    valid = np.packbits([integer is not None for integer in integers], bitorder="little").tobytes()
    of_type = BYTES[size](DIGITS[size], scale)
    nulls = sum(integer is None for integer in integers)
    buffers = [pa.py_buffer(valid) if nulls else None, pa.py_buffer(stored)]
    return pa.Array.from_buffers(of_type, len(integers), buffers, nulls)[skipped:]


def spread(size: int, count: int = 200) -> list[int]:
    """Integers of every magnitude, the largest and the smallest among them."""
    rng = random.Random(size)
    most = 8 * size - 1
    drawn = [rng.getrandbits(rng.randint(1, most)) * rng.choice([1, -1]) for _ in range(count)]
    return [0, 1, -1, 2**most - 1, -(2**most), 2**53, 2**53 + 1, -(2**53) - 1][: 8 if size > 4 else 5] + drawn


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("scale", [-128, -39, -22, -5, -1, 0, 1, 2, 9, 10, 18, 27, 30, 38, 39, 76, 127])
@pytest.mark.parametrize("size", BYTES)
def test_floats_are_the_nearest_ones(size: int, scale: int, to: str) -> None:
    if scale == 0 and size < 16 and to != "float64":
        to = "float64"
    integers = spread(size)
    if to != "float64":
        limit = {"float32": 3.4e38, "float16": 6.5e4, "bfloat16": 3.3e38}[to]
        integers = [integer for integer in integers if abs(integer) * 10.0**-scale < limit]
    data = of_integers(integers, size, scale, skipped=3)
    same(DeviceArray(data).give(), data, dtype=to)


@pytest.mark.parametrize("to", ["float16", "bfloat16", "float32", "float64"])
def test_values_beside_the_middle_of_two_floats_are_rounded_once(to: str) -> None:
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[to]
    middles = [(2**digits + 1) * 10**17, (2**digits + 3) * 10**17]
    integers = [sign * (middle + more) for middle in middles for more in (-1, 0, 1) for sign in (1, -1)]
    data = of_integers(integers, 16, 17)
    same(DeviceArray(data).give(), data, dtype=to)


@pytest.mark.parametrize("size", [8, 16])
def test_values_of_53_bits_beside_the_middle_are_rounded_once(size: int) -> None:
    """A quotient of doubles that is rounded to the middle of two singles, from below and from above."""
    scale, power = 15, 5**15
    least = 2**24 + (pow(power, -1, 2**15) - 2**24) % 2**15
    below = [(middle * power - 1) // 2**15 for middle in range(least, 2**25, 2**15)]
    # The remainder is -1 there, and 1 here.
    least = 2**24 + (-pow(power, -1, 2**15) - 2**24) % 2**15
    above = [(middle * power + 1) // 2**15 for middle in range(least, 2**25, 2**15)]
    integers = [sign * integer for integer in below + above if integer < 2**53 for sign in (1, -1)]
    assert len(integers) > 500
    data = of_integers(integers, size, scale)
    same(DeviceArray(data).give(), data, dtype="float32")


@pytest.mark.parametrize("size", [8, 16])
def test_products_beyond_53_bits_are_exact_integers(size: int) -> None:
    """A double rounds the product, and an integer does not."""
    data = of_integers([2**53 - 1, 3, 1 - 2**53], size, -1)
    same(DeviceArray(data).give(), data, dtype="int64")


@pytest.mark.parametrize("to", ["bool", *INTEGERS])
@pytest.mark.parametrize("size", BYTES)
def test_integers_are_the_value_itself(size: int, to: str) -> None:
    low, high = (0, 1) if to == "bool" else (int(np.iinfo(to).min), int(np.iinfo(to).max))
    for scale in (-38, -3, 0, 1, 2, 9, 10, 19, 37, 38, 39, 127):
        fitting = {0, 1, low, high, low + 1, high - 1, 100 % (high + 1)}
        scaled = (
            [value * 10**scale for value in fitting]
            if scale >= 0
            else [v // 10**-scale for v in fitting if v % 10**-scale == 0]
        )
        limit = 1 << (8 * size - 1)
        integers = [value for value in scaled if -limit <= value < limit] + [0]
        data = of_integers(integers, size, scale, skipped=1)
        same(DeviceArray(data).give(), data, dtype=to)


@pytest.mark.parametrize("size", BYTES)
@pytest.mark.parametrize(("to", "integer", "scale"), [
    ("int8", 12_900, 2), ("int8", -12_900, 2), ("uint8", -100, 2), ("uint8", 25_600, 2), ("int64", 101, 2),
    ("int32", 1, 39), ("int32", 5, 127), ("int64", 1, -19), ("uint64", -1, -1), ("bool", 20, 1), ("float16", 65_520, 0),
    ("float32", 1, -39), ("bfloat16", -1, -39), ("int64", 2**30, -120),
])  # fmt: skip
def test_a_value_that_does_not_fit_is_named_as_on_the_host(size: int, to: str, integer: int, scale: int) -> None:
    if scale == 0 and size < 16:
        scale, integer = 1, integer * 10
    data = of_integers([0, None, integer, integer], size, scale, skipped=2)
    errors = [failed(ad.CastError, obj, dtype=to, nulls=0) for obj in (DeviceArray(data).give(), data)]
    assert (str(errors[0]), errors[0].row) == (str(errors[1]), errors[1].row)
    # Under a null it is no value.
    hidden = of_integers([0, None], size, scale)
    same(DeviceArray(hidden).give(), hidden, dtype=to, nulls=1)


def test_the_largest_and_the_smallest_of_128_bits_do_not_fit() -> None:
    for integer in (2**127 - 1, -(2**127), 2**64, -(2**63) - 1):
        data = of_integers([integer], 16, 0)
        errors = [failed(ad.CastError, obj, dtype="int64") for obj in (DeviceArray(data).give(), data)]
        assert str(errors[0]) == str(errors[1])


@pytest.mark.parametrize("size", BYTES)
def test_nulls_are_filled_and_kept(size: int, host_waits: Any) -> None:
    data = of_integers([None if value % 3 == 0 else value for value in range(150)], size, 2, skipped=5)
    for change in (lambda _: None, forget):
        array = ad.from_arrow(DeviceArray(data, change=change).give())
        waits = host_waits()
        same(array, data, dtype="float64", nulls="nan")
        # For the check of values, and for the copy that the test reads.
        assert waits.ours <= 2
        same(array, data, dtype="float32", nulls=7)
        same(array, data, dtype="float32", nulls="keep")


@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_of_a_matrix(order: str) -> None:
    columns = {
        "a": of_integers([*range(100)], 4, 2),
        "b": pa.array(np.arange(100, dtype="float32")),
        "c": of_integers([None if value == 50 else value for value in range(100)], 16, 3),
        "d": of_integers([*range(100)], 8, -2),
    }
    data = pa.RecordBatch.from_pydict(columns).to_struct_array()
    same(DeviceArray(data).give(), data, dtype="float32", order=order, nulls=0)
    made = ad.to_tensors(DeviceArray(data).give(), dtype="float64", nulls=0)
    for name, expected in ad.to_tensors(data, dtype="float64", nulls=0).items():
        assert np.array_equal(host(made[name]), bits(expected))


def test_values_of_dictionaries_and_of_lists() -> None:
    values = of_integers([150, 250, None, -350], 16, 2)
    data = pa.DictionaryArray.from_arrays(pa.array([0, 3, 1, 2, 0], pa.int8()), values)
    same(DeviceArray(data).give(), data, dtype="float64", nulls="nan")
    lists = pa.FixedSizeListArray.from_arrays(of_integers([*range(60)], 8, 1), 3)[2:]
    same(DeviceArray(lists).give(), lists, dtype="float32")
    ragged = pa.ListArray.from_arrays(pa.array([0, 5, 5, 60], pa.int32()), of_integers([*range(60)], 8, 1))
    made = ad.to_ragged(DeviceArray(ragged).give(), dtype="float32")
    assert np.array_equal(host(made.values), bits(ad.to_ragged(ragged, dtype="float32").values))


def test_into_memory_that_is_there() -> None:
    data = of_integers([*range(100)], 16, 1)
    out = ad.to_tensor(DeviceArray(pa.array(np.zeros(100))).give(), writable=True)
    ad.to_tensor(DeviceArray(data).give(), dtype="float64", out=out)
    assert np.array_equal(host(out), bits(ad.to_tensor(data, dtype="float64")))


def test_ticks_in_another_unit() -> None:
    ticks = np.array([0, 1500, -2500, 10**15, 7], "int64")
    for unit in ("s", "ms", "us", "ns"):
        data = pa.array(ticks.view("timedelta64[ms]"))
        same(DeviceArray(data).give(), data, unit=unit, dtype="float64")
    whole = pa.array(np.array([0, 1000, -2000], "int64").view("datetime64[ms]"))
    for unit in ("s", "us"):
        same(DeviceArray(whole).give(), whole, unit=unit)
    broken = pa.array(np.array([1000, 1001], "int64").view("datetime64[ms]"))
    errors = [failed(ad.CastError, obj, unit="s") for obj in (DeviceArray(broken).give(), broken)]
    assert (str(errors[0]), errors[0].row) == (str(errors[1]), 1)


@pytest.mark.parametrize("kind", [2, CUDA_MANAGED])
def test_explain_says_what_the_kernels_do(kind: int) -> None:
    data = of_integers([*range(100)], 16, 2)
    array = ad.from_arrow(DeviceArray(data, kind).give())
    with ad.track_copies() as log:
        ad.to_tensor(array, dtype="float64")
    (row,) = ad.explain(array, dtype="float64")
    assert row.steps == ["cast from decimal128 of scale 2 to float64"]
    assert any("every value fits" in wait for wait in row.waits)
    assert [entry.bytes for entry in log] == [row.bytes] == [800]


def test_decimals_of_256_bits_name_the_way_to_the_host() -> None:
    data = pa.array([Decimal("1.5")], pa.decimal256(40, 1))
    assert "to_device" in str(failed(BufferError, DeviceArray(data).give(), dtype="float64"))
