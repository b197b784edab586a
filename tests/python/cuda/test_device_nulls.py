"""Are nulls that no array has counted, and bytes that have to be bools, looked at by kernels where they are many?"""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_MANAGED, DeviceArray

# Bitmaps of more bytes than the host copies instead.
ROWS = (64 << 10) * 8 + 1000
NO_MEMORY = 2


def forget(node: producers.Array) -> None:
    for part in [node, *node.parts]:
        part.array.null_count = -1
        if part.array.dictionary:
            producers.ArrowArray.from_address(part.array.dictionary).null_count = -1


def column(rows: int, nulls: tuple[int, ...] = (), offset: int = 0) -> pa.Array:
    """Bytes with a bitmap whose bits before and behind are not set."""
    valid = np.zeros(offset + rows + 50, dtype=bool)
    valid[offset : offset + rows] = True
    valid[[offset + null for null in nulls]] = False
    values = np.arange(len(valid)).astype("int8")
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.int8(), rows, [bitmap, pa.py_buffer(values.tobytes())], offset=offset)


def copied_by(work: Any) -> tuple[int, int]:
    """The copies to the host of a call, and its launches of kernels."""
    names = ("cuMemcpyDtoHAsync_v2", "cuLaunchKernel")
    before = [driver.calls(name) for name in names]
    work()
    copies, launches = (driver.calls(name) - count for name, count in zip(names, before, strict=True))
    return copies, launches


@pytest.mark.parametrize("offset", [0, 5, 131])
def test_a_large_bitmap_is_counted_on_the_device(offset: int, host_waits: Any) -> None:
    array = ad.from_arrow(DeviceArray(column(ROWS, offset=offset), change=forget).give())
    waits = host_waits()
    assert copied_by(lambda: ad.to_tensor(array)) == (1, 1)
    assert waits.ours <= 1
    assert not ad.to_tensor(array).copied


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("null", [0, 1, ROWS // 2, ROWS - 1])
def test_a_null_is_named_with_its_row(null: int, offset: int) -> None:
    source = DeviceArray(column(ROWS, (null,), offset), change=forget, field=pa.field("x", pa.int8()))
    with pytest.raises(ad.NullError) as raised:
        ad.to_tensor(source.give())
    assert (raised.value.row, raised.value.column) == (null, "x")


@pytest.mark.parametrize("null", [None, 2 * ROWS - 1])
def test_the_bits_of_lists_and_of_their_items(null: int | None, host_waits: Any) -> None:
    items = column(2 * ROWS, () if null is None else (null,), 3)
    lists = pa.FixedSizeListArray.from_arrays(items, 2)
    source = DeviceArray(lists, change=forget)
    waits = host_waits()
    if null is None:
        assert ad.to_tensor(source.give()).shape == (ROWS, 2)
        assert waits.ours <= 1
    else:
        with pytest.raises(ad.NullError) as raised:
            ad.to_tensor(source.give())
        assert raised.value.row == null // 2


@pytest.mark.parametrize("nulls", [(), (77,)])
@pytest.mark.parametrize("columns", [9, 160, 161, 330])
def test_many_bitmaps_are_counted_by_one_launch_for_160(columns: int, nulls: tuple[int, ...], host_waits: Any) -> None:
    arrays = [column(100 + number, offset=number % 9).slice(0, 100) for number in range(columns)]
    arrays[-1] = column(100, nulls)
    names = [f"c{number}" for number in range(columns)]
    source = DeviceArray(pa.StructArray.from_arrays(arrays, names), change=forget)
    batch = ad.from_arrow(source.give())
    if nulls:
        for work in (lambda: ad.to_tensors(batch), lambda: ad.to_tensor(batch, dtype="int8")):
            with pytest.raises(ad.NullError) as raised:
                work()
            assert (raised.value.row, raised.value.column) == (77, names[-1])
        return
    waits = host_waits()
    assert copied_by(lambda: ad.to_tensors(batch)) == (1, -(-columns // 160))
    assert waits.ours <= 1
    waits = host_waits()
    ad.to_tensors(batch, columns={"x": names[:-1], "y": names[-1:]})
    ad.to_tensor(batch)
    assert waits.ours <= 2


@pytest.mark.parametrize("byte", [1, 2])
@pytest.mark.parametrize("columns", [1, 20])
def test_bools_are_looked_at_beside_the_bitmaps(columns: int, byte: int, host_waits: Any) -> None:
    stored = pa.array([0, 1] * 40, pa.int8())
    last = pa.array([0, 1] * 39 + [0, byte], pa.int8())
    arrays = [pa.ExtensionArray.from_storage(pa.bool8(), stored) for _ in range(columns - 1)]
    arrays.append(pa.ExtensionArray.from_storage(pa.bool8(), last))
    arrays += [column(80) for _ in range(10)]
    names = [f"c{number}" for number in range(len(arrays))]
    batch = pa.RecordBatch.from_arrays(arrays, names)
    given = ad.from_arrow(DeviceArray(batch.to_struct_array(), change=forget).give())
    waits = host_waits()
    tensors = ad.to_tensors(given)
    assert waits.ours <= 1
    assert [name for name in names if tensors[name].copied] == ([] if byte == 1 else [names[columns - 1]])
    for name in names[:columns]:
        expected = np.from_dlpack(ad.to_tensor(batch[name]))
        assert np.array_equal(np.from_dlpack(tensors[name].to_device("cpu")), expected)


def test_the_bitmap_of_a_dictionary_counts(host_waits: Any) -> None:
    for nulls in ((), (ROWS - 1,)):
        values = column(ROWS, nulls)
        codes = pa.array([0, ROWS - 1], pa.int32())
        source = DeviceArray(pa.DictionaryArray.from_arrays(codes, values), change=forget)
        if nulls:
            with pytest.raises(BufferError, match="dictionary"):
                ad.to_tensor(source.give())
            continue
        waits = host_waits()
        assert not ad.to_tensor(source.give()).copied
        assert waits.ours <= 1


def test_memory_that_the_host_may_read_is_read_there(host_waits: Any) -> None:
    array = ad.from_arrow(DeviceArray(column(ROWS), CUDA_MANAGED, change=forget).give())
    waits = host_waits()
    assert copied_by(lambda: ad.to_tensor(array)) == (0, 0)
    assert waits.ours <= 1


def test_a_device_that_loads_no_kernels_copies_the_bitmap(host_waits: Any) -> None:
    array = ad.from_arrow(DeviceArray(column(ROWS), CUDA, change=forget).give())
    driver.fail("cuModuleLoadData", 1, NO_MEMORY)
    waits = host_waits()
    assert copied_by(lambda: ad.to_tensor(array)) == (1, 0)
    assert waits.ours <= 1


def test_few_small_bitmaps_need_no_kernels() -> None:
    array = ad.from_arrow(DeviceArray(column(1000), change=forget).give())
    assert copied_by(lambda: ad.to_tensor(array)) == (1, 0)
    assert driver.calls("cuModuleLoadData") == 0


def test_a_bitmap_beyond_its_allocation_is_refused() -> None:
    def longer(node: producers.Array) -> None:
        node.array.null_count, node.array.length = -1, ROWS

    source = DeviceArray(pa.array([1, None, 3], pa.int8()), change=longer)
    with pytest.raises(ValueError, match="bytes"):
        ad.to_tensor(source.give())
