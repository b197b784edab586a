"""`explain` takes what the conversions take, looks at data that is at hand, and consumes no stream."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import duckdb
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

CHUNKS = pa.chunked_array([[1, 2], [3]])
TABLE = pa.table({"a": CHUNKS})


@pytest.mark.parametrize(
    "data",
    [TABLE, CHUNKS, pl.DataFrame(TABLE), pd.DataFrame({"a": [1, 2, 3]}), pd.Series([1, 2, 3]), pl.Series([1, 2, 3])],
    ids=["table", "chunked array", "polars", "pandas", "pandas series", "polars series"],
)
def test_data_at_hand_is_looked_at(data: Any) -> None:
    (row,) = ad.explain(data, nulls=0, dtype="float32")
    assert (row.shape, row.bytes, row.how) == ((3,), 12, "copy")


def test_chunks_are_counted_where_no_copy_is_allowed() -> None:
    (row,) = ad.explain(TABLE, copy=False)
    with pytest.raises(ad.CopyError) as caught:
        ad.to_tensors(TABLE, copy=False)
    assert (row.how, row.error) == ("refused", str(caught.value))


def test_of_a_stream_the_rows_say_what_only_data_decides() -> None:
    reader = TABLE.to_reader()
    (row,) = ad.explain(reader)
    assert (row.how, row.shape) == ("view or copy", (None,))
    assert "one aligned chunk" in row.steps[0]
    assert row.refused_if == ["values are null"]
    (row,) = report = ad.explain(reader, copy=False)
    assert (row.how, row.refused_if) == ("view", ["values are null", "rows are not in one aligned chunk"])
    assert "refused if values are null, or rows are not in one aligned chunk" in str(report)
    assert ad.to_tensors(reader)["a"].shape == (3,)


def test_a_copy_that_any_data_needs_is_refused_of_a_type() -> None:
    (row,) = ad.explain(pa.schema({"flag": pa.bool_()}), copy=False)
    assert "a copy is needed of any rows" in row.error
    (matrix,) = ad.explain(pa.schema({"a": pa.int8(), "b": pa.int16()}), order="C", copy=False).matrices
    assert matrix.how == "refused"


def test_strings_in_views_are_cast_in_a_second_pass() -> None:
    data = pa.array(["ab", "x", "a long string of many bytes"], pa.string_view())
    report = ad.explain(data, dtype="float32")
    with ad.track_copies() as log:
        ragged = ad.to_ragged(data, dtype="float32")
    assert report["values"].dtype == ragged.values.dtype == "float32"
    assert report.bytes == log.bytes == 182


class TestQueries:
    def test_of_duckdb_the_types_cost_a_query_and_the_report_says_so(self) -> None:
        relation = duckdb.sql("select range as x from range(5)")
        report = ad.explain(relation)
        assert [(row.column, row.dtype, row.shape) for row in report] == [("x", "int64", (None,))]
        assert "cost a query" in report.notes[0]
        assert report.notes[0] in str(report)
        assert ad.to_tensors(relation)["x"].shape == (5,)

    def test_what_knows_its_schema_is_not_run(self) -> None:
        class Query:
            def __len__(self) -> int:
                raise AssertionError("explain asks for no length")

            def execute(self) -> None:
                raise AssertionError("explain runs no query")

            def schema(self) -> pa.Schema:
                return TABLE.schema

            def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
                raise AssertionError("explain opens no stream of a query")

        report = ad.explain(Query())
        assert report["a"].dtype == "int64"
        assert report.notes == []


def test_an_iterator_is_refused() -> None:
    batches = iter(TABLE.to_batches())
    with pytest.raises(TypeError, match="iterator"):
        ad.explain(batches)
    assert len(list(batches)) == 2


class TestSources:
    def test_a_list_of_batches_is_looked_at(self) -> None:
        (row,) = ad.explain(TABLE.to_batches())
        assert (row.shape, row.bytes) == ((3,), 24)

    def test_a_list_of_readers_is_not_read(self) -> None:
        readers = [TABLE.to_reader()]
        assert ad.explain(readers)["a"].shape == (None,)
        assert ad.to_tensors(readers)["a"].shape == (3,)

    @pytest.mark.parametrize("source", [pads.dataset(TABLE), pl.DataFrame(TABLE).lazy()], ids=["data set", "lazy"])
    def test_what_knows_its_schema_is_not_opened(self, source: Any) -> None:
        (row,) = ad.explain(source)
        assert (row.column, row.dtype, row.how) == ("a", "int64", "view or copy")

    @pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
    def test_a_file_that_is_no_source_is_refused_as_by_the_conversion(self, tmp_path: Any) -> None:
        table = pa.table({"x": [1, 2]})
        pq.write_table(table, tmp_path / "x.parquet")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        for source in (pq.ParquetDataset(tmp_path), pa.ipc.open_file(sink.getvalue())):
            with pytest.raises(TypeError) as refused:
                ad.to_tensor(source)
            with pytest.raises(TypeError) as caught:
                ad.explain(source)
            assert str(caught.value) == str(refused.value)
            assert ad.explain(source.schema)[0].dtype == "int64"

    def test_what_knows_its_type_by_its_first_item_is_refused_and_not_read(self) -> None:
        class Batches:
            def __iter__(self) -> Any:
                raise AssertionError("explain reads no item")

        with pytest.raises(TypeError, match="first item"):
            ad.explain(Batches())
        result = duckdb.connect().execute("select 1 as x")
        with pytest.raises(TypeError, match="first item"):
            ad.explain(result)
        assert ad.to_tensors(result)["x"].shape == (1,)


def test_a_stream_without_a_schema_is_refused_and_left_as_it_is() -> None:
    stream = nanoarrow.c_array_stream(TABLE)
    with pytest.raises(TypeError, match="schema"):
        ad.explain(stream)
    assert ad.to_tensors(stream)["a"].shape == (3,)


def test_a_column_called_as_a_method_of_queries_makes_no_query() -> None:
    assert ad.explain(pd.DataFrame({"execute": [1.0]}))["execute"].shape == (1,)


def test_columns_of_one_array_are_refused_as_by_the_conversion() -> None:
    with pytest.raises(ad.ConversionError) as explained:
        ad.explain(CHUNKS, columns=["a"])
    with pytest.raises(ad.ConversionError) as converted:
        ad.to_tensor(CHUNKS, columns=["a"])
    assert str(explained.value) == str(converted.value)


@pytest.mark.parametrize("keywords", [{}, {"copy": True}, {"writable": True}], ids=str)
def test_strided_elements_are_gathered_once_into_memory_of_the_result(keywords: Any) -> None:
    source = np.arange(8.0)[::2]
    (row,) = ad.explain(source, **keywords)
    with ad.track_copies() as log:
        tensor = ad.to_tensor(source, **keywords)
    assert (tensor.copied, tensor.writable) == (True, True)
    assert row.bytes == log.bytes == 32
    assert row.steps == [entry.why for entry in log] == ["strided elements gathered"]
