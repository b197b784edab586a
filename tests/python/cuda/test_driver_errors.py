"""Answers of a real driver: errors of earlier launches, features that it refuses, attributes that it does not know."""

from __future__ import annotations

import ctypes
import gc
import mmap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import arrow_dlpack as ad
import driver
import exchange
import fakes
import numpy as np
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import DeviceArray
from test_device_out import WithTable

VALUES = np.arange(1024, dtype="int32")
KEPT_EVENTS = 256
NOT_SUPPORTED, UNKNOWN = 801, 999


@pytest.fixture(autouse=True)
def _only_the_package() -> None:
    """Only calls of the package are counted and fail."""
    driver.exempt = True


def tensor_of(pool: fakes.Pool) -> ad.Tensor:
    return ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))


def contents(tensor: ad.Tensor) -> bytes:
    return np.from_dlpack(tensor.to_device("cpu")).tobytes()


class TestACallThatHasTakenEffect:
    """It returns the error of an earlier asynchronous launch. Made again, it would do its work twice."""

    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_pops_no_context_of_another_library(self, pool: fakes.Pool, nth: int) -> None:
        tensor = tensor_of(pool)
        with driver.current(1):
            driver.fail_late("cuCtxPopCurrent_v2", nth, UNKNOWN)
            copy = ad.from_dlpack(tensor, copy=True)
            assert contents(copy) == VALUES.tobytes()
            assert driver.is_current(1)
        assert not driver.has_current_context()

    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_pushes_no_context_for_good(self, pool: fakes.Pool, nth: int) -> None:
        tensor = tensor_of(pool)
        driver.fail_late("cuCtxPushCurrent_v2", nth, UNKNOWN)
        with suppress(BufferError):
            contents(ad.from_dlpack(tensor, copy=True))
        assert not driver.has_current_context()

    @pytest.mark.parametrize("nth", [1, 2, 3, 4])
    def test_leaves_no_mode_of_capture(self, pool: fakes.Pool, nth: int) -> None:
        tensor = tensor_of(pool)
        driver.fail_late("cuThreadExchangeStreamCaptureMode", nth, UNKNOWN)
        with suppress(BufferError):
            contents(ad.from_dlpack(tensor, copy=True))
        mode = ctypes.c_int(0)
        with driver.current():
            driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        # That of a thread which never changed it: global.
        assert mode.value == 0

    def test_frees_no_memory_twice(self, pool: fakes.Pool) -> None:
        copy = ad.from_dlpack(tensor_of(pool), copy=True)
        # Makes the stream for frees.
        fakes.cupy(ad.from_dlpack(copy, copy=True), driver.LEGACY).release()
        # Whichever thread frees has a context: a call that is refused for want of one has no effect, and is made again.
        with driver.current():
            assert driver.drain() == 0
            held, before = fakes.cupy(copy, driver.LEGACY), driver.calls("cuMemFreeAsync")
            driver.fail_late("cuMemFreeAsync", 1, UNKNOWN)
            held.release()
            del copy
            assert driver.drain() == 0
            assert driver.calls("cuMemFreeAsync") - before == 1
        driver.run_all()
        assert ad.memory_stats()["cuda:0"]["pool_used"] == 0

    def test_destroys_no_event_twice(self, pool: fakes.Pool) -> None:
        source = fakes.Numba(pool, VALUES, stream=driver.Stream().handle)
        with driver.current():
            for _ in range(2):
                tensors = [ad.from_dlpack(source) for _ in range(KEPT_EVENTS + 2)]
                alive, before = driver.live("events"), driver.calls("cuEventDestroy_v2")
                driver.fail_late("cuEventDestroy_v2", 1, UNKNOWN)
                tensors.clear()
                assert driver.drain() == 0
                destroyed = alive - driver.live("events")
                assert destroyed >= 1
                assert driver.calls("cuEventDestroy_v2") - before == destroyed
        assert driver.live("events") == _native._cuda_kept()["events"]


def test_a_device_whose_pools_are_refused_has_none(pool: fakes.Pool) -> None:
    """As on virtual devices and in sandboxes, whose attribute says that they have pools."""
    driver.fail_from("cuMemPoolCreate", 1, NOT_SUPPORTED)
    copy = ad.from_dlpack(tensor_of(pool), copy=True)
    assert contents(copy) == VALUES.tobytes()
    found = ad.memory_stats()["cuda:0"]
    assert (found["unpooled_used"], found["pool_used"]) == (VALUES.nbytes, 0)
    assert contents(ad.from_dlpack(copy, copy=True)) == VALUES.tobytes()
    # It is not asked again.
    assert (driver.calls("cuMemPoolCreate"), driver.live("pools")) == (1, 0)


@pytest.fixture
def registered() -> Iterator[tuple[mmap.mmap, int]]:
    """Page-locked memory that another library has registered."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory[: VALUES.nbytes] = VALUES.tobytes()
    view = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(view)
    with driver.current():
        driver.call("cuMemHostRegister_v2", driver.Handle(address), driver.SIZE(mmap.PAGESIZE), 1)
    yield memory, address
    driver.drain()
    with driver.current():
        driver.call("cuMemHostUnregister", driver.Handle(address))


def test_memory_of_which_the_driver_knows_no_range(pool: fakes.Pool, registered: tuple[mmap.mmap, int]) -> None:
    """Asked for several attributes, it succeeds, and writes zeros for those that it cannot tell."""
    source = fakes.Torch(pool, np.empty(0, "int32"), stream=driver.LEGACY, address=registered[1])
    source.shape, source.strides, source.device = VALUES.shape, (1,), (fakes.CUDA_HOST, 0)
    with driver.current():
        tensor = ad.from_dlpack(source)
    assert contents(tensor.to_device("cuda")) == VALUES.tobytes()


class TestNoMemory:
    @pytest.fixture(autouse=True)
    def _little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SIMULATED_CUDA_MEMORY", str(VALUES.nbytes * 7 // 2))

    def test_while_the_reaper_releases_some(self, pool: fakes.Pool) -> None:
        """It has taken the block, and is in the driver to free it: the allocation waits for that."""
        tensor = tensor_of(pool)
        copies = [ad.from_dlpack(tensor, copy=True) for _ in range(2)]
        driver.settle()
        gate = driver.gate(driver.LEGACY)
        fakes.cupy(copies.pop(), driver.LEGACY).release()
        made: list[ad.Tensor] = []
        thread = threading.Thread(target=lambda: made.append(ad.from_dlpack(tensor, copy=True)))
        with driver.hold("cuMemFreeAsync"):
            driver.open_gate(gate)
            assert driver.soon(lambda: driver.held() == 1)
            thread.start()
            # It has asked in vain, and would have asked again by now.
            assert driver.soon(lambda: driver.calls("cuMemAllocFromPoolAsync") >= 3)
            time.sleep(0.1)
        thread.join()
        assert contents(made[0]) == VALUES.tobytes()

    def test_is_left_to_others_by_a_pool_that_is_trimmed(self, pool: fakes.Pool) -> None:
        """The driver counts memory as in use until the host has synchronised with its free: a query is not enough."""
        tensor = tensor_of(pool)
        for _ in range(3):
            copies = [ad.from_dlpack(tensor, copy=True) for _ in range(2)]
            for copy in copies:
                fakes.cupy(copy, driver.LEGACY).release()
            copies.clear()
            del copy
            assert driver.soon(lambda: driver.drain() == 0)
            ad.empty_cache()
            driver.free(driver.allocate(2 * VALUES.nbytes))


class TestUses:
    def test_cost_no_more_for_each_that_the_device_is_behind(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        driver.settle()
        ad.from_dlpack(tensor, copy=True)
        stream = driver.Stream()
        driver.gate(stream.handle)
        asked = []
        with ad.stream(stream):
            copies = [ad.from_dlpack(tensor, copy=True)]
            for _ in range(40):
                before = driver.calls("cuEventQuery")
                copies.append(ad.from_dlpack(tensor, copy=True))
                asked.append(driver.calls("cuEventQuery") - before)
        assert max(asked[-5:]) <= max(asked[:5]) + 1
        driver.open_gates()
        del copies


@pytest.mark.parametrize("nth", [1, 2])
def test_a_context_that_is_not_popped_is_popped_again(pool: fakes.Pool, nth: int) -> None:
    """The call has had no effect: without another one, this thread would work on our device from now on."""
    tensor = tensor_of(pool)
    driver.fail("cuCtxPopCurrent_v2", nth, UNKNOWN)
    assert contents(ad.from_dlpack(tensor, copy=True)) == VALUES.tobytes()
    driver.fail_nothing()
    assert not driver.has_current_context()


def test_a_pool_that_cannot_be_set_up_is_destroyed(pool: fakes.Pool) -> None:
    tensor = tensor_of(pool)
    driver.fail("cuMemPoolSetAttribute", 1, UNKNOWN)
    with pytest.raises(BufferError, match="cuMemPoolSetAttribute"):
        ad.from_dlpack(tensor, copy=True)
    assert driver.live("pools") == 0
    assert contents(ad.from_dlpack(tensor, copy=True)) == VALUES.tobytes()
    assert driver.live("pools") == 1


class TestStagingBuffers:
    """What a call has put there is still under way when it fails."""

    @pytest.mark.parametrize("nth", [1, 2])
    def test_are_not_filled_again_before_they_were_read(self, nth: int) -> None:
        ad.from_dlpack(VALUES).to_device("cuda:0")
        driver.settle()
        driver.fail("cuEventRecord", nth, UNKNOWN)
        with suppress(BufferError):
            ad.from_dlpack(VALUES).to_device("cuda:0")
        driver.fail_nothing()
        # The fixture reports a race if the host writes to the buffer before the first copy has read it.
        assert contents(ad.from_dlpack(VALUES[::-1].copy()).to_device("cuda:0")) == VALUES[::-1].tobytes()

    def test_are_not_filled_again_before_they_were_written(self, pool: fakes.Pool) -> None:
        tensor, other = tensor_of(pool), tensor_of(pool)
        contents(other)
        driver.fail("cuEventRecord", 1, UNKNOWN)
        with suppress(BufferError):
            contents(tensor)
        driver.fail_nothing()
        assert contents(ad.from_dlpack(VALUES).to_device("cuda:0")) == VALUES.tobytes()

    def test_are_kept_where_no_copy_starts(self) -> None:
        ad.from_dlpack(VALUES).to_device("cuda:0")
        driver.drain()
        assert ad.memory_stats()["cuda_host"]["used"] == 0
        driver.fail("cuMemcpyHtoDAsync_v2", 1, UNKNOWN)
        with pytest.raises(BufferError, match="cuMemcpyHtoDAsync"):
            ad.from_dlpack(VALUES).to_device("cuda:0")
        driver.drain()
        assert ad.memory_stats()["cuda_host"]["used"] == 0


def test_a_copy_that_reports_an_earlier_error_keeps_its_source(pool: fakes.Pool) -> None:
    stream = driver.Stream()
    tensor = ad.from_dlpack(fakes.Torch(pool, np.arange(64, dtype="int32"), stream=driver.Stream().handle))
    driver.settle()
    driver.gate(stream.handle)
    driver.fail_late("cuMemcpyDtoDAsync_v2", 1, UNKNOWN)
    with ad.stream(stream), pytest.raises(ad.ConversionError, match="cuMemcpyDtoDAsync"):
        ad.from_dlpack(tensor, copy=True)
    driver.fail_nothing()
    del tensor
    gc.collect()
    driver.run_all()
    assert (_native.collect(), pool.freed) == (1, 0)
    driver.open_gates()
    assert driver.soon(lambda: (driver.drain(), pool.freed) == (0, 1))
    assert driver.races() == 0


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loader_keeps_page_locked_rows_behind_a_copy_that_reports_an_earlier_error(prefetch: int) -> None:
    table = pa.table({"x": np.arange(64, dtype="float32"), "y": np.arange(64, dtype="float32")})
    driver.fail_late("cuMemcpyHtoDAsync_v2", 1, UNKNOWN)
    loader = ad.Loader(table, batch_size=32, device="cuda", prefetch=prefetch)
    with pytest.raises(ad.ConversionError, match="cuMemcpyHtoDAsync"):
        list(loader)
    driver.fail_nothing()
    for _ in range(2):
        found = [np.array(batch.to_device("cpu")) for batch in loader]
        assert np.array_equal(np.concatenate(found)[:, 0], np.arange(64))
    assert driver.races() == 0


@pytest.mark.parametrize("nth", range(1, 6))
def test_memory_is_written_before_an_error_says_that_no_event_is_behind_that(nth: int) -> None:
    """Whoever asks for it afterwards waits for the event of the write before."""
    first, second = (ad.from_arrow(DeviceArray(pa.array(values)).give()) for values in ([1, 2, 3], [4, 5, 6]))
    possible = [np.array(values).tobytes() for values in ([1, 2, 3], [4, 5, 6])]
    ours, consumer = driver.Stream(), driver.Stream()
    with ad.stream(ours):
        tensor = ad.to_tensor(first, copy=True)
        driver.settle()
        driver.fail("cuEventRecord", nth, UNKNOWN)
        with suppress(ad.ConversionError):
            ad.to_tensor(second, out=tensor)
    driver.fail_nothing()
    held = fakes.cupy(tensor, consumer.handle)
    assert driver.read(held.address, 24, consumer.handle) in possible
    held.release()


@pytest.mark.parametrize("nth", range(1, 5))
def test_memory_is_written_before_an_error_says_that_its_library_does_not_wait(
    pool: fakes.Pool, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """It may use the memory for something else next, on the stream that it works on."""
    array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3, 4])).give())
    ours, theirs = driver.Stream(), driver.Stream()
    monkeypatch.setattr(exchange.Array, "stream", theirs.handle)
    target = WithTable(pool, np.zeros(4, "i8"), stream=theirs.handle)
    driver.settle()
    driver.fail("cuStreamWaitEvent", nth, UNKNOWN)
    with ad.stream(ours), suppress(ad.ConversionError):
        ad.to_tensor(array, out=target)
    driver.fail_nothing()
    driver.fill(target.address, 0, 32, theirs.handle)
    assert driver.read(target.address, 32, theirs.handle) == bytes(32)
    driver.drain()
