"""Which row and column an error of a request names: the lowest row, and of that the first column."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

WIDE = 1 << 40


def requested(data: Any, fields: list[pa.Field]) -> ad.ConversionError:
    schema = pa.schema(fields) if isinstance(data, pa.RecordBatch) else pa.struct(fields)
    with pytest.raises(ad.ConversionError) as caught:
        ad.from_arrow(data).__arrow_c_array__(schema.__arrow_c_schema__())
    return caught.value


@pytest.mark.parametrize("is_batch", [True, False])
def test_of_several_values_the_one_in_the_lowest_row_is_named(is_batch: bool) -> None:
    batch = pa.record_batch({"a": [1, 1, WIDE], "b": [1, WIDE, 1], "c": [1, WIDE, 1]})
    error = requested(batch if is_batch else batch.to_struct_array(), [pa.field(name, pa.int32()) for name in "abc"])
    assert (error.column, error.row) == ("b", 1)


@pytest.mark.parametrize("is_batch", [True, False])
def test_of_several_nulls_the_one_in_the_lowest_row_is_named(is_batch: bool) -> None:
    batch = pa.record_batch({"a": pa.array([1, 1, None]), "b": pa.array([1, None, 1]), "c": pa.array([1, None, 1])})
    fields = [pa.field(name, pa.int64(), nullable=False) for name in "abc"]
    error = requested(batch if is_batch else batch.to_struct_array(), fields)
    assert (error.column, error.row) == ("b", 1)


def test_a_null_item_below_a_null_row_is_lower() -> None:
    lists = pa.array([[1], [None], None], pa.list_(pa.int64()))
    item = pa.field("item", pa.int64(), nullable=False)
    error = requested(pa.record_batch({"a": lists}), [pa.field("a", pa.list_(item), nullable=False)])
    assert (error.column, error.row) == ("item", 1)


def test_of_the_columns_of_a_matrix_the_lowest_row_is_named() -> None:
    matrix = np.array([[1, 1], [1, WIDE], [WIDE, 1]])
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_arrow(matrix, names=["a", "b"], type=pa.int32())
    assert (caught.value.column, caught.value.row) == ("b", 1)


def test_rows_that_lie_over_each_other_show_their_items_once() -> None:
    # Each row shows most items: what is looked at may not be their sum, which is 10^10.
    rows = 100_000
    items = pa.array(np.arange(rows, dtype=np.int32), mask=np.arange(rows) == rows - 1)
    starts = np.arange(rows, dtype=np.int32) % 3
    wanted = pa.list_view(pa.field("item", pa.int32(), nullable=False))

    def passed(end: int) -> Any:
        sizes = pa.array(np.full(rows, end, np.int32) - starts)
        return ad.from_arrow(pa.ListViewArray.from_arrays(pa.array(starts), sizes, items)).__arrow_c_array__(
            wanted.__arrow_c_schema__()
        )

    passed(rows - 1)
    with pytest.raises(ad.NullError) as caught:
        passed(rows)
    assert caught.value.row == 0


LISTS = pa.list_(pa.int32())


def with_wrong(row: int, rows: int = 10) -> pa.Array:
    """Lists of two items, but for one."""
    return pa.array([[1] if at == row else [1, 2] for at in range(rows)], LISTS)


NULL_AT_0 = pa.array([None, *[1] * 9], pa.int32())
BATCHES: dict[str, tuple[pa.RecordBatch, str, int]] = {
    "two lists": (pa.record_batch({"a": with_wrong(5), "b": with_wrong(2)}), "b", 2),
    "three lists": (pa.record_batch({"a": with_wrong(5), "b": with_wrong(7), "c": with_wrong(4)}), "c", 4),
    "a null before": (pa.record_batch({"n": NULL_AT_0, "a": with_wrong(5)}), "n", 0),
    "a null behind": (pa.record_batch({"a": with_wrong(5), "n": NULL_AT_0}), "n", 0),
    "one row": (pa.record_batch({"a": with_wrong(5), "b": with_wrong(5)}), "a", 5),
    "a null item": (pa.record_batch({"a": pa.array([[1, 2], [1, None], [1, 2], [1]], LISTS)}), "a", 1),
    "a null list": (pa.record_batch({"a": pa.array([[1, 2], None, [1, 2], [1]], LISTS)}), "a", 1),
}


@pytest.mark.parametrize("case", BATCHES)
@pytest.mark.parametrize("size", [None, 3])
def test_a_wrong_length_is_one_of_the_errors_of_rows(case: str, size: int | None) -> None:
    batch, column, row = BATCHES[case]
    table = pa.Table.from_batches([batch])
    whole: Any = batch if size is None else pa.Table.from_batches(table.to_batches(max_chunksize=size))
    sources = [lambda: whole, lambda: table.to_reader(max_chunksize=size)]
    calls = [
        lambda source: ad.to_tensor(source, length=2),
        lambda source: ad.to_tensors(source, length=2),
        lambda source: ad.to_tensors(source, length=2, columns={name: name for name in batch.column_names}),
        lambda source: (
            ad.to_tensors(source, length=2, columns={"g": batch.column_names[:1], "h": batch.column_names[1:]})
            if batch.num_columns > 1
            else ad.to_tensors(source, length=2)
        ),
    ]
    for source in sources:
        for call in calls:
            with pytest.raises(ad.ConversionError) as caught:
                call(source())
            assert (caught.value.column, caught.value.row) == (column, row)


def test_a_wrong_length_of_a_column_by_itself_is_one_of_the_errors_of_its_rows() -> None:
    chunks = pa.chunked_array([pa.array([[1, None], *[[1, 2]] * 4], LISTS), pa.array([*[[1, 2]] * 4, [1]], LISTS)])
    for data in (chunks, pa.concat_arrays(chunks.chunks)):
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensor(data, length=2)
        assert caught.value.row == 0
        with pytest.raises(ad.ConversionError, match="the list has 1 element") as caught:
            ad.to_tensor(data, length=2, nulls=0)
        assert caught.value.row == 9


@pytest.mark.parametrize("more", [{}, {"r": ad.ragged("t")}], ids=["fixed", "with ragged"])
def test_a_null_comes_before_a_list_of_another_length_below_it(more):
    lists = pa.array([[1, 2], [3, 4], [5]], pa.list_(pa.int32()))
    table = pa.table({"l": lists, "a": pa.array([1, None, 3], pa.int32()), "t": ["x", "y", "z"]})
    with pytest.raises(ad.NullError) as caught:
        ad.to_tensors(table, columns={"x": "l", "y": "a", **more}, length={"l": 2})
    assert caught.value.row == 1
