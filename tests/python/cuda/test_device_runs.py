"""Runs that kernels write out, against what the same conversion makes of the data in host memory."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA_MANAGED, DeviceArray, DeviceStream, Memory
from test_device_conversions import FLOATS, INTEGERS, bits, host, numbers
from test_device_dictionaries import failed, same

ENDS = ["int16", "int32", "int64"]
VALUE_TYPES = ["bool", *INTEGERS, *FLOATS]


def runs(ends: str, values: pa.Array, longest: int = 7) -> pa.RunEndEncodedArray:
    """Each value for a random number of rows; the values start inside their memory."""
    lengths = np.random.default_rng(len(values)).integers(1, longest + 1, len(values) - 3)
    return pa.RunEndEncodedArray.from_arrays(pa.array(lengths.cumsum().astype(ends)), values[3:])


def forget(node: producers.Array) -> None:
    for part in [node, *node.parts]:
        if part.array.n_buffers:
            part.array.null_count = -1


def known(_: producers.Array) -> None:
    """Counts of nulls stay as they are."""


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("values", VALUE_TYPES)
def test_every_type_of_ends_and_values(ends: str, values: str, host_waits: Any) -> None:
    data = runs(ends, numbers(values, 60))
    array = ad.from_arrow(DeviceArray(data).give())
    waits = host_waits()
    same(array, data)
    # For the check of runs, and for the copy that the test reads.
    assert waits.ours <= 2
    data = runs(ends, numbers(values, 60, 0.3))
    for change in (known, forget):
        array = ad.from_arrow(DeviceArray(data, change=change).give())
        same(array, data, nulls=1)
        same(array, data, nulls="keep")
        same(array, data, nulls=1, dtype="float64")


@pytest.mark.parametrize("ends", ENDS)
def test_slices_begin_and_end_inside_of_runs(ends: str) -> None:
    data = runs(ends, numbers("int32", 40, 0.2))
    for start, length in ((0, 0), (0, 1), (1, 1), (5, 30), (len(data) - 1, 1), (7, len(data) - 7), (20, 3)):
        part = data[start : start + length]
        same(DeviceArray(part).give(), part, nulls=-1)
        same(DeviceArray(part).give(), part, nulls=-1, dtype="float32")


@pytest.mark.parametrize("ends", ["int32", "int64"])
@pytest.mark.parametrize(
    ("count", "shortest", "longest"), [(4_000, 1, 1), (3_000, 1, 3), (8, 900, 1_500), (70_000, 1, 2), (9, 1, 9_000)]
)
def test_runs_and_blocks_of_rows_begin_anywhere(ends: str, count: int, shortest: int, longest: int) -> None:
    """A block expands 1,024 rows, and searches 256 run ends at a time: of 70,000 runs three times."""
    generator = np.random.default_rng(count)
    last = generator.integers(shortest, longest + 1, count).cumsum()
    data = pa.RunEndEncodedArray.from_arrays(pa.array(last.astype(ends)), pa.array(generator.random(count)))
    start = int(generator.integers(0, len(data) // 2))
    for part in (data, data[start:], data[start : start + 1_025]):
        same(DeviceArray(part).give(), part, dtype="float32")


def test_decimals_in_runs() -> None:
    values = pa.array([150, 250, None, -350, 4, 5]).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    data = runs("int32", values)
    same(DeviceArray(data).give(), data, dtype="float64", nulls="nan")


def test_refused_nulls_name_their_row() -> None:
    data = pa.RunEndEncodedArray.from_arrays(pa.array([3, 5, 9], pa.int32()), pa.array([1, None, 3]))
    for change in (known, forget):
        errors = [failed(ad.NullError, obj) for obj in (DeviceArray(data, change=change).give(), data)]
        assert [error.row for error in errors] == [3, 3]
    same(DeviceArray(data[5:]).give(), data[5:])


def changed(ends: list[int], dtype: str = "int32") -> DeviceArray:
    """Nine rows of three runs, whose ends are replaced on the device."""
    data = pa.RunEndEncodedArray.from_arrays(pa.array([3, 5, 9], dtype), pa.array([1.5, 2.5, 3.5]))
    memory = Memory()
    placed = memory.place(np.array(ends, dtype).tobytes())

    def replace(node: producers.Array) -> None:
        node.parts[0].buffers[1] = placed

    return DeviceArray(data, memory=memory, change=replace)


@pytest.mark.parametrize("dtype", ENDS)
def test_runs_that_end_before_the_last_row_are_an_error_of_the_row(dtype: str) -> None:
    """No value is read by them: the driver would report it."""
    error = failed(ValueError, changed([1, 2, 7], dtype).give())
    assert (error.row, "end before this row" in str(error)) == (7, True)


@pytest.mark.parametrize("dtype", ENDS)
@pytest.mark.parametrize("ends", [[3, 3, 9], [3, 2, 9], [0, 5, 9], [-4, 5, 9], [5, 9, 1], [9, 8, 7]])
def test_ends_that_do_not_increase_are_an_error(ends: list[int], dtype: str) -> None:
    error = failed(ValueError, changed(ends, dtype).give(), dtype="float32")
    assert "is not above the one before" in str(error)


@pytest.mark.parametrize("tail", [0, 1, 700])
@pytest.mark.parametrize("to", ["float64", "int32"])
def test_many_ends_that_do_not_increase_are_an_error(tail: int, to: str) -> None:
    """Searches of all runs, and those that begin at a run that is known, meet other ends."""
    ends = np.concatenate([np.arange(1, 721), np.full(480, tail)]).astype("int32")
    data = pa.RunEndEncodedArray.from_arrays(pa.array(np.arange(1, 1_201, dtype="int32")), pa.array(np.arange(1_200.0)))
    memory = Memory()
    placed = memory.place(ends.tobytes())

    def replace(node: producers.Array) -> None:
        node.parts[0].buffers[1] = placed

    error = failed(ValueError, DeviceArray(data, memory=memory, change=replace).give(), dtype=to)
    assert "end before this row" in str(error) or "is not above the one before" in str(error)


@pytest.mark.parametrize("dtype", ENDS)
@pytest.mark.parametrize("seed", range(8))
def test_any_ends_are_an_error_or_the_rows_that_they_say(seed: int, dtype: str) -> None:
    generator = np.random.default_rng(seed)
    rows, count = int(generator.integers(1, 3_000)), int(generator.integers(1, 600))
    ends = np.sort(generator.choice(np.arange(1, 4_000), count, replace=False)).astype(dtype)
    ends[generator.integers(0, count, seed % 3)] = generator.integers(-5, 4_000, seed % 3)
    values = np.arange(float(count))
    # What the Arrow format requires of the ends: those after the last row's are not looked at.
    used = ends[:rows].astype("int64")
    is_right = (np.diff(used, prepend=0) > 0).all() and (used >= rows).any()
    whole = pa.RunEndEncodedArray.from_arrays(
        pa.array(np.append(np.arange(1, count), max(rows, count)), dtype), pa.array(values)
    )
    memory = Memory()
    placed = memory.place(ends.tobytes())

    def replace(node: producers.Array) -> None:
        node.parts[0].buffers[1] = placed
        node.array.length = rows

    array = DeviceArray(whole, memory=memory, change=replace).give()
    if is_right:
        expected = values[np.searchsorted(used, np.arange(rows), side="right")]
        assert np.array_equal(host(ad.to_tensor(array)), bits(expected))
    else:
        error = failed(ValueError, array)
        assert "end before this row" in str(error) or "is not above the one before" in str(error)


@pytest.mark.parametrize("dtype", ENDS)
def test_ends_that_no_row_needs_are_not_looked_at(dtype: str) -> None:
    """Runs behind the last row: as ends increase, row n is in one of the first n + 1 runs."""
    rows, count = 1_500, 4_000
    ends = np.concatenate([np.arange(1, rows + 1), np.full(count - rows, 7)]).astype(dtype)
    values = np.arange(float(count))
    data = pa.RunEndEncodedArray.from_arrays(pa.array(np.arange(1, count + 1, dtype=dtype)), pa.array(values))
    memory = Memory()
    placed = memory.place(ends.tobytes())

    def replace(node: producers.Array) -> None:
        node.parts[0].buffers[1] = placed
        node.array.length = rows

    made = ad.to_tensor(DeviceArray(data, memory=memory, change=replace).give())
    assert np.array_equal(host(made), bits(values[:rows]))


@pytest.mark.parametrize("order", ["C", "F"])
def test_columns_of_a_matrix(order: str) -> None:
    encoded = runs("int32", numbers("float32", 40, 0.2))
    columns = {
        "a": encoded,
        "b": numbers("float32", len(encoded), 0.2, 2),
        "c": runs("int16", numbers("int16", 43), 9)[: len(encoded)],
    }
    rows = min(len(column) for column in columns.values())
    data = pa.StructArray.from_arrays([column[:rows] for column in columns.values()], list(columns))
    same(DeviceArray(data).give(), data, dtype="float32", order=order, nulls=2)
    made = ad.to_tensors(DeviceArray(data).give(), nulls=2)
    for name, expected in ad.to_tensors(data, nulls=2).items():
        assert np.array_equal(host(made[name]), bits(expected))


def test_chunks_lists_and_memory_that_is_there() -> None:
    parts = [runs("int32", numbers("int32", count)) for count in (10, 30)]
    stream = DeviceStream([DeviceArray(part) for part in parts])
    same(ad.from_arrow(stream.give()), pa.chunked_array(parts))
    data = runs("int32", numbers("int32", 30))
    out = ad.to_tensor(DeviceArray(pa.array(np.zeros(len(data), "int32"))).give(), writable=True)
    ad.to_tensor(DeviceArray(data).give(), out=out)
    assert np.array_equal(host(out), bits(ad.to_tensor(data)))
    rows = len(data) // 3 * 3
    lists = pa.FixedSizeListArray.from_arrays(data[:rows], 3)[1:]
    same(DeviceArray(lists).give(), lists)


@pytest.mark.parametrize("kind", [2, CUDA_MANAGED])
def test_explain_says_what_the_kernels_do(kind: int) -> None:
    data = runs("int16", numbers("int32", 40))
    array = ad.from_arrow(DeviceArray(data, kind).give())
    with ad.track_copies() as log:
        ad.to_tensor(array)
    (row,) = ad.explain(array)
    assert row.steps == ["decoded"]
    assert any("every row a run" in wait for wait in row.waits)
    assert [entry.bytes for entry in log] == [row.bytes] == [4 * len(data)]
    with pytest.raises(ad.CopyError):
        ad.to_tensor(array, copy=False)


def test_other_values_name_the_way_to_the_host() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", "b"]))
    data = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 5], pa.int32()), values)
    assert "to_device" in str(failed(BufferError, DeviceArray(data).give()))
