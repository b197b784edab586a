"""Fills of nulls: rounded to the nearest in floats, as data is; exact in integers and bools; never beyond the range."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from support import FLOATS, INTEGERS
from type_cases import FLOAT8, Extension, dtype_of, read

NULLS = pa.array([1, None, 3], pa.int8())


def filled(fill: Any, dtype: str, source: Any = NULLS) -> np.ndarray:
    """The element that stands for the null, as an array of no dimensions."""
    tensor = ad.to_tensor(source, dtype=dtype, nulls=fill)
    assert tensor.dtype == dtype
    return read(tensor)[1]


def wide() -> list[float]:
    """Doubles of all sizes, and those in the middle between two singles and between two halves, and beside these."""
    random = np.random.default_rng(12)
    found = list(random.standard_normal(50) * 10.0 ** random.integers(-9, 5, 50))
    for single in np.abs(random.standard_normal(20)).astype(np.float32):
        middle = (float(single) + float(np.nextafter(single, np.float32(9)))) / 2
        found += [middle, np.nextafter(middle, 9.0), np.nextafter(middle, 0.0)]
    for half in np.abs(random.standard_normal(20)).astype(np.float16):
        middle = (float(half) + float(np.nextafter(half, np.float16(9)))) / 2
        found += [middle, np.nextafter(middle, 9.0), np.nextafter(middle, 0.0)]
    return [float(value) for value in found]


class TestFloats:
    @pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16"])
    def test_a_fill_is_rounded_as_data_is(self, dtype: str):
        for fill in [0.1, -0.1, 1 / 3, 5e-324, -0.0, *wide()]:
            data = ad.to_tensor(pa.array([fill, fill]), dtype=dtype)
            expected = read(data)[0]
            assert filled(fill, dtype).tobytes() == expected.tobytes(), fill

    @pytest.mark.parametrize("first", [0.0, -0.0])
    def test_a_zero_keeps_its_sign_after_one_of_the_other_sign(self, first: float):
        batch = pa.record_batch({"a": pa.array([1.0, None]), "b": pa.array([1.0, 2.0])})
        for fill in [first, -first, first]:
            made, out = ad.to_tensor(batch, nulls=fill, xp=np), np.empty((2, 2))
            ad.to_tensor(batch, nulls=fill, out=out)
            assert np.signbit(made[1, 0]) == np.signbit(out[1, 0]) == np.signbit(fill)

    @pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16"])
    @pytest.mark.parametrize("fill", [2**53 + 1, 2**24 + 1, -(2**60) - 1, 2049, 2**63 + 2**39 + 1])
    def test_an_integer_is_rounded_once(self, fill: int, dtype: str):
        if dtype == "float16" and abs(fill) > 65504:
            with pytest.raises(ValueError, match="beyond the range of float16"):
                filled(fill, dtype)
            return
        data = ad.to_tensor(pa.array([fill, fill], pa.int64() if fill < 2**63 else pa.uint64()), dtype=dtype)
        expected = read(data)[0]
        assert filled(fill, dtype).tobytes() == expected.tobytes()

    @pytest.mark.parametrize(
        ("fill", "dtype"),
        [
            (1e300, "float32"),
            (-1e39, "float32"),
            (65520.0, "float16"),
            (-70000, "float16"),
            (3.4e38, "bfloat16"),
            (2**200, "float32"),
            (10**400, "float64"),
            (Decimal("1e400"), "float64"),
            (Decimal("-1e999999"), "float64"),
            (1e300, "complex64"),
        ],
    )
    def test_what_is_beyond_the_range_is_an_error(self, fill: Any, dtype: str):
        source = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)) if dtype == "complex64" else NULLS
        with pytest.raises(ValueError, match="beyond the range"):
            ad.to_tensor(source, dtype=dtype, nulls=fill)

    @pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16"])
    def test_infinities_and_nan_are_what_they_are(self, dtype: str):
        for fill in (float("inf"), float("-inf"), Decimal("-Infinity"), np.float16("inf")):
            assert float(filled(fill, dtype)) == float(fill)
        for fill in (float("nan"), Decimal("nan"), np.float32("nan")):
            assert np.isnan(float(filled(fill, dtype)))

    @pytest.mark.parametrize("dtype", FLOAT8)
    def test_eight_bits_round_as_ml_dtypes(self, dtype: str):
        theirs = dtype_of(dtype)
        storage = pa.array([b"\x38", None, b"\x38"], pa.binary(1))
        source = pa.ExtensionArray.from_storage(Extension(storage.type, f"arrow_dlpack.{dtype}"), storage)
        # Of powers of two without a zero, ml_dtypes makes NaN of what is negative or nothing.
        positive = dtype == "float8_e8m0fnu"
        for fill in [0.1, 1.1, 0.75, 1.5, 3.0, 5.0, 17.0, -0.3, -0.0, 0.0, 1e-3, 1e9, 0.0625 * 17, *wide()]:
            expected = np.array(fill).astype(theirs)
            if np.isfinite(expected.astype(float)) and not (positive and fill <= 0):
                tensor = ad.to_tensor(source, nulls=fill)
                assert read(tensor)[1].tobytes() == expected.tobytes(), fill
            else:
                with pytest.raises(ValueError, match="beyond the range"):
                    ad.to_tensor(source, nulls=fill)

    @pytest.mark.parametrize("dtype", ["complex64", "complex128"])
    def test_of_a_complex_number_the_real_part_is_rounded(self, dtype: str):
        source = pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
        tensor = ad.to_tensor(source, dtype=dtype, nulls=0.1, xp=np)
        assert tensor.tolist() == [1 + 2j, complex(np.dtype(dtype).type(0.1))]
        for fill in (0.1 + 0j, 1j, np.complex64(2j)):
            with pytest.raises(TypeError, match="real number"):
                ad.to_tensor(source, dtype=dtype, nulls=fill)


class TestIntegers:
    @pytest.mark.parametrize(
        "fill",
        [
            7,
            7.0,
            np.int16(7),
            np.float32(7),
            np.float16(7),
            np.longdouble(7),
            np.array(7),
            np.array(7.0),
            Decimal(7),
            Decimal("7.00"),
            Fraction(14, 2),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
    def test_the_same_number_of_any_type(self, fill: Any, dtype: str):
        assert filled(fill, dtype) == 7

    @pytest.mark.parametrize(
        "fill", [0.1, 1.5, Decimal("0.1"), Fraction(7, 2), float("nan"), float("inf"), -1e30, 2**64]
    )
    @pytest.mark.parametrize("dtype", ["int64", "uint64", "int8", "bool"])
    def test_what_is_none_is_an_error(self, fill: Any, dtype: str):
        source = pa.array([1, None]) if dtype != "bool" else pa.array([True, None])
        with pytest.raises(ad.NullError, match=f"cannot be represented exactly in {dtype}") as caught:
            ad.to_tensor(source, dtype=dtype, nulls=fill)
        assert "dtype" in caught.value.remedy

    @pytest.mark.parametrize("fill", [2**60 + 1, 2**63 - 1, -(2**63)])
    def test_integers_that_no_double_is(self, fill: int):
        for given in (fill, Decimal(fill), Fraction(fill), np.int64(fill), np.longdouble(fill)):
            assert int(filled(given, "int64")) == fill
        assert int(filled(Decimal(2**64 - 1), "uint64")) == 2**64 - 1

    @pytest.mark.parametrize(
        "fill",
        [Decimal("3.00000000000000000001"), Fraction(2**61 + 1, 2), np.longdouble(3) + np.finfo(np.longdouble).eps * 2],
    )
    def test_what_only_rounding_makes_an_integer(self, fill: Any):
        with pytest.raises(ad.NullError, match="exactly"):
            filled(fill, "int64")
        assert float(filled(fill, "float64")) == float(fill)

    def test_bools(self):
        for fill in (True, 1, 1.0, np.bool_(True), Decimal(1), Fraction(1)):
            assert filled(fill, "bool", pa.array([False, None])) == 1
            assert filled(fill, "float32") == 1
        with pytest.raises(ad.NullError, match="exactly"):
            filled(2, "bool", pa.array([False, None]))


def test_scalars_of_torch(torch):
    for fill in (
        torch.tensor(7),
        torch.tensor(7.0),
        torch.tensor(7, dtype=torch.bfloat16),
        torch.tensor(7).to(torch.uint8),
    ):
        assert filled(fill, "int64") == filled(fill, "float32") == 7
    assert filled(torch.tensor(0.1), "float16") == np.float16(np.float32(0.1))
    assert filled(torch.tensor(True), "bool", pa.array([False, None])) == 1
    assert int(filled(torch.tensor(2**60 + 1), "int64")) == 2**60 + 1
    with pytest.raises(ad.NullError, match="exactly"):
        filled(torch.tensor(0.1), "int64")


class TestEverywhere:
    """The same rule wherever a fill is taken."""

    def test_matrices(self):
        batch = pa.record_batch({"a": pa.array([0.5, None]), "b": pa.array([1, None], pa.int8())})
        matrix = ad.to_tensor(batch, dtype="float32", nulls={"a": 0.1, "b": 1 / 3}, xp=np)
        assert matrix[1].tolist() == [np.float32(0.1), np.float32(1 / 3)]
        out = np.empty((2, 2), np.float32)
        assert ad.to_tensor(batch, nulls=0.1, out=out)[1].tolist() == [np.float32(0.1)] * 2
        with pytest.raises(ad.NullError, match="beyond the range of float16"):
            ad.to_tensor(batch, dtype="float16", nulls=1e6)

    def test_columns_and_groups(self):
        batch = pa.record_batch({"a": pa.array([0.5, None], pa.float32()), "b": pa.array([1, None], pa.int8())})
        assert ad.to_tensors(batch, nulls={"a": 0.1, "b": 2}, xp=np)["a"][1] == np.float32(0.1)
        with pytest.raises(ad.NullError, match="exactly in int8") as caught:
            ad.to_tensors(batch, nulls=0.1)
        assert caught.value.column == "b"
        groups = ad.to_tensors(batch, columns={"x": ["a", "b"]}, dtype="float32", nulls=0.1, xp=np)
        assert groups["x"][1].tolist() == [np.float32(0.1)] * 2
        assert not any(row.error for row in ad.explain(batch, nulls={"a": 0.1, "b": 2}))

    def test_ragged_rows_and_padding(self):
        lists = pa.array([[0.5, None], [1.5]], pa.list_(pa.float32()))
        assert ad.to_ragged(lists, nulls=0.1, xp=np).values.tolist() == [0.5, np.float32(0.1), 1.5]
        matrix, _ = ad.to_ragged(lists, nulls=0.1, pad=(0.2, 2), xp=np)
        assert matrix.tolist() == [[0.5, np.float32(0.1)], [1.5, np.float32(0.2)]]
        with pytest.raises(ad.NullError, match="beyond the range of float32"):
            ad.to_ragged(lists, nulls=0, pad=(1e39, 2))
        with pytest.raises(ad.NullError, match="exactly in int8"):
            ad.to_ragged(pa.array([[1]], pa.list_(pa.int8())), pad=(0.5, 2))

    def test_the_loader(self):
        table = pa.table({"a": pa.array([0.5, None], pa.float32())})
        assert [batch.tolist() for batch in ad.Loader(table, batch_size=2, nulls=0.1, xp=np)] == [
            [[0.5], [np.float32(0.1)]]
        ]
        with pytest.raises(ad.NullError, match="beyond the range of float32"):
            list(ad.Loader(table, batch_size=2, nulls=1e39))
