"""Streams of arrays on devices: lazily, each chunk with its own event, on devices that may differ."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import arrow_dlpack as ad
import device_arrow
import driver
import producers
import pyarrow as pa
import pytest
from device_arrow import (
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    DeviceArray,
    DeviceStream,
    buffers_of,
    drain,
    event_of,
    exported,
    next_of,
)

ENOMEM, EIO = 12, 5


def chunks(*lengths: int, kind: int = CUDA, ordinals: tuple[int, ...] = ()) -> list[DeviceArray]:
    ordinals = ordinals or (0,) * len(lengths)
    return [
        DeviceArray(pa.array(range(n), pa.int64()), kind, ordinal) for n, ordinal in zip(lengths, ordinals, strict=True)
    ]


@contextmanager
def exported_stream(obj: Any, **keywords: Any) -> Iterator[tuple[producers.ArrowDeviceArrayStream, int]]:
    capsule = obj.__arrow_c_device_stream__(**keywords)
    address = producers.capsule_pointer(capsule, b"arrow_device_array_stream")
    yield producers.ArrowDeviceArrayStream.from_address(address), address
    del capsule


def last_error(struct: producers.ArrowDeviceArrayStream, address: int) -> str:
    function = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(struct.get_last_error)
    return (function(address) or b"").decode()


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_chunks_come_lazily_each_with_its_event(kind: int, host_waits: Any) -> None:
    items = chunks(3, 0, 2, kind=kind)
    source = DeviceStream(list(items), kind)
    stream = ad.from_arrow(source.give())
    waits = host_waits()
    assert (stream.device.type, source.stream.asked_next) == (kind, 0)
    schema = pa.Field._import_from_c_capsule(stream.__arrow_c_schema__())
    assert schema.type == pa.int64()
    with exported_stream(stream) as (struct, address):
        assert (struct.device_type, source.stream.asked_next) == (kind, 0)
        for number, item in enumerate(items, 1):
            code, out = next_of(struct, address)
            assert (code, source.stream.asked_next, out.array.length) == (0, number, len(item.array))
            assert event_of(out) == item.event.handle
            assert list(buffers_of(out.array)) == item.addresses
            producers.release_struct(out)
        code, out = next_of(struct, address)
        assert code == 0
        assert not out.array.release
    assert (waits.ours, waits.drivers) == (0, 0)


def test_ordinals_may_differ_between_chunks() -> None:
    stream = ad.from_arrow(DeviceStream(list(chunks(1, 2, ordinals=(0, 1)))).give())
    with exported_stream(stream, requested_device=2) as (struct, address):
        for ordinal in (0, 1):
            code, out = next_of(struct, address)
            assert (code, out.device_id) == (0, ordinal)
            producers.release_struct(out)


def test_each_chunk_is_moved_to_the_device_that_is_asked_for(host_waits: Any) -> None:
    items = chunks(1, 2, ordinals=(1, 0))
    stream = ad.from_arrow(DeviceStream(list(items)).give())
    waits = host_waits()
    with exported_stream(stream, requested_device=(2, 1)) as (struct, address):
        for item in items:
            code, out = next_of(struct, address)
            assert (code, out.device_id, out.array.length) == (0, 1, len(item.array))
            producers.release_struct(out)
    assert (waits.ours, waits.drivers) == (0, 0)
    moved = ad.from_arrow(DeviceStream(chunks(2)).give())
    with exported_stream(moved, requested_device=1) as (struct, address):
        assert struct.device_type == 1
        code, out = next_of(struct, address)
        assert (code, out.device_type, out.array.length, out.sync_event) == (0, 1, 2, None)
        producers.release_struct(out)
    (never_asked_for,) = chunks(1)
    never_asked_for.node.expected = 0
    other = ad.from_arrow(DeviceStream([never_asked_for]).give())
    for nowhere in (10, 13):
        with pytest.raises(BufferError, match="no copy between these"):
            other.__arrow_c_device_stream__(requested_device=nowhere)
    with pytest.raises(NotImplementedError, match="unknown"):
        other.__arrow_c_device_stream__(unknown=1)
    with pytest.raises(BufferError, match=r'\.to_device\("cpu"\)'):
        other.__arrow_c_stream__()
    other.close()


def test_sync_host_of_a_stream_waits_for_each_chunk(host_waits: Any) -> None:
    for keyword in (True, False):
        items = chunks(3, 2)
        stream = ad.from_arrow(DeviceStream(list(items)).give(), sync=None if keyword else "host")
        keywords = {"sync": "host"} if keyword else {}
        with exported_stream(stream, **keywords) as (struct, address):
            for item in items:
                code, out = next_of(struct, address)
                assert code == 0
                assert not out.sync_event
                consumer = driver.Stream()
                size = 8 * len(item.array)
                assert driver.read(item.addresses[1], size, consumer.handle) == item.memory.blocks[item.addresses[1]]
                producers.release_struct(out)


def test_a_failure_of_the_producer_comes_at_its_chunk() -> None:
    source = DeviceStream([*chunks(1), (ENOMEM, b"the device is full")])
    stream = ad.from_arrow(source.give())
    with exported_stream(stream) as (struct, address):
        code, out = next_of(struct, address)
        assert code == 0
        producers.release_struct(out)
        code, _ = next_of(struct, address)
        assert code == ENOMEM
        assert "the device is full" in last_error(struct, address)


def test_an_array_of_another_type_of_device_is_an_error_at_its_chunk() -> None:
    items = [*chunks(1), *chunks(1, kind=CUDA_MANAGED)]
    stream = ad.from_arrow(DeviceStream(list(items)).give())
    assert len(next(stream)) == 1
    with pytest.raises(BufferError, match="cuda_managed"):
        next(stream)


def test_a_stream_can_be_released_early() -> None:
    items = chunks(1, 2)
    source = DeviceStream(list(items))
    items[1].node.expected = 0
    stream = ad.from_arrow(source.give())
    with exported_stream(stream) as (struct, address):
        code, out = next_of(struct, address)
        assert code == 0
    assert source.stream.released
    assert not items[0].memory.reused
    producers.release_struct(out)
    drain()
    assert items[0].memory.reused


def test_what_is_released_by_the_way_is_released_with_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else it is the reaper that releases it.
    monkeypatch.setenv("ARROW_DLPACK_REAPER", "0")
    source = DeviceArray(pa.array([1, 2]), how="cudf")
    array = ad.from_arrow(source.give())
    consumer = driver.Stream(flags=0)
    with exported(array):
        gate = driver.gate(consumer.handle)
    del array
    assert not source.memory.reused
    stream = ad.from_arrow(DeviceStream(list(chunks(1))).give())
    driver.open_gate(gate)
    driver.run_all()
    # The next array is asked for without the interpreter, and what waits is looked at as it comes in.
    next(stream)
    assert source.memory.reused


def test_batches_become_streams_of_one() -> None:
    source = DeviceArray(pa.array([{"a": 1}]))
    batch = ad.from_arrow(source.give())
    with exported_stream(batch) as (struct, address):
        code, out = next_of(struct, address)
        assert (code, event_of(out)) == (0, source.event.handle)
        producers.release_struct(out)


def test_one_chunk_with_rows_is_a_view_and_several_are_joined_on_the_device(host_waits: Any) -> None:
    items = chunks(0, 3, 0)
    waits = host_waits()
    tensor = ad.to_tensor(DeviceStream(list(items)).give())
    assert (tensor.shape, str(tensor.device)) == ((3,), "cuda:0")
    joined = ad.to_tensor(DeviceStream(list(chunks(1, 2))).give())
    assert (joined.shape, str(joined.device)) == ((3,), "cuda:0")
    assert (waits.ours, waits.drivers) == (0, 0)


def test_iteration_gives_arrays_on_the_device() -> None:
    items = chunks(1, 2)
    found = list(ad.from_arrow(DeviceStream(list(items)).give()))
    assert [str(array.device) for array in found] == ["cuda:0", "cuda:0"]
    with exported(found[1]) as struct:
        assert event_of(struct) == items[1].event.handle
    assert device_arrow.CUDA == 2


@pytest.mark.parametrize("kind", [CUDA, CUDA_MANAGED])
def test_no_chunks_and_no_rows_are_tensors_on_the_device(kind: int) -> None:
    field = pa.field("x", pa.list_(pa.float32(), 3))
    tensor = ad.to_tensor(DeviceStream([], kind, field).give())
    assert (tensor.shape, tensor.dtype, tensor.device.type) == ((0, 3), "float32", kind)
    field = pa.field("", pa.struct([pa.field("a", pa.int16()), pa.field("b", pa.int16())]))
    for order in ("C", "F", "A"):
        tensor = ad.to_tensor(DeviceStream([], kind, field).give(), order=order)
        assert (tensor.shape, tensor.dtype, tensor.device.type) == ((0, 2), "int16", kind)
    empty = DeviceArray(pa.array([], field.type), kind)
    assert {name: one.shape for name, one in ad.to_tensors(empty.give()).items()} == {"a": (0,), "b": (0,)}


def test_groups_are_views_too() -> None:
    batch = ad.from_arrow(DeviceArray(pa.array([{"a": 1.0, "b": 2}, {"a": 2.0, "b": 3}])).give())
    groups = ad.to_tensors(batch, columns={"x": ["a"], "y": "b"})
    assert {name: (one.shape, str(one.device)) for name, one in groups.items()} == {
        "x": ((2, 1), "cuda:0"),
        "y": ((2,), "cuda:0"),
    }


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("asked", [0, 1])
def test_arrays_come_from_whichever_device_they_are_on(own: int, asked: int) -> None:
    def stream(*lengths: int) -> Any:
        return DeviceStream(list(chunks(*lengths, ordinals=(own,) * len(lengths)))).give()

    arrays = list(ad.from_arrow(stream(2, 3), device=f"cuda:{asked}"))
    assert [array.device for array in arrays] == [ad.Device(f"cuda:{asked}")] * 2
    assert [pa.array(array.to_device("cpu")).to_pylist() for array in arrays] == [[0, 1], [0, 1, 2]]
    uncopied = ad.from_arrow(stream(2), device=f"cuda:{asked}", copy=False)
    if own == asked:
        assert [len(array) for array in uncopied] == [2]
    else:
        with pytest.raises(ad.CopyError, match=f"the data is on cuda:{own}, and is copied to be on cuda:{asked}"):
            next(iter(uncopied))
