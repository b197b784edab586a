"""JAX and Numba, where they are installed: an array each way."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from record import Record

record = Record()
ad: Any = record.need("arrow_dlpack")
# JAX takes most of the device's memory otherwise.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def jax_both_ways() -> None:
    import jax
    import jax.numpy as jnp

    record.note("jax", jax.__version__)
    array = jnp.arange(1000, dtype=jnp.float32)
    ours = ad.from_dlpack(array)
    assert ours.device.type == 2, f"JAX runs on {ours.device}"
    assert (jnp.from_dlpack(ours) == array).all()


def numba_both_ways() -> None:
    import numba
    import numpy as np
    from numba import cuda

    record.note("numba", numba.__version__)
    array = cuda.to_device(np.arange(1000, dtype=np.float32))
    ours = ad.from_dlpack(array)
    assert (cuda.as_cuda_array(ours).copy_to_host() == np.arange(1000)).all()


def check(name: str, library: str, test: Callable[[], None]) -> None:
    try:
        __import__(library)
    except ImportError:
        record.note(library, "not installed")
        return
    record.check(name, test)


check("jax both ways", "jax", jax_both_ways)
check("numba both ways", "numba", numba_both_ways)
sys.exit(record.finish())
