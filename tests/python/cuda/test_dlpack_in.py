"""Tensors of other libraries on CUDA."""

from __future__ import annotations

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import producers
import pytest
from fakes import CUDA

VALUES = np.arange(6, dtype="int32").reshape(2, 3)


@pytest.fixture
def stream() -> driver.Stream:
    return driver.Stream()


@pytest.mark.parametrize("library", [fakes.Torch, fakes.OldTorch, fakes.Plain, fakes.Jax])
def test_every_kind_of_producer(library, pool, stream, host_waits) -> None:
    source = library(pool, VALUES, stream=stream.handle)
    waits = host_waits()
    tensor = ad.from_dlpack(source)
    assert (waits.ours, waits.drivers) == (0, 0)
    assert (tensor.shape, tensor.dtype, str(tensor.device)) == ((2, 3), "int32", "cuda:0")
    consumer = driver.Stream()
    held = fakes.Held(tensor.__dlpack__(stream=consumer.handle, max_version=(1, 0)))
    assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
    held.release()


def test_the_producer_is_given_an_idle_stream_of_ours(pool, stream) -> None:
    slow, fast = driver.Stream(), driver.Stream()
    gate = driver.gate(slow.handle)
    behind = fakes.Torch(pool, VALUES, stream=slow.handle)
    free = fakes.Torch(pool, VALUES, stream=fast.handle)
    one, two = ad.from_dlpack(behind), ad.from_dlpack(free)
    given = [source.calls[-1]["stream"] for source in (behind, free)]
    assert given[0] != given[1]
    assert min(given) > 2
    # The slow producer delays nobody else.
    assert np.array_equal(np.from_dlpack(two, device="cpu"), VALUES)
    driver.open_gate(gate)
    assert np.array_equal(np.from_dlpack(one, device="cpu"), VALUES)


def test_the_producers_device_is_current(pool) -> None:
    other = fakes.Pool(1)
    for owner in (pool, other):
        with driver.current(1 - owner.ordinal):
            tensor = ad.from_dlpack(fakes.Torch(owner, VALUES))
            assert driver.is_current(1 - owner.ordinal)
        assert tensor.device.id == owner.ordinal


def test_a_pinned_tensor_of_torch_is_the_cpus() -> None:
    before = driver.calls("cuInit")
    tensor = ad.from_dlpack(fakes.PinnedTorch(np.arange(6, dtype="int32")))
    assert str(tensor.device) == "cpu"
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2, 3, 4, 5]
    assert driver.calls("cuInit") == before


def test_keywords_are_dropped_one_by_one(pool, stream) -> None:
    source = fakes.OldTorch(pool, VALUES, stream=stream.handle)
    ad.from_dlpack(source, copy=False)
    assert [list(call) for call in source.calls] == [["stream"]]


def test_errors_of_the_producer_pass(pool, stream) -> None:
    class Refuses(fakes.Torch):
        def __dlpack__(self, **_: object) -> object:  # type: ignore[override]
            raise BufferError("requires gradient")

    with pytest.raises(BufferError, match="requires gradient"):
        ad.from_dlpack(Refuses(pool, VALUES))
    assert not driver.has_current_context()


class TestMoves:
    def test_to_the_cpu(self, pool, stream) -> None:
        with ad.track_copies() as log:
            tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle), device="cpu")
        assert [entry.why for entry in log] == ['device="cpu"']
        assert tensor.copied
        assert np.array_equal(np.from_dlpack(tensor), VALUES)

    def test_to_the_cpu_copied_once(self, pool, stream) -> None:
        with ad.track_copies() as log:
            ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle), device="cpu", copy=True)
        assert len(log) == 1

    def test_to_the_cpu_without_a_copy(self, pool, stream) -> None:
        with pytest.raises(ad.CopyError, match="copied"):
            ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle), device="cpu", copy=False)

    def test_a_copy_on_the_device(self, pool, stream, host_waits) -> None:
        source = fakes.Torch(pool, VALUES, stream=stream.handle)
        waits = host_waits()
        with ad.track_copies() as log:
            tensor = ad.from_dlpack(source, copy=True)
        assert (waits.ours, waits.drivers, len(log)) == (0, 0, 1)
        assert tensor.copied
        assert tensor.writable
        consumer = driver.Stream()
        held = fakes.cupy(tensor, consumer.handle)
        assert held.address != source.address
        assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()

    def test_a_copy_behind_a_gate(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        work, consumer = driver.Stream(), driver.Stream()
        target = pool.allocate(VALUES.nbytes)
        gate = driver.gate(work.handle)
        with ad.stream(work):
            copy = ad.from_dlpack(tensor, copy=True)
        held = fakes.cupy(copy, consumer.handle)
        driver.copy(target, held.address, VALUES.nbytes, consumer.handle)
        driver.open_gate(gate)
        assert driver.read(target, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()

    def test_misaligned_elements_are_realigned_by_a_copy(self, pool, stream) -> None:
        address = pool.allocate(64) + 1
        source = fakes.Torch(pool, VALUES, stream=stream.handle, address=address)
        with pytest.raises(ad.CopyError, match="not aligned"):
            ad.from_dlpack(source, copy=False)
        assert source.producer is not None
        driver.settle()
        source = fakes.Torch(pool, VALUES, stream=stream.handle, address=address)
        tensor = ad.from_dlpack(source)
        assert tensor.copied
        assert np.array_equal(np.from_dlpack(tensor, device="cpu"), VALUES)


class TestBadInput:
    def refused(self, match: str, **keywords: object) -> None:
        producer = producers.DLPack(None, **keywords)  # type: ignore[arg-type]
        source = type(
            "Source",
            (),
            {"__dlpack_device__": lambda _: keywords["device"], "__dlpack__": lambda _, **__: producer.capsule()},
        )()
        with pytest.raises(BufferError, match=match):
            ad.from_dlpack(source)
        assert producer.releases == 1

    def test_host_memory(self) -> None:
        memory = np.arange(6, dtype="int32")
        driver.Stream()
        self.refused("the CUDA driver does not know it", device=(CUDA, 0), address=memory.ctypes.data)

    def test_another_device(self) -> None:
        pool = fakes.Pool(1)
        self.refused("said to be on cuda:0, and is on cuda:1", device=(CUDA, 0), address=pool.allocate(24))

    def test_another_kind(self) -> None:
        address = driver.allocate_host(24)
        self.refused("said to be on cuda:0, and is on cuda_host:0", device=(CUDA, 0), address=address)
        driver.free_host(address)

    def test_beyond_the_allocation(self, pool) -> None:
        self.refused("beyond an allocation", device=(CUDA, 0), address=pool.allocate(4096) + 4080)

    def test_another_context(self) -> None:
        with driver.other_context():
            address = driver.new_memory(64)
        self.refused("not the primary one of cuda:0, which is not supported", device=(CUDA, 0), address=address)

    def test_a_device_that_is_not_there(self) -> None:
        source = type("Source", (), {"__dlpack_device__": lambda _: (CUDA, 7), "__dlpack__": lambda _, **__: None})()
        with pytest.raises(BufferError, match="no device cuda:7; there are 2"):
            ad.from_dlpack(source)

    def test_a_device_that_changes(self, pool) -> None:
        other = fakes.Pool(1)
        producer = producers.DLPack(None, device=(CUDA, 1), address=other.allocate(24))
        source = type(
            "Source", (), {"__dlpack_device__": lambda _: (CUDA, 0), "__dlpack__": lambda _, **__: producer.capsule()}
        )()
        with pytest.raises(BufferError, match="says cuda:0, and the capsule cuda:1"):
            ad.from_dlpack(source)
        assert producer.releases == 1

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
    def test_no_elements_are_nowhere(self, pool, shape: tuple[int, ...]) -> None:
        source = fakes.Torch(pool, np.empty(shape, "float32"))
        source.address = 0
        tensor = ad.from_dlpack(source)
        assert tensor.shape == shape
        consumer = driver.Stream()
        held = fakes.cupy(tensor, consumer.handle)
        assert held.address == 0
        held.release()


class TestThroughArrow:
    def test_a_column_and_back(self, pool, stream, host_waits) -> None:
        source = fakes.Torch(pool, np.arange(5, dtype="float32"), stream=stream.handle)
        waits = host_waits()
        column = ad.to_arrow(source)
        tensor = ad.to_tensor(column)
        consumer = driver.Stream()
        held = fakes.cupy(tensor, consumer.handle)
        assert (waits.ours, waits.drivers) == (0, 0)
        assert held.address == source.address
        assert driver.read(held.address, 20, consumer.handle) == np.arange(5, dtype="float32").tobytes()
        held.release()
        assert column.__dlpack_device__() == (CUDA, 0)
        held = fakes.cupy(column, consumer.handle)
        assert driver.read(held.address, 20, consumer.handle) == np.arange(5, dtype="float32").tobytes()
        held.release()
