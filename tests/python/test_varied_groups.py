"""`padded`, `ragged` and `arrow` as values of `columns={...}`: in `to_tensors` and `explain`."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import arrow_dlpack as ad
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support import numpy_of
from varied_reference import DTYPES, ROWS, TABLE, VALUES, as_lists, padded, same

PADDED = [name for name in VALUES if name != "nested"]


def chunked(size: int) -> pa.Table:
    return pa.Table.from_batches(TABLE.to_batches(max_chunksize=size))


def dtype_of(name: str) -> str:
    return DTYPES.get(name, "int32")


@pytest.mark.parametrize("column", PADDED)
@pytest.mark.parametrize("size", [ROWS, 8])
class TestPadded:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"value": 7, "multiple_of": 4},
            {"length": 3, "truncate": "left"},
            {"length": 3, "truncate": "right", "side": "left"},
            {"length": 40, "value": 1, "side": "left", "multiple_of": 8},
            {"nulls": 9, "dtype": "float64"},
        ],
        ids=range(6),
    )
    def test_is_that_of_the_reference(self, column: str, size: int, options: dict):
        options = {"nulls": "keep"} | options
        group = ad.padded(column, lengths="n", validity="mask", **options)
        dtype = options.pop("dtype", dtype_of(column))
        table = chunked(size)
        wanted = padded(column, dtype, **options)
        for source in (table, iter(table.to_batches()), ad.from_arrow(table)):
            found = ad.to_tensors(source, columns={"x": group, "row": "n"})
            assert list(found) == ["x", "mask", "n", "row"]
            for name, array in zip(("x", "mask", "n"), wanted, strict=True):
                same(found[name], array, name)
            same(found["row"], np.arange(ROWS, dtype=np.int32))
            assert found["x"].writable

    def test_alone_is_to_ragged(self, column: str, size: int):
        if column == "fixed":
            pytest.skip("to_ragged refuses fixed-size lists, whose rows have one length")
        table = chunked(size)
        found = ad.to_tensors(table, columns={"x": ad.padded(column, value=3, nulls="keep", validity="m")}, xp=np)
        matrix, valid = ad.to_ragged(table[column], pad=(3, None), nulls="keep", xp=np)
        same(found["x"], matrix)
        same(found["m"], valid)


@pytest.mark.parametrize("column", [name for name in VALUES if name != "fixed"])
@pytest.mark.parametrize("size", [ROWS, 8])
def test_ragged_rows_are_those_of_to_ragged(column: str, size: int):
    table = chunked(size)
    found = ad.to_tensors(table, columns={"x": ad.ragged(column, nulls="keep"), "row": "n"})["x"]
    assert isinstance(found, ad.Ragged)
    alone = ad.to_ragged(table[column], nulls="keep")
    assert as_lists(found) == as_lists(alone)
    assert (found.validity is None, found.lengths is None) == (alone.validity is None, alone.lengths is None)
    filled = ad.to_tensors(table, columns={"x": ad.ragged(column, dtype="float64", nulls=-1)}, xp=np)["x"]
    wanted = [[-1 if item is None else item for item in row or []] for row in VALUES[column]]
    assert as_lists(filled) == wanted


def test_random_options_against_the_reference():
    for seed in range(120):
        pick = random.Random(seed)
        column = pick.choice(PADDED)
        length = pick.choice([None, None, 0, 2, 6, 24])
        options: dict[str, Any] = {
            "value": pick.choice([0, 1, 9]),
            "length": length,
            "multiple_of": pick.choice([1, 2]),
            "side": pick.choice(["left", "right"]),
            "nulls": pick.choice(["keep", 4]),
        }
        if length is not None:
            options["truncate"] = pick.choice(["left", "right"])
        dtype = pick.choice([None, "int64", "float32"])
        wanted = padded(column, dtype or dtype_of(column), **options)
        start = pick.randrange(ROWS)
        table = chunked(pick.randrange(1, ROWS + 1))
        group = ad.padded(column, lengths="n", validity="m", dtype=dtype, **options)
        found = ad.to_tensors(table, columns={"x": group}, xp=np)
        for name, array in zip(("x", "m", "n"), wanted, strict=True):
            same(found[name], array, f"{seed} {name}")
        part = ad.to_tensors(table.slice(start), columns={"x": ad.padded(column, nulls="keep")}, xp=np)["x"]
        same(part, padded(column, dtype_of(column), slice(start, None), nulls="keep")[0], str(seed))


class TestArrow:
    def test_one_chunk_is_passed_on_over_the_same_memory(self):
        batch = TABLE.combine_chunks().to_batches()[0]
        found = ad.to_tensors(batch, columns={"a": ad.arrow("struct", "words", "codes"), "y": "n"}, copy=False)["a"]
        assert isinstance(found, ad.RecordBatch)
        back = pa.record_batch(found)
        assert back.schema.names == ["struct", "words", "codes"]
        assert back.equals(batch.select(["struct", "words", "codes"]))
        assert back["words"].buffers()[2].address == batch["words"].buffers()[2].address
        part = pa.record_batch(ad.to_tensors(batch.slice(5, 9), columns={"a": ad.arrow("words", "n")})["a"])
        assert part.equals(batch.slice(5, 9).select(["words", "n"]))

    @pytest.mark.parametrize("column", TABLE.column_names)
    def test_chunks_are_joined(self, column: str):
        table = chunked(8)
        found = pa.record_batch(ad.to_tensors(table, columns={"a": ad.arrow(column)})["a"])
        assert found.num_rows == ROWS
        assert found[column].to_pylist() == TABLE[column].to_pylist()
        assert found.schema.field(column).type == TABLE.schema.field(column).type
        with pytest.raises(ad.CopyError, match="rows joined into one Arrow batch"):
            ad.to_tensors(table, columns={"a": ad.arrow(column)}, copy=False)

    def test_a_refused_copy_is_explained_in_its_words(self):
        columns = {"a": ad.arrow("n")}
        with pytest.raises(ad.CopyError, match=r'^group "a": a copy of') as caught:
            ad.to_tensors(chunked(8), columns=columns, copy=False)
        assert ad.explain(chunked(8), columns=columns, copy=False)["a"].error == str(caught.value)

    def test_chunks_of_different_dictionaries_have_one(self):
        """Codes of 8 bits count the values that the rows have, but not those of all dictionaries in turn."""

        def chunk(first: int) -> pa.Array:
            codes = pa.array([None if row == 4 else row % 60 for row in range(100)], pa.int8())
            return pa.DictionaryArray.from_arrays(codes, [f"word {first + word}" for word in range(60)])

        codes = pa.chunked_array([chunk(first) for first in (0, 30, 0, 15)])
        lists = pa.chunked_array(
            [pa.FixedSizeListArray.from_arrays(chunk, 2) for chunk in codes.chunks], pa.list_(codes.type, 2)
        )
        for column in (codes, lists):
            table = pa.table({"c": column})
            found = pa.record_batch(ad.to_tensors(table, columns={"a": ad.arrow("c")})["a"])["c"]
            found.validate(full=True)
            assert (found.type, found.to_pylist()) == (column.type, column.to_pylist())
            dictionary = (found if column is codes else found.values).dictionary.to_pylist()
            assert len(dictionary) == len(set(dictionary)) == 90
        many = pa.chunked_array([chunk(first) for first in (0, 60, 120)])
        with pytest.raises(ad.UnsupportedTypeError, match=r'column "c".* 180 values together.* wider dictionary codes'):
            ad.to_tensors(pa.table({"c": many}), columns={"a": ad.arrow("c")})

    @pytest.mark.parametrize("kind", ["list views", "large list views", "dense union", "sparse union", "runs", "maps"])
    def test_chunks_of_different_dictionaries_below_have_one(self, kind: str):
        """Codes of 8 bits count the values that the rows have, but not those of all dictionaries in turn."""

        def chunk(first: int) -> pa.Array:
            codes = pa.array([None if row == 4 else 59 - row for row in range(20)], pa.int8())
            codes = pa.DictionaryArray.from_arrays(codes, [f"word {first + word}" for word in range(60)])
            numbers = pa.array(range(20))
            if kind == "list views":
                starts = pa.array([18, 3, 0, 9], pa.int32())
                return pa.ListViewArray.from_arrays(starts, pa.array([2, 4, 9, 0], pa.int32()), codes)
            if kind == "large list views":
                starts, mask = pa.array([1, 3, 0, 9]), pa.array([False, True, False, False])
                return pa.LargeListViewArray.from_arrays(starts, pa.array([2, 4, 9, 11]), codes, mask=mask)
            if kind == "dense union":
                places = pa.array([19, 3, 4, 4, 0, 1], pa.int32())
                return pa.UnionArray.from_dense(pa.array([0, 1, 0, 1, 0, 0], pa.int8()), places, [codes, numbers])
            if kind == "sparse union":
                return pa.UnionArray.from_sparse(pa.array([row % 2 for row in range(20)], pa.int8()), [codes, numbers])
            if kind == "runs":
                return pa.RunEndEncodedArray.from_arrays(pa.array(range(3, 63, 3), pa.int32()), codes)
            return pa.MapArray.from_arrays(pa.array([0, 3, 3, 20], pa.int32()), numbers, codes)

        column = pa.chunked_array([chunk(first)[start:] for first, start in ((0, 1), (60, 2), (120, 0))])
        table, columns = pa.table({"c": column}), {"a": ad.arrow("c")}
        found = pa.record_batch(ad.to_tensors(table, columns=columns)["a"])["c"]
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (column.type, column.to_pylist())
        table = table.append_column("row", pa.array(range(len(column))))
        loader = ad.Loader(table, batch_size=len(column), columns={**columns, "row": "row"}, shuffle_buffer=99, seed=1)
        for batch in loader:
            found = pa.record_batch(batch["a"])["c"]
            assert found.to_pylist() == [column[int(row)].as_py() for row in numpy_of(batch["row"])]

    def test_unions_beside_different_dictionaries_are_those_of_their_rows(self):
        """Slices of chunks are joined there, and a sparse union may begin anywhere in its fields."""
        ids = pa.array([row % 2 for row in range(40)], pa.int8())
        union = pa.UnionArray.from_sparse(ids, [pa.array(range(40)), pa.array([f"w{row}" for row in range(40)])])
        beside = pa.StructArray.from_arrays([union, pa.array(range(40))], ["u", "n"])
        codes = pa.array(["a", "b", "c", "d"] * 10)
        batches = [
            pa.record_batch(
                {
                    "u": union[start : start + 20],
                    "s": beside[start : start + 20],
                    "c": codes[start : start + 20].dictionary_encode(),
                    # Items of both chunks: each has a dictionary of its own.
                    "l": pa.FixedSizeListArray.from_arrays(
                        pa.StructArray.from_arrays(
                            [union[start : start + 20], codes[start : start + 20].dictionary_encode()], ["u", "c"]
                        ),
                        1,
                    ),
                }
            )
            for start in (0, 20)
        ]
        wanted = [row for batch in batches for row in batch.to_pylist()]
        columns = {"a": ad.arrow("u", "s", "c", "l")}
        found = pa.record_batch(ad.to_tensors([batch[3:] for batch in batches], columns=columns)["a"])
        assert found.to_pylist() == wanted[3:20] + wanted[23:]
        loader = ad.Loader(batches, batch_size=9, columns={**columns, "row": "s.n"}, shuffle_buffer=25, seed=1)
        for batch in loader:
            assert pa.record_batch(batch["a"]).to_pylist() == [wanted[row] for row in numpy_of(batch["row"])]

    def test_a_copy_that_is_asked_for_is_made(self):
        batch = TABLE.combine_chunks().to_batches()[0]
        found = pa.record_batch(ad.to_tensors(batch, columns={"a": ad.arrow("words")}, copy=True)["a"])
        assert found["words"].buffers()[2].address != batch["words"].buffers()[2].address
        assert found["words"].equals(batch["words"])

    def test_nothing_is_an_empty_batch(self):
        for table in (TABLE.slice(0, 0), TABLE.schema.empty_table()):
            found = ad.to_tensors(table, columns={"a": ad.arrow("words"), "x": ad.padded("ids"), "r": ad.ragged("ids")})
            assert (len(found["a"]), found["x"].shape, len(found["r"])) == (0, (0, 0), 0)

    def test_of_polars(self):
        frame = pl.DataFrame({"a": ["x", None], "y": [1, 2]})
        found = ad.to_tensors(frame, columns={"a": ad.arrow("a"), "y": "y"})
        assert pa.record_batch(found["a"])["a"].to_pylist() == ["x", None]


class TestOptions:
    @pytest.mark.parametrize(
        ("columns", "names"),
        [
            ({"x": ad.padded("ids", lengths="y"), "y": "n"}, ["the lengths of group", 'group "y"']),
            ({"x": ad.padded("ids", lengths="m", validity="m")}, ["the lengths of", "the validity of"]),
            ({"x": ad.padded("ids", validity="m"), "z": ad.group("n", validity="m")}, ['group "x"', 'group "z"']),
            ({"x": ad.padded("ids", validity="x")}, ['group "x"', "the validity"]),
        ],
        ids=range(4),
    )
    def test_names_that_collide_name_both(self, columns: dict, names: list[str]):
        for call in (
            lambda: ad.to_tensors(TABLE, columns=columns, nulls=0),
            lambda: ad.explain(TABLE, columns=columns, nulls=0),
            lambda: ad.Loader(TABLE, batch_size=4, columns=columns, nulls=0),
        ):
            with pytest.raises(ad.ConversionError, match="called") as raised:
                call()
            assert all(name in str(raised.value) for name in names)

    def test_options_by_group_and_for_all(self):
        columns = {"x": ad.padded("full"), "y": ad.ragged("full"), "a": ad.arrow("full")}
        found = ad.to_tensors(TABLE, columns=columns, dtype={"x": "float32", "y": "int32"}, xp=np)
        assert (found["x"].dtype, found["y"].values.dtype) == (np.float32, np.int32)
        found = ad.to_tensors(TABLE, columns=columns, dtype="float64", xp=np)
        assert (found["x"].dtype, found["y"].values.dtype) == (np.float64, np.float64)
        assert pa.record_batch(found["a"]).schema.field("full").type == pa.list_(pa.int64())

    @pytest.mark.parametrize("options", [{"dtype": {"a": "float32"}}, {"nulls": {"a": 0}}])
    def test_arrow_has_no_options(self, options: dict):
        with pytest.raises(ad.ConversionError, match="passed through as Arrow"):
            ad.to_tensors(TABLE, columns={"a": ad.arrow("words")}, **options)

    @pytest.mark.parametrize(
        ("make", "error", "match"),
        [
            (lambda: ad.padded(["ids"]), TypeError, "must be a name"),  # type: ignore[arg-type]
            (lambda: ad.ragged(3), TypeError, "must be a name"),  # type: ignore[arg-type]
            (lambda: ad.arrow(), TypeError, "names of the columns"),
            (lambda: ad.arrow("a", 3), TypeError, "must be a name"),  # type: ignore[arg-type]
            (lambda: ad.padded("ids", value="keep"), TypeError, "value must be a number"),  # type: ignore[arg-type]
            (lambda: ad.padded("ids", length=-1), ValueError, "length"),
            (lambda: ad.padded("ids", multiple_of=0), ValueError, "multiple_of"),
            (lambda: ad.padded("ids", length=5, multiple_of=2), ValueError, "no multiple of 2"),
            (lambda: ad.padded("ids", truncate="left"), ValueError, "cannot be truncated"),
            (lambda: ad.padded("ids", truncate="both"), ValueError, "truncate must be"),  # type: ignore[arg-type]
            (lambda: ad.padded("ids", side="both"), ValueError, "side must be"),  # type: ignore[arg-type]
            (lambda: ad.padded("ids", dtype="float31"), (TypeError, ValueError), "float31"),
        ],
        ids=range(12),
    )
    def test_wrong_ones_are_refused_where_the_group_is_made(self, make: Any, error: Any, match: str):
        with pytest.raises(error, match=match):
            make()

    @pytest.mark.parametrize(
        "group",
        [
            ad.padded("ids"),
            ad.padded(
                "ids", value=1.5, length=8, multiple_of=4, truncate="left", side="left", lengths="n", validity="m"
            ),
            ad.padded("ids", dtype="float32", nulls="nan"),
            ad.ragged("ids", dtype="int8", nulls="keep"),
            ad.arrow("url", "png"),
            ad.arrow("url"),
        ],
        ids=range(6),
    )
    def test_groups_have_a_repr_and_pickle(self, group: Any):
        text = repr(group)
        names = {name: getattr(ad, name) for name in ("padded", "ragged", "arrow")}
        assert eval(text, names) == group
        for copied in (pickle.loads(pickle.dumps(group)), copy.deepcopy(group)):
            assert copied == group
            assert repr(copied) == text
        assert group != ad.group("ids")

    def test_a_length_for_all_columns_is_not_for_the_items_of_padded_and_ragged_rows(self):
        pairs = pa.list_(pa.list_(pa.int64(), 2))
        table = pa.table({"tok": pa.array([[[1, 2]]], pairs), "emb": pa.array([[1, 2, 3]])})
        columns = {"p": ad.padded("tok"), "r": ad.ragged("tok"), "e": "emb"}
        made = ad.to_tensors(table, columns=columns, length=3)
        [batch] = ad.Loader(table, columns=columns, length=3, batch_size=1)
        for results in (made, batch):
            assert np.asarray(results["p"]).tolist() == [[[1, 2]]]
            assert np.asarray(results["r"].values).tolist() == [[1, 2]]
            assert np.asarray(results["e"]).tolist() == [[1, 2, 3]]
        assert all(row.error is None for row in ad.explain(table.schema, columns=columns, length=3))
        # Items that are lists of any length stay rows.
        table = pa.table({"k": [[[1, 2, 3]]]})
        ragged = ad.to_tensors(table, columns={"k": ad.ragged("k")}, length=3)["k"]
        assert np.asarray(ragged.values.values).tolist() == [1, 2, 3]


class TestRefusals:
    @pytest.mark.parametrize(
        ("group", "match"),
        [
            (ad.padded("n"), "no ragged form"),
            (ad.ragged("n"), "no ragged form"),
            (ad.ragged("fixed"), "no ragged form"),
            (ad.padded("nested"), "nested lists"),
            (ad.padded("codes"), "no ragged form"),
            (ad.padded("full", value=1.5), "1.5"),
            (ad.padded("nothing"), "no such column"),
            (ad.arrow("words", "nothing"), "no such column"),
        ],
        ids=range(8),
    )
    def test_types_are_refused_before_a_stream_is_read(self, group: Any, match: str):
        reader = TABLE.to_reader(max_chunksize=5)
        with pytest.raises((ad.ConversionError, KeyError), match=match):
            ad.to_tensors(reader, columns={"x": group, "y": "n"})
        assert reader.read_next_batch().num_rows == 5

    def test_tensors_that_are_not_row_major_are_not_padded(self):
        def table(shape: list[int], permutation: list[int]) -> pa.Table:
            of_rows = pa.fixed_shape_tensor(pa.int32(), shape, permutation=permutation)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(range(6), pa.int32()), 6)
            return pa.table({"t": pa.ExtensionArray.from_storage(of_rows, lists)})

        columns = {"x": ad.padded("t")}
        reader = table([2, 3], [1, 0]).to_reader()
        with pytest.raises(ad.UnsupportedTypeError, match=r'column "t": its rows of shape .* are permuted'):
            ad.to_tensors(reader, columns=columns)
        assert reader.read_all().num_rows == 1
        assert "permuted" in ad.explain(table([2, 3], [1, 0]).schema, columns=columns)["x"].error
        for shape, permutation in (([2, 3], [0, 1]), ([1, 6], [1, 0])):
            found = ad.to_tensors(table(shape, permutation), columns=columns, xp=np)["x"]
            assert found.tolist() == [[0, 1, 2, 3, 4, 5]]

    def test_nulls_and_long_rows_name_group_column_and_row(self):
        with pytest.raises(ad.NullError, match="row 3") as raised:
            ad.to_tensors(TABLE, columns={"x": ad.padded("ids")})
        assert (raised.value.column, raised.value.row) == ("ids", 3)
        with pytest.raises(ad.ConversionError, match="has 5 elements, and is padded to 4") as raised:
            ad.to_tensors(TABLE, columns={"x": ad.padded("full", length=4)})
        assert raised.value.row == 1

    def test_copies(self):
        with pytest.raises(ad.CopyError):
            ad.to_tensors(TABLE, columns={"x": ad.padded("full")}, copy=False)
        batch = TABLE.combine_chunks().to_batches()[0]
        found = ad.to_tensors(batch, columns={"x": ad.ragged("full")}, copy=False)["x"]
        assert not found.values.copied

    def test_lengths_are_a_copy_where_rows_without_elements_are_none(self):
        empty = pa.table({"z": pa.array([[], []], pa.list_(pa.int64()))})
        for group in (ad.padded("z", lengths="n"), ad.padded("z", length=0, lengths="n", validity="v")):
            with pytest.raises(ad.CopyError, match=r'column "z": .*lengths of rows counted'):
                ad.to_tensors(empty, columns={"x": group}, copy=False)
            report = ad.explain(empty, columns={"x": group}, copy=False)
            assert (report["x"].how, report["n"].how) == ("view", "refused")
        # A type without elements tells it, too.
        reader = empty.to_reader()
        with pytest.raises(ad.CopyError, match="lengths of rows counted"):
            ad.to_tensors(reader, columns={"x": group}, copy=False)
        assert reader.read_all().num_rows == 2
        assert ad.explain(empty.schema, columns={"x": group}, copy=False)["n"].how == "refused"
        # Neither a tensor without lengths nor lengths of no rows are a copy.
        for table, columns in (
            (empty, {"x": ad.padded("z", validity="v")}),
            (empty[:0], {"x": ad.padded("z", lengths="n")}),
        ):
            made = ad.to_tensors(table, columns=columns, copy=False)
            assert not any(tensor.copied for tensor in made.values())


class TestExplain:
    @pytest.mark.parametrize("size", [ROWS, 8])
    def test_says_what_is_made(self, size: int):
        columns = {
            "x": ad.padded("ids", lengths="k", validity="m", nulls=0),
            "y": ad.padded("full"),
            "r": ad.ragged("full"),
            "a": ad.arrow("words", "codes"),
            "z": ad.group(["n", "f"]),
        }
        table = chunked(size)
        report = ad.explain(table, columns=columns)
        rows = {row.column: row for row in [*report, *report.matrices]}
        with ad.track_copies() as log:
            found = ad.to_tensors(table, columns=columns)
        for name in ("x", "m", "k", "y", "z"):
            assert (rows[name].dtype, rows[name].shape) == (found[name].dtype, found[name].shape), name
            assert rows[name].error is None
            assert rows[name].how == "copy"
        for part in ("offsets", "values"):
            assert rows[f"r.{part}"].shape == getattr(found["r"], part).shape
            assert (rows[f"r.{part}"].how == "copy") == getattr(found["r"], part).copied
        assert rows["a"].shape == (ROWS,)
        assert rows["a"].how == ("view" if size == ROWS else "copy")
        assert rows["a"].dtype is None
        assert report.bytes == sum(entry.bytes for entry in log.entries)

    def test_of_a_schema(self):
        columns = {"x": ad.padded("ids", lengths="n", length=4), "r": ad.ragged("full"), "a": ad.arrow("words")}
        report = ad.explain(TABLE.schema, columns=columns)
        rows = {row.column: row for row in report}
        assert (rows["x"].dtype, rows["x"].shape, rows["n"].shape) == ("int16", (None, 4), (None,))
        assert any("null" in text for text in rows["x"].refused_if)
        assert any("more than 4 elements" in text for text in rows["x"].refused_if)
        assert (rows["a"].how, rows["a"].dtype) == ("view or copy", None)
        assert rows["r.values"].dtype == "int64"

    def test_tells_what_is_refused(self):
        columns = {"x": ad.padded("n"), "y": ad.padded("ids"), "a": ad.arrow("words")}
        report = ad.explain(chunked(9), columns=columns, copy=False)
        rows = {row.column: row for row in report}
        assert "no ragged form" in rows["x"].error
        assert rows["y"].error
        assert "rows joined" in rows["a"].error


def test_numpy_arrays_of_another_library():
    found = ad.to_tensors(TABLE, columns={"x": ad.padded("full", lengths="k"), "r": ad.ragged("full")}, xp="numpy")
    assert isinstance(found["x"], np.ndarray)
    assert isinstance(found["r"].values, np.ndarray)
    np.testing.assert_array_equal(found["k"], np.diff(found["r"].offsets))
    assert numpy_of(ad.to_tensors(TABLE, columns={"x": ad.padded("full")})["x"]).shape == found["x"].shape
