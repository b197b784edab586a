"""Round trips with torch on streams that are not the default one, each behind a kernel that takes long.

The data is one value before that kernel and another behind it. Each check reads it without a wait too, which has to
show the first: only then would a missing wait show.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from record import SMOKE, Record, Unordered, expect_order

record = Record()
ad: Any = record.need("arrow_dlpack")
np: Any = record.need("numpy")
pa: Any = record.need("pyarrow")
torch: Any = record.need("torch", lambda torch: torch.zeros(1, device="cuda").item())

# About 0.2 s on current devices: the reads of a check take a few milliseconds.
LONG = 400_000_000
ROWS = 1 << (10 if SMOKE else 22)
TURNS = 300 if SMOKE else 100_000
BEFORE, BEHIND = 1, 2
ENDED = "the kernel has ended by now: the host waited, or it is too short"
# One pair for all, so that memory and kernels are there by the time of the checks: to get them may synchronise.
PRODUCER, CONSUMER = torch.cuda.Stream(), torch.cuda.Stream()


def late(dtype: Any = torch.float32, cycles: int = LONG) -> Any:
    """A tensor that has its values when the producer's stream is done with a long kernel."""
    with torch.cuda.stream(PRODUCER):
        tensor = torch.full((ROWS,), BEFORE, device="cuda", dtype=dtype)
        PRODUCER.synchronize()
        torch.cuda._sleep(cycles)
        tensor.fill_(BEHIND)
    return tensor


def wrong(tensor: Any) -> int:
    """Elements without their values, found in the order of the current stream alone."""
    return int((tensor != BEHIND).sum().item())


def ordered(route: Callable[[Any], Any], dtype: Any = torch.float32) -> None:
    """What `route`, called on the producer's stream, makes of a late tensor is read on the consumer's."""

    def read(cycles: int) -> tuple[int, int]:
        tensor = late(dtype, cycles)
        with torch.cuda.stream(PRODUCER):
            ours = route(tensor)
        with torch.cuda.stream(CONSUMER):
            back = torch.from_dlpack(Unordered(ours))
            assert back.data_ptr() == tensor.data_ptr(), "a copy was made"
            return wrong(back), wrong(torch.from_dlpack(ours))

    read(1)
    torch.cuda.synchronize()
    expect_order(*read(LONG), ROWS)


def check_dlpack_in_and_out() -> None:
    ordered(ad.from_dlpack)


def check_arrow_in_between() -> None:
    ordered(lambda tensor: ad.to_tensor(ad.from_arrow(ad.to_arrow(ad.from_dlpack(tensor)))))


def check_integers_and_floats() -> None:
    for dtype in (torch.int8, torch.int64, torch.float64, torch.bfloat16):
        ordered(ad.from_dlpack, dtype)


def check_the_host_does_not_wait() -> None:
    late(cycles=1)
    tensor = late()
    with torch.cuda.stream(PRODUCER):
        ours = ad.to_tensor(ad.from_arrow(ad.to_arrow(ad.from_dlpack(tensor))))
    with torch.cuda.stream(CONSUMER):
        torch.from_dlpack(ours)
    assert not PRODUCER.query(), ENDED


def check_kernels_behind_the_producer() -> None:
    """Columns that are late, packed into a matrix on the producer's stream."""

    def read(cycles: int) -> int:
        tensor = late(cycles=cycles)
        with torch.cuda.stream(PRODUCER), ad.stream(PRODUCER):
            made = ad.to_tensor(ad.to_arrow(ad.from_dlpack(tensor.view(2, ROWS // 2).t()), names=["a", "b"]))
        with torch.cuda.stream(CONSUMER):
            # Nobody may read the matrix without a wait: its memory is allocated in the order of the producer's stream.
            back = torch.from_dlpack(made)
            assert cycles == 1 or not PRODUCER.query(), ENDED
            return wrong(back)

    # The kernels are loaded by their first launch, which may wait for the device.
    read(1)
    torch.cuda.synchronize()
    assert read(LONG) == 0


def check_rows_of_a_wider_matrix() -> None:
    """`out=` into some columns of a matrix, whose others stay what they are."""
    host = np.arange(300 * 4, dtype="float32").reshape(4, 300)
    batch = ad.from_arrow(pa.record_batch({f"c{index}": row for index, row in enumerate(host)})).to_device("cuda")
    for width in range(4, 38, 11 if SMOKE else 1):
        for first in {0, 1, width - 4}:
            if first + 4 > width:
                continue
            whole = torch.full((300, width), -1, device="cuda", dtype=torch.float32)
            ad.to_tensor(batch, out=whole[:, first : first + 4])
            torch.cuda.synchronize()
            expected = np.full((300, width), -1, "float32")
            expected[:, first : first + 4] = host.T
            assert np.array_equal(whole.cpu().numpy(), expected), f"4 of {width} columns from {first} on"


def check_page_locked_memory_may_be_changed_after_the_copy() -> None:
    """torch says CUDA_HOST of it, and its capsule says CPU: the copy has read it when the call returns."""
    pinned = torch.full((ROWS,), BEHIND, dtype=torch.float32, pin_memory=True)
    with torch.cuda.stream(PRODUCER), ad.stream(PRODUCER):
        torch.cuda._sleep(LONG)
        copied = ad.from_dlpack(pinned).to_device("cuda")
        pinned.fill_(BEFORE)
    with torch.cuda.stream(CONSUMER):
        assert wrong(torch.from_dlpack(copied)) == 0


def check_a_copy_on_a_stream() -> None:
    def read(cycles: int) -> int:
        tensor = late(cycles=cycles)
        with torch.cuda.stream(PRODUCER):
            ours = ad.from_dlpack(tensor)
        with torch.cuda.stream(CONSUMER):
            capsule = ours.__dlpack__(stream=CONSUMER.cuda_stream, max_version=(1, 0), copy=True)
            copy = torch.utils.dlpack.from_dlpack(capsule)
            assert copy.data_ptr() != tensor.data_ptr()
            assert cycles == 1 or not PRODUCER.query(), ENDED
            return wrong(copy)

    read(1)
    torch.cuda.synchronize()
    assert read(LONG) == 0


def check_to_the_cpu_is_complete_on_return() -> None:
    tensor = late()
    with torch.cuda.stream(PRODUCER):
        ours = ad.from_dlpack(tensor)
    assert not PRODUCER.query(), ENDED
    assert wrong(torch.from_dlpack(ours.to_device("cpu"))) == 0


def left(seconds: float) -> int:
    """Blocks that have not come back within so many seconds."""
    end = time.monotonic() + seconds
    while (blocks := ad.collect()) and time.monotonic() < end:
        time.sleep(0.001)
    return blocks


def the_only_block() -> tuple[Any, Any]:
    """A tensor of the producer, and ours over it, when the allocator has no other block of that size to give."""
    torch.cuda.synchronize()
    left(10)
    torch.cuda.empty_cache()
    with torch.cuda.stream(PRODUCER):
        tensor = torch.full((ROWS,), BEHIND, device="cuda", dtype=torch.float32)
        ours = ad.from_dlpack(tensor)
    return tensor, ours


def reused_under_a_reader(named: bool) -> int:
    """Elements that a late reader finds overwritten, in memory that was let go of before it ran."""
    tensor, ours = the_only_block()
    with torch.cuda.stream(CONSUMER):
        read = torch.empty((ROWS,), device="cuda", dtype=torch.float32)
    torch.cuda.synchronize()
    with torch.cuda.stream(CONSUMER):
        lent = torch.from_dlpack(ours)
        torch.cuda._sleep(LONG)
        read.copy_(lent)
    if named:
        ours.record_stream(CONSUMER.cuda_stream)
    address = tensor.data_ptr()
    del lent, ours, tensor
    # Unless a reader is named, a release is behind no more than the work of the legacy default stream.
    torch.cuda.default_stream().synchronize()
    ad.collect()
    with torch.cuda.stream(PRODUCER):
        # The allocator gives the same memory at once, if it is free.
        again = torch.full((ROWS,), 9, device="cuda", dtype=torch.float32)
    assert named or again.data_ptr() == address, "the memory did not come back while the reader was late"
    torch.cuda.synchronize()
    found = wrong(read)
    del again
    return found


def check_released_memory_is_not_reused_under_a_reader() -> None:
    reused_under_a_reader(True)
    # The streams of torch do not wait for the default one: without its name nobody knows of the reader.
    expect_order(reused_under_a_reader(False), reused_under_a_reader(True), ROWS)


def reused_in_a_capture(captured: Any, named: bool) -> int:
    """As `reused_under_a_reader`, for memory that is let go of in a capture. The reader is no part of the graph."""
    tensor, ours = the_only_block()
    with torch.cuda.stream(CONSUMER):
        read, filled = (torch.empty((ROWS,), device="cuda", dtype=torch.float32) for _ in range(2))
    with torch.cuda.stream(captured):
        # What a capture allocates to begin is then in a segment that is there.
        small = torch.zeros((1,), device="cuda", dtype=torch.float32)
    torch.cuda.synchronize()
    with torch.cuda.stream(CONSUMER):
        lent = torch.from_dlpack(ours)
        if named:
            # Before the reader, so that its end is known at the release at the earliest.
            ours.record_stream(CONSUMER.cuda_stream)
        torch.cuda._sleep(LONG)
        read.copy_(lent)
    address, graph = tensor.data_ptr(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(captured):
        # Unlike `torch.cuda.graph`, this does not wait for the reader. In this mode an unsafe call of ours breaks it.
        graph.capture_begin(capture_error_mode="global")
        filled.fill_(BEHIND)
        del lent, ours, tensor
        kept = left(0.02 if named else 10)
        with torch.cuda.stream(PRODUCER):
            again = torch.full((ROWS,), 9, device="cuda", dtype=torch.float32)
        graph.capture_end()
    assert kept == named, "the memory has to come back in the capture, unless a reader is named"
    assert named or again.data_ptr() == address, "the memory did not come back while the reader was late"
    torch.cuda.synchronize()
    assert left(10) == 0, "the memory does not come back after the capture"
    graph.replay()
    torch.cuda.synchronize()
    assert wrong(filled) == 0, "the capture was broken"
    found = wrong(read)
    del again, small
    return found


def check_memory_let_go_of_in_a_capture_is_not_reused_under_a_reader_before_it() -> None:
    for captured in (CONSUMER, torch.cuda.Stream()):
        reused_in_a_capture(captured, True)
        expect_order(reused_in_a_capture(captured, False), reused_in_a_capture(captured, True), ROWS)


def check_memory_does_not_grow() -> None:
    column = ad.to_arrow(ad.from_dlpack(torch.arange(1000, device="cuda")))
    torch.cuda.synchronize()
    before = (0, 0)
    for turn in range(TURNS):
        back = ad.to_arrow(ad.from_dlpack(torch.from_dlpack(ad.to_tensor(column))))
        if turn == TURNS // 100:
            torch.cuda.synchronize()
            before = (torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated())
    del back
    torch.cuda.synchronize()
    lost = before[0] - torch.cuda.mem_get_info()[0]
    record.figure(f"device memory lost by {TURNS - TURNS // 100} round trips, in bytes", lost)
    assert lost <= 1 << 20
    assert torch.cuda.memory_allocated() <= before[1]


def check_a_captured_stream_waits_for_nothing_outside() -> None:
    done = torch.full((ROWS,), BEHIND, device="cuda", dtype=torch.float32)
    unfinished = late(cycles=1)
    torch.cuda.synchronize()
    ours = ad.from_dlpack(done)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    refused = False
    # Which synchronises the device first, so that what is not finished has to start inside.
    with torch.cuda.graph(graph, stream=stream):
        with torch.cuda.stream(PRODUCER):
            torch.cuda._sleep(LONG)
            unfinished.fill_(BEHIND)
            theirs = ad.from_dlpack(unfinished)
        try:
            theirs.__dlpack__(stream=stream.cuda_stream, max_version=(1, 0))
        except BufferError as error:
            refused = "captur" in str(error)
        taken = torch.utils.dlpack.from_dlpack(ours.__dlpack__(stream=stream.cuda_stream, max_version=(1, 0)))
        total = taken.sum()
    assert refused, "a wait for work outside the graph was put into it"
    graph.replay()
    torch.cuda.synchronize()
    assert total.item() == BEHIND * ROWS


if "expandable_segments:True" in os.environ.get("PYTORCH_ALLOC_CONF", ""):

    def check_segments_grow() -> None:
        """Else this section tested the memory that `torch` has tested."""
        assert any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())


sys.exit(record.run(globals()))
