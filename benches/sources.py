"""The data that is converted: record batches in memory of pyarrow's pool, as its readers leave them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SEED = 20_261_121


@dataclass(frozen=True)
class Source:
    """A record batch, and the row-major float32 matrix that it has to become."""

    kind: str
    batch: pa.RecordBatch
    matrix: np.ndarray

    @property
    def names(self) -> list[str]:
        return self.batch.schema.names


def source(kind: str, rows: int, columns: int) -> Source:
    """Random columns: "float32", "mixed" (int32 and float64 in turns), "nulls" (float32, 10% nulls), or "bool"."""
    generator = np.random.default_rng(SEED)
    matrix = np.empty((rows, columns), np.float32)
    arrays = []
    for index in range(columns):
        array, values = column(kind, index, rows, generator)
        arrays.append(array)
        matrix[:, index] = values
    return Source(kind, pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(columns)]), matrix)


def column(kind: str, index: int, rows: int, generator: np.random.Generator) -> tuple[pa.Array, np.ndarray]:
    """A column, and what it is as floats."""
    if kind == "bool":
        values = generator.random(rows, np.float32) < 0.5
        return pa.Array.from_buffers(pa.bool_(), rows, [None, bits(values)]), values
    if kind == "mixed" and index % 2 == 0:
        values = generator.integers(-1_000_000, 1_000_000, rows, np.int32)
        return plain(values), values
    values = generator.random(rows, np.float32)
    if kind == "mixed":
        values = values.astype(np.float64)
    if kind != "nulls":
        return plain(values), values
    valid = generator.random(rows, np.float32) >= 0.1
    array = pa.Array.from_buffers(pa.float32(), rows, [bits(valid), pooled(values)])
    return array, np.where(valid, values, np.float32(np.nan))


def plain(values: np.ndarray) -> pa.Array:
    """A column without nulls."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pooled(values)])


def bits(values: np.ndarray) -> pa.Buffer:
    """Booleans as Arrow's bitmap."""
    return pooled(np.packbits(values, bitorder="little"))


def pooled(values: np.ndarray) -> pa.Buffer:
    """A copy in memory of pyarrow's pool, where Arrow data comes from."""
    buffer = pa.allocate_buffer(values.nbytes)
    np.frombuffer(buffer, values.dtype)[:] = values
    return buffer
