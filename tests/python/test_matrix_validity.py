"""`validity` of several columns: a matrix of bools beside that of the values; both make the same batch again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import numpy_of

TYPES = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
}
BATCH = pa.record_batch(
    {"a": [1, None, 3], "s": ["x", None, "y"], "t": [None, True, False], "l": [[1], None, [None]], "d": [1.5, 2.5, 3.5]}
)
EXPECTED = np.array([[column[row].is_valid for column in BATCH.columns] for row in range(3)])


def numbers(values: list[Any], name: str = "x") -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values)})


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.DataType, list[list[Any]], pa.ChunkedArray]:
    """Rows of columns of one type, as the chunks of structs that may be null, each a slice."""
    arrow, values = TYPES[draw(st.sampled_from(sorted(TYPES)))]
    width = draw(st.integers(1, 5))
    element = st.one_of(st.none(), values)
    names = [f"c{index}" for index in range(width)]
    fields = pa.struct([(name, arrow) for name in names])
    rows: list[list[Any]] = []
    chunks = []
    for _ in range(draw(st.integers(0, 3))):
        made = draw(st.lists(st.one_of(st.none(), st.lists(element, min_size=width, max_size=width)), max_size=20))
        first = draw(st.integers(0, len(made)))
        last = draw(st.integers(first, len(made)))
        # What lies under a null row is valid, but nobody's.
        hidden = draw(st.lists(values, min_size=width, max_size=width))
        columns = [pa.array([(row or hidden)[index] for row in made], arrow) for index in range(width)]
        nulls = pa.array([row is None for row in made], pa.bool_())
        structs = pa.StructArray.from_arrays(columns, names=names, mask=nulls)
        chunks.append(structs[first:last])
        rows += [[None] * width if row is None else row for row in made[first:last]]
    return arrow, rows, pa.chunked_array(chunks, fields)


@settings(max_examples=300, deadline=None)
@given(tables(), st.sampled_from("CFA"))
def test_values_and_validity_make_the_batch_again(
    case: tuple[pa.DataType, list[list[Any]], pa.ChunkedArray], order: Any
):
    arrow, rows, data = case
    names = [field.name for field in data.type]
    values = ad.to_tensor(data, nulls="keep", order=order)
    valid = ad.validity(data, order=order)
    assert valid.shape == values.shape == (len(rows), len(names))
    assert (valid.dtype, valid.device) == ("bool", values.device)
    if values.copied:
        assert valid.strides == values.strides
    expected = np.array([[value is not None for value in row] for row in rows], bool).reshape(valid.shape)
    np.testing.assert_array_equal(numpy_of(valid), expected)
    back = pa.record_batch(ad.to_arrow(values, names=names, validity=valid, type=arrow))
    assert back.schema.types == [arrow] * len(names)
    assert [[column[row].as_py() for column in back.columns] for row in range(len(rows))] == rows


@pytest.mark.parametrize(
    "make",
    [
        lambda: BATCH,
        lambda: pa.Table.from_batches([BATCH]),
        lambda: BATCH.to_struct_array(),
        lambda: pa.chunked_array([BATCH.to_struct_array()[:1], BATCH.to_struct_array()[1:]]),
        lambda: pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH[:2], BATCH[2:]]),
        lambda: pl.from_arrow(BATCH),
        lambda: ad.from_arrow(BATCH),
        lambda: ad.from_arrow(pa.Table.from_batches([BATCH])),
    ],
    ids=["batch", "table", "structs", "chunks", "reader", "polars", "own batch", "own stream"],
)
def test_whatever_has_columns(make: Callable[[], Any]):
    valid = ad.validity(make())
    assert (valid.shape, valid.dtype, valid.strides, valid.copied) == ((3, 5), "bool", (5, 1), True)
    np.testing.assert_array_equal(numpy_of(valid), EXPECTED)


def test_columns_and_order():
    valid = ad.validity(BATCH, columns=["d", "s"], order="F")
    assert (valid.shape, valid.strides) == ((3, 2), (1, 3))
    np.testing.assert_array_equal(numpy_of(valid), EXPECTED[:, [4, 1]])
    assert ad.validity(BATCH, order="A").strides == (5, 1)
    assert isinstance(ad.validity(BATCH, xp=np), np.ndarray)
    assert ad.validity(BATCH, columns=[]).shape == (3, 0)
    assert ad.validity(BATCH[:0]).shape == (0, 5)
    assert ad.validity(pa.schema({"a": pa.int8()}).empty_table()).shape == (0, 1)
    with pytest.raises(ad.ConversionError, match="there is no such column"):
        ad.validity(BATCH, columns=["z"])
    with pytest.raises(ad.ConversionError, match="more than once"):
        ad.validity(BATCH, columns=["a", "a"])
    with pytest.raises(ad.ConversionError, match="leave columns= out"):
        ad.validity(pa.array([1]), columns=["a"])
    with pytest.raises(TypeError, match="list of names"):
        ad.validity(BATCH, columns="a")
    reader = pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH])
    with pytest.raises(ValueError, match="order must be"):
        ad.validity(reader, order="R")  # type: ignore[call-overload]
    assert ad.validity(reader).shape == (3, 5)


def test_runs_and_codes_for_nulls():
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], [1, None])
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["x", None]))
    batch = pa.record_batch({"runs": runs, "codes": codes})
    with ad.track_copies() as log:
        found = numpy_of(ad.validity(batch))
    assert found.tolist() == [[True, True], [True, False], [False, False]]
    assert [(entry.bytes, "decoded" in entry.why) for entry in log] == [(3 * 2 + 3 * 8, True)]


@pytest.mark.parametrize(
    "column",
    [pa.array([{"x": 1}]), pa.array([b"ab"], pa.binary(2))],
    ids=["struct", "binary"],
)
def test_columns_of_structs_and_bytes_are_named(column: pa.Array):
    batch = pa.record_batch({"a": [1], "nested": column})
    with pytest.raises(ad.UnsupportedTypeError, match="this column alone") as caught:
        ad.validity(batch)
    assert caught.value.column == "nested"
    assert ad.validity(batch["nested"]).shape[0] == ad.validity(batch, columns=["a"]).shape[0] == 1


@pytest.mark.parametrize("data", [BATCH, pa.array([{"a": 1}, None]), pa.Table.from_batches([BATCH])])
def test_bits_are_those_of_one_column(data: Any):
    with pytest.raises(ad.UnsupportedTypeError, match="bitmap of each column"):
        ad.validity(data, bits=True)


def test_chunks_without_nulls_have_no_bits():
    assert ad.validity(pa.chunked_array([[1, 2], [3], []]), bits=True) is None
    with pytest.raises(ad.UnsupportedTypeError, match="the bitmaps of several chunks are joined by a copy"):
        ad.validity(pa.chunked_array([[1, 2], [None]]), bits=True)
    with pytest.raises(ad.UnsupportedTypeError, match="has no validity bitmap"):
        ad.validity(pa.chunked_array([pa.nulls(1), pa.nulls(1)]), bits=True)
    bits, _ = ad.validity(pa.chunked_array([[], [1, None]], pa.int64()), bits=True)
    assert np.from_dlpack(bits)[0] & 3 == 1


class TestTheRemedyForNulls:
    ASK = "ask for validity()"

    @pytest.mark.parametrize("values", [[1, None], [1.5, None]])
    def test_of_data_that_is_still_there_is_followed(self, values: list[Any]):
        batch = numbers(values)
        for convert in (ad.to_tensor, ad.to_tensors):
            with pytest.raises(ad.NullError) as caught:
                convert(batch)
            assert caught.value.remedy.endswith(self.ASK)
        assert ad.to_tensor(batch, nulls="keep").shape == ad.validity(batch).shape

    def test_of_a_stream_that_is_read_names_a_table(self):
        batch = numbers([1, None])
        reader = lambda: pa.RecordBatchReader.from_batches(batch.schema, [batch])  # noqa: E731
        sources = [reader, lambda: ad.from_arrow(reader())]
        out = np.zeros((2, 1), "i8")
        for make in sources:
            for convert in (
                ad.to_tensor,
                lambda source: ad.to_tensor(source, out=out),
                ad.to_tensors,
                lambda source: ad.to_tensors(source, columns={"x": ["x"]}),
            ):
                with pytest.raises(ad.NullError, match=r"of a table that the stream is read into first$") as caught:
                    convert(make())
                assert str(caught.value).endswith(caught.value.remedy)
                assert self.ASK in caught.value.remedy
                assert (caught.value.column, caught.value.row) == ("x", 1)

    @pytest.mark.parametrize("columns", [None, {"x": ["x"], "y": "x"}, {"y": "x"}, {"y": ["x", "z"]}])
    @pytest.mark.parametrize("value", [1, 1.5])
    def test_of_a_loader_is_no_validity(self, columns: Any, value: float):
        table = pa.table({"x": [value, None], "z": [value, value]})
        with pytest.raises(ad.NullError) as caught:
            list(ad.Loader(table, batch_size=2, columns=columns))
        assert "validity" not in str(caught.value)
        assert "fill" in caught.value.remedy
        assert ("nan" in caught.value.remedy) == (value == 1.5)
