"""Rows in parts, which the tests of sources share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 40
TABLE = pa.table({"i": pa.array(range(ROWS), pa.int64()), "f": pa.array([row / 4 for row in range(ROWS)])})
EXPECTED = [[float(row), row / 4] for row in range(ROWS)]
LISTS = pa.table({"l": [[row] * (row % 3) for row in range(ROWS)]})


def batches() -> list[pa.RecordBatch]:
    return TABLE.to_batches(max_chunksize=7)


def generated() -> Iterator[pa.RecordBatch]:
    yield from batches()


class Iterable:
    """Gives a fresh iterator each time."""

    def __init__(self, items: Callable[[], Iterator[Any]]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return self.items()


def values(tensor: Any) -> list[Any]:
    return np.from_dlpack(tensor).tolist()
