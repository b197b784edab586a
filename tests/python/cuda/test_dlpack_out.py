"""What consumers of DLPack are given of memory on CUDA."""

from __future__ import annotations

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import DeviceArray
from fakes import CUDA, CUDA_HOST, MANAGED

VALUES = np.arange(6, dtype="int32").reshape(2, 3)


def tensor_of(pool: fakes.Pool, stream: driver.Stream, **keywords: object) -> ad.Tensor:
    """A tensor that a library's stream is still writing."""
    return ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle, **keywords))  # type: ignore[arg-type]


@pytest.fixture
def stream() -> driver.Stream:
    return driver.Stream()


@pytest.fixture
def consumer() -> driver.Stream:
    return driver.Stream()


class TestStreams:
    def test_the_named_stream_waits_and_the_host_does_not(self, pool, stream, consumer, host_waits) -> None:
        tensor = tensor_of(pool, stream)
        waits = host_waits()
        held = fakes.cupy(tensor, consumer.handle)
        assert (waits.ours, waits.drivers) == (0, 0)
        assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()

    def test_behind_a_gate(self, pool, stream, consumer) -> None:
        gate = driver.gate(stream.handle)
        tensor = tensor_of(pool, stream)
        held = fakes.cupy(tensor, consumer.handle)
        target = pool.allocate(VALUES.nbytes)
        driver.fill(target, 0, VALUES.nbytes, consumer.handle)
        driver.copy(target, held.address, VALUES.nbytes, consumer.handle)
        driver.open_gate(gate)
        assert driver.read(target, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()

    @pytest.mark.parametrize("number", [None, driver.LEGACY, driver.PER_THREAD])
    def test_default_streams(self, pool, stream, number: int | None) -> None:
        tensor = tensor_of(pool, stream)
        held = fakes.Held(tensor.__dlpack__(stream=number, max_version=(1, 0)))
        assert driver.read(held.address, VALUES.nbytes, number or driver.LEGACY) == VALUES.tobytes()
        held.release()

    def test_minus_one_waits_for_nothing(self, pool, stream) -> None:
        tensor = tensor_of(pool, stream)
        before = driver.calls("cuStreamWaitEvent")
        fakes.Held(tensor.__dlpack__(stream=-1, max_version=(1, 0))).release()
        assert driver.calls("cuStreamWaitEvent") == before

    def test_zero_is_an_error(self, pool, stream) -> None:
        with pytest.raises(ad.ConversionError, match=r"stream 0 .* pass 1 .* or 2"):
            tensor_of(pool, stream).__dlpack__(stream=0)

    @pytest.mark.parametrize("number", [-2, 1 << 64])
    def test_what_is_no_stream(self, pool, stream, number: int) -> None:
        with pytest.raises(BufferError, match="is no stream"):
            tensor_of(pool, stream).__dlpack__(stream=number)

    @pytest.mark.parametrize("wrong", ["1", 1.0, True, object()])
    def test_another_type_is_a_type_error(self, pool, stream, wrong: object) -> None:
        with pytest.raises(TypeError, match="__cuda_stream__"):
            tensor_of(pool, stream).__dlpack__(stream=wrong)  # type: ignore[arg-type]

    def test_an_object_with_a_stream(self, pool, stream, consumer) -> None:
        tensor = tensor_of(pool, stream)
        held = fakes.Held(tensor.__dlpack__(stream=consumer, max_version=(1, 0)))
        assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()

    def test_a_stream_of_another_device(self, pool, stream) -> None:
        other = driver.Stream(1)
        with pytest.raises(BufferError, match=r"not of the primary context of cuda:0.*pass a stream of cuda:0"):
            tensor_of(pool, stream).__dlpack__(stream=other.handle)

    def test_a_stream_of_another_context(self, pool, stream) -> None:
        with driver.other_context():
            other = driver.new_stream()
        with pytest.raises(BufferError, match="other than the primary one are not supported"):
            tensor_of(pool, stream).__dlpack__(stream=other)

    def test_on_another_device(self, consumer) -> None:
        pool, stream, other = fakes.Pool(1), driver.Stream(1), driver.Stream(1)
        tensor = tensor_of(pool, stream)
        assert str(tensor.device) == "cuda:1"
        held = fakes.cupy(tensor, other.handle)
        assert held.device == (CUDA, 1)
        assert driver.read(held.address, VALUES.nbytes, other.handle, 1) == VALUES.tobytes()
        held.release()

    def test_the_context_of_the_caller_stays(self, pool, stream, consumer) -> None:
        tensor = tensor_of(pool, stream)
        with driver.current(1):
            fakes.cupy(tensor, consumer.handle).release()
            assert driver.is_current(1)
        assert not driver.has_current_context()


CONSUMERS = {
    "cupy": lambda x, stream: fakes.cupy(x, stream),
    "torch": lambda x, stream: fakes.torch(x, stream),
    "jax": lambda x, stream: fakes.Held(x.__dlpack__(stream=stream, max_version=(1, 3))),
    "jax before 0.12": lambda x, stream: fakes.Held(x.__dlpack__(stream=stream)),
}


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_every_kind_of_consumer(pool, stream, host_waits, consumer: str, default: bool) -> None:
    tensor = tensor_of(pool, stream)
    number = driver.LEGACY if default else driver.Stream().handle
    waits = host_waits()
    held = CONSUMERS[consumer](tensor, number)
    assert (waits.ours, waits.drivers) == (0, 0)
    assert (held.device, held.shape) == ((CUDA, 0), (2, 3))
    assert driver.read(held.address, VALUES.nbytes, number) == VALUES.tobytes()
    held.release()


def test_a_consumer_that_passes_nothing(pool, stream) -> None:
    held = fakes.Held(tensor_of(pool, stream).__dlpack__())
    assert driver.read(held.address, VALUES.nbytes, driver.LEGACY) == VALUES.tobytes()
    held.release()


class TestForTheCpu:
    def test_a_copy_that_is_complete(self, pool, stream, host_waits) -> None:
        tensor = tensor_of(pool, stream)
        waits = host_waits()
        with ad.track_copies() as log:
            held = fakes.Held(tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
        assert held.device == (1, 0)
        assert held.flags == producers.IS_COPIED
        assert fakes.bytes_at(held.address, VALUES.nbytes) == VALUES.tobytes()
        assert [entry.bytes for entry in log] == [VALUES.nbytes]
        # None if the copy was done by the time that it was asked about.
        assert waits.ours <= 1
        assert waits.drivers == 0
        held.release()

    def test_numpy(self, pool, stream) -> None:
        tensor = tensor_of(pool, stream)
        assert np.array_equal(np.from_dlpack(tensor, device="cpu"), VALUES)

    def test_more_than_the_staging_holds(self, pool, stream) -> None:
        values = np.arange(3 << 19, dtype="int32")
        tensor = ad.from_dlpack(fakes.Torch(pool, values, stream=stream.handle))
        assert np.array_equal(np.from_dlpack(tensor, device="cpu"), values)

    def test_no_copy_is_no_such_thing(self, pool, stream) -> None:
        with pytest.raises(ad.CopyError, match="copied"):
            tensor_of(pool, stream).__dlpack__(dl_device=(1, 0), copy=False)

    def test_a_stream_has_no_meaning(self, pool, stream, consumer) -> None:
        with pytest.raises(BufferError, match="stream must be None"):
            tensor_of(pool, stream).__dlpack__(dl_device=(1, 0), stream=consumer.handle)

    def test_other_devices_are_refused(self, pool, stream) -> None:
        for device in [(MANAGED, 0), (10, 0)]:
            with pytest.raises(BufferError, match="no copy between these"):
                tensor_of(pool, stream).__dlpack__(dl_device=device)

    def test_another_device_of_cuda_is_had_by_a_copy(self, pool, stream, host_waits) -> None:
        there = driver.Stream(1)
        waits = host_waits()
        held = fakes.Held(tensor_of(pool, stream).__dlpack__(dl_device=(CUDA, 1), stream=there.handle))
        assert (waits.ours, waits.drivers) == (0, 0)
        assert held.device == (CUDA, 1)
        assert driver.read(held.address, VALUES.nbytes, there.handle, 1) == VALUES.tobytes()
        held.release()

    def test_page_locked_memory_is_written_by_then(self, pool, stream) -> None:
        held = fakes.Held(tensor_of(pool, stream).__dlpack__(dl_device=(CUDA_HOST, 0), max_version=(1, 0)))
        assert held.device == (CUDA_HOST, 0)
        assert fakes.bytes_at(held.address, VALUES.nbytes) == VALUES.tobytes()
        held.release()

    def test_the_own_device_is_none(self, pool, stream, consumer) -> None:
        fakes.cupy(tensor_of(pool, stream), consumer.handle, dl_device=(CUDA, 0)).release()


class TestCopies:
    @pytest.mark.parametrize("versioned", [True, False])
    def test_on_the_stream_named(self, pool, stream, consumer, host_waits, versioned: bool) -> None:
        tensor = tensor_of(pool, stream)
        waits = host_waits()
        held = fakes.Held(
            tensor.__dlpack__(stream=consumer.handle, copy=True, max_version=(1, 0) if versioned else None)
        )
        assert (waits.ours, waits.drivers) == (0, 0)
        assert held.address != tensor.__cuda_array_interface__["data"][0]
        assert held.flags == (producers.IS_COPIED if versioned else None)
        driver.fill(held.address, 7, 4, consumer.handle)
        expected = b"\7\7\7\7" + VALUES.tobytes()[4:]
        assert driver.read(held.address, VALUES.nbytes, consumer.handle) == expected
        held.release()

    def test_the_source_is_kept_until_it_is_copied(self, pool, stream, consumer) -> None:
        tensor = tensor_of(pool, stream)
        held = fakes.cupy(tensor, consumer.handle, copy=True)
        # Its memory would be in use for something else at once.
        del tensor
        assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()

    def test_a_copy_that_nobody_takes(self, pool, stream, consumer) -> None:
        tensor = tensor_of(pool, stream)
        for _ in range(3):
            # The block is used again, by then after the copy.
            fakes.cupy(tensor, consumer.handle, copy=True).release()

    def test_read_only_memory_in_an_unversioned_capsule(self, pool, stream, consumer) -> None:
        tensor = tensor_of(pool, stream, read_only=True)
        assert not tensor.writable
        with ad.track_copies() as log:
            held = fakes.Held(tensor.__dlpack__(stream=consumer.handle))
        assert len(log) == 1
        assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()
        with pytest.raises(ad.CopyError, match="read-only"):
            tensor.__dlpack__(stream=consumer.handle, copy=False)
        held = fakes.cupy(tensor, consumer.handle)
        assert held.flags == producers.READ_ONLY
        held.release()

    def test_on_a_stream_that_is_captured(self, pool, stream, consumer) -> None:
        tensor = tensor_of(pool, stream)
        with driver.capture(consumer.handle), pytest.raises(BufferError, match="captured"):
            tensor.__dlpack__(stream=consumer.handle, copy=True)


class TestCapture:
    def test_no_wait_for_what_is_written(self, pool, stream, consumer) -> None:
        tensor = tensor_of(pool, stream)
        driver.synchronize()
        with driver.capture(consumer.handle):
            fakes.cupy(tensor, consumer.handle).release()

    def test_an_error_for_what_is_not(self, pool, stream, consumer) -> None:
        gate = driver.gate(stream.handle)
        tensor = tensor_of(pool, stream)
        with driver.capture(consumer.handle), pytest.raises(BufferError, match=r"captured.*stream=-1"):
            fakes.cupy(tensor, consumer.handle)
        driver.open_gate(gate)

    def test_a_capture_elsewhere_goes_on(self, pool, stream, consumer) -> None:
        source = fakes.Torch(pool, VALUES, stream=stream.handle)
        elsewhere = driver.Stream()
        tensor = ad.from_dlpack(source)
        # Of the mode in which an event that is asked about in any thread would end it.
        with driver.capture(elsewhere.handle):
            fakes.cupy(tensor, consumer.handle).release()
            del tensor


def pinned(stream: int, ordinal: int = 0) -> tuple[ad.Tensor, int]:
    address = driver.allocate_host(VALUES.nbytes, ordinal)
    source = driver.allocate(VALUES.nbytes, ordinal)
    return _host_visible(CUDA_HOST, address, source, stream, ordinal)


def managed(stream: int, ordinal: int = 0) -> tuple[ad.Tensor, int]:
    address = driver.allocate_managed(VALUES.nbytes, ordinal)
    source = driver.allocate(VALUES.nbytes, ordinal)
    return _host_visible(MANAGED, address, source, stream, ordinal)


def _host_visible(device_type: int, address: int, source: int, stream: int, ordinal: int) -> tuple[ad.Tensor, int]:
    """Memory that the host reaches, and that a stream is still writing."""
    driver.write(source, VALUES.tobytes(), stream, ordinal)
    if device_type == CUDA_HOST:
        with driver.current(ordinal):
            driver._call(
                "cuMemcpyDtoHAsync_v2",
                driver.Handle(address),
                driver.U64(source),
                driver.SIZE(VALUES.nbytes),
                driver.Handle(stream),
            )
    else:
        driver.copy(address, source, VALUES.nbytes, stream, ordinal)
    producer = producers.DLPack(None, device=(device_type, 0), address=address)

    class Source:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (device_type, 0)

        def __dlpack__(self, *, stream: int | None = None, max_version: object = None) -> object:
            if stream not in (None, driver.LEGACY):
                event = driver.Event(made_on, ordinal)
                fakes._wait(stream, event, ordinal)
            return producer.capsule()

    made_on = stream
    return ad.from_dlpack(Source()), address


class TestHostVisible:
    @pytest.mark.parametrize("make", [pinned, managed])
    def test_without_a_stream_the_host_waits(self, make, host_waits) -> None:
        tensor, address = make(driver.LEGACY)
        waits = host_waits()
        held = fakes.Held(tensor.__dlpack__(max_version=(1, 0)))
        assert fakes.bytes_at(held.address, VALUES.nbytes) == VALUES.tobytes()
        assert waits.ours <= 1
        assert waits.drivers == 0
        assert held.address == address
        held.release()

    @pytest.mark.parametrize("make", [pinned, managed])
    def test_numpy_reads_at_once(self, make) -> None:
        tensor, _ = make(driver.LEGACY)
        assert np.array_equal(np.from_dlpack(tensor), VALUES)

    @pytest.mark.parametrize("make", [pinned, managed])
    def test_a_stream_that_is_named_waits(self, make, consumer, host_waits) -> None:
        tensor, address = make(driver.LEGACY)
        waits = host_waits()
        held = fakes.Held(tensor.__dlpack__(stream=consumer.handle, max_version=(1, 0)))
        assert (waits.ours, waits.drivers) == (0, 0)
        target = driver.allocate(VALUES.nbytes)
        driver.fill(address, 9, VALUES.nbytes, consumer.handle)
        assert driver.read(target, 0, consumer.handle) == b""
        held.release()

    @pytest.mark.parametrize("make", [pinned, managed])
    def test_ids(self, make) -> None:
        driver.Stream(1)
        tensor, _ = make(driver.LEGACY, 1)
        # The ordinal is by the driver's word: DLPack has none.
        assert tensor.device.id == 1
        assert tensor.__dlpack_device__() == (tensor.device.type, 0)
        held = fakes.Held(tensor.__dlpack__(max_version=(1, 0)))
        assert held.device == (tensor.device.type, 0)
        held.release()

    @pytest.mark.parametrize("make", [pinned, managed])
    def test_for_the_cpu_it_is_the_same_memory(self, make) -> None:
        tensor, address = make(driver.LEGACY)
        with ad.track_copies() as log:
            held = fakes.Held(tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
        assert len(log) == 0
        assert (held.device, held.address, held.flags) == ((1, 0), address, 0)
        assert fakes.bytes_at(held.address, VALUES.nbytes) == VALUES.tobytes()
        held.release()
        held = fakes.Held(tensor.__dlpack__(dl_device=(1, 0), copy=True, max_version=(1, 0)))
        assert held.address != address
        assert held.flags == producers.IS_COPIED
        held.release()

    def test_managed_memory_of_a_device_that_must_rest_is_copied(self, monkeypatch) -> None:
        monkeypatch.setenv("SIMULATED_CUDA_NO_CONCURRENT_MANAGED", "1")
        tensor, address = managed(driver.LEGACY)
        with ad.track_copies() as log:
            held = fakes.Held(tensor.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
        assert len(log) == 1
        assert (held.device, held.flags) == ((1, 0), producers.IS_COPIED)
        assert held.address != address
        assert fakes.bytes_at(held.address, VALUES.nbytes) == VALUES.tobytes()
        held.release()

    def test_managed_memory_is_every_devices(self, consumer) -> None:
        tensor, address = managed(driver.LEGACY)
        other = driver.Stream(1)
        for ordinal, stream in [(0, consumer), (1, other)]:
            held = fakes.Held(tensor.__dlpack__(stream=stream.handle, dl_device=(CUDA, ordinal), max_version=(1, 0)))
            assert (held.device, held.address) == ((CUDA, ordinal), address)
            held.release()
        with pytest.raises(BufferError, match="no device cuda:9"):
            tensor.__dlpack__(dl_device=(CUDA, 9))

    @pytest.mark.parametrize("make", [pinned, managed])
    def test_no_such_memory_is_allocated(self, make) -> None:
        tensor, _ = make(driver.LEGACY)
        with pytest.raises(BufferError, match="no memory on"):
            tensor.__dlpack__(copy=True)
        with pytest.raises(AttributeError):
            _ = tensor.__array_interface__

    @pytest.mark.parametrize("kind", [CUDA_HOST, MANAGED])
    def test_a_consumer_of_read_only_memory_asks_for_a_version_or_the_cpu(self, kind: int) -> None:
        data = pa.array(VALUES.reshape(-1))
        array = ad.from_arrow(DeviceArray(data, kind).give())
        tensor = ad.to_tensor(array)
        with pytest.raises(ad.ConversionError, match="cannot say that the memory is read-only") as caught:
            tensor.__dlpack__()
        assert 'max_version=(1, 0), or dl_device=(1, 0), or convert with legacy="view"' in caught.value.remedy
        viewed = ad.to_tensor(array, legacy="view")
        for capsule in (
            tensor.__dlpack__(max_version=(1, 0)),
            tensor.__dlpack__(dl_device=(1, 0)),
            viewed.__dlpack__(),
        ):
            held = fakes.Held(capsule)
            assert fakes.bytes_at(held.address, VALUES.nbytes) == VALUES.tobytes()
            held.release()


class TestWithoutTheDriver:
    def test_the_device_is_told_without_starting_it(self) -> None:
        assert driver.calls("cuInit") == 0
        tensor = ad.from_dlpack(np.arange(3))
        tensor.__dlpack_device__()
        ad.explain(np.arange(3))
        assert driver.calls("cuInit") == 0

    def test_the_device_is_the_capsules(self, pool, stream, consumer) -> None:
        tensor = tensor_of(pool, stream)
        before = driver.calls("*")
        assert tensor.__dlpack_device__() == (CUDA, 0)
        assert driver.calls("*") == before
