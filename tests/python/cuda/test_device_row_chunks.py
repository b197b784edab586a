"""Ragged rows of slices and of several chunks on a device, against what the host makes of them."""

from __future__ import annotations

import random
import struct
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream, Memory
from test_device_conversions import bits
from test_device_dictionaries import forget

TYPES = [
    pa.list_(pa.int16()),
    pa.large_list(pa.float32()),
    pa.list_view(pa.int8()),
    pa.large_list_view(pa.int64()),
    pa.list_(pa.bool_()),
    pa.string(),
    pa.large_binary(),
    pa.list_(pa.list_(pa.int32())),
    pa.large_list(pa.list_view(pa.int16())),
    pa.list_(pa.string()),
]


def on_device(*chunks: pa.Array, kind: int = CUDA) -> ad.ArrayStream:
    return ad.from_arrow(DeviceStream([DeviceArray(chunk, kind) for chunk in chunks], kind).give())


def host(tensor: ad.Tensor) -> np.ndarray:
    return bits(tensor.to_device("cpu"))


def is_the_same(made: Any, expected: Any) -> None:
    for name in ("offsets", "lengths", "validity"):
        own, other = getattr(made, name), getattr(expected, name)
        if own is None and name == "validity":
            # Arrays without a bitmap have no null rows, and on the host they are told so.
            assert other is None or bits(other).all()
            continue
        assert (own is None) == (other is None), name
        if own is not None:
            assert (own.dtype, own.shape) == (other.dtype, other.shape)
            assert np.array_equal(host(own), bits(other)), name
    if isinstance(expected.values, ad.Ragged):
        is_the_same(made.values, expected.values)
    else:
        assert (made.values.dtype, made.values.shape) == (expected.values.dtype, expected.values.shape)
        own, other = host(made.values), bits(expected.values)
        if expected.lengths is None:
            assert np.array_equal(own, other)
        else:
            # Elements that no row shows may be any.
            for start, length in zip(bits(expected.offsets), bits(expected.lengths), strict=True):
                assert np.array_equal(own[start : start + length], other[start : start + length])


def rows(data_type: pa.DataType, count: int, nulls: float, seed: int) -> pa.Array:
    chance = random.Random(seed)

    def value(own: pa.DataType, may_be_null: float) -> Any:
        if chance.random() < may_be_null:
            return None
        if pa.types.is_string(own) or pa.types.is_large_binary(own):
            text = "abcdefghi"[: chance.randrange(9)]
            return text if pa.types.is_string(own) else text.encode()
        if pa.types.is_boolean(own):
            return chance.random() < 0.5
        if pa.types.is_integer(own) or pa.types.is_floating(own):
            return chance.randrange(100)
        return [value(own.value_type, may_be_null) for _ in range(chance.randrange(5))]

    return pa.array([value(data_type, nulls) for _ in range(count)], data_type)


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_slices_and_chunks_are_those_of_the_host(data_type: pa.DataType, seed: int) -> None:
    chance = random.Random(seed)
    nulls = chance.choice([{}, {"nulls": "keep"}, {"nulls": 0}])
    keywords: dict[str, Any] = nulls | chance.choice([{}, {"copy": True}])
    whole = rows(data_type, chance.choice([3, 40, 700]), 0.2 if "nulls" in keywords else 0.0, seed)
    cuts = sorted(chance.randrange(len(whole) + 1) for _ in range(chance.randrange(5)))
    chunks = [whole[start:end] for start, end in zip([chance.randrange(2), *cuts], [*cuts, len(whole)], strict=True)]
    stream = on_device(*chunks)
    report = ad.explain(stream, **keywords)
    assert {row.error for row in report} == {None}
    made = ad.to_ragged(stream, **keywords)
    expected = ad.to_ragged(pa.chunked_array(chunks, data_type), **keywords)
    is_the_same(made, expected)
    assert made.offsets.device == made.values.device == ad.Device("cuda:0")
    level, path = made, ""
    while isinstance(level, ad.Ragged):
        how = report[f"{path}offsets"].how
        assert level.offsets.copied in {"copy": (True,), "view": (False,)}.get(how, (True, False)), (path, how)
        assert (how == "copy") == ("copy" in keywords)
        level, path = level.values, f"{path}values."


@pytest.mark.parametrize("memory", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("skipped", range(5))
@pytest.mark.parametrize("data_type", [pa.list_(pa.int8()), pa.large_list(pa.int8())], ids=str)
def test_the_offsets_of_a_slice_are_rebased_at_any_alignment(
    memory: int, skipped: int, data_type: pa.DataType, host_waits: Any
) -> None:
    data = pa.array([[n] * (n % 4) for n in range(1, 50)], data_type)[skipped:]
    array = ad.from_arrow(DeviceArray(data, memory).give())
    waits = host_waits()
    with ad.track_copies() as log:
        made = ad.to_ragged(array)
    # The first and the last offset.
    assert waits.ours <= 1
    is_the_same(made, ad.to_ragged(data))
    assert (made.offsets.copied, made.values.copied) == (skipped > 0, False)
    bytes_moved = [made.offsets.nbytes] if skipped else []
    assert [entry.bytes for entry in log] == bytes_moved
    assert all("offsets of a slice rebased" in entry.why and "on cuda" in entry.what for entry in log)
    row = ad.explain(array)["offsets"]
    assert (row.how, row.bytes, row.kernel) == ("view or copy", made.offsets.nbytes, True)
    assert row.steps == ["offsets of a slice rebased, if it is one"]


@pytest.mark.parametrize("skipped", [0, 1])
def test_the_rebased_offsets_of_page_locked_memory_are_copied_back(skipped: int) -> None:
    data = pa.array([[n] * (n % 4) for n in range(1, 50)], pa.list_(pa.int8()))[skipped:]
    array = ad.from_arrow(DeviceArray(data, CUDA_HOST).give())
    row = ad.explain(array, device="cuda_host")["offsets"]
    with ad.track_copies() as log:
        made = ad.to_ragged(array, device="cuda_host")
    assert made.offsets.device == array.device
    assert (row.how, row.bytes, row.device) == ("view or copy", 2 * made.offsets.nbytes, array.device)
    assert row.steps[1:] == ["copied to cuda_host:0, direct, if a kernel made it"]
    assert log.bytes == skipped * row.bytes


def test_without_a_copy_a_slice_is_refused_once_it_is_known_to_be_one() -> None:
    data = pa.array([[1, 2], [3]])
    array = ad.from_arrow(DeviceArray(data).give())
    row = ad.explain(array, copy=False)["offsets"]
    assert (row.how, row.bytes, row.refused_if) == ("view", 0, ["they are those of a slice"])
    assert not ad.to_ragged(array, copy=False).offsets.copied
    with pytest.raises(ad.CopyError, match="8 bytes is needed") as caught:
        ad.to_ragged(DeviceArray(data[1:]).give(), copy=False)
    assert caught.value.remedy == "pass copy=None to allow it"
    stream = on_device(data, data)
    row = ad.explain(stream, copy=False)["offsets"]
    assert row.refused_if[:2] == ["rows are not in one aligned chunk", "they are those of a slice"]
    with pytest.raises(ad.CopyError, match="2 chunks joined"):
        ad.to_ragged(stream, copy=False)


def test_misaligned_offsets_of_a_chunk_are_refused() -> None:
    data = pa.array([[1], [2, 3]])
    memory = Memory()
    moved = memory.place(b"\0\0" + data.buffers()[1].to_pybytes()) + 2

    def replace(node: producers.Array) -> None:
        node.buffers[1] = moved

    chunks = [DeviceArray(data), DeviceArray(data, memory=memory, change=replace)]
    with pytest.raises(ad.ConversionError, match="2 chunks joined, values not aligned for int32 realigned"):
        ad.to_ragged(DeviceStream(chunks).give())


def test_null_rows_that_are_refused_or_filled_are_those_of_all_chunks() -> None:
    chunks = [pa.array([[1], [2]]), pa.array([[3], None, [4]])]
    with pytest.raises(ad.NullError, match="the row is null") as caught:
        ad.to_ragged(on_device(*chunks))
    assert caught.value.row == 3
    stream = on_device(*chunks)
    assert ad.explain(stream, nulls=0)["offsets"].refused_if == ["null rows span elements"]
    is_the_same(ad.to_ragged(stream, nulls=0), ad.to_ragged(pa.chunked_array(chunks), nulls=0))
    made = ad.to_ragged(on_device(*chunks), nulls="keep")
    assert np.array_equal(host(made.validity), [1, 1, 1, 0, 1])


@pytest.mark.parametrize("ends", [(2, 9), (2, -1), (3, 2)], ids=["beyond", "negative", "descending"])
def test_offsets_of_a_later_chunk_that_lead_out_of_its_elements_are_refused(ends: tuple[int, int]) -> None:
    memory = Memory()
    wrong = memory.place(struct.pack("3i", ends[0], 2, ends[1]))

    def replace(node: producers.Array) -> None:
        node.buffers[1] = wrong

    data = pa.array([[1, 2], [3]])
    arrays = [DeviceArray(data), DeviceArray(data, memory=memory, change=replace)]
    with pytest.raises(ad.ConversionError, match="offsets from"):
        ad.to_ragged(DeviceStream(arrays).give())


def test_chunks_with_more_elements_than_32_bit_offsets_count_are_refused() -> None:
    def grown(node: producers.Array) -> None:
        node.parts[0].array.length = 1 << 30

    def chunk(memory: Memory) -> DeviceArray:
        ends = memory.place(struct.pack("2i", 0, 1 << 30))

        def replace(node: producers.Array) -> None:
            node.buffers[1] = ends
            grown(node)

        return DeviceArray(pa.array([[1]], pa.list_(pa.int8())), memory=memory, change=replace)

    with pytest.raises(ad.ConversionError, match="offsets beyond int32") as caught:
        ad.to_ragged(DeviceStream([chunk(Memory()) for _ in range(2)]).give())
    assert "large_list" in str(caught.value.remedy)


def test_views_of_many_elements_are_refused_by_their_count() -> None:
    """Where a view begins is not on the host."""

    def grown(node: producers.Array) -> None:
        node.parts[0].array.length = 1 << 30

    view = pa.array([[1]], pa.list_view(pa.int8()))
    with pytest.raises(ad.ConversionError, match="offsets beyond int32"):
        ad.to_ragged(DeviceStream([DeviceArray(view, change=grown) for _ in range(2)]).give())


def test_every_chunk_is_waited_for() -> None:
    """Each is written on a stream of its own, behind work that is not done."""
    data = [pa.array([[n, n + 1], [n]], pa.list_(pa.int32())) for n in range(3)]
    made = ad.to_ragged(on_device(*data))
    tensors = [made.values, made.offsets]
    assert [np.from_dlpack(tensor.to_device("cpu")).tolist() for tensor in tensors] == [
        [0, 1, 0, 1, 2, 1, 2, 3, 2],
        [0, 2, 3, 5, 6, 8, 9],
    ]


def test_no_kernel_of_theirs_becomes_part_of_a_graph() -> None:
    array = ad.from_arrow(DeviceArray(pa.array([[1, 2], [3]])[1:]).give())
    stream = driver.Stream()
    refused = pytest.raises(BufferError, match="is being captured")
    with ad.stream(stream), driver.capture(stream.handle), refused:
        ad.to_ragged(array)
    with ad.stream(stream):
        assert np.from_dlpack(ad.to_ragged(array).offsets.to_device("cpu")).tolist() == [0, 1]


def test_groups_have_rows_of_slices_and_of_chunks_too() -> None:
    lists = pa.array([[n] * (n % 3) for n in range(20)], pa.list_(pa.int32()))
    batch = pa.StructArray.from_arrays([lists, pa.array(range(20))], ["x", "n"])
    chunks = [batch[3:10], batch[10:11], batch[11:]]
    columns: dict[str, Any] = {"rows": ad.ragged("x"), "n": ["n"]}
    made = ad.to_tensors(on_device(*chunks), columns=columns)
    expected = ad.to_tensors(pa.chunked_array(chunks), columns=columns)
    is_the_same(made["rows"], expected["rows"])
    assert np.array_equal(host(made["n"]), bits(expected["n"]))


def spanning(data_type: pa.DataType) -> pa.Array:
    """A null row that spans an element of its own."""
    items, mask = pa.array([1, 2, 3, 4], pa.int16()), pa.array([False, True, False])
    if pa.types.is_list_view(data_type):
        starts, lengths = pa.array([0, 1, 2], pa.int32()), pa.array([1, 1, 2], pa.int32())
        return pa.ListViewArray.from_arrays(starts, lengths, items, mask=mask)
    offsets = [0, 1, 2, 4]
    if pa.types.is_large_list(data_type):
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), items, mask=mask)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, mask=mask)


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, pa.list_view])
@pytest.mark.parametrize("memory", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_null_rows_without_elements_are_empty_already_and_others_are_refused(
    make: Any, memory: int, host_waits: Any
) -> None:
    data_type = make(pa.int16())
    free = pa.array([[1], None, [], [2, None, 3], None], data_type)
    for data in (free, free[1:], free[3:], free[1:2], spanning(data_type)[2:], spanning(data_type)[:1]):
        array = ad.from_arrow(DeviceArray(data, memory, change=forget).give())
        row = ad.explain(array, nulls=7)["offsets"]
        waits = host_waits()
        made = ad.to_ragged(array, nulls=7)
        # One for the rows; elements are filled by a kernel.
        assert waits.ours <= 1
        is_the_same(made, ad.to_ragged(data, nulls=7))
        assert made.offsets.copied == (not pa.types.is_list_view(data_type) and row.how != "view" and starts_late(data))
        assert row.refused_if == (["null rows span elements"] if data.buffers()[0] else [])
        ends = [] if pa.types.is_list_view(data_type) else ["the first and the last offset are read"]
        views = "whether null rows span elements is read"
        told = [f"{ends[0]}, and whether null rows span elements" if ends else views]
        assert row.waits == (told if row.refused_if else ends)
    array = ad.from_arrow(DeviceArray(spanning(data_type), memory).give())
    row = ad.explain(array, nulls=7)["offsets"]
    assert (row.error, row.refused_if) == (None, ["null rows span elements"])
    with pytest.raises(ad.ConversionError, match="null rows made empty") as caught:
        ad.to_ragged(array, nulls=7)
    assert "copy the data to the CPU first" in str(caught.value.remedy)
    assert np.array_equal(host(ad.to_ragged(array, nulls="keep").validity), [1, 0, 1])


def starts_late(data: pa.Array) -> bool:
    offsets = np.frombuffer(data.buffers()[1], "int64" if pa.types.is_large_list(data.type) else "int32")
    return bool(offsets[data.offset])


def test_a_row_outside_of_the_elements_is_named_where_nulls_are_filled() -> None:
    """The kernel that looks for null rows looks at all offsets."""
    memory = Memory()
    wrong = memory.place(struct.pack("4i", 0, 2, 1, 3))

    def replace(node: producers.Array) -> None:
        node.buffers[1] = wrong

    data = pa.array([[1, 2], None, [3]])
    with pytest.raises(ad.ConversionError, match=r"offsets from 2 to 1 of 3 elements") as caught:
        ad.to_ragged(
            DeviceStream([DeviceArray(data), DeviceArray(data, memory=memory, change=replace)]).give(), nulls=0
        )
    assert caught.value.row == 4


@pytest.mark.parametrize("nulls", ["error", "keep", 7])
def test_the_bitmap_of_no_rows_is_not_read(nulls: Any, host_waits: Any) -> None:
    array = ad.from_arrow(DeviceArray(pa.array([None, [1]])[:0], change=forget).give())
    assert [row.waits for row in ad.explain(array, nulls=nulls) if row.column == "offsets"] == [[]]
    waits = host_waits()
    made = ad.to_ragged(array, nulls=nulls)
    assert (waits.ours, len(made), made.validity) == (0, 0, None)


def test_the_offset_of_no_rows_is_writable_where_that_is_asked_for() -> None:
    for data in (pa.array([], pa.list_(pa.int8())), pa.array([[], []], pa.list_(pa.list_(pa.int8())))):
        for memory in (CUDA, CUDA_HOST, CUDA_MANAGED):
            for keywords in ({"writable": True}, {"copy": True}):
                with ad.track_copies() as log:
                    made = ad.to_ragged(DeviceArray(data, memory).give(), **keywords)
                inner = made.values.offsets if isinstance(made.values, ad.Ragged) else made.offsets
                assert (inner.copied, inner.writable) == (True, True), keywords
                assert len(log) == (1 if len(data) else 0)
            assert not ad.to_ragged(DeviceArray(data[:0], memory).give()).offsets.writable


def test_the_offset_of_no_rows_is_waited_for() -> None:
    """It is written on the stream of the call, and read on one that waits for no other."""
    consumer, work = driver.Stream(), driver.Stream()
    gate = driver.gate(work.handle)
    with ad.stream(work):
        rows = ad.to_ragged(ad.from_arrow(DeviceArray(pa.array([], pa.list_(pa.int64()))).give()))
    held = fakes.cupy(rows.offsets, consumer.handle)
    driver.open_gate(gate)
    assert driver.read(held.address, 4, consumer.handle) == bytes(4)
    held.release()


def test_list_views_of_one_chunk_have_any_number_of_elements() -> None:
    def grown(node: producers.Array) -> None:
        node.parts[0].array.length = (1 << 31) + 8

    views = pa.array([[[]], [[], []]], pa.list_view(pa.list_(pa.int8(), 0)))
    made = ad.to_ragged(DeviceArray(views, change=grown).give())
    assert (made.offsets.copied, made.values.shape) == (False, ((1 << 31) + 8, 0))


def test_copies_of_what_may_be_a_slice_name_its_offsets() -> None:
    array = ad.from_arrow(DeviceArray(pa.array([[1, 2], [3]])[1:]).give())
    row = ad.explain(array, copy=True)["offsets"]
    assert (row.how, row.steps) == ("copy", ["memory of its own asked for", "offsets of a slice rebased, if it is one"])
    with ad.track_copies() as log:
        ad.to_ragged(array, copy=True)
    assert "offsets of a slice rebased" in log.entries[0].why


@pytest.mark.parametrize("keywords", [{}, {"copy": False}])
def test_items_that_are_views_of_strings_are_refused_as_the_conversion_does(keywords: dict[str, Any]) -> None:
    array = ad.from_arrow(DeviceArray(pa.array([["a"], ["b", "c"]], pa.list_(pa.string_view()))).give())
    errors = {row.error for row in ad.explain(array, **keywords)}
    with pytest.raises(ad.ConversionError, match="views gathered") as caught:
        ad.to_ragged(array, **keywords)
    assert str(caught.value) in errors


@pytest.mark.parametrize("nulls", ["error", "keep", 7])
def test_groups_of_a_stream_wait_for_what_the_column_alone_waits_for(nulls: Any) -> None:
    lists = pa.array([[1], None, [2, 3]])
    stream = ad.from_arrow(pa.table({"x": lists})).to_device("cuda")
    grouped = ad.explain(stream, columns={"x": ad.ragged("x", nulls=nulls)})
    alone = ad.from_arrow(pa.chunked_array([lists])).to_device("cuda")
    expected = {row.column: (row.how, row.waits) for row in ad.explain(alone, nulls=nulls)}
    assert {row.column.removeprefix("x."): (row.how, row.waits) for row in grouped} == expected
    assert any("offset" in wait for row in grouped for wait in row.waits)
