"""Small batches to row-major float32 matrices, whole calls: what is not copying becomes visible."""

from __future__ import annotations

import floors
import matrices
import measure
import numpy as np
from measure import Bench
from sources import source

COLUMNS = 16
# Rows, and the ratio to reach.
SIZES: dict[int, float | None] = {1_024: 2.0, 65_536: None}


def run(bench: Bench) -> None:
    """One table."""
    title = f"A small batch of {COLUMNS} float32 columns; whole calls"
    table = bench.table(
        "small", title, against="a warm single-thread memcpy of the output", label=f"{COLUMNS} float32 columns"
    )
    for rows, target in SIZES.items():
        made = source("float32", bench.rows(rows, 64), COLUMNS)
        out = np.zeros_like(made.matrix)
        routes = [matrices.packed(made, out, target), matrices.packed_fresh(made), *matrices.others(made, out)]
        yardstick = floors.memcpy(out, made.matrix)
        table.case(f"{rows:,} rows", yardstick, routes, expected=made.matrix, nbytes=out.nbytes)


if __name__ == "__main__":
    measure.main("small", run)
