"""Padded rows whose items kernels decode first, against the same rows in host memory."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream, Memory
from test_device_conversions import bits, host, numbers
from test_device_dictionaries import forget
from test_device_padded import FULL, LISTS, ROWS, WAYS, failed, same

ENDS = ["int16", "int32", "int64"]


def codes(values: pa.Array, count: int, *, dtype: str = "int8", nulls: float = 0.0) -> pa.DictionaryArray:
    """Random codes; both the codes and the values start inside their memory."""
    rng = np.random.default_rng(count)
    picked = rng.integers(0, len(values) - 3, count + 5).astype(dtype)
    return pa.DictionaryArray.from_arrays(pa.array(picked, mask=rng.random(count + 5) < nulls), values[3:])[5:]


def runs(values: pa.Array, count: int, *, ends: str = "int32") -> pa.RunEndEncodedArray:
    """Runs of a few elements, of which the first is cut."""
    lengths = np.random.default_rng(count).integers(1, 5, len(values) - 3).cumsum()
    lengths[-1] = max(lengths[-1], count + 2)
    made = pa.RunEndEncodedArray.from_arrays(pa.array(lengths.astype(ends)), values[3:])
    return made[2 : count + 2]


def lists(items: pa.Array, rows: list[Any] = ROWS, make: Any = pa.list_) -> pa.Array:
    """The items in lists as long as these rows, and as null."""
    starts = np.cumsum([0, *(len(row or []) for row in rows)])
    mask = pa.array([row is None for row in rows], pa.bool_())
    assert starts[-1] <= len(items)
    wide = "int64" if make in (pa.large_list, pa.large_list_view) else "int32"
    if make in (pa.list_, pa.large_list):
        kind = pa.LargeListArray if make is pa.large_list else pa.ListArray
        return kind.from_arrays(pa.array(starts.astype(wide)), items, mask=mask)
    views = pa.LargeListViewArray if make is pa.large_list_view else pa.ListViewArray
    sizes = pa.array(np.diff(starts).astype(wide))
    return views.from_arrays(pa.array(starts[:-1].astype(wide)), sizes, items, mask=mask)


ITEMS = sum(len(row or []) for row in ROWS)
KINDS = {
    "values": lambda nulls: (codes(numbers("int16", 40, nulls), ITEMS, nulls=nulls), {"dictionary": "values"}),
    "codes": lambda nulls: (codes(numbers("int16", 40, nulls), ITEMS, nulls=nulls), {"dictionary": "codes"}),
    "runs": lambda nulls: (runs(numbers("int16", 40, nulls), ITEMS), {}),
}


@pytest.mark.parametrize("make", LISTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_every_way_of_every_list(kind: str, make: Any, host_waits: Any) -> None:
    items, keywords = KINDS[kind](0.3)
    data = lists(items, ROWS, make)
    for way in WAYS:
        for change in (lambda _: None, forget):
            same(DeviceArray(data, change=change).give(), data, nulls="keep", **keywords, **way)
            same(DeviceArray(data, change=change).give(), data, nulls=9, **keywords, **way)
    items, _ = KINDS[kind](0)
    data = lists(items, FULL, make)
    for way in WAYS:
        array = ad.from_arrow(DeviceArray(data).give())
        waits = host_waits()
        ad.to_ragged(array, **keywords, **way)
        # The lengths, and the one report of all codes or runs.
        assert waits.ours <= 2
        same(array, data, **keywords, **way)
        if kind != "codes":
            same(array, data, dtype="float32", **keywords, **way)


@pytest.mark.parametrize("dtype", [None, "float64"])
@pytest.mark.parametrize("values", ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"])
def test_every_type_of_values(values: str, dtype: str | None) -> None:
    keywords: dict[str, Any] = {"pad": (1, None), "dtype": dtype}
    for nulls in (0.0, 0.3):
        own = numbers(values, 40, nulls)
        for number, ends in enumerate(ENDS):
            data = lists(codes(own, ITEMS, dtype=["uint8", "int64", "int16"][number], nulls=nulls))
            same(DeviceArray(data).give(), data, nulls="keep", dictionary="values", **keywords)
            same(DeviceArray(data).give(), data, nulls=0, dictionary="values", side="left", **keywords)
            data = lists(runs(own, ITEMS, ends=ends))
            same(DeviceArray(data).give(), data, nulls="keep", **keywords)
            same(DeviceArray(data).give(), data, nulls=0, truncate="left", **(keywords | {"pad": (1, 2)}))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_every_type_of_codes(dtype: str) -> None:
    for values in (pa.array(["a", None, "b", None, "c", "dd"] * 5), numbers("float32", 30)):
        data = lists(codes(values, ITEMS, dtype=dtype, nulls=0.2))
        for nulls in ("keep", 7):
            same(DeviceArray(data).give(), data, nulls=nulls, pad=(1, None), dictionary="codes")
        same(DeviceArray(data).give(), data, nulls=7, pad=(1, 4), truncate="left", side="left", dictionary="codes")


def test_values_with_another_unit_or_scale() -> None:
    ticks = pa.array([10**9 * second if second % 3 else None for second in range(40)], pa.duration("ns"))
    cents = pa.array([Decimal(number) / 4 for number in range(40)], pa.decimal64(9, 2))
    for values, keywords in ((ticks, {"unit": "s"}), (cents, {"dtype": "float64"})):
        for items in (codes(values, ITEMS), runs(values, ITEMS)):
            data = lists(items)
            same(DeviceArray(data).give(), data, nulls=5, pad=(1, None), dictionary="values", **keywords)


@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_items_of_several_elements(nulls: float) -> None:
    """Fixed-size lists of codes and of runs, which may be null themselves."""
    values = numbers("int32", 30, nulls)
    rng = np.random.default_rng(3)
    for own in (codes(values, 3 * ITEMS, nulls=nulls), runs(values, 3 * ITEMS)):
        mask = pa.array(rng.random(ITEMS) < nulls)
        data = lists(pa.FixedSizeListArray.from_arrays(own, 3, mask=mask))
        for way in WAYS[:4]:
            same(DeviceArray(data).give(), data, nulls="keep", dictionary="values", **way)
            same(DeviceArray(data).give(), data, nulls=9, dtype="float64", dictionary="values", **way)
            if isinstance(own, pa.DictionaryArray):
                same(DeviceArray(data).give(), data, nulls=9, dictionary="codes", **way)


@pytest.mark.parametrize("memory", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("kind", KINDS)
def test_slices_in_every_memory(kind: str, memory: int) -> None:
    items, keywords = KINDS[kind](0.3)
    for make in LISTS if memory == CUDA else LISTS[:1]:
        data = lists(items, ROWS, make)
        for start, length in ((3, 40), (1, 1), (0, 5), (len(data) - 2, 2), (4, 0), (2, 1)):
            part = data[start : start + length]
            same(DeviceArray(part, memory).give(), part, nulls="keep", pad=(-1, 5), **keywords)
            same(DeviceArray(part, memory).give(), part, nulls=3, pad=(-1, None), side="left", **keywords)


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_and_no_items(kind: str) -> None:
    items, keywords = KINDS[kind](0.3)
    empty = items[:0]
    for rows in ([], [[], []], [None, []]):
        for own in (items, empty):
            data = lists(own, rows)
            for way in ({"pad": (0, None)}, {"pad": (7, 3)}, {"pad": (7, 0), "truncate": "left"}):
                same(DeviceArray(data).give(), data, nulls=1, **keywords, **way)


def test_codes_of_no_values() -> None:
    none = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.int32()))
    data = pa.ListArray.from_arrays(pa.array([0, 1, 2, 2], pa.int32()), none)
    for dictionary in ("values", "codes"):
        same(DeviceArray(data).give(), data, nulls=4, pad=(1, 2), dictionary=dictionary)


@pytest.mark.parametrize("kind", ["values", "runs"])
def test_chunks_become_one_matrix(kind: str) -> None:
    items, keywords = KINDS[kind](0.3)
    whole = lists(items)
    parts = [whole[:5], whole[5:5], whole[20:40], lists(KINDS[kind](0)[0], FULL)[3:9]]
    stream = DeviceStream([DeviceArray(part) for part in parts])
    same(ad.from_arrow(stream.give()), pa.chunked_array(parts), nulls="keep", pad=(-1, None), **keywords)


def test_codes_of_several_chunks_are_of_one_dictionary() -> None:
    """The host compares those of chunks with items."""
    data = lists(KINDS["codes"](0)[0], FULL)
    other = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int8()), pa.array([7, 8], pa.int16()))
    for parts in ([data, data], [data, lists(other[:0], [[], []])], [data, lists(other, [[], []]), data]):
        stream = ad.from_arrow(DeviceStream([DeviceArray(part) for part in parts]).give())
        same(stream, pa.chunked_array(parts), pad=(0, None), dictionary="codes")
    parts = [data, lists(other, [[0], [0, 1]])]
    errors = []
    for given in (ad.from_arrow(DeviceStream([DeviceArray(part) for part in parts]).give()), pa.chunked_array(parts)):
        with pytest.raises(ad.UnsupportedTypeError, match="different dictionaries") as caught:
            ad.to_ragged(given, pad=(0, None), dictionary="codes")
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_groups_of_a_batch_with_lengths_and_validity() -> None:
    names = list(KINDS)
    columns = [lists(KINDS[kind](0.3)[0]) for kind in names]
    batch = pa.StructArray.from_arrays([*columns, pa.array(range(len(ROWS)))], [*names, "y"])
    groups = {
        name: ad.padded(name, value=-1, length=2, truncate="left", lengths=f"{name} n", validity=f"{name} mask")
        for name in names
    }
    for dictionary in ("values", "codes"):
        keywords: dict[str, Any] = {"columns": groups | {"y": "y"}, "nulls": "keep", "dictionary": dictionary}
        made = ad.to_tensors(DeviceArray(batch).give(), **keywords)
        expected = ad.to_tensors(batch, **keywords)
        assert list(made) == list(expected)
        for name, tensor in made.items():
            assert np.array_equal(host(tensor), bits(expected[name])), name


@pytest.mark.parametrize("kind", KINDS)
def test_refused_nulls_are_those_of_the_host(kind: str) -> None:
    rows = [[1, 2], [3], [4, 5, 6]]
    values = pa.array([1, None, 3, 4])
    if kind == "runs":
        null = pa.RunEndEncodedArray.from_arrays(pa.array([3, 4, 6], pa.int32()), pa.array([1, None, 3]))
        keywords: dict[str, Any] = {}
        all_items = [null]
    else:
        keywords = {"dictionary": kind}
        picked = [[0, 2, 0, 1, 2, 3], [0, 2, 0, None, 2, 3]]
        all_items = [pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), values) for codes in picked]
    for items in all_items:
        data = lists(items, rows)
        for change in (lambda _: None, forget):
            source = DeviceArray(data, change=change)
            assert failed(source.give(), pad=(0, None), **keywords) == failed(data, pad=(0, None), **keywords)
        # The null that truncation cuts is refused by nobody.
        same(DeviceArray(data).give(), data, pad=(0, 2), truncate="left", **keywords)


def test_a_value_that_does_not_fit_is_named_as_on_the_host() -> None:
    values = pa.array([1, 2, 300], pa.int32())
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 2, 1, 2], pa.int8()), values)
    run = pa.RunEndEncodedArray.from_arrays(pa.array([3, 4, 6], pa.int32()), pa.array([1, 300, 3]))
    for items in (coded, run):
        data = lists(items, [[1, 2], [3], [4, 5, 6]])
        keywords: dict[str, Any] = {"pad": (0, None), "dtype": "uint8"}
        assert failed(DeviceArray(data).give(), **keywords) == failed(data, **keywords)
    data = lists(coded, [[1, 2], [3], [4, 5, 6]])
    same(DeviceArray(data).give(), data, pad=(0, 0), truncate="left", dtype="uint8")


@pytest.mark.parametrize("make", LISTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_a_code_without_a_value_is_an_error_of_its_row(dtype: str, make: Any) -> None:
    """None of them is read by: the driver would report it."""
    largest = int(np.iinfo(dtype).max)
    for code in [3, largest] if dtype.startswith("u") else [3, -1, largest]:
        for values, dictionary in ((pa.array([1.5, None, 3.5]), "codes"), (pa.array([1.5, 2.5, 3.5]), "values")):
            picked = np.array([0, 1, 2, 1, code, 2, code], dtype)
            items = pa.DictionaryArray.from_arrays(pa.array(picked), values, safe=False)
            rows = [[1, 2], [], [1], [1, 2, 3, 4]]
            data = lists(items, rows, make)
            keywords: dict[str, Any] = {"pad": (0, None), "nulls": 8, "dictionary": dictionary}
            found = failed(DeviceArray(data).give(), **keywords)
            assert "row 3" in found
            assert f"code {code} " in found
            # Rows of later chunks count from the first one.
            if dictionary == "values":
                parts = [lists(items[:4], [[1, 2], [3, 4]], make), data]
                stream = ad.from_arrow(DeviceStream([DeviceArray(part) for part in parts]).give())
                assert "row 5" in failed(stream, **keywords)
            # What lies under a null, or in rows before those of a slice, is no code.
            mask = picked == picked[4]
            items = pa.DictionaryArray.from_arrays(pa.array(picked, mask=mask), values, safe=False)
            data = lists(items, rows, make)
            same(DeviceArray(data).give(), data, **keywords)


def test_codes_before_the_rows_of_a_slice_are_not_looked_at() -> None:
    for values, dictionary in ((pa.array([1.5, None, 3.5]), "codes"), (pa.array([1.5, 2.5, 3.5]), "values")):
        items = pa.DictionaryArray.from_arrays(pa.array([0, 9, 2, 1, 1, 9], pa.int8()), values, safe=False)
        data = lists(items, [[1, 2], [1], [1, 2], [1]])[1:3]
        same(DeviceArray(data).give(), data, pad=(0, 2), nulls=8, dictionary=dictionary)


def test_a_code_that_no_row_spans() -> None:
    items = pa.DictionaryArray.from_arrays(pa.array([0, 9, 2], pa.int8()), pa.array([1.5, 2.5, 3.5]), safe=False)
    starts, sizes = pa.array([0, 2], pa.int32()), pa.array([1, 1], pa.int32())
    data = pa.ListViewArray.from_arrays(starts, sizes, items)
    found = failed(DeviceArray(data).give(), pad=(0, None), dictionary="values")
    assert "item 1, which no row spans: code 9 leads out of the dictionary's values" in found


def changed(ends: list[int], dtype: str) -> DeviceArray:
    """Four rows of nine items in three runs, whose ends are replaced on the device."""
    items = pa.RunEndEncodedArray.from_arrays(pa.array([3, 5, 9], dtype), pa.array([1.5, 2.5, 3.5]))
    data = pa.ListArray.from_arrays(pa.array([0, 2, 2, 7, 9], pa.int32()), items)
    memory = Memory()
    placed = memory.place(np.array(ends, dtype).tobytes())

    def replace(node: producers.Array) -> None:
        node.parts[0].parts[0].buffers[1] = placed

    return DeviceArray(data, memory=memory, change=replace)


@pytest.mark.parametrize("dtype", ENDS)
def test_runs_that_end_before_an_item_are_an_error_of_its_row(dtype: str) -> None:
    """No value is read by them: the driver would report it."""
    for ends, row in (([1, 2, 8], 3), ([1, 2, 4], 2)):
        found = failed(changed(ends, dtype).give(), pad=(0, None))
        assert f"row {row}" in found
        assert "the runs end before this row" in found


@pytest.mark.parametrize("dtype", ENDS)
@pytest.mark.parametrize("ends", [[3, 3, 9], [3, 2, 9], [0, 5, 9], [-4, 5, 9], [5, 9, 1]])
def test_ends_that_do_not_increase_are_an_error(ends: list[int], dtype: str) -> None:
    assert "is not above the one before" in failed(changed(ends, dtype).give(), pad=(0, 5), dtype="float32")


@pytest.mark.parametrize("kind", KINDS)
def test_explain_says_what_the_kernels_do(kind: str) -> None:
    items, keywords = KINDS[kind](0)
    data = lists(items[: sum(map(len, FULL))], FULL)
    array = ad.from_arrow(DeviceArray(data).give())
    for length in (None, 6):
        matrix, mask = ad.explain(array, pad=(0, length), **keywords)
        assert (matrix.how, matrix.kernel, mask.how, mask.kernel) == ("copy", True, "copy", True)
        assert ("decoded" in matrix.steps) == (kind != "codes")
        assert "decoded" not in mask.steps
        assert any("every item a run" in wait for wait in matrix.waits)
        with ad.track_copies() as log:
            ad.to_ragged(array, pad=(0, length), **keywords)
        (entry,) = log
        assert ("decoded" in entry.why) == (kind != "codes")
        with ad.track_copies() as log:
            ad.to_ragged(data, pad=(0, length), **keywords)
        assert entry.bytes == sum(expected.bytes for expected in log)
        if length is not None:
            assert entry.bytes == matrix.bytes + mask.bytes
        # Of a slice, only the items of its rows are decoded.
        part = data[10:20]
        copied = []
        for source in (DeviceArray(part).give(), part):
            with ad.track_copies() as log:
                ad.to_ragged(source, pad=(0, length), **keywords)
            copied.append([copy.bytes for copy in log])
        assert copied[0] == copied[1]
    assert "a copy" in failed(array, pad=(0, 6), copy=False, **keywords)


def test_other_items_name_the_way_to_the_host() -> None:
    decimals = pa.array([Decimal("1.25"), Decimal(2)], pa.decimal128(9, 2))
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", "b"]))
    nested = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0], pa.int8()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", "b"])),
    )
    wide = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), decimals)
    long = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), decimals)
    cases: list[tuple[pa.Array, dict[str, Any], str]] = [
        (nested, {"dictionary": "codes"}, "rows padded"),
        (wide, {"dictionary": "values", "dtype": "float64"}, "decoded, rows padded"),
        (long, {"dtype": "float64"}, "decoded, rows padded"),
    ]
    for items, keywords, text in cases:
        data = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), items)
        with pytest.raises(BufferError, match=text) as caught:
            ad.to_ragged(DeviceArray(data).give(), pad=(0, None), **keywords)
        assert "to_device" in str(caught.value)
        (row,) = ad.explain(ad.from_arrow(DeviceArray(data).give()), pad=(0, None), **keywords)
        assert row.error == str(caught.value)
    # Codes of texts are padded, but texts have no tensor.
    data = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), texts)
    same(DeviceArray(data).give(), data, pad=(0, None), dictionary="codes")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_being_written_is_waited_for(kind: str) -> None:
    """Kernels read what the producer's stream is still writing; its memory is reused at once after that."""
    items, keywords = KINDS[kind](0.3)
    data = lists(items)
    for _ in range(3):
        source = DeviceArray(data)
        array = ad.from_arrow(source.give())
        del source
        made = ad.to_ragged(array, nulls="keep", pad=(0, 5), **keywords)
        del array
        expected = ad.to_ragged(data, nulls="keep", pad=(0, 5), **keywords)
        assert all(np.array_equal(host(ours), bits(theirs)) for ours, theirs in zip(made, expected, strict=True))
