"""`Ragged(values, offsets)` of tensors on a device, such as those of PyTorch's jagged layout, against the host's."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA_HOST, CUDA_MANAGED, DeviceArray
from test_device_row_validity import In, bools_in
from test_device_strided import back, placed

VALUES = np.arange(12, dtype="float32")
ENDS = [0, 3, 3, 4, 12]
VALID = np.array([True, True, False, True])
PARTS: dict[str, tuple[np.ndarray, dict[str, np.ndarray]]] = {
    "lists": (VALUES, {"offsets": np.array(ENDS, "int32")}),
    "large lists": (VALUES, {"offsets": np.array(ENDS, "int64")}),
    "with nulls": (VALUES, {"offsets": np.array(ENDS, "int32"), "validity": VALID}),
    "list views": (
        VALUES,
        {"offsets": np.array([9, 0, 12, 4], "int32"), "lengths": np.array([3, 9, 0, 5], "int32"), "validity": VALID},
    ),
    "large list views": (VALUES, {"offsets": np.array([9, 0], "int64"), "lengths": np.array([3, 12], "int64")}),
    "pairs": (VALUES.reshape(6, 2), {"offsets": np.array([1, 1, 4, 6], "int64")}),
    "tensors": (
        VALUES,
        {"offsets": np.array([0, 6, 12], "int32"), "shapes": np.array([[2, 3], [6, 1]], "int32")},
    ),
    "strided": (
        np.arange(24.0)[::2],
        {"offsets": np.array([0, 9, 4, 9, 12, 9], "int32")[::2], "validity": np.array([True, True, False])[::2]},
    ),
    "no rows": (VALUES, {"offsets": np.array([4], "int32")}),
    "no list views": (VALUES, {"offsets": np.array([], "int32"), "lengths": np.array([], "int32")}),
    "no values": (np.array([], "int16"), {"offsets": np.array([0, 0], "int32")}),
    "more rows than threads": (
        VALUES,
        {"offsets": np.minimum(np.arange(70_000), 12), "validity": np.ones(69_999, "?")},
    ),
}


def rows(pool: fakes.Pool, values: np.ndarray, parts: dict[str, np.ndarray]) -> ad.Ragged[ad.Tensor]:
    return ad.Ragged(placed(pool, values), **{name: placed(pool, part) for name, part in parts.items()})


def column(made: Any) -> pa.Array:
    array = ad.to_arrow(made)
    assert array.device.type == 2
    found = back(array)
    found.validate(full=True)
    return found


@pytest.mark.parametrize("name", PARTS)
def test_are_the_column_that_the_host_makes(name: str, pool: fakes.Pool) -> None:
    values, parts = PARTS[name]
    expected = pa.array(ad.to_arrow(ad.Ragged(values, **parts)))
    made = rows(pool, values, parts)
    assert str(made.device) == "cuda:0"
    assert column(made).equals(expected)
    reasons = {
        "strided": ["strided elements gathered"],
        "tensors": ["shapes compared with the lengths of their rows"] * 2,
    }
    with ad.track_copies() as log:
        ad.to_arrow(made, copy=None if name == "strided" else False)
    packed = ["validity packed to bits"] if "validity" in parts else []
    assert [entry.why for entry in log] == reasons.get(name, []) + packed


def test_rows_of_rows(pool: fakes.Pool) -> None:
    inner, outer = np.array([0, 2, 2, 12], "int32"), np.array([0, 1, 3], "int64")
    expected = pa.array(ad.Ragged(ad.Ragged(VALUES, inner), outer))
    assert column(ad.Ragged(rows(pool, VALUES, {"offsets": inner}), placed(pool, outer))).equals(expected)
    with pytest.raises(ad.ConversionError, match=r"row 1: offset 4 after 1, of 3 values"):
        ad.Ragged(rows(pool, VALUES, {"offsets": inner}), placed(pool, np.array([0, 1, 4])))


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_of_memory_that_the_host_reads(kind: int) -> None:
    def on(array: Any) -> ad.Tensor:
        return ad.to_tensor(DeviceArray(pa.array(array), kind).give())

    values, offsets = on(VALUES), on(np.array(ENDS, "int32"))
    made = ad.Ragged(values, offsets)
    assert made.device.type == kind
    assert back(ad.to_arrow(made)).equals(pa.array(ad.Ragged(VALUES, np.array(ENDS, "int32"))))
    made = ad.Ragged(values, offsets, validity=bools_in(kind, VALID))
    if kind == CUDA_MANAGED:
        with pytest.raises(BufferError, match=r"validity packed.*to_device"):
            ad.to_arrow(made)
    else:
        assert back(ad.to_arrow(made)).is_valid().to_pylist() == VALID.tolist()


STRIDED = np.arange(24, dtype="float32")[::2]
OFFSETS = np.array([0, 9, 4, 9, 12], "int32")[::2]


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_strided_values_that_the_host_reads_are_gathered_on_the_device(kind: int) -> None:
    valid = np.array([True, False])
    for values, keywords in ((STRIDED, {}), (VALUES, {"copy": True})):
        made = ad.Ragged(In(kind, values), In(kind, OFFSETS.copy()), validity=In(kind, valid))
        array = ad.to_arrow(made, **keywords)
        assert array.device.type == 2
        expected = pa.array(ad.to_arrow(ad.Ragged(values, OFFSETS.copy(), validity=valid), **keywords))
        assert back(array).equals(expected)
    made = ad.Ragged(In(kind, STRIDED), In(kind, OFFSETS.copy()))
    with pytest.raises(ad.CopyError, match="gathered"):
        ad.to_arrow(made, copy=False)


def test_strided_offsets_stay_in_page_locked_memory() -> None:
    made = ad.Ragged(In(CUDA_HOST, VALUES), In(CUDA_HOST, OFFSETS))
    assert (made.device.type, made.offsets.device.type) == (CUDA_HOST, CUDA_HOST)
    assert back(ad.to_arrow(made)).equals(pa.array(ad.Ragged(VALUES, OFFSETS)))
    # Nobody allocates managed memory.
    with pytest.raises(BufferError, match="cuda_managed"):
        ad.Ragged(In(CUDA_MANAGED, VALUES), In(CUDA_MANAGED, OFFSETS))
    with pytest.raises(ad.ConversionError, match=r"values are on cpu, and their offsets on cuda_host:0"):
        ad.Ragged(VALUES, In(CUDA_HOST, OFFSETS))


WRONG: list[dict[str, list[int]]] = [
    {"offsets": [0, 13]},
    {"offsets": [0, 3, 1, 12]},
    {"offsets": [-1, 2]},
    {"offsets": [13, 13]},
    {"offsets": [0, 4, 13, 2]},
    {"offsets": [0, 4, -3, 12]},
    {"offsets": [13]},
    {"offsets": [-1]},
    {"offsets": [0, 4], "lengths": [12, 9]},
    {"offsets": [0, -4], "lengths": [12, 9]},
    {"offsets": [0, 4], "lengths": [12, -1]},
    {"offsets": [0, 4], "lengths": [12]},
    {"offsets": []},
]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("parts", WRONG, ids=str)
def test_what_leads_elsewhere_is_refused_as_on_the_host(parts: dict, dtype: str, pool: fakes.Pool) -> None:
    given = {name: np.array(part, dtype) for name, part in parts.items()}
    with pytest.raises(ad.ConversionError) as expected:
        ad.Ragged(VALUES, **given)
    with pytest.raises(ad.ConversionError) as caught:
        rows(pool, VALUES, given)
    assert (str(caught.value), caught.value.row) == (str(expected.value), expected.value.row)


def test_the_least_and_the_largest_offsets_are_refused(pool: fakes.Pool) -> None:
    for offsets in ([0, 2**63 - 1], [-(2**63), 1], [2**63 - 1, -(2**63)]):
        for lengths in ({}, {"lengths": np.array([2**63 - 1, 1])}):
            given = {"offsets": np.array(offsets), **lengths}
            with pytest.raises(ad.ConversionError) as expected:
                ad.Ragged(VALUES, **given)
            with pytest.raises(ad.ConversionError) as caught:
                rows(pool, VALUES, given)
            assert str(caught.value) == str(expected.value)


def test_shapes_are_those_of_their_rows(pool: fakes.Pool) -> None:
    parts = {"offsets": np.array([0, 6, 12], "int32"), "shapes": np.array([[2, 3], [6, 2]], "int32")}
    with pytest.raises(ad.ConversionError) as expected:
        ad.Ragged(VALUES, **parts)
    with pytest.raises(ad.ConversionError) as caught:
        rows(pool, VALUES, parts)
    assert str(caught.value) == str(expected.value)
    # A null row may have any.
    parts["validity"] = np.array([True, False])
    assert column(rows(pool, VALUES, parts)).equals(pa.array(ad.to_arrow(ad.Ragged(VALUES, **parts))))


@pytest.mark.parametrize("part", ["offsets", "lengths", "validity", "shapes"])
def test_all_parts_are_on_one_device(part: str, pool: fakes.Pool) -> None:
    parts = {"offsets": np.array([0, 6], "int32"), "lengths": np.array([6, 6], "int32"), "validity": VALID[:2]}
    if part == "shapes":
        parts = {"offsets": np.array([0, 6, 12], "int32"), "shapes": np.array([[2, 3], [6, 1]], "int32")}
    placed_parts: dict[str, Any] = {name: placed(pool, own) for name, own in parts.items()}
    with pytest.raises(ad.ConversionError, match=f"values are on cuda:0, and their {part} on cpu; move the {part}"):
        ad.Ragged(placed(pool, VALUES), **{**placed_parts, part: parts[part]})
    for tensor in placed_parts.values():
        tensor.free()


def test_the_host_waits_once(pool: fakes.Pool, host_waits: Any) -> None:
    values, offsets = placed(pool, VALUES), placed(pool, np.array(ENDS, "int32"))
    waits = host_waits()
    made = ad.Ragged(values, offsets)
    assert waits.ours <= 1
    # Others may write to lent memory, so that it is looked at again.
    array = ad.to_arrow(made)
    assert waits.ours <= 2
    driver.synchronize(0)
    driver.fill(offsets.address, 0x7F, offsets.nbytes, offsets.stream, 0)
    driver.synchronize(0)
    with pytest.raises(ad.ConversionError, match=r"row 0: offset 2139062143"):
        ad.to_arrow(made)
    del array


def test_rows_whose_nulls_were_kept_return(pool: fakes.Pool) -> None:
    """Their offsets and validity are memory of ours, made by kernels."""
    data = pa.array([[1, 2], None, [], [3]], pa.list_(pa.int32()))
    kept = ad.to_ragged(ad.from_arrow(DeviceArray(data).give()), nulls="keep")
    assert column(kept).equals(data)
    assert column(ad.Ragged(kept.values, kept.offsets, validity=kept.validity)).equals(data)
