"""Memory is out at every allocation in turn, and every call fails once: all stays usable, whatever memory is taken."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import libraries
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import DeviceArray, clean_up

pytestmark = pytest.mark.skipif(
    os.environ.get("SIMULATED_CUDA_SCHEDULE", "lazy") not in ("lazy", "random:1"),
    reason="the calls that fail are the same under every schedule: two of them are enough",
)

VALUES = np.arange(1024, dtype="int32")
UNKNOWN, OUT_OF_MEMORY = 999, 2
TABLE = pa.table({"x": pa.array(range(100), pa.int32()), "y": pa.array([None, 1.5] * 50)})


class Resource:
    """An allocator that keeps what it gave."""

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}

    def allocate(self, nbytes: int, stream: Any) -> int:
        address = driver.new_memory(nbytes)
        self.memory[address] = nbytes
        return address

    def deallocate(self, address: int, nbytes: int, stream: Any) -> None:
        assert self.memory.pop(address) == nbytes
        driver.free(address)


# What is called again and again where memory is allocated, used and freed.
CALLED = [
    "cuCtxPushCurrent_v2",
    "cuStreamWaitEvent",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuEventRecord",
    "cuEventQuery",
    "cuPointerGetAttributes",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuLaunchKernel",
    "cuMemPoolTrimTo",
    "cuMemFree_v2",
    "cuMemFreeHost",
]
SOURCES = ["pool", "cuMemAlloc", "resource", "torch"]


def work(source: str, pool: fakes.Pool, torch: libraries.Torch, resource: Resource) -> None:
    """What makes results on a device, once."""
    allocator = {"pool": None, "torch": None, "cuMemAlloc": "cuMemAlloc", "resource": resource}[source]
    xp: Any = torch if source == "torch" else None
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))
    copy = ad.from_dlpack(tensor, copy=True, allocator=allocator)
    assert np.from_dlpack(copy.to_device("cpu")).tobytes() == VALUES.tobytes()
    batch = ad.from_arrow(TABLE.to_batches()[0], device="cuda", allocator=allocator)
    assert pa.record_batch(batch.to_device("cpu")) == TABLE.to_batches()[0]
    filled = ad.to_tensor(batch, nulls=0, dtype="float64", allocator=allocator, xp=xp)
    if xp is not None:
        filled.tobytes(1600)


def attempt(source: str) -> bool:
    """Whether the work was done; whatever it took is given back by now."""
    pool, resource = fakes.Pool(), Resource()
    torch = libraries.Torch(driver.Stream().handle)
    text = ""
    try:
        work(source, pool, torch, resource)
    except (BufferError, MemoryError) as error:
        text = str(error)
        assert any(said in text for said in ["failed with code", "no memory for", "no page-locked memory"]), text
    driver.drain()
    assert driver.drain() == 0
    assert not producers.wrongly_released(), driver.report()
    producers.forget_all()
    assert driver.races() == 0, driver.report()
    driver.clean_up()
    clean_up()
    pool.close()
    torch.cache.close()
    for address in resource.memory:
        driver.free(address)
    assert (torch.cache.used, resource.memory) == (0, {}), text
    return not text


@pytest.fixture(autouse=True)
def _ask_again() -> None:
    """Only calls of the package are counted and fail."""
    driver.exempt = True


def sweep(source: str, function: str, failing: Callable[[int], None]) -> int:
    """How many attempts failed, as one call after another is told to."""
    failures = 0
    for nth in range(1, 200):
        before = driver.calls(function)
        failing(nth)
        failures += not attempt(source)
        if driver.calls(function) - before < nth:
            break
        # What is kept is not asked for again.
        with suppress(BufferError):
            ad.empty_cache()
    assert nth < 199, "it is called all the time"
    # Its turn did not come, and would in a later call: threads free memory at any time.
    driver.fail_nothing()
    assert attempt(source)
    assert driver.has_current_context() is False
    return failures


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("function", ["cuMemAllocFromPoolAsync", "cuMemAlloc_v2", "cuMemHostAlloc"])
def test_no_memory_at_any_allocation(source: str, function: str) -> None:
    """Neither at first, nor when what is kept was given back."""

    def failing(nth: int) -> None:
        driver.fail(function, nth, OUT_OF_MEMORY)
        driver.fail(function, nth + 1, OUT_OF_MEMORY)

    failures = sweep(source, function, failing)
    # Scratch memory is the pool's, whatever the source.
    assert failures > 0 or function == "cuMemAlloc_v2"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("function", ["cuMemAllocFromPoolAsync", "cuMemAlloc_v2", "cuMemHostAlloc"])
def test_memory_when_what_is_kept_was_given_back(source: str, function: str) -> None:
    failures = sweep(source, function, lambda nth: driver.fail(function, nth, OUT_OF_MEMORY))
    # Of blocks to copy through there is no second try.
    assert failures == 0 or function == "cuMemHostAlloc"


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("function", CALLED)
def test_every_call_fails_once(source: str, function: str) -> None:
    assert sweep(source, function, lambda nth: driver.fail(function, nth, UNKNOWN)) >= 0


def test_the_error_of_a_copy_is_told_though_its_event_fails_too() -> None:
    driver.exempt = True
    array = ad.from_arrow(DeviceArray(pa.array(range(1000))).give())
    before = driver.calls("cuEventRecord")
    driver.fail("cuMemcpyDtoHAsync_v2", 1, UNKNOWN)
    driver.fail("cuEventRecord", 1, UNKNOWN)
    with pytest.raises(BufferError, match="cuMemcpyDtoHAsync_v2 failed with code 999"):
        ad.to_tensor(array, device="cpu")
    assert driver.calls("cuEventRecord") - before == 1
    assert ad.to_tensor(array, device="cpu").shape == (1000,)
