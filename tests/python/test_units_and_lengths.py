"""Temporal values as numbers of a unit, and lists that all have one length: against Python's own arithmetic."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TICKS = [0, 1, -1, 1000, 1500, -1_000_000, 86_400_000, 86_400_000_000_000, 2**31 - 1, -(2**31)]
# A type, and the seconds of one of its ticks.
TYPES: list[tuple[pa.DataType, Fraction]] = [
    *[(pa.timestamp(unit), Fraction(1, per)) for unit, per in PER_SECOND.items()],
    (pa.timestamp("us", "Europe/Berlin"), Fraction(1, 10**6)),
    *[(pa.duration(unit), Fraction(1, per)) for unit, per in PER_SECOND.items()],
    (pa.date32(), Fraction(86_400)),
    (pa.date64(), Fraction(1, 1000)),
    (pa.time32("s"), Fraction(1)),
    (pa.time32("ms"), Fraction(1, 1000)),
    (pa.time64("us"), Fraction(1, 10**6)),
    (pa.time64("ns"), Fraction(1, 10**9)),
]


def ticks_of(data_type: pa.DataType) -> list[int]:
    width = 32 if data_type.bit_width == 32 else 64
    return [tick for tick in TICKS if -(2 ** (width - 1)) <= tick < 2 ** (width - 1)]


def column(data_type: pa.DataType, ticks: list[int | None]) -> pa.Array:
    return pa.array(ticks, pa.int32() if data_type.bit_width == 32 else pa.int64()).cast(data_type)


@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize(("data_type", "seconds"), TYPES, ids=[str(data_type) for data_type, _ in TYPES])
def test_numbers_of_a_unit_are_exact_or_an_error(data_type: pa.DataType, seconds: Fraction, unit: str):
    for tick in ticks_of(data_type):
        exact = tick * seconds * PER_SECOND[unit]
        data = column(data_type, [None, 0, tick])
        if exact.denominator == 1 and -(2**63) <= exact < 2**63:
            made = ad.to_tensor(data, unit=unit, nulls=-7)
            own = made.dtype == ad.to_tensor(data, nulls=-7).dtype
            assert own or str(made.dtype) == "int64"
            assert np.asarray(made).tolist() == [-7, 0, int(exact)]
        else:
            with pytest.raises(ad.ConversionError, match=r"row 2: the value .* float dtype") as caught:
                ad.to_tensor(pa.table({"t": data})["t"], unit=unit, nulls=-7, dtype="int64")
            assert caught.value.row == 2
        floats = np.asarray(ad.to_tensor(data, unit=unit, nulls="nan", dtype="float64"))
        np.testing.assert_array_equal(floats, [np.nan, 0.0, exact.numerator / exact.denominator])


def test_units_are_numbers_that_join_others():
    table = pa.table(
        {
            "t": pa.array([1000, 2500], pa.timestamp("ms")),
            "d": pa.array([1, 2], pa.date32()),
            "x": pa.array([0.5, 1.5], pa.float32()),
        }
    )
    with pytest.raises(ad.ConversionError, match="ticks"):
        ad.to_tensor(table)
    made = ad.to_tensor(table, unit="s", dtype="float64")
    np.testing.assert_array_equal(np.asarray(made), [[1.0, 86400.0, 0.5], [2.5, 172800.0, 1.5]])
    assert str(ad.to_tensor(table, unit="ms").dtype) == "float64"
    groups = {"x": ad.group(["t", "d"]), "y": "x"}
    for made in (
        ad.to_tensors(table, columns=groups, unit="ms"),
        *ad.Loader(table, batch_size=2, columns=groups, unit="ms"),
    ):
        np.testing.assert_array_equal(np.asarray(made["x"]), [[1000, 86_400_000], [2500, 172_800_000]])
    report = ad.explain(table, columns=groups, unit="s")
    rows = {row.column: row for row in report}
    assert "ticks of ms in s" in str(rows["t"].steps)
    loader = ad.Loader(table, batch_size=2, columns=groups, unit={"t": "us", "d": "s"})
    for one in (loader, pickle.loads(pickle.dumps(loader))):
        (batch,) = list(one)
        np.testing.assert_array_equal(np.asarray(batch["x"]), [[1_000_000, 86_400], [2_500_000, 172_800]])
    assert loader.fingerprint() != ad.Loader(table, batch_size=2, columns=groups, unit="us").fingerprint()


def test_units_in_lists_dictionaries_runs_and_chunks():
    times = pa.array([1000, None, 3000], pa.timestamp("ms"))
    assert np.asarray(ad.to_tensor(times.dictionary_encode(), unit="s", dictionary="values", nulls=0)).tolist() == [
        1,
        0,
        3,
    ]
    pairs = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4], pa.duration("s")), 2)
    assert np.asarray(ad.to_tensor(pairs, unit="ms")).tolist() == [[1000, 2000], [3000, 4000]]
    days = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4], pa.date32()), 2)
    assert np.asarray(ad.to_tensor(days[1:], unit="s")).tolist() == [[259_200, 345_600]]
    ragged = ad.to_ragged(pa.array([[1], [2, 3]], pa.list_(pa.duration("s"))), unit="ms")
    assert np.asarray(ragged.values).tolist() == [1000, 2000, 3000]
    chunks = pa.chunked_array([times[:1], times[1:]])
    assert np.asarray(ad.to_tensor(chunks, unit="us", nulls=5)).tolist() == [1_000_000, 5, 3_000_000]


def test_a_unit_of_its_own_is_a_view_and_of_no_time_is_an_error():
    times = pa.array([1, 2], pa.timestamp("ms"))
    made = ad.to_tensor(times, unit="ms", copy=False)
    assert not made.copied
    with pytest.raises(ad.ConversionError):
        ad.to_tensor(times, unit="s", copy=False)
    table = pa.table({"t": times, "x": [1, 2]})
    assert np.asarray(ad.to_tensors(table, unit="us")["x"]).tolist() == [1, 2]
    for call in (
        lambda: ad.to_tensors(table, unit={"x": "s"}),
        lambda: ad.Loader(table, batch_size=1, unit={"x": "s"}),
    ):
        with pytest.raises(ad.ConversionError, match=r'column "x".*temporal'):
            call()
    with pytest.raises(ad.ConversionError, match="z"):
        ad.to_tensors(table, unit={"z": "s"})


KINDS: dict[str, Any] = {
    "list": pa.list_,
    "large": pa.large_list,
    "view": pa.list_view,
    "large_view": pa.large_list_view,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_nulls", [False, True])
def test_lists_of_one_length_are_rows_of_that_shape(kind: str, has_nulls: bool):
    rows = [[row, None if has_nulls and row % 3 == 0 else -row] for row in range(100)]
    values = [None if has_nulls and row % 7 == 2 else own for row, own in enumerate(rows)]
    expected = np.array([[9 if item is None else item for item in row or [None, None]] for row in values])
    valid = np.array([[item is not None for item in row or [None, None]] for row in values])
    whole = pa.array(values, KINDS[kind](pa.int32()))
    for start in (0, 5):
        data = whole[start:]
        chunks = pa.chunked_array([data[:10], data[10:]])
        for source in (data, chunks):
            made = ad.to_tensor(source, length=2, nulls=9)
            assert (made.shape, str(made.dtype)) == ((100 - start, 2), "int32")
            np.testing.assert_array_equal(np.asarray(made), expected[start:])
    table = pa.table({"emb": whole, "a": pa.array(range(100), pa.int32())})
    groups = {"x": ad.group(["emb", "a"], validity="m", nulls=9)}
    both = np.concatenate([expected, np.arange(100)[:, None]], axis=1)
    made = ad.to_tensors(table, columns=groups, length={"emb": 2})
    np.testing.assert_array_equal(np.asarray(made["x"]), both)
    np.testing.assert_array_equal(np.asarray(made["m"])[:, :2], valid)
    report = ad.explain(table, columns=groups, length={"emb": 2})
    rows_of = {row.column: row for row in report}
    assert (rows_of["emb"].shape, report.matrices[0].shape, report.matrices[0].error) == ((100, 2), (100, 3), None)
    assert ad.explain(whole, length=2, nulls=9)[0].shape == (100, 2)
    assert ad.explain(table.schema, columns=groups, length=2).matrices[0].shape == (None, 3)
    loader = ad.Loader(table, batch_size=16, columns=groups, length={"emb": 2}, shuffle_buffer=30, seed=3)
    batches = list(pickle.loads(pickle.dumps(loader)))
    made = np.concatenate([np.asarray(batch["x"]) for batch in batches])
    np.testing.assert_array_equal(made[np.argsort(made[:, 2])], both)


def test_a_list_of_another_length_is_an_error_that_names_it():
    table = pa.table({"emb": [[1, 2]] * 50 + [[1]] + [[1, 2]] * 9})
    for call in (
        lambda: ad.to_tensors(table, length={"emb": 2}),
        lambda: ad.to_tensor(table.slice(0), length=2),
        lambda: list(ad.Loader(table, batch_size=4, length={"emb": 2})),
    ):
        with pytest.raises(ad.ConversionError, match='column "emb", row 50: the list has 1 element, and not 2'):
            call()
    with pytest.raises(ad.ConversionError, match="row 0"):
        ad.to_tensors(table, length=3)
    lists = pa.array([[1, 2]], pa.list_(pa.int8(), 2))
    assert ad.to_tensors(pa.table({"l": lists}), length={"l": 2})["l"].shape == (1, 2)
    for name, data, length in (("l", lists, 3), ("n", pa.array([1]), 2), ("s", pa.array(["x"]), 2)):
        with pytest.raises(ad.ConversionError, match=rf'column "{name}".*length='):
            ad.to_tensors(pa.table({name: data}), length={name: length})
    with pytest.raises(ad.ConversionError, match="length="):
        ad.to_tensor(pa.table({"l": pa.array([[1]])}))
    with pytest.raises(ad.ConversionError):
        ad.to_tensor(table["emb"].chunk(0)[:5], length=2, copy=False)


def test_lists_in_structs_and_empty_ones():
    inner = pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float64()))
    structs = pa.StructArray.from_arrays([inner], ["emb"], mask=pa.array([False, True, False]))
    made = ad.to_tensors(pa.table({"s": structs}), columns=["s.emb"], length={"s.emb": 2}, nulls=0)
    assert np.asarray(made["s.emb"]).tolist() == [[1, 2], [0, 0], [0, 0]]
    empty = pa.array([[], []], pa.list_(pa.float32()))
    assert ad.to_tensor(empty, length=0).shape == (2, 0)
    assert ad.to_tensor(empty[:0], length=3).shape == (0, 3)
    days = pa.array([[1, 2]], pa.list_(pa.date32()))
    assert np.asarray(ad.to_tensor(days, length=2, unit="s")).tolist() == [[86_400, 172_800]]
