"""Errors of the elements of ragged rows on a device: the row that has the element, as for rows in host memory."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest
from device_arrow import DeviceArray, DeviceStream

LISTS = pa.list_(pa.int64())
NESTED = pa.list_(LISTS)


def refused(source: Any, **options: Any) -> tuple[str, int | None, str, str | None]:
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_ragged(source, **options)
    error = caught.value
    # Nobody counts null elements on a device.
    reason = error.reason.replace("1 null element,", "null elements,")
    return type(error).__name__, error.row, reason, error.remedy


def on_device(data: pa.Array | pa.ChunkedArray) -> Any:
    if isinstance(data, pa.Array):
        return DeviceArray(data).give()
    return DeviceStream([DeviceArray(chunk) for chunk in data.chunks]).give()


CASES = {
    "a value": (pa.array([[1, 2], [3, 4], [5, 600]], LISTS), {"dtype": "int8"}),
    "a slice": (pa.array([[9], [1, 2], [3, 4], [5, 600]], LISTS).slice(1), {"dtype": "int8"}),
    "behind empty rows": (pa.array([[1, 2], [], [], [600]], LISTS), {"dtype": "int8"}),
    "behind null rows": (pa.array([[1, 2], None, [5, 600]], LISTS), {"dtype": "int8", "nulls": "keep"}),
    "with a fill": (pa.array([[1, 2], None, [None, 600]], LISTS), {"dtype": "int8", "nulls": 7}),
    "of a wide list": (pa.array([[1, 2], [3, 4], [5, 600]], pa.large_list(pa.int64())), {"dtype": "int8"}),
    "within two levels": (pa.array([[[1, 2]], [[3], [4]], [], [[5], [600]]], NESTED), {"dtype": "int8"}),
    "of the third chunk": (
        pa.chunked_array([pa.array(rows, LISTS) for rows in ([[1], [2, 3]], [], [[7], [], [5, 600]], [[8]])]),
        {"dtype": "int8"},
    ),
    "a null": (pa.array([[1, 2], [3, 4], [5, None]], LISTS), {}),
    "a null of a slice": (pa.array([[9], [1, 2], [5, None]], LISTS).slice(1), {}),
    "a null bool": (pa.array([[True], [False, None]], pa.list_(pa.bool_())), {}),
    "a null float": (pa.array([[1.5], [2.5, None]], pa.list_(pa.float32())), {}),
    "a null within two levels": (pa.array([[[1]], [[3], [4]], [], [[5], [None]]], NESTED), {}),
    "a null row within a row": (pa.array([[[1]], [[3], [4]], [], [[5], None]], NESTED), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_names_the_row_of_its_element(case: str) -> None:
    data, options = CASES[case]
    assert refused(on_device(data), **options) == refused(data, **options)


def test_an_element_of_list_views_is_named_itself() -> None:
    for last, options, reason in [
        (400, {"dtype": "int8"}, "element 3 of the values: the value 400 does not fit int8"),
        (None, {}, "element 3 of the values: null elements, the first one here"),
    ]:
        # Shown by a row, and by none.
        for size in (1, 0):
            data = pa.ListViewArray.from_arrays([3, 0], [size, 2], pa.array([1, 2, 3, last]))
            _, row, found, _ = refused(on_device(data), **options)
            assert (row, found) == (None, reason)
