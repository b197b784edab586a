"""A source that has changed between a state and its resumption is found: by the hashes that docs/loader.md defines."""

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from free_threading import WITHOUT_WHEELS, skip_without
from loader_reference import digest, numbered, order, rows_of, samples

ROWS = 2000
TABLE = pa.table({
    "a": pa.array(np.arange(ROWS, dtype="int16")),
    "b": pa.array([None if row % 5 == 2 else row / 4 for row in range(ROWS)], pa.float64()),
})  # fmt: skip
COLUMNS = {"x": ["b", "a"], "y": "a"}


def groups_of(row: int) -> list[bytes]:
    """The bytes of a row of `TABLE` under `COLUMNS`, dtype float32 of x and a fill of -1."""
    b = -1.0 if row % 5 == 2 else row / 4
    return [struct.pack("<ff", b, row), struct.pack("<h", row)]


def loader(source: Any = TABLE, **options: Any) -> ad.Loader:
    keywords = {"dtype": {"b": "float32"}, "nulls": {"b": -1.0}} if options.get("columns") == COLUMNS else {}
    return ad.Loader(source, **{"batch_size": 50, **keywords, **options})


def after(batches: int, source: Any = TABLE, **options: Any) -> dict:
    whole = loader(source, **options)
    iterator = iter(whole)
    for _ in range(batches):
        next(iterator)
    iterator.close()
    return json.loads(json.dumps(whole.state_dict()))


class TestHashes:
    @pytest.mark.parametrize("chunk", [1, 7, 64, ROWS])
    @pytest.mark.parametrize("batches", [0, 1, 3, 11])
    def test_are_those_of_the_document_whatever_the_chunks(self, batches: int, chunk: int):
        chunks = pa.Table.from_batches(TABLE.to_batches(max_chunksize=chunk))
        state = after(batches, chunks, columns=COLUMNS)
        read = 50 * (batches - 1) + 1
        expected = [[0, *digest([groups_of(row) for row in range(read)])]] if batches else []
        assert state["hashes"] == expected

    @pytest.mark.parametrize("told", [True, False])
    @pytest.mark.parametrize("world_size", [1, 3])
    def test_are_of_all_rows_whoever_takes_them(self, world_size: int, told: bool):
        options = {"columns": COLUMNS, "shuffle_buffer": 40, "seed": 5, "world_size": world_size}
        source = TABLE if told else lambda: TABLE
        read = 50 * (4 * world_size - 1) + 1 + 40
        expected = [[0, *digest([groups_of(row) for row in range(read)])]]
        for rank in range(world_size):
            state = after(4, source, rank=rank, **options)
            assert state["hashes"] == expected
            # Replayed, and taken further.
            other = loader(source, rank=rank, **options)
            other.load_state_dict(state)
            assert other.state_dict()["hashes"] == expected
            next(iter(other))
            further = read + 50 * world_size
            assert other.state_dict()["hashes"] == [[0, *digest([groups_of(row) for row in range(further)])]]

    @pytest.mark.parametrize("drop_last", [False, True])
    def test_count_to_the_row_that_each_rank_needs(self, drop_last: bool):
        read = 50 * 5 + (50 if drop_last else 1)
        state = after(3, columns=COLUMNS, world_size=2, drop_last=drop_last)
        assert state["hashes"] == [[0, *digest([groups_of(row) for row in range(read)])]]

    def test_of_a_row_that_is_not_converted_by_this_rank(self):
        table = pa.table({"a": pa.array([None if row == 7 else row for row in range(40)], pa.int64())})
        other = ad.Loader(table, batch_size=4, rank=0, world_size=2)
        assert len(list(other)) == 5
        rows = [None if row == 7 else [struct.pack("<q", row)] for row in range(40)]
        assert other.fingerprint()["hashes"] == [[0, *digest(rows)]]
        with pytest.raises(ad.NullError, match="row 7"):
            list(ad.Loader(table, batch_size=4, rank=1, world_size=2))

    def test_have_the_values_of_dictionaries(self):
        words = [f"word {number}" for number in range(100)]
        codes = pa.DictionaryArray.from_arrays(pa.array([row % 100 for row in range(300)], pa.int16()), words)
        state = after(3, pa.table({"w": codes}), columns={"w": "w"})
        rows = [[struct.pack("<h", row % 100)] for row in range(101)]
        assert state["hashes"] == [[0, *digest(rows, [words])]]
        other = pa.DictionaryArray.from_arrays(codes.indices, [words[1], words[0], *words[2:]])
        resumed = loader(pa.table({"w": other}), columns={"w": "w"})
        resumed.load_state_dict(state)
        with pytest.raises(ad.ConversionError, match="have changed"):
            next(iter(resumed))


def moved(table: pa.Table, *moves: tuple[int, int]) -> pa.Table:
    rows = list(range(len(table)))
    for start, length in moves:
        rows[start : start + length] = rows[start : start + length][::-1]
    return table.take(rows)


class TestAChangedSource:
    @pytest.mark.parametrize("told", [True, False])
    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("shuffle_buffer", [0, 30, 5000])
    @pytest.mark.parametrize(
        "change",
        [lambda table: table.take(order(len(table), len(table), 1, 1)), lambda table: moved(table, (20, 700))],
        ids=["permuted", "reversed in part"],
    )
    def test_is_found_before_a_batch_is_handed_out(
        self, change: Callable[[pa.Table], pa.Table], shuffle_buffer: int, prefetch: int, told: bool
    ):
        source = numbered(ROWS, 300)
        options = {"shuffle_buffer": shuffle_buffer, "seed": 2, "prefetch": prefetch}
        state = after(20, source, **options)
        changed = change(source)
        other = loader(changed if told else lambda: changed, **options)
        other.load_state_dict(state)
        iterator = iter(other)
        with pytest.raises(ad.ConversionError, match="rows have changed") as caught:
            next(iterator)
        assert "ORDER BY" in caught.value.remedy
        assert "files" in caught.value.remedy
        assert next(iterator, None) is None
        # Nothing counts as handed out, and the source itself goes on.
        found = other.state_dict()
        assert (found["taken"], found["hashes"]) == (state["taken"], state["hashes"])
        same = loader(source if told else lambda: source, **options)
        same.load_state_dict(state)
        assert rows_of(next(iter(same))) == order(ROWS, shuffle_buffer, 2, 0)[1000:1050]

    def test_each_sampled_row_counts(self):
        source = numbered(ROWS)
        state = after(20, source)
        for row in samples():
            if row >= 951:
                break
            values = np.arange(ROWS)
            values[row] += 1
            other = loader(pa.table({"row": values}))
            other.load_state_dict(state)
            with pytest.raises(ad.ConversionError, match="changed"):
                next(iter(other))

    def test_a_changed_row_after_those_that_were_read_is_no_matter(self):
        state = after(20, numbered(ROWS))
        other = loader(moved(numbered(ROWS), (1000, 500)))
        other.load_state_dict(state)
        assert rows_of(next(iter(other)))[0] == 1499

    def test_a_source_that_ends_early_is_found(self):
        state = after(30, lambda: numbered(ROWS))
        other = loader(lambda: numbered(900))
        other.load_state_dict(state)
        with pytest.raises(ad.ConversionError, match="has 900 rows, and had more"):
            list(other)

    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("shuffle_buffer", [0, 10])
    @pytest.mark.parametrize("rows", [19, 21])
    def test_a_source_with_another_number_of_rows_than_the_state_knows_is_found(
        self, rows: int, shuffle_buffer: int, prefetch: int
    ):
        options = {"batch_size": 4, "shuffle_buffer": shuffle_buffer, "seed": 1, "prefetch": prefetch}
        state = after(1, numbered(20), **options)
        for again in (False, True):
            other = loader(lambda: numbered(rows), **options)
            other.load_state_dict(state)
            if again:
                # The state of the resumed epoch knows it too.
                next(iter(other))
                state = other.state_dict()
                assert state["rows"] == 20
                other = loader(lambda: numbered(rows), **options)
                other.load_state_dict(state)
            with pytest.raises(ad.ConversionError, match=f"has {rows} rows, and had 20") as caught:
                list(other)
            assert "ORDER BY" in caught.value.remedy
        same = loader(lambda: numbered(20), **options)
        same.load_state_dict(state)
        assert len(list(same)) == 3
        assert len(list(same)) == 5

    def test_a_number_of_rows_that_is_not_true_is_found_in_a_replay(self):
        class Said:
            num_rows = ROWS

            def __init__(self, rows: int) -> None:
                self.rows = rows

            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                return numbered(self.rows).__arrow_c_stream__(requested_schema)

        options = {"shuffle_buffer": 100, "seed": 0}
        state = {**after(20, Said(ROWS), **options), "hashes": []}
        for rows in (0, 800, 1070):
            other = loader(Said(rows), **options)
            other.load_state_dict(state)
            with pytest.raises(ad.ConversionError, match=f"said to have {ROWS} rows, and has {rows}"):
                list(other)

    def test_other_dtypes_are_not_compared_unless_all_must_be(self):
        state = after(20, numbered(ROWS))
        changed = moved(numbered(ROWS), (20, 700))
        other = loader(changed, dtype="float32")
        other.load_state_dict(state)
        assert len(list(other)) == 20
        strict = loader(numbered(ROWS), dtype="float32", verify="all")
        strict.load_state_dict(state)
        with pytest.raises(ad.ConversionError, match=r"dtypes.*verif") as caught:
            iter(strict)
        assert 'verify="replay"' in caught.value.remedy
        strict = loader(numbered(ROWS), verify="all")
        strict.load_state_dict(state)
        assert len(list(strict)) == 20
        # A state without rows has nothing to compare.
        strict = loader(numbered(ROWS), verify="all")
        strict.load_state_dict(loader(numbered(ROWS)).state_dict())
        assert len(list(strict)) == 40

    @pytest.mark.parametrize("verify", ["none", "", "ALL"])
    def test_verify_is_one_of_two(self, verify: Any):
        with pytest.raises(ValueError, match="verify"):
            loader(verify=verify)


class TestVerifyingAllShards:
    """A state has the hashes of the lanes that its rank has read."""

    @staticmethod
    def shards_of(rows: list[int], reversed_shard: int | None = None) -> list[tuple[pa.Table, int]]:
        tables = [numbered(1000 * number + count, 1 << 20).slice(1000 * number) for number, count in enumerate(rows)]
        if reversed_shard is not None:
            tables[reversed_shard] = tables[reversed_shard].take(list(range(rows[reversed_shard]))[::-1])
        return list(zip(tables, rows, strict=True))

    def after(self, rounds: int, sources: list[tuple[pa.Table, int]], **options: Any) -> dict[str, Any]:
        whole = ad.Loader(sources=sources, **options)
        iterator = iter(whole)
        for _ in range(rounds):
            next(iterator)
        state = whole.state_dict()
        iterator.close()
        return json.loads(json.dumps(state))

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_refuses_the_state_of_another_rank(self, prefetch: int):
        options = {"lanes": 2, "batch_size": 10, "world_size": 2, "prefetch": prefetch}
        rows = [40, 40]
        states = [self.after(2, self.shards_of(rows), rank=rank, **options) for rank in range(2)]
        for rank in range(2):
            for other in range(2):
                # Nobody could tell that the rank's own shard is reversed.
                changed = self.shards_of(rows, reversed_shard=rank)
                loader = ad.Loader(sources=changed, rank=rank, verify="all", **options)
                loader.load_state_dict(states[other])
                named = f"shard {rank}: .*changed" if other == rank else f"no hashes of rows .* of shard {rank}"
                with pytest.raises(ad.ConversionError, match=named) as caught:
                    list(loader)
                assert other == rank or 'verify="replay"' in caught.value.remedy
        # Without it, each rank can load the state of any.
        loader = ad.Loader(sources=self.shards_of(rows), rank=0, **options)
        loader.load_state_dict(states[1])
        assert [rows_of(batch) for batch in loader] == [list(range(20, 30)), list(range(30, 40))]

    def test_a_shard_of_two_lanes_counts_by_the_rows_that_were_read(self):
        # Lane 1 begins at row 30 of shard 0.
        options = {"lanes": 2, "batch_size": 10, "world_size": 2}
        states = [self.after(2, self.shards_of([60, 0]), rank=rank, **options) for rank in range(2)]
        for rank, other, passes in ((0, 0, True), (1, 1, True), (0, 1, True), (1, 0, False)):
            loader = ad.Loader(sources=self.shards_of([60, 0]), rank=rank, verify="all", **options)
            loader.load_state_dict(states[other])
            if passes:
                assert len(list(loader)) == 1
            else:
                with pytest.raises(ad.ConversionError, match="of shard 0"):
                    iter(loader)

    def test_takes_the_own_state_of_each_rank(self):
        chance = random.Random(7)
        for _ in range(40):
            world_size = chance.choice([1, 2, 3])
            rows = [chance.randint(0, 60) for _ in range(chance.randint(1, 8))]
            options: dict[str, Any] = {
                "lanes": world_size * chance.randint(1, 3), "batch_size": chance.randint(1, 9),
                "world_size": world_size, "drop_last": chance.random() < 0.5,
                "shuffle_buffer": chance.choice([0, 5, 40]), "seed": 1, "readers": chance.randint(1, 3),
            }  # fmt: skip
            sources = self.shards_of(rows)
            rounds = chance.randint(0, len(ad.Loader(sources=sources, **options)))
            for rank in range(world_size):
                state = self.after(rounds, sources, rank=rank, **options)
                more = {**options, "batch_size": chance.randint(1, 9), "drop_last": chance.random() < 0.5}
                if options["lanes"] % (2 * world_size) == 0:
                    # A rank of twice as many reads some of the lanes.
                    more["world_size"] = 2 * world_size
                loader = ad.Loader(sources=sources, rank=rank, verify="all", **more)
                loader.load_state_dict(state)
                expected = ad.Loader(sources=sources, rank=rank, **more)
                expected.load_state_dict(state)
                found = [rows_of(batch) for batch in loader]
                assert found == [rows_of(batch) for batch in expected]

    def test_takes_the_own_state_of_ranks_that_share_lanes(self):
        chance = random.Random(8)
        refused = 0
        for _ in range(30):
            world_size = chance.choice([2, 3, 4])
            rows = [chance.randint(0, 40) for _ in range(chance.randint(1, 9))]
            options: dict[str, Any] = {
                "lanes": chance.choice([1, 1, 2, 3]), "batch_size": chance.randint(1, 9), "world_size": world_size,
                "drop_last": chance.random() < 0.5, "shuffle_buffer": chance.choice([0, 0, 40]), "seed": 1,
            }  # fmt: skip
            sources = self.shards_of(rows)
            if options["lanes"] == 1 and chance.random() < 0.3:
                sources = [(lambda table=table: table, None) for table, _ in sources]
            rounds = chance.randint(0, len(ad.Loader(sources=self.shards_of(rows), **options)))
            states = [self.after(rounds, sources, rank=rank, **options) for rank in range(world_size)]
            for rank in range(world_size):
                loader = ad.Loader(sources=sources, rank=rank, verify="all", **options)
                loader.load_state_dict(states[rank])
                expected = ad.Loader(sources=sources, rank=rank, **options)
                expected.load_state_dict(states[rank])
                found = [rows_of(batch) for batch in loader]
                assert found == [rows_of(batch) for batch in expected]
                # And further.
                again = ad.Loader(sources=sources, rank=rank, verify="all", **options)
                again.load_state_dict(states[rank])
                if found:
                    next(iter(again))
                    further = ad.Loader(sources=sources, rank=rank, verify="all", **options)
                    further.load_state_dict(again.state_dict())
                    assert [rows_of(batch) for batch in further] == found[1:]
                try:
                    loader.load_state_dict(states[rank - 1])
                    list(loader)
                except ad.ConversionError:
                    refused += 1
        assert refused > 0

    def test_of_a_lane_that_ranks_share_needs_the_rows_of_the_rank(self):
        options = {"lanes": 1, "world_size": 4, "batch_size": 12}
        sources = self.shards_of([34] * 8)
        state = self.after(4, sources, rank=3, **options)
        # Rank 3 has rows 36 to 48 and so on, none of them in shard 0.
        assert [shard for shard, *_ in state["hashes"]] == [1, 2, 3, 4, 5]
        loader = ad.Loader(sources=sources, rank=3, verify="all", **options)
        loader.load_state_dict(state)
        assert len(list(loader)) == 1
        for shard in range(1, 6):
            loader = ad.Loader(sources=sources, rank=3, verify="all", **options)
            loader.load_state_dict({**state, "hashes": [known for known in state["hashes"] if known[0] != shard]})
            with pytest.raises(ad.ConversionError, match=f"no hashes of rows .* of shard {shard}") as caught:
                iter(loader)
            assert "that this rank has taken with this world_size" in caught.value.remedy

    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("readers", [1, 2])
    @pytest.mark.parametrize("shuffle_buffer", [0, 4])
    @pytest.mark.parametrize("rounds", [5, 6])
    def test_compares_lanes_without_a_further_batch(
        self, rounds: int, shuffle_buffer: int, readers: int, prefetch: int
    ):
        options = {"lanes": 2, "batch_size": 4, "shuffle_buffer": shuffle_buffer, "shuffle_shards": False, "seed": 1}
        options.update(readers=readers, prefetch=prefetch)
        state = self.after(rounds, self.shards_of([12, 12]), **options)
        for shard in (None, 0, 1):
            loader = ad.Loader(sources=self.shards_of([12, 12], reversed_shard=shard), verify="all", **options)
            loader.load_state_dict(state)
            if shard is None:
                assert len(list(loader)) == 6 - rounds
                continue
            with pytest.raises(ad.ConversionError, match=f"shard {shard}: .*changed"):
                list(loader)


class TestShardsThatDoNotTellTheirRows:
    """Where one of them ends is known once it was read."""

    @staticmethod
    def shards_of(parts: list[np.ndarray]) -> list[Callable[[], pa.Table]]:
        return [lambda part=part: pa.table({"row": part}) for part in parts]

    PARTS = (np.arange(20), np.arange(20, 60), np.arange(60, 65), np.arange(65, 100))

    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("shuffle_buffer", [0, 7])
    @pytest.mark.parametrize("world_size", [1, 2])
    def test_have_hashes_of_each(self, world_size: int, shuffle_buffer: int, prefetch: int):
        options: dict[str, Any] = {"batch_size": 10, "world_size": world_size, "prefetch": prefetch}
        options.update(shuffle_buffer=shuffle_buffer, shuffle_shards=False, seed=1)
        rounds = 6 // world_size
        read = min(50 + 1 + shuffle_buffer, 100)
        for rank in range(world_size):
            whole = ad.Loader(sources=self.shards_of(list(self.PARTS)), rank=rank, **options)
            iterator = iter(whole)
            for _ in range(rounds):
                next(iterator)
            state = json.loads(json.dumps(whole.state_dict()))
            rows = [[struct.pack("<q", row)] for row in range(read)]
            assert state["hashes"] == [[0, *digest(rows[:20])], [1, *digest(rows[20:60])]]
            rest = [rows_of(batch) for batch in iterator]
            rows = [[struct.pack("<q", row)] for row in range(100)]
            expected = [[0, *digest(rows[:20])], [1, *digest(rows[20:60])], [2, *digest(rows[60:65])]]
            assert whole.fingerprint()["hashes"] == [*expected, [3, *digest(rows[65:])]]
            for verify in ("replay", "all"):
                other = ad.Loader(sources=self.shards_of(list(self.PARTS)), rank=rank, verify=verify, **options)
                other.load_state_dict(state)
                assert [rows_of(batch) for batch in other] == rest
                for shard in (0, 1):
                    parts = [part[::-1].copy() if at == shard else part for at, part in enumerate(self.PARTS)]
                    changed = ad.Loader(sources=self.shards_of(parts), rank=rank, verify=verify, **options)
                    changed.load_state_dict(state)
                    with pytest.raises(ad.ConversionError, match=f"shard {shard}: .*rows have changed"):
                        next(iter(changed))
            without = ad.Loader(sources=self.shards_of(list(self.PARTS)), rank=rank, verify="all", **options)
            without.load_state_dict({**state, "hashes": state["hashes"][:1]})
            with pytest.raises(ad.ConversionError, match=r"no hashes of rows .* of shard 1"):
                next(iter(without))


class TestFingerprint:
    def test_is_equal_for_ranks_in_step(self):
        options = {"world_size": 3, "shuffle_buffer": 60, "seed": 4}
        ranks = [loader(numbered(ROWS, 70 + rank), rank=rank, **options) for rank in range(3)]
        changed = loader(moved(numbered(ROWS), (20, 300)), rank=1, **options)
        iterators = [iter(rank) for rank in [*ranks, changed]]
        for _ in range(5):
            found = [rank.fingerprint() for rank in ranks]
            assert found[1:] == found[:1] * 2
            for iterator in iterators:
                next(iterator)
        for iterator in iterators:
            list(iterator)
        found = [rank.fingerprint() for rank in ranks]
        assert found[1:] == found[:1] * 2
        assert (found[0]["epoch"], found[0]["world_size"]) == (1, 3)
        assert found[0]["hashes"] == [[0, *digest([[struct.pack("<q", row)] for row in range(ROWS)])]]
        assert json.loads(json.dumps(found[0])) == found[0]
        assert changed.fingerprint() != found[0]

    def test_tells_options_apart(self):
        base = {"shuffle_buffer": 60, "seed": 4, "world_size": 2}
        first = loader(**base).fingerprint()
        for change in ({"shuffle_buffer": 61}, {"seed": 5}, {"world_size": 3}, {"batch_size": 7}, {"drop_last": True}):
            assert loader(**{**base, **change}).fingerprint() != first


class TestQueriesOfSeveralRanks:
    PROGRAM = """
import warnings

import arrow_dlpack as ad
import pyarrow as pa
{opened}
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    ad.Loader(query, batch_size=1)
    assert not caught, caught[0].message
    for rank in range(2):
        ad.Loader(query, batch_size=1, rank=rank, world_size=2)
assert len(caught) == {warned}, [str(one.message) for one in caught]
assert all(one.category is UserWarning and "ORDER BY" in str(one.message) for one in caught)
"""

    @pytest.mark.parametrize(
        ("opened", "warned"),
        [
            ("import duckdb; query = duckdb.sql('select 1 as a')", 1),
            ("import polars; query = polars.LazyFrame({'a': [1]})", 1),
            ("import polars; query = polars.DataFrame({'a': [1]})", 0),
            ("import pandas; query = pandas.DataFrame({'a': [1]})", 0),
            ("query = pa.table({'a': [1]})", 0),
            ("query = pa.table({'a': [1]}).to_reader()", 0),
            ("query = ad.from_arrow(pa.table({'a': [1]}))", 0),
            ("import pyarrow.dataset; query = pyarrow.dataset.dataset(pa.table({'a': [1]}))", 0),
            ("query = lambda: None", 0),
        ],
    )
    def test_are_warned_of_once(self, opened: str, warned: int):
        skip_without(*(library for library in WITHOUT_WHEELS if library in opened))
        program = self.PROGRAM.format(opened=opened, warned=warned)
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_with_a_filter_the_warning_is_raised_each_time(self):
        skip_without("duckdb")
        program = (
            "import warnings; warnings.simplefilter('error')\n"
            "import arrow_dlpack as ad, duckdb\n"
            "for _ in range(2):\n"
            "    try:\n"
            "        ad.Loader(duckdb.sql('select 1 as a'), batch_size=1, world_size=2)\n"
            "    except UserWarning: continue\n"
            "    raise SystemExit('no warning')\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True)
