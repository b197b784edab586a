"""How many bytes the rows in a shuffle buffer may hold: what a row counts, errors, and what does not depend on it."""

from __future__ import annotations

import itertools
import pickle
import random
import re
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import Draws, order
from support import numpy_of

ROWS = 300
PICK = random.Random(1)
LENGTHS = [PICK.choice([0, 1, 3, 50]) for _ in range(ROWS)]
WORDS = ["x" * length if length != 3 else None for length in LENGTHS]
LISTS = [None if length == 3 else [None if item == 7 else item for item in range(length)] for length in LENGTHS]
SIZES = [0 if length == 3 else length for length in LENGTHS]
TABLE = pa.table(
    {
        "n": np.arange(ROWS, dtype=np.int32),
        "word": pa.array(WORDS),
        "ids": pa.array(LISTS, pa.list_(pa.int16())),
        "nested": pa.array([[[1] * length] * 2 for length in LENGTHS], pa.list_(pa.list_(pa.int8()))),
        "pair": pa.array([[1.5, 2.5]] * ROWS, pa.list_(pa.float32(), 2)),
        "day": pa.array([None] * ROWS, pa.date32()),
        "flag": pa.array([True] * ROWS),
    }
)
BIG = TABLE.set_column(1, "word", TABLE["word"].cast(pa.large_string()))
VIEWS = TABLE.set_column(1, "word", TABLE["word"].cast(pa.string_view()))
CODES = TABLE.set_column(1, "word", TABLE["word"].dictionary_encode())
RUNS = TABLE.set_column(1, "word", pa.chunked_array([pa.RunEndEncodedArray.from_arrays(range(1, ROWS + 1), WORDS)]))

# The columns of a loader, and the bytes of a row of this length of strings and lists.
CASES: dict[str, tuple[pa.Table, dict[str, Any], Callable[[int], int]]] = {
    "numbers": (TABLE, {"n": "n", "m": ["n", "pair"]}, lambda size: 4 + 24),
    "a mask": (TABLE, {"n": "n", "d": ad.group("day", nulls="keep", validity="v")}, lambda size: 4 + 4 + 1),
    "strings": (TABLE, {"n": "n", "w": ad.padded("word")}, lambda size: 4 + 8 + size),
    "large strings": (BIG, {"n": "n", "w": ad.padded("word")}, lambda size: 4 + 8 + size),
    "views": (VIEWS, {"n": "n", "w": ad.ragged("word")}, lambda size: 4 + 8 + size),
    "lists": (TABLE, {"n": "n", "x": ad.padded("ids")}, lambda size: 4 + 8 + 2 * size),
    "fixed lists": (TABLE, {"n": "n", "x": ad.padded("pair")}, lambda size: 4 + 8 + 8),
    "two groups": (TABLE, {"n": "n", "x": ad.padded("ids"), "w": ad.arrow("word")}, lambda size: 20 + 3 * size),
    "passed through": (TABLE, {"n": "n", "a": ad.arrow("n", "pair", "day", "flag")}, lambda size: 4 + 4 + 8 + 4 + 1),
    "a dictionary": (CODES, {"n": "n", "w": ad.arrow("word")}, lambda size: 4 + 8 + size),
    "runs": (RUNS, {"n": "n", "w": ad.arrow("word")}, lambda size: 4 + 8 + size),
}


def peaks(weights: list[int], buffer: int, seed: int, epoch: int) -> tuple[list[int], int]:
    """What the rows in a buffer hold, at most, until each row of the order leaves; and the rows when it is full."""
    draws = Draws(seed, epoch)
    waiting = weights[:buffer]
    held = peak = sum(waiting)
    found = []
    for weight in weights[buffer:]:
        pick = draws.below(len(waiting))
        held += weight - waiting[pick]
        waiting[pick] = weight
        peak = max(peak, held)
        found.append(peak)
    return found + [peak] * (len(weights) - len(found)), len(waiting)


def chunked(table: pa.Table, size: int) -> pa.Table:
    return pa.Table.from_batches(table.to_batches(max_chunksize=size))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("buffer", [1, 40, 1000])
def test_a_row_counts_what_the_document_says(name: str, buffer: int):
    table, columns, weight = CASES[name]
    peak = max(peaks([weight(size) for size in SIZES], buffer, 5, 0)[0])
    options: Any = {"batch_size": 7, "columns": columns, "nulls": 0, "shuffle_buffer": buffer, "seed": 5}
    rows = order(ROWS, buffer, 5, 0)
    for chunk, prefetch in itertools.product((11, ROWS), (0, 2)):
        source = chunked(table, chunk)
        found = [numpy_of(batch["n"]) for batch in ad.Loader(source, shuffle_bytes=peak, prefetch=prefetch, **options)]
        assert np.concatenate(found).tolist() == rows
        with pytest.raises(ad.ConversionError, match=rf"it may hold {peak - 1}\b") as raised:
            list(ad.Loader(source, shuffle_bytes=peak - 1, prefetch=prefetch, **options))
        assert "pass a smaller shuffle_buffer=, or a larger shuffle_bytes=" in str(raised.value)


@pytest.mark.parametrize("seed", range(12))
def test_batches_before_the_error_are_those_of_the_order(seed: int):
    pick = random.Random(seed)
    weights = [12 + size for size in SIZES]
    buffer = pick.randrange(2, 60)
    found, most = peaks(weights, buffer, seed, 0)
    limit = pick.randrange(sum(weights[:buffer]), max(found) + 2)
    good = next((at for at, peak in enumerate(found) if peak > limit), ROWS)
    size = pick.randrange(1, 9)
    columns = {"n": "n", "w": ad.padded("word", nulls=0)}
    loader = ad.Loader(
        chunked(TABLE, pick.randrange(1, 50)),
        batch_size=size,
        columns=columns,
        shuffle_buffer=buffer,
        shuffle_bytes=limit,
        seed=seed,
    )
    iterator, rows, seen = iter(loader), order(ROWS, buffer, seed, 0), 0
    try:
        for batch in iterator:
            assert numpy_of(batch["n"]).tolist() == rows[seen : seen + size]
            seen += len(batch["n"])
        assert good == ROWS
    except ad.ConversionError as error:
        assert seen == good // size * size
        text = re.search(r"holds (\d+) bytes in (\d+) rows; with the next row it would hold (\d+) bytes", str(error))
        assert text is not None
        held, count, needed = map(int, text.groups())
        # The row that would leave is out, and the one that would come is not in.
        assert (count, needed) == (most - 1, found[good])
        assert held <= limit < needed
        assert list(iterator) == []


def test_nothing_is_limited_without_a_shuffle():
    loader = ad.Loader(TABLE, batch_size=50, columns={"w": ad.padded("word", nulls=0)}, shuffle_bytes=1)
    assert len(list(loader)) == 6


@pytest.mark.parametrize("readers", [1, 3])
def test_lanes_count_together(readers: int):
    sources = [(TABLE.slice(start, 50).to_batches()[0], 50) for start in range(0, ROWS, 50)]
    # Rows of 4 + 8 + 8 bytes, of which each of 6 lanes keeps 5.
    options: Any = {
        "columns": {"n": "n", "x": ad.padded("pair")},
        "batch_size": 5,
        "lanes": 6,
        "shuffle_buffer": 30,
        "seed": 3,
        "readers": readers,
    }
    wanted = [numpy_of(batch["n"]).tolist() for batch in ad.Loader(sources=sources, **options)]
    found = ad.Loader(sources=sources, shuffle_bytes=6 * 5 * 20, **options)
    assert [numpy_of(batch["n"]).tolist() for batch in found] == wanted
    with pytest.raises(ad.ConversionError, match="bytes in 29 rows"):
        list(ad.Loader(sources=sources, shuffle_bytes=6 * 5 * 20 - 1, **options))
    # A rank holds the rows of its own lanes.
    options |= {"shuffle_bytes": 3 * 5 * 20, "world_size": 2}
    halves = [list(ad.Loader(sources=sources, rank=rank, **options)) for rank in (0, 1)]
    assert [len(half) for half in halves] == [len(wanted) / 2] * 2


@pytest.mark.parametrize("told", [True, False])
def test_a_state_does_not_depend_on_it(told: bool):
    source: Any = chunked(TABLE, 20) if told else lambda: chunked(TABLE, 20).to_reader()
    columns = {"n": "n", "w": ad.padded("word", nulls=0)}
    options: Any = {"batch_size": 10, "columns": columns, "shuffle_buffer": 40, "seed": 5}
    first = ad.Loader(source, **options)
    list(itertools.islice(first, 4))
    state = first.state_dict()
    limited = ad.Loader(source, shuffle_bytes=10_000, **options)
    limited.load_state_dict(state)
    rows = order(ROWS, 40, 5, 0)[40:]
    assert np.concatenate([numpy_of(batch["n"]) for batch in limited]).tolist() == rows
    assert limited.state_dict().keys() == first.state_dict().keys()
    small = ad.Loader(source, shuffle_bytes=300, **options)
    small.load_state_dict(state)
    with pytest.raises(ad.ConversionError, match="it may hold 300"):
        list(small)


@pytest.mark.parametrize("told", [True, False])
def test_rows_that_are_copied_while_they_wait_count_what_they_did(told: bool):
    """From 4,096 rows on, those that wait are copied out of arrays that are read no more."""
    rows, waiting = 24_000, 4_200
    table = chunked(pa.table({"n": np.arange(rows, dtype="int32"), "x": ["word"] * rows}), 500)
    source: Any = table if told else lambda: table.to_reader()
    # Rows of 4 + 4 + 8 bytes.
    options: Any = {
        "batch_size": 1000,
        "columns": {"n": "n", "x": ad.padded("x")},
        "shuffle_buffer": waiting,
        "shuffle_bytes": waiting * 16,
        "seed": 2,
    }
    loader = ad.Loader(source, **options)
    seen = [numpy_of(batch["n"]) for batch in loader]
    assert np.sort(np.concatenate(seen)).tolist() == list(range(rows))
    loader.set_epoch(0)
    list(itertools.islice(loader, 12))
    resumed = ad.Loader(source, **options)
    resumed.load_state_dict(loader.state_dict())
    np.testing.assert_array_equal(
        np.concatenate([numpy_of(batch["n"]) for batch in resumed]), np.concatenate(seen[12:])
    )


def test_epochs_begin_with_an_empty_buffer():
    columns = {"n": "n", "x": ad.padded("pair")}
    loader = ad.Loader(TABLE, batch_size=10, columns=columns, shuffle_buffer=50, shuffle_bytes=50 * 20, seed=1)
    for _ in range(3):
        iterator = iter(loader)
        next(iterator)
        iterator.close()
        assert len(list(loader)) == 30


def test_a_pickle_has_it():
    def limited(loader: ad.Loader) -> bool:
        with pytest.raises(ad.ConversionError, match="it may hold 77"):
            list(loader)
        return True

    loader = ad.Loader(TABLE, batch_size=10, columns=["n"], shuffle_buffer=50, shuffle_bytes=77, seed=1)
    assert limited(pickle.loads(pickle.dumps(loader)))
