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
    title = "200,000 strings of 0 to 199 bytes as padded batches of 64; one epoch"
    if peers.find("torch") is None:
        return
    for name, words, order, target in (
        ("in order", "", None, 1 / 10),
        ("shuffled", ", shuffled", np.random.default_rng(3), 1 / 8),
    ):
        made = bench.table(
            "loader-text" if order is None else "loader-text-shuffled",
            title + words,
            against="torch's pad_sequence on views of the strings",
            label="loader",
        )
        by_torch, ours = routes(table, offsets, text, order, target)
        made.case(f"padded text {name}", by_torch, [ours], pace=Pace(turns=5, own_turns=9))


def routes(
    table: pa.Table, offsets: np.ndarray, text: np.ndarray, order: np.random.Generator | None, target: float
) -> tuple[Route, Route]:
    """Views that are padded one batch after the other, and the loader."""
    import torch

    rows = len(table)
    total = int(text.sum())
    options: Any = {} if order is None else {"shuffle_buffer": rows, "seed": 1}
    loader = ad.Loader(table, batch_size=SIZE, columns={"x": ad.padded("text")}, xp=torch, **options)

    def checked(batches: Any) -> Any:
        def check() -> str | None:
            found = [np.asarray(batch) for batch in batches()]
            same = sum(map(len, found)) == rows and sum(int(batch.sum()) for batch in found) == total
            return None if same else "gives other rows"

        return check

    def ours() -> Iterator[Any]:
        return (batch["x"] for batch in loader)

    values = torch.from_numpy(text)

    def padded() -> Iterator[Any]:
        numbers = np.arange(rows) if order is None else order.permutation(rows)
        for start in range(0, rows, SIZE):
            views = [values[offsets[row] : offsets[row + 1]] for row in numbers[start : start + SIZE]]
            yield torch.nn.utils.rnn.pad_sequence(views, batch_first=True)

    return (
        Route("torch pad_sequence", lambda: deque(padded(), maxlen=0), read=None, check=checked(padded)),
        Route("ad.Loader", lambda: deque(ours(), maxlen=0), by="ours", read=None, check=checked(ours), target=target),
    )
