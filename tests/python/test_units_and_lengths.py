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


@pytest.mark.parametrize(
    ("value", "unit", "dtype", "remedy", "right"),
    [
        (1500, "s", "int64", "a float dtype.* a finer unit", [("ms", "int64"), ("s", "float16")]),
        (-2000, "s", "uint8", "a float dtype", [("s", "float16")]),
        (300_500, "s", "uint8", "a float dtype.* a coarser unit", [("s", "float16")]),
        (-1500, "s", "uint8", "a float dtype.* a coarser unit", [("s", "float16")]),
        (255_500, "s", "uint8", "a float dtype.* a finer unit", [("s", "float16")]),
        (-128_500, "s", "int8", "a float dtype.* a finer unit", [("s", "float16")]),
        (2**50, "ns", "int64", "a float dtype.* a coarser unit", [("us", "int64"), ("ns", "float32")]),
        (70_000_500, "us", "float16", "a wider dtype.* a coarser unit", [("us", "float32"), ("s", "bfloat16")]),
    ],
)
def test_what_to_do_with_a_value_that_does_not_fit(
    value: int, unit: str, dtype: str, remedy: str, right: list[tuple[str, str]]
):
    column = pa.array([value], pa.duration("ms"))
    with pytest.raises(ad.CastError, match=f"does not fit {dtype}; ask for {remedy}"):
        ad.to_tensor(column, unit=unit, dtype=dtype)
    for unit, dtype in right:
        assert ad.to_tensor(column, unit=unit, dtype=dtype).dtype == dtype


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
    with pytest.raises(ad.ConversionError, match="its lists have 2 elements, and not the 3 of the length"):
        ad.to_tensor(lists, length=3)
    assert ad.to_tensor(lists, length=2).shape == (1, 2)
    with pytest.raises(ad.ConversionError, match="length="):
        ad.to_tensor(pa.table({"l": pa.array([[1]])}))
    assert not ad.to_tensor(table["emb"].chunk(0)[:5], length=2, copy=False).copied


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


def lists_of(kind: str, items: pa.Array, starts: list[int], lengths: list[int], valid: list[bool]) -> pa.Array:
    """Lists over these items, where `starts` says; null lists keep their offsets."""
    width, data_type = pa.int64() if "large" in kind else pa.int32(), KINDS[kind](items.type)
    bits = pa.array(valid, pa.bool_()).buffers()[1] if not all(valid) else None
    offsets = starts if "view" in kind else [*starts, starts[-1] + lengths[-1]]
    buffers = [bits, pa.array(offsets, width).buffers()[1]]
    buffers += [pa.array(lengths, width).buffers()[1]] if "view" in kind else []
    return pa.Array.from_buffers(data_type, len(valid), buffers, children=[items])


def address(made: ad.Tensor) -> int:
    return np.asarray(made).ctypes.data


@pytest.mark.parametrize("kind", KINDS)
def test_lists_that_follow_each_other_are_a_view(kind: str):
    items = pa.array(range(3, 20), pa.float32())
    whole = lists_of(kind, items[1:], [2, 5, 8, 11], [3] * 4, [True] * 4)
    start = items.buffers()[1].address + 4 * 3
    expected = np.arange(6, 18, dtype=np.float32).reshape(4, 3)
    for first in range(4):
        data = whole[first:]
        made = ad.to_tensor(data, length=3, copy=False)
        assert (address(made), made.copied, made.writable) == (start + 12 * first, False, False)
        np.testing.assert_array_equal(np.asarray(made), expected[first:])
        table = pa.table({"e": data, "n": range(4 - first)})
        for source in (table, ad.from_arrow(table), iter(table.to_batches())):
            made = ad.to_tensors(source, length={"e": 3}, copy=False)["e"]
            assert address(made) == start + 12 * first
        (row,) = ad.explain(data, length=3, copy=False)
        assert (row.how, row.bytes, row.steps) == ("view", 0, [])
    structs = pa.StructArray.from_arrays([whole], ["e"])[1:]
    assert address(ad.to_tensors(structs, columns=["e"], length=3, copy=False)["e"]) == start + 12
    (row,) = ad.explain(pa.schema([("e", whole.type)]), length=3, copy=False)
    assert "lists do not follow each other" in row.refused_if
    (row,) = ad.explain(pa.schema([("e", whole.type)]), length=3)
    assert (row.how, row.steps[-1]) == ("view or copy", "decoded, unless the lists follow each other")


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_its_own_is_never_that_of_lists(kind: str):
    items = pa.array(range(12), pa.int32())
    data = lists_of(kind, items, [0, 4, 8], [4] * 3, [True] * 3)
    for options in ({"copy": True}, {"writable": True}):
        made = ad.to_tensor(data, length=4, **options)
        np.asarray(made)[:] = -1
        assert made.copied
        assert made.writable
        (row,) = ad.explain(data, length=4, **options)
        assert (row.how, row.bytes, row.steps) == ("copy", 48, ["memory of its own asked for"])
        # Lists that do not follow each other are decoded, and what is decoded is copied no second time.
        (row,) = ad.explain(pa.schema([("e", data.type)]), length=4, **options)
        own = "memory of its own asked for, if the lists follow each other"
        assert (row.how, row.steps) == ("copy", ["decoded, unless the lists follow each other", own])
    assert not ad.to_tensor(data, length=4).writable
    # Lists of lists of one length, which are decoded, though their items follow each other.
    pairs = pa.FixedSizeListArray.from_arrays(lists_of(kind, items, [0, 2, 4, 6, 8, 10], [2] * 6, [True] * 6), 3)
    made = ad.to_tensor(pairs, length=2)
    assert made.shape == (2, 3, 2)
    if made.writable:
        np.asarray(made)[:] = -1
    assert items.to_pylist() == list(range(12))


@pytest.mark.parametrize("kind", KINDS)
def test_lists_of_a_matrix_that_follow_each_other_are_not_decoded(kind: str):
    items = pa.array(range(12), pa.float32())
    together = lists_of(kind, items, [0, 4, 8], [4] * 3, [True] * 3)
    chunks = pa.chunked_array([together, together[1:]])
    cases = [(together, 3, 0), (chunks, 5, 0)]
    if "view" in kind:
        gap = lists_of(kind, items, [0, 8], [4] * 2, [True] * 2)
        cases += [(gap, 2, 32), (pa.chunked_array([together, gap]), 5, 32)]
    for data, rows, decoded in cases:
        table = pa.table({"e": data, "n": pa.array(range(rows), pa.float32())})
        expected = rows * 5 * 4 + decoded
        for source in (table, iter(table.to_batches())):
            with ad.track_copies() as log:
                made = ad.to_tensor(source, length={"e": 4})
            assert (made.shape, log.bytes) == ((rows, 5), expected)
            assert ("decoded" in next(iter(log)).why) == (decoded > 0)
        report = ad.explain(table, order="C", length={"e": 4})
        assert report.matrices[0].bytes == expected
        assert ("decoded" in report.matrices[0].steps) == ("decoded" in report[0].steps) == (decoded > 0)
        assert report[0].bytes == rows * 4 * 4 + decoded
    (row, _) = ad.explain(table.schema, order="C", length={"e": 4})
    assert row.steps[0] == "decoded, unless the lists follow each other"


@pytest.mark.parametrize("kind", KINDS)
def test_nulls_of_lists_that_follow_each_other(kind: str):
    items = pa.array([0, 1, None, 3, 4, 5, 6, 7], pa.float32())
    valid = [True, True, False, True]
    data = lists_of(kind, items, [0, 2, 4, 6], [2] * 4, valid)
    kept = ad.to_tensor(data, length=2, nulls="keep", copy=False)
    assert np.asarray(kept)[[0, 3]].tolist() == [[0, 1], [6, 7]]
    assert not kept.copied
    filled = ad.to_tensor(data, length=2, nulls=9)
    assert np.asarray(filled).tolist() == [[0, 1], [9, 3], [9, 9], [6, 7]]
    (row,) = ad.explain(data, length=2, nulls=9)
    assert row.steps == ["3 nulls filled"]
    for first in range(4):
        (row,) = ad.explain(data[first:], length=2, nulls=9)
        np.testing.assert_array_equal(
            np.asarray(ad.to_tensor(data[first:], length=2, nulls=9)), np.asarray(filled)[first:]
        )
    with pytest.raises(ad.CopyError, match="nulls filled"):
        ad.to_tensor(data, length=2, nulls=9, copy=False)
    with pytest.raises(ad.NullError) as caught:
        ad.to_tensor(data, length=2)
    assert caught.value.row == 1
    # The nulls of a struct are nulls of its field.
    structs = pa.StructArray.from_arrays([data], ["e"], mask=pa.array([True, False, False, False]))
    made = ad.to_tensors(pa.table({"s": structs}), columns=["s.e"], length=2, nulls=9)["s.e"]
    assert np.asarray(made).tolist() == [[9, 9], [9, 3], [9, 9], [6, 7]]


@pytest.mark.parametrize("kind", KINDS)
def test_lists_that_do_not_follow_each_other_are_no_view(kind: str):
    items = pa.array(range(10), pa.int16())
    cases = [([0, 2, 2], [2, 0, 2], [True, False, True])]
    if "view" in kind:
        cases += [([0, 3, 5], [2] * 3, [True] * 3), ([4, 2, 0], [2] * 3, [True] * 3), ([0, 0, 0], [2] * 3, [True] * 3)]
    for starts, lengths, valid in cases:
        data = lists_of(kind, items, starts, lengths, valid)
        expected = [
            list(range(start, start + 2)) if is_valid else [-1, -1]
            for start, is_valid in zip(starts, valid, strict=True)
        ]
        with pytest.raises(ad.CopyError, match="decoded"):
            ad.to_tensor(data, length=2, nulls="keep", copy=False)
        made = ad.to_tensor(data, length=2, nulls=-1)
        assert made.copied
        assert np.asarray(made).tolist() == expected
        (row,) = ad.explain(data, length=2, nulls=-1)
        assert (row.how, row.steps[0]) == ("copy", "decoded")
        (row,) = ad.explain(data, length=2, nulls="keep", copy=False)
        assert row.how == "refused"
    # One chunk that is dense and one that is not, and rows that count from the first.
    chunks = pa.chunked_array([lists_of(kind, items, [0, 2], [2, 2], [True] * 2), data])
    made = ad.to_tensor(chunks, length=2, nulls=-1)
    assert made.copied
    assert np.asarray(made).tolist() == [[0, 1], [2, 3], *expected]
    for copy in (None, False):
        wrong = pa.chunked_array([chunks.chunk(0), lists_of(kind, items, [0, 2], [2, 3], [True] * 2)])
        with pytest.raises(ad.ConversionError, match=r"row 3: the list has 3 elements, and not 2"):
            ad.to_tensor(wrong, length=2, copy=copy)
    dense = pa.chunked_array([chunks.chunk(0)] * 2)
    (row,) = ad.explain(dense, length=2)
    assert (row.steps, row.bytes) == (["2 chunks joined"], 16)
    assert np.asarray(ad.to_tensor(dense, length=2)).tolist() == [[0, 1], [2, 3]] * 2
    # Items that are codes are decoded.
    codes = lists_of(kind, pa.array([7, 8] * 5, pa.int64()).dictionary_encode(), [0, 2], [2, 2], [True] * 2)
    with ad.track_copies() as log:
        made = ad.to_tensor(codes, length=2, dictionary="values")
    assert (np.asarray(made).tolist(), log.bytes) == ([[7, 8]] * 2, 32)
    assert not ad.to_tensor(codes, length=2, dictionary="codes", copy=False).copied


def test_misaligned_items_of_lists_are_realigned():
    memory = pa.py_buffer(b"\0" + np.arange(6, dtype=np.int64).tobytes())[1:]
    items = pa.Array.from_buffers(pa.int64(), 6, [None, memory])
    data = lists_of("list", items, [0, 3], [3, 3], [True] * 2)
    with pytest.raises(ad.CopyError, match="realigned"):
        ad.to_tensor(data, length=3, copy=False)
    made = ad.to_tensor(data, length=3)
    assert made.copied
    assert np.asarray(made).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("empty", [False, True])
def test_validity_of_lists_of_one_length(kind: str, empty: bool):
    valid = [True, True, False, True]
    starts, lengths = ([0, 2, 4, 4], [2, 2, 0, 2]) if empty else ([0, 2, 4, 6], [2] * 4)
    expected = [[True, True], [False, True], [False, False], [True, True]]
    texts = pa.array(["a", "a long text of its own", None, "b", "c", "d", "e", "f"])
    for items in (
        pa.array([0, 1, None, 3, 4, 5, 6, 7], pa.float32()),
        texts,
        texts.dictionary_encode(),
        texts.cast(pa.string_view()),
        pa.array([None if text is None else [text] for text in texts.to_pylist()]),
        pa.array([None if text is None else {"a": 1} for text in texts.to_pylist()]),
        pa.array([True, False, None, True, False, False, True, True]),
    ):
        data = lists_of(kind, items, starts, lengths, valid)
        for first in range(4):
            chunks = pa.chunked_array([data[first : first + 1], data[first + 1 :]])
            for source in (data[first:], chunks, ad.from_arrow(chunks)):
                made = ad.validity(source, length=2)
                assert np.asarray(made).tolist() == expected[first:], items.type
        table = pa.table({"e": data, "n": [1, None, 3, 4]})
        for source in (table, iter(table.to_batches())):
            made = ad.validity(source, columns=["n", "e"], length={"e": 2})
            assert np.asarray(made).tolist() == [
                [n, *e] for n, e in zip([True, False, True, True], expected, strict=True)
            ]
        # Without a length, rows alone are valid or not.
        assert np.asarray(ad.validity(data)).tolist() == valid
    structs = pa.StructArray.from_arrays([data], ["e"], mask=pa.array([True, False, False, False]))
    made = ad.validity(pa.table({"s": structs}), columns=["s.e"], length={"s.e": 2})
    assert np.asarray(made).tolist() == [[False, False], *expected[1:]]


def test_a_validity_of_another_length_is_an_error():
    data = pa.array([[1, 2], [3, None]])
    with pytest.raises(ad.ConversionError, match="row 0: the list has 2 elements, and not 3"):
        ad.validity(data, length=3)
    with pytest.raises(ad.ConversionError, match="length="):
        ad.validity(pa.table({"n": [1]}), length={"n": 2})
    with pytest.raises(ad.ConversionError, match="bits="):
        ad.validity(data, length=2, bits=True)
    assert np.asarray(ad.validity(pa.array([1, None]), length=2)).tolist() == [True, False]


@pytest.mark.parametrize("dictionary", [None, "values"])
def test_a_unit_is_for_the_values_of_a_dictionary(dictionary: Any):
    times = pa.array([1_577_836_800, None, 5], pa.timestamp("s"))
    codes = times.dictionary_encode()
    for column in (codes, pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), codes)):
        for unit in ("ms", {"t": "ms"}):
            options = {} if dictionary is None else {"dictionary": dictionary}
            made = ad.to_tensors(pa.table({"t": column}), unit=unit, nulls=0, **options)["t"]
            assert np.asarray(made).tolist() == [1_577_836_800_000, 0, 5000]
    texts = pa.array(["x", "y"]).dictionary_encode()
    assert np.asarray(ad.to_tensor(texts, unit="ms")).tolist() == [0, 1]
    assert np.asarray(ad.to_tensor(codes[:1], unit="ms", dictionary="codes")).tolist() == [0]


def test_a_length_is_for_the_tensor_of_a_column_that_is_padded_and_ragged_too():
    table = pa.table({"l": [[1, 2], [3, 4]], "k": [[[1, 2], [3, 4]], [[5, 6]]]})
    columns = {"q": ad.padded("l"), "r": "l", "s": ad.ragged("l"), "k": ad.ragged("k")}
    for length in (2, {"l": 2}):
        made = ad.to_tensors(table, columns=columns, length=length)
        [batch] = ad.Loader(table, columns=columns, length=length, batch_size=2)
        for results in (made, batch):
            assert np.asarray(results["q"]).tolist() == np.asarray(results["r"]).tolist() == [[1, 2], [3, 4]]
            assert np.asarray(results["s"].values).tolist() == [1, 2, 3, 4]
        ad.explain(table, columns=columns, length=length)
    # Without a tensor of the column it is for nothing.
    for columns in ({"q": ad.padded("l")}, {"s": ad.ragged("l"), "r": "l", "k": ad.ragged("k")}):
        with pytest.raises(ad.ConversionError, match="is for columns of lists"):
            ad.to_tensors(table, columns=columns, length={"l": 2, "k": 2})


@pytest.mark.parametrize("unit", ["s", {"t": "s"}])
def test_a_unit_is_for_the_days_of_a_dictionary(unit: Any):
    days = pa.array([0, 1, None, 1], pa.date32())
    codes = days.dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), codes)
    for column in (days, codes, runs):
        table = pa.table({"t": column, "x": pa.array([1, 2, 3, 4], pa.int8())})
        made = ad.to_tensors(table, columns=["t"], unit=unit, nulls=0)["t"]
        assert np.asarray(made).tolist() == [0, 86_400, 0, 86_400]
        matrix = ad.to_tensor(table, unit=unit, nulls=0)
        assert np.asarray(matrix).tolist() == [[0, 1], [86_400, 2], [0, 3], [86_400, 4]]
        assert [row.dtype for row in ad.explain(table, columns=["t"], unit=unit, nulls=0)] == ["int64"]
    lists = pa.ListArray.from_arrays([0, 1, 2], codes[:2])
    ragged = ad.to_tensors(pa.table({"t": lists}), columns={"r": ad.ragged("t")}, unit=unit)["r"]
    assert np.asarray(ragged.values).tolist() == [0, 86_400]
    # Without a unit, days and codes are as they are stored.
    assert str(ad.to_tensor(days[:2]).dtype) == str(ad.to_tensor(codes[:2]).dtype) == "int32"


def test_a_unit_of_its_own_is_that_of_the_ticks_in_their_dtype():
    for data_type, dtype in ((pa.time32("s"), "int32"), (pa.time32("ms"), "int32"), (pa.time64("us"), "int64")):
        made = ad.to_tensor(pa.array([1, 2], data_type), unit=data_type.unit, copy=False)
        assert str(made.dtype) == dtype
    assert str(ad.to_tensor(pa.array([1, 2], pa.time32("s")), unit="ms").dtype) == "int64"


def test_a_length_by_name_is_not_that_of_lists_in_fixed_size_lists():
    table = pa.table({"x": pa.array([[[1, 2, 3], [4, 5, 6]]], pa.list_(pa.list_(pa.int32()), 2))})
    assert ad.to_tensors(table, length=3)["x"].shape == (1, 2, 3)
    with pytest.raises(ad.ConversionError, match="2 elements"):
        ad.to_tensors(table, length={"x": 3})
