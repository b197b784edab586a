"""Ragged rows on a device whose nulls are kept, against the same rows in host memory."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream
from test_device_conversions import bits, host
from test_device_dictionaries import forget

ROWS = [[1, None], None, [], [3, 4, 5], None, [None], [6]] * 5
TYPES = [pa.list_(pa.int16()), pa.large_list(pa.float32()), pa.list_view(pa.int16()), pa.large_list_view(pa.int64())]


def same_rows(made: Any, expected: Any) -> None:
    assert np.array_equal(host(made.offsets), bits(expected.offsets))
    assert (made.lengths is None) == (expected.lengths is None)
    if expected.lengths is not None:
        assert np.array_equal(host(made.lengths), bits(expected.lengths))
    assert np.array_equal(host(made.validity), bits(expected.validity))
    if isinstance(expected.values, ad.Ragged):
        same_rows(made.values, expected.values)
    else:
        assert np.array_equal(host(made.values), bits(expected.values))


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_rows_that_are_null_are_told(data_type: pa.DataType, host_waits: Any) -> None:
    data = pa.array(ROWS, data_type)
    for change in (lambda _: None, forget):
        array = ad.from_arrow(DeviceArray(data, change=change).give())
        waits = host_waits()
        made = ad.to_ragged(array, nulls="keep")
        # Of lists the first and the last offset, which may be there already; no bitmap.
        assert waits.ours <= (0 if "view" in str(data_type) else 1)
        same_rows(made, ad.to_ragged(data, nulls="keep"))


def test_text_and_nested_rows() -> None:
    text = pa.array(["ab", None, "", "cde", None] * 5)
    same_rows(ad.to_ragged(DeviceArray(text).give(), nulls="keep"), ad.to_ragged(text, nulls="keep"))
    nested = pa.array([[[1], None], None, [], [[2, 3], [4], None]] * 3, pa.list_(pa.list_(pa.int32())))
    same_rows(ad.to_ragged(DeviceArray(nested).give(), nulls="keep"), ad.to_ragged(nested, nulls="keep"))


def test_elements_are_cast_beside_nulls() -> None:
    data = pa.array(ROWS, pa.list_(pa.int16()))
    made = ad.to_ragged(DeviceArray(data).give(), nulls="keep", dtype="float64")
    same_rows(made, ad.to_ragged(data, nulls="keep", dtype="float64"))


def test_nulls_of_an_enclosing_struct_are_nulls_of_its_rows() -> None:
    lists = pa.array(ROWS, pa.list_(pa.int16()))
    mask = pa.array([row % 3 == 0 for row in range(len(lists))])
    data = pa.StructArray.from_arrays([lists], ["x"], mask=mask)
    made = ad.to_tensors(DeviceArray(data).give(), columns={"x": ad.ragged("x")}, nulls="keep")
    expected = ad.to_tensors(data, columns={"x": ad.ragged("x")}, nulls="keep")
    same_rows(made["x"], expected["x"])


@pytest.mark.parametrize("kind", [2, CUDA_MANAGED])
def test_explain_says_what_the_kernels_do(kind: int) -> None:
    data = pa.array(ROWS, pa.list_(pa.int16()))
    array = ad.from_arrow(DeviceArray(data, kind).give())
    with ad.track_copies() as log:
        ad.to_ragged(array, nulls="keep")
    report = ad.explain(array, nulls="keep")
    assert sorted(row.how for row in report) == ["copy", "view", "view or copy"]
    (row,) = [row for row in report if row.how == "copy"]
    assert [entry.bytes for entry in log] == [row.bytes] == [len(data)]
    assert (row.kernel, row.steps) == (True, ["bits unpacked to bytes"])


def test_a_stream_with_nulls() -> None:
    data = pa.array(ROWS, pa.list_(pa.int16()))
    stream = ad.from_arrow(DeviceStream([DeviceArray(data)]).give())
    assert {row.error for row in ad.explain(stream, nulls="keep")} == {None}
    same_rows(ad.to_ragged(stream, nulls="keep"), ad.to_ragged(data, nulls="keep"))


@pytest.mark.parametrize("group", [ad.padded("x", length=3), ad.ragged("x")], ids=["padded", "ragged"])
@pytest.mark.parametrize(
    "data", [pa.array([[1], None, [2, 3], []]), pa.array(["a", None, "bc", ""])], ids=["lists", "strings"]
)
def test_nulls_of_rows_and_of_their_struct_are_joined_on_the_host(data: pa.Array, group: Any) -> None:
    whole = pa.StructArray.from_arrays([data], ["x"], mask=pa.array([True, False, False, False]))
    array = ad.from_arrow(DeviceArray(whole).give())
    keywords: dict[str, Any] = {"columns": {"g": group}, "nulls": 0}
    report = ad.explain(array, **keywords)
    with pytest.raises(ad.ConversionError, match="enclosing struct has nulls too") as caught:
        ad.to_tensors(array, **keywords)
    assert caught.value.remedy == 'copy it with .to_device("cpu") first'
    assert report[0].error == str(caught.value)
    made, expected = (ad.to_tensors(given, **keywords)["g"] for given in (array.to_device("cpu"), whole))
    if isinstance(made, ad.Ragged):
        assert pa.array(made).equals(pa.array(expected))
    else:
        assert np.array_equal(bits(made), bits(expected))


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([1, 2]))
FOUND, LOOKED_UP = "nulls are looked for", "every code has a value"


@pytest.mark.parametrize(
    ("items", "keywords", "told"),
    [
        (RUNS, {}, [FOUND, LOOKED_UP]),
        (RUNS, {"nulls": "keep"}, [LOOKED_UP]),
        (pa.array([1, 2, 1]).dictionary_encode(), {"dictionary": "values", "nulls": 0}, [LOOKED_UP]),
        (pa.array(["a", None, "b"]).dictionary_encode(), {"nulls": 7}, [LOOKED_UP]),
        (pa.array([1, None, 2]), {}, [FOUND]),
        (pa.array([1, None, 2]), {"nulls": "keep"}, []),
    ],
)
def test_explain_names_the_waits_for_the_values_of_rows(
    items: pa.Array, keywords: dict[str, Any], told: list[str], host_waits: Any
) -> None:
    """List views have no ends to be read, so that no other wait stands for these."""
    data = pa.ListViewArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array([1, 2], pa.int32()), items)
    array = ad.from_arrow(DeviceArray(data, change=forget).give())
    row = ad.explain(array, **keywords)["values"]
    assert [what in wait for what, wait in zip(told, row.waits, strict=True)] == [True] * len(told)
    waits = host_waits()
    try:
        ad.to_ragged(array, **keywords)
    except ad.NullError:
        assert "values are null" in row.refused_if
    assert waits.ours <= len(told)
    stream = ad.from_arrow(pa.chunked_array([data])).to_device("cuda")
    # How many chunks a stream has is not known, nor whether their dictionaries are the same.
    are_codes = pa.types.is_dictionary(items.type) and keywords.get("dictionary") != "values"
    compared = ["dictionaries of several chunks are read, to compare them"] * are_codes
    assert ad.explain(stream, **keywords)["values"].waits == [*row.waits, *compared]


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_rows_that_kernels_took_apart_name_the_part_that_is_elsewhere(kind: int) -> None:
    """Kernels write the values of page-locked rows to device memory; `device=` settles where all of it is."""
    data = pa.array([[True], [False, True]])
    array = ad.from_arrow(DeviceArray(data, kind).give())
    rows = ad.to_ragged(array)
    assert (rows.values.device, rows.offsets.device) == (ad.Device("cuda:0"), array.device)
    for convert in (ad.from_arrow, ad.to_arrow, lambda given: ad.to_arrow(given, copy=False)):
        with pytest.raises(ad.ConversionError, match="the values are on cuda:0, and their offsets on cuda_") as caught:
            convert(rows)
        assert caught.value.remedy == "move the offsets to the device of the values"
    assert ad.explain(rows, to_arrow=True)["offsets"].error == str(caught.value)
    for whole in (ad.Ragged(rows.values, rows.offsets.to_device("cuda:0")), ad.to_ragged(array, device="cuda:0")):
        assert pa.array(ad.to_arrow(whole).to_device("cpu")).to_pylist() == data.to_pylist()
