"""Is memory right that no allocator of the driver made: expandable segments, and memory of other processes?"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
import segments
from driver import soon

# Longer than what is before the end of a mapping.
VALUES = np.arange(1000, dtype="int32")


@pytest.fixture
def segment() -> Iterator[segments.Segment]:
    segment = segments.Segment()
    yield segment
    segment.close()


def lies_across(segment: segments.Segment, address: int, nbytes: int) -> bool:
    return (address - segment.base) // segments.UNIT != (address + nbytes - 1 - segment.base) // segments.UNIT


class TestExpandableSegments:
    def test_a_tensor_across_mappings_is_used_everywhere(self, segment: segments.Segment, host_waits: Any) -> None:
        """As a view, an export, a source of kernels and of copies, and the target of `out=`."""
        writer, consumer = driver.Stream(), driver.Stream()
        source = fakes.Torch(segment, VALUES, stream=writer.handle)
        assert lies_across(segment, source.address, VALUES.nbytes)
        waits = host_waits()
        tensor = ad.from_dlpack(source)
        held = fakes.cupy(tensor, consumer.handle)
        assert held.address == source.address
        assert waits.ours == 0
        assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()
        assert np.from_dlpack(tensor.to_device("cpu")).tolist() == VALUES.tolist()
        made = ad.to_tensor(ad.to_arrow(tensor), dtype="float64")
        assert np.from_dlpack(made.to_device("cpu")).tolist() == VALUES.tolist()
        target = fakes.Torch(segment, np.zeros(1000, "float32"), stream=writer.handle)
        ad.to_tensor(ad.to_arrow(tensor), dtype="float32", out=target)
        driver.synchronize()
        assert driver.read(target.address, 4000, driver.LEGACY) == VALUES.astype("float32").tobytes()
        writer.synchronize()

    def test_memory_is_unmapped_behind_its_last_reader(self, segment: segments.Segment) -> None:
        """The owner waits for its own stream alone, and the unmapping for nothing."""
        consumer = driver.Stream()
        tensor = ad.from_dlpack(fakes.Torch(segment, VALUES, stream=driver.LEGACY))
        held = fakes.cupy(tensor, consumer.handle)
        gate = driver.gate(consumer.handle)
        target = driver.allocate(VALUES.nbytes)
        driver.copy(target, held.address, VALUES.nbytes, consumer.handle)
        tensor.record_stream(consumer)
        held.release()
        del tensor
        gc.collect()
        driver.synchronize_stream(driver.LEGACY)
        ad.collect()
        assert (segment.freed, segment.mapped) == (0, 2)
        driver.open_gate(gate)
        assert soon(lambda: segment.freed == 1)
        assert driver.read(target, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        driver.free(target)

    def test_our_own_reads_keep_it_mapped(self, segment: segments.Segment) -> None:
        stream = driver.Stream()
        gate = driver.gate(stream.handle)
        with ad.stream(stream):
            copy = ad.from_dlpack(ad.from_dlpack(fakes.Torch(segment, VALUES, stream=driver.LEGACY)), copy=True)
            made = ad.to_tensor(
                ad.to_arrow(ad.from_dlpack(fakes.Torch(segment, VALUES, stream=driver.LEGACY))), copy=True
            )
        gc.collect()
        driver.synchronize_stream(driver.LEGACY)
        ad.collect()
        assert segment.freed == 0
        driver.open_gate(gate)
        for tensor in (copy, made):
            assert np.from_dlpack(tensor.to_device("cpu")).tolist() == VALUES.tolist()
        assert soon(lambda: segment.freed == 2)

    @pytest.mark.parametrize("peers", [(), (1,)])
    def test_another_device_gets_a_copy(self, peers: tuple[int, ...]) -> None:
        """Whether or not that device reaches the segment."""
        segment = segments.Segment(peers=peers)
        tensor = ad.from_dlpack(fakes.Torch(segment, VALUES, stream=driver.LEGACY))
        moved = tensor.to_device("cuda:1")
        assert moved.__dlpack_device__() == (2, 1)
        assert np.from_dlpack(moved.to_device("cpu")).tolist() == VALUES.tolist()
        del tensor, moved
        driver.drain()
        segment.close()

    def test_what_is_beyond_the_reservation_is_refused(self, segment: segments.Segment) -> None:
        source = fakes.Torch(segment, VALUES, stream=driver.LEGACY)
        source.shape = (segment.units * segments.UNIT // 4,)
        with pytest.raises(BufferError, match="reach beyond an allocation"):
            ad.from_dlpack(source)

    def test_what_is_not_mapped_is_unknown(self, segment: segments.Segment) -> None:
        source = fakes.Torch(segment, np.empty(0, "int32"), stream=driver.LEGACY, address=segment.base)
        source.shape = (4,)
        with pytest.raises(BufferError, match="the CUDA driver does not know it"):
            ad.from_dlpack(source)

    def test_one_question_is_enough_for_tensors_in_several_mappings(self, segment: segments.Segment) -> None:
        """The driver tells of the whole reservation."""
        rows = np.arange(1 << 20, dtype="int32").reshape(4, -1)
        source = fakes.Torch(segment, rows, stream=driver.LEGACY)
        source.shape, source.strides = rows.T.shape, (1, rows.shape[1])
        assert segment.mapped > 2
        asked = driver.calls("cuPointerGetAttributes")
        tensors = ad.to_tensors(ad.to_arrow(source, names=["a", "b", "c", "d"]))
        assert driver.calls("cuPointerGetAttributes") - asked == 1
        for tensor in tensors.values():
            fakes.cupy(tensor, driver.LEGACY).release()


class TestOtherProcesses:
    def test_memory_of_another_process_is_read_and_written(self, pool: fakes.Pool) -> None:
        stream, consumer = driver.Stream(), driver.Stream()
        with segments.other_process(len(VALUES)) as (handle, found):
            opened = segments.Opened(handle)
            tensor = ad.from_dlpack(opened.tensor(len(VALUES), stream.handle))
            held = fakes.cupy(tensor, consumer.handle)
            assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
            twice = ad.from_dlpack(fakes.Torch(pool, VALUES * 2, stream=stream.handle))
            made = ad.to_tensor(ad.to_arrow(tensor), dtype="float32")
            assert np.from_dlpack(made.to_device("cpu")).tolist() == VALUES.tolist()
            ad.to_tensor(ad.to_arrow(twice), out=opened.tensor(len(VALUES), stream.handle))
            driver.synchronize()
            assert found().tolist() == (VALUES * 2).tolist()
            held.release()
            del tensor
            gc.collect()
            # Closed by its owner, whose handle it is, and freed by nobody here.
            driver.settle()
            assert soon(lambda: ad.collect() == 0 and opened.freed == 2)
            assert driver.live("imported") == 0

    def test_it_is_closed_behind_its_last_reader(self) -> None:
        consumer = driver.Stream()
        with segments.other_process(len(VALUES)) as (handle, _):
            opened = segments.Opened(handle)
            tensor = ad.from_dlpack(opened.tensor(len(VALUES), driver.LEGACY))
            with ad.stream(consumer):
                gate = driver.gate(consumer.handle)
                copy = ad.from_dlpack(tensor, copy=True)
            del tensor
            gc.collect()
            driver.synchronize_stream(driver.LEGACY)
            ad.collect()
            assert opened.freed == 0
            driver.open_gate(gate)
            assert soon(lambda: opened.freed == 1)
            assert np.from_dlpack(copy.to_device("cpu")).tolist() == VALUES.tolist()

    def test_results_have_a_handle_only_where_the_driver_allocates_them(self) -> None:
        """As docs/cuda.md says of `allocator=`."""
        source = ad.from_arrow(pa.array(VALUES))
        plain = source.to_device("cuda", allocator="cuMemAlloc")
        pooled = source.to_device("cuda")
        driver.synchronize()
        taken = [fakes.cupy(ad.to_tensor(array), driver.LEGACY) for array in (plain, pooled)]
        assert len(segments.handle(taken[0].address)) == 64
        with pytest.raises(driver.CudaError, match="cuIpcGetMemHandle"):
            segments.handle(taken[1].address)
        for held in taken:
            held.release()
