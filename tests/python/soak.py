"""Do conversions and epochs leave memory, threads, files or objects behind, however long they go on?

    python tests/python/soak.py --seconds 1200

A round runs every case of `CASES` many times, and then counts what is in use. After the rounds that fill the caches,
each count has to stay: `make soak` fails with the first one that is higher. Time is no part of any check.
"""

from __future__ import annotations

import argparse
import gc
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
from arrow_dlpack import _native

# Rounds in which caches and free lists are filled.
WARM_UP = 3
# Threads may let go a moment after the last batch.
PATIENCE = 60.0
# Objects that this program itself and the interpreter's caches may have more than before.
SLACK = {"objects of Python": 100}
# What malloc may keep more than before, whatever lives.
MOST_RESIDENT = 64 << 20

NUMBERS = pa.array([1.5, None, 3.0, 4.0])
PLAIN = pa.array([1.0, 2.0, 3.0, 4.0])
BATCH = pa.record_batch({"a": [1.0, None, 3.0], "b": [True, False, None], "w": ["x", "y", "x"], "l": [[1], [], [2, 3]]})
TABLE = pa.table({"row": range(200), "half": [row / 2 for row in range(200)]})
MATRIX = np.asfortranarray(np.arange(12.0).reshape(4, 3))
OUT = np.empty((200, 2))
VIEW = ad.to_tensor(PLAIN)


def refused(error: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def failing() -> Iterator[pa.RecordBatch]:
    yield from TABLE.to_batches(max_chunksize=50)
    raise OSError("the disk is gone")


def logged() -> None:
    with ad.track_copies() as log:
        ad.to_tensor(NUMBERS, nulls=0)
    assert log.bytes == 32


def epoch(prefetch: int, **options: object) -> None:
    for batch in ad.Loader(TABLE, batch_size=64, prefetch=prefetch, **options):  # type: ignore[call-overload]
        assert batch is not None


def broken_epoch(prefetch: int) -> None:
    iterator = iter(ad.Loader(TABLE, batch_size=8, prefetch=prefetch))
    next(iterator)
    iterator.close()


def failed_epoch(prefetch: int) -> None:
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, failing())
    refused(ad.ConversionError, lambda: list(ad.Loader(reader, batch_size=8, prefetch=prefetch)))


def resumed_epoch() -> None:
    loader = ad.Loader(TABLE, batch_size=32, shuffle_buffer=50, seed=1)
    next(iter(loader))
    other = pickle.loads(pickle.dumps(loader))
    assert next(iter(other)) is not None


def released_producers() -> None:
    schema, array = producers.Schema(), producers.Array()
    tensor = ad.to_tensor(producers.arrow(schema, array))
    del tensor
    assert (schema.releases, array.releases) == (1, 1)
    stream = producers.Stream(producers.Array() for _ in range(3))
    ad.to_tensor(producers.stream(stream))
    assert stream.releases == 1
    producers.forget_all()


# How often each runs in a round: conversions of a few microseconds a thousand times as often as an epoch with a thread.
CASES: dict[str, tuple[int, Callable[[], object]]] = {
    "a view": (4000, lambda: ad.to_tensor(PLAIN)),
    "a view for NumPy": (4000, lambda: ad.to_tensor(PLAIN, xp=np)),
    "a copy": (2000, lambda: ad.to_tensor(NUMBERS, nulls=0, dtype="float32")),
    "a tensor out and in": (2000, lambda: ad.from_dlpack(np.from_dlpack(VIEW))),
    "a tensor to Arrow": (2000, lambda: pa.array(ad.to_arrow(VIEW))),
    "a buffer": (2000, lambda: memoryview(VIEW).tobytes()),
    "columns": (500, lambda: ad.to_tensors(BATCH.select(["a", "b"]), nulls=0)),
    "groups": (200, lambda: ad.to_tensors(BATCH, columns={"x": ["a", "b"], "l": ad.padded("l")}, nulls=0)),
    "categories": (200, lambda: ad.to_tensor(BATCH["w"], categories=["x", "y"])),
    "a matrix": (200, lambda: ad.to_tensor(TABLE)),
    "a matrix into an array": (200, lambda: ad.to_tensor(TABLE, out=OUT)),
    "a matrix to Arrow": (200, lambda: pa.record_batch(ad.to_arrow(MATRIX, names=["x", "y", "z"]))),
    "rows of different lengths": (500, lambda: ad.to_ragged(BATCH["l"])),
    "padded rows": (500, lambda: ad.to_ragged(BATCH["w"], pad=(0, 4))),
    "a report": (200, lambda: str(ad.explain(BATCH))),
    "a stream": (200, lambda: list(ad.from_arrow(TABLE))),
    "a stream that is closed": (200, lambda: ad.from_arrow(TABLE).close()),
    "a log": (500, logged),
    "a null": (500, lambda: refused(ad.NullError, lambda: ad.to_tensor(NUMBERS))),
    "a copy that is forbidden": (
        500,
        lambda: refused(ad.CopyError, lambda: ad.to_tensor(NUMBERS, nulls=0, copy=False)),
    ),
    "producers that count": (20, released_producers),
    "an epoch": (20, lambda: epoch(0)),
    "an epoch with a thread": (20, lambda: epoch(2)),
    "a shuffled epoch": (10, lambda: epoch(2, shuffle_buffer=50, seed=1)),
    "an epoch that is left": (10, lambda: broken_epoch(2)),
    "an epoch without a thread that is left": (10, lambda: broken_epoch(0)),
    "an epoch that fails": (10, lambda: failed_epoch(2)),
    "an epoch that goes on elsewhere": (5, resumed_epoch),
}


def in_use() -> dict[str, int]:
    """The counts that must not grow."""
    gc.collect()
    return {
        "bytes of this package": _native._host_memory(),
        "bytes of pyarrow": pa.total_allocated_bytes(),
        "threads": len(os.listdir("/proc/self/task")) if sys.platform == "linux" else threading.active_count(),
        "open files": len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0,
        "objects of Python": len(gc.get_objects()),
    }


def resident() -> int:
    """Bytes of memory that the process has; 0 where that is not told."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def grown(before: dict[str, int]) -> list[str]:
    """What is more than before, in words, once threads had their time to end."""
    deadline = time.monotonic() + PATIENCE
    while True:
        counts = in_use().items()
        found = [
            f"{name}: {count} after {before[name]}"
            for name, count in counts
            if count > before[name] + SLACK.get(name, 0)
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


def soak(seconds: float, cases: dict[str, tuple[int, Callable[[], object]]]) -> tuple[int, int]:
    """Runs rounds for so long, at least one after the warm-up; how many calls and rounds there were."""
    calls = rounds = 0
    before: dict[str, int] = {}
    kept = 0
    end = time.monotonic() + seconds
    while rounds <= WARM_UP or time.monotonic() < end:
        for times, case in cases.values():
            for _ in range(times):
                case()
            calls += times
        rounds += 1
        if rounds <= WARM_UP:
            before = in_use()
            kept = resident()
            continue
        if left := grown(before):
            raise AssertionError(f"after {rounds} rounds and {calls} calls: {'; '.join(left)}")
        if resident() > kept + MOST_RESIDENT:
            raise AssertionError(f"after {rounds} rounds and {calls} calls: {resident()} bytes resident after {kept}")
    return calls, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    calls, rounds = soak(parser.parse_args().seconds, CASES)
    print(f"{calls} calls in {rounds} rounds left nothing behind: {in_use()}, {resident() >> 20} MiB resident")


if __name__ == "__main__":
    main()
