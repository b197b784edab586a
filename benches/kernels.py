"""Packing and gathering next to the kernels that bound them, by the processor time of one thread.

The floor of packing is a kernel in C (floor.c) without types, nulls, chunks or Python: it transposes 16 x 16 values in
registers and writes them past the cache. Processor time leaves out what else the machine does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import floors
import measure
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from measure import Bench, Pace, Route, Table
from sources import SEED, plain

TILES = "the floor kernel in C"
PACE = Pace(rounds=21, own_turns=21, share=2.0)
# Columns, and the ratio to reach, of a million rows.
WIDTHS = {32: 1.05, 64: 1.05, 128: 1.05, 256: 1.05}
# Rows and columns, and the ratio to reach; what takes gigabytes comes last.
SIZES = {(1_000_000, 16): 1.1, (1_000_000, 50): 1.1, (1_000_000, 160): 1.1, (3_000_000, 50): 1.1, (10_000_000, 16): 1.1}


def run(bench: Bench) -> None:
    """Packing, where the processor has the floor's instructions, and gathering."""
    if floors.has_tiles():
        packing(bench)
    codes(bench)


def packing(bench: Bench) -> None:
    title = "float32 columns to a row-major matrix, out="
    table = bench.table("out", f"{title}; 1,000,000 rows", against=TILES, label="kernels, out=")
    table.made["least"] = True
    for columns, target in WIDTHS.items():
        packed(table, f"{columns} columns", bench.rows(1_000_000), columns, target)
    packed(table, "64 columns of NumPy's", bench.rows(1_000_000), 64, None, plain=pa.array)
    table = bench.table("sizes", f"{title}, by size", against=TILES, label="kernels, sizes")
    table.made["least"] = True
    for (rows, columns), target in SIZES.items():
        packed(table, f"{rows:,} x {columns}", bench.rows(rows, rows // 1_000), columns, target)
    table = bench.table("small", f"{title}; whole calls", against=TILES, label="kernels, small")
    table.made["least"] = True
    case = packed(table, "1,024 x 16", bench.rows(1_024), 16, None)
    longer = case["routes"][0]["seconds"] - case["yardstick"]["seconds"]
    bench.facts["longer"] = f"{longer * 1e9:.0f} ns"
    fresh(bench)


def packed(
    table: Table,
    name: str,
    rows: int,
    columns: int,
    target: float | None,
    plain: Callable[[np.ndarray], pa.Array] = plain,
) -> dict[str, object]:
    """One size: ours and the floor, each into memory that was written before, from a multiple of 64 bytes on."""
    import arrow_dlpack as ad

    values, batch = columns_of(rows, columns, plain)
    memory, more = np.zeros((rows * columns + 16) * 2, np.float32), rows * columns + 16
    first = -memory.ctypes.data % 64 // 4
    out = memory[first : first + rows * columns].reshape(rows, columns)
    made = ad.from_arrow(batch)
    floor = Route(
        TILES, lambda: None, by="floor", loop=lambda times: floors.tiles(values, memory[more:].ctypes.data, times)
    )
    ours = on_thread("ad.to_tensor(out=)", lambda: ad.to_tensor(made, out=out, threads=1), target)
    return table.case(name, floor, [ours], expected=np.stack(values, axis=1), nbytes=out.nbytes, pace=PACE)


def fresh(bench: Bench) -> None:
    """Into memory that nobody has touched, page faults and release included."""
    import arrow_dlpack as ad

    rows, columns = bench.rows(1_000_000), 256
    values, batch = columns_of(rows, columns, plain)
    made = ad.from_arrow(batch)

    def into_fresh(times: int) -> float:
        start = time.thread_time()
        for _ in range(times):
            memory = np.empty(rows * columns + 16, np.float32)
            floors.tiles(values, memory.ctypes.data)
            del memory
        return time.thread_time() - start

    title = "float32 columns to a row-major matrix in fresh memory; 1,000,000 rows"
    table = bench.table("fresh", title, against=f"{TILES}, into fresh memory (np.empty)", label="kernels, fresh memory")
    table.made["least"] = True
    ours = on_thread("ad.to_tensor", lambda: ad.to_tensor(made, threads=1), 1.0, before=floors.nothing_kept())
    floor = Route(TILES, lambda: None, by="floor", loop=into_fresh)
    table.case("256 columns", floor, [ours], expected=np.stack(values, axis=1), nbytes=rows * columns * 4, pace=PACE)


def columns_of(
    rows: int, columns: int, plain: Callable[[np.ndarray], pa.Array]
) -> tuple[list[np.ndarray], pa.RecordBatch]:
    """Columns that differ, as arrays and as a batch over the same memory."""
    base = np.random.default_rng(SEED).random(rows, np.float32)
    arrays = [plain(base + np.float32(index)) for index in range(columns)]
    batch = pa.RecordBatch.from_arrays(arrays, [f"c{index}" for index in range(columns)])
    return [array.to_numpy() for array in arrays], batch


def codes(bench: Bench) -> None:
    """The values that the codes of a dictionary stand for."""
    rows = bench.rows(500_000)
    generator = np.random.default_rng(SEED)
    taken, valid = generator.integers(0, 100, rows, np.int32), generator.random(rows) >= 0.1
    title = "500,000 int32 codes of 100 values to the values"
    table = bench.table("codes", title, against="pyarrow take", label="codes")
    table.made["least"] = True
    kinds = {"float64": np.arange(100.0), "float32": np.arange(100, dtype=np.float32), "bool": np.arange(100) % 3 == 0}
    for name, values in kinds.items():
        gathered(table, name, pa.array(taken), pa.array(values), values[taken])
    expected = np.where(valid, kinds["float64"][taken], 0.0)
    nulls = pa.array(taken, mask=~valid)
    gathered(table, "float64, 10% nulls to 0", nulls, pa.array(kinds["float64"]), expected, nulls=0)


def gathered(
    table: Table, name: str, codes: pa.Array, values: pa.Array, expected: np.ndarray, **options: object
) -> None:
    import arrow_dlpack as ad

    column = pa.DictionaryArray.from_arrays(codes, values)
    ours = on_thread("ad.to_tensor", lambda: ad.to_tensor(column, dictionary="values", **options), None)
    take = on_thread("pyarrow take", lambda: pc.take(values, codes), None, by="floor")
    table.case(name, take, [ours], expected=expected, nbytes=expected.nbytes, pace=PACE)


def on_thread(
    name: str,
    call: Callable[[], object],
    target: float | None,
    *,
    by: str = "ours",
    before: Callable[[], object] | None = None,
) -> Route:
    """A route that is timed by the processor time of this thread."""

    def loop(times: int) -> float:
        start = time.thread_time()
        for _ in range(times):
            call()
        return time.thread_time() - start

    return Route(name, call, by=by, loop=loop, target=target, before=before)


if __name__ == "__main__":
    measure.main("kernels", run)
