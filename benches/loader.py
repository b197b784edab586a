"""A table as training batches, one epoch: 1,000,000 rows of 10 float32 columns in batches of 8,192 rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import loader_table
import loader_text
import measure
import numpy as np
import peers
import pyarrow as pa
from measure import Bench, Pace, Route
from sources import Source, source

COLUMNS = 10
# As rows lie in files: chunks that are no multiple of a batch.
CHUNK = 100_000

Batches = Callable[[], Iterable[Any]]


def run(bench: Bench) -> None:
    """Two tables: rows as they come, and shuffled; those of a table in memory, and of padded text."""
    rows, size = bench.rows(1_000_000), bench.rows(8_192, 100)
    made = source("float32", rows, COLUMNS)
    chunk = bench.rows(CHUNK, 130)
    table = pa.Table.from_batches([made.batch.slice(first, chunk) for first in range(0, rows, chunk)])
    yardstick = bare_loop(table, size)
    title = "1,000,000 rows of 10 float32 columns as matrices of 8,192 rows; one epoch"
    pace = Pace(turns=2, own_turns=15)
    in_order = bench.table(
        "loader", title, against=f"a bare loop over the table's batches: {yardstick.name}", label="loader"
    )
    routes = [*ours(table, size, made.matrix), *others(made, table, size)]
    in_order.case("in order", yardstick, routes, pace=pace)
    shuffled = bench.table("loader-shuffled", f"{title}, shuffled", against=in_order.made["against"])
    shuffled.case(
        "shuffled",
        yardstick,
        [*ours_shuffled(table, size, made.matrix), *others_shuffled(made, size)],
        pace=pace,
    )
    loader_table.run(bench)
    loader_text.run(bench)


def bare_loop(table: pa.Table, size: int) -> Route:
    """A view of every column of every batch, and no matrix: what nobody who wants each column can go below."""
    torch = peers.find("torch")
    module = np if torch is None else torch

    def call() -> None:
        for batch in table.to_batches(max_chunksize=size):
            for column in batch.columns:
                module.from_dlpack(column)

    return Route(f"{module.__name__}.from_dlpack of each column", call, by="floor", read=None)


def drained(name: str, batches: Batches, matrix: np.ndarray, *, shuffled: bool = False, **more: Any) -> Route:
    """A route that goes through all batches and keeps none, once it was seen that they are the rows of the matrix."""

    def check() -> str | None:
        # Copies: a batch that is kept is one more buffer.
        rows = np.concatenate([np.asarray(batch).copy() for batch in batches()])
        same = np.array_equal(fingerprints(rows), fingerprints(matrix)) if shuffled else np.array_equal(rows, matrix)
        return None if same else "gives other rows"

    return Route(name, lambda: deque(batches(), maxlen=0), read=None, check=check, **more)


def fingerprints(rows: np.ndarray) -> np.ndarray:
    """A number for each row, in order: the same for the same rows, however they are shuffled."""
    weights = np.random.default_rng(0).integers(1, 2**63, rows.shape[1], np.uint64)
    return np.sort((rows.view(np.uint32) * weights).sum(axis=1))


def ours(table: pa.Table, size: int, matrix: np.ndarray) -> Iterator[Route]:
    import arrow_dlpack as ad

    torch = peers.find("torch")
    module = np if torch is None else torch
    yield drained("ad.Loader", lambda: ad.Loader(table, batch_size=size), matrix, by="ours")
    yield drained(
        f"ad.Loader(xp={module.__name__})",
        lambda: ad.Loader(table, batch_size=size, xp=module),
        matrix,
        by="ours",
        target=2.0,
    )


def ours_shuffled(table: pa.Table, size: int, matrix: np.ndarray) -> Iterator[Route]:
    import arrow_dlpack as ad

    buffered = len(matrix) // 10
    yield drained(
        "ad.Loader(shuffle_buffer=100_000)",
        lambda: ad.Loader(table, batch_size=size, shuffle_buffer=buffered, seed=0),
        matrix,
        shuffled=True,
        by="ours",
    )


def others(made: Source, table: pa.Table, size: int) -> Iterator[Route]:
    """The peers that are here, and what one writes by hand."""
    torch, polars, datasets = peers.find("torch"), peers.find("polars"), peers.find("datasets")

    def by_pyarrow() -> Iterator[np.ndarray]:
        for batch in table.to_batches(max_chunksize=size):
            yield batch.to_tensor().to_numpy()

    def by_numpy() -> Iterator[np.ndarray]:
        for batch in table.to_batches(max_chunksize=size):
            yield np.stack([column.to_numpy() for column in batch.columns], axis=1)

    yield drained("pyarrow to_batches, to_tensor", by_pyarrow, made.matrix)
    yield drained("pyarrow to_batches, np.stack", by_numpy, made.matrix)
    if polars is not None:
        frame = polars.from_arrow(table)
        by_polars = lambda: (part.to_numpy(order="c") for part in frame.iter_slices(size))  # noqa: E731
        yield drained('polars iter_slices, to_numpy(order="c")', by_polars, made.matrix)
    if torch is None:
        return
    data = torch.utils.data
    rows = data.TensorDataset(torch.from_numpy(made.matrix))
    yield drained(
        "torch DataLoader of a matrix, row by row",
        lambda: (batch for (batch,) in data.DataLoader(rows, batch_size=size)),
        made.matrix,
    )
    by_batch = data.BatchSampler(data.SequentialSampler(rows), size, drop_last=False)
    yield drained(
        "torch DataLoader of a matrix, by batches of indices",
        lambda: (batch for (batch,) in data.DataLoader(rows, sampler=by_batch, batch_size=None)),
        made.matrix,
    )
    if datasets is not None:
        held = datasets.Dataset(table).with_format("torch")
        yield drained(
            "HF datasets in torch format, torch.stack",
            lambda: (torch.stack(list(batch.values()), dim=1) for batch in held.iter(size)),
            made.matrix,
        )


def others_shuffled(made: Source, size: int) -> Iterator[Route]:
    """What shuffles all rows in seconds; HF datasets takes close to a minute."""
    torch = peers.find("torch")
    matrix = made.matrix
    generator = np.random.default_rng(0)

    def by_numpy() -> Iterator[np.ndarray]:
        order = generator.permutation(len(matrix))
        for first in range(0, len(order), size):
            yield matrix[order[first : first + size]]

    yield drained("NumPy by hand: rows of a matrix by a permutation", by_numpy, matrix, shuffled=True, by="hand")
    if torch is None:
        return
    data = torch.utils.data
    rows = data.TensorDataset(torch.from_numpy(matrix))
    by_batch = data.BatchSampler(data.RandomSampler(rows), size, drop_last=False)
    yield drained(
        "torch DataLoader of a matrix, by batches of indices",
        lambda: (batch for (batch,) in data.DataLoader(rows, sampler=by_batch, batch_size=None)),
        matrix,
        shuffled=True,
    )


if __name__ == "__main__":
    measure.main("loader", run)
