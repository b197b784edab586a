"""What the tests of dataframe libraries ask: columns of every type, where values are, and who calls which dunder."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from helpers import address

DUNDERS = [
    "__arrow_c_schema__",
    "__arrow_c_array__",
    "__arrow_c_stream__",
    "__arrow_c_device_array__",
    "__arrow_c_device_stream__",
    "__dlpack__",
    "__dlpack_device__",
]


def dunders(x: Any) -> set[str]:
    """Which dunders of both protocols an object has, in short: "schema", "array", "device_array", "dlpack"."""
    return {name.strip("_").removeprefix("arrow_c_") for name in DUNDERS if hasattr(x, name)}


class Spy:
    """An object that has the dunders of another one, and remembers which were called with what."""

    calls: list[str]

    def __new__(cls, of: object) -> Any:
        # The type knows nothing of the data: polars keeps every type that it ever met.
        spy = type("Spied", (), {name: _spied(name) for name in DUNDERS if hasattr(of, name)})()
        spy.of = of
        spy.calls = []
        return spy


def _spied(name: str) -> Callable[..., object]:
    def call(self: Any, *arguments: Any, **keywords: Any) -> object:
        told = [_told(one) for one in arguments] + [f"{key}={_told(one)}" for key, one in keywords.items()]
        self.calls.append(f"{name.strip('_').removeprefix('arrow_c_')}({', '.join(told)})")
        return getattr(self.of, name)(*arguments, **keywords)

    return call


def _told(argument: object) -> str:
    return "capsule" if type(argument).__name__ == "PyCapsule" else repr(argument)


# --- Columns. ---

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


def misaligned() -> pa.Array:
    """Four int64 that start one byte off."""
    memory = pa.py_buffer(b"\0" + np.arange(4, dtype="int64").tobytes())
    return pa.Array.from_buffers(pa.int64(), 4, [None, memory.slice(1)])


def _extension(type: pa.DataType, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(type, storage)


D = decimal.Decimal
LONG = "longer than the twelve bytes that a view holds itself"

# What a column is called: the case of the matrix that it belongs to, and how it is made.
COLUMNS: dict[str, tuple[str, Callable[[], pa.Array]]] = {
    **{name: ("numbers", lambda name=name: pa.array([1, 2, 3], getattr(pa, name)())) for name in NUMBERS},
    "slice": ("numbers", lambda: pa.array(range(10), pa.int32())[3:7]),
    "bool": ("bool", lambda: pa.array([True, False, True])),
    "bool slice": ("bool", lambda: pa.array([True, False, None] * 5)[3:11]),
    "bool8": ("bool", lambda: _extension(pa.bool8(), pa.array([0, 1], pa.int8()))),
    "int nulls": ("nulls", lambda: pa.array([1, None, 3], pa.int64())),
    "float nulls": ("nulls", lambda: pa.array([1.5, None], pa.float64())),
    "bool nulls": ("nulls", lambda: pa.array([True, None, False])),
    "null slice": ("nulls", lambda: pa.array([1, None, 3, None, 5, 6, 7], pa.int64())[1:6]),
    "date32": ("temporal", lambda: pa.array([1, 2], pa.date32())),
    "date64": ("temporal", lambda: pa.array([0, 86_400_000], pa.date64())),
    "time32": ("temporal", lambda: pa.array([1, 2], pa.time32("s"))),
    "time64": ("temporal", lambda: pa.array([1, 2], pa.time64("us"))),
    "time64 ns": ("temporal", lambda: pa.array([1000, 2000], pa.time64("ns"))),
    "timestamp": ("temporal", lambda: pa.array([1, 2], pa.timestamp("us"))),
    "timestamp s": ("temporal", lambda: pa.array([1, 2], pa.timestamp("s"))),
    "timestamp tz": ("temporal", lambda: pa.array([1000, 2000], pa.timestamp("ns", "Europe/Berlin"))),
    "duration": ("temporal", lambda: pa.array([1, 2], pa.duration("ms"))),
    "decimal128": ("decimal", lambda: pa.array([D("1.5"), D("-2.5")], pa.decimal128(5, 1))),
    "decimal32": ("decimal", lambda: pa.array([D("1.5"), D("-2.5")], pa.decimal32(5, 1))),
    "dictionary": ("dictionary", lambda: pa.array(["a", "b", "a"]).dictionary_encode()),
    "number dictionary": ("dictionary", lambda: pa.array([5, 6, 5]).dictionary_encode()),
    "string": ("strings", lambda: pa.array(["a", None, LONG])),
    "large string": ("strings", lambda: pa.array(["a", None, LONG], pa.large_string())),
    "string view": ("strings", lambda: pa.array(["a", None, LONG], pa.string_view())),
    "binary": ("strings", lambda: pa.array([b"a", b"bc"])),
    "fixed-size binary": ("strings", lambda: pa.array([b"ab", b"cd"], pa.binary(2))),
    "list": ("lists", lambda: pa.array([[1], None, [2, 3]], pa.list_(pa.int64()))),
    "large list": ("lists", lambda: pa.array([[1], None, [2, 3]], pa.large_list(pa.int64()))),
    "list view": ("lists", lambda: pa.array([[1], None, [2, 3]], pa.list_view(pa.int64()))),
    "fixed-size list": ("fixed-size lists", lambda: pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))),
    "fixed-size list slice": (
        "fixed-size lists",
        lambda: pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))[1:],
    ),
    "tensors": (
        "fixed-size lists",
        lambda: _extension(
            pa.fixed_shape_tensor(pa.float32(), [2, 2]), pa.array([[1, 2, 3, 4]], pa.list_(pa.float32(), 4))
        ),
    ),
    "no rows": ("size 0", lambda: pa.array([], pa.int64())),
    "no rows of strings": ("size 0", lambda: pa.array([], pa.string())),
    "no rows of lists": ("size 0", lambda: pa.array([], pa.list_(pa.int32(), 2))),
    "lists of size 0": ("size 0", lambda: pa.array([[], []], pa.list_(pa.int32(), 0))),
    "misaligned": ("misaligned", misaligned),
}


def column(name: str) -> pa.Array:
    return COLUMNS[name][1]()


# --- Where values are. ---


def storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.BaseExtensionType) else array


def at(array: pa.Array) -> int:
    """Where the first value of a pyarrow array is: of strings and lists their offsets, of dictionaries the codes."""
    array = storage(array)
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        return at(array.values.slice(array.offset * kind.list_size))
    if pa.types.is_dictionary(kind):
        return at(array.indices)
    buffer = array.buffers()[1]
    if buffer is None:
        return 0
    if pa.types.is_boolean(kind):
        # To the byte; a slice of bits starts within one.
        return buffer.address + array.offset // 8
    width = {"l": 8, "s": 16}.get(_offsets(kind), 4) if _offsets(kind) else kind.bit_width // 8
    return buffer.address + array.offset * width


def _offsets(kind: pa.DataType) -> str:
    """Of a type with offsets or views: how wide one is."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind):
        return "l"
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return "s"
    variable = (pa.types.is_string, pa.types.is_binary, pa.types.is_list, pa.types.is_list_view, pa.types.is_map)
    return "i" if any(test(kind) for test in variable) else ""


def first(x: Any) -> pa.Array:
    """The only chunk of a column, as pyarrow reads it from any library."""
    if isinstance(x, pa.Array):
        return x
    chunked = x if isinstance(x, pa.ChunkedArray) else pa.chunked_array(x)
    return chunked.chunk(0) if chunked.num_chunks else pa.array([], chunked.type)


def values(array: pa.Array) -> list[Any]:
    return storage(array).to_pylist()


# --- To a library. ---


@dataclass(frozen=True)
class To:
    """What becomes of a column that is handed to a library."""

    outcome: str
    # The type that the library says it has; None if that is not asked.
    type: Any = None
    note: str = ""
    # The error, if it is refused.
    error: Any = None
    match: str = ""
    # Values that are not those that came, where the type cannot hold them.
    values: Any = None


def view(type: Any = None, note: str = "") -> To:
    return To("view", type, note)


def copy(type: Any = None, note: str = "", values: Any = None) -> To:
    return To("copy", type, note, values=values)


def refused(error: Any, match: str, note: str) -> To:
    return To("refused", None, note, error, match)


def goes(
    cell: Callable[..., None],
    name: str,
    expected: To,
    into: Callable[[Any], Any],
    out: Callable[[Any], Any] = first,
    type_of: Callable[[Any], Any] = lambda x: x.dtype,
) -> None:
    """Hands a column of ours to a library, and compares what comes of it with what is expected.

    `into` makes the library's own column of it, and `out` makes pyarrow's array of that one again.
    """
    case = COLUMNS[name][0]
    source = column(name)
    ours = ad.from_arrow(source)
    if expected.error is not None:
        with pytest.raises(expected.error, match=expected.match):
            into(ours)
    else:
        theirs = into(ours)
        if expected.type is not None:
            assert type_of(theirs) == expected.type
        back = first(out(theirs))
        assert values(back) == (values(source) if expected.values is None else expected.values)
        # Of no values there is nothing to share.
        if case != "size 0" and expected.outcome == "view":
            assert at(back) == at(source)
        if case != "size 0" and expected.outcome == "copy":
            assert at(back) != at(source)
    cell("to", case, expected.outcome, expected.note)


# --- From a library. ---


def comes(
    cell: Callable[..., None],
    case: str,
    theirs: Any,
    where: int | None,
    dtype: str,
    values: list[Any],
    note: str = "",
    **keywords: Any,
) -> ad.Tensor:
    """Makes a tensor of a library's column, which is a view of the library's memory at `where`."""
    with ad.track_copies() as log:
        tensor = ad.to_tensor(theirs, copy=False, **keywords)
    assert len(log) == 0
    assert tensor.dtype == dtype
    assert np.from_dlpack(tensor).tolist() == values
    if where is not None and tensor.size:
        assert address(tensor) == where
    cell("from", case, "view", note)
    return tensor


def asked(theirs: Any, data_type: pa.DataType, name: str = "x") -> pa.Table:
    """A table of a library, as pyarrow gets it when it requests a schema of one column."""
    return pa.RecordBatchReader.from_stream(theirs, pa.schema({name: data_type})).read_all()


# --- Both ways, the same for every library. ---


def complex_numbers(
    cell: Callable[..., None],
    outcome: str,
    into: Callable[[Any], Any],
    out: Callable[[Any], Any] = first,
    back: Callable[[Any], Any] = lambda theirs: theirs,
) -> None:
    """Complex numbers go as lists of two floats, and come back where that is asked for."""
    source = np.array([1 + 2j, 3])
    theirs = into(ad.from_dlpack(source))
    array = first(out(theirs))
    assert values(array) == [[1, 2], [3, 0]]
    assert (at(array) == source.ctypes.data) == (outcome == "view")
    cell("to", "complex", outcome, "as lists of two floats")
    column = back(theirs)
    tensor = ad.to_tensor(column, dtype="complex128", copy=False)
    assert np.from_dlpack(tensor).tolist() == [1 + 2j, 3]
    if outcome == "view":
        assert address(tensor) == source.ctypes.data
    cell("from", "complex", outcome, 'lists of two floats, by `dtype="complex128"`')


SMALL = {"bfloat16": (2, "bfloat16"), "float8_e4m3fn": (1, "float8")}


def small_floats(name: str) -> pa.Table:
    """A column `x` of a dtype that Arrow has no type for: by its extension name."""
    width, _ = SMALL[name]
    metadata = {"ARROW:extension:name": f"arrow_dlpack.{name}", "ARROW:extension:metadata": ""}
    values = [bytes([1] * width), bytes([64] * width)]
    return pa.table([values_of_width(values)], schema=pa.schema([pa.field("x", pa.binary(width), metadata=metadata)]))


def values_of_width(values: list[bytes]) -> pa.Array:
    return pa.array(values, pa.binary(len(values[0])))


def small_floats_pass(cell: Callable[..., None], outcome: str, into: Callable[[Any], Any], note: str = "") -> None:
    """bfloat16 and float8 go to a library's frame, and are tensors of the same memory again.

    `outcome` is "lost" where the library keeps the bytes and forgets what they are.
    """
    for name, (width, case) in SMALL.items():
        table = small_floats(name)
        theirs = into(ad.from_arrow(table))
        if outcome == "lost":
            with pytest.raises(ad.ConversionError):
                ad.to_tensors(theirs)
            kept = pa.table(into(ad.from_arrow(table)))["x"]
            assert kept.to_pylist() == table["x"].to_pylist()
            addresses = {buffer.address for chunk in kept.chunks for buffer in chunk.buffers() if buffer}
            assert not addresses & {buffer.address for buffer in table["x"].chunk(0).buffers() if buffer}
            cell("to", case, "copy", note)
            cell("from", case, "absent")
            continue
        tensor = ad.to_tensors(theirs)["x"]
        assert (tensor.dtype, tensor.shape) == (name, (2,))
        assert tensor.nbytes == 2 * width
        assert (address(tensor) == at(table["x"].chunk(0))) == (outcome == "view")
        cell("to", case, outcome, note)
        cell("from", case, outcome, note)


def decimals_come(cell: Callable[..., None], theirs: Any) -> None:
    """1.5 and -2.5, of scale 1."""
    with pytest.raises(ad.UnsupportedTypeError):
        ad.to_tensor(theirs)
    assert np.from_dlpack(ad.to_tensor(theirs, dtype="float32")).tolist() == [1.5, -2.5]
    assert np.from_dlpack(ad.to_tensor(theirs, dtype="int64", decimal="unscaled")).tolist() == [15, -25]
    with pytest.raises(ad.ConversionError):
        ad.to_tensor(theirs, dtype="int64")
    with pytest.raises(ad.CopyError):
        ad.to_tensor(theirs, dtype="float32", copy=False)
    cell("from", "decimal", "copy", "of 128 bits: a checked cast by `dtype=`")


def codes_come(cell: Callable[..., None], theirs: Any, dtype: str, codes: list[int], note: str = "") -> None:
    """A dictionary comes as its codes, without a copy."""
    array = first(theirs)
    comes(cell, "dictionary", theirs, at(array), dtype, codes, note or "the codes")


def rows_of(ragged: ad.Ragged) -> list[Any]:
    """The rows of a Ragged, as values, offsets, lengths and validity say."""
    offsets = np.from_dlpack(ragged.offsets).tolist()
    stops = offsets[1:]
    if ragged.lengths is not None:
        stops = [start + length for start, length in zip(offsets, np.from_dlpack(ragged.lengths).tolist(), strict=True)]
    valid = [True] * len(ragged) if ragged.validity is None else np.from_dlpack(ragged.validity).tolist()
    elements = np.from_dlpack(ragged.values)
    rows = [elements[start:stop] for start, stop in zip(offsets, stops, strict=False)]
    return [row.tolist() if is_valid else None for row, is_valid in zip(rows, valid, strict=True)]


def ragged_come(cell: Callable[..., None], case: str, theirs: Any, outcome: str = "view", note: str = "") -> None:
    """Lists or strings come as values and offsets, which are a view of what the library has, or a copy.

    Of a library that makes a column anew each time, pyarrow's array of it is to be given.
    """
    array = first(theirs)
    expected = [None if row is None else list(row.encode() if isinstance(row, str) else row) for row in values(array)]
    with pytest.raises(ad.NullError):
        ad.to_ragged(theirs)
    if outcome == "view":
        with ad.track_copies() as log:
            ragged = ad.to_ragged(theirs, nulls="keep", copy=False)
        # The validity alone is made: bits become bytes.
        assert all(entry.what.startswith("validity of") for entry in log)
        assert address(ragged.offsets) == at(array)
    else:
        with pytest.raises(ad.CopyError):
            ad.to_ragged(theirs, nulls="keep", copy=False)
        ragged = ad.to_ragged(theirs, nulls="keep")
    assert rows_of(ragged) == expected
    cell("from", case, outcome, note or "values and offsets, by `to_ragged`")


def ragged_goes(cell: Callable[..., None], into: Callable[[Any], Any], out: Callable[[Any], Any] = first) -> None:
    """Values and offsets of other libraries go there as lists."""
    elements, offsets = np.array([1, 2, 3], "float32"), np.array([0, 1, 1, 3], "int32")
    array = first(out(into(ad.Ragged(elements, offsets))))
    assert array.to_pylist() == [[1], [], [2, 3]]
    outcome = "view" if array.flatten().buffers()[1].address == elements.ctypes.data else "copy"
    cell("to", "lists", outcome, "values and offsets, by `Ragged`")
