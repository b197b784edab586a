"""From a million rows of 16 columns to ten million of 160: does the time per byte stay what it is?

All sizes are parts of one source and one output, so that nothing but the size differs.
"""

from __future__ import annotations

from pathlib import Path

import floors
import matrices
import measure
import numpy as np
import pyarrow as pa
from measure import Bench, Pace, Route
from sources import SEED, Source, plain

# Rows and columns, by bytes.
SIZES = [
    (1_000_000, 16),
    (1_000_000, 50),
    (3_000_000, 50),
    (1_000_000, 160),
    (10_000_000, 16),
    (10_000_000, 50),
    (10_000_000, 160),
]
# Peers take seconds, and memory of their own, from here on.
PEERS_UP_TO = 200_000_000
ITEM = 4


def run(bench: Bench) -> None:
    """Two tables: one thread, and two."""
    sizes = [(bench.rows(rows, rows // 10_000), columns) for rows, columns in SIZES]
    fitting = [
        (rows, columns) for rows, columns in sizes if fits(max(rows for rows, _ in sizes), rows * columns, columns)
    ]
    source = whole(max(rows for rows, _ in fitting), max(columns for _, columns in fitting))
    flat = np.zeros(max(rows * columns for rows, columns in fitting), np.float32)
    title = "float32 columns to a row-major matrix, out="
    one = bench.table(
        "scaling", f"{title}, by size", against="a warm single-thread memcpy of the output", label="float32, out="
    )
    for rows, columns in fitting:
        case(one, source, flat, rows, columns)
    one.made["spread"] = {"limit": 1.5, "of": "ad.to_tensor(out=)"}
    one.made["not_measured"] = [label(*size) for size in sizes if size not in fitting]
    two = bench.table("threads", f"{title}, by threads", against=one.made["against"])
    threads(two, source, flat, *max(size for size in fitting if size[1] == 50 and size[0] * 50 <= PEERS_UP_TO))


def case(table: measure.Table, source: pa.RecordBatch, flat: np.ndarray, rows: int, columns: int) -> None:
    """One size."""
    part = part_of(source, rows, columns)
    out = flat[: rows * columns].reshape(rows, columns)
    routes = [matrices.packed(part, out)]
    if rows * columns <= PEERS_UP_TO:
        routes += [*matrices.pyarrow_routes(part), *matrices.polars_routes(part)]
    yardstick = halves(out)
    table.case(
        label(rows, columns), yardstick, routes, expected=part.matrix, nbytes=out.nbytes, pace=Pace(share=1.0, turns=2)
    )


def threads(table: measure.Table, source: pa.RecordBatch, flat: np.ndarray, rows: int, columns: int) -> None:
    """One size, by one thread and by two."""
    import arrow_dlpack as ad

    part = part_of(source, rows, columns)
    out = flat[: rows * columns].reshape(rows, columns)
    batch = ad.from_arrow(part.batch)
    routes = [
        Route(
            f"ad.to_tensor(out=, threads={count})",
            lambda count=count: ad.to_tensor(batch, out=out, threads=count),
            by="ours",
        )
        for count in (1, 2)
    ]
    table.case(label(rows, columns), halves(out), routes, expected=part.matrix, nbytes=out.nbytes)


def whole(rows: int, columns: int) -> pa.RecordBatch:
    """Columns that differ; to draw so many random numbers would take longer than all that is measured."""
    base = np.random.default_rng(SEED).random(rows, np.float32)
    return pa.RecordBatch.from_arrays(
        [plain(base + np.float32(index)) for index in range(columns)], [f"c{index}" for index in range(columns)]
    )


def part_of(source: pa.RecordBatch, rows: int, columns: int) -> Source:
    """The first rows and columns, as views."""
    batch = source.slice(0, rows).select(range(columns))
    return Source("float32", batch, Expected(batch))


class Expected:
    """The matrix as far as it is looked at: all of it would be one more output."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._columns = [column.to_numpy() for column in batch.columns]
        self.shape = (batch.num_rows, batch.num_columns)
        self.size = batch.num_rows * batch.num_columns
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> np.ndarray:
        return np.stack([column[part] for column in self._columns], axis=1)


def halves(out: np.ndarray) -> Route:
    """A memcpy of one half of the output over the other, twice: as many bytes as the output has, and no more memory."""
    half = out.nbytes // 2
    first = out.ctypes.data
    return floors.native("memcpy, warm", lambda times: floors.library().copy(first + half, first, half, 2 * times))


def fits(rows: int, values: int, columns: int) -> bool:
    """Whether the source, with the rows of the longest, and an output of this size fit into what memory is free."""
    available = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("MemAvailable")
    )
    return (rows * columns + values) * ITEM < 0.85 * available


def label(rows: int, columns: int) -> str:
    return f"{rows:,} x {columns}"


if __name__ == "__main__":
    measure.main("scaling", run)
