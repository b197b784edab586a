"""Device arrays in and out: every type and kind of memory, with events, never read by the host."""

from __future__ import annotations

import ctypes
import decimal
from typing import Any

import arrow_dlpack as ad
import driver
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, Consumer, DeviceArray, buffers_of, drain, event_of, exported

TYPES: dict[str, pa.Array] = {
    "int32": pa.array([1, None, 3], pa.int32()),
    "float64": pa.array([1.0, 2.0, 3.0]),
    "bool": pa.array([True, None, False]),
    "null": pa.nulls(3),
    "date": pa.array([1, 2, 3], pa.date32()),
    "timestamp": pa.array([1, 2, None], pa.timestamp("ns", "UTC")),
    "interval": pa.array([(1, 2, 3), None, (4, 5, 6)], pa.month_day_nano_interval()),
    "decimal": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("2.5")], pa.decimal128(5, 1)),
    "binary_fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
    "string": pa.array(["a", None, "ccc"]),
    "large_string": pa.array(["a", "bb", "ccc"], pa.large_string()),
    "binary": pa.array([b"a", b"", None]),
    "string_view": pa.array(["a", "a string that is no inline one", None], pa.string_view()),
    "binary_view": pa.array([b"a", b"bb", None], pa.binary_view()),
    "list": pa.array([[1, 2], None, [3]]),
    "large_list": pa.array([["a"], [], ["b", None]], pa.large_list(pa.string())),
    "list_view": pa.array([[1, 2], [], [3]], pa.list_view(pa.int8())),
    "fixed_size_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 3, "b": None}]),
    "map": pa.array([[("a", 1)], [], [("b", 2)]], pa.map_(pa.string(), pa.int32())),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "dictionary_in_struct": pa.StructArray.from_arrays([pa.array(["a", "b"]).dictionary_encode()], ["d"]),
    "run_end": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", "y"])),
    "sparse_union": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    "dense_union": pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
    ),
    "nested": pa.array([{"a": [[1, 2], None]}, None, {"a": []}]),
    "empty": pa.array([], pa.list_(pa.string())),
    "slice": pa.array([None, 1, 2, None, 4, 5, 6, 7, 8, 9], pa.int64())[3:7],
    "slice_of_struct": pa.array([{"a": index} for index in range(20)])[9:12],
}


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("how", ["nanoarrow", "pyarrow", "cudf"])
def test_every_type_passes_through_untouched(name: str, kind: int, how: str) -> None:
    source = DeviceArray(TYPES[name], kind, how=how)
    waits, ours = driver.host_waits(), driver.calls()
    array = ad.from_arrow(source.give())
    assert (array.device.type, array.device.id) == (kind, 0)
    assert len(array) == len(TYPES[name])
    repr(array)
    with exported(array) as struct:
        assert list(struct.reserved) == [0, 0, 0]
        assert (struct.device_type, struct.device_id) == (kind, 0)
        found = list(buffers_of(struct.array))
        if "slice_of_struct" not in name:
            expected = list(buffers_of(source.node.array))
            assert found == expected
        else:
            assert (struct.array.offset, struct.array.null_count) == (0, 0)
        assert event_of(struct) == (None if how == "pyarrow" else source.event.handle)
    assert driver.host_waits() == waits
    # Events may be recorded for the release, and nothing else is asked of the driver.
    assert driver.calls() - ours < 20
    del array, struct


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("name", TYPES)
def test_a_consumer_that_waits_reads_what_the_producer_writes(name: str, kind: int) -> None:
    source = DeviceArray(TYPES[name], kind)
    array = ad.from_arrow(source.give())
    consumer = Consumer()
    with exported(array) as struct:
        addresses = list(buffers_of(struct.array))
    written = source.memory.blocks
    sizes = [len(written.get(address or 0, b"")) for address in addresses]
    for address, data in zip(addresses, consumer.read(array, sizes), strict=True):
        if address in written:
            assert data == written[address]


def test_the_memory_is_released_behind_the_consumers_work() -> None:
    source = DeviceArray(pa.array(range(1000)))
    array = ad.from_arrow(source.give())
    consumer = driver.Stream(flags=0)
    (address,) = (address for address in source.addresses if address)
    target = driver.allocate(8000)
    with exported(array) as struct:
        with driver.current():
            driver.call("cuStreamWaitEvent", driver.Handle(consumer.handle), driver.Handle(event_of(struct)), 0)
        gate = driver.gate(consumer.handle)
        driver.copy(target, address, 8000, consumer.handle)
    del array, struct
    # A blocking stream: what the legacy default stream has now is behind it.
    assert not source.memory.reused
    driver.open_gate(gate)
    drain()
    assert source.memory.reused
    driver.free(target)


def test_an_array_that_nobody_was_given_is_released_at_once() -> None:
    source = DeviceArray(pa.array([1, 2]))
    array = ad.from_arrow(source.give())
    del array
    assert source.memory.reused


def test_children_can_be_moved_out_and_the_parent_released_first() -> None:
    source = DeviceArray(pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]))
    batch = ad.from_arrow(source.give())
    schema, capsule = batch.__arrow_c_device_array__()
    struct = producers.ArrowDeviceArray.from_address(producers.capsule_pointer(capsule, b"arrow_device_array"))
    moved = producers.ArrowArray()
    child = ctypes.c_void_p.from_address(struct.array.children).value
    producers.move(producers.ArrowArray.from_address(child), ctypes.addressof(moved))
    del schema, capsule, batch, struct
    drain()
    assert not source.memory.reused, "a child holds the memory"
    stream = driver.Stream()
    driver.synchronize()
    values = ctypes.c_void_p.from_address(moved.buffers + 8).value
    assert driver.read(values, 16, stream.handle) == bytes([1, *[0] * 7, 2, *[0] * 7])
    producers.release_struct(moved)
    drain()
    assert source.memory.reused


@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_sync_host_waits_and_has_no_event(kind: int, ordinal: int, host_waits: Any) -> None:
    source = DeviceArray(pa.array([1, 2, 3]), kind, ordinal)
    array = ad.from_arrow(source.give())
    waits = host_waits()
    with exported(array, sync="event") as struct:
        assert event_of(struct) == source.event.handle
    assert (waits.ours, waits.drivers) == (0, 0)
    ignorant = Consumer(ordinal, waits=False)
    address = source.addresses[1]
    assert ignorant.read(array, [0, 24], sync="host")[1] == source.memory.blocks[address]
    assert waits.ours <= 1
    with exported(array, sync="host") as struct:
        assert not struct.sync_event


def test_sync_host_is_kept_by_what_from_arrow_gives() -> None:
    source = DeviceArray(pa.array([{"a": 1}, {"a": 2}]))
    batch = ad.from_arrow(source.give(), sync="host")
    for obj in (batch, batch["a"], ad.from_arrow(batch)):
        with exported(obj) as struct:
            assert not struct.sync_event
    with pytest.raises(ValueError, match="sync must be"):
        ad.from_arrow(batch, sync="never")
    with pytest.raises(TypeError, match="sync must be"):
        ad.from_arrow(batch, sync=1)
    with pytest.raises(ValueError, match="sync must be"):
        batch.__arrow_c_device_array__(sync="stream")


def test_other_keywords_are_refused_and_a_device_is_checked() -> None:
    array = ad.from_arrow(DeviceArray(pa.array([1]), ordinal=1).give())
    for keywords in ({}, {"unknown": None}, {"requested_device": None}, {"sync": None}):
        array.__arrow_c_device_array__(**keywords)
    # A type alone is any of its devices.
    for device in (2, (2, 1), "cuda:1"):
        array.__arrow_c_device_array__(requested_device=device)
    for device in (13, (13, 1), 10):
        with pytest.raises(BufferError, match="cuda:1"):
            array.__arrow_c_device_array__(requested_device=device)
    with pytest.raises(NotImplementedError, match="unknown"):
        array.__arrow_c_device_array__(unknown=1)


@pytest.mark.parametrize("data", [pa.array([1, 2]), pa.array([{"a": 1}])], ids=["array", "batch"])
def test_host_dunders_say_to_copy(data: pa.Array) -> None:
    obj = ad.from_arrow(DeviceArray(data).give())
    with pytest.raises(BufferError, match=r'\.to_device\("cpu"\)'):
        obj.__arrow_c_array__()
    if isinstance(obj, ad.RecordBatch):
        with pytest.raises(BufferError, match=r'\.to_device\("cpu"\)'):
            obj.__arrow_c_stream__()


def test_a_batch_has_offset_0_and_a_known_null_count(host_waits: Any) -> None:
    data = pa.array([{"a": index} for index in range(40)])[16:20]
    for how in ("nanoarrow", "pyarrow"):
        batch = ad.from_arrow(DeviceArray(data, how=how).give())
        waits = host_waits()
        with exported(batch) as struct:
            assert (struct.array.offset, struct.array.null_count, struct.array.length) == (0, 0, 4)
            child = producers.ArrowArray.from_address(ctypes.c_void_p.from_address(struct.array.children).value)
            assert (child.offset, child.length) == (16, 4)
        assert waits.ours == 0


@pytest.mark.parametrize("nulls", [0, 2])
def test_a_batch_without_a_null_count_is_counted(nulls: int, host_waits: Any) -> None:
    rows = [None if index < nulls else {"a": index} for index in range(20)]
    mask = pa.array([row is None for row in rows])
    data = pa.StructArray.from_arrays([pa.array(range(20))], ["a"], mask=mask)

    def forget(node: producers.Array) -> None:
        node.array.null_count = -1

    source = DeviceArray(data, change=forget)
    batch = ad.from_arrow(source.give())
    waits = host_waits()
    with exported(batch) as struct:
        assert (struct.array.null_count, struct.array.offset) == (nulls, 0)
    assert waits.ours <= 1


def test_requested_schema_is_a_relabel_where_no_value_is_looked_at(host_waits: Any) -> None:
    source = DeviceArray(pa.array([1, 2, 3], pa.int64()))
    array = ad.from_arrow(source.give())
    waits = host_waits()
    for wanted in (
        pa.field("x", pa.int64()),
        pa.field("x", pa.int64(), nullable=False),
        pa.field("x", pa.timestamp("us")),
    ):
        schema, _ = array.__arrow_c_device_array__(requested_schema=wanted.__arrow_c_schema__())
        assert pa.Field._import_from_c_capsule(schema) == wanted
    assert waits.ours == 0
    with pytest.raises(ValueError, match="cuda:0"):
        array.__arrow_c_device_array__(requested_schema=pa.field("x", pa.int8()).__arrow_c_schema__())
    nulls = ad.from_arrow(DeviceArray(pa.array([1, None])).give())
    with pytest.raises(ValueError, match="not nullable"):
        nulls.__arrow_c_device_array__(requested_schema=pa.field("x", pa.int64(), nullable=False).__arrow_c_schema__())
    assert waits.ours == 0


@pytest.mark.parametrize("nesting", ["column", "struct", "list"])
def test_nulls_among_values_of_a_dictionary_are_nulls_of_a_request(nesting: str, host_waits: Any) -> None:
    def given(values: list[str | None], nullable: bool) -> Any:
        codes = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(values))
        data: pa.Array = codes
        wanted = pa.field("x", codes.type, nullable=nullable)
        if nesting == "struct":
            data = pa.StructArray.from_arrays([codes], names=["x"])
            wanted = pa.field("s", pa.struct([wanted]))
        if nesting == "list":
            data = pa.ListArray.from_arrays([0, 2], codes)
            wanted = pa.field("l", pa.list_(wanted))
        array = ad.from_arrow(DeviceArray(data).give())
        schema, _ = array.__arrow_c_device_array__(requested_schema=wanted.__arrow_c_schema__())
        return pa.Field._import_from_c_capsule(schema) == wanted

    waits = host_waits()
    assert given(["a", "b"], False)
    assert given(["a", None], True)
    with pytest.raises(ad.NullError, match="bitmap is on a device") as caught:
        given(["a", None], False)
    assert caught.value.column == "x"
    assert waits.ours == 0


def test_explain_asks_nothing_of_the_driver() -> None:
    calls = driver.calls()
    source = DeviceArray(
        pa.array([{"a": 1, "b": True, "c": "x", "d": [1]}, {"a": None, "b": None, "c": "y", "d": []}]), how="nanoarrow"
    )
    made = driver.calls()
    assert made > calls
    batch = ad.from_arrow(source.give())
    report = ad.explain(batch)
    assert report["a"].how == "refused"
    assert "null" in report["a"].error
    assert report["b"].how == "refused"
    kept = ad.explain(batch, nulls="keep")
    assert kept["a"].how == "view"
    assert (kept["b"].how, kept["b"].error) == ("copy", None)
    str(ad.explain(batch, order="F", columns=["a"]))
    str(ad.explain(batch["c"])), str(ad.explain(batch["d"]))
    repr(batch), repr(batch["a"])
    assert driver.calls() == made
