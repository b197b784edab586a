"""Groups with options of their own: whose option counts, and their validity, in functions, `explain` and `Loader`."""

from __future__ import annotations

import copy
import json
import pickle
import random
import re
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import order
from support import numpy_of

ROWS = 60
VALUES: dict[str, list[Any]] = {
    "a": [None if row % 7 == 3 else row for row in range(ROWS)],
    "b": [None if row % 5 == 1 else row / 2 for row in range(ROWS)],
    "c": list(range(ROWS)),
    "p": [None if row % 11 == 4 else [row, None if row % 3 == 0 else -row] for row in range(ROWS)],
}
TYPES = {"a": pa.int16(), "b": pa.float32(), "c": pa.int32(), "p": pa.list_(pa.int32(), 2)}
TABLE = pa.table({name: pa.array(values, TYPES[name]) for name, values in VALUES.items()})
NATURAL = {"a": "int16", "b": "float32", "c": "int32", "p": "int32"}


def group_of(value: Any) -> ad.Group:
    return value if isinstance(value, ad.Group) else ad.group(value)


def expected(columns: dict[str, Any], dtype: Any = None, nulls: Any = None) -> dict[str, np.ndarray]:
    """The results of all rows, by the words of docs/loader.md alone. Nulls that are kept are 0, as in any copy."""
    by_dtype = dtype if isinstance(dtype, dict) else {}
    by_nulls = nulls if isinstance(nulls, dict) else {}
    results: dict[str, np.ndarray] = {}
    for name, value in columns.items():
        group = group_of(value)
        names = [group.columns] if isinstance(group.columns, str) else group.columns
        own = group.dtype or by_dtype.get(name) or (None if isinstance(dtype, dict) else dtype)
        dtypes = [own or by_dtype.get(column) or NATURAL[column] for column in names]
        result = np.result_type(*dtypes)
        parts, valid = [], []
        for column in names:
            policy = by_nulls.get(column, group.nulls if group.nulls is not None else by_nulls.get(name))
            policy = "error" if policy is None and isinstance(nulls, dict) else (nulls if policy is None else policy)
            fill = {"keep": 0, "nan": np.nan}.get(policy, policy) if isinstance(policy, str) else policy
            width = 2 if column == "p" else 1
            rows = [row if isinstance(row, list) else [row] * width for row in VALUES[column]]
            assert policy not in (None, "error") or all(None not in row for row in rows)
            parts.append(np.array([[fill if item is None else item for item in row] for row in rows]).astype(result))
            valid.append(np.array([[item is not None for item in row] for row in rows]))
        is_vector = isinstance(group.columns, str) and names != ["p"]
        shaped = [
            np.concatenate(each, axis=1)[:, 0] if is_vector else np.concatenate(each, axis=1) for each in (parts, valid)
        ]
        results[name] = shaped[0]
        if group.validity is not None:
            results[group.validity] = shaped[1]
    return results


def same(found: dict[str, Any], wanted: dict[str, np.ndarray], rows: Any = slice(None)) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        got = numpy_of(found[name]) if isinstance(found[name], ad.Tensor) else found[name]
        assert (got.dtype, got.shape) == (array[rows].dtype, array[rows].shape), name
        np.testing.assert_array_equal(got, array[rows], err_msg=name)


CASES: list[Any] = [
    ({"x": ad.group(["c", "a"], dtype="float32", nulls=0, validity="x_valid"), "y": "c"}, {}),
    ({"x": ["a", "b"], "y": "c"}, {"dtype": {"x": "float64"}, "nulls": {"x": -1}}),
    ({"x": ["a", "b"], "y": "a"}, {"nulls": {"x": -1, "a": 7}}),
    ({"x": ad.group(["a", "b"], nulls=-1), "y": "a"}, {"nulls": {"a": 7}}),
    ({"x": ad.group(["a", "b"], nulls=-1), "y": "a"}, {"nulls": 5}),
    ({"x": ad.group(["a", "c"], dtype="int64"), "y": "b"}, {"dtype": "float32", "nulls": 0}),
    ({"a": ["a"], "z": ["a", "c"]}, {"dtype": {"a": "float64"}, "nulls": {"a": 1}}),
    ({"a": "a"}, {"dtype": {"a": "float32"}, "nulls": {"a": "nan"}}),
    ({"x": ["a", "c"], "y": ["a", "b"]}, {"dtype": {"a": "float64", "y": "float32"}.copy() | {"a": None}, "nulls": 0}),
    ({"x": ad.group(["a", "b", "c"], nulls="keep", validity="m")}, {}),
    ({"p": ad.group("p", nulls="keep", validity="pm"), "b": ad.group("b", nulls="nan", validity="bm")}, {}),
    ({"c": ad.group("c", validity="cm"), "cc": ad.group(["c"], validity="ccm")}, {}),
    ({"p": ad.group("p", dtype="float32", nulls=9, validity="pm")}, {}),
    ({"x": ad.group(["a", "p", "c"], nulls="keep", validity="m")}, {}),
    ({"x": ["p", "b"], "y": ["p"]}, {"nulls": {"p": 3, "b": "nan"}}),
]


@pytest.mark.parametrize(("columns", "options"), CASES, ids=range(len(CASES)))
class TestWhoseOptionCounts:
    @pytest.mark.parametrize("chunk", [ROWS, 7])
    def test_in_functions(self, columns: dict, options: dict, chunk: int):
        table = pa.Table.from_batches(TABLE.to_batches(max_chunksize=chunk))
        wanted = expected(columns, **options)
        same(ad.to_tensors(table, columns=columns, writable=True, **options), wanted)
        same(ad.to_tensors(iter(table.to_batches()), columns=columns, writable=True, **options), wanted)
        report = ad.explain(table, columns=columns, **options)
        results = {row.column: row for row in [*report, *report.matrices]}
        for name, array in wanted.items():
            row = results[name]
            assert (row.dtype, row.shape, row.error) == (str(array.dtype), array.shape, None)

    @pytest.mark.parametrize("shuffle_buffer", [0, 13])
    def test_in_the_loader(self, columns: dict, options: dict, shuffle_buffer: int):
        wanted = expected(columns, **options)
        rows = order(ROWS, shuffle_buffer, 3, 0)
        loader = ad.Loader(
            TABLE, batch_size=8, columns=columns, shuffle_buffer=shuffle_buffer, seed=3, xp=np, **options
        )
        for start, batch in zip(range(0, ROWS, 8), loader, strict=True):
            same(batch, wanted, rows[start : start + 8])


def test_random_groups_against_the_reference():
    for seed in range(150):
        pick = random.Random(seed)
        columns: dict[str, Any] = {}
        for number in range(pick.randrange(1, 4)):
            names = pick.sample("abc", pick.randrange(1, 4))
            validity = f"valid {number}" if pick.random() < 0.6 else None
            chosen: Any = pick.choice([names, names[0], "p"])
            dtype = pick.choice([None, "float32", "float64"])
            columns[f"group {number}"] = ad.group(
                chosen, dtype=dtype, nulls=pick.choice([None, 3, 0]), validity=validity
            )
        options: dict[str, Any] = {"nulls": pick.choice([1, 2])}
        if pick.random() < 0.5:
            options["dtype"] = pick.choice(["float32", "float64"])
        chunk = pick.randrange(1, ROWS + 1)
        table = pa.Table.from_batches(TABLE.to_batches(max_chunksize=chunk))
        wanted = expected(columns, **options)
        same(ad.to_tensors(table, columns=columns, **options), wanted)
        same(ad.to_tensors(iter(table.to_batches()), columns=columns, **options), wanted)
        size, buffer, lanes = pick.randrange(1, 20), pick.choice([0, 9]), pick.choice([1, 1, 3])
        source = {"sources": [(table.slice(0, 25), 25), (table.slice(25), 35)], "lanes": lanes}
        loader = ad.Loader(
            batch_size=size, columns=columns, shuffle_buffer=buffer, seed=seed, xp=np, **options, **source
        )
        batches = list(loader)
        for name, array in wanted.items():
            found = np.concatenate([batch[name] for batch in batches])
            assert found.dtype == array.dtype
            if lanes == 1:
                assert len(found) == ROWS
        # Whatever the order: the rows of all results go together.
        keys = [tuple(np.asarray(array[row]).tobytes() for array in wanted.values()) for row in range(ROWS)]
        for batch in batches:
            for row in range(len(next(iter(batch.values())))):
                assert tuple(np.asarray(batch[name][row]).tobytes() for name in wanted) in keys


class TestValidity:
    COLUMNS: ClassVar[dict[str, Any]] = {
        "x": ad.group(["c", "a"], nulls="keep", validity="valid"),
        "p": ad.group("p", nulls=0, validity="pm"),
    }

    def test_is_there_without_nulls(self):
        table = TABLE.slice(0, 3)
        tensors = ad.to_tensors(
            table, columns={"x": ad.group(["a", "c"], validity="m"), "c": ad.group("c", validity="n")}
        )
        assert numpy_of(tensors["m"]).all()
        assert (tensors["m"].shape, tensors["n"].shape) == ((3, 2), (3,))
        for batch in ad.Loader(table, batch_size=2, columns={"x": ad.group(["a", "c"], validity="m")}, xp=np):
            assert batch["m"].dtype == bool
            assert batch["m"].all()

    def test_has_the_memory_order_of_its_group(self):
        tensors = ad.to_tensors(TABLE, columns=self.COLUMNS, order="F")
        assert tensors["valid"].strides == (1, ROWS)
        same(tensors, expected(self.COLUMNS))

    def test_of_no_rows(self):
        tensors = ad.to_tensors(TABLE.slice(0, 0), columns=self.COLUMNS)
        assert {name: tensor.shape for name, tensor in tensors.items()} == {
            "x": (0, 2), "valid": (0, 2), "p": (0, 2), "pm": (0, 2)}  # fmt: skip

    def test_of_runs_dictionaries_and_null_rows(self):
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 6], pa.int32()), pa.array([1, None, 3], pa.int64()))
        codes = pa.DictionaryArray.from_arrays(
            pa.array([0, None, 1, 1, 0, 0], pa.int8()), pa.array([5, None], pa.int64())
        )
        batch = pa.RecordBatch.from_arrays([runs, codes], ["r", "d"])
        structs = pa.StructArray.from_arrays(
            [pa.array([1, 2, 3]), pa.array([1, None, 3])], ["a", "b"], mask=pa.array([False, False, True])
        )
        columns = {
            "r": ad.group("r", nulls=0, validity="rv"),
            "d": ad.group(["d"], dtype="int64", nulls=0, validity="dv"),
        }
        wanted = {"rv": [True, True, False, False, False, True], "dv": [True, False, False, False, True, True]}
        found = ad.to_tensors(batch, columns=columns, xp=np)
        (loaded,) = ad.Loader(batch, batch_size=6, columns=columns, xp=np)
        for name, valid in wanted.items():
            assert found[name].ravel().tolist() == loaded[name].ravel().tolist() == valid
        columns = {"x": ad.group(["a", "b"], nulls=0, validity="m"), "a": ad.group("a", nulls=0, validity="n")}
        found = ad.to_tensors(structs, columns=columns, xp=np)
        assert found["m"].tolist() == [[True, True], [True, False], [False, False]]
        assert found["n"].tolist() == [True, True, False]

    def test_of_dictionaries_of_bytes_has_a_bool_for_each_byte(self):
        codes = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array([b"abc"], pa.binary(3)))
        columns = {"x": ad.group("d", nulls=0, validity="v")}
        found = ad.to_tensors(pa.table({"d": codes}), columns=columns, dictionary="values", xp=np)
        assert found["x"].tolist() == [[97, 98, 99], [0, 0, 0]]
        assert found["v"].tolist() == [[True] * 3, [False] * 3]
        schema = ad.explain(pa.schema({"d": codes.type}), columns=columns, dictionary="values")
        assert schema["v"].shape == (None, 3)

    @pytest.mark.parametrize("buffer", [0, 40])
    def test_of_columns_that_are_read_once_for_values_and_validity(self, buffer: int):
        lists = [None if row % 7 == 0 else [row, None if row % 3 == 0 else row] for row in range(500)]
        codes = pa.DictionaryArray.from_arrays(
            pa.array([None if row % 11 == 0 else row % 3 for row in range(500)], pa.int8()), pa.array(["a", None, "c"])
        )
        flags = [None if row % 5 == 0 else row % 2 == 0 for row in range(500)]
        numbers = pa.array(range(500), pa.int32())
        columns = [numbers, pa.array(lists, pa.list_(pa.int32(), 2)), pa.array(flags), codes]
        whole = pa.table(dict(zip(["n", "l", "f", "d"], columns, strict=True)))
        # Slices, whose bitmaps start within a byte.
        source = pa.concat_tables([whole.slice(0, 101), whole.slice(101, 250), whole.slice(351)])
        groups = {
            "x": ad.group(["f", "l", "n"], nulls=0, validity="xm"),
            "y": ["n"],
            "d": ad.group(["d"], nulls=-1, validity="dm"),
        }
        rows = {
            row: [flags[row] is not None, *(item is not None for item in lists[row] or [None, None]), True]
            for row in range(500)
        }
        seen = []
        for batch in ad.Loader(source, batch_size=37, columns=groups, shuffle_buffer=buffer, drop_last=False, xp=np):
            numbers_of = batch["y"][:, 0].tolist()
            assert batch["xm"].tolist() == [rows[row] for row in numbers_of]
            assert batch["dm"].tolist() == [[row % 11 != 0 and row % 3 != 1] for row in numbers_of]
            assert (batch["x"] == np.where(batch["xm"], batch["x"], 0)).all()
            seen += numbers_of
        assert sorted(seen) == list(range(500))

    def test_is_a_copy_that_is_logged_and_explained(self):
        for source in (TABLE, iter(TABLE.to_batches())):
            with ad.track_copies() as log:
                ad.to_tensors(source, columns=self.COLUMNS)
            report = ad.explain(TABLE, columns=self.COLUMNS)
            assert log.bytes == report.bytes
            assert [row.column for row in report] == ["c", "a", "valid", "p", "pm"]
            assert [report[name].bytes for name in ("valid", "pm")] == [2 * ROWS, 2 * ROWS]
        schema = ad.explain(TABLE.schema, columns=self.COLUMNS)
        assert [(schema[name].shape, schema[name].how) for name in ("valid", "pm")] == [((None, 2), "copy")] * 2

    def test_is_refused_where_no_copy_is_allowed(self):
        columns = {"c": ad.group("c", validity="m")}
        assert not ad.to_tensors(TABLE, columns={"c": "c"}, copy=False)["c"].copied
        stream = TABLE.to_reader()
        for source in (TABLE, stream):
            with pytest.raises(ad.CopyError, match="unpacked"):
                ad.to_tensors(source, columns=columns, copy=False)
        assert stream.read_all().num_rows == ROWS
        for subject in (TABLE, TABLE.schema):
            assert "unpacked" in ad.explain(subject, columns=columns, copy=False)["m"].error

    def test_of_complex_numbers_is_refused(self):
        table = pa.table({"z": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))})
        for value in (ad.group("z", dtype="complex64", validity="m"), ad.group(["z"], dtype="complex64", validity="m")):
            with pytest.raises(ad.UnsupportedTypeError, match="complex"):
                ad.to_tensors(table, columns={"z": value})
            with pytest.raises(ad.UnsupportedTypeError, match="complex"):
                ad.Loader(table, batch_size=1, columns={"z": value})
            assert "complex" in ad.explain(table, columns={"z": value})["m"].error


class TestLoader:
    COLUMNS: ClassVar[dict[str, Any]] = {
        "x": ad.group(["b", "a"], dtype="float32", nulls="keep", validity="m"),
        "p": ad.group("p", nulls=0, validity="pm"),
    }

    def loader(self, source: Any = TABLE, **options: Any) -> ad.Loader:
        return ad.Loader(source, **{"batch_size": 7, "columns": self.COLUMNS, "xp": np, **options})

    @pytest.mark.parametrize("lanes", [1, 2])
    def test_is_resumed_with_another_batch_size(self, lanes: int):
        parts = {"source": None, "sources": [(TABLE.slice(0, 31), 31), (TABLE.slice(31), 29)], "lanes": lanes}
        options = {**parts, "shuffle_buffer": 11, "seed": 4}
        whole = self.loader(**options)
        iterator = iter(whole)
        taken = [next(iterator) for _ in range(4)]
        state = json.loads(json.dumps(whole.state_dict()))
        rest = list(iterator)
        other = self.loader(**options, verify="all")
        other.load_state_dict(state)
        again = list(other)
        wanted = expected(self.COLUMNS)
        for name in wanted:
            np.testing.assert_array_equal(
                np.concatenate([batch[name] for batch in rest]), np.concatenate([batch[name] for batch in again])
            )
        if lanes == 1:
            smaller = self.loader(**options, batch_size=3)
            smaller.load_state_dict(state)
            rows = order(ROWS, 11, 4, 0)
            joined = [*taken, *smaller]
            for name, array in wanted.items():
                found = np.concatenate([batch[name] for batch in joined])
                np.testing.assert_array_equal(found, array[rows])

    def test_validity_is_part_of_the_rows_that_a_state_knows(self):
        nulls = pa.table({"c": pa.array([1, None] * 40)})
        zeros = pa.table({"c": pa.array([1, 0] * 40)})
        columns = {"c": ad.group("c", nulls=0, validity="m")}
        state = None
        for source in (nulls, zeros):
            loader = ad.Loader(source, batch_size=10, columns=columns)
            if state is None:
                iterator = iter(loader)
                _ = [next(iterator) for _ in range(3)]
                state = loader.state_dict()
                continue
            loader.load_state_dict(state)
            with pytest.raises(ad.ConversionError, match="have changed"):
                next(iter(loader))

    def test_last_batch_ranks_and_drop_last(self):
        wanted = expected(self.COLUMNS)
        batches = list(self.loader())
        assert [len(batch["pm"]) for batch in batches] == [7] * 8 + [4]
        same(batches[-1], wanted, slice(56, 60))
        for rank in range(3):
            for number, batch in enumerate(self.loader(rank=rank, world_size=3, drop_last=True)):
                first = 7 * (number * 3 + rank)
                same(batch, wanted, slice(first, first + 7))

    def test_names_the_null_that_is_refused(self):
        with pytest.raises(ad.NullError, match='column "a", row 3'):
            list(ad.Loader(TABLE, batch_size=8, columns={"x": ad.group(["c", "a"], validity="m")}))

    def test_copies_of_it_are_logged(self):
        with ad.track_copies() as log:
            next(iter(self.loader()))
        assert [entry.bytes for entry in log] == [7 * 8, 7 * 2, 7 * 8, 7 * 2]

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_pickles_and_copies(self, protocol: int):
        loader = self.loader(shuffle_buffer=9, seed=1)
        iterator = iter(loader)
        next(iterator)
        rest = list(iterator)
        loader = self.loader(shuffle_buffer=9, seed=1)
        iterator = iter(loader)
        next(iterator)
        for other in (pickle.loads(pickle.dumps(loader, protocol)), copy.copy(loader), copy.deepcopy(loader)):
            for batch, wanted in zip(other, rest, strict=True):
                same(batch, wanted)

    def test_kept_nulls_need_a_validity(self):
        for columns, nulls in [
            ({"x": ["a", "c"]}, "keep"),
            ({"x": ["a", "c"]}, {"x": "keep"}),
            ({"x": ["a", "c"]}, {"a": "keep"}),
            ({"x": ad.group(["a", "c"], nulls="keep")}, "error"),
            ({"x": ad.group(["a", "c"], validity="m"), "y": "a"}, {"x": 0, "a": "keep"}),
        ]:
            with pytest.raises(ad.ConversionError, match="validity") as caught:
                ad.Loader(TABLE, batch_size=8, columns=columns, nulls=nulls)
            assert "validity=" in caught.value.remedy
        ad.Loader(TABLE, batch_size=8, columns={"x": ad.group(["a"], validity="m"), "y": "c"}, nulls={"a": "keep"})
        ad.Loader(TABLE, batch_size=8, columns={"x": ["a", "c"]}, nulls={"b": "keep", "x": 0})


WRONG: list[Any] = [
    ({"x": ad.group(["a"], dtype="int8")}, {"dtype": {"x": "int8"}}, 'group "x": its dtype is given twice'),
    ({"x": ad.group(["a"], nulls=0)}, {"nulls": {"x": 1}}, 'group "x": its null policy is given twice'),
    ({"x": ad.group(["a", "c"], dtype="int8")}, {"dtype": {"a": "int16"}}, 'column "a".*group "x"'),
    ({"x": ["a", "c"]}, {"dtype": {"a": "int16", "x": "int8"}}, 'column "a".*group "x"'),
    ({"a": ["c", "b"]}, {"dtype": {"a": "float32"}}, '"a" is a group and a column'),
    ({"a": ["a", "c"]}, {"nulls": {"a": 0}}, '"a" is a group and a column'),
    ({"a": "c"}, {"nulls": {"a": 0}}, '"a" is a group and a column'),
    ({"x": ad.group("a", validity="x")}, {}, 'group "x".*called "x"'),
    ({"x": ad.group("a", validity="y"), "y": "c"}, {}, 'group "x".*called "y"'),
    ({"x": ad.group("a", validity="m"), "y": ad.group("c", validity="m")}, {}, 'group "y".*called "m"'),
    ({"x": ["a"]}, {"dtype": {"z": "int8"}}, 'column "z": there is no such column'),
    ({"x": ["a"]}, {"decimal": {"x": "unscaled"}}, 'column "x": there is no such column'),
    ({"x": ad.group(["a"], nulls="nan")}, {}, "float"),
]


@pytest.mark.parametrize(("columns", "options", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_told_before_data_is_read(columns: dict, options: dict, message: str):
    stream = iter(TABLE.to_batches(max_chunksize=20))
    keywords = {"columns": columns, **options}
    with pytest.raises(ad.ConversionError, match=message):
        ad.to_tensors(TABLE, **keywords)
    with pytest.raises(ad.ConversionError, match=message):
        ad.to_tensors(TABLE.to_reader(), **keywords)
    with pytest.raises(ad.ConversionError, match=message):
        ad.Loader(TABLE, batch_size=8, **keywords)
    with pytest.raises(ad.ConversionError, match=message):
        list(ad.Loader(lambda: stream, batch_size=8, **keywords))
    try:
        report = str(ad.explain(TABLE, **keywords))
    except ad.ConversionError as error:
        report = str(error)
    assert re.search(message, report)


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((3,), {}), (([1],), {}), ((["a"],), {"dtype": 3}), ((["a"],), {"nulls": {"a": 0}}), ((["a"],), {"validity": 3}),
     ((["a"], "int8"), {}), (({"a": "b"},), {}), ((None,), {})],
)  # fmt: skip
def test_wrong_arguments_of_a_group(arguments: Any, keywords: Any):
    with pytest.raises((TypeError, ValueError)):
        ad.group(*arguments, **keywords)


def test_a_group_is_a_value():
    group = ad.group(["a", "b"], dtype="f4", nulls=0, validity="m")
    assert (group.columns, group.dtype, group.nulls, group.validity) == (["a", "b"], "float32", 0, "m")
    assert repr(group) == "group(['a', 'b'], dtype=\"float32\", nulls=0, validity=\"m\")"
    assert (ad.group("a").columns, repr(ad.group("a"))) == ("a", "group('a')")
    assert ad.group("a") != ad.group(["a"])
    assert ad.group("a") != "a"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(group, protocol)) == group
    group.columns.append("c")
    assert group.columns == ["a", "b"]


def test_the_caller_may_change_the_dict_afterwards():
    def rows() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()

    names = ["a", "c"]
    columns: dict[str, Any] = {"x": names}
    loader = ad.Loader(TABLE, batch_size=8, columns=columns, nulls=0)
    names.append("b")
    columns["y"] = "c"
    for each in (loader, pickle.loads(pickle.dumps(loader))):
        batch = next(iter(each))
        assert {name: tensor.shape for name, tensor in batch.items()} == {"x": (8, 2)}


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("buffer", [0, 7])
def test_batches_with_and_without_nulls_have_the_same_validity(prefetch: int, buffer: int):
    """The memory of a batch that had nulls is that of a later one without."""
    numbers = np.arange(200)
    nulls = (numbers % 40 >= 8) & (numbers % 40 < 20) & (numbers % 3 != 0)
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 2), mask=np.repeat(nulls, 2)), 2)
    columns = {"n": pa.array(numbers), "a": pa.array(numbers, mask=nulls), "p": pairs}
    table = pa.Table.from_batches(pa.table(columns).to_batches(max_chunksize=30))
    groups = {"n": "n", "x": ad.group(["n", "a", "p"], nulls=-1, validity="valid")}
    loader = ad.Loader(table, batch_size=4, columns=groups, prefetch=prefetch, shuffle_buffer=buffer, seed=3, xp=np)
    seen = 0
    for batch in loader:
        valid = ~nulls[batch["n"]]
        expected = np.stack([np.ones_like(valid), valid, valid, valid], axis=1)
        np.testing.assert_array_equal(batch["valid"], expected)
        np.testing.assert_array_equal(batch["x"], np.where(expected, batch["n"][:, None], -1))
        seen += len(valid)
    assert seen == 200


@pytest.mark.parametrize("what", ["told", "named", "padded"])
def test_many_groups_take_time_by_their_number(what: str):
    def seconds(count: int) -> float:
        names = [f"c{number}" for number in range(count)]
        rows = pa.array([[1.0]]) if what == "padded" else pa.array([1.0])
        batch = pa.record_batch([rows] * count, names=names)
        groups: dict[str, Any] = {f"g{number}": [name, names[0]] for number, name in enumerate(names[1:])}
        if what == "padded":
            groups = {f"g{number}": ad.padded(name) for number, name in enumerate(names)}
        start = time.process_time()
        if what == "told":
            assert str(ad.explain(batch, columns=groups))
        else:
            ad.to_tensors(batch, columns=groups, dtype=dict.fromkeys(groups, "float32") if what == "named" else None)
        return time.process_time() - start

    few, many = (min(seconds(count) for _ in range(3)) for count in (100, 1600))
    # 16 times the groups and columns: 256 times the time, if each group looks at all columns.
    assert many < 64 * few
