"""`ad.statistics`: fills from data, against Python's exact arithmetic."""

from __future__ import annotations

import functools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

NAMES = ["mean", "min", "max", "std", "mode", "count", "null_count"]
GENERATOR = np.random.default_rng(8)


def expected(values: list[Any]) -> dict[str, Any]:
    kept = [value for value in values if value is not None and not (isinstance(value, float) and math.isnan(value))]
    exact = [Fraction(value) for value in kept]
    mean = sum(exact) / len(exact)
    times = Counter(kept)
    most = max(times.values())
    return {
        "mean": float(mean),
        "min": min(kept),
        "max": max(kept),
        "std": math.sqrt(sum((value - mean) ** 2 for value in exact) / len(exact)),
        "mode": min(value for value, count in times.items() if count == most),
        "count": len(kept),
        "null_count": values.count(None),
    }


CASES: dict[str, tuple[list[Any], pa.DataType]] = {
    "int8": ([3, None, -7, 3, 127, -128], pa.int8()),
    "uint64": ([2**64 - 1, 2**64 - 2, None, 2**64 - 1], pa.uint64()),
    "int64": ([2**62, 2**62, -(2**62), 2**62 + 1, None, 5], pa.int64()),
    "bool": ([True, False, True, None], pa.bool_()),
    "float32": ([0.5, float("nan"), None, 0.5, -2.0, 1e30], pa.float32()),
    "float16": ([0.5, None, 2.0, 2.0], pa.float16()),
    "large and small": ([1e16, 1.0, -1e16, 1.0, None], pa.float64()),
    "zeros": ([0.0, -0.0, -0.0, 1.0], pa.float64()),
    "far from zero": ([1e9 + 1, 1e9 + 2, 1e9 + 3], pa.float64()),
    "many": ([None if row % 11 == 0 else int(row * 7919 % 1000) for row in range(200_000)], pa.int32()),
}


@functools.cache
def expected_of(case: str) -> dict[str, Any]:
    """Exact arithmetic takes seconds for many values."""
    values, data_type = CASES[case]
    return expected(
        [float(np.float32(value)) if data_type == pa.float32() and value is not None else value for value in values]
    )


@pytest.mark.parametrize("statistic", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_it_is_that_of_exact_arithmetic_however_the_source_is_cut(case: str, statistic: str):
    values, data_type = CASES[case]
    column = pa.array(values, data_type, from_pandas=False)
    wanted = expected_of(case)[statistic]
    cut = len(column) // 3
    sources: list[Any] = [
        pa.table({"a": column}),
        pa.table({"a": pa.chunked_array([column[:cut], column[:0], column[cut:]])}),
        lambda: pa.table({"a": column}).to_reader(),
    ]
    if data_type != pa.float16():
        sources.append([pa.record_batch({"a": column.dictionary_encode()})])
    for source in sources:
        found = ad.statistics(source, {"a": statistic})
        assert list(found) == ["a"]
        if statistic in ("mean", "std"):
            assert isinstance(found["a"], float)
            assert found["a"] == pytest.approx(wanted, rel=1e-14, abs=1e-300 if wanted else 1e-12)
        else:
            assert (found["a"], type(found["a"]) in (int, float)) == (wanted, True)


def test_other_columns_and_paths():
    structs = pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["x"], mask=pa.array([False, True, False]))
    table = pa.table(
        {
            "s": structs,
            "t": pa.array([10, None, 30], pa.timestamp("ms")),
            "d": pa.array([Decimal("1.25"), None, Decimal("2.75")], pa.decimal128(5, 2)),
            "l": pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float32(), 2)),
            "text": ["a", None, "b"],
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([4, 7])),
        }
    )
    asked = {"s.x": "max", "t": "mean", "d": "mean", "l": "mean", "text": "null_count", "runs": "mode"}
    found = ad.statistics(table, asked)
    assert found == {"s.x": 3, "t": 20.0, "d": 2.0, "l": 2.0, "text": 1, "runs": 4}
    assert ad.statistics(table, {"s.x": "null_count"}) == {"s.x": 1}
    assert ad.statistics(table, {"text": "count"}) == {"text": 2}


def test_the_fills_of_the_training_data_are_those_of_any_loader():
    train = pa.table({"a": [1.0, None, 4.0], "b": pa.array([5, None, 5], pa.int16())})
    fills = ad.statistics(train, {"a": "mean", "b": "mode"})
    assert fills == {"a": 2.5, "b": 5}
    other = pa.table({"a": [None, 7.0], "b": pa.array([None, 1], pa.int16())})
    (batch,) = ad.Loader(other, batch_size=2, nulls=fills, dtype="float32")
    np.testing.assert_array_equal(np.asarray(batch), [[2.5, 5.0], [7.0, 1.0]])


def test_columns_without_values_have_only_counts():
    nothing = pa.table({"a": pa.array([None, float("nan")], from_pandas=False, type=pa.float64()), "b": [1, 2]})
    for statistic in ("mean", "min", "max", "std", "mode"):
        for table in (nothing, nothing.slice(0, 0)):
            with pytest.raises(ad.ConversionError, match='column "a": the column has no values'):
                ad.statistics(table, {"a": statistic})
    assert ad.statistics(nothing, {"a": "count", "b": "max"}) == {"a": 0, "b": 2}
    assert ad.statistics(nothing, {"a": "null_count"}) == {"a": 1}
    assert ad.statistics(pa.table({"a": [float("inf"), 1.0]}), {"a": "mean"}) == {"a": float("inf")}


@pytest.mark.parametrize("values", [[1.0, float("inf")], [1e200, -1e200], [1e200, 3e200], [-float("inf"), 2.0, 1.0]])
def test_a_deviation_beyond_a_float_is_no_zero(values: list[float]):
    found = ad.statistics(pa.table({"x": values}), {"x": "std"})["x"]
    with np.errstate(all="ignore"):
        np.testing.assert_equal(found, np.std(values))


@pytest.mark.parametrize("values", [[1e308, -1e308], [1.0, 1.7e308, -1.7e308], [1.7e308, -1.7e308, 1.0]])
def test_a_deviation_of_finite_values_is_a_number(values: list[float]):
    """Their distances may be beyond a float themselves."""
    assert ad.statistics(pa.table({"x": values}), {"x": "std"}) == {"x": float("inf")}


def test_what_is_wrong_is_an_error_before_the_source_is_read():
    reads = []

    def batches():
        yield pa.record_batch({"a": [1], "text": ["x"]})
        reads.append(1)
        yield pa.record_batch({"a": [1], "text": ["x"]})

    table = pa.table({"a": [1], "text": ["x"]})
    for asked, error in (
        ({"z": "mean"}, ad.ConversionError),
        ({"text": "mean"}, ad.UnsupportedTypeError),
        ({"text": "mode"}, ad.UnsupportedTypeError),
        ({"a": "median"}, ValueError),
        ({"a": 3}, ValueError),
        (["a"], TypeError),
        ("a", TypeError),
        ({1: "mean"}, TypeError),
    ):
        reader = table.to_reader()
        for source in (reader, batches()):
            with pytest.raises(error):
                ad.statistics(source, asked)
        assert reader.read_all().num_rows == 1
    assert not reads
    with pytest.raises(ad.ConversionError, match='column "a": the column has more than 2 different values'):
        ad.statistics(pa.table({"a": [1, 2, 3]}), {"a": "mode"}, limit=2)
    assert ad.statistics(pa.table({"a": [1, 2, 3]}), {"a": "mean"}, limit=2) == {"a": 2.0}
    with pytest.raises(ValueError, match="limit"):
        ad.statistics(table, {"a": "mode"}, limit=0)
