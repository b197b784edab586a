"""A table in memory as training batches, one epoch, by the loader and by hand; and what options of the loader cost.

1,000,000 rows of 20 columns in batches of 4,096 rows. By hand are slices of a matrix, `matrix[i:j]`, and its rows by a
permutation, `matrix[order[i:j]]`. These loops sum each batch, so that both sides read every value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
from measure import Bench, Pace, Route

COLUMNS = 20
SIZE = 4_096
CHUNK = 100_000
PACE = Pace(turns=9, own_turns=15)


def run(bench: Bench) -> None:
    """Two tables: against a matrix by hand, and with options against the loader without them."""
    rows = bench.rows(1_000_000)
    random = np.random.default_rng(5)
    columns = [random.random(rows, np.float32) for _ in range(COLUMNS)]
    against_matrix(bench, columns)
    options(bench, columns)


def chunked(named: dict[str, Any]) -> pa.Table:
    """A table in chunks, as it lies in files."""
    table = pa.table(named)
    return pa.Table.from_batches(table.to_batches(max_chunksize=CHUNK), table.schema)


def against_matrix(bench: Bench, columns: list[np.ndarray]) -> None:
    rows = len(columns[0])
    table = chunked({f"c{at}": column for at, column in enumerate(columns)})
    matrix = np.stack(columns, axis=1)
    order = np.random.default_rng(6).permutation(rows)

    def slices(made: np.ndarray) -> Iterator[np.ndarray]:
        return (made[start : start + SIZE] for start in range(0, rows, SIZE))

    def gathered(made: np.ndarray, numbers: np.ndarray) -> Iterator[np.ndarray]:
        return (made[numbers[start : start + SIZE]] for start in range(0, rows, SIZE))

    def stacked() -> np.ndarray:
        return np.stack(columns, axis=1)

    made = bench.table(
        "loader-matrix",
        "1,000,000 rows of 20 float32 columns in memory as matrices of 4,096 rows, each of them summed; one epoch",
        against="the same by NumPy",
        label="loader, summed",
    )
    in_order = ad.Loader(table, batch_size=SIZE, xp=np)
    shuffled = ad.Loader(table, batch_size=SIZE, xp=np, shuffle_buffer=rows, seed=0)
    by_permutation = np.random.default_rng(7)
    cases: list[tuple[str, Callable[[], Iterable[np.ndarray]], ad.Loader, float]] = [
        ("in order", lambda: slices(matrix), in_order, 1 / 0.8),
        ("in order, np.stack included", lambda: slices(stacked()), in_order, 1 / 5),
        ("all shuffled", lambda: gathered(matrix, order), shuffled, 1 / 0.9),
        (
            "all shuffled, np.stack and permutation included",
            lambda: gathered(stacked(), by_permutation.permutation(rows)),
            shuffled,
            1 / 1.2,
        ),
    ]
    expected = float(matrix.sum(dtype=np.float64))
    for name, by_numpy, loader, target in cases:
        yardstick = Route("slices or rows of a matrix by NumPy", lambda by=by_numpy: total(by()), by="hand", read=None)
        ours = Route(
            "ad.Loader",
            lambda loader=loader: total(loader),
            by="ours",
            read=None,
            check=lambda loader=loader: None if np.isclose(total(loader), expected, rtol=1e-3) else "gives other rows",
            target=round(target, 3),
        )
        made.case(name, yardstick, [ours], pace=PACE)


def total(batches: Iterable[np.ndarray]) -> float:
    """The sum of all batches."""
    return sum(float(batch.sum()) for batch in batches)


def options(bench: Bench, columns: list[np.ndarray]) -> None:
    """The loader with options, by the time of the loader without them."""
    rows = len(columns[0])
    random = np.random.default_rng(8)
    names = [f"c{at}" for at in range(COLUMNS)]
    nullable = [pa.array(column, mask=random.random(rows) < 0.1) for column in columns]
    with_nulls = chunked(dict(zip(names, nullable, strict=True)))
    words = {"carrier": 20, "origin": 350}
    codes = {name: random.integers(0, count, rows, np.int32) for name, count in words.items()}
    vocabulary = {name: [f"{name}-{at}" for at in range(count)] for name, count in words.items()}
    floats = dict(zip(names, columns[: COLUMNS - 2], strict=False))
    strings = {name: pa.array(vocabulary[name]).take(pa.array(codes[name])) for name in words}
    groups: dict[str, Any] = {"x": names[: COLUMNS - 2], "c": list(words)}

    plain = ad.Loader(with_nulls, batch_size=SIZE, columns={"x": ad.group(names, nulls=0)}, xp=np)
    masked = ad.group(names, nulls=0, validity="valid")
    as_codes = ad.Loader(chunked(floats | codes), batch_size=SIZE, columns=groups, xp=np)
    as_strings = chunked(floats | strings)
    looked_up = ad.Loader(as_strings, batch_size=SIZE, columns=groups, categories=vocabulary, xp=np)
    cases = [
        ("validity of 20 columns", plain, ad.Loader(with_nulls, batch_size=SIZE, columns={"x": masked}, xp=np), 1.15),
        ("categories of 2 of 20 columns", as_codes, looked_up, 1.5),
    ]
    made = bench.table(
        "loader-options",
        "1,000,000 rows of 20 columns as batches of 4,096 rows, with an option; one epoch",
        against="the loader without it",
        label="loader",
    )
    for name, without, option, target in cases:
        route = Route("ad.Loader", lambda option=option: drain(option), by="ours", read=None, target=target)
        made.case(
            name, Route("without", lambda without=without: drain(without), by="floor", read=None), [route], pace=PACE
        )

    def in_a_loop(every_16: Callable[[], Any]) -> None:
        for number, _ in enumerate(plain):
            if number % 16 == 0:
                every_16()

    route = Route("ad.Loader", lambda: in_a_loop(plain.state_dict), by="ours", read=None, target=1.03)
    # The same loop: what Python does between two batches is no part of a state.
    without_states = Route("without", lambda: in_a_loop(int), by="floor", read=None)
    made.case("a state of every 16 batches", without_states, [route], pace=PACE)


def drain(batches: Iterable[Any]) -> None:
    """Goes through all batches and keeps none."""
    deque(batches, maxlen=0)
