"""Whether conversions leave memory behind."""

from __future__ import annotations

import gc
import resource
from pathlib import Path

import measure
import numpy as np
import pyarrow as pa
from measure import Bench


def run(bench: Bench) -> None:
    """One fact: how much resident memory grows over a million conversions each way."""
    import arrow_dlpack as ad

    column = pa.array([1.0, None, 3.0])
    array = np.arange(10)

    def convert(times: int) -> None:
        for _ in range(times):
            np.from_dlpack(ad.to_tensor(column, nulls="nan"))
            ad.to_arrow(ad.from_dlpack(array))

    convert(bench.rows(10_000, 10))
    gc.collect()
    before = resident()
    convert(bench.rows(990_000, 990))
    gc.collect()
    bench.facts["growth"] = f"{(resident() - before) / 2**20:+.2f} MiB"


def resident() -> int:
    """Resident memory in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    measure.main("memory", run)
