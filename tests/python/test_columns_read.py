"""Sources are asked for the columns that a call names, if they can leave out others. Results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

ROWS = 30
TABLE = pa.table(
    {
        "b": pa.array(range(ROWS), pa.int64()),
        "a": pa.array([row / 4 for row in range(ROWS)]),
        "text": [f"row {row}" for row in range(ROWS)],
        "n": pa.array([None if row % 7 == 3 else row for row in range(ROWS)], pa.int32()),
        "s": [{"a": row, "t": {"u": row * 0.5}} for row in range(ROWS)],
        "s.a": pa.array([-row for row in range(ROWS)], pa.int64()),
        "x.y": pa.array([row % 3 for row in range(ROWS)], pa.int16()),
        "l": [[row, row + 1] for row in range(ROWS)],
        "^d.*$": pa.array([row % 5 for row in range(ROWS)], pa.int8()),
    }
)


class Scans:
    """A data set that notes which columns it is asked for."""

    def __init__(self, table: pa.Table = TABLE) -> None:
        self.data, self.asked = pads.dataset(table), []

    @property
    def schema(self) -> pa.Schema:
        return self.data.schema

    def scanner(self, columns: list[str] | None = None) -> Any:
        self.asked.append(columns)
        return self.data.scanner(columns=columns)


class ScansAll:
    """A data set that cannot leave out columns."""

    def __init__(self, table: pa.Table = TABLE) -> None:
        self.data, self.schema = pads.dataset(table), table.schema

    def scanner(self) -> Any:
        return self.data.scanner()


class Lazy:
    """A query of polars that notes which columns it is asked for."""

    def __init__(self, frame: pl.LazyFrame | None = None, asked: list[Any] | None = None) -> None:
        self.frame = pl.from_arrow(TABLE).lazy() if frame is None else frame
        self.asked = [] if asked is None else asked

    def select(self, names: list[str]) -> Lazy:
        self.asked.append(names)
        return Lazy(self.frame.select(names), self.asked)

    def collect_schema(self) -> Any:
        return self.frame.collect_schema()

    def collect_batches(self) -> Any:
        return self.frame.collect_batches()


class Batches:
    """A file that notes which columns it is asked for, and when it gives all of them."""

    def __init__(self, path: Path) -> None:
        self.file, self.asked = pq.ParquetFile(path), []

    @property
    def schema_arrow(self) -> pa.Schema:
        return self.file.schema_arrow

    def iter_batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        self.asked.append(columns)
        yield from self.file.iter_batches(batch_size=7, columns=columns)


class RowsOfParts:
    """A data set as those of Hugging Face, which cannot leave out columns."""

    def __init__(self, table: pa.Table = TABLE, asked: list[Any] | None = None) -> None:
        self.table, self.asked = table, [] if asked is None else asked

    @property
    def format(self) -> dict[str, Any]:
        return {"type": "arrow", "columns": self.table.column_names}

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.table.slice(0, 0) if rows == slice(0, 0, 1) else pytest.fail("read otherwise than by iter()")

    def iter(self, batch_size: int) -> Iterator[pa.Table]:
        yield from (self.table.slice(start, 7) for start in range(0, self.table.num_rows, 7))

    def with_format(self, name: str, columns: list[str] | None = None) -> Any:
        raise AssertionError


class Parts(RowsOfParts):
    """A data set that notes which columns it is asked for."""

    def select_columns(self, names: list[str]) -> RowsOfParts:
        self.asked.append(names)
        return RowsOfParts(self.table.select(names), self.asked)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("columns") / "rows.parquet"
    pq.write_table(TABLE, path, row_group_size=9)
    return path


def plain(result: Any) -> Any:
    if isinstance(result, dict):
        return {name: plain(value) for name, value in result.items()}
    if isinstance(result, ad.Ragged):
        return pa.array(result).to_pylist()
    if isinstance(result, ad.RecordBatch):
        return pa.record_batch(result).to_pylist()
    return (result.dtype, np.from_dlpack(result).tolist())


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns or raises, without the name of the source's class."""
    try:
        return plain(call())
    except Exception as error:
        return type(error), str(error).replace("ScansAll", "Scans"), getattr(error, "column", None)


# The options of a call, and the columns that are asked for; None for all.
CALLS: dict[str, tuple[Callable[[Any], Any], list[str] | None]] = {
    "one": (lambda data: ad.to_tensor(data, columns=["a"]), ["a"]),
    "in another order": (lambda data: ad.to_tensor(data, columns=["a", "b"]), ["b", "a"]),
    "twice": (lambda data: ad.to_tensor(data, columns=["a", "a"]), ["a"]),
    "column-major": (lambda data: ad.to_tensor(data, columns=["a", "b"], order="F"), ["b", "a"]),
    "no copy": (lambda data: ad.to_tensor(data, columns=["a", "b"], copy=False), ["b", "a"]),
    "nulls": (lambda data: ad.to_tensor(data, columns=["n"], nulls=-1), ["n"]),
    "a null": (lambda data: ad.to_tensor(data, columns=["n"]), ["n"]),
    "text": (lambda data: ad.to_tensor(data, columns=["text"]), ["text"]),
    "a literal dot": (lambda data: ad.to_tensor(data, columns=["s.a"]), ["s.a"]),
    "another literal dot": (lambda data: ad.to_tensor(data, columns=["x.y"]), ["x.y"]),
    "a path": (lambda data: ad.to_tensor(data, columns=["s.t.u"]), ["s"]),
    "a path and a literal dot": (lambda data: ad.to_tensor(data, columns=["s.t.u", "s.a", "b"]), ["b", "s", "s.a"]),
    "a path to nothing": (lambda data: ad.to_tensor(data, columns=["s.z"]), ["s"]),
    "a path into a number": (lambda data: ad.to_tensor(data, columns=["b.z"]), ["b"]),
    "a pattern": (lambda data: ad.to_tensor(data, columns=["^d.*$"]), ["^d.*$"]),
    "an unknown name": (lambda data: ad.to_tensor(data, columns=["a", "bb"]), None),
    "an unknown path": (lambda data: ad.to_tensor(data, columns=["z.a"]), None),
    "no column": (lambda data: ad.to_tensor(data, columns=[]), None),
    "no column, of a dtype": (lambda data: ad.to_tensor(data, columns=[], dtype="float32"), None),
    "all of them": (lambda data: ad.to_tensors(data, columns=TABLE.column_names), None),
    "an option of another column": (lambda data: ad.to_tensor(data, columns=["a"], dtype={"b": "int8"}), ["b", "a"]),
    "an option of no column": (lambda data: ad.to_tensor(data, columns=["a"], nulls={"c": 0}), None),
    "a length": (lambda data: ad.to_tensor(data, columns=["l"], length={"l": 2}), ["l"]),
    "each": (lambda data: ad.to_tensors(data, columns=["n", "b"], nulls={"n": 0}), ["b", "n"]),
    "groups": (lambda data: ad.to_tensors(data, columns={"x": ["b", "a"], "y": "x.y"}), ["b", "a", "x.y"]),
    "options of groups": (
        lambda data: ad.to_tensors(data, columns={"x": ["b", "a"], "s": "x.y"}, dtype={"x": "float32"}),
        ["b", "a", "x.y"],
    ),
    "a group called as a column": (
        lambda data: ad.to_tensors(data, columns={"b": ["a"]}, dtype={"b": "float32"}),
        ["b", "a"],
    ),
    "groups of other forms": (
        lambda data: ad.to_tensors(data, columns={"p": ad.padded("l"), "r": ad.ragged("text"), "o": ad.arrow("n")}),
        ["text", "n", "l"],
    ),
    "validity": (lambda data: ad.validity(data, columns=["n", "s.t"]), ["n", "s"]),
    "validity of no column": (lambda data: ad.validity(data, columns=["m"]), None),
}
EACH = pytest.mark.parametrize(("call", "columns"), CALLS.values(), ids=CALLS)


@EACH
class TestCalls:
    def test_of_a_data_set(self, call: Callable[[Any], Any], columns: list[str] | None):
        source = Scans()
        assert outcome(lambda: call(source)) == outcome(lambda: call(ScansAll()))
        assert source.asked == [columns]

    def test_of_a_query(self, call: Callable[[Any], Any], columns: list[str] | None):
        source, expected = Lazy(), outcome(lambda: call(pl.from_arrow(TABLE)))
        assert outcome(lambda: call(source)) == expected
        # Polars takes some names for patterns.
        is_asked = columns is not None and columns != ["^d.*$"]
        assert source.asked == ([columns] if is_asked else [])
        assert outcome(lambda: call(pl.from_arrow(TABLE).lazy())) == expected

    def test_of_a_file(self, call: Callable[[Any], Any], columns: list[str] | None, path: Path):
        source = Batches(path)
        chunks = list(pq.ParquetFile(path).iter_batches(7))
        assert outcome(lambda: call(source)) == outcome(lambda: call(chunks))
        assert source.asked == [columns]
        chunks = list(pq.ParquetFile(path).iter_batches())
        assert outcome(lambda: call(pq.ParquetFile(path))) == outcome(lambda: call(chunks))

    def test_of_a_data_set_of_parts(self, call: Callable[[Any], Any], columns: list[str] | None):
        source = Parts()
        expected = outcome(lambda: call(RowsOfParts()))
        assert outcome(lambda: call(source)) == expected
        assert source.asked == ([] if columns is None else [columns])

    def test_of_items(self, call: Callable[[Any], Any], columns: list[str] | None):
        """Of which some can leave out columns."""
        scans = [Scans(TABLE[:10]), Scans(TABLE[10:20])]
        expected = outcome(lambda: call([TABLE[:10], TABLE[10:20], TABLE[20:]]))
        assert outcome(lambda: call([*scans, TABLE[20:]])) == expected
        assert outcome(lambda: call([TABLE[20:], *scans])) == outcome(
            lambda: call([TABLE[20:], TABLE[:10], TABLE[10:20]])
        )
        assert scans[0].asked[0] == columns


class TestSources:
    def test_that_can_be_read_once_are_opened_once(self):
        class Reader:
            schema, opened = TABLE.schema, 0

            def fetch_record_batch(self, columns: Any = None) -> Any:
                assert columns is None
                self.opened += 1
                return TABLE.to_reader()

        reader = Reader()
        assert ad.to_tensor(reader, columns=["a"]).shape == (ROWS, 1)
        assert reader.opened == 1

    def test_that_give_other_columns_than_they_are_asked_for_are_read_whole(self):
        class Other(Scans):
            def scanner(self, columns: list[str] | None = None) -> Any:
                self.asked.append(columns)
                return self.data.scanner(columns=None if columns is None else ["text"])

        source = Other()
        assert plain(ad.to_tensor(source, columns=["a"])) == plain(ad.to_tensor(TABLE, columns=["a"]))
        assert source.asked == [["a"], None]

    def test_that_cannot_select_after_all_are_read_whole(self):
        class Fails(Parts):
            def select_columns(self, names: list[str]) -> RowsOfParts:
                super().select_columns(names)
                raise RuntimeError("not today")

        class Other(Parts):
            def select_columns(self, names: list[str]) -> RowsOfParts:
                return super().select_columns(["text"])

        for source in (Fails(), Other()):
            assert plain(ad.to_tensor(source, columns=["a"])) == plain(ad.to_tensor(TABLE, columns=["a"]))
            assert len(source.asked) == 1

    def test_that_give_more_columns_lose_them(self):
        class More(Scans):
            def scanner(self, columns: list[str] | None = None) -> Any:
                self.asked.append(columns)
                return self.data.scanner(columns=["text", *reversed(columns or [])])

        source = More()
        assert plain(ad.to_tensor(source, columns=["a", "b"])) == plain(ad.to_tensor(TABLE, columns=["a", "b"]))
        assert source.asked == [["b", "a"]]

    def test_whose_schema_raises_are_read_whole(self):
        class Silent(Scans):
            @property
            def schema(self) -> pa.Schema:
                raise RuntimeError("no schema")

        source = Silent()
        assert ad.to_tensor(source, columns=["a"]).shape == (ROWS, 1)
        assert source.asked == [None]

    def test_without_rows(self, tmp_path: Path):
        pq.write_table(TABLE[:0], tmp_path / "empty.parquet")
        for source in (pq.ParquetFile(tmp_path / "empty.parquet"), pads.dataset(TABLE[:0]), Lazy().frame.head(0)):
            assert ad.to_tensor(source, columns=["a", "b"]).shape == (0, 2)
            assert list(ad.Loader(source, batch_size=2, columns=["a"])) == []

    def test_with_two_columns_of_one_name(self):
        table = pa.Table.from_arrays([TABLE["a"], TABLE["b"], TABLE["n"]], names=["d", "b", "d"])

        class Parts:
            schema_arrow, asked = table.schema, []

            def iter_batches(self, columns: list[str] | None = None) -> list[pa.RecordBatch]:
                self.asked.append(columns)
                return (table if columns is None else table.select(columns)).to_batches()

        source = Parts()
        assert plain(ad.to_tensor(source, columns=["b"])) == plain(ad.to_tensor(TABLE, columns=["b"]))
        assert source.asked == [["b"]]
        assert outcome(lambda: ad.to_tensor(source, columns=["d"])) == outcome(
            lambda: ad.to_tensor(table, columns=["d"])
        )
        assert source.asked == [["b"], None]

    def test_items_of_other_columns_are_refused_whether_these_are_read_or_not(self):
        other = TABLE.drop_columns(["text"])
        expected = outcome(lambda: ad.to_tensor([TABLE, other], columns=["a"]))
        assert expected[0] is ad.ConversionError
        assert outcome(lambda: ad.to_tensor([Scans(), Scans(other)], columns=["a"])) == expected
        assert outcome(lambda: ad.to_tensor([Scans(), other], columns=["a"])) == expected


def test_a_report_says_what_is_read():
    report = ad.explain(Scans(), columns=["s.t.u", "a"])
    assert report.notes == ["the Scans is read by scanner(columns=...), which reads 2 of its 9 columns"]
    assert report.notes[0] in str(report)
    assert ad.explain(Lazy().frame, columns=["a"]).notes == [
        "the LazyFrame is read by select(...).collect_batches(), which reads 1 of its 9 columns"
    ]
    assert ad.explain(Parts(), columns=["a", "s.a"]).notes == [
        "the Parts is read by select_columns(...), which reads 2 of its 9 columns"
    ]
    for data, options in ((Scans(), {}), (ScansAll(), {"columns": ["a"]}), (TABLE, {"columns": ["a"]})):
        assert ad.explain(data, **options).notes == []
    assert Scans().asked == []
    for data, options in ((Parts(), {}), (RowsOfParts(), {"columns": ["a"]})):
        assert ad.explain(data, **options).notes == []


OPTIONS: list[dict[str, Any]] = [
    {"columns": ["a", "b"]},
    {"columns": ["b"], "shuffle_buffer": 8, "seed": 5},
    {"columns": {"x": ["s.a", "s.t.u"], "y": "n"}, "nulls": 0},
    {"columns": {"r": ad.ragged("text"), "x": ["a"]}},
]


class TestLoaders:
    @pytest.mark.parametrize("options", OPTIONS)
    def test_read_and_resume_as_of_the_whole_source(self, options: dict[str, Any]):
        def run(source: Any, other: Any) -> list[Any]:
            loader = ad.Loader(source, batch_size=4, **options)
            iterator, seen = iter(loader), []
            for _ in range(3):
                seen.append(plain(next(iterator)))
            state = loader.state_dict()
            resumed = ad.Loader(other, batch_size=4, verify="all", **options)
            resumed.load_state_dict(state)
            seen += [plain(batch) for batch in resumed]
            return [*seen, state, resumed.state_dict(), resumed.fingerprint()]

        expected = run(ScansAll(), ScansAll())
        source = Scans()
        assert run(source, Scans()) == run(source, ScansAll()) == run(ScansAll(), source) == expected
        assert all(asked is not None for asked in source.asked)
        assert run(Parts(), RowsOfParts()) == run(RowsOfParts(), Parts()) == expected

    @pytest.mark.parametrize("options", OPTIONS)
    def test_of_shards_of_which_some_leave_out_columns(self, options: dict[str, Any]):
        parts = [TABLE[:10], TABLE[10:16], TABLE[16:]]

        def run(makes: list[Callable[[pa.Table], Any]]) -> list[Any]:
            shards = [(make(part), len(part)) for make, part in zip(makes, parts, strict=True)]
            loader = ad.Loader(sources=shards, lanes=2, batch_size=3, **options)
            return [*map(plain, loader), loader.fingerprint()]

        def whole(table: pa.Table) -> pa.Table:
            return table

        expected = run([whole] * 3)
        assert run([Scans] * 3) == run([Scans, whole, Scans]) == run([whole, Scans, whole]) == expected
        assert run([Parts] * 3) == run([Parts, whole, RowsOfParts]) == run([whole, Parts, Scans]) == expected

    def test_shards_of_other_columns_are_refused_whether_these_are_read_or_not(self):
        def refusal(make: Callable[[pa.Table], Any], columns: list[str]) -> Any:
            sources = [make(TABLE), make(TABLE.drop_columns(["text"]))]
            return outcome(lambda: list(ad.Loader(sources=sources, batch_size=4, columns=columns)))

        for columns in (["a"], ["s.t.u"]):
            assert refusal(Scans, columns) == refusal(ScansAll, columns)
        assert refusal(Scans, ["a"])[0] is ad.ConversionError

    def test_of_other_columns_refuse_the_state(self):
        loader = ad.Loader(Scans(), batch_size=4, columns=["a"])
        next(iter(loader))
        other = ad.Loader(Scans(TABLE.drop_columns(["text"])), batch_size=4, columns=["a"])
        other.load_state_dict(loader.state_dict())
        with pytest.raises(ad.ConversionError, match="the source's columns"):
            iter(other)

    @pytest.mark.parametrize("columns", [None, ["a", "b", "text"], ["s"], ["a", "s.t", "b"]])
    def test_of_row_groups(self, path: Path, columns: list[str] | None, monkeypatch: Any):
        names = ["s.t.u"] if columns == ["s"] else ["a", "b"]
        shards = ad.parquet_shards(path, columns=columns)
        loader = ad.Loader(sources=shards, batch_size=4, columns=names, xp=np)
        expected = ad.to_tensor(TABLE, columns=names, xp=np)
        asked: list[Any] = []
        read = pq.ParquetFile.iter_batches

        def noting(file: Any, *, columns: Any = None, **options: Any) -> Any:
            asked.append(columns)
            return read(file, columns=columns, **options)

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", noting)
        assert np.concatenate(list(loader)).tolist() == expected.tolist()
        assert {tuple(columns or ()) for columns in asked} == {("b", "a") if columns is None else tuple(columns)}
        assert [row for shard, _ in shards for batch in shard() for row in batch["a" if columns != ["s"] else "s"]]

    def test_of_row_groups_resume_as_those_of_other_columns(self, path: Path):
        shards = ad.parquet_shards(path)
        loader = ad.Loader(sources=shards, batch_size=4, columns=["a"])
        next(iter(loader))
        assert loader.state_dict()["columns"] == TABLE.column_names


class TestWholeReads:
    def test_of_categories_and_statistics(self, path: Path):
        source = Scans()
        assert pa.array(ad.categories(source, "x.y")).to_pylist() == [0, 1, 2]
        assert ad.statistics(source, {"s.t.u": "max", "n": "null_count"}) == {"s.t.u": 14.5, "n": 4}
        assert source.asked == [["x.y"], ["n", "s"]]
        assert pa.array(ad.categories(ad.parquet_shards(path), "x.y")).to_pylist() == [0, 1, 2]
        mixed = [(Scans(TABLE[:10]), 10), (TABLE[10:], 20)]
        assert ad.statistics(mixed, {"b": "max"}) == {"b": 29}
        assert ad.statistics(mixed[::-1], {"b": "max"}) == {"b": 29}

    def test_refuse_wrong_names_as_before(self):
        for data in (Scans(), [(Scans(), ROWS)]):
            with pytest.raises(ad.ConversionError, match="there is no such column"):
                ad.statistics(data, {"aa": "max"})
        parts = [(Scans(), ROWS), (Scans(TABLE.drop_columns(["text"])), ROWS)]
        with pytest.raises(ad.ConversionError, match="give all shards one schema"):
            ad.statistics(parts, {"a": "max"})
