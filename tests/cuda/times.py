"""How long does what take on the virtual clock of the simulated driver? Writes docs/cuda-times.md, for all machines.

Needs `make simulated-cuda` and the installed package. Each machine's figures are made in processes of their own,
those of the first use without the reaper: its calls would fall into a short figure or not, as the wall has it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from run import CLOCK, MACHINES, ROOT, environment

PAGE = ROOT / "docs/cuda-times.md"
TESTS = ROOT / "tests/python"
MIB = 1 << 20
HEAD = """# CUDA in virtual time

Figures of the simulated driver's virtual clock, and no measurements: they follow from the calls that the package
makes, in which order and on which threads, and from the constants in `tests/simulated-cuda/src/costs.rs`, which were
written down first. They show what overlaps and what grows. `make cuda-times` writes this page;
`tests/python/cuda/test_virtual_time.py` holds the bounds.

"""


def timed(run: Callable[[], object]) -> int:
    """How long a call takes with the work that it starts. What it returns is given back before the next call."""
    import clock
    import driver

    start = clock.now()
    kept = run()
    driver.synchronize()
    took = clock.now() - start
    del kept
    driver.drain()
    return took


def first_use() -> dict[str, str]:
    """The rows of a device's first use. The second conversion takes memory that the first one has given back."""
    import arrow_dlpack as ad
    import driver
    import pyarrow as pa
    from device_arrow import DeviceArray

    found: dict[str, str] = {}
    view, first, second = (DeviceArray(pa.array([1.5, 2.5])).give() for _ in range(3))
    driver.synchronize()
    found["first view of memory on a device, beyond its context"] = us(timed(lambda: ad.to_tensor(view)))
    found["first conversion by a kernel"] = us(timed(lambda: ad.to_tensor(first, dtype="float32")))
    found["second conversion by a kernel, with its wait"] = us(timed(lambda: ad.to_tensor(second, dtype="float32")))
    return found


def in_use() -> dict[str, str]:
    """The rows of a device that is in use."""
    import arrow_dlpack as ad
    import clock
    import driver
    import fakes
    import numpy as np
    import pyarrow as pa
    import timed_work

    found: dict[str, str] = {}
    passes_through = timed_work.PassesThrough(fakes.Pool())

    def each(count: int) -> str:
        start = clock.now()
        for _ in range(count):
            passes_through()
        return us((clock.now() - start) / count)

    each(10)
    # It stays as late: what was done meanwhile takes about another second.
    clock.busy(driver.LEGACY, 2 * clock.SECOND)
    found["a tensor in, out and released; the device is 1 s late, the first 1,000"] = each(1000)
    each(8000)
    found["the same, the tenth 1,000"] = each(1000)
    each(89_000)
    found["the same, the hundredth 1,000"] = each(1000)
    driver.drain()

    data = ad.from_arrow(pa.array(np.zeros(16 * MIB, "float32")))
    there = data.to_device("cuda:0")
    driver.synchronize()
    found["64 MiB of ordinary memory to the device"] = rate(64 * MIB, timed(lambda: data.to_device("cuda:0")))
    found["64 MiB to ordinary memory"] = rate(64 * MIB, timed(lambda: there.to_device("cpu")))
    pinned = data.to_device("cuda_host:0")
    driver.synchronize()
    found["64 MiB of page-locked memory to the device"] = rate(64 * MIB, timed(lambda: pinned.to_device("cuda:0")))

    timed(lambda: there.to_device("cuda_host:0"))
    found["64 MiB to page-locked memory"] = rate(64 * MIB, timed(lambda: there.to_device("cuda_host:0")))

    many = ad.from_arrow(timed_work.table(1000, 100).to_batches()[0])
    found["1,000 columns of 100 float32 to the device"] = us(timed(lambda: many.to_device("cuda:0")))
    moved = many.to_device("cuda:0")
    driver.synchronize()
    found["the same there, as 1,000 tensors"] = us(timed(lambda: ad.to_tensors(moved)))
    bools = ad.from_arrow(pa.array(np.zeros(4 * MIB, bool))).to_device("cuda:0")
    driver.synchronize()
    timed(lambda: ad.to_tensor(bools))
    found["4 Mi bits to bools"] = us(timed(lambda: ad.to_tensor(bools)))

    epoch = timed_work.epoch(ad.Loader(timed_work.table(64, 1 << 19), batch_size=8192, device="cuda", prefetch=2))
    found["`Loader(device=)`, 64 batches of 2 MiB: an epoch"] = us(epoch.took)
    found["its packing by one thread, alone"] = us(epoch.packing)
    found["its copies, alone"] = us(epoch.copying)
    found["the epoch by the slower of both"] = f"{epoch.took / epoch.slower:.2f}"
    return found


PARTS = {"first_use": (first_use, {"ARROW_DLPACK_REAPER": "0"}), "in_use": (in_use, {})}


def figures(part: str) -> dict[str, str]:
    """The rows of a part, on this process's machine."""
    sys.path[:0] = [str(TESTS / "cuda"), str(TESTS)]
    import clock
    import driver

    found = PARTS[part][0]()
    assert driver.races() == 0, driver.report()
    assert clock.is_exact(), "a thread computed for long: run it on an idle machine"
    return found


def us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:,.1f} us" if nanoseconds < 1e6 else f"{nanoseconds / 1e6:,.2f} ms"


def rate(count: int, nanoseconds: int) -> str:
    return f"{us(nanoseconds)}, {count / nanoseconds:.1f} GB/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", choices=PARTS, help="prints the figures of a part, on the machine of this process")
    if part := parser.parse_args().here:
        print(json.dumps(figures(part)))
        return
    columns = []
    for machine in MACHINES:
        column = {}
        for part, (_, added) in PARTS.items():
            with tempfile.TemporaryDirectory() as folder:
                variables = {**environment(f"{CLOCK} on {machine}", Path(folder) / "log", None), **added}
                command = [sys.executable, __file__, "--here", part]
                made = subprocess.run(
                    command, cwd=ROOT, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE
                )
            column |= json.loads(made.stdout)
        columns.append(column)
    rows = [f"| {row} | {' | '.join(column[row] for column in columns)} |" for row in columns[0]]
    table = "\n".join([f"| | {' | '.join(MACHINES)} |", f"|---|{'---|' * len(MACHINES)}", *rows])
    PAGE.write_text(f"{HEAD}{table}\n\nOne thread of the host copies and packs.\n")


if __name__ == "__main__":
    main()
