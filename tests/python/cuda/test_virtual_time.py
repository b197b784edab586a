"""What takes how long, and what overlaps, on the virtual clock of the simulated driver: bounds, for all machines."""

from __future__ import annotations

import gc
from typing import Any

import arrow_dlpack as ad
import clock
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
import timed_work
from clock import MICROSECOND, MILLISECOND, SECOND
from device_arrow import DeviceArray

pytestmark = clock.needed
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _exact() -> Any:
    yield
    assert clock.is_exact()


def test_a_view_needs_little_beyond_the_context() -> None:
    array = DeviceArray(pa.array([1.5, 2.5])).give()
    # The context is not ours: the test's producer has it already.
    start = clock.now()
    ad.to_tensor(array)
    assert clock.now() - start < 5 * MILLISECOND


def test_the_kernels_are_loaded_with_the_first_conversion_and_not_compiled() -> None:
    array, other = DeviceArray(pa.array([1.5, 2.5])).give(), DeviceArray(pa.array([1.5, 2.5])).give()
    start = clock.now()
    ad.to_tensor(array, dtype="float32")
    first = clock.now()
    ad.to_tensor(other, dtype="float32")
    again = clock.now()
    assert first - start < 20 * MILLISECOND
    assert again - first < 200 * MICROSECOND


def test_an_export_costs_the_same_at_any_number_of_waiting_entries(pool: fakes.Pool) -> None:
    """With the device one second behind, nothing comes back."""
    passes_through = timed_work.PassesThrough(pool)
    passes_through()
    clock.busy(driver.LEGACY, SECOND)
    start, costs = clock.now(), []
    for _ in range(10):
        before = clock.now()
        for _ in range(1000):
            passes_through()
        costs.append((clock.now() - before) / 1000)
    assert clock.now() < start + SECOND
    assert ad.memory_stats()["cuda:0"]["waiting_blocks"] >= 10_000
    assert max(costs[1:]) < 1.1 * min(costs[1:]), costs
    assert max(costs) < 20 * MICROSECOND, costs
    driver.synchronize()
    assert driver.soon(lambda: ad.collect() == 0)


def test_many_columns_cost_few_calls() -> None:
    many = ad.from_arrow(timed_work.table(1000, 100).to_batches()[0])
    # The staging buffer is pinned, and the pool has grown: what the reaper has not freed yet would have it grow again.
    many.to_device("cuda:0")
    driver.drain()
    start, calls = clock.now(), driver.calls()
    moved = many.to_device("cuda:0")
    assert clock.now() - start < 200 * MICROSECOND
    assert driver.calls() - calls < 50
    driver.synchronize()
    start, calls = clock.now(), driver.calls()
    assert len(ad.to_tensors(moved)) == 1000
    assert (clock.now() - start, driver.calls() - calls) < (10 * MICROSECOND, 10)


def test_pinned_memory_is_copied_at_the_speed_of_the_link() -> None:
    pinned = ad.from_arrow(pa.array(np.zeros(16 * MIB, "float32"))).to_device("cuda_host:0")
    there = pinned.to_device("cuda:0")
    driver.synchronize()
    for work in (lambda: pinned.to_device("cuda:0"), lambda: there.to_device("cuda_host:0")):
        # Once, so that the pool has grown.
        for _ in range(2):
            start = clock.now()
            kept = work()
            driver.synchronize()
            took, lasted = clock.now() - start, clock.timeline(start)
            del kept
            assert driver.drain() == 0
        assert took < 1.05 * clock.total(lasted, "copy")


def test_the_host_is_idle_while_the_device_works() -> None:
    """A result on the host is waited for asleep: few questions, and no long one."""
    array = ad.from_arrow(pa.array(np.arange(1024, dtype="int32"))).to_device("cuda:0")
    clock.busy(driver.LEGACY, 100 * MILLISECOND)
    before, start = driver.calls(), clock.now()
    array.to_device("cpu")
    took = clock.now() - start
    assert 100 * MILLISECOND <= took < 115 * MILLISECOND
    slept = clock.total(clock.timeline(start), "sleep")
    assert slept > 0.95 * took
    assert driver.calls() - before < 300


def test_an_upload_overlaps_the_copies_of_the_host_with_those_of_the_device() -> None:
    data = pa.array(np.zeros(16 * MIB, dtype="float32"))
    # The staging buffers are pinned once.
    ad.from_arrow(data).to_device("cuda:0")
    driver.synchronize()
    start = clock.now()
    moved = ad.from_arrow(data).to_device("cuda:0")
    driver.synchronize()
    took, lasted = clock.now() - start, clock.timeline(start)
    copied = [one for one in lasted if one.what == "host copy"]
    copies = [one for one in lasted if one.what == "copy"]
    assert sum(one.bytes for one in copies) >= 64 * MIB
    # Most copies of the device run while the host copies the next, or most of the host's while the device copies.
    totals = [clock.total(copies, "copy"), clock.total(copied, "host copy")]
    assert clock.together(copies, copied) > 0.7 * min(totals)
    assert took < 1.2 * max(totals)
    del moved
    gc.collect()


@pytest.mark.parametrize("prefetch", [1, 2])
def test_the_loader_overlaps_packing_with_its_copies(prefetch: int) -> None:
    ad.warm_up("cuda:0")
    loader = ad.Loader(timed_work.table(64, 1 << 19), batch_size=8192, device="cuda", prefetch=prefetch)
    epoch = timed_work.epoch(loader)
    assert epoch.packing
    assert epoch.copying
    assert epoch.took <= 1.1 * epoch.slower, epoch[:3]


@pytest.mark.parametrize("rows", [4096, 8192])
def test_an_epoch_without_new_blocks_takes_as_long_as_the_slower_of_both(rows: int) -> None:
    """The first epoch pins blocks and grows the pool; in later ones each batch has its own calls alone."""
    loader = ad.Loader(timed_work.table(64, 64 * rows), batch_size=rows, device="cuda", prefetch=2)
    for number in range(3):
        epoch = timed_work.epoch(loader)
        pinned = clock.total(epoch.lasted, "cuMemHostAlloc")
        assert (pinned > 0) == (number == 0)
        assert number == 0 or epoch.took <= 1.1 * epoch.slower, epoch[:3]
        assert (epoch.copying > epoch.packing) == clock.has_slow_copies
