"""Libraries that need not be there: Numba, an array each way; cuDF, a column to torch and back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from record import Record

# Less than the section may take (run.py), so that its file says what did not end.
SECONDS = 40
CUDF_EXAMPLE = Path(__file__).with_name("cudf_interchange.py")

record = Record()
ad: Any = record.need("arrow_dlpack")


def numba_both_ways() -> None:
    import numba
    import numpy as np
    from numba import cuda

    record.note("numba", numba.__version__)
    array = cuda.to_device(np.arange(1000, dtype=np.float32))
    ours = ad.from_dlpack(array)
    assert (cuda.as_cuda_array(ours).copy_to_host() == np.arange(1000)).all()


def cudf_to_torch_and_back() -> None:
    ran = subprocess.run([sys.executable, CUDF_EXAMPLE], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-1500:]


def check(name: str, library: str, test: Callable[[], None]) -> None:
    try:
        __import__(library)
    except ImportError:
        record.note(library, "not installed")
        return
    record.check(name, test)


check("numba both ways", "numba", numba_both_ways)
check("cuDF to torch and back", "cudf", cudf_to_torch_and_back)
sys.exit(record.finish())
