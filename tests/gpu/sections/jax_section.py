"""JAX: an array each way, and memory that JAX still reads when its array and ours are gone."""

from __future__ import annotations

import os
import sys
from typing import Any

from record import SMOKE, Record

# JAX takes most of the device's memory otherwise.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
ROWS = 1 << (10 if SMOKE else 24)
TURNS = 3 if SMOKE else 50

record = Record()
ad: Any = record.need("arrow_dlpack")
np: Any = record.need("numpy")
pa: Any = record.need("pyarrow")
jnp: Any = record.need("jax.numpy", lambda numpy: numpy.zeros(1).block_until_ready())


def check_both_ways() -> None:
    array = jnp.arange(1000, dtype=jnp.float32)
    ours = ad.from_dlpack(array)
    assert ours.device.type == 2, f"JAX runs on {ours.device}"
    assert bool((jnp.from_dlpack(ours) == array).all())


def dropped_early(ones: Any, twos: Any) -> float:
    """What JAX finds in a column that nobody else keeps, while the same memory may go to the next one."""
    ours = ad.to_tensor(ad.from_arrow(ones).to_device("cuda"))
    taken = jnp.from_dlpack(ours)
    del ours
    result = taken
    for _ in range(TURNS):
        result = result * 1.0
    total = (result + taken).sum()
    del taken, result
    # Blocks that are free are used for it at once.
    after = [ad.from_arrow(twos).to_device("cuda") for _ in range(3)]
    found = float(total)
    del after
    return found


def check_a_reader_that_is_dropped_early() -> None:
    ones, twos = (pa.array(np.full(ROWS, value, "float32")) for value in (1, 2))
    for _ in range(5):
        assert dropped_early(ones, twos) == 2 * ROWS


sys.exit(record.run(globals()))
