"""nanoarrow: every layout is a view both ways, and its arrays on a device speak the device dunder without keywords."""

import arrow_dlpack as ad
import frames
import nanoarrow as na
import numpy as np
import pyarrow as pa
import pytest
from frames import NUMBERS, Spy, at, column, comes, dunders, goes, view
from helpers import address, flags, script
from nanoarrow.device import c_device_array


@pytest.mark.parametrize("name", [name for name in frames.COLUMNS if name != "string view"])
def test_columns_go_there(cell, name: str):
    goes(cell, name, view(), na.c_array, pa.array)
    if name not in ("decimal32", "list view"):
        # Its enumeration of types lacks these two, though its structs carry them.
        goes(cell, name, view(column(name).type), na.Array, type_of=lambda x: pa.field(x.schema).type)


class TestQuirks:
    @pytest.mark.parametrize("source", ["theirs", "ad.from_arrow(theirs)"], ids=["pyarrow", "ours"])
    def test_string_views_crash(self, cell, source: str):
        code = f"""
import nanoarrow as na, pyarrow as pa, arrow_dlpack as ad
theirs = pa.array(["a"], pa.string_view())
struct = na.c_array({source})
assert struct.length == 1
print("read", flush=True)
struct.__arrow_c_array__()
"""
        done = script(code)
        assert done.stdout == "read\n"
        assert done.returncode < 0
        cell("to", "strings", "wrong", "it takes string views, and crashes the process as soon as it gives them on")

    def test_types_it_does_not_know(self, cell):
        for name in ("decimal32", "list view"):
            array = na.Array(ad.from_arrow(column(name)))
            assert len(array) == len(column(name))
            with pytest.raises((KeyError, ValueError)):
                array.to_pylist()
        cell("to", "decimal", "view", "of 32 bits it carries, but cannot read")
        cell("to", "lists", "view", "views of lists it carries, but cannot read")

    def test_its_own_dlpack_ignores_types_and_nulls(self, cell):
        """`CBufferView` has a legacy capsule of the buffer: no offset, no validity, no name of the type."""
        source = na.c_array(pa.array([5, 6, None, 8], pa.timestamp("ns"))[1:])
        buffer = source.view().buffer(1)
        assert dunders(buffer) == {"dlpack", "dlpack_device"}
        tensor = ad.to_tensor(buffer)
        assert tensor.dtype == "int64"
        assert np.from_dlpack(tensor)[:2].tolist() == [5, 6]
        assert not tensor.writable
        cell("from", "nulls", "wrong", "`CBufferView.__dlpack__` ignores offset and validity; arrays do not")
        # The array itself is right.
        assert np.from_dlpack(ad.to_tensor(source, nulls=0)).tolist() == [6, 0, 8]
        with pytest.raises(TypeError, match="max_version"):
            buffer.__dlpack__(max_version=(1, 0))
        with pytest.raises(ValueError, match="DLPack"):
            na.c_array(pa.array([True])).view().buffer(1).__dlpack__()

    def test_its_import_of_dlpack(self, cell):
        source = np.arange(3, dtype="int32")
        spy = Spy(ad.from_dlpack(source))
        assert np.frombuffer(na.c_buffer(spy), "int32").ctypes.data == source.ctypes.data
        assert spy.calls == ["dlpack(stream=None)"]
        # It takes a legacy capsule, which cannot say that memory is read-only: that is copied.
        read_only = ad.to_tensor(pa.array([1, 2, 3]))
        with ad.track_copies() as log:
            buffer = na.c_buffer(Spy(read_only))
        assert log.bytes == 24
        assert np.frombuffer(buffer, "int64").tolist() == [1, 2, 3]
        assert np.frombuffer(buffer, "int64").ctypes.data != address(read_only)
        cell("to", "read-only", "copy", "by `c_buffer`, which takes a legacy DLPack capsule")


class TestWhatIsCalled:
    def test_arrays(self):
        spy = Spy(ad.to_arrow(np.arange(3)))
        assert na.c_array(spy).length == 3
        assert na.Array(spy).to_pylist() == [0, 1, 2]
        assert na.c_schema(spy).format == "l"
        assert spy.calls == ["array(requested_schema=None)"] * 2 + ["schema()"]

    def test_streams(self):
        spy = Spy(ad.from_arrow(pa.chunked_array([[1, 2], [3]])))
        assert na.Array(spy).to_pylist() == [1, 2, 3]
        assert spy.calls == ["stream(requested_schema=None)"]

    def test_devices(self, cell):
        source = np.arange(3.0)
        spy = Spy(ad.from_dlpack(source))
        theirs = c_device_array(spy)
        assert spy.calls == ["device_array(requested_schema=None)"]
        assert (theirs.device_type_id, theirs.device_id) == (1, -1)
        assert theirs.array.buffers[1] == source.ctypes.data
        cell("to", "device", "view", "by `nanoarrow.device.c_device_array`")

    def test_requests(self):
        spy = Spy(ad.to_arrow(np.arange(3)))
        assert na.Array(spy, na.float32()).to_pylist() == [0, 1, 2]
        assert spy.calls == ["array(requested_schema=capsule)"]
        with pytest.raises(ValueError, match="300"):
            na.c_array(ad.to_arrow(np.array([300])), na.int8())
        # It has none to give itself.
        with pytest.raises(NotImplementedError, match="requested_schema"):
            na.c_array([1], na.int32()).__arrow_c_array__(requested_schema=na.int64().__arrow_c_schema__())


def test_batches_and_streams_go_there(cell):
    table = pa.table({"x": pa.chunked_array([[1, 2], [3]]), "s": pa.chunked_array([["a", None], ["b"]])})
    theirs = list(na.ArrayStream(ad.from_arrow(table)).iter_chunks())
    assert [chunk.to_pylist() for chunk in theirs] == [batch.to_pylist() for batch in table.to_batches()]
    where = [next(iter(chunk.iter_chunk_views())).child(0).buffer(1) for chunk in theirs]
    assert [np.from_dlpack(buffer).ctypes.data for buffer in where] == [at(chunk) for chunk in table["x"].chunks]
    cell("to", "stream", "view")
    batch = table.to_batches()[0]
    struct = na.c_array(ad.from_arrow(batch))
    assert struct.child(0).buffers[1] == at(batch["x"])
    cell("to", "batch", "view")
    assert len(na.ArrayStream(ad.from_arrow(pa.Table.from_batches([], table.schema))).read_all()) == 0
    cell("to", "size 0", "view")


class TestTensorsGoThere:
    @pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2), ()], ids=str)
    def test_rows(self, cell, shape: tuple[int, ...]):
        source = np.arange(float(np.prod(shape))).reshape(shape)
        struct = na.c_array(ad.from_dlpack(source))
        assert struct.length == (shape or (1,))[0]
        leaf = struct.child(0) if len(shape) > 1 else struct
        assert leaf.buffers[1] == source.ctypes.data
        case = {0: "0-d", 1: "numbers"}.get(len(shape), "fixed-size lists")
        cell("to", case, "view", "as an array of length 1" if case == "0-d" else "")

    @pytest.mark.parametrize(
        ("part", "case"), [(slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")]
    )
    def test_strides(self, cell, part: slice, case: str):
        source = np.arange(6.0)[part]
        struct = na.c_array(ad.from_dlpack(source))
        assert na.Array(struct).to_pylist() == source.tolist()
        assert struct.buffers[1] != source.ctypes.data
        cell("to", case, "copy")

    def test_ragged_rows(self, cell):
        frames.ragged_goes(cell, na.c_array, pa.array)

    def test_the_buffer_protocol(self, cell):
        tensor = ad.to_tensor(pa.array([1, 2, 3]))
        buffer = na.c_buffer(memoryview(tensor))
        assert np.frombuffer(buffer, "int64").ctypes.data == address(tensor)
        cell("to", "buffer protocol", "view")

    def test_read_only(self, cell):
        tensor = ad.to_tensor(pa.array([1, 2, 3]))
        buffer = na.c_array(tensor).view().buffer(1)
        array = np.from_dlpack(buffer)
        assert array.ctypes.data == address(tensor)
        assert not array.flags.writeable
        cell("to", "read-only", "view")

    def test_complex_numbers(self, cell):
        frames.complex_numbers(cell, "view", na.c_array, pa.array)


MAKERS = {"c_array": na.c_array, "Array": na.Array, "stream": na.ArrayStream}


class TestFromNanoarrow:
    @pytest.mark.parametrize("name", NUMBERS)
    @pytest.mark.parametrize("make", MAKERS)
    def test_numbers(self, cell, make: str, name: str):
        struct = na.c_array([1, 2, 3], getattr(na, name)())
        comes(cell, "numbers", MAKERS[make](struct), struct.buffers[1], name, [1, 2, 3])

    def test_which_dunders(self, cell):
        assert dunders(na.Array([1], na.int32())) == {"array", "stream"}
        assert dunders(na.c_array([1], na.int32())) == {"array"}
        device = c_device_array(na.c_array([1], na.int32()))
        assert dunders(device) == {"array", "device_array"}
        # It takes no keywords, not even one that is None.
        with pytest.raises(TypeError, match="unexpected keyword"):
            device.__arrow_c_device_array__(requested_device=None)
        spy = Spy(device)
        assert np.from_dlpack(ad.to_tensor(spy)).tolist() == [1]
        assert spy.calls == ["device_array()"]
        cell("from", "device", "view", "`CDeviceArray` only, whose dunder takes no keywords")

    def test_bools(self, cell):
        theirs = na.c_array([True, False, True], na.bool_())
        assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [True, False, True]
        with pytest.raises(ad.CopyError):
            ad.to_tensor(theirs, copy=False)
        cell("from", "bool", "copy")

    @pytest.mark.parametrize("null_count", [-1, 1])
    def test_nulls(self, cell, null_count: int):
        buffers = [b"\x05", np.array([1, 2, 3], "int32")]
        theirs = na.c_array_from_buffers(na.int32(), 3, buffers, null_count=null_count)
        with pytest.raises(ad.NullError):
            ad.to_tensor(theirs)
        assert address(ad.to_tensor(theirs, nulls="keep", copy=False)) == theirs.buffers[1]
        cell("from", "nulls", "view", 'under `nulls="keep"`, next to `validity`')
        assert np.from_dlpack(ad.to_tensor(theirs, nulls=0)).tolist() == [1, 0, 3]
        assert np.from_dlpack(ad.validity(theirs)).tolist() == [True, False, True]
        cell("from", "nulls", "copy")

    def test_temporal(self, cell):
        for kind, dtype in ((na.date32(), "int32"), (na.timestamp("us", "UTC"), "int64"), (na.duration("ms"), "int64")):
            theirs = na.c_array_from_buffers(kind, 2, [None, np.array([1, 2], dtype)])
            comes(cell, "temporal", theirs, theirs.buffers[1], dtype, [1, 2])

    def test_fixed_size_lists(self, cell):
        theirs = na.c_array(pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))[1:])
        assert theirs.offset == 1
        comes(cell, "fixed-size lists", theirs, theirs.child(0).buffers[1] + 8, "int32", [[3, 4], [5, 6]])

    def test_decimals_and_dictionaries(self, cell):
        frames.decimals_come(cell, na.c_array(column("decimal128")))
        theirs = na.c_array(column("dictionary"))
        comes(cell, "dictionary", theirs, theirs.buffers[1], "int32", [0, 1, 0], "the codes")
        frames.small_floats_pass(cell, "view", na.c_array_stream, "fixed-size binary with an extension name")

    def test_lists_and_strings(self, cell):
        frames.ragged_come(cell, "strings", na.c_array(column("string")))
        frames.ragged_come(cell, "lists", na.c_array(column("list")))

    def test_misaligned(self, cell):
        theirs = na.c_array_from_buffers(na.int32(), 2, [None, memoryview(np.arange(12, dtype="u1").tobytes())[1:9]])
        if theirs.buffers[1] % 4 == 0:
            pytest.fail("the memory was to be misaligned")
        with pytest.raises(ad.CopyError):
            ad.to_tensor(theirs, copy=False)
        assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [0x04030201, 0x08070605]
        cell("from", "misaligned", "copy")

    def test_batches_and_streams(self, cell):
        struct = na.c_array(pa.record_batch({"x": [1, 2], "f": [1.5, 2.5]}))
        tensors = ad.to_tensors(struct, copy=False)
        assert {name: address(one) for name, one in tensors.items()} == {
            "x": struct.child(0).buffers[1],
            "f": struct.child(1).buffers[1],
        }
        cell("from", "batch", "view")
        chunks = [na.c_array([1, 2], na.int16()), na.c_array([3], na.int16())]
        theirs = na.Array.from_chunks(chunks)
        assert np.from_dlpack(ad.to_tensor(na.ArrayStream(theirs))).tolist() == [1, 2, 3]
        cell("from", "stream", "copy", "chunks are joined")
        parts = [address(ad.to_tensor(part, copy=False)) for part in ad.from_arrow(na.ArrayStream(theirs))]
        assert parts == [chunk.buffers[1] for chunk in chunks]
        cell("from", "stream", "view", "chunk by chunk")

    def test_an_array_of_chunks_has_two_dunders(self):
        # Both are there, and the one that takes a single array refuses chunks.
        theirs = na.Array.from_chunks([na.c_array([1, 2], na.int16()), na.c_array([3], na.int16())])
        assert np.from_dlpack(ad.to_tensor(theirs)).tolist() == [1, 2, 3]

    def test_size_0(self, cell):
        for theirs in (na.c_array([], na.int32()), na.Array([], na.int32())):
            comes(cell, "size 0", theirs, None, "int32", [])

    def test_read_only(self, cell):
        tensor = ad.to_tensor(na.c_array([1, 2], na.int32()))
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view")

    def test_scalars_and_buffers(self, cell):
        whole = na.c_array([1, 2], na.int32())
        scalar = na.Array(whole)[1]
        assert dunders(scalar) == {"array"}
        comes(cell, "0-d", scalar, whole.buffers[1] + 4, "int32", [2], "a scalar is an array of length 1")
        buffer = na.c_array([1, 2], na.int32()).view().buffer(1)
        assert np.frombuffer(memoryview(buffer), "int32").tolist() == [1, 2]
        tensor = ad.to_tensor(buffer)
        assert np.from_dlpack(tensor).tolist() == [1, 2]
        assert address(tensor) == np.frombuffer(memoryview(buffer), "int32").ctypes.data
        cell("from", "buffer protocol", "view", "buffers have a legacy `__dlpack__` next to the buffer protocol")
