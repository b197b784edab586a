"""Streams: lazy, read once, released early and once, with the producer's own errors."""

import gc
import threading

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from producers import Array, Only, Schema, Stream


def batches(count: int = 3) -> list[pa.RecordBatch]:
    return [pa.record_batch({"x": [i, i + 1]}) for i in range(count)]


def reader(asked: list[int], count: int = 3, fail_at: int | None = None) -> pa.RecordBatchReader:
    """A stream that notes what it was asked for."""

    def generate():
        for i, batch in enumerate(batches(count)):
            asked.append(i)
            if i == fail_at:
                raise RuntimeError(f"batch {i} is gone")
            yield batch

    return pa.RecordBatchReader.from_batches(batches()[0].schema, generate())


def test_nothing_is_read_before_it_is_asked_for():
    asked: list[int] = []
    stream = ad.from_arrow(reader(asked))
    assert isinstance(stream, ad.ArrayStream)
    assert (stream.column_names, str(stream.device), "Int64" in stream.type) == (["x"], "cpu", True)
    assert "ArrayStream" in repr(stream)
    stream.__arrow_c_schema__()
    assert asked == []
    assert np.from_dlpack(ad.to_tensor(next(stream)["x"])).tolist() == [0, 1]
    assert asked == [0]
    assert [np.from_dlpack(ad.to_tensor(batch["x"])).tolist() for batch in stream] == [[1, 2], [2, 3]]
    assert asked == [0, 1, 2]
    assert list(stream) == []


def test_arrays_are_views_that_outlive_the_stream():
    source = batches()
    stream = ad.from_arrow(pa.Table.from_batches(source))
    kept = list(stream)
    del stream
    for batch, original in zip(kept, source, strict=True):
        assert isinstance(batch, ad.RecordBatch)
        assert pa.record_batch(batch).equals(original)
        assert pa.record_batch(batch)["x"].buffers()[1].address == original["x"].buffers()[1].address


def test_streams_of_arrays():
    stream = ad.from_arrow(pa.chunked_array([[1, 2], [], [3]]))
    assert stream.column_names == []
    assert [(type(array), len(array)) for array in stream] == [(ad.Array, 2), (ad.Array, 0), (ad.Array, 1)]


def test_an_empty_stream():
    stream = ad.from_arrow(pa.table({"x": pa.array([], pa.int8())}))
    assert pa.table(stream).schema == pa.schema([("x", pa.int8())])
    assert pa.table(ad.from_arrow(pa.chunked_array([], pa.struct([("x", pa.int8())])))).num_rows == 0


@pytest.mark.parametrize("dunder", ["__arrow_c_stream__", "__arrow_c_device_stream__"])
def test_a_stream_is_handed_over_once(dunder: str):
    stream = ad.from_arrow(pa.Table.from_batches(batches()))
    next(stream)
    capsule = getattr(stream, dunder)()
    with pytest.raises(ad.ConversionError, match="consumed"):
        getattr(stream, dunder)()
    with pytest.raises(ad.ConversionError, match="consumed"):
        ad.to_tensors(stream)
    # What was not read yet goes along.
    rest = ad.from_arrow(Only(dunder, lambda: capsule))
    assert [len(batch) for batch in rest] == [2, 2]
    # The type can be asked for at any time.
    assert pa.field(stream).type == pa.struct([("x", pa.int64())])


def test_reading_consumes():
    stream = ad.from_arrow(pa.Table.from_batches(batches()))
    assert np.from_dlpack(ad.to_tensors(stream)["x"]).tolist() == [0, 1, 1, 2, 2, 3]
    with pytest.raises(ValueError, match="consumed"):
        ad.to_tensors(stream)


def test_nothing_is_read_to_hand_it_over():
    asked: list[int] = []
    stream = ad.from_arrow(reader(asked))
    capsule = stream.__arrow_c_stream__()
    assert asked == []
    del capsule
    assert asked == []


class TestRelease:
    @pytest.mark.parametrize("device_type", [None, 1], ids=["host", "device"])
    @pytest.mark.parametrize("read", [0, 1, 2])
    @pytest.mark.parametrize("end", ["drop", "close", "export"])
    def test_early(self, device_type, read: int, end: str):
        made = [Array(device=None if device_type is None else (1, -1)) for _ in range(3)]
        producer = Stream(made, device_type=device_type)
        stream = ad.from_arrow(producers.stream(producer))
        for _ in range(read):
            next(stream)
        assert (producer.asked_schema, producer.asked_next) == (1, read)
        if end == "close":
            stream.close()
            assert producer.releases == 1
            stream.close()
            assert list(stream) == []
        elif end == "export":
            capsule = stream.__arrow_c_stream__()
            del capsule
        del stream
        gc.collect()
        assert producer.releases == 1
        assert [array.releases for array in made] == [1] * read + [0] * (3 - read)
        for array in made[read:]:
            producers.release_struct(array.struct)

    def test_at_the_end(self):
        producer = Stream([Array()])
        stream = ad.from_arrow(producers.stream(producer))
        next(stream)
        assert producer.releases == 0
        assert next(stream, None) is None
        assert producer.releases == 1
        assert next(stream, None) is None
        assert producer.asked_next == 2

    def test_at_an_error(self):
        producer = Stream([Array(), (5, b"lost"), Array()])
        stream = ad.from_arrow(producers.stream(producer))
        next(stream)
        with pytest.raises(ad.ConversionError, match="lost"):
            next(stream)
        assert producer.releases == 1
        assert list(stream) == []
        producers.release_struct(next(producer.items).struct)


class TestErrors:
    def test_of_a_python_producer(self):
        with pytest.raises(ad.ConversionError, match="batch 1 is gone"):
            ad.to_tensors(reader([], fail_at=1))
        stream = ad.from_arrow(reader([], fail_at=1))
        next(stream)
        with pytest.raises(ad.ConversionError, match="batch 1 is gone"):
            next(stream)

    def test_through_us_to_the_consumer(self):
        stream = ad.from_arrow(reader([], fail_at=1))
        with pytest.raises((pa.ArrowException, OSError), match="batch 1 is gone"):
            pa.table(stream)

    @pytest.mark.parametrize("device_type", [None, 1], ids=["host", "device"])
    def test_of_the_schema(self, device_type):
        producer = Stream(schema=(12, b"no schema today"), device_type=device_type)
        with pytest.raises(ad.ConversionError, match="no schema today"):
            ad.from_arrow(producers.stream(producer))
        assert producer.releases == 1

    def test_a_schema_that_is_refused(self):
        schema = Schema(b"?")
        producer = Stream(schema=lambda: schema)
        with pytest.raises(ad.UnsupportedTypeError):
            ad.from_arrow(producers.stream(producer))
        assert (producer.releases, schema.releases) == (1, 1)


class TestExplain:
    def test_reads_no_stream(self):
        asked: list[int] = []
        source = reader(asked)
        assert ad.explain(source).rows[0].column == "x"
        stream = ad.from_arrow(source)
        assert ad.explain(stream).rows[0].dtype == "int64"
        assert asked == []
        assert len(list(stream)) == 3

    def test_says_so_where_there_is_no_schema(self):
        def opened():
            raise AssertionError("opened")

        with pytest.raises(TypeError, match="schema"):
            ad.explain(Only("__arrow_c_stream__", opened))


def test_copies_are_made_as_the_arrays_come():
    asked: list[int] = []
    stream = ad.from_arrow(reader(asked), copy=True)
    assert asked == []
    with ad.track_copies() as log:
        batch = next(stream)
    assert log.bytes >= 16
    assert pa.record_batch(batch).to_pydict() == {"x": [0, 1]}


def test_one_thread_reads_at_a_time():
    entered, leave = threading.Event(), threading.Event()

    def generate():
        entered.set()
        assert leave.wait(30)
        yield batches()[0]

    stream = ad.from_arrow(pa.RecordBatchReader.from_batches(batches()[0].schema, generate()))
    read: list[int] = []
    thread = threading.Thread(target=lambda: read.append(len(next(stream))))
    thread.start()
    assert entered.wait(30)
    # The producer runs without the interpreter's lock, so that others get here.
    for use in (lambda: next(stream), stream.close, stream.__arrow_c_stream__, lambda: ad.to_tensors(stream)):
        with pytest.raises(ValueError, match="another thread"):
            use()
    assert stream.column_names == ["x"]
    leave.set()
    thread.join()
    assert read == [2]
    assert list(stream) == []


def test_a_producer_that_uses_its_own_stream():
    held: list[ad.ArrayStream] = []

    def generate():
        with pytest.raises(ValueError, match="another thread"):
            next(held[0])
        yield batches()[0]

    held.append(ad.from_arrow(pa.RecordBatchReader.from_batches(batches()[0].schema, generate())))
    assert len(next(held[0])) == 2
    held.clear()


def test_chains_of_streams():
    stream = ad.from_arrow(pa.Table.from_batches(batches()))
    for _ in range(10):
        stream = ad.from_arrow(producers.only("__arrow_c_device_stream__", stream))
        stream = ad.from_arrow(producers.only("__arrow_c_stream__", stream))
    assert pa.table(stream).to_pydict() == {"x": [0, 1, 1, 2, 2, 3]}


class TestBatchAsStream:
    """A record batch is a stream of itself, for consumers that ask for streams alone."""

    BATCH = pa.record_batch({"x": pa.array([1, 2]), "s": ["a", "b"]})

    @pytest.mark.parametrize("dunder", ["__arrow_c_stream__", "__arrow_c_device_stream__"])
    def test_gives_itself_again_and_again(self, dunder: str):
        batch = ad.from_arrow(self.BATCH)
        for _ in range(2):
            alone = type("Alone", (), {dunder: lambda self, *arguments: getattr(batch, dunder)(*arguments)})()
            assert pa.table(ad.from_arrow(alone)).equals(pa.table(self.BATCH))

    def test_in_the_type_that_is_requested(self):
        batch = ad.from_arrow(self.BATCH)
        requested = pa.schema([("x", pa.int8()), ("s", pa.string())])
        assert pa.RecordBatchReader.from_stream(batch, requested).read_all().schema == requested
        large = ad.from_arrow(pa.record_batch({"x": pa.array([1, 300]), "s": ["a", "b"]}))
        with pytest.raises(ad.CastError) as caught:
            large.__arrow_c_stream__(requested.__arrow_c_schema__())
        assert (caught.value.column, caught.value.row) == ("x", 1)
        assert caught.value.remedy

    def test_on_another_device_is_refused(self):
        with pytest.raises(ad.ConversionError, match="cuda"):
            ad.from_arrow(self.BATCH).__arrow_c_device_stream__(requested_device=(2, 0))


def of_no_elements(kind: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.chunked_array([[[], []], [[]]], kind)})


@pytest.mark.parametrize(
    "options", [{}, {"dtype": "float32"}, {"nulls": 0}, {"nulls": "keep"}, {"writable": True}, {"order": "F"}], ids=str
)
@pytest.mark.parametrize("item", [pa.int32(), pa.bool_(), pa.float16(), pa.list_(pa.int8(), 2)], ids=str)
def test_rows_of_no_elements_need_no_copy(item: pa.DataType, options: dict):
    table = of_no_elements(pa.list_(item, 0))
    for source in (table, table.to_reader()):
        assert ad.to_tensor(source, columns=["c"], copy=False, **options).shape == (3, 0)
    for source in (table, table.to_reader()):
        tensors = ad.to_tensors(source, copy=False, **options)
        assert tensors["c"].shape[:2] == (3, 0)
    lists = of_no_elements(pa.list_(pa.int32()))
    for source in (lists, lists.to_reader()):
        assert ad.to_tensor(source, columns=["c"], length=0, copy=False, **options).shape == (3, 0)
