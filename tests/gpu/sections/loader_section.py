"""The loader to a device: right on a GPU, and how fast, against the lower of what packs and what copies."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from record import SMOKE, Record

# Smaller where only the section itself is tried.
SCALE = 100 if SMOKE else 1
ROWS, COLUMNS, BATCH = 1_000_000 // SCALE, 64, 65_536 // SCALE
SMALL_COLUMNS, SMALL_BATCH = 10, 8_192 // SCALE
THREADS = 4
ROUNDS = 15 if SCALE == 1 else 1


record = Record()
ad: Any = record.need("arrow_dlpack")
np: Any = record.need("numpy")
pa: Any = record.need("pyarrow")
torch: Any = record.need("torch", lambda torch: torch.zeros(1, device="cuda").item())


def table(rows: int, columns: int) -> Any:
    random = np.random.default_rng(0)
    return pa.table({f"c{index}": random.standard_normal(rows, dtype="float32") for index in range(columns)})


def medians(*routes: Callable[[], object]) -> list[float]:
    """The median time of each route in seconds, the device's work included; the routes take turns."""
    times: list[list[float]] = [[] for _ in routes]
    for number in range(ROUNDS + 2):
        for index, route in enumerate(routes):
            torch.cuda.synchronize()
            start = time.perf_counter()
            route()
            torch.cuda.synchronize()
            if number >= 2 or ROUNDS == 1:
                times[index].append(time.perf_counter() - start)
    return [statistics.median(series) for series in times]


def check_batches_are_those_of_the_cpu() -> None:
    data = table(50_000 // SCALE, 7)
    keywords = {"batch_size": 4096 // SCALE, "shuffle_buffer": 10_000 // SCALE, "seed": 1}
    for prefetch in (0, 2):
        cpu = [torch.from_dlpack(batch) for batch in ad.Loader(data, **keywords)]
        waits = ad._native._cuda_host_waits()
        device = list(ad.Loader(data, device="cuda", xp=torch, prefetch=prefetch, **keywords))
        assert ad._native._cuda_host_waits() == waits
        assert all(torch.equal(one, two.cpu()) for one, two in zip(cpu, device, strict=True))


def check_held_batches_are_not_overwritten_on_a_stream_of_its_own() -> None:
    data, stream, size = table(400_000 // SCALE, 16), torch.cuda.Stream(), 2048 // SCALE
    cpu = [torch.from_dlpack(batch) for batch in ad.Loader(data, batch_size=size)]
    held = {}
    with torch.cuda.stream(stream), ad.stream(stream):
        for index, batch in enumerate(ad.Loader(data, batch_size=size, device="cuda")):
            batch.record_stream(stream)
            x = torch.from_dlpack(batch)
            for _ in range(20):
                x.mul_(1.0)
            if index % 5 == 0:
                held[index] = x
            del x, batch
    stream.synchronize()
    assert all(torch.equal(cpu[index], x.cpu()) for index, x in held.items())


def check_page_locked_batches() -> None:
    data, size = table(100_000 // SCALE, 5), 999 // SCALE
    for batch, expected in zip(
        ad.Loader(data, batch_size=size, device="cuda_host"), ad.Loader(data, batch_size=size), strict=True
    ):
        assert np.array_equal(np.from_dlpack(batch), np.from_dlpack(expected))


def check_a_loop_that_ends_early() -> None:
    data = table(200_000 // SCALE, 16)
    for _ in range(20):
        for batch in ad.Loader(data, batch_size=1000 // SCALE, device="cuda", xp=torch):
            batch.sum()
            break
    torch.cuda.synchronize()


def figures(name: str, rows: int, columns: int, batch_size: int, target: float | None) -> None:
    data = table(rows, columns)
    nbytes = batch_size * columns * 4

    def loop(device: str) -> Callable[[], object]:
        def run() -> None:
            for _ in ad.Loader(data, batch_size=batch_size, device=device, threads=THREADS, drop_last=True):
                pass

        return run

    pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    on_device = torch.empty(nbytes, dtype=torch.uint8, device="cuda")

    def copies() -> None:
        for _ in range(rows // batch_size):
            on_device.copy_(pinned, non_blocking=True)

    # Packing into page-locked memory, and the same bytes by bare asynchronous copies.
    to_device, packing, copying, on_cpu = medians(loop("cuda"), loop("cuda_host"), copies, loop("cpu"))
    copied = rows // batch_size * nbytes / 1e9
    record.figure(f"loader to the device, {name}, GB/s", round(copied / to_device, 2))
    record.figure(f"pack rate (page-locked), {name}, GB/s", round(copied / packing, 2))
    record.figure(f"pack rate (ordinary memory), {name}, GB/s", round(copied / on_cpu, 2))
    record.figure(f"copy rate, {name}, GB/s", round(copied / copying, 2))
    lower = max(packing, copying)
    record.judge(f"loader to the lower of pack rate and copy rate, {name}", lower / to_device, target)


def measure_large_batches() -> None:
    figures("1e6 x 64 float32, batches of 65,536, 4 threads", ROWS, COLUMNS, BATCH, 0.9)


def measure_small_batches() -> None:
    figures("1e6 x 10 float32, batches of 8,192, 4 threads", ROWS, SMALL_COLUMNS, SMALL_BATCH, None)


sys.exit(record.run(globals()))
