"""Does a thread that starts a device, or loads its kernels, hold up the others?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA_HOST, DeviceArray, exported
from driver import SOON, soon

VALUES = np.arange(64, dtype="int32")


class Worker(threading.Thread):
    """Converts on a device, as its first use."""

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(daemon=True)
        self.data = pa.array([1.5, 2.5])
        self.device = f"cuda:{ordinal}"
        self.found: list[float] | None = None

    def run(self) -> None:
        tensor = ad.to_tensor(ad.from_arrow(self.data).to_device(self.device), dtype="float32")
        self.found = np.from_dlpack(tensor.to_device("cpu")).tolist()


@contextmanager
def held_up(function: str, count: int = 1) -> Iterator[None]:
    """Threads that are in a call of the driver which takes long."""
    workers = [Worker() for _ in range(count)]
    with driver.hold(function):
        for worker in workers:
            worker.start()
        # This thread runs, so the interpreter's lock is free.
        assert soon(lambda: driver.held() > 0)
        yield
        assert driver.held() == 1
        assert all(worker.found is None for worker in workers)
    for worker in workers:
        worker.join(SOON)
        assert worker.found == [1.5, 2.5]


def test_starting_a_device() -> None:
    driver.synchronize()
    with held_up("cuDevicePrimaryCtxRetain"):
        assert np.from_dlpack(ad.to_tensor(pa.array([1, 2]))).tolist() == [1, 2]
        assert "cuda:0" not in ad.memory_stats()
        assert ad.collect() == 0


def test_loading_the_kernels(pool: fakes.Pool) -> None:
    """Meanwhile this thread imports, exports and lets go of memory, on the same device."""
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    before = pool.freed
    with held_up("cuModuleLoadData"):
        fakes.cupy(tensor, driver.LEGACY).release()
        del tensor
        assert soon(lambda: pool.freed == before + 1)
        view = ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give())
        assert np.from_dlpack(view.to_device("cpu")).tolist() == [1.5, 2.5]
        assert ad.memory_stats()["cuda:0"]["waiting_blocks"] >= 0
        ad.empty_cache()


@pytest.mark.parametrize("function", ["cuDevicePrimaryCtxRetain", "cuModuleLoadData"])
def test_two_threads_that_need_the_same(function: str) -> None:
    """The second waits for the first, without the interpreter's lock too."""
    if function == "cuModuleLoadData":
        ad.from_arrow(pa.array([1])).to_device("cuda:0")
    before = driver.calls(function)
    with held_up(function, 2):
        assert sum(range(1000)) == 499500
    assert driver.calls(function) == before + 1


def test_kernels_of_two_devices_are_loaded_at_once() -> None:
    workers = [Worker(0), Worker(1)]
    with driver.hold("cuModuleLoadData"):
        for worker in workers:
            worker.start()
        assert soon(lambda: driver.held() == 2)
    for worker in workers:
        worker.join(SOON)
        assert worker.found == [1.5, 2.5]


def test_two_devices_start_at_once() -> None:
    workers = [Worker(0), Worker(1)]
    with driver.hold("cuDevicePrimaryCtxRetain"):
        for worker in workers:
            worker.start()
        assert soon(lambda: driver.held() == 2)
    for worker in workers:
        worker.join(SOON)
        assert worker.found == [1.5, 2.5]


def test_memory_that_was_lent_is_the_first_of_its_device_to_be_let_go_of() -> None:
    """Its release has to start the device, which no import or export did."""
    ad.from_arrow(pa.array([1])).to_device("cuda:0")
    array = ad.from_arrow(DeviceArray(pa.array([1, 2]), ordinal=1).give())
    # Nothing is known of what the consumer does with it.
    with exported(array):
        pass
    held = [array]
    del array
    counted: list[int] = []

    def count() -> None:
        while driver.held() == 0:
            time.sleep(0.001)
        # Each of these needs the interpreter.
        counted.extend(range(1000))
        lib = driver.simulated()
        assert lib is not None
        lib.simulated_cuda_hold(None)

    counter = threading.Thread(target=count, daemon=True)
    with driver.hold("cuDevicePrimaryCtxRetain"):
        counter.start()
        held.clear()
        counter.join(SOON)
    assert len(counted) == 1000


def test_page_locked_memory_starts_only_the_device_that_it_is_said_to_be_of() -> None:
    """The driver names the one whose context allocated it, and any may use it."""
    memory = DeviceArray(pa.array([1.5, 2.5]), kind=CUDA_HOST, ordinal=1, how="pyarrow", device_id=0)
    before = driver.calls("cuDevicePrimaryCtxRetain")
    array = ad.from_arrow(memory.give())
    assert np.from_dlpack(ad.to_tensor(array, dtype="float32").to_device("cpu")).tolist() == [1.5, 2.5]
    assert driver.calls("cuDevicePrimaryCtxRetain") == before + 1
