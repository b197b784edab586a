"""Columns of Python objects, which polars exports as addresses, are refused, and the other columns can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import polars as pl
import pyarrow as pa
import pytest

FRAME = pl.DataFrame({"a": [1, 2], "o": pl.Series([object(), {"x": 1}], dtype=pl.Object), "b": ["x", "y"]})


def query() -> pl.LazyFrame:
    return FRAME.lazy().filter(pl.col("a") > 0)


SOURCES: dict[str, Callable[[], Any]] = {
    "frame": lambda: FRAME,
    "query": query,
    "frames": lambda: [FRAME, FRAME],
    "iterator": lambda: iter([FRAME, FRAME]),
    "callable": lambda: lambda: FRAME,
}
READ: dict[str, Callable[[Any], Any]] = {
    "all": lambda source: ad.to_tensors(source, categories={"b": ["x", "y"]}),
    "matrix": lambda source: ad.to_tensor(source, columns=["a", "o"]),
    "column": lambda source: ad.to_tensors(source, columns={"x": "o"}),
    "codes": lambda source: ad.to_tensors(source, columns=["o"], categories={"o": [b"12345678"]}),
    "validity": lambda source: ad.validity(source, columns=["o"]),
    "arrow": lambda source: ad.to_tensors(source, columns={"x": ad.arrow("o")}),
    "loader": lambda source: list(ad.Loader(source, batch_size=2, columns=["a", "o"])),
    "loader of arrow": lambda source: list(ad.Loader(source, batch_size=2, columns={"x": ad.arrow("a", "o")})),
    "categories": lambda source: ad.categories(source, ["o"]),
    "statistics": lambda source: ad.statistics(source, {"o": "count"}),
    "stream": lambda source: ad.from_arrow(source),
}
REFUSED = r'column "o": .*addresses of Python objects'
CALLABLES = ("categories", "statistics", "loader", "loader of arrow")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("read", READ)
def test_a_column_that_is_read_is_refused(source: str, read: str):
    if source == "callable" and read not in CALLABLES:
        pytest.skip("it takes no callables")
    with pytest.raises(ad.UnsupportedTypeError, match=REFUSED + ".*leave the column out"):
        READ[read](SOURCES[source]())


@pytest.mark.parametrize("source", SOURCES)
def test_other_columns_are_read(source: str):
    make = SOURCES[source]
    rows = 4 if source in ("frames", "iterator") else 2
    if source != "callable":
        assert ad.to_tensors(make(), columns=["a"])["a"].shape == (rows,)
        assert ad.to_tensor(make(), columns=["a"]).shape == (rows, 1)
    batches = list(ad.Loader(make(), batch_size=2, columns=["a"], shuffle_buffer=4, seed=1))
    assert [batch.shape for batch in batches] == [(2, 1)] * (rows // 2)
    assert pa.array(ad.categories(make(), ["b"])["b"]).to_pylist() == ["x", "y"]
    assert ad.statistics(make(), {"a": "max"}) == {"a": 2}


def test_a_series():
    for work in (ad.to_tensor, ad.validity, ad.from_arrow, ad.to_ragged):
        with pytest.raises(ad.UnsupportedTypeError, match=REFUSED):
            work(FRAME["o"])


@pytest.mark.parametrize("source", [FRAME, FRAME.schema, query()], ids=["frame", "schema", "query"])
def test_reports(source: Any):
    rows = {row.column: row for row in ad.explain(source, categories={"b": ["x", "y"]}).rows}
    assert [row.how for row in rows.values()].count("refused") == 1
    assert "addresses of Python objects" in rows["o"].error


def test_bytes_of_the_width_of_addresses_are_bytes():
    column = pa.array([b"12345678"], pa.binary(8))
    table = pa.table({"o": column})
    assert bytes(ad.to_tensors(table)["o"]) == b"12345678"
    assert bytes(ad.to_tensor(column)) == b"12345678"
    assert pa.table(ad.from_arrow(table)) == table
