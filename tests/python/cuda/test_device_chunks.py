"""Chunks without rows have no say: neither is their event waited for instead of that of the data, nor is their device
that of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, DeviceArray, DeviceStream

BOOL8 = {"ARROW:extension:name": "arrow.bool8", "ARROW:extension:metadata": ""}
ROWS = 33


def numbers(rows: int) -> pa.Array:
    """A bitmap in which every row is valid."""
    return pa.array([None, *range(rows)], pa.int32())[1:]


def pairs(rows: int) -> pa.Array:
    return pa.array([None] + [[i, i + 1] for i in range(rows)], pa.list_(pa.int32(), 2))[1:]


def bools(rows: int) -> pa.Array:
    return pa.array([None] + [i % 2 == 0 for i in range(rows)], pa.bool_())[1:]


def bytes_of_bools(rows: int) -> pa.Array:
    return pa.array([1] + [i % 2 for i in range(rows)], pa.int8())[1:]


def lists(rows: int) -> pa.Array:
    return pa.array([[i, i + 1] for i in range(rows)], pa.list_(pa.int32()))


def strings(rows: int) -> pa.Array:
    return pa.array(["ab" * (i % 3) for i in range(rows)], pa.string())


def columns(rows: int) -> pa.Array:
    return pa.StructArray.from_arrays([numbers(rows), numbers(rows)], ["a", "b"])


def columns_of_bools(rows: int) -> pa.Array:
    return pa.StructArray.from_arrays([bytes_of_bools(rows)], fields=[pa.field("a", pa.int8(), metadata=BOOL8)])


def forget(node: producers.Array) -> None:
    """The producer has counted no nulls: only the bitmap tells."""
    parts = getattr(node, "parts", [])
    for part in [node, *parts]:
        part.array.null_count = -1 if part is not node or not parts else 0


def chunks(make: Callable[[int], pa.Array], parts: list[tuple[int, int]], kind: int = CUDA) -> ad.ArrayStream:
    """Chunks of so many rows on a device each, every one written on a stream of its own."""
    metadata = BOOL8 if make is bytes_of_bools else None
    field = pa.field("v", make(1).type, not pa.types.is_struct(make(1).type), metadata=metadata)
    arrays = [DeviceArray(make(rows), kind, device, field=field, change=forget) for rows, device in parts]
    return ad.from_arrow(DeviceStream(arrays, kind).give())


def values(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: values(tensor) for name, tensor in found.items()}
    if isinstance(found, ad.Ragged):
        return [values(found.values), values(found.offsets)]
    return np.from_dlpack(found.to_device("cpu")).tolist()


COLUMN: dict[str, tuple[Callable[[Any], Any], Callable[[int], pa.Array]]] = {
    "view": (ad.to_tensor, numbers),
    "nulls filled": (lambda data: ad.to_tensor(data, nulls=0), numbers),
    "cast": (lambda data: ad.to_tensor(data, dtype="float32"), numbers),
    "cast that is checked": (lambda data: ad.to_tensor(data, dtype="int8"), numbers),
    "pairs": (ad.to_tensor, pairs),
    "bools": (ad.to_tensor, bools),
    "bool8": (ad.to_tensor, bytes_of_bools),
    "validity": (ad.validity, numbers),
    "validity of pairs": (ad.validity, pairs),
    "lists": (ad.to_ragged, lists),
    "strings": (ad.to_ragged, strings),
    "matrix as it lies": (lambda data: ad.to_tensor(data, columns=["a"]), columns),
    "matrix packed": (ad.to_tensor, columns),
    "matrix filled": (lambda data: ad.to_tensor(data, nulls=0), columns),
    "matrix cast": (lambda data: ad.to_tensor(data, dtype="int8"), columns),
    "matrix of bool8": (ad.to_tensor, columns_of_bools),
    "each column": (ad.to_tensors, columns),
    "each column of bool8": (ad.to_tensors, columns_of_bools),
    "groups": (lambda data: ad.to_tensors(data, columns={"x": ["a", "b"], "y": "a"}), columns),
    "groups of one": (lambda data: ad.to_tensors(data, columns={"x": ["a"]}), columns),
    "groups of bool8": (lambda data: ad.to_tensors(data, columns={"x": ["a"]}), columns_of_bools),
    "groups with validity": (
        lambda data: ad.to_tensors(
            data, columns={"x": ad.group(["a", "b"], nulls=0, validity="v"), "y": ad.group("a", nulls=0, validity="w")}
        ),
        columns,
    ),
    "groups cast": (lambda data: ad.to_tensors(data, columns={"x": ["a", "b"]}, dtype="int8"), columns),
}


def expected(name: str) -> Any:
    """Of one chunk alone, which nothing else waits for."""
    convert, make = COLUMN[name]
    return values(convert(chunks(make, [(ROWS, 0)])))


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST])
@pytest.mark.parametrize("name", COLUMN)
def test_what_is_read_is_waited_for(name: str, kind: int) -> None:
    convert, make = COLUMN[name]
    for parts in ([0, ROWS], [0, 0, ROWS, 0]):
        found = convert(chunks(make, [(rows, 0) for rows in parts], kind))
        assert values(found) == expected(name)


@pytest.mark.parametrize("name", COLUMN)
def test_the_device_is_that_of_the_rows(name: str) -> None:
    convert, make = COLUMN[name]
    for parts in ([(0, 0), (ROWS, 1)], [(ROWS, 1), (0, 0)]):
        found = convert(chunks(make, parts))
        for tensor in found.values() if isinstance(found, dict) else [found]:
            assert tensor.device == ad.Device("cuda:1")
        assert values(found) == expected(name)


@pytest.mark.parametrize("name", ["view", "bools", "lists", "matrix packed", "each column", "groups", "validity"])
def test_without_any_rows_the_first_device_is_the_result_s(name: str) -> None:
    convert, make = COLUMN[name]
    found = convert(chunks(make, [(0, 1), (0, 0)]))
    for tensor in found.values() if isinstance(found, dict) else [found]:
        assert tensor.device == ad.Device("cuda:1")
        assert len(tensor) == 0


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "cpu"])
@pytest.mark.parametrize("name", ["each column", "groups", "view", "matrix packed"])
def test_rows_go_where_they_are_asked_for(name: str, device: str) -> None:
    _, make = COLUMN[name]
    convert = ad.to_tensors if name in ("each column", "groups") else ad.to_tensor
    found = convert(chunks(make, [(0, 0), (ROWS, 1)]), device=device)
    for tensor in found.values() if isinstance(found, dict) else [found]:
        assert tensor.device == ad.Device(device)
    assert values(found) == values(convert(chunks(make, [(ROWS, 0)])))


@pytest.mark.parametrize("name", ["view", "matrix packed"])
def test_out_is_on_the_device_of_the_rows(name: str) -> None:
    _, make = COLUMN[name]
    out = ad.to_tensor(chunks(make, [(ROWS, 1)]), writable=True)
    assert ad.to_tensor(chunks(make, [(0, 0), (ROWS, 1)]), out=out) is out
    assert values(out) == expected(name)


def test_a_copy_is_the_transfer_of_the_rows() -> None:
    found = ad.to_ragged(chunks(lists, [(0, 0), (ROWS, 1)]), device="cuda:0", copy=True)
    assert found.device == ad.Device("cuda:0")
    assert values(found) == expected("lists")
