"""requested_schema casts what rows show: values beside a slice, under nulls and without a code are nobody's."""

from __future__ import annotations

import arrow_dlpack as ad
import pyarrow as pa
import pytest


def test_an_error_is_that_of_the_column_that_has_it():
    numbers = [pa.array([3, 1], pa.int32()), pa.array([1, 300])]
    source = pa.StructArray.from_arrays(numbers, ["f", "g"], mask=pa.array([True, False]))
    for inner, strict in (("int8", False), ("int8", True), ("int32", True)):
        fields = [pa.field("f", pa.type_for_alias(inner), not strict), pa.field("g", pa.int8())]
        with pytest.raises(ad.CastError) as caught:
            pa.array(ad.from_arrow(source), pa.struct(fields))
        assert (caught.value.column, caught.value.row) == ("g", 1)


def given(source: pa.Array, requested: pa.DataType) -> pa.Array:
    made = pa.array(ad.from_arrow(source), requested)
    made.validate(full=True)
    assert made.type == requested
    return made


LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
ROWS = [[9, 9], None, [1, 2], [3, 4], None, [5, 6]]


@pytest.mark.parametrize("item", [pa.int64(), pa.int8(), pa.float64()], ids=str)
@pytest.mark.parametrize("make", LISTS)
def test_slices_of_lists_become_fixed_size_lists(make: object, item: pa.DataType):
    lists = pa.array(ROWS, make(pa.int64()))
    for start in range(len(ROWS)):
        for stop in range(start, len(ROWS) + 1):
            part = lists[start:stop]
            assert given(part, pa.list_(item, 2)).to_pylist() == ROWS[start:stop]
            nested = pa.StructArray.from_arrays([part], ["l"])
            made = given(nested, pa.struct({"l": pa.list_(item, 2)}))
            assert made.to_pylist() == nested.to_pylist()


@pytest.mark.parametrize("make", LISTS)
def test_slices_of_other_lengths_are_refused_with_their_row(make: object):
    lists = pa.array([[9, 9], [1, 2], [3, 4], [5], [6, 7]], make(pa.int64()))[1:]
    with pytest.raises(ad.CastError) as caught:
        given(lists, pa.list_(pa.int64(), 2))
    assert caught.value.row == 2


BEYOND = pa.array([300, 1, 300, 2])
FIRST = pa.array([True, False])


def views(kind: type[pa.Array], offsets: list[int], sizes: list[int], width: pa.DataType) -> pa.Array:
    return kind.from_arrays(pa.array(offsets, width), pa.array(sizes, width), BEYOND)


def codes(values: list[int | None], dictionary: pa.Array = BEYOND) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(values, pa.int8()), dictionary)


INT8 = pa.int8()
UNSEEN: dict[str, tuple[pa.Array, pa.DataType]] = {
    "list slice": (pa.array([[300], [1], [300]])[1:2], pa.list_(INT8)),
    "large list slice": (pa.array([[300], [1]], pa.large_list(pa.int64()))[1:], pa.large_list(INT8)),
    "items of a null list": (
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), BEYOND, mask=FIRST),
        pa.list_(INT8),
    ),
    "items of a null list, not nullable": (
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), BEYOND, mask=FIRST),
        pa.list_(pa.field("item", INT8, nullable=False)),
    ),
    "list view gaps": (views(pa.ListViewArray, [1, 3], [1, 1], pa.int32()), pa.list_view(INT8)),
    "large list view gaps": (views(pa.LargeListViewArray, [3, 1], [1, 1], pa.int64()), pa.list_(INT8)),
    "struct": (pa.StructArray.from_arrays([BEYOND[:2]], ["a"], mask=FIRST), pa.struct({"a": INT8})),
    "null struct": (pa.StructArray.from_arrays([BEYOND[:1]], ["a"], mask=FIRST[:1]), pa.struct({"a": INT8})),
    "fixed-size list": (pa.FixedSizeListArray.from_arrays(BEYOND[:2], 1, mask=FIRST), pa.list_(INT8, 1)),
    "no code": (codes([1, 3, None]), INT8),
    "no code of the dictionary": (codes([1, 3, None]), pa.dictionary(pa.int16(), INT8)),
    "no rows": (codes([]), INT8),
    "codes of a null list": (
        pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), codes([0, 1]), mask=FIRST),
        pa.list_(INT8),
    ),
    "runs": (
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), BEYOND)[1:2],
        pa.run_end_encoded(pa.int32(), INT8),
    ),
    "map": (
        pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["a", "b"]), BEYOND[:2])[1:],
        pa.map_(pa.string(), INT8),
    ),
    "lists in lists": (
        pa.ListArray.from_arrays(
            pa.array([0, 1, 2], pa.int32()),
            pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), BEYOND[:2]),
            mask=FIRST,
        ),
        pa.list_(pa.list_(INT8, 1)),
    ),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_values_that_no_row_shows_are_not_cast(name: str):
    source, requested = UNSEEN[name]
    assert given(source, requested).to_pylist() == source.to_pylist()
    schema = pa.schema([("c", requested)])
    batch = pa.record_batch({"c": source})
    assert pa.record_batch(ad.from_arrow(batch), schema=schema)["c"].to_pylist() == source.to_pylist()


def test_text_that_no_row_shows_is_not_read():
    texts = pa.array(["no number", "1"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts, mask=FIRST)
    assert given(lists, pa.list_(pa.int64())).to_pylist() == [None, [1]]
    structs = pa.StructArray.from_arrays([texts], ["a"], mask=FIRST)
    assert given(structs, pa.struct({"a": pa.int64()})).to_pylist() == [None, {"a": 1}]


def test_dictionaries_keep_values_that_no_row_shows_where_they_can_be_cast():
    made = given(codes([1], pa.array([5, 1, 7])), pa.dictionary(pa.int16(), INT8))
    assert made.dictionary.to_pylist() == [5, 1, 7]


@pytest.mark.parametrize(
    ("source", "requested", "row"),
    [
        (pa.array([[300], [1], [2, 300]])[1:], pa.list_(INT8), 1),
        (codes([1, 3, None, 2]), INT8, 3),
        (pa.StructArray.from_arrays([BEYOND], ["a"], mask=pa.array([True, False, False, False])), None, 2),
        (views(pa.ListViewArray, [3, 2], [1, 1], pa.int32()), pa.list_view(INT8), 1),
    ],
)
def test_values_that_a_row_shows_are_refused_with_it(source: pa.Array, requested: pa.DataType | None, row: int):
    with pytest.raises(ad.CastError) as caught:
        given(source, requested or pa.struct({"a": INT8}))
    assert caught.value.row == row
