"""Pickled and copied loaders: the same batches from where the loader stood, and an error that names what cannot."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

TABLE = pa.table(
    {
        "a": pa.array([float(row) for row in range(40)]),
        "b": pa.array(range(40), pa.int16()),
        "n": pa.array([row if row % 3 else None for row in range(40)], pa.int32()),
        "d": pa.array([str(row % 4) for row in range(40)]).dictionary_encode(),
    }
)
NUMBERS = TABLE.select(["a", "b"])


def opened() -> pa.RecordBatchReader:
    return NUMBERS.to_reader(7)


def first(rows: int) -> pa.Table:
    return NUMBERS[:rows]


class Opens:
    def __call__(self) -> pa.Table:
        return NUMBERS


class Parts:
    """An iterable that begins anew, with something in it that may not pickle."""

    def __init__(self, part: Any = None) -> None:
        self.part = part

    def __iter__(self) -> Any:
        return iter(NUMBERS.to_batches(7))


def again(x: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(x, protocol))


def content(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: content(part) for name, part in batch.items()}
    array = np.from_dlpack(batch)
    return array.dtype.str, array.tolist()


def batches(loader: Any) -> list[Any]:
    return [content(batch) for batch in loader]


def echo(loader: Any) -> Any:
    return batches(loader), loader.state_dict(), pickle.dumps(loader)


SOURCES = {
    "table": NUMBERS,
    "batch": NUMBERS.to_batches()[0],
    "record batch": ad.from_arrow(NUMBERS.to_batches()[0]),
    "polars": pl.from_arrow(NUMBERS),
    "lazy": pl.from_arrow(NUMBERS).lazy(),
    "pandas": NUMBERS.to_pandas(),
    "list": NUMBERS.to_batches(7),
    "iterable": Parts(),
    "function": opened,
    "partial": functools.partial(first, 40),
    "object": Opens(),
}


class TestSources:
    @pytest.mark.parametrize("name", SOURCES)
    def test_that_pickle(self, name):
        expected = batches(ad.Loader(NUMBERS, batch_size=6))
        loader = ad.Loader(SOURCES[name], batch_size=6)
        assert batches(again(loader)) == batches(copy.deepcopy(loader)) == batches(copy.copy(loader)) == expected
        assert batches(loader) == expected

    def test_iterators_that_pickle(self):
        loader = ad.Loader(iter(NUMBERS.to_batches(7)), batch_size=6)
        found = again(loader)
        assert batches(found) == batches(loader) == batches(ad.Loader(NUMBERS, batch_size=6))

    def test_what_was_read_once_is_refused(self):
        loader = ad.Loader(iter(NUMBERS.to_batches(7)), batch_size=6)
        iterator = iter(loader)
        next(iterator)
        for call in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(ValueError, match="read once, and was; pass a callable"):
                call(loader)
        iterator.close()

    @pytest.mark.parametrize(
        ("source", "name"),
        [
            (lambda path: (batch for batch in NUMBERS.to_batches()), "generator"),
            (lambda path: NUMBERS.to_reader(), "RecordBatchReader"),
            (lambda path: ad.from_arrow(NUMBERS.to_reader()), "ArrayStream"),
            (lambda path: pq.ParquetFile(path), "ParquetFile"),
            (lambda path: duckdb.connect().sql("SELECT 1 AS a"), "DuckDBPyRelation"),
            (lambda path: [NUMBERS, (batch for batch in NUMBERS.to_batches())], "list"),
            (lambda path: Parts(iter(batch for batch in NUMBERS.to_batches())), "Parts"),
        ],
        ids=["generator", "reader", "stream", "file", "relation", "list", "attribute"],
    )
    def test_that_do_not_pickle_are_named(self, source, name, tmp_path: Path):
        path = tmp_path / "numbers.parquet"
        pq.write_table(NUMBERS, path)
        loader = ad.Loader(source(path), batch_size=6)
        for call in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match=rf"a Loader of {name} cannot be pickled: .*; pass a callable"):
                call(loader)
        # It was asked, and not read.
        assert len(batches(loader)) > 0

    def test_functions_without_a_name_are_left_to_the_pickler(self):
        loader = ad.Loader(lambda: NUMBERS, batch_size=6)
        with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
            pickle.dumps(loader)
        rebuild, arguments = loader.__reduce_ex__(5)
        assert batches(rebuild(*arguments)) == batches(loader)

    def test_what_the_source_raises_besides_errors_comes_through(self):
        class Interrupted(Parts):
            def __reduce_ex__(self, protocol: Any) -> Any:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pickle.dumps(ad.Loader(Interrupted(), batch_size=6))


OPTIONS: dict[str, dict[str, Any]] = {
    "columns": {"columns": ["b", "a"]},
    "groups": {"columns": {"x": ["b", "a"], "y": "n"}, "nulls": {"n": -1}},
    "one dtype": {"columns": ["a", "b"], "dtype": "float32"},
    "dtypes": {"columns": {"x": "a", "y": "b"}, "dtype": {"a": pl.Float32, "b": np.int64}},
    "dtype none": {"columns": {"x": "a", "y": "b"}, "dtype": {"a": None, "b": "float16"}},
    "bfloat16": {"columns": {"x": "b"}, "dtype": "bfloat16"},
    "nan": {"columns": {"x": "n"}, "dtype": "float64", "nulls": "nan"},
    "fill": {"columns": {"x": "n"}, "nulls": np.int8(7)},
    "fraction": {"columns": {"x": "n"}, "dtype": "float32", "nulls": Fraction(1, 3)},
    "values": {"columns": {"x": "d"}, "dictionary": {"d": "codes"}},
    "sizes": {"columns": ["a"], "drop_last": True, "prefetch": 0, "threads": 2},
    "rank": {"columns": ["a"], "rank": 1, "world_size": 3},
    "shuffled": {"columns": ["a"], "shuffle_buffer": 9, "shuffle_bytes": 4096, "seed": 4},
    "shuffled at random": {"columns": ["a"], "shuffle_buffer": 9},
    "numpy": {"columns": ["a"], "xp": np},
    "numpy by name": {"columns": ["a"], "xp": "numpy", "device": "cpu"},
}


class TestOptions:
    @pytest.mark.parametrize("name", OPTIONS)
    def test_are_kept(self, name):
        loader = ad.Loader(TABLE, batch_size=6, **OPTIONS[name])
        found = [again(loader), again(again(loader, 2)), copy.copy(loader), copy.deepcopy(loader)]

        def form(loader: Any) -> Any:
            # bfloat16 is no dtype of NumPy.
            return [(type(batch), bytes(pickle.dumps(batch))) for batch in loader]

        expected = form(loader)
        for other in found:
            assert form(other) == expected
            assert repr(other) == repr(loader)

    def test_namespaces_that_are_no_modules(self):
        loader = ad.Loader(NUMBERS, batch_size=6, xp=Namespace())
        assert [batch.shape for batch in again(loader)] == [batch.shape for batch in loader]

    def test_decimals(self):
        table = pa.table({"d": pa.array([1, 2, 3]).cast(pa.decimal128(38, 2))})
        loader = ad.Loader(table, batch_size=2, columns={"d": "d"}, decimal="unscaled", dtype="int64")
        assert batches(again(loader)) == batches(loader) == batches(copy.copy(loader))
        assert batches(loader)[0]["d"][1] == [100, 200]

    def test_a_dict_that_changes_later_is_not_followed(self):
        fills = {"n": 5}
        loader = ad.Loader(TABLE, batch_size=6, columns={"x": "n"}, nulls=fills)
        fills["n"] = 6
        assert batches(again(loader)) == batches(loader)

    def test_of_pandas_leave_its_index_out(self):
        frame = pd.DataFrame({"x": [1.0, 2.0]}, index=[5, 6])
        assert batches(again(ad.Loader(frame, batch_size=2))) == [("<f8", [[1.0], [2.0]])]


class Namespace:
    def from_dlpack(self, x: Any) -> Any:
        return np.from_dlpack(x)


class TestPosition:
    @pytest.mark.parametrize("options", [{}, {"shuffle_buffer": 9}], ids=["in order", "shuffled"])
    @pytest.mark.parametrize("how", [again, copy.copy, copy.deepcopy])
    def test_goes_on_where_the_loader_stood(self, how, options):
        loader = ad.Loader(NUMBERS, batch_size=6, **options)
        iterator = iter(loader)
        taken = [content(next(iterator)) for _ in range(3)]
        found = how(loader)
        assert found.state_dict() == loader.state_dict()
        rest = batches(iterator)
        assert batches(found) == rest
        assert len(taken) + len(rest) == 7
        # Then both are at the next epoch, each by itself.
        assert found.epoch == loader.epoch == 1
        assert batches(found) == batches(loader)
        assert batches(how(loader)) == batches(found)

    def test_one_that_did_not_begin_starts_at_its_epoch(self):
        loader = ad.Loader(NUMBERS, batch_size=6, shuffle_buffer=40, seed=3)
        loader.set_epoch(5)
        found = again(loader)
        assert found.epoch == 5
        assert batches(found) == batches(loader)

    def test_positions_are_apart(self):
        loader = ad.Loader(NUMBERS, batch_size=6)
        found = copy.copy(loader)
        batches(found)
        assert (found.epoch, loader.epoch) == (1, 0)

    def test_between_processes(self):
        loader = ad.Loader(opened, batch_size=6, shuffle_buffer=9, xp=np)
        iterator = iter(loader)
        next(iterator)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found, state, data = pool.map(echo, [loader])[0]
        assert found == batches(iterator)
        assert state == loader.state_dict()
        assert batches(pickle.loads(data)) == batches(loader)


class TestHostile:
    @pytest.mark.parametrize(
        ("index", "change", "error"),
        [
            (0, lambda _: 5, TypeError),
            (0, lambda _: None, TypeError),
            (1, lambda _: None, TypeError),
            (1, lambda options: options | {"batch_size": 0}, ValueError),
            (1, lambda options: options | {"batch_size": True}, TypeError),
            (1, lambda options: options | {"batch_size": 2**70}, (ValueError, OverflowError)),
            (1, lambda options: {name: options[name] for name in options if name != "batch_size"}, TypeError),
            (1, lambda options: options | {"no_such_option": 1}, TypeError),
            (1, lambda options: options | {5: 1}, TypeError),
            (1, lambda options: options | {"columns": ["z"]}, ValueError),
            (1, lambda options: options | {"dtype": "float33"}, (TypeError, ValueError)),
            (1, lambda options: options | {"nulls": "keep"}, ValueError),
            (1, lambda options: options | {"rank": 7}, ValueError),
            (1, lambda options: options | {"device": "nowhere"}, (TypeError, ValueError)),
            (1, lambda options: options | {"xp": "no_such_module"}, ValueError),
            (2, lambda _: None, TypeError),
            (2, lambda _: {}, ValueError),
            (2, lambda state: state | {"version": 9}, ValueError),
            (2, lambda state: state | {"taken": [-1]}, ValueError),
            (2, lambda state: state | {"rows": 41}, ValueError),
            (2, lambda state: state | {"seed": 5}, ValueError),
            (2, lambda state: state | {"batch_size": 0}, ValueError),
        ],
    )
    def test_values_are_checked_as_those_of_the_constructor(self, index, change, error):
        rebuild, arguments = ad.Loader(NUMBERS, batch_size=6).__reduce_ex__(5)
        assert len(batches(rebuild(*arguments))) == 7
        changed = [change(value) if position == index else value for position, value in enumerate(arguments)]
        with pytest.raises(error):
            rebuild(*changed)
