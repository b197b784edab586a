"""Arrays, batches, streams and tensors between the host and devices: every type, every way, in the order of events."""

from __future__ import annotations

import gc
from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Consumer, DeviceArray, event_of, exported
from test_device_arrays import TYPES

HOST = "cpu"
MORE: dict[str, pa.Array] = {
    "sliced_strings": pa.array([None if i % 7 == 0 else "x" * (i % 11) for i in range(300)])[13:250],
    "sliced_lists": pa.array([[str(j) for j in range(i % 4)] for i in range(100)])[5:77],
    "sliced_large_lists": pa.array([[i] * (i % 3) for i in range(100)], pa.large_list(pa.int32()))[50:],
    "sliced_bools": pa.array([None if i % 3 == 0 else i % 2 == 0 for i in range(100)])[11:93],
    "sliced_fixed": pa.array([[i, None] for i in range(30)], pa.list_(pa.int8(), 2))[7:22],
    "sliced_struct": pa.array([None if i % 5 == 0 else {"s": str(i), "l": [i]} for i in range(50)])[9:40],
    "sliced_map": pa.array([[(str(i), i)] for i in range(20)], pa.map_(pa.string(), pa.int32()))[3:9],
    "sliced_dictionary": pa.array(["a", "b", None, "a"] * 10).dictionary_encode()[5:33],
    "sliced_views": pa.array([f"a string that is no inline one, {i}" for i in range(40)], pa.string_view())[9:30],
    "sliced_list_view": pa.array([[i, i] for i in range(30)], pa.list_view(pa.int64()))[4:20],
    "sliced_run_end": pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 9], pa.int32()), pa.array(["x", None, "z"]))[
        3:8
    ],
    "sliced_sparse_union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(["a", "b", "c", "d"])]
    )[1:3],
    "sliced_dense_union": pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
    )[1:],
    "no_rows": pa.array(["a", "b"])[1:1],
    "no_rows_of_lists": pa.array([["a"], ["b"]])[2:],
    "large": pa.array(np.arange(700_000), pa.int64()),
    "many_strings": pa.array([str(i) for i in range(200_000)]),
}
EVERY = TYPES | MORE


def same(found: Any, expected: pa.Array) -> None:
    read = pa.array(found)
    read.validate(full=True)
    assert read.type == expected.type
    assert read.equals(expected), (read, expected)


WAYS = ["cuda", "cuda_host", "cuda:1", "cuda cuda:1", "cuda cuda_host", "cuda cuda_host:1", "cuda_host cuda"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", EVERY)
def test_there_and_back(name: str, way: str) -> None:
    array = ad.from_arrow(EVERY[name])
    for device in way.split():
        array = array.to_device(device)
        assert array.device == ad.Device(device)
        gc.collect()
    same(array.to_device(HOST), EVERY[name])


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("name", TYPES)
def test_what_another_writes_is_waited_for(name: str, kind: int) -> None:
    source = DeviceArray(TYPES[name], kind)
    array = ad.from_arrow(source.give())
    host = array.to_device(HOST)
    del array
    same(host, TYPES[name])


@pytest.mark.parametrize("target", ["cuda", "cuda:1", "cuda_host"])
@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST])
def test_nothing_waits_on_the_way_to_a_device(host_waits: Any, kind: int, target: str) -> None:
    """The source is released at once, and reused by its owner behind our copy alone."""
    data = pa.array(range(40_000), pa.int32())
    array = ad.from_arrow(DeviceArray(data, kind).give())
    waits = host_waits()
    moved = array.to_device(target)
    del array
    assert (waits.ours, waits.drivers) == (0, 0)
    if not (kind == CUDA_HOST and target == "cuda_host"):
        consumer = Consumer(moved.device.id)
        sizes = [0, data.nbytes]
        assert consumer.read(moved, sizes)[1] == np.arange(40_000, dtype="int32").tobytes()
    del moved


def test_from_ordinary_memory_nothing_waits(host_waits: Any) -> None:
    columns = {f"c{i}": np.arange(1000, dtype="float32") + i for i in range(100)}
    batch = ad.from_arrow(pa.record_batch(columns))
    waits, before = host_waits(), driver.calls("cuMemcpyHtoDAsync_v2")
    moved = batch.to_device("cuda")
    assert (waits.ours, waits.drivers) == (0, 0)
    # 100 buffers of 4,000 bytes go together.
    assert driver.calls("cuMemcpyHtoDAsync_v2") - before == 1
    assert driver.calls("cuMemAllocFromPoolAsync") == 1
    with exported(moved) as struct:
        assert event_of(struct) is not None
    table = pa.record_batch(moved.to_device(HOST))
    assert table.equals(pa.record_batch(columns))


def test_gaps_hold_nothing_of_what_was_staged_before() -> None:
    """The buffers of a batch are copied with the gaps between them, through page-locked memory that held other data."""
    ad.from_dlpack(np.full(4096, 0xFF, "u1")).to_device("cuda")
    driver.drain()
    before = driver.calls("cuMemHostAlloc")
    columns = {name: np.full(3, value, "i1") for name, value in (("a", 1), ("b", 2))}
    moved = ad.to_tensors(ad.from_arrow(pa.record_batch(columns)).to_device("cuda"))
    assert driver.calls("cuMemHostAlloc") == before, "the same page-locked memory"
    a, b = (moved[name].__cuda_array_interface__["data"][0] for name in columns)
    assert b - a > 3
    found = driver.read(a, b - a + 3, driver.LEGACY)
    assert found == b"\x01" * 3 + bytes(b - a - 3) + b"\x02" * 3


def test_the_source_may_change_when_the_call_returns() -> None:
    values = np.arange(3_000_000, dtype="int32")
    moved = ad.from_dlpack(values).to_device("cuda", threads=2)
    values[:] = 0
    assert np.array_equal(np.from_dlpack(moved.to_device(HOST)), np.arange(3_000_000, dtype="int32"))


class Pinned:
    """Page-locked memory, as the CPU's or as the device's."""

    def __init__(self, kind: int, rows: int = 1 << 17) -> None:
        self.address = driver.allocate_host(8 * rows)
        self.values = np.frombuffer((driver.ctypes.c_char * (8 * rows)).from_address(self.address), "int64")
        self.values[:] = np.arange(rows)
        self.kind = kind
        self.made = producers.DLPack(
            None, device=(kind, 0), dtype=(0, 64, 1), shape=(rows,), strides=(1,), address=self.address
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)

    def __dlpack__(self, **_: Any) -> Any:
        return self.made.capsule()


@pytest.mark.parametrize("rows", [8, 1 << 17, 700_000])
@pytest.mark.parametrize("make", ["tensor", "array"])
def test_page_locked_memory_of_the_cpu_may_change_when_the_call_returns(make: str, rows: int, host_waits: Any) -> None:
    """PyTorch's `pin_memory()` hands it out as the CPU's, whose owner knows of no copy under way."""
    source = Pinned(CPU, rows)
    array = ad.from_dlpack(source) if make == "tensor" else ad.from_arrow(pa.array(source.values))
    waits = host_waits()
    gate = driver.gate(driver.LEGACY)
    moved = array.to_device("cuda")
    del array
    assert (waits.ours, waits.drivers) == (0, 0)
    assert make == "array" or source.made.released, "nothing of ours reads it any more"
    source.made.expected = int(make == "tensor")
    source.values[:] = -1
    driver.open_gate(gate)
    back = moved.to_device(HOST)
    found = np.from_dlpack(back) if make == "tensor" else np.asarray(pa.array(back))
    np.testing.assert_array_equal(found, np.arange(rows))
    driver.free_host(source.address)


def test_page_locked_memory_of_the_device_is_copied_where_it_is(host_waits: Any) -> None:
    """Its owner knows that copies may be under way; it is released behind ours."""
    source = Pinned(CUDA_HOST)
    tensor = ad.from_dlpack(source)
    waits, before = host_waits(), driver.calls("cuMemHostAlloc")
    gate = driver.gate(driver.LEGACY)
    moved = tensor.to_device("cuda")
    del tensor
    ad.memory_stats()
    assert (waits.ours, waits.drivers, source.made.released) == (0, 0, False)
    assert driver.calls("cuMemHostAlloc") == before, "nothing was staged"
    driver.open_gate(gate)
    assert driver.soon(lambda: source.made.released)
    np.testing.assert_array_equal(np.from_dlpack(moved.to_device(HOST)), np.arange(len(source.values)))
    driver.free_host(source.address)


def test_only_the_slice_moves() -> None:
    data = pa.array([str(i) for i in range(100_000)])[50_000:50_100]
    with ad.track_copies() as log:
        moved = ad.from_arrow(data).to_device("cuda")
    ((why, moved_bytes),) = [(entry.why, entry.bytes) for entry in log]
    assert why == 'to_device("cuda:0")'
    assert moved_bytes < 2000
    same(moved.to_device(HOST), data)


def test_a_column_of_a_struct_with_nulls() -> None:
    data = pa.array([None if i % 3 == 0 else {"a": i} for i in range(30)])
    column = ad.from_arrow(data).column("a")
    expected = pa.array([None if i % 3 == 0 else i for i in range(30)])
    same(column.to_device("cuda").to_device(HOST), expected)


def test_the_same_device_is_the_same_object() -> None:
    array = ad.from_arrow(pa.array([1, 2]))
    assert array.to_device(HOST) is array
    there = array.to_device("cuda")
    assert there.to_device("cuda:0") is there
    pinned = array.to_device("cuda_host")
    assert pinned.to_device("cuda_host") is pinned


def test_managed_memory_of_a_device_is_that_device_s_as_an_array_too() -> None:
    tensor = ad.to_tensor(DeviceArray(pa.array([1.0, 2.0, 3.0]), CUDA_MANAGED).give()).to_device("cuda")
    valid = ad.to_tensor(DeviceArray(pa.array([True, False, True])).give())
    assert tensor.device == ad.Device("cuda")
    for array, expected in ((ad.to_arrow(tensor), [1, 2, 3]), (ad.to_arrow(tensor, validity=valid), [1, None, 3])):
        assert array.device == ad.Device("cuda")
        assert pa.array(array.to_device("cpu")).to_pylist() == expected


def test_managed_memory_that_the_host_reads_starts_no_other_device() -> None:
    """Its own device tells whether it has to be idle meanwhile."""
    array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3]), CUDA_MANAGED, 1).give())
    ad.to_tensor(array)
    started = driver.calls("cuDevicePrimaryCtxRetain")
    assert pa.array(array.to_device(HOST)).to_pylist() == [1, 2, 3]
    assert driver.calls("cuDevicePrimaryCtxRetain") == started


def test_the_host_reads_page_locked_memory_where_it_is(host_waits: Any) -> None:
    array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3]), CUDA_HOST).give())
    with exported(array) as struct:
        address = driver.ctypes.c_void_p.from_address(struct.array.buffers + 8).value
    host = array.to_device(HOST)
    assert pa.array(host).buffers()[1].address == address
    managed = ad.from_arrow(DeviceArray(pa.array([1, 2, 3]), CUDA_MANAGED).give())
    waits = host_waits()
    relabelled = managed.to_device("cuda:1")
    assert waits.ours == 0
    assert str(relabelled.device) == "cuda:1"
    assert Consumer().read(relabelled, [0, 24])[1] == np.arange(1, 4).tobytes()


@pytest.mark.parametrize("device", ["cuda_managed", "rocm", "oneapi"])
def test_what_is_no_way(device: str) -> None:
    with pytest.raises(ad.ConversionError, match="no copy between these"):
        ad.from_arrow(pa.array([1])).to_device(device)
    with pytest.raises(ad.ConversionError, match="no copy between these"):
        ad.from_dlpack(np.zeros(2)).to_device(device)


class TestRequestedDevice:
    def test_arrays(self, host_waits: Any) -> None:
        array = ad.from_arrow(pa.array([1, None, 3]))
        waits = host_waits()
        with exported(array, requested_device=(CUDA, 1)) as struct:
            assert (struct.device_type, struct.device_id) == (CUDA, 1)
            assert event_of(struct) is not None
        assert waits.ours == 0
        for device in (CUDA, (CUDA, 0), "cuda:0"):
            with exported(array, requested_device=device) as struct:
                assert (struct.device_type, struct.device_id) == (CUDA, 0)
        del struct

    def test_to_the_host(self) -> None:
        array = ad.from_arrow(DeviceArray(pa.array(["a", None, "c"])).give())
        same(
            pa.Array._import_from_c_device_capsule(*array.__arrow_c_device_array__(requested_device=1)),
            pa.array(["a", None, "c"]),
        )

    def test_with_a_schema(self) -> None:
        batch = ad.from_arrow(DeviceArray(pa.array([{"a": 1}, {"a": 2}])).give())
        wanted = pa.schema([pa.field("a", pa.float64())]).__arrow_c_schema__()
        found = pa.RecordBatch._import_from_c_device_capsule(
            *batch.__arrow_c_device_array__(requested_schema=wanted, requested_device=1)
        )
        assert found.to_pydict() == {"a": [1.0, 2.0]}

    def test_tensors(self) -> None:
        tensor = ad.from_dlpack(np.arange(6, dtype="int32"))
        with exported(tensor, requested_device=CUDA) as struct:
            assert struct.device_type == CUDA
        del struct

    def test_streams(self) -> None:
        data = [pa.record_batch({"a": [i, i + 1]}) for i in range(4)]
        reader = pa.RecordBatchReader.from_batches(data[0].schema, iter(data))
        stream = ad.from_arrow(reader)
        there = ad.from_arrow(Only(stream.__arrow_c_device_stream__(requested_device=CUDA)))
        assert str(there.device) == "cuda:0"
        batches = list(there)
        assert {str(batch.device) for batch in batches} == {"cuda:0"}
        assert [pa.record_batch(batch.to_device(HOST)).to_pydict() for batch in batches] == [
            batch.to_pydict() for batch in data
        ]

    def test_what_is_no_way(self) -> None:
        for device in (CUDA_MANAGED, 10):
            with pytest.raises(BufferError, match="no copy between these"):
                ad.from_arrow(pa.array([1])).__arrow_c_device_array__(requested_device=device)


class Only:
    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **kwargs: Any) -> Any:
        return self.capsule


class TestStreams:
    def test_each_array_is_moved_when_it_is_read(self) -> None:
        read = []

        def batches():
            for index in range(3):
                read.append(index)
                yield pa.record_batch({"s": [str(index)] * 5})

        schema = pa.schema([("s", pa.string())])
        stream = ad.from_arrow(pa.RecordBatchReader.from_batches(schema, batches())).to_device("cuda")
        assert (str(stream.device), read) == ("cuda:0", [])
        first = next(stream)
        assert read == [0]
        assert pa.record_batch(first.to_device(HOST)).to_pydict() == {"s": ["0"] * 5}
        back = ad.from_arrow(stream, device="cpu")
        assert [pa.record_batch(batch).to_pydict()["s"][0] for batch in back] == ["1", "2"]

    def test_a_copy_that_fails_is_told_where_the_array_comes(self) -> None:
        batches = [pa.record_batch({"a": np.arange(1000)}) for _ in range(3)]
        reader = pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
        stream = ad.from_arrow(reader).to_device("cuda")
        next(stream)
        driver.fail("cuMemcpyHtoDAsync_v2", 1, 1)
        with pytest.raises(ad.ConversionError, match="cuMemcpyHtoDAsync_v2 failed"):
            next(stream)


class TestFunctions:
    BATCH = pa.record_batch({"a": [1.0, 2.0, None], "b": [True, False, True], "c": [1, 2, 3]})

    def there(self, tensor: Any) -> np.ndarray:
        assert str(tensor.device) == "cuda:0"
        return np.from_dlpack(tensor.to_device(HOST))

    def test_to_tensor(self) -> None:
        matrix = ad.to_tensor(self.BATCH, nulls="nan", dtype="float32", device="cuda")
        expected = np.from_dlpack(ad.to_tensor(self.BATCH, nulls="nan", dtype="float32"))
        assert np.array_equal(self.there(matrix), expected, equal_nan=True)
        column = ad.to_tensor(self.BATCH["b"], device="cuda")
        assert self.there(column).tolist() == [True, False, True]

    def test_to_tensors(self) -> None:
        before = driver.calls("cuMemAllocFromPoolAsync")
        tensors = ad.to_tensors(self.BATCH, nulls=0, device="cuda")
        assert driver.calls("cuMemAllocFromPoolAsync") - before == 1
        assert self.there(tensors["a"]).tolist() == [1, 2, 0]
        assert self.there(tensors["b"]).tolist() == [True, False, True]
        own = ad.group(["a", "c"], nulls=0, validity="valid")
        groups = ad.to_tensors(self.BATCH, columns={"x": own, "y": "b"}, device="cuda")
        assert self.there(groups["valid"]).tolist() == [[True, True], [True, True], [False, True]]
        assert self.there(groups["x"]).tolist() == [[1, 1], [2, 2], [0, 3]]
        assert self.there(groups["y"]).tolist() == [True, False, True]

    def test_data_of_a_device_is_converted_on_the_host_that_it_is_wanted_on(self) -> None:
        there = ad.from_arrow(self.BATCH).to_device("cuda")
        matrix = ad.to_tensor(there, nulls="nan", dtype="float64", device="cpu")
        assert matrix.device == ad.Device("cpu")
        expected = np.from_dlpack(ad.to_tensor(self.BATCH, nulls="nan", dtype="float64"))
        assert np.array_equal(np.from_dlpack(matrix), expected, equal_nan=True)

    def test_to_ragged(self) -> None:
        lists = pa.array([[1, 2], [], [3]])
        ragged = ad.to_ragged(lists, device="cuda")
        assert str(ragged.device) == "cuda:0"
        assert self.there(ragged.values).tolist() == [1, 2, 3]
        assert self.there(ragged.offsets).tolist() == [0, 2, 2, 3]
        nested = ad.to_ragged(pa.array([[[1], [2, 3]], []]), device="cuda")
        assert self.there(nested.values.values).tolist() == [1, 2, 3]
        matrix, valid = ad.to_ragged(lists, pad=(0, None), device="cuda")
        assert self.there(matrix).tolist() == [[1, 2], [0, 0], [3, 0]]
        assert self.there(valid).tolist() == [[True, True], [False, False], [True, False]]
        there = ad.from_arrow(lists).to_device("cuda")
        assert np.from_dlpack(ad.to_ragged(there, device="cpu").values).tolist() == [1, 2, 3]

    def test_validity_and_to_arrow(self) -> None:
        assert self.there(ad.validity(self.BATCH["a"], device="cuda")).tolist() == [True, True, False]
        array = ad.to_arrow(np.array([True, False]), type=pa.bool_(), device="cuda")
        assert str(array.device) == "cuda:0"
        same(array.to_device(HOST), pa.array([True, False]))
        batch = ad.to_arrow(np.zeros((3, 2)), names=["x", "y"], device="cuda")
        assert pa.record_batch(batch.to_device(HOST)).to_pydict() == {"x": [0.0] * 3, "y": [0.0] * 3}

    def test_from_arrow_and_from_dlpack(self) -> None:
        array = ad.from_arrow(pa.array(["a", "b"]), device="cuda")
        same(ad.from_arrow(array, device="cpu"), pa.array(["a", "b"]))
        tensor = ad.from_dlpack(np.arange(3), device="cuda")
        assert self.there(tensor).tolist() == [0, 1, 2]
        for copy in (None, True):
            assert str(ad.from_arrow(pa.array([1]), device="cuda", copy=copy).device) == "cuda:0"

    def test_no_copy(self) -> None:
        for convert in (
            lambda: ad.to_tensor(pa.array([1]), device="cuda", copy=False),
            lambda: ad.to_tensors(pa.record_batch({"a": [1]}), device="cuda", copy=False),
            lambda: ad.from_arrow(pa.array([1]), device="cuda", copy=False),
            lambda: ad.from_dlpack(np.zeros(1), device="cuda", copy=False),
            lambda: ad.to_arrow(np.zeros(1), device="cuda", copy=False),
        ):
            with pytest.raises(ad.CopyError, match="copied to be on cuda:0"):
                convert()

    def test_dictionary_codes_keep_their_dictionary(self) -> None:
        data = pa.array(["b", "a", "b"]).dictionary_encode()
        codes = ad.to_tensor(data, device="cuda")
        assert self.there(codes).tolist() == [0, 1, 0]
        same(ad.to_arrow(codes).to_device(HOST), data)

    def test_dlpack_asks_for_a_device(self, host_waits: Any) -> None:
        tensor = ad.from_dlpack(np.arange(5, dtype="int16"))
        stream = driver.Stream()
        waits = host_waits()
        capsule = tensor.__dlpack__(dl_device=(CUDA, 0), stream=stream.handle, max_version=(1, 0))
        assert waits.ours == 0
        # What hands the capsule on orders no other stream behind this one.
        stream.synchronize()
        held = ad.from_dlpack(_Capsule(capsule, (CUDA, 0)))
        assert np.from_dlpack(held.to_device(HOST)).tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(BufferError, match="copied"):
            tensor.__dlpack__(dl_device=(CUDA, 0), copy=False)


class _Capsule:
    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class TestHostile:
    """From memory of a device, as pyarrow finds such offsets where it can read them."""

    @staticmethod
    def with_offsets(array: pa.Array, offsets: list[int]) -> Any:
        def change(node: Any) -> None:
            data = np.array(offsets, "int32")
            target = node.buffers[1]
            driver.synchronize()
            driver.write(target, data.tobytes(), driver.LEGACY)
            driver.synchronize()

        return ad.from_arrow(DeviceArray(array, change=change).give())

    def test_offsets_that_decrease(self) -> None:
        bad = self.with_offsets(pa.array(["abc", "def"]), [5, 3, 1])
        for device in (HOST, "cuda:1"):
            with pytest.raises(ad.ConversionError, match="offsets"):
                bad.to_device(device)

    def test_lists_beyond_their_elements(self) -> None:
        bad = self.with_offsets(pa.array([[1, 2]]), [0, 9])
        for device in (HOST, "cuda:1"):
            with pytest.raises(ad.ConversionError, match="2 elements"):
                bad.to_device(device)

    def test_a_stream_of_another_device(self) -> None:
        with pytest.raises(BufferError, match="primary context"):
            ad.from_arrow(pa.array([1])).to_device("cuda:0", stream=driver.Stream(1))
        with pytest.raises(BufferError, match="stream must be None"):
            ad.from_arrow(pa.array([1])).to_device("cpu", stream=1)

    def test_a_device_that_is_none(self) -> None:
        with pytest.raises(BufferError, match="no device cuda:7"):
            ad.from_arrow(pa.array([1])).to_device("cuda:7")

    def test_a_stream_that_is_captured(self) -> None:
        work = driver.Stream()
        with driver.capture(work.handle), pytest.raises(BufferError, match="captured"):
            ad.from_arrow(pa.array([1])).to_device("cuda", stream=work)
