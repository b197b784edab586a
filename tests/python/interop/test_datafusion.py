"""DataFusion: Rust's arrow: every type goes in and out as it is; frames are streams that run the query again."""

import arrow_dlpack as ad
import datafusion
import frames
import numpy as np
import pyarrow as pa
import pytest
from frames import NUMBERS, Spy, at, column, copy, dunders, goes, view
from helpers import address, flags


def context() -> datafusion.SessionContext:
    """Each test has one of its own: what was handed to it is kept as long."""
    # One partition: chunks come in their order.
    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


def out(frame: datafusion.DataFrame) -> pa.ChunkedArray:
    return pa.table(frame).column(0)


def table_of(ours: ad.Array) -> ad.ArrayStream:
    """Columns go there in tables only."""
    field = pa.field(ours).with_name("x")
    return ad.from_arrow(pa.table([pa.array(ours)], schema=pa.schema([field])))


@pytest.mark.parametrize("name", frames.COLUMNS)
def test_columns_go_there(cell, name: str):
    ctx = context()
    expected = copy if name == "misaligned" else view
    note = "realigned without a word" if name == "misaligned" else ""
    goes(
        cell,
        name,
        expected(column(name).type, note),
        lambda ours: ctx.from_arrow(table_of(ours)),
        out,
        lambda frame: frame.schema().field(0).type,
    )


class TestWhatIsCalled:
    def test_batches_and_streams(self, cell):
        ctx = context()
        batch = Spy(ad.from_arrow(pa.record_batch({"x": [1, 2]})))
        assert ctx.from_arrow(batch).count() == 2
        assert batch.calls == ["stream()"]
        stream = Spy(ad.from_arrow(pa.table({"x": [1, 2]})))
        assert ctx.from_arrow(stream).count() == 2
        assert stream.calls == ["stream()"]
        cell("to", "device", "absent")

    def test_a_stream_is_kept(self):
        ctx = context()
        # It is read at once, so that a query can run again.
        frame = ctx.from_arrow(ad.from_arrow(pa.table({"x": [1, 2]})))
        assert frame.count() == frame.count() == 2

    def test_columns_are_refused(self, cell):
        ctx = context()
        spy = Spy(ad.to_arrow(np.arange(3)))
        with pytest.raises(Exception, match="Expected either a Arrow Array or Arrow Stream"):
            ctx.from_arrow(spy)
        with pytest.raises(Exception, match="Expected either a Arrow Array or Arrow Stream"):
            ctx.from_arrow(ad.from_arrow(pa.chunked_array([[1], [2]])))
        cell("to", "numbers", "refused", "an array that is no batch: `from_arrow` takes tables")


class TestQuirks:
    def test_a_request_by_other_names_is_all_null(self, cell):
        ctx = context()
        frame = ctx.from_arrow(pa.table({"x": [1, 2]}))
        reader = pa.RecordBatchReader.from_stream(frame, pa.schema({"y": pa.int64()}))
        assert reader.read_all().to_pydict() == {"y": [None, None]}
        with pytest.raises(Exception, match="merge schema"):
            pa.RecordBatchReader.from_stream(frame, pa.schema({"x": pa.float32()}))
        # Of this package it is an error.
        with pytest.raises(ad.CastError, match=r'has the fields \["y"\], and the data has \["x"\]'):
            pa.RecordBatchReader.from_stream(ad.from_arrow(frame), pa.schema({"y": pa.int64()})).read_all()
        cell("from", "nulls", "wrong", "a requested schema with names that it lacks gives columns of nulls")

    def test_batches_have_a_dunder_that_fails(self, cell):
        ctx = context()
        batch = next(iter(ctx.from_arrow(pa.table({"x": [1, 2]})).execute_stream()))
        assert dunders(batch) == {"array"}
        with pytest.raises(AttributeError, match="__arrow_c_array__"):
            ad.to_tensors(batch)
        assert np.from_dlpack(ad.to_tensors(batch.to_pyarrow())["x"]).tolist() == [1, 2]
        cell("from", "batch", "wrong", "batches of `execute_stream` have a dunder that fails; `to_pyarrow()` works")


def test_batches_and_streams_go_there(cell):
    ctx = context()
    table = pa.table({"x": pa.chunked_array([[1, 2], [3]]), "s": pa.chunked_array([["a", None], ["b"]])})
    frame = ctx.from_arrow(ad.from_arrow(table))
    assert pa.table(frame).equals(table)
    assert [at(chunk) for chunk in out(frame).chunks] == [at(chunk) for chunk in table["x"].chunks]
    cell("to", "stream", "view", "of what is not computed")
    batch = table.to_batches()[0]
    assert at(out(ctx.from_arrow(ad.from_arrow(batch))).chunk(0)) == at(batch["x"])
    cell("to", "batch", "view", "of what is not computed")
    none = ctx.from_arrow(ad.from_arrow(pa.Table.from_batches([], table.schema)))
    assert none.schema() == table.schema
    assert none.count() == 0
    cell("to", "size 0", "view")


class TestTensorsGoThere:
    @pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2), ()], ids=str)
    def test_rows(self, cell, shape: tuple[int, ...]):
        ctx = context()
        source = np.arange(float(np.prod(shape))).reshape(shape)
        theirs = out(ctx.from_arrow(table_of(ad.to_arrow(source)))).chunk(0)
        assert len(theirs) == (shape or (1,))[0]
        assert at(theirs) == source.ctypes.data
        case = {0: "0-d", 1: "numbers"}.get(len(shape), "fixed-size lists")
        cell("to", case, "view", "as an array of length 1" if case == "0-d" else "")

    @pytest.mark.parametrize(
        ("part", "case"), [(slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")]
    )
    def test_strides(self, cell, part: slice, case: str):
        ctx = context()
        source = np.arange(6.0)[part]
        theirs = out(ctx.from_arrow(table_of(ad.to_arrow(source)))).chunk(0)
        assert theirs.to_pylist() == source.tolist()
        assert at(theirs) != source.ctypes.data
        cell("to", case, "copy")

    def test_complex_numbers(self, cell):
        ctx = context()
        frames.complex_numbers(
            cell, "view", lambda ours: ctx.from_arrow(table_of(ad.to_arrow(ours))), out, back=lambda frame: out(frame)
        )

    def test_small_floats(self, cell):
        ctx = context()
        frames.small_floats_pass(cell, "view", ctx.from_arrow)


class TestFromDatafusion:
    @pytest.mark.parametrize("name", NUMBERS)
    def test_numbers(self, cell, name: str):
        ctx = context()
        source = column(name)
        frame = ctx.from_arrow(pa.table({"x": source}))
        tensor = ad.to_tensors(frame, copy=False)["x"]
        assert tensor.dtype == name
        assert np.from_dlpack(tensor).tolist() == [1, 2, 3]
        assert address(tensor) == at(source)
        cell("from", "numbers", "view")

    def test_a_query_runs_again(self):
        ctx = context()
        frame = ctx.from_arrow(pa.table({"x": [1, 2]})).select(datafusion.col("x") + 1)
        assert dunders(frame) == {"stream"}
        (first,), (again,) = (ad.to_tensors(frame, copy=False).values() for _ in range(2))
        assert np.from_dlpack(first).tolist() == np.from_dlpack(again).tolist() == [2, 3]
        assert address(first) != address(again)

    def test_no_device(self, cell):
        ctx = context()
        assert "device_array" not in dunders(ctx.from_arrow(pa.table({"x": [1]})))
        cell("from", "device", "absent")

    def test_bools(self, cell):
        ctx = context()
        frame = ctx.sql("select x > 1 as b from (values (1), (2)) t(x)")
        assert np.from_dlpack(ad.to_tensors(frame)["b"]).tolist() == [False, True]
        with pytest.raises(ad.CopyError):
            ad.to_tensors(frame, copy=False)
        cell("from", "bool", "copy")

    def test_nulls(self, cell):
        ctx = context()
        source = pa.array([1, None, 3], pa.int32())
        frame = ctx.from_arrow(pa.table({"x": source}))
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensors(frame)
        assert (caught.value.column, caught.value.row) == ("x", 1)
        kept = ad.to_tensors(frame, nulls="keep", copy=False)["x"]
        assert address(kept) == at(source)
        cell("from", "nulls", "view", 'under `nulls="keep"`, next to `validity`')
        assert np.from_dlpack(ad.to_tensors(frame, nulls=0)["x"]).tolist() == [1, 0, 3]
        cell("from", "nulls", "copy")

    @pytest.mark.parametrize("name", [name for name, (case, _) in frames.COLUMNS.items() if case == "temporal"])
    def test_temporal(self, cell, name: str):
        ctx = context()
        source = column(name)
        tensor = ad.to_tensors(ctx.from_arrow(pa.table({"x": source})), copy=False)["x"]
        assert tensor.dtype == ("int32" if source.type.bit_width == 32 else "int64")
        assert address(tensor) == at(source)
        cell("from", "temporal", "view")

    def test_decimals(self, cell):
        ctx = context()
        frames.decimals_come(cell, out(ctx.from_arrow(pa.table({"x": column("decimal128")}))))

    def test_lists_and_strings(self, cell):
        for name in ("string", "list"):
            theirs = out(context().from_arrow(pa.table({"x": column(name)})))
            frames.ragged_come(cell, frames.COLUMNS[name][0], theirs)

    def test_dictionaries(self, cell):
        ctx = context()
        theirs = out(ctx.from_arrow(pa.table({"x": column("dictionary")})))
        frames.codes_come(cell, theirs, "int32", [0, 1, 0])

    @pytest.mark.parametrize("name", ["fixed-size list", "fixed-size list slice", "tensors"])
    def test_fixed_size_lists(self, cell, name: str):
        ctx = context()
        source = column(name)
        tensor = ad.to_tensors(ctx.from_arrow(pa.table({"x": source})), copy=False)["x"]
        assert tensor.shape == {"tensors": (1, 2, 2)}.get(name, (2, 2))
        assert address(tensor) == at(source)
        cell("from", "fixed-size lists", "view")

    def test_batches_and_streams(self, cell):
        ctx = context()
        table = pa.table({"x": pa.chunked_array([[1, 2], [3]])})
        frame = ctx.from_arrow(table)
        assert np.from_dlpack(ad.to_tensors(frame)["x"]).tolist() == [1, 2, 3]
        cell("from", "stream", "copy", "batches are joined")
        parts = [address(ad.to_tensor(batch["x"], copy=False)) for batch in ad.from_arrow(frame)]
        assert parts == [at(chunk) for chunk in table["x"].chunks]
        cell("from", "stream", "view", "batch by batch")

    def test_size_0(self, cell):
        ctx = context()
        frame = ctx.from_arrow(pa.table({"x": [1]})).filter(datafusion.col("x") > 1)
        assert ad.to_tensors(frame)["x"].shape == (0,)
        cell("from", "size 0", "view")

    def test_read_only(self, cell):
        ctx = context()
        tensor = ad.to_tensors(ctx.from_arrow(pa.table({"x": [1]})))["x"]
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view")
