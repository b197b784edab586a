"""Iterables, files, data sets and queries are read as streams, in every function and in the loader."""

from __future__ import annotations

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
from source_cases import EXPECTED, LISTS, ROWS, TABLE, Iterable, batches, generated, values
from tqdm import tqdm

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
        assert bool(loader)
        assert bool(ad.Loader(lambda: make(file), batch_size=6))
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


class TestKnownBeforehand:
    """Schemas that a source tells without being read."""

    @pytest.mark.parametrize(
        "name",
        ["list of batches", "tuple of batches", "list of lists", "ParquetFile", "Dataset", "Scanner", "LazyFrame"],
    )
    def test_explain(self, name: str, file: Path):
        report = ad.explain(SOURCES[name][0](file))
        assert [(row.column, row.dtype) for row in report] == [("i", "int64"), ("f", "float64")]

    @pytest.mark.parametrize("name", ["generator", "map", "iter_batches"])
    def test_explain_takes_nothing_of_an_iterator(self, name: str, file: Path):
        source = SOURCES[name][0](file)
        with pytest.raises(TypeError, match="explain cannot look at an iterator"):
            ad.explain(source)
        assert pa.record_batch(next(source)).num_rows == 7

    @QUIET
    @pytest.mark.parametrize("name", ["iterable", "execute"])
    def test_explain_of_sources_without_a_schema(self, name: str, file: Path):
        source = SOURCES[name][0](file)
        with pytest.raises(TypeError, match="first item"):
            ad.explain(source)
        assert ad.to_tensor(source).shape == (ROWS, 2)

    @QUIET
    @pytest.mark.parametrize("name", [name for name, (_, again, _) in SOURCES.items() if again and name != "iterable"])
    def test_columns_are_checked_when_a_loader_is_made(self, name: str, file: Path):
        with pytest.raises(ad.ConversionError, match='"nothing"'):
            ad.Loader(SOURCES[name][0](file), batch_size=2, columns=["i", "nothing"])

    def test_a_list_in_itself(self):
        endless: list = []
        endless.append(endless)
        for read in (ad.to_tensor, ad.explain, lambda source: ad.Loader(source, batch_size=2)):
            with pytest.raises(TypeError, match="Arrow data"):
                read(endless)
        endless.insert(0, TABLE)
        with pytest.raises(TypeError, match="item 2"):
            ad.to_tensor(endless)
        with pytest.raises(TypeError, match="how many rows"):
            len(ad.Loader(endless, batch_size=2))

    def test_a_scanner_that_can_be_read_once_says_so(self):
        loader = ad.Loader(pds.Scanner.from_batches(TABLE.to_reader()), batch_size=7)
        assert sum(len(batch) for batch in loader) == ROWS
        with pytest.raises(ad.ConversionError, match="already scanned"):
            list(loader)


def test_arrays_that_would_have_to_be_computed_are_no_sources() -> None:
    class Plan:
        """As an array of Dask: its items are computed one by one, or not at all."""

        def __array__(self) -> object:
            raise AssertionError("computed")

        def __iter__(self) -> object:
            raise ValueError("of unknown length")

    for call in (ad.to_tensor, ad.to_tensors, ad.to_ragged, ad.validity, ad.from_arrow, ad.explain):
        with pytest.raises(TypeError, match="Plan"):
            call(Plan())
