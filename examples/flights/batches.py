"""How do Arrow record batches become the matrices that a model trains on?

`arrow_dlpack` turns each column into a tensor, by a view where it can. NumPy or torch then wraps the tensors, again
without a copy, and packs slices of them into minibatches. The code is the same for both: `xp` is either library.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import arrow_dlpack as ad
from features import CODES, FLAG, INPUTS, LABEL, NULLS, NUMBERS, TIME, Scale

ROWS = 512
"""Rows in a minibatch."""

_DAY = 86_400_000_000
"""Microseconds in a day."""


def width(scale: Scale) -> int:
    """Columns of the matrices: numbers, categories, the time of day (2), late, plane known."""
    return len(NUMBERS) + sum(scale.categories) + 4


@dataclass
class Packer:
    """Makes minibatches of record batches, and keeps the account of what that took."""

    xp: ModuleType
    scale: Scale
    viewed: int = 0  # bytes that tensors share with the engine
    packed: int = 0  # bytes of the matrices
    seconds: float = 0.0  # spent from record batch to arrays, packing not included
    _tables: list[Any] = field(default_factory=list)  # one row of 0s and a 1 per category
    _mean: Any = None
    _deviation: Any = None

    def __post_init__(self) -> None:
        """Put the scale into arrays of the library."""
        xp = self.xp
        self._tables = [xp.eye(count, dtype=xp.float32) for count in self.scale.categories]
        self._mean = xp.asarray(self.scale.mean, dtype=xp.float32)
        self._deviation = xp.asarray(self.scale.deviation, dtype=xp.float32)

    def minibatches(self, batch: ad.RecordBatch, label: bool = True) -> Iterator[tuple[Any, Any]]:
        """Yield (inputs, label or None) for every `ROWS` rows of a record batch."""
        columns = self._arrays(batch, [*INPUTS, LABEL] if label else INPUTS)
        for start in range(0, batch.num_rows, ROWS):
            part = {name: column[start : start + ROWS] for name, column in columns.items()}
            inputs = self._matrix(part)
            self.packed += inputs.nbytes
            yield inputs, part.get(LABEL)

    def _arrays(self, batch: ad.RecordBatch, names: list[str]) -> dict[str, Any]:
        """Convert the columns of a batch, and the validity of one, to arrays of the library."""
        began = time.perf_counter()
        tensors = ad.to_tensors(batch, columns=names, nulls=NULLS)
        tensors["plane_known"] = ad.validity(batch.column("plane_age"))
        arrays = {name: self.xp.from_dlpack(tensor) for name, tensor in tensors.items()}
        self.seconds += time.perf_counter() - began
        self.viewed += sum(tensor.nbytes for tensor in tensors.values() if not tensor.copied)
        return arrays

    def _matrix(self, part: dict[str, Any]) -> Any:
        """Pack columns side by side: numbers standardised, one column per category, the time of day as a circle."""
        xp = self.xp
        numbers = (xp.stack([part[name] for name in NUMBERS], 1) - self._mean) / self._deviation
        # NaN, where a null was, becomes 0: the average. An extreme value may not dominate a minibatch.
        numbers = xp.nan_to_num(numbers).clip(-5, 5)
        angle = part[TIME] % _DAY * (2 * math.pi / _DAY)
        rest = xp.stack([xp.sin(angle), xp.cos(angle), part[FLAG], part["plane_known"]], 1)
        codes = [table[part[name]] for table, name in zip(self._tables, CODES, strict=True)]
        return xp.concatenate([numbers, *codes, xp.asarray(rest, dtype=xp.float32)], 1)
