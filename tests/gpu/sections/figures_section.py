"""Figures on a GPU: ratios of medians in one process, interleaved."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from record import SMOKE, Record

ROUNDS, CALLS = (2, 3) if SMOKE else (200, 500)


def medians(*routes: Callable[[], object]) -> list[float]:
    """The median time of a call of each route, in nanoseconds; the routes take turns."""
    times: list[list[float]] = [[] for _ in routes]
    for route in routes:
        for _ in range(CALLS):
            route()
    for _ in range(ROUNDS):
        for index, route in enumerate(routes):
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                route()
            times[index].append((time.perf_counter_ns() - start) / CALLS)
    return [statistics.median(series) for series in times]


record = Record()
ad: Any = record.need("arrow_dlpack")
torch: Any = record.need("torch", lambda torch: torch.zeros(1, device="cuda").item())
theirs = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
torch.cuda.synchronize()
ours = ad.from_dlpack(theirs)
column = ad.to_arrow(ours)


def measure_tensors_of_a_column() -> None:
    to_itself, from_ours = medians(lambda: torch.from_dlpack(theirs), lambda: torch.from_dlpack(ours))
    record.figure("torch.from_dlpack of a torch tensor, ns", round(to_itself))
    record.figure("torch.from_dlpack of a device column's tensor, ns", round(from_ours))
    # At most 1.05 times as long.
    record.judge("torch.from_dlpack, torch's own to ours", to_itself / from_ours, round(1 / 1.05, 3))


def measure_whole_ways() -> None:
    whole, itself = medians(lambda: torch.from_dlpack(ad.to_tensor(column)), lambda: torch.from_dlpack(theirs))
    record.figure("device column to torch, with to_tensor, to torch's own", round(whole / itself, 3))
    taken, itself = medians(lambda: ad.from_dlpack(theirs), lambda: torch.from_dlpack(theirs))
    record.figure("torch tensor to ours, to torch's own", round(taken / itself, 3))


sys.exit(record.run(globals()))
