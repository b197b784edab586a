"""Runs, dictionaries, decimals and binary that no library would give: the right data or a clear error, one release."""

from __future__ import annotations

import struct
from collections.abc import Callable

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from producers import Array, Schema

MAX = 2**63 - 1
Pair = tuple[Schema, Array]
ENDS = {b"s": "h", b"i": "i", b"l": "q"}
VALUES = struct.pack("3q", 10, 20, 30)


def runs(
    ends: list[int],
    length: int,
    offset: int = 0,
    *,
    format: bytes = b"i",
    values: int | None = None,
    schemas: list[bytes] | None = None,
    of_ends: dict[str, int] | None = None,
    **fields,
) -> Pair:
    packed = struct.pack(f"{len(ends)}{ENDS[format]}", *ends)
    children = [
        Array(len(ends), [None, packed], **of_ends or {}),
        Array(len(ends) if values is None else values, [None, VALUES]),
    ]
    schema = Schema(b"+r", children=[Schema(format, flags=0) for format in schemas or [format, b"l"]])
    return schema, Array(length, [], offset=offset, children=children, **fields)


def listed(pair: Pair, size: int) -> Pair:
    schema, array = pair
    length = array.array.length // size
    return Schema(b"+w:%d" % size, children=[schema]), Array(length, [None], children=[array])


WRONG_RUNS: dict[str, Callable[[], Pair]] = {
    "ends of zero": lambda: runs([0, 5], 5),
    "a first end of zero": lambda: runs([0, 2, 5], 5),
    "negative ends": lambda: runs([-3, 5], 5),
    "ends that fall": lambda: runs([3, 2, 5], 5),
    "ends that stand still": lambda: runs([2, 2, 5], 5),
    "ends that stop early": lambda: runs([1, 2, 4], 5),
    "ends that stop before the slice does": lambda: runs([1, 2, 5], 4, 2),
    "no runs": lambda: runs([], 5),
    "fewer values than ends": lambda: runs([1, 2, 5], 5, values=2),
    "nulls among the ends": lambda: runs([1, 2, 5], 5, of_ends={"null_count": 1}),
    "ends whose offset overflows": lambda: runs([1, 2, 5], 5, of_ends={"offset": MAX}),
    "a negative length": lambda: runs([1, 2, 5], -1),
    "a length that overflows": lambda: runs([1, 2, 5], MAX, MAX),
    "a length beyond the ends": lambda: runs([1, 2, 5], MAX),
    "an offset beyond the ends": lambda: runs([1, 2, 5], 1, MAX - 1),
    "a validity buffer": lambda: runs([1, 2, 5], 5, n_buffers=1),
    "floats as ends": lambda: runs([1, 2, 5], 5, schemas=[b"f", b"l"]),
    "one child": lambda: runs([1, 2, 5], 5, schemas=[b"i"]),
    "three children": lambda: runs([1, 2, 5], 5, schemas=[b"i", b"l", b"l"]),
}


@pytest.mark.parametrize("make", WRONG_RUNS.values(), ids=list(WRONG_RUNS))
def test_wrong_runs(make: Callable[[], Pair]):
    for call in (
        lambda x: ad.to_tensor(x),
        lambda x: ad.to_tensor(x, nulls="keep", dtype="float32"),
        lambda x: ad.validity(x),
        lambda x: ad.to_tensor(ad.from_arrow(x)),
    ):
        with pytest.raises(ad.ConversionError) as caught:
            call(producers.arrow(*make()))
        assert caught.value.reason


@pytest.mark.parametrize("format", ENDS)
def test_ends_of_every_width(format: bytes):
    good = producers.arrow(*runs([1, 2, 5], 3, 1, format=format))
    assert np.from_dlpack(ad.to_tensor(good)).tolist() == [20, 30, 30]
    for ends in ([0, 5], [3, 2, 5], [1, 2, 4], [-1, 1, 5]):
        with pytest.raises(ad.ConversionError):
            ad.to_tensor(producers.arrow(*runs(ends, 5, format=format)))


def test_more_runs_than_are_needed_are_fine():
    for length, offset, rows in [(2, 0, [10, 20]), (2, 1, [20, 30]), (0, 0, []), (0, 5, [])]:
        pair = runs([1, 2, 5], length, offset)
        assert np.from_dlpack(ad.to_tensor(producers.arrow(*pair))).tolist() == rows


@pytest.mark.parametrize("make", [WRONG_RUNS["ends of zero"], WRONG_RUNS["ends that stop early"]])
def test_wrong_runs_in_lists(make: Callable[[], Pair]):
    with pytest.raises(ad.ConversionError):
        ad.to_tensor(producers.arrow(*listed(make(), 5)))


def dictionary(codes: bytes, values: Array, schema: Schema, *, format: bytes = b"c", length: int = 3, **fields) -> Pair:
    return Schema(format, dictionary=schema), Array(length, [None, codes], dictionary=values, **fields)


WITH_NULL = (b"\x05", VALUES)


@pytest.mark.parametrize(
    ("format", "codes"),
    [
        (b"c", struct.pack("3b", 0, 1, 3)),
        (b"c", struct.pack("3b", 0, 1, -1)),
        (b"C", struct.pack("3B", 0, 1, 255)),
        (b"l", struct.pack("3q", 0, 1, -(2**63))),
        (b"l", struct.pack("3q", 0, 1, MAX)),
        (b"L", struct.pack("3Q", 0, 1, 2**64 - 1)),
        (b"I", struct.pack("3I", 0, 1, 2**32 - 1)),
    ],
)
def test_codes_beyond_a_dictionary_with_nulls(format: bytes, codes: bytes):
    def make(**fields):
        values = Array(3, WITH_NULL, null_count=1)
        return producers.arrow(*dictionary(codes, values, Schema(b"l"), format=format, **fields))

    for call in (
        lambda x: ad.to_tensor(x, nulls="keep"),
        lambda x: ad.to_tensor(x, nulls=0),
        lambda x: ad.validity(x),
        lambda x: ad.to_tensor(x, nulls=0, dictionary="values"),
        lambda x: ad.to_tensor(x, nulls=0, dtype="float64"),
    ):
        with pytest.raises(ad.ConversionError) as caught:
            call(make())
        assert "beyond" in caught.value.reason or "out of bounds" in caught.value.reason
    # Before the code that is wrong, and after, nothing is.
    assert np.from_dlpack(ad.validity(make(length=2))).tolist() == [True, False]


def coded(codes: list[int], values: pa.Array) -> pa.Array:
    """Codes that nobody compared with their dictionary."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), values, safe=False)


@pytest.mark.parametrize("values", [pa.array([1.0, 2.0]), pa.array([1.0, None])])
def test_decoded_codes_beyond_a_dictionary_name_column_and_row(values: pa.Array):
    chunks = [coded([0, 0, 0], values), coded([0, 7, 9], values)]
    table = pa.table({"a": [0.0] * 6, "x": pa.chunked_array(chunks)})
    lists = [pa.FixedSizeListArray.from_arrays(chunk, 1) for chunk in chunks]
    items = [pa.ListArray.from_arrays([0, 1, 2, 3], chunk) for chunk in chunks]
    structs = [pa.StructArray.from_arrays([chunk], ["x"]) for chunk in chunks]
    nested = pa.table({"a": [0.0] * 6, "x": pa.chunked_array(lists)})
    options = {"dictionary": "values"}
    for call in (
        lambda: ad.to_tensors(table, **options),
        lambda: ad.to_tensors(table, **options, nulls=0),
        lambda: ad.to_tensors(table, **options, nulls={"x": 0}, dtype={"x": "float32"}),
        lambda: ad.to_tensor(table, **options, nulls=0),
        lambda: ad.to_tensors(nested, **options, nulls=0),
        lambda: ad.to_tensors(pa.table({"x": pa.chunked_array(structs).combine_chunks().field("x")}), **options),
        lambda: ad.to_tensors(pa.table({"x": pa.chunked_array(items)}), length={"x": 1}, **options, nulls=0),
        lambda: ad.to_tensors(pa.table({"x": pa.chunked_array(items)}), columns={"x": ad.ragged("x")}, **options),
        lambda: ad.to_tensors(pa.table({"x": pa.chunked_array(items)}), columns={"x": ad.padded("x")}, **options),
    ):
        with pytest.raises(ad.ConversionError) as caught:
            call()
        error = caught.value
        assert (error.column, error.row) == ("x", 4)
        assert error.reason.endswith("is beyond the dictionary's 2 values")


@pytest.mark.parametrize("null_count", [1, -1, 0])
def test_null_counts_of_dictionaries_may_be_unknown_and_are_believed_if_zero(null_count: int):
    values = Array(3, WITH_NULL, null_count=null_count)
    source = producers.arrow(*dictionary(bytes([0, 1, 2]), values, Schema(b"l")))
    expected = [True, null_count == 0, True]
    assert np.from_dlpack(ad.validity(source)).tolist() == expected


def test_dictionaries_with_an_offset_of_their_own():
    values = Array(2, WITH_NULL, null_count=1, offset=1)
    source = producers.arrow(*dictionary(bytes([0, 1, 1, 0]), values, Schema(b"l"), offset=1))
    imported = ad.from_arrow(source)
    assert np.from_dlpack(ad.validity(imported)).tolist() == [True, True, False]
    tensor = ad.to_tensor(imported, nulls="keep")
    assert np.from_dlpack(tensor).tolist() == [1, 1, 0]
    assert pa.array(tensor).to_pylist() == [30, 30, None]
    assert np.from_dlpack(ad.to_tensor(imported, nulls=0, dictionary="values")).tolist() == [30, 30, 0]


def wrong_dictionary(length: int = 3, **fields) -> Pair:
    return dictionary(bytes(3), Array(length, WITH_NULL, **fields), Schema(b"l"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: wrong_dictionary(length=-1),
        lambda: wrong_dictionary(offset=-1),
        lambda: wrong_dictionary(offset=MAX),
        lambda: wrong_dictionary(null_count=4),
        lambda: wrong_dictionary(n_buffers=1),
        lambda: wrong_dictionary(buffers_=None),
        lambda: (Schema(b"c", dictionary=Schema(b"l")), Array(3, [None, bytes(3)])),
        lambda: dictionary(
            bytes(3),
            Array(3, [None, bytes(3)], dictionary=Array(-1, WITH_NULL)),
            Schema(b"c", dictionary=Schema(b"l")),
        ),
    ],
    ids=["length", "offset", "far offset", "nulls", "buffers", "no buffers", "none", "of a wrong one"],
)
def test_wrong_dictionaries(make: Callable[[], Pair]):
    for call in (ad.to_tensor, ad.validity, ad.from_arrow, ad.explain):
        with pytest.raises(ad.ConversionError):
            call(producers.arrow(*make()))


@pytest.mark.parametrize(
    "format", [b"w:-1", b"w:", b"w:x", b"w:2147483648", b"w:99999999999999999999", b"w", b"w: 3", b"w:3,3"]
)
def test_widths_that_cannot_be(format: bytes):
    for call in (ad.to_tensor, ad.validity, ad.from_arrow):
        with pytest.raises(ad.ConversionError, match="w"):
            call(producers.arrow(Schema(format), Array(3, [None, bytes(9)])))


@pytest.mark.parametrize("width", [0, 2**31 - 1])
def test_extreme_widths(width: int):
    for length in (0, 1):
        if width and length:
            continue
        tensor = ad.to_tensor(producers.arrow(Schema(b"w:%d" % width), Array(length, [None, bytes(1)])))
        assert tensor.shape == (length, width)
    with pytest.raises(ad.ConversionError):
        ad.to_tensor(producers.arrow(Schema(b"w:%d" % (2**31 - 1)), Array(2**40, [None, bytes(1)])))
    lists, array = Schema(b"w:%d" % (2**31 - 1)), Array(0, [None, bytes(1)])
    for _ in range(3):
        lists, array = Schema(b"+w:%d" % (2**31 - 1), children=[lists]), Array(0, [None], children=[array])
    with pytest.raises(ad.ConversionError, match="overflow"):
        ad.to_tensor(producers.arrow(lists, array))


def named(name: bytes, format: bytes) -> Schema:
    return Schema(format, field=b"x", metadata={b"ARROW:extension:name": name})


@pytest.mark.parametrize(
    ("name", "width"),
    [
        (b"arrow_dlpack.bfloat16", 1),
        (b"arrow_dlpack.bfloat16", 0),
        (b"arrow_dlpack.bfloat16", 4),
        (b"lance.bfloat16", 3),
        (b"arrow_dlpack.float8_e4m3fn", 2),
        (b"arrow_dlpack.float8_e8m0fnu", 0),
    ],
)
def test_widths_that_do_not_match_the_extension(name: bytes, width: int):
    def make():
        return producers.arrow(named(name, b"w:%d" % width), Array(2, [None, bytes(16)]))

    for call in (ad.to_tensor, ad.validity):
        with pytest.raises(ad.ConversionError, match=f"of {width} bytes") as caught:
            call(make())
        assert caught.value.column == "x"
    assert "bytes" in ad.explain(make())[0].error
    # As Arrow data it passes through.
    assert len(ad.from_arrow(make())) == 2


@pytest.mark.parametrize(
    "name",
    [
        b"arrow_dlpack.",
        b"arrow_dlpack.float32",
        b"arrow_dlpack.bfloat17",
        b"arrow_dlpack.complex64",
        b"bfloat16",
        b"lance.float16",
        b"ARROW_DLPACK.BFLOAT16",
        b"\xff\xfe",
    ],
)
def test_extensions_that_are_not_known_are_their_storage(name: bytes):
    tensor = ad.to_tensor(producers.arrow(named(name, b"w:2"), Array(2, [None, bytes(range(4))])))
    assert (tensor.dtype, tensor.shape) == ("uint8", (2, 2))


@pytest.mark.parametrize(
    "format",
    [
        b"d:0,0",
        b"d:39,2",
        b"d:77,2,256",
        b"d:10,2,32",
        b"d:19,2,64",
        b"d:5,2,99",
        b"d:5",
        b"d:-5,2",
        b"d:5,128",
        b"d:5,-129",
        b"d:,",
        b"d:5,2,",
    ],
)
def test_decimals_that_cannot_be(format: bytes):
    for call in (ad.from_arrow, lambda x: ad.to_tensor(x, dtype="float64")):
        with pytest.raises(ad.ConversionError, match="d:"):
            call(producers.arrow(Schema(format), Array(1, [None, bytes(32)])))


@pytest.mark.parametrize(("scale", "value"), [(127, 1), (-128, 1), (127, 10**38 - 1), (-128, -(10**38 - 1)), (127, 0)])
@pytest.mark.parametrize("bits", [128, 256])
def test_extreme_scales(scale: int, value: int, bits: int):
    """Scales beyond the precision are allowed by the format."""

    def make():
        data = value.to_bytes(bits // 8, "little", signed=True)
        return producers.arrow(Schema(b"d:38,%d,%d" % (scale, bits)), Array(1, [None, data]))

    assert np.from_dlpack(ad.to_tensor(make(), dtype="float64")).tolist() == [float(f"{value}e{-scale}")]
    if value == 0:
        assert np.from_dlpack(ad.to_tensor(make(), dtype="int64")).tolist() == [0]
        return
    with pytest.raises(ad.CastError):
        ad.to_tensor(make(), dtype="int64")
    if scale > 0:
        assert np.from_dlpack(ad.to_tensor(make(), dtype="float16")).tolist() == [0]
    else:
        with pytest.raises(ad.CastError):
            ad.to_tensor(make(), dtype="float32")


def test_pairs_of_odd_children():
    """Lists of two whose child starts at an odd float: aligned for floats, and so for complex numbers."""
    data = struct.pack("5f", 9, 1, 2, 3, 4)
    schema = Schema(b"+w:2", children=[Schema(b"f", field=b"item")])
    array = Array(2, [None], children=[Array(4, [None, data], offset=1)])
    tensor = ad.to_tensor(producers.arrow(schema, array), dtype="complex64", copy=False)
    assert np.from_dlpack(tensor).tolist() == [1 + 2j, 3 + 4j]
    schema = Schema(b"+w:2", children=[Schema(b"f", field=b"item")])
    array = Array(2, [None], children=[Array(4, [None, data], misaligned_by=2)])
    imported = ad.from_arrow(producers.arrow(schema, array))
    with pytest.raises(ad.CopyError, match="aligned"):
        ad.to_tensor(imported, dtype="complex64", copy=False)
    assert np.from_dlpack(ad.to_tensor(imported, dtype="complex64")).tolist() == [9 + 1j, 2 + 3j]


def test_an_unknown_type_of_a_dictionarys_values_is_told_of_its_column():
    schema = Schema(b"+s", children=[Schema(b"c", field=b"d", dictionary=Schema(b"zz9"))])
    source = producers.arrow(schema, Array(0, [None], children=[Array(0, [None, b""], dictionary=Array(0, WITH_NULL))]))
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_tensors(source)
    assert caught.value.column == "d"
