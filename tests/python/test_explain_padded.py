"""`explain(pad=)`: the matrix and the validity of padded rows, as far as data or type tell."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

LISTS = pa.chunked_array([pa.array([[1, 2], []], pa.list_(pa.int8())), pa.array([[3, 4, 5]], pa.list_(pa.int8()))])
Row = tuple[str, str, str | None, tuple[int | None, ...], int]


def told(*arguments: Any, **keywords: Any) -> list[Row]:
    report = ad.explain(*arguments, **keywords)
    return [(row.column, row.how, row.dtype, row.shape, row.bytes) for row in report]


def test_data_at_hand_tells_shapes_and_bytes() -> None:
    values, validity = told(LISTS, pad=(0, None), dtype="float32")
    assert values == ("values", "copy", "float32", (3, 3), 36)
    assert validity == ("validity", "copy", "bool", (3, 3), 9)
    report = ad.explain(LISTS, pad=(0, 4), dtype="float32")
    assert report["values"].steps == ["rows padded to 4 elements", "cast from int8 to float32"]
    with ad.track_copies() as log:
        ad.to_ragged(LISTS, pad=(0, 4), dtype="float32")
    assert (log.bytes, log.entries[0].why) == (report.bytes, ", ".join(report["values"].steps))


def test_a_type_tells_what_any_rows_become() -> None:
    report = ad.explain(pa.field("x", pa.list_(pa.list_(pa.int16(), 2))), pad=(0, None))
    assert [row.shape for row in report] == [(None, None, 2), (None, None)]
    assert report["x.values"].refused_if == ["values are null"]
    report = ad.explain(LISTS.type, pad=(0, 7), nulls="keep")
    assert [row.shape for row in report] == [(None, 7), (None, 7)]
    assert report["values"].refused_if == ["rows have more than 7 elements"]
    stream = ad.from_arrow(LISTS)
    assert told(stream, pad=(0, 7)) == told(LISTS.type, pad=(0, 7))
    assert ad.to_ragged(stream, pad=(0, 7))[0].shape == (3, 7)
    refused = ad.explain(LISTS.type, pad=(0, 7), copy=False)
    assert [row.how for row in refused] == ["refused", "refused"]
    with pytest.raises(ad.CopyError) as caught:
        ad.to_ragged(ad.from_arrow(LISTS), pad=(0, 7), copy=False)
    assert refused["values"].error == str(caught.value)


@pytest.mark.parametrize(
    ("source", "keywords"),
    [
        (LISTS, {"pad": (0, 2)}),
        (LISTS, {"pad": (0, 3), "copy": False}),
        (LISTS, {"pad": (0.5, 3)}),
        (pa.array([[1], None]), {"pad": (0, 3)}),
        (pa.array([[1], [2, None]]), {"pad": (0, 3)}),
        (pa.array([[[1]]]), {"pad": (0, 3)}),
        (pa.array([1, 2]), {"pad": (0, 3)}),
        (np.arange(3), {"pad": (0, 3)}),
        (pa.table({"a": LISTS}), {"pad": (0, 3)}),
    ],
)
def test_refusals_are_those_of_the_conversion(source: Any, keywords: dict[str, Any]) -> None:
    report = ad.explain(source, **keywords)
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_ragged(source, **keywords)
    assert {row.error for row in report} == {str(caught.value)}


@pytest.mark.parametrize("keywords", [{"columns": ["a"]}, {"columns": {"g": "a"}}, {"order": "F"}])
def test_what_to_ragged_does_not_take_is_an_error(keywords: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="leave columns and order out, or pad"):
        ad.explain(LISTS, pad=(0, 3), **keywords)


def test_a_device_is_the_last_step() -> None:
    report = ad.explain(LISTS, pad=(0, 3), device="cuda")
    assert {str(row.device) for row in report} == {"cuda:0"}
    assert all(row.steps[-1].startswith("copied to cuda:0") for row in report)


def test_codes_of_different_dictionaries_are_not_padded_together() -> None:
    def codes(values: list[str]) -> pa.Array:
        return pa.ListArray.from_arrays([0, 2], pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), values))

    source = pa.chunked_array([codes(["a", "b"]), codes(["b", "a"])])
    (row,) = ad.explain(source, pad=(0, None))
    with pytest.raises(ad.UnsupportedTypeError, match="different dictionaries") as caught:
        ad.to_ragged(source, pad=(0, None))
    assert row.error == str(caught.value)
    matrix, _ = ad.to_ragged(pa.chunked_array([codes(["a", "b"])] * 2), pad=(0, None))
    assert np.asarray(matrix).tolist() == [[0, 1], [0, 1]]


def test_padded_rows_have_no_length_beside_that_of_pad():
    lists = pa.array([[1], [2]], pa.list_(pa.decimal64(5, 0)))
    for length in (1, 3, {"": 1}):
        with pytest.raises(ad.ConversionError, match="these are padded; leave length= out"):
            ad.explain(lists, pad=(0, 2), decimal="unscaled", length=length)
    assert ad.explain(lists, pad=(0, 2), decimal="unscaled")[0].how == "copy"
