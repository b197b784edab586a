"""Memory of another process: opened by its handle, read, and written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from bare import Driver
from record import SMOKE, LeftOut, Record

ROWS = 10_000
# As run.py has it, a simulated driver takes longer.
SECONDS = 30 * (3 if SMOKE else 1)
# Of a driver that gives no such handles: in some containers, and on integrated devices.
CODES = ("code 800", "code 801")
# What a process says whose driver refuses the handle.
REFUSED = "left out: "


class Column:
    """float32 elements at an address, written when the driver is idle."""

    def __init__(self, address: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (ROWS,),
            "typestr": "<f4",
            "data": (address, False),
            "strides": None,
            "stream": None,
        }


def double(address: int) -> float:
    """Reads the elements as a column, writes twice each in its place, and returns their sum."""
    import arrow_dlpack as ad
    import numpy as np
    import pyarrow as pa

    column = ad.to_arrow(ad.from_dlpack(Column(address)))
    values = np.from_dlpack(ad.to_tensor(ad.from_arrow(column).to_device("cpu")))
    twice = ad.from_arrow(pa.array(values * 2)).to_device("cuda")
    ad.to_tensor(twice, out=Column(address))
    return float(values.sum(dtype="float64"))


def child(handle: bytes) -> None:
    """In the other process."""
    driver = Driver()
    try:
        address = driver.open_handle(handle)
    except RuntimeError as error:
        print(f"{REFUSED}{error}")
        return
    print(double(address))
    driver.synchronize()
    driver.close_handle(address)


def main() -> int:
    record = Record()
    ad: Any = record.need("arrow_dlpack")
    np: Any = record.need("numpy")
    driver = Driver()
    source, address = driver.allocate_pinned(ROWS * 4), driver.allocate(ROWS * 4)
    elements = np.frombuffer(driver.host_bytes(source, ROWS * 4), "float32")

    def doubled_by(other: Callable[[], float]) -> None:
        elements[:] = np.arange(ROWS)
        driver.to_device(address, source, ROWS * 4)
        driver.synchronize()
        assert other() == ROWS * (ROWS - 1) / 2
        driver.synchronize()
        there = np.from_dlpack(ad.to_tensor(ad.from_dlpack(Column(address)).to_device("cpu")))
        assert np.array_equal(there, 2 * np.arange(ROWS, dtype="float32"))

    def in_another_process() -> float:
        command = [sys.executable, __file__, "--child", handle().hex()]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert ran.returncode == 0, ran.stderr[-1500:]
        if ran.stdout.startswith(REFUSED):
            raise LeftOut(ran.stdout.removeprefix(REFUSED).strip())
        return float(ran.stdout)

    def handle() -> bytes:
        try:
            return driver.handle(address)
        except RuntimeError as error:
            if str(error).endswith(CODES):
                raise LeftOut(str(error)) from error
            raise

    record.check("this process reads and writes", lambda: doubled_by(lambda: double(address)))
    record.check("another process reads and writes", lambda: doubled_by(in_another_process))
    return record.finish()


if sys.argv[1] == "--child":
    child(bytes.fromhex(sys.argv[2]))
else:
    sys.exit(main())
