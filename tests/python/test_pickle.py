"""Pickle, copy and deepcopy: by value, with the Arrow field, and never by trusting what a pickle says."""

import copy
import multiprocessing
import pickle

import arrow_dlpack as ad
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from support import address
from type_cases import CASES

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]


def again(x, protocol=pickle.HIGHEST_PROTOCOL):
    return pickle.loads(pickle.dumps(x, protocol))


def out_of_band(x):
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=buffers), data, buffers


def assert_same(found: ad.Tensor, expected: ad.Tensor) -> None:
    assert (found.dtype, found.shape, found.device) == (expected.dtype, expected.shape, expected.device)
    assert found.writable
    left, right = (np.from_dlpack(tensor) for tensor in (found, expected))
    # Their bits, as no NaN is equal to itself.
    assert (left.dtype, left.tobytes()) == (right.dtype, right.tobytes())
    if expected.size:
        assert address(found) != address(expected)


class TestTensor:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_of_every_dtype(self, dtype, protocol):
        tensor = ad.from_dlpack(np.arange(7).astype(dtype))
        assert_same(again(tensor, protocol), tensor)

    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
    def test_of_floats_that_numpy_lacks(self, dtype):
        width = ml_dtypes.finfo(dtype).bits // 8
        field = pa.field(
            "x",
            pa.binary(width),
            metadata={"ARROW:extension:name": f"arrow_dlpack.{dtype}", "ARROW:extension:metadata": ""},
        )
        storage = pa.array([bytes([number] * width) for number in range(5)], pa.binary(width))
        tensor = ad.to_tensors(pa.record_batch([storage], schema=pa.schema([field])))["x"]
        assert tensor.dtype == dtype
        found = again(tensor)
        assert (found.dtype, found.shape) == (dtype, (5,))
        assert pa.array(ad.to_arrow(found)).to_pylist() == storage.to_pylist()

    @pytest.mark.parametrize(
        "array",
        [
            np.array(1.5),
            np.empty((0,)),
            np.empty((3, 0, 2)),
            np.arange(24.0).reshape(2, 3, 4),
            np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
            np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            np.arange(24.0)[::2],
            np.arange(24.0)[::-1],
            np.arange(24.0).reshape(4, 6)[1:3, ::2],
            np.broadcast_to(np.arange(3.0), (4, 3)),
            np.arange(1.0, 9.0).reshape(1, 8),
        ],
        ids=["0-d", "empty", "empty n-d", "C", "permuted", "F", "strided", "reversed", "part", "broadcast", "one row"],
    )
    def test_of_every_layout(self, array):
        tensor = ad.from_dlpack(array)
        for found in (again(tensor), again(tensor, 4), out_of_band(tensor)[0], copy.deepcopy(tensor)):
            assert_same(found, tensor)

    def test_keeps_a_dense_order(self):
        tensor = ad.from_dlpack(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
        assert again(tensor).strides == tensor.strides == (1, 2)

    def test_has_no_more_than_its_elements(self):
        part = ad.to_tensor(pa.array(np.arange(1_000_000.0))[5:8])
        assert len(pickle.dumps(part)) < 1000

    def test_out_of_band_there_is_no_copy(self):
        array = np.arange(1000.0)
        tensor = ad.from_dlpack(array)
        found, data, buffers = out_of_band(tensor)
        assert len(data) < 1000
        assert len(buffers) == 1
        assert buffers[0].raw().nbytes == array.nbytes
        assert np.frombuffer(buffers[0], np.float64).ctypes.data == array.ctypes.data
        assert_same(found, tensor)

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_of_arrow_returns_to_its_type(self, case):
        tensor = ad.to_tensor(case.build([0, 1, 2, 3, 1]), **case.options)
        found = again(tensor)
        assert pa.array(ad.to_arrow(found)).equals(pa.array(ad.to_arrow(tensor)))

    def test_of_codes_keeps_the_dictionary(self):
        array = pa.array(["a", "b", "a", None, "c"]).dictionary_encode().drop_null()
        found = again(ad.to_tensor(array))
        assert pa.array(ad.to_arrow(found)).equals(array)

    def test_of_a_fixed_shape_tensor(self):
        kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0], dim_names=["a", "b"])
        storage = pa.array([list(range(6)), list(range(6, 12))], pa.list_(pa.int32(), 6))
        tensor = ad.to_tensor(pa.ExtensionArray.from_storage(kind, storage))
        assert pa.array(ad.to_arrow(again(tensor))).type == kind
        assert_same(again(tensor), tensor)

    def test_copy_shares_the_memory(self):
        tensor = ad.to_tensor(pa.array([1.0, 2.0]))
        found = copy.copy(tensor)
        assert found is not tensor
        assert address(found) == address(tensor)
        assert not found.writable
        assert address(copy.deepcopy(tensor)) != address(tensor)

    def test_between_processes(self):
        tensor = ad.to_tensor(pa.array([1, 2, 3], pa.int16()))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.map(echo, [tensor])[0]
        assert_same(found, tensor)
        assert pa.array(ad.to_arrow(found)).type == pa.int16()


def echo(x):
    return x


BATCH = pa.record_batch(
    {
        "n": pa.array([1, None, 3]),
        "b": pa.array([True, None, False]),
        "s": pa.array(["a", None, "ccc"]),
        "v": pa.array(["a", None, "a text that is not inlined"], pa.string_view()),
        "l": pa.array([[1], None, []]),
        "f": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2)),
        "d": pa.array(["x", None, "x"]).dictionary_encode(),
        "r": pa.RunEndEncodedArray.from_arrays([2, 3], ["q", "w"]),
        "t": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
        "c": pa.array([1, None, 3], pa.decimal128(10, 2)),
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "z": pa.nulls(3),
        "o": pa.array([{"x": 1, "y": None}, None, {"x": 3, "y": "t"}]),
    }
)


class TestArrays:
    @pytest.mark.parametrize("protocol", PROTOCOLS)
    @pytest.mark.parametrize("name", BATCH.schema.names)
    def test_of_every_type(self, name, protocol):
        array = ad.from_arrow(BATCH[name])
        found = again(array, protocol)
        assert isinstance(found, type(array))
        assert pa.array(found).equals(BATCH[name])

    @pytest.mark.parametrize("name", BATCH.schema.names)
    def test_of_slices(self, name):
        part = BATCH[name][1:]
        assert pa.array(again(ad.from_arrow(part))).equals(part)
        for empty in (ad.from_arrow(part[:0]), ad.from_arrow(part[:0], copy=True)):
            assert pa.array(again(empty)).equals(part[:0])

    @pytest.mark.parametrize("wide", [1, 50])
    def test_of_slices_of_lists_of_structs(self, wide):
        rows = [[{"x": row * wide + item, "s": str(row)} for item in range(wide)] for row in range(6)]
        for array in (
            pa.array(rows),
            pa.array(
                [[(str(row), item) for item in range(wide)] for row in range(6)], pa.map_(pa.string(), pa.int64())
            ),
        ):
            for part in (array[1:], array[2:4], array[5:], array[3:3]):
                assert pa.array(ad.from_arrow(part, copy=True)).equals(part)
                assert pa.array(again(ad.from_arrow(part))).equals(part)

    def test_of_batches(self):
        batch = BATCH.replace_schema_metadata({"who": "me"})
        for found in (
            again(ad.from_arrow(batch)),
            out_of_band(ad.from_arrow(batch))[0],
            copy.deepcopy(ad.from_arrow(batch)),
        ):
            assert isinstance(found, ad.RecordBatch)
            assert pa.record_batch(found).equals(batch)
            assert pa.record_batch(found).schema.equals(batch.schema, check_metadata=True)

    def test_has_no_more_than_its_rows(self):
        part = ad.from_arrow(pa.array([str(number) for number in range(100_000)])[5:8])
        assert len(pickle.dumps(part)) < 2000

    def test_copy_shares_the_memory(self):
        batch = ad.from_arrow(pa.record_batch({"x": [1.0]}))
        found = copy.copy(batch)
        assert address(ad.to_tensor(found["x"])) == address(ad.to_tensor(batch["x"]))
        assert address(ad.to_tensor(copy.deepcopy(batch)["x"])) != address(ad.to_tensor(batch["x"]))


class TestRagged:
    @pytest.mark.parametrize(
        "array",
        [
            pa.array([[1, 2], [], [3]]),
            pa.array([["a"], [], ["bc"]]),
            pa.array(["to", "be", ""]),
            pa.array([[[1], []], [], [[2, 3]]]),
            pa.array([[1, 2], [3]], pa.large_list(pa.float32())),
            pa.array([[1, 2], [3]], pa.list_view(pa.float32())),
            pa.array([], pa.list_(pa.int8())),
        ],
        ids=lambda array: f"{array.type} {len(array)}",
    )
    def test_of_every_kind(self, array):
        ragged = ad.to_ragged(array)
        for found in (
            again(ragged),
            again(ragged, 4),
            out_of_band(ragged)[0],
            copy.copy(ragged),
            copy.deepcopy(ragged),
        ):
            assert pa.array(found).equals(pa.array(ragged))
            assert len(found) == len(ragged)

    def test_with_nulls_that_were_kept(self):
        ragged = ad.to_ragged(pa.array([[1], None]), nulls="keep")
        assert pa.array(again(ragged)).to_pylist() == [[1], None]

    def test_of_arrays_of_another_library(self):
        found = again(ad.to_ragged(pa.array(["to", "be"]), xp=np))
        assert isinstance(found.values, np.ndarray)
        assert pa.array(found).to_pylist() == ["to", "be"]


SLICES = {
    "views": pa.array([f"a text that is no inline one, {row}" for row in range(10_000)], pa.string_view())[4_000:4_010],
    "structs of views": pa.StructArray.from_arrays(
        [pa.array([b"bytes that are no inline ones"] * 5 + [None] * 9_000, pa.binary_view())], ["v"]
    )[2:12],
    "lists of no items": pa.ListViewArray.from_arrays(
        pa.array([9_000, 0, 9_002], pa.int32()), pa.array([2, 0, 1], pa.int32()), pa.array(range(10_000))
    ),
}


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_has_no_more_than_its_rows_reach(name):
    rows = SLICES[name]
    pickled = pickle.dumps(ad.from_arrow(rows))
    assert len(pickled) < 2_000
    with ad.track_copies() as log:
        copied = ad.from_arrow(rows, copy=True)
    assert sum(entry.bytes for entry in log) < 2_000
    for found in (pickle.loads(pickled), copied, copy.deepcopy(ad.from_arrow(rows))):
        read = pa.array(found)
        read.validate(full=True)
        assert read.equals(rows)


def test_devices():
    for device in (ad.Device("cpu"), ad.Device("cuda:1")):
        assert again(device) == device == copy.deepcopy(device)


class TestWhatDoesNot:
    def test_a_stream(self):
        stream = ad.from_arrow(pa.table({"a": [1]}))
        with pytest.raises(TypeError, match="read once"):
            pickle.dumps(stream)
        assert stream.column_names == ["a"]

    def test_a_log(self):
        with pytest.raises(TypeError, match="CopyLog"):
            pickle.dumps(ad.track_copies())


def tampered(x, place, value):
    """What a pickle of `x` gives, whose argument at `place` is another."""
    rebuild, arguments = x.__reduce_ex__(4)
    arguments = list(arguments)
    where = arguments
    for index in place[:-1]:
        where[index] = list(where[index])
        where = where[index]
    where[place[-1]] = value
    return rebuild(*freeze(arguments))


def freeze(x):
    return tuple(freeze(item) for item in x) if isinstance(x, (list, tuple)) else x


class TestHostilePickles:
    """A pickle that lies about sizes is an error."""

    @pytest.mark.parametrize(
        ("place", "value"),
        [
            ((0,), "int64"),
            ((0,), "nothing"),
            ((1,), (5,)),
            ((1,), (3,)),
            ((1,), (-4,)),
            ((1,), (2**62,)),
            ((1,), (2**62, 2**62)),
            ((1,), ()),
            ((1,), (2, 2)),
            ((2,), (2,)),
            ((2,), (0,)),
            ((2,), (-1,)),
            ((2,), (2**62,)),
            ((2,), (1, 1)),
            ((3,), b""),
            ((3,), b"123"),
            ((4,), ("l", "", 2, {}, (), None)),
            ((4,), ("+w:2", "", 2, {}, (("s", "", 2, {}, (), None),), None)),
            ((4,), ("nonsense", "", 2, {}, (), None)),
            ((4,), None),
        ],
        ids=repr,
    )
    def test_of_a_tensor(self, place, value):
        tensor = ad.to_tensor(pa.array([1, 2, 3, 4], pa.int16()))
        if value is None:
            assert tampered(tensor, place, value).shape == (4,)
            return
        with pytest.raises((ValueError, TypeError)):
            tampered(tensor, place, value)

    @pytest.mark.parametrize("buffer", [b"", b"123", b"1" * 9], ids=len)
    def test_a_buffer_of_another_length(self, buffer):
        tensor = ad.to_tensor(pa.array([1, 2, 3, 4], pa.int16()))
        pickled = pickle.dumps(tensor, protocol=5, buffer_callback=lambda _: None)
        with pytest.raises(ad.ConversionError, match=f"^{len(buffer)} bytes are no dense int16 tensor") as raised:
            pickle.loads(pickled, buffers=[buffer])
        assert not isinstance(raised.value, ad.InternalError)

    def test_of_bools(self):
        tensor = ad.from_dlpack(np.array([True, False]))
        with pytest.raises(ad.ConversionError, match="0 and 1"):
            tampered(tensor, (3,), b"\x01\x02")

    def test_of_codes(self):
        tensor = ad.to_tensor(pa.array(["a", "b"]).dictionary_encode())
        with pytest.raises(ad.ConversionError, match="dictionary"):
            tampered(tensor, (5,), ad.from_arrow(pa.array([1])))
        with pytest.raises(ad.ConversionError):
            # Codes beyond the dictionary are found on the way back.
            ad.to_arrow(tampered(tensor, (3,), b"\x00\x00\x00\x00\x09\x00\x00\x00"))

    @pytest.mark.parametrize(
        ("array", "place", "value"),
        [
            (pa.array([1, 2]), (1, 0), 3),
            (pa.array([1, 2]), (1, 0), 2**63),
            (pa.array([1, 2]), (1, 0), 2**64 - 1),
            (pa.array([1, 2]), (1, 2), ()),
            (pa.array([1, 2]), (1, 2), (b"",)),
            (pa.array([1, None]), (1, 1), b""),
            (pa.array(["a", "b"]), (1, 2, 1), b""),
            (pa.array(["a", "b"]), (1, 2, 1), b"\xff\xff"),
            (pa.array(["a", "b"]), (1, 2, 0), np.array([0, 9, 2], np.int32)),
            (pa.array(["a", "b"]), (1, 2, 0), np.array([0, -1, 2], np.int32)),
            (pa.array([[1], [2]]), (1, 2, 0), np.array([0, 1, 2**30], np.int32)),
            (pa.array([[1], [2]]), (1, 3), ()),
            (pa.array(["a"]).dictionary_encode(), (1, 2, 0), np.array([7], np.int32)),
            (pa.array([{"x": 1}]), (1, 0), 2),
            (pa.nulls(1), (1, 0), 2**64 - 1),
            (pa.array([1, 2]), (0, 0), "u"),
            (pa.array([1, 2]), (0, 0), "+s"),
            (pa.array(["a", "b"]), (0, 0), "vu"),
        ],
        ids=str,
    )
    def test_of_an_array(self, array, place, value):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            tampered(ad.from_arrow(array), place, value)

    def test_nested_without_end(self):
        rebuild, arguments = ad.from_arrow(pa.array([1])).__reduce_ex__(4)
        field = ("l", "", 2, {}, (), None)
        for _ in range(1000):
            field = ("+l", "", 2, {}, (field,), None)
        with pytest.raises(ValueError, match="nested"):
            rebuild(field, arguments[1])
        parts = (0, None, (), ())
        for _ in range(1000):
            parts = (0, None, (), (parts,))
        with pytest.raises(ValueError, match="nested"):
            rebuild(arguments[0], parts)
