"""The order of rows by the words of docs/loader.md alone, and what the tests of the loader share."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import producers
import pyarrow as pa

_WORD = 0xFFFFFFFF
LOADER = "dlpack-loader"


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _WORD


def _block(key: bytes, counter: int, stream: int, rounds: int) -> list[int]:
    """A block of ChaCha with a counter and a stream number of 64 bits each."""
    state = list(np.frombuffer(b"expand 32-byte k" + key, "<u4").tolist())
    state += [counter & _WORD, counter >> 32, stream & _WORD, stream >> 32]
    x = list(state)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for p, q, r, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = (x[p] + x[q]) & _WORD
            x[r] = _rotate(x[r] ^ x[p], by)

    for _ in range(rounds // 2):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return [(one + other) & _WORD for one, other in zip(x, state, strict=True)]


def chacha(key: bytes, stream: int, rounds: int = 8) -> Iterator[int]:
    """The words of 64 bits of a stream."""
    counter = 0
    while True:
        words = _block(key, counter, stream, rounds)
        for low, high in zip(words[::2], words[1::2], strict=True):
            yield low | high << 32
        counter += 1


class Draws:
    def __init__(self, seed: int, epoch: int, lane: int = 0, purpose: int = 0) -> None:
        key = b"".join(word.to_bytes(8, "little") for word in (seed, lane, purpose, 0))
        self.words = chacha(key, epoch)

    def below(self, k: int) -> int:
        while True:
            product = next(self.words) * k
            if product % 2**64 >= 2**64 % k:
                return product >> 64


def order(rows: int, shuffle_buffer: int, seed: int | None, epoch: int, lane: int = 0) -> list[int]:
    """The rows of a lane in an epoch, in the order of its batches."""
    if shuffle_buffer == 0:
        return list(range(rows))
    assert seed is not None
    draws = Draws(seed, epoch, lane)
    waiting = list(range(min(shuffle_buffer, rows)))
    left = []
    for row in range(len(waiting), rows):
        pick = draws.below(len(waiting))
        left.append(waiting[pick])
        waiting[pick] = row
    while waiting:
        pick = draws.below(len(waiting))
        left.append(waiting[pick])
        last = waiting.pop()
        if pick < len(waiting):
            waiting[pick] = last
    return left


def batches(
    rows: int,
    batch_size: int,
    *,
    shuffle_buffer: int = 0,
    seed: int | None = None,
    epoch: int = 0,
    drop_last: bool = False,
    rank: int = 0,
    world_size: int = 1,
) -> list[list[int]]:
    """The batches of a rank."""
    ordered = order(rows, shuffle_buffer, seed, epoch)
    cut = [ordered[start : start + batch_size] for start in range(0, rows, batch_size)]
    if drop_last:
        cut = [batch for batch in cut if len(batch) == batch_size]
    rounds = len(cut) // world_size
    return cut[rank : rounds * world_size : world_size]


def shards_in_order(count: int, seed: int | None, epoch: int, shuffle_shards: bool) -> list[int]:
    """The shards of an epoch."""
    left = list(range(count))
    if not shuffle_shards:
        return left
    assert seed is not None
    draws, ordered = Draws(seed, epoch, 0, 1), []
    while left:
        pick = draws.below(len(left))
        ordered.append(left[pick])
        last = left.pop()
        if pick < len(left):
            left[pick] = last
    return ordered


def lanes_of(
    rows: list[int], lanes: int, *, shuffle_buffer: int, seed: int | None, epoch: int, shuffle_shards: bool
) -> list[list[int]]:
    """The rows of each lane in the order of its batches, of shards with these numbers of rows, numbered through."""
    starts = [sum(rows[:shard]) for shard in range(len(rows))]
    ordered = shards_in_order(len(rows), seed, epoch, shuffle_shards)
    joined = [starts[shard] + row for shard in ordered for row in range(rows[shard])]
    cut = [joined[lane * len(joined) // lanes : (lane + 1) * len(joined) // lanes] for lane in range(lanes)]
    buffer = -(-shuffle_buffer // lanes)
    return [[lane[row] for row in order(len(lane), buffer, seed, epoch, at)] for at, lane in enumerate(cut)]


def deal(
    lanes: list[list[int]], taken: list[int], next_lane: int, *, batch_size: int, world_size: int, drop_last: bool
) -> tuple[list[list[int]], int]:
    """The batches of whole rounds after a place, and how many rows they leave out."""
    positions, dealt = list(taken), []
    while True:
        lane = (next_lane + len(dealt)) % len(lanes)
        batch = lanes[lane][positions[lane] : positions[lane] + batch_size]
        if len(batch) < (batch_size if drop_last else 1):
            break
        positions[lane] += batch_size
        dealt.append(batch)
    dealt = dealt[: len(dealt) // world_size * world_size]
    left = sum(len(lane[done:]) for lane, done in zip(lanes, taken, strict=True))
    return dealt, left - sum(map(len, dealt))


def mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def fold(h: int, w: int) -> int:
    return mix(((h ^ w) + 0x9E3779B97F4A7C15) % 2**64)


def fold_bytes(h: int, content: bytes) -> int:
    h = fold(h, len(content))
    for start in range(0, len(content), 8):
        h = fold(h, int.from_bytes(content[start : start + 8], "little"))
    return h


def samples() -> Iterator[int]:
    """The numbers of the sampled rows."""
    start = 0
    while True:
        rows = max(1, min(8192, start // 16))
        yield start + mix(start) % rows
        start += rows


def digest(rows: list[list[bytes] | None], dictionaries: list[list[str]] | None = None) -> list[int]:
    """The number of sampled rows among these, and their digest. A row has the bytes of each group; None cannot be
    converted."""
    d, count = 0, 0
    for words in dictionaries or []:
        d = fold(d, len(words))
        for at in itertools.takewhile(len(words).__gt__, samples()):
            d = fold_bytes(d, words[at].encode())
    for row in itertools.takewhile(lambda row: row < len(rows), samples()):
        h = 0
        for content in rows[row] or []:
            h = fold_bytes(h, content)
        d = fold(fold(d, row), h)
        count += 1
    return [count, d]


def numbered(rows: int, chunk: int | None = None) -> pa.Table:
    """A table whose column `row` numbers its rows, in chunks of so many."""
    chunk = chunk or max(rows, 1)
    parts = [pa.array(range(start, min(start + chunk, rows)), pa.int64()) for start in range(0, rows, chunk)]
    return pa.table({"row": pa.chunked_array(parts, pa.int64())})


def rows_of(batch: Any) -> list[int]:
    """The row numbers in a batch of `numbered`."""
    matrix = np.from_dlpack(batch)
    assert matrix.shape[1:] == (1,)
    return matrix[:, 0].tolist()


def settle_before_fork() -> None:
    """Waits until all other threads sleep.

    A child of CPython 3.11 waits for ever for a lock of the runtime if another thread was making or deleting its thread
    state: PyOS_AfterFork_Child takes that lock before it makes it anew.
    """
    looks, end = 0, time.monotonic() + 10
    while looks < 3 and time.monotonic() < end and sys.platform == "linux":
        others = tasks() - {str(threading.get_native_id())}
        try:
            stats = [Path(f"/proc/self/task/{task}/stat").read_text() for task in others]
        except FileNotFoundError:
            continue
        # The name before the state is in brackets, and may have any character.
        looks = looks + 1 if all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats) else 0
        time.sleep(0.001)


def tasks() -> set[str]:
    """The numbers of this process's threads; none where the system does not tell them as files."""
    return set(os.listdir("/proc/self/task")) if sys.platform == "linux" else set()


# A library's pool may start a thread while a thread of a loader calls it; it keeps that name for as long as it lives.
_others: set[str] = set()


def forget_threads() -> None:
    """Leaves the threads that run now out of what `loader_threads` counts."""
    _others.clear()
    _others.update(tasks())


def loader_threads(patience: float = 30) -> int:
    """How many threads of loaders the test has, once there are none or `patience` seconds have passed.

    0 where the system does not tell of threads.
    """

    def count() -> int:
        return sum(thread_name(task) == LOADER for task in tasks() - _others)

    # A thread that was joined is listed a moment longer, and a new one has the name of its maker until it names itself.
    end = time.monotonic() + patience
    while (found := count()) and time.monotonic() < end:
        time.sleep(0.001)
    return found


def thread_name(task: str) -> str | None:
    """The name of a thread; None if it has ended."""
    try:
        with open(f"/proc/self/task/{task}/comm") as file:
            return file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None


def counted(rows: int = 60) -> tuple[producers.Stream, Any]:
    """A stream of three rows an array, and an object that gives it."""
    made = [producers.Array() for _ in range(rows // 3)]
    for array in made:
        # Those that were not read are the producer's still.
        array.expected = 0
        array.on_release = lambda array=array: setattr(array, "expected", 1)
    producer = producers.Stream(made)
    return producer, producers.stream(producer)
