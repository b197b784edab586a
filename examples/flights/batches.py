"""How does a query become the matrices that a model trains on?

For training, `arrow_dlpack.Loader` reads the engine's stream on a thread of its own, shuffles the rows, and hands out
minibatches of `ROWS` of them: the numbers as a matrix, every other column as an array. To measure, `to_tensors` does
the same to whole record batches, with views where it can. NumPy or torch wraps the tensors without a copy, and puts
the inputs together. The code is the same for both: `xp` is either library.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import arrow_dlpack as ad
from features import CODES, FLAGS, INPUTS, LABEL, NULLS, NUMBERS, TIME, Scale

ROWS = 512
"""Rows in a minibatch."""
SEED = 2013
"""What the order of the rows is drawn from, with the number of the pass."""

_DAY = 86_400_000_000
"""Microseconds in a day."""


def width(scale: Scale) -> int:
    """Columns of the input matrices: numbers, categories, the time of day (2), flags."""
    return len(NUMBERS) + sum(scale.categories) + 2 + len(FLAGS)


@dataclass
class Packer:
    """Makes minibatches, and keeps the account of what that took."""

    xp: ModuleType
    scale: Scale
    viewed: int = 0  # bytes that tensors share with the engine
    packed: int = 0  # bytes of the input matrices, which the library makes
    seconds: float = 0.0  # spent waiting for arrays: for the loader, and for conversions
    _tables: list[Any] = field(default_factory=list)  # one row of 0s and a 1 per category
    _mean: Any = None
    _deviation: Any = None

    def __post_init__(self) -> None:
        """Put the scale into arrays of the library."""
        xp = self.xp
        self._tables = [xp.eye(count, dtype=xp.float32) for count in self.scale.categories]
        self._mean = xp.asarray(self.scale.mean, dtype=xp.float32)
        self._deviation = xp.asarray(self.scale.deviation, dtype=xp.float32)

    def loader(self, source: Any) -> ad.Loader[dict[str, Any]]:
        """Load the training rows, all of them shuffled in each pass."""
        return ad.Loader(
            source,
            batch_size=ROWS,
            columns={**INPUTS, LABEL: LABEL},
            nulls=NULLS,
            shuffle_buffer=self.scale.train_rows,
            seed=SEED,
            xp=self.xp,
        )

    def minibatches(self, loader: ad.Loader[dict[str, Any]]) -> Iterator[tuple[Any, Any]]:
        """Yield (inputs, label) for each minibatch of a pass."""
        batches = iter(loader)
        while True:
            began = time.perf_counter()
            part = next(batches, None)
            self.seconds += time.perf_counter() - began
            if part is None:
                return
            yield self._inputs(part), part[LABEL]

    def parts(self, batch: ad.RecordBatch) -> Iterator[Any]:
        """Yield the inputs of every `ROWS` rows of a record batch."""
        began = time.perf_counter()
        tensors = ad.to_tensors(batch, columns=INPUTS, nulls=NULLS)
        arrays = {name: self.xp.from_dlpack(tensor) for name, tensor in tensors.items()}
        self.seconds += time.perf_counter() - began
        self.viewed += sum(tensor.nbytes for tensor in tensors.values() if not tensor.copied)
        for start in range(0, batch.num_rows, ROWS):
            yield self._inputs({name: array[start : start + ROWS] for name, array in arrays.items()})

    def _inputs(self, part: dict[str, Any]) -> Any:
        """Put the inputs side by side: numbers standardised, one column per category, the time of day as a circle."""
        xp = self.xp
        numbers = (part["numbers"] - self._mean) / self._deviation
        # NaN, where a null was, becomes 0: the average. An extreme value may not dominate a minibatch.
        numbers = xp.nan_to_num(numbers).clip(-5, 5)
        angle = part[TIME] % _DAY * (2 * math.pi / _DAY)
        rest = xp.stack([xp.sin(angle), xp.cos(angle), *(part[name] for name in FLAGS)], 1)
        codes = [table[part[name]] for table, name in zip(self._tables, CODES, strict=True)]
        inputs = xp.concatenate([numbers, *codes, xp.asarray(rest, dtype=xp.float32)], 1)
        self.packed += inputs.nbytes
        return inputs
