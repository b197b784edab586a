"""What errors of nested columns say to do is done here: it leads to a result, and not back."""

from __future__ import annotations

from collections.abc import Callable

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

TEXT = pa.array(["a", "b"])
BYTES = pa.array([b"a", b"b"])
LISTS = pa.array([[1], [2, 3]])


def runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), values)


def fixed(items: pa.Array) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(items, 1)


def lists(items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(items) + 1), pa.int32()), items)


def remedy(call: Callable[[], object]) -> str:
    with pytest.raises(ad.ConversionError) as caught:
        call()
    return caught.value.remedy


@pytest.mark.parametrize(
    "items", [LISTS, LISTS.cast(pa.large_list(pa.int8())), pa.array([[1], [2]], pa.list_view(pa.int8()))]
)
def test_fixed_size_lists_of_lists_are_cast_to_lists(items: pa.Array):
    for call in (ad.to_tensor, ad.to_ragged):
        assert "cast the fixed-size lists to lists first" in remedy(lambda call=call: call(fixed(items)))
    assert "cast the fixed-size lists to lists first" in remedy(lambda: ad.to_ragged(lists(fixed(items))))
    ragged = ad.to_ragged(lists(items))
    assert pa.array(ad.to_arrow(ragged)).to_pylist() == [[item] for item in items.to_pylist()]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (runs(TEXT.dictionary_encode()), TEXT),
        (fixed(runs(BYTES)), BYTES),
        (fixed(runs(TEXT)), TEXT),
        (runs(fixed(TEXT)), TEXT),
        (fixed(TEXT), TEXT),
    ],
)
def test_text_in_runs_and_fixed_size_lists_takes_categories(column: pa.Array, values: pa.Array):
    told = remedy(lambda: ad.to_tensor(column, dictionary="values"))
    assert "categories=" in told
    assert ("to_ragged" in told) == (column.type == runs(TEXT.dictionary_encode()).type)
    codes = np.asarray(ad.to_tensor(column, dictionary="values", categories=values))
    assert codes.ravel().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("items", "does"),
    [
        (runs(TEXT), "decode the runs"),
        (fixed(TEXT), "cast the fixed-size lists to lists"),
        (TEXT.dictionary_encode(), "cast the items to the dictionary's value type"),
    ],
)
def test_ragged_rows_of_text_are_told_no_categories(items: pa.Array, does: str):
    table = pa.table({"l": lists(items)})
    for columns in ({"r": ad.ragged("l")}, {"p": ad.padded("l", value=0)}):
        told = remedy(lambda columns=columns: ad.to_tensors(table, columns=columns, dictionary="values"))
        assert does in told
        assert "categories" not in told
    assert np.asarray(ad.to_ragged(lists(TEXT)).values.values).tobytes() == b"ab"


def test_nulls_are_no_rows_of_one_length():
    assert "cast the column to a list type" in remedy(lambda: ad.to_ragged(pa.nulls(2)))
    ragged = ad.to_ragged(pa.nulls(2).cast(pa.list_(pa.int8())), nulls="keep")
    assert np.asarray(ragged.validity).tolist() == [False, False]


@pytest.mark.parametrize("values", [TEXT, LISTS])
def test_codes_of_no_numbers_are_numbers_by_name(values: pa.Array):
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), values)
    table = pa.table({"a": codes, "b": [1.5, 2.5]})
    told = remedy(lambda: ad.to_tensor(table))
    assert 'dictionary="codes" and dtype="float64"' in told
    assert np.asarray(ad.to_tensor(table, dictionary="codes", dtype="float64")).tolist() == [[0, 1.5], [1, 2.5]]


def test_nan_is_a_remedy_of_null_elements_that_are_floats():
    floats, integers = pa.array([[1.0, None]]), pa.array([[1, None]])
    for rows, is_offered in ((floats, True), (integers, False)):
        with pytest.raises(ad.NullError, match="1 null element") as caught:
            ad.to_ragged(rows)
        assert ('nulls="nan"' in str(caught.value)) == is_offered
    assert np.isnan(np.asarray(ad.to_ragged(floats, nulls="nan").values)).tolist() == [False, True]
