"""Ragged rows of several chunks, some of which have no rows."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

ITEMS = {
    "numbers": (pa.int32(), [[[9, 9, 9]], [[1], [2, 3]], [[4]]]),
    "text": (pa.string(), [[["xx", "y"]], [["a"], ["b", "cc"]], [["d"]]]),
    "lists": (pa.list_view(pa.int8()), [[[[9], [8, 8]]], [[[1]], [[], [2, 3]]], [[[4]]]]),
    "fixed-size lists": (pa.list_(pa.int8(), 2), [[[[9, 9]]], [[[1, 2]], [[3, 4], [5, 6]]], [[]]]),
    "null rows": (pa.list_view(pa.int8()), [[[None, [8]]], [[[1]], [None, [2, 3]]], [None, [[]]]]),
}


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_elements_of_chunks_without_rows_are_none_of_the_values(make: object, item: str):
    data_type, rows = ITEMS[item]
    first, second, third = (pa.array(part, make(data_type)) for part in rows)
    for chunks in permutations([first.slice(0, 0), second.slice(0, 0), second, third], 3):
        source = pa.chunked_array(chunks)
        ragged = ad.to_ragged(source, nulls="keep")
        assert pa.array(ad.to_arrow(ragged)).to_pylist() == source.to_pylist()
        batches = [pa.record_batch({"x": chunk}) for chunk in chunks]
        by_stream = ad.to_tensors(iter(batches), columns={"r": ad.ragged("x")}, nulls="keep")["r"]
        assert pa.array(ad.to_arrow(by_stream)).to_pylist() == source.to_pylist()


@pytest.mark.parametrize("make", [pa.list_view, pa.large_list_view])
def test_the_only_chunk_with_rows_is_viewed(make: object):
    first, second = pa.array([[9, 9, 9]], make(pa.int32())), pa.array([[1], [2, 3]], make(pa.int32()))
    chunks = pa.chunked_array([first.slice(0, 0), second, first.slice(1)])
    assert np.from_dlpack(ad.to_ragged(chunks, copy=False).values).tolist() == [1, 2, 3]
    assert np.from_dlpack(ad.to_ragged(first.slice(0, 0), copy=False).values).tolist() == []


def runs(values: list[int | None]) -> pa.RunEndEncodedArray:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), pa.array(values))


@pytest.mark.parametrize("item", [runs, pa.array, lambda values: pa.array(values).dictionary_encode()])
def test_elements_that_no_row_shows_are_not_cast(item: object):
    items = item([5, 300, 6, 8, 300, 7])
    views = pa.ListViewArray.from_arrays(pa.array([2, 0, 5], pa.int32()), pa.array([1, 1, 1], pa.int32()), items)
    ragged = ad.to_ragged(views, dtype="int8")
    assert pa.array(ad.to_arrow(ragged)).to_pylist() == [[6], [5], [7]]
    offsets, mask = pa.array([0, 1, 3, 4, 5, 6], pa.int32()), pa.array([False, True, False, True, False])
    lists = pa.ListArray.from_arrays(offsets, items, mask=mask)
    kept = ad.to_ragged(lists.slice(0, 3), dtype="int8", nulls="keep")
    assert pa.array(ad.to_arrow(kept)).to_pylist() == [[5], None, [8]]
    with pytest.raises(ad.CastError) as caught:
        ad.to_ragged(pa.ListArray.from_arrays(offsets, items), dtype="int8", nulls="keep")
    assert caught.value.row == 1


def test_null_rows_that_no_row_shows_are_not_refused():
    inner = pa.array([[1, 2], None, [3]], pa.list_(pa.int32()))

    def views(*starts):
        return pa.ListViewArray.from_arrays(pa.array(starts, pa.int32()), pa.array([1, 1], pa.int32()), inner)

    assert pa.array(ad.to_arrow(ad.to_ragged(views(0, 2)))).to_pylist() == [[[1, 2]], [[3]]]
    with pytest.raises(ad.NullError):
        ad.to_ragged(views(0, 1))


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, pa.list_view])
@pytest.mark.parametrize("items", [pa.int16(), pa.dictionary(pa.int8(), pa.int16())])
def test_the_lowest_row_is_refused_of_nulls_and_values(make: object, items: pa.DataType):
    for rows, options, error, row in (
        ([[1], [300], [None]], {"dtype": "int8"}, ad.CastError, 1),
        ([[1], [300, None]], {"dtype": "int8"}, ad.CastError, 1),
        ([[1], [None, 300]], {"dtype": "int8"}, ad.NullError, 1),
        ([[1], [], [None], [300]], {"dtype": "int8"}, ad.NullError, 2),
        ([[1], [300], [None]], {"dtype": "int8", "nulls": 0}, ad.CastError, 1),
        ([[1], [300], [None]], {}, ad.NullError, 2),
    ):
        whole = pa.array(rows, make(pa.int16())) if make is pa.list_view else pa.array(rows, make(items))
        for source in (whole, pa.chunked_array([whole[:1], whole[1:2], whole[2:]])):
            with pytest.raises(error) as caught:
                ad.to_ragged(source, dictionary="values", **options)
            assert caught.value.row == row


@pytest.mark.parametrize("item", ["numbers", "nulls", "texts", "codes", "runs"])
@pytest.mark.parametrize("of", [pa.ListViewArray, pa.LargeListViewArray], ids=["32 bits", "64 bits"])
def test_list_views_in_many_slices_have_the_items_of_their_rows(of: Any, item: str):
    rows, size = 60, 1000
    numbers = pa.array(range(rows * size), pa.int32())
    items: Any = {
        "numbers": numbers,
        "nulls": pa.array([None if number == 59_990 else number for number in range(rows * size)]),
        "texts": numbers.cast(pa.string()),
        "codes": numbers.dictionary_encode(),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array(range(1, rows * size + 1), pa.int32()), numbers),
    }[item]
    width = pa.int32() if of is pa.ListViewArray else pa.int64()
    # The first slice has rows at both ends of the items, and rows without items that begin anywhere.
    starts = pa.array([size * (row if row % 7 else rows - 1 - row) for row in range(rows)], width)
    sizes = pa.array([0 if row % 5 == 0 else size - 1 for row in range(rows)], width)
    whole = of.from_arrays(starts, sizes, items, mask=pa.array([row % 11 == 3 for row in range(rows)]))
    parts = [slice(0, 8), *(slice(row, row + 1) for row in range(8, rows))]
    source = pa.chunked_array([whole[part] for part in parts])

    def listed(ragged: Any) -> list[list[Any]]:
        return pa.array(ad.to_arrow(ragged)).to_pylist()

    for nulls in ("keep", 0):
        ragged = ad.to_ragged(source, nulls=nulls)
        assert listed(ragged) == listed(ad.to_ragged(whole, nulls=nulls))
        ends = ragged.values.offsets if item == "texts" else ragged.values
        assert ends.shape[0] < 3 * len(items)
    if item != "texts":
        columns = {"x": ad.padded("x", validity="valid")}
        made, expected = (ad.to_tensors(pa.table({"x": data}), columns=columns, nulls=0) for data in (source, whole))
        assert all(np.array_equal(np.from_dlpack(made[name]), np.from_dlpack(expected[name])) for name in expected)
    if item == "nulls":
        strict = of.from_arrays(starts, sizes, items)
        for data in (strict, pa.chunked_array([strict[part] for part in parts])):
            with pytest.raises(ad.NullError) as caught:
                ad.to_ragged(data)
            assert caught.value.row == 59
