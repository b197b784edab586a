"""duckdb: it copies into vectors of its own and out of them; a stream that tells its schema is opened once."""

import datetime

import arrow_dlpack as ad
import duckdb
import frames
import numpy as np
import pyarrow as pa
import pytest
from frames import Spy, at, column, copy, dunders, goes, refused
from helpers import address, flags

OWN = "every column is copied into vectors of its own"
NUMBERS = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
TO = {
    **{name: copy(kind) for name, kind in NUMBERS.items()},
    "float16": refused(duckdb.NotImplementedException, "Unsupported Internal Arrow Type", "float16 is unknown"),
    "slice": copy("INTEGER"),
    "bool": copy("BOOLEAN"),
    "bool slice": copy("BOOLEAN"),
    "int nulls": copy("BIGINT"),
    "float nulls": copy("DOUBLE"),
    "bool nulls": copy("BOOLEAN"),
    "null slice": copy("BIGINT"),
    "date32": copy("DATE"),
    "date64": copy("DATE"),
    "time32": copy("TIME"),
    "time64": copy("TIME"),
    "timestamp": copy("TIMESTAMP"),
    "timestamp s": copy("TIMESTAMP_S"),
    "decimal128": copy("DECIMAL(5,1)"),
    "decimal32": copy("DECIMAL(5,1)"),
    "dictionary": copy("VARCHAR", "decoded"),
    "number dictionary": copy("BIGINT", "decoded"),
    "string": copy("VARCHAR"),
    "large string": copy("VARCHAR"),
    "string view": copy("VARCHAR"),
    "binary": copy("BLOB"),
    "fixed-size binary": copy("BLOB"),
    "list": copy("BIGINT[]"),
    "large list": copy("BIGINT[]"),
    "list view": copy("BIGINT[]"),
    "fixed-size list": copy("INTEGER[2]"),
    "fixed-size list slice": copy("INTEGER[2]"),
    "tensors": copy("FLOAT[4]", "`arrow.fixed_shape_tensor` loses its inner shape"),
    "no rows": copy("BIGINT"),
    "no rows of strings": copy("VARCHAR"),
    "no rows of lists": copy("INTEGER[2]"),
    "misaligned": copy("BIGINT"),
}


@pytest.fixture
def con():
    with duckdb.connect() as connection:
        connection.sql("set timezone = 'UTC'")
        yield connection


def scan(con: duckdb.DuckDBPyConnection, data: object) -> duckdb.DuckDBPyRelation:
    """All of `data`, which duckdb finds by the variable's name."""
    assert data is not None
    return con.sql("select * from data")


def only(relation: duckdb.DuckDBPyRelation) -> pa.Array:
    return frames.first(pa.table(relation).column(0))


@pytest.mark.parametrize("name", TO)
def test_columns_go_there(cell, con, name: str):
    goes(cell, name, TO[name], lambda ours: scan(con, ours), only, lambda relation: str(relation.types[0]))


def test_every_column_is_asked_for():
    assert {*frames.COLUMNS} - {*TO} == {"bool8", "time64 ns", "timestamp tz", "duration", "lists of size 0"}


class TestColumnsThatChange:
    def test_bytes_of_bools_are_bools(self, cell, con):
        relation = scan(con, ad.from_dlpack(np.array([True, False])))
        assert relation.types == ["BOOLEAN"]
        assert relation.fetchall() == [(True,), (False,)]
        cell("to", "bool", "copy", "`arrow.bool8` is read as bool")

    def test_nanoseconds(self, cell, con):
        source = column("time64 ns")
        assert [str(kind) for kind in scan(con, ad.from_arrow(source)).types] == ["TIME_NS"]
        # The instant stays, and the name of the zone becomes that of the connection.
        source = column("timestamp tz")
        relation = scan(con, ad.from_arrow(source))
        assert [str(kind) for kind in relation.types] == ["TIMESTAMPTZ_NS"]
        back = only(relation)
        assert back.type == pa.timestamp("ns", "UTC")
        assert back.cast(pa.int64()).to_pylist() == source.cast(pa.int64()).to_pylist()
        cell("to", "temporal", "copy", "the name of a time zone becomes that of the connection")

    def test_durations_become_intervals(self, cell, con):
        relation = scan(con, ad.from_arrow(column("duration")))
        assert relation.fetchall() == [(datetime.timedelta(milliseconds=1),), (datetime.timedelta(milliseconds=2),)]
        with pytest.raises(ad.UnsupportedTypeError, match="Interval"):
            ad.to_tensors(relation)
        cell("to", "temporal", "copy", "durations become intervals, which have no tensor form")

    def test_rows_of_size_0(self, cell, con):
        assert scan(con, ad.from_dlpack(np.zeros((2, 0)))).fetchall() == [((),), ((),)]
        cell("to", "size 0", "copy")
        with pytest.raises(duckdb.InvalidInputException, match="at least one column"):
            scan(con, ad.from_arrow(pa.RecordBatch.from_pydict({})))


def calls(data: object, read) -> list[str]:
    spy = Spy(data)
    read(spy)
    return spy.calls


READS = {
    "replacement scan": lambda con, spy: scan(con, spy).fetchall(),
    "from_arrow": lambda con, spy: con.from_arrow(spy).fetchall(),
}


class TestWhatIsCalled:
    """The schema first, twice; then the data, once for each time that the relation is run."""

    @pytest.mark.parametrize("read", READS)
    def test_arrays_and_streams(self, con, read: str):
        opened = {
            "array": ad.to_arrow(np.arange(3)),
            "stream": ad.from_arrow(pa.table({"x": [1, 2]})),
        }
        # A batch is read as a stream, which it can give again.
        batch = ad.from_arrow(pa.record_batch({"x": [1, 2]}))
        for kind, data in (*opened.items(), ("stream", batch)):
            assert calls(data, lambda spy: READS[read](con, spy)) == ["schema()", "schema()", f"{kind}()"]

    def test_register(self, con):
        spy = Spy(ad.from_arrow(pa.table({"x": [1, 2]})))
        con.register("registered", spy)
        assert con.sql("select sum(x) from registered").fetchall() == [(3,)]
        assert spy.calls == ["schema()"] * 3 + ["stream()"]
        con.unregister("registered")

    def test_without_a_schema_it_opens_a_stream_several_times(self, con):
        """The trap that `__arrow_c_schema__` avoids: a stream that can be read once is found empty, or consumed."""
        table = pa.table({"x": [1, 2]})
        opened = []

        class NoSchema:
            def __arrow_c_stream__(self, requested_schema=None):
                opened.append(1)
                return table.__arrow_c_stream__(requested_schema)

        assert scan(con, NoSchema()).fetchall() == [(1,), (2,)]
        assert 3 <= len(opened) <= 4
        reader = table.to_reader()
        assert dunders(reader) == {"stream"}
        once = type("Once", (), {"__arrow_c_stream__": lambda self, request=None: ours.__arrow_c_stream__(request)})()
        ours = ad.from_arrow(table)
        with pytest.raises(duckdb.InvalidInputException, match="consumed already"):
            scan(con, once).fetchall()

    def test_a_relation_is_run_again(self, cell, con):
        relation = scan(con, ad.from_arrow(pa.record_batch({"x": [1, 2]})))
        assert relation.fetchall() == relation.fetchall() == [(1,), (2,)]
        # A stream is not there a second time, and says so.
        relation = scan(con, ad.from_arrow(pa.table({"x": [1, 2]})))
        assert relation.fetchall() == [(1,), (2,)]
        relation = scan(con, ad.from_arrow(pa.table({"x": [1, 2]})))
        assert relation.aggregate("sum(x)").fetchall() == [(3,)]
        with pytest.raises(duckdb.InvalidInputException, match="a stream can"):
            relation.fetchall()
        cell("to", "stream", "refused", "the second run of a relation over a stream: a stream is read once")

    def test_no_device_dunder(self, cell, con):
        assert not any("device" in call for call in calls(ad.to_arrow(np.arange(3)), lambda x: scan(con, x).fetchall()))
        cell("to", "device", "absent")
        cell("from", "device", "absent")
        assert dunders(con.sql("select 1")) == {"stream"}


def test_batches_and_streams_go_there(cell, con):
    table = pa.table({"x": pa.chunked_array([[1, 2], [3]]), "s": pa.chunked_array([["a", None], ["b"]])})
    assert scan(con, ad.from_arrow(table)).fetchall() == [(1, "a"), (2, None), (3, "b")]
    back = pa.table(scan(con, ad.from_arrow(table)))
    assert not {at(chunk) for chunk in back["x"].chunks} & {at(chunk) for chunk in table["x"].chunks}
    cell("to", "stream", "copy")
    assert scan(con, ad.from_arrow(table.to_batches()[0])).fetchall() == [(1, "a"), (2, None)]
    cell("to", "batch", "copy")
    none = pa.Table.from_batches([], table.schema)
    assert scan(con, ad.from_arrow(none)).fetchall() == []
    assert scan(con, ad.from_arrow(pa.chunked_array([], pa.int64()))).fetchall() == []
    cell("to", "size 0", "copy")


class TestTensorsGoThere:
    @pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2), ()], ids=str)
    def test_rows(self, cell, con, shape: tuple[int, ...]):
        source = np.arange(float(np.prod(shape))).reshape(shape)
        rows = [row for (row,) in scan(con, ad.from_dlpack(source)).fetchall()]
        # Inner dimensions come as one, row by row.
        np.testing.assert_array_equal(np.array(rows).ravel(), source.ravel())
        case = {0: "0-d", 1: "numbers"}.get(len(shape), "fixed-size lists")
        cell("to", case, "copy", "as one row" if case == "0-d" else "")

    @pytest.mark.parametrize(
        ("part", "case"), [(slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")]
    )
    def test_strides(self, cell, con, part: slice, case: str):
        source = np.arange(6.0)[part]
        assert [row for (row,) in scan(con, ad.from_dlpack(source)).fetchall()] == source.tolist()
        cell("to", case, "copy")

    def test_ragged_rows(self, cell, con):
        frames.ragged_goes(cell, lambda ours: scan(con, ours), only)

    def test_complex_numbers(self, cell, con):
        relation = scan(con, ad.from_dlpack(np.array([1 + 2j, 3])))
        assert relation.fetchall() == [((1.0, 2.0),), ((3.0, 0.0),)]
        cell("to", "complex", "copy", "as lists of two floats")
        (tensor,) = ad.to_tensors(relation, dtype="complex128", copy=False).values()
        assert np.from_dlpack(tensor).tolist() == [1 + 2j, 3]
        cell("from", "complex", "copy", 'lists of two floats, by `dtype="complex128"`')


def made(con: duckdb.DuckDBPyConnection, expression: str, **keywords: object) -> ad.Tensor:
    with ad.track_copies() as log:
        tensor = ad.to_tensors(con.sql(f"select {expression} as x"), copy=False, **keywords)["x"]
    assert len(log) == 0
    return tensor


class TestFromDuckdb:
    @pytest.mark.parametrize(("name", "kind"), NUMBERS.items())
    def test_numbers(self, cell, con, name: str, kind: str):
        relation = con.sql(f"select i::{kind} as x from range(3) t(i)")
        first, again = (ad.to_tensors(relation, copy=False)["x"] for _ in range(2))
        assert first.dtype == name
        assert np.from_dlpack(first).tolist() == [0, 1, 2]
        # Each result is memory of its own, and the tensor is a view of that.
        assert address(first) != address(again)
        cell("from", "numbers", "copy", "duckdb makes Arrow memory of each result; the tensor is a view of that")

    def test_bools(self, cell, con):
        relation = con.sql("select i % 2 = 0 as x from range(3) t(i)")
        assert np.from_dlpack(ad.to_tensors(relation)["x"]).tolist() == [True, False, True]
        with pytest.raises(ad.CopyError):
            ad.to_tensors(relation, copy=False)
        cell("from", "bool", "copy")

    def test_nulls(self, cell, con):
        """duckdb's own `.torch()` and `.fetchnumpy()` give zeros or a mask; here a null is an error unless allowed."""
        relation = con.sql("select case when i = 1 then null else i end as x from range(3) t(i)")
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensors(relation)
        assert (caught.value.column, caught.value.row) == ("x", 1)
        assert np.from_dlpack(ad.to_tensors(relation, nulls=-1)["x"]).tolist() == [0, -1, 2]
        kept = ad.to_tensors(relation, nulls="keep", copy=False)["x"]
        assert np.from_dlpack(kept)[[0, 2]].tolist() == [0, 2]
        (batch,) = ad.from_arrow(relation)
        assert np.from_dlpack(ad.validity(batch["x"])).tolist() == [True, False, True]
        cell("from", "nulls", "copy")

    @pytest.mark.parametrize(
        ("expression", "dtype", "stored"),
        [
            ("date '1970-01-02'", "int32", 1),
            ("time '00:00:01'", "int64", 10**6),
            ("timestamp '1970-01-01 00:00:01'", "int64", 10**6),
            ("timestamp_s '1970-01-01 00:00:01'", "int64", 1),
            ("timestamp_ms '1970-01-01 00:00:01'", "int64", 1000),
            ("timestamp_ns '1970-01-01 00:00:01'", "int64", 10**9),
            ("timestamptz '1970-01-01 00:00:01+00'", "int64", 10**6),
        ],
    )
    def test_temporal(self, cell, con, expression: str, dtype: str, stored: int):
        tensor = made(con, expression)
        assert (tensor.dtype, np.from_dlpack(tensor).tolist()) == (dtype, [stored])
        cell("from", "temporal", "copy")

    def test_decimals(self, cell, con):
        frames.decimals_come(cell, only(con.sql("select unnest([1.5, -2.5])::decimal(5, 1)")))
        # Of 128-bit integers too.
        (tensor,) = ad.to_tensors(con.sql("select 5::hugeint"), dtype="int64").values()
        assert np.from_dlpack(tensor).tolist() == [5]

    def test_enums(self, cell, con):
        con.sql("create type mood as enum ('sad', 'happy')")
        tensor = made(con, "'happy'::mood")
        assert (tensor.dtype, np.from_dlpack(tensor).tolist()) == ("uint8", [1])
        cell("from", "dictionary", "copy", "the codes of an enum")

    def test_lists_and_strings(self, cell, con):
        strings = only(con.sql("select unnest(['a', null, 'bc']) as x"))
        lists = only(con.sql("select unnest([[1], null, [2, 3]]) as x"))
        for case, array in (("strings", strings), ("lists", lists)):
            frames.ragged_come(lambda *_: None, case, array)
            cell("from", case, "copy", "values and offsets, by `to_ragged`")

    def test_small_floats(self, cell, con):
        frames.small_floats_pass(cell, "lost", lambda ours: scan(con, ours), "as binary")

    def test_requests_are_ignored(self, con):
        for data_type in (pa.float32(), pa.int8()):
            theirs = con.sql("select 300::bigint as x")
            assert frames.asked(theirs, data_type).schema.field("x").type == pa.int64()
        with pytest.raises(ValueError, match=r'column "x", row 0: .*300'):
            frames.asked(ad.from_arrow(con.sql("select 300::bigint as x")), pa.int8())

    def test_intervals_are_refused(self, cell, con):
        with pytest.raises(ad.UnsupportedTypeError, match="Interval"):
            made(con, "interval 1 day")
        cell("from", "temporal", "refused", "intervals")

    def test_arrays(self, cell, con):
        tensor = made(con, "[1, 2]::int[2]")
        assert (tensor.dtype, np.from_dlpack(tensor).tolist()) == ("int32", [[1, 2]])
        tensor = made(con, "[[1, 2], [3, 4]]::float[2][2]")
        assert (tensor.dtype, np.from_dlpack(tensor).tolist()) == ("float32", [[[1, 2], [3, 4]]])
        cell("from", "fixed-size lists", "copy")

    def test_results_are_streams(self, cell, con):
        relation = con.sql("select i as x from range(300_000) t(i)")
        stream = ad.from_arrow(relation)
        assert isinstance(stream, ad.ArrayStream)
        sizes, total = [], 0
        for batch in stream:
            values = np.from_dlpack(ad.to_tensor(batch["x"], copy=False))
            assert values[0] == total
            total += len(values)
            sizes.append(len(values))
        assert total == 300_000
        assert len(sizes) > 1
        cell("from", "stream", "copy", "a result of more than one batch is joined, or read batch by batch")
        one = ad.to_tensors(con.sql("select 1 as x, 2.5::double as y"), copy=False)
        assert {name: np.from_dlpack(tensor).tolist() for name, tensor in one.items()} == {"x": [1], "y": [2.5]}
        cell("from", "batch", "copy")

    def test_size_0(self, cell, con):
        tensors = ad.to_tensors(con.sql("select 1 as x, [1, 2]::int[2] as y where false"))
        assert {name: tensor.shape for name, tensor in tensors.items()} == {"x": (0,), "y": (0, 2)}
        cell("from", "size 0", "copy")

    def test_read_only(self, cell, con):
        tensor = made(con, "1")
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view", "what is Arrow's is read-only")
