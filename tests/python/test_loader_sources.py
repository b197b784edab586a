"""The items of `sources=`: which are shards, what an error calls them, and how often their rows are counted."""

import functools
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest
from loader_reference import numbered, rows_of


def opened(start: int, rows: int) -> pa.Table:
    return numbered(start + rows, 1 << 20).slice(start)


SHARDS = [(functools.partial(opened, start, 10), 10) for start in range(0, 40, 10)]


class Counted:
    """A table that counts how often its rows are asked for."""

    asked = 0

    def __init__(self, rows: int) -> None:
        self.table = numbered(rows)

    @property
    def num_rows(self) -> int:
        Counted.asked += 1
        return len(self.table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class TestItems:
    def test_whose_rows_are_not_known(self):
        sources = [(opener, None) for opener, _ in SHARDS]
        loader = ad.Loader(sources=sources, batch_size=8)
        assert [row for batch in loader for row in rows_of(batch)] == list(range(40))
        with pytest.raises(ad.ConversionError, match="shard 0 does not tell"):
            iter(ad.Loader(sources=sources, batch_size=8, lanes=2))
        # A table tells them.
        loader = ad.Loader(sources=[(numbered(5), None), numbered(7)], batch_size=1, lanes=2)
        assert len(loader) == 12

    @pytest.mark.parametrize(
        ("item", "error", "match"),
        [
            (5, TypeError, "must be Arrow data"),
            ((numbered(3), -1), ValueError, "the rows of a shard must be 0 or more"),
            ((SHARDS[0][0], "three"), TypeError, "not tuple"),
            ((SHARDS[0][0], 1, 2), TypeError, "not tuple"),
            ((5, None), TypeError, "not int"),
        ],
    )
    def test_that_are_wrong_are_named(self, item: Any, error: type[Exception], match: str):
        with pytest.raises(error, match=rf"^sources\[2\]: .*{match}"):
            ad.Loader(sources=[*SHARDS[:2], item], batch_size=1)

    def test_that_are_passed_as_the_source_are_sent_to_the_keyword(self):
        with pytest.raises(TypeError, match="pass it as sources="):
            ad.Loader(SHARDS, batch_size=1)


class TestListsOfCallables:
    @pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: (numbered(2), [one])])
    def test_of_a_reader_that_was_read_are_refused(self, wrap: Callable[[Any], Any]):
        reader = numbered(4).to_reader()
        loader = ad.Loader(lambda: wrap(reader), batch_size=2)
        rows = [row for batch in loader for row in rows_of(batch)]
        assert rows[-4:] == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(ValueError, match="can be read once, and was"):
                iter(loader)

    def test_of_new_readers_and_of_tables_are_read_again(self):
        table = numbered(4)
        for give in (lambda: [table.to_reader()], lambda: (table, iter(table.to_batches())), lambda: [table, table]):
            loader = ad.Loader(give, batch_size=2)
            assert [sum(len(rows_of(batch)) for batch in loader) for _ in range(3)] in ([4] * 3, [8] * 3)

    def test_of_a_connection_are_read_again(self):
        duckdb = pytest.importorskip("duckdb")
        connection = duckdb.connect()
        loader = ad.Loader(lambda: [connection.execute("select 1::bigint as row")], batch_size=2)
        assert [[rows_of(batch) for batch in loader] for _ in range(3)] == [[[1]]] * 3


class TestCounts:
    def test_are_those_of_the_epoch_that_has_begun(self):
        sources = [Counted(10) for _ in range(20)]
        loader = ad.Loader(sources=sources, batch_size=10, lanes=2)
        iterator = iter(loader)
        next(iterator)
        before = Counted.asked
        states = [loader.state_dict() for _ in range(5)]
        fingerprint = loader.fingerprint()
        assert Counted.asked == before
        assert states[0] == states[4]
        assert states[0]["rows"] == fingerprint["rows"] == 200
        other = ad.Loader(sources=[Counted(10) for _ in range(20)], batch_size=10, lanes=2)
        other.load_state_dict(states[0])
        assert other.state_dict() == states[0]
        assert [rows_of(batch) for batch in other] == [rows_of(batch) for batch in iterator]

    def test_are_asked_once_by_each_call(self):
        sources = [Counted(10) for _ in range(20)]

        def asked(call: Callable[[], object]) -> int:
            before = Counted.asked
            call()
            return Counted.asked - before

        # For the warning of lanes without rows.
        assert asked(lambda: ad.Loader(sources=sources, batch_size=10, lanes=2)) == 20
        assert asked(lambda: ad.Loader(sources=sources, batch_size=10)) == 0
        loader = ad.Loader(sources=sources, batch_size=10, lanes=2)
        iterators = []
        assert asked(lambda: len(loader)) == asked(lambda: iterators.append(iter(loader))) == 20
        alone = ad.Loader(Counted(10), batch_size=5)
        assert asked(lambda: len(alone)) == asked(lambda: iterators.append(iter(alone))) == 1

    def test_follow_a_list_that_grows_between_epochs(self):
        batches = [numbered(10)]
        loader = ad.Loader(sources=[batches, numbered(10)], batch_size=10, lanes=2)
        assert len(list(loader)) == 2
        batches.append(numbered(20).slice(10))
        assert loader.state_dict()["rows"] == 30
        assert sum(len(rows_of(batch)) for batch in loader) == 30


class TestReadingAll:
    """`categories` and `statistics` read shards one after the other."""

    @pytest.mark.parametrize("kind", [list, tuple])
    def test_shards(self, kind: type):
        tables = [pa.table({"w": ["b", "a"], "x": [1, 2]}), pa.table({"w": ["c", None], "x": [3, None]})]
        shards = kind([(lambda: tables[0], 2), (tables[1], None)])
        assert pa.array(ad.categories(shards, "w")).to_pylist() == ["a", "b", "c"]
        assert ad.statistics(shards, {"x": "mean", "w": "null_count"}) == {"x": 2.0, "w": 1}

    def test_of_parquet(self, tmp_path: Any):
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(numbered(40), tmp_path / "a.parquet", row_group_size=7)
        shards = ad.parquet_shards(tmp_path / "a.parquet")
        assert pa.array(ad.categories(shards, "row")).to_pylist() == list(range(40))
        assert ad.statistics(shards, {"row": "max"}) == {"row": 39}

    def test_errors_name_the_shard(self):
        def failing() -> pa.Table:
            raise OSError("disk gone")

        good, other = pa.table({"w": ["a"]}), pa.table({"v": ["a"]})
        with pytest.raises(ad.ConversionError, match='"w"'):
            ad.categories([(good, 1), (other, 1)], "w")
        with pytest.raises(ad.ConversionError, match="shard 1: the shard has column"):
            ad.categories([(good, 1), (pa.table({"w": [1]}), 1)], "w")
        for shards in ([(good, 1), (failing, 1)], [(failing, 1), (good, 1)]):
            with pytest.raises(OSError, match="disk gone") as caught:
                ad.statistics(shards, {"w": "count"})
            assert caught.value.__notes__ == [f"shard {[opener for opener, _ in shards].index(failing)}"]
