"""Rows cut and padded on either side, against a reference in Python."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest
from support import numpy_of as array


def padded_rows(
    rows: list[Any], value: Any, length: int | None, truncate: str = "error", side: str = "right", multiple_of: int = 1
) -> tuple[list[Any], list[Any]]:
    """Padded rows and their validity, as the docstring of `to_ragged` defines them. Nulls are padding."""
    longest = max((len(row or []) for row in rows), default=0)
    width = -(-longest // multiple_of) * multiple_of if length is None else length
    values, valid = [], []
    for row in rows:
        kept = list(row or [])
        if len(kept) > width:
            kept = kept[len(kept) - width :] if truncate == "left" else kept[:width]
        empty = [None] * (width - len(kept))
        filled = [*empty, *kept] if side == "left" else [*kept, *empty]
        values.append([value if item is None else item for item in filled])
        valid.append([item is not None for item in filled])
    return values, valid


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("truncate", ["left", "right"])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 6])
def test_rows_are_cut_and_padded_on_either_side(length: int, truncate: str, side: str):
    rows = [[1, 2, 3, 4], None, [], [5, None, 7], [None], [8, 9, 10, 11, None]]
    values, valid = padded_rows(rows, -1, length, truncate, side)
    options = {"pad": (-1, length), "truncate": truncate, "side": side, "nulls": "keep"}
    for data_type in (pa.list_(pa.int16()), pa.large_list(pa.int64()), pa.list_view(pa.int32())):
        chunks = pa.chunked_array([rows[:2], rows[2:]], data_type)
        for source in (pa.array(rows, data_type), chunks):
            matrix, mask = ad.to_ragged(source, **options)
            assert (array(matrix).tolist(), array(mask).tolist()) == (values, valid)
            report = ad.explain(source, **options)
            assert [row.shape for row in report] == [(6, length), (6, length)]
            assert [row.error for row in report] == [None, None]
    matrix, _ = ad.to_ragged(pa.array(rows, pa.list_(pa.int16())), dtype="float32", **options)
    assert array(matrix).tolist() == values
    pairs = [None if row is None else [None if item is None else [item, -item] for item in row] for row in rows]
    matrix, mask = ad.to_ragged(pa.array(pairs, pa.list_(pa.list_(pa.int16(), 2))), **options)
    expected = [[[-1, -1] if item == -1 else [item, -item] for item in row] for row in values]
    assert (array(matrix).tolist(), array(mask).tolist()) == (expected, valid)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("truncate", ["left", "right"])
def test_text_is_cut_and_padded_on_either_side(truncate: str, side: str):
    words = ["", "be", None, "a word of more than twelve bytes", "that"]
    bytes_of = [None if word is None else list(word.encode()) for word in words]
    for data_type in (pa.string(), pa.large_string(), pa.string_view(), pa.binary_view()):
        for length in (0, 3, 13):
            found = ad.to_ragged(
                pa.array(words, data_type), pad=(46, length), truncate=truncate, side=side, nulls="keep"
            )
            expected = padded_rows(bytes_of, 46, length, truncate, side)
            assert tuple(array(part).tolist() for part in found) == expected


@pytest.mark.parametrize("multiple_of", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_longest_row_is_rounded_up(multiple_of: int, side: str):
    for rows in ([], [[]], [[1]], [[1, 2], [3, 4, 5, 6]], [[1, 2, 3, 4, 5], None]):
        source = pa.array(rows, pa.list_(pa.int32()))
        options = {"pad": (0, None), "side": side, "multiple_of": multiple_of, "nulls": "keep"}
        found = ad.to_ragged(source, **options)
        values, valid = padded_rows(rows, 0, None, side=side, multiple_of=multiple_of)
        assert tuple(array(part).tolist() for part in found) == (values, valid)
        assert found[0].shape[1] % multiple_of == 0
        assert ad.explain(source, **options)[0].shape == found[0].shape


def test_what_is_cut_off_is_not_converted():
    source = pa.array([[1, 2, None], [300, 4, 5]], pa.list_(pa.int32()))
    matrix, valid = ad.to_ragged(source.slice(0, 1), pad=(0, 2), truncate="right")
    assert (array(matrix).tolist(), array(valid).all()) == ([[1, 2]], True)
    with pytest.raises(ad.NullError):
        ad.to_ragged(source.slice(0, 1), pad=(0, 2), truncate="left")
    assert ad.explain(source.slice(0, 1), pad=(0, 2), truncate="right")[0].error is None
    assert "null" in ad.explain(source.slice(0, 1), pad=(0, 2), truncate="left")[0].error
    matrix, _ = ad.to_ragged(source.slice(1), pad=(0, 2), truncate="left", dtype="int8")
    assert array(matrix).tolist() == [[4, 5]]
    with pytest.raises(ad.CastError):
        ad.to_ragged(source.slice(1), pad=(0, 2), truncate="right", dtype="int8")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"truncate": "left"}, "pass pad="),
        ({"side": "left"}, "pass pad="),
        ({"multiple_of": 8}, "pass pad="),
        ({"pad": (0, None), "truncate": "left"}, "longest one.*name the length"),
        ({"pad": (0, 9), "multiple_of": 8}, "9 elements, which is no multiple of 8"),
    ],
)
def test_padding_options_that_contradict_each_other(options: dict, error: str):
    source = pa.array([[1], [2, 3]])
    with pytest.raises(ValueError, match=error):
        ad.to_ragged(source, **options)
    reader = pa.chunked_array([source]).__arrow_c_stream__
    with pytest.raises(ValueError, match=error):
        ad.to_ragged(type("Stream", (), {"__arrow_c_stream__": staticmethod(reader)})(), **options)


def test_a_code_without_a_value_is_an_error_of_its_row() -> None:
    picked = pa.array([1, 0, 9, 1, 0, 2], pa.int8())
    codes = pa.DictionaryArray.from_arrays(picked, pa.array([0.5, None]), safe=False)
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 2, 3, 5], pa.int32()), codes)
    for rows, row in ((lists, 2), (lists[1:], 1), (pa.chunked_array([lists[:2], lists[2:]]), 2)):
        with pytest.raises(ad.ConversionError, match=f"row {row}: a code is beyond the dictionary's 2 values"):
            ad.to_ragged(rows, pad=(0, None), nulls=7, dictionary="codes")
    offsets, lengths = (pa.array(numbers, pa.int32()) for numbers in ([0, 3], [2, 2]))
    views = pa.ListViewArray.from_arrays(offsets, lengths, codes)
    with pytest.raises(ad.ConversionError, match="item 2, which no row spans: a code is beyond"):
        ad.to_ragged(views, pad=(0, None), nulls=7, dictionary="codes")


def test_a_row_larger_than_memory_is_refused():
    for multiple_of in (2**62, 2**63 - 1):
        with pytest.raises(MemoryError):
            ad.to_ragged(pa.array([[1], [2, 3]]), pad=(0, None), multiple_of=multiple_of)
