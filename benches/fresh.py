"""Packing into memory that nobody has touched: against a memcpy into such memory, page faults and release included."""

from __future__ import annotations

import floors
import matrices
import measure
import pack
from measure import Bench, Pace
from sources import source

WIDTHS = {"float32": (4, 16, 64, 256), "mixed": (64,), "nulls": (64,), "bool": (64,)}


def run(bench: Bench) -> None:
    """One table: a route for each kind."""
    floors.always_fresh()
    rows = bench.rows(1_000_000)
    title = "Row-major float32 matrices in fresh memory; 1,000,000 rows"
    table = bench.table(
        "fresh", title, against="memcpy into fresh memory (np.empty, which asks for huge pages)", label="fresh memory"
    )
    for columns in (4, 16, 64, 256):
        # One after the other: together they would not fit into memory.
        for kind in (kind for kind, widths in WIDTHS.items() if columns in widths):
            made = source(kind, rows, columns)
            name, _ = pack.KINDS[kind]
            routes = [
                matrices.packed_fresh(made, "ad.to_tensor", target=1.0, before=floors.nothing_kept()),
                matrices.packed_fresh(made, "ad.to_tensor, in the memory of the result before"),
                floors.small_pages_memcpy(made.matrix),
            ]
            # What is allocated anew each time varies more.
            table.case(
                f"{columns} {name.partition(',')[0]}",
                floors.fresh_memcpy(made.matrix),
                routes,
                expected=made.matrix,
                nbytes=made.matrix.nbytes,
                pace=Pace(share=2.0),
            )


if __name__ == "__main__":
    measure.main("fresh", run)
