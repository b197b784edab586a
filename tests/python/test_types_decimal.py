"""Decimals of any precision and scale: values by checked casts against exact fractions, stored integers, and lies."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction

import arrow_dlpack as ad
import ml_dtypes
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support import address
from type_cases import converted, dtype_of, read

# Bytes of a stored integer, and the most digits it may have.
WIDTHS = {4: 9, 8: 18, 16: 38, 32: 76}
MAKE = {4: pa.decimal32, 8: pa.decimal64, 16: pa.decimal128, 32: pa.decimal256}
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def stored(unscaled: list[int], width: int, scale: int, precision: int | None = None) -> pa.Array:
    """A column of these stored integers, unchecked."""
    data = b"".join(value.to_bytes(width, "little", signed=True) for value in unscaled)
    data_type = MAKE[width](precision or WIDTHS[width], scale)
    return pa.Array.from_buffers(data_type, len(unscaled), [None, pa.py_buffer(data)])


def nearest(value: Fraction, dtype: str) -> float | None:
    """The nearest float of a dtype, ties to even, by exact arithmetic; None where it overflows."""
    info = ml_dtypes.finfo(dtype_of(dtype))
    # Bits of the significand, and the exponent of the last bit of subnormal numbers.
    bits, lowest = info.nmant + 1, int(info.minexp) - info.nmant
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = 0
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - bits + 1, lowest)
    # Python rounds fractions half to even.
    rounded = round(magnitude / unit) * unit
    if rounded > Fraction(float(info.max)):
        return None
    return float(rounded if value > 0 else -rounded)


def interesting(width: int, source: random.Random) -> list[int]:
    digits = WIDTHS[width]
    largest = 10**digits - 1
    values = [0, 1, -1, 5, -15, 255, 2049, 65519, 65520, largest, -largest, largest // 3, 10 ** (digits // 2)]
    values += [2**k + more for k in (8, 11, 12, 24, 25, 53, 54, 63, 64, 100) for more in (-1, 0, 1)]
    values += [source.randint(-(10**n), 10**n) for n in range(1, digits + 1)]
    return [value for value in values if abs(value) <= largest]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_floats_are_the_nearest_ones(width: int, dtype: str):
    source = random.Random(width)
    for scale in (0, 1, 2, 9, 17, 22, 23, 38, 60, 76, -1, -3, -22, -38):
        if abs(scale) > WIDTHS[width]:
            continue
        values = [
            (value, nearest(Fraction(value) / Fraction(10) ** scale, dtype)) for value in interesting(width, source)
        ]
        fits = [(value, float_) for value, float_ in values if float_ is not None]
        found = read(ad.to_tensor(stored([value for value, _ in fits], width, scale), dtype=dtype))
        np.testing.assert_array_equal(found.astype("f8"), [float_ for _, float_ in fits])
        for value, float_ in values:
            if float_ is None:
                with pytest.raises(ad.CastError, match=f"does not fit {dtype}"):
                    ad.to_tensor(stored([value], width, scale), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("width", [16, 32])
def test_floats_of_16_bits_are_rounded_once(width: int, dtype: str):
    """Values next to the middle of two floats, which the nearest double cannot tell from it."""
    bits = ml_dtypes.finfo(dtype_of(dtype)).nmant + 1
    scale = 33 if width == 16 else 60
    for middle in (2**bits + 1, 2**bits + 3, 2**bits + 5):
        for sign in (1, -1):
            unscaled = [sign * (middle * 10**scale + more) for more in (-1, 0, 1)]
            found = read(ad.to_tensor(stored(unscaled, width, scale), dtype=dtype)).astype("f8")
            expected = [nearest(Fraction(value, 10**scale), dtype) for value in unscaled]
            assert found.tolist() == expected
            assert len(set(expected)) == 2


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_integers_are_the_value_itself(width: int, dtype: str):
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for scale in (0, 1, 5, 9, -1, -5):
        limit = 10 ** WIDTHS[width] - 1
        whole = {low, low - 1, high, high + 1, 0, 1, -1, 100}
        for value in sorted(whole):
            unscaled = Fraction(value) * Fraction(10) ** scale
            if unscaled.denominator != 1 or abs(unscaled) > limit:
                continue
            column = stored([0, int(unscaled)], width, scale)
            if low <= value <= high:
                assert read(ad.to_tensor(column, dtype=dtype)).tolist() == [0, value]
            else:
                with pytest.raises(ad.CastError) as caught:
                    ad.to_tensors(pa.record_batch({"price": column}), dtype=dtype)
                assert (caught.value.column, caught.value.row) == ("price", 1)
                assert str(value) in caught.value.reason
                assert caught.value.remedy
        if scale > 0:
            with pytest.raises(ad.CastError, match="does not fit"):
                ad.to_tensor(stored([1], width, scale), dtype=dtype)


def test_a_value_that_does_not_fit_is_shown_as_it_is():
    for column, text in [
        (stored([-150], 4, 2), "-1.50"),
        (stored([15], 8, -2), "1500"),
        (stored([10**76 - 1], 32, 76), "0." + "9" * 76),
        (stored([2**255 - 1], 32, 1), str(2**255 - 1)[:-1] + "." + str(2**255 - 1)[-1]),
        (stored([-(2**255)], 32, 0), str(-(2**255))),
    ]:
        with pytest.raises(ad.CastError) as caught:
            ad.to_tensor(column, dtype="uint8")
        assert caught.value.reason == f"the value {text} does not fit uint8"


def test_nulls_may_misfit():
    column = pa.array([Decimal("1.5"), None], pa.decimal128(5, 1))
    junk = pa.Array.from_buffers(
        pa.decimal128(5, 1),
        2,
        [pa.py_buffer(b"\1"), pa.py_buffer((20).to_bytes(16, "little") + b"\xff" * 15 + b"\x7f")],
    )
    assert read(ad.to_tensor(junk, dtype="int8", nulls=7)).tolist() == [2, 7]
    np.testing.assert_array_equal(
        read(ad.to_tensor(column, dtype="float32", nulls="nan")), np.array([1.5, np.nan], "f4")
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_without_a_dtype_the_remedy_depends_on_the_scale(width: int):
    for scale in (0, 2, -2):
        batch = pa.record_batch({"price": stored([700], width, scale)})
        if width <= 8 and scale == 0:
            tensor = converted(batch["price"], copy=False)
            assert tensor.dtype == f"int{8 * width}"
            assert address(tensor) == batch["price"].buffers()[1].address
            continue
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            ad.to_tensors(batch)
        assert caught.value.column == "price"
        assert "float64" in caught.value.remedy
        assert ('decimal="unscaled"' in caught.value.remedy) == (scale != 0)
        # What the remedy names is taken.
        assert read(ad.to_tensors(batch, dtype="float64")["price"]).tolist() == [700 / 10.0**scale]
        unscaled = ad.to_tensors(batch, decimal="unscaled", dtype="int64" if width > 8 else None)["price"]
        assert read(unscaled).tolist() == [700]
    for scale in (0, 2):
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            ad.to_tensor(stored([700], 16, scale), decimal="unscaled")
        assert 'dtype="int64"' in caught.value.remedy


@pytest.mark.parametrize("dtype", ["complex64", "float8_e4m3fn"])
def test_dtypes_without_a_cast_are_refused(dtype: str):
    with pytest.raises(ad.UnsupportedTypeError):
        ad.to_tensor(stored([700], 16, 2), dtype=dtype)


def test_unscaled_integers_are_cast_checked():
    big = stored([2**63, 2**63 - 1], 16, 5)
    with pytest.raises(ad.CastError) as caught:
        ad.to_tensor(big, decimal="unscaled", dtype="int64")
    assert caught.value.row == 0
    assert read(ad.to_tensor(big[1:], decimal="unscaled", dtype="int64")).tolist() == [2**63 - 1]
    assert read(ad.to_tensor(big, decimal="unscaled", dtype="uint64")).tolist() == [2**63, 2**63 - 1]
    assert read(ad.to_tensor(stored([150], 4, 2), decimal="unscaled", dtype="float32")).tolist() == [150]


@pytest.mark.parametrize(("width", "precision", "value"), [(4, 3, 2**31 - 1), (8, 1, -(2**63)), (16, 2, 2**127 - 1)])
def test_precisions_that_lie_do_no_harm(width: int, precision: int, value: int):
    """The stored integers have more digits than the type says."""
    column = stored([value], width, 1, precision)
    assert read(ad.to_tensor(column, dtype="float64")).tolist() == [float(Fraction(value, 10))]
    if width <= 8:
        tensor = converted(column, decimal="unscaled", copy=False)
        assert read(tensor).tolist() == [value]
        assert pa.array(tensor).buffers()[1].address == column.buffers()[1].address
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), column, safe=False)
    assert read(ad.to_tensor(codes, dtype="float64")).tolist() == [float(Fraction(value, 10))] * 2


def test_misaligned_decimals():
    data = pa.py_buffer(b"\0" + (150).to_bytes(4, "little") * 3)[1:]
    column = pa.Array.from_buffers(pa.decimal32(5, 2), 3, [None, data])
    with pytest.raises(ad.CopyError, match="aligned"):
        converted(column, decimal="unscaled", copy=False)
    assert read(converted(column, decimal="unscaled")).tolist() == [150] * 3
    for width in (8, 16, 32):
        data = pa.py_buffer(b"\0" + (150).to_bytes(width, "little") * 3)[1:]
        column = pa.Array.from_buffers(MAKE[width](5, 2), 3, [None, data])
        assert read(converted(column, dtype="float64")).tolist() == [1.5] * 3


def test_on_the_way_back():
    column = pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal64(10, 2))
    tensor = ad.to_tensor(column, decimal="unscaled", writable=True)
    np.from_dlpack(tensor)[0] += 100
    assert pa.array(tensor).to_pylist() == [Decimal("2.50"), Decimal("-2.25")]
    assert pa.array(tensor).type == column.type
    assert pa.array(tensor, pa.decimal128(20, 4)).to_pylist() == [Decimal("2.5"), Decimal("-2.25")]
    assert pa.array(tensor, pa.float64()).to_pylist() == [2.5, -2.25]
    with pytest.raises(ValueError, match="Decimal"):
        pa.array(tensor, pa.int64())
    lists = pa.array([[Decimal(1), Decimal(2)], [Decimal(3), Decimal(4)]], pa.list_(pa.decimal32(5, 1), 2))
    tensor = ad.to_tensor(lists, decimal="unscaled")
    assert read(tensor).tolist() == [[10, 20], [30, 40]]
    assert pa.array(tensor).equals(lists)


@pytest.mark.parametrize(
    ("values", "data_type", "fits"),
    [
        ([1.5, -2.25], pa.decimal128(10, 2), True),
        ([1.5, -2.255], pa.decimal128(10, 2), False),
        ([1.5, 1e10], pa.decimal128(10, 2), False),
        ([1.5, float("nan")], pa.decimal128(10, 2), False),
        ([1, 2**40], pa.decimal128(20, 2), True),
        ([1, 2**40], pa.decimal64(10, 0), False),
        ([1.5, 100], pa.decimal32(4, 1), True),
        ([1.5, 2], pa.decimal256(70, 60), True),
    ],
    ids=str,
)
def test_requests_for_decimals_are_exact(values, data_type: pa.DataType, fits: bool):
    tensor = np.array(values)
    if fits:
        array = pa.array(ad.to_arrow(tensor, type=data_type))
        assert array.type == data_type
        assert [float(value) for value in array.to_pylist()] == values
    else:
        with pytest.raises(ad.CastError, match="Decimal") as caught:
            ad.to_arrow(tensor, type=pa.field("price", data_type))
        assert caught.value.column == "price"
    with pytest.raises(ad.CopyError):
        ad.to_arrow(tensor, type=data_type, copy=False)


def test_of_polars():
    series = pl.Series("price", [Decimal("1.50"), None, Decimal("-99.99")], dtype=pl.Decimal(10, 2))
    assert read(converted(series, dtype="float64", nulls=0)).tolist() == [1.5, 0, -99.99]
    assert read(converted(series, dtype="int32", decimal="unscaled", nulls=0)).tolist() == [150, 0, -9999]
