"""pyarrow's arrays, batches, tables and streams become tensors and come back; nulls, bools and types as asked."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from support import FLOATS, INTEGERS, NUMBERS, TEMPORAL, address, lists, ticks, values_address, view_of


def data_type(name: str) -> pa.DataType:
    return pa.from_numpy_dtype(name)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("part", [slice(None), slice(3, 7), slice(9, 9)], ids=["whole", "slice", "empty"])
def test_numbers_are_views(dtype: str, part: slice):
    source = pa.array(range(10), data_type(dtype))[part]
    tensor = view_of(source)
    assert (tensor.dtype, tensor.shape) == (dtype, (len(source),))
    assert np.from_dlpack(tensor).tolist() == source.to_pylist()
    if len(source):
        assert address(tensor) == values_address(source)
    back = pa.array(ad.to_arrow(tensor, copy=False))
    assert back.equals(source)
    assert back.type == source.type


@pytest.mark.parametrize(("data_type", "dtype"), TEMPORAL, ids=str)
def test_temporal_types_are_their_ticks(data_type: pa.DataType, dtype: str):
    values = [0, 86400000, 172800000] if data_type == pa.date64() else [0, 1, 2]
    source = ticks(values, data_type)
    tensor = view_of(source)
    assert tensor.dtype == dtype
    assert address(tensor) == values_address(source)
    assert np.from_dlpack(tensor).tolist() == values
    back = pa.array(tensor)
    assert back.type == source.type
    assert back.equals(source)


@pytest.mark.parametrize("offset", range(10))
def test_bools_are_unpacked(offset: int):
    values = [True, False, False, True, True, False, True, True, False, True, False, True, True]
    source = pa.array(values)[offset:]
    with ad.track_copies() as log:
        tensor = ad.to_tensor(source)
    assert (tensor.dtype, tensor.copied, tensor.writable) == ("bool", True, True)
    assert np.from_dlpack(tensor).tolist() == values[offset:]
    assert log.bytes == len(source)
    assert pa.array(tensor).equals(source)
    with pytest.raises(ad.CopyError):
        ad.to_tensor(source, copy=False)


def test_bool8_is_a_view_if_its_bytes_are_0_or_1():
    good = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 1], pa.int8()))
    tensor = view_of(good)
    assert tensor.dtype == "bool"
    assert address(tensor) == values_address(good)
    other = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 2, -1], pa.int8()))
    assert np.from_dlpack(ad.to_tensor(other)).view("u1").tolist() == [0, 1, 1]
    with pytest.raises(ad.CopyError):
        ad.to_tensor(other, copy=False)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
@pytest.mark.parametrize("part", [slice(None), slice(1, 3)], ids=["whole", "slice"])
def test_fixed_size_lists_are_inner_dimensions(dtype: str, part: slice):
    values = np.arange(24).reshape(4, 3, 2)
    source = lists(values.tolist(), data_type(dtype), 3, 2)[part]
    tensor = view_of(source)
    assert (tensor.dtype, tensor.shape) == (dtype, (len(source), 3, 2))
    np.testing.assert_array_equal(np.from_dlpack(tensor), values[part])
    assert address(tensor) == values_address(source)
    back = pa.array(tensor)
    assert back.type == source.type
    assert back.equals(source)


def test_lists_of_bools():
    values = [[True, False, True], [False, False, True], [True, True, True]]
    source = lists(values, pa.bool_(), 3)[1:]
    tensor = ad.to_tensor(source)
    assert np.from_dlpack(tensor).tolist() == values[1:]
    assert pa.array(tensor).equals(source)


def test_fixed_shape_tensors_with_permutation():
    source = np.arange(24, dtype="float32").reshape(4, 2, 3)
    storage = pa.array(source.reshape(4, 6).tolist(), pa.list_(pa.float32(), 6))
    for permutation in ([0, 1], [1, 0]):
        tensor_type = pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=permutation)
        array = pa.ExtensionArray.from_storage(tensor_type, storage)
        tensor = view_of(array)
        assert address(tensor) == values_address(array)
        np.testing.assert_array_equal(np.from_dlpack(tensor), source.transpose(0, *(1 + axis for axis in permutation)))
        back = pa.array(tensor)
        assert back.equals(array)


@pytest.mark.parametrize("sizes", [(0,), (2, 0), (0, 2)])
def test_lists_of_size_0(sizes: tuple[int, ...]):
    data_type = pa.int32()
    for size in reversed(sizes):
        data_type = pa.list_(data_type, size)
    empty: list = []
    row = [[]] * sizes[0] if sizes[0] else empty
    source = pa.array([row, row, row], data_type)
    tensor = ad.to_tensor(source, copy=False)
    assert tensor.shape == (3, *sizes)
    assert np.from_dlpack(tensor).shape == (3, *sizes)
    assert pa.array(tensor).equals(source)


class TestNulls:
    source = pa.array([1, None, 3, None], pa.int32())

    def test_are_an_error_by_default(self):
        with pytest.raises(ad.NullError, match="has nulls, the first one here") as caught:
            ad.to_tensor(self.source)
        assert caught.value.row == 1

    def test_kept_in_a_view(self):
        tensor = view_of(self.source, nulls="keep")
        assert address(tensor) == self.source.buffers()[1].address
        assert np.from_dlpack(tensor)[[0, 2]].tolist() == [1, 3]
        assert np.from_dlpack(ad.validity(self.source)).tolist() == [True, False, True, False]

    def test_kept_in_a_copy_are_zero(self):
        values = pa.array(np.array([1, 99, 3, 98], "int32"), mask=np.array([False, True, False, True]))
        assert np.from_dlpack(ad.to_tensor(values, nulls="keep", copy=True)).tolist() == [1, 0, 3, 0]

    @pytest.mark.parametrize("fill", [-1, 0, 2**31 - 1, True, np.int8(4), 2.0])
    def test_filled(self, fill):
        tensor = ad.to_tensor(self.source, nulls=fill)
        assert tensor.dtype == "int32"
        assert np.from_dlpack(tensor).tolist() == [1, int(fill), 3, int(fill)]
        assert self.source.to_pylist() == [1, None, 3, None]
        with pytest.raises(ad.CopyError):
            ad.to_tensor(self.source, nulls=fill, copy=False)

    @pytest.mark.parametrize("fill", [0.5, 2**31, float("inf"), "nan"])
    def test_a_fill_value_is_exact(self, fill):
        with pytest.raises(ad.NullError):
            ad.to_tensor(self.source, nulls=fill)
        # Whether or not there are nulls: the type does not depend on data.
        with pytest.raises(ad.NullError):
            ad.to_tensor(self.source.drop_null(), nulls=fill)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_nan(self, dtype: str):
        source = pa.array([1.5, None, 3], data_type(dtype))
        tensor = ad.to_tensor(source, nulls="nan")
        assert tensor.dtype == dtype
        np.testing.assert_array_equal(np.from_dlpack(tensor), np.array([1.5, np.nan, 3], dtype))
        assert view_of(source.drop_null(), nulls="nan").dtype == dtype
        np.testing.assert_array_equal(
            np.from_dlpack(ad.to_tensor(self.source, nulls="nan", dtype=dtype)), np.array([1, np.nan, 3, np.nan], dtype)
        )

    def test_of_bools(self):
        source = pa.array([True, None, False])
        assert np.from_dlpack(ad.to_tensor(source, nulls=True)).tolist() == [True, True, False]
        assert np.from_dlpack(ad.to_tensor(source, nulls="keep")).tolist() == [True, False, False]
        assert np.from_dlpack(ad.validity(source)).tolist() == [True, False, True]

    @pytest.mark.parametrize("offset", [0, 1, 2, 3])
    def test_of_lists_and_their_children(self, offset: int):
        values = [[1, 2], None, [3, None], [5, 6], None]
        source = lists(values, pa.float32(), 2)[offset:]
        valid = [[x is not None for x in row] if row else [False, False] for row in values][offset:]
        assert np.from_dlpack(ad.validity(source)).tolist() == valid
        filled = [[-1 if x is None else x for x in row] if row else [-1, -1] for row in values][offset:]
        assert np.from_dlpack(ad.to_tensor(source, nulls=-1)).tolist() == filled
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensor(source)
        first = next(row for row, valid in enumerate(valid) if not all(valid))
        assert caught.value.row == first

    def test_over_chunks(self):
        source = pa.chunked_array([[1, 2], [None, 4], [], [None]], pa.int64())
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensor(source)
        assert caught.value.row == 2
        assert np.from_dlpack(ad.to_tensor(source, nulls=0)).tolist() == [1, 2, 0, 4, 0]
        assert np.from_dlpack(ad.validity(source)).tolist() == [True, True, False, True, False]

    def test_of_a_struct_are_nulls_of_its_columns(self):
        source = pa.StructArray.from_arrays(
            [pa.array([1, 2, None, 4]), pa.array([True, False, True, None])],
            names=["a", "b"],
            mask=pa.array([False, True, False, False]),
        )[1:]
        tensors = ad.to_tensors(source, nulls={"a": -1, "b": True})
        assert np.from_dlpack(tensors["a"]).tolist() == [-1, -1, 4]
        assert np.from_dlpack(tensors["b"]).tolist() == [True, True, True]

    def test_a_validity_bitmap_without_nulls(self):
        source = pa.Array.from_buffers(pa.int8(), 4, [pa.py_buffer(b"\x0f"), pa.py_buffer(b"\1\2\3\4")], null_count=-1)
        assert np.from_dlpack(view_of(source)).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("from_dtype", [*NUMBERS, "bool"])
@pytest.mark.parametrize("to_dtype", [*NUMBERS, "bool", "bfloat16"])
def test_casts_are_checked(from_dtype: str, to_dtype: str):
    fits = pa.array([0, 1, 1], pa.int8()).cast(data_type(from_dtype) if from_dtype != "bool" else pa.bool_())
    tensor = ad.to_tensor(fits, dtype=to_dtype)
    assert (tensor.dtype, tensor.copied) == (to_dtype, from_dtype != to_dtype or from_dtype == "bool")
    if to_dtype != "bfloat16":
        assert np.from_dlpack(tensor).tolist() == [0, 1, 1]
    if from_dtype in INTEGERS and to_dtype in INTEGERS:
        source, target = np.iinfo(from_dtype), np.iinfo(to_dtype)
        for value in {source.min, source.max} - {0}:
            column = pa.array([0, None, value], data_type(from_dtype))
            if target.min <= value <= target.max:
                assert np.from_dlpack(ad.to_tensor(column, dtype=to_dtype, nulls=0)).tolist() == [0, 0, value]
            else:
                with pytest.raises(ad.CastError) as caught:
                    ad.to_tensor(column, dtype=to_dtype, nulls=0)
                assert caught.value.row == 2


@pytest.mark.parametrize(
    ("value", "dtype", "fits"),
    [
        (0.5, "int32", False),
        (float("nan"), "int64", False),
        (-0.0, "uint8", True),
        (2.0**63, "int64", False),
        (-(2.0**63), "int64", True),
        (2.0**64, "uint64", False),
        (1e300, "float32", False),
        (0.1, "float32", True),
        (float("inf"), "float16", True),
        (65520.0, "float16", False),
        (65519.0, "float16", True),
        (float("nan"), "float32", True),
    ],
)
def test_casts_of_floats(value: float, dtype: str, fits: bool):
    column = pa.array([value])
    if fits:
        with np.errstate(over="ignore"):
            expected = np.array([value]).astype(dtype)
        np.testing.assert_array_equal(np.from_dlpack(ad.to_tensor(column, dtype=dtype)), expected)
    else:
        with pytest.raises(ad.CastError):
            ad.to_tensor(column, dtype=dtype)


@pytest.mark.parametrize(
    "source",
    [
        pa.nulls(2),
        pa.array(["a"]),
        pa.array(["a"], pa.string_view()),
        pa.array([b"a"]),
        pa.array([[1]]),
        pa.array([[1]], pa.list_view(pa.int64())),
        pa.array([1], pa.decimal128(5, 2)),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.RunEndEncodedArray.from_arrays([1], ["a"]),
        pa.array([{"a": {"b": 1}}]),
    ],
    ids=lambda source: str(source.type),
)
def test_types_without_a_tensor_form_name_a_remedy(source: pa.Array):
    with pytest.raises(ad.UnsupportedTypeError) as caught:
        ad.to_tensor(source)
    assert caught.value.remedy
    # But they travel through us as Arrow data, unchanged.
    assert pa.array(ad.from_arrow(source)).equals(source)


BATCH = pa.record_batch(
    {
        "x": pa.array([1.5, 2.5, None]),
        "flag": pa.array([True, False, True]),
        "when": pa.array([1, 2, 3], pa.timestamp("us")),
        "name": pa.array(["a", None, "c"]),
        "point": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int16(), 2)),
    }
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BATCH,
        lambda: pa.table(BATCH),
        lambda: pa.table(BATCH).to_reader(),
        lambda: pa.StructArray.from_arrays(BATCH.columns, BATCH.schema.names),
    ],
    ids=["batch", "table", "reader", "struct"],
)
def test_columns_of_a_batch(make):
    tensors = ad.to_tensors(make(), columns=["when", "x"], nulls={"x": "nan"})
    assert list(tensors) == ["when", "x"]
    assert np.from_dlpack(tensors["when"]).tolist() == [1, 2, 3]
    np.testing.assert_array_equal(np.from_dlpack(tensors["x"]), [1.5, 2.5, np.nan])
    assert address(tensors["when"]) == values_address(BATCH["when"])
    with pytest.raises(ad.UnsupportedTypeError) as caught:
        ad.to_tensors(make(), nulls="keep")
    assert caught.value.column == "name"


@pytest.mark.parametrize("part", [slice(None), slice(1, 3), slice(2, 2)], ids=["whole", "slice", "empty"])
def test_batches_pass_through(part: slice):
    source = BATCH[part]
    batch = ad.from_arrow(source)
    assert isinstance(batch, ad.RecordBatch)
    assert (batch.num_rows, len(batch), batch.num_columns) == (len(source), len(source), 5)
    assert batch.column_names == source.schema.names
    assert pa.record_batch(batch).equals(source)
    for index, name in enumerate(batch.column_names):
        column = batch[name]
        assert column.name == name
        assert pa.array(column).equals(source[name])
        assert pa.array(batch[index]).equals(source[name])
        assert pa.array(batch[index - 5]).equals(source[name])
    for key, error in [
        ("nobody", KeyError),
        (5, IndexError),
        (-6, IndexError),
        (2**70, IndexError),
        (1.5, TypeError),
    ]:
        with pytest.raises(error):
            batch[key]


def test_metadata_and_nullability_pass_through():
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False, metadata={"k": "v"})], metadata={"s": "t"})
    source = pa.record_batch([pa.array([1], pa.int8())], schema=schema)
    back = pa.record_batch(ad.from_arrow(source))
    assert back.schema.equals(schema, check_metadata=True)
    table = pa.table(ad.from_arrow(pa.table(source)))
    assert table.schema.equals(schema, check_metadata=True)


def test_tables_of_chunks_are_joined():
    table = pa.table({"a": pa.chunked_array([[1, 2], [3], []]), "b": pa.chunked_array([[1.0], [2.0, 3.0]])})
    with ad.track_copies() as log:
        tensors = ad.to_tensors(table)
    assert np.from_dlpack(tensors["a"]).tolist() == [1, 2, 3]
    assert np.from_dlpack(tensors["b"]).tolist() == [1, 2, 3]
    assert log.bytes == 48
    with pytest.raises(ad.CopyError, match="chunks"):
        ad.to_tensors(table, copy=False)


@pytest.mark.parametrize(
    "empty", [pa.chunked_array([], pa.int16()), pa.array([], pa.int16()), pa.chunked_array([[], []], pa.int16())]
)
def test_no_rows(empty):
    tensor = ad.to_tensor(empty, copy=False)
    assert (tensor.dtype, tensor.shape) == ("int16", (0,))
    assert np.from_dlpack(tensor).tolist() == []


def test_one_chunk_of_several_with_rows_is_a_view():
    source = pa.chunked_array([[], [1, 2], []], pa.int64())
    assert address(view_of(source)) == values_address(source.chunk(1))


@pytest.mark.parametrize("make", [pa.array, pa.chunked_array], ids=["array", "chunked"])
def test_pyarrow_reads_arrays_of_ours(make):
    tensor = ad.from_dlpack(np.arange(4.0))
    if make is pa.array:
        assert make(tensor).to_pylist() == [0, 1, 2, 3]
        assert make(tensor).buffers()[1].address == address(tensor)
    else:
        stream = ad.from_arrow(pa.chunked_array([[1], [2, 3]]))
        assert make(stream).to_pylist() == [1, 2, 3]


def test_pyarrow_reads_tensors_of_ours_by_dlpack():
    tensor = ad.from_dlpack(np.arange(6.0).reshape(2, 3))
    assert pa.Tensor.from_dlpack(tensor).to_numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    column = ad.to_tensor(pa.array([1, 2, 3]))
    assert pa.Array.from_dlpack(column).to_pylist() == [1, 2, 3]


def test_misaligned_values_are_realigned_in_a_copy():
    memory = pa.py_buffer(b"\0" + np.arange(4.0).tobytes())
    source = pa.Array.from_buffers(pa.float64(), 4, [None, memory[1:]])
    tensor = ad.to_tensor(source)
    assert tensor.copied
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2, 3]
    with pytest.raises(ad.CopyError, match="aligned"):
        ad.to_tensor(source, copy=False)


def test_copies_share_nothing():
    source = pa.array([1, 2, 3])
    tensor = ad.to_tensor(source, copy=True)
    assert tensor.copied
    assert tensor.writable
    np.from_dlpack(tensor)[0] = 9
    assert source.to_pylist() == [1, 2, 3]
    array = pa.array(ad.from_arrow(source, copy=True))
    assert array.equals(source)
    assert array.buffers()[1].address != source.buffers()[1].address
    batch = pa.record_batch(ad.from_arrow(BATCH, copy=True))
    assert batch.equals(BATCH)
    assert batch["when"].buffers()[1].address != BATCH["when"].buffers()[1].address


@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(1, 1)], ids=["whole", "slice", "empty"])
def test_nested_slices_are_copied_and_cast(part: slice):
    structs = pa.array([{"a": 1}, {"a": None}, None, {"a": 4}])
    sources = [structs[part], pa.array([[1], [2, 3], None, []])[part], pa.array([["a"], None, ["b", ""]])[part]]
    if part == slice(None):
        sources.append(pa.FixedSizeListArray.from_arrays(structs, 2))
    for source in sources:
        assert pa.array(ad.from_arrow(source, copy=True)).equals(source)


def test_fixed_size_lists_of_sliced_structs():
    """arrow-rs counts the offset of the structs twice, where it is left to it."""
    source = pa.FixedSizeListArray.from_arrays(pa.array([{"a": 1}, {"a": 2}, {"a": 3}])[1:], 1)
    assert pa.array(ad.from_arrow(source, copy=True)).equals(source)
    assert pa.array(ad.from_arrow(source)).equals(source)


def test_names_of_columns_are_in_a_batch_and_in_a_report():
    table = pa.table({"a": [1], "b": [2.5]})
    batch = ad.from_arrow(table.to_batches()[0])
    for found in (batch, ad.explain(table)):
        assert ("a" in found, "c" in found, 0 in found) == (True, False, False)
    twice = ad.from_arrow(pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(KeyError, match="more than one column is named"):
        twice["a"]
    assert pa.array(twice[1]).to_pylist() == [2]


NO_ROWS = [
    pa.array([1, 2, 3]),
    pa.array([True, None, False]),
    pa.array(["a", "b", None]),
    pa.array(["a", "b", None], pa.string_view()),
    pa.array(["a", "b", "a"]).dictionary_encode(),
    pa.array([[1], [2, 3], []]),
    pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2)),
    pa.array([{"x": 1, "y": "a"}, None, {"x": 3, "y": "b"}]),
]


@pytest.mark.parametrize("source", NO_ROWS, ids=lambda source: str(source.type))
def test_slices_without_rows_join_others(source: pa.Array):
    for start in range(4):
        chunks = pa.chunked_array([source[start:start], source])
        batches = [pa.record_batch({"x": chunk}) for chunk in chunks.chunks]
        whole = pa.record_batch({"x": source})
        for found in (
            pa.concat_arrays([pa.array(ad.from_arrow(chunk)) for chunk in chunks.chunks]),
            pa.chunked_array(ad.from_arrow(chunks)).combine_chunks(),
            pa.table(ad.from_arrow(pa.table({"x": chunks})))["x"].combine_chunks(),
            pa.Table.from_batches([pa.record_batch(ad.from_arrow(batch)) for batch in batches])["x"].combine_chunks(),
            pa.concat_arrays([pa.array(ad.from_arrow(part)["x"]) for part in (whole.slice(start, 0), whole)]),
        ):
            found.validate(full=True)
            assert found.to_pylist() == source.to_pylist()
