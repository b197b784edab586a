"""When memory goes back to its owner: behind all work that may use it, and not later."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import producers
import pytest
from arrow_dlpack import _native

VALUES = np.arange(1024, dtype="int32")
UNKNOWN = 999


@pytest.fixture
def target(pool) -> int:
    return pool.allocate(VALUES.nbytes)


def used_by(pool: fakes.Pool, target: int, stream: int, *, record: driver.Stream | None = None) -> None:
    """Imports a tensor, gives it to a consumer whose stream reads it, and lets go of it while that is to come."""
    source = fakes.Torch(pool, VALUES, stream=driver.Stream().handle)
    tensor = ad.from_dlpack(source)
    del source
    held = fakes.Held(tensor.__dlpack__(stream=stream, max_version=(1, 0)))
    driver.copy(target, held.address, VALUES.nbytes, stream)
    if record is not None:
        tensor.record_stream(record)
    held.release()
    del tensor, held
    gc.collect()


def test_behind_the_legacy_default_stream(pool, target) -> None:
    used_by(pool, target, driver.LEGACY)
    assert driver.read(target, VALUES.nbytes, driver.LEGACY) == VALUES.tobytes()


def test_behind_blocking_streams(pool, target) -> None:
    stream = driver.Stream(flags=0)
    used_by(pool, target, stream.handle)
    assert driver.read(target, VALUES.nbytes, stream.handle) == VALUES.tobytes()


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_per_thread_stream_of_another_thread_holds_up_no_free() -> None:
    """It has the same number in every thread."""
    source = ad.from_dlpack(VALUES).to_device("cuda:0")
    driver.synchronize()
    gates: list[int] = []

    def copy() -> None:
        with ad.stream(driver.PER_THREAD):
            ad.from_dlpack(source, copy=True)

    def stopped() -> None:
        gates.append(driver.gate(driver.PER_THREAD))
        copy()

    def others() -> None:
        for _ in range(5):
            copy()
            driver.synchronize_stream(driver.PER_THREAD)

    in_thread(stopped)
    assert ad.collect() == 1
    in_thread(others)
    assert driver.soon(lambda: ad.collect() == 1)
    driver.open_gate(gates[0])


@pytest.mark.parametrize("other", ["thread", "device"])
def test_uses_on_another_per_thread_stream_are_forgotten(other: str) -> None:
    """Those of a thread, or a device, that goes on, while another by the same number is stopped."""
    source = ad.from_dlpack(VALUES).to_device("cuda_host")
    gates: list[int] = []

    def copy(ordinal: int) -> None:
        with ad.stream(driver.PER_THREAD):
            source.to_device(f"cuda:{ordinal}")

    def stopped() -> None:
        copy(0)
        gates.append(driver.gate(driver.PER_THREAD))
        copy(0)

    def others() -> None:
        for _ in range(40):
            copy(ordinal)
            driver.synchronize_stream(driver.PER_THREAD, ordinal)

    ordinal = 1 if other == "device" else 0
    run = in_thread if other == "thread" else lambda work: work()
    run(stopped)
    before = driver.live("events")
    run(others)
    assert driver.live("events") - before < 20
    driver.open_gate(gates[0])


def test_behind_the_per_thread_stream_of_the_thread_that_named_it(pool) -> None:
    """The number is another stream of the thread that releases the memory, whose work has nothing to do with it."""
    source = fakes.Torch(pool, VALUES, stream=driver.Stream().handle)
    tensor = ad.from_dlpack(source)
    del source
    thread = threading.Thread(target=tensor.record_stream, args=(driver.PER_THREAD,))
    thread.start()
    thread.join()
    driver.run_all()
    gate = driver.gate(driver.PER_THREAD)
    del tensor
    gc.collect()
    assert driver.soon(lambda: pool.freed == 1 or ad.collect() == 0)
    assert pool.freed == 1
    driver.open_gate(gate)


def test_behind_recorded_streams(pool, target) -> None:
    stream = driver.Stream()
    gate = driver.gate(stream.handle)
    used_by(pool, target, stream.handle, record=stream)
    # What the legacy default stream has is done.
    driver.synchronize_stream(driver.LEGACY)
    assert _native.collect() == 1
    assert pool.freed == 0
    driver.open_gate(gate)
    assert driver.read(target, VALUES.nbytes, stream.handle) == VALUES.tobytes()


def test_behind_what_a_recorded_stream_is_given_later(pool, target) -> None:
    stream = driver.Stream()
    source = fakes.Torch(pool, VALUES, stream=driver.Stream().handle)
    tensor = ad.from_dlpack(source)
    del source
    tensor.record_stream(stream)
    held = fakes.cupy(tensor, stream.handle)
    driver.copy(target, held.address, VALUES.nbytes, stream.handle)
    held.release()
    del tensor
    gc.collect()
    driver.synchronize_stream(driver.LEGACY)
    assert _native.collect() <= 1
    assert driver.read(target, VALUES.nbytes, stream.handle) == VALUES.tobytes()


def test_waits_behind_a_gate_and_blocks_nobody(pool, target) -> None:
    gate = driver.gate(driver.LEGACY)
    source = fakes.Torch(pool, VALUES, stream=driver.Stream().handle)
    tensor = ad.from_dlpack(source)
    del source
    held = fakes.Held(tensor.__dlpack__(stream=driver.LEGACY, max_version=(1, 0)))
    held.release()
    del tensor, held
    gc.collect()
    assert pool.freed == 0
    assert _native.collect() == 1
    other = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))
    driver.open_gate(gate)
    driver.settle()
    # Something that comes in has what waits looked at.
    ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))
    assert pool.freed >= 1
    del other


def test_at_once_where_nobody_has_used_it(pool) -> None:
    source = fakes.Torch(pool, VALUES)
    tensor = ad.from_dlpack(source)
    del source, tensor
    gc.collect()
    assert pool.freed == 1


def test_behind_our_own_copy(pool) -> None:
    stream = driver.Stream()
    source = fakes.Torch(pool, VALUES, stream=driver.Stream().handle)
    tensor = ad.from_dlpack(source)
    del source
    with ad.stream(stream):
        copy = ad.from_dlpack(tensor, copy=True)
    del tensor
    gc.collect()
    held = fakes.cupy(copy, stream.handle)
    assert driver.read(held.address, VALUES.nbytes, stream.handle) == VALUES.tobytes()
    held.release()


def test_page_locked_memory_is_released_behind_devices_that_are_in_use_alone() -> None:
    """Any device may have read it, but to ask one that nobody uses would start it."""
    tensor = ad.from_dlpack(VALUES).to_device("cuda_host")
    started = driver.calls("cuDevicePrimaryCtxRetain")
    fakes.Held(tensor.__dlpack__(max_version=(1, 0))).release()
    del tensor
    gc.collect()
    assert driver.drain() == 0
    assert driver.calls("cuDevicePrimaryCtxRetain") == started


def test_while_the_legacy_stream_is_captured_nothing_is_freed(pool) -> None:
    source = fakes.Torch(pool, VALUES, stream=driver.Stream().handle)
    tensor = ad.from_dlpack(source)
    del source
    fakes.Held(tensor.__dlpack__(max_version=(1, 0))).release()
    driver.settle()
    stream = driver.Stream()
    with driver.capture(stream.handle):
        del tensor
        gc.collect()
    driver.settle()
    assert _native.collect() == 0
    assert pool.freed == 1


def test_many_round_trips_grow_nothing(pool) -> None:
    stream = driver.Stream()
    address = pool.allocate(VALUES.nbytes)

    class Same(fakes.Torch):
        def free(self) -> None:
            self.pool.freed += 1

    def live() -> list[int]:
        driver.settle()
        assert _native.collect() == 0
        # So many idle events are kept for later, and how many there once were depends on the threads.
        assert driver.live("events") <= 256
        return [driver.live(kind) for kind in ("device", "pinned", "pools")]

    def trip(count: int) -> None:
        source = Same(pool, np.empty(0, "int32"), stream=stream.handle, address=address)
        source.shape, source.strides, source.nbytes = (1024,), (1,), VALUES.nbytes
        for _ in range(count):
            column = ad.to_arrow(source)
            fakes.cupy(ad.to_tensor(column), stream.handle).release()
        del column
        # What the fake itself gathers is forgotten, once it was given back.
        live()
        assert not producers.wrongly_released()
        producers.forget_all()

    trip(50)
    before, freed = live(), pool.freed
    rounds = 100 if os.environ.get("SIMULATED_CUDA_SCHEDULE", "lazy") == "lazy" else 10
    for _ in range(rounds):
        trip(1000)
    assert live() == before
    # One of the test's, and as many of the package's as may be busy at a time.
    assert driver.live("streams") <= 33
    assert pool.freed == freed + 1000 * rounds


def test_many_busy_streams_are_used_again(pool) -> None:
    slow = driver.Stream()
    source = fakes.Torch(pool, VALUES, stream=slow.handle)
    gate = driver.gate(slow.handle)
    before = driver.live("streams")
    tensors = [ad.from_dlpack(source) for _ in range(100)]
    assert driver.live("streams") - before <= 32
    driver.open_gate(gate)
    del tensors


def test_a_deleter_runs_attached(pool) -> None:
    ran = []

    class Attached(fakes.Torch):
        def free(self) -> None:
            ran.append(gc.isenabled())
            super().free()

    source = Attached(pool, VALUES, stream=driver.Stream().handle)
    tensor = ad.from_dlpack(source)
    fakes.Held(tensor.__dlpack__(max_version=(1, 0))).release()
    del tensor, source
    driver.settle()
    assert _native.collect() == 0
    assert ran == [True]


def test_behind_recorded_streams_whatever_reads_the_memory_meanwhile(pool, target) -> None:
    """A use of ours drops the events that are complete, and yet not the stream, which may get more work."""
    stream = driver.Stream()
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))
    tensor.record_stream(stream)
    driver.synchronize()
    for _ in range(2):
        ad.from_dlpack(tensor, copy=True)
        driver.settle()
    gate = driver.gate(stream.handle)
    driver.copy(target, tensor.__cuda_array_interface__["data"][0], VALUES.nbytes, stream.handle)
    del tensor
    gc.collect()
    driver.synchronize_stream(driver.LEGACY)
    _native.collect()
    assert pool.freed == 0
    driver.open_gate(gate)
    assert driver.read(target, VALUES.nbytes, stream.handle) == VALUES.tobytes()


@pytest.mark.parametrize("managed", [False, True])
def test_memory_is_lost_to_work_whose_end_cannot_be_known(pool, managed: bool) -> None:
    """No event can be recorded behind our copy of it, and the host cannot wait for the copy."""
    work = driver.Stream()
    if managed:
        address = driver.allocate_managed(VALUES.nbytes)
        pool.blocks.append(address)
        source = fakes.Torch(pool, VALUES, stream=driver.Stream().handle, address=address, device=(fakes.MANAGED, 0))
        tensor = ad.from_dlpack(source).to_device("cuda:0")
        assert not tensor.copied
    else:
        source = fakes.Torch(pool, VALUES, stream=driver.Stream().handle)
        tensor = ad.from_dlpack(source)
    assert source.producer is not None
    source.producer.expected = 0
    del source
    # Makes what the next copy needs.
    with ad.stream(work):
        ad.from_dlpack(tensor, copy=True)
    driver.drain()
    gate = driver.gate(work.handle)
    driver.fail_from("cuEventRecord", 1, UNKNOWN)
    driver.fail_from("cuStreamQuery", 1, UNKNOWN)
    with ad.stream(work), pytest.raises(BufferError, match="999"):
        ad.from_dlpack(tensor, copy=True)
    driver.fail_nothing()
    del tensor
    driver.open_gate(gate)
    driver.drain()
    assert pool.freed == 0
