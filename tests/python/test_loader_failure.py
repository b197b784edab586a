"""What fails is told at its batch; and whatever the end, no thread, no memory and no half-read source is left."""

import functools
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from loader_reference import batches, counted, loader_threads, numbered, rows_of

PREFETCH = pytest.mark.parametrize("prefetch", [0, 1, 4])


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    yield
    gc.collect()
    assert loader_threads() == 0


def failing(at: int, error: Exception | None = None, chunk: int = 5) -> pa.RecordBatchReader:
    """Numbered rows without end, the generator of which raises instead of giving row `at`."""

    def generate():
        row = 0
        while row < at:
            yield from numbered(at).slice(row, min(chunk, at - row)).to_batches()
            row += chunk
        raise error or RuntimeError(f"row {at} is gone")

    return pa.RecordBatchReader.from_batches(numbered(0).schema, generate())


class TestErrors:
    @PREFETCH
    @pytest.mark.parametrize("at", [0, 5, 19, 20, 23])
    def test_of_the_source_come_after_the_good_batches(self, at: int, prefetch: int):
        loader = ad.Loader(lambda: failing(at), batch_size=4, prefetch=prefetch)
        for _ in range(2):
            iterator = iter(loader)
            for batch in batches(at // 4 * 4, 4):
                assert rows_of(next(iterator)) == batch
            with pytest.raises(ad.ConversionError, match=f"row {at} is gone"):
                next(iterator)
            assert loader_threads() == 0
            assert next(iterator, None) is None
            assert loader.state_dict()["taken"] == [at // 4 * 4]

    @PREFETCH
    def test_of_the_source_with_a_shuffle(self, prefetch: int):
        loader = ad.Loader(lambda: failing(30), batch_size=4, shuffle_buffer=8, seed=0, prefetch=prefetch)
        expected = batches(1000, 4, shuffle_buffer=8, seed=0)
        iterator = iter(loader)
        # A row leaves the buffer for each that comes: 22 do before the source fails.
        for batch in expected[:5]:
            assert rows_of(next(iterator)) == batch
        with pytest.raises(ad.ConversionError, match="row 30 is gone"):
            next(iterator)

    def test_keep_the_producers_message(self):
        producer = producers.Stream([producers.Array(), (5, b"the disk is lost")])
        iterator = iter(ad.Loader(producers.stream(producer), batch_size=3))
        next(iterator)
        with pytest.raises(ad.ConversionError, match="code 5: the disk is lost"):
            next(iterator)
        assert producer.releases == 1

    def test_of_the_schema(self):
        producer = producers.Stream(schema=(12, b"no schema today"))
        with pytest.raises(ad.ConversionError, match="no schema today"):
            iter(ad.Loader(producers.stream(producer), batch_size=3))
        assert producer.releases == 1

    @PREFETCH
    @pytest.mark.parametrize("shuffle_buffer", [0, 6])
    def test_a_null_is_named_by_column_and_row_of_the_source(self, shuffle_buffer: int, prefetch: int):
        rows = [None if row == 23 else row for row in range(30)]
        table = pa.table({"a": [0.0] * 30, "row": pa.chunked_array([rows[:10], rows[10:20], rows[20:]])})
        loader = ad.Loader(table, batch_size=4, shuffle_buffer=shuffle_buffer, prefetch=prefetch)
        iterator = iter(loader)
        for _ in range((23 - shuffle_buffer) // 4):
            next(iterator)
        with pytest.raises(ad.NullError) as caught:
            next(iterator)
        assert (caught.value.column, caught.value.row) == ("row", 23)
        assert list(iterator) == []

    @PREFETCH
    @pytest.mark.parametrize("columns", [None, {"x": "row"}])
    def test_a_value_that_does_not_fit_is_named_by_column_and_row(self, columns, prefetch: int):
        loader = ad.Loader(numbered(300, 64), batch_size=50, dtype="int8", columns=columns, prefetch=prefetch)
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        with pytest.raises(ad.CastError) as caught:
            next(iterator)
        assert (caught.value.column, caught.value.row) == ("row", 128)

    @PREFETCH
    @pytest.mark.parametrize("chunk", [60, 10])
    @pytest.mark.parametrize("columns", [None, {"x": ad.group(["emb", "row"])}, {"x": ad.group(["emb"], validity="v")}])
    def test_a_list_of_another_length_is_that_of_its_batch(self, columns: Any, chunk: int, prefetch: int):
        lists = pa.array([*([[1, 2]] * 50), [1], *([[1, 2]] * 9)], pa.list_(pa.int64()))
        table = pa.table({"emb": lists, "row": range(60)})
        chunks = [batch for at in range(0, 60, chunk) for batch in table.slice(at, chunk).to_batches()]
        options = {"columns": columns or ["emb"], "batch_size": 4, "length": {"emb": 2}, "prefetch": prefetch}
        iterator = iter(ad.Loader(pa.Table.from_batches(chunks), **options))
        for _ in range(12):
            next(iterator)
        with pytest.raises(ad.ConversionError, match="row 50: the list has 1 element"):
            next(iterator)
        # Rank 1 of 2 has no row of it.
        other = ad.Loader(pa.Table.from_batches(chunks), rank=1, world_size=2, **options)
        assert len(list(other)) == 7

    def test_rows_of_other_ranks_are_not_looked_at(self):
        table = pa.table({"row": [0, 1, None, 3, 4, 5, 6, 7]})
        first = ad.Loader(table, batch_size=2, rank=0, world_size=2)
        assert [rows_of(batch) for batch in first] == [[0, 1], [4, 5]]
        with pytest.raises(ad.NullError):
            list(ad.Loader(table, batch_size=2, rank=1, world_size=2))

    @PREFETCH
    @pytest.mark.parametrize(
        ("other", "named"),
        [({"row": ["four"]}, "n_buffers"), ({"row": [4], "more": [5]}, "n_children"), ({}, "n_children")],
        ids=str,
    )
    def test_a_schema_that_changes(self, other: dict, named: str, prefetch: int):
        def generate():
            yield from numbered(4).to_batches()
            yield pa.record_batch(other)

        def opened():
            return pa.RecordBatchReader.from_batches(numbered(0).schema, generate())

        iterator = iter(ad.Loader(opened, batch_size=2, prefetch=prefetch))
        assert [rows_of(next(iterator)) for _ in range(2)] == [[0, 1], [2, 3]]
        with pytest.raises(ad.ConversionError, match=named):
            next(iterator)

    @PREFETCH
    def test_an_array_that_is_not_of_the_schema(self, prefetch: int):
        wrong = producers.Array(buffers=(None,))
        producer = producers.Stream([producers.Array(), wrong])
        iterator = iter(ad.Loader(producers.stream(producer), batch_size=3, prefetch=prefetch))
        next(iterator)
        with pytest.raises(ad.ConversionError, match="buffers"):
            next(iterator)
        assert (producer.releases, wrong.releases) == (1, 1)

    def test_codes_of_another_dictionary(self):
        chunks = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["b", "a"])]
        loader = ad.Loader(pa.table({"w": pa.chunked_array(chunks)}), batch_size=2)
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            next(iterator)
        assert caught.value.column == "w"
        values = ad.Loader(pa.table({"w": pa.chunked_array(chunks)}), batch_size=2, dictionary="codes", dtype="int64")
        with pytest.raises(ad.UnsupportedTypeError):
            list(values)

    def test_memory_that_cannot_be_had(self):
        with pytest.raises(MemoryError):
            iter(ad.Loader(numbered(3), batch_size=2**62))


class TestEnds:
    """The source is released once, and the thread is gone, when the statement is over."""

    @PREFETCH
    def test_break(self, prefetch: int):
        producer, source = counted()
        for batch in ad.Loader(source, batch_size=4, prefetch=prefetch):
            if batch.shape == (4,):
                break
        assert (producer.releases, loader_threads()) == (1, 0)

    @PREFETCH
    def test_del(self, prefetch: int):
        producer, source = counted()
        iterator = iter(ad.Loader(source, batch_size=4, prefetch=prefetch))
        next(iterator)
        assert producer.releases == 0
        del iterator
        assert (producer.releases, loader_threads()) == (1, 0)

    @PREFETCH
    def test_nothing_was_asked_for(self, prefetch: int):
        producer, source = counted()
        iterator = iter(ad.Loader(source, batch_size=4, prefetch=prefetch))
        del iterator
        assert (producer.releases, loader_threads()) == (1, 0)

    @PREFETCH
    def test_close(self, prefetch: int):
        producer, source = counted()
        iterator = iter(ad.Loader(source, batch_size=4, prefetch=prefetch))
        held = next(iterator)
        iterator.close()
        assert (producer.releases, loader_threads()) == (1, 0)
        assert next(iterator, None) is None
        iterator.close()
        assert np.from_dlpack(held).tolist() == [1, 2, 3, 1]

    @PREFETCH
    def test_an_exception(self, prefetch: int):
        producer, source = counted()

        def train():
            for _ in ad.Loader(source, batch_size=4, prefetch=prefetch):
                raise LookupError("on purpose")

        with pytest.raises(LookupError):
            train()
        assert (producer.releases, loader_threads()) == (1, 0)

    @PREFETCH
    def test_the_end_of_the_rows(self, prefetch: int):
        producer, source = counted()
        iterator = iter(ad.Loader(source, batch_size=4, prefetch=prefetch))
        assert sum(len(batch) for batch in iterator) == 60
        assert (producer.releases, loader_threads()) == (1, 0)

    @PREFETCH
    def test_collection(self, prefetch: int):
        producer, source = counted()

        class Node:
            pass

        node = Node()
        # A cycle through the loader, which refers to its source, and the iterator.
        node.loader = ad.Loader(lambda node=node, source=source: source, batch_size=4, prefetch=prefetch)
        node.iterator = iter(node.loader)
        next(node.iterator)
        del node, source
        assert producer.releases == 0
        gc.collect()
        assert (producer.releases, loader_threads()) == (1, 0)

    def test_collection_on_the_loaders_thread(self):
        """The source's own code collects the iterator that the thread works for."""
        collected = threading.Event()

        class Node:
            pass

        def generate():
            yield from numbered(4).to_batches()
            assert drop.wait(30)
            gc.collect()
            collected.set()
            yield from numbered(4).to_batches()

        drop = threading.Event()
        node = Node()
        node.iterator = iter(ad.Loader(pa.RecordBatchReader.from_batches(numbered(0).schema, generate()), batch_size=4))
        node.self = node
        next(node.iterator)
        gc.disable()
        try:
            del node
            drop.set()
            assert collected.wait(30)
        finally:
            gc.enable()
        wait_until(lambda: loader_threads() == 0)

    @PREFETCH
    def test_a_loader_that_reads_a_loader(self, prefetch: int):
        def generate():
            for batch in ad.Loader(numbered(100, 7), batch_size=8, prefetch=prefetch):
                yield pa.record_batch([pa.array(ad.to_arrow(np.from_dlpack(batch)[:, 0]))], ["row"])

        def opened():
            return pa.RecordBatchReader.from_batches(numbered(0).schema, generate())

        loader = ad.Loader(opened, batch_size=10)
        assert [rows_of(batch) for batch in loader] == batches(100, 10)
        next(iter(loader))
        # The inner thread is told to stop by the outer one, which does not wait for it.
        wait_until(lambda: loader_threads() == 0)

    def test_a_source_that_asks_the_loader_that_reads_it(self):
        held: list[Any] = []

        def generate():
            yield from numbered(4).to_batches()
            next(held[0])

        for prefetch in (0, 1):
            source = pa.RecordBatchReader.from_batches(numbered(0).schema, generate())
            held.append(iter(ad.Loader(source, batch_size=4, prefetch=prefetch)))
            assert rows_of(next(held[0])) == [0, 1, 2, 3]
            with pytest.raises(ad.ConversionError, match="loader"):
                next(held[0])
            held.clear()


def wait_until(condition: Any) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


class TestThreads:
    def test_consumers_share_an_iterator(self):
        iterator = iter(ad.Loader(numbered(4000, 70), batch_size=10))
        seen: list[list[list[int]]] = [[] for _ in range(4)]

        def consume(number: int) -> None:
            seen[number].extend(rows_of(batch) for batch in iterator)

        threads = [threading.Thread(target=consume, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(batch for one in seen for batch in one) == batches(4000, 10)

    def test_another_thread_closes(self):
        entered, leave = threading.Event(), threading.Event()

        def generate():
            entered.set()
            assert leave.wait(30)
            yield from numbered(4).to_batches()

        source = pa.RecordBatchReader.from_batches(numbered(0).schema, generate())
        iterator = iter(ad.Loader(source, batch_size=4))
        found: list[Any] = []
        consumer = threading.Thread(target=lambda: found.append(next(iterator, "the end")))
        consumer.start()
        assert entered.wait(30)
        closer = threading.Thread(target=iterator.close)
        closer.start()
        # The producer is in the middle of an array: it is waited for.
        closer.join(0.05)
        assert closer.is_alive()
        leave.set()
        closer.join()
        consumer.join()
        assert found == ["the end"]

    def test_without_a_thread_one_makes_a_batch_at_a_time(self):
        entered, leave = threading.Event(), threading.Event()

        def generate():
            entered.set()
            assert leave.wait(30)
            yield from numbered(4).to_batches()

        source = pa.RecordBatchReader.from_batches(numbered(0).schema, generate())
        iterator = iter(ad.Loader(source, batch_size=4, prefetch=0))
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(next(iterator)))
        thread.start()
        assert entered.wait(30)
        with pytest.raises(ad.ConversionError, match="already"):
            next(iterator)
        leave.set()
        thread.join()
        assert rows_of(found[0]) == [0, 1, 2, 3]

    def test_without_a_thread_another_one_closes_between_two_arrays(self):
        entered, leave, read, errors = threading.Event(), threading.Event(), [], []

        def generate():
            for batch in numbered(400, 4).to_batches():
                read.append(batch.num_rows)
                entered.set()
                assert leave.wait(30)
                yield batch

        leave.set()
        # The first array is there with iter().
        iterator = iter(ad.Loader(generate, batch_size=400, prefetch=0))

        def take() -> None:
            try:
                next(iterator)
            except ad.ConversionError as error:
                errors.append(str(error))

        thread = threading.Thread(target=take)
        entered.clear()
        leave.clear()
        thread.start()
        assert entered.wait(30)
        iterator.close()
        leave.set()
        thread.join()
        assert (len(read), len(errors)) == (2, 1)
        assert "closed" in errors[0]
        assert list(iterator) == []

    def test_the_thread_runs_while_the_consumer_works(self):
        made: list[int] = []

        def generate():
            for part in numbered(40, 4).to_batches():
                made.append(len(made))
                yield part

        source = pa.RecordBatchReader.from_batches(numbered(0).schema, generate())
        iterator = iter(ad.Loader(source, batch_size=4, prefetch=3))
        next(iterator)
        # Three ahead of the one that was handed out.
        wait_until(lambda: len(made) == 4)
        time.sleep(0.05)
        assert len(made) == 4
        del iterator


class TestExceptionsOfShards:
    """They are raised as they are, with a note of the shard's number."""

    @pytest.mark.parametrize("how", ["opens", "reads", "reads the first rows", "returns no data"])
    @pytest.mark.parametrize(("prefetch", "readers"), [(0, 1), (2, 1), (2, 2)])
    @pytest.mark.parametrize("fails", [0, 1, 2])
    def test_name_it_once(self, fails: int, prefetch: int, readers: int, how: str):
        gone = OSError(5, "disk gone")

        def opened(number: int) -> Any:
            if number == fails and how == "opens":
                raise gone
            return 5 if number == fails and how == "returns no data" else parts(number)

        def parts(number: int) -> Iterator[pa.Table]:
            if number == fails and how == "reads the first rows":
                raise gone
            yield numbered(5)
            if number == fails and how == "reads":
                raise gone
            yield numbered(5)

        sources = [(functools.partial(opened, number), 10) for number in range(3)]
        loader = ad.Loader(sources=sources, lanes=3, batch_size=10, prefetch=prefetch, readers=readers)
        for _ in range(2):
            with pytest.raises((OSError, TypeError)) as caught:
                list(loader)
            assert how == "returns no data" or (caught.value is gone and str(gone) == "[Errno 5] disk gone")
            assert caught.value.__notes__ == [f"shard {fails}"]

    def test_of_the_same_exception_tell_the_last_shard(self):
        gone = OSError("disk gone")
        gone.add_note("of the source")
        gone.add_note("shard of glass")

        def opened(number: int) -> pa.Table:
            if number == fails:
                raise gone
            return numbered(5)

        for fails in (1, 2, 0):
            loader = ad.Loader(sources=[functools.partial(opened, number) for number in range(3)], batch_size=5)
            with pytest.raises(OSError, match="disk gone"):
                list(loader)
            assert gone.__notes__ == ["of the source", "shard of glass", f"shard {fails}"]

    @pytest.mark.parametrize("notes", [(), "shard 1", None, 5])
    def test_that_take_no_note_are_raised_all_the_same(self, notes: object):
        class GoneError(Exception):
            pass

        gone = GoneError("disk gone")
        gone.__notes__ = notes

        def opened() -> pa.Table:
            raise gone

        for sources in ([opened, numbered(5)], [numbered(5), opened]):
            with pytest.raises(GoneError) as caught:
                list(ad.Loader(sources=sources, batch_size=5))
            assert caught.value is gone
            assert gone.__notes__ == notes

    def test_of_one_source_have_no_note(self):
        gone = OSError("disk gone")

        def opened() -> pa.Table:
            raise gone

        for source in ({"source": opened}, {"sources": [opened]}):
            with pytest.raises(OSError, match="disk gone"):
                list(ad.Loader(batch_size=1, **source))
        assert not hasattr(gone, "__notes__")
