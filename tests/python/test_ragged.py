"""Lists and strings as values and offsets, padded, and back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import arrow_dlpack as ad
import nanoarrow as na
import numpy as np
import polars as pl
import producers
import pyarrow as pa
import pytest
from support import address, flags

ROWS = [[1, 2], [], [3, 4, 5]]
NULLS = [[1.0, None], None, [3.0]]

LISTS = {
    "list": pa.list_(pa.int32()),
    "large_list": pa.large_list(pa.int32()),
    "list_view": pa.list_view(pa.int32()),
    "large_list_view": pa.large_list_view(pa.int32()),
}
STRINGS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
}
TEXT = ["ab", "", "größer als zwölf Bytes"]


def array(part: Any) -> np.ndarray:
    return np.from_dlpack(part)


def rows(ragged: ad.Ragged) -> list[Any]:
    """The rows, as their definition says."""
    offsets = array(ragged.offsets).tolist()
    if ragged.lengths is None:
        bounds = list(pairwise(offsets))
    else:
        lengths = array(ragged.lengths).tolist()
        bounds = [(start, start + length) for start, length in zip(offsets, lengths, strict=True)]
    inner = ragged.values
    values = rows(inner) if isinstance(inner, ad.Ragged) else array(inner).tolist()
    valid = [True] * len(ragged) if ragged.validity is None else array(ragged.validity).tolist()
    return [values[start:end] if is_valid else None for (start, end), is_valid in zip(bounds, valid, strict=True)]


@pytest.mark.parametrize("name", LISTS)
def test_lists_are_views_and_come_back(name: str):
    source = pa.array(ROWS, LISTS[name])
    with ad.track_copies() as log:
        ragged = ad.to_ragged(source, copy=False)
        back = pa.array(ad.to_arrow(ragged, copy=False))
    assert len(log) == 0
    assert rows(ragged) == ROWS
    assert (len(ragged), ragged.validity, ragged.shapes) == (3, None, None)
    assert (ragged.lengths is not None) == ("view" in name)
    assert ragged.offsets.dtype == ("int64" if "large" in name else "int32")
    assert address(ragged.offsets) == source.buffers()[1].address
    assert address(ragged.values) == source.values.buffers()[1].address
    assert flags(ragged.offsets) & 1, "Arrow memory is read-only"
    assert back.equals(source)
    assert back.values.buffers()[1].address == source.values.buffers()[1].address
    assert pa.array(ragged).equals(source)
    assert ad.from_arrow(ragged).type == ad.from_arrow(source).type


@pytest.mark.parametrize("name", LISTS)
def test_slices(name: str):
    source = pa.array(ROWS, LISTS[name])
    for start in range(4):
        for length in range(4 - start):
            part = source.slice(start, length)
            ragged = ad.to_ragged(part)
            assert rows(ragged) == part.to_pylist()
            assert pa.array(ragged).equals(part)
            if "view" not in name:
                assert ragged.values.size == sum(map(len, part.to_pylist()))
            assert not ragged.values.copied


def test_the_offsets_of_a_slice_are_a_copy():
    part = pa.array(ROWS, pa.list_(pa.int32())).slice(1)
    with ad.track_copies() as log:
        ad.to_ragged(part)
    assert [(entry.bytes, entry.why) for entry in log] == [(12, "offsets of a slice rebased")]
    with pytest.raises(ad.CopyError, match="rebased") as caught:
        ad.to_ragged(part, copy=False)
    assert caught.value.remedy


@pytest.mark.parametrize("name", STRINGS)
def test_strings_give_their_bytes_and_come_back(name: str):
    source = pa.array(TEXT).cast(STRINGS[name])
    for part in (source, source.slice(1), source.slice(2, 1), source.slice(0, 0)):
        ragged = ad.to_ragged(part)
        assert ragged.values.dtype == "uint8"
        texts = [bytes(row).decode() for row in rows(ragged)]
        assert texts == [text if isinstance(text, str) else text.decode() for text in part.to_pylist()]
        back = pa.array(ragged)
        assert (back.type, back.to_pylist()) == (part.type, part.to_pylist())
    if "view" in name:
        with pytest.raises(ad.CopyError, match="gathered"):
            ad.to_ragged(source, copy=False)
    else:
        assert address(ad.to_ragged(source, copy=False).values) == source.buffers()[2].address


def test_null_rows_and_null_elements():
    source = pa.array(NULLS, pa.list_(pa.float32()))
    with pytest.raises(ad.NullError) as caught:
        ad.to_ragged(source)
    assert (caught.value.row, bool(caught.value.remedy)) == (1, True)
    with pytest.raises(ad.NullError, match="1 null element") as caught:
        ad.to_ragged(source.slice(0, 1))
    assert caught.value.row == 0
    kept = ad.to_ragged(source, nulls="keep", copy=False)
    assert array(kept.validity).tolist() == [True, False, True]
    assert pa.array(kept).null_count == 1
    filled = ad.to_ragged(source, nulls=9)
    assert rows(filled) == [[1, 9], [], [3]]
    assert filled.validity is None
    assert np.isnan(array(ad.to_ragged(source, nulls="nan").values)[1])
    with pytest.raises(ad.NullError):
        ad.to_ragged(pa.array(["a", None]), nulls="nan")


@pytest.mark.parametrize("large", [False, True])
def test_null_rows_that_span_elements(large: bool):
    """What lies under a null row is neither shown, nor filled, nor in the way of a cast."""
    data_type = pa.large_list(pa.int64()) if large else pa.list_(pa.int64())
    offsets = np.array([0, 2, 4, 5], "int64" if large else "int32")
    source = pa.Array.from_buffers(
        data_type, 3, [pa.py_buffer(b"\x05"), pa.py_buffer(offsets)], children=[pa.array([1, 2, 300, None, 5])]
    )
    assert source.to_pylist() == [[1, 2], None, [5]]
    kept = ad.to_ragged(source, nulls="keep", dtype="int8")
    assert rows(kept) == [[1, 2], None, [5]]
    assert pa.array(kept).to_pylist() == [[1, 2], None, [5]]
    assert array(ad.to_ragged(source, nulls="keep", copy=False).offsets).tolist() == offsets.tolist()
    filled = ad.to_ragged(source, nulls=0, dtype="int8")
    assert rows(filled) == [[1, 2], [], [5]]
    assert filled.values.size == 3
    with pytest.raises(ad.CopyError, match="null rows made empty"):
        ad.to_ragged(source, nulls=0, copy=False)
    matrix, valid = ad.to_ragged(source, nulls="keep", dtype="int8", pad=(-1, 3))
    assert array(matrix).tolist() == [[1, 2, -1], [-1, -1, -1], [5, -1, -1]]
    assert array(valid).sum(axis=1).tolist() == [2, 0, 1]


def test_nested_lists():
    source = pa.array([[["a", "bc"], []], None, [["d"]]], pa.list_(pa.large_list(pa.string())))
    ragged = ad.to_ragged(source, nulls="keep")
    assert isinstance(ragged.values, ad.Ragged)
    assert isinstance(ragged.values.values, ad.Ragged)
    assert ragged.values.values.values.dtype == "uint8"
    assert pa.array(ragged).equals(source)
    assert pa.array(ad.to_ragged(source.slice(2))).equals(source.slice(2))
    with pytest.raises(ad.UnsupportedTypeError, match="nested"):
        ad.to_ragged(source, pad=(0, 3))


def test_elements_are_converted_as_columns_are():
    bools = ad.to_ragged(pa.array([[True], [False, True]]))
    assert (bools.values.dtype, rows(bools)) == ("bool", [[True], [False, True]])
    pairs = pa.array([[[1, 2]], [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int16(), 2)))
    ragged = ad.to_ragged(pairs, copy=False)
    assert ragged.values.shape == (3, 2)
    assert pa.array(ragged).equals(pairs)
    times = pa.array([[1], [2, 3]], pa.list_(pa.timestamp("us")))
    assert pa.array(ad.to_ragged(times, copy=False)).equals(times)
    narrow = ad.to_ragged(pa.array(ROWS), dtype="int8", writable=True)
    assert narrow.values.writable
    assert narrow.offsets.writable
    assert pa.array(narrow).type == pa.list_(pa.int8())
    with pytest.raises(ad.CastError) as caught:
        ad.to_ragged(pa.array([[1], [], [2, 300]]), dtype="int8")
    assert caught.value.row == 2


@pytest.mark.parametrize("name", [*LISTS, *STRINGS])
def test_chunks_are_joined(name: str):
    values = pa.array(ROWS, LISTS[name]) if name in LISTS else pa.array(TEXT).cast(STRINGS[name])
    chunked = pa.chunked_array([values, values.slice(1), values.slice(0, 0)])
    with ad.track_copies() as log:
        ragged = ad.to_ragged(chunked)
    assert pa.array(ragged).to_pylist() == chunked.to_pylist()
    assert len(log) >= 2
    with pytest.raises(ad.CopyError):
        ad.to_ragged(chunked, copy=False)
    empty = ad.to_ragged(pa.chunked_array([], values.type))
    assert (len(empty), pa.array(empty).type) == (0, values.type)


def test_columns_of_polars():
    lists = pl.Series("x", ROWS)
    ragged = ad.to_ragged(lists, copy=False)
    assert (rows(ragged), ragged.offsets.dtype) == (ROWS, "int64")
    assert pl.Series("x", ragged).equals(lists)
    strings = pl.Series("x", [*TEXT, None])
    ragged = ad.to_ragged(strings, nulls="keep")
    assert array(ragged.validity).tolist() == [True, True, True, False]
    assert pl.Series("x", ragged).equals(strings)
    with pytest.raises(ad.NullError) as caught:
        ad.to_ragged(strings)
    assert (caught.value.column, caught.value.row) in {("x", 3), (None, 3)}


# No string views: nanoarrow 0.9 crashes in its own `c_array(["a"], string_view()).__arrow_c_array__()`.
@pytest.mark.parametrize("data_type", [na.string(), na.large_string()], ids=["string", "large_string"])
def test_strings_of_nanoarrow(data_type: Any):
    ragged = ad.to_ragged(na.c_array(TEXT, data_type), copy=False)
    assert [bytes(row).decode() for row in rows(ragged)] == TEXT
    assert na.Array(ragged).to_pylist() == TEXT
    assert na.Array(ad.Ragged(np.arange(3), np.array([0, 2, 3]))).to_pylist() == [[0, 1], [2]]


@pytest.mark.parametrize("offsets", ["int32", "int64"])
def test_values_and_offsets_become_a_list_array(offsets: str):
    values, ends = np.arange(5.0), np.array([0, 2, 2, 5], offsets)
    with ad.track_copies() as log:
        ragged = ad.Ragged(values, ends)
        lists = pa.array(ad.to_arrow(ragged, copy=False))
    assert len(log) == 0
    assert lists.type == (pa.large_list if offsets == "int64" else pa.list_)(pa.float64())
    assert lists.to_pylist() == [[0, 1], [], [2, 3, 4]]
    assert lists.buffers()[1].address == ends.ctypes.data
    assert lists.values.buffers()[1].address == values.ctypes.data
    lists.validate(full=True)


def test_every_part_becomes_arrow():
    values, ends = np.arange(6, dtype="int32"), np.array([0, 2, 6], "int32")
    valid = np.array([True, False])
    nulls = pa.array(ad.Ragged(values, ends, validity=valid))
    assert nulls.to_pylist() == [[0, 1], None]
    views = pa.array(ad.Ragged(values, ends[:2], lengths=np.array([3, 1], "int32")))
    assert (views.type, views.to_pylist()) == (pa.list_view(pa.int32()), [[0, 1, 2], [2]])
    nested = pa.array(ad.Ragged(ad.Ragged(values, ends), np.array([0, 0, 2], "int64")))
    assert nested.to_pylist() == [[], [[0, 1], [2, 3, 4, 5]]]
    points = pa.array(ad.Ragged(values.reshape(3, 2), np.array([0, 1, 3])))
    assert [len(row) for row in points] == [1, 2]
    shapes = ad.Ragged(values, ends, shapes=np.array([[1, 2], [2, 2]], "int32"))
    storage = pa.array(shapes)
    storage = getattr(storage, "storage", storage)
    assert storage.to_pylist() == [{"data": [0, 1], "shape": [1, 2]}, {"data": [2, 3, 4, 5], "shape": [2, 2]}]
    again = ad.to_ragged(ad.to_arrow(shapes))
    assert array(again.shapes).tolist() == [[1, 2], [2, 2]]
    assert not again.values.copied


def test_bytes_become_strings_where_they_are_text():
    values = np.frombuffer("aöb".encode(), np.uint8)
    text = ad.to_arrow(ad.Ragged(values, np.array([0, 3, 4], "int32")), type=pa.string(), copy=False)
    assert pa.array(text).to_pylist() == ["aö", "b"]
    cut = ad.Ragged(values, np.array([0, 2, 4], "int32"))
    with pytest.raises(ad.CastError, match="UTF-8") as caught:
        ad.to_arrow(cut, type=pa.string())
    assert (caught.value.row, bool(caught.value.remedy)) == (0, True)
    assert pa.array(cut, pa.binary()).to_pylist() == [b"a\xc3", b"\xb6b"]
    own = ad.to_ragged(pa.array(["ab"]), writable=True)
    np.from_dlpack(own.values)[1] = 0xFF
    with pytest.raises(ad.CastError, match="UTF-8"):
        pa.array(own)


def test_types_can_be_requested():
    ragged = ad.to_ragged(pa.array(ROWS))
    assert pa.array(ragged, pa.large_list(pa.float64())).to_pylist() == ROWS
    assert pa.array(ad.to_arrow(ragged, type=pa.list_(pa.int8()))).type == pa.list_(pa.int8())
    with pytest.raises(ad.CopyError):
        ad.to_arrow(ragged, type=pa.large_list(pa.int64()), copy=False)
    with pytest.raises(ad.CastError):
        ad.to_arrow(ad.to_ragged(pa.array([[300]])), type=pa.list_(pa.int8()))


def test_padding():
    source = pa.array(NULLS, pa.list_(pa.float32()))
    matrix, valid = ad.to_ragged(source, nulls="keep", pad=(0, 3))
    assert array(matrix).tolist() == [[1, 0, 0], [0, 0, 0], [3, 0, 0]]
    assert array(valid).tolist() == [[True, False, False], [False] * 3, [True, False, False]]
    with ad.track_copies() as log:
        matrix, valid = ad.to_ragged(source.slice(2), dtype="float64", pad=(float("nan"), None))
    assert (matrix.dtype, matrix.shape, array(valid).tolist()) == ("float64", (1, 1), [[True]])
    assert [entry.bytes for entry in log] == [9], "the matrix and its validity, and nothing between"
    words = pa.array(["to", "", "be"])
    assert array(ad.to_ragged(words, pad=(ord("-"), 3))[0]).tobytes() == b"to----be-"


@pytest.mark.parametrize(
    ("pad", "error"),
    [
        ((0, 1), ad.ConversionError),
        ((0.5, 3), ad.NullError),
        ((300, 3), ad.NullError),
        ((0, -1), ValueError),
        ((0, 1.5), TypeError),
        (("nan", 3), TypeError),
        (0, TypeError),
        ((0,), TypeError),
    ],
)
def test_padding_that_cannot_be(pad: Any, error: type[Exception]):
    source = pa.array([[1], [2, 3]], pa.list_(pa.int8()))
    with pytest.raises(error):
        ad.to_ragged(source, pad=pad)


def test_a_longer_row_is_named():
    with pytest.raises(ad.ConversionError, match="3 elements, and is padded to 2") as caught:
        ad.to_ragged(pa.array([[1], [], [1, 2, 3]]), pad=(0, 2))
    assert (caught.value.row, bool(caught.value.remedy)) == (2, True)
    with pytest.raises(ad.CopyError):
        ad.to_ragged(pa.array([[1]]), pad=(0, 2), copy=False)


def test_every_part_is_an_array_of_the_namespace():
    ragged = ad.to_ragged(pa.array([[[1]], [[2, 3], []]]), nulls="keep", xp=np)
    for part in (ragged.offsets, ragged.validity, ragged.values.offsets, ragged.values.values):
        assert isinstance(part, np.ndarray)
    assert pa.array(ragged).to_pylist() == [[[1]], [[2, 3], []]]
    assert all(isinstance(part, np.ndarray) for part in ad.to_ragged(pa.array(ROWS), pad=(0, 3), xp=np))


def test_parts_outlive_their_source_and_each_other():
    source = pa.array(ROWS)
    ragged = ad.to_ragged(source)
    values, lists = array(ragged.values), pa.array(ragged)
    del ragged, source
    assert values.tolist() == [1, 2, 3, 4, 5]
    del values
    assert lists.to_pylist() == ROWS


@pytest.mark.parametrize("offsets", [[], [0, 6], [3, 1], [-1, 2], [0, 2**31]])
def test_offsets_that_lead_elsewhere(offsets: list[int]):
    with pytest.raises(ad.ConversionError):
        ad.Ragged(np.arange(5), np.array(offsets, "int64"))


def test_parts_that_are_none():
    ends = np.array([0, 2], "int32")
    for values, offsets, keywords in [
        (np.arange(3), ends.astype("uint32"), {}),
        (np.arange(3), ends.astype("float32"), {}),
        (np.array(1), ends, {}),
        (np.arange(3), ends.reshape(1, 2), {}),
        (np.arange(3), ends, {"lengths": np.array([1], "int32")}),
        (np.arange(3), ends[:1], {"lengths": np.array([4], "int32")}),
        (np.arange(3), ends, {"validity": np.array([1])}),
        (np.arange(3), ends, {"shapes": np.array([[3]], "int32")}),
    ]:
        with pytest.raises(ad.ConversionError):
            ad.Ragged(values, offsets, **keywords)
    with pytest.raises(TypeError, match="offsets"):
        ad.Ragged(np.arange(3), [0, 3])


def test_offsets_that_change_later_are_found():
    ends = np.array([0, 2], "int32")
    ragged = ad.Ragged(np.arange(3), ends)
    ends[1] = 1000
    with pytest.raises(ad.ConversionError):
        pa.array(ragged)


def test_what_is_refused_names_a_remedy():
    table = pa.table({"x": pa.array(ROWS)})
    for source in (
        table,
        pa.array([1]),
        pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
        pa.array(["a"]).dictionary_encode(),
    ):
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            ad.to_ragged(source)
        assert caught.value.remedy
    for source in (pa.array(ROWS), pa.array(["a"]), pa.array([b"a"], pa.binary_view())):
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            ad.to_tensor(source)
        assert "to_ragged" in caught.value.remedy


def test_tensors_of_variable_shape():
    storage = pa.array(
        [{"data": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}, {"data": [7], "shape": [1, 1]}, None],
        pa.struct([("data", pa.list_(pa.float32())), ("shape", pa.list_(pa.int32(), 2))]),
    )
    metadata = {"ARROW:extension:name": "arrow.variable_shape_tensor", "ARROW:extension:metadata": "{}"}
    batch = pa.record_batch([storage], schema=pa.schema([pa.field("x", storage.type, metadata=metadata)]))
    column = ad.from_arrow(batch)["x"]
    ragged = ad.to_ragged(column, nulls="keep", copy=False)
    assert (rows(ragged), ragged.shapes.shape) == ([[1, 2, 3, 4, 5, 6], [7], None], (3, 2))
    assert array(ragged.shapes)[:2].tolist() == [[2, 3], [1, 1]]
    assert pa.array(ragged).to_pylist() == storage.to_pylist()
    with pytest.raises(ad.UnsupportedTypeError, match="cannot be padded"):
        ad.to_ragged(column, pad=(0, 3))


def test_it_is_explained():
    source = pa.chunked_array([pa.array(ROWS).slice(1)]).chunk(0)
    report = ad.explain(source)
    assert [(row.column, row.how, row.dtype) for row in report] == [
        ("offsets", "copy", "int32"),
        ("values", "view", "int64"),
    ]
    assert report["offsets"].bytes == report.bytes == 12
    views = ad.explain(pa.array(TEXT, pa.string_view()))
    assert {row.how for row in views} == {"copy"}
    assert [row.how for row in ad.explain(pa.field("x", pa.string()))] == ["view or copy", "view or copy"]
    # In a batch they are what to_tensors says.
    report = ad.explain(pa.table({"x": pa.array(ROWS)}).to_batches()[0])
    assert report["x"].how == "refused"
    assert "to_ragged" in str(report)


def test_it_says_what_it_is():
    ragged = ad.to_ragged(pa.array(NULLS), nulls="keep")
    assert repr(ragged) == "Ragged(3 rows, values=float64 [3], offsets=int32, validity, from List(Float64))"
    assert str(ragged.device) == str(ragged.values.device)
    assert ad.Ragged[np.ndarray].__origin__ is ad.Ragged


@pytest.mark.parametrize("large", [False, True], ids=["int32", "int64"])
def test_nested_tensors_of_torch(torch, large: bool):
    """A jagged tensor over Arrow's own memory, and back."""
    source = pa.array([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]])
    source = source.cast(pa.large_list(pa.float64())) if large else source
    ragged = ad.to_ragged(source, xp=torch)
    nested = torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)
    assert nested.values().data_ptr() == source.values.buffers()[1].address
    assert [row.tolist() for row in nested.unbind()] == source.to_pylist()
    doubled = nested * 2
    back = pa.array(ad.to_arrow(ad.Ragged(doubled.values(), doubled.offsets()), copy=False))
    assert back.type == source.type
    assert back.to_pylist() == [[2, 4], [6], [8, 10, 12]]


def test_nested_tensors_of_list_views(torch):
    source = pa.array([[1.0, 2.0], [3.0]], pa.list_view(pa.float32())).take(pa.array([1, 0]))
    ragged = ad.to_ragged(source, xp=torch)
    # torch wants one more offset than rows beside lengths, and does not read it.
    offsets = torch.nn.functional.pad(ragged.offsets, (0, 1), value=len(ragged.values))
    nested = torch.nested.nested_tensor_from_jagged(ragged.values, offsets, ragged.lengths)
    assert [row.tolist() for row in nested.unbind()] == source.to_pylist()


def test_padded_batches_of_torch(torch):
    source = pa.array([[1, 2, 3], [4]])
    tokens, mask = ad.to_ragged(source, pad=(0, None), xp=torch)
    assert tokens.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert mask.dtype == torch.bool
    assert mask.sum(1).tolist() == [3, 1]
    tokens[1, 1] = 7
    assert source.to_pylist() == [[1, 2, 3], [4]], "a matrix is memory of its own"


def test_decimals_and_dictionaries_in_lists():
    amounts = pa.array([[1, 2], [3]], pa.list_(pa.decimal64(10, 2)))
    assert rows(ad.to_ragged(amounts, dtype="float64")) == [[1, 2], [3]]
    assert rows(ad.to_ragged(amounts, decimal="unscaled", copy=False)) == [[100, 200], [300]]
    words = pa.array([["b", "a"], ["b"]], pa.list_(pa.dictionary(pa.int8(), pa.string())))
    ragged = ad.to_ragged(words)
    assert rows(ragged) == [[0, 1], [0]]
    assert pa.array(ragged).equals(words)
    numbers = pa.array([[30, 10], [30]], pa.list_(pa.dictionary(pa.int8(), pa.int64())))
    assert rows(ad.to_ragged(numbers, dictionary="values")) == [[30, 10], [30]]


def test_unversioned_consumers_get_what_legacy_says():
    rows = pa.array([[1, 2], [3]])
    values = rows.values.buffers()[1].address
    for legacy, is_view in (("copy", False), ("view", True)):
        capsule = ad.to_ragged(rows, legacy=legacy).values.__dlpack__()
        _, tensor = producers.read_dlpack(capsule)
        assert (tensor.data == values) == is_view
    refused = ad.to_ragged(rows, legacy="error")
    with pytest.raises(BufferError):
        refused.offsets.__dlpack__()
    with pytest.raises(ValueError, match="legacy"):
        ad.to_ragged(rows, legacy="share")


def test_strided_offsets_and_lengths_are_gathered():
    values, offsets, lengths = np.arange(6), np.array([0, 9, 2, 9, 6], "int32"), np.array([1, 9, 2], "int32")
    assert pa.array(ad.Ragged(values, offsets[::2])).to_pylist() == [[0, 1], [2, 3, 4, 5]]
    views = ad.Ragged(values, offsets[:3:2], lengths=lengths[::2])
    assert pa.array(views).to_pylist() == [[0], [2, 3]]
