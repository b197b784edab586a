"""Text as padded batches, one epoch: 200,000 strings, 64 a batch, from the loader and by pad_sequence on views."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import arrow_dlpack as ad
import numpy as np
import peers
import pyarrow as pa
from measure import Bench, Pace, Route

SIZE = 64


def run(bench: Bench) -> None:
    """Two tables: rows as they come, and all shuffled."""
    rows = bench.rows(200_000)
    lengths = np.random.default_rng(1).integers(0, 200, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    text = np.random.default_rng(2).integers(97, 123, offsets[-1], np.uint8)
    strings = pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    table = pa.table({"text": strings})
    yardstick = bare_loop(table)
    title = "200,000 strings of 0 to 199 bytes as padded batches of 64; one epoch"
    for name, words, order in (("in order", "", None), ("shuffled", ", shuffled", np.random.default_rng(3))):
        made = bench.table(
            "loader-text" if order is None else "loader-text-shuffled",
            title + words,
            against=f"a bare loop over the table's batches: {yardstick.name}",
        )
        made.case(name, yardstick, list(routes(table, offsets, text, order)), pace=Pace(turns=2, own_turns=5))


def bare_loop(table: pa.Table) -> Route:
    """A slice of the column for each batch, and no matrix."""

    def call() -> None:
        for batch in table.to_batches(max_chunksize=SIZE):
            batch.column(0)

    return Route("to_batches", call, by="floor", read=None)


def routes(
    table: pa.Table, offsets: np.ndarray, text: np.ndarray, order: np.random.Generator | None
) -> Iterator[Route]:
    """The loader, and views that are padded one batch after the other."""
    rows = len(table)
    total = int(text.sum())
    torch = peers.find("torch")
    options: Any = {} if order is None else {"shuffle_buffer": rows, "seed": 1}
    loader = ad.Loader(
        table, batch_size=SIZE, columns={"x": ad.padded("text")}, xp=np if torch is None else torch, **options
    )

    def checked(batches: Any) -> Any:
        def check() -> str | None:
            found = [np.asarray(batch) for batch in batches()]
            same = sum(map(len, found)) == rows and sum(int(batch.sum()) for batch in found) == total
            return None if same else "gives other rows"

        return check

    def ours() -> Iterator[Any]:
        return (batch["x"] for batch in loader)

    yield Route("arrow-dlpack Loader", lambda: deque(ours(), maxlen=0), by="ours", read=None, check=checked(ours))
    if torch is None:
        return
    values = torch.from_numpy(text)

    def padded() -> Iterator[Any]:
        numbers = np.arange(rows) if order is None else order.permutation(rows)
        for start in range(0, rows, SIZE):
            views = [values[offsets[row] : offsets[row + 1]] for row in numbers[start : start + SIZE]]
            yield torch.nn.utils.rnn.pad_sequence(views, batch_first=True)

    yield Route("torch pad_sequence", lambda: deque(padded(), maxlen=0), read=None, check=checked(padded))
