"""Lists of one length, categories and validity where values stand behind dictionaries, runs and fixed-size lists.

Only what a row shows counts, and a validity has the shape of its tensor.
"""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

LISTS = pa.list_(pa.int32())
# The second has one item too few.
WRONG_AT_1 = pa.array([[1, 2], [9], [5, 6]], LISTS)
PAIRS = pa.FixedSizeListArray.from_arrays(
    pa.array([[1, 2], [3, 4], [9], [9, 9, 9], [5, 6], [7, 8]], LISTS), 2
)  # of which the second is wrong, too


def codes(*of: int | None) -> pa.Array:
    return pa.array(of, pa.int32())


def dictionary(values: pa.Array, *of: int | None) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(codes(*of), values)


def runs(values: pa.Array, *ends: int) -> pa.RunEndEncodedArray:
    return pa.RunEndEncodedArray.from_arrays(codes(*ends), values)


def null_at_1(items: pa.Array, size: int = 1) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(items, size, mask=pa.array([False, True, False]))


FIRST, LAST = [[1, 2], [3, 4]], [[5, 6], [7, 8]]
SHOWN: dict[str, tuple[pa.Array, Any]] = {
    "values of a dictionary that no code stands for": (dictionary(PAIRS, 0, 2, 2), [FIRST, LAST, LAST]),
    "runs ahead of a slice": (runs(PAIRS, 2, 4, 5).slice(4), [LAST]),
    "runs behind a slice": (runs(PAIRS, 2, 4, 5).slice(1, 1), [FIRST]),
    "rows of runs that no code stands for": (dictionary(runs(WRONG_AT_1, 1, 2, 3), 0, 2), [[1, 2], [5, 6]]),
    "values of a dictionary that no run shows": (runs(dictionary(WRONG_AT_1, 0, 1, 2), 1, 2, 3).slice(2), [[5, 6]]),
    "below two null lists": (
        null_at_1(pa.FixedSizeListArray.from_arrays(WRONG_AT_1, 1)),
        [[[[1, 2]]], [[[0, 0]]], [[[5, 6]]]],
    ),
    "runs below null lists": (null_at_1(runs(WRONG_AT_1, 1, 2, 3)), [[[1, 2]], [[0, 0]], [[5, 6]]]),
}


@pytest.mark.parametrize("case", SHOWN)
def test_lists_that_no_row_shows_may_have_any_length(case: str) -> None:
    data, expected = SHOWN[case]
    assert np.asarray(ad.to_tensor(data, length=2, nulls=0, dictionary="values")).tolist() == expected


@pytest.mark.parametrize("encoded", [WRONG_AT_1, dictionary(WRONG_AT_1, 0, 1, 2), runs(WRONG_AT_1, 1, 2, 3)])
def test_lists_of_null_structs_may_have_any_length(encoded: pa.Array) -> None:
    data = pa.StructArray.from_arrays([encoded], ["a"], mask=pa.array([False, True, False]))
    made = ad.to_tensors(data, length=2, nulls=0, dictionary="values")
    assert np.asarray(made["a"]).tolist() == [[1, 2], [0, 0], [5, 6]]


@pytest.mark.parametrize(
    ("data", "row"),
    [
        (dictionary(PAIRS, 0, 2, 1), 2),
        (dictionary(PAIRS, None, 1, 1), 1),
        (runs(PAIRS, 2, 4, 5), 2),
        (runs(PAIRS, 2, 4, 5).slice(3), 0),
        (dictionary(runs(WRONG_AT_1, 1, 2, 3), 0, 2, 1), 2),
        (runs(dictionary(WRONG_AT_1, 0, 1, 2), 2, 3, 4), 2),
    ],
)
def test_a_wrong_length_is_that_of_the_first_row_that_shows_it(data: pa.Array, row: int) -> None:
    with pytest.raises(ad.ConversionError, match="the list has 1 element, and not 2") as caught:
        ad.to_tensor(data, length=2, nulls=0, dictionary="values")
    assert caught.value.row == row


def test_a_wrong_length_within_a_null_struct_is_not_the_first_of_its_run() -> None:
    encoded = runs(WRONG_AT_1, 1, 3, 4)
    data = pa.StructArray.from_arrays([encoded], ["a"], mask=pa.array([False, True, False, False]))
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_tensors(data, length=2, nulls=0)
    assert caught.value.row == 2


WORDS = pa.FixedSizeListArray.from_arrays(pa.array(["a", "b", "other", "a", "b", "b"]), 2)


@pytest.mark.parametrize("of", [(0, 2, 0, 0), (0, 2), (2,), ()])
def test_categories_of_nested_values_do_not_depend_on_the_number_of_rows(of: tuple[int, ...]) -> None:
    found = {0: [0, 1], 2: [1, 1]}
    made = ad.to_tensor(dictionary(WORDS, *of), categories=["a", "b"])
    assert np.asarray(made).tolist() == [found[code] for code in of]
    in_runs = dictionary(runs(pa.array(["a", "other", "b"]), 1, 2, 3), *of)
    made = ad.to_tensor(in_runs, categories=["a", "b"])
    assert np.asarray(made).tolist() == [{0: 0, 2: 1}[code] for code in of]


HOLES = pa.array([[1, None], [3, 4], None], pa.list_(pa.int32(), 2))
ANY_HOLES = HOLES.cast(LISTS)
VALID = [[True, False], [True, True], [False, False], [False, False]]


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (dictionary(HOLES, 0, 1, 2, None), {"dictionary": "values"}),
        (dictionary(HOLES, 0, 1, 2, None), {"dtype": "float32"}),
        (runs(HOLES, 1, 2, 4), {}),
        (dictionary(ANY_HOLES, 0, 1, 2, None), {"dictionary": "values", "length": 2}),
        (runs(ANY_HOLES, 1, 2, 4), {"length": 2}),
    ],
)
def test_a_validity_has_the_shape_of_its_tensor(data: pa.Array, options: dict[str, Any]) -> None:
    batch = pa.record_batch({"a": data, "n": pa.array([1, None, 3, 4], pa.int32())})
    for column, valid in [("a", VALID), (["a", "n"], [[*row, at != 1] for at, row in enumerate(VALID)])]:
        groups = {"x": ad.group(column, validity="valid")}
        made = ad.to_tensors(batch, columns=groups, nulls=0, **options)
        assert made["valid"].shape == made["x"].shape
        assert np.asarray(made["valid"]).tolist() == valid
        report = ad.explain(batch, columns=groups, nulls=0, **options)
        assert report.rows[-1].shape == made["x"].shape
        batches = list(ad.Loader(batch, batch_size=3, columns=groups, nulls=0, **options))
        assert np.concatenate([np.asarray(part["valid"]) for part in batches]).tolist() == valid


def test_a_validity_of_lists_of_lists_has_the_shape_of_its_tensor() -> None:
    items = pa.array([[1, None], [3, 4], [5, 6], None], LISTS)
    lists = pa.FixedSizeListArray.from_arrays(items, 2)
    expected = [[[True, False], [True, True]], [[True, True], [False, False]]]
    for data in (lists, runs(lists, 1, 2), dictionary(lists, 0, 1)):
        batch = pa.record_batch({"a": data})
        groups = {"x": ad.group("a", validity="valid")}
        made = ad.to_tensors(batch, columns=groups, nulls=0, length=2, dictionary="values")
        assert np.asarray(made["valid"]).tolist() == expected


def test_a_validity_of_codes_has_their_shape() -> None:
    words = pa.array([["a", None], ["b", "a"], None], pa.list_(pa.string(), 2))
    for data in (words, dictionary(words, 0, 1, 2), runs(words, 1, 2, 3)):
        batch = pa.record_batch({"a": data})
        groups = {"x": ad.group("a", validity="valid")}
        made = ad.to_tensors(batch, columns=groups, nulls=0, categories={"a": ["a", "b"]})
        assert np.asarray(made["x"]).tolist() == [[0, 0], [1, 0], [0, 0]]
        assert np.asarray(made["valid"]).tolist() == VALID[:3]
    # Codes of the column's own dictionary have no dimension that its values have.
    batch = pa.record_batch({"a": dictionary(HOLES, 0, 1, 2, None)})
    made = ad.to_tensors(batch, columns={"x": ad.group("a", validity="valid")}, nulls=0)
    assert np.asarray(made["valid"]).tolist() == [True, True, False, False]
