"""pandas: it reads Arrow through pyarrow into memory of its own; its columns are views on the way out."""

import arrow_dlpack as ad
import frames
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames import NUMBERS, Spy, at, column, comes, copy, dunders, goes, view
from helpers import address, flags

OBJECTS = "as Python objects"
NAN = "integers become float64, where a null is NaN"
TEMPORAL = "dates, times and time zones keep their meaning; dates and times are Python objects"

TO = {
    **{name: copy(name) for name in NUMBERS},
    "slice": copy("int32"),
    "bool": copy("bool"),
    "bool slice": copy("object", OBJECTS),
    "bool8": copy("int8", "`arrow.bool8` becomes its int8"),
    "int nulls": copy("float64", NAN),
    "float nulls": copy("float64"),
    "bool nulls": copy("object", OBJECTS),
    "null slice": copy("float64", NAN),
    "date32": copy("object", TEMPORAL),
    "date64": copy("object", TEMPORAL),
    "time32": copy("object", TEMPORAL),
    "time64": copy("object", TEMPORAL),
    "time64 ns": copy("object", TEMPORAL),
    "timestamp": copy("datetime64[us]", TEMPORAL),
    "timestamp s": copy("datetime64[s]", TEMPORAL),
    "timestamp tz": copy("datetime64[ns, Europe/Berlin]", TEMPORAL),
    "duration": copy("timedelta64[ms]", TEMPORAL),
    "decimal128": copy("object", OBJECTS),
    "decimal32": copy("object", OBJECTS),
    "dictionary": copy("category"),
    "number dictionary": copy("category"),
    "string": copy("str", "of offsets of 32 bits and of string views; the characters are a view otherwise"),
    "large string": view("str"),
    "string view": copy("str", "of offsets of 32 bits and of string views; the characters are a view otherwise"),
    "binary": copy("object", OBJECTS),
    "fixed-size binary": copy("object", OBJECTS),
    "list": copy("object", OBJECTS),
    "large list": copy("object", OBJECTS),
    "list view": copy("object", OBJECTS),
    "fixed-size list": copy("object", "as Python objects: their size is no longer known"),
    "fixed-size list slice": copy("object", "as Python objects: their size is no longer known"),
    "tensors": copy("object", "as Python objects: their size is no longer known"),
    "no rows": copy("int64"),
    "no rows of strings": copy("str"),
    "no rows of lists": copy("object", OBJECTS),
    "lists of size 0": copy("object", OBJECTS),
    "misaligned": copy("int64"),
}


def out(series: pd.Series) -> pa.Array:
    return frames.first(pa.chunked_array(series))


@pytest.mark.parametrize("name", frames.COLUMNS)
def test_columns_go_there(cell, name: str):
    goes(cell, name, TO[name], pd.Series.from_arrow, out, lambda x: str(x.dtype))


def test_characters_are_a_view():
    source = column("string")
    back = out(pd.Series.from_arrow(ad.from_arrow(source)))
    assert back.buffers()[2].address == source.buffers()[2].address


@pytest.mark.parametrize("name", frames.COLUMNS)
def test_columns_go_there_as_arrow(cell, name: str):
    """As the dtype that keeps Arrow memory, which pandas makes of pyarrow's arrays only."""
    data_type = pd.ArrowDtype(column(name).type)
    note = "as `ArrowDtype`: `pandas.Series(pyarrow.array(x), dtype=pandas.ArrowDtype(...))`"
    goes(cell, name, view(data_type, note), lambda ours: pd.Series(pa.array(ours), dtype=data_type), out)


class TestWhatIsCalled:
    def test_series_and_frames(self, cell):
        array = Spy(ad.to_arrow(np.arange(3)))
        assert pd.Series.from_arrow(array).tolist() == [0, 1, 2]
        batch = Spy(ad.from_arrow(pa.record_batch({"x": [1]})))
        assert pd.DataFrame.from_arrow(batch)["x"].tolist() == [1]
        # By way of pyarrow.
        assert array.calls == ["device_array(None)"]
        assert batch.calls == ["stream(None)"]
        stream = Spy(ad.from_arrow(pa.table({"x": [1]})))
        assert pd.DataFrame.from_arrow(stream)["x"].tolist() == [1]
        assert stream.calls == ["stream(None)"]
        cell("to", "device", "copy", "`Series.from_arrow` asks for the device array first, as pyarrow does")

    def test_constructors_ask_for_nothing(self, cell):
        array = Spy(ad.to_arrow(np.arange(3)))
        assert pd.Series(array).dtype == object
        with pytest.raises(ValueError, match="not properly called"):
            pd.DataFrame(Spy(ad.from_arrow(pa.record_batch({"x": [1]}))))
        assert array.calls == []
        # A stream is iterated over, which gives rows of batches.
        assert isinstance(pd.DataFrame(ad.from_arrow(pa.table({"x": [1, 2]}))).iloc[0, 0], ad.RecordBatch)
        cell("to", "stream", "wrong", "`DataFrame(stream)` has a row for each batch; `DataFrame.from_arrow` reads it")

    def test_columns_make_no_frame(self):
        with pytest.raises(pa.ArrowInvalid, match="non-struct"):
            pd.DataFrame.from_arrow(ad.to_arrow(np.arange(3)))


def test_batches_and_streams_go_there(cell):
    table = pa.table({"x": pa.chunked_array([[1, 2], [3]]), "f": pa.chunked_array([[1.5, None], [2.5]])})
    frame = pd.DataFrame.from_arrow(ad.from_arrow(table))
    assert frame["x"].tolist() == [1, 2, 3]
    cell("to", "stream", "copy", "chunks are joined")
    batch = table.to_batches()[0]
    frame = pd.DataFrame.from_arrow(ad.from_arrow(batch))
    assert frame["f"].isna().tolist() == [False, True]
    assert frame["x"].to_numpy().ctypes.data != at(batch["x"])
    cell("to", "batch", "copy")
    none = pd.DataFrame.from_arrow(ad.from_arrow(pa.Table.from_batches([], table.schema)))
    assert none.dtypes.map(str).to_dict() == {"x": "int64", "f": "float64"}
    cell("to", "size 0", "copy")


class TestTensorsGoThere:
    """The way without a copy is NumPy's."""

    def test_read_only_views(self, cell):
        tensor = ad.to_tensor(pa.array([1, 2, 3]))
        theirs = pd.Series(np.from_dlpack(tensor), copy=False)
        assert theirs.to_numpy().ctypes.data == address(tensor)
        with pytest.raises(ValueError, match="read-only"):
            theirs.iloc[0] = 5
        cell("to", "read-only", "view", "by `numpy.from_dlpack`")
        cell("to", "numbers", "view", "by `numpy.from_dlpack`")

    def test_frames_of_rows(self, cell):
        source = np.arange(6.0).reshape(3, 2)[::2]
        theirs = pd.DataFrame(np.from_dlpack(ad.from_dlpack(source)), copy=False)
        assert theirs.to_numpy().ctypes.data == source.ctypes.data
        cell("to", "strided", "view", "by `numpy.from_dlpack`")

    def test_the_buffer_protocol(self, cell):
        tensor = ad.to_tensor(pa.array([1, 2, 3]))
        theirs = pd.Series(np.asarray(memoryview(tensor)), copy=False)
        assert theirs.to_numpy().ctypes.data == address(tensor)
        cell("to", "buffer protocol", "view", "by `numpy.asarray`")

    def test_ragged_rows(self, cell):
        frames.ragged_goes(cell, pd.Series.from_arrow, out)

    def test_one_value(self, cell):
        assert pd.Series.from_arrow(ad.from_dlpack(np.array(5.0))).tolist() == [5]
        cell("to", "0-d", "copy", "as a series of length 1")

    def test_complex_numbers(self, cell):
        source = np.array([1j, 2])
        theirs = pd.Series(np.from_dlpack(ad.from_dlpack(source)), copy=False)
        assert theirs.to_numpy().ctypes.data == source.ctypes.data
        cell("to", "complex", "view", "by `numpy.from_dlpack`")


class TestFromPandas:
    @pytest.mark.parametrize("name", NUMBERS)
    def test_numbers(self, cell, name: str):
        theirs = pd.Series([1, 2, 3, 4], dtype=name)
        comes(cell, "numbers", theirs, theirs.to_numpy().ctypes.data, name, [1, 2, 3, 4])
        part = theirs[1:3]
        comes(cell, "numbers", part, part.to_numpy().ctypes.data, name, [2, 3])
        if name == "float16":
            return
        nullable = pd.Series([1, 2], dtype=name.replace("int", "Int").replace("uI", "UI").replace("float", "Float"))
        comes(cell, "numbers", nullable, nullable.to_numpy().ctypes.data, name, [1, 2])

    def test_which_dunders(self, cell):
        assert dunders(pd.Series([1])) == dunders(pd.DataFrame({"x": [1]})) == {"stream"}
        for x in (pd.Index([1]), pd.Series([1]).array, pd.array([1], dtype="Int64")):
            assert dunders(x) == set()
            with pytest.raises(TypeError, match="expected Arrow data"):
                ad.from_arrow(x)
        cell("from", "device", "absent")

    def test_bools(self, cell):
        for theirs in (pd.Series([True, False]), pd.Series([True, False], dtype="boolean")):
            # pandas packs its bytes into bits, and they are unpacked again.
            assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [True, False]
            with pytest.raises(ad.CopyError):
                ad.to_tensor(theirs, copy=False)
        cell("from", "bool", "copy", "pandas packs its bytes; `to_tensor(series.to_numpy())` is a view")
        theirs = pd.Series([True, False])
        assert address(ad.from_dlpack(theirs.to_numpy())) == theirs.to_numpy().ctypes.data

    @pytest.mark.parametrize("dtype", ["Int64", "Float64", "int64[pyarrow]"])
    def test_nulls(self, cell, dtype: str):
        theirs = pd.Series([1, None, 3], dtype=dtype)
        with pytest.raises(ad.NullError):
            ad.to_tensor(theirs)
        kept = ad.to_tensor(theirs, nulls="keep", copy=False)
        assert address(kept) == at(out(theirs))
        cell("from", "nulls", "view", 'nullable dtypes, under `nulls="keep"`')
        assert np.from_dlpack(ad.to_tensor(theirs, nulls=-1)).tolist() == [1, -1, 3]
        assert np.from_dlpack(ad.validity(theirs)).tolist() == [True, False, True]
        cell("from", "nulls", "copy")

    def test_nan_is_a_null_there(self, cell):
        theirs = pd.Series([1.5, np.nan])
        with pytest.raises(ad.NullError, match="row 1"):
            ad.to_tensor(theirs)
        # The value under the null is the NaN still.
        kept = ad.to_tensor(theirs, nulls="keep", copy=False)
        assert address(kept) == theirs.to_numpy().ctypes.data
        assert np.isnan(np.from_dlpack(kept)[1])
        cell(
            "from",
            "nulls",
            "view",
            'NaN is a null: `nulls="nan"` gives NaN; `nulls="keep"` gives it back in a view alone',
        )

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
    def test_temporal(self, cell, kind: str, unit: str):
        theirs = pd.Series(np.array([1, 2], f"{kind}[{unit}]"))
        comes(cell, "temporal", theirs, theirs.to_numpy().ctypes.data, "int64", [1, 2])
        with pytest.raises(ad.NullError):
            ad.to_tensor(pd.Series(np.array([1, "NaT"], f"{kind}[{unit}]")))

    def test_time_zones_and_periods(self, cell):
        theirs = pd.Series(pd.DatetimeIndex(np.array([1, 2], "datetime64[ns]"), tz="UTC").tz_convert("Asia/Tokyo"))
        tensor = comes(cell, "temporal", theirs, at(out(theirs)), "int64", [1, 2])
        assert pd.Series.from_arrow(tensor).dtype == theirs.dtype
        # An extension type of pandas, which acts as its storage.
        periods = pd.Series(pd.period_range("1970-01-02", periods=2, freq="D"))
        comes(cell, "temporal", periods, None, "int64", [1, 2])

    def test_decimals(self, cell):
        frames.decimals_come(cell, pd.Series(column("decimal128").to_pandas()))

    def test_dictionaries(self, cell):
        theirs = pd.Series(["b", "a", "b", None], dtype="category")
        with pytest.raises(ad.NullError, match="row 3"):
            ad.to_tensor(theirs)
        theirs = theirs[:3]
        comes(cell, "dictionary", theirs, theirs.array.codes.ctypes.data, "int8", [1, 0, 1], "the codes")

    def test_lists_and_strings(self, cell):
        frames.ragged_come(cell, "strings", pd.Series(["a", None, frames.LONG]))
        arrow = pd.Series(column("list"), dtype=pd.ArrowDtype(column("list").type))
        frames.ragged_come(cell, "lists", arrow, note="of an `ArrowDtype`")
        objects = out(pd.Series([[1], None, [2, 3]]))
        frames.ragged_come(cell, "lists", objects)
        cell("from", "lists", "copy", "of Python objects: pyarrow makes a list array of them")

    def test_small_floats(self, cell):
        frames.small_floats_pass(cell, "lost", pd.DataFrame.from_arrow, "as Python bytes")

    def test_reversed_and_strided_series(self, cell):
        whole = pd.Series(range(6))
        for part, case in ((slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")):
            theirs = whole[part]
            assert theirs.to_numpy().base is not None
            tensor = ad.to_tensor(theirs)
            assert np.from_dlpack(tensor).tolist() == theirs.tolist()
            assert address(tensor) != theirs.to_numpy().ctypes.data
            cell("from", case, "copy", "by pandas; `to_tensor(series.to_numpy())` is a view")
            assert address(ad.from_dlpack(theirs.to_numpy())) == theirs.to_numpy().ctypes.data

    def test_columns_of_a_block(self, cell):
        # One block of memory, row by row there: each column is compact.
        frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
        tensors = ad.to_tensors(frame, copy=False)
        assert {name: address(tensor) for name, tensor in tensors.items()} == {
            name: frame[name].to_numpy().ctypes.data for name in "ab"
        }
        cell("from", "batch", "view")
        # Rows of a matrix: each column is strided, and is gathered by pandas.
        rows = pd.DataFrame(np.arange(6.0).reshape(3, 2), copy=False)
        assert rows[0].to_numpy().strides == (16,)
        tensors = ad.to_tensors(rows)
        assert np.from_dlpack(tensors["1"]).tolist() == [1, 3, 5]
        assert address(tensors["0"]) != rows[0].to_numpy().ctypes.data
        cell("from", "batch", "copy", "a frame over a row-major matrix: pandas gathers each column")

    def test_the_index(self):
        # It is exported as a column, unless it is a range, and is one for us only where it is named.
        frame = pd.DataFrame({"x": [1, 2]}, index=pd.Index([5, 9], name="key"))
        assert list(ad.to_tensors(frame)) == list(ad.to_tensors(frame.rename_axis(None))) == ["x"]
        assert np.from_dlpack(ad.to_tensors(frame, columns=["key"])["key"]).tolist() == [5, 9]
        # Of a frame that is only its index nothing comes.
        assert ad.to_tensors(pd.DataFrame({"x": [1, 2]}).set_index("x")) == {}

    def test_requests(self):
        theirs = pd.DataFrame({"x": [1, 300]})
        assert frames.asked(theirs, pa.float32()).to_pydict() == {"x": [1, 300]}
        with pytest.raises(pa.ArrowInvalid, match="300 not in range"):
            frames.asked(theirs, pa.int8())
        with pytest.raises(KeyError, match="not found in the columns"):
            frames.asked(theirs, pa.int64(), "y")

    def test_names(self):
        assert list(ad.to_tensors(pd.DataFrame([[1, 2]]))) == ["0", "1"]
        assert list(ad.to_tensors(pd.DataFrame({("a", "b"): [1]}))) == ["('a', 'b')"]
        with pytest.raises(ValueError, match="Duplicate column names"):
            ad.to_tensors(pd.DataFrame([[1, 2]], columns=["a", "a"]))

    def test_size_0(self, cell):
        comes(cell, "size 0", pd.Series([], dtype="int16"), None, "int16", [])
        assert ad.to_tensors(pd.DataFrame({"x": [1.5]})[:0])["x"].shape == (0,)

    def test_read_only(self, cell):
        tensor = ad.to_tensor(pd.Series([1, 2]))
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view")

    def test_chunks(self, cell):
        theirs = pd.Series(pa.chunked_array([[1, 2], [3]]), dtype="int64[pyarrow]")
        assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [1, 2, 3]
        with pytest.raises(ad.CopyError):
            ad.to_tensor(theirs, copy=False)
        cell("from", "stream", "copy", "chunks of an `ArrowDtype` are joined")

    def test_what_pyarrow_refuses(self, cell):
        for theirs in (pd.Series([1, "a"]), pd.Series([1j])):
            with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
                ad.to_tensor(theirs)
        assert ad.from_dlpack(pd.Series([1j]).to_numpy()).dtype == "complex128"
        cell("from", "complex", "refused", "by pyarrow; `to_tensor(series.to_numpy())` is a view")
        with pytest.raises(pa.ArrowNotImplementedError, match="Byte-swapped"):
            ad.to_tensor(pd.Series(np.array([1], ">i4")))
