"""Streams through us are as lazy as their producer: one array at a time, on any thread, with its errors and codes."""

import errno
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import arrow_dlpack as ad
import duckdb
import nanoarrow as na
import numpy as np
import polars as pl
import producers
import pyarrow as pa
import pytest
from producers import Array, Stream

DUNDERS = pytest.mark.parametrize("dunder", ["__arrow_c_stream__", "__arrow_c_device_stream__"])


def counted(count: int = 4, end: tuple[int, bytes] | None = None) -> tuple[Stream, list[Array], ad.ArrayStream]:
    """A producer of arrays of the numbers 1 to 3, and a stream of ours over it."""
    made = [Array() for _ in range(count)]
    producer = Stream([*made, *([end] if end else [])])
    return producer, made, ad.from_arrow(producers.stream(producer))  # type: ignore[return-value]


def through(dunder: str, stream: ad.ArrayStream) -> ad.ArrayStream:
    """The stream, exported and imported again."""
    return ad.from_arrow(producers.only(dunder, stream))  # type: ignore[return-value]


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_next_batch()
        except StopIteration:
            return


CONSUMERS: dict[str, Callable[[ad.ArrayStream], Iterator[Any]]] = {
    "own": iter,
    "own, by the host dunder": lambda stream: iter(through("__arrow_c_stream__", stream)),
    "own, by the device dunder": lambda stream: iter(through("__arrow_c_device_stream__", stream)),
    "own, requested": lambda stream: iter(ad.from_arrow(Requesting(stream, pa.int64()))),  # type: ignore[call-overload]
}


class Requesting:
    """Asks a stream for a type."""

    def __init__(self, stream: ad.ArrayStream, data_type: pa.DataType) -> None:
        self.stream, self.data_type = stream, data_type

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.stream.__arrow_c_stream__(self.data_type.__arrow_c_schema__())


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_one_array_is_asked_for_at_a_time_and_none_is_kept(consumer: str):
    producer, made, stream = counted()
    arrays = CONSUMERS[consumer](stream)
    assert producer.asked_next == 0
    for done in range(1, 5):
        array = next(arrays)
        assert pa.array(array).to_pylist() == [1, 2, 3]
        assert producer.asked_next == done
        del array
        gc.collect()
        assert [array.releases for array in made] == [1] * done + [0] * (4 - done)
    assert next(arrays, None) is None
    assert (producer.asked_next, producer.releases) == (5, 1)


def test_nanoarrow_is_as_lazy():
    producer, _, stream = counted()
    for done, array in enumerate(na.ArrayStream(stream), start=1):
        assert array.to_pylist() == [1, 2, 3]
        assert producer.asked_next == done


def test_a_reader_of_pyarrow_is_as_lazy():
    asked: list[int] = []

    def generate():
        for number in range(5):
            asked.append(number)
            yield pa.record_batch({"x": [number]})

    source = pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), generate())
    reader = pa.RecordBatchReader.from_stream(ad.from_arrow(source))
    assert asked == []
    for number, batch in enumerate(batches_of(reader)):
        assert batch["x"].to_pylist() == [number]
        assert asked == list(range(number + 1))


def test_copies_let_go_of_each_array():
    made = [Array() for _ in range(4)]
    copies = iter(ad.from_arrow(producers.stream(Stream(made)), copy=True))  # type: ignore[call-overload]
    held = []
    for done in range(1, 5):
        held.append(next(copies))
        assert [array.releases for array in made] == [1] * done + [0] * (4 - done)
    assert [pa.array(array).to_pylist() for array in held] == [[1, 2, 3]] * 4


@DUNDERS
@pytest.mark.parametrize("read", [0, 1, 3])
def test_an_early_release_of_what_we_exported_releases_the_producer(dunder: str, read: int):
    producer, made, stream = counted()
    arrays = through(dunder, stream)
    for _ in range(read):
        next(arrays)
    assert producer.releases == 0
    del arrays, stream
    gc.collect()
    assert (producer.asked_next, producer.releases) == (read, 1)
    assert [array.releases for array in made] == [1] * read + [0] * (4 - read)
    for array in made[read:]:
        producers.release_struct(array.struct)


def test_a_reader_of_pyarrow_that_is_closed_releases_the_producer():
    made = [Array(children=[Array()], buffers=(None,)) for _ in range(3)]
    schema = producers.Schema
    struct = Stream(made, schema=lambda: schema(b"+s", children=[schema(b"i", field=b"x")]))
    reader = pa.RecordBatchReader.from_stream(ad.from_arrow(producers.stream(struct)))
    assert reader.read_next_batch().to_pydict() == {"x": [1, 2, 3]}
    reader.close()
    gc.collect()
    assert struct.releases == 1
    for array in made[1:]:
        producers.release_struct(array.struct)


class TestErrors:
    @DUNDERS
    def test_keep_message_and_code(self, dunder: str):
        _, _, stream = counted(2, (errno.ENOSYS, b"no third array"))
        arrays = through(dunder, stream)
        assert [len(next(arrays)) for _ in range(2)] == [3, 3]
        with pytest.raises(ad.ConversionError, match="no third array"):
            next(arrays)
        assert list(arrays) == []

    @pytest.mark.parametrize(
        ("code", "kind"), [(errno.ENOSYS, NotImplementedError), (errno.ENOMEM, MemoryError), (errno.EIO, OSError)]
    )
    def test_are_of_the_kind_that_the_consumer_makes_of_the_code(self, code: int, kind: type[Exception]):
        schema = producers.Schema
        producer = Stream([(code, b"lost")], schema=lambda: schema(b"+s", children=[schema(b"i", field=b"x")]))
        reader = pa.RecordBatchReader.from_stream(ad.from_arrow(producers.stream(producer)))
        with pytest.raises(kind, match="lost"):
            reader.read_next_batch()

    def test_reach_other_libraries(self):
        def generate():
            yield pa.record_batch({"x": [1]})
            raise LookupError("the second batch is gone")

        def stream() -> Any:
            return ad.from_arrow(pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), generate()))

        with pytest.raises(Exception, match="second batch is gone"):
            pl.DataFrame(stream())
        with pytest.raises(Exception, match="second batch is gone"):
            list(na.ArrayStream(stream()))
        with duckdb.connect() as connection:
            connection.register("source", stream())
            with pytest.raises(Exception, match="second batch is gone"):
                connection.sql("select sum(x) from source").fetchall()

    def test_of_a_cast_are_at_their_array(self):
        stream = ad.from_arrow(pa.chunked_array([[1, 2], [3, 300], [5, 6]]))
        arrays = ad.from_arrow(Requesting(stream, pa.int8()))  # type: ignore[arg-type, call-overload]
        assert pa.array(next(arrays)).type == pa.int8()
        with pytest.raises(ad.ConversionError, match="300"):
            next(arrays)
        assert list(arrays) == []


class TestWhatTheTypeTellsToBeWrong:
    """Nothing is read of a stream where its type and the options do not go together."""

    @pytest.mark.parametrize(
        ("function", "keywords"),
        [
            (ad.to_tensor, {"columns": ["typo"]}),
            (ad.to_tensor, {"nulls": "nan", "dtype": "int8"}),
            (ad.to_tensor, {"dtype": {"typo": "int8"}}),
            (ad.to_tensor, {"columns": ["typo"], "out": np.zeros((3, 1))}),
            (ad.to_tensors, {"columns": ["typo"]}),
            (ad.to_tensors, {"columns": {"x": ["a", "typo"]}}),
            (ad.to_tensors, {"nulls": {"a": "nan"}}),
            (ad.to_tensors, {"columns": {"x": "a"}, "dtype": "float31"}),
            (ad.validity, {"columns": ["typo"]}),
            (ad.validity, {"bits": True}),
        ],
    )
    def test_nothing_is_lost(self, function: Any, keywords: dict[str, Any]):
        table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})
        reader = table.to_reader()
        with pytest.raises(ValueError):
            function(reader, **keywords)
        assert reader.read_all() == table
        stream = ad.from_arrow(table)
        with pytest.raises(ValueError):
            function(stream, **keywords)
        assert pa.table(stream) == table

    def test_nor_of_one_of_arrays(self):
        values = pa.chunked_array([[1, 2], [3]])
        stream = ad.from_arrow(values)
        for keywords in ({"nulls": "nan"}, {"columns": ["a"]}, {"dtype": "float8_e4m3fn", "nulls": 0.1}):
            with pytest.raises(ValueError):
                ad.to_tensor(stream, **keywords)
        assert pa.chunked_array(stream).to_pylist() == [1, 2, 3]

    @pytest.mark.parametrize(
        ("function", "keywords", "message"),
        [
            (ad.to_tensor, {"columns": ["e", "f"]}, "packed row-major"),
            (ad.to_tensor, {"columns": ["a", "f"], "order": "F"}, "packed column-major"),
            (ad.to_tensors, {"columns": {"g": ["e", "f"]}}, 'group "g": a copy is needed of any rows'),
        ],
    )
    def test_nor_of_a_matrix_that_is_never_a_view(self, function: Any, keywords: dict[str, Any], message: str):
        pairs = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0]), 2)
        table = pa.table({"a": [0.5, 1.5], "e": pairs, "f": pairs})
        reader = table.to_reader()
        with pytest.raises(ad.CopyError, match=message):
            function(reader, copy=False, **keywords)
        assert reader.read_all() == table


class TestConsumers:
    """Each library reads a stream of ours whole, of what another library made."""

    TABLE = pa.table({"x": pa.chunked_array([[1, 2], [], [3]]), "s": pa.chunked_array([["a", None], [], ["c"]])})

    def stream(self) -> Any:
        return ad.from_arrow(self.TABLE)

    def test_pyarrow(self):
        assert pa.table(self.stream()).equals(self.TABLE)
        assert pa.RecordBatchReader.from_stream(self.stream()).read_all().equals(self.TABLE)
        chunked = pa.chunked_array(ad.from_arrow(self.TABLE["x"]))
        assert chunked.to_pylist() == [1, 2, 3]

    def test_polars(self):
        assert pl.DataFrame(self.stream()).to_dict(as_series=False) == self.TABLE.to_pydict()
        assert pl.Series(ad.from_arrow(self.TABLE["x"])).to_list() == [1, 2, 3]

    def test_nanoarrow(self):
        with na.ArrayStream(self.stream()) as stream:
            assert [len(chunk) for chunk in stream.iter_chunks()] == [2, 0, 1]

    def test_duckdb(self):
        with duckdb.connect() as connection:
            connection.register("source", self.stream())
            rows = connection.sql("select x, s from source order by x").fetchall()
        assert rows == [(1, "a"), (2, None), (3, "c")]

    def test_in_the_type_that_is_requested(self):
        wanted = pa.schema([("x", pa.int8()), ("s", pa.large_string())])
        assert pa.RecordBatchReader.from_stream(self.stream(), schema=wanted).read_all().schema == wanted
        with pytest.raises(ValueError, match="names"):
            pa.RecordBatchReader.from_stream(self.stream(), schema=pa.schema([("y", pa.int8()), ("s", pa.string())]))


class TestThreads:
    def test_read_and_released_on_another_one(self):
        producer, made, stream = counted()
        seen: list[list[int]] = []

        def consume() -> None:
            nonlocal stream
            for array in stream:
                seen.append(np.from_dlpack(ad.to_tensor(array)).tolist())
            del stream

        thread = threading.Thread(target=consume)
        thread.start()
        thread.join()
        assert seen == [[1, 2, 3]] * 4
        assert producer.releases == 1
        assert [array.releases for array in made] == [1] * 4

    def test_a_reader_that_runs_on_threads_of_its_own(self):
        table = pa.table({"x": pa.chunked_array([np.arange(1000) + 1000 * i for i in range(200)])})
        with duckdb.connect() as connection:
            connection.register("source", ad.from_arrow(ad.from_arrow(table)))
            connection.execute("set threads = 4")
            assert connection.sql("select count(*), sum(x) from source").fetchall() == [(200_000, sum(range(200_000)))]

    def test_one_after_the_other(self):
        stream = ad.from_arrow(pa.chunked_array([[number] for number in range(100)]))
        seen: list[int] = []
        turn = threading.Lock()

        def consume() -> None:
            while True:
                with turn:
                    array = next(stream, None)
                    if array is None:
                        return
                    seen.extend(pa.array(array).to_pylist())

        threads = [threading.Thread(target=consume) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == list(range(100))
