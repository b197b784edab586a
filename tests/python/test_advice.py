"""Errors whose advice is followed: the call that an error names works, and leads to no other error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from arrow_dlpack import huggingface, ray

WORDS = pa.array(["a", "b", "a"])
CODES = WORDS.dictionary_encode()
CHUNKS = pa.chunked_array([CODES, pa.array(["c"]).dictionary_encode()])
NUMBERS = pa.chunked_array([pa.array([5]).dictionary_encode(), pa.array([7]).dictionary_encode()])
RUNS = pc.run_end_encode(WORDS)
MIXED = pa.table({"d": CODES, "n": [1.0, 2.0, 3.0]})
STRUCTS = pa.table({"s": [{"t": 1, "u": {"v": 2}}], "a": [3]})
INNER = pa.table({"s": [{"u": {"v": 2}}]})
NESTED = pa.array([[[1, 2], [3]], [[4], [5]]])
NULLS = pa.array([True, None])
LISTS = pa.table({"l": [[1, 2], [3, 4]]})
PAIRS_OF_CODES = pa.FixedSizeListArray.from_arrays(pa.array(["a", "b"]).dictionary_encode(), 2)
MATRIX = pa.py_buffer(np.arange(4.0))
COLUMN_MAJOR = pa.RecordBatch.from_arrays(
    [pa.Array.from_buffers(pa.float64(), 2, [None, MATRIX[start : start + 16]]) for start in (0, 16)], ["a", "b"]
)
SECONDS = pa.array([1_700_000_000], pa.timestamp("s"))
TIMES = pa.table({"s": SECONDS, "ms": SECONDS.cast(pa.timestamp("ms")), "d": pa.array([19_675], pa.date32())})
CATEGORY = pd.Series(["a", "b"], dtype="category").cat.categories


def array(x: Any, **options: Any) -> np.ndarray:
    return np.from_dlpack(ad.to_tensor(x, **options))


# What was tried, the part of the error's remedy that says what to do, the call that does it, and what it returns.
CASES: list[tuple[Callable[[], Any], str, Callable[[], Any], Any]] = [
    (
        lambda: ad.to_tensor(CHUNKS),
        "pass a list of all values as categories=",
        lambda: array(CHUNKS, categories=["a", "b", "c"]).tolist(),
        [0, 1, 0, 2],
    ),
    (
        lambda: ad.to_tensor(NUMBERS),
        'pass dictionary="values"',
        lambda: array(NUMBERS, dictionary="values").tolist(),
        [5, 7],
    ),
    (
        lambda: ad.to_tensor(CHUNKS, dictionary="values"),
        "or categories= for codes of your own",
        lambda: array(CHUNKS, categories=["a", "b", "c"]).tolist(),
        [0, 1, 0, 2],
    ),
    (
        lambda: ad.to_tensor(MIXED),
        'pass dictionary="codes" and dtype="float64"',
        lambda: array(MIXED, dictionary="codes", dtype="float64").tolist(),
        [[0, 1], [1, 2], [0, 3]],
    ),
    (
        lambda: ad.to_tensor(MIXED, dtype="float64"),
        'pass dictionary="codes"',
        lambda: array(MIXED, dictionary="codes", dtype="float64").tolist(),
        [[0, 1], [1, 2], [0, 3]],
    ),
    (
        lambda: ad.to_tensor(TIMES),
        'pass unit="s"',
        lambda: array(TIMES, unit="s").tolist(),
        [[1_700_000_000, 1_700_000_000, 19_675 * 86_400]],
    ),
    (
        lambda: ad.to_tensor(pa.table({"s": SECONDS, "x": [1.5]})),
        'pass unit="s"',
        lambda: array(pa.table({"s": SECONDS, "x": [1.5]}), unit="s", dtype="float64").tolist(),
        [[1_700_000_000, 1.5]],
    ),
    (
        lambda: ad.to_tensor(WORDS),
        "pass it to to_ragged for its bytes, or pass categories=",
        lambda: (array(WORDS, categories=["a", "b"]).tolist(), len(ad.to_ragged(WORDS))),
        ([0, 1, 0], 3),
    ),
    (
        lambda: ad.to_tensor(RUNS),
        "pass categories= for codes of the values, or decode the runs first",
        lambda: (array(RUNS, categories=["a", "b"]).tolist(), len(ad.to_ragged(pc.run_end_decode(RUNS)))),
        ([0, 1, 0], 3),
    ),
    (
        lambda: ad.to_ragged(RUNS),
        "decode the runs first, such as with pyarrow.compute.run_end_decode",
        lambda: len(ad.to_ragged(pc.run_end_decode(RUNS))),
        3,
    ),
    (
        lambda: ad.to_ragged(pa.array([1, 2]).dictionary_encode()),
        "pass it to to_tensor",
        lambda: array(pa.array([1, 2]).dictionary_encode()).tolist(),
        [0, 1],
    ),
    (
        lambda: ad.to_tensor(CHUNKS, copy=False),
        "pass a list of all values as categories=",
        lambda: array(CHUNKS, categories=["a", "b", "c"]).tolist(),
        [0, 1, 0, 2],
    ),
    (
        lambda: ad.to_tensor(COLUMN_MAJOR, copy=False, writable=True),
        "pass copy=None to allow it",
        lambda: array(COLUMN_MAJOR, writable=True).tolist(),
        [[0, 2], [1, 3]],
    ),
    (
        lambda: ad.to_tensors(pa.table({"x": PAIRS_OF_CODES}), unit={"x": "s"}),
        "leave the column out of unit=",
        lambda: ad.to_tensors(pa.table({"x": PAIRS_OF_CODES}), categories={"x": ["a", "b"]})["x"].shape,
        (1, 2),
    ),
    (
        lambda: ad.to_tensors(LISTS, columns={"p": ad.padded("l")}, length={"l": 2}),
        "leave the column out of length=",
        lambda: ad.to_tensors(LISTS, columns={"p": ad.padded("l")})["p"].shape,
        (2, 2),
    ),
    (
        lambda: ad.to_tensors(LISTS, columns={"r": ad.ragged("l")}, length={"l": 2}),
        "leave the column out of length=",
        lambda: len(ad.to_tensors(LISTS, columns={"r": ad.ragged("l")})["r"]),
        2,
    ),
    (
        lambda: ad.to_tensors(STRUCTS),
        'columns=["s.t"]',
        lambda: np.from_dlpack(ad.to_tensors(STRUCTS, columns=["s.t"])["s.t"]).tolist(),
        [1],
    ),
    (
        lambda: ad.to_tensor(INNER),
        'columns=["s.u.v"]',
        lambda: array(INNER, columns=["s.u.v"]).tolist(),
        [[2]],
    ),
    (
        lambda: ad.to_tensor(NESTED, length=2),
        "pass it to to_ragged: length= makes rows of the outer lists alone",
        lambda: len(ad.to_ragged(NESTED)),
        2,
    ),
    (
        lambda: ad.to_tensor(pa.array([1.5]), dtype="float8_e4m3fn"),
        'pass dtype="float32", and cast the result',
        lambda: array(pa.array([1.5]), dtype="float32").dtype.name,
        "float32",
    ),
    (
        lambda: ad.to_arrow(np.arange(2), validity=NULLS),
        "validity.fill_null(False)",
        lambda: pa.array(ad.to_arrow(np.arange(2), validity=NULLS.fill_null(False))).to_pylist(),
        [0, None],
    ),
]


@pytest.mark.parametrize(("wrong", "advice", "followed", "expected"), CASES)
def test_the_remedy_is_followed(wrong, advice, followed, expected):
    with pytest.raises(ad.ConversionError, match=re.escape(advice)) as caught:
        wrong()
    assert advice in caught.value.remedy
    assert followed() == expected


def batch_of(table: pa.Table, **options: Any) -> dict[str, Any]:
    (batch,) = ad.Loader(table, batch_size=len(table), **options)
    return batch


@pytest.mark.parametrize("convert", [ad.to_tensors, batch_of])
@pytest.mark.parametrize(
    ("column", "advice"),
    [
        (pa.array(["to", "be!"]), 'columns={"s": ad.padded("s")}, or as ad.ragged or ad.arrow, or pass categories='),
        (
            pa.array([[1], [2, 3]]),
            'columns={"s": ad.ragged("s")} for what to_ragged returns, or as ad.padded or ad.arrow, or pass length=',
        ),
        (NESTED, 'columns={"s": ad.ragged("s")}'),
    ],
)
def test_lists_and_strings_are_groups_where_results_have_names(convert, column, advice):
    table = pa.table({"s": column, "n": [1, 2]})
    calls = [{}, {"columns": {"x": "s"}}, {"columns": {"x": ["n", "s"]}}]
    for options in calls if convert is batch_of else [*calls, {"columns": ["s"]}]:
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            convert(table, **options)
        assert "pass it to to_ragged" not in caught.value.remedy
        assert advice in caught.value.remedy
    for form in (ad.padded, ad.ragged, ad.arrow) if column is not NESTED else (ad.ragged, ad.arrow):
        assert list(convert(table, columns={"s": form("s")})) == ["s"]


def test_columns_share_the_line_of_their_groups():
    with pytest.raises(ad.UnsupportedTypeError, match=r'^columns "a", "b": .*columns=\{"a": ad\.padded\("a"\)\}'):
        ad.to_tensors(pa.table({"a": ["x"], "b": ["y"]}))


@pytest.mark.parametrize(
    "dtype",
    [
        pa.timestamp("ms"),
        pa.duration("ms"),
        "datetime64[ms]",
        "timedelta64[ms]",
        "<M8[ms]",
        np.dtype("datetime64[ms]"),
        np.dtype(">M8[ms]"),
        pd.DatetimeTZDtype("ms", "UTC"),
        pl.Datetime("ms"),
        pl.Duration("ms"),
    ],
)
def test_a_type_of_times_is_a_unit(dtype):
    with pytest.raises(ValueError, match=r'is not a dtype: pass unit="ms" instead, for integers of that unit'):
        ad.to_tensor(SECONDS, dtype=dtype)
    assert array(SECONDS, unit="ms").tolist() == [1_700_000_000_000]


@pytest.mark.parametrize("dtype", [np.datetime64, "datetime64", np.dtype("datetime64[D]"), pl.Datetime])
def test_a_type_of_times_without_a_unit(dtype):
    with pytest.raises(ValueError, match=r'is not a dtype: pass unit="s" instead, .*, or another unit'):
        ad.to_tensor(SECONDS, dtype=dtype)


def test_nulls_of_a_validity_are_named():
    with pytest.raises(ad.NullError, match="the validity has nulls") as caught:
        ad.to_arrow(np.arange(2), validity=NULLS)
    assert caught.value.row == 1
    assert "keep" not in str(caught.value)


@pytest.mark.parametrize("values", [CATEGORY, np.array(["a", "b"]), np.array(["a", "b"], dtype=object)])
def test_categories_of_other_types_name_the_argument(values):
    with pytest.raises(TypeError, match=r"categories must be a list .*; pass list\(values\)$"):
        ad.to_tensor(WORDS, categories=values)
    assert array(WORDS, categories=list(values)).tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", [set, frozenset])
def test_categories_of_a_set_have_no_order_to_keep(kind):
    with pytest.raises(TypeError, match=r"pass sorted\(values\): processes have"):
        ad.to_tensor(WORDS, categories=kind(["b", "a"]))
    assert array(WORDS, categories=sorted(kind(["b", "a"]))).tolist() == [0, 1, 0]


def test_categories_of_numbers_may_be_a_tensor():
    assert array(pa.array([7, 5]), categories=np.array([5, 7])).tolist() == [1, 0]


def test_to_arrow_of_what_is_no_tensor():
    data = {"a": np.array([1, 2])}
    with pytest.raises(TypeError, match="got dict; a dict is no tensor: pass ") as caught:
        ad.to_arrow(data)
    line = str(caught.value).split(": pass ")[1]
    made = eval(line, {"pyarrow": pa, "arrow_dlpack": ad, "data": data})
    assert made.to_pydict() == {"a": [1, 2]}
    with pytest.raises(TypeError, match=r"got Table; it is Arrow data already: pass arrow_dlpack\.from_arrow\(data\)"):
        ad.to_arrow(MIXED)
    with pytest.raises(TypeError, match=r"got int$"):
        ad.to_arrow(3)


def test_wrong_names_and_states_are_named():
    with pytest.raises(TypeError, match="columns has the key 5"):
        ad.to_tensors(MIXED, columns={5: "n"})
    with pytest.raises(TypeError, match=r"the state must be a dict of state_dict\(\), not int"):
        ad.Loader(MIXED, batch_size=1, columns=["n"]).load_state_dict(5)


class Rows:
    """A data set of Hugging Face with two rows, as far as `shards` asks."""

    cache_files: tuple[str, ...] = ()

    def __len__(self) -> int:
        return 2

    def with_format(self, name: str) -> Rows:
        raise NotImplementedError

    def shard(self, num_shards: int, index: int, contiguous: bool) -> list[int]:
        return [0] * (2 // num_shards)


def test_shards_are_no_more_than_rows():
    assert huggingface.shards(Rows(), 2) == [([0], 1), ([0], 1)]
    with pytest.raises(ValueError, match="the data set has 2 rows, and num_shards is 3; pass as many at most"):
        huggingface.shards(Rows(), 3)


def test_shards_of_a_small_selection_are_no_more_than_its_rows():
    class Selection(Rows):
        cache_files = ("a", "b", "c")

    assert huggingface.shards(Selection()) == [([0], 1), ([0], 1)]


def test_a_split_of_ray_without_rows_and_columns():
    class Split:
        def iter_batches(self, **options: object) -> list[pa.Table]:
            return []

        def schema(self) -> None:
            return None

    with pytest.raises(ValueError, match="the split has no rows, and Ray does not know its columns"):
        list(ray.loader(Split(), batch_size=1, xp="numpy"))


def test_one_is_singular_and_no_name_is_quoted():
    with ad.track_copies() as log:
        ad.to_tensor(pa.array([True]))
    assert str(log) == "1 byte: 1 row of Boolean (bits unpacked to bytes)"
    assert repr(log) == "CopyLog(1 copy, 1 byte)"
    with ad.track_copies() as log:
        ad.to_arrow(np.array([True, False]), type=pa.bool_())
    assert [(entry.what, entry.why) for entry in log] == [("2 rows of Int8", "cast to Boolean, as requested")]
    assert repr(ad.from_arrow(pa.record_batch({"a": [1]}))).startswith("RecordBatch(1 row,")
    assert repr(ad.to_ragged(pa.array([[1]]))).startswith("Ragged(1 row,")
    with pytest.raises(ad.CopyError, match="a copy of 1 byte is needed"):
        ad.to_tensor(pa.array([True]), copy=False)


def test_kept_nulls_return_with_the_validity_of_the_source():
    column = pa.array([1, None, 3])
    kept = ad.to_tensor(column, nulls="keep")
    assert pa.array(ad.to_arrow(kept)).null_count == 0
    assert pa.array(ad.to_arrow(kept, validity=ad.validity(column))) == column


def test_no_advice_is_given_that_cannot_help() -> None:
    """Codes are of another type than the values, but there is no cast of them to that dtype, either."""
    for options in ({"dictionary": "codes"}, {"categories": [5, 7]}, {}):
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_tensor(pa.array([5, 7]).dictionary_encode(), dtype="float8_e5m2", **options)
        assert "codes" not in str(caught.value.remedy)
        assert "categories" not in str(caught.value.remedy)
