"""`padded`, `ragged` and `arrow` in a `Loader`: batches, shuffles, shards, resuming, changed sources and faults."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
import random
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import digest, fold, fold_bytes, loader_threads, order, samples
from support import numpy_of
from varied_reference import ROWS, TABLE, VALUES, as_lists, padded, same

COLUMNS: dict[str, Any] = {
    "row": "n",
    "x": ad.padded("ids", nulls="keep", lengths="x len", validity="x mask"),
    "w": ad.padded("words", nulls=0, length=4, truncate="left", side="left", value=1, lengths="w len"),
    "nested": ad.ragged("nested"),
    "views": ad.ragged("id views", nulls="keep"),
    "raw": ad.arrow("words", "struct", "codes", "n"),
}
NAMES = ["row", "x", "x mask", "x len", "w", "w len", "nested", "views", "raw"]


def chunked(size: int, table: pa.Table = TABLE) -> pa.Table:
    return pa.Table.from_batches(table.to_batches(max_chunksize=size))


def check(batch: dict[str, Any], rows: list[int]) -> None:
    """A batch has what the functions make of exactly these rows."""
    assert list(batch) == NAMES
    same(batch["row"], np.array(rows, np.int32))
    matrix, valid, lengths = padded("ids", "int16", rows, nulls="keep")
    for name, array in (("x", matrix), ("x mask", valid), ("x len", lengths)):
        same(batch[name], array, name)
        assert batch[name].writable
    matrix, _, lengths = padded("words", "uint8", rows, nulls=0, length=4, truncate="left", side="left", value=1)
    same(batch["w"], matrix)
    same(batch["w len"], lengths)
    assert as_lists(batch["nested"]) == [VALUES["nested"][row] for row in rows]
    wanted = [VALUES["ids"][row] for row in rows]
    found = as_lists(batch["views"])
    assert [row is None for row in found] == [row is None for row in wanted]
    for got, row in zip(found, wanted, strict=True):
        assert row is None or [g for g, w in zip(got, row, strict=True) if w is not None] == [
            w for w in row if w is not None
        ]
    raw = pa.record_batch(batch["raw"])
    assert raw.num_rows == len(rows)
    assert raw.to_pylist() == TABLE.select(raw.schema.names).take(rows).to_pylist()


@pytest.mark.parametrize("shuffle_buffer", [0, 5, 23, 100])
@pytest.mark.parametrize("size", [3, 11, ROWS])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_have_the_rows_of_the_order(shuffle_buffer: int, size: int, prefetch: int):
    options: Any = {"shuffle_buffer": shuffle_buffer, "seed": 7, "prefetch": prefetch}
    for source in (chunked(size), lambda: chunked(size).to_reader()):
        loader = ad.Loader(source, batch_size=8, columns=COLUMNS, **options)
        for epoch in range(2):
            rows = order(ROWS, shuffle_buffer, 7, epoch)
            batches = list(loader)
            assert len(batches) == 8
            for start, batch in zip(range(0, ROWS, 8), batches, strict=True):
                check(batch, rows[start : start + 8])
        cut = ad.Loader(source, batch_size=8, columns=COLUMNS, drop_last=True, **options)
        assert [len(batch["x"]) for batch in cut] == [8] * 7


def test_random_loaders_against_the_reference():
    for seed in range(40):
        pick = random.Random(seed)
        size, buffer = pick.randrange(1, 20), pick.choice([0, 4, 30, 200])
        names = pick.sample(list(COLUMNS), pick.randrange(1, len(COLUMNS) + 1))
        loader = ad.Loader(
            chunked(pick.randrange(1, 30)),
            batch_size=size,
            columns={name: COLUMNS[name] for name in names},
            shuffle_buffer=buffer,
            seed=seed,
            rank=(rank := pick.randrange(2)),
            world_size=2,
            prefetch=pick.choice([0, 1]),
        )
        full = order(ROWS, buffer, seed, 0)
        cut = [full[start : start + size] for start in range(0, ROWS, size)]
        wanted = cut[rank : len(cut) // 2 * 2 : 2]
        for batch, rows in zip(loader, wanted, strict=True):
            if "raw" in names:
                assert pa.record_batch(batch["raw"])["n"].to_pylist() == rows
            if "x" in names:
                same(batch["x"], padded("ids", "int16", rows, nulls="keep")[0])
            if "nested" in names:
                assert as_lists(batch["nested"]) == [VALUES["nested"][row] for row in rows]


@pytest.mark.parametrize("column", TABLE.column_names)
def test_columns_of_every_type_are_passed_through(column: str):
    for buffer, size in itertools.product((0, 20, 100), (9, ROWS)):
        columns = {"a": ad.arrow(column), "row": "n"}
        loader = ad.Loader(chunked(size), batch_size=10, columns=columns, shuffle_buffer=buffer, seed=3)
        for batch in loader:
            found = pa.record_batch(batch["a"])
            assert found.schema.field(column).type == TABLE.schema.field(column).type
            values = TABLE[column].to_pylist()
            assert found[column].to_pylist() == [values[row] for row in numpy_of(batch["row"])]


@pytest.mark.parametrize("shuffle_buffer", [0, 23])
def test_ragged_rows_are_the_consumers(shuffle_buffer: int):
    ids = pa.array([[row, row + 1] for row in range(64)], pa.list_(pa.int64()))
    table = pa.table({"ids": ids})
    loader = ad.Loader(
        table,
        batch_size=8,
        columns={"r": ad.ragged("ids")},
        shuffle_buffer=shuffle_buffer,
        seed=1 if shuffle_buffer else None,
    )
    for batch in loader:
        for part in (batch["r"].values, batch["r"].offsets):
            assert part.writable
            np.from_dlpack(part)[:] = -1
    assert table["ids"].to_pylist() == [[row, row + 1] for row in range(64)]


def test_copies_are_logged_as_batches_are_handed_out():
    """Whichever thread made them."""
    logs = []
    for prefetch in (0, 2):
        loader = ad.Loader(chunked(11), batch_size=8, columns=COLUMNS, prefetch=prefetch)
        with ad.track_copies() as log:
            iterator = iter(loader)
            assert log.bytes == 0
            made = next(iterator)
        logs.append(Counter((entry.what, entry.why, entry.bytes) for entry in log))
        copied = [made["views"].values, made["views"].offsets, made["x"], made["w"], made["row"]]
        assert log.bytes >= sum(part.nbytes for part in copied)
    # Without a thread, the conversion of rows for their hashes is of the consumer's thread, too.
    assert logs[1] <= logs[0]


def test_in_order_arrow_shares_the_memory_of_the_source():
    batch = TABLE.combine_chunks().to_batches()[0]
    first = next(iter(ad.Loader(batch, batch_size=8, columns={"a": ad.arrow("words")})))
    assert pa.record_batch(first["a"])["words"].buffers()[2].address == batch["words"].buffers()[2].address


def test_the_width_is_that_of_the_batch():
    columns = {"x": ad.padded("full", multiple_of=4), "y": ad.padded("full", length=12)}
    for start, batch in zip(range(0, ROWS, 6), ad.Loader(TABLE, batch_size=6, columns=columns), strict=True):
        longest = max(len(row) for row in VALUES["full"][start : start + 6])
        assert batch["x"].shape[1] == -(-longest // 4) * 4
        assert batch["y"].shape[1] == 12


def test_shards_lanes_and_readers():
    cuts = [0, 9, 9, 30, 31, ROWS]
    shards = [TABLE.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    sources = [((lambda shard=shard: shard.to_reader(max_chunksize=4)), len(shard)) for shard in shards]
    for lanes, buffer in itertools.product((1, 3), (0, 12)):
        options: Any = {"batch_size": 4, "columns": COLUMNS, "lanes": lanes, "seed": 5, "shuffle_buffer": buffer}
        seen = []
        for readers in (1, 2):
            found = list(ad.Loader(sources=sources, readers=readers, **options))
            rows = [numpy_of(batch["row"]).tolist() for batch in found]
            for batch, numbers in zip(found, rows, strict=True):
                check(batch, numbers)
            seen.append(rows)
        assert seen[0] == seen[1]
        assert len(set(itertools.chain(*seen[0]))) == len(list(itertools.chain(*seen[0])))


@pytest.mark.parametrize("buffer", [0, 16])
@pytest.mark.parametrize("taken", [1, 3, 6])
def test_a_state_is_resumed(buffer: int, taken: int):
    def loader(**options: Any) -> ad.Loader:
        options = {"batch_size": 8, "columns": COLUMNS, "shuffle_buffer": buffer, "seed": 2} | options
        return ad.Loader(chunked(5), **options)

    first = loader()
    list(itertools.islice(first, taken))
    state = json.loads(json.dumps(first.state_dict()))
    rows = order(ROWS, buffer, 2, 0)[taken * 8 :]
    for size in (8, 3):
        other = loader(batch_size=size)
        other.load_state_dict(state)
        for start, batch in zip(range(0, len(rows), size), other, strict=True):
            check(batch, rows[start : start + size])
    again = pickle.loads(pickle.dumps(first))
    check(next(iter(again)), rows[:8])


class TestChangedSources:
    @pytest.mark.parametrize("column", ["ids", "words", "nested", "id views", "struct", "codes"])
    def test_are_found(self, column: str):
        values = TABLE[column].to_pylist()
        values[2], values[4] = values[4], values[2]
        at = TABLE.column_names.index(column)
        changed = TABLE.set_column(at, TABLE.schema.field(column), pa.array(values, TABLE.schema.field(column).type))
        loader = ad.Loader(TABLE, batch_size=8, columns=COLUMNS, shuffle_buffer=10, seed=1)
        list(itertools.islice(loader, 3))
        state = loader.state_dict()
        other = ad.Loader(changed, batch_size=8, columns=COLUMNS, shuffle_buffer=10, seed=1)
        other.load_state_dict(state)
        if column == "id views":
            assert values[2] != values[4]
        with pytest.raises(ad.ConversionError, match="rows have changed"):
            list(other)

    def test_chunks_and_encodings_are_not_changes(self):
        loader = ad.Loader(chunked(7), batch_size=8, columns=COLUMNS)
        list(itertools.islice(loader, 3))
        state = loader.state_dict()
        at = TABLE.column_names.index("codes")
        values = pa.array(["other", *TABLE["codes"].to_pylist()]).dictionary_encode()[1:]
        other = ad.Loader(chunked(20, TABLE.set_column(at, "codes", values)), batch_size=8, columns=COLUMNS)
        other.load_state_dict(state)
        check(next(iter(other)), list(range(24, 32)))

    def test_hashes_are_those_of_the_document(self):
        columns = {
            "row": "n",
            "x": ad.padded("ids", nulls=0, validity="m"),
            "r": ad.ragged("nested"),
            "a": ad.arrow("words"),
        }
        loader = ad.Loader(TABLE, batch_size=ROWS, columns=columns)
        list(loader)
        wanted = 0
        count = 0
        for row in itertools.takewhile(ROWS.__gt__, samples()):
            h = fold_bytes(0, np.int32(row).tobytes())
            ids = VALUES["ids"][row] or []
            h = fold_bytes(h, np.array([item or 0 for item in ids], np.int16).tobytes())
            h = fold_bytes(h, bytes(item is not None for item in ids))
            nested = VALUES["nested"][row]
            h = fold_bytes(fold_bytes(h, b"\x01"), np.int64(len(nested)).tobytes())
            h = fold_bytes(
                fold_bytes(h, b"\x01" * len(nested)), np.array([len(one) for one in nested], "<i8").tobytes()
            )
            h = fold_bytes(h, np.array(list(itertools.chain(*nested)), np.int32).tobytes())
            word = TABLE["words"][row].as_py()
            h = fold(h, 0) if word is None else fold_bytes(fold(h, 1), word.encode())
            wanted = fold(fold(wanted, row), h)
            count += 1
        assert loader.fingerprint()["hashes"] == [[0, count, wanted]]
        assert digest([]) == [0, 0]


class TestFaults:
    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("buffer", [0, 20])
    def test_a_row_that_is_too_long_or_null_is_named(self, prefetch: int, buffer: int):
        lengths = [row % 3 for row in range(100)]
        lengths[61] = 9
        table = pa.table({"x": pa.array([[1] * length for length in lengths]), "n": range(100)})
        options: Any = {"batch_size": 8, "shuffle_buffer": buffer, "seed": 4, "prefetch": prefetch}
        loader = ad.Loader(chunked(7, table), columns={"x": ad.padded("x", length=3), "n": "n"}, **options)
        rows = order(100, buffer, 4, 0)
        iterator = iter(loader)
        good = rows.index(61) // 8
        for start in range(good):
            assert numpy_of(next(iterator)["n"]).tolist() == rows[start * 8 : start * 8 + 8]
        with pytest.raises(ad.ConversionError, match="has 9 elements, and is padded to 3") as raised:
            next(iterator)
        assert (raised.value.column, raised.value.row) == ("x", 61)
        assert list(iterator) == []

    def test_types_that_change_between_batches(self):
        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"x": pa.array([[1], [2]], pa.list_(pa.int32()))})
            yield pa.record_batch({"x": pa.array([[1], [2]], pa.list_(pa.int64()))})

        iterator = iter(ad.Loader(batches, batch_size=2, columns={"x": ad.padded("x"), "a": ad.arrow("x")}))
        assert next(iterator)["x"].shape == (2, 1)
        with pytest.raises(ad.ConversionError, match="Int64"):
            next(iterator)

    @pytest.mark.parametrize("offsets", [[0, 3, 2, 4], [0, 1, 2, 9], [-1, 1, 2, 3], [0, 1, 2, 2**31 - 1]])
    @pytest.mark.parametrize("buffer", [0, 2, 9])
    def test_broken_offsets_are_refused(self, offsets: list[int], buffer: int):
        raw = np.array([0, 1, 2, 4], np.int32)
        children = [pa.array([1, 2, 3, 4])]
        lists = pa.Array.from_buffers(pa.list_(pa.int64()), 3, [None, pa.py_buffer(raw)], children=children)
        table = pa.table({"x": lists})
        # pyarrow refuses them where it makes the array.
        raw[:] = offsets
        for group in (ad.padded("x"), ad.ragged("x")):
            loader = ad.Loader(table, batch_size=4, columns={"x": group}, shuffle_buffer=buffer, seed=1)
            with pytest.raises(ad.ConversionError) as raised:
                list(loader)
            assert raised.value.column == "x"

    def test_a_padded_batch_beyond_memory(self):
        table = pa.table({"x": [[1, 2], [3]]})
        for length in (2**62, 2**44):
            loader = ad.Loader(table, batch_size=2, columns={"x": ad.padded("x", length=length)})
            with pytest.raises((ad.ConversionError, MemoryError)):
                list(loader)

    def test_rows_beyond_offsets_of_32_bits(self):
        """A batch of rows of many arrays is what `to_tensors` makes of them."""
        size, count, before = 1 << 26, 40, 140_000
        offsets = pa.py_buffer(np.array([0, size], np.int32).tobytes())
        large = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(bytes(range(256)) * (size // 256))])
        # In one array of memory. Of rows so late in the source hardly any is hashed.
        table = pa.table({"x": pa.chunked_array([pa.array([b""] * before), *[large] * count])})
        cut = {"x": ad.padded("x", length=4, truncate="right")}
        last = list(ad.Loader(table, batch_size=before // 2, columns=cut))[-1]
        same(last["x"], np.tile(np.arange(4, dtype="uint8"), (count, 1)))
        same(last["x"], numpy_of(ad.to_tensors(table.slice(before), columns=cut)["x"]))
        for group in (ad.ragged("x"), ad.arrow("x")):
            iterator = iter(ad.Loader(table, batch_size=before // 2, columns={"x": group}))
            assert len([next(iterator) for _ in range(2)]) == 2
            with pytest.raises(ad.UnsupportedTypeError, match="offsets beyond int32"):
                next(iterator)

    def test_kept_nulls_need_a_mask(self):
        with pytest.raises(ad.ConversionError, match="validity"):
            ad.Loader(TABLE, batch_size=2, columns={"x": ad.padded("ids", nulls="keep")})
        ad.Loader(
            TABLE, batch_size=2, columns={"x": ad.ragged("ids", nulls="keep"), "a": ad.arrow("ids")}, nulls="keep"
        )

    @pytest.mark.parametrize(
        ("columns", "match"),
        [
            ({"x": ad.padded("n"), "y": "n"}, "no ragged form"),
            ({"x": ad.padded("nested")}, "nested lists"),
            ({"x": ad.arrow("nothing")}, "no such column"),
            ({"x": ad.padded("full", lengths="y"), "y": "n"}, "the lengths of group"),
        ],
        ids=range(4),
    )
    def test_types_and_names_are_refused_by_the_constructor(self, columns: dict, match: str):
        with pytest.raises(ad.ConversionError, match=match):
            ad.Loader(TABLE, batch_size=4, columns=columns)


@pytest.mark.parametrize("buffer", [0, 10])
def test_nothing_is_left_after_an_iteration_that_is_closed(buffer: int):
    alive = []

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, 4000, 10):
            made = pa.record_batch({"x": [[row] * (row % 5) for row in range(start, start + 10)]})
            alive.append(weakref.ref(made))
            yield made

    columns = {"x": ad.padded("x"), "r": ad.ragged("x"), "a": ad.arrow("x")}
    iterator = iter(ad.Loader(batches, batch_size=16, columns=columns, shuffle_buffer=buffer, seed=1))
    kept = next(iterator)
    iterator.close()
    del iterator, kept
    gc.collect()
    assert loader_threads() == 0
    assert not any(made() is not None for made in alive)


def test_shuffled_rows_of_different_dictionaries_have_one_of_their_values():
    """Of arrays as pandas makes them of categories: codes of 8 bits, and a dictionary of its own for each."""

    def batch(number: int) -> pa.RecordBatch:
        values = pa.array([f"{number % 7} {value}" for value in range(40)])
        codes = pa.array(np.arange(50) % 40, pa.int8())
        return pa.record_batch({"c": pa.DictionaryArray.from_arrays(codes, values), "n": np.arange(50) + 50 * number})

    source = [batch(number) for number in range(30)]
    expected = pa.Table.from_batches(source)["c"].to_pylist()
    columns = {"c": ad.arrow("c"), "n": "n"}
    seen = []
    for found in ad.Loader(pa.Table.from_batches(source), batch_size=60, columns=columns, shuffle_buffer=700):
        codes, rows = pa.record_batch(found["c"])["c"], numpy_of(found["n"])
        codes.validate(full=True)
        assert codes.to_pylist() == [expected[row] for row in rows]
        assert sorted(codes.dictionary.to_pylist()) == sorted(set(codes.to_pylist()))
        seen.extend(rows)
    assert sorted(seen) == list(range(1500))


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary_view()])
def test_the_shuffle_buffer_lets_go_of_arrays_of_which_few_rows_wait(kind: pa.DataType):
    before = pa.total_allocated_bytes()
    peak = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for start in range(400):
            peak = max(peak, pa.total_allocated_bytes() - before)
            # 1 MiB each, of which a shuffle buffer of 4096 rows may hold a row for long.
            yield pa.record_batch(
                {"x": pa.array([b"x" * 1024] * 1024, kind), "n": np.arange(start * 1024, start * 1024 + 1024)}
            )

    loader = ad.Loader(
        batches, batch_size=256, columns={"x": ad.arrow("x"), "n": "n"}, shuffle_buffer=4096, seed=1, prefetch=0
    )
    rows = 0
    for batch in loader:
        rows += len(batch["x"])
    assert rows == 400 * 1024
    # The buffer holds 4 MiB of rows, and arrays of the source for about as many again.
    assert peak < 40 << 20


def test_more_rows_wait_than_are_copied_at_once():
    """65,536 rows at a time are copied out of arrays that are read no more, and the rest after them."""
    waiting, rows, size = 70_000, 280_000, 2_500
    before, peak = pa.total_allocated_bytes(), 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for start in range(0, rows, size):
            peak = max(peak, pa.total_allocated_bytes() - before)
            numbers = np.arange(start, start + size)
            texts = np.char.zfill(numbers.astype("U"), 64).tolist()
            lists = pa.ListArray.from_arrays(np.arange(size + 1, dtype="int32"), numbers)
            yield pa.record_batch({"n": numbers, "text": texts, "l": lists})

    columns = {"n": "n", "raw": ad.arrow("text"), "r": ad.ragged("l"), "p": ad.padded("l", length=1)}
    seen = []
    for batch in ad.Loader(batches, batch_size=20_000, columns=columns, shuffle_buffer=waiting, seed=4, prefetch=0):
        numbers = numpy_of(batch["n"])
        assert pa.record_batch(batch["raw"])["text"].cast(pa.int64()).to_numpy().tolist() == numbers.tolist()
        same(batch["r"].values, numbers)
        same(batch["p"], numbers[:, None])
        seen.append(numbers)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(rows))
    # Arrays of twice the rows that wait are alive, of 64 bytes of text and 36 of numbers and offsets each.
    assert peak < 2.4 * waiting * 100, f"{peak / waiting:.0f} bytes"


def test_a_replay_lets_go_of_arrays_of_which_few_rows_wait():
    before = pa.total_allocated_bytes()
    peak = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for start in range(256):
            peak = max(peak, pa.total_allocated_bytes() - before)
            # 256 KiB each. The rows of a full buffer of 8192 are those of the last 70,000 rows, about.
            yield pa.record_batch({"x": pa.array([b"x" * 512] * 512), "n": np.arange(start * 512, start * 512 + 512)})

    options = {"batch_size": 256, "columns": {"x": ad.arrow("x"), "n": "n"}, "shuffle_buffer": 8192, "seed": 1}
    loader = ad.Loader(sources=[(batches, 256 * 512)], prefetch=0, **options)
    iterator = iter(loader)
    for _ in range(440):
        next(iterator)
    state = loader.state_dict()
    expected = [np.asarray(batch["n"]) for batch in iterator]
    # Read forwards, the buffer's rows are 4 MiB, and as many are copied at once.
    peak = 0
    resumed = ad.Loader(sources=[(batches, 256 * 512)], prefetch=0, **options)
    resumed.load_state_dict(state)
    batches_after = list(resumed)
    assert peak < 20 << 20, f"{peak / 2**20:.1f} MiB"
    np.testing.assert_array_equal(np.concatenate([batch["n"] for batch in batches_after]), np.concatenate(expected))


def test_a_small_buffer_keeps_few_arrays_of_its_source() -> None:
    size, rows, buffer = 10_000, 32, 256

    def batch() -> pa.RecordBatch:
        text = pa.allocate_buffer(rows * size)
        np.frombuffer(text, np.uint8)[:] = ord("a")
        offsets = pa.py_buffer(np.arange(0, (rows + 1) * size, size, dtype=np.int32))
        return pa.record_batch([pa.StringArray.from_buffers(rows, offsets, text)], ["s"])

    peak, before = 0, pa.total_allocated_bytes()

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for _ in range(180):
            yield batch()
            peak = max(peak, pa.total_allocated_bytes() - before)

    loader = ad.Loader(source, batch_size=8, columns={"s": ad.ragged("s")}, shuffle_buffer=buffer, seed=0, prefetch=0)
    assert sum(1 for _ in loader) == 180 * rows // 8
    # Twice the rows of the buffer, and two arrays.
    assert peak <= (2 * buffer + 2 * rows) * size * 1.05
