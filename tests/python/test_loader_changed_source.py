"""A source that has changed between a state and its resumption is found: by the hashes that docs/loader.md defines."""

import json
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

    @pytest.mark.parametrize(("told", "taken"), [(5, 4), (8, 4), (1, 4), (True, 1), (12, 12)])
    def test_more_rows_than_the_source_said_are_found_in_a_replay_that_depends_on_them(self, told: int, taken: int):
        class Said:
            num_rows = told

            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                return numbered(20).__arrow_c_stream__(requested_schema)

        options: dict[str, Any] = {"batch_size": 1, "shuffle_buffer": 7, "seed": 1}
        state = after(taken, Said(), **options)
        other = loader(Said(), **options)
        other.load_state_dict(state)
        with pytest.raises(ad.ConversionError, match=f"said to have {int(told)} rows?, and has more"):
            next(iter(other))

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
