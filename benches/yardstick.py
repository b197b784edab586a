"""What the yardstick is: the C library's memcpy next to every other way to copy, and proof that one thread does it."""

from __future__ import annotations

import ctypes
import time

import floors
import measure
import numpy as np
from measure import Bench, Pace, Route

SIZES = {"64 KiB": 65_536, "16 MB": 16_000_000, "64 MB": 64_000_000, "256 MB": 256_000_000, "1 GB": 1_024_000_000}


def run(bench: Bench) -> None:
    """One table, and a fact."""
    table = bench.table("yardstick", "Copies of so many bytes", against="memcpy, timed in C")
    for name, nbytes in SIZES.items():
        out, source = np.zeros(bench.rows(nbytes, 4096), np.uint8), np.ones(bench.rows(nbytes, 4096), np.uint8)
        yardstick = floors.memcpy(out, source)
        to, by, size = out.ctypes.data, source.ctypes.data, out.nbytes
        routes = [
            copier("np.copyto", lambda out=out, source=source: np.copyto(out, source)),
            copier("ctypes.memmove", lambda to=to, by=by, size=size: ctypes.memmove(to, by, size)),
            floors.memcpy_past_cache(out, source),
            floors.memset(out),
            floors.fresh_memcpy(source),
            floors.small_pages_memcpy(source),
        ]
        table.case(name, yardstick, routes, nbytes=out.nbytes, pace=Pace(rounds=15, share=0.3))
    bench.facts["threads"] = f"{threads_at_work(yardstick):.2f}"


def copier(name: str, call: object) -> Route:
    return Route(name, call, by="floor", read=None)


def threads_at_work(yardstick: Route) -> float:
    """The processor time of all threads by that of this one, over five copies: 1 where no other thread works."""
    process, thread = time.process_time(), time.thread_time()
    measure.seconds(yardstick, 5)
    return (time.process_time() - process) / (time.thread_time() - thread)


if __name__ == "__main__":
    measure.main("yardstick", run)
