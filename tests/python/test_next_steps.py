"""Errors that lead on: what each says to write is written here, and works."""

from __future__ import annotations

import datetime
import decimal
import itertools
import re
import threading
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

STRUCTS = pa.table({"s": [[{"a": 1}, {"a": 2}], []]})
NUMBERS = pa.table({"i": [1, 2], "b": pa.array([1, None]), "f": [1.5, None]})
FRAME = pd.DataFrame([[1, 2], [3, 4]])


def batch_of(table: pa.Table, **options: Any) -> dict[str, Any]:
    (batch,) = ad.Loader(table, batch_size=len(table), **options)
    return batch


def lists_of(field: str) -> pa.Table:
    lists = STRUCTS["s"].combine_chunks()
    return pa.table({"a": pa.ListArray.from_arrays(lists.offsets, lists.values.field(field))})


class TestLists:
    @pytest.mark.parametrize("convert", [ad.to_tensors, batch_of])
    @pytest.mark.parametrize("columns", [None, {"s": ad.ragged("s")}, {"s": ad.padded("s")}, {"s": "s"}])
    def test_lists_of_structs(self, convert, columns: Any):
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            convert(STRUCTS, columns=columns)
        assert 'columns={"s": ad.arrow("s")}' in caught.value.remedy
        assert "pyarrow.ListArray.from_arrays(lists.offsets, lists.values.field(name))" in caught.value.remedy
        assert pa.table(pa.record_batch(convert(STRUCTS, columns={"s": ad.arrow("s")})["s"])) == STRUCTS
        assert convert(lists_of("a"), columns={"a": ad.ragged("a")})["a"].values.shape == (2,)

    def test_lists_of_lists_and_of_strings(self):
        for data in (pa.array([[[1], [2]], [[3], [4]]]), pa.array([["a"], ["b"]])):
            table = pa.table({"l": data})
            with pytest.raises(
                ad.UnsupportedTypeError, match=r"; pass it to to_ragged: length= makes rows of the outer"
            ):
                ad.to_tensor(data)
            assert len(ad.to_ragged(data)) == 2
            with pytest.raises(ad.UnsupportedTypeError, match=r'columns=\{"l": ad.ragged\("l"\)\}: length= makes'):
                ad.to_tensors(table)
            with pytest.raises(ad.UnsupportedTypeError, match=r"; pass it to to_ragged: length= makes rows"):
                ad.to_tensor(data, length=1)

    @pytest.mark.parametrize("item", [pa.string(), pa.list_(pa.string()), pa.list_(pa.string(), 1)])
    def test_fixed_size_lists_of_rows(self, item: pa.DataType):
        values = ["a"] if item == pa.string() else [["a"]]
        lists = pa.array([values, values], pa.list_(item, 1))
        with pytest.raises(ad.UnsupportedTypeError, match="cast the fixed-size lists to lists first"):
            ad.to_ragged(lists)
        with pytest.raises(ad.UnsupportedTypeError, match=r"FixedSizeList\(.*cast the fixed-size lists to lists first"):
            ad.to_tensors(pa.table({"l": lists}), columns={"l": ad.padded("l")})
        as_lists = pa.array(lists.to_pylist(), pa.list_(pa.string() if item == pa.string() else pa.list_(pa.string())))
        assert pa.array(ad.to_ragged(as_lists)).to_pylist() == lists.to_pylist()

    def test_fixed_size_lists_of_structs(self):
        lists = pa.array([[{"a": 1}]], pa.list_(pa.struct([("a", pa.int64())]), 1))
        line = "pyarrow.FixedSizeListArray.from_arrays(lists.flatten().field(name), size)"
        with pytest.raises(ad.UnsupportedTypeError, match=f"make a column of lists for each field.*{re.escape(line)}"):
            ad.to_ragged(lists)
        made = eval(line, {"pyarrow": pa, "lists": lists, "name": "a", "size": 1})
        assert np.from_dlpack(ad.to_tensor(made)).tolist() == [[1]]
        table = pa.table({"l": lists})
        for group in (ad.ragged, ad.padded):
            with pytest.raises(ad.UnsupportedTypeError, match=r'columns=\{"l": ad.arrow\("l"\)\}.*\.FixedSizeList'):
                ad.to_tensors(table, columns={"l": group("l")})
        assert pa.record_batch(ad.to_tensors(table, columns={"l": ad.arrow("l")})["l"]).num_rows == 1

    def test_codes_of_different_dictionaries_have_no_categories(self):
        def encoded() -> pa.Table:
            # pyarrow unifies dictionaries of lists in place.
            parts = [pa.ListArray.from_arrays([0, 2], pa.array(words).dictionary_encode()) for words in ("ab", "cb")]
            return pa.table({"l": pa.chunked_array(parts)})

        for convert in (
            lambda table: ad.to_ragged(table["l"]).values,
            lambda table: ad.to_ragged(table["l"], pad=(0, None))[0],
            lambda table: ad.to_tensors(table, columns={"l": ad.ragged("l")})["l"].values,
            lambda table: ad.to_tensors(table, columns={"l": ad.padded("l")})["l"],
        ):
            with pytest.raises(ad.UnsupportedTypeError, match=r"Table\.unify_dictionaries\(\)") as caught:
                convert(encoded())
            assert "categories" not in caught.value.remedy
            assert np.from_dlpack(convert(encoded().unify_dictionaries())).ravel().tolist() == [0, 1, 2, 1]
        assert "unify_dictionaries()" in str(ad.explain(encoded()["l"]))

    def test_a_group_that_pads_has_no_pad_to_leave_out(self):
        table = pa.table({"l": [[1], [2, 3]]})
        columns = {"l": ad.padded("l")}
        with pytest.raises(ad.CopyError, match=r"pass copy=None to allow it, or use ad\.ragged$"):
            ad.to_tensors(table, columns=columns, copy=False)
        for data in (table, table.schema):
            assert ad.explain(data, columns=columns, copy=False)[0].error.endswith("or use ad.ragged")
        rows = ad.to_tensors(table, columns={"l": ad.ragged("l")}, copy=False)["l"]
        assert np.from_dlpack(rows.values).tolist() == [1, 2, 3]
        with pytest.raises(ad.CopyError, match=r"or leave pad out$"):
            ad.to_ragged(table["l"], pad=(0, None), copy=False)

    def test_a_field_of_lists_of_structs(self):
        with pytest.raises(ad.ConversionError, match="which has no fields by name; make a column of lists") as caught:
            ad.to_tensors(STRUCTS, columns={"s": ad.ragged("s.a")})
        assert 'name "s" itself' not in str(caught.value)

    @pytest.mark.parametrize("table", [pl.DataFrame({"n": [1], "l": [[1, 2]]}), pa.table({"n": [1], "l": [[1, 2]]})])
    def test_rows_of_a_table(self, table):
        line = 'to_tensors(data, columns={"l": ad.ragged("l")})["l"]'
        with pytest.raises(ad.UnsupportedTypeError, match=re.escape(f"pick one of its columns, such as {line}")):
            ad.to_ragged(table)
        assert np.from_dlpack(eval(f"ad.{line}", {"ad": ad, "data": table}).values).tolist() == [1, 2]

    @pytest.mark.parametrize("convert", [ad.to_tensors, batch_of])
    @pytest.mark.parametrize("group", [ad.ragged, ad.padded])
    def test_rows_of_a_field(self, convert, group):
        table = pa.table({'a"': [{"n": 1, "t": {"l": [1, 2]}}], "n": [1]})
        line = 'columns={"a\\".t.l": ad.ragged("a\\".t.l")}'
        with pytest.raises(ad.UnsupportedTypeError, match=re.escape(f"fields by its path, such as {line}")):
            convert(table, columns={"g": group('a"')})
        (rows,) = eval(f"convert(table, {line})", {"convert": convert, "table": table, "ad": ad}).values()
        assert np.from_dlpack(rows.values).tolist() == [1, 2]
        with pytest.raises(ad.UnsupportedTypeError, match=re.escape('columns={"n": "n"}')):
            convert(table, columns={"n": group("n")})
        assert 'columns={"n": "n"}' in ad.explain(table, columns={"n": group("n")})[0].error
        assert line in ad.explain(table, columns={"g": group('a"')})[0].error
        # A table without rows of different lengths has a matrix.
        with pytest.raises(ad.UnsupportedTypeError, match=r"to_tensor$"):
            ad.to_ragged(table.select(["n"]))

    def test_a_length_for_all_beside_lists_of_a_fixed_one(self):
        table = pa.table({"one": pa.array([[1]], pa.list_(pa.int8(), 1)), "two": [[1, 2]]})
        for length, remedy in ((2, "a dict of the other columns as length="), ({"one": 2}, "out of length=")):
            with pytest.raises(ad.ConversionError, match="its lists have 1 element, and not the 2") as caught:
                ad.to_tensors(table, length=length)
            assert remedy in caught.value.remedy
        assert ad.to_tensors(table, length={"two": 2})["two"].shape == (1, 2)

    @pytest.mark.parametrize("made", [ad.group, ad.padded])
    def test_kept_nulls_of_a_batch(self, made):
        table = pa.table({"group": [1, None], "padded": [[1], None]})
        name = made.__name__
        with pytest.raises(ad.ConversionError, match=re.escape(f'{name}(..., validity="name")')):
            ad.Loader(table, batch_size=2, columns={"x": made(name, nulls="keep")})
        batch = batch_of(table, columns={"x": made(name, nulls="keep", validity="name")})
        assert np.from_dlpack(batch["name"]).ravel().tolist() == [True, False]


@pytest.mark.parametrize(
    ("of_state", "of_loader", "named", "given"),
    [
        (3, None, "the state has 3 rows of shard 0, and the loader an unknown number of rows", "its row count"),
        (None, 1, "the state has an unknown number of rows of shard 0, and the loader 1 row;", "no row count"),
    ],
)
def test_a_state_of_shards_that_told_their_rows(of_state: int | None, of_loader: int | None, named: str, given: str):
    def loader(rows: int | None) -> ad.Loader:
        return ad.Loader(sources=[(lambda: pa.table({"x": [1, 2, 3]}), rows)], batch_size=1)

    taken = loader(of_state)
    next(iter(taken))
    with pytest.raises(ad.ConversionError, match=named) as caught:
        loader(of_loader).load_state_dict(taken.state_dict())
    assert caught.value.remedy == f"give the shard {given}, as when the state was taken"
    other = loader(of_state)
    other.load_state_dict(taken.state_dict())
    assert [np.from_dlpack(batch).item() for batch in other] == [2, 3]


@pytest.mark.parametrize("prefetch", [0, 1])
def test_threads_that_share_an_iterator_prefetch(prefetch: int):
    asked, goes_on = threading.Event(), threading.Event()

    def source():
        yield pa.table({"x": [1]})
        asked.set()
        assert goes_on.wait(30)
        yield pa.table({"x": [2]})

    batches = iter(ad.Loader(source, batch_size=1, prefetch=prefetch))
    next(batches)
    found: list[Any] = []
    ask = threading.Thread(target=lambda: found.extend(itertools.islice(batches, 1)))
    ask.start()
    assert asked.wait(30)
    if prefetch == 0:
        with pytest.raises(ad.ConversionError, match=r"being made already; .*prefetch batches to ask in several"):
            next(batches)
    else:
        threading.Timer(0.1, goes_on.set).start()
        found += list(batches)
    goes_on.set()
    ask.join()
    assert [np.from_dlpack(batch).tolist() for batch in found] == [[[2]]]


class TestCategories:
    @pytest.mark.parametrize(
        "call",
        [
            lambda data: ad.categories(data, "c"),
            lambda data: ad.statistics(data, {"c": "count"}),
            lambda data: ad.Loader(data, batch_size=1, columns={"c": "c"}),
            lambda data: ad.to_tensors(data, columns={"c": ad.arrow("c")}),
        ],
    )
    def test_an_array_is_no_table(self, call):
        series = pd.Series(["a"], name="c")
        with pytest.raises(ad.ConversionError, match="has no columns") as caught:
            call(series)
        assert 'series.to_frame() or pyarrow.table({"name": array})' in caught.value.remedy
        for table in (series.to_frame(), pa.table({"c": pa.array(["a"])})):
            assert pa.array(ad.categories(table, "c")).to_pylist() == ["a"]
            assert ad.statistics(table, {"c": "count"}) == {"c": 1}

    @pytest.mark.parametrize("values", [[True, False], [1.0, 2.0], [decimal.Decimal(1), decimal.Decimal(2)]])
    def test_a_column_that_has_no_categories(self, values):
        table = pa.table({"c": values})
        with pytest.raises(ad.UnsupportedTypeError, match="cast the column to integers or strings first"):
            ad.to_tensors(table, categories={"c": [1, 2]})
        integers = table["c"].cast(pa.int64())
        codes = ad.to_tensors(pa.table({"c": integers}), categories={"c": integers.to_pylist()}, xp=np)["c"]
        assert codes.tolist() == [0, 1]
        assert len(ad.to_tensors(table, dtype="float64" if isinstance(values[0], decimal.Decimal) else None)) == 1


class TestOptions:
    def test_nulls_of_one_column(self):
        with pytest.raises(ad.NullError, match='pass dtype="float64", or a value') as caught:
            ad.to_tensors(NUMBERS, columns=["b", "f"], nulls="nan")
        assert 'dtype={"b": "float64"} with nulls={"b": "nan"}' in caught.value.remedy
        made = ad.to_tensors(NUMBERS, dtype={"b": "float64"}, nulls={"b": "nan", "f": "nan"}, xp=np)
        assert [array.dtype.name for array in made.values()] == ["int64", "float64", "float64"]

    def test_a_statistic_is_no_policy(self):
        with pytest.raises(ValueError, match=r"pass nulls=arrow_dlpack\.statistics") as caught:
            ad.to_tensor(NUMBERS, nulls="mean", columns=["f"])
        (line,) = re.findall(r"nulls=(arrow_dlpack.*\))", str(caught.value))
        fills = eval(line.replace("column", "f"), {"arrow_dlpack": ad, "data": NUMBERS})
        assert ad.to_tensor(NUMBERS, nulls=fills, columns=["f"], xp=np).tolist() == [[1.5], [1.5]]
        with pytest.raises(ValueError, match=r'not "other"$'):
            ad.to_tensor(NUMBERS, nulls="other")

    @pytest.mark.parametrize("convert", [ad.to_tensors, batch_of])
    @pytest.mark.parametrize(("part", "reason"), [("m", "always of bools"), ("n", "always int64")])
    @pytest.mark.parametrize("option", [{"dtype": "int32"}, {"nulls": 0}])
    def test_parts_of_groups_have_no_options(self, convert, part, reason, option):
        table, columns = pa.table({"l": [[1], [2, 3]]}), {"x": ad.padded("l", validity="m", lengths="n")}
        options: dict[str, Any] = {name: {part: value} for name, value in option.items()}
        with pytest.raises(ad.ConversionError, match=reason) as caught:
            convert(table, columns=columns, **options)
        assert caught.value.column == part
        assert set(convert(table, columns=columns)) == {"x", "m", "n"}

    @pytest.mark.parametrize("keyword", ["nulls", "dtype", "decimal", "dictionary", "unit", "length", "categories"])
    def test_keys_are_names(self, keyword):
        with pytest.raises(TypeError, match=f'^{keyword} has the key 0, and names of columns are str; pass "0"$'):
            ad.to_tensor(FRAME, **{keyword: {0: None if keyword != "nulls" else 1}})
        assert ad.to_tensor(FRAME, dtype={"0": "float32"}, columns=["0"], xp=np).dtype.name == "float32"
        with pytest.raises(TypeError, match=r"^dtype has the key 1\.5, and names of columns are str$"):
            ad.to_tensor(FRAME, dtype={1.5: "float32"})

    @pytest.mark.parametrize("convert", [ad.to_tensor, ad.to_tensors, ad.explain])
    def test_a_length_of_an_array_without_lists(self, convert):
        for array in (pa.array([1]), pa.chunked_array([[1]]), pa.array(["a"])):
            with pytest.raises(ad.ConversionError, match=r"the length is one of lists, .*; leave length= out$"):
                convert(array, length=3)
        # Of a batch it is for the columns that have lists.
        table = pa.table({"n": [1], "l": [[1, 2, 3]]})
        assert {name: made.shape for name, made in ad.to_tensors(table, length=3).items()} == {"n": (1,), "l": (1, 3)}

    @pytest.mark.parametrize(("columns", "names"), [([0], '["0"]'), ([1, "0"], '["1", "0"]'), (0, '"0"')])
    def test_names_of_integer_columns(self, columns, names):
        for group in (columns, {"x": columns}):
            with pytest.raises(TypeError, match=re.escape(f"not {columns!r}; names are str: pass {names}")):
                ad.to_tensors(FRAME, columns=group)
        named = eval(names)
        assert len(ad.to_tensors(FRAME, columns={"x": named})["x"].shape) == (1 if isinstance(named, str) else 2)

    def test_a_validity_is_named(self):
        with pytest.raises(TypeError, match=r"^validity must be .* and is a list; pass pyarrow\.array\(values\)$"):
            ad.to_arrow(np.arange(2), validity=[True, False])
        column = ad.to_arrow(np.arange(2), validity=pa.array([True, False]))
        assert pa.array(column).to_pylist() == [0, None]

    def test_a_schema_of_polars(self):
        schema = pl.Schema({"a": pl.Boolean, "b": pl.Int8})
        batch = pa.record_batch(ad.to_arrow(np.array([[1.0, 0.0]]), names=["a", "b"], type=schema))
        assert batch.schema.types == [pa.bool_(), pa.int8()]
        assert batch.to_pylist() == [{"a": True, "b": 0}]

    def test_intervals(self):
        table = pa.table({"i": pa.array([pa.MonthDayNano([0, 1, 0])]), "n": [1]})
        with pytest.raises(ad.UnsupportedTypeError, match=r"leave it out, or .* such as epoch\(column\)"):
            ad.to_tensors(table)
        assert list(ad.to_tensors(table, columns=["n"])) == ["n"]
        duckdb = pytest.importorskip("duckdb")
        seconds = duckdb.sql("SELECT epoch(i) AS i FROM (SELECT INTERVAL 1 DAY AS i)")
        assert ad.to_tensor(seconds, xp=np).tolist() == [[86_400]]

    @pytest.mark.parametrize(
        ("option", "value", "array"),
        [
            ("unit", "s", pa.array([1000], pa.timestamp("ms"))),
            ("nulls", 0, pa.array([1, None])),
            ("dtype", "float32", pa.array([1])),
            ("length", 1, pa.array([[1]])),
        ],
    )
    def test_options_by_column_of_one_array(self, option: str, value: Any, array: pa.Array):
        with pytest.raises(ad.ConversionError, match="the data is one array") as caught:
            ad.to_tensor(array, **{option: {"x": value}})
        assert caught.value.remedy == "pass one value for the array, and not a value for each column"
        assert len(ad.to_tensor(array, **{option: value})) == len(array)


NUMBERS_OF_PANDAS = pd.Index([1, 2])

# An object of pandas without a dunder, and its values.
PANDAS: list[tuple[Any, list[object]]] = [
    (pd.date_range("2024", periods=2), [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)]),
    (pd.Categorical(["a", "b"]), ["a", "b"]),
    (pd.array(["a", None], dtype="string"), ["a", None]),
    (pd.array([1, None], dtype="Int64"), [1, None]),
    (NUMBERS_OF_PANDAS, [1, 2]),
]


class TestSources:
    @pytest.mark.parametrize(("data", "values"), PANDAS)
    def test_arrays_of_pandas(self, data, values):
        for read in (ad.to_tensor, ad.from_arrow, lambda data: ad.Loader(data, batch_size=1)):
            with pytest.raises(TypeError, match=r"pass pandas\.Series\(data\)$"):
                read(data)
        assert pa.array(pa.chunked_array(ad.from_arrow(pd.Series(data))).to_pylist()).to_pylist() == values
        with pytest.raises(TypeError, match=r"; pass (numpy.asarray|arrow_dlpack.from_arrow)\(") as caught:
            ad.to_arrow(data)
        assert ("numpy.asarray" in str(caught.value)) == (data is NUMBERS_OF_PANDAS)

    def test_an_index_of_several_columns(self):
        data = pd.MultiIndex.from_tuples([(1, 2)], names=["a", "b"])
        with pytest.raises(TypeError, match=r"call \.to_frame\(index=False\) and pass its result$"):
            ad.to_tensor(data)
        assert ad.to_tensor(data.to_frame(index=False), xp=np).tolist() == [[1, 2]]

    def test_a_reader_of_a_file(self):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, NUMBERS.schema) as writer:
            writer.write_table(NUMBERS)
        reader = pa.ipc.open_file(sink.getvalue())
        calls: list[Callable[[Any], object]] = [ad.to_tensors, lambda reader: ad.Loader(reader, batch_size=1)]
        for call in calls:
            with pytest.raises(TypeError, match=r"RecordBatchFileReader; call \.read_all\(\) and pass its result$"):
                call(reader)
            call(reader.read_all().select(["i"]))

    def test_shards(self, tmp_path):
        pa.parquet.write_table(NUMBERS, tmp_path / "a.parquet")
        shards = ad.parquet_shards([tmp_path / "a.parquet"])
        for call in (ad.to_tensor, ad.to_tensors, ad.explain):
            with pytest.raises(TypeError, match="it is a list of shards: pass it to Loader as sources="):
                call(shards)
        assert len(list(ad.Loader(sources=shards, batch_size=2, nulls=0))) == 1
        with pytest.raises(TypeError, match=r"pass pyarrow\.array\(values\)$"):
            ad.to_tensor([("a", 1)])

    def test_several_arrays(self):
        x, y = np.ones((3, 2)), np.arange(3)
        columns = 'pyarrow.table({"x": arrow_dlpack.to_arrow(x), "y": arrow_dlpack.to_arrow(y)})'
        for read in (ad.to_tensor, lambda data: ad.Loader(data, batch_size=3)):
            with pytest.raises(TypeError, match=re.escape(f"; pass {columns} for a column of each") + "$"):
                read((x, y))
            with pytest.raises(TypeError, match=r"; pass \[arrow_dlpack\.from_dlpack.* after another$"):
                read([np.ones(2), np.ones(3)])
            with pytest.raises(
                TypeError,
                match=re.escape(f"; pass numpy.stack(arrays) for one array, or for a column of each, {columns}"),
            ):
                read([np.ones(2), np.ones(2, "float32")])
            with pytest.raises(TypeError, match=r"; pass one of them, as arrow_dlpack\.from_dlpack\(array\)$"):
                read([np.ones(2), np.ones((3, 2))])
        table = eval(columns, {"pyarrow": pa, "arrow_dlpack": ad, "x": x, "y": y})
        batch = batch_of(table, columns={"x": "x", "y": "y"}, xp=np)
        assert batch["x"].tolist() == x.tolist()
        assert batch["y"].tolist() == y.tolist()

    def test_a_column_of_a_dataset(self):
        datasets = pytest.importorskip("datasets")
        dataset = datasets.Dataset.from_dict({"y": [1, 2]})
        line = "dataset.with_format(\"arrow\")['y']"
        with pytest.raises(TypeError, match=re.escape(f"whose first item is int; pass {line}")):
            ad.to_tensor(dataset["y"])
        assert ad.to_tensor(eval(line, {"dataset": dataset}), xp=np).tolist() == [1, 2]
