"""A state that another conversion resumes: hashes are not compared, and rows are those of the new options."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from support import numpy_of

ROWS = 100
HALVES = pa.array([Decimal(row * 100) for row in range(ROWS)], pa.decimal128(9, 2))
TIMES = pa.array([row * 1_000_000 for row in range(ROWS)], pa.timestamp("us"))
CODES = pa.DictionaryArray.from_arrays(
    pa.array([row % 10 for row in range(ROWS)], pa.int8()), pa.array(range(100, 110), pa.int8())
)


def lists(values: pa.Array) -> pa.Array:
    """Each value as a list of its own."""
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


TABLE = pa.table({
    "decimal": HALVES,
    "decimal64": HALVES.cast(pa.decimal64(9, 2)),
    "date": pa.array([datetime.date(1970, 1, 1) + datetime.timedelta(row) for row in range(ROWS)], pa.date32()),
    "time": TIMES,
    "decimals": lists(HALVES),
    "times": lists(TIMES),
    "codes": lists(CODES),
    "word": [f"w{row % 3}" for row in range(ROWS)],
})  # fmt: skip
PACKED = [
    ("decimal", {"dtype": "int64"}, {"decimal": "unscaled"}, 100),
    ("decimal64", {"dtype": "int64"}, {"decimal": "unscaled"}, 100),
    ("date", {"dtype": "int64"}, {"unit": "s"}, 86400),
    ("time", {}, {"unit": "ms"}, 1000),
]
VARIED = [
    ("decimals", {"dtype": "int64"}, {"decimal": "unscaled"}),
    ("times", {}, {"unit": "s"}),
    ("times", {"dtype": "float64"}, {"unit": "s"}),
    ("codes", {}, {"dictionary": "values"}),
    ("codes", {"dtype": "int8"}, {"dictionary": "codes"}),
]


def state(**options: Any) -> dict:
    loader = ad.Loader(TABLE, batch_size=20, **options)
    list(itertools.islice(loader, 3))
    return loader.state_dict()


def resumed(of: dict, **options: Any) -> Any:
    loader = ad.Loader(TABLE, batch_size=20, **options)
    loader.load_state_dict(of)
    return next(iter(loader))


def check(same: dict, changed: dict, columns: dict) -> Any:
    """Resumes both ways, and with the same options, which compares."""
    for before, after in ((same, changed), (changed, same)):
        known = state(columns=columns, **before)
        resumed(known, columns=columns, **after)
        with pytest.raises(ad.ConversionError, match="verif"):
            resumed(known, columns=columns, verify="all", **after)
        resumed(known, columns=columns, verify="all", **before)
    return resumed(state(columns=columns, **same), columns=columns, **changed)


@pytest.mark.parametrize(("column", "same", "option", "factor"), PACKED)
def test_of_a_packed_group(column: str, same: dict, option: dict, factor: int):
    batch = check(same, {**same, **option}, {"x": column})
    scale = {"decimal": 100, "decimal64": 100, "date": 1, "time": 1}[column]
    assert numpy_of(batch["x"]).ravel().tolist() == [row * factor * scale for row in range(60, 80)]


@pytest.mark.parametrize("make", [ad.padded, ad.ragged])
@pytest.mark.parametrize(("column", "same", "option"), VARIED)
def test_of_varied_rows(column: str, same: dict, option: dict, make: Any):
    check(same, {**same, **option}, {"x": make(column)})


@pytest.mark.parametrize("make", [ad.padded, ad.ragged])
@pytest.mark.parametrize(
    ("column", "one", "other"),
    [
        ("codes", {}, {"dictionary": "codes"}),
        ("codes", {"dtype": "int16"}, {"dictionary": "values", "dtype": "int16"}),
        ("codes", {}, {"unit": "s"}),
    ],
)
def test_an_option_without_effect_is_compared(column: str, one: dict, other: dict, make: Any):
    columns = {"x": make(column)}
    resumed(state(columns=columns, **one), columns=columns, verify="all", **other)
    changed = TABLE.set_column(TABLE.column_names.index("codes"), "codes", lists(CODES.take(np.arange(ROWS)[::-1])))
    loader = ad.Loader(changed, batch_size=20, columns=columns, **other)
    loader.load_state_dict(state(columns=columns, **one))
    with pytest.raises(ad.ConversionError, match="rows have changed"):
        next(iter(loader))


@pytest.mark.parametrize(
    "option",
    [
        {"categories": {"word": ["w1", "w0", "w2"]}},
        {"categories": {"word": ["w0", "w1", "w2", "w3"]}},
        {"unknown": {"word": 8}},
        {"unknown": {"word": "error"}},
    ],
    ids=str,
)
def test_of_categories_and_of_the_code_of_unknown_values(option: dict):
    same = {"categories": {"word": ["w0", "w1", "w2"]}, "unknown": {"word": 9}}
    batch = check(same, {**same, **option}, {"x": "word"})
    order = option.get("categories", same["categories"])["word"]
    assert numpy_of(batch["x"]).tolist() == [order.index(f"w{row % 3}") for row in range(60, 80)]
