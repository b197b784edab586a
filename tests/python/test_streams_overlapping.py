"""Streams whose consumer calls them within or beside another call: an error with a message, and every row once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest

SCHEMA = pa.schema([("x", pa.int64())])
ROWS = 1000


def batch(index: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(index * ROWS, (index + 1) * ROWS), pa.int64())], SCHEMA)


def exported(batches: Iterator[pa.RecordBatch], schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    """The batches, read by pyarrow through a stream of ours."""
    source = pa.RecordBatchReader.from_batches(SCHEMA, batches)
    return pa.RecordBatchReader.from_stream(ad.from_arrow(source), schema=schema)


def read_by(threads: int, reader: Any) -> tuple[list[int], set[str]]:
    """What so many threads read of one stream: the first number of each batch, and what was raised."""
    firsts: list[int] = []
    messages: set[str] = set()
    start = threading.Barrier(threads)

    def read() -> None:
        start.wait()
        while True:
            try:
                read = reader.read_next_batch()
            except StopIteration:
                return
            except pa.ArrowInvalid as error:
                messages.add(str(error))
                # What pyarrow itself says once it has released the stream.
                if "another call on the stream" not in str(error):
                    return
            else:
                firsts.append(int(read.column(0)[0].as_py()))

    running = [threading.Thread(target=read) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return firsts, messages


@pytest.mark.parametrize("cast", [None, pa.schema([("x", pa.float64())])], ids=["as it is", "cast"])
@pytest.mark.parametrize("threads", [2, 4])
def test_threads_that_read_one_stream_get_each_batch_once(cast, threads):
    for _ in range(3):
        reader = exported((batch(index) for index in range(40)), cast)
        firsts, messages = read_by(threads, reader)
        assert sorted(firsts) == [index * ROWS for index in range(40)]
        refused = ("another call on the stream has not returned yet", "already been closed", "released already")
        assert all(any(part in message for part in refused) for message in messages), messages


def test_a_generator_that_reads_its_own_consumer_gets_an_error():
    raised: list[Exception] = []

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        with pytest.raises(pa.ArrowInvalid) as error:
            reader.read_next_batch()
        raised.append(error.value)
        yield batch(1)

    reader = exported(batches())
    assert reader.read_all().num_rows == 2 * ROWS
    assert "another call on the stream has not returned yet" in str(raised[0])


def test_a_generator_that_closes_its_own_consumer_ends_it():
    closed = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield batch(0)
            reader.close()
            yield batch(1)
        finally:
            closed.append(True)

    reader = exported(batches())
    assert reader.read_next_batch().num_rows == ROWS
    assert reader.read_next_batch().num_rows == ROWS
    with pytest.raises(pa.ArrowInvalid, match="closed"):
        reader.read_next_batch()
    assert closed == [True]
