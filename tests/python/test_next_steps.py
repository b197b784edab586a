"""Errors that lead on: what each says to write is written here, and works."""

from __future__ import annotations

import decimal
import re
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

STRUCTS = pa.table({"s": [[{"a": 1}, {"a": 2}], []]})
NUMBERS = pa.table({"i": [1, 2], "b": pa.array([1, None]), "f": [1.5, None]})
FRAME = pd.DataFrame([[1, 2], [3, 4]])


def batch_of(table: pa.Table, **options: Any) -> dict[str, Any]:
    (batch,) = ad.Loader(table, batch_size=len(table), **options)
    return batch


def lists_of(field: str) -> pa.Table:
    lists = STRUCTS["s"].combine_chunks()
    return pa.table({"a": pa.ListArray.from_arrays(lists.offsets, lists.values.field(field))})


class TestLists:
    @pytest.mark.parametrize("convert", [ad.to_tensors, batch_of])
    @pytest.mark.parametrize("columns", [None, {"s": ad.ragged("s")}, {"s": ad.padded("s")}, {"s": "s"}])
    def test_lists_of_structs(self, convert, columns: Any):
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            convert(STRUCTS, columns=columns)
        assert 'columns={"s": ad.arrow("s")}' in caught.value.remedy
        assert "pyarrow.ListArray.from_arrays(lists.offsets, lists.values.field(name))" in caught.value.remedy
        assert pa.table(pa.record_batch(convert(STRUCTS, columns={"s": ad.arrow("s")})["s"])) == STRUCTS
        assert convert(lists_of("a"), columns={"a": ad.ragged("a")})["a"].values.shape == (2,)

    def test_a_field_of_lists_of_structs(self):
        with pytest.raises(ad.ConversionError, match="which has no fields by name; make a column of lists") as caught:
            ad.to_tensors(STRUCTS, columns={"s": ad.ragged("s.a")})
        assert 'name "s" itself' not in str(caught.value)

    @pytest.mark.parametrize("table", [pl.DataFrame({"n": [1], "l": [[1, 2]]}), pa.table({"n": [1], "l": [[1, 2]]})])
    def test_rows_of_a_table(self, table):
        line = 'to_tensors(data, columns={"l": ad.ragged("l")})["l"]'
        with pytest.raises(ad.UnsupportedTypeError, match=re.escape(f"pick one of its columns, such as {line}")):
            ad.to_ragged(table)
        assert np.from_dlpack(eval(f"ad.{line}", {"ad": ad, "data": table}).values).tolist() == [1, 2]


class TestCategories:
    @pytest.mark.parametrize(
        "call",
        [
            lambda data: ad.categories(data, "c"),
            lambda data: ad.statistics(data, {"c": "count"}),
            lambda data: ad.Loader(data, batch_size=1, columns={"c": "c"}),
            lambda data: ad.to_tensors(data, columns={"c": ad.arrow("c")}),
        ],
    )
    def test_an_array_is_no_table(self, call):
        series = pd.Series(["a"], name="c")
        with pytest.raises(ad.ConversionError, match="has no columns") as caught:
            call(series)
        assert 'series.to_frame() or pyarrow.table({"name": array})' in caught.value.remedy
        for table in (series.to_frame(), pa.table({"c": pa.array(["a"])})):
            assert pa.array(ad.categories(table, "c")).to_pylist() == ["a"]
            assert ad.statistics(table, {"c": "count"}) == {"c": 1}

    @pytest.mark.parametrize("values", [[True, False], [1.0, 2.0], [decimal.Decimal(1), decimal.Decimal(2)]])
    def test_a_column_that_has_no_categories(self, values):
        table = pa.table({"c": values})
        with pytest.raises(ad.UnsupportedTypeError, match="cast the column to integers or strings first"):
            ad.to_tensors(table, categories={"c": [1, 2]})
        integers = table["c"].cast(pa.int64())
        codes = ad.to_tensors(pa.table({"c": integers}), categories={"c": integers.to_pylist()}, xp=np)["c"]
        assert codes.tolist() == [0, 1]
        assert len(ad.to_tensors(table, dtype="float64" if isinstance(values[0], decimal.Decimal) else None)) == 1
