"""`to_tensors(columns={...})`: named groups, a list of columns being a matrix."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support import numpy_of

BATCH = pa.record_batch(
    {
        "a": pa.array([1.5, None, 3.0], pa.float32()),
        "b": pa.array([1, 2, 3], pa.int16()),
        "label": pa.array([0, 1, 0], pa.int64()),
        "p": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
        "r": pa.array([[1, 2], [], [5]], pa.list_(pa.int32())),
    }
)
GROUPS: Any = {"x": ["b", "a"], "y": "label", "p": "p"}


@pytest.mark.parametrize(
    "source",
    [BATCH, pa.Table.from_batches([BATCH.slice(0, 2), BATCH.slice(2)]), ad.from_arrow(BATCH)],
    ids=["batch", "table", "own"],
)
def test_a_list_is_a_matrix_and_a_name_its_column(source: Any):
    tensors = ad.to_tensors(source, columns=GROUPS, nulls={"a": "nan"})
    assert list(tensors) == ["x", "y", "p"]
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} == {
        "x": ((3, 2), "float32"),
        "y": ((3,), "int64"),
        "p": ((3, 2), "int32"),
    }
    np.testing.assert_array_equal(numpy_of(tensors["x"]), [[1, 1.5], [2, np.nan], [3, 3]])
    np.testing.assert_array_equal(numpy_of(tensors["y"]), [0, 1, 0])


def test_of_another_library():
    frame = pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [1, 0]})
    arrays = ad.to_tensors(frame, columns={"x": ["a", "b"], "y": "y"}, xp=np, order="F", threads=1)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert arrays["x"].strides[0] == 8
    np.testing.assert_array_equal(arrays["x"], frame.select("a", "b").to_numpy())


def test_a_column_may_be_in_several_and_groups_may_be_called_as_columns():
    tensors = ad.to_tensors(BATCH, columns={"b": ["label", "b"], "label": "b", "one": ["b"]})
    np.testing.assert_array_equal(numpy_of(tensors["b"]), [[0, 1], [1, 2], [0, 3]])
    assert (tensors["label"].shape, tensors["one"].shape) == ((3,), (3, 1))
    assert not tensors["label"].copied
    assert not tensors["one"].copied


def test_a_list_of_names_is_each_for_itself():
    assert list(ad.to_tensors(BATCH, columns=["label", "b"])) == ["label", "b"]
    assert ad.to_tensors(BATCH, columns={}) == {}


def test_a_dtype_is_that_of_all():
    tensors = ad.to_tensors(BATCH, columns={"x": ["a", "b"], "y": "label"}, dtype="float64", nulls=0)
    assert {tensor.dtype for tensor in tensors.values()} == {"float64"}
    tensors = ad.to_tensors(BATCH, columns={"x": ["label", "b"], "y": "label"}, dtype={"label": "int32"})
    assert [tensors[name].dtype for name in "xy"] == ["int32", "int32"]


@pytest.mark.parametrize(
    ("columns", "keywords", "error"),
    [
        ({"x": ["a", "z"]}, {"nulls": 0}, 'column "z": there is no such column'),
        ({"x": "z"}, {}, 'column "z": there is no such column'),
        ({"x": ["b", "b"]}, {}, "more than once"),
        ({"x": []}, {}, 'group "x".*dtype='),
        ({"x": ["b", "r"]}, {}, '"r".*length='),
        ({"x": ["a", "b"]}, {}, '"a", row 1'),
        ({"y": "label"}, {"dtype": {"z": "int8"}}, '"z"'),
    ],
    ids=["missing in a list", "missing", "twice", "none", "lists", "null", "options of a missing one"],
)
def test_what_is_wrong_with_one(columns: Any, keywords: Any, error: str):
    with pytest.raises(ad.ConversionError, match=error):
        ad.to_tensors(BATCH, columns=columns, **keywords)


def test_nothing_is_converted_before_all_are_known_to_be_possible():
    with ad.track_copies() as log, pytest.raises(ad.ConversionError):
        ad.to_tensors(BATCH, columns={"x": ["b", "label"], "y": "z"})
    assert len(log) == 0


@pytest.mark.parametrize("columns", [{1: "a"}, {"x": 1}, {"x": [1]}, {"x": {"y": "a"}}, {"x": None}], ids=repr)
def test_groups_are_names_of_columns(columns: Any):
    with pytest.raises(TypeError):
        ad.to_tensors(BATCH, columns=columns)


def test_one_array_has_no_groups():
    with pytest.raises(ad.ConversionError, match="to_tensor"):
        ad.to_tensors(pa.array([1]), columns={"x": ["a"]})


def test_copies_are_logged_by_group():
    with ad.track_copies() as log:
        ad.to_tensors(BATCH, columns={"x": ["b", "label"], "y": "label"})
    (entry,) = log
    assert entry.bytes == 3 * 2 * 8
    assert "2 columns" in entry.what
