"""Items that no row shows, in gaps of list views and under null rows, keep no row from its way back to Arrow."""

import struct
from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest

TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]


def packed(values: list[int]) -> pa.Buffer:
    return pa.py_buffer(struct.pack(f"{len(values)}i", *values))


@pytest.mark.parametrize("nullable", [False, True], ids=["not null", "nullable"])
@pytest.mark.parametrize("item", TEXTS, ids=str)
def test_texts_that_no_row_shows(item: pa.DataType, nullable: bool):
    field = pa.field("item", item, nullable=nullable)
    items = pa.array([b"gap", b"a", b"bc", b"gap"], pa.binary()).cast(item)
    views = pa.Array.from_buffers(
        pa.list_view(field), 3, [None, packed([2, 1, 1]), packed([1, 0, 2])], children=[items]
    )
    bitmap = pa.py_buffer(b"\6")
    lists = pa.Array.from_buffers(pa.list_(field), 3, [bitmap, packed([0, 1, 1, 3])], children=[items])
    for source in (views, lists):
        source.validate(full=True)
        back: Any = pa.array(ad.to_arrow(ad.to_ragged(source, nulls="keep")))
        back.validate(full=True)
        assert back.to_pylist() == source.to_pylist()
        assert back.type.value_type == item


@pytest.mark.parametrize("depth", [0, 1], ids=["lists", "lists of lists"])
def test_list_views_between_null_rows_have_their_items_once(depth: int):
    rows = 100
    items = pa.array(range(2 * rows), pa.int32())
    for _ in range(depth):
        items = pa.ListArray.from_arrays(pa.array(range(2 * rows + 1), pa.int32()), items)
    starts = pa.array(reversed(range(2 * rows)), pa.int32())
    views = pa.ListViewArray.from_arrays(starts, pa.array([1] * (2 * rows), pa.int32()), items)
    ends = pa.array(range(0, 2 * rows + 1, 2), pa.int32())
    # Every other row is null and spans views, so that those of the others are gathered.
    lists = pa.ListArray.from_arrays(ends, views, mask=pa.array([row % 2 == 0 for row in range(rows)]))
    for column, row in ((lists, 1), (pa.chunked_array([lists[:31], lists[31:]]), 1)):
        ragged = ad.to_ragged(column, nulls=7)
        copies = 2 if isinstance(column, pa.ChunkedArray) else 1
        assert len(ragged.values.values) == copies * 2 * rows
        back: Any = pa.array(ad.to_arrow(ragged))
        assert back.to_pylist() == [value or [] for value in column.to_pylist()]
        with pytest.raises(ad.CastError, match="the value 197 ") as caught:
            ad.to_ragged(column, nulls=7, dtype="int8")
        assert caught.value.row == row


def test_list_views_after_a_row_without_any_are_those_of_their_array():
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0], pa.int32()), pa.array([1, 2], pa.int32()), pa.array([1, 2, 3])
    )
    inner = pa.ListArray.from_arrays(pa.array([0, 0, 1, 2], pa.int32()), views)
    outer = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), inner, mask=pa.array([False, True, False]))
    ragged = ad.to_ragged(outer, nulls=0)
    assert len(ragged.values.values.values) == 3
    assert pa.array(ad.to_arrow(ragged)).to_pylist() == [[[]], [], [[[1, 2]]]]


@pytest.mark.parametrize("chunks", [1, 2])
def test_rows_between_null_rows_are_no_chunks(chunks: int):
    texts = pa.array(["a", "b", "cd", "e", "fg", "h"] * 2)
    ends, mask = pa.array(range(0, 13, 2), pa.int32()), pa.array([False, True, False, True, False, False])
    joined = [] if chunks == 1 else ["2 chunks joined"]
    for items in (texts, pa.array(range(12)), pa.array(range(12)).dictionary_encode(), texts.cast(pa.string_view())):
        lists = pa.ListArray.from_arrays(ends, items, mask=mask)
        source = pa.chunked_array([lists] * chunks)
        report = ad.explain(source, nulls=0)
        offsets, *others = report
        assert offsets.steps == [*joined, "null rows made empty"]
        if pa.types.is_string(items.type):
            assert [row.steps for row in others] == [
                [*joined, "offsets of a slice rebased", "null rows made empty"],
                [*joined, "null rows made empty"],
            ]
        elif items.type != pa.string_view():
            assert [row.steps for row in others] == [[*joined, "null rows made empty"]]
        with ad.track_copies() as log:
            ragged = ad.to_ragged(source, nulls=0)
        assert [entry.why for entry in log.entries] == [", ".join(row.steps) for row in report]
        assert pa.array(ad.to_arrow(ragged)).to_pylist() == [value or [] for value in source.to_pylist()]
