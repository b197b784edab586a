"""Requests that arrow-rs casts in a way of its own, and the errors of requests without a cast."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

VALID = np.array([True, False, True])
TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
ROWS = ad.Ragged(np.array([1, 0, 1, 1]), np.array([0, 2, 4], np.int32))


def requested(source: Any, data_type: pa.DataType) -> pa.Array:
    schema, array = source.__arrow_c_array__(data_type.__arrow_c_schema__())
    return pa.Array._import_from_c_capsule(schema, array)


class TestListsOfOne:
    @pytest.mark.parametrize("item", [pa.int64(), pa.int8(), pa.string(), pa.field("item", pa.int64(), nullable=False)])
    def test_rows_that_are_null(self, item: pa.DataType | pa.Field):
        lists = pa.array(ad.to_arrow(np.arange(3), type=pa.list_(item, 1), validity=VALID))
        assert (lists.is_valid().to_pylist(), lists.null_count) == (VALID.tolist(), 1)
        assert lists.type == pa.list_(item, 1)

    def test_columns(self):
        matrix, valid = np.arange(6.0).reshape(3, 2), np.array([[True, True], [False, True], [True, False]])
        batch = ad.to_arrow(matrix, names=["a", "b"], type={"a": pa.list_(pa.float32(), 1)}, validity=valid)
        assert pa.record_batch(batch)["a"].to_pylist() == [[0.0], None, [4.0]]

    def test_arrays_and_structs_of_other_libraries(self):
        source = pa.array([0, None, 2])
        assert requested(ad.from_arrow(source), pa.list_(pa.int64(), 1)).to_pylist() == [[0], None, [2]]
        structs = pa.StructArray.from_arrays([source, pa.array(["a", "b", "c"])], names=["x", "y"])
        wanted = pa.struct([("x", pa.list_(pa.int64(), 1)), ("y", pa.large_string())])
        rows = [{"x": [0], "y": "a"}, {"x": None, "y": "b"}, {"x": [2], "y": "c"}]
        assert requested(ad.from_arrow(structs), wanted).to_pylist() == rows

    def test_items_of_lists_are_refused(self):
        lists = ad.from_arrow(pa.array([[0], None, [None, 2]]))
        with pytest.raises(ad.CastError, match="no cast exists"):
            requested(lists, pa.list_(pa.list_(pa.int64(), 1)))


class TestBoolsAsText:
    @pytest.mark.parametrize("data_type", TEXT)
    def test_wherever_they_come_from(self, data_type: pa.DataType):
        own, foreign = ad.to_tensor(pa.array([True, False])), np.array([True, False])
        for tensor in (own, foreign):
            assert pa.array(ad.to_arrow(tensor, type=data_type)).to_pylist() == ["true", "false"]
            batch = ad.to_arrow(np.from_dlpack(tensor)[:, None], names=["b"], type=data_type)
            assert pa.record_batch(batch)["b"].to_pylist() == ["true", "false"]

    @pytest.mark.parametrize("own", [True, False])
    def test_in_lists(self, own: bool):
        lists = pa.array([[True, False], [False, True]], pa.list_(pa.bool_(), 2))
        tensor = ad.to_tensor(lists) if own else np.array([[True, False], [False, True]])
        rows = [["true", "false"], ["false", "true"]]
        assert pa.array(ad.to_arrow(tensor, type=pa.list_(pa.string(), 2))).to_pylist() == rows
        ragged = ad.Ragged(np.from_dlpack(ad.to_tensor(pa.array([True, False]))), np.array([0, 0, 2]))
        assert pa.array(ad.to_arrow(ragged, type=pa.large_list(pa.string()))).to_pylist() == [[], ["true", "false"]]

    def test_numbers_are_numbers(self):
        for tensor in (ad.to_tensor(pa.array([True, False])), np.array([True, False])):
            assert pa.array(ad.to_arrow(tensor, type=pa.int16())).to_pylist() == [1, 0]


class TestCodesOfTimes:
    CODES = pa.array([0, 1, None, 0], pa.timestamp("s")).dictionary_encode()

    @pytest.mark.parametrize("data_type", TEXT[:3])
    def test_as_text(self, data_type: pa.DataType):
        texts = ["1970-01-01T00:00:00", "1970-01-01T00:00:01", None, "1970-01-01T00:00:00"]
        assert requested(ad.from_arrow(self.CODES), data_type).to_pylist() == texts

    def test_in_another_unit(self):
        times = requested(ad.from_arrow(self.CODES), pa.timestamp("ms")).to_pylist()
        assert times[1:3] == [datetime.datetime(1970, 1, 1, 0, 0, 1), None]


class TestWithoutACast:
    @pytest.mark.parametrize("data_type", [pa.int64(), pa.struct([("x", pa.int64())]), pa.map_(pa.int8(), pa.int8())])
    @pytest.mark.parametrize("copy", [None, False])
    def test_of_rows_is_explained(self, data_type: pa.DataType, copy: bool | None):
        with pytest.raises(ad.CastError, match="no cast exists") as caught:
            ad.to_arrow(ROWS, type=data_type, copy=copy)
        (error,) = (row.error for row in ad.explain(ROWS, to_arrow=True, type=data_type, copy=copy) if row.error)
        assert error in str(caught.value)

    def test_no_copy_helps(self):
        lists = pa.list_(pa.int64())
        for copy in (None, False):
            with pytest.raises(ad.CastError, match="no cast exists"):
                ad.to_arrow(np.array([1]), type=lists, copy=copy)
            with pytest.raises(ad.CastError, match=r'"a": .*no cast exists'):
                ad.to_arrow(np.ones((2, 1)), names=["a"], type=lists, copy=copy)
        # Where a copy helps, the error says so.
        with pytest.raises(ad.CopyError, match="pass copy=None to allow it"):
            ad.to_arrow(np.array([1]), type=pa.float64(), copy=False)


def test_a_refused_list_says_nothing_else(capfd: pytest.CaptureFixture[str]):
    offsets, mask = pa.array([0, 1, 3, 3, 3], pa.int32()), pa.array([True, True, True, False])
    lists = pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3]), mask=mask)
    with pytest.raises(ad.CastError, match="row 3: "):
        requested(ad.from_arrow(lists), pa.list_(pa.int64(), 2))
    assert capfd.readouterr().err == ""


def test_decimals_too_small_for_all_their_digits_are_no_floats():
    array = ad.from_arrow(pa.array([Decimal(123456).scaleb(-46)], pa.decimal256(76, 46)))
    assert pa.array(array, type=pa.float64()).to_pylist() == [1.23456e-41]
    with pytest.raises(ad.CastError, match="round trip"):
        pa.array(array, type=pa.float32())


def test_a_type_without_a_cast_comes_before_values():
    lists = pa.list_(pa.int64(), 3)
    source, types = np.array([[0.1, 1.0]]), [pa.float32(), lists]
    row = ad.explain(source, to_arrow=True, names=["a", "b"], type=types)["b"]
    with pytest.raises(ad.CastError, match="no cast exists") as caught:
        ad.to_arrow(source, names=["a", "b"], type=types)
    assert (caught.value.column, caught.value.row) == ("b", None)
    assert row.error in str(caught.value)
    with pytest.raises(ad.CastError, match="no cast exists") as caught:
        ad.to_arrow(source, names=["a", "b"], type=[lists, lists])
    assert '"a"' in str(caught.value)
    assert '"b"' in str(caught.value)
    # A null where the type forbids it is of the values, too.
    strict = pa.field("x", lists, nullable=False)
    with pytest.raises(ad.CastError, match="no cast exists"):
        ad.to_arrow(np.arange(2.0), type=strict, validity=np.array([True, False]))
    rows = ad.to_ragged(pa.array([[1.0], None]), nulls="keep")
    with pytest.raises(ad.CastError, match="no cast exists"):
        ad.to_arrow(rows, type=pa.field("x", pa.int64(), nullable=False))


def lists(items: pa.Array, kind: str) -> pa.Array:
    """The rows [first two], null, [next two], behind one more."""
    whole = {
        "list": lambda: pa.ListArray.from_arrays(pa.array([0, 2, None, 4, 6], pa.int32()), items),
        "large_list": lambda: pa.LargeListArray.from_arrays(pa.array([0, 2, None, 4, 6], pa.int64()), items),
        "list_view": lambda: pa.ListViewArray.from_arrays(
            pa.array([0, 2, None, 4], pa.int32()), pa.array([2, 2, 0, 2], pa.int32()), items
        ),
        "large_list_view": lambda: pa.LargeListViewArray.from_arrays(
            pa.array([0, 2, None, 4], pa.int64()), pa.array([2, 2, 0, 2], pa.int64()), items
        ),
        "fixed_size_list": lambda: pa.FixedSizeListArray.from_arrays(
            items.take(pa.array([0, 1, 2, 3, 0, 0, 4, 5])), 2, mask=pa.array([False, False, True, False])
        ),
    }
    return whole[kind]().slice(1)


KINDS: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
    "fixed_size_list": lambda item: pa.list_(item, 2),
}
BOOLS = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 0, 2, None, -1], pa.int8()))
TWICE = [[False, True], None, [None, True]]


@pytest.mark.parametrize("wanted", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_items_are_the_same_in_lists_of_any_kind(kind: str, wanted: str):
    # A null among fixed-size lists has items, which arrow-rs does not leave out of other lists.
    rows = lists(BOOLS, kind) if wanted != "fixed_size_list" else lists(BOOLS, kind).slice(2)
    shown = TWICE if wanted != "fixed_size_list" else TWICE[2:]
    assert requested(ad.from_arrow(rows), KINDS[wanted](pa.bool_())).to_pylist() == shown
    texts = [row and [item if item is None else str(item).lower() for item in row] for row in shown]
    assert requested(ad.from_arrow(rows), KINDS[wanted](pa.string())).to_pylist() == texts
    numbers = lists(pa.array([0.0, 0.0, 1.1, 2.5, None, 3.0]), kind).slice(2)
    assert requested(ad.from_arrow(numbers), KINDS[wanted](pa.decimal128(20, 2))).to_pylist() == [
        [None, Decimal("3.00")]
    ]


def test_items_in_lists_of_lists_of_other_kinds():
    inner = lists(BOOLS, "list")
    rows = pa.LargeListArray.from_arrays(pa.array([0, 1, 3], pa.int64()), inner)
    wanted = pa.list_(pa.large_list_view(pa.bool_()))
    assert requested(ad.from_arrow(rows), wanted).to_pylist() == [[TWICE[0]], TWICE[1:]]
