"""Where the memory of results on a device comes from, how it is counted, and what gives it back."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray

VALUES = np.arange(1 << 16, dtype="int32")
BYTES = VALUES.nbytes


def tensor_of(pool: fakes.Pool) -> ad.Tensor:
    return ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))


def contents(tensor: ad.Tensor) -> bytes:
    return np.from_dlpack(tensor.to_device("cpu")).tobytes()


def of_device() -> dict[str, int]:
    return ad.memory_stats()["cuda:0"]


class TestStatistics:
    def test_start_no_driver(self) -> None:
        before = driver.calls()
        assert ad.memory_stats() == {}
        ad.empty_cache()
        assert driver.calls() == before

    def test_of_the_pool(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        assert of_device()["pool_used"] == 0
        copy = ad.from_dlpack(tensor, copy=True)
        found = of_device()
        assert found["pool_used"] == found["pool_used_peak"] == BYTES
        assert found["pool_reserved"] == found["pool_reserved_peak"] >= BYTES
        assert contents(copy) == VALUES.tobytes()
        del copy
        driver.settle()
        # Released, and freed when the device has got there.
        of_device()
        driver.settle()
        found = of_device()
        assert (found["pool_used"], found["pool_used_peak"]) == (0, BYTES)
        # Kept, until someone asks for it.
        assert found["pool_reserved"] == BYTES
        ad.empty_cache()
        found = of_device()
        assert (found["pool_reserved"], found["pool_reserved_peak"]) == (0, BYTES)

    def test_of_memory_that_waits(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        copy = ad.from_dlpack(tensor, copy=True)
        held = fakes.cupy(copy, driver.LEGACY)
        gate = driver.gate(driver.LEGACY)
        held.release()
        del copy
        gc.collect()
        found = of_device()
        assert (found["waiting_blocks"], found["waiting_bytes"]) == (1, BYTES)
        driver.open_gate(gate)
        driver.settle()
        ad.empty_cache()
        found = of_device()
        assert (found["waiting_blocks"], found["waiting_bytes"], found["pool_used"]) == (0, 0, 0)

    def test_of_memory_that_waits_on_another_device(self, pool: fakes.Pool) -> None:
        copy = tensor_of(pool).to_device("cuda:1")
        driver.drain()
        held = fakes.cupy(copy, driver.LEGACY)
        gate = driver.gate(driver.LEGACY, 1)
        held.release()
        del copy
        gc.collect()
        stats = ad.memory_stats()
        assert [stats[device]["waiting_blocks"] for device in ("cuda:0", "cuda:1")] == [0, 1]
        assert [stats[device]["waiting_bytes"] for device in ("cuda:0", "cuda:1")] == [0, BYTES]
        driver.open_gate(gate)

    def test_of_borrowed_memory_that_waits(self, pool: fakes.Pool) -> None:
        held = fakes.cupy(ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle)), driver.LEGACY)
        driver.gate(driver.LEGACY)
        held.release()
        gc.collect()
        # How many bytes those are its owner knows.
        assert (of_device()["waiting_blocks"], of_device()["waiting_bytes"]) == (1, 0)

    def test_of_page_locked_memory(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        assert ad.memory_stats()["cuda_host"] == {"used": 0, "kept": 0}
        assert contents(tensor) == VALUES.tobytes()
        kept = ad.memory_stats()["cuda_host"]
        assert kept["used"] == 0
        assert kept["kept"] >= 2 << 20
        ad.empty_cache()
        assert ad.memory_stats()["cuda_host"] == {"used": 0, "kept": 0}
        assert driver.live("pinned") == len(driver._staging)
        assert contents(tensor) == VALUES.tobytes()

    def test_fail_as_the_driver_does(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        ad.from_dlpack(tensor, copy=True)
        driver.fail("cuMemPoolGetAttribute", 2, 999)
        with pytest.raises(BufferError, match="cuMemPoolGetAttribute failed with code 999"):
            ad.memory_stats()
        driver.fail("cuMemPoolTrimTo", 1, 999)
        contents(tensor)
        with pytest.raises(BufferError, match="cuMemPoolTrimTo failed with code 999"):
            ad.empty_cache()
        # The rest was given back.
        assert ad.memory_stats()["cuda_host"] == {"used": 0, "kept": 0}


class TestPlainMemory:
    def test_is_kept_and_freed_when_that_is_asked_for(self, pool: fakes.Pool, host_waits: Callable[[], Any]) -> None:
        tensor = tensor_of(pool)
        waits, allocated, freed = host_waits(), driver.calls("cuMemAlloc_v2"), driver.calls("cuMemFree_v2")
        for _ in range(3):
            copy = ad.from_dlpack(tensor, copy=True, allocator="cuMemAlloc")
            assert of_device()["unpooled_used"] == BYTES
            held = fakes.cupy(copy, driver.LEGACY)
            held.release()
            del copy
            driver.run_all()
            # Released behind what reads it.
            driver.synchronize()
            assert driver.soon(lambda: of_device()["unpooled_used"] == 0)
        assert driver.calls("cuMemAlloc_v2") - allocated == 1
        assert driver.calls("cuMemFree_v2") == freed
        assert waits.ours == 0
        found = of_device()
        assert (found["unpooled_used"], found["unpooled_kept"], found["pool_reserved"]) == (0, BYTES, 0)
        ad.empty_cache()
        assert driver.calls("cuMemFree_v2") - freed == 1
        assert of_device()["unpooled_kept"] == 0
        # Each of these may have waited, and is counted.
        assert waits.ours == 1

    def test_of_another_size_is_not_reused(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        small = ad.from_dlpack(fakes.Torch(pool, VALUES[:100], stream=driver.Stream().handle))
        ad.from_dlpack(tensor, copy=True, allocator="cuMemAlloc")
        driver.drain()
        copy = ad.from_dlpack(small, copy=True, allocator="cuMemAlloc")
        assert of_device()["unpooled_used"] < 1024
        assert contents(copy) == VALUES[:100].tobytes()

    def test_to_free_it_fails(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        ad.from_dlpack(tensor, copy=True, allocator="cuMemAlloc")
        driver.drain()
        driver.fail("cuMemFree_v2", 1, 999)
        with pytest.raises(BufferError, match="cuMemFree_v2 failed with code 999"):
            ad.empty_cache()
        assert of_device()["unpooled_kept"] == BYTES
        ad.empty_cache()
        assert of_device()["unpooled_kept"] == 0

    def test_on_devices_without_pools(self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
        monkeypatch.setenv("SIMULATED_CUDA_NO_POOLS", "1")
        tensor = tensor_of(request.getfixturevalue("pool"))
        copy = ad.from_dlpack(tensor, copy=True)
        assert contents(copy) == VALUES.tobytes()
        found = of_device()
        assert (found["unpooled_used"], found["pool_used"]) == (BYTES, 0)
        del copy
        driver.drain()
        ad.empty_cache()
        assert (of_device()["unpooled_used"], of_device()["unpooled_kept"]) == (0, 0)


def test_no_pool_is_opened_to_a_device_that_may_not_reach_it() -> None:
    """The driver does not say whether it does."""
    driver.fail_from("cuDeviceCanAccessPeer", 1, 999)
    for device in ("cuda:0", "cuda:1"):
        assert contents(ad.from_dlpack(np.arange(9)).to_device(device)) == np.arange(9).tobytes()
    asked, granted = (driver.calls(name) for name in ("cuDeviceCanAccessPeer", "cuMemPoolSetAccess"))
    assert (asked > 0, granted) == (True, 0)
    driver.fail_nothing()


class TestOutOfMemory:
    LIMIT = BYTES * 7 // 2

    @pytest.fixture(autouse=True)
    def _little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SIMULATED_CUDA_MEMORY", str(self.LIMIT))

    @pytest.mark.parametrize("allocator", [None, "cuMemAlloc"])
    def test_says_how_much_and_leaves_all_usable(self, pool: fakes.Pool, allocator: Any) -> None:
        tensor = tensor_of(pool)
        copies = [ad.from_dlpack(tensor, copy=True, allocator=allocator) for _ in range(2)]
        with pytest.raises(MemoryError) as raised:
            ad.from_dlpack(tensor, copy=True, allocator=allocator)
        text = str(raised.value)
        assert f"cuda:0 has no memory for {BYTES} bytes: {2 * BYTES} bytes are in use by this package" in text
        assert "empty_cache()" in text
        assert all(contents(copy) == VALUES.tobytes() for copy in copies)
        copies.pop()
        driver.settle()
        assert contents(ad.from_dlpack(tensor, copy=True, allocator=allocator)) == VALUES.tobytes()

    def test_what_waits_is_released_first(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        for _ in range(6):
            copy = ad.from_dlpack(tensor, copy=True)
            fakes.cupy(copy, driver.LEGACY).release()
            del copy
            driver.settle()

    def test_what_one_keeps_the_other_gets(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        for allocator in [None, "cuMemAlloc"] * 2:
            # All that there is, and none is in use.
            copies = [ad.from_dlpack(tensor, copy=True, allocator=allocator) for _ in range(2)]
            assert contents(copies[1]) == VALUES.tobytes()
            copies.clear()
            driver.settle()
            ad.from_dlpack(tensor)

    def test_too_many_bytes_for_any_device(self, pool: fakes.Pool) -> None:
        stride = np.zeros(1, dtype="int8")
        source = fakes.Torch(pool, stride, stream=driver.Stream().handle)
        source.shape, source.strides = ((1 << 62),), (0,)
        wide = ad.from_dlpack(source)
        copy = ad.from_dlpack(wide, copy=True)
        # A broadcast is copied as it lies.
        assert copy.shape == ((1 << 62),)


class TestPeers:
    def test_reach_the_pools_of_each_other(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        other = fakes.Pool(1)
        ad.from_dlpack(tensor, copy=True)
        assert driver.calls("cuMemPoolSetAccess") == 0
        second = ad.from_dlpack(fakes.Torch(other, VALUES, stream=driver.Stream(1).handle))
        assert driver.calls("cuMemPoolSetAccess") == 1
        ad.from_dlpack(second, copy=True)
        assert driver.calls("cuMemPoolSetAccess") >= 2
        del second
        driver.settle()
        ad.empty_cache()
        other.close()

    @pytest.mark.parametrize("function", ["cuDeviceCanAccessPeer", "cuMemPoolSetAccess"])
    def test_or_do_not(self, function: str, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        other = fakes.Pool(1)
        ad.from_dlpack(tensor, copy=True)
        for nth in range(1, 4):
            driver.fail(function, nth, 217)
        second = ad.from_dlpack(fakes.Torch(other, VALUES, stream=driver.Stream(1).handle))
        assert contents(ad.from_dlpack(second, copy=True)) == VALUES.tobytes()
        del second
        driver.settle()
        ad.empty_cache()
        other.close()


def test_what_threads_gave_back_is_freed_by_another_one() -> None:
    """While they transfer: what one of them has seen done, whoever frees the memory knows of."""
    done = threading.Event()

    def transfer() -> None:
        for _ in range(30):
            there = ad.from_dlpack(VALUES, device="cuda").to_device("cuda_host")
            assert contents(ad.from_dlpack(there, device="cuda")) == VALUES.tobytes()

    def free() -> None:
        while not done.is_set():
            ad.empty_cache()

    with ThreadPoolExecutor(3) as pool:
        freeing = pool.submit(free)
        transferring = [pool.submit(transfer) for _ in range(2)]
        try:
            for thread in transferring:
                thread.result()
        finally:
            done.set()
        freeing.result()


def test_plain_blocks_that_threads_gave_back_are_freed_by_another_one() -> None:
    with ThreadPoolExecutor(2) as pool:

        def transfer() -> None:
            moved = ad.from_dlpack(VALUES).to_device("cuda", allocator="cuMemAlloc")
            assert contents(moved) == VALUES.tobytes()

        for _ in range(10):
            pool.submit(transfer).result()
            driver.settle()
            ad.empty_cache()


class TestBlocksToCopyThrough:
    LARGE = np.arange(5 << 18, dtype="int64")
    BLOCK = 2 << 20

    def locked(self) -> int:
        found = ad.memory_stats()["cuda_host"]
        return found["used"] + found["kept"]

    def copy(self, values: np.ndarray) -> ad.Tensor:
        """Copies on one thread: each of several may take a block beyond the limit."""
        return ad.from_dlpack(values).to_device("cuda", threads=1)

    def test_are_as_many_as_are_allowed(self, monkeypatch: pytest.MonkeyPatch, host_waits: Callable[[], Any]) -> None:
        monkeypatch.setenv("ARROW_DLPACK_PINNED_BYTES", str(2 * self.BLOCK))
        waits, gate = host_waits(), driver.gate(driver.LEGACY)
        small = self.copy(self.LARGE[: 1 << 18])
        assert (self.locked(), waits.ours) == (self.BLOCK, 0)
        driver.open_gate(gate)
        large = self.copy(self.LARGE)
        # Each block is waited for that is filled again, and no more are made.
        assert self.locked() <= 2 * self.BLOCK
        assert contents(large) == self.LARGE.tobytes()
        assert contents(small) == self.LARGE[: 1 << 18].tobytes()

    def test_without_a_limit_nothing_waits(self, host_waits: Callable[[], Any]) -> None:
        waits, gate = host_waits(), driver.gate(driver.LEGACY)
        large = self.copy(self.LARGE)
        assert (self.locked(), waits.ours) == (5 * self.BLOCK, 0)
        driver.open_gate(gate)
        assert contents(large) == self.LARGE.tobytes()

    def test_more_where_none_can_be_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ARROW_DLPACK_PINNED_BYTES", "0")
        gate = driver.gate(driver.LEGACY)
        tensors = [self.copy(self.LARGE[: 1 << 18]) for _ in range(3)]
        assert self.locked() == 3 * self.BLOCK
        driver.open_gate(gate)
        assert all(contents(tensor) == self.LARGE[: 1 << 18].tobytes() for tensor in tensors)

    def test_those_of_numbers_are_counted_before_they_are_freed(self, host_waits: Callable[[], Any]) -> None:
        """Else there would be fewer than none, and no room for any."""
        array = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))
        ad.to_tensor(DeviceArray(array).give())
        driver.drain()
        ad.empty_cache()
        assert self.locked() == 0
        waits, gate = host_waits(), driver.gate(driver.LEGACY)
        # A wait for what is behind the gate ends with this process.
        signal.alarm(int(2 * driver.SOON))
        large = self.copy(self.LARGE)
        signal.alarm(0)
        assert (self.locked(), waits.ours) == (5 * self.BLOCK, 0)
        driver.open_gate(gate)
        assert contents(large) == self.LARGE.tobytes()

    def test_no_number_of_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ARROW_DLPACK_PINNED_BYTES", "much")
        with pytest.raises(ad.ConversionError, match='ARROW_DLPACK_PINNED_BYTES is "much", not a number of bytes'):
            self.copy(self.LARGE)
