"""Rows that are tensors of a shape of their own: what they refuse."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest


def test_null_rows_of_variable_shape_have_no_fill_as_a_remedy():
    lists = pa.array([[1, 2], None], pa.list_(pa.int32()))
    shapes = pa.array([[1, 2], [1, 2]], pa.list_(pa.int32(), 2))
    storage = pa.StructArray.from_arrays([lists, shapes], ["data", "shape"], mask=pa.array([False, True]))
    metadata = {"ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": "{}"}
    schema = pa.schema([pa.field("x", storage.type, metadata=metadata)])
    column = ad.from_arrow(pa.RecordBatch.from_arrays([storage], schema=schema))["x"]
    for nulls in ("error", 0):
        with pytest.raises(ad.NullError, match="row 1") as caught:
            ad.to_ragged(column, nulls=nulls)
        assert caught.value.remedy == 'pass nulls="keep" for the validity of rows'
    assert np.array_equal(ad.to_ragged(column, nulls="keep", xp=np).validity, [True, False])


def test_rows_with_shapes_have_no_complex_values():
    """arrow.variable_shape_tensor has values of one number."""
    with pytest.raises(ad.ConversionError, match="complex"):
        ad.Ragged(np.zeros(4, "complex64"), np.array([0, 4], "int32"), shapes=np.array([[2, 2]], "int32"))


@pytest.mark.parametrize(
    ("value", "item"),
    [([1, 2], pa.list_(pa.int32(), 2)), ([1, 2], pa.list_(pa.int32())), ("ab", pa.string())],
)
def test_elements_are_single_values(value, item):
    lists, shapes = pa.array([[value]], pa.list_(item)), pa.array([[1]], pa.list_(pa.int32(), 1))
    storage = pa.StructArray.from_arrays([lists, shapes], ["data", "shape"])
    metadata = {"ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": "{}"}
    schema = pa.schema([pa.field("x", storage.type, metadata=metadata)])
    column = ad.from_arrow(pa.RecordBatch.from_arrays([storage], schema=schema))["x"]
    with pytest.raises(ad.UnsupportedTypeError, match=r"arrow\.variable_shape_tensor of"):
        ad.to_ragged(column)


@pytest.mark.parametrize(
    "shapes", [np.array([[[2], [2]]], "int32"), np.array([[2, 2]], "int64"), np.array([4], "int32")]
)
def test_shapes_are_int32_of_two_dimensions(shapes):
    with pytest.raises(ad.ConversionError, match="shapes must be int32 of shape"):
        ad.Ragged(np.zeros(4), np.array([0, 4], "int32"), shapes=shapes)


@pytest.mark.parametrize("nulls", ["error", "keep", 0])
def test_a_shape_that_is_null_in_part_is_refused_as_null(nulls):
    shapes = pa.array([[2, 1], [2, None]], pa.list_(pa.int32(), 2))
    storage = pa.StructArray.from_arrays([pa.array([[1, 2], [3, 4]], pa.list_(pa.int32())), shapes], ["data", "shape"])
    metadata = {"ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": "{}"}
    schema = pa.schema([pa.field("x", storage.type, metadata=metadata)])
    column = ad.from_arrow(pa.RecordBatch.from_arrays([storage], schema=schema))["x"]
    with pytest.raises(ad.ConversionError, match="row 1: the shape of a tensor is null"):
        ad.to_ragged(column, nulls=nulls)
