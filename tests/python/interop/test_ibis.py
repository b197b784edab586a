"""Ibis over DuckDB: tables are queries, which give a stream each time; a stream goes there through pyarrow."""

from collections.abc import Iterator

import arrow_dlpack as ad
import duckdb
import frames
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames import Spy, column, copy, dunders, goes, refused
from helpers import address, flags


@pytest.fixture(autouse=True)
def connection(no_leak: None) -> Iterator[None]:
    """A connection for each test, which keeps what was made a memtable until it is closed."""
    own, ibis.options.default_backend = ibis.options.default_backend, ibis.duckdb.connect()
    yield
    ibis.options.default_backend.disconnect()
    ibis.options.default_backend = own


NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
UNKNOWN = {"bool8": "bool", "fixed-size binary": "strings", "list view": "lists", "tensors": "fixed-size lists"}
PASSED = {*frames.COLUMNS} - {*UNKNOWN} - {"float16", "duration"}
NOTES = {"dictionary": "decoded", "number dictionary": "decoded"}
TO = {
    **{name: copy(note=NOTES.get(name, "")) for name in frames.COLUMNS if name in PASSED},
    **{name: refused(KeyError, "Type", "Ibis has no list views and no extension types") for name in UNKNOWN},
    "fixed-size binary": refused(KeyError, "FixedSizeBinary", "fixed-size binary"),
}


def memtable(ours: object) -> ibis.Table:
    """Columns go there in tables only."""
    field = pa.field(ours).with_name("x")
    return ibis.memtable(ad.from_arrow(pa.table([pa.array(ours)], schema=pa.schema([field]))))


def out(table: ibis.Table) -> pa.ChunkedArray:
    return pa.table(table)["x"]


@pytest.mark.parametrize("name", TO)
def test_columns_go_there(cell, name: str):
    goes(cell, name, TO[name], memtable, out)


def test_what_the_engine_behind_it_lacks(cell):
    with pytest.raises(duckdb.NotImplementedException, match="Unsupported Internal Arrow Type"):
        out(memtable(ad.from_arrow(column("float16"))))
    cell("to", "numbers", "refused", "float16 is unknown to DuckDB")
    with pytest.raises(pa.ArrowNotImplementedError, match="month_day_nano_interval to duration"):
        ad.to_tensors(memtable(ad.from_arrow(column("duration"))))
    cell("from", "temporal", "refused", "durations, which DuckDB makes intervals")


class TestWhatIsCalled:
    def test_streams(self, cell):
        source = pa.table({"x": pa.chunked_array([[1, 2], [3]])})
        spy = Spy(ad.from_arrow(source))
        theirs = ibis.memtable(spy)
        # It is read once, whole, so that a query can run again.
        assert theirs.count().execute() == theirs.count().execute() == 3
        assert spy.calls == ["stream(None)"]
        cell("to", "stream", "copy")
        assert ibis.memtable(ad.from_arrow(source[:0])).count().execute() == 0
        cell("to", "size 0", "copy")
        cell("to", "device", "absent")

    def test_batches(self, cell):
        spy = Spy(ad.from_arrow(pa.record_batch({"x": [1, 2]})))
        theirs = ibis.memtable(spy)
        assert out(theirs).to_pylist() == out(theirs).to_pylist() == [1, 2]
        assert spy.calls == ["stream(None)"]
        cell("to", "batch", "copy")
        # What is no table and has no stream is handed to pandas.
        for data in (ad.to_arrow(np.arange(3)), ad.from_dlpack(np.arange(3))):
            with pytest.raises(ValueError, match="not properly called"):
                ibis.memtable(data)


class TestTensorsGoThere:
    def test_rows(self, cell):
        rows = ad.to_arrow(np.arange(6.0).reshape(3, 2), type=pa.list_(pa.float64(), 2))
        assert out(memtable(rows)).to_pylist() == [[0, 1], [2, 3], [4, 5]]
        cell("to", "fixed-size lists", "copy")
        with pytest.raises(KeyError, match="FixedShapeTensor"):
            memtable(ad.to_arrow(np.arange(6.0).reshape(3, 2)))
        assert out(memtable(ad.to_arrow(np.array(5.0)))).to_pylist() == [5]
        cell("to", "0-d", "copy", "as one row")

    def test_bools(self, cell):
        bits = ad.to_arrow(np.array([True, False]), type=pa.bool_())
        assert out(memtable(bits)).to_pylist() == [True, False]
        cell("to", "bool", "copy")

    def test_complex_numbers(self, cell):
        frames.complex_numbers(cell, "copy", lambda ours: memtable(ad.to_arrow(ours)), out, back=out)


def made() -> ibis.Table:
    return ibis.memtable(pd.DataFrame({"x": [1, 2], "f": [1.5, None]}))


class TestFromIbis:
    def test_which_dunders(self, cell):
        table = made()
        assert dunders(table) == {"stream"}
        assert dunders(table.schema()) == {"schema"}
        assert ad.explain(table.schema())["x"].dtype == "int64"
        assert dunders(table.x) == set()
        with pytest.raises(TypeError, match=r"IntegerColumn; call \.to_pyarrow\(\)"):
            ad.to_tensor(table.x)
        assert np.from_dlpack(ad.to_tensors(table.select("x"))["x"]).tolist() == [1, 2]
        cell("from", "device", "absent")

    @pytest.mark.parametrize("name", NUMBERS)
    def test_numbers(self, cell, name: str):
        table = ibis.memtable(pa.table({"x": column(name)}))
        first, again = (ad.to_tensors(table, copy=False)["x"] for _ in range(2))
        assert first.dtype == name
        assert np.from_dlpack(first).tolist() == [1, 2, 3]
        assert address(first) != address(again)
        assert not first.writable
        assert flags(first) & 1
        cell("from", "numbers", "copy", "each run of the query makes memory; the tensor is a view of that")
        cell("from", "read-only", "view", "what is Arrow's is read-only")

    def test_nulls(self, cell):
        with pytest.raises(ad.NullError, match='column "f", row 1'):
            ad.to_tensors(made())
        assert np.from_dlpack(ad.to_tensors(made(), nulls={"f": 0})["f"]).tolist() == [1.5, 0]
        cell("from", "nulls", "copy")

    def test_bools(self, cell):
        table = made()
        tensors = ad.to_tensors(table.select(b=table.x > 1))
        assert np.from_dlpack(tensors["b"]).tolist() == [False, True]
        cell("from", "bool", "copy")

    @pytest.mark.parametrize("name", ["date32", "timestamp", "timestamp tz"])
    def test_temporal(self, cell, name: str):
        table = ibis.memtable(pa.table({"x": column(name)}))
        tensor = ad.to_tensors(table, copy=False)["x"]
        assert pa.array(tensor).equals(column(name))
        cell("from", "temporal", "copy")

    def test_decimals_and_lists(self, cell):
        frames.decimals_come(cell, out(ibis.memtable(pa.table({"x": column("decimal128")}))))
        tensors = ad.to_tensors(ibis.memtable(pa.table({"x": column("fixed-size list")})))
        assert np.from_dlpack(tensors["x"]).tolist() == [[1, 2], [3, 4]]
        cell("from", "fixed-size lists", "copy")

    def test_lists_and_strings(self, cell):
        for name in ("string", "list"):
            case = frames.COLUMNS[name][0]
            frames.ragged_come(lambda *_: None, case, frames.first(out(ibis.memtable(pa.table({"x": column(name)})))))
            cell("from", case, "copy", "values and offsets, by `to_ragged`")

    def test_streams_and_size_0(self, cell):
        table = made()
        stream = ad.from_arrow(table.to_pyarrow_batches())
        assert sum(len(batch) for batch in stream) == 2
        cell("from", "stream", "copy")
        assert set(ad.to_tensors(table, nulls=0)) == {"x", "f"}
        cell("from", "batch", "copy")
        assert ad.to_tensors(table.filter(table.x > 5))["x"].shape == (0,)
        cell("from", "size 0", "copy")


def test_a_loader_runs_no_query_for_its_length():
    loader = ad.Loader(made(), batch_size=1, nulls=0)
    with pytest.raises(TypeError, match="how many rows"):
        len(loader)
    for _ in range(2):
        assert [np.from_dlpack(batch).tolist() for batch in list(loader)] == [[[1, 1.5]], [[2, 0]]]


def test_a_loader_runs_no_query_for_its_columns(monkeypatch: pytest.MonkeyPatch):
    def run(*_):
        raise AssertionError("it ran")

    table = made()
    monkeypatch.setattr(ibis.Table, "__arrow_c_stream__", run)
    for source in (table, table.limit(1)):
        with pytest.raises(ad.ConversionError, match="no such column"):
            ad.Loader(source, batch_size=1, columns=["nothing"])
