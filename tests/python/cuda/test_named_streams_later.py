"""Streams that were named for memory, where no event can be recorded on them when the memory is released or written."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import DeviceArray

VALUES = np.arange(64, dtype="int32")


def read_late(tensor: Any, stream: int, when: str = "before") -> None:
    """Has a stream read the memory once its gate opens, and names it for the memory before that, or not."""
    target = driver.allocate(tensor.nbytes)
    held = fakes.cupy(tensor, stream)
    if when == "before":
        tensor.record_stream(stream)
    driver.gate(stream)
    driver.copy(target, held.address, tensor.nbytes, stream)
    held.release()


@pytest.mark.parametrize("named", ["before", "captured"])
def test_memory_waits_for_work_from_before_a_capture(pool: fakes.Pool, named: str) -> None:
    stream = driver.Stream()
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))
    driver.settle()
    read_late(tensor, stream.handle, named)
    with driver.capture(stream.handle):
        if named == "captured":
            tensor.record_stream(stream)
        del tensor
        gc.collect()
        driver.run_all()
        assert (_native.collect(), pool.freed) == (1, 0)
    driver.run_all()
    assert (_native.collect(), pool.freed) == (1, 0), "the reader is not done"
    driver.open_gates()
    assert driver.soon(lambda: (driver.drain(), pool.freed) == (0, 1))
    assert driver.races() == 0


@pytest.mark.parametrize(
    ("function", "status"), [("cuEventRecord", 2), ("cuEventCreate", 2), ("cuStreamIsCapturing", 999)]
)
def test_memory_waits_though_no_event_could_be_recorded(pool: fakes.Pool, function: str, status: int) -> None:
    stream = driver.Stream()
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))
    driver.settle()
    read_late(tensor, stream.handle)
    driver.fail(function, 1, status)
    del tensor
    gc.collect()
    assert _native.collect() == 1
    driver.fail_nothing()
    # All but what waits for the gate.
    driver.run_all()
    assert (_native.collect(), pool.freed) == (1, 0)
    driver.open_gates()
    assert driver.soon(lambda: (driver.drain(), pool.freed) == (0, 1))
    assert driver.races() == 0


@pytest.mark.parametrize("captured", [False, True])
def test_out_waits_for_a_named_stream_or_is_refused_beside_its_capture(pool: fakes.Pool, captured: bool) -> None:
    stream = driver.Stream()
    given = ad.from_arrow(DeviceArray(pa.array([1.5, 2.5])).give())
    out = ad.from_dlpack(fakes.Torch(pool, np.zeros(2), stream=driver.Stream().handle))
    driver.settle()
    read_late(out, stream.handle)
    refused = pytest.raises(BufferError, match="is being captured, and it may have work that reads the memory")
    with driver.capture(stream.handle) if captured else nullcontext(), refused if captured else nullcontext():
        ad.to_tensor(given, out=out)
    driver.open_gates()
    driver.synchronize()
    ad.to_tensor(given, out=out)
    assert np.array(out.to_device("cpu")).tolist() == [1.5, 2.5]
    assert driver.races() == 0


def test_out_waits_for_later_work_of_the_default_stream_of_a_thread(pool: fakes.Pool) -> None:
    own = driver.Stream()
    given = ad.from_arrow(DeviceArray(pa.array([1.5, 2.5])).give())
    out = ad.from_dlpack(fakes.Torch(pool, np.zeros(2), stream=driver.Stream().handle))
    driver.settle()
    read_late(out, driver.PER_THREAD)
    with ad.stream(own):
        ad.to_tensor(given, out=out)
    driver.run_all()
    driver.open_gates()
    driver.synchronize()
    assert driver.races() == 0


@pytest.mark.parametrize("function", ["cuDeviceGetCount", "cuDevicePrimaryCtxGetState"])
def test_page_locked_memory_waits_for_devices_that_cannot_be_listed(function: str) -> None:
    count = 1 << 16
    tensor = ad.to_tensor(ad.from_arrow(pa.array(np.ones(count, "int32"))).to_device("cuda_host"))
    ad.warm_up("cuda:1")
    target = driver.allocate(4 * count, 1)
    held = fakes.Held(tensor.__dlpack__(max_version=(1, 0)))
    driver.settle()
    other = driver.Stream(1, flags=0)
    driver.gate(other.handle, 1)
    driver.copy_from_host(target, held.address, 4 * count, other.handle, 1)
    held.release()
    driver.fail(function, 1, 2)
    del held, tensor
    gc.collect()
    driver.fail_nothing()
    driver.run_all()
    assert _native.collect() == 1
    driver.open_gates()
    assert driver.soon(lambda: driver.drain() == 0)
    assert driver.races() == 0


class TestForeignCodeThatChoosesAnotherDevice:
    class Leaves(fakes.Torch):
        """As a library whose export sets the current device, and does not set it back."""

        def __dlpack__(self, **keywords: Any) -> Any:
            capsule = super().__dlpack__(**keywords)
            driver.use(1)
            return capsule

    def test_a_producer(self, pool: fakes.Pool) -> None:
        for source in [self.Leaves(pool, VALUES), fakes.Torch(pool, VALUES), fakes.Torch(pool, VALUES)]:
            tensor = ad.from_dlpack(source)
            assert np.array_equal(np.array(tensor.to_device("cpu")), VALUES)
        assert driver.races() == 0

    def test_a_producer_whose_data_is_ordered_by_the_default_stream(self, pool: fakes.Pool) -> None:
        class Plain(fakes.Plain):
            def __dlpack__(self) -> Any:
                capsule = super().__dlpack__()
                driver.use(1)
                return capsule

        # The first one leaves an event for the second one.
        for source in [fakes.Torch(pool, VALUES), Plain(pool, VALUES), fakes.Plain(pool, VALUES)]:
            tensor = ad.from_dlpack(source)
            assert np.array_equal(np.array(tensor.to_device("cpu")), VALUES)
            del tensor
            driver.drain()
        assert driver.races() == 0

    def test_an_allocator(self) -> None:
        class Leaves:
            def allocate(self, nbytes: int, stream: Any) -> int:
                address = driver.allocate(nbytes)
                driver.use(1)
                return address

            def deallocate(self, address: int, nbytes: int, stream: Any) -> None:
                driver.free(address)

        data = ad.from_arrow(pa.array([1, 2])).to_device("cuda:0")
        for allocator in (Leaves(), None, None):
            made = ad.to_tensor(data, dtype="float32", allocator=allocator)
            assert np.array(made.to_device("cpu")).tolist() == [1, 2]
        assert driver.races() == 0


def test_a_resource_frees_on_a_stream_that_ends_no_capture() -> None:
    class Resource:
        """As one that frees in the order of the stream that it is given."""

        def __init__(self) -> None:
            self.freed: list[int] = []

        def allocate(self, nbytes: int, stream: Any) -> int:
            return driver.allocate(nbytes)

        def deallocate(self, address: int, nbytes: int, stream: Any) -> None:
            handle = stream.__cuda_stream__()[1]
            driver.Event(handle)
            self.freed.append(handle)
            driver.free(address)

    data = ad.from_arrow(pa.array([1, 2])).to_device("cuda:0")
    resource = Resource()
    made = ad.to_tensor(data, dtype="float32", allocator=resource)
    driver.settle()
    with driver.capture(driver.Stream(flags=0).handle):
        del made
        gc.collect()
        assert driver.soon(lambda: _native.collect() == 0)
    assert len(resource.freed) == 1
    assert resource.freed[0] not in (driver.LEGACY, driver.PER_THREAD)
