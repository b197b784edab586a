"""Round trips with CuPy on streams that are not the default one, each behind a kernel that takes long."""

from __future__ import annotations

import sys

import arrow_dlpack as ad
import cupy
from record import Record

ROWS = 1 << 22
BEFORE, BEHIND = 1.0, 2.0
SLEEP = cupy.RawKernel(
    r"""extern "C" __global__ void sleep(long long cycles) {
        long long start = clock64();
        while (clock64() - start < cycles) {}
    }""",
    "sleep",
)


def behind_a_long_kernel(stream: cupy.cuda.Stream) -> cupy.ndarray:
    with stream:
        array = cupy.full(ROWS, BEFORE, dtype=cupy.float32)
        stream.synchronize()
        SLEEP((1,), (1,), (cupy.int64(200_000_000),))
        array.fill(BEHIND)
    return array


def expect(array: cupy.ndarray) -> None:
    wrong = int((array != BEHIND).sum())
    assert wrong == 0, f"{wrong} of {array.size} elements are not {BEHIND}"


def check_dlpack_in_and_out() -> None:
    producer, consumer = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    array = behind_a_long_kernel(producer)
    with producer:
        ours = ad.from_dlpack(array)
    with consumer:
        back = cupy.from_dlpack(ours)
        assert back.data.ptr == array.data.ptr
        expect(back)


def check_the_array_interface() -> None:
    producer, consumer = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    array = behind_a_long_kernel(producer)
    with producer:
        ours = ad.from_dlpack(array)
    with consumer:
        # CuPy waits for the stream that the interface names.
        expect(cupy.asarray(ours))


def check_arrow_in_between() -> None:
    producer, consumer = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    array = behind_a_long_kernel(producer)
    with producer:
        arrow = ad.to_arrow(ad.from_dlpack(array))
    with consumer:
        expect(cupy.from_dlpack(ad.to_tensor(ad.from_arrow(arrow))))


def check_pinned_and_managed_memory() -> None:
    pinned = ad.from_dlpack(cupy.full(ROWS, BEHIND, dtype=cupy.float32))
    assert pinned.device.type == 2
    managed = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    with cupy.cuda.using_allocator(managed.malloc):
        array = cupy.full(ROWS, BEHIND, dtype=cupy.float32)
    ours = ad.from_dlpack(array)
    expect(cupy.from_dlpack(ours))


record = Record()
record.note("cupy", cupy.__version__)
record.checks(globals())
sys.exit(record.finish())
