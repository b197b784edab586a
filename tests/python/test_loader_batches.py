"""What a batch is: the rows that `to_tensor` would give, in memory of its own, from whatever speaks Arrow."""

import gc
import itertools
import operator
import time
import weakref
from typing import Any

import arrow_dlpack as ad
import nanoarrow as na
import numpy as np
import polars as pl
import producers
import pyarrow as pa
import pytest
from arro3.core import Table
from loader_reference import batches, loader_threads, numbered, rows_of
from support import address
from tqdm import tqdm

TABLE = pa.table(
    {
        "f": pa.chunked_array([np.arange(7, dtype="float32"), np.arange(7, 20, dtype="float32")]),
        "i": pa.array(range(20), pa.int32()),
        "b": pa.array([i % 3 == 0 for i in range(20)]),
        "n": pa.array([None if i % 4 == 1 else i / 2 for i in range(20)]),
        "l": pa.array([[i, -i] for i in range(20)], pa.list_(pa.int16(), 2)),
        "t": pa.array(range(20), pa.timestamp("us")),
        "w": pa.array([f"{i % 3}" for i in range(20)]).dictionary_encode(),
    }
)


def together(loader: ad.Loader) -> Any:
    """The batches one after the other, as one array, or one of each group."""
    found = list(loader)
    if isinstance(found[0], dict):
        return {name: np.concatenate([np.from_dlpack(batch[name]) for batch in found]) for name in found[0]}
    return np.concatenate([np.from_dlpack(batch) for batch in found])


class TestConversion:
    @pytest.mark.parametrize(
        ("columns", "options"),
        [
            (["f", "i"], {}),
            (["f", "b"], {}),
            (["i", "b"], {"dtype": "float64"}),
            (["n", "f"], {"nulls": "nan"}),
            (["n", "i"], {"nulls": -1, "dtype": "int16", "columns": ["i"]}),
            (["t"], {}),
            (["w"], {"dictionary": "codes"}),
        ],
        ids=str,
    )
    def test_a_matrix(self, columns: list[str], options: dict):
        columns = options.pop("columns", columns)
        found = together(ad.Loader(TABLE, batch_size=6, columns=columns, **options))
        expected = [np.from_dlpack(ad.to_tensor(TABLE[name], **options)) for name in columns]
        assert found.shape == (20, len(columns))
        for index, column in enumerate(expected):
            np.testing.assert_array_equal(found[:, index], column.astype(found.dtype))

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("f", {}),
            ("b", {}),
            ("b", {"dtype": "float16"}),
            ("n", {"nulls": {"n": 0}}),
            ("l", {}),
            ("l", {"dtype": {"l": "float32"}}),
            ("t", {}),
            ("w", {}),
            ("w", {"dtype": "int64", "dictionary": "codes"}),
        ],
        ids=str,
    )
    def test_a_column(self, name: str, options: dict):
        found = together(ad.Loader(TABLE, batch_size=6, columns={"it": name}, **options))
        plain = {key: value[name] if isinstance(value, dict) else value for key, value in options.items()}
        expected = np.from_dlpack(ad.to_tensor(TABLE[name], **plain))
        assert (found["it"].dtype, found["it"].shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found["it"], expected)

    def test_groups_in_their_order(self):
        loader = ad.Loader(TABLE, batch_size=6, columns={"y": "i", "x": ["f", "i"], "again": "i"})
        batch = next(iter(loader))
        assert list(batch) == ["y", "x", "again"]
        assert [tensor.shape for tensor in batch.values()] == [(6,), (6, 2), (6,)]
        assert address(batch["y"]) != address(batch["again"])

    def test_a_column_returns_to_its_type(self):
        loader = ad.Loader(TABLE, batch_size=6, columns={"t": "t", "w": "w"})
        batch = next(iter(loader))
        assert pa.array(batch["t"]).equals(TABLE["t"].slice(0, 6).combine_chunks())
        assert pa.array(batch["w"]).to_pylist() == TABLE["w"].slice(0, 6).to_pylist()
        # Though it can be written to, and become something else.
        np.from_dlpack(batch["w"])[0] = 77
        with pytest.raises(ad.ConversionError):
            pa.array(batch["w"])

    @pytest.mark.parametrize("xp", [None, np])
    def test_the_memory_is_the_consumers(self, xp):
        for batch in ad.Loader(TABLE, batch_size=6, columns=["f"], xp=xp):
            array = np.from_dlpack(batch)
            assert array.flags.writeable
            array[:] = -1
        assert TABLE["f"][3].as_py() == 3

    def test_copies_are_told_as_they_are_handed_out(self):
        with ad.track_copies() as log:
            iterator = iter(ad.Loader(TABLE, batch_size=6, columns={"x": ["f", "i"], "y": "b"}))
            assert log.bytes == 0
            batch = next(iterator)
            assert log.bytes == batch["x"].nbytes + batch["y"].nbytes
            assert ["6 rows" in entry.what for entry in log] == [True, True]
        next(iterator)
        assert len(log) == 2
        whys = [entry.why for entry in log]
        assert whys[0] == "packed into a batch, cast from float32 to float64, cast from int32 to float64"
        assert whys[1] == "packed into a batch, bits unpacked to bytes"

    def test_torch(self, torch):
        for batch in ad.Loader(TABLE, batch_size=6, columns={"x": ["f", "i"], "y": "b"}, xp=torch):
            assert (batch["x"].dtype, batch["y"].dtype) == (torch.float64, torch.bool)
            batch["x"] += 1
        assert torch.concatenate(list(ad.Loader(numbered(9), batch_size=2, xp=torch))).flatten().tolist() == [*range(9)]


class TestSources:
    @pytest.mark.parametrize(
        "source",
        [
            numbered(10, 4),
            numbered(10).to_batches()[0],
            ad.from_arrow(numbered(10).to_batches()[0]),
            pl.DataFrame({"row": range(10)}),
            Table.from_arrow(numbered(10, 3)),
            na.Array(numbered(10).to_batches()[0]),
            lambda: numbered(10, 3).to_reader(),
            lambda: ad.from_arrow(numbered(10, 3)),
            numbered(10).to_struct_array(),
        ],
        ids=lambda source: type(source).__module__ + "." + type(source).__name__,
    )
    def test_that_can_be_read_again(self, source):
        loader = ad.Loader(source, batch_size=4)
        for _ in range(3):
            assert [rows_of(batch) for batch in loader] == batches(10, 4)
        if callable(source):
            with pytest.raises(TypeError, match="rows"):
                len(loader)
            assert operator.length_hint(loader, 99) == 99
        else:
            assert len(loader) == 3

    def test_a_query_runs_for_each_epoch(self):
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect() as connection:
            connection.execute("create table t as select range as row from range(10)")
            loader = ad.Loader(connection.sql("select * from t order by row"), batch_size=4)
            assert [rows_of(batch) for batch in loader] == batches(10, 4)
            connection.execute("insert into t values (10)")
            assert [rows_of(batch) for batch in loader] == batches(11, 4)

    @pytest.mark.parametrize(
        "stream",
        [
            lambda: numbered(10, 3).to_reader(),
            lambda: ad.from_arrow(numbered(10, 3)),
            lambda: na.ArrayStream(numbered(10, 3)),
        ],
        ids=["pyarrow", "own", "nanoarrow"],
    )
    def test_that_can_be_read_once(self, stream):
        loader = ad.Loader(stream(), batch_size=4)
        assert [rows_of(batch) for batch in loader] == batches(10, 4)
        for _ in range(2):
            with pytest.raises(ValueError, match="callable"):
                iter(loader)
        # Nor after the part of it, which another library would go on with.
        loader = ad.Loader(stream(), batch_size=4)
        next(iter(loader))
        with pytest.raises(ValueError, match="callable"):
            iter(loader)

    def test_a_callable_that_gives_one_stream_again_and_again(self):
        reader = numbered(10).to_reader()
        loader = ad.Loader(lambda: reader, batch_size=4)
        assert len(list(loader)) == 3
        with pytest.raises(ValueError, match="anew"):
            iter(loader)

    @pytest.mark.parametrize(
        "make", [iter, lambda parts: map(ad.from_arrow, parts), itertools.chain], ids=["iter", "map", "chain"]
    )
    def test_a_callable_that_gives_one_iterator_again_and_again(self, make: Any):
        iterator = make(numbered(10).to_batches(max_chunksize=2))
        loader = ad.Loader(lambda: iterator, batch_size=2)
        next(iter(loader))
        with pytest.raises(ValueError, match="anew"):
            iter(loader)
        fresh = ad.Loader(lambda: make(numbered(10).to_batches(max_chunksize=2)), batch_size=2)
        assert [len(list(fresh)) for _ in range(3)] == [5, 5, 5]

    def test_an_iterator_that_nobody_else_keeps_is_not_kept(self):
        parts = []

        def opened():
            def part(batch):
                return ad.from_arrow(batch)

            parts.append(weakref.ref(part))
            return map(part, numbered(4).to_batches())

        loader = ad.Loader(opened, batch_size=2, prefetch=0)
        assert len(list(loader)) == 2
        gc.collect()
        assert parts[0]() is None

    def test_an_iterator_that_is_kept_is_seen_by_the_collector(self):
        class Node:
            parts: Any
            loader: ad.Loader

        node = Node()
        node.parts = map(lambda batch, node=node: ad.from_arrow(batch), numbered(4).to_batches())
        node.loader = ad.Loader(lambda node=node: node.parts, batch_size=2, prefetch=0)
        next(iter(node.loader))
        gone = weakref.ref(node)
        del node
        gc.collect()
        assert gone() is None

    def test_a_dataset(self, tmp_path):
        import pyarrow.dataset as ds
        import pyarrow.parquet as pq

        for part in range(3):
            pq.write_table(numbered(12).slice(part * 4, 4), tmp_path / f"{part}.parquet")
        loader = ad.Loader(lambda: ds.dataset(tmp_path).scanner(batch_size=3).to_reader(), batch_size=5)
        for _ in range(2):
            assert [rows_of(batch) for batch in loader] == batches(12, 5)
        del loader
        settle()

    def test_the_callable_is_called_on_the_consumers_thread_at_each_epoch(self):
        import threading

        calls = []

        def opened():
            calls.append(threading.get_ident())
            return numbered(3)

        loader = ad.Loader(opened, batch_size=2)
        assert calls == []
        first = iter(loader)
        assert calls == [threading.get_ident()]
        next(first)
        iter(loader)
        assert len(calls) == 2

    def test_arrays_that_are_no_structs(self):
        chunked = pa.chunked_array([[1, 2, 3], [4, 5]])
        assert [np.from_dlpack(batch).tolist() for batch in ad.Loader(chunked, batch_size=2)] == [[1, 2], [3, 4], [5]]
        lists = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2))
        assert [batch.shape for batch in ad.Loader(lists, batch_size=2)] == [(2, 2), (1, 2)]
        with pytest.raises(ad.ConversionError, match="columns"):
            iter(ad.Loader(chunked, batch_size=2, columns=["x"]))

    def test_tensors(self):
        whole = ad.Loader(ad.to_tensor(pa.array([1.0, 2.0, 3.0])), batch_size=2)
        assert len(whole) == 2
        for _ in range(2):
            assert [np.from_dlpack(batch).tolist() for batch in whole] == [[1, 2], [3]]

    def test_nulls_of_structs_are_nulls_of_their_columns(self):
        structs = pa.array([{"x": 1.0}, None, {"x": None}, {"x": 4.0}])
        assert together(ad.Loader(structs, batch_size=2, nulls=0)).tolist() == [[1], [0], [0], [4]]

    def test_slices(self):
        table = numbered(30, 7).slice(5, 17)
        assert together(ad.Loader(table, batch_size=4)).flatten().tolist() == list(range(5, 22))

    @pytest.mark.parametrize("wrong", [3, "table", [1, 2], None, np.arange(3)], ids=repr)
    def test_what_is_none(self, wrong):
        with pytest.raises(TypeError, match="source must be Arrow data"):
            ad.Loader(wrong, batch_size=1)
        with pytest.raises(TypeError, match="callable must return Arrow data"):
            iter(ad.Loader(lambda: wrong, batch_size=1))

    def test_what_the_callable_raises(self):
        def opened():
            raise LookupError("no such file")

        loader = ad.Loader(opened, batch_size=1)
        for _ in range(2):
            with pytest.raises(LookupError, match="no such file"):
                iter(loader)
        assert loader.epoch == 0


class TestMemory:
    @pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
    @pytest.mark.parametrize("columns", [None, {"x": ["row"], "y": "row"}])
    def test_few_blocks_are_used_again_and_again(self, prefetch: int, columns):
        blocks: dict[str, set[int]] = {}
        for batch in ad.Loader(numbered(4000, 33), batch_size=20, prefetch=prefetch, columns=columns):
            for name, tensor in (batch if columns else {"": batch}).items():
                blocks.setdefault(name, set()).add(address(tensor))
        assert all(len(addresses) <= prefetch + 2 for addresses in blocks.values()), blocks

    @pytest.mark.parametrize("xp", [None, np], ids=["tensor", "numpy"])
    def test_what_is_held_is_never_written(self, xp):
        held = []
        for index, batch in enumerate(ad.Loader(numbered(2000, 33), batch_size=10, xp=xp)):
            if index % 3 == 0:
                # A view of a part keeps it all.
                held.append((index, np.from_dlpack(batch)[4:5] if index % 2 else batch))
            if index % 10 == 9:
                del held[::2]
        for index, batch in held:
            expected = list(range(index * 10, index * 10 + 10))
            assert np.from_dlpack(batch).flatten().tolist() == (expected[4:5] if index % 2 else expected)

    def test_what_is_held_outlives_the_loader(self):
        loader = ad.Loader(numbered(100, 33), batch_size=10)
        iterator = iter(loader)
        held = [next(iterator) for _ in range(3)]
        del loader, iterator
        gc.collect()
        assert [rows_of(batch) for batch in held] == batches(100, 10)[:3]

    def test_the_source_is_let_go_array_by_array(self):
        made = [producers.Array() for _ in range(6)]
        producer = producers.Stream(made)
        iterator = iter(ad.Loader(producers.stream(producer), batch_size=3, prefetch=0))
        for done in range(1, 7):
            assert np.from_dlpack(next(iterator)).tolist() == [1, 2, 3]
            assert [array.releases for array in made] == [1] * done + [0] * (6 - done)
            assert producer.asked_next == done

    def test_no_more_is_read_ahead_than_the_prefetched_batches_need(self):
        made = [producers.Array() for _ in range(20)]
        producer = producers.Stream(made)
        iterator = iter(ad.Loader(producers.stream(producer), batch_size=3, prefetch=2))
        next(iterator)
        del iterator
        assert producer.asked_next <= 3
        for array in made[producer.asked_next :]:
            producers.release_struct(array.struct)

    def test_a_batch_of_all_rows_and_more(self):
        for batch_size in (10, 11, 10**12):
            assert [rows_of(batch) for batch in ad.Loader(numbered(10, 3), batch_size=batch_size)] == [list(range(10))]
        assert list(ad.Loader(numbered(10, 3), batch_size=11, drop_last=True)) == []


class TestEdges:
    @pytest.mark.parametrize("shuffle_buffer", [0, 5])
    def test_no_rows(self, shuffle_buffer: int):
        for table in (numbered(0), pa.table({"row": pa.array([], pa.int64())})):
            loader = ad.Loader(table, batch_size=4, shuffle_buffer=shuffle_buffer)
            assert (list(loader), len(loader)) == ([], 0)

    def test_no_columns(self):
        empty = pa.table({"x": [1, 2, 3]}).select([])
        with pytest.raises(ad.ConversionError, match="dtype"):
            iter(ad.Loader(empty, batch_size=2))
        loader = ad.Loader(empty, batch_size=2, dtype="float32", shuffle_buffer=2)
        assert [batch.shape for batch in loader] == [(2, 0), (1, 0)]
        assert [batch.shape for batch in ad.Loader(numbered(3), batch_size=2, columns=[], dtype="int8")] == [
            (2, 0),
            (1, 0),
        ]

    def test_columns_that_do_not_go_together(self):
        twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
        for columns in (None, ["x"], {"x": "x"}):
            with pytest.raises(ad.ConversionError) as caught:
                iter(ad.Loader(twice, batch_size=1, columns=columns))
            assert caught.value.column == "x"
        with pytest.raises(ad.ConversionError, match="none"):
            iter(ad.Loader(numbered(3), batch_size=1, columns=["none"]))
        with pytest.raises(ad.ConversionError, match="group"):
            iter(ad.Loader(numbered(3), batch_size=1, columns={}))
        with pytest.raises(ad.ConversionError, match="none"):
            iter(ad.Loader(numbered(3), batch_size=1, nulls={"none": 0}))
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            iter(ad.Loader(TABLE, batch_size=1))
        assert caught.value.remedy

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_after_a_refusal_a_source_that_can_be_read_again_is_read(self, prefetch: int):
        loader = ad.Loader(pa.table({"x": [1, None]}), batch_size=1, prefetch=prefetch)
        for _ in range(2):
            iterator = iter(loader)
            assert np.from_dlpack(next(iterator)).tolist() == [[1]]
            with pytest.raises(ad.NullError):
                next(iterator)

    @pytest.mark.parametrize(
        ("options", "error", "named"),
        [
            ({"batch_size": 0}, ValueError, "batch_size"),
            ({"batch_size": -1}, ValueError, "batch_size"),
            ({"batch_size": 2**70}, ValueError, "batch_size"),
            ({"batch_size": 2.0}, TypeError, "batch_size"),
            ({"batch_size": None}, TypeError, "batch_size"),
            ({"prefetch": -1}, ValueError, "prefetch"),
            ({"shuffle_buffer": -1}, ValueError, "shuffle_buffer"),
            ({"shuffle_buffer": "all"}, TypeError, "shuffle_buffer"),
            ({"seed": -1}, ValueError, "seed"),
            ({"seed": 2**64}, ValueError, "seed"),
            ({"seed": 0.5}, TypeError, "seed"),
            ({"threads": 0}, ValueError, "threads"),
            ({"rank": 1}, ValueError, "rank"),
            ({"rank": -1, "world_size": 2}, ValueError, "rank"),
            ({"world_size": 0}, ValueError, "world_size"),
            ({"columns": "x"}, TypeError, "columns"),
            ({"columns": [1]}, TypeError, "columns"),
            ({"columns": {"x": 3}}, TypeError, "columns"),
            ({"columns": {3: "x"}}, TypeError, "str"),
            ({"dtype": "float7"}, ValueError, "dtype"),
            ({"nulls": "zero"}, ValueError, "nulls"),
            ({"device": "rocm"}, ad.ConversionError, "rocm"),
            ({"no_such_option": 1}, TypeError, "no_such_option"),
        ],
        ids=str,
    )
    def test_wrong_arguments(self, options: dict, error: type[Exception], named: str):
        with pytest.raises(error, match=named):
            ad.Loader(numbered(3), **{"batch_size": 1, **options})

    def test_arguments_that_are_right(self):
        loader = ad.Loader(numbered(3), batch_size=np.int64(2), device="cpu", threads=1, prefetch=np.uint8(1))
        assert loader.batch_size == 2
        assert repr(loader) == "Loader(Table, batch_size=2)"
        assert repr(ad.Loader(numbered(3), batch_size=1, rank=1, world_size=2)).endswith("rank=1, world_size=2)")
        with pytest.raises(TypeError):
            ad.Loader(numbered(3))  # type: ignore[call-arg]

    def test_epochs_that_are_none(self):
        for wrong, error in [(-1, ValueError), (2**64, ValueError), ("one", TypeError)]:
            with pytest.raises(error, match="epoch"):
                ad.Loader(numbered(3), batch_size=1).set_epoch(wrong)

    @pytest.mark.parametrize("is_ended", [False, True])
    def test_an_epoch_after_the_last_one(self, is_ended: bool):
        loader = ad.Loader(numbered(6), batch_size=3, shuffle_buffer=6, seed=1)
        loader.set_epoch(2**64 - 2)
        assert len(list(loader)) == 2
        batches = iter(loader)
        assert loader.epoch == 2**64 - 1
        next(batches)
        if is_ended:
            assert (len(list(batches)), loader.left_out) == (1, 0)
        for _ in range(2):
            with pytest.raises(ad.ConversionError, match="epoch 18446744073709551615 is the last one"):
                iter(loader)
        again = ad.Loader(numbered(6), batch_size=3, shuffle_buffer=6)
        again.load_state_dict(loader.state_dict())
        assert len(list(again)) == (not is_ended)
        loader.set_epoch(0)
        assert len(list(loader)) == 2

    def test_xp_that_is_none(self):
        with pytest.raises(TypeError, match="namespace"):
            next(iter(ad.Loader(numbered(3), batch_size=1, xp="os")))


def test_tqdm(capsys):
    seen = 0
    for batch in tqdm(ad.Loader(numbered(50), batch_size=8), desc="known"):
        seen += len(batch)
    for batch in tqdm(ad.Loader(lambda: numbered(50), batch_size=8), desc="unknown"):
        seen += len(batch)
    assert seen == 100
    shown = capsys.readouterr().err
    assert "7/7" in shown
    assert "unknown: 7it" in shown


def test_no_thread_is_left():
    assert loader_threads() == 0


def settle() -> None:
    """Waits for pyarrow's threads, which let go of what they scanned a moment later."""
    gc.collect()
    before = pa.total_allocated_bytes()
    for _ in range(100):
        time.sleep(0.01)
        if pa.total_allocated_bytes() == before:
            return
        before = pa.total_allocated_bytes()
