"""What is kept while work of a device may use it: who lends memory, which streams count, and what parts share.

Each test lets go of everything while a gate holds back the work, and asks that nothing was given back before it opens.
`make prove-waits` leaves out the places that see to it (src/stream_order/waits.rs), one by one.
"""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import driver
import exchange
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA_MANAGED, DeviceArray, DeviceStream, exported

VALUES = np.arange(1024, dtype="int32")


def look() -> None:
    """Has the package look at what waits as often as the driver may say that work is not done."""
    gc.collect()
    for _ in range(8):
        ad.collect()


def given_back(count: Callable[[], int], gate: int) -> None:
    """Asks that nothing was given back behind a closed gate, and once was when it is open."""
    look()
    assert count() == 0, "given back under work that may use it"
    driver.open_gate(gate)
    driver.synchronize()
    look()
    assert count() == 1, "not given back"


def by_dlpack(tensor: ad.Tensor) -> tuple[int, Any]:
    held = fakes.Held(tensor.__dlpack__(stream=driver.LEGACY, max_version=(1, 0)))
    return held.address, held


def by_exchange(tensor: ad.Tensor) -> tuple[int, Any]:
    return exchange.borrow(tensor).data, None


def by_array_interface(tensor: ad.Tensor) -> tuple[int, Any]:
    interface = tensor.__cuda_array_interface__
    assert interface["stream"] is None, "its readers name no stream"
    return interface["data"][0], None


def by_arrow(tensor: ad.Tensor) -> tuple[int, Any]:
    with exported(ad.to_arrow(tensor)) as struct:
        address = ctypes.c_void_p.from_address(struct.array.buffers + 8).value
        assert address is not None
        return address, None


@pytest.mark.parametrize("lend", [by_dlpack, by_exchange, by_array_interface, by_arrow])
def test_memory_that_was_handed_out(pool: fakes.Pool, lend: Callable[[ad.Tensor], tuple[int, Any]]) -> None:
    """Whoever has it works on a stream that it names to nobody, and which the legacy default stream waits for."""
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    driver.settle()
    target = pool.allocate(VALUES.nbytes)
    address, held = lend(tensor)
    work = driver.Stream(flags=0)
    gate = driver.gate(work.handle)
    driver.copy(target, address, VALUES.nbytes, work.handle)
    del tensor, held
    given_back(lambda: pool.freed, gate)
    assert driver.read(target, VALUES.nbytes, work.handle) == VALUES.tobytes()


def test_the_stream_of_the_array_interface(pool: fakes.Pool) -> None:
    stream = driver.Stream()
    gate = driver.gate(stream.handle)
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
    assert tensor.__cuda_array_interface__["stream"] > 2
    del tensor
    given_back(lambda: pool.freed, gate)


def test_the_stream_of_a_thread_that_borrowed(pool: fakes.Pool) -> None:
    """The exchange table names the thread's stream for the consumer's work, which comes after the call."""
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    driver.settle()
    work, target = driver.Stream(), pool.allocate(VALUES.nbytes)
    with ad.stream(work):
        address, _ = by_exchange(tensor)
    gate = driver.gate(work.handle)
    driver.copy(target, address, VALUES.nbytes, work.handle)
    del tensor
    given_back(lambda: pool.freed, gate)
    assert driver.read(target, VALUES.nbytes, work.handle) == VALUES.tobytes()


@pytest.mark.parametrize("by", ["block", "record_stream"])
def test_an_object_that_owns_its_stream(pool: fakes.Pool, by: str) -> None:
    """The stream is asked at the release what it got since, and a destroyed one must not be asked."""
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    driver.settle()
    work = driver.Stream()
    alive = weakref.ref(work)
    if by == "block":
        with ad.stream(work):
            by_exchange(tensor)
    else:
        tensor.record_stream(work)
    del work
    gc.collect()
    assert alive() is not None
    del tensor
    gc.collect()
    assert alive() is None


def test_a_stream_of_another_device_than_the_memorys_name(pool: fakes.Pool) -> None:
    """Managed memory under the name of another device is used on that one, and asked about there."""
    source = DeviceArray(pa.array(VALUES), CUDA_MANAGED)
    tensor = ad.to_tensor(ad.from_arrow(source.give()).to_device("cuda:1"))
    work = driver.Stream(1)
    tensor.record_stream(work)
    gate = driver.gate(work.handle, 1)
    del tensor
    given_back(lambda: source.node.releases, gate)


def test_an_object_with_the_array_interface(pool: fakes.Pool) -> None:
    stream = driver.Stream()
    tensor = ad.from_dlpack(fakes.Numba(pool, VALUES, stream=driver.LEGACY))
    gate = driver.gate(stream.handle)
    with ad.stream(stream):
        copy = ad.from_dlpack(tensor, copy=True)
    del tensor
    given_back(lambda: pool.freed, gate)
    del copy


def test_memory_under_another_name() -> None:
    """A name of managed memory: what happens to it happens to the array that it is of."""
    source = DeviceArray(pa.array(VALUES), CUDA_MANAGED)
    tensor = ad.to_tensor(ad.from_arrow(source.give()).to_device("cuda"))
    work = driver.Stream(flags=0)
    by_dlpack(tensor)
    gate = driver.gate(work.handle)
    del tensor
    given_back(lambda: source.node.releases, gate)


@pytest.mark.parametrize("copied", [0, 1])
def test_each_chunk_of_a_copy(copied: int) -> None:
    chunks = [DeviceArray(pa.array(VALUES)), DeviceArray(pa.array(VALUES + 1))]
    work = driver.Stream()
    gate = driver.gate(work.handle)
    with ad.stream(work):
        tensor = ad.to_tensor(ad.from_arrow(DeviceStream(chunks).give()))
    given_back(lambda: chunks[copied].node.releases, gate)
    held = fakes.cupy(tensor, work.handle)
    found = driver.read(held.address, 2 * VALUES.nbytes, work.handle)
    assert found == np.concatenate([VALUES, VALUES + 1]).tobytes()
    held.release()


def test_memory_that_nobody_has_seen_yet() -> None:
    """A result that is let go of before the kernels have written it."""
    array = ad.from_arrow(DeviceArray(pa.array(VALUES)).give())
    work = driver.Stream()
    gate = driver.gate(work.handle)
    with ad.stream(work):
        ad.to_tensor(array, copy=True)
    look()
    assert ad.memory_stats()["cuda:0"]["waiting_blocks"] == 1
    driver.open_gate(gate)
    driver.synchronize()
    look()
    assert ad.memory_stats()["cuda:0"]["waiting_blocks"] == 0


def test_the_table_of_many_columns() -> None:
    """More than a launch takes as parameters: a block of the host holds the addresses until they are copied."""
    columns = 1300

    def batch(start: int) -> tuple[ad.RecordBatch, np.ndarray]:
        values = np.arange(start, start + 3 * columns, dtype="int32").reshape(3, columns)
        data = pa.record_batch({f"c{number}": values[:, number] for number in range(columns)})
        # One allocation each, copied to the device together.
        return ad.from_arrow(data).to_device("cuda"), values

    batches = [batch(number << 20) for number in range(3)] * 2
    work = driver.Stream()
    gate = driver.gate(work.handle)
    with ad.stream(work):
        matrices = [ad.to_tensor(given) for given, _ in batches]
    driver.open_gate(gate)
    for matrix, (_, values) in zip(matrices, batches, strict=True):
        held = fakes.cupy(matrix, work.handle)
        assert driver.read(held.address, values.nbytes, work.handle) == values.tobytes()
        held.release()


def test_a_producer_that_knows_no_stream(pool: fakes.Pool) -> None:
    """The legacy default stream writes its memory, and the reader's stream does not wait for that one by itself."""
    gate = driver.gate(driver.LEGACY)
    tensor = ad.from_dlpack(fakes.Plain(pool, VALUES, stream=driver.LEGACY))
    consumer = driver.Stream()
    held = fakes.cupy(tensor, consumer.handle)
    driver.open_gate(gate)
    assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
    held.release()


THREAD_LOCAL = 1


def exchange_mode(mode: int) -> int:
    """Sets this thread's mode of capture, and returns the one before."""
    number = ctypes.c_int(mode)
    with driver.current():
        driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(number))
    return number.value


def test_the_mode_of_capture_of_a_thread_is_restored(pool: fakes.Pool) -> None:
    """After calls of ours that end well, that fail, and that run in a deleter."""
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    calls: list[Callable[[], object]] = [
        lambda: fakes.cupy(tensor, driver.LEGACY).release(),
        lambda: tensor.to_device("cpu"),
        lambda: ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give(), dtype="int64"),
        lambda: ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY)),
        lambda: tensor.to_device("cuda:7"),
        ad.memory_stats,
        ad.empty_cache,
    ]
    before = exchange_mode(THREAD_LOCAL)
    failed = 0
    for call in calls:
        try:
            call()
        except BufferError:
            failed += 1
        gc.collect()
        assert exchange_mode(THREAD_LOCAL) == THREAD_LOCAL
    assert failed == 2
    exchange_mode(before)
