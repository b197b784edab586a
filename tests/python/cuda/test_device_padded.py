"""Padded rows that kernels make, against the same rows in host memory."""

from __future__ import annotations

import ctypes
import decimal
import struct
from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream, Memory
from test_device_conversions import bits, host
from test_device_dictionaries import forget

ROWS = [[1, None, 3], None, [], [3, 4, 5, 6, 7], None, [None], [6, 7]] * 11
FULL = [[1, 2, 3], [], [3, 4, 5, 6, 7], [8], [6, 7]] * 11
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
WAYS: list[dict[str, Any]] = [
    {"pad": (0, None)},
    {"pad": (-1, 5)},
    {"pad": (-1, None), "multiple_of": 4},
    {"pad": (-1, None), "side": "left"},
    {"pad": (-1, 2), "truncate": "right"},
    {"pad": (-1, 3), "truncate": "left"},
    {"pad": (-1, 4), "truncate": "left", "side": "left"},
    {"pad": (-1, 0), "truncate": "right"},
]


def padded(source: Any, **keywords: Any) -> Any:
    """The matrix and its validity."""
    return ad.to_ragged(source, **keywords)


def same(source: Any, data: Any, **keywords: Any) -> None:
    made, expected = padded(source, **keywords), padded(data, **keywords)
    for ours, theirs in zip(made, expected, strict=True):
        assert str(ours.device).startswith("cuda")
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert np.array_equal(host(ours), bits(theirs))


def failed(source: Any, **keywords: Any) -> str:
    with pytest.raises(ad.ConversionError) as caught:
        padded(source, **keywords)
    return str(caught.value)


def offsets(*values: int, wide: bool = False, place: int = 1) -> tuple[Memory, Any]:
    """Puts these in the place of a list's offsets, or of its lengths."""
    memory = Memory()
    wrong = memory.place(struct.pack(f"{len(values)}{'q' if wide else 'i'}", *values))

    def replace(node: producers.Array) -> None:
        node.buffers[place] = wrong

    return memory, replace


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("make", LISTS, ids=lambda make: make.__name__)
def test_every_way_of_every_list(make: Any, way: dict[str, Any], host_waits: Any) -> None:
    data = pa.array(ROWS, make(pa.int16()))
    for change in (lambda _: None, forget):
        same(DeviceArray(data, change=change).give(), data, nulls="keep", **way)
        same(DeviceArray(data, change=change).give(), data, nulls=9, **way)
    data = pa.array(FULL, make(pa.int16()))
    array = ad.from_arrow(DeviceArray(data).give())
    waits = host_waits()
    padded(array, **way)
    # The lengths; nothing of the elements, which have no bitmap.
    assert waits.ours <= 1
    same(array, data, **way)
    same(array, data, dtype="float32", **way)


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_slices_in_every_memory(kind: int, way: dict[str, Any]) -> None:
    for data in (pa.array(ROWS, pa.list_(pa.int64()))[3:40], pa.array(FULL[:3], pa.list_(pa.float64()))[1:]):
        same(DeviceArray(data, kind).give(), data, nulls="keep", **way)


ITEMS: list[tuple[pa.DataType, list[Any], str | None]] = [
    (pa.bool_(), [True, None, False], None),
    (pa.int8(), [1, None, -3], "int64"),
    (pa.uint64(), [1, None, 3], None),
    (pa.float16(), [np.float16(1.5), None], "float32"),
    (pa.float64(), [1.5, None, -2.0], "bfloat16"),
    (pa.timestamp("us"), [1, None, 2], None),
    (pa.decimal128(9, 2), [decimal.Decimal("1.25"), None], "float64"),
    (pa.binary(3), [b"abc", None], None),
    (pa.list_(pa.int32(), 2), [[1, 2], None, [3, None]], None),
    (pa.list_(pa.list_(pa.int16(), 2), 3), [[[1, 2], [3, 4], [5, None]], None, [[1, 1], None, [2, 2]]], "float32"),
    (pa.list_(pa.float32(), 2), [[1.5, 2.5], None, [-0.0, float("inf")]], "complex64"),
    (pa.list_(pa.float64(), 2), [[1.5, 2.5], None, [-0.0, float("inf")]], "complex128"),
    (pa.list_(pa.list_(pa.float64(), 2), 3), [[[1, 2], [3, 4], [5, 6]], None, [[1, 1], None, [2, 2]]], "complex128"),
]


@pytest.mark.parametrize(("item", "values", "dtype"), ITEMS, ids=lambda part: str(part)[:30])
def test_every_kind_of_items(item: pa.DataType, values: list[Any], dtype: str | None) -> None:
    keywords: dict[str, Any] = {"pad": (1, None)} | ({"dtype": dtype} if dtype else {})
    for count in range(3):
        data = pa.array([values, [], values[:1] * 5, None, values[::-1]][count:], pa.list_(item))
        same(DeviceArray(data).give(), data, nulls="keep", **keywords)
        same(DeviceArray(data).give(), data, nulls=0, side="left", **keywords)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_items_of_16_bytes(way: dict[str, Any]) -> None:
    """Complex numbers: the padding, and the fill of a null, has the imaginary part zero."""
    pair = pa.list_(pa.float64(), 2)
    rows = [row and [item and [item + 0.25, -item] for item in row] for row in ROWS]
    full = [[[item + 0.25, -item] for item in row] for row in FULL]
    for make in LISTS:
        data = pa.array(rows, make(pair))
        for part in (data, data[3:40]):
            same(DeviceArray(part).give(), part, dtype="complex128", nulls="keep", **way)
            same(DeviceArray(part, change=forget).give(), part, dtype="complex128", nulls=2.5, **way)
        data = pa.array(full, make(pair))
        same(DeviceArray(data).give(), data, dtype="complex128", **way)


def complexes(mask: list[bool] | None = None) -> pa.Array:
    """Pairs whose values, and whose bits, begin inside their memory."""
    values = np.frombuffer(b"\1" * 8 + np.arange(1.0, 27.0).tobytes(), np.float64)
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(values)[1:], 2, mask=pa.array(mask) if mask else None)[3:]
    return pa.ListArray.from_arrays(pa.array([0, 3, 3, 4, 10], pa.int32()), pairs)


def test_items_of_16_bytes_that_are_not_aligned() -> None:
    nulls = [False, True, False, False, True, False, True, True, False, False, True, False, False]
    for data in (complexes(), complexes(nulls)):
        same(DeviceArray(data).give(), data, dtype="complex128", nulls=7, pad=(-1, None))
        same(DeviceArray(data).give(), data, dtype="complex128", nulls="keep", pad=(-0.5, 4), truncate="left")


def test_a_refused_null_of_16_bytes_is_that_of_the_host() -> None:
    parts = [complexes(), complexes([place == 12 for place in range(13)])]
    keywords: dict[str, Any] = {"dtype": "complex128", "pad": (0, None)}
    stream = ad.from_arrow(DeviceStream([DeviceArray(part, change=forget) for part in parts]).give())
    assert failed(stream, **keywords) == failed(pa.chunked_array(parts), **keywords)


def test_text_and_bytes() -> None:
    for kind in (pa.string(), pa.large_string(), pa.binary()):
        data = pa.array(["ab", None, "", "cdefg", "h"] * 7, kind)
        same(DeviceArray(data).give(), data, nulls="keep", pad=(0, None))
        same(DeviceArray(data[2:9]).give(), data[2:9], nulls="keep", pad=(32, 3), truncate="left", dtype="int64")
    data = pa.array(["", ""])
    same(DeviceArray(data).give(), data, pad=(0, 2))


def test_no_rows_and_no_items() -> None:
    for data in (pa.array([], pa.list_(pa.int32())), pa.array([[], []], pa.list_(pa.int32()))):
        for way in ({"pad": (0, None)}, {"pad": (7, 3)}):
            same(DeviceArray(data).give(), data, **way)


def test_items_of_no_elements() -> None:
    data = pa.array([[[], []], [], [[], [], []]], pa.list_(pa.list_(pa.int32(), 0)))
    same(DeviceArray(data).give(), data, pad=(0, 2), truncate="right")


def test_chunks_become_one_matrix() -> None:
    parts = [pa.array(part, pa.list_(pa.int32())) for part in (ROWS[:5], [], [[1] * 9], ROWS[3:20])]
    stream = DeviceStream([DeviceArray(part) for part in parts])
    same(ad.from_arrow(stream.give()), pa.chunked_array(parts), nulls="keep", pad=(-1, None))


def test_columns_of_a_batch_with_lengths_and_validity() -> None:
    struct_array = pa.StructArray.from_arrays([pa.array(ROWS, pa.list_(pa.int32())), pa.array(range(77))], ["ids", "y"])
    columns = {"ids": ad.padded("ids", value=-1, length=2, truncate="left", lengths="n", validity="mask"), "y": "y"}
    made = ad.to_tensors(DeviceArray(struct_array).give(), columns=columns, nulls="keep")
    expected = ad.to_tensors(struct_array, columns=columns, nulls="keep")
    assert list(made) == list(expected) == ["ids", "mask", "n", "y"]
    for name, tensor in made.items():
        assert np.array_equal(host(tensor), bits(expected[name]))


def test_lengths_of_chunks_and_of_no_rows() -> None:
    """Each chunk's lengths come behind those of the chunks before it."""
    columns = {"ids": ad.padded("ids", value=-1, length=2, truncate="left", lengths="n")}
    for rows in ([ROWS[:5], [], [[1] * 9], ROWS[3:20]], [[]], [[], []]):
        parts = [pa.StructArray.from_arrays([pa.array(part, pa.list_(pa.int32()))], ["ids"]) for part in rows]
        stream = DeviceStream([DeviceArray(part) for part in parts])
        made = ad.to_tensors(ad.from_arrow(stream.give()), columns=columns, nulls="keep")["n"]
        lengths = [min(len(row or []), 2) for part in rows for row in part]
        assert (made.dtype, made.shape, made.device.type) == ("int64", (len(lengths),), CUDA)
        assert host(made).tolist() == lengths


@pytest.mark.parametrize("end", [6, 1 << 30])
def test_rows_that_change_after_they_were_measured_keep_nothing(end: int) -> None:
    """Their lengths are read again: rows that lead out of the elements by then have none."""
    memory = Memory()
    place = memory.place(struct.pack("3i", 0, 2, 5))

    def replace(node: producers.Array) -> None:
        buffers = producers.ArrowArray.from_address(node.children[0]).buffers
        ctypes.c_void_p.from_address(buffers + ctypes.sizeof(ctypes.c_void_p)).value = place

    class Changing:
        """Whoever allocates the lengths, the third result, changes the offsets."""

        results = 0

        def allocate(self, nbytes: int, stream: Any) -> int:
            self.results += 1
            if self.results == 3:
                driver.write(place, struct.pack("3i", 0, 2, end), stream.__cuda_stream__()[1])
            return driver.new_memory(nbytes)

        def deallocate(self, pointer: int, nbytes: int, stream: Any) -> None:
            driver.free(pointer)

    lists = pa.array([[1, 2], [3, 4, 5]], pa.list_(pa.int32()))
    array = DeviceArray(pa.StructArray.from_arrays([lists], ["ids"]), memory=memory, change=replace).give()
    columns = {"ids": ad.padded("ids", length=3, lengths="n", validity="mask")}
    allocator = Changing()
    made = ad.to_tensors(array, columns=columns, allocator=allocator)
    assert allocator.results == 3
    assert host(made["n"]).tolist() == [2, 0]
    assert host(made["ids"]).tolist() == [[1, 2, 0], [3, 4, 5]]


REFUSED: list[tuple[list[Any], dict[str, Any]]] = [
    ([*FULL[:2], None, *FULL], {"pad": (0, None)}),
    ([*FULL, [1, None]], {"pad": (0, None)}),
    (FULL, {"pad": (0, 4)}),
    ([[1], None, [1, 2, 3]], {"pad": (0, 2)}),
    ([[1], [1, 2, 3], None], {"pad": (0, 2)}),
    ([[1], [2, 300]], {"pad": (0, None), "dtype": "int8"}),
]


@pytest.mark.parametrize(("rows", "keywords"), REFUSED, ids=lambda part: str(part)[-40:])
def test_errors_are_those_of_the_host(rows: list[Any], keywords: dict[str, Any]) -> None:
    for kind in (pa.list_(pa.int32()), pa.list_view(pa.int32())):
        data = pa.array(rows, kind)
        assert failed(DeviceArray(data).give(), **keywords) == failed(data, **keywords)


def test_no_copy_is_made_where_none_is_allowed() -> None:
    data = pa.array(FULL, pa.list_(pa.int32()))
    array = ad.from_arrow(DeviceArray(data).give())
    assert failed(array, pad=(0, 5), copy=False) == failed(data, pad=(0, 5), copy=False)
    # Only memory tells how long the rows would be.
    assert "a copy is needed of any rows" in failed(array, pad=(0, None), copy=False)
    assert {row.how for row in ad.explain(array, pad=(0, None), copy=False)} == {"refused"}
    same(array, data, pad=(0, 0), truncate="left", copy=False)


def test_what_no_row_shows_is_not_looked_at() -> None:
    """Elements that are dropped, or under null rows, are refused by nobody."""
    data = pa.array([[1, 300, None], [4, 5]], pa.list_(pa.int32()))
    same(DeviceArray(data).give(), data, pad=(0, 1), truncate="right", dtype="int8")
    with pytest.raises(ad.ConversionError, match=r"300 does not fit int8.*row 0|row 0.*300"):
        padded(DeviceArray(data).give(), pad=(0, 2), truncate="right", dtype="int8")


HOSTILE: list[tuple[tuple[int, ...], int, str]] = [
    ((0, 2, 9), 1, "offsets from 2 to 9 of 3 elements"),
    ((0, 2, -1), 1, "offsets from 2 to -1 of 3 elements"),
    ((1, 2, 0), 1, "offsets from 2 to 0 of 3 elements"),
    ((-1, 2, 3), 0, "offsets from -1 to 2 of 3 elements"),
    ((-(2**31), 2**31 - 1, 3), 0, "offsets from -2147483648 to 2147483647 of 3 elements"),
]


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
@pytest.mark.parametrize(("wrong", "row", "text"), HOSTILE, ids=str)
def test_offsets_that_lead_out_of_the_elements(
    wrong: tuple[int, ...], row: int, text: str, way: dict[str, Any]
) -> None:
    for wide in (False, True):
        memory, replace = offsets(*wrong, wide=wide)
        data = pa.array([[1, 2], [3]], pa.large_list(pa.int64()) if wide else pa.list_(pa.int64()))
        found = failed(DeviceArray(data, memory=memory, change=replace).give(), **way)
        assert text in found
        assert f"row {row}" in found


@pytest.mark.parametrize(
    ("wrong", "place", "text"),
    [
        ((0, 4), 1, "offset 4 and length 1 of 3 elements"),
        ((0, -2), 1, "offset -2 and length 1 of 3 elements"),
        ((2, 2), 2, "offset 2 and length 2 of 3 elements"),
        ((2, -1), 2, "offset 2 and length -1 of 3 elements"),
    ],
)
def test_list_views_that_lead_out_of_the_elements(wrong: tuple[int, ...], place: int, text: str) -> None:
    memory, replace = offsets(*wrong, place=place)
    data = pa.array([[1, 2], [3]], pa.list_view(pa.int32()))
    found = failed(DeviceArray(data, memory=memory, change=replace).give(), pad=(0, None))
    assert text in found
    assert "row 1" in found


def test_text_beyond_its_allocation() -> None:
    memory, replace = offsets(0, 2, 1 << 30)
    with pytest.raises(BufferError, match="bytes"):
        padded(DeviceArray(pa.array(["ab", "c"]), memory=memory, change=replace).give(), pad=(0, 4), truncate="right")


def test_validity_of_items_beyond_its_allocation() -> None:
    """The host reads no item's validity: kernels do, once the driver has told how long its memory is."""
    memory = Memory()
    few = memory.place(b"\xff")

    def shorten(node: producers.Array) -> None:
        ctypes.c_void_p.from_address(producers.ArrowArray.from_address(node.children[-1]).buffers).value = few

    data = pa.array([[1, None, 3]] * 400, pa.list_(pa.int32()))
    with pytest.raises(BufferError, match="beyond an allocation"):
        padded(DeviceArray(data, memory=memory, change=shorten).give(), nulls="keep", pad=(0, 3))


@pytest.mark.parametrize("way", WAYS[:3], ids=str)
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_explain_says_what_the_kernels_do(way: dict[str, Any], dtype: str | None) -> None:
    data = pa.array(FULL, pa.list_(pa.int16()))
    array = ad.from_arrow(DeviceArray(data).give())
    report = ad.explain(array, dtype=dtype, **way)
    matrix, mask = report
    assert (matrix.how, matrix.kernel, mask.how, mask.kernel) == ("copy", True, "copy", True)
    assert "length of the longest row" in matrix.waits[0]
    with ad.track_copies() as log:
        values, validity = padded(array, dtype=dtype, **way)
    (entry,) = log
    length = way["pad"][1]
    assert (matrix.shape, mask.shape) == ((len(FULL), length), (len(FULL), length))
    # The host has not read how long rows are.
    longer = f"rows have more than {length} elements"
    assert (longer in matrix.refused_if) == (length is not None and "truncate" not in way)
    if length is not None:
        assert entry.bytes == matrix.bytes + mask.bytes
        assert (values.shape, validity.shape) == (matrix.shape, mask.shape)
        expected = ad.explain(data, dtype=dtype, **way)
        assert [(row.steps, row.bytes) for row in report] == [(row.steps, row.bytes) for row in expected]
    # A stream's arrays are not read.
    stream = ad.from_arrow(DeviceStream([DeviceArray(data)]).give())
    unread, _ = ad.explain(stream, dtype=dtype, **way)
    assert (unread.how, unread.kernel, unread.shape) == ("copy", True, (None, length))
    same(stream, data, **way)


NULLABLE, FULL_ITEMS = (pa.list_(pa.field("item", pa.int16(), nullable=nullable)) for nullable in (True, False))


@pytest.mark.parametrize(
    ("kind", "keywords", "is_read"),
    [
        (NULLABLE, {}, True),
        (NULLABLE, {"nulls": "keep"}, False),
        (NULLABLE, {"nulls": 9, "dtype": "int8"}, True),
        (NULLABLE, {"nulls": 9}, False),
        (FULL_ITEMS, {}, False),
        (FULL_ITEMS, {"dtype": "int8"}, True),
    ],
    ids=str,
)
def test_explain_says_when_the_host_reads_what_values_decide(
    kind: pa.DataType, keywords: dict[str, Any], is_read: bool
) -> None:
    array = ad.from_arrow(DeviceArray(pa.array(FULL, kind)).give())
    for way in ({"pad": (0, None)}, {"pad": (0, 5)}):
        matrix, mask = ad.explain(array, **way, **keywords)
        assert len(matrix.waits) == 1 + is_read
        assert ("every value fits" in matrix.waits[-1], mask.waits) == (is_read, [])


def test_explain_refuses_what_a_conversion_does() -> None:
    """No rows need no copy; the lengths of others do."""
    empty = ad.from_arrow(DeviceArray(pa.array([], pa.list_(pa.int32()))).give())
    assert [(row.how, row.error) for row in ad.explain(empty, pad=(7, 3), copy=False)] == [("view", None)] * 2
    same(empty, pa.array([], pa.list_(pa.int32())), pad=(7, 3), copy=False)
    rows = pa.StructArray.from_arrays([pa.array(FULL, pa.list_(pa.int32()))], ["ids"])
    columns = {"ids": ad.padded("ids", value=0, length=5, lengths="n")}
    array = ad.from_arrow(DeviceArray(rows).give())
    report = ad.explain(array, columns=columns, copy=False)
    assert [row.how for row in report] == ["refused"] * len(report)
    with pytest.raises(ad.ConversionError, match=r"a copy of .* is needed"):
        ad.to_tensors(array, columns=columns, copy=False)


def test_views_name_the_way_to_the_host() -> None:
    data = pa.array(["ab", "c"], pa.string_view())
    with pytest.raises(BufferError, match="views gathered") as caught:
        padded(DeviceArray(data).give(), pad=(0, None))
    assert "to_device" in str(caught.value)
    (row,) = ad.explain(ad.from_arrow(DeviceArray(data).give()), pad=(0, None))
    assert row.error == str(caught.value)


def test_what_is_being_written_is_waited_for() -> None:
    """Kernels read what the producer's stream is still writing; its memory is reused at once after that."""
    for _ in range(3):
        data = pa.array(ROWS, pa.list_(pa.int32()))
        source = DeviceArray(data)
        array = ad.from_arrow(source.give())
        del source
        made = padded(array, nulls="keep", pad=(0, 5))
        del array
        expected = padded(data, nulls="keep", pad=(0, 5))
        assert all(np.array_equal(host(ours), bits(theirs)) for ours, theirs in zip(made, expected, strict=True))
