"""`explain(order=...)` and `explain(columns={...})`: what becomes of each column in a matrix, and of the matrix."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

BATCH = pa.record_batch(
    {
        "a": pa.array([1.5, None, 3.0], pa.float32()),
        "b": pa.array([1, 2, 3], pa.int16()),
        "c": pa.array([True, False, True]),
        "d": pa.array([1.0, 2.0, 1.0]).dictionary_encode(),
    }
)


def test_each_column_has_its_steps_and_the_matrix_its_own():
    report = ad.explain(BATCH, order="C", nulls="nan", dictionary="values")
    assert [row.column for row in report] == ["a", "b", "c", "d"]
    assert [row.shape for row in report] == [(3,)] * 4
    assert {row.dtype for row in report} == {"float64"}
    assert [row.steps for row in report] == [
        ["cast from float32 to float64", "1 null filled", "packed row-major"],
        ["cast from int16 to float64", "packed row-major"],
        ["bits unpacked to bytes", "cast from bool to float64", "packed row-major"],
        ["decoded", "packed row-major"],
    ]
    assert [row.bytes for row in report] == [24, 24, 24, 48]
    (matrix,) = report.matrices
    assert (matrix.shape, matrix.dtype, matrix.how, matrix.bytes) == ((3, 4), "float64", "copy", 120)
    assert matrix.promotion == 'promoted from float32 ("a"), int16 ("b"), bool ("c"), float64 ("d")'
    assert report.bytes == matrix.bytes
    with ad.track_copies() as log:
        ad.to_tensor(BATCH, nulls="nan", dictionary="values")
    assert [(entry.why, entry.bytes) for entry in log] == [(", ".join(matrix.steps), matrix.bytes)]


def test_its_text_ends_with_the_matrix():
    text = str(ad.explain(BATCH, order="C", columns=["a", "b"], nulls=0))
    *columns, last = text.splitlines()[1:]
    assert [line.split()[0] for line in columns] == ["a", "b"]
    assert last.split()[0] == "matrix"
    assert "(3, 2)" in last
    assert "promoted from" in last
    assert "packed row-major" in last


@pytest.mark.parametrize("order", ["F", "A"])
def test_of_a_view(order: Any):
    source = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    batch = pa.record_batch([pa.array(column) for column in source.T], names=["a", "b"])
    report = ad.explain(batch, order=order)
    assert [row.how for row in (*report, *report.matrices)] == ["view"] * 3
    assert report.matrices[0].promotion == "all columns are float64"
    assert "the layouts agree" in str(report)
    assert ad.explain(batch, order="C").matrices[0].how == "copy"
    assert ad.explain(batch, order=order, dtype="float32").matrices[0].promotion == "float32 as asked for"
    private = ad.explain(batch, order=order, writable=True).matrices[0]
    assert private.steps == ["memory of its own asked for", f"packed {'column' if order == 'F' else 'row'}-major"]


def test_of_a_schema():
    report = ad.explain(BATCH.schema, order="C", nulls="nan", dictionary="values")
    (matrix,) = report.matrices
    assert (matrix.shape, matrix.dtype, matrix.how) == ((None, 4), "float64", "copy")
    assert [row.steps for row in report][1] == ["cast from int16 to float64", "nulls filled, if there are any"]
    floats = pa.schema({"x": pa.float32(), "y": pa.float32()})
    assert ad.explain(floats, order="F").matrices[0].how == "view or copy"


def test_refusals_stand_in_the_column_and_in_the_matrix():
    report = ad.explain(BATCH, order="C", dictionary="values")
    assert [row.how for row in report] == ["refused", "copy", "copy", "copy"]
    assert "null" in report["a"].error
    assert report.matrices[0].how == "refused"
    assert '"a", row 1' in report.matrices[0].error
    mixed = pa.record_batch({"x": pa.array([1.0]), "s": pa.array(["a"])})
    report = ad.explain(mixed, order="C")
    assert [row.how for row in (*report, *report.matrices)] == ["copy", "refused", "refused"]
    codes = pa.record_batch({"x": pa.array([1.0]), "t": pa.array([1], pa.timestamp("s"))})
    for data in (codes, codes.schema):
        report = ad.explain(data, order="C")
        assert '"t"' in report.matrices[0].error
        assert '"x"' in report.matrices[0].error
        assert report.matrices[0].dtype is None
    never = ad.explain(BATCH, order="C", columns=["b"], dtype="int8", copy=False)
    assert "copy" in never.matrices[0].error
    with pytest.raises(ad.CopyError):
        ad.to_tensor(BATCH, columns=["b"], dtype="int8", copy=False)


@pytest.mark.parametrize("options", [{"order": "C"}, {"columns": {"x": ["a"]}}], ids=["matrix", "group"])
def test_bytes_above_1_are_refused_in_the_rows_of_column_and_matrix(options: dict[str, Any]):
    batch = pa.record_batch({"a": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 2], pa.int8()))})
    report = ad.explain(batch, copy=False, **options)
    for row in (*report, *report.matrices):
        assert (row.how, row.bytes, row.steps, row.refused_if) == ("view", 0, [], ["bytes are above 1"])
    assert report.bytes == 0
    with pytest.raises(ad.CopyError):
        ad.to_tensors(batch, columns={"x": ["a"]}, copy=False)
    report = ad.explain(batch, **options)
    assert {(row.how, row.bytes) for row in (*report, *report.matrices)} == {("view or copy", 3)}


@pytest.mark.parametrize("data", [BATCH, BATCH.schema], ids=["batch", "schema"])
def test_of_groups(data: Any):
    report = ad.explain(data, columns={"x": ["b", "c"], "y": "b"})
    assert [row.column for row in report] == ["b", "c", "y"]
    assert [row.column for row in report.matrices] == ["x"]
    # Data of a schema may be in several chunks.
    assert report["y"].how == ("view" if data is BATCH else "view or copy")
    assert report["x"].dtype == "int16"
    assert "x  " in str(report)


def test_without_an_order_columns_are_tensors_of_their_own():
    report = ad.explain(BATCH, nulls="nan")
    assert report.matrices == []
    assert [row.dtype for row in report] == ["float32", None, None, None]


def test_a_single_column_has_no_matrix():
    assert ad.explain(pa.array([1]), order="F").matrices == []
    with pytest.raises(ad.ConversionError):
        ad.explain(pa.array([1]), columns={"x": ["a"]})


def test_a_refused_matrix_tells_the_reasons_of_each_column():
    batch = pa.record_batch({"i": [1, None], "t": pa.array([1, None], pa.timestamp("s"))})
    report = ad.explain(batch, order="C")
    assert "do not mix" in report.matrices[0].error
    assert [row.how for row in report] == ["refused", "refused"]
    assert all("has nulls" in row.error for row in report)
    report = ad.explain(batch, order="C", nulls={"i": 0})
    assert [row.how for row in report] == ["copy", "refused"]
    assert "1 null filled" in str(report)
    report = ad.explain(batch.schema, order="C")
    assert "refused if values are null" in str(report)
    # The type of one column leaves no matrix: the others tell what would be done to them.
    batch = pa.record_batch({"x": [1.0, 2.0], "s": ["a", "b"]})
    for order, step in (("C", "packed row-major"), ("F", "packed column-major")):
        x = ad.explain(batch, order=order)["x"]
        assert (x.how, x.steps, x.bytes) == ("copy", [step], 16)
        assert ad.explain(batch.schema, order=order)["x"].steps == [step]


@pytest.mark.parametrize("options", [{}, {"copy": True}, {"writable": True}, {"copy": False}, {"dtype": "float64"}])
def test_no_column_of_a_refused_matrix_is_a_view(options: dict[str, Any]):
    schema = pa.schema([("x", pa.float32()), ("y", pa.int8()), ("s", pa.string())])
    for fills in ({}, {"nulls": 0}, {"nulls": {"x": 0}}):
        report = ad.explain(schema, order="C", **options, **fills)
        assert [row.how for row in report] == ["copy", "copy", "refused"], str(report)
