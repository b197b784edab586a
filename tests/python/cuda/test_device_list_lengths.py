"""Lists of one length on a device: rows of one shape over the same items, against what the host makes of them."""

from __future__ import annotations

import random
from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream, Memory
from test_device_conversions import bits, numbers
from test_device_out import Out, filled

KINDS = ["list", "large_list", "list_view", "large_list_view"]
ARRAYS = {
    "list": pa.ListArray,
    "large_list": pa.LargeListArray,
    "list_view": pa.ListViewArray,
    "large_list_view": pa.LargeListViewArray,
}

TYPES = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}


def lists(kind: str, items: pa.Array, length: int, nulls: float = 0.0, seed: int = 0) -> pa.Array:
    """Lists of one length that follow each other behind the first item; those that are null have items, too."""
    rows = (len(items) - 1) // length
    starts = 1 + length * np.arange(rows + 1)
    wide = "int64" if kind.startswith("large") else "int32"
    mask = pa.array(np.random.default_rng(seed).random(rows) < nulls) if nulls else None
    ends = (
        [starts.astype(wide)]
        if kind in ("list", "large_list")
        else [starts[:-1].astype(wide), np.full(rows, length, wide)]
    )
    return ARRAYS[kind].from_arrays(*(pa.array(each) for each in ends), items, mask=mask)


def on_device(*chunks: pa.Array, kind: int = CUDA) -> ad.ArrayStream:
    return ad.from_arrow(DeviceStream([DeviceArray(chunk, kind) for chunk in chunks], kind).give())


def is_the_same(made: ad.Tensor, expected: ad.Tensor) -> None:
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(bits(made.to_device("cpu")), bits(expected))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_lists_that_follow_each_other_are_views(kind: str, memory: int) -> None:
    for name in ("float32", "int8", "bool"):
        whole = lists(kind, numbers(name, 1 + 3 * 50), 3)
        for data in (whole, whole[7:31], whole[4:4]):
            made = ad.to_tensor(ad.from_arrow(DeviceArray(data, memory).give()), length=3)
            is_the_same(made, ad.to_tensor(data, length=3))
            assert made.copied == (name == "bool" and len(data) > 0)
            assert made.device.type == (CUDA if name == "bool" and len(data) else memory)


@pytest.mark.parametrize("seed", range(60))
def test_columns_matrices_groups_and_validity(seed: int) -> None:
    """Of random lists, some of which are null, in chunks, beside other columns."""
    draw = random.Random(seed)
    kind, length, nulls = draw.choice(KINDS), draw.choice([1, 2, 5, 33]), draw.choice([0.0, 0.3])
    memory = draw.choice([CUDA, CUDA, CUDA_HOST, CUDA_MANAGED])
    items = numbers(draw.choice(["float32", "int16", "bool", "float64"]), 1 + 60 * length, nulls, seed)
    embedding = lists(kind, items, length, nulls, seed)
    columns = [numbers("int32", 60, nulls, seed), embedding, numbers("float64", 60, 0.0, seed)]
    batch = pa.StructArray.from_arrays(columns, ["a", "emb", "b"])[draw.choice([0, 3]) :]
    cuts = sorted(draw.choices(range(len(batch) + 1), k=draw.choice([0, 0, 2])))
    chunks = [batch[start:end] for start, end in zip([0, *cuts], [*cuts, len(batch)], strict=True)]
    policy: dict[str, Any] = {"nulls": 1} if nulls else {}

    def both(work: Any, parts: list[pa.Array], **keywords: Any) -> None:
        made, expected = work(on_device(*parts, kind=memory), **keywords), work(pa.chunked_array(parts), **keywords)
        if not isinstance(made, dict):
            made, expected = {"": made}, {"": expected}
        for name, tensor in made.items():
            is_the_same(tensor, expected[name])

    both(ad.to_tensor, [chunk.field("emb") for chunk in chunks], length=length, **policy)
    both(ad.to_tensor, chunks, length=length, order=draw.choice(["C", "F"]), dtype="float64", **policy)
    both(ad.to_tensors, chunks, length={"emb": length}, **policy)
    both(ad.to_tensors, chunks, length={"emb": length}, columns={"x": ["emb", "b"], "y": "emb", "z": "a"}, **policy)
    both(ad.validity, chunks, length=length)
    both(ad.validity, [chunk.field("emb") for chunk in chunks], length=length)


def test_outputs() -> None:
    data = lists("list", numbers("float32", 1 + 4 * 30), 4)
    expected = np.array(ad.to_tensor(data, length=4))
    out = Out(filled((30, 6), "f4"), np.s_[:, :4])
    ad.to_tensor(on_device(data[:11], data[11:]), length=4, out=out)
    assert np.array_equal(out.read()[0], expected)
    batch = pa.StructArray.from_arrays([data, numbers("float32", 30)], ["emb", "b"])
    out = Out(filled((30, 5), "f4"), ...)
    ad.to_tensor(on_device(batch), length=4, out=out)
    assert np.array_equal(out.read()[0], np.array(ad.to_tensor(batch, length=4)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", [CUDA, CUDA_HOST])
def test_a_list_of_another_length_is_named_as_on_the_host(kind: str, memory: int) -> None:
    rows = [[1, 2], [3, 4], [5, 6], [7], [8, 9]]
    data = pa.array(rows, TYPES[kind](pa.int32()))
    batch = pa.StructArray.from_arrays([data], ["emb"])
    for chunks, named in (([data], None), ([data[:1], data[1:]], None), ([batch[:2], batch[2:]], "emb")):
        for work in (ad.to_tensor, ad.validity):
            with pytest.raises(ad.ConversionError) as expected:
                work(pa.chunked_array(chunks), length=2)
            with pytest.raises(ad.ConversionError, match="1 element, and not 2") as caught:
                work(on_device(*chunks, kind=memory), length=2)
            assert (caught.value.column, caught.value.row) == (named or expected.value.column, 3)
            assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize(
    "rows", [[[1, 2], [3], [4, 5, 6]], [[1, 2, 3], [4]], [[], [1, 2, 3, 4]], [[1, 2], [3, 4, 5, 6], []]]
)
def test_lists_of_several_lengths_that_have_as_many_items_together(rows: list[list[int]]) -> None:
    for kind in KINDS:
        data = pa.array(rows, TYPES[kind](pa.int32()))
        with pytest.raises(ad.ConversionError) as expected:
            ad.to_tensor(data, length=2)
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_tensor(on_device(data), length=2)
        assert str(caught.value) == str(expected.value)


def test_a_short_list_before_items_that_no_list_has() -> None:
    for kind in KINDS:
        data = pa.array([[1, 2], [3], [4, 5], [6, 7]], TYPES[kind](pa.int32()))[:3]
        with pytest.raises(ad.ConversionError, match="1 element, and not 2"):
            ad.to_tensor(on_device(data), length=2)


@pytest.mark.parametrize("kind", KINDS)
def test_nulls_that_nobody_counted(kind: str) -> None:
    """The item before the first list is null, so the items have a bitmap."""
    items = pa.array([None, *range(40)], pa.int16())
    batch = pa.StructArray.from_arrays([lists(kind, items, 2), numbers("int16", 20)], ["emb", "b"])
    for columns in (None, {"x": ["emb", "b"], "y": "emb"}):
        made = ad.to_tensors(on_device(batch), length=2, columns=columns)
        for name, tensor in ad.to_tensors(batch, length=2, columns=columns).items():
            is_the_same(made[name], tensor)
    spoiled = pa.array([None, *range(20), None, *range(19)], pa.int16())
    batch = pa.StructArray.from_arrays([lists(kind, spoiled, 2), numbers("int16", 20)], ["emb", "b"])
    for columns in (None, {"x": ["emb", "b"]}, {"y": "emb"}):
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensors(on_device(batch), length=2, columns=columns)
        assert (caught.value.column, caught.value.row) == ("emb", 10)


def test_lists_of_codes_are_as_fixed_size_lists_of_them() -> None:
    """Of a dictionary, whose values may be null."""
    for values in (["a", "b"], ["a", None]):
        codes = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 1, 0], pa.int8()), pa.array(values))
        column = lists("list", codes, 2)
        fixed = pa.FixedSizeListArray.from_arrays(codes[1:], 2)
        made = []
        for each in (column, fixed):
            source = ad.from_arrow(DeviceArray(pa.StructArray.from_arrays([each], ["emb"])).give())
            for columns in (None, {"x": ["emb"]}):
                try:
                    given = ad.to_tensors(source, length={"emb": 2} if each is column else None, columns=columns)
                    made.append({name: bits(tensor.to_device("cpu")).tolist() for name, tensor in given.items()})
                except ad.ConversionError as error:
                    made.append(str(error))
        assert made[:2] == made[2:]


def test_rows_whose_bits_share_a_byte_with_empty_lists() -> None:
    """Fixed-size lists before them would start before the first item."""
    offsets, items = pa.array([0, 0, 0, 0, 2, 4, 6], pa.int32()), pa.array(range(6), pa.int32())
    for mask in ([False] * 6, [True] + [False] * 5):
        data = pa.ListArray.from_arrays(offsets, items, mask=pa.array(mask))[3:]
        is_the_same(ad.to_tensor(on_device(data), length=2), ad.to_tensor(data, length=2))
    data = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6], pa.int32()), items, mask=pa.array([False, True, False]))
    is_the_same(ad.to_tensor(on_device(data[1:]), length=2, nulls=9), ad.to_tensor(data[1:], length=2, nulls=9))


def test_the_host_waits_once_for_all_lists_of_a_chunk(host_waits: Any) -> None:
    data = [lists(kind, numbers("float32", 1 + 2 * 20), 2) for kind in ("list", "large_list", "list")]
    batch = pa.StructArray.from_arrays(data, ["a", "b", "c"])
    for chunks in ([batch], [batch[:7], batch[7:]]):
        stream = on_device(*chunks)
        waits = host_waits()
        ad.to_tensor(stream, length=2)
        # A wait for what is done is none.
        assert waits.ours <= len(chunks)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_apart_are_refused_and_the_remedy_helps(kind: str) -> None:
    rows = [[1, 2], None, [5, 6]]
    data = pa.array(rows, TYPES[kind](pa.int32()))
    with pytest.raises(ad.ConversionError, match="do not follow each other") as caught:
        ad.to_tensor(on_device(data), length=2, nulls=0)
    assert "pad=" in str(caught.value.remedy)
    padded, _ = ad.to_ragged(on_device(data), nulls=0, pad=(0, 2))
    assert np.array_equal(np.array(padded.to_device("cpu")), [[1, 2], [0, 0], [5, 6]])
    if "view" in kind:
        starts = pa.array([2, 0, 4], pa.int64() if "large" in kind else pa.int32())
        sizes = pa.array([2, 2, 2], starts.type)
        turned = ARRAYS[kind].from_arrays(starts, sizes, pa.array(range(6), pa.int32()))
        with pytest.raises(ad.ConversionError, match="do not follow each other"):
            ad.to_tensor(on_device(turned), length=2)


@pytest.mark.parametrize(
    "offsets", [[0, 2, 100, 6, 8], [0, 2, -100, 6, 8], [0, 2, 9], [0, 2, -1], [0, 4, 2], [-2, 0, 2], [3, 5, 7]]
)
def test_offsets_that_lead_nowhere_are_errors(offsets: list[int]) -> None:
    memory = Memory()
    wrong = memory.place(np.array(offsets, "int32").tobytes())

    def replace(node: Any) -> None:
        node.buffers[1] = wrong

    data = pa.array([[1, 2]] * (len(offsets) - 1), pa.list_(pa.int32()))
    with pytest.raises(ad.ConversionError):
        ad.to_tensor(DeviceArray(data, memory=memory, change=replace).give(), length=2)


def test_explain_says_what_happens_and_asks_nothing_of_the_driver() -> None:
    data = lists("list", numbers("float32", 1 + 2 * 20), 2)
    batch = pa.StructArray.from_arrays([data, numbers("float32", 20)], ["emb", "b"])
    column, whole = (ad.from_arrow(DeviceArray(each).give()) for each in (data, batch))
    before = driver.calls()
    (row,) = ad.explain(column, length=2)
    report = ad.explain(whole, length=2, order="C")
    assert driver.calls() == before
    assert row.error is None
    assert "lists do not follow each other" in row.refused_if
    assert any("offsets of lists" in wait for wait in row.waits)
    assert (report.matrices[0].how, report.matrices[0].error) == ("copy", None)
    assert any("offsets of lists" in wait for wait in report["emb"].waits)
    assert not ad.to_tensor(column, length=2, copy=False).copied
    (mask,) = ad.explain(column, validity=True, length=2)
    assert mask.error is None
    assert ad.validity(column, length=2).shape == (20, 2)


def masked(struct_nulls: list[bool] | None = None) -> pa.StructArray:
    """Four lists of two, of which the second is null and has items, in a struct."""
    offsets, items = pa.array([0, 2, 4, 6, 8], pa.int32()), pa.array(range(8), pa.int32())
    column = pa.ListArray.from_arrays(offsets, items, mask=pa.array([False, True, False, False]))
    return pa.StructArray.from_arrays([column], ["emb"], mask=None if struct_nulls is None else pa.array(struct_nulls))


@pytest.mark.parametrize("work", [ad.to_tensor, ad.to_tensors, ad.validity])
def test_chunks_without_rows_have_nothing_to_read(work: Any) -> None:
    """Their bitmap starts inside a byte, and they may be on another device."""
    whole, keywords = masked(), {"length": 2} if work is ad.validity else {"length": 2, "nulls": 0}
    for chunks in ([whole[3:3]], [whole[:3], whole[3:3]], [whole[1:1], whole[1:]], [whole[3:3], whole[1:1]]):
        for ordinal in (0, 1):
            arrays = [DeviceArray(chunk, ordinal=0 if len(chunk) else ordinal) for chunk in chunks]
            made = work(ad.from_arrow(DeviceStream(arrays).give()), **keywords)
            expected = work(pa.chunked_array(chunks), **keywords)
            made, expected = (each if isinstance(each, dict) else {"": each} for each in (made, expected))
            for name, tensor in expected.items():
                assert made[name].shape == tensor.shape
                if tensor.size:
                    is_the_same(made[name], tensor)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keywords", [{}, {"copy": True}, {"dtype": "float64"}, {"order": "C"}, {"order": "F"}])
def test_explain_counts_the_bytes_of_a_copy(kind: str, keywords: dict[str, Any]) -> None:
    column = lists(kind, numbers("int16", 1 + 2 * 20), 2)
    source = ad.from_arrow(DeviceArray(pa.StructArray.from_arrays([column, column], ["a", "b"])).give())
    report = ad.explain(source, length=2, **keywords)
    with ad.track_copies() as log:
        (ad.to_tensor if "order" in keywords else ad.to_tensors)(source, length=2, **keywords)
    rows = [*report, *report.matrices]
    full = 2 * 2 * 20 * np.dtype(str(rows[0].dtype)).itemsize
    assert report.bytes == full
    assert [row.bytes for row in rows] == [full // 2, full // 2, full][: len(rows)]
    # A report reads no offset, so it tells what a copy takes where a view may do, too.
    assert log.bytes in ((0, full) if rows[-1].how == "view or copy" else (full,))
    assert {(row.how, row.kernel) for row in rows} == {(rows[-1].how, True)}


def test_explain_of_a_validity_tells_of_lists() -> None:
    whole = masked()
    for data, keywords in (
        (whole.field(0), {"validity": True}),
        (whole, {"validity": True}),
        (whole, {"columns": {"x": ad.group(["emb"], nulls=0, validity="valid")}}),
        (whole, {"columns": {"x": ad.group("emb", nulls=0, validity="valid")}}),
    ):
        for source in (
            ad.from_arrow(DeviceArray(data).give()),
            ad.from_arrow(pa.chunked_array([data])).to_device("cuda"),
        ):
            for row in ad.explain(source, length=2, **keywords):
                assert (row.error, "lists do not follow each other" in row.refused_if) == (None, True), str(row)
                assert any("offsets of lists" in wait for wait in row.waits)
                assert not any("decoded" in step for step in row.steps)
                assert isinstance(source, ad.ArrayStream) or row.shape == (4, 2)


@pytest.mark.parametrize("name", ["null", "codes"])
def test_a_validity_that_no_bitmap_tells_is_refused_as_explain_says(name: str) -> None:
    items = pa.nulls(4) if name == "null" else pa.array(["a", "b", "a", "b"]).dictionary_encode()
    column = pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), items)
    batch = pa.StructArray.from_arrays([column, pa.array([1, 2])], ["emb", "b"])
    for data in (column, batch):
        source = ad.from_arrow(DeviceArray(data).give())
        (row,) = ad.explain(source, length=2, validity=True)
        with pytest.raises(ad.ConversionError) as caught:
            ad.validity(source, length=2)
        assert (row.error, row.how) == (str(caught.value), "refused")
        assert caught.value.column == ("emb" if data is batch else None)


def test_errors_behind_a_gap_are_those_of_the_host() -> None:
    for kind in KINDS:
        for rows, keywords in (
            ([[1, 2], None, [3, 4]], {}),
            ([[1, 2], None, [3, 4, 5]], {"nulls": 0}),
            ([[1, 2], None, [3, 4, 5]], {}),
            ([None, [3, 4], [5]], {"nulls": 0}),
        ):
            data = pa.array(rows, TYPES[kind](pa.int32()))
            for chunks in ([data], [data[:2], data[2:]]):
                with pytest.raises(ad.ConversionError) as expected:
                    ad.to_tensor(pa.chunked_array(chunks), length=2, **keywords)
                with pytest.raises(ad.ConversionError) as caught:
                    ad.to_tensor(on_device(*chunks), length=2, **keywords)
                assert (type(caught.value), caught.value.row) == (type(expected.value), expected.value.row)
                # A stream is read once, so the remedy may be another.
                assert str(caught.value).split(";")[0] == str(expected.value).split(";")[0]


def test_nulls_of_structs_over_null_lists_are_refused_as_explain_says() -> None:
    source = ad.from_arrow(DeviceArray(masked([True, False, False, False])).give())
    (row,) = ad.explain(source, length=2, nulls=0)
    with pytest.raises(ad.UnsupportedTypeError, match="two bitmaps") as caught:
        ad.to_tensors(source, length=2, nulls=0)
    assert row.error == str(caught.value)


def test_lists_whose_bits_would_have_to_move_are_refused_for_that() -> None:
    offsets, items = pa.array([0, 0, 0, 0, 2, 4, 6], pa.int32()), pa.array(range(6), pa.int32())
    data = pa.ListArray.from_arrays(offsets, items, mask=pa.array([False] * 4 + [True, False]))[3:]
    with pytest.raises(ad.ConversionError, match="the bitmap of null lists moved"):
        ad.to_tensor(on_device(data), length=2, nulls=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sliced", [False, True])
def test_explain_counts_the_bytes_of_lists_that_go_to_the_host(kind: str, sliced: bool) -> None:
    column = lists(kind, numbers("int16", 1 + 2 * 20), 2, nulls=0.3)
    batch = pa.StructArray.from_arrays([column, numbers("float64", 20), column], ["a", "b", "c"])
    for data in (column, batch):
        source = ad.from_arrow(DeviceArray(data[3:17] if sliced else data).give())
        report = ad.explain(source, length=2, nulls=0, device="cpu")
        with ad.track_copies() as log:
            (ad.to_tensors if data is batch else ad.to_tensor)(source, length=2, nulls=0, device="cpu")
        # The bytes are those of lists that all have that length, which the conversion refuses otherwise.
        assert (report.transfer.bytes, report.transfer.how) == (log.entries[0].bytes, "copy")
        assert any("offsets" in wait for wait in report.transfer.waits) == ("view" not in kind)
        rows = len(data) - 6 * sliced
        assert [row.shape for row in report] == [(rows, 2), (rows,), (rows, 2)][: len(report)]
