"""What lies under nulls of strings and views may be anything: no text, and no view."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest


def text(kind: pa.DataType, width: str, valid: int = 0b101) -> pa.Array:
    """The strings a, a null over no UTF-8, and b."""
    offsets = pa.py_buffer(np.array([0, 1, 3, 4], width))
    return pa.Array.from_buffers(kind, 3, [pa.py_buffer(bytes([valid])), offsets, pa.py_buffer(b"a\xff\xfeb")])


def views(kind: pa.DataType, valid: int = 0b101) -> pa.Array:
    """The same as views, the second one into a buffer that there is not."""
    words = np.zeros((3, 16), np.uint8)
    words[0, :5], words[2, :5], words[1] = [1, 0, 0, 0, ord("a")], [1, 0, 0, 0, ord("b")], 255
    return pa.Array.from_buffers(kind, 3, [pa.py_buffer(bytes([valid])), pa.py_buffer(words)])


ARRAYS: dict[str, Callable[[int], pa.Array]] = {
    "string": lambda valid: text(pa.string(), "int32", valid),
    "large string": lambda valid: text(pa.large_string(), "int64", valid),
    "string view": lambda valid: views(pa.string_view(), valid),
    "binary view": lambda valid: views(pa.binary_view(), valid),
}
VALUES: dict[str, Any] = {"binary view": [b"a", None, b"b"]}


@pytest.mark.parametrize("name", ARRAYS)
def test_nulls_are_nulls_whatever_lies_under_them(name: str) -> None:
    array, expected = ARRAYS[name](0b101), VALUES.get(name, ["a", None, "b"])
    for source in (array, array[1:], array[:2], array[1:2]):
        found = [
            pickle.loads(pickle.dumps(ad.from_arrow(source))),
            copy.deepcopy(ad.from_arrow(source)),
        ]
        for made in found:
            rows = pa.array(made)
            rows.validate(full=True)
            assert rows.to_pylist() == expected[array.to_pylist().index(source[0].as_py()) :][: len(source)]
    codes = ad.to_tensor(array, categories=[value for value in expected if value is not None], nulls=-1, xp=np)
    assert codes.tolist() == [0, -1, 1]
    table = pa.table({"x": pa.chunked_array([array, array])})
    found = pa.record_batch(ad.to_tensors(table, columns={"rows": ad.arrow("x")})["rows"])["x"].to_pylist()
    assert found == expected * 2
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), array)
    assert pa.array(pickle.loads(pickle.dumps(ad.from_arrow(lists)))).to_pylist() == [expected[:2], expected[2:]]


@pytest.mark.parametrize("name", ARRAYS)
def test_values_that_are_no_text_are_refused_where_they_are_valid(name: str) -> None:
    for valid in (0b111, 0b110):
        with pytest.raises(ad.ConversionError):
            pickle.dumps(ad.from_arrow(ARRAYS[name](valid)))


@pytest.mark.parametrize("kind", ["lists", "large lists", "list views", "large list views", "fixed-size lists"])
def test_nulls_of_items_that_must_not_be_null_count_where_a_row_shows_them(kind: str):
    item = pa.field("item", pa.int8(), nullable=False)
    items = pa.array([1, None, 3, 4, None, 6], pa.int8())
    make: Any = {
        "lists": pa.list_,
        "large lists": pa.large_list,
        "list views": pa.list_view,
        "large list views": pa.large_list_view,
        "fixed-size lists": lambda item: pa.list_(item, 2),
    }[kind]
    width = np.dtype("i8" if "large" in kind else "i4")

    def lists(*valid: bool) -> pa.Array:
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
        ints = [np.arange(0, 8, 2)] if "views" not in kind else [np.arange(0, 6, 2), np.full(3, 2)]
        buffers = [] if kind == "fixed-size lists" else [pa.py_buffer(part.astype(width).tobytes()) for part in ints]
        return pa.Array.from_buffers(make(item), 3, [bitmap, *buffers], children=[items])

    def joined(rows: pa.Array) -> list[Any]:
        table = pa.table({"x": pa.chunked_array([rows, rows])})
        return pa.record_batch(ad.to_tensors(table, columns={"x": ad.arrow("x")})["x"])["x"].to_pylist()

    assert joined(lists(False, True, False)) == [None, [3, 4], None] * 2
    assert joined(lists(True, True, True)[1:2]) == [[3, 4]] * 2
    for rows in (lists(True, True, False), lists(False, True, True)[1:], lists(True, True, True)):
        with pytest.raises(ad.ConversionError, match="has nulls in a child that is not nullable"):
            joined(rows)
