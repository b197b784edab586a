"""`with stream(s)`, `stream=`, `record_stream`, and the waits of the host."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import DeviceArray
from test_dlpack_out import managed, pinned

VALUES = np.arange(6, dtype="int32")


@pytest.fixture
def stream() -> driver.Stream:
    return driver.Stream()


def current() -> int:
    """This thread's stream, as consumers in C are told."""
    import exchange

    return exchange.current_work_stream(ad.Tensor, (fakes.CUDA, 0))


class OlderTorch:
    """A stream of PyTorch before 2.10."""

    def __init__(self, handle: object) -> None:
        self.cuda_stream = handle

    def wait_event(self, event: object) -> None:
        raise NotImplementedError


class OlderEvent:
    """An event of CuPy, which is no stream."""

    def __init__(self, handle: object) -> None:
        self.ptr = handle


class OlderCupy(OlderEvent):
    """A stream of CuPy before 14."""

    def wait_event(self, event: object) -> None:
        raise NotImplementedError


class TestBlocks:
    def test_nested(self, stream) -> None:
        other = driver.Stream()
        with ad.stream(stream) as outer:
            assert current() == stream.handle
            with ad.stream(other.handle):
                assert current() == other.handle
                with outer:
                    assert current() == stream.handle
                assert current() == other.handle
            assert current() == stream.handle
        assert current() == driver.LEGACY

    def test_restored_by_an_error(self, stream) -> None:
        with contextlib.suppress(KeyError), ad.stream(stream):
            raise KeyError
        assert current() == driver.LEGACY

    def test_of_a_thread(self, stream) -> None:
        seen: list[int] = []
        with ad.stream(stream):
            thread = threading.Thread(target=lambda: seen.append(current()))
            thread.start()
            thread.join()
        assert seen == [driver.LEGACY]

    def test_out_of_order(self, stream) -> None:
        one, two = ad.stream(stream), ad.stream(driver.Stream())
        one.__enter__()
        two.__enter__()
        with pytest.raises(RuntimeError, match="reverse order"):
            one.__exit__()
        two.__exit__()
        one.__exit__()
        with pytest.raises(RuntimeError, match="reverse order"):
            one.__exit__()
        assert current() == driver.LEGACY

    def test_numbers(self) -> None:
        for number in (driver.LEGACY, driver.PER_THREAD):
            with ad.stream(number):
                assert current() == number

    @pytest.mark.parametrize("handle", [0, 1])
    def test_the_default_stream_of_a_library(self, handle: int) -> None:
        # As a handle, 0 is no number of DLPack's: PyTorch's default stream says so.
        library = type("Stream", (), {"__cuda_stream__": lambda _: (0, handle)})()
        with ad.stream(library):
            assert current() == driver.LEGACY

    @pytest.mark.parametrize("older", [OlderTorch, OlderCupy])
    def test_of_a_library_from_before_the_protocol(self, stream, older) -> None:
        with ad.stream(older(stream.handle)):
            assert current() == stream.handle
        with ad.stream(older(0)):
            assert current() == driver.LEGACY

    def test_the_protocol_comes_before_older_attributes(self, stream) -> None:
        newer = type("Torch", (OlderTorch,), {"__cuda_stream__": lambda _: (0, stream.handle)})
        with ad.stream(newer(driver.PER_THREAD)):
            assert current() == stream.handle

    @pytest.mark.parametrize(
        "older", [OlderTorch("x"), OlderTorch(True), OlderTorch(-1), OlderCupy(None), OlderEvent(8)]
    )
    def test_what_is_no_stream_of_an_older_library(self, older) -> None:
        with pytest.raises(TypeError, match="__cuda_stream__"):
            ad.stream(older)

    @pytest.mark.parametrize(
        ("wrong", "error", "match"),
        [
            (0, BufferError, "stream 0"),
            (-1, BufferError, "no stream"),
            (None, TypeError, "__cuda_stream__"),
            ("s", TypeError, "__cuda_stream__"),
            (True, TypeError, "__cuda_stream__"),
            (type("S", (), {"__cuda_stream__": lambda _: 5})(), TypeError, r"\(version, handle\)"),
            (type("S", (), {"__cuda_stream__": lambda _: (0, "x")})(), TypeError, r"\(version, handle\)"),
            (type("S", (), {"__cuda_stream__": lambda _: (0, -7)})(), TypeError, r"\(version, handle\)"),
        ],
        ids=["0", "-1", "None", "str", "bool", "int", "text", "negative"],
    )
    def test_what_is_no_stream(self, wrong, error, match) -> None:
        with pytest.raises(error, match=match):
            ad.stream(wrong)

    def test_no_driver_is_started(self) -> None:
        with ad.stream(1):
            pass
        assert driver.calls("cuInit") == 0


class TestToDevice:
    def test_the_cpu(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        with ad.track_copies() as log:
            host = tensor.to_device("cpu")
        assert [entry.why for entry in log] == ['to_device("cpu")']
        assert np.from_dlpack(host).tolist() == VALUES.tolist()

    @pytest.mark.parametrize("how", ["argument", "block"])
    def test_in_the_order_of_a_stream(self, pool, stream, how: str) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        work = driver.Stream()
        held = fakes.cupy(tensor, work.handle)
        driver.fill(held.address, 1, 4, work.handle)
        if how == "argument":
            host = tensor.to_device("cpu", stream=work)
        else:
            with ad.stream(work):
                host = tensor.to_device("cpu")
        assert np.from_dlpack(host).tolist() == [0x01010101, 1, 2, 3, 4, 5]
        held.release()

    @pytest.mark.parametrize("make", [pinned, managed])
    def test_host_visible_memory_in_the_order_of_a_stream(self, make) -> None:
        tensor, address = make(driver.LEGACY)
        work = driver.Stream()
        held = fakes.Held(tensor.__dlpack__(stream=work.handle, max_version=(1, 0)))
        other = driver.allocate(4)
        driver.fill(other, 2, 4, work.handle)
        with driver.current():
            driver._call(
                "cuMemcpyDtoHAsync_v2",
                driver.Handle(address),
                driver.U64(other),
                driver.SIZE(4),
                driver.Handle(work.handle),
            )
        host = tensor.to_device("cpu", stream=work)
        assert np.from_dlpack(host).ravel().tolist() == [0x02020202, 1, 2, 3, 4, 5]
        held.release()

    @pytest.mark.parametrize("rows", [6, 1 << 15])
    def test_page_locked_memory_on_its_way_to_a_device(self, rows: int) -> None:
        """Small pieces and large ones: a write to it is under way on the stream that is named."""
        tensor = ad.from_dlpack(np.arange(rows, dtype="int32")).to_device("cuda_host")
        work = driver.Stream()
        held = fakes.Held(tensor.__dlpack__(stream=work.handle, max_version=(1, 0)))
        other = driver.allocate(4)
        driver.fill(other, 2, 4, work.handle)
        gate = driver.gate(work.handle)
        driver.copy_to_host(held.address, other, 4, work.handle)
        moved = tensor.to_device("cuda:0", stream=work)
        driver.open_gate(gate)
        assert np.from_dlpack(moved.to_device("cpu")).tolist() == [0x02020202, *range(1, rows)]
        held.release()
        driver.free(other)

    @pytest.mark.parametrize("target", ["cuda:0", "cuda:1", "cpu"])
    @pytest.mark.parametrize("rows", [6, 1 << 15])
    def test_page_locked_memory_in_the_order_of_this_threads_stream(self, rows: int, target: str) -> None:
        """A write to it is under way on that stream, which no argument names."""
        ordinal = 1 if target == "cuda:1" else 0
        tensor = ad.from_dlpack(np.arange(rows, dtype="int32")).to_device("cuda_host")
        work = driver.Stream(ordinal)
        held = fakes.Held(tensor.__dlpack__(stream=driver.LEGACY, max_version=(1, 0)))
        other = driver.allocate(4, ordinal)
        driver.fill(other, 2, 4, work.handle, ordinal)
        # The host waits for its own reads.
        gates = [] if target == "cpu" else [driver.gate(work.handle, ordinal)]
        driver.copy_to_host(held.address, other, 4, work.handle, ordinal)
        with ad.stream(work):
            moved = tensor.to_device(target)
        for gate in gates:
            driver.open_gate(gate)
        assert np.from_dlpack(moved.to_device("cpu")).tolist() == [0x02020202, *range(1, rows)]
        held.release()
        driver.free(other, ordinal)

    def test_a_host_read_in_the_order_of_a_stream_of_another_device(self) -> None:
        """Each device reaches page-locked memory."""
        tensor = ad.from_dlpack(VALUES).to_device("cuda_host")
        work = driver.Stream(1)
        held = fakes.Held(tensor.__dlpack__(stream=driver.LEGACY, max_version=(1, 0)))
        other = driver.allocate(4, 1)
        driver.fill(other, 2, 4, work.handle, 1)
        driver.copy_to_host(held.address, other, 4, work.handle, 1)
        # The device is in use.
        ad.from_dlpack(VALUES).to_device("cuda:1")
        with ad.stream(work):
            host = tensor.to_device("cpu")
        assert np.from_dlpack(host).tolist() == [0x02020202, *range(1, 6)]
        held.release()
        driver.free(other, 1)

    def test_where_it_is(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        assert tensor.to_device("cuda:0") is tensor
        assert str(tensor.to_device("cuda:1").device) == "cuda:1"

    def test_a_stream_of_host_memory(self) -> None:
        with pytest.raises(BufferError, match="stream must be None"):
            ad.from_dlpack(VALUES).to_device("cpu", stream=1)

    def test_a_stream_of_another_device(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        with pytest.raises(BufferError, match="not of the primary context"):
            tensor.to_device("cpu", stream=driver.Stream(1))

    def test_a_stream_that_is_captured(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        work = driver.Stream()
        with driver.capture(work.handle), pytest.raises(BufferError, match="captured"):
            tensor.to_device("cpu", stream=work)

    @pytest.mark.parametrize("make", [pinned, managed])
    def test_host_visible_memory_in_the_order_of_a_stream_that_will_not_do(self, make) -> None:
        """It is captured, or of another device."""
        tensor, _ = make(driver.LEGACY)
        driver.synchronize()
        work = driver.Stream()
        with driver.capture(work.handle), pytest.raises(BufferError, match="captured"):
            tensor.to_device("cpu", stream=work)
        with pytest.raises(BufferError, match="not of the primary context"):
            tensor.to_device("cpu", stream=driver.Stream(1))


class TestRecordStream:
    def test_host_memory_has_no_streams(self, stream) -> None:
        with pytest.raises(BufferError, match="no streams"):
            ad.from_dlpack(VALUES).record_stream(stream)

    def test_a_stream_of_another_device(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        with pytest.raises(BufferError, match="not of the primary context"):
            tensor.record_stream(driver.Stream(1))


class TestWaitsOfTheHost:
    def test_a_signal_ends_one_that_has_no_end(self, pool, stream) -> None:
        gate = driver.gate(stream.handle)
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        press = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        # The signal may come as soon as it is allowed to.
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            press.start()
            tensor.to_device("cpu")
        press.join()
        # All is as it was, and what was under way keeps its memory.
        driver.open_gate(gate)
        assert np.from_dlpack(tensor.to_device("cpu")).tolist() == VALUES.tolist()

    def test_what_a_handler_raises_passes(self, pool, stream) -> None:
        class Stop(Exception):
            pass

        def handler(*_: object) -> None:
            raise Stop

        before = signal.signal(signal.SIGALRM, handler)
        gate = driver.gate(driver.LEGACY)
        tensor, _ = managed(driver.LEGACY)
        with pytest.raises(Stop):  # noqa: PT012
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            np.from_dlpack(tensor)
        signal.signal(signal.SIGALRM, before)
        driver.open_gate(gate)

    def test_other_threads_run_meanwhile(self, pool, stream) -> None:
        gate = driver.gate(stream.handle)
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        # Opened by a thread that needs the interpreter.
        thread = threading.Thread(target=lambda: (time.sleep(0.05), driver.open_gate(gate)))
        thread.start()
        assert np.from_dlpack(tensor.to_device("cpu")).tolist() == VALUES.tolist()
        thread.join()

    def test_each_is_counted(self, pool, stream, host_waits) -> None:
        gate = driver.gate(stream.handle)
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        threading.Timer(0.1, driver.open_gate, (gate,)).start()
        waits = host_waits()
        tensor.to_device("cpu")
        assert (waits.ours, waits.drivers) == (1, 0)


class TestFork:
    def in_child(self, work) -> int:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def test_everything_is_a_clear_error(self, pool, stream) -> None:
        source = fakes.Torch(pool, VALUES, stream=stream.handle)
        tensor = ad.from_dlpack(source)
        consumer = driver.Stream()

        def work() -> None:
            for use in (
                lambda: ad.from_dlpack(source),
                lambda: tensor.to_device("cpu"),
                lambda: tensor.__dlpack__(stream=consumer.handle),
                lambda: tensor.__cuda_array_interface__,
                lambda: tensor.record_stream(consumer),
                lambda: current(),
            ):
                with pytest.raises(BufferError, match="before this process was forked"):
                    use()

        assert self.in_child(work) == 0

    def test_nothing_is_freed_there(self, pool, stream) -> None:
        tensors = [ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle)) for _ in range(2)]
        fakes.Held(tensors[0].__dlpack__(max_version=(1, 0))).release()

        def work() -> None:
            tensors.clear()
            _native.collect()
            assert pool.freed == 0

        assert self.in_child(work) == 0
        assert pool.freed == 0
        assert np.from_dlpack(tensors[1].to_device("cpu")).tolist() == VALUES.tolist()
        tensors.clear()

    def test_before_the_driver_is_used_it_can_be_used_there(self) -> None:
        def work() -> None:
            pool = fakes.Pool()
            tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
            assert np.from_dlpack(tensor.to_device("cpu")).tolist() == VALUES.tolist()

        assert self.in_child(work) == 0


@pytest.mark.parametrize("flags", [0, 1], ids=["blocking", "non-blocking"])
def test_all_work_of_a_named_stream_comes_before_the_next_write(flags: int, host_waits: Any) -> None:
    """That, too, which the stream got after it was named, as for the release of the memory."""
    first, second = (ad.from_arrow(DeviceArray(pa.array(values)).give()) for values in ([1, 2, 3], [4, 5, 6]))
    work, writes = driver.Stream(flags=flags), driver.Stream()
    tensor = ad.to_tensor(first, copy=True)
    held = fakes.cupy(tensor, work.handle)
    tensor.record_stream(work)
    driver.synchronize()
    target = driver.allocate(24)
    gate = driver.gate(work.handle)
    driver.copy(target, held.address, 24, work.handle)
    waits = host_waits()
    with ad.stream(writes):
        ad.to_tensor(second, out=tensor)
    assert (waits.ours, waits.drivers) == (0, 0)
    driver.open_gate(gate)
    assert driver.read(target, 24, work.handle) == np.array([1, 2, 3]).tobytes()
    assert np.from_dlpack(tensor.to_device("cpu")).tolist() == [4, 5, 6]
    held.release()
    driver.free(target)
