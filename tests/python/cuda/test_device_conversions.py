"""What kernels make of columns, against what the same conversion makes of the same data in host memory."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import device_arrow
import driver
import fakes
import ml_dtypes
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, Consumer, DeviceArray, DeviceStream, Memory, exported, pointer

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
ROWS = 130


def host(tensor: ad.Tensor) -> np.ndarray:
    """The elements of a tensor on a device, floats as the bits that they are."""
    assert tensor.device.type == CUDA
    return bits(tensor.to_device("cpu"))


def bits(tensor: Any) -> np.ndarray:
    """The elements of a tensor in host memory, floats as the bits that they are."""
    if isinstance(tensor, ad.Tensor) and tensor.dtype == "bfloat16":
        # NumPy has no such dtype.
        memory = (ctypes.c_uint16 * tensor.size).from_address(pointer(tensor))
        return np.ctypeslib.as_array(memory).reshape(tensor.shape).copy()
    array = np.array(tensor)
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "f" else array


def numbers(name: str, rows: int, nulls: float = 0.0, seed: int = 1) -> pa.Array:
    """Random values, small enough for every dtype, in some of which rows are null."""
    rng = np.random.default_rng(seed)
    valid = rng.random(rows) >= nulls
    if name == "bool":
        return pa.array(rng.random(rows) < 0.5, mask=~valid)
    values = rng.integers(0, 100, rows).astype(name)
    return pa.array(values, mask=~valid)


def nested(values: pa.Array, *sizes: int, nulls: float = 0.0) -> pa.Array:
    """The values as fixed-size lists of these sizes, the outermost first."""
    chooser = random.Random(len(values))
    for size in reversed(sizes):
        rows = len(values) // size
        mask = pa.array([chooser.random() < nulls for _ in range(rows)]) if nulls else None
        values = pa.FixedSizeListArray.from_arrays(values.slice(0, rows * size), size, mask=mask)
    return values


COLUMNS: dict[str, Callable[[float], pa.Array]] = {
    **{name: lambda nulls, name=name: numbers(name, ROWS, nulls) for name in [*INTEGERS, *FLOATS, "bool"]},
    "timestamp": lambda nulls: numbers("int64", ROWS, nulls).cast(pa.timestamp("us")),
    "bytes": lambda nulls: pa.array([None if i % 5 < 5 * nulls else b"%03d" % i for i in range(ROWS)], pa.binary(3)),
    "lists": lambda nulls: nested(numbers("int16", 3 * ROWS, nulls), 3, nulls=nulls),
    "lists of bools": lambda nulls: nested(numbers("bool", 5 * ROWS, nulls), 5, nulls=nulls),
    "lists of lists": lambda nulls: nested(numbers("float32", 6 * ROWS, nulls), 3, 2, nulls=nulls),
    "bool8": lambda nulls: pa.ExtensionArray.from_storage(
        pa.bool8(), pa.array([None if i % 7 < 7 * nulls else i % 3 - 1 for i in range(ROWS)], pa.int8())
    ),
}
POLICIES: dict[str, tuple[float, dict[str, Any]]] = {
    "error": (0.0, {}),
    "fill": (0.3, {"nulls": 1}),
    "keep": (0.3, {"nulls": "keep"}),
}


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("policy", POLICIES)
def test_copies_of_every_type(policy: str, kind: int) -> None:
    nulls, keywords = POLICIES[policy]
    for name, make in COLUMNS.items():
        whole = make(nulls)
        for data in (whole, whole[13:100], whole[5:5]):
            source = ad.from_arrow(DeviceArray(data, kind).give())
            made = ad.to_tensor(source, copy=True, **keywords)
            expected = ad.to_tensor(data, copy=True, **keywords)
            assert (made.dtype, made.shape, made.strides) == (expected.dtype, expected.shape, expected.strides), name
            assert (made.copied, made.writable) == (expected.copied, expected.writable), name
            if len(data):
                assert np.array_equal(host(made), bits(expected)), name


@pytest.mark.parametrize("name", FLOATS)
def test_nulls_become_nan(name: str) -> None:
    data = numbers(name, ROWS, 0.4)[3:]
    made = ad.to_tensor(DeviceArray(data).give(), nulls="nan")
    assert np.array_equal(host(made), bits(ad.to_tensor(data, nulls="nan")))


@pytest.mark.parametrize("to", ["bool", *INTEGERS, *FLOATS, "bfloat16"])
def test_casts(to: str) -> None:
    for name in ["bool", *INTEGERS, *FLOATS]:
        data = numbers(name, ROWS, 0.2)[7:]
        if to == "bool":
            of = np.dtype(name).type
            data = pa.array([None if value is None else of(value % 2) for value in data.to_pylist()], data.type)
        made = ad.to_tensor(DeviceArray(data).give(), dtype=to, nulls=1)
        expected = ad.to_tensor(data, dtype=to, nulls=1)
        assert made.dtype == expected.dtype == to
        assert np.array_equal(host(made), bits(expected)), name


@pytest.mark.parametrize("to", ["float32", "float64", "float16", "int32"])
def test_casts_of_bfloat16(to: str) -> None:
    values = np.arange(-8, 120).astype(ml_dtypes.bfloat16)
    storage = pa.array([value.tobytes() for value in values], pa.binary(2))
    field = pa.field("x", storage.type, metadata={"ARROW:extension:name": "arrow_dlpack.bfloat16"})
    made = ad.to_tensor(DeviceArray(storage, field=field).give(), dtype=to)
    assert (made.dtype, np.array_equal(host(made), bits(values.astype(to)))) == (to, True)


def test_chunks_are_joined() -> None:
    for name, make in COLUMNS.items():
        whole = make(0.3)
        chunks = [whole[:0], whole[3:64], whole[64:65], whole[65:]]
        stream = ad.from_arrow(DeviceStream([DeviceArray(chunk) for chunk in chunks]).give())
        made = ad.to_tensor(stream, nulls=1)
        expected = ad.to_tensor(pa.chunked_array(chunks), nulls=1)
        assert made.shape == expected.shape
        assert np.array_equal(host(made), bits(expected)), name


def table(rows: int, names: list[str], nulls: float = 0.0, seed: int = 3) -> pa.RecordBatch:
    columns = [numbers(name, rows, nulls, seed + index) for index, name in enumerate(names)]
    return pa.RecordBatch.from_arrays(columns, [f"c{index}" for index in range(len(names))])


def struct(batch: pa.RecordBatch) -> pa.StructArray:
    return batch.to_struct_array()


MATRICES = {
    "one": ["float32"],
    "four": ["float32"] * 4,
    "odd": ["int16"] * 5,
    "mixed": ["float32", "int8", "bool", "float16", "uint8"],
    "many": ["float64"] * 70,
    "bools": ["bool"] * 16,
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", MATRICES)
def test_batches_are_packed(name: str, order: str) -> None:
    for nulls in (0.0, 0.3):
        batch = table(ROWS, MATRICES[name], nulls)[2:]
        keywords: dict[str, Any] = {"order": order, "nulls": 1 if nulls else "error"}
        made = ad.to_tensor(DeviceArray(struct(batch)).give(), **keywords)
        expected = ad.to_tensor(batch, **keywords)
        assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(host(made), bits(expected))


@pytest.mark.parametrize("order", ["C", "F"])
def test_tables_of_chunks_are_packed(order: str) -> None:
    batches = [table(rows, ["float32", "int16", "bool"], 0.2, seed) for seed, rows in enumerate([40, 0, 1, 63])]
    stream = DeviceStream([DeviceArray(struct(batch)) for batch in batches])
    made = ad.to_tensor(ad.from_arrow(stream.give()), nulls=0, order=order)
    expected = ad.to_tensor(pa.Table.from_batches(batches), nulls=0, order=order)
    assert np.array_equal(host(made), bits(expected))


def test_groups_and_columns_of_a_batch() -> None:
    batch = table(ROWS, ["float32", "float32", "int64", "bool"], 0.2)
    source = ad.from_arrow(DeviceArray(struct(batch)).give())
    groups: dict[str, Any] = {"x": ["c0", "c1"], "y": "c2", "z": ["c3"]}
    made = ad.to_tensors(source, columns=groups, nulls=1)
    expected = ad.to_tensors(batch, columns=groups, nulls=1)
    assert list(made) == list(expected)
    for name, tensor in made.items():
        assert np.array_equal(host(tensor), bits(expected[name])), name
    made = ad.to_tensors(source, nulls=1, dtype={"c2": "float64"})
    expected = ad.to_tensors(batch, nulls=1, dtype={"c2": "float64"})
    for name, tensor in made.items():
        assert np.array_equal(host(tensor), bits(expected[name])), name


def test_nulls_of_rows_are_nulls_of_columns() -> None:
    data = pa.array([{"a": 1.5, "b": 2}, None, {"a": None, "b": 4}] * 30)
    source = ad.from_arrow(DeviceArray(data).give())
    assert np.array_equal(host(ad.to_tensor(source, nulls="nan")), bits(ad.to_tensor(data, nulls="nan")))
    assert np.array_equal(host(ad.validity(source["a"])), bits(ad.validity(ad.from_arrow(data)["a"])))


def test_validity_of_columns() -> None:
    data = pa.array([{"a": 1.5, "b": 2, "c": "x"}, None, {"a": None, "b": 4, "c": "y"}, {"a": 2.5, "b": 5}] * 100)[7:]
    source = DeviceArray(data)
    array = ad.from_arrow(source.give())
    for columns in (None, ["b"], ["c", "a"]):
        for order in ("C", "F"):
            expected = ad.validity(data, order=order, columns=columns)
            made = ad.validity(array, order=order, columns=columns)
            assert (made.shape, made.strides) == (expected.shape, expected.strides)
            assert made.device == array.device
            assert np.array_equal(host(made), bits(expected)), (columns, order)
    assert ad.validity(array, columns=[]).shape == (len(data), 0)
    with ad.track_copies() as log:
        ad.validity(array)
    assert [(entry.bytes, "cuda" in entry.what) for entry in log] == [(3 * len(data), True)]


def test_validity_of_columns_that_no_kernel_tells_names_the_way_to_the_host() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["x", None]))
    data = pa.StructArray.from_arrays([pa.array([1, 2, None]), runs], names=["a", "words"])
    array = ad.from_arrow(DeviceArray(data).give())
    with pytest.raises(BufferError, match="to_device") as caught:
        ad.validity(array)
    assert caught.value.column == "words"
    assert np.array_equal(bits(ad.validity(array, device="cpu")), bits(ad.validity(data)))
    assert np.array_equal(bits(ad.validity(array.to_device("cpu"))), bits(ad.validity(data)))
    with pytest.raises(BufferError, match="each column"):
        ad.validity(array, bits=True)


def test_categories_name_the_way_to_the_host() -> None:
    words = ad.from_arrow(DeviceArray(pa.array(["AA", None, "DL"])).give())
    options: dict[str, Any] = {"categories": ["AA", "DL"], "nulls": -1}
    with pytest.raises(ad.ConversionError, match=r'categor.*\.to_device\("cpu"\)'):
        ad.to_tensor(words, **options)
    assert np.from_dlpack(ad.to_tensor(words.to_device("cpu"), **options)).tolist() == [0, -1, 1]


def test_validity_of_every_type() -> None:
    for name, make in COLUMNS.items():
        for nulls in (0.0, 0.3):
            data = make(nulls)[11:]
            made = ad.validity(DeviceArray(data).give())
            assert (made.dtype, np.array_equal(host(made), bits(ad.validity(data)))) == ("bool", True), name


@pytest.mark.parametrize("to", ["int8", "uint8", "uint64", "float16", "bool"])
def test_what_does_not_fit_is_refused_as_on_the_host(to: str) -> None:
    for values in ([1, 0, 300, 70000, -1], [0.5, 1e30, 1.0]):
        data = pa.array(values * 20)
        errors = []
        for obj in (DeviceArray(data).give(), data):
            with pytest.raises(ad.CastError) as raised:
                ad.to_tensor(obj, dtype=to)
            errors.append(raised.value)
        # The value is in the message.
        assert (errors[0].row, errors[0].column, str(errors[0])) == (errors[1].row, errors[1].column, str(errors[1]))


@pytest.mark.parametrize("order", ["C", "F"])
def test_of_columns_packed_together_the_lowest_row_is_refused_as_on_the_host(order: str) -> None:
    columns = {"p": [1, 2, 300, 4] * 40, "q": [1, 300, 3, 4] * 40, "r": [1, 300, 300, 400] * 40}
    for names in (["p", "q"], ["q", "p"], ["r", "q"], ["q", "r"], ["p", "r", "q"]):
        batch = pa.record_batch({name: pa.array(columns[name], pa.int16()) for name in names})
        errors = []
        for obj in (DeviceArray(batch.to_struct_array()).give(), batch):
            with pytest.raises(ad.CastError) as raised:
                ad.to_tensor(obj, dtype="int8", order=order)
            errors.append(raised.value)
        assert [(error.column, error.row, str(error)) for error in errors] == [
            (next(name for name in names if columns[name][1] == 300), 1, str(errors[1]))
        ] * 2


def test_a_misfit_in_a_later_chunk_has_its_value() -> None:
    chunks = [pa.array([1] * 50), pa.array([2] * 20 + [-70000] + [300] * 20, pa.int64())]
    stream = ad.from_arrow(DeviceStream([DeviceArray(chunk) for chunk in chunks]).give())
    with pytest.raises(ad.CastError, match="-70000 does not fit uint8") as raised:
        ad.to_tensor(stream, dtype="uint8")
    assert raised.value.row == 70


def wide() -> ad.RecordBatch:
    """Two columns that fit uint8 and two that do not."""
    columns = [pa.array([1, 2, last]) for last in (3, 1000, 4, -1)]
    batch = pa.RecordBatch.from_arrays(columns, ["a", "b", "c", "d"])
    return ad.from_arrow(DeviceArray(batch.to_struct_array()).give())


GROUPS: dict[str, Any] = {"x": ["a", "c"], "y": "b", "z": ["a", "d"]}


@pytest.mark.parametrize("columns", [None, GROUPS], ids=["columns", "groups"])
def test_all_casts_of_a_batch_are_one_wait(columns: Any, host_waits: Any) -> None:
    batch = wide()
    waits = host_waits()
    tensors = ad.to_tensors(batch, columns=columns, dtype="float32")
    assert (len(tensors), waits.ours <= 1) == (3 if columns else 4, True)
    waits = host_waits()
    with pytest.raises(ad.CastError, match="1000 does not fit uint8") as raised:
        ad.to_tensors(batch, columns=columns, dtype="uint8")
    assert (raised.value.column, raised.value.row, waits.ours <= 1) == ("b", 2, True)


def test_what_is_wrong_first_is_said_first() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1000]), pa.array(["x"])], ["a", "b"])
    array = ad.from_arrow(DeviceArray(batch.to_struct_array()).give())
    for columns, name in ((["a", "b"], "a"), (["b", "a"], "b")):
        with pytest.raises(ad.ConversionError) as raised:
            ad.to_tensors(array, columns=columns, dtype="uint8")
        assert raised.value.column == name


def packed_bits(array: Any, rows: int) -> list[bool]:
    """The values of a boolean array on a device."""
    driver.synchronize()
    with exported(array) as struct:
        assert (struct.device_type, struct.array.n_buffers, struct.array.offset) == (CUDA, 2, 0)
        values = list(device_arrow.buffers_of(struct.array))[-1]
        assert values is not None
    packed = Consumer().read(array, [0, -(-rows // 8)])[1]
    assert packed is not None
    assert not packed[-1] >> (rows - 1) % 8 + 1, "what is left of the last byte is 0"
    return np.unpackbits(np.frombuffer(packed, "u1"), bitorder="little")[:rows].astype(bool).tolist()


@pytest.mark.parametrize("rows", [1, 8, 31, 32, 33, 1000])
def test_bools_of_other_libraries_become_bits(rows: int, pool: fakes.Pool, host_waits: Any) -> None:
    values = np.random.default_rng(rows).random(rows) < 0.5
    stream = driver.Stream()
    source = fakes.Torch(pool, values, stream=stream.handle)
    waits = host_waits()
    with ad.track_copies() as log:
        array = ad.to_arrow(source, type=pa.bool_())
    assert (waits.ours, waits.drivers, array.type) == (0, 0, "Boolean")
    assert [(entry.bytes, entry.why) for entry in log] == [(-(-rows // 8), "bools packed to bits")]
    assert packed_bits(array, rows) == values.tolist()
    with pytest.raises(ad.CopyError):
        ad.to_arrow(source, type=pa.bool_(), copy=False)


def test_bools_return_to_the_bits_that_they_came_from() -> None:
    data = pa.array([True, False, True, True] * 9)[3:]
    tensor = ad.to_tensor(DeviceArray(data).give())
    array = ad.to_arrow(tensor)
    assert (array.type, packed_bits(array, len(data))) == ("Boolean", data.to_pylist())
    assert packed_bits(tensor, len(data)) == data.to_pylist()


def test_a_table_of_many_chunks_is_one_pass() -> None:
    """More columns of chunks than launches take as their parameters."""
    batches = [table(rows, ["float32"] * 64, seed=rows) for rows in range(1, 26)]
    stream = DeviceStream([DeviceArray(struct(batch)) for batch in batches])
    made = ad.to_tensor(ad.from_arrow(stream.give()))
    assert np.array_equal(host(made), bits(ad.to_tensor(pa.Table.from_batches(batches))))


def test_a_null_is_refused_as_on_the_host() -> None:
    def forget(node: producers.Array) -> None:
        for part in [node, *node.parts]:
            part.array.null_count = -1

    batch = table(ROWS, ["int8", "bool", "float32"], 0.05)
    errors = []
    for obj in (DeviceArray(struct(batch), change=forget).give(), batch):
        with pytest.raises(ad.NullError) as raised:
            ad.to_tensor(obj, dtype="float64")
        errors.append(raised.value)
    assert (errors[0].row, errors[0].column) == (errors[1].row, errors[1].column)


def test_columns_that_lie_as_a_matrix_in_several_allocations_are_packed() -> None:
    batch = table(64, ["float64"] * 3)
    array = ad.from_arrow(DeviceArray(struct(batch)).give())
    for order in "FA":
        made, expected = ad.to_tensor(array, order=order), ad.to_tensor(batch, order=order)
        assert (made.copied, np.array_equal(host(made), bits(expected))) == (True, True)


def test_a_matrix_of_bytes_that_are_no_bools() -> None:
    stored = [pa.array([0, 1, value] * 8, pa.int8()) for value in (1, 2)]
    columns = [pa.ExtensionArray.from_storage(pa.bool8(), storage) for storage in stored]
    batch = pa.RecordBatch.from_arrays(columns, ["a", "b"])
    memory = Memory()
    start = memory.place(b"".join(storage.buffers()[1].to_pybytes()[:24] for storage in stored))

    def into_block(node: producers.Array) -> None:
        for index, part in enumerate(node.parts):
            part.buffers[1] = start + 24 * index

    fields = [pa.field(name, pa.int8(), metadata={"ARROW:extension:name": "arrow.bool8"}) for name in "ab"]
    data = pa.StructArray.from_arrays(stored, fields=fields)
    array = ad.from_arrow(DeviceArray(data, memory=memory, change=into_block).give())
    with pytest.raises(ad.CopyError):
        ad.to_tensor(array, order="A", copy=False)
    for order in "CFA":
        made, expected = ad.to_tensor(array, order=order), ad.to_tensor(batch, order=order)
        assert (made.dtype, made.shape, made.copied) == (expected.dtype, expected.shape, True)
        assert np.array_equal(host(made), bits(expected))


@pytest.mark.parametrize("skipped", [0, 1, 4, 7, 11, 15])
def test_bytes_of_any_alignment_become_bits(pool: fakes.Pool, skipped: int) -> None:
    """Whole vectors are read where the bytes are misaligned, too, and none beyond their ends."""
    for length in (1, 8, 15, 16, 17, 31, 32, 33, 48, 63, 100, 1000):
        values = np.arange(length) % 3 != 1
        start = driver.allocate(skipped + length)
        source = fakes.Torch(pool, values, stream=driver.LEGACY, address=start + skipped)
        bits = ad.to_arrow(ad.from_dlpack(source), type=pa.bool_())
        assert pa.array(bits.to_device("cpu")).to_pylist() == values.tolist()
        driver.synchronize()
        pool.blocks.append(start)
