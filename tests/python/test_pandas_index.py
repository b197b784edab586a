"""pandas' index is no column of a conversion, unless `columns=` names it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

BASE = pd.DataFrame({"a": [1.0, 2.0, np.nan, 4.0, 5.0], "b": [5.0, 4.0, 3.0, 2.0, 1.0]})


def with_index(index: Any) -> pd.DataFrame:
    frame = BASE.copy()
    frame.index = index
    return frame


# Name, frame, the index columns that pandas exports.
FRAMES: dict[str, tuple[pd.DataFrame, list[str]]] = {
    "range": (BASE, []),
    "range with a name": (with_index(pd.RangeIndex(5, name="id")), []),
    "dropna": (BASE.drop(1).dropna(), ["__index_level_0__"]),
    "mask": (BASE[[True, True, False, True, True]], ["__index_level_0__"]),
    "sample": (BASE.sample(5, random_state=3), ["__index_level_0__"]),
    "concat": (pd.concat([BASE, BASE]), ["__index_level_0__"]),
    "concat with keys": (pd.concat([BASE, BASE], keys=["x", "y"]), ["__index_level_0__", "__index_level_1__"]),
    "groupby": (BASE.assign(k=[3, 1, 3, 1, 9]).groupby("k").sum(), ["k"]),
    "groupby of two": (BASE.assign(k=[3, 1, 3, 1, 9], j=0).groupby(["k", "j"]).sum(), ["k", "j"]),
    "named": (with_index(pd.Index([9, 1, 5, 7, 2], name="id")), ["id"]),
    "named as a column": (with_index(pd.Index([9, 1, 5, 7, 2], name="a")), ["__index_level_0__"]),
    "some levels named": (with_index(pd.MultiIndex.from_arrays([[9, 1, 5, 7, 2], [3, 1, 4, 1, 5]], names=["q", None])),
                          ["q", "__index_level_1__"]),
    "dates": (with_index(pd.date_range("2026-01-01", periods=5)), ["__index_level_0__"]),
    "texts": (with_index(list("edcba")), ["__index_level_0__"]),
    "empty": (with_index(pd.Index([9, 1, 5, 7, 2], name="id"))[:0], ["id"]),
}  # fmt: skip

CASES = pytest.mark.parametrize(("frame", "index"), FRAMES.values(), ids=FRAMES)


@CASES
def test_pandas_exports_what_this_file_says(frame: pd.DataFrame, index: list[str]):
    assert pa.RecordBatchReader.from_stream(frame).schema.names == ["a", "b", *index]


@CASES
class TestFrames:
    def test_to_tensor(self, frame: pd.DataFrame, index: list[str]):
        values = np.from_dlpack(ad.to_tensor(frame, nulls="nan"))
        np.testing.assert_array_equal(values, frame.to_numpy())
        out = np.zeros_like(values)
        ad.to_tensor(frame, nulls="nan", out=out)
        np.testing.assert_array_equal(out, frame.to_numpy())
        assert np.from_dlpack(ad.to_tensor(frame, nulls="nan", order="F")).shape == values.shape

    def test_to_tensors(self, frame: pd.DataFrame, index: list[str]):
        assert list(ad.to_tensors(frame, nulls="nan")) == ["a", "b"]
        assert list(ad.to_tensors(frame, nulls="nan", copy=True)) == ["a", "b"]

    def test_validity(self, frame: pd.DataFrame, index: list[str]):
        valid = np.from_dlpack(ad.validity(frame))
        assert valid.shape == frame.shape

    def test_loader(self, frame: pd.DataFrame, index: list[str]):
        for source in (frame, lambda: frame):
            loader = ad.Loader(source, batch_size=3, nulls="nan")
            parts = [np.from_dlpack(batch) for batch in loader]
            found = np.concatenate(parts) if parts else np.zeros((0, 2))
            np.testing.assert_array_equal(found, frame.to_numpy())

    def test_named_columns_are_taken(self, frame: pd.DataFrame, index: list[str]):
        numbers = [name for name in index if frame.index.nlevels == 1 and frame.index.dtype.kind == "i"]
        for name in numbers:
            expected = frame.index.to_numpy().tolist()
            assert np.from_dlpack(ad.to_tensors(frame, columns=[name])[name]).tolist() == expected
            assert np.from_dlpack(ad.to_tensor(frame, columns=[name, "b"]))[:, 0].tolist() == expected
            assert np.from_dlpack(ad.validity(frame, columns=[name])).shape == (len(frame), 1)
            groups = ad.to_tensors(frame, columns={"i": name, "x": ["b"]})
            assert np.from_dlpack(groups["i"]).tolist() == expected
            loader = ad.Loader(frame, batch_size=100, columns={"i": name})
            assert [np.from_dlpack(batch["i"]).tolist() for batch in loader] == [expected][: len(frame)]


# Objects of other libraries, to which pandas' metadata came, or not.
TABLES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "table": pa.table,
    "batch": lambda frame: pa.RecordBatch.from_pandas(frame),
    "reader": lambda frame: pa.table(frame).to_reader(),
    "polars": lambda frame: pl.from_arrow(pa.table(frame)),
    "stream": ad.from_arrow,
    "parquet": lambda frame: parquet(pa.table(frame)),
}


def parquet(table: pa.Table) -> pa.Table:
    file = io.BytesIO()
    pq.write_table(table, file)
    file.seek(0)
    return pq.read_table(file)


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
@CASES
def test_other_libraries_have_columns_with_names(
    frame: pd.DataFrame, index: list[str], make: Callable[[pd.DataFrame], Any]
):
    shown = ["a", "b", *(name for name in index if not name.startswith("__index_level"))]
    assert list(ad.to_tensors(make(frame), nulls=0)) == shown
    assert [row.column for row in ad.explain(pa.table(frame).schema)] == shown
    matrix = ad.to_tensor(make(frame), nulls=0, dtype="float64")
    assert matrix.shape == (len(frame), len(shown))
    assert np.from_dlpack(ad.validity(make(frame))).shape == matrix.shape
    batch = next(iter(ad.Loader(make(frame), batch_size=1, nulls=0, dtype="float64")), None)
    assert batch is None or batch.shape == (1, len(shown))


class Frame(pd.DataFrame):
    """As of a library on top of pandas."""


def test_subclasses_are_pandas_too():
    frame = Frame(FRAMES["named"][0])
    assert list(ad.to_tensors(frame, nulls="nan")) == ["a", "b"]


def test_the_same_schema_of_pandas_and_of_a_table():
    # Both ways, as specs and names of columns are kept by the schema.
    frame = FRAMES["named"][0]
    table = pa.table(frame)
    for _ in range(2):
        assert list(ad.to_tensors(frame, nulls=0)) == ["a", "b"]
        assert list(ad.to_tensors(table, nulls=0)) == ["a", "b", "id"]
        assert ad.to_tensor(frame, nulls=0).shape == (5, 2)
        assert ad.to_tensor(table, nulls=0).shape == (5, 3)


def test_a_series_has_no_index():
    assert np.from_dlpack(ad.to_tensor(FRAMES["mask"][0]["b"])).tolist() == [5, 4, 2, 1]


def test_explain_says_what_was_left_out():
    frame = FRAMES["concat"][0]
    table = pa.table(frame)
    for order in (None, "C"):
        report = ad.explain(table.schema, order=order)
        assert [row.column for row in report] == ["a", "b"]
        assert report.left_out == ["__index_level_0__"]
        assert "left out, as pandas' index: __index_level_0__" in str(report)
        named = ad.explain(table.schema, columns=["a", "__index_level_0__"], order=order)
        assert [row.column for row in named] == ["a", "__index_level_0__"]
        assert named.left_out == []
        assert "left out" not in str(named)
    for question in ({"validity": True}, {"out": np.zeros((10, 2))}):
        assert ad.explain(table.schema, **question).left_out == ["__index_level_0__"]


def test_a_frame_of_nothing_but_an_index_has_no_columns():
    frame = FRAMES["named"][0][[]]
    assert ad.to_tensors(frame) == {}
    with pytest.raises(ad.ConversionError, match="without columns"):
        ad.to_tensor(frame)


def test_from_arrow_imports_all_that_is_there():
    frame = FRAMES["named"][0]
    assert ad.from_arrow(frame).column_names == ["a", "b", "id"]
    pd.testing.assert_frame_equal(pd.DataFrame.from_arrow(ad.from_arrow(frame)), frame)


@settings(deadline=None)
@given(
    rows=st.lists(st.integers(0, 7), min_size=1, max_size=12),
    name=st.sampled_from([None, "id", "a", "__index_level_0__", "b"]),
    step=st.sampled_from(["none", "reset", "sort", "drop"]),
)
def test_a_matrix_has_the_shape_that_pandas_says(rows: list[int], name: Any, step: str):
    frame = BASE.fillna(0).loc[[row % 5 for row in rows]]
    frame.index.name = name
    if step == "reset":
        frame = frame.reset_index(drop=True)
    elif step == "sort":
        frame = frame.sort_index()
    elif step == "drop":
        frame = frame.iloc[1:]
    np.testing.assert_array_equal(np.from_dlpack(ad.to_tensor(frame)), frame.to_numpy())
    batches = [np.from_dlpack(batch) for batch in ad.Loader(frame, batch_size=3)]
    assert sum(len(batch) for batch in batches) == len(frame)
    assert all(batch.shape[1] == 2 for batch in batches)
