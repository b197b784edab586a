"""JAX: an array each way, and memory that JAX still reads when its array and ours are gone."""

from __future__ import annotations

import os
import sys
from typing import Any

from bare import Driver
from record import SMOKE, Record

# JAX takes most of the device's memory otherwise.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
ROWS = 1 << (10 if SMOKE else 24)
# About 0.2 s on current devices, in the precision that JAX takes for float32.
SIZE, PRODUCTS = (4, 2) if SMOKE else (4096, 600)
ENDED = "JAX has read the column by now: its work is too short to show anything, or the host waited"

record = Record()
ad: Any = record.need("arrow_dlpack")
np: Any = record.need("numpy")
pa: Any = record.need("pyarrow")
jnp: Any = record.need("jax.numpy", lambda numpy: numpy.zeros(1).block_until_ready(), optional=True)
jax: Any = record.need("jax")


def check_both_ways() -> None:
    array = jnp.arange(1000, dtype=jnp.float32)
    ours = ad.from_dlpack(array)
    assert ours.device.type == 2, f"JAX runs on {ours.device}"
    assert bool((jnp.from_dlpack(ours) == array).all())


# Their results are zeros, so that what follows has to wait for them, and is not changed.
products = jax.jit(lambda matrix: jax.lax.fori_loop(0, PRODUCTS, lambda _, made: made @ made, matrix))
scaled = jax.jit(lambda column, late: column * (1.0 + late[0, 0]))


def taken_by_jax(values: Any) -> tuple[Any, int]:
    """A column as JAX takes it, without a copy, and its address."""
    # JAX asks for a capsule that cannot say that it is read-only: what is read-only would be copied.
    ours = ad.to_tensor(ad.from_arrow(values).to_device("cuda"), legacy="view")
    address = ours.__cuda_array_interface__["data"][0]
    taken = jnp.from_dlpack(ours)
    assert taken.unsafe_buffer_pointer() == address, "a copy was made"
    return taken, address


def read_late(taken: Any, matrix: Any) -> Any:
    """The column, read behind work that JAX's stream has for a while."""
    return scaled(taken, products(matrix))


def dropped_early(ones: Any, twos: Any, matrix: Any) -> float:
    """What JAX finds in a column that nobody else keeps, while the same memory may go to the next one."""
    taken, _ = taken_by_jax(ones)
    result = read_late(taken, matrix)
    del taken
    # Blocks that are free are used for it at once.
    after = [ad.from_arrow(twos).to_device("cuda") for _ in range(3)]
    assert SMOKE or not result.is_ready(), ENDED
    found = float(result.sum())
    del after
    return found


def overwritten(ones: Any, twos: Any, matrix: Any) -> float:
    """What it finds where the memory is used again at once: what a release that is too early looks like."""
    taken, address = taken_by_jax(ones)
    taken.block_until_ready()
    driver = Driver()
    pinned = driver.allocate_pinned(ROWS * 4)
    np.frombuffer(driver.host_bytes(pinned, ROWS * 4), "float32")[:] = twos
    result = read_late(taken, matrix)
    driver.to_device(address, pinned, ROWS * 4)
    driver.synchronize_stream()
    found = float(result.sum())
    driver.free_pinned(pinned)
    del taken
    return found


def check_a_reader_that_is_dropped_early() -> None:
    ones, twos = (pa.array(np.full(ROWS, value, "float32")) for value in (1, 2))
    matrix = jnp.zeros((SIZE, SIZE))
    # So that kernels and memory are there.
    assert float(read_late(taken_by_jax(ones)[0], matrix).sum()) == ROWS
    assert overwritten(ones, twos, matrix) > ROWS, ENDED
    for _ in range(5):
        assert dropped_early(ones, twos, matrix) == ROWS


sys.exit(record.run(globals()))
