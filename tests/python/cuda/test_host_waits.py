"""Waits of the host beside an interpreter: who sleeps without its lock, who handles signals, what needs no kernels."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import CUDA, CUDA_HOST, DeviceArray, exported, unfinished
from test_kept import by_array_interface

# Two staging buffers are under way at a time on each of two threads.
LOADS = 16
VALUES = np.arange(LOADS << 18, dtype="int64")


def export_on_host(array: ad.Array) -> None:
    with exported(array, sync="host"):
        pass


@pytest.fixture
def no_switches() -> None:
    """Threads of Python get the lock only where another gives it away by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


def copies() -> int:
    """How many copies to the host were started; keeps the interpreter's lock."""
    library = ctypes.PyDLL("libcuda.so.1")
    library.simulated_cuda_calls.restype = ctypes.c_uint64
    return library.simulated_cuda_calls(b"cuMemcpyDtoHAsync_v2")


def test_threads_that_copy_need_no_interpreter(pool: fakes.Pool, no_switches: None) -> None:
    """This thread holds the lock from the opening of the gate until every copy was started."""
    stream = driver.Stream()
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
    gate = driver.gate(stream.handle)
    found: list[ad.Tensor] = []

    def work() -> None:
        with ad.stream(stream):
            found.append(tensor.to_device("cpu", threads=4))

    before = copies()
    thread = threading.Thread(target=work)
    thread.start()
    # Each thread waits for its first copy.
    while copies() - before < 8:
        time.sleep(0.001)
    libc = ctypes.PyDLL(None)
    driver.open_gate(gate)
    for _ in range(10_000):
        if copies() - before == LOADS:
            break
        libc.usleep(1000)
    started = copies() - before
    thread.join()
    driver.synchronize()
    assert started == LOADS
    np.testing.assert_array_equal(np.from_dlpack(found[0]), VALUES)


def test_a_signal_ends_the_wait_of_the_main_thread_alone(pool: fakes.Pool) -> None:
    """A handler runs while another thread waits as well; the wait of that thread goes on."""
    stream = driver.Stream()
    gate = driver.gate(stream.handle)
    tensors = [ad.from_dlpack(fakes.Torch(pool, VALUES[:1000], stream=stream.handle)) for _ in range(2)]
    outcomes: list[object] = []

    def work() -> None:
        try:
            outcomes.append(tensors[0].to_device("cpu"))
        except BaseException as raised:
            outcomes.append(raised)

    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    thread = threading.Thread(target=work)
    thread.start()
    before = signal.signal(signal.SIGALRM, stop)
    # The signal may come as soon as it is allowed to.
    with pytest.raises(Stop):  # noqa: PT012
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        tensors[1].to_device("cpu")
    signal.signal(signal.SIGALRM, before)
    assert not outcomes
    driver.open_gate(gate)
    thread.join()
    # The simulated driver knows nothing of the join.
    driver.synchronize()
    (copied,) = outcomes
    np.testing.assert_array_equal(np.from_dlpack(copied), VALUES[:1000])


WAITS: dict[str, tuple[pa.Array, int, Callable[[Any], object]]] = {
    "offsets": (pa.array([[1, 2], [3]]), CUDA, ad.to_ragged),
    "misfits": (pa.array([1, 2]), CUDA, lambda array: ad.to_tensor(array, dtype="int8")),
    "copy": (pa.array([1, 2]), CUDA, lambda array: array.to_device("cpu")),
    "view": (pa.array([1, 2]), CUDA_HOST, lambda array: array.to_device("cpu")),
    "export of a tensor": (pa.array([1, 2]), CUDA_HOST, lambda array: np.from_dlpack(ad.to_tensor(array))),
    "export of an array": (pa.array([1, 2]), CUDA, export_on_host),
}


@pytest.mark.parametrize("name", WAITS)
def test_other_threads_run_while_the_host_waits(name: str) -> None:
    """Without that, the thread that has to let the device go on may never come to it."""
    data, kind, wait = WAITS[name]
    source, gate = unfinished(data, kind=kind)
    array = ad.from_arrow(source.give())
    before = _native._cuda_host_waits()
    # A wait that keeps the lock ends with this process.
    signal.alarm(int(2 * driver.SOON))

    def let_go_on() -> None:
        while _native._cuda_host_waits() == before:
            time.sleep(0.001)
        # A look for signals may lend the lock once.
        for _ in range(20):
            time.sleep(0.001)
        driver.open_gate(gate)

    thread = threading.Thread(target=let_go_on)
    thread.start()
    wait(array)
    thread.join()
    signal.alarm(0)
    driver.synchronize()


def test_a_cache_is_freed_for_a_retry_without_the_lock() -> None:
    """The driver waits for the device, which another thread lets go on. So short a conversion keeps the lock."""
    few, more = (ad.from_arrow(DeviceArray(pa.array(VALUES[:count])).give()) for count in (16, 1024))
    ad.to_tensor(few, dtype="float32", allocator="cuMemAlloc")
    driver.drain()
    stream = driver.Stream()
    gate = driver.gate(stream.handle)
    freed = driver.calls("cuMemFree_v2")
    driver.fail("cuMemAlloc_v2", 1, 2)
    # A thread that keeps the lock inside the driver ends with this process.
    signal.alarm(120)

    def let_go_on() -> None:
        while driver.calls("cuMemFree_v2") == freed:
            time.sleep(0.001)
        driver.open_gate(gate)

    thread = threading.Thread(target=let_go_on)
    thread.start()
    found = ad.to_tensor(more, dtype="float32", allocator="cuMemAlloc")
    thread.join()
    signal.alarm(0)
    driver.synchronize()
    np.testing.assert_array_equal(np.from_dlpack(found.to_device("cpu")), VALUES[:1024])


def test_views_and_transfers_load_no_kernels(pool: fakes.Pool) -> None:
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES[:10], stream=driver.LEGACY))
    driver.settle()
    by_array_interface(tensor)
    fakes.cupy(tensor, driver.LEGACY).release()
    array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3])).give())
    ad.to_tensor(array)
    ad.from_dlpack(tensor, copy=True)
    np.from_dlpack(tensor.to_device("cuda_host"))
    assert driver.calls("cuModuleLoadData") == 0
    ad.to_tensor(array, dtype="float64")
    ad.to_tensor(array, dtype="float32")
    assert driver.calls("cuModuleLoadData") == 1
