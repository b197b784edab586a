"""Does lent memory come back by itself, and at what cost, while nobody calls the package?"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import arrow_dlpack as ad
import clock
import driver
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import DeviceArray
from driver import SOON, soon
from test_allocators import Resource

VALUES = np.arange(1024, dtype="int32")
UNKNOWN, ILLEGAL_ADDRESS = 999, 700
# What takes a minute, and tells the same under any schedule.
IS_LAZY = os.environ.get("SIMULATED_CUDA_SCHEDULE", "lazy") == "lazy"
ONCE = pytest.mark.skipif(not IS_LAZY, reason="runs once, with the schedule lazy")


def lend(pool: fakes.Pool, stream: int = driver.LEGACY, *, record: driver.Stream | None = None) -> None:
    """Imports a tensor, lends it to a consumer, and lets go of it."""
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    if record is not None:
        tensor.record_stream(record)
    fakes.Held(tensor.__dlpack__(stream=stream, max_version=(1, 0))).release()
    del tensor
    gc.collect()


class Same(fakes.Torch):
    """A tensor in memory that many share."""

    def __init__(self, pool: fakes.Pool, address: int) -> None:
        super().__init__(pool, np.empty(0, "int32"), stream=driver.LEGACY, address=address)
        self.shape, self.strides = VALUES.shape, (1,)


def reaped() -> int:
    return ad.memory_stats()["reaper"]["released_blocks"]


def alive() -> int:
    """How many of the package's threads this process has."""
    names = [Path(f"/proc/self/task/{task}/comm").read_text() for task in os.listdir("/proc/self/task")]
    return sum(name.startswith("arrow-dlpack-re") for name in names)


def is_quiet() -> bool:
    """Whether nothing calls the driver for many times as long as the thread ever sleeps between two looks."""
    calls = driver.calls()
    time.sleep(0.2)
    return driver.calls() == calls


class TestMemoryComesBack:
    def test_when_the_device_is_done(self, pool: fakes.Pool) -> None:
        assert not alive()
        gate = driver.gate(driver.LEGACY)
        lend(pool)
        time.sleep(0.05)
        assert pool.freed == 0
        driver.open_gate(gate)
        assert soon(lambda: pool.freed == 1)
        assert soon(lambda: reaped() == 1)
        assert ad.memory_stats()["cuda:0"]["waiting_blocks"] == 0

    def test_of_the_package_itself(self, pool: fakes.Pool) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
        copy = ad.from_dlpack(tensor, copy=True)
        gate = driver.gate(driver.LEGACY)
        fakes.cupy(copy, driver.LEGACY).release()
        del copy
        assert ad.memory_stats()["cuda:0"]["waiting_bytes"] == VALUES.nbytes
        freed = driver.calls("cuMemFreeAsync")
        driver.open_gate(gate)
        assert soon(lambda: driver.calls("cuMemFreeAsync") > freed)

    def test_though_another_stream_is_not_done(self, pool: fakes.Pool) -> None:
        """One thread waits for that stream inside the driver; nobody calls the package."""
        slow = driver.Stream()
        gate = driver.gate(slow.handle)
        lend(pool, record=slow)
        assert soon(lambda: driver.calls("cuEventSynchronize") >= 1)
        for freed in (3, 6, 9):
            others = [ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY)) for _ in range(3)]
            held = [fakes.cupy(tensor, driver.LEGACY) for tensor in others]
            behind = driver.gate(driver.LEGACY)
            for taken in held:
                taken.release()
            del others, taken
            held.clear()
            gc.collect()
            assert pool.freed == freed - 3
            driver.open_gate(behind)
            assert soon(lambda freed=freed: pool.freed == freed)
        # One is enough if it came so late that it found both streams, and waits for neither.
        assert alive() in (1, 2)
        driver.open_gate(gate)
        assert soon(lambda: pool.freed == 10)

    def test_behind_many_streams_in_any_order(self, pool: fakes.Pool) -> None:
        streams = [driver.Stream() for _ in range(5)]
        gates = [driver.gate(stream.handle) for stream in streams]
        for stream in streams:
            lend(pool, record=stream)
        for freed, at in enumerate([3, 0, 4, 2, 1], start=1):
            assert pool.freed == freed - 1
            driver.open_gate(gates[at])
            assert soon(lambda freed=freed: pool.freed == freed)
        assert alive() <= 2

    def test_of_a_failed_conversion(self, pool: fakes.Pool) -> None:
        """The work that it had started uses memory of an allocator, which has no order of streams."""
        values = DeviceArray(pa.array([1.5, 2.5]))
        resource, stream = Resource(), driver.Stream()
        array = ad.from_arrow(values.give())
        ad.to_tensor(array, dtype="float32")
        assert driver.drain() == 0
        gate = driver.gate(stream.handle)
        driver.fail("cuLaunchKernel", 1, UNKNOWN)
        with ad.stream(stream), pytest.raises(BufferError, match="cuLaunchKernel"):
            ad.to_tensor(array, dtype="float32", allocator=resource)
        gc.collect()
        assert len(resource.memory) == 1
        assert not resource.given_back
        assert ad.memory_stats()["cuda:0"]["waiting_blocks"] == 1
        driver.open_gate(gate)
        assert soon(lambda: len(resource.given_back) == 1)

    def test_in_the_order_of_the_stream(self, pool: fakes.Pool) -> None:
        order = []

        class Numbered(fakes.Torch):
            def free(self) -> None:
                order.append(self.number)
                super().free()

        gate = driver.gate(driver.LEGACY)
        for number in range(10):
            source = Numbered(pool, VALUES, stream=driver.LEGACY)
            source.number = number
            fakes.cupy(ad.from_dlpack(source), driver.LEGACY).release()
            del source
        gc.collect()
        driver.open_gate(gate)
        assert soon(lambda: len(order) == 10)
        assert order == sorted(order)

    def test_after_a_capture(self, pool: fakes.Pool) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
        fakes.cupy(tensor, driver.LEGACY).release()
        driver.settle()
        stream = driver.Stream(flags=0)
        with driver.capture(stream.handle):
            del tensor
            gc.collect()
            time.sleep(0.05)
            assert pool.freed == 0
        assert soon(lambda: pool.freed == 1)

    def test_after_a_capture_beside_a_release_that_chooses_another_device(self, pool: fakes.Pool) -> None:
        """No stream beside that device's default stream is captured; a record on the other would break a capture."""

        class Leaves(fakes.Torch):
            def free(self) -> None:
                super().free()
                assert threading.current_thread() is not threading.main_thread()
                driver.use(1)

        kept, stream, work = [], driver.Stream(flags=0), driver.Stream()
        lent = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=work.handle))
        fakes.cupy(lent, driver.LEGACY).release()
        copied = ad.from_dlpack(Leaves(pool, VALUES, stream=work.handle))
        driver.synchronize(1)
        driver.settle()
        with driver.capture(stream.handle):
            gate = driver.gate(work.handle)
            with ad.stream(work):
                kept.append(ad.from_dlpack(copied, copy=True))
            del copied, lent
            gc.collect()
            driver.open_gate(gate)
            assert soon(lambda: pool.freed == 1)
            time.sleep(0.05)
            assert pool.freed == 1
        assert soon(lambda: pool.freed == 2)

    def test_when_a_wait_fails(self, pool: fakes.Pool) -> None:
        gate = driver.gate(driver.LEGACY)
        driver.fail("cuEventSynchronize", 1, UNKNOWN)
        driver.fail("cuEventQuery", 1, UNKNOWN)
        lend(pool)
        driver.open_gate(gate)
        assert soon(lambda: pool.freed == 1)


class TestTheThread:
    def test_may_be_turned_off(self, pool: fakes.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ARROW_DLPACK_REAPER", "0")
        gate = driver.gate(driver.LEGACY)
        lend(pool)
        driver.open_gate(gate)
        driver.settle()
        time.sleep(0.05)
        assert pool.freed == 0
        assert not alive()
        # An import looks.
        ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
        assert pool.freed >= 1

    def test_holds_no_lock_while_it_attaches_or_calls_a_deleter(self, pool: fakes.Pool) -> None:
        """The deleter waits for another thread, which lends and lets go of memory, and asks for statistics."""
        inside, is_done = threading.Event(), threading.Event()

        class Waiting(fakes.Torch):
            def free(self) -> None:
                inside.set()
                assert is_done.wait(SOON)
                super().free()

        fakes.cupy(ad.from_dlpack(Waiting(pool, VALUES, stream=driver.LEGACY)), driver.LEGACY).release()
        gc.collect()
        assert inside.wait(SOON)
        lend(pool)
        assert ad.memory_stats()["cuda:0"]["waiting_blocks"] <= 1
        ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
        is_done.set()
        assert soon(lambda: pool.freed >= 3)

    def test_is_none_of_a_forked_child(self, pool: fakes.Pool) -> None:
        gate = driver.gate(driver.LEGACY)
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
        lend(pool)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                before = pool.freed
                del tensor
                gc.collect()
                with pytest.raises(BufferError, match="forked"):
                    ad.from_dlpack(VALUES, device="cuda")
                assert (ad.collect(), ad.memory_stats()) == (0, {})
                assert not alive()
                assert pool.freed == before
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        driver.open_gate(gate)
        assert soon(lambda: pool.freed == 1)

    @pytest.mark.no_devices
    @pytest.mark.parametrize(
        "end", ["pass", "sys.exit(0)", "driver.open_gate(gate)", "driver.open_gate(gate); lend(pool)"]
    )
    def test_ends_with_the_interpreter(self, end: str) -> None:
        """While it waits for work that has no end, and while it releases."""
        run(end)

    @pytest.mark.no_devices
    def test_gives_up_what_is_in_a_lost_context(self) -> None:
        lost = f'driver.exempt = True; driver.fail_from("cuEventSynchronize", 1, {ILLEGAL_ADDRESS})'
        run(
            """
            import pytest
            # The thread looks, and finds that out.
            assert driver.soon(lambda: driver.calls("cuEventSynchronize") >= 1)
            time.sleep(0.2)
            with pytest.raises(BufferError, match="context is lost"):
                ad.from_dlpack(np.arange(3), device="cuda").to_device("cpu")
            driver.open_gates()
            assert ad.collect() == 1
            # It asks no more.
            assert driver.soon(is_quiet)
            assert (pool.freed, driver.races()) == (0, 0)
            """,
            before=lost,
        )


def run(end: str, before: str = "") -> None:
    """Runs a program that lends memory behind a gate, and ends as any program does."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    program = f"""
        import sys, time
        sys.path[:0] = {folders!r}
        import arrow_dlpack as ad, driver, fakes, numpy as np
        from test_reaper import is_quiet, lend
        pool = fakes.Pool()
        gate = driver.gate(driver.LEGACY)
        {before}
        lend(pool)
    """
    program = textwrap.dedent(program) + textwrap.dedent(end)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


class TestCosts:
    """Calls of the driver by all threads."""

    @pytest.mark.parametrize("count", [1, 50])
    def test_at_most_two_calls_a_release(self, pool: fakes.Pool, count: int) -> None:
        source = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
        copies = [ad.from_dlpack(source, copy=True) for _ in range(count + 1)]
        for copy in copies:
            fakes.cupy(copy, driver.LEGACY).release()
        # The thread starts, and enters the device.
        del copy, copies[-1]
        assert soon(lambda: ad.collect() == 0)
        gate, waits = driver.gate(driver.LEGACY), driver.calls("cuEventSynchronize")
        copies.clear()
        gc.collect()
        # It waits by now.
        assert soon(lambda: driver.calls("cuEventSynchronize") > waits)
        driver.exempt = True
        calls, freed = driver.calls(), driver.calls("cuMemFreeAsync")
        driver.open_gate(gate)
        assert soon(lambda: driver.calls("cuMemFreeAsync") - freed == count)
        time.sleep(0.05)
        # The first wait was counted before.
        assert driver.calls() - calls <= 2 * count - 1

    @pytest.mark.parametrize("waiting", [0, 10_000, pytest.param(100_000, marks=ONCE)])
    def test_at_most_two_calls_for_one_more_export(self, pool: fakes.Pool, waiting: int) -> None:
        """In a thread of a library that works on the device, so that its context is current."""
        stream, writer = driver.Stream(), driver.Stream()
        lent = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
        address = pool.allocate(VALUES.nbytes)
        gate, writing = driver.gate(driver.LEGACY), driver.gate(writer.handle)
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=writer.handle))
        for _ in range(waiting):
            borrowed = ad.from_dlpack(Same(pool, address))
            fakes.Held(borrowed.__dlpack__(stream=driver.LEGACY, max_version=(1, 0))).release()
            del borrowed
        fakes.cupy(tensor, stream.handle).release()
        assert ad.memory_stats()["cuda:0"]["waiting_blocks"] == waiting
        driver.exempt = True
        with driver.current():
            for _ in range(3):
                calls = driver.calls()
                held = fakes.cupy(tensor, stream.handle)
                assert driver.calls() - calls <= 2
                held.release()
        driver.exempt = False
        driver.open_gate(writing)
        driver.open_gate(gate)
        assert driver.read(held.address, VALUES.nbytes, stream.handle) == VALUES.tobytes()
        del lent, tensor
        driver.settle()
        assert soon(lambda: ad.collect() == 0)

    def test_none_while_nothing_waits(self, pool: fakes.Pool) -> None:
        lend(pool)
        assert soon(lambda: pool.freed == 1)
        assert soon(is_quiet)

    def test_few_while_work_of_several_streams_lasts(self, pool: fakes.Pool) -> None:
        """Each but one is asked for, less and less often, at last each 10 ms; that thread has entered the device."""
        streams = [driver.Stream() for _ in range(2)]
        gates = [driver.gate(stream.handle) for stream in streams]
        for stream in streams:
            lend(pool, record=stream)
        assert soon(lambda: ad.memory_stats()["cuda:0"]["waiting_blocks"] == 2)
        time.sleep(0.3)
        calls, start = driver.calls(), clock.seconds()
        time.sleep(0.5)
        # Two streams: the thread may have begun to ask before the other began to wait.
        assert driver.calls() - calls <= 2 * ((clock.seconds() - start) / 0.01 + 2)
        for gate in gates:
            driver.open_gate(gate)
        assert soon(lambda: pool.freed == 2)

    def test_at_most_two_calls_a_release_beside_a_slow_stream(self, pool: fakes.Pool) -> None:
        count, slow = 50, driver.Stream()
        source = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
        copies = [ad.from_dlpack(source, copy=True) for _ in range(count + 1)]
        for copy in copies:
            fakes.cupy(copy, driver.LEGACY).release()
        gate = driver.gate(slow.handle)
        lend(pool, record=slow)
        # Both threads start, and enter the device.
        freed = driver.calls("cuMemFreeAsync")
        del copy, copies[-1]
        assert soon(lambda: driver.calls("cuMemFreeAsync") - freed == 1)
        behind = driver.gate(driver.LEGACY)
        driver.exempt = True
        copies.clear()
        gc.collect()
        time.sleep(0.05)
        calls, start = driver.calls(), time.monotonic()
        driver.open_gate(behind)
        # Else the simulated driver says three times of each that it is not done.
        driver.run_all()
        assert soon(lambda: driver.calls("cuMemFreeAsync") - freed == count + 1)
        # It asks at most each 10 ms while nothing is done, and less often than each 50 us before.
        assert driver.calls() - calls <= 2 * count + (time.monotonic() - start) / 0.01 + 40
        driver.exempt = False
        driver.open_gate(gate)
        assert soon(lambda: ad.collect() == 0)


def test_collect_releases_what_is_done_and_counts_the_rest(pool: fakes.Pool) -> None:
    assert ad.collect() == 0
    slow = driver.Stream()
    gate = driver.gate(slow.handle)
    lend(pool, record=slow)
    lend(pool)
    driver.synchronize_stream(driver.LEGACY)
    assert ad.collect() == 1
    assert pool.freed == 1
    driver.open_gate(gate)
    driver.settle()
    assert (ad.collect(), pool.freed) == (0, 2)
    assert not producers.wrongly_released()


def test_collect_releases_what_a_release_lets_go_of(pool: fakes.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory whose owner holds more that is lent."""
    monkeypatch.setenv("ARROW_DLPACK_REAPER", "0")

    class Owner(fakes.Torch):
        owned: list[fakes.Held]

        def free(self) -> None:
            super().free()
            while self.owned:
                self.owned.pop().release()
            driver.settle()

    def held(owned: list[fakes.Held]) -> fakes.Held:
        source = Owner(pool, VALUES, stream=driver.LEGACY)
        source.owned = owned
        return fakes.cupy(ad.from_dlpack(source), driver.LEGACY)

    outer = held([held([held([])])])
    outer.release()
    driver.settle()
    assert (ad.collect(), pool.freed) == (0, 3)
    assert not producers.wrongly_released()


def test_collect_loads_no_driver() -> None:
    calls = driver.calls()
    assert ad.collect() == 0
    assert driver.calls() == calls
