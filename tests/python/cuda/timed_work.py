"""What tests and docs/cuda-times.md time on the virtual clock: a tensor that passes through, an epoch of a loader."""

from __future__ import annotations

from typing import NamedTuple

import arrow_dlpack as ad
import clock
import driver
import fakes
import numpy as np
import pyarrow as pa


def table(columns: int, rows: int) -> pa.Table:
    """Columns of float32, each with other values."""
    values = np.arange(rows, dtype="float32")
    return pa.table({f"c{at}": values + at for at in range(columns)})


class PassesThrough:
    """Calls take a tensor of another library in, hand it to a third on a stream of its own, and release it."""

    def __init__(self, pool: fakes.Pool) -> None:
        self.pool, self.stream, self.address = pool, driver.Stream(), pool.allocate(16)

    def __call__(self) -> None:
        source = fakes.Torch(self.pool, np.empty(0, "int32"), stream=driver.LEGACY, address=self.address)
        source.shape = (4,)
        fakes.cupy(ad.from_dlpack(source), self.stream.handle).release()


class Epoch(NamedTuple):
    """How long an epoch took, and how long its packing and its copies would take alone, in nanoseconds."""

    took: int
    packing: int
    copying: int
    lasted: list[clock.Lasted]

    @property
    def slower(self) -> int:
        """The time that the epoch takes if the faster of both is hidden behind the other."""
        return max(self.packing, self.copying)


def epoch(loader: ad.Loader) -> Epoch:
    """Reads a loader to its end, and waits for the device. Its blocks are back before the next one begins: the thread
    that returns them goes by the wall."""
    start = clock.now()
    for batch in loader:
        del batch
    driver.synchronize()
    took, lasted = clock.now() - start, clock.timeline(start)
    assert driver.drain() == 0
    return Epoch(took, clock.total(lasted, "host copy"), clock.total(lasted, "copy"), lasted)
