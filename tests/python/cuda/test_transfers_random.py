"""Arrays of random types, many of them without rows or without a value, on their way over several devices: all of what
left arrives."""

from __future__ import annotations

import random
from decimal import Decimal

import arrow_dlpack as ad
import driver
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, DeviceArray

PLAIN = [
    pa.int8(),
    pa.uint16(),
    pa.int32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_binary(),
    pa.string_view(),
    pa.binary(3),
    pa.decimal128(10, 2),
    pa.timestamp("us"),
    pa.null(),
]
WAYS = [
    "cuda cuda:1",
    "cuda:1 cuda",
    "cuda_host cuda:1",
    "cuda cuda_host",
    "cuda cuda:1 cuda",
    "cuda cuda_host cuda:1",
    "cuda",
]


def random_type(draw: random.Random, depth: int) -> pa.DataType:
    if depth == 0 or draw.random() < 0.25:
        return draw.choice(PLAIN)
    inner = random_type(draw, depth - 1)
    kind = draw.choice(["list", "large_list", "list_view", "fixed", "struct", "dictionary", "map", "runs", "union"])
    if kind == "dictionary":
        return pa.dictionary(draw.choice([pa.int8(), pa.int32()]), draw.choice([pa.string(), pa.int64(), pa.bool_()]))
    if kind == "runs":
        return pa.run_end_encoded(draw.choice([pa.int16(), pa.int32()]), draw.choice([pa.string(), pa.int64()]))
    if kind == "struct":
        return pa.struct([("a", inner), ("b", random_type(draw, depth - 1))])
    if kind == "union":
        return draw.choice([pa.sparse_union, pa.dense_union])([pa.field("a", pa.int32()), pa.field("b", inner)])
    if kind == "map":
        return pa.map_(pa.int16(), inner)
    if kind == "fixed":
        return pa.list_(inner, draw.choice([1, 2, 3]))
    return {"list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_view}[kind](inner)


def random_array(draw: random.Random, kind: pa.DataType, rows: int) -> pa.Array:
    """An array of this type, which may be a slice of a longer one."""
    before, after = draw.choice([0, 0, 1, 9]), draw.choice([0, 0, 3])
    return whole_array(draw, kind, before + rows + after).slice(before, rows)


def whole_array(draw: random.Random, kind: pa.DataType, rows: int) -> pa.Array:
    nulls = draw.choice([0, 0, 0.3, 1])
    is_null = np.array([draw.random() < nulls for _ in range(rows)], bool)
    mask = pa.array(is_null) if nulls else None
    if pa.types.is_dictionary(kind):
        values = 0 if nulls == 1 else draw.randrange(1, 6)
        codes = [None if null else draw.randrange(values) for null in is_null]
        return pa.DictionaryArray.from_arrays(pa.array(codes, kind.index_type), plain(draw, kind.value_type, values))
    if pa.types.is_struct(kind):
        children = [random_array(draw, child.type, rows) for child in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_fixed_size_list(kind):
        values = random_array(draw, kind.value_type, rows * kind.list_size)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    if pa.types.is_run_end_encoded(kind):
        ends = list(range(2, rows + 2, 2)) or [1]
        values = plain(draw, kind.value_type, len(ends))
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, kind.run_end_type), values).slice(0, rows)
    if pa.types.is_union(kind):
        return union(draw, kind, rows)
    if pa.types.is_nested(kind):
        return lists(draw, kind, rows, mask)
    return plain(draw, kind, rows, is_null)


def lists(draw: random.Random, kind: pa.DataType, rows: int, mask: pa.Array | None) -> pa.Array:
    longest = draw.choice([0, 0, 3])
    lengths = [draw.randrange(longest + 1) for _ in range(rows)]
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype="int64")])
    elements = int(offsets[-1])
    width = "int64" if pa.types.is_large_list(kind) else "int32"
    if pa.types.is_map(kind):
        items = random_array(draw, kind.item_type, elements)
        return pa.MapArray.from_arrays(pa.array(offsets, width), plain(draw, kind.key_type, elements), items, type=kind)
    values = random_array(draw, kind.value_type, elements)
    if pa.types.is_list_view(kind):
        starts, sizes = pa.array(offsets[:-1], width), pa.array(lengths, width)
        return pa.ListViewArray.from_arrays(starts, sizes, values, type=kind, mask=mask)
    maker = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return maker.from_arrays(pa.array(offsets, width), values, type=kind, mask=mask)


def union(draw: random.Random, kind: pa.UnionType, rows: int) -> pa.Array:
    ids = pa.array([draw.randrange(2) for _ in range(rows)], pa.int8())
    if kind.mode == "sparse":
        children = [random_array(draw, kind.field(index).type, rows) for index in range(2)]
        return pa.UnionArray.from_sparse(ids, children, field_names=["a", "b"])
    children = [random_array(draw, kind.field(index).type, 4) for index in range(2)]
    places = pa.array(sorted(draw.randrange(4) for _ in range(rows)), pa.int32())
    return pa.UnionArray.from_dense(ids, places, children, field_names=["a", "b"])


def plain(draw: random.Random, kind: pa.DataType, rows: int, is_null: np.ndarray | None = None) -> pa.Array:
    """No value is 0 or empty: zeros that were not copied are seen."""
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    if is_null is None:
        is_null = np.zeros(rows, bool)
    numbers = [None if null else draw.randrange(1, 100) for null in is_null]
    if pa.types.is_boolean(kind):
        return pa.array([None if number is None else number > 20 for number in numbers], kind)
    if kind in (pa.string(), pa.large_binary(), pa.string_view()):
        return pa.array([None if number is None else "x" * (number % 30 + 1) for number in numbers], kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([None if number is None else b"%03d" % number for number in numbers], kind)
    if pa.types.is_timestamp(kind):
        return pa.array(numbers, pa.int64()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if number is None else Decimal(number) for number in numbers], kind)
    return pa.array(numbers, pa.int64()).cast(kind, safe=False)


def random_batch(draw: random.Random) -> pa.RecordBatch:
    rows = draw.choice([0, 1, 2, 2, 7, 40])
    columns = [random_array(draw, random_type(draw, 3), rows) for _ in range(draw.randrange(2, 6))]
    batch = pa.RecordBatch.from_arrays(columns, [f"c{index}" for index in range(len(columns))])
    batch.validate(full=True)
    return batch


@pytest.mark.parametrize("way", WAYS)
def test_random_batches_arrive(way: str) -> None:
    for seed in range(60):
        batch = random_batch(random.Random(seed))
        moved = ad.from_arrow(batch)
        for device in way.split():
            moved = moved.to_device(device)
        arrived = pa.record_batch(moved.to_device("cpu"))
        arrived.validate(full=True)
        assert arrived.schema == batch.schema
        assert arrived.equals(batch), (seed, arrived.to_pydict(), batch.to_pydict())


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST])
def test_random_batches_of_others_arrive(kind: int) -> None:
    """Page-locked memory is copied where it is while it is being written, and small buffers go together once it is."""
    for seed in range(12):
        batch = random_batch(random.Random(seed))
        rows = batch.to_struct_array()
        given = ad.from_arrow(DeviceArray(rows, kind).give())
        if seed % 2:
            driver.run_all()
        arrived = pa.array(given.to_device("cuda:1").to_device("cpu"))
        assert arrived.equals(rows), (seed, arrived.to_pylist(), rows.to_pylist())


def test_nothing_is_written_over_what_lies_between_empty_buffers() -> None:
    """Zeros for the buffers of an empty child come from the host, and the buffers between them from a device."""
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    codes = pa.array(["u", "v"]).dictionary_encode()
    batch = pa.record_batch({"a": empty, "x": codes, "b": empty})
    there = ad.from_arrow(batch).to_device("cuda:0").to_device("cuda:1")
    assert pa.record_batch(there.to_device("cpu")).equals(batch)
