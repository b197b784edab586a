"""Round trips with torch on streams that are not the default one, each behind a kernel that takes long.

The data is one value before that kernel and another behind it: whoever does not wait sees the first.
"""

from __future__ import annotations

import sys

import arrow_dlpack as ad
import torch
from record import Record

# About 0.1 s on current devices.
LONG = 200_000_000
ROWS = 1 << 22
BEFORE, BEHIND = 1.0, 2.0


def behind_a_long_kernel(stream: torch.cuda.Stream, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor that has its values when `stream` is done with a long kernel."""
    with torch.cuda.stream(stream):
        tensor = torch.full((ROWS,), BEFORE, device="cuda", dtype=dtype)
        stream.synchronize()
        torch.cuda._sleep(LONG)
        tensor.fill_(BEHIND)
    return tensor


def expect(tensor: torch.Tensor, value: float = BEHIND) -> None:
    """Looks at a tensor in the order of the current stream alone."""
    wrong = int((tensor != value).sum().item())
    assert wrong == 0, f"{wrong} of {tensor.numel()} elements are not {value}"


def two_streams() -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(), torch.cuda.Stream()


def check_the_kernel_is_long_enough_to_show_a_missing_wait() -> None:
    producer, consumer = two_streams()
    tensor = behind_a_long_kernel(producer)
    with torch.cuda.stream(consumer):
        early = int((tensor != BEHIND).sum().item())
    torch.cuda.synchronize()
    assert early > 0, "without a wait the values were there already: the kernel ends too soon for the other checks"


def check_dlpack_in_and_out() -> None:
    producer, consumer = two_streams()
    tensor = behind_a_long_kernel(producer)
    with torch.cuda.stream(producer):
        ours = ad.from_dlpack(tensor)
    assert not ours.copied
    with torch.cuda.stream(consumer):
        back = torch.from_dlpack(ours)
        assert back.data_ptr() == tensor.data_ptr()
        expect(back)


def check_arrow_in_between() -> None:
    producer, consumer = two_streams()
    tensor = behind_a_long_kernel(producer)
    with torch.cuda.stream(producer):
        array = ad.to_arrow(ad.from_dlpack(tensor))
    again = ad.from_arrow(array)
    with torch.cuda.stream(consumer):
        expect(torch.from_dlpack(ad.to_tensor(again)))


def check_a_copy_on_a_stream() -> None:
    producer, consumer = two_streams()
    tensor = behind_a_long_kernel(producer)
    with torch.cuda.stream(producer):
        ours = ad.from_dlpack(tensor)
    with torch.cuda.stream(consumer):
        capsule = ours.__dlpack__(stream=consumer.cuda_stream, max_version=(1, 0), copy=True)
        copy = torch.utils.dlpack.from_dlpack(capsule)
        assert copy.data_ptr() != tensor.data_ptr()
        expect(copy)


def check_to_the_cpu_is_complete_on_return() -> None:
    producer, _ = two_streams()
    tensor = behind_a_long_kernel(producer)
    with torch.cuda.stream(producer):
        ours = ad.from_dlpack(tensor)
    expect(torch.from_dlpack(ours.to_device("cpu")))


def check_bools_and_integers() -> None:
    producer, consumer = two_streams()
    for dtype in (torch.int8, torch.int64, torch.float64, torch.bfloat16):
        tensor = behind_a_long_kernel(producer, dtype)
        with torch.cuda.stream(producer):
            ours = ad.from_dlpack(tensor)
        with torch.cuda.stream(consumer):
            expect(torch.from_dlpack(ours))


def check_released_memory_is_not_reused_under_a_reader() -> None:
    producer, consumer = two_streams()
    for _ in range(20):
        tensor = behind_a_long_kernel(producer)
        with torch.cuda.stream(producer):
            ours = ad.from_dlpack(tensor)
        with torch.cuda.stream(consumer):
            lent = torch.from_dlpack(ours)
            torch.cuda._sleep(LONG // 10)
            read = lent.clone()
            ours.record_stream(consumer.cuda_stream)
        del lent, ours, tensor
        with torch.cuda.stream(producer):
            # The allocator gives the same memory at once, if it is free.
            again = torch.full((ROWS,), 9.0, device="cuda")
        with torch.cuda.stream(consumer):
            expect(read)
        del again


def check_a_captured_stream_waits_for_nothing_outside() -> None:
    producer, _ = two_streams()
    done = torch.full((ROWS,), BEHIND, device="cuda")
    torch.cuda.synchronize()
    ours = ad.from_dlpack(done)
    late = behind_a_long_kernel(producer)
    with torch.cuda.stream(producer):
        unfinished = ad.from_dlpack(late)
    capturing = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    refused = False
    with torch.cuda.graph(graph, stream=capturing):
        torch.utils.dlpack.from_dlpack(ours.__dlpack__(stream=capturing.cuda_stream, max_version=(1, 0)))
        try:
            unfinished.__dlpack__(stream=capturing.cuda_stream, max_version=(1, 0))
        except BufferError:
            refused = True
        (done + 1).sum()
    assert refused
    graph.replay()
    torch.cuda.synchronize()


def check_memory_does_not_grow() -> None:
    column = ad.to_arrow(ad.from_dlpack(torch.arange(1000, device="cuda")))
    torch.cuda.synchronize()
    before = None
    for turn in range(100_000):
        back = ad.to_arrow(ad.from_dlpack(torch.from_dlpack(ad.to_tensor(column))))
        if turn == 1000:
            torch.cuda.synchronize()
            before = torch.cuda.mem_get_info()[0]
    del back
    torch.cuda.synchronize()
    after = torch.cuda.mem_get_info()[0]
    record.figure("device memory lost by 99,000 round trips, in bytes", before - after)
    assert before - after <= 1 << 20


record = Record()
record.note("torch", torch.__version__)
record.checks(globals())
sys.exit(record.finish())
