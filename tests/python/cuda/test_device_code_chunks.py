"""Codes of several chunks on a device: the host compares their dictionaries, unless they are the same memory."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream, Memory
from test_device_conversions import bits, host
from test_device_dictionaries import failed, forget, same

ROWS = (40, 0, 33, 1)
COMPARED = "dictionaries of several chunks are read, to compare them"
WORDS = ["a", None, "bc", "d", None, "a long one, which no view holds itself", "f"]
VALUES = {
    "strings": pa.array(WORDS),
    "views": pa.array(WORDS, pa.string_view()),
    "numbers": pa.array([1.5, None, -0.0, 4.0, float("inf"), None, 7.0]),
    "bools": pa.array([True, None, False, True]),
    "decimals": pa.array([Decimal("1.25"), None, Decimal("-7.00"), Decimal("0.01")], pa.decimal128(20, 2)),
    "lists": pa.array([["x"], None, [], ["y", None]]),
    "structs": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
}


def chunk(values: pa.Array, rows: int, seed: int, nulls: float = 0.0) -> pa.DictionaryArray:
    """Random codes; they and the values, of which each chunk has a copy, start inside their memory."""
    rng = np.random.default_rng(seed)
    picked = pa.array(rng.integers(0, len(values), rows + 3).astype("int8"), mask=rng.random(rows + 3) < nulls)
    before = values[:seed]
    own = pa.concat_arrays([before, values])[len(before) :]
    return pa.DictionaryArray.from_arrays(picked, own)[3:]


def chunks(values: pa.Array, nulls: float = 0.0) -> list[pa.DictionaryArray]:
    return [chunk(values, rows, seed, nulls) for seed, rows in enumerate(ROWS)]


def given(parts: list[pa.Array], kind: int = CUDA, **keywords: Any) -> ad.ArrayStream:
    """Each chunk is written on a stream of its own."""
    return ad.from_arrow(DeviceStream([DeviceArray(part, kind, **keywords) for part in parts], kind).give())


class SharedMemory(Memory):
    """Equal bytes are placed once, as the dictionary of a table whose chunks are its slices."""

    def place(self, data: bytes, room: int = 0) -> int:
        placed = {before: address for address, before in self.blocks.items()}
        return placed[data] if data in placed else super().place(data, room)


def keep(node: producers.Array) -> None:
    """Another chunk has the memory, too."""
    node.on_release = lambda: None


@pytest.mark.parametrize("change", [lambda _: None, forget])
@pytest.mark.parametrize("kind", VALUES)
def test_of_equal_dictionaries_are_joined(kind: str, change: Any) -> None:
    for nulls in (0.0, 0.3):
        parts = chunks(VALUES[kind], nulls)
        for keywords in ({"nulls": 100}, {"nulls": "keep", "dtype": "int32"}, {"nulls": -1, "writable": True}):
            same(given(parts, change=change), pa.chunked_array(parts), dictionary="codes", **keywords)


def test_of_values_without_nulls_are_joined_and_cast() -> None:
    parts = chunks(pa.array(["a", "b", "c"]))
    for keywords in ({}, {"dtype": "float32"}, {"nulls": 7}):
        same(given(parts), pa.chunked_array(parts), dictionary="codes", **keywords)
    made = ad.to_tensor(given(parts))
    assert pa.array(ad.to_arrow(made.to_device("cpu"))).dictionary.to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_of_memory_that_the_host_reads_are_joined(kind: int) -> None:
    parts = chunks(VALUES["strings"], 0.2)
    same(given(parts, kind), pa.chunked_array(parts), dictionary="codes", nulls=9)
    parts[2] = chunk(VALUES["strings"][::-1], 5, 2)
    assert "different dictionaries" in str(failed(ad.UnsupportedTypeError, given(parts, kind), nulls=9))


@pytest.mark.parametrize("kind", VALUES)
def test_of_different_dictionaries_are_refused_as_on_the_host(kind: str) -> None:
    values = VALUES[kind]
    others = [values[:-1], pa.concat_arrays([values[2:3], values[1:]]), pa.concat_arrays([values, values[:1]])]
    for other in others:
        parts = [*chunks(values), chunk(other, 5, 9)]
        for keywords in ({"nulls": 9}, {"nulls": "keep"}):
            made = [
                failed(ad.UnsupportedTypeError, data, **keywords) for data in (given(parts), pa.chunked_array(parts))
            ]
            assert str(made[0]) == str(made[1])
            assert "different dictionaries" in str(made[0])
    # Without rows it may have any.
    parts = [chunk(others[0], 0, 1), *chunks(values), chunk(others[1], 0, 1)]
    same(given(parts), pa.chunked_array(parts), dictionary="codes", nulls=9)


def test_only_dictionaries_in_memory_of_their_own_are_read(host_waits: Any) -> None:
    parts = [part for part in chunks(pa.array(["a", "b", "c"])) if len(part)]
    # All start at the first value.
    parts = [pa.DictionaryArray.from_arrays(part.indices, pa.array(["a", "b", "c"])) for part in parts]
    memory = SharedMemory()
    shared = [DeviceArray(part, memory=memory, change=keep) for part in parts]
    for stream, is_read in ((ad.from_arrow(DeviceStream(shared).give()), False), (given(parts), True)):
        waits, reads = host_waits(), driver.calls("cuMemcpyDtoHAsync_v2")
        with ad.track_copies() as log:
            made = ad.to_tensor(stream)
        assert (driver.calls("cuMemcpyDtoHAsync_v2") > reads) == is_read
        assert is_read or waits.ours == 0
        # What the host reads to compare is no part of the result.
        assert [entry.bytes for entry in log] == [made.nbytes]
        assert np.array_equal(host(made), bits(ad.to_tensor(pa.chunked_array(parts))))


@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_of_batches(order: str) -> None:
    kinds = ["strings", "numbers"]
    columns = [chunks(VALUES[kind], 0.2) for kind in kinds]
    parts = [pa.RecordBatch.from_arrays(list(own), kinds).to_struct_array() for own in zip(*columns, strict=True)]
    keywords: dict[str, Any] = {"dictionary": "codes", "nulls": 9}
    same(given(parts), pa.chunked_array(parts), order=order, dtype="int16", **keywords)
    made = ad.to_tensors(given(parts), **keywords)
    for name, expected in ad.to_tensors(pa.chunked_array(parts), **keywords).items():
        assert np.array_equal(host(made[name]), bits(expected))
    out = ad.to_tensor(DeviceArray(pa.array(np.zeros(sum(ROWS), "int8"))).give(), writable=True)
    ad.to_tensor(given(columns[0]), out=out, **keywords)
    assert np.array_equal(host(out), bits(expected := ad.to_tensor(pa.chunked_array(columns[0]), **keywords)))
    assert len(expected) == sum(ROWS)
    other = pa.RecordBatch.from_arrays([chunk(VALUES[kind][1:], 4, 1) for kind in kinds], kinds).to_struct_array()
    for call in (
        lambda data: ad.to_tensor(data, order=order, dtype="int16", **keywords),
        lambda data: ad.to_tensors(data, **keywords),
    ):
        for data in (given([*parts, other]), pa.chunked_array([*parts, other])):
            with pytest.raises(ad.UnsupportedTypeError, match="different dictionaries") as caught:
                call(data)
            assert caught.value.column == "strings"


def test_no_copy_is_refused_before_anything_is_read(host_waits: Any) -> None:
    stream = given(chunks(VALUES["strings"]))
    waits = host_waits()
    with pytest.raises(ad.CopyError, match="3 chunks joined"):
        ad.to_tensor(stream, nulls="keep", copy=False)
    assert waits.ours == 0
