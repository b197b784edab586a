"""Rows of different lengths by the words of docs/loader.md alone, for the tests of functions and of the loader."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
from support import numpy_of

ROWS = 57


def _words(row: int) -> str | None:
    return None if row % 13 == 5 else "aé"[row % 2] * (row % 9)


def _ids(row: int) -> list[int | None] | None:
    if row % 11 == 3:
        return None
    return [None if (row + at) % 7 == 2 else row * 10 + at for at in range(row * 7 % 6)]


WORDS = [_words(row) for row in range(ROWS)]
IDS = [_ids(row) for row in range(ROWS)]
FULL = [[row * 100 + at for at in range(row * 5 % 8)] for row in range(ROWS)]
PAIRS = [[[row, at] for at in range(row % 4)] for row in range(ROWS)]
NESTED = [[[row + at] * (at + row % 2) for at in range(row % 3)] for row in range(ROWS)]
FIXED = [None if row % 10 == 4 else [row, row + 1, None if row % 6 == 0 else -row] for row in range(ROWS)]
NUMBERS = list(range(ROWS))


def list_view(values: list[Any], large: bool = False) -> pa.Array:
    """The values as list views, whose rows stand in any order in their child."""
    backwards = pa.array(values[::-1], pa.large_list(pa.int32()) if large else pa.list_(pa.int32()))
    offsets = backwards.offsets[:-1][::-1] if len(values) else backwards.offsets[:-1]
    sizes = [len(row or []) for row in values]
    offsets, child = pa.array([int(at.as_py()) for at in offsets]), backwards.values
    mask = pa.array([row is None for row in values])
    if large:
        return pa.LargeListViewArray.from_arrays(offsets, pa.array(sizes, pa.int64()), child, mask=mask)
    return pa.ListViewArray.from_arrays(offsets.cast(pa.int32()), pa.array(sizes, pa.int32()), child, mask=mask)


TABLE = pa.table(
    {
        "n": pa.array(NUMBERS, pa.int32()),
        "f": pa.array([float(row) / 2 for row in NUMBERS], pa.float32()),
        "words": pa.array(WORDS),
        "large words": pa.array(WORDS, pa.large_string()),
        "word views": pa.array(WORDS, pa.string_view()),
        "bytes": pa.array([None if word is None else word.encode() for word in WORDS], pa.binary()),
        "ids": pa.array(IDS, pa.list_(pa.int16())),
        "large ids": pa.array(IDS, pa.large_list(pa.int32())),
        "id views": list_view(IDS),
        "large id views": list_view(IDS, large=True),
        "full": pa.array(FULL, pa.list_(pa.int64())),
        "pairs": pa.array(PAIRS, pa.list_(pa.list_(pa.int32(), 2))),
        "nested": pa.array(NESTED, pa.list_(pa.list_(pa.int32()))),
        "fixed": pa.array(FIXED, pa.list_(pa.int16(), 3)),
        "struct": pa.array([{"a": row, "b": word} for row, word in enumerate(WORDS)]),
        "codes": pa.array(WORDS).dictionary_encode(),
    }
)
VALUES: dict[str, list[Any]] = {
    **{name: [None if word is None else list(word.encode()) for word in WORDS] for name in ("words", "large words")},
    **{name: [None if word is None else list(word.encode()) for word in WORDS] for name in ("word views", "bytes")},
    **dict.fromkeys(("ids", "large ids", "id views", "large id views"), IDS),
    "full": FULL,
    "pairs": PAIRS,
    "nested": NESTED,
    "fixed": FIXED,
}
DTYPES = {"words": "uint8", "large words": "uint8", "word views": "uint8", "bytes": "uint8"} | {
    "ids": "int16",
    "full": "int64",
    "fixed": "int16",
}


def padded(
    column: str,
    dtype: str,
    at_rows: Any = slice(None),
    *,
    value: Any = 0,
    length: int | None = None,
    multiple_of: int = 1,
    truncate: str = "error",
    side: str = "right",
    nulls: Any = "error",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrix, its validity and the lengths of these rows of a column."""
    rows = np.array([*VALUES[column], None], object)[:-1][at_rows]
    longest = max((len(row or []) for row in rows), default=0)
    width = -(-longest // multiple_of) * multiple_of if length is None else length
    inner = (2,) if column == "pairs" else ()
    matrix = np.full((len(rows), width, *inner), value, dtype)
    valid = np.zeros((len(rows), width), bool)
    lengths = np.zeros(len(rows), np.int64)
    for at, row in enumerate(rows):
        if row is None:
            assert nulls != "error"
            continue
        over = len(row) - width
        assert over <= 0 or truncate != "error"
        kept = row[over:] if over > 0 and truncate == "left" else row[:width]
        first = width - len(kept) if side == "left" else 0
        lengths[at] = len(kept)
        for to, item in enumerate(kept, first):
            if item is None:
                assert nulls != "error"
                fill = value if nulls == "keep" else nulls
                matrix[at, to] = np.nan if isinstance(fill, str) else fill
            else:
                matrix[at, to] = item
            # A null that is filled is no valid element either.
            valid[at, to] = item is not None
    return matrix, valid, lengths


def as_lists(found: Any) -> Any:
    """What a `Ragged` holds, by its own offsets, lengths and validity."""
    values, offsets = found.values, _array(found.offsets)
    inner = as_lists(values) if isinstance(values, ad.Ragged) else _array(values).tolist()
    if found.lengths is None:
        ends = offsets[1:]
        starts = offsets[:-1]
    else:
        starts, ends = offsets, offsets + _array(found.lengths)
    rows = [inner[start:end] for start, end in zip(starts, ends, strict=True)]
    if found.validity is not None:
        rows = [row if valid else None for row, valid in zip(rows, _array(found.validity), strict=True)]
    return rows


def _array(found: Any) -> np.ndarray:
    return numpy_of(found) if isinstance(found, ad.Tensor) else np.asarray(found)


def same(found: Any, wanted: np.ndarray, name: str = "") -> None:
    got = _array(found)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), name
    np.testing.assert_array_equal(got, wanted, err_msg=name)
