"""Iterables, files, data sets and queries are read as streams, in every function and in the loader."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import producers
import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq
import pytest
from tqdm import tqdm

ROWS = 40
TABLE = pa.table({"i": pa.array(range(ROWS), pa.int64()), "f": pa.array([row / 4 for row in range(ROWS)])})
EXPECTED = [[float(row), row / 4] for row in range(ROWS)]
LISTS = pa.table({"l": [[row] * (row % 3) for row in range(ROWS)]})
QUIET = pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sources") / "rows.parquet"
    pq.write_table(TABLE, path, row_group_size=9)
    return path


@pytest.fixture(autouse=True)
def settled() -> Iterator[None]:
    """Threads of pyarrow's file readers may let go of their last buffer a moment after the reader is gone."""
    before = pa.total_allocated_bytes()
    yield
    gc.collect()
    until = time.monotonic() + 10
    while pa.total_allocated_bytes() > before and time.monotonic() < until:
        time.sleep(0.01)


def batches() -> list[pa.RecordBatch]:
    return TABLE.to_batches(max_chunksize=7)


def generated() -> Iterator[pa.RecordBatch]:
    yield from batches()


class Iterable:
    """Gives a fresh iterator each time."""

    def __init__(self, items: Callable[[], Iterator[Any]]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return self.items()


# Name: how it is made of a file, whether it can be read again, and whether its number of rows costs nothing.
SOURCES: dict[str, tuple[Callable[[Path], Any], bool, bool]] = {
    "list of batches": (lambda _: batches(), True, True),
    "tuple of batches": (lambda _: tuple(batches()), True, True),
    "list of tables": (lambda _: [TABLE[:5], TABLE[5:5], TABLE[5:]], True, True),
    "list of readers": (lambda _: [TABLE[:5].to_reader(), TABLE[5:].to_reader()], False, False),
    "list of own batches": (lambda _: [ad.from_arrow(batch) for batch in batches()], True, True),
    "list of data frames": (lambda _: [TABLE[:5].to_pandas(), TABLE[5:].to_pandas()], True, True),
    "list of polars' data frames": (lambda _: [pl.from_arrow(TABLE[:5]), pl.from_arrow(TABLE[5:])], True, True),
    "list of lists": (lambda _: [batches()[:2], batches()[2:]], True, True),
    "list of files": (lambda path: [pq.ParquetFile(path)], True, True),
    "generator": (lambda _: generated(), False, False),
    "map": (lambda _: map(ad.from_arrow, batches()), False, False),
    "iterable": (lambda _: Iterable(generated), True, False),
    "iter_batches": (lambda path: pq.ParquetFile(path).iter_batches(7), False, False),
    "ParquetFile": (pq.ParquetFile, True, True),
    "Dataset": (lambda path: pds.dataset(path), True, False),
    "Dataset.to_batches": (lambda path: pds.dataset(path).to_batches(), False, False),
    "fragments": (lambda path: list(pds.dataset(path).get_fragments()), True, False),
    "Scanner": (lambda path: pds.dataset(path).scanner(batch_size=7), True, False),
    "LazyFrame": (lambda path: pl.scan_parquet(path), True, False),
    "collect_batches": (lambda path: pl.scan_parquet(path).collect_batches(), False, False),
    "execute": (lambda path: duckdb.connect().execute(f"from '{path}'"), False, False),
    "relation": (lambda path: duckdb.sql(f"from '{path}'"), True, False),
}
EACH = pytest.mark.parametrize(("make", "again", "free"), SOURCES.values(), ids=SOURCES)


def values(tensor: Any) -> list[Any]:
    return np.from_dlpack(tensor).tolist()


@QUIET
@EACH
class TestFormsAreStreams:
    def test_functions(self, make: Callable[[Path], Any], again: bool, free: bool, file: Path):
        assert values(ad.to_tensor(make(file))) == EXPECTED
        out = np.zeros((ROWS, 2))
        ad.to_tensor(make(file), out=out)
        assert out.tolist() == EXPECTED
        assert values(ad.to_tensors(make(file), columns=["f"])["f"]) == [row[1] for row in EXPECTED]
        assert values(ad.to_tensors(make(file), columns={"x": ["f", "i"]})["x"]) == [row[::-1] for row in EXPECTED]
        assert values(ad.validity(make(file))) == [[True, True]] * ROWS
        stream = ad.from_arrow(make(file))
        assert isinstance(stream, ad.ArrayStream)
        assert stream.column_names == ["i", "f"]
        assert pa.table(stream).equals(TABLE)
        assert sum(len(batch) for batch in ad.from_arrow(make(file), copy=True)) == ROWS

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_loader(self, make: Callable[[Path], Any], again: bool, free: bool, file: Path, prefetch: int):
        loader = ad.Loader(make(file), batch_size=6, prefetch=prefetch)
        assert np.concatenate([np.from_dlpack(batch) for batch in loader]).tolist() == EXPECTED
        if again:
            assert np.concatenate([np.from_dlpack(batch) for batch in loader]).tolist() == EXPECTED
        else:
            with pytest.raises(ValueError, match="can be read once"):
                iter(loader)

    def test_a_callable_that_opens_it(self, make: Callable[[Path], Any], again: bool, free: bool, file: Path):
        loader = ad.Loader(lambda: make(file), batch_size=6, shuffle_buffer=100, seed=3)
        for _ in range(2):
            assert sorted(np.concatenate([np.from_dlpack(batch) for batch in loader]).tolist()) == EXPECTED

    def test_the_length_is_known_for_free_or_a_type_error(
        self, make: Callable[[Path], Any], again: bool, free: bool, file: Path
    ):
        loader = ad.Loader(make(file), batch_size=6)
        if free:
            assert len(loader) == 7
        else:
            with pytest.raises(TypeError, match="how many rows"):
                len(loader)
        assert len(list(loader)) == 7
        assert len(list(tqdm(ad.Loader(make(file), batch_size=6), disable=True))) == 7


@QUIET
def test_one_connection_has_one_result_after_the_other(file: Path):
    connection = duckdb.connect()
    loader = ad.Loader(lambda: connection.execute(f"from '{file}'"), batch_size=6)
    for _ in range(3):
        assert sum(len(batch) for batch in loader) == ROWS
    connection.execute(f"from '{file}'")
    assert ad.to_tensor(connection).shape == (ROWS, 2)
    with pytest.raises(ValueError, match="can be read once"):
        ad.to_tensor(connection)


def test_sources_without_rows_have_the_schema_of_their_own(tmp_path: Path):
    path = tmp_path / "empty.parquet"
    pq.ParquetWriter(path, TABLE.schema).close()
    for source in (pq.ParquetFile(path), pds.dataset(path), pds.dataset(path).scanner(), pl.scan_parquet(path)):
        assert ad.to_tensor(source).shape == (0, 2)
        assert list(ad.Loader(source, batch_size=2)) == []
    assert ad.to_tensor([TABLE[:0]]).shape == (0, 2)
    assert ad.to_tensor([pa.table(TABLE.schema.empty_table())]).shape == (0, 2)


def test_ragged_rows_of_parts():
    ragged = ad.to_ragged(part["l"].combine_chunks() for part in (LISTS[:7], LISTS[7:]))
    assert pa.array(ragged).to_pylist() == LISTS["l"].to_pylist()


def test_items_are_arrays_too():
    assert values(ad.to_tensor([pa.array([1, 2]), pa.chunked_array([[3], [4]])])) == [1, 2, 3, 4]
    assert values(ad.to_tensor(pl.Series([1.5]) for _ in range(2))) == [1.5, 1.5]
    assert values(ad.to_tensor([ad.to_tensor(pa.array([1])), ad.to_tensor(pa.array([2]))])) == [1, 2]
    assert [values(batch) for batch in ad.Loader([pa.array([1, 2, 3])], batch_size=2)] == [[1, 2], [3]]


def test_no_method_of_an_object_with_a_dunder_is_called():
    class Both:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return TABLE.__arrow_c_stream__(requested_schema)

        def __getattr__(self, name: str) -> object:
            if name in ("to_reader", "to_batches", "iter_batches", "scanner", "with_format"):
                pytest.fail(f"{name} was asked for")
            raise AttributeError(name)

        def __iter__(self) -> Iterator[object]:
            pytest.fail("it was iterated over")

    assert ad.to_tensor(Both()).shape == (ROWS, 2)


def test_tensors_are_no_iterables(torch: Any):
    matrix = np.arange(6.0).reshape(2, 3)
    for tensor in (matrix[0], torch.from_numpy(matrix[0]), ad.from_dlpack(matrix[0])):
        assert values(ad.to_tensor(tensor)) == [0, 1, 2]
    for tensor in (matrix, torch.from_numpy(matrix)):
        with pytest.raises(TypeError, match="the source must be"):
            ad.Loader(tensor, batch_size=2)


class TestMemory:
    """Parts are asked for one at a time, and none is kept that was read."""

    @pytest.mark.parametrize("prefetch", [0, 1])
    def test_the_loader_lets_each_part_go(self, prefetch: int):
        made: list[producers.Array] = []

        def parts() -> Iterator[Any]:
            for _ in range(50):
                made.append(producers.Array())
                yield producers.arrow(producers.Schema(), made[-1])
                gc.collect()
                # The one that is packed, and the one before it until the next is asked for.
                assert sum(not array.released for array in made) <= 1

        rows = sum(len(batch) for batch in ad.Loader(parts(), batch_size=4, prefetch=prefetch))
        assert (rows, len(made)) == (150, 50)

    def test_streams_ask_for_one_item_at_a_time(self):
        asked: list[int] = []

        def parts() -> Iterator[pa.RecordBatch]:
            for number in range(4):
                asked.append(number)
                yield pa.record_batch({"x": [number]})

        stream = ad.from_arrow(parts())
        assert asked == [0]
        for number, batch in enumerate(stream):
            assert pa.record_batch(batch).to_pylist() == [{"x": number}]
            assert asked == list(range(number + 1))


class TestEnds:
    """A generator is closed with the loader or the stream that was made of it."""

    @staticmethod
    def closing(ended: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches() * 100
        except GeneratorExit:
            ended.append("closed")
            raise
        finally:
            ended.append("done")

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_of_a_loader(self, prefetch: int):
        ended: list[str] = []
        generator = self.closing(ended)
        iterator = iter(ad.Loader(generator, batch_size=5, prefetch=prefetch))
        next(iterator)
        iterator.close()
        assert ended == ["closed", "done"]
        assert list(generator) == []

    def test_of_a_stream(self):
        ended: list[str] = []
        generator = self.closing(ended)
        stream = ad.from_arrow(generator)
        next(stream)
        stream.close()
        assert ended == ["closed", "done"]

    def test_of_nobody_elses(self):
        ended: list[str] = []
        with pytest.raises(ad.ConversionError, match="no such column"):
            ad.to_tensor(self.closing(ended), columns=["x"])
        gc.collect()
        assert ended == ["closed", "done"]

    def test_a_function_leaves_the_callers_generator_open(self):
        ended: list[str] = []
        generator = self.closing(ended)
        with pytest.raises(ad.ConversionError, match="one item was taken from the iterator"):
            ad.to_tensor(generator, columns=["x"])
        assert ended == []
        assert next(generator) == batches()[1]

    def test_a_generator_that_refuses_to_close_is_told(self, monkeypatch: pytest.MonkeyPatch):
        seen: list[Any] = []
        monkeypatch.setattr("sys.unraisablehook", seen.append)

        def stubborn() -> Iterator[pa.RecordBatch]:
            with contextlib.suppress(GeneratorExit):
                yield from batches()
            yield TABLE

        generator = stubborn()
        ad.from_arrow(generator).close()
        assert [type(one.exc_value) for one in seen] == [RuntimeError]
        seen.clear()


class Broken(Exception):
    """As a source may raise."""


class TestFailure:
    @staticmethod
    def raising(error: BaseException) -> Iterator[pa.RecordBatch]:
        yield batches()[0]
        raise error

    READERS: dict[str, Callable[[Any], Any]] = {  # noqa: RUF012
        "to_tensor": ad.to_tensor,
        "to_tensors": ad.to_tensors,
        "validity": ad.validity,
        "from_arrow": lambda source: list(ad.from_arrow(source)),
        "loader": lambda source: list(ad.Loader(source, batch_size=2)),
        "loader without a thread": lambda source: list(ad.Loader(source, batch_size=2, prefetch=0)),
    }

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    @pytest.mark.parametrize("kind", [Broken, KeyError, KeyboardInterrupt, ad.NullError, MemoryError])
    def test_what_an_iterator_raises_is_raised(self, read: Callable[[Any], Any], kind: type[BaseException]):
        error = kind("on purpose")
        with pytest.raises(kind, match="on purpose") as caught:
            read(self.raising(error))
        assert caught.value is error

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    def test_at_its_first_item_too(self, read: Callable[[Any], Any]):
        def raising() -> Iterator[pa.RecordBatch]:
            raise Broken("at once")
            yield TABLE

        with pytest.raises(Broken, match="at once"):
            read(raising())

        class NotEvenThat:
            def __iter__(self) -> Iterator[object]:
                raise Broken("no iterator")

        with pytest.raises(Broken, match="no iterator"):
            read(NotEvenThat())

    def test_batches_before_it_come_out(self):
        loader = ad.Loader(self.raising(Broken("late")), batch_size=3)
        iterator = iter(loader)
        assert [len(next(iterator)) for _ in range(2)] == [3, 3]
        with pytest.raises(Broken):
            next(iterator)
        assert next(iterator, None) is None

    def test_a_consumer_of_another_library_gets_the_text(self):
        with pytest.raises(OSError, match="Broken: on purpose"):
            pa.RecordBatchReader.from_stream(ad.from_arrow(self.raising(Broken("on purpose")))).read_all()

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    @pytest.mark.parametrize(
        ("items", "error", "text"),
        [
            ([TABLE, TABLE.select(["i"])], ad.ConversionError, r'item 2 .*\["i"\].*\["i", "f"\]'),
            ([TABLE, TABLE.select(["f", "i"])], ad.ConversionError, "item 2 .*give all items one schema"),
            ([TABLE, TABLE.rename_columns(["i", "g"])], ad.ConversionError, r'\["i", "g"\]'),
            (
                [TABLE, TABLE, TABLE.set_column(0, "i", TABLE["f"])],
                ad.ConversionError,
                'item 3 .*"i" of type Float64, and the first one Int64',
            ),
            ([TABLE, TABLE["i"]], ad.ConversionError, "item 2 .*type Int64"),
            ([TABLE, 3], TypeError, "item 2 of the iterator is no Arrow data but int"),
            ([TABLE, None], TypeError, "but NoneType"),
            ([TABLE, {"i": 3}], TypeError, "but dict"),
        ],
        ids=str,
    )
    def test_items_of_other_types(self, read: Callable[[Any], Any], items: list, error: type[Exception], text: str):
        for source in (items, iter(items)):
            with pytest.raises(error, match=text):
                read(source)

    def test_items_of_other_extension_types(self):
        def tensors(shape: list[int]) -> pa.Table:
            rows = np.arange(4.0).reshape(1, *shape)
            return pa.table({"t": pa.FixedShapeTensorArray.from_numpy_ndarray(rows)})

        assert ad.to_tensors([tensors([2, 2])] * 2)["t"].shape == (2, 2, 2)
        with pytest.raises(ad.ConversionError, match="item 2"):
            ad.to_tensors([tensors([2, 2]), tensors([4, 1])])

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    def test_no_items(self, read: Callable[[Any], Any]):
        for source in ([], (), iter([]), Iterable(lambda: iter(()))):
            with pytest.raises(ValueError, match="has no items"):
                read(source)

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    def test_what_is_no_source(self, read: Callable[[Any], Any]):
        for wrong in (
            [1, 2],
            (1.5,),
            [[1, 2], [3, 4]],
            ["a"],
            [None],
            "text",
            b"bytes",
            {"x": TABLE},
            {1},
            range(3),
            5,
        ):
            with pytest.raises(TypeError, match=r"Arrow data"):
                read(wrong)

    def test_an_item_is_lost_only_to_an_iterator(self):
        for wrong, lost in (([1], False), (iter([1]), True), (range(1), False), (Iterable(lambda: iter([1])), False)):
            with pytest.raises(TypeError, match="first item is int") as caught:
                ad.to_tensor(wrong)
            assert ("one item was taken" in str(caught.value)) is lost

    def test_wrong_columns_of_an_iterator_are_told_after_one_item(self):
        taken: list[int] = []

        def parts() -> Iterator[pa.Table]:
            for number in range(9):
                taken.append(number)
                yield TABLE

        for read in (
            lambda source: ad.to_tensor(source, columns=["nothing"]),
            lambda source: ad.to_tensors(source, columns={"x": ["nothing"]}),
            lambda source: ad.validity(source, columns=["nothing"]),
            lambda source: ad.to_tensor(source, dtype={"nothing": "int8"}),
            lambda source: iter(ad.Loader(source, batch_size=2, columns=["nothing"])),
        ):
            taken.clear()
            with pytest.raises(ValueError, match=r'"nothing".*; one item was taken from the iterator'):
                read(parts())
            assert taken == [0]

    @pytest.mark.parametrize(
        "wrong", [{"order": "X"}, {"dtype": "float31"}, {"nulls": "drop"}, {"threads": 0}, {"columns": "i"}], ids=str
    )
    def test_wrong_options_take_nothing(self, wrong: dict):
        source = generated()
        with pytest.raises((ValueError, TypeError)) as caught:
            ad.to_tensor(source, **wrong)
        assert "taken" not in str(caught.value)
        assert next(source) == batches()[0]

    def test_a_schema_that_is_known_is_checked_without_a_word_of_items(self):
        with pytest.raises(ad.ConversionError, match="no such column") as caught:
            ad.to_tensor(batches(), columns=["x"])
        assert "taken" not in str(caught.value)

    def test_the_line_to_write_instead(self):
        class Plan:
            def collect(self) -> pa.Table:
                return TABLE

        for read in (ad.to_tensor, ad.to_tensors, ad.validity, ad.from_arrow, ad.to_ragged):
            with pytest.raises(TypeError, match=r"got Plan; call \.collect\(\) and pass its result"):
                read(Plan())


class TestFrames:
    """Frames of pandas come with and without an index, as it happens: in parts it is no column."""

    def test_parts_of_a_frame(self):
        frame = pd.DataFrame({"a": np.arange(8.0), "b": np.arange(8.0)})
        parts = [frame[:3], frame[3:6][[True, True, False]], frame[6:].set_index(pd.Index([9, 3], name="id"))]
        expected = pd.concat(parts).to_numpy().tolist()
        for source in (parts, iter(parts), lambda: parts):
            if not callable(source):
                assert values(ad.to_tensor(source)) == expected
            source = source if callable(source) else list(parts)
            found = [np.from_dlpack(batch) for batch in ad.Loader(source, batch_size=3)]
            assert np.concatenate(found).tolist() == expected
        assert [part.index.name for part in parts] == [None, None, "id"]

    def test_series(self):
        parts = [pd.Series([1, 2], index=[5, 3]), pd.Series([3])]
        assert values(ad.to_tensor(parts)) == [1, 2, 3]

    def test_files_of_text_in_chunks(self, tmp_path: Path):
        path = tmp_path / "rows.csv"
        TABLE.to_pandas().to_csv(path, index=False)
        with pd.read_csv(path, chunksize=7) as chunks:
            assert values(ad.to_tensor(chunks)) == EXPECTED


class TestThreads:
    def test_a_loader_reads_a_generator_on_its_thread(self):
        seen: set[int] = set()

        def parts() -> Iterator[pa.RecordBatch]:
            for batch in batches():
                seen.add(threading.get_ident())
                yield batch

        assert sum(len(batch) for batch in ad.Loader(parts(), batch_size=4)) == ROWS
        # The first item, which has the schema, is taken by iter().
        assert threading.get_ident() in seen
        assert len(seen) == 2

    def test_a_generator_that_uses_the_package(self):
        def parts() -> Iterator[Any]:
            for batch in batches():
                matrix = np.from_dlpack(ad.to_tensor(batch))
                yield ad.to_arrow(matrix * 2, names=["i", "f"])

        doubled = [[2 * value for value in row] for row in EXPECTED]
        assert values(ad.to_tensor(parts())) == doubled
        assert values(ad.to_tensor(ad.from_arrow(pa.RecordBatchReader.from_stream(ad.from_arrow(parts()))))) == doubled
        inner = ad.Loader(parts, batch_size=3)
        outer = ad.Loader((ad.to_arrow(batch, names=["x", "y"]) for batch in inner), batch_size=4)
        assert np.concatenate([np.from_dlpack(batch) for batch in outer]).tolist() == doubled
