"""Objects that are read by an iteration or a stream of their own: the garbage collector frees them once nobody does."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

ROWS = 40


class Rows:
    """Data that refers to what reads it."""

    def __init__(self) -> None:
        self.batches = pa.table({"x": list(range(ROWS))}).to_batches(max_chunksize=4)
        self.reader: object = None

    def generate(self) -> Iterator[pa.RecordBatch]:
        yield from self.batches

    def same(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def epoch(source: Callable[[Rows], object], prefetch: int, taken: int) -> Callable[[], Rows]:
    def make() -> Rows:
        rows = Rows()
        rows.reader = batches = iter(ad.Loader(source(rows), batch_size=4, prefetch=prefetch))
        for _ in range(taken):
            next(batches)
        return rows

    return make


def stream(taken: int) -> Callable[[], Rows]:
    def make() -> Rows:
        rows = Rows()
        rows.reader = arrays = ad.from_arrow(rows.generate())
        for _ in range(taken):
            next(arrays)
        return rows

    return make


SOURCES: dict[str, Callable[[Rows], object]] = {
    "a callable": lambda rows: rows.generate,
    "a generator": lambda rows: rows.generate(),
    "a map": lambda rows: map(rows.same, rows.batches),
    "a callable with a map": lambda rows: lambda: map(rows.same, rows.batches),
}
MADE = {
    f"{name}, {prefetch} ahead, {taken} taken": epoch(source, prefetch, taken)
    for name, source in SOURCES.items()
    for prefetch in (0, 2)
    for taken in (0, 1, ROWS // 4)
} | {f"a stream, {taken} taken": stream(taken) for taken in (0, 1, ROWS // 4)}


@pytest.mark.parametrize("name", MADE)
def test_cycles_are_freed(name: str) -> None:
    threads = threading.active_count()
    references = [weakref.ref(MADE[name]()) for _ in range(3)]
    # A thread that takes an item refers to the iterator meanwhile, however long it waits for a processor.
    for _ in range(1_000):
        gc.collect()
        if not any(reference() for reference in references):
            break
        time.sleep(0.01)
    assert [reference() for reference in references] == [None] * 3
    assert threading.active_count() == threads


def test_a_stream_that_a_consumer_has_is_in_use() -> None:
    rows = Rows()
    rows.reader = ad.from_arrow(rows.generate())
    reader, reference = pa.RecordBatchReader.from_stream(rows.reader), weakref.ref(rows)
    del rows
    gc.collect()
    assert reference() is not None
    assert reader.read_all()["x"].to_pylist() == list(range(ROWS))


def test_what_is_read_is_in_use() -> None:
    """The collector runs at every few objects, in the thread that reads and in another one."""
    is_done = threading.Event()

    def collect() -> None:
        while not is_done.wait(0.001):
            gc.collect()

    other, thresholds = threading.Thread(target=collect), gc.get_threshold()
    gc.set_threshold(2)
    other.start()
    try:
        for prefetch in (0, 2):
            batches = ad.Loader(Rows().generate, batch_size=3, prefetch=prefetch, columns=["x"], xp=np)
            for _ in range(5):
                assert np.concatenate(list(batches))[:, 0].tolist() == list(range(ROWS))
        for _ in range(5):
            arrays = ad.from_arrow(Rows().generate())
            assert [row for array in arrays for row in pa.record_batch(array)["x"].to_pylist()] == list(range(ROWS))
    finally:
        gc.set_threshold(*thresholds)
        is_done.set()
        other.join()


class Parts:
    """A library whose arrays may refer to anything."""

    class Part:
        def __init__(self, tensor: object) -> None:
            self.tensor = tensor
            self.rows: object = None

    @classmethod
    def from_dlpack(cls, tensor: object, **_: object) -> Parts.Part:
        return cls.Part(tensor)


@pytest.mark.parametrize("name", ["values", "offsets", "lengths", "validity"])
def test_ragged_rows_that_a_part_of_them_refers_to_are_freed(name: str) -> None:
    lists = pa.ListViewArray.from_arrays([2, 0, 1], [1, 2, 0], pa.array([1, 2, 3]), mask=pa.array([False, False, True]))
    rows = ad.to_ragged(lists, nulls="keep", xp=Parts)
    part = getattr(rows, name)
    part.rows, reference = rows, weakref.ref(part)
    del rows, part
    gc.collect()
    assert reference() is None


def test_a_stream_that_its_context_names_is_freed() -> None:
    class Stream:
        context: object = None

        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 1)

    stream = Stream()
    stream.context, reference = ad.stream(stream), weakref.ref(stream)
    del stream
    gc.collect()
    assert reference() is None
