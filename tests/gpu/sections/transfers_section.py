"""Transfers and conversions on a device against bare copies and fills, and against torch: ratios of medians in one
process, the routes taking turns."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import timing
from bare import Driver
from record import SMOKE, Record
from timing import CALLS, Route

ROWS, COLUMNS = (130, 5) if SMOKE else (1_000_000, 64)
FEW_COLUMNS = 4
MANY_ROWS, MANY_COLUMNS = (10, 20) if SMOKE else (1_000, 1_000)
SMALL_ROWS, SMALL_COLUMNS = (20, 10) if SMOKE else (8_192, 10)
BITS = 200 if SMOKE else 1_000_000_000
THREADS = 8

record = Record()
ad: Any = record.need("arrow_dlpack")
np: Any = record.need("numpy")
pa: Any = record.need("pyarrow")
torch: Any = record.need("torch", lambda torch: torch.zeros(1, device="cuda").item())
driver = Driver()


def batch_of(rows: int, columns: int, nulls: bool = False) -> Any:
    """Random float32 columns in ordinary memory; with nulls, one row of ten."""
    random = np.random.default_rng(0)

    def column() -> Any:
        mask = random.random(rows, dtype="float32") < 0.1 if nulls else None
        return pa.array(random.standard_normal(rows, dtype="float32"), mask=mask)

    return ad.from_arrow(pa.record_batch({f"c{index}": column() for index in range(columns)}))


def medians(*routes: Route) -> list[float]:
    return timing.medians(driver, *routes)


def device_medians(*routes: Route) -> list[float]:
    return timing.device_medians(driver, *routes)


def rate(name: str, nbytes: int, seconds: float) -> None:
    record.figure(f"{name}, GB/s", round(nbytes / seconds / 1e9, 2))


class Bare:
    """Memory for bare copies of so many bytes, and the copies."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.device, self.pinned = driver.allocate(nbytes), driver.allocate_pinned(nbytes)

    def up(self) -> None:
        driver.to_device(self.device, self.pinned, self.nbytes)

    def down(self) -> None:
        driver.to_host(self.pinned, self.device, self.nbytes)

    def close(self) -> None:
        driver.free(self.device)
        driver.free_pinned(self.pinned)


def to_the_device(name: str, rows: int, columns: int, judged: bool) -> None:
    """From page-locked and from ordinary memory, against the bare copy and against torch."""
    batch, nbytes = batch_of(rows, columns), rows * columns * 4
    tensors = [torch.from_numpy(np.from_dlpack(batch.column(index)).copy()) for index in range(columns)]
    pinned, bare = batch.to_device("cuda_host"), Bare(nbytes)
    routes: list[Route] = [
        lambda: pinned.to_device("cuda", stream=driver),
        bare.up,
        lambda: batch.to_device("cuda", stream=driver, threads=THREADS),
        lambda: batch.to_device("cuda", stream=driver, threads=1),
        lambda: [tensor.to("cuda") for tensor in tensors],
    ]
    from_pinned, copied, from_pageable, alone, theirs = medians(*routes)
    rate(f"bare cuMemcpyAsync to the device, {name}", nbytes, copied)
    record.judge(f"pinned {name} to the device, to the bare copy", copied / from_pinned, 0.95 if judged else None)
    record.figure(
        f"pageable {name} to the device, {THREADS} threads, to the bare copy", round(copied / from_pageable, 3)
    )
    record.figure(f"pageable {name} to the device, 1 thread, to the bare copy", round(copied / alone, 3))
    record.figure(f"pageable {name}, torch per column, to the bare copy", round(copied / theirs, 3))
    record.figure(f"pageable {name} to the device, 1 thread, to torch per column", round(theirs / alone, 3))
    record.figure(
        f"pageable {name} to the device, {THREADS} threads, to torch per column",
        round(theirs / from_pageable, 3),
    )
    # In time: the longer of a third of torch's and 1.25 of the copy's.
    lower = max(theirs / 3, copied / 0.8)
    record.judge(
        f"pageable {name} to the device, {THREADS} threads, to the lower of 3 x torch and 0.8 x the bare copy",
        lower / from_pageable,
        1.0 if judged else None,
    )
    bare.close()


def measure_large() -> None:
    to_the_device(f"{ROWS} x {COLUMNS} float32", ROWS, COLUMNS, judged=True)


def measure_many_columns() -> None:
    """As they come from the host until all are complete on the device."""
    name, batch = f"{MANY_COLUMNS} columns x {MANY_ROWS} float32", batch_of(MANY_ROWS, MANY_COLUMNS)
    tensors = [torch.from_numpy(np.from_dlpack(batch.column(index)).copy()) for index in range(MANY_COLUMNS)]
    as_batch, as_tensors, theirs = medians(
        lambda: batch.to_device("cuda", stream=driver),
        lambda: ad.to_tensors(batch, device="cuda", xp=torch),
        lambda: [tensor.to("cuda", non_blocking=True) for tensor in tensors],
    )
    record.figure(f"{name} to the device as a batch, us", round(as_batch * 1e6, 1))
    record.figure(f"{name}, torch per column, us", round(theirs * 1e6, 1))
    record.judge(f"{name} as a device batch, torch per column to ours", theirs / as_batch, 10)
    record.judge(f"{name} as torch tensors, torch per column to ours", theirs / as_tensors, 5)


def measure_packing() -> None:
    """To a row-major matrix on the device, against a copy there that reads and writes as many bytes."""
    cases = [(COLUMNS, False, 0.8), (FEW_COLUMNS, False, 0.6), (COLUMNS, True, 0.6)]
    for columns, nulls, target in cases:
        name = f"pack {ROWS} x {columns} float32{', with nulls' if nulls else ''}"
        batch = batch_of(ROWS, columns, nulls).to_device("cuda", stream=driver)
        nbytes = ROWS * columns * 4
        # The bits of validity are read besides.
        read = nbytes + (ROWS * columns // 8 if nulls else 0)
        source, targets = driver.allocate(read), [driver.allocate(read) for _ in range(CALLS)]
        # As each result is memory of its own, so is each copy: else a cache would have them.
        turns = itertools.cycle(targets)

        def pack(batch: Any = batch, nulls: bool = nulls) -> Any:
            return ad.to_tensor(batch, nulls=0 if nulls else "error")

        def copy(source: int = source, turns: Any = turns, nbytes: int = (read + nbytes) // 2) -> None:
            driver.copy(next(turns), source, nbytes)

        with ad.stream(driver):
            packed, copied = device_medians(pack, copy)
            whole, whole_copy = medians(pack, copy)
        rate(f"{name}, bytes read and written", nbytes + read, packed)
        rate(f"{name}, the copy's", nbytes + read, copied)
        record.judge(f"{name}, to the copy within the device", copied / packed, target)
        record.figure(f"{name}, with the host's part, to the copy", round(whole_copy / whole, 3))
        for memory in (source, *targets):
            driver.free(memory)


def measure_unpacking() -> None:
    name = f"bits to bool, {BITS}"
    bits = np.random.default_rng(0).integers(0, 256, -(-BITS // 8), dtype="uint8")
    column = pa.Array.from_buffers(pa.bool_(), BITS, [None, pa.py_buffer(bits)], null_count=0)
    on_device = ad.from_arrow(column).to_device("cuda", stream=driver)
    output = driver.allocate(BITS)
    with ad.stream(driver):
        routes: list[Route] = [lambda: ad.to_tensor(on_device), lambda: driver.fill(output, BITS)]
        unpacked, filled = device_medians(*routes)
        whole, whole_fill = medians(*routes)
    rate(f"{name}, bytes written", BITS, unpacked)
    record.judge(f"{name}, to a memset of the output", filled / unpacked, 0.8)
    record.figure(f"{name}, with the host's part, to a memset", round(whole_fill / whole, 3))
    driver.free(output)


def measure_to_the_host() -> None:
    name, nbytes = f"{ROWS} x {COLUMNS} float32", ROWS * COLUMNS * 4
    batch, bare = batch_of(ROWS, COLUMNS).to_device("cuda", stream=driver), Bare(nbytes)
    ours, copied = medians(lambda: batch.to_device("cuda_host", stream=driver), bare.down)
    rate(f"bare cuMemcpyAsync to the host, {name}", nbytes, copied)
    record.judge(f"{name} to a pinned result, to the bare copy", copied / ours, 0.9)
    bare.close()


def measure_small() -> None:
    to_the_device(f"{SMALL_ROWS} x {SMALL_COLUMNS} float32", SMALL_ROWS, SMALL_COLUMNS, judged=False)


sys.exit(record.run(globals()))
