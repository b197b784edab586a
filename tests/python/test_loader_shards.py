"""Shards and lanes: batches have the rows that docs/loader.md says, and ranks read their own lanes alone."""

import copy
import functools
import gc
import itertools
import json
import pickle
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import batches, deal, lanes_of, loader_threads, numbered, order, rows_of


def table_of(start: int, rows: int, chunk: int = 5) -> pa.Table:
    table = numbered(start + rows, 1 << 30).slice(start)
    return pa.Table.from_batches(table.to_batches(max_chunksize=chunk), table.schema)


def shards_of(rows: list[int], *, told: bool = True, opened: list[int] | None = None) -> list[Any]:
    """Shards whose rows are numbered through; those that are opened are noted."""
    opened = [] if opened is None else opened

    def open_shard(number: int, start: int, count: int) -> pa.RecordBatchReader:
        opened.append(number)
        return table_of(start, count).to_reader()

    starts = itertools.accumulate(rows, initial=0)
    opens = [
        functools.partial(open_shard, number, start, count)
        for number, (start, count) in enumerate(zip(starts, rows, strict=False))
    ]
    return list(zip(opens, rows, strict=True)) if told else opens


def ranks_of(rows: list[int], world_size: int, **options: Any) -> list[ad.Loader]:
    options["world_size"] = world_size
    return [ad.Loader(sources=shards_of(rows), rank=rank, **options) for rank in range(world_size)]


def dealt_by(ranks: list[ad.Loader]) -> list[list[int]]:
    """The batches of whole rounds, in their order."""
    rounds = zip(*([rows_of(batch) for batch in rank] for rank in ranks), strict=True)
    return [batch for batches in rounds for batch in batches]


def test_the_documented_order_and_resuming_with_any_sizes():
    chance = random.Random(16)
    for _ in range(25):
        rows = [chance.randint(0, 30) for _ in range(chance.randint(1, 7))]
        lanes, shuffle_buffer = chance.randint(1, 6), chance.choice([0, 0, 3, 20, 300])
        shuffle_shards = chance.choice([None, True, False])
        order_options = {"lanes": lanes, "shuffle_buffer": shuffle_buffer, "seed": chance.getrandbits(64)}
        options = {**order_options, "shuffle_shards": shuffle_shards}
        is_permuted = shuffle_buffer > 0 if shuffle_shards is None else shuffle_shards
        first = ad.Loader(sources=shards_of(rows), batch_size=1, **options)
        state = first.state_dict()
        epoch, taken, next_lane = 0, [0] * lanes, 0
        for _ in range(5):
            cut = {"batch_size": chance.randint(1, 9), "world_size": chance.randint(1, 5)}
            cut["drop_last"] = chance.random() < 0.4
            expected_lanes = lanes_of(rows, epoch=epoch, **order_options, shuffle_shards=is_permuted)
            expected, left_out = deal(expected_lanes, taken, next_lane, **cut)
            more = {"prefetch": chance.randrange(4), "readers": chance.randint(1, 4)}
            ranks = ranks_of(rows, **cut, **options, **more)
            for rank in ranks:
                rank.load_state_dict(json.loads(json.dumps(state)))
            rounds = len(expected) // cut["world_size"]
            stop = chance.randint(0, rounds)
            if stop == rounds:
                assert dealt_by(ranks) == expected, (rows, options, cut)
                assert [rank.left_out for rank in ranks] == [left_out] * len(ranks)
                epoch, taken, next_lane = epoch + 1, [0] * lanes, 0
            else:
                iterators = [iter(rank) for rank in ranks]
                found = [rows_of(next(iterator)) for _ in range(stop) for iterator in iterators]
                assert found == expected[: len(found)], (rows, options, cut)
                for _ in found:
                    taken[next_lane] += cut["batch_size"]
                    next_lane = (next_lane + 1) % lanes
                for iterator in iterators:
                    iterator.close()
            state = ranks[-1].state_dict()
            assert (state["epoch"], state["taken"], state["next_lane"]) == (epoch, taken, next_lane)
            assert all(rank.state_dict()["taken"] == taken for rank in ranks)
            if stop == rounds:
                assert len(ranks[0]) == len(deal(expected_lanes, [0] * lanes, 0, **cut)[0]) // cut["world_size"]


@pytest.mark.parametrize("shuffle_buffer", [0, 9, 100])
def test_one_lane_has_the_order_of_one_source(shuffle_buffer: int):
    options = {"batch_size": 4, "shuffle_buffer": shuffle_buffer, "seed": 2}
    loader = ad.Loader(sources=shards_of([10, 0, 20, 15], told=False), shuffle_shards=False, **options)
    for epoch in range(2):
        assert [rows_of(batch) for batch in loader] == batches(45, epoch=epoch, **options)


class TestReading:
    ROWS = [20] * 16

    @pytest.mark.parametrize("shuffle_buffer", [0, 40])
    def test_a_rank_opens_the_shards_of_its_lanes_alone(self, shuffle_buffer: int):
        seen = []
        for rank in range(4):
            opened: list[int] = []
            loader = ad.Loader(
                sources=shards_of(self.ROWS, opened=opened),
                lanes=8, batch_size=10, shuffle_buffer=shuffle_buffer, seed=1, rank=rank, world_size=4,
            )  # fmt: skip
            assert sum(len(rows_of(batch)) for batch in loader) == 80
            assert len(opened) == 4
            seen += opened
        assert sorted(seen) == list(range(16))

    def test_a_border_shard_is_opened_for_each_of_its_lanes(self):
        opened: list[int] = []
        loader = ad.Loader(sources=shards_of([30, 30], opened=opened), lanes=3, batch_size=5)
        expected, _ = deal(
            lanes_of([30, 30], 3, shuffle_buffer=0, seed=None, epoch=0, shuffle_shards=False),
            [0, 0, 0], 0, batch_size=5, world_size=1, drop_last=False,
        )  # fmt: skip
        assert [rows_of(batch) for batch in loader] == expected
        assert sorted(opened) == [0, 0, 1, 1]

    @pytest.mark.parametrize("shuffle_buffer", [0, 10])
    def test_shards_before_a_state_are_not_opened_unless_all_are_verified(self, shuffle_buffer: int):
        options = {"batch_size": 10, "shuffle_buffer": shuffle_buffer, "seed": 1, "shuffle_shards": False}
        whole = ad.Loader(sources=shards_of(self.ROWS), **options)
        iterator = iter(whole)
        for _ in range(28):
            next(iterator)
        state = whole.state_dict()
        expected = [rows_of(batch) for batch in iterator]
        for verify, most in (("replay", 7), ("all", 16)):
            opened: list[int] = []
            other = ad.Loader(sources=shards_of(self.ROWS, opened=opened), verify=verify, **options)
            other.load_state_dict(state)
            assert [rows_of(batch) for batch in other] == expected
            assert len(opened) <= most
            assert (len(opened) == 16) == (verify == "all")

    def test_a_shard_that_changed_is_found_if_it_is_read_again(self):
        whole = ad.Loader(sources=shards_of(self.ROWS), batch_size=10, lanes=2)
        iterator = iter(whole)
        for _ in range(8):
            next(iterator)
        state = whole.state_dict()
        assert [shard for shard, *_ in state["hashes"]] == [0, 1, 8, 9]
        for shard, verify, found in ((9, "replay", False), (9, "all", True), (2, "all", False)):
            changed = shards_of(self.ROWS)
            changed[shard] = (table_of(20 * shard, 20).take(list(range(19, -1, -1))), 20)
            other = ad.Loader(sources=changed, batch_size=7, lanes=2, verify=verify)
            other.load_state_dict(state)
            if found:
                with pytest.raises(ad.ConversionError, match="shard 9: the source's rows have changed"):
                    list(other)
            else:
                assert sum(len(rows_of(batch)) for batch in other) == 320 - 80

    def test_ranks_have_the_hashes_of_their_own_shards(self):
        ranks = ranks_of(self.ROWS, 2, lanes=4, batch_size=10)
        whole = ad.Loader(sources=shards_of(self.ROWS), lanes=4, batch_size=10)
        for loader in (*ranks, whole):
            list(loader)
        found = [loader.fingerprint() for loader in (*ranks, whole)]
        hashes = [sorted(one.pop("hashes")) for one in found]
        assert [len(one) for one in hashes] == [8, 8, 16]
        assert sorted(hashes[0] + hashes[1]) == hashes[2]
        assert found[0] == found[1]
        assert {**found[0], "world_size": 1} == found[2]

    @pytest.mark.parametrize("readers", [1, 2, 3, 9])
    def test_readers_read_side_by_side(self, readers: int):
        rows = [12] * 6
        met = threading.Barrier(min(readers, 2))
        begun: dict[int, int] = {}

        def opened(number: int) -> Iterator[pa.RecordBatch]:
            for batch in table_of(12 * number, 12).to_batches():
                # The caller's thread opens the first shard of lane 0, and readers those of lanes 1 and 2.
                if number in (2, 4) and number not in begun:
                    begun[number] = threading.get_native_id()
                    met.wait(timeout=60)
                yield batch

        sources = [(functools.partial(opened, number), 12) for number in range(6)]
        loader = ad.Loader(sources=sources, lanes=3, batch_size=4, readers=readers, prefetch=6)
        expected, _ = deal(
            lanes_of(rows, 3, shuffle_buffer=0, seed=None, epoch=0, shuffle_shards=False),
            [0] * 3, 0, batch_size=4, world_size=1, drop_last=False,
        )  # fmt: skip
        assert [rows_of(batch) for batch in loader] == expected
        assert len(set(begun.values())) == min(readers, 2)
        assert threading.get_native_id() not in begun.values()
        assert loader_threads() == 0

    @pytest.mark.parametrize("readers", [1, 2])
    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_closing_ends_the_threads_and_releases_each_shard(self, prefetch: int, readers: int):
        alive: list[int] = []

        def opened(number: int) -> Iterator[pa.Table]:
            alive.append(number)
            try:
                for start in range(0, 100, 10):
                    yield table_of(100 * number + start, 10)
            finally:
                alive.remove(number)

        sources = [(functools.partial(opened, number), 100) for number in range(4)]
        loader = ad.Loader(sources=sources, lanes=4, batch_size=10, prefetch=prefetch, readers=readers)
        iterator = iter(loader)
        for _ in range(6):
            next(iterator)
        assert alive
        iterator.close()
        assert (loader_threads(), alive) == (0, [])
        assert next(iterator, None) is None


class TestFaults:
    @pytest.mark.parametrize("lanes", [1, 3])
    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize(("told", "found"), [(25, "20"), (15, "more"), (0, "more")])
    def test_a_number_of_rows_that_is_not_true(self, told: int, found: str, prefetch: int, lanes: int):
        sources = shards_of([20, 20, 20])
        sources[1] = (sources[1][0], told)
        loader = ad.Loader(sources=sources, lanes=lanes, batch_size=3, prefetch=prefetch)
        error = f"shard 1: .* said to have {told} rows, and has {found}"
        with pytest.raises(ad.ConversionError, match=error) as caught:
            list(loader)
        assert "sources=" in caught.value.remedy
        assert loader_threads() == 0

    def test_one_reader_as_two_shards(self):
        reader = table_of(0, 20).to_reader()
        with pytest.raises(ValueError, match="shards 0 and 2 are one RecordBatchReader, which can be read once"):
            ad.Loader(sources=[reader, table_of(20, 5), (reader, 20)], batch_size=5)
        table = table_of(0, 20)
        assert len(list(ad.Loader(sources=[table, table, reader, table.to_reader()], batch_size=5))) == 16

    @pytest.mark.parametrize("shuffle_buffer", [0, 7, 1000])
    def test_more_rows_in_the_last_shard(self, shuffle_buffer: int):
        for lanes in (1, 2):
            sources = [(table_of(0, 20), 20), (table_of(20, 21), 20)]
            options = {"batch_size": 5, "shuffle_buffer": shuffle_buffer, "shuffle_shards": False}
            loader = ad.Loader(sources=sources, lanes=lanes, **options)
            with pytest.raises(ad.ConversionError, match=r"shard 1: .* said to have 20 rows, and has more"):
                list(loader)

    @pytest.mark.parametrize("readers", [1, 2])
    @pytest.mark.parametrize("prefetch", [0, 3])
    def test_a_shard_that_fails_is_told_at_its_batch(self, prefetch: int, readers: int):
        def failing() -> Iterator[pa.Table]:
            yield table_of(60, 10)
            raise OSError("the disk is gone")

        sources = [*shards_of([20, 20, 20]), (failing, 20)]
        loader = ad.Loader(sources=sources, lanes=2, batch_size=5, prefetch=prefetch, readers=readers)
        expected, _ = deal(
            lanes_of([20] * 4, 2, shuffle_buffer=0, seed=None, epoch=0, shuffle_shards=False),
            [0, 0], 0, batch_size=5, world_size=1, drop_last=False,
        )  # fmt: skip
        iterator = iter(loader)
        for batch in expected[:13]:
            assert rows_of(next(iterator)) == batch
        with pytest.raises(OSError, match="the disk is gone"):
            next(iterator)
        assert next(iterator, None) is None
        assert loader_threads() == 0
        assert loader.state_dict()["taken"] == [35, 30]

    def test_a_callable_that_fails(self):
        def failing() -> pa.Table:
            raise OSError("no such file")

        loader = ad.Loader(sources=[numbered(5), (failing, 5)], batch_size=5)
        iterator = iter(loader)
        assert rows_of(next(iterator)) == [0, 1, 2, 3, 4]
        with pytest.raises(OSError, match="no such file"):
            next(iterator)

    @pytest.mark.parametrize(
        ("other", "error"),
        [
            (pa.table({"line": [1]}), r'shard 1: the shard has the columns \["line"\]'),
            (pa.table({"row": [1.5]}), 'shard 1: .* column "row" of type'),
            (pa.table({"row": pa.array([1], pa.int32())}), 'shard 1: .* column "row" of type'),
        ],
    )
    def test_another_schema(self, other: pa.Table, error: str):
        for lanes in (1, 2):
            with pytest.raises(ad.ConversionError, match=error):
                list(ad.Loader(sources=[pa.table({"row": [0]}), other], batch_size=1, lanes=lanes))

    def test_shards_may_differ_in_nullability_until_there_is_a_null(self):
        strict = pa.schema([pa.field("row", pa.int64(), nullable=False)])
        first = pa.table({"row": [0, 1]}, schema=strict)
        loader = ad.Loader(sources=[first, pa.table({"row": [2]})], batch_size=3)
        assert [rows_of(batch) for batch in loader] == [[0, 1, 2]]
        loader = ad.Loader(sources=[first, pa.table({"row": [2, None]})], batch_size=3, nulls=0)
        with pytest.raises(ad.NullError, match=r"shard 1.* nullable"):
            list(loader)

    @pytest.mark.parametrize("readers", [1, 2])
    @pytest.mark.parametrize("lanes", [1, 2])
    def test_codes_of_another_dictionary(self, lanes: int, readers: int):
        def words(*values: str) -> pa.Table:
            return pa.table({"w": pa.array(values).dictionary_encode()})

        options = {"batch_size": 2, "columns": {"w": "w"}, "lanes": lanes, "readers": readers}
        same = ad.Loader(sources=[words("a", "b"), words("a", "b")], **options)
        assert len(list(same)) == 2
        other = ad.Loader(sources=[words("a", "b"), words("b", "a")], **options)
        with pytest.raises(ad.ConversionError, match="dictionaries"):
            list(other)

    def test_an_error_names_the_shard_and_its_row(self):
        loader = ad.Loader(sources=[pa.table({"a": [1, 2]}), pa.table({"a": [3, None]})], batch_size=1)
        with pytest.raises(ad.NullError, match="row 1: shard 1") as caught:
            list(loader)
        assert (caught.value.column, caught.value.row) == ("a", 1)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "error", "named"),
        [
            ({}, TypeError, "source"),
            ({"source": numbered(3), "sources": [numbered(3)]}, TypeError, "not both"),
            ({"sources": []}, ValueError, "no shard"),
            ({"sources": numbered(3)}, TypeError, "list"),
            ({"sources": [5]}, TypeError, "must be Arrow data"),
            ({"sources": [(numbered(3), -1)]}, ValueError, "rows of a shard"),
            ({"sources": [(numbered(3), True)]}, TypeError, "rows of a shard"),
            ({"sources": [numbered(3)], "lanes": 0}, ValueError, "lanes"),
            ({"sources": [numbered(3)], "lanes": 2**60}, ValueError, "lanes"),
            ({"sources": [numbered(3)], "lanes": 1.5}, TypeError, "lanes"),
            ({"sources": [numbered(3)], "readers": 0}, ValueError, "readers"),
            ({"source": numbered(3), "lanes": 2}, ValueError, "sources="),
            ({"source": numbered(3), "shuffle_shards": True}, ValueError, "sources="),
            ({"sources": [numbered(3)], "shuffle_shards": True, "world_size": 2}, ValueError, "seed"),
            ({"sources": [numbered(3)], "columns": ["line"]}, ValueError, "line"),
        ],
    )
    def test_that_are_wrong(self, options: dict, error: type[Exception], named: str):
        with pytest.raises(error, match=named):
            ad.Loader(batch_size=1, **options)

    def test_lanes_need_the_rows_of_each_shard(self):
        loader = ad.Loader(sources=[numbered(3), numbered(3).to_reader], batch_size=1, lanes=2)
        with pytest.raises(ad.ConversionError, match="shard 1 does not tell") as caught:
            iter(loader)
        assert "(source, rows)" in caught.value.remedy
        with pytest.raises(TypeError, match="length"):
            len(loader)

    def test_a_state_is_of_the_same_shards(self):
        def of(rows: list[int], **options: Any) -> ad.Loader:
            return ad.Loader(sources=shards_of(rows), batch_size=1, **options)

        state = of([3, 4], lanes=2, shuffle_buffer=2, seed=0).state_dict()
        for rows, options, named in [
            ([3, 4], {"lanes": 3, "shuffle_buffer": 2}, "2 lanes, and the loader 3"),
            ([3, 4], {"lanes": 2, "shuffle_buffer": 2, "shuffle_shards": False}, "shuffle_shards"),
            ([4, 3], {"lanes": 2, "shuffle_buffer": 2}, "rows of shard 0"),
            ([3, 2, 2], {"lanes": 2, "shuffle_buffer": 2}, "number of shards"),
        ]:
            with pytest.raises(ValueError, match=named):
                of(rows, **options).load_state_dict(state)

    def test_shards_alone_can_be_shuffled(self):
        loader = ad.Loader(sources=shards_of([5] * 6), batch_size=5, shuffle_shards=True, seed=3)
        for epoch in range(3):
            [lane] = lanes_of([5] * 6, 1, shuffle_buffer=0, seed=3, epoch=epoch, shuffle_shards=True)
            assert [row for batch in loader for row in rows_of(batch)] == lane
        assert len({tuple(rows_of(next(iter(loader)))) for _ in range(20)}) > 1

    def test_a_pickle_and_a_copy_go_on(self):
        sources = [(numbered(10), 10), numbered(7)]
        options = {"batch_size": 2, "lanes": 2, "shuffle_buffer": 4, "seed": 1, "readers": 2, "verify": "all"}
        loader = ad.Loader(sources=sources, **options)
        iterator = iter(loader)
        next(iterator)
        others = [pickle.loads(pickle.dumps(loader)), copy.copy(loader), copy.deepcopy(loader)]
        expected = [rows_of(batch) for batch in iterator]
        for other in others:
            assert [rows_of(batch) for batch in other] == expected
            assert repr(other) == repr(loader) == "Loader(2 shards, batch_size=2)"

    def test_a_shard_that_does_not_pickle_is_named(self):
        loader = ad.Loader(sources=[numbered(3), (numbered(3).to_reader(), 3)], batch_size=1)
        with pytest.raises(TypeError, match="RecordBatchReader"):
            pickle.dumps(loader)

    def test_the_loader_is_collected_with_its_shards(self):
        class Shard:
            def __call__(self) -> pa.Table:
                return numbered(3)

        shard = Shard()
        loader = ad.Loader(sources=[(shard, 3)], batch_size=1)
        shard.loader = loader  # type: ignore[attr-defined]
        assert len(list(loader)) == 3
        alive = weakref.ref(shard)
        del shard, loader
        gc.collect()
        assert alive() is None


def written(folder: Path, files: int) -> tuple[list[Path], list[int]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    paths, rows = [], []
    for number in range(files):
        paths.append(folder / f"part[{number}]*.parquet")
        count = 10 * number + 5
        table = table_of(sum(rows), count).append_column("other", pa.array(["x"] * count))
        parquet.write_table(table, paths[-1], row_group_size=8)
        rows.append(count)
    return paths, rows


class TestParquet:
    @pytest.mark.parametrize("reader", ["pyarrow", "duckdb", "polars"])
    def test_files_are_read_by_whichever_reader_there_is(self, reader: str, tmp_path: Path, monkeypatch: Any):
        pytest.importorskip(reader)
        paths, rows = written(tmp_path, 3)
        import arrow_dlpack._shards as module

        before = ["pyarrow", "duckdb", "polars"].index(reader)
        monkeypatch.setattr(module, "_READERS", ("no_such_module",) * before + module._READERS[before:])
        shards = ad.parquet_shards(paths, columns=["row"])
        counts = [count for _, count in shards]
        assert sum(counts) == sum(rows)
        if reader == "pyarrow":
            assert counts == [5, 8, 7, 8, 8, 8, 1]
        else:
            assert counts == rows
        loader = ad.Loader(sources=pickle.loads(pickle.dumps(shards)), lanes=2, batch_size=6)
        expected, _ = deal(
            lanes_of(counts, 2, shuffle_buffer=0, seed=None, epoch=0, shuffle_shards=False),
            [0, 0], 0, batch_size=6, world_size=1, drop_last=False,
        )  # fmt: skip
        for _ in range(2):
            assert [rows_of(batch) for batch in loader] == expected
        one = ad.Loader(sources=ad.parquet_shards(str(paths[1])), batch_size=100, columns={"r": "row"}, xp=np)
        assert [batch["r"].tolist() for batch in one] == [list(range(5, 20))]

    def test_without_a_reader(self, monkeypatch: Any):
        import arrow_dlpack._shards as module

        monkeypatch.setattr(module, "_READERS", ("no_such_module",) * 3)
        with pytest.raises(ImportError, match="pyarrow, duckdb or polars"):
            ad.parquet_shards([])

    def test_a_file_that_is_none(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError):
            ad.parquet_shards(tmp_path / "missing.parquet")


def test_64_ranks_of_64_lanes_read_the_data_once():
    rows = [100] * 640
    read = 0
    for rank in range(0, 64, 9):
        opened: list[int] = []
        loader = ad.Loader(sources=shards_of(rows, opened=opened), lanes=64, batch_size=50, rank=rank, world_size=64)
        assert sum(len(rows_of(batch)) for batch in loader) == 1000
        assert len(opened) == 10
        read += len(opened)
    assert read == 80


def test_order_of_a_lane_is_that_of_its_key():
    # Each lane has draws of its own.
    assert order(40, 40, 1, 0, 0) != order(40, 40, 1, 0, 1)
    called: Callable[..., Any] = ad.Loader
    loader = called(sources=[numbered(80)], lanes=2, batch_size=40, shuffle_buffer=80, seed=1)
    first, second = (rows_of(batch) for batch in loader)
    assert first == order(40, 40, 1, 0, 0)
    assert [row - 40 for row in second] == order(40, 40, 1, 0, 1)
