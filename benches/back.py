"""The way back: row-major float32 matrices to record batches with named columns, in memory that each allocates."""

from __future__ import annotations

from collections.abc import Iterator

import floors
import measure
import numpy as np
import peers
import pyarrow as pa
from measure import Bench, Route
from sources import SEED

# Columns, and the ratio to reach.
WIDTHS = {16: 1.2, 64: 1.2}


def run(bench: Bench) -> None:
    """One table."""
    rows = bench.rows(1_000_000)
    title = "A row-major float32 matrix to a record batch with named columns; 1,000,000 rows"
    table = bench.table(
        "back", title, against="a warm single-thread memcpy of the output", label="matrix to record batch"
    )
    for columns, target in WIDTHS.items():
        matrix = np.random.default_rng(SEED).random((rows, columns), np.float32)
        out = np.zeros_like(matrix)
        routes = [*ours(matrix, target), *others(matrix)]
        floor = [floors.fresh_memcpy(matrix), floors.small_pages_memcpy(matrix), floors.memcpy_past_cache(out, matrix)]
        yardstick = floors.memcpy(out, matrix)
        table.case(f"{columns} columns", yardstick, [*routes, *floor], expected=matrix, nbytes=matrix.nbytes)


def ours(matrix: np.ndarray, target: float) -> Iterator[Route]:
    """In the memory of the batch that was dropped before it, and in memory that is fresh."""
    import arrow_dlpack as ad

    names = names_of(matrix)

    def call() -> ad.RecordBatch:
        return ad.to_arrow(matrix, names=names)

    yield Route("ad.to_arrow(names=)", call, by="ours", read=rows_of, target=target)
    before = floors.nothing_kept()
    yield Route("ad.to_arrow(names=), in fresh memory", call, by="ours", read=rows_of, before=before)


def others(matrix: np.ndarray) -> Iterator[Route]:
    """The peers that are here."""
    names = names_of(matrix)

    def blocked() -> pa.RecordBatch:
        columns = np.empty(matrix.shape[::-1], matrix.dtype)
        block = 4096
        for first in range(0, len(matrix), block):
            columns[:, first : first + block] = matrix[first : first + block].T
        return pa.RecordBatch.from_arrays([pa.array(one) for one in columns], names)

    def one_by_one() -> pa.RecordBatch:
        parts = [pa.array(np.ascontiguousarray(matrix[:, index])) for index in range(len(names))]
        return pa.RecordBatch.from_arrays(parts, names)

    yield Route("NumPy by hand: blocks of rows, pa.array", blocked, by="hand", read=rows_of)
    yield Route("NumPy by hand: np.ascontiguousarray of each column, pa.array", one_by_one, by="hand", read=rows_of)
    torch, polars, pandas, duckdb = (peers.find(name) for name in ("torch", "polars", "pandas", "duckdb"))
    if torch is not None:
        tensor = torch.from_numpy(matrix)

        def by_dlpack() -> pa.RecordBatch:
            parts = [pa.Array.from_dlpack(tensor[:, index].contiguous()) for index in range(len(names))]
            return pa.RecordBatch.from_arrays(parts, names)

        yield Route("pa.Array.from_dlpack of each torch column, contiguous", by_dlpack, read=rows_of)
    if duckdb is not None:
        # duckdb finds it by its name.
        columns = dict(zip(names, matrix.T, strict=True))  # noqa: F841
        scanned = duckdb.sql("FROM columns")
        yield Route("duckdb from a dict of columns", scanned.to_arrow_table, read=rows_of)
    if polars is not None:
        yield Route(
            "polars from_numpy", lambda: polars.from_numpy(matrix, schema=names), read=lambda made: made.to_numpy()
        )
    if polars is not None and torch is not None:
        yield Route(
            "polars from_torch", lambda: polars.from_torch(tensor, schema=names), read=lambda made: made.to_numpy()
        )
    if pandas is not None:
        yield Route(
            "pandas DataFrame, pa.RecordBatch.from_pandas",
            lambda: pa.RecordBatch.from_pandas(pandas.DataFrame(matrix, columns=names)),
            read=rows_of,
        )


def names_of(matrix: np.ndarray) -> list[str]:
    return [f"c{index}" for index in range(matrix.shape[1])]


def rows_of(made: object) -> np.ndarray:
    """The matrix again, of anything that is tabular Arrow data."""
    return np.stack([one.to_numpy() for one in pa.table(made).columns], axis=1)


if __name__ == "__main__":
    measure.main("back", run)
