"""Tensors of columns on a device: views, never read by the host but where cuda.md says so, and back to Arrow."""

from __future__ import annotations

import struct
from typing import Any

import arrow_dlpack as ad
import device_arrow
import driver
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, Memory, exported, pointer

KINDS = [CUDA, CUDA_HOST, CUDA_MANAGED]


def unknown_nulls(node: producers.Array) -> None:
    node.array.null_count = -1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("data", "dtype", "shape", "skipped"),
    [
        (pa.array([1, 2, 3], pa.int16()), "int16", (3,), 0),
        (pa.array([1, 2, 3, 4, 5], pa.float32())[2:], "float32", (3,), 8),
        (pa.array([1, 2], pa.timestamp("s")), "int64", (2,), 0),
        (pa.array([b"ab", b"cd"], pa.binary(2)), "uint8", (2, 2), 0),
    ],
    ids=["int16", "slice", "timestamp", "bytes"],
)
def test_plain_columns_are_views(
    kind: int, data: pa.Array, dtype: str, shape: tuple[int, ...], skipped: int, host_waits: Any
) -> None:
    source = DeviceArray(data, kind)
    array = ad.from_arrow(source.give())
    waits = host_waits()
    tensor = ad.to_tensor(array)
    assert (tensor.dtype, tensor.shape, tensor.device.type, tensor.writable) == (dtype, shape, kind, False)
    assert pointer(tensor) == source.addresses[1] + skipped
    assert (waits.ours, waits.drivers) == (0, 0)


def test_fixed_size_lists_and_tensors_are_views(host_waits: Any) -> None:
    lists = DeviceArray(pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], pa.list_(pa.list_(pa.int32(), 2), 2)))
    tensors = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [2, 3], permutation=[1, 0]),
        pa.array([list(range(6)), list(range(6))], pa.list_(pa.float32(), 6)),
    )
    shaped = DeviceArray(tensors)
    waits = host_waits()
    tensor = ad.to_tensor(lists.give())
    assert (tensor.shape, tensor.strides, pointer(tensor)) == ((2, 2, 2), (4, 2, 1), lists.addresses[-1])
    tensor = ad.to_tensor(shaped.give())
    assert (tensor.shape, tensor.strides, pointer(tensor)) == ((2, 3, 2), (6, 1, 3), shaped.addresses[-1])
    assert (waits.ours, waits.drivers) == (0, 0)


def test_codes_are_views_and_return_with_their_dictionary(host_waits: Any) -> None:
    source = DeviceArray(pa.array(["a", "b", "a"]).dictionary_encode())
    waits = host_waits()
    tensor = ad.to_tensor(source.give())
    assert (tensor.dtype, pointer(tensor)) == ("int32", source.addresses[1])
    with exported(ad.to_arrow(tensor)) as back:
        assert back.array.dictionary
        assert device_arrow.event_of(back) == source.event.handle
    assert (waits.ours, waits.drivers) == (0, 0)


@pytest.mark.parametrize("code", [0, 7])
def test_kept_codes_of_nulls_do_not_return_unchecked(code: int, host_waits: Any) -> None:
    codes = pa.Array.from_buffers(pa.int8(), 3, [pa.py_buffer(b"\5"), pa.py_buffer(bytes([0, code, 0]))])
    source = DeviceArray(pa.DictionaryArray.from_arrays(codes, pa.array(["a"]), safe=False))
    tensor = ad.to_tensor(source.give(), nulls="keep")
    waits = host_waits()
    if code == 0:
        assert ad.to_arrow(tensor).device == tensor.device
    else:
        with pytest.raises(BufferError, match="code"):
            ad.to_arrow(tensor)
    # The host looks at them.
    assert waits.ours <= 1
    assert waits.drivers == 0


@pytest.mark.parametrize("values", [["a", None], ["a", "b"]], ids=["null", "none"])
def test_a_dictionary_without_a_null_count_is_looked_at(values: list[str | None], host_waits: Any) -> None:
    data = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(values))

    def forget(node: producers.Array) -> None:
        producers.ArrowArray.from_address(node.array.dictionary).null_count = -1

    source = DeviceArray(data, change=forget)
    array = ad.from_arrow(source.give())
    waits = host_waits()
    if None in values:
        with pytest.raises(BufferError, match="dictionary"):
            ad.to_tensor(array)
        assert waits.ours <= 1
    else:
        assert pointer(ad.to_tensor(array)) == source.addresses[1]


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_null_count_is_one_read_for_all_columns(kind: int, host_waits: Any) -> None:
    data = pa.array([dict.fromkeys("abcdefgh", index) for index in range(100)])

    def forget(node: producers.Array) -> None:
        for part in node.parts:
            part.array.null_count = -1

    # Bitmaps without nulls in them.
    columns = [
        pa.Array.from_buffers(pa.int64(), 100, [pa.py_buffer(b"\xff" * 13), column.buffers()[1]])
        for column in (data.field(index) for index in range(8))
    ]
    source = DeviceArray(pa.StructArray.from_arrays(columns, list("abcdefgh")), kind, change=forget)
    batch = ad.from_arrow(source.give())
    waits = host_waits()
    tensors = ad.to_tensors(batch)
    assert waits.ours <= 1
    assert [pointer(tensor) for tensor in tensors.values()] == source.addresses[2::2]
    waits = host_waits()
    groups = ad.to_tensors(batch, columns={"x": ["a"], "y": "b", "z": ["c"]})
    assert (waits.ours <= 1, groups["z"].shape) == (True, (100, 1))


def test_a_null_is_found_where_it_is_not_counted() -> None:
    source = DeviceArray(pa.array([1, 2, None, 4]), change=unknown_nulls)
    with pytest.raises(ad.NullError) as raised:
        ad.to_tensor(source.give())
    assert raised.value.row == 2


REFUSED: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "runs": (pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([b"a"], pa.binary(1))), {}),
    "values": (pa.array([b"a", b"b"], pa.binary(1)).dictionary_encode(), {"dictionary": "values"}),
}

CONVERTED: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "bits": (pa.array([True, False]), {}),
    "cast": (pa.array([1, 2]), {"dtype": "float32"}),
    "copy": (pa.array([1, 2]), {"copy": True}),
    "writable": (pa.array([1, 2]), {"writable": True}),
    "nan": (pa.array([1.0, None]), {"nulls": "nan"}),
    "fill": (pa.array([1.0, None]), {"nulls": 0}),
    "rows": (pa.array([{"a": 1, "b": 2}, {"a": 3, "b": 4}]), {}),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_what_is_no_view_is_converted_where_it_is(name: str, host_waits: Any) -> None:
    data, keywords = CONVERTED[name]
    array = ad.from_arrow(DeviceArray(data).give())
    waits = host_waits()
    tensor = ad.to_tensor(array, **keywords)
    # Only a cast has to know whether every value fits.
    assert waits.ours <= (name == "cast")
    assert tensor.__dlpack_device__() == (2, 0)
    expected = ad.to_tensor(ad.from_arrow(data), **keywords)
    assert (tensor.shape, tensor.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_kernel_says_so(name: str, host_waits: Any) -> None:
    data, keywords = REFUSED[name]
    array = ad.from_arrow(DeviceArray(data).give())
    waits = host_waits()
    with pytest.raises(BufferError, match="cuda:0") as raised:
        ad.to_tensor(array, **keywords)
    assert raised.value.remedy
    assert (waits.ours, waits.drivers) == (0, 0)


def test_out_of_host_memory_is_refused() -> None:
    import numpy as np

    array = ad.from_arrow(DeviceArray(pa.array([1, 2])).give())
    with pytest.raises(BufferError, match="cuda:0"):
        ad.to_tensor(array, out=np.empty(2, np.int64))
    batch = ad.from_arrow(DeviceArray(pa.array([{"a": 1}])).give())
    with pytest.raises(BufferError, match="cuda:0"):
        ad.to_tensor(batch, out=np.empty((1, 1), np.int64))


def matrix(columns: int, rows: int, kind: int = CUDA, gap: int = 0) -> DeviceArray:
    """A batch whose columns are parts of one block: column-major, with a gap after each."""
    data = pa.array([{f"c{column}": float(row) for column in range(columns)} for row in range(rows)])
    block = Memory(kind)
    start = block.place(b"\0" * (8 * columns * (rows + gap)))

    def into_block(node: producers.Array) -> None:
        for index, part in enumerate(node.parts):
            part.buffers[1] = start + 8 * index * (rows + gap)

    return DeviceArray(data, kind, memory=block, change=into_block)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["F", "A"])
def test_columns_that_lie_as_a_matrix_are_a_view_of_one(kind: int, order: str, host_waits: Any) -> None:
    batch = ad.from_arrow(matrix(3, 10, kind, gap=2).give())
    waits = host_waits()
    tensor = ad.to_tensor(batch, order=order)
    assert (tensor.shape, tensor.strides, tensor.device.type, tensor.copied) == ((10, 3), (1, 12), kind, False)
    with pytest.raises(ad.CopyError):
        ad.to_tensor(batch, copy=False)
    packed = ad.to_tensor(batch)
    assert (packed.shape, packed.strides, packed.device.type, packed.copied) == ((10, 3), (3, 1), CUDA, True)
    assert (waits.ours, waits.drivers) == (0, 0)


def test_columns_of_several_allocations_are_no_view() -> None:
    batch = ad.from_arrow(DeviceArray(pa.array([{"a": 1.0, "b": 2.0}] * 512)).give())
    with pytest.raises(ad.CopyError, match="packed"):
        ad.to_tensor(batch, order="F", copy=False)
    assert ad.to_tensor(batch, order="F").copied


def test_a_single_column_is_a_matrix_in_any_order() -> None:
    source = DeviceArray(pa.array([{"a": 1.0}, {"a": 2.0}]))
    tensor = ad.to_tensor(source.give())
    assert (tensor.shape, pointer(tensor)) == ((2, 1), source.addresses[2])


@pytest.mark.parametrize("kind", KINDS)
def test_the_bitmap_is_a_view(kind: int, host_waits: Any) -> None:
    data = pa.array([1, None, 3] * 10)
    source = DeviceArray(data[11:], kind)
    array = ad.from_arrow(source.give())
    waits = host_waits()
    bits, offset = ad.validity(array, bits=True)
    assert (bits.dtype, bits.shape, offset, bits.writable) == ("uint8", (3,), 3, False)
    assert pointer(bits) == source.addresses[0] + 1
    assert (waits.ours, waits.drivers) == (0, 0)
    assert ad.validity(DeviceArray(pa.array([1, 2])).give(), bits=True) is None


def test_bitmaps_of_types_without_one_and_of_two_levels_are_refused() -> None:
    with pytest.raises(BufferError, match="no validity bitmap"):
        ad.validity(DeviceArray(pa.nulls(2)).give(), bits=True)
    batch = ad.from_arrow(DeviceArray(pa.array([{"a": None}, None, {"a": 1}])).give())
    with pytest.raises(BufferError, match="joined"):
        ad.validity(batch["a"], bits=True)


def test_what_has_no_bitmap_names_the_way_to_the_host() -> None:
    """`validity(bits=True)` alone would send the caller back."""
    import numpy as np

    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", None]))
    rows = pa.FixedSizeListArray.from_arrays(runs, 1)
    for data, expected in ((runs, [True, False, False]), (rows, [[True], [False], [False]]), (pa.nulls(1), [False])):
        array = ad.from_arrow(DeviceArray(data).give())
        with pytest.raises(ad.ConversionError, match="a copy on cuda:0 is needed") as caught:
            ad.validity(array)
        assert caught.value.remedy == "copy the data to the CPU first: validity(bits=True) has no bitmap of it to give"
        assert np.from_dlpack(ad.validity(array.to_device("cpu"))).tolist() == expected


def test_the_bitmap_of_codes_is_not_all_of_their_validity() -> None:
    import numpy as np

    data = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    array = ad.from_arrow(DeviceArray(data).give())
    for valid in (ad.validity(array).to_device("cpu"), ad.validity(array.to_device("cpu"))):
        assert np.from_dlpack(valid).tolist() == [True, False, False]
    bits, offset = ad.validity(array, bits=True)
    assert (np.from_dlpack(bits.to_device("cpu"))[0] & 0b111, offset) == (0b011, 0)


def test_the_bitmap_of_host_data_is_a_view_too() -> None:
    import numpy as np

    data = pa.array([1, None, 3, None, 5, 6, 7, 8, None, 10])[1:]
    bits, offset = ad.validity(data, bits=True)
    unpacked = np.unpackbits(np.from_dlpack(bits), bitorder="little")[offset : offset + len(data)]
    assert unpacked.tolist() == [int(value is not None) for value in data.to_pylist()]
    assert ad.validity(pa.array([1]), bits=True) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "data",
    [pa.array([[1, 2], [], [3]]), pa.array(["ab", "", "c"]), pa.array([[1, 2], [], [3]], pa.large_list(pa.int64()))],
    ids=["list", "string", "large"],
)
def test_ragged_parts_are_views(kind: int, data: pa.Array, host_waits: Any) -> None:
    source = DeviceArray(data, kind)
    array = ad.from_arrow(source.give())
    waits = host_waits()
    ragged = ad.to_ragged(array)
    assert waits.ours <= 1
    assert (ragged.values.shape, ragged.offsets.shape, ragged.device.type) == ((3,), (4,), kind)
    assert pointer(ragged.offsets) == source.addresses[1]
    assert pointer(ragged.values) == source.addresses[-1]
    assert len(ragged) == 3
    now = waits.ours
    with exported(ragged) as back:
        assert list(device_arrow.buffers_of(back.array))[1] == source.addresses[1]
        assert (back.device_type, device_arrow.event_of(back)) == (kind, source.event.handle)
    assert waits.ours == now


def test_nested_lists_take_a_read_for_each_level(host_waits: Any) -> None:
    source = DeviceArray(pa.array([[[1, 2], [3]], [], [[4]]]))
    array = ad.from_arrow(source.give())
    waits = host_waits()
    ragged = ad.to_ragged(array)
    assert waits.ours <= 2
    assert (len(ragged), len(ragged.values), ragged.values.values.shape) == (3, 3, (4,))


def test_list_views_read_nothing(host_waits: Any) -> None:
    source = DeviceArray(pa.array([[1, 2], [3]], pa.list_view(pa.int32())))
    array = ad.from_arrow(source.give())
    waits = host_waits()
    ragged = ad.to_ragged(array)
    assert (ragged.offsets.shape, ragged.lengths.shape, ragged.values.shape) == ((2,), (2,), (3,))
    assert (waits.ours, waits.drivers) == (0, 0)


def parts_of(ragged: ad.Ragged) -> list[ad.Tensor]:
    inner = parts_of(ragged.values) if isinstance(ragged.values, ad.Ragged) else [ragged.values]
    return [ragged.offsets, *inner] + ([] if ragged.lengths is None else [ragged.lengths])


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize(
    "data_type",
    [
        pa.list_(pa.int32()),
        pa.large_list(pa.int8()),
        pa.string(),
        pa.list_view(pa.int32()),
        pa.list_(pa.list_(pa.int8())),
    ],
    ids=str,
)
def test_no_rows_have_their_offset_where_rows_have_theirs(data_type: pa.DataType, kind: int, host_waits: Any) -> None:
    ragged = ad.to_ragged(DeviceArray(pa.array([], data_type), kind, 1).give())
    assert len(ragged) == 0
    assert {tensor.device for tensor in parts_of(ragged)} == {ragged.device}
    assert ragged.device.type == kind
    waits = host_waits()
    array = ad.to_arrow(ragged)
    assert (len(array), waits.ours) == (0, 0)
    with exported(array) as back:
        assert (back.device_type, back.device_id, back.array.length) == (kind, 1, 0)
        at = list(device_arrow.buffers_of(back.array))[1]
    if ragged.lengths is None:
        assert at == pointer(ragged.offsets)
        # Page-locked memory stands for managed memory, which is never allocated.
        assert driver.memory_type(at) == (driver.DEVICE_MEMORY if kind == CUDA else driver.HOST_MEMORY)
        assert np.from_dlpack(ragged.offsets.to_device("cpu")).tolist() == [0]
    assert pa.array(array.to_device("cpu")).equals(pa.array([], data_type))


def test_empty_strings_return_to_arrow() -> None:
    ragged = ad.to_ragged(DeviceArray(pa.array(["", ""])).give())
    assert pa.array(ad.to_arrow(ragged).to_device("cpu")).equals(pa.array(["", ""]))


def test_the_offset_of_no_rows_takes_no_wait(host_waits: Any) -> None:
    array = ad.from_arrow(DeviceArray(pa.array([], pa.string())).give())
    waits = host_waits()
    ragged = ad.to_ragged(array)
    assert (waits.ours, waits.drivers) == (0, 0)
    stream = driver.Stream()
    held = fakes.cupy(ragged.offsets, stream.handle)
    assert driver.read(held.address, 4, stream.handle) == bytes(4)
    held.release()


def test_the_offset_of_no_rows_is_no_part_of_a_graph() -> None:
    """It would be written when the graph runs, and only then."""
    array = ad.from_arrow(DeviceArray(pa.array([], pa.string())).give())
    stream = driver.Stream()
    refused = pytest.raises(BufferError, match="is being captured, and neither a copy nor its memory can be a part")
    with ad.stream(stream), driver.capture(stream.handle), refused:
        ad.to_ragged(array)
    with ad.stream(stream):
        assert np.from_dlpack(ad.to_ragged(array).offsets.to_device("cpu")).tolist() == [0]


RAGGED_REFUSED: dict[str, tuple[pa.Array, dict[str, Any], str]] = {
    "views": (pa.array(["a"], pa.string_view()), {}, "gathered"),
    "null row": (pa.array([[1], None]), {}, "null"),
    "null element": (pa.array([[1, None]]), {}, "null"),
    "padded views": (pa.array(["a"], pa.string_view()), {"pad": (0, None)}, "gathered"),
}


@pytest.mark.parametrize("name", RAGGED_REFUSED)
def test_ragged_rows_that_need_a_kernel_say_so(name: str) -> None:
    data, keywords, text = RAGGED_REFUSED[name]
    array = ad.from_arrow(DeviceArray(data).give())
    with pytest.raises(BufferError, match=text):
        ad.to_ragged(array, **keywords)


@pytest.mark.parametrize("offsets", [(0, 2, 9), (0, 2, -1), (1, 2, 0)], ids=["beyond", "negative", "descending"])
def test_offsets_that_lead_out_of_the_elements_are_refused(offsets: tuple[int, ...]) -> None:
    memory = Memory()
    wrong = memory.place(struct.pack("3i", *offsets))

    def replace(node: producers.Array) -> None:
        node.buffers[1] = wrong

    with pytest.raises(ad.ConversionError, match="offsets from"):
        ad.to_ragged(DeviceArray(pa.array([[1, 2], [3]]), memory=memory, change=replace).give())


def test_tensors_return_to_arrow_with_their_event(host_waits: Any) -> None:
    source = DeviceArray(pa.array([1, 2, 3], pa.timestamp("us")))
    tensor = ad.to_tensor(source.give())
    waits = host_waits()
    array = ad.to_arrow(tensor)
    for obj in (array, tensor):
        with exported(obj) as back:
            assert (back.device_type, back.device_id) == (CUDA, 0)
            assert list(device_arrow.buffers_of(back.array)) == [None, source.addresses[1]]
            assert device_arrow.event_of(back) == source.event.handle
    assert "imestamp" in array.type
    with exported(ad.to_arrow(tensor, copy=True)) as back:
        assert (back.device_type, device_arrow.event_of(back) != source.event.handle) == (CUDA, True)
        assert list(device_arrow.buffers_of(back.array))[1] != source.addresses[1]
    assert (waits.ours, waits.drivers) == (0, 0)


@pytest.mark.parametrize("stored", [[0, 1, 1], [0, 2, 1]], ids=["bools", "others"])
def test_bool8_is_a_view_of_bytes_that_are_bools(stored: list[int], host_waits: Any) -> None:
    source = DeviceArray(pa.ExtensionArray.from_storage(pa.bool8(), pa.array(stored, pa.int8())))
    array = ad.from_arrow(source.give())
    waits = host_waits()
    tensor = ad.to_tensor(array)
    assert (tensor.dtype, tensor.copied, waits.ours <= 1) == ("bool", max(stored) > 1, True)
    if tensor.copied:
        with pytest.raises(ad.CopyError):
            ad.to_tensor(array, copy=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_major_matrix_is_a_batch_again(kind: int, host_waits: Any) -> None:
    source = matrix(3, 10, kind)
    tensor = ad.to_tensor(source.give(), order="F")
    waits = host_waits()
    batch = ad.to_arrow(tensor, names=["a", "b", "c"])
    with exported(batch) as back:
        addresses = list(device_arrow.buffers_of(back.array))
        assert addresses == [None, *(place for index in range(3) for place in (None, pointer(tensor) + 80 * index))]
        assert (back.device_type, device_arrow.event_of(back)) == (kind, source.event.handle)
    assert (waits.ours, waits.drivers) == (0, 0)
    valid = ad.validity(pa.array([1] * 10))
    with pytest.raises(BufferError, match="cuda"):
        ad.to_arrow(tensor, names=["a", "b", "c"], validity=valid)


def test_validity_is_where_the_values_are() -> None:
    tensor = ad.to_tensor(DeviceArray(pa.array([1, 2])).give())
    with pytest.raises(BufferError, match="cuda:0"):
        ad.to_arrow(tensor, validity=ad.validity(pa.array([1, None])))
    bools = ad.to_tensor(DeviceArray(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))).give())
    with pytest.raises(BufferError, match="cuda:0"):
        ad.to_arrow(ad.to_tensor(pa.array([1, 2])), validity=bools)
