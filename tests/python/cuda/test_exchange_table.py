"""The exchange tables: ours as tvm-ffi uses it, and another library's as we use it for `xp=`."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import sys
import threading
import time
import weakref

import arrow_dlpack as ad
import driver
import exchange
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import DeviceArray
from fakes import CUDA, CUDA_HOST, MANAGED

ROCM = 10
VALUES = np.arange(6, dtype="int32")
MODULE = sys.modules["exchange"]


@pytest.fixture
def stream() -> driver.Stream:
    return driver.Stream()


def tensor_of(pool: fakes.Pool, stream: driver.Stream) -> ad.Tensor:
    """A tensor that a library's stream is still writing."""
    return ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))


class TestTheStream:
    def test_is_this_threads(self, stream) -> None:
        for device in [(CUDA, 0), (CUDA, 1), (MANAGED, 0)]:
            assert exchange.current_work_stream(ad.Tensor, device) == driver.LEGACY
        with ad.stream(stream):
            assert exchange.current_work_stream(ad.Tensor, (CUDA, 0)) == stream.handle
            with pytest.raises(BufferError, match="not of the primary context of cuda:1"):
                exchange.current_work_stream(ad.Tensor, (CUDA, 1))
        assert exchange.current_work_stream(ad.Tensor, (CUDA, 0)) == driver.LEGACY

    def test_of_the_host_is_none(self) -> None:
        before = driver.calls("cuInit")
        assert [exchange.current_work_stream(ad.Tensor, (kind, 0)) for kind in (1, CUDA_HOST)] == [0, 0]
        assert driver.calls("cuInit") == before

    def test_of_no_device(self) -> None:
        for device in [(CUDA, 2), (CUDA, -1), (CUDA, 1 << 20)]:
            with pytest.raises(BufferError, match="no device cuda"):
                exchange.current_work_stream(ad.Tensor, device)


class TestExports:
    def test_this_threads_stream_waits(self, pool, stream, host_waits) -> None:
        tensor = tensor_of(pool, stream)
        waits = host_waits()
        managed = exchange.from_object(tensor)
        assert (waits.ours, waits.drivers) == (0, 0)
        assert driver.read(managed.address, 24, driver.LEGACY) == VALUES.tobytes()
        managed.delete()

    def test_a_stream_of_a_block_waits(self, pool, stream) -> None:
        tensor = tensor_of(pool, stream)
        work = driver.Stream()
        with ad.stream(work):
            managed = exchange.from_object(tensor)
        assert driver.read(managed.address, 24, work.handle) == VALUES.tobytes()
        managed.delete()

    def test_a_borrowed_tensor(self, pool, stream) -> None:
        tensor = tensor_of(pool, stream)
        work = driver.Stream()
        with ad.stream(work):
            borrowed = exchange.borrow(tensor)
        assert driver.read(borrowed.data, 24, work.handle) == VALUES.tobytes()

    def test_page_locked_memory_may_be_read_at_once(self, pool, stream) -> None:
        """Its consumers are told no stream, also in a block."""
        tensor = tensor_of(pool, stream)
        driver.synchronize()
        with ad.stream(stream):
            copy = tensor.to_device("cuda_host")
            borrowed = exchange.borrow(copy)
        assert np.frombuffer((ctypes.c_char * 24).from_address(borrowed.data), "int32").tolist() == VALUES.tolist()

    def test_memory_is_kept_until_the_work_on_this_threads_stream_is_done(self, pool, stream) -> None:
        tensor = tensor_of(pool, stream)
        work = driver.Stream()
        target = pool.allocate(24)
        with ad.stream(work):
            borrowed = exchange.borrow(tensor)
            driver.copy(target, borrowed.data, 24, work.handle)
        # Given back at once, the block would be written to under the copy.
        del tensor
        assert driver.read(target, 24, work.handle) == VALUES.tobytes()

    def test_the_stream_object_is_kept_until_the_memory_is_released(self, pool, stream) -> None:
        """Its handle is asked for an event then."""
        tensor = tensor_of(pool, stream)
        work = driver.Stream()
        kept = weakref.ref(work)
        with ad.stream(work):
            managed = exchange.from_object(tensor)
        del work
        gc.collect()
        assert kept() is not None
        managed.delete()
        del tensor
        assert driver.drain() == 0
        gc.collect()
        assert kept() is None

    def test_other_threads_run_while_the_host_waits_for_page_locked_memory(self, pool, stream) -> None:
        """Without that, the thread that the memory waits for may never come to finish it."""
        tensor = tensor_of(pool, stream)
        gate = driver.gate(stream.handle)
        with ad.stream(stream):
            copy = tensor.to_device("cuda_host")

        def let_go() -> None:
            time.sleep(0.2)
            driver.open_gate(gate)

        # It ends a wait that keeps the interpreter's lock, and with it the test.
        faulthandler.dump_traceback_later(driver.SOON, exit=True)
        other = threading.Thread(target=let_go)
        other.start()
        borrowed = exchange.borrow(copy)
        other.join()
        faulthandler.cancel_dump_traceback_later()
        assert ctypes.string_at(borrowed.data, 24) == VALUES.tobytes()

    def test_a_stream_that_is_captured(self, pool, stream) -> None:
        gate = driver.gate(stream.handle)
        late = ad.from_dlpack(fakes.Torch(fakes.Pool(), VALUES, stream=stream.handle))
        work = driver.Stream()
        with ad.stream(work), driver.capture(work.handle), pytest.raises(BufferError, match="captured"):
            exchange.from_object(late)
        driver.open_gate(gate)


class TestImports:
    def test_written_on_this_threads_stream(self, pool) -> None:
        work, consumer = driver.Stream(), driver.Stream()
        address = pool.allocate(24)
        producer = producers.DLPack(None, device=(CUDA, 0), shape=(6,), strides=(1,), address=address)
        with ad.stream(work):
            driver.write(address, VALUES.tobytes(), exchange.current_work_stream(ad.Tensor, (CUDA, 0)))
            tensor = exchange.to_object(ad.Tensor, producer)
        held = fakes.cupy(tensor, consumer.handle)
        assert driver.read(held.address, 24, consumer.handle) == VALUES.tobytes()
        held.release()

    def test_a_stream_of_another_device(self, pool) -> None:
        producer = producers.DLPack(None, device=(CUDA, 0), shape=(6,), strides=(1,), address=pool.allocate(24))
        with ad.stream(driver.Stream(1)), pytest.raises(BufferError, match="not of the primary context"):
            exchange.to_object(ad.Tensor, producer)
        assert producer.releases == 0
        producer.expected = 0

    def test_a_device_whose_streams_are_not_known(self) -> None:
        producer = producers.DLPack(None, device=(ROCM, 0), shape=(6,), strides=(1,), address=0x7000)
        with pytest.raises(BufferError, match="orders no work on its streams"):
            exchange.to_object(ad.Tensor, producer)
        assert producer.releases == 0
        producer.expected = 0

    def test_what_is_refused_stays_its_callers(self) -> None:
        producer = producers.DLPack(None, device=(CUDA, 0), address=VALUES.ctypes.data)
        with pytest.raises(BufferError, match="does not know it"):
            exchange.to_object(ad.Tensor, producer)
        assert producer.releases == 0
        producer.expected = 0


class TestOtherTables:
    @pytest.fixture(autouse=True)
    def _learn(self) -> None:
        """The route by the table is known from the first array on."""
        ad.to_tensor(np.arange(3), xp=MODULE)

    @pytest.mark.parametrize("own", [False, True])
    def test_the_librarys_stream_waits(self, pool, stream, host_waits, own: bool) -> None:
        tensor = tensor_of(pool, stream)
        # PyTorch's default stream goes by 0 there.
        exchange.Array.stream = driver.Stream().handle if own else 0
        column = ad.to_arrow(tensor)
        waits = host_waits()
        array = ad.to_tensor(column, xp=MODULE)
        assert exchange.Array.by_table == 1
        assert (waits.ours, waits.drivers) == (0, 0)
        assert array.read(24) == VALUES.tobytes()
        array.close()

    @pytest.mark.parametrize("known", [True, False])
    def test_memory_is_kept_until_pytorchs_work_is_done(self, pool, stream, monkeypatch, known: bool) -> None:
        """PyTorch destroys no stream, so that the one that was current can be asked at the release."""
        pytest.importorskip("torch", reason="what says that it is PyTorch's has PyTorch imported", exc_type=ImportError)
        monkeypatch.setattr(exchange.from_dlpack, "__module__", "torch.utils")
        monkeypatch.setattr(exchange.Array, "__module__", "torch")
        # Forgets the table of the library by its own name.
        _native._host_memory()
        if known:
            ad.to_tensor(np.arange(3), xp=MODULE, writable=False)
        tensor = tensor_of(pool, stream)
        work = driver.Stream()
        exchange.Array.stream = work.handle
        target = pool.allocate(24)
        array = ad.to_tensor(ad.to_arrow(tensor), xp=MODULE, writable=False)
        assert exchange.Array.by_table == known
        gate = driver.gate(work.handle)
        driver.copy(target, array.held.address, 24, work.handle)
        array.close()
        del tensor
        gc.collect()
        # What the legacy default stream has is done.
        driver.synchronize_stream(driver.LEGACY)
        assert ad.collect() == 1
        assert pool.freed == 0
        driver.open_gate(gate)
        assert driver.read(target, 24, work.handle) == VALUES.tobytes()

    def test_a_stream_that_may_be_gone_is_not_asked(self, pool, stream) -> None:
        """The stream that was current may be destroyed by others: its work is joined before the release, or named."""
        work = driver.Stream()
        exchange.Array.stream = work.handle
        tensor = tensor_of(pool, stream)
        array = ad.to_tensor(ad.to_arrow(tensor), xp=MODULE)
        driver.synchronize_stream(work.handle)
        gate = driver.gate(work.handle)
        array.close()
        del tensor
        gc.collect()
        driver.synchronize_stream(driver.LEGACY)
        assert (ad.collect(), pool.freed) == (0, 1)
        driver.open_gate(gate)

    def test_a_stream_of_another_device(self, pool, stream) -> None:
        tensor = tensor_of(pool, stream)
        exchange.Array.stream = driver.Stream(1).handle
        with pytest.raises(BufferError, match="not of the primary context"):
            ad.to_tensor(ad.to_arrow(tensor), xp=MODULE)

    def test_the_librarys_stream_waits_for_each_column(self, stream, host_waits) -> None:
        """One is a view, which its producer writes, and the other one a copy, which our stream writes."""
        columns = pa.record_batch({"view": pa.array(VALUES), "copy": pa.array([True, False, True] * 2)})
        batch = ad.from_arrow(DeviceArray(columns.to_struct_array()).give())
        exchange.Array.stream = driver.Stream().handle
        waits = host_waits()
        with ad.stream(stream):
            arrays = ad.to_tensors(batch, xp=MODULE, writable=False)
        assert exchange.Array.by_table == 2
        assert (waits.ours, waits.drivers) == (0, 0)
        # The end of a read waits for all work of the device.
        assert arrays["copy"].read(6) == bytes([1, 0, 1] * 2)
        assert arrays["view"].read(24) == VALUES.tobytes()
        for array in arrays.values():
            array.close()

    def test_each_stream_that_the_library_names_waits(self, monkeypatch) -> None:
        """The library may work on another stream for the second column of a batch."""
        columns = pa.record_batch({"x": pa.array(VALUES), "y": pa.array(VALUES[::-1])})
        batch = ad.from_arrow(DeviceArray(columns.to_struct_array()).give())
        streams = [driver.Stream() for _ in range(2)]
        left = iter([stream.handle for stream in streams])

        class Named:
            def __get__(self, *_: object) -> int:
                return next(left)

        monkeypatch.setattr(exchange.Array, "stream", Named())
        arrays = ad.to_tensors(batch, xp=MODULE, writable=False)
        assert exchange.Array.by_table == 2
        # The end of a read waits for all work of the device.
        assert driver.read(arrays["y"].held.address, 24, streams[1].handle) == VALUES[::-1].tobytes()
        assert driver.read(arrays["x"].held.address, 24, streams[0].handle) == VALUES.tobytes()
        for array in arrays.values():
            array.close()

    def test_managed_memory_does_not_go_by_the_table(self) -> None:
        """Its functions wait for nothing, and the host may read such memory at once."""
        array = ad.from_arrow(DeviceArray(pa.array(VALUES), MANAGED).give())
        taken = ad.to_tensor(array, xp=MODULE, writable=False)
        assert exchange.Array.by_table == 0
        assert taken.read(24) == VALUES.tobytes()
        taken.close()
