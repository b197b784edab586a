"""Memory that went through the package thousands of times has as many owners, which end one after the other."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Makes a value of the value before.
ROUND_TRIPS = {
    "arrays": ("ad.to_tensor(pa.array(range(10)))", "ad.to_tensor(ad.to_arrow(x))"),
    "numpy": ("np.arange(10)", "np.asarray(ad.to_tensor(ad.to_arrow(x)))"),
    "batches": ("pa.record_batch({'a': [1, 2]})", "pa.record_batch(ad.from_arrow(x))"),
    "ragged": ("ad.to_ragged(pa.array([[1], [2, 3]]))", "ad.to_ragged(ad.from_arrow(x))"),
    "dlpack": ("np.arange(10)", "np.from_dlpack(ad.from_dlpack(x))"),
}
PROGRAM = """
import threading
import arrow_dlpack as ad, numpy as np, pyarrow as pa

def run():
    x = {first}
    for _ in range(4000):
        x = {again}
    del x

threading.stack_size(1 << 20)
thread = threading.Thread(target=run)
thread.start()
thread.join()
print("ended")
"""


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_the_end_of_many_round_trips_needs_no_deep_stack(name: str) -> None:
    first, again = ROUND_TRIPS[name]
    program = PROGRAM.format(first=first, again=again)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout.strip()) == (0, "ended"), ended.stderr
