"""Does `explain` say of each level of rows on a device what the host then waits for, and which parts there are?"""

from __future__ import annotations

import os
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray
from test_device_explain import explained, parts_of

# Work that is done at once is not waited for.
IS_LAZY = os.environ.get("SIMULATED_CUDA_SCHEDULE", "lazy") == "lazy"
ENDS = {"list": pa.list_, "list view": pa.list_view}


def full(array: pa.Array, *children: pa.Array) -> pa.Array:
    """The same rows with a bitmap that says of none that it is null."""
    buffers = array.buffers()[: array.type.num_buffers]
    bits = pa.py_buffer(b"\xff" * 8)
    return pa.Array.from_buffers(array.type, len(array), [bits, *buffers[1:]], children=list(children))


def forget(node: Any) -> None:
    """Nobody has counted the nulls of a level."""
    node.array.null_count = -1
    for part in node.parts:
        forget(part)


def nested(outer: Any, inner: Any, bitmaps: set[str]) -> pa.Array:
    """Two rows of three rows of integers, with bitmaps at some of the levels."""
    items = pa.array(np.arange(5, dtype="int32"))
    if "values.values" in bitmaps:
        items = full(items)

    def rows(level: Any, ends: list[int], items: pa.Array) -> pa.Array:
        kind = level(items.type)
        if pa.types.is_list_view(kind):
            starts, sizes = np.array(ends[:-1], "int32"), np.diff(ends).astype("int32")
            return pa.ListViewArray.from_arrays(pa.array(starts), pa.array(sizes), items)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)

    middle = rows(inner, [0, 2, 2, 5], items)
    if "values" in bitmaps:
        middle = full(middle, items)
    whole = rows(outer, [0, 1, 3], middle)
    return full(whole, middle) if "" in bitmaps else whole


BITMAPS = [set(), {""}, {"values"}, {"values.values"}, {"", "values", "values.values"}]


@pytest.mark.parametrize("bitmaps", BITMAPS, ids=lambda levels: "+".join(sorted(levels)) or "none")
@pytest.mark.parametrize("inner", ENDS)
@pytest.mark.parametrize("outer", ENDS)
def test_it_announces_the_waits_of_each_level(outer: str, inner: str, bitmaps: set[str], host_waits: Any) -> None:
    data = nested(ENDS[outer], ENDS[inner], bitmaps)
    source = ad.from_arrow(DeviceArray(data, change=forget).give())
    report = explained(source)
    assert not [row.error for row in report if row.error]
    announced = {row.column for row in report if row.waits}
    expected = {"offsets"} if outer == "list" or "" in bitmaps else set()
    expected |= {"values.offsets"} if inner == "list" or "values" in bitmaps else set()
    expected |= {"values.values"} if "values.values" in bitmaps else set()
    assert announced == expected
    waits = host_waits()
    assert parts_of("", ad.to_ragged(source)).keys() == {row.column for row in report}
    assert waits.ours == len(announced) if IS_LAZY else waits.ours <= len(announced)


@pytest.mark.parametrize("bitmaps", BITMAPS, ids=lambda levels: "+".join(sorted(levels)) or "none")
def test_it_tells_of_a_validity_where_a_level_has_a_bitmap(bitmaps: set[str]) -> None:
    source = ad.from_arrow(DeviceArray(nested(pa.list_, pa.list_, bitmaps), change=forget).give())
    parts = {row.column for row in explained(source, nulls="keep")}
    assert parts == parts_of("", ad.to_ragged(source, nulls="keep")).keys()
    assert parts & {"validity", "values.validity"} == {
        f"{level}.validity".removeprefix(".") for level in bitmaps - {"values.values"}
    }


def test_levels_without_elements_have_nothing_to_read(host_waits: Any) -> None:
    data = pa.array([[], []], pa.list_(pa.list_(pa.int32())))
    source = ad.from_arrow(DeviceArray(data, change=forget).give())
    report = explained(source)
    assert {row.column for row in report if row.waits} == {"offsets"}
    waits = host_waits()
    ad.to_ragged(source)
    assert waits.ours <= 1


def test_of_three_levels_the_last_one_alone_has_a_bitmap() -> None:
    data = pa.array([[[[1], None]], []], pa.list_(pa.list_(pa.list_(pa.int32()))))
    source = ad.from_arrow(DeviceArray(data).give())
    waits = {row.column: row.waits for row in explained(source)}
    assert [column for column, told in waits.items() if "the bitmap of null rows is read" in told] == [
        "values.values.offsets"
    ]
    with pytest.raises(ad.NullError):
        ad.to_ragged(source)


def test_texts_in_lists_have_a_bitmap_of_their_own(host_waits: Any) -> None:
    texts = pa.array(["a", "bc", ""])
    for has_bitmap in (False, True):
        data = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), full(texts) if has_bitmap else texts)
        source = ad.from_arrow(DeviceArray(data, change=forget).give())
        told = {row.column: len(row.waits) for row in explained(source)}
        assert told == {"offsets": 1, "values.offsets": 1 + has_bitmap, "values.values": 0}
        waits = host_waits()
        ad.to_ragged(source)
        assert waits.ours <= 2
