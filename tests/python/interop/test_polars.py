"""polars: most columns are views both ways; strings and temporal types of another unit are copied on the way in."""

import datetime

import arrow_dlpack as ad
import frames
import numpy as np
import polars as pl
import polars.exceptions
import pyarrow as pa
import pytest
from frames import NUMBERS, Spy, at, column, comes, copy, dunders, goes, refused, view
from helpers import address, flags, script

TYPES = {
    name: getattr(pl, name.replace("int", "Int").replace("uI", "UI").replace("float", "Float")) for name in NUMBERS
}
PANIC = pl.exceptions.PanicException

TO = {
    **{name: view(kind) for name, kind in TYPES.items()},
    "slice": view(pl.Int32),
    "bool": view(pl.Boolean),
    "bool slice": view(pl.Boolean),
    "bool8": view(note="`arrow.bool8` stays an extension of int8"),
    "int nulls": view(pl.Int64),
    "float nulls": view(pl.Float64),
    "bool nulls": view(pl.Boolean),
    "null slice": view(pl.Int64),
    "date32": view(pl.Date),
    "time32": copy(pl.Time, "times, and timestamps in seconds, become another unit"),
    "time64": copy(pl.Time, "times, and timestamps in seconds, become another unit"),
    "time64 ns": view(pl.Time),
    "timestamp": view(pl.Datetime("us")),
    "timestamp s": copy(pl.Datetime("ms"), "times, and timestamps in seconds, become another unit"),
    "timestamp tz": view(pl.Datetime("ns", "Europe/Berlin")),
    "duration": view(pl.Duration("ms")),
    "decimal128": view(pl.Decimal(5, 1)),
    "decimal32": copy(pl.Decimal(5, 1), "of 32 bits become 128"),
    "dictionary": copy(pl.Categorical(), "its own categories"),
    "number dictionary": copy(pl.Int64, "dictionaries of numbers are decoded"),
    "string": copy(pl.String, "becomes views"),
    "large string": copy(pl.String, "becomes views"),
    "string view": view(pl.String),
    "binary": copy(pl.Binary, "becomes views"),
    "fixed-size binary": copy(pl.Binary, "becomes views"),
    "large list": view(pl.List(pl.Int64)),
    "list view": refused(PANIC, "still not supported", "a list view is a panic"),
    "fixed-size list": view(pl.Array(pl.Int32, 2)),
    "fixed-size list slice": view(pl.Array(pl.Int32, 2)),
    "tensors": view(note="`arrow.fixed_shape_tensor` stays an extension"),
    "no rows": view(pl.Int64),
    "no rows of strings": view(pl.String),
    "no rows of lists": view(pl.Array(pl.Int32, 2)),
    "misaligned": copy(pl.Int64),
}


def series(ours: object) -> pl.Series:
    return pl.Series("x", ours)


@pytest.mark.parametrize("name", TO)
def test_columns_go_there(cell, name: str):
    goes(cell, name, TO[name], series)


def test_every_column_is_asked_for():
    # The others have tests of their own below.
    assert {*frames.COLUMNS} - {*TO} == {"date64", "list", "lists of size 0"}


def test_dates_of_64_bits_become_timestamps(cell):
    source = column("date64")
    theirs = series(ad.from_arrow(source))
    assert theirs.dtype == pl.Datetime("ms")
    assert at(frames.first(theirs)) == at(source)
    cell("to", "temporal", "view")


def test_lists_become_large_ones(cell):
    source = column("list")
    theirs = series(ad.from_arrow(source))
    assert theirs.to_list() == source.to_pylist()
    back = frames.first(theirs)
    assert back.type == pa.large_list(pa.int64())
    assert at(back) != at(source)
    assert at(back.values) == at(source.values)
    cell("to", "lists", "copy", "of the offsets, which become 64-bit; the values are a view")


class TestQuirks:
    def test_rows_of_size_0_panic(self, cell):
        with pytest.raises(PANIC, match="offset of the new Buffer"):
            str(series(ad.from_dlpack(np.zeros((2, 0)))))
        cell("to", "size 0", "wrong", "rows of size 0 panic as soon as they are printed")

    def test_a_32_bit_decimal_in_a_frame_aborts(self, cell):
        code = """
import decimal, polars as pl, pyarrow as pa, arrow_dlpack as ad
source = pa.table({"x": pa.array([decimal.Decimal("1.5")], pa.decimal32(5, 1))})
frame = pl.DataFrame(SOURCE)
assert frame["x"].to_list() == [decimal.Decimal("1.5")]
print("made", flush=True)
pa.table(frame)
"""
        # Of pyarrow's own making as well.
        for source in ("ad.from_arrow(source)", "source.to_reader()", "source.to_batches()[0]"):
            done = script(code.replace("SOURCE", source))
            assert done.stdout == "made\n"
            assert done.returncode < 0
            assert "panic" in done.stderr
        cell("to", "decimal", "wrong", "a frame with 32-bit decimals aborts the process when it is exported again")

    def test_other_sizes_have_no_form(self):
        with pytest.raises(PANIC):
            series(ad.from_arrow(pa.RunEndEncodedArray.from_arrays([2], [1.5])))
        with pytest.raises(pl.exceptions.ComputeError, match="month_day_nano_interval"):
            series(ad.from_arrow(pa.array([(1, 2, 3)], pa.month_day_nano_interval())))


class TestWhatIsCalled:
    @pytest.mark.parametrize("read", [series, pl.from_arrow], ids=["Series", "from_arrow"])
    def test_arrays(self, read):
        spy = Spy(ad.to_arrow(np.arange(3)))
        assert read(spy).to_list() == [0, 1, 2]
        assert spy.calls == ["array()"]

    def test_frames(self, cell):
        batch = Spy(ad.from_arrow(pa.record_batch({"x": [1, 2]})))
        assert pl.DataFrame(batch).to_dict(as_series=False) == {"x": [1, 2]}
        assert batch.calls == ["array()"]
        stream = Spy(ad.from_arrow(pa.table({"x": [1, 2]})))
        assert pl.DataFrame(stream).to_dict(as_series=False) == {"x": [1, 2]}
        assert stream.calls == ["stream()"]
        # No device dunder and no requested_schema.
        cell("to", "device", "absent")

    def test_columns_make_no_frame(self):
        with pytest.raises(pl.exceptions.SchemaError, match="expected `Struct`"):
            pl.DataFrame(ad.to_arrow(np.arange(3)))


def test_batches_and_streams_go_there(cell):
    table = pa.table({"x": pa.chunked_array([[1, 2], [3]]), "f": pa.chunked_array([[1.5, None], [2.5]])})
    frame = pl.DataFrame(ad.from_arrow(table))
    assert frame.to_dict(as_series=False) == table.to_pydict()
    assert frame["x"].n_chunks() == 2
    assert [at(chunk) for chunk in pa.chunked_array(frame["x"]).chunks] == [at(chunk) for chunk in table["x"].chunks]
    cell("to", "stream", "view", "chunk by chunk")
    batch = table.to_batches()[0]
    frame = pl.DataFrame(ad.from_arrow(batch))
    assert at(frames.first(frame["x"])) == at(batch["x"])
    cell("to", "batch", "view")
    none = pl.DataFrame(ad.from_arrow(pa.Table.from_batches([], table.schema)))
    assert none.schema == {"x": pl.Int64, "f": pl.Float64}
    cell("to", "size 0", "view")


class TestTensorsGoThere:
    def test_rows(self, cell):
        source = np.arange(6.0).reshape(3, 2)
        theirs = series(ad.from_dlpack(source))
        assert at(frames.first(theirs)) == source.ctypes.data
        assert theirs.to_list() == source.tolist()
        rows = series(ad.to_arrow(source, type=pa.list_(pa.float64(), 2)))
        assert rows.dtype == pl.Array(pl.Float64, 2)
        assert rows.to_numpy().ctypes.data == source.ctypes.data
        cell("to", "fixed-size lists", "view")

    @pytest.mark.parametrize(
        ("part", "case"), [(slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")]
    )
    def test_strides(self, cell, part: slice, case: str):
        source = np.arange(6.0)[part]
        theirs = series(ad.from_dlpack(source))
        assert theirs.to_list() == source.tolist()
        assert theirs.to_numpy().ctypes.data != source.ctypes.data
        cell("to", case, "copy")

    def test_one_value(self, cell):
        source = np.array(5.0)
        theirs = series(ad.from_dlpack(source))
        assert theirs.to_list() == [5.0]
        assert theirs.to_numpy().ctypes.data == source.ctypes.data
        cell("to", "0-d", "view", "as a series of length 1")

    def test_bools(self, cell):
        source = np.array([True, False])
        assert series(ad.to_arrow(source, type=pa.bool_())).to_list() == [True, False]
        cell("to", "bool", "copy", "of a tensor as bits, on request")

    def test_read_only(self, cell):
        source = np.arange(3)
        theirs = series(ad.from_dlpack(source))
        assert theirs.to_numpy().ctypes.data == source.ctypes.data
        assert not theirs.to_numpy().flags.writeable
        # A write is a copy there.
        theirs[0] = 9
        assert theirs.to_list() == [9, 1, 2]
        assert source.tolist() == [0, 1, 2]
        cell("to", "read-only", "view", "a write makes a copy")

    def test_ragged_rows(self, cell):
        frames.ragged_goes(cell, series)

    def test_complex_numbers(self, cell):
        frames.complex_numbers(cell, "view", series)


class TestFromPolars:
    @pytest.mark.parametrize("name", NUMBERS)
    def test_numbers(self, cell, name: str):
        theirs = pl.Series("x", [1, 2, 3, 4], dtype=TYPES[name])
        comes(cell, "numbers", theirs, at(frames.first(theirs)), name, [1, 2, 3, 4])
        comes(cell, "numbers", theirs[1:3], at(frames.first(theirs)[1:]), name, [2, 3])

    def test_which_dunders(self, cell):
        assert dunders(pl.Series([1])) == {"stream"}
        assert dunders(pl.DataFrame({"x": [1]})) == {"stream"}
        assert dunders(pl.LazyFrame({"x": [1]})) == set()
        # It is read by collect_batches().
        assert pl.DataFrame(ad.from_arrow(pl.LazyFrame({"x": [1]}))).equals(pl.DataFrame({"x": [1]}))
        cell("from", "device", "absent")

    def test_requests_are_ignored(self):
        theirs = pl.DataFrame({"x": [1, 300]})
        for data_type in (pa.float32(), pa.int8(), pa.list_(pa.int8())):
            assert frames.asked(theirs, data_type).schema.field("x").type == pa.int64()
        # Through this package they are done, or an error.
        assert frames.asked(ad.from_arrow(theirs), pa.float32()).schema.field("x").type == pa.float32()
        with pytest.raises(ValueError, match=r'column "x", row 1: .*300'):
            frames.asked(ad.from_arrow(theirs), pa.int8())

    def test_a_stream_can_be_opened_again(self):
        theirs = pl.Series([1, 2])
        for _ in range(2):
            assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [1, 2]

    def test_bools(self, cell):
        theirs = pl.Series([True, False, True])[1:]
        assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [False, True]
        with pytest.raises(ad.CopyError):
            ad.to_tensor(theirs, copy=False)
        cell("from", "bool", "copy")

    def test_nulls(self, cell):
        theirs = pl.Series("n", [1, None, 3])
        with pytest.raises(ad.NullError, match='column "n", row 1'):
            ad.to_tensor(theirs)
        assert address(ad.to_tensor(theirs, nulls="keep", copy=False)) == at(frames.first(theirs))
        cell("from", "nulls", "view", 'under `nulls="keep"`, next to `validity`')
        assert np.from_dlpack(ad.validity(theirs)).tolist() == [True, False, True]
        # polars' own way makes floats of integers; these stay integers.
        filled = ad.to_tensor(theirs, nulls=-1)
        assert filled.dtype == "int64"
        assert np.from_dlpack(filled).tolist() == [1, -1, 3]
        cell("from", "nulls", "copy")
        # NaN is a value there, and no null.
        assert np.isnan(np.from_dlpack(ad.to_tensor(pl.Series([1.5, float("nan")]), copy=False))[1])

    @pytest.mark.parametrize(
        ("value", "kind", "dtype", "stored"),
        [
            (datetime.date(1970, 1, 2), pl.Date, "int32", 1),
            (datetime.time(0, 0, 1), pl.Time, "int64", 10**9),
            (datetime.datetime(1970, 1, 1, 0, 0, 1), pl.Datetime("ms"), "int64", 1000),
            (datetime.datetime(1970, 1, 1, 0, 0, 1), pl.Datetime("us"), "int64", 10**6),
            (datetime.datetime(1970, 1, 1, 0, 0, 1), pl.Datetime("ns"), "int64", 10**9),
            (datetime.timedelta(seconds=1), pl.Duration("us"), "int64", 10**6),
        ],
        ids=str,
    )
    def test_temporal(self, cell, value, kind, dtype: str, stored: int):
        theirs = pl.Series("t", [value], dtype=kind)
        tensor = comes(cell, "temporal", theirs, at(frames.first(theirs)), dtype, [stored])
        assert series(tensor).dtype == kind

    def test_time_zones(self, cell):
        theirs = pl.Series("t", [1, 2], dtype=pl.Int64).cast(pl.Datetime("us")).dt.replace_time_zone("Europe/Berlin")
        tensor = comes(
            cell, "temporal", theirs, at(frames.first(theirs)), "int64", [1 - 3600 * 10**6, 2 - 3600 * 10**6]
        )
        assert series(tensor).dtype == pl.Datetime("us", "Europe/Berlin")

    def test_fixed_size_lists(self, cell):
        theirs = pl.Series("p", np.arange(12, dtype="float32").reshape(3, 2, 2))
        where = theirs.to_numpy().ctypes.data
        comes(cell, "fixed-size lists", theirs, where, "float32", theirs.to_list())
        comes(cell, "fixed-size lists", theirs[1:], where + 16, "float32", theirs[1:].to_list())

    def test_decimals(self, cell):
        frames.decimals_come(cell, series(column("decimal128")))

    def test_enums(self, cell):
        theirs = pl.Series(["a", "b", "a"], dtype=pl.Enum(["b", "a"]))
        assert theirs.to_physical().dtype == pl.UInt8
        comes(cell, "dictionary", theirs, at(frames.first(theirs)), "uint8", [1, 0, 1], "the codes of an `Enum`")

    def test_categoricals(self, cell):
        theirs = pl.Series(["a", "b", "a"], dtype=pl.Categorical())
        codes = ad.to_tensor(theirs, copy=False)
        assert (codes.dtype, np.from_dlpack(codes).tolist()) == ("uint32", [0, 1, 0])
        # Each export numbers its categories anew.
        assert address(codes) != at(frames.first(theirs))
        cell("from", "dictionary", "copy", "the codes of a `Categorical`, which polars numbers anew for each export")

    def test_lists_and_strings(self, cell):
        frames.ragged_come(cell, "lists", pl.Series([[1], None, [2, 3]]))
        note = "strings are views there, which are gathered"
        frames.ragged_come(cell, "strings", pl.Series(["a", None, frames.LONG]), "copy", note)

    def test_small_floats(self, cell):
        frames.small_floats_pass(cell, "lost", pl.DataFrame, "as binary: polars has no binary of one width")

    def test_chunks(self, cell):
        theirs = pl.concat([pl.Series([1, 2]), pl.Series([3])], rechunk=False)
        assert theirs.n_chunks() == 2
        with pytest.raises(ad.CopyError):
            ad.to_tensor(theirs, copy=False)
        assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [1, 2, 3]
        cell("from", "stream", "copy", "chunks are joined; `rechunk` first, or read `from_arrow` chunk by chunk")
        parts = [ad.to_tensor(part, copy=False) for part in ad.from_arrow(theirs)]
        assert [address(part) for part in parts] == [at(chunk) for chunk in pa.chunked_array(theirs).chunks]
        cell("from", "stream", "view", "chunk by chunk")

    def test_frames(self, cell):
        frame = pl.DataFrame({"x": [1.5, 2.5], "n": [1, 2]})
        tensors = ad.to_tensors(frame, copy=False)
        assert {name: address(tensor) for name, tensor in tensors.items()} == {
            name: frame[name].to_numpy().ctypes.data for name in "xn"
        }
        cell("from", "batch", "view")
        assert [row.dtype for row in ad.explain(frame)] == ["float64", "int64"]

    def test_size_0(self, cell):
        comes(cell, "size 0", pl.Series([], dtype=pl.Int16), None, "int16", [])
        tensors = ad.to_tensors(pl.DataFrame({"x": [1.5]}).clear())
        assert tensors["x"].shape == (0,)
        assert ad.to_tensors(pl.DataFrame()) == {}

    def test_read_only(self, cell):
        tensor = ad.to_tensor(pl.Series([1, 2]))
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view")

    def test_reversed_and_strided_series_are_copies_there(self, cell):
        theirs = pl.Series(range(6))
        for part, case in ((slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")):
            taken = theirs[part]
            assert np.from_dlpack(ad.to_tensor(taken, copy=False)).tolist() == list(range(6))[part]
            assert not set(range(at(frames.first(theirs)), at(frames.first(theirs)) + 48)) & {at(frames.first(taken))}
            cell("from", case, "copy", "polars gathers the rows")

    def test_scalars_are_python_s(self, cell):
        assert dunders(pl.Series([1])[0]) == set()
        cell("from", "0-d", "absent")
