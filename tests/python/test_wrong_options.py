"""A wrong option never consumes a stream: after the error every row can be read, in any function, by any keyword."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import arro3.core as ac
import arrow_dlpack as ad
import duckdb
import ml_dtypes
import nanoarrow as na
import numpy as np
import pyarrow as pa
import pytest

TABLE = pa.table(
    {
        "a": pa.chunked_array([[1, 2], [3]], pa.int8()),
        "b": pa.chunked_array([["x"], ["y", "z"]], pa.string()),
        "v": pa.chunked_array([[[1, 2], [3, 4]], [[5, 6]]], pa.list_(pa.int64(), 2)),
        "r": pa.chunked_array([[[1, 2], []], [[3]]], pa.list_(pa.int64())),
    }
)
NUMBERS = TABLE["a"]
LISTS = pa.chunked_array([[[1, 2], []], [[3]]], pa.list_(pa.int8()))
READ_ONLY = np.zeros((3, 1), np.int8)
READ_ONLY.flags.writeable = False

# For each keyword what it cannot be, whatever the data: of another type, and of the right type with a bad value.
WRONG: dict[str, list[Any]] = {
    "allocator": [3, "nonsense", ...],
    "batch_size": ["x", 1.5, 0, -1, 2**80],
    "bits": ["x", 3],
    "categories": [3, "x", [], [None], [1.5], ["x", 1], ["x", "x"], {"a": 3}, {1: ["x"]}],
    "columns": ["a", 3, [1], [None], {"m": 3}],
    "copy": ["x", 3],
    "decimal": [3, "scaled", {"a": "scaled"}, {1: "unscaled"}],
    "device": [3, "nonsense", "cpu:x", (1,), ...],
    "dictionary": [3, "keys", {"a": "keys"}, {1: "codes"}],
    "drop_last": ["x", 3],
    "dtype": [3, "float31", ..., {"a": "float31"}, {1: "int8"}],
    "lanes": ["x", 1.5, 0, -1],
    "legacy": [3, "nonsense"],
    "length": ["x", 1.5, -1, {"a": "x"}, {1: 3}],
    "multiple_of": ["x", 1.5, 0, -1, 3],
    "names": [3, "ab", [1]],
    "nulls": [[], ..., "zero", {"a": "zero"}, {1: 0}],
    "order": [3, "X", ""],
    "out": [3, ..., READ_ONLY, np.zeros(3, "S3"), np.zeros((3, 1), np.int8)[::-1]],
    "pad": [3, (0,), ("x", 3), (0, "x"), (0, -1), (None, 3)],
    "prefetch": ["x", 1.5, -1],
    "rank": ["x", 1.5, -1, 1],
    "readers": ["x", 1.5, 0, -1],
    "seed": ["x", 1.5, -1, 2**64],
    "shuffle_buffer": ["x", 1.5, -1],
    "shuffle_bytes": ["x", 1.5, -1, 0],
    "shuffle_shards": ["x", 3],
    "side": [3, "middle", "left"],
    "sources": [3, "x", [], [3]],
    "sync": [3, "nonsense"],
    "threads": ["x", 1.5, 0, -1, 2**80],
    "to_arrow": ["x", 3],
    "type": [3, "int8", [3]],
    "unit": [3, "D", "minutes", {"a": "h"}, {1: "s"}],
    "truncate": [3, "middle", "left", "right"],
    "unknown": [1.5, "ignore", [], 2**31, 3, {"a": 3}],
    "validity": ["x", 3],
    "verify": [3, "nonsense", True],
    "worker": [3, "x", (1,), [0, 1], (0, 1.5), (-1, 2), (0, 0), (2, 2), (0, 2)],
    "world_size": ["x", 1.5, 0, -1],
    "writable": ["x", 3],
    "xp": [3, ..., "nonsense"],
}


def load(source: Any, **keywords: Any) -> None:
    """An epoch: of a loader's options some are wrong for the data alone."""
    for _ in ad.Loader(source, **{"batch_size": 2, **keywords}):
        pass


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any, dict[str, Any]]] = {
    "to_tensor": (ad.to_tensor, TABLE, {"columns": ["a"]}),
    "to_tensor of a column": (ad.to_tensor, NUMBERS, {}),
    "to_tensors": (ad.to_tensors, TABLE, {"columns": ["a"]}),
    "to_ragged": (ad.to_ragged, LISTS, {}),
    "validity": (ad.validity, TABLE, {"columns": ["a"]}),
    "validity of a column": (ad.validity, NUMBERS, {}),
    "from_arrow": (ad.from_arrow, TABLE, {}),
    "explain": (ad.explain, TABLE, {}),
    "Loader": (load, TABLE, {"columns": ["a"]}),
}


def keywords_of(function: Callable[..., Any]) -> list[str]:
    function = ad.Loader if function is load else function
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind == parameter.KEYWORD_ONLY
    ]


def test_every_keyword_has_wrong_values():
    for function, _, _ in FUNCTIONS.values():
        assert set(keywords_of(function)) <= set(WRONG)


CASES = [
    pytest.param(function, {keyword: value}, id=f"{function}-{keyword}-{number}")
    for function, (called, _, _) in FUNCTIONS.items()
    for keyword in keywords_of(called)
    for number, value in enumerate(WRONG[keyword])
]
# Wrong for these data alone: what columns there are, and of which type.
OF_SCHEMA: dict[str, list[dict[str, Any]]] = {
    "to_tensor": [
        {"columns": ["z"]},
        {"columns": ["b"]},
        {"columns": ["a", "r"]},
        {"columns": []},
        {"dtype": {"z": "int8"}},
        {"nulls": {"z": 0}},
        {"decimal": {"z": "unscaled"}},
        {"dictionary": {"z": "codes"}},
        {"categories": {"z": ["x"]}},
        {"categories": ["x"]},
        {"categories": {"a": ["x"]}},
        {"nulls": "nan"},
        {"nulls": 0.5},
        {"nulls": 1000},
        {"dtype": "complex64"},
        {"dtype": "float8_e4m3fn"},
        {"device": "metal:0"},
        {"device": "cuda_host:0", "copy": False},
        {"out": np.zeros((3, 2), np.int8)},
        {"out": np.zeros(3, np.int8)},
        {"out": np.zeros((6, 2), np.int8)[::2, ::2], "columns": ["a", "a"]},
        {"out": np.zeros((3, 1), np.int16), "dtype": "int8"},
        {"out": np.zeros((3, 1), np.complex64)},
        {"out": np.zeros((3, 1), np.int8), "xp": np},
        {"out": np.zeros((3, 1), np.int8), "copy": False},
        {"out": np.zeros((3, 1), np.int8), "device": "metal:0"},
        {"out": np.zeros((3, 1), np.int8), "nulls": "nan"},
    ],
    "to_tensor of a column": [
        {"columns": ["a"]},
        {"dtype": {"z": "int8"}},
        {"nulls": "nan"},
        {"nulls": 0.5},
        {"dtype": "complex64"},
        {"device": "metal:0"},
        {"out": np.zeros((3, 1), np.int8)},
        {"out": np.zeros((), np.int8)},
        {"out": np.zeros(3, np.int16), "dtype": "int8"},
        {"out": np.zeros(3, np.complex64)},
        {"out": np.zeros(3, np.int8), "copy": False},
    ],
    "to_tensors": [
        {"columns": ["z"]},
        {"columns": ["b"]},
        {"columns": {"m": ["a", "z"]}},
        {"columns": {"m": ["a", "b"]}},
        {"columns": {"m": ad.group(["a"], validity="m")}},
        {"columns": {"m": ad.group(["a"], nulls="nan")}},
        {"columns": {"m": ad.group(["a"], dtype="int8")}, "dtype": {"m": "int16"}},
        {"columns": {"m": "b"}},
        {"dtype": {"z": "int8"}},
        {"nulls": "nan"},
        {"nulls": 0.5},
        {"dtype": "complex64"},
        {"device": "metal:0"},
    ],
    "to_ragged": [
        {"dtype": {"z": "int8"}},
        {"nulls": "nan"},
        {"nulls": 0.5},
        {"dtype": "complex64"},
        {"pad": (0.5, 3)},
        {"pad": (1000, None)},
        {"device": "metal:0"},
    ],
    "validity": [
        {"columns": ["z"]},
        {"columns": ["a", "z"]},
        {"bits": True},
        {"length": {"z": 2}},
        {"length": {"a": 2}},
        {"device": "metal:0"},
    ],
    "validity of a column": [
        {"columns": ["a"]},
        {"length": {"z": 2}},
        {"length": 2, "bits": True},
        {"device": "metal:0"},
    ],
    "from_arrow": [
        {"device": "metal:0"},
        {"device": "metal:0", "copy": True},
        {"device": "cuda_host:0", "copy": False},
    ],
    "explain": [{"columns": ["z"]}, {"dtype": {"z": "int8"}}],
    "Loader": [
        {"columns": ["z"]},
        {"columns": ["b"]},
        {"columns": {"m": ["a", "b"]}},
        {"dtype": {"z": "int8"}},
        {"nulls": "nan"},
        {"nulls": 0.5},
        {"dtype": "complex64"},
        {"device": "metal:0"},
    ],
}
SCHEMA_CASES = [
    pytest.param(function, keywords, id=f"{function}-{number}")
    for function, cases in OF_SCHEMA.items()
    for number, keywords in enumerate(cases)
]


class Counted:
    """A producer that counts how often it is asked for its stream: each time may be a query."""

    def __init__(self, data: Any) -> None:
        self.data, self.calls = data, 0

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.calls += 1
        return self.data.__arrow_c_stream__(requested_schema)


class Told(Counted):
    """As a reader that is moved away by being asked for its stream, and tells its type without."""

    def __arrow_c_schema__(self) -> object:
        schema = self.data.schema if isinstance(self.data, pa.Table) else pa.field("", self.data.type)
        return schema.__arrow_c_schema__()


def refused(function: str, source: Any, keywords: dict[str, Any]) -> None:
    called, _, defaults = FUNCTIONS[function]
    with pytest.raises((ValueError, TypeError, OverflowError, BufferError)):
        called(source, **{**defaults, **keywords})


def whole(function: str, source: Any) -> None:
    """Asserts that nothing of a stream was read."""
    data = FUNCTIONS[function][1]
    read = pa.table(source) if isinstance(data, pa.Table) else pa.chunked_array(source)
    assert read.equals(data)


@pytest.mark.parametrize(("function", "keywords"), CASES + SCHEMA_CASES)
def test_a_stream_is_whole_after_the_error(function: str, keywords: dict[str, Any]):
    data = FUNCTIONS[function][1]
    stream = ad.from_arrow(data)
    refused(function, stream, keywords)
    whole(function, stream)
    if isinstance(data, pa.Table):
        reader = data.to_reader()
        refused(function, reader, keywords)
        whole(function, reader)


@pytest.mark.parametrize(("function", "keywords"), CASES)
def test_no_stream_is_asked_for(function: str, keywords: dict[str, Any]):
    source = Counted(FUNCTIONS[function][1])
    refused(function, source, keywords)
    assert source.calls == 0


@pytest.mark.parametrize(("function", "keywords"), SCHEMA_CASES)
def test_nor_where_the_source_tells_its_type(function: str, keywords: dict[str, Any]):
    source = Told(FUNCTIONS[function][1])
    refused(function, source, keywords)
    assert source.calls == 0
    silent = Counted(FUNCTIONS[function][1])
    refused(function, silent, keywords)
    assert silent.calls <= 1


@pytest.mark.parametrize(
    "keywords",
    [
        {"type": 3},
        {"type": {"z": pa.int8()}},
        {"type": [pa.int8()]},
        {"type": pa.schema([("p", pa.int8()), ("z", pa.int8())])},
        {"names": 3},
        {"names": "ab"},
        {"names": ["p"]},
        {"names": ["p", "p"]},
        {"names": ["p", 3]},
        {"names": None, "type": 3},
        {"x": ...},
        {"x": np.zeros(3)},
        {"copy": "x"},
        {"copy": 3},
        {"device": "nonsense"},
        {"device": "metal:0"},
        {"allocator": 3},
        {"threads": 0},
        {"threads": 2**80},
    ],
    ids=str,
)
def test_the_validity_of_to_arrow_may_be_a_stream(keywords: dict[str, Any]):
    flags = pa.chunked_array([[True, False], [True]])
    stream = ad.from_arrow(flags)
    keywords = {"x": np.zeros((3, 2)), "names": ["p", "q"], **keywords}
    with pytest.raises((ValueError, TypeError, OverflowError)):
        ad.to_arrow(keywords.pop("x"), validity=stream, **keywords)
    assert pa.chunked_array(stream).equals(flags)
    numbers = ad.from_arrow(NUMBERS)
    with pytest.raises(ValueError, match="one bool for each row"):
        ad.to_arrow(np.zeros(3), validity=numbers)
    assert pa.chunked_array(numbers).equals(NUMBERS)


FLAGS = pa.chunked_array([[True, True], [True]])
# What zeros of a dtype can become, and what they cannot.
TYPES = [
    None,
    pa.int8(),
    pa.float16(),
    pa.bool_(),
    pa.string(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.time32("s"),
    pa.duration("ns"),
    pa.decimal128(5, 2),
    pa.binary(2),
    pa.null(),
    pa.uuid(),
    pa.bool8(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.list_(pa.int8()),
    pa.list_(pa.float32(), 2),
    pa.list_view(pa.int16()),
    pa.map_(pa.string(), pa.int8()),
    pa.struct([("p", pa.int8())]),
    pa.run_end_encoded(pa.int16(), pa.int64()),
    pa.fixed_shape_tensor(pa.float64(), [2, 2]),
    pa.fixed_shape_tensor(pa.float64(), [2, 2], permutation=[1, 0]),
    pa.field("", pa.float64(), nullable=False),
    pa.field("", pa.int8(), metadata={"ARROW:extension:name": "geoarrow.point"}),
]


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float64", "complex64", "bool", "bfloat16", "S3"])
@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2)])
def test_what_no_values_can_become_is_refused_before_the_validity_is_read(dtype: str, shape: tuple[int, ...]):
    dense = np.zeros(shape, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    doubled = np.zeros((6, *shape[1:]), dense.dtype)
    errors = 0
    for x in (dense, np.asfortranarray(dense), doubled[::2]):
        for requested, copy, names in itertools.product(TYPES, [None, False, True], [None, ["p", "q"], ["p"]]):
            validity = ad.from_arrow(FLAGS)
            try:
                ad.to_arrow(x, type=requested, copy=copy, names=names, validity=validity)
            except (ad.ConversionError, TypeError, BufferError):
                errors += 1
                assert pa.chunked_array(validity).equals(FLAGS), (x.strides, requested, copy, names)
    assert errors > 100


def test_the_validity_of_ragged_rows_is_refused_unread():
    rows, validity = ad.to_ragged(LISTS), ad.from_arrow(FLAGS)
    with pytest.raises(TypeError, match="validity belongs to the Ragged"):
        ad.to_arrow(rows, validity=validity)
    with pytest.raises(TypeError, match="validity must be a tensor"):
        ad.Ragged(rows.values, rows.offsets, validity=validity)
    assert pa.chunked_array(validity).equals(FLAGS)


@pytest.mark.parametrize(
    "keywords",
    [{"device": "nonsense"}, {"device": 3}, {"device": "metal:0"}, {"device": "cpu", "stream": 1}]
    + [{"device": "cpu", "threads": threads} for threads in WRONG["threads"]]
    + [{"device": "cpu", "allocator": allocator} for allocator in WRONG["allocator"]],
    ids=str,
)
def test_a_stream_that_is_to_move_elsewhere(keywords: dict[str, Any]):
    stream = ad.from_arrow(TABLE)
    with pytest.raises((ValueError, TypeError, OverflowError, BufferError)):
        stream.to_device(keywords.pop("device"), **keywords)
    assert pa.table(stream).equals(TABLE)


@pytest.mark.parametrize(
    ("dunder", "arguments", "keywords"),
    [
        ("__arrow_c_stream__", (3,), {}),
        ("__arrow_c_stream__", (pa.schema([("z", pa.int8())]).__arrow_c_schema__(),), {}),
        ("__arrow_c_device_stream__", (3,), {}),
        ("__arrow_c_device_stream__", (pa.schema([("z", pa.int8())]).__arrow_c_schema__(),), {}),
        ("__arrow_c_device_stream__", (), {"nonsense": 3}),
        ("__arrow_c_device_stream__", (), {"sync": "nonsense"}),
        ("__arrow_c_device_stream__", (), {"requested_device": "nonsense"}),
        ("__arrow_c_device_stream__", (), {"requested_device": (8, 0)}),
    ],
    ids=lambda x: str([type(argument).__name__ for argument in x] if isinstance(x, tuple) else x),
)
def test_the_dunders_of_a_stream(dunder: str, arguments: tuple[Any, ...], keywords: dict[str, Any]):
    stream = ad.from_arrow(TABLE)
    with pytest.raises((ValueError, TypeError, NotImplementedError, BufferError)):
        getattr(stream, dunder)(*arguments, **keywords)
    assert pa.table(stream).equals(TABLE)


@pytest.mark.parametrize("function", ["to_tensor", "to_tensors", "validity", "from_arrow", "Loader"])
@pytest.mark.parametrize("library", [na.ArrayStream, ac.RecordBatchReader.from_stream], ids=["nanoarrow", "arro3"])
def test_readers_that_are_gone_once_they_are_asked(function: str, library: Callable[[Any], Any]):
    for keywords in [{"device": "nonsense"}, *OF_SCHEMA[function]]:
        reader = library(TABLE)
        refused(function, reader, keywords)
        whole(function, reader)


def test_a_query_is_run_once_at_most():
    relation = duckdb.sql("select 1::tinyint a, 'x' b, [1, 2]::bigint[2] v")
    for function in ("to_tensor", "to_tensors", "validity"):
        for keywords in ({"device": "nonsense"}, {"columns": ["z"]}):
            source = Counted(relation)
            refused(function, source, keywords)
            assert source.calls == ("columns" in keywords)
    assert relation.fetchall() == [(1, "x", (1, 2))]


BITS = pa.table({"a": pa.chunked_array([[True], [False, True]])})
BIT_LISTS = pa.chunked_array([[[True], []], [[False]]])


@pytest.mark.parametrize(
    ("convert", "data"),
    [
        (lambda source: ad.to_tensor(source, copy=False), BITS),
        (lambda source: ad.to_tensor(source, copy=False), BITS["a"]),
        (lambda source: ad.to_tensor(source, copy=False, order="F"), BITS),
        (lambda source: ad.to_tensor(source, copy=False, dtype="float32"), NUMBERS),
        (lambda source: ad.to_tensor(source, copy=False, writable=True), NUMBERS),
        (lambda source: ad.to_tensors(source, copy=False), BITS),
        (lambda source: ad.to_tensors(source, copy=False, columns={"m": ["a"]}), BITS),
        (lambda source: ad.to_tensors(source, copy=False, columns={"m": "a"}), BITS),
        (lambda source: ad.to_tensors(source, copy=False, columns=["a"], writable=True), TABLE),
        (lambda source: ad.to_ragged(source, copy=False), BIT_LISTS),
        (lambda source: ad.to_ragged(source, copy=False, dtype="float32"), LISTS),
        (lambda source: ad.to_ragged(source, copy=False, pad=(0, None)), LISTS),
    ],
)
def test_a_copy_that_any_rows_need_is_refused_before_the_stream_is_read(
    convert: Callable[[Any], Any], data: pa.Table | pa.ChunkedArray
) -> None:
    source = ad.from_arrow(data)
    with pytest.raises(ad.CopyError):
        convert(source)
    assert sum(len(chunk) for chunk in source) == len(data)
