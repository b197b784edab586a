"""Round trips with CuPy on streams that are not the default one, each behind a kernel that takes long.

As with torch, each check reads without a wait too, which has to show the values from before that kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from record import SMOKE, Record, Unordered, expect_order

record = Record()
ad: Any = record.need("arrow_dlpack")
cupy: Any = record.need("cupy", lambda cupy: cupy.zeros(1).get())
np: Any = record.need("numpy")

LONG = 400_000_000
ROWS = 1 << (10 if SMOKE else 22)
BEFORE, BEHIND = 1, 2
SLEEP = cupy.RawKernel(
    r"""extern "C" __global__ void sleep(long long cycles) {
        long long start = clock64();
        while (clock64() - start < cycles) {}
    }""",
    "sleep",
)
PRODUCER, CONSUMER = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))


def late(cycles: int = LONG, allocate: Callable[[], Any] | None = None) -> Any:
    """An array that has its values when the producer's stream is done with a long kernel."""
    with PRODUCER:
        array = cupy.empty(ROWS, dtype=cupy.float32) if allocate is None else allocate()
        array.fill(BEFORE)
        PRODUCER.synchronize()
        SLEEP((1,), (1,), (np.int64(cycles),))
        array.fill(BEHIND)
    return array


def wrong(array: Any) -> int:
    """Elements without their values, found in the order of the current stream alone."""
    return int((array != BEHIND).sum())


def ordered(route: Callable[[Any], Any], read: Callable[[Any], Any], read_unordered: Callable[[Any], Any]) -> None:
    """What `route`, called on the producer's stream, makes of a late array is read on the consumer's."""

    def both(cycles: int) -> tuple[int, int]:
        array = late(cycles)
        with PRODUCER:
            ours = route(array)
        with CONSUMER:
            back = read_unordered(ours)
            assert back.data.ptr == array.data.ptr, "a copy was made"
            return wrong(back), wrong(read(ours))

    # Its kernels are compiled when they are first used, which takes longer than the long one.
    both(1)
    cupy.cuda.Device().synchronize()
    expect_order(*both(LONG), ROWS)


def check_dlpack_in_and_out() -> None:
    ordered(ad.from_dlpack, cupy.from_dlpack, lambda ours: cupy.from_dlpack(Unordered(ours)))


def check_arrow_in_between() -> None:
    def route(array: Any) -> Any:
        return ad.to_tensor(ad.from_arrow(ad.to_arrow(ad.from_dlpack(array))))

    ordered(route, cupy.from_dlpack, lambda ours: cupy.from_dlpack(Unordered(ours)))


class WithoutStream:
    """What the CUDA array interface says of a tensor, but for the stream."""

    def __init__(self, ours: Any) -> None:
        self.ours = ours
        self.__cuda_array_interface__ = {**ours.__cuda_array_interface__, "stream": None}


def check_the_array_interface() -> None:
    # CuPy waits for the stream that the interface names.
    ordered(ad.from_dlpack, cupy.asarray, lambda ours: cupy.asarray(WithoutStream(ours)))


def check_managed_memory() -> None:
    pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)

    def allocate() -> Any:
        with cupy.cuda.using_allocator(pool.malloc):
            return cupy.empty(ROWS, dtype=cupy.float32)

    array = late(allocate=allocate)
    with PRODUCER:
        ours = ad.from_dlpack(array)
    record.note("type of the device of managed memory", ours.device.type)
    # The host reads it where it is, and waits for that.
    assert (np.from_dlpack(ours) == BEHIND).all()
    with CONSUMER:
        assert wrong(cupy.from_dlpack(ours)) == 0


sys.exit(record.run(globals()))
