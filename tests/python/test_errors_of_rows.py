"""The rows that errors of lists and strings name."""

from __future__ import annotations

import arrow_dlpack as ad
import pyarrow as pa
import pytest

TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view()]


@pytest.mark.parametrize("data_type", TEXT, ids=str)
def test_a_byte_is_that_of_its_string(data_type: pa.DataType):
    texts = pa.array(["ab", "", None, "cdé", "é"], data_type)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 5], pa.int32()), texts)
    for column, row in ((texts, 3), (texts[1:], 2), (lists, 3), (lists[1:], 2)):
        for data in (column, pa.chunked_array([column[:2], column[2:]])):
            with pytest.raises(ad.CastError) as caught:
                ad.to_ragged(data, dtype="int8", nulls="keep")
            assert caught.value.row == row


@pytest.mark.parametrize("options", [{}, {"pad": (0, None)}], ids=["ragged", "padded"])
def test_wrong_offsets_of_a_later_chunk_are_those_of_its_row(options: dict):
    def chunk(*offsets: int) -> pa.Array:
        starts = pa.array(offsets, pa.int32()).buffers()[1]
        return pa.Array.from_buffers(pa.list_(pa.int64()), 3, [None, starts], children=[pa.array(range(8))])

    with pytest.raises(ad.ConversionError, match="offsets from 2 to 1") as caught:
        ad.to_ragged(pa.chunked_array([chunk(0, 2, 4, 6), chunk(0, 2, 1, 6)]), **options)
    assert caught.value.row == 4


def codes(numbers: list[int], valid: list[bool]) -> pa.DictionaryArray:
    """Codes of two values; those of nulls may be any number."""
    bits = pa.py_buffer(bytes([sum(bit << at for at, bit in enumerate(valid))]))
    keys = pa.Array.from_buffers(pa.int8(), len(numbers), [bits, pa.array(numbers, pa.int8()).buffers()[1]])
    return pa.DictionaryArray.from_arrays(keys, pa.array(["x", "y"]), safe=False)


def lists(kind: type[pa.Array], starts: list[int], lengths: list[int], items: pa.Array) -> pa.Array:
    if "View" in kind.__name__:
        return kind.from_arrays(pa.array(starts, pa.int32()), pa.array(lengths, pa.int32()), items)
    return kind.from_arrays(pa.array([*starts, starts[-1] + lengths[-1]], pa.int32()), items)


def test_codes_that_no_row_shows_come_back_as_nulls():
    items = codes([0, 7, 1, 7], [True, False, True, False])
    source = lists(pa.ListViewArray, [2, 0], [1, 1], items)
    back = pa.array(ad.to_arrow(ad.to_ragged(source)))
    back.validate(full=True)
    assert back.to_pylist() == source.to_pylist() == [["y"], ["x"]]


@pytest.mark.parametrize("kind", [pa.ListArray, pa.ListViewArray])
def test_a_code_that_is_none_is_that_of_its_row(kind: type[pa.Array]):
    items = codes([0, 1, 1, 7, 0, 0], [True, True, True, False, True, True])
    source = lists(kind, [0, 2, 2, 5], [2, 0, 3, 1], items)
    nested = lists(kind, [0, 1], [1, 3], source)
    for column, row in ((source, 2), (nested, 1)):
        ragged = ad.to_ragged(column, nulls="keep")
        with pytest.raises(ad.ConversionError, match="the code 7") as caught:
            ad.to_arrow(ragged)
        assert caught.value.row == row
        assert "validity=" not in caught.value.remedy


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
@pytest.mark.parametrize("bad", [{1}, {0, 3}, {1, 2}, {3}])
def test_the_lowest_row_of_list_views(order: list[int], bad: set[int]):
    numbers = [300 if at in bad else at for at in range(4)]
    row = min(order.index(at) for at in bad)
    views = lists(pa.ListViewArray, order, [1] * 4, pa.array(numbers))
    nested = lists(pa.ListViewArray, order, [1] * 4, pa.array([[number] for number in numbers]))
    for column in (views, nested):
        for data in (column, pa.chunked_array([column[:2], column[2:]])):
            with pytest.raises(ad.CastError) as caught:
                ad.to_ragged(data, dtype="int8")
            assert caught.value.row == row
    missing = [None if at in bad else at for at in range(4)]
    views = lists(pa.ListViewArray, order, [1] * 4, pa.array(missing))
    nested = lists(pa.ListViewArray, order, [1] * 4, pa.array([[number] for number in missing]))
    for column in (views, nested):
        for data in (column, pa.chunked_array([column[:2], column[2:]])):
            with pytest.raises(ad.NullError) as caught:
                ad.to_ragged(data)
            assert caught.value.row == row


@pytest.mark.parametrize("is_nested", [False, True])
def test_the_error_of_list_views_is_what_is_wrong_in_the_row_that_it_names(is_nested: bool):
    def refused(numbers: list[int | None], starts: list[int], dtype: str | None = "int8") -> tuple[type, int, str]:
        items = pa.array([[number] for number in numbers] if is_nested else numbers)
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_ragged(lists(pa.ListViewArray, starts, [1] * len(starts), items), dtype=dtype)
        return type(caught.value), caught.value.row, caught.value.reason

    kind, row, reason = refused([400, 300, 1], [2, 1, 0])
    assert (kind, row) == (ad.CastError, 1)
    assert "300" in reason
    kind, row, reason = refused([None, 300, 1, 1], [2, 1, 3, 0])
    assert (kind, row) == (ad.CastError, 1)
    assert "300" in reason
    assert refused([300, None, 1, 1], [2, 1, 3, 0])[:2] == (ad.NullError, 1)
    assert refused([None, 1, None], [1, 2, 0], None)[1:] == (1, "2 null elements, the first one here")


def test_the_lowest_row_of_list_views_whose_codes_are_none():
    items = codes([7, 8, 0], [False, False, True])
    ragged = ad.to_ragged(lists(pa.ListViewArray, [2, 1, 0], [1, 1, 1], items), nulls="keep")
    with pytest.raises(ad.ConversionError, match="the code 8") as caught:
        ad.to_arrow(ragged)
    assert caught.value.row == 1


def test_a_code_that_is_none_in_a_later_group_is_that_of_its_row():
    def batch(number: int, value: float) -> pa.RecordBatch:
        keys = pa.Array.from_buffers(pa.int8(), 2, [None, pa.array([0, number], pa.int8()).buffers()[1]])
        wrong = pa.DictionaryArray.from_arrays(keys, pa.array(["x", None]), safe=False)
        return pa.record_batch({"wide": [1.0, value], "a": wrong, "b": wrong})

    table = pa.Table.from_batches([batch(0, 1.0), batch(0, 1.0), batch(9, 1.0), batch(0, 1e300)])
    columns = {"x": ad.group(["wide"], dtype="float32"), "y": ["a", "b"]}
    for data in (table, table.to_reader()):
        with pytest.raises(ad.ConversionError, match="beyond the dictionary's 2 values") as caught:
            ad.to_tensors(data, columns=columns, nulls="keep")
        assert (caught.value.column, caught.value.row) == ("a", 5)
