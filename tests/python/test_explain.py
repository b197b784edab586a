"""`explain`: a row for each column, true to what the conversion then does."""

import arrow_dlpack as ad
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

BATCH = pa.record_batch(
    {
        "x": pa.array([1.5, None, 3.0]),
        "n": pa.array([1, 2, 3], pa.int16()),
        "flag": pa.array([True, False, True]),
        "p": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
        "s": pa.array(["a", "b", "c"]),
    }
)


def test_of_a_batch():
    report = ad.explain(BATCH)
    assert len(report) == 5
    assert [row.column for row in report] == BATCH.schema.names
    assert [row.dtype for row in report] == ["float64", "int16", "bool", "int32", None]
    assert [row.view for row in report] == [False, True, False, True, False]
    assert [row.how for row in report] == ["refused", "view", "copy", "view", "refused"]
    assert [row.bytes for row in report] == [0, 0, 3, 0, 0]
    assert [bool(row.error) for row in report] == [True, False, False, False, True]
    assert report.bytes == 3
    assert (report["n"].shape, report["p"].shape) == ((3,), (3, 2))
    assert report["flag"].steps == ["bits unpacked to bytes"]
    assert "null" in report["x"].error
    assert "Utf8" in report["s"].error
    assert report["p"].arrow_type.startswith("FixedSizeList")


def test_its_text_has_a_line_for_each_column():
    text = str(ad.explain(BATCH))
    head, *lines = text.splitlines()
    assert head.split() == ["column", "Arrow", "type", "dtype", "shape", "how", "bytes", "why"]
    assert [line.split()[0] for line in lines] == BATCH.schema.names
    how = [next(word for word in ("view", "copy", "refused") if f" {word} " in line) for line in lines]
    assert how == ["refused", "view", "copy", "view", "refused"]
    assert "the layouts agree" in lines[1]
    assert "pass nulls" in lines[0] or "nulls=" in lines[0]
    assert repr(ad.explain(BATCH)) == text


def test_a_long_name_moves_only_its_own_line() -> None:
    name = "x" * 70_000
    _, long, short = str(ad.explain(pa.record_batch({name: [1], "y": [2]}))).splitlines()
    assert long.startswith(f"{name}  Int64")
    assert short.startswith("y" + " " * 101 + "Int64")


@pytest.mark.parametrize(
    ("keywords", "column", "steps", "moved"),
    [
        ({"nulls": 0}, "x", ["1 null filled"], 24),
        ({"nulls": "nan"}, "x", ["1 null filled"], 24),
        ({"nulls": "keep"}, "x", [], 0),
        ({"dtype": {"n": "float32"}}, "n", ["cast from int16 to float32"], 12),
        ({"dtype": {"flag": "float64"}}, "flag", ["bits unpacked to bytes", "cast from bool to float64"], 24),
        ({"writable": True}, "n", ["memory of its own asked for"], 6),
        ({"copy": True}, "p", ["memory of its own asked for"], 24),
        ({}, "p", [], 0),
    ],
    ids=str,
)
def test_is_what_the_conversion_does(keywords, column: str, steps: list[str], moved: int):
    row = ad.explain(BATCH, columns=[column], **keywords)[column]
    assert (row.steps, row.bytes, row.view, row.error) == (steps, moved, not steps, None)
    with ad.track_copies() as log:
        tensor = ad.to_tensors(BATCH, columns=[column], **keywords)[column]
    assert log.bytes == moved
    assert tensor.copied == bool(steps)
    assert (tensor.dtype, tensor.shape) == (row.dtype, row.shape)
    assert all(step in log.entries[0].why for step in steps)


@pytest.mark.parametrize(("column", "keywords"), [("flag", {}), ("x", {"nulls": 0}), ("n", {"writable": True})])
def test_what_copy_false_refuses_is_in_the_row(column: str, keywords):
    row = ad.explain(BATCH, columns=[column], copy=False, **keywords)[0]
    with pytest.raises(ad.CopyError) as caught:
        ad.to_tensors(BATCH, columns=[column], copy=False, **keywords)
    assert row.error == str(caught.value)
    assert not row.view


def test_of_values_that_decide():
    bool8 = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1], pa.int8()))
    (row,) = ad.explain(bool8)
    assert (row.how, row.view, row.bytes) == ("view or copy", False, 2)
    assert "view or copy" in str(ad.explain(bool8))
    with ad.track_copies() as log:
        ad.to_tensor(bool8)
    assert log.bytes <= row.bytes


class TestOfASchema:
    @pytest.mark.parametrize(
        "source",
        [BATCH.schema, pa.table(BATCH).to_reader(), pl.DataFrame(BATCH.slice(0, 1)).schema],
        ids=["schema", "reader", "polars"],
    )
    def test_everything_that_the_type_decides(self, source):
        report = ad.explain(source)
        assert [row.dtype for row in report] == ["float64", "int16", "bool", "int32", None]
        assert report["p"].shape == (None, 2)
        assert report["n"].shape == (None,)
        assert "(n, 2)" in str(report)
        assert report["flag"].steps[0] == "bits unpacked to bytes"

    def test_with_options(self):
        report = ad.explain(BATCH.schema, nulls="keep", dtype={"n": "float32"}, columns=["n", "x"])
        assert [row.column for row in report] == ["n", "x"]
        assert report[0].dtype == "float32"
        assert "cast from int16 to float32" in report[0].steps

    def test_what_no_data_could_make_possible(self):
        assert "float64" in ad.explain(BATCH.schema, nulls="nan")["n"].error

    def test_of_a_field_and_a_type(self):
        (row,) = ad.explain(pa.field("x", pa.int8()))
        assert (row.column, row.dtype) == ("x", "int8")
        (row,) = ad.explain(pa.int8())
        assert row.dtype == "int8"

    def test_does_not_depend_on_data(self):
        no_nulls = BATCH.slice(0, 1)
        for column in ("x", "n", "flag", "p"):
            of_data = ad.explain(no_nulls, columns=[column])[0]
            of_type = ad.explain(BATCH.schema, columns=[column])[0]
            assert of_data.dtype == of_type.dtype
            assert of_data.shape[1:] == of_type.shape[1:]


def test_of_arrays_and_tensors():
    (row,) = ad.explain(pa.array([1, 2]))
    assert (row.column, row.view, row.shape) == ("", True, (2,))
    (row,) = ad.explain(ad.to_tensor(pa.array([1, 2])))
    assert row.view
    (row,) = ad.explain(np.arange(3))
    assert (row.dtype, row.view) == ("int64", True)


def test_of_a_strided_tensor():
    (row,) = ad.explain(np.arange(6).reshape(2, 3).T)
    assert not row.view
    assert row.bytes == 48


def test_copies_nothing():
    with ad.track_copies() as log:
        ad.explain(BATCH, writable=True, nulls="keep")
        ad.explain(pa.array([True] * 1000), dtype="float64")
    assert len(log) == 0


def test_rows_by_name_and_position():
    report = ad.explain(BATCH)
    assert report["n"].column == report[1].column == report[-4].column == "n"
    assert "ReportRow" in repr(report["n"])
    for key, error in [("nobody", KeyError), (5, IndexError), (-6, IndexError), (1.5, TypeError)]:
        with pytest.raises(error):
            report[key]
    assert [row.column for row in report.rows] == [row.column for row in report]


def test_of_misaligned_and_sliced_data():
    memory = pa.py_buffer(b"\0" + np.arange(4.0).tobytes())
    (row,) = ad.explain(pa.Array.from_buffers(pa.float64(), 4, [None, memory[1:]]))
    assert "aligned" in row.steps[0]
    assert row.bytes == 32
    (row,) = ad.explain(pa.array([True] * 100)[3:50])
    assert row.bytes == 47


def test_what_belongs_to_no_column_raises():
    with pytest.raises(ValueError):
        ad.explain(BATCH, columns=["nobody"])
    with pytest.raises(TypeError):
        ad.explain(3)


def test_of_a_misaligned_tensor_tells_the_copy_and_makes_none():
    source = np.frombuffer(bytes(33), np.uint8)[1:].view(np.float64)
    with ad.track_copies() as log:
        (row,) = ad.explain(source)
        (refused,) = ad.explain(source, copy=False)
    assert len(log) == 0
    assert (row.how, row.bytes) == ("copy", 32)
    assert "aligned" in row.steps[0]
    assert refused.how == "refused"
    with pytest.raises(ad.CopyError):
        ad.to_tensor(source, copy=False)


def test_of_chunks_that_refuse_to_be_an_array_reads_no_stream():
    class Chunked:
        def __arrow_c_array__(self, requested_schema=None):
            raise ValueError("several chunks")

        def __arrow_c_stream__(self, requested_schema=None):
            raise AssertionError("explain reads no stream")

        def __arrow_c_schema__(self):
            return pa.field("x", pa.int64()).__arrow_c_schema__()

    (row,) = ad.explain(Chunked())
    assert row.shape == (None,)


def test_a_reason_starts_with_a_word() -> None:
    """Of a column in a matrix only data decides what is done, and the condition for an error stands alone."""
    text = str(ad.explain(pa.schema({"a": pa.int8(), "b": pa.int8()}), order="C"))
    assert "refused if values are null" in text
    assert " ; " not in text
