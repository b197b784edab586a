"""Record batches to row-major float32 matrices: times a warm memcpy of the output, one thread."""

from __future__ import annotations

import floors
import matrices
import measure
import numpy as np
from measure import Bench, Pace
from sources import source

AGAINST = "a warm single-thread memcpy of the output"

# The kind of columns: its title, and the ratio to reach by the number of columns.
KINDS: dict[str, tuple[str, dict[int, float | None]]] = {
    "float32": ("float32 columns", {4: 1.2, 16: 1.0, 64: 1.0, 256: 1.2}),
    "mixed": ("int32 and float64 columns in turns, cast to float32", {16: None, 64: 1.4}),
    "nulls": ("float32 columns with 10% nulls, which become NaN", {16: None, 64: 1.2}),
    "bool": ("bool columns, whose bits become float32", {16: None, 64: 0.7}),
}


def run(bench: Bench) -> None:
    """Four tables, one for each kind."""
    rows = bench.rows(1_000_000)
    for kind, (title, targets) in KINDS.items():
        table = bench.table(kind, f"{title}; 1,000,000 rows", against=AGAINST, label=f"pack {kind}")
        for columns, target in targets.items():
            case(table, kind, rows, columns, target)


def case(table: measure.Table, kind: str, rows: int, columns: int, target: float | None) -> None:
    """One width of one kind."""
    made = source(kind, rows, columns)
    memory = np.zeros(made.matrix.size + 64 // made.matrix.itemsize, np.float32)
    # NumPy's large arrays start 16 bytes after a page does; other libraries' at a multiple of 64 bytes.
    out, aligned = (memory[first : first + made.matrix.size].reshape(made.matrix.shape) for first in (0, to_64(memory)))
    yardstick = floors.memcpy(out, made.matrix)
    routes = [
        matrices.packed(made, out, target),
        matrices.packed(made, aligned, name="ad.to_tensor(out=), at a multiple of 64 bytes"),
        matrices.packed_fresh(made),
    ]
    floor = [floors.fresh_memcpy(made.matrix), floors.small_pages_memcpy(made.matrix)]
    floor.append(floors.memcpy_past_cache(out, made.matrix))
    if kind == "float32":
        values = [np.frombuffer(one.buffers()[1], np.float32) for one in made.batch.columns]
        floor.append(floors.plain_pack(values, out))
    pace = Pace(share=1.0)
    name = f"{columns} columns"
    table.case(
        name,
        yardstick,
        [*routes, *matrices.others(made, out), *floor],
        expected=made.matrix,
        nbytes=out.nbytes,
        pace=pace,
    )


def to_64(memory: np.ndarray) -> int:
    """The first element at a multiple of 64 bytes."""
    return -memory.ctypes.data % 64 // memory.itemsize


if __name__ == "__main__":
    measure.main("pack", run)
