"""pyarrow: every Arrow type goes there as it is, by the device dunder; tensors of its own speak DLPack 1.3."""

import arrow_dlpack as ad
import frames
import numpy as np
import producers
import pyarrow as pa
import pyarrow.dataset
import pytest
from frames import NUMBERS, Spy, at, column, comes, dunders, goes, view
from helpers import address, flags, script


@pytest.mark.parametrize("name", frames.COLUMNS)
def test_every_column_goes_there_as_it_is(cell, name: str):
    goes(cell, name, view(column(name).type), pa.array, type_of=lambda x: x.type)


class TestWhatIsCalled:
    """The device dunder comes first, and the request goes by position; other libraries give their data the same way."""

    @pytest.mark.parametrize("make", [lambda x: ad.to_arrow(x), ad.from_dlpack], ids=["Array", "Tensor"])
    def test_pa_array(self, cell, make):
        spy = Spy(make(np.arange(3.0)))
        assert pa.array(spy).to_pylist() == [0, 1, 2]
        assert pa.array(spy, pa.float32()).to_pylist() == [0, 1, 2]
        assert spy.calls == ["device_array(None)", "device_array(capsule)"]
        cell("to", "device", "view", "`pa.array` and `pa.record_batch` ask for the device array first")

    def test_pa_record_batch_and_table(self):
        spy = Spy(ad.from_arrow(pa.record_batch({"x": [1, 2]})))
        assert pa.record_batch(spy)["x"].to_pylist() == [1, 2]
        assert pa.table(spy)["x"].to_pylist() == [1, 2]
        assert pa.RecordBatchReader.from_stream(spy).read_all()["x"].to_pylist() == [1, 2]
        # A table is made of a stream, where there is one.
        assert spy.calls == ["device_array(None)", "stream(None)", "stream(None)"]

    def test_streams(self):
        table = pa.table({"x": pa.chunked_array([[1], [2, 3]])})
        for read in (pa.table, lambda x: pa.RecordBatchReader.from_stream(x).read_all()):
            spy = Spy(ad.from_arrow(table))
            assert read(spy).equals(table)
            assert spy.calls == ["stream(None)"]
        spy = Spy(ad.from_arrow(table["x"]))
        assert pa.chunked_array(spy).equals(table["x"])
        assert spy.calls == ["stream(None)"]

    def test_no_device_stream(self, cell):
        assert "device_stream" in dunders(ad.from_arrow(pa.table({"x": [1]})))
        assert not any("device_stream" in dunders(x) for x in (pa.table({"x": [1]}), pa.table({"x": [1]}).to_reader()))
        only = type("Only", (), {"__arrow_c_device_stream__": lambda self, **_: None})()
        with pytest.raises(TypeError, match="__arrow_c_stream__"):
            pa.RecordBatchReader.from_stream(only)
        cell("to", "device", "absent", "no device streams")

    def test_types_and_fields(self):
        assert pa.schema(ad.from_arrow(pa.table({"x": [1]}))) == pa.schema({"x": pa.int64()})
        assert pa.field(ad.from_dlpack(np.zeros((2, 3)))).type == pa.fixed_shape_tensor(pa.float64(), [3])


class TestRequestedSchema:
    def test_is_honoured(self):
        array = ad.to_arrow(np.arange(3))
        assert pa.array(array, pa.int8()).type == pa.int8()
        # pyarrow fails with an AttributeError where a producer ignores what it asked for.
        ignoring = type("Ignoring", (), {"__arrow_c_array__": lambda self, request=None: array.__arrow_c_array__()})()
        with pytest.raises(AttributeError, match="cast"):
            pa.array(ignoring, pa.int8())

    def test_a_loss_is_an_error_on_both_sides(self):
        with pytest.raises(ad.CastError, match="300") as caught:
            pa.array(ad.to_arrow(np.array([1, 300])), pa.int8())
        assert (caught.value.row, caught.value.remedy) == (1, "request a type that holds every value")
        with pytest.raises(ValueError, match="not in range"):
            pa.array([300]).__arrow_c_array__(pa.int8().__arrow_c_schema__())
        # What it cannot cast at all is no ValueError there.
        with pytest.raises(pa.ArrowNotImplementedError):
            pa.array([1]).__arrow_c_array__(pa.list_(pa.int64()).__arrow_c_schema__())
        with pytest.raises(ValueError):
            pa.array(ad.to_arrow(np.array([1])), pa.list_(pa.int64()))

    def test_names_and_types_of_tables(self):
        with pytest.raises(ValueError, match="not matching"):
            frames.asked(pa.table({"x": [1]}), pa.int64(), "y")
        with pytest.raises(ad.CastError, match=r'has the fields \["y"\], and the data has \["x"\]'):
            frames.asked(ad.from_arrow(pa.table({"x": [1]})), pa.int64(), "y")
        with pytest.raises(pa.ArrowInvalid, match="300 not in range"):
            frames.asked(pa.table({"x": [300]}), pa.int8())
        # What a stream says passes through C, as text alone.
        told = 'column "x", row 1: .*300.*request a type that holds every value'
        table = pa.table({"x": [1, 300]})
        with pytest.raises(pa.ArrowInvalid, match=told):
            frames.asked(ad.from_arrow(table), pa.int8())
        batch = ad.from_arrow(table.to_batches()[0])
        for ask in (
            lambda: frames.asked(batch, pa.int8()),
            lambda: pa.record_batch(batch, pa.schema({"x": pa.int8()})),
        ):
            with pytest.raises(ad.CastError, match=told) as caught:
                ask()
            assert (caught.value.column, caught.value.row) == ("x", 1)

    def test_streams(self):
        stream = ad.from_arrow(pa.table({"x": [1, 2]}))
        reader = pa.RecordBatchReader.from_stream(stream, pa.schema({"x": pa.float32()}))
        assert reader.read_all()["x"].to_pylist() == [1, 2]


def test_batches_and_streams_go_there(cell):
    table = pa.table({"x": pa.chunked_array([[1, 2], [3]]), "s": pa.chunked_array([["a", None], ["b"]])})
    back = pa.table(ad.from_arrow(table))
    assert back.equals(table)
    assert [at(chunk) for chunk in back["x"].chunks] == [at(chunk) for chunk in table["x"].chunks]
    cell("to", "stream", "view")
    batch = table.to_batches()[0]
    back = pa.record_batch(ad.from_arrow(batch))
    assert back.equals(batch)
    assert at(back["x"]) == at(batch["x"])
    ours = ad.from_arrow(batch)
    # A batch is a stream of itself, as often as it is asked.
    for _ in range(2):
        (again,) = pa.RecordBatchReader.from_stream(ours)
        assert again.equals(batch)
        assert at(again["x"]) == at(batch["x"])
    assert dunders(ours) >= {"stream", "device_stream"}
    cell("to", "batch", "view")


@pytest.mark.parametrize("rows", [0, 3])
def test_metadata_and_no_batches(rows: int):
    schema = pa.schema([pa.field("x", pa.int64(), metadata={"unit": "m"})], metadata={"who": "me"})
    table = pa.table({"x": list(range(rows))}, schema=schema)
    assert pa.table(ad.from_arrow(table)).equals(table, check_metadata=True)
    none = pa.Table.from_batches([], schema)
    assert none["x"].num_chunks == 0
    assert pa.table(ad.from_arrow(none)).schema.equals(schema)
    assert ad.to_tensors(none)["x"].shape == (0,)


class TestTensorsGoThere:
    def test_rows(self, cell):
        source = np.arange(12.0).reshape(3, 2, 2)
        array = pa.array(ad.from_dlpack(source))
        assert array.type == pa.fixed_shape_tensor(pa.float64(), [2, 2])
        assert at(array) == source.ctypes.data
        cell("to", "fixed-size lists", "view")

    def test_inner_strides_are_a_permutation(self, cell):
        source = np.arange(12.0).reshape(3, 2, 2).transpose(0, 2, 1)
        array = pa.array(ad.from_dlpack(source))
        assert array.type.permutation == [1, 0]
        assert at(array) == source.ctypes.data
        np.testing.assert_array_equal(array.to_numpy_ndarray(), source)
        cell("to", "strided", "view", "inner dimensions in another order are a permutation of the type")

    def test_a_permutation_that_is_not_its_own_inverse(self, cell):
        """As by channels_last: dimension `i` of the logical shape is dimension `permutation[i]` of the physical one."""
        source = np.arange(60.0).reshape(2, 2, 5, 3).transpose(0, 3, 1, 2)
        array = pa.array(ad.from_dlpack(source))
        assert (array.type.shape, array.type.permutation) == ([2, 5, 3], [2, 0, 1])
        np.testing.assert_array_equal(ad.to_tensor(array), source)
        assert not np.array_equal(array.to_numpy_ndarray(), source)
        note = "`to_numpy_ndarray` mixes up the elements of permutations that are no swap, such as channels_last"
        cell("to", "strided", "wrong", note)

    @pytest.mark.parametrize(
        ("part", "case"), [(slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")]
    )
    def test_other_strides_are_copied(self, cell, part: slice, case: str):
        source = np.arange(6.0)[part]
        with pytest.raises(ad.CopyError):
            ad.to_arrow(source, copy=False)
        array = pa.array(ad.from_dlpack(source))
        assert array.to_pylist() == source.tolist()
        assert at(array) != source.ctypes.data
        cell("to", case, "copy")

    def test_one_value(self, cell):
        source = np.array(5.0)
        array = pa.array(ad.from_dlpack(source))
        assert array.to_pylist() == [5.0]
        assert at(array) == source.ctypes.data
        cell("to", "0-d", "view", "as an array of length 1")

    def test_bools(self, cell):
        source = np.array([True, False])
        array = pa.array(ad.from_dlpack(source))
        assert array.type == pa.bool8()
        assert at(array) == source.ctypes.data
        cell("to", "bool", "view")
        assert pa.array(ad.to_arrow(source, type=pa.bool_())).to_pylist() == [True, False]
        cell("to", "bool", "copy", "of a tensor as bits, on request")

    def test_ragged_rows(self, cell):
        frames.ragged_goes(cell, pa.array)

    def test_complex_numbers(self, cell):
        frames.complex_numbers(cell, "view", pa.array)
        with pytest.raises(pa.ArrowInvalid, match="unsupported DLPack type 5"):
            pa.Array.from_dlpack(ad.from_dlpack(np.array([1j])))
        cell("to", "complex", "refused", "`from_dlpack` has no complex numbers; `pa.array` takes them")

    def test_zero_rows_and_zero_columns(self, cell):
        assert pa.array(ad.from_dlpack(np.zeros((0, 2)))).to_pylist() == []
        assert pa.array(ad.from_dlpack(np.zeros((2, 0)))).to_pylist() == [[], []]
        cell("to", "size 0", "view")


class TestTensorsGoThereByDLPack:
    @pytest.mark.parametrize("kind", [pa.Array, pa.Tensor])
    def test_numbers(self, cell, kind):
        source = np.arange(3, dtype="int16")
        spy = Spy(ad.from_dlpack(source))
        theirs = kind.from_dlpack(spy)
        assert spy.calls == ["dlpack(max_version=(1, 3), dl_device=None, copy=None)"]
        assert np.from_dlpack(theirs).ctypes.data == source.ctypes.data
        cell("to", "numbers", "view")

    def test_read_only(self, cell):
        assert not pa.Tensor.from_dlpack(ad.to_tensor(pa.array([1, 2]))).is_mutable
        assert pa.Tensor.from_dlpack(ad.from_dlpack(np.arange(2))).is_mutable
        cell("to", "read-only", "view")

    def test_bools_are_refused(self, cell):
        with pytest.raises(pa.ArrowInvalid, match="unsupported DLPack type 6"):
            pa.Array.from_dlpack(ad.from_dlpack(np.array([True])))
        cell("to", "bool", "refused", "`from_dlpack` has no booleans; `pa.array` takes them")

    def test_arrays_are_one_dimensional_and_compact(self, cell):
        with pytest.raises(pa.ArrowInvalid, match="contiguous one dimensional"):
            pa.Array.from_dlpack(ad.from_dlpack(np.arange(6)[::2]))
        assert np.from_dlpack(pa.Tensor.from_dlpack(ad.from_dlpack(np.arange(6)[::2]))).tolist() == [0, 2, 4]
        with pytest.raises(pa.ArrowInvalid):
            pa.Tensor.from_dlpack(ad.from_dlpack(np.arange(3)[::-1]))
        cell("to", "negative strides", "refused", "`Tensor.from_dlpack` has no negative strides")

    def test_numpy_s_empty_arrays_pass_through_us(self, cell):
        # Their stride is 0, which pyarrow refuses; ours are row-major.
        with pytest.raises(pa.ArrowInvalid, match="contiguous one dimensional"):
            pa.Array.from_dlpack(np.array([], "int64"))
        assert len(pa.Array.from_dlpack(ad.from_dlpack(np.array([], "int64")))) == 0
        cell("to", "size 0", "view")

    def test_tensor_arrays_of_no_rows_crash(self, cell):
        code = "import numpy, pyarrow as pa; pa.FixedShapeTensorArray.from_dlpack({})"
        for data in ("numpy.zeros((0, 2))", "__import__('arrow_dlpack').from_dlpack(numpy.zeros((0, 2)))"):
            assert script(code.format(data)).returncode < 0
        assert script(code.format("numpy.zeros((1, 2))")).returncode == 0
        cell(
            "to",
            "size 0",
            "wrong",
            "`FixedShapeTensorArray.from_dlpack` of no rows kills the process",
        )


def test_the_buffer_protocol(cell):
    tensor = ad.to_tensor(pa.array([1, 2, 3]))
    buffer = pa.py_buffer(tensor)
    assert buffer.address == address(tensor)
    assert not buffer.is_mutable
    cell("to", "buffer protocol", "view")
    assert np.frombuffer(buffer, "int64").tolist() == [1, 2, 3]
    assert dunders(buffer) == set()
    with pytest.raises(TypeError, match="Buffer"):
        ad.to_tensor(buffer)
    cell("from", "buffer protocol", "refused", "a `pa.Buffer` has no type; `np.frombuffer` gives it one")


class TestFromPyarrow:
    @pytest.mark.parametrize("name", NUMBERS)
    def test_numbers(self, cell, name: str):
        source = column(name)
        comes(cell, "numbers", source, at(source), name, [1, 2, 3])
        comes(cell, "numbers", source[1:], at(source[1:]), name, [2, 3])

    def test_our_dtypes_beyond_pyarrow_s_own(self):
        """What `Array.__dlpack__` of pyarrow refuses, all with a TypeError, comes by its Arrow dunders."""
        refused = [
            name
            for name in frames.COLUMNS
            if not (len(column(name)) == 0 or name in {*NUMBERS, "slice", "tensors", "misaligned"})
        ]
        for name in refused:
            with pytest.raises(TypeError):
                column(name).__dlpack__(max_version=(1, 3))
        assert ad.to_tensor(column("date32")).dtype == "int32"
        assert ad.to_tensor(column("fixed-size list")).shape == (2, 2)

    def test_bools(self, cell):
        source = column("bool slice").fill_null(False)
        with ad.track_copies() as log:
            tensor = ad.to_tensor(source)
        assert log.bytes == len(source)
        assert np.from_dlpack(tensor).tolist() == source.to_pylist()
        with pytest.raises(ad.CopyError):
            ad.to_tensor(source, copy=False)
        cell("from", "bool", "copy")
        eight = column("bool8")
        comes(cell, "bool", eight, at(eight), "bool", [False, True], "`arrow.bool8`")

    def test_nulls(self, cell):
        source = column("null slice")
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensor(source)
        assert caught.value.row == 0
        kept = ad.to_tensor(source, nulls="keep", copy=False)
        assert address(kept) == at(source)
        cell("from", "nulls", "view", 'under `nulls="keep"`, next to `validity`')
        assert np.from_dlpack(ad.validity(source)).tolist() == [False, True, False, True, True]
        assert np.from_dlpack(ad.to_tensor(source, nulls=-1)).tolist() == [-1, 3, -1, 5, 6]
        cell("from", "nulls", "copy")
        # pyarrow's own way says nothing of nulls within lists.
        inner = pa.array([[1, None]], pa.list_(pa.int32(), 2))
        assert np.from_dlpack(inner.to_tensor()).shape == (1, 2)
        with pytest.raises(ad.NullError):
            ad.to_tensor(inner)

    @pytest.mark.parametrize("name", [name for name, (case, _) in frames.COLUMNS.items() if case == "temporal"])
    def test_temporal(self, cell, name: str):
        source = column(name)
        dtype = "int32" if source.type.bit_width == 32 else "int64"
        comes(cell, "temporal", source, at(source), dtype, source.cast(dtype).to_pylist())

    def test_fixed_size_lists(self, cell):
        source = column("fixed-size list slice")
        comes(cell, "fixed-size lists", source, at(source), "int32", [[3, 4], [5, 6]])
        tensors = column("tensors")
        comes(cell, "fixed-size lists", tensors, at(tensors), "float32", [[[1, 2], [3, 4]]])
        strided = pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float32(), [2, 2], permutation=[1, 0]), tensors.storage
        )
        comes(cell, "strided", strided, at(strided), "float32", [[[1, 3], [2, 4]]], "a permutation becomes strides")

    def test_decimals(self, cell):
        frames.decimals_come(cell, column("decimal128"))
        source = column("decimal32")
        note = 'of 32 and 64 bits: `decimal="unscaled"`'
        comes(cell, "decimal", source, at(source), "int32", [15, -25], note, decimal="unscaled")

    def test_dictionaries(self, cell):
        frames.codes_come(cell, column("dictionary"), "int32", [0, 1, 0])
        source = column("number dictionary")
        decoded = ad.to_tensor(source, dictionary="values")
        assert np.from_dlpack(decoded).tolist() == [5, 6, 5]
        assert decoded.writable
        cell("from", "dictionary", "copy", 'the values: `dictionary="values"`')
        chunks = pa.chunked_array([source, pa.array([7]).dictionary_encode()])
        with pytest.raises(ad.ConversionError, match="dictionar"):
            ad.to_tensor(chunks)
        cell("from", "dictionary", "refused", "codes of chunks whose dictionaries differ")
        assert np.from_dlpack(ad.to_tensor(chunks, dictionary="values")).tolist() == [5, 6, 5, 7]

    def test_fixed_size_binary(self, cell):
        source = column("fixed-size binary")
        comes(cell, "strings", source, at(source), "uint8", [[97, 98], [99, 100]], "of one width, as uint8")

    def test_run_ends_are_decoded(self):
        source = pa.RunEndEncodedArray.from_arrays([2, 3], [1.5, 2.5])
        with ad.track_copies() as log:
            decoded = ad.to_tensor(source)
            # An unversioned capsule is of the same memory, as is what may be written to.
            capsule = decoded.__dlpack__()
            writable = ad.to_tensor(source, writable=True)
        assert len(log) == 2
        assert decoded.writable
        assert writable.writable
        assert producers.read_dlpack(capsule)[1].data == address(decoded)
        assert np.from_dlpack(decoded).tolist() == [1.5, 1.5, 2.5]

    @pytest.mark.parametrize("name", ["string", "large string", "list", "large list", "list view"])
    def test_lists_and_strings(self, cell, name: str):
        case = frames.COLUMNS[name][0]
        frames.ragged_come(cell, case, column(name))

    def test_string_views(self, cell):
        frames.ragged_come(cell, "strings", column("string view"), "copy", "views of strings are gathered")

    def test_small_floats(self, cell):
        frames.small_floats_pass(cell, "view", pa.table, "fixed-size binary with an extension name")

    def test_size_0(self, cell):
        comes(cell, "size 0", column("no rows"), None, "int64", [])
        comes(cell, "size 0", column("no rows of lists"), None, "int32", [])
        comes(cell, "size 0", column("lists of size 0"), None, "int32", [[], []])

    def test_misaligned(self, cell):
        source = column("misaligned")
        with pytest.raises(ad.CopyError):
            ad.to_tensor(source, copy=False)
        tensor = ad.to_tensor(source)
        assert np.from_dlpack(tensor).tolist() == [0, 1, 2, 3]
        assert address(tensor) != at(source)
        cell("from", "misaligned", "copy")

    def test_read_only(self, cell):
        tensor = ad.to_tensor(pa.array([1, 2, 3]))
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view")

    def test_batches(self, cell):
        batch = pa.record_batch({"x": [1.5, 2.5], "n": [1, 2]})
        tensors = ad.to_tensors(batch, copy=False)
        assert {name: address(tensor) for name, tensor in tensors.items()} == {"x": at(batch["x"]), "n": at(batch["n"])}
        cell("from", "batch", "view")

    def test_streams(self, cell):
        table = pa.table({"x": pa.chunked_array([[1, 2], [3]])})
        joined = ad.to_tensors(table)["x"]
        assert np.from_dlpack(joined).tolist() == [1, 2, 3]
        cell("from", "stream", "copy", "chunks are joined")
        batches = list(ad.from_arrow(table))
        assert [address(ad.to_tensor(batch["x"])) for batch in batches] == [at(chunk) for chunk in table["x"].chunks]
        one = pa.table({"x": pa.chunked_array([[], [1, 2]], pa.int64())})
        assert address(ad.to_tensors(one, copy=False)["x"]) == at(one["x"].chunk(1))
        cell("from", "stream", "view", "batch by batch, or a single chunk that has rows")

    def test_tensors(self, cell):
        source = pa.Tensor.from_numpy(np.arange(6.0).reshape(2, 3).T)
        tensor = ad.from_dlpack(source)
        assert tensor.strides == (1, 3)
        assert address(tensor) == np.from_dlpack(source).ctypes.data
        cell("from", "strided", "view")

    def test_the_device_dunder(self, cell):
        source = pa.array([1, 2, 3])
        assert dunders(source) == {"schema", "array", "device_array", "dlpack", "dlpack_device"} - {"schema"}
        spy = Spy(source)
        assert address(ad.to_tensor(spy)) == at(source)
        assert spy.calls == ["device_array()"]
        cell("from", "device", "view", "arrays and batches have the device dunder")

    def test_what_has_no_dunder(self):
        table = pa.table({"x": [1]})
        for x in (pa.dataset.dataset(table), pa.dataset.dataset(table).scanner()):
            assert dunders(x) == set()
            # They are read by their methods, batch by batch.
            assert pa.table(ad.from_arrow(x)) == table
            assert ad.to_tensors(x)["x"].shape == (1,)
        assert dunders(pa.scalar(1)) == set()
        with pytest.raises(TypeError, match="expected Arrow data"):
            ad.from_arrow(pa.scalar(1))


def test_no_exchange_api(cell):
    for kind in (pa.Array, pa.Tensor, pa.FixedShapeTensorArray):
        assert not hasattr(kind, "__dlpack_c_exchange_api__")
    cell("to", "exchange API", "absent")
    cell("from", "exchange API", "absent")
