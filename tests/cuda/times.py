"""How long does what take on the virtual clock of the simulated driver? Writes docs/cuda-times.md, for both machines.

Needs `make simulated-cuda` and the installed package. Each machine's figures are made in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
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


def figures() -> dict[str, str]:
    """The rows of this process's machine."""
    sys.path[:0] = [str(TESTS / "cuda"), str(TESTS)]
    import arrow_dlpack as ad
    import clock
    import driver
    import fakes
    import numpy as np
    import pyarrow as pa
    from device_arrow import DeviceArray

    def timed(run: object) -> int:
        start = clock.now()
        kept = run()
        driver.synchronize()
        took = clock.now() - start
        del kept
        return took

    found: dict[str, str] = {}
    view, first, second = (DeviceArray(pa.array([1.5, 2.5])).give() for _ in range(3))
    driver.synchronize()
    found["first view of memory on a device, beyond its context"] = us(timed(lambda: ad.to_tensor(view)))
    found["first conversion by a kernel"] = us(timed(lambda: ad.to_tensor(first, dtype="float32")))
    found["second conversion by a kernel, with its wait"] = us(timed(lambda: ad.to_tensor(second, dtype="float32")))

    pool, stream = fakes.Pool(), driver.Stream()
    address = pool.allocate(16)

    def passes_through() -> None:
        source = fakes.Torch(pool, np.empty(0, "int32"), stream=driver.LEGACY, address=address)
        source.shape = (4,)
        fakes.cupy(ad.from_dlpack(source), stream.handle).release()

    def each(count: int) -> str:
        start = clock.now()
        for _ in range(count):
            passes_through()
        return us((clock.now() - start) / count)

    each(10)
    clock.busy(driver.LEGACY, clock.SECOND)
    found["a tensor in, out and released; the device is 1 s late, the first 1,000"] = each(1000)
    each(8000)
    found["the same, the tenth 1,000"] = each(1000)
    driver.drain()

    data = ad.from_arrow(pa.array(np.zeros(16 * MIB, "float32")))
    there = data.to_device("cuda:0")
    driver.synchronize()
    found["64 MiB of ordinary memory to the device"] = rate(64 * MIB, timed(lambda: data.to_device("cuda:0")))
    found["64 MiB to ordinary memory"] = rate(64 * MIB, timed(lambda: there.to_device("cpu")))
    pinned = data.to_device("cuda_host:0")
    driver.synchronize()
    found["64 MiB of page-locked memory to the device"] = rate(64 * MIB, timed(lambda: pinned.to_device("cuda:0")))

    values = np.arange(1 << 19, dtype="float32")
    table = pa.table({f"c{at}": values for at in range(64)})
    loader = ad.Loader(table, batch_size=8192, device="cuda", prefetch=2)
    start = clock.now()
    for batch in loader:
        del batch
    driver.synchronize()
    took, lasted = clock.now() - start, clock.timeline(start)
    packing, copying = clock.total(lasted, "host copy"), clock.total(lasted, "copy")
    found["`Loader(device=)`, 64 batches of 2 MiB: an epoch"] = us(took)
    found["its packing by one thread, alone"] = us(packing)
    found["its copies, alone"] = us(copying)
    found["the epoch by the slower of both"] = f"{took / max(packing, copying):.2f}"
    assert driver.races() == 0, driver.report()
    assert clock.is_exact(), "a thread computed for long: run it on an idle machine"
    return found


def us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:,.1f} us" if nanoseconds < 1e6 else f"{nanoseconds / 1e6:,.2f} ms"


def rate(count: int, nanoseconds: int) -> str:
    return f"{us(nanoseconds)}, {count / nanoseconds:.1f} GB/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="prints the figures of the machine of this process")
    if parser.parse_args().here:
        print(json.dumps(figures()))
        return
    columns = []
    for machine in MACHINES:
        with tempfile.TemporaryDirectory() as folder:
            variables = environment(f"{CLOCK} on {machine}", Path(folder) / "log", None)
            command = [sys.executable, __file__, "--here"]
            made = subprocess.run(
                command, cwd=ROOT, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE
            )
        columns.append(json.loads(made.stdout))
    rows = [f"| {row} | {' | '.join(column[row] for column in columns)} |" for row in columns[0]]
    table = "\n".join([f"| | {' | '.join(MACHINES)} |", f"|---|{'---|' * len(MACHINES)}", *rows])
    PAGE.write_text(f"{HEAD}{table}\n\nOne thread of the host copies and packs.\n")


if __name__ == "__main__":
    main()
