"""arro3: Rust's arrow, which applies offsets to pointers and realigns by a copy; its dunders have no device form."""

import arro3.core as a3
import arrow_dlpack as ad
import frames
import numpy as np
import pyarrow as pa
import pytest
from frames import NUMBERS, Spy, at, column, comes, copy, dunders, goes, view
from helpers import address, flags


@pytest.mark.parametrize("name", frames.COLUMNS)
def test_columns_go_there(cell, name: str):
    expected = copy if name == "misaligned" else view
    note = "realigned without a word" if name == "misaligned" else ""
    data_type = a3.DataType.from_arrow(frames.storage(column(name)).type)
    goes(cell, name, expected(data_type, note), a3.Array.from_arrow, pa.array, lambda x: x.type)


class TestWhatIsCalled:
    """No argument is ever given: no request."""

    def test_arrays(self, cell):
        spy = Spy(ad.to_arrow(np.arange(3)))
        a3.Array.from_arrow(spy)
        a3.ChunkedArray.from_arrow(spy)
        a3.Field.from_arrow(spy)
        assert spy.calls == ["array()", "array()", "schema()"]
        cell("to", "device", "absent")

    def test_streams(self):
        for read in (a3.Table.from_arrow, lambda x: a3.RecordBatchReader.from_arrow(x).read_all()):
            spy = Spy(ad.from_arrow(pa.table({"x": [1, 2]})))
            assert read(spy).num_rows == 2
            assert spy.calls == ["stream()"]
        spy = Spy(ad.from_arrow(pa.chunked_array([[1], [2]])))
        assert a3.ArrayReader.from_arrow(spy).read_all().num_chunks == 2
        assert spy.calls == ["stream()"]

    def test_columns_are_no_table(self):
        for read in (a3.RecordBatch.from_arrow, a3.Table.from_arrow):
            with pytest.raises(ValueError, match="Float64"):
                read(ad.to_arrow(np.arange(3.0)))


class TestRequestedSchema:
    def test_ours_is_a_value_or_an_error(self):
        request = a3.DataType.int8().__arrow_c_schema__()
        with pytest.raises(ValueError, match="1000"):
            ad.to_arrow(np.array([1000])).__arrow_c_array__(request)

    def test_theirs_makes_nulls(self, cell):
        theirs = a3.Array([1000, 2], a3.DataType.int32())
        # What does not fit becomes null, and what cannot be cast is ignored, both in silence.
        assert pa.array(theirs, pa.int8()).to_pylist() == [None, 2]
        schema, _ = theirs.__arrow_c_array__(pa.struct({"a": pa.int8()}).__arrow_c_schema__())
        assert a3.Field.from_arrow_pycapsule(schema).type == a3.DataType.int32()
        cell("from", "nulls", "wrong", "a request makes nulls of what does not fit; this package never makes one")
        # Names are those of the request, whatever the columns are.
        table = a3.Table.from_arrow(pa.table({"x": [1, 300]}))
        assert frames.asked(table, pa.int64(), "y").to_pydict() == {"y": [1, 300]}
        with pytest.raises(ad.CastError, match=r'has the fields \["y"\], and the data has \["x"\]'):
            frames.asked(ad.from_arrow(table), pa.int64(), "y")


def test_batches_and_streams_go_there(cell):
    table = pa.table({"x": pa.chunked_array([[1, 2], [3]]), "s": pa.chunked_array([["a", None], ["b"]])})
    theirs = a3.Table.from_arrow(ad.from_arrow(table))
    assert pa.table(theirs).equals(table)
    assert [at(chunk) for chunk in pa.table(theirs)["x"].chunks] == [at(chunk) for chunk in table["x"].chunks]
    cell("to", "stream", "view")
    batch = table.to_batches()[0]
    theirs = a3.RecordBatch.from_arrow(ad.from_arrow(batch))
    assert at(pa.record_batch(theirs)["x"]) == at(batch["x"])
    cell("to", "batch", "view")
    none = a3.Table.from_arrow(ad.from_arrow(pa.Table.from_batches([], table.schema)))
    assert (none.num_rows, none.column_names) == (0, ["x", "s"])
    cell("to", "size 0", "view")


class TestTensorsGoThere:
    @pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2), ()], ids=str)
    def test_rows(self, cell, shape: tuple[int, ...]):
        source = np.arange(float(np.prod(shape))).reshape(shape)
        theirs = a3.Array.from_arrow(ad.from_dlpack(source))
        assert len(theirs) == (shape or (1,))[0]
        assert at(pa.array(theirs)) == source.ctypes.data
        case = {0: "0-d", 1: "numbers"}.get(len(shape), "fixed-size lists")
        cell("to", case, "view", "as an array of length 1" if case == "0-d" else "")

    @pytest.mark.parametrize(
        ("part", "case"), [(slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")]
    )
    def test_strides(self, cell, part: slice, case: str):
        source = np.arange(6.0)[part]
        theirs = pa.array(a3.Array.from_arrow(ad.from_dlpack(source)))
        assert theirs.to_pylist() == source.tolist()
        assert at(theirs) != source.ctypes.data
        cell("to", case, "copy")

    def test_ragged_rows(self, cell):
        frames.ragged_goes(cell, a3.Array.from_arrow, pa.array)

    def test_bools(self, cell):
        source = np.array([True, False])
        theirs = a3.Array.from_arrow(ad.from_dlpack(source))
        assert theirs.field.metadata_str["ARROW:extension:name"] == "arrow.bool8"
        bits = a3.Array.from_arrow(ad.to_arrow(source, type=a3.DataType.bool()))
        assert bits == a3.Array([True, False], a3.DataType.bool())
        cell("to", "bool", "copy", "of a tensor as bits, on request")

    def test_read_only(self, cell):
        tensor = ad.to_tensor(pa.array([1, 2, 3]))
        back = ad.to_tensor(a3.Array.from_arrow(tensor))
        assert address(back) == address(tensor)
        assert not back.writable
        cell("to", "read-only", "view")

    def test_the_buffer_protocol(self, cell):
        tensor = ad.to_tensor(pa.array([1, 2, 3]))
        theirs = a3.Array.from_buffer(tensor)
        assert address(ad.to_tensor(theirs)) == address(tensor)
        cell("to", "buffer protocol", "view")

    def test_complex_numbers(self, cell):
        frames.complex_numbers(cell, "view", a3.Array.from_arrow, pa.array)


class TestFromArro3:
    @pytest.mark.parametrize("name", NUMBERS)
    def test_numbers(self, cell, name: str):
        theirs = a3.Array.from_arrow(pa.array([1, 2, 3], getattr(pa, name)()))
        where = at(pa.array(theirs))
        comes(cell, "numbers", theirs, where, name, [1, 2, 3])
        comes(cell, "numbers", theirs.slice(1, 2), at(pa.array(theirs)[1:]), name, [2, 3])

    def test_which_dunders(self, cell):
        table = a3.Table.from_arrow(pa.table({"x": [1]}))
        assert dunders(a3.Array([1], a3.DataType.int8())) == {"schema", "array"}
        assert dunders(table) == dunders(table.to_reader()) == dunders(table["x"]) == {"schema", "stream"}
        assert dunders(table.to_batches()[0]) == {"schema", "array"}
        cell("from", "device", "absent")
        # They tell their schema, so that they can be explained.
        assert ad.explain(table)["x"].dtype == "int64"

    def test_bools(self, cell):
        theirs = a3.Array([True, False, True], a3.DataType.bool()).slice(1, 2)
        assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [False, True]
        with pytest.raises(ad.CopyError):
            ad.to_tensor(theirs, copy=False)
        cell("from", "bool", "copy")

    def test_nulls(self, cell):
        theirs = a3.Array([1, None, 3], a3.DataType.int32())
        with pytest.raises(ad.NullError):
            ad.to_tensor(theirs)
        assert address(ad.to_tensor(theirs, nulls="keep", copy=False)) == at(pa.array(theirs))
        cell("from", "nulls", "view", 'under `nulls="keep"`, next to `validity`')
        assert np.from_dlpack(ad.to_tensor(theirs, nulls=0)).tolist() == [1, 0, 3]
        assert np.from_dlpack(ad.validity(theirs)).tolist() == [True, False, True]
        cell("from", "nulls", "copy")

    @pytest.mark.parametrize("name", [name for name, (case, _) in frames.COLUMNS.items() if case == "temporal"])
    def test_temporal(self, cell, name: str):
        source = column(name)
        dtype = "int32" if source.type.bit_width == 32 else "int64"
        theirs = a3.Array.from_arrow(source)
        comes(cell, "temporal", theirs, at(source), dtype, source.cast(dtype).to_pylist())

    def test_fixed_size_lists(self, cell):
        source = column("fixed-size list slice")
        comes(cell, "fixed-size lists", a3.Array.from_arrow(source), at(source), "int32", [[3, 4], [5, 6]])
        tensors = column("tensors")
        theirs = a3.Array.from_arrow(tensors)
        comes(cell, "fixed-size lists", theirs, at(tensors), "float32", [[[1, 2], [3, 4]]])

    def test_decimals_and_dictionaries(self, cell):
        frames.decimals_come(cell, a3.Array.from_arrow(column("decimal128")))
        theirs = a3.Array.from_arrow(column("dictionary"))
        comes(cell, "dictionary", theirs, at(pa.array(theirs)), "int32", [0, 1, 0], "the codes")
        frames.small_floats_pass(cell, "view", a3.Table.from_arrow, "fixed-size binary with an extension name")

    def test_lists_and_strings(self, cell):
        frames.ragged_come(cell, "strings", a3.Array.from_arrow(column("string")))
        frames.ragged_come(cell, "lists", a3.Array.from_arrow(column("list")))
        views = a3.Array.from_arrow(column("string view"))
        frames.ragged_come(cell, "strings", views, "copy", "views of strings are gathered")

    def test_batches_and_streams(self, cell):
        batch = a3.RecordBatch.from_arrow(pa.record_batch({"x": [1, 2], "f": [1.5, 2.5]}))
        tensors = ad.to_tensors(batch, copy=False)
        arrays = {name: at(pa.array(batch[name])) for name in "xf"}
        assert {name: address(tensor) for name, tensor in tensors.items()} == arrays
        cell("from", "batch", "view")
        table = a3.Table.from_batches([batch, batch])
        assert np.from_dlpack(ad.to_tensors(table)["x"]).tolist() == [1, 2, 1, 2]
        cell("from", "stream", "copy", "chunks are joined")
        assert [address(ad.to_tensor(one["x"], copy=False)) for one in ad.from_arrow(table)] == [arrays["x"]] * 2
        cell("from", "stream", "view", "batch by batch")

    def test_a_reader_is_read_once(self):
        reader = a3.Table.from_arrow(pa.table({"x": [1, 2]})).to_reader()
        assert ad.explain(reader)["x"].dtype == "int64"
        assert np.from_dlpack(ad.to_tensors(reader)["x"]).tolist() == [1, 2]
        with pytest.raises((OSError, ValueError)):
            ad.to_tensors(reader)

    def test_size_0(self, cell):
        comes(cell, "size 0", a3.Array([], a3.DataType.int16()), None, "int16", [])
        comes(cell, "size 0", a3.Array.from_arrow(column("lists of size 0")), None, "int32", [[], []])

    def test_read_only(self, cell):
        tensor = ad.to_tensor(a3.Array([1, 2], a3.DataType.int8()))
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view")

    def test_scalars(self, cell):
        theirs = a3.Array([1, 2], a3.DataType.int32())
        scalar = theirs[1]
        assert dunders(scalar) == {"array"}
        comes(cell, "0-d", scalar, at(pa.array(theirs)) + 4, "int32", [2], "a scalar is an array of length 1")

    def test_the_buffer_protocol(self, cell):
        buffer = a3.Buffer(np.array([1, 2], "int32").tobytes())
        assert dunders(buffer) == set()
        with pytest.raises(TypeError, match="Buffer"):
            ad.to_tensor(buffer)
        assert np.frombuffer(buffer, "int32").tolist() == [1, 2]
        cell("from", "buffer protocol", "refused", "a buffer has no dunder; `np.frombuffer` reads it")
