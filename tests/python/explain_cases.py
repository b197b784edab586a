"""Random data in every form that conversions take, with random options for it: what `explain` is compared with."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import arro3.core as arro3
import arrow_dlpack as ad
import duckdb
import nanoarrow
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import type_cases
from list_cases import LISTS, lists_of_two
from support import TEMPORAL, ticks

Rows = Sequence[int | None]
NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
DTYPES = [*NUMBERS, "bool", "complex64", "complex128", "bfloat16", "float8_e4m3fn"]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
WORDS = ["", "a", "some", "a text of more than twelve bytes"]


@dataclass
class Example:
    """Data that can be made again and again, and how it is converted."""

    # A fresh object: streams are read once.
    make: Callable[[], Any]
    # "column", "columns", "matrix", "groups" or "ragged".
    kind: str
    options: dict[str, Any]
    # Whether `explain` has the data at hand, and not its type alone.
    in_hand: bool
    form: str
    # What is explained, where that is not the data.
    schema: Any = None

    def __str__(self) -> str:
        return f"{self.kind} of {self.form} with {self.options}: {getattr(self.make(), 'type', '')}"


def rows(random: random.Random) -> Rows:
    """Indices of four values, some of them null."""
    count = random.choice([0, 0, 1, 2, 3, 5, 9, 17])
    nulls = random.choice([0, 0, 0, 0.3, 1])
    return [None if random.random() < nulls else random.randrange(4) for _ in range(count)]


def misaligned(array: pa.Array) -> pa.Array:
    """The same values, one byte further."""
    validity, values = array.buffers()
    memory = pa.py_buffer(b"\0" + values.to_pybytes())[1:]
    return pa.Array.from_buffers(array.type, len(array), [validity, memory], offset=array.offset)


def number(dtype: str) -> Callable[[Rows], pa.Array]:
    values = [0, 1, 2, 100] if dtype[0] in "iu" else [0, 1.5, -2, 1e4]

    def build(rows: Rows) -> pa.Array:
        return pa.array([None if row is None else np.dtype(dtype).type(values[row]) for row in rows], dtype)

    return build


def of(data_type: pa.DataType, values: Sequence[Any]) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.array([None if row is None else values[row] for row in rows], data_type)


def fixed_shape(rows: Rows) -> pa.Array:
    storage = of(pa.list_(pa.int16(), 6), [[row] * 6 for row in range(4)])(rows)
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int16(), [2, 3], permutation=[1, 0]), storage)


def vocabulary(rows: Rows) -> pa.Array:
    """Codes of a dictionary that is another one for another number of rows."""
    values = [10, 20, 30, 40] if len(rows) % 2 else [10, 20, 30, 40, None]
    return pa.DictionaryArray.from_arrays(pa.array(rows, pa.int8()), pa.array(values, pa.int32()))


def loose_bools(rows: Rows) -> pa.Array:
    """`arrow.bool8`, whose bytes are any."""
    return pa.ExtensionArray.from_storage(pa.bool8(), pa.array(rows, pa.int8()))


def refused(rows: Rows) -> pa.Array:
    return of(pa.map_(pa.string(), pa.int8()), [[("a", 1)], [], [("b", 2)], []])(rows)


def leaf(random: random.Random) -> tuple[Callable[[Rows], pa.Array], dict[str, Any]]:
    """How a column of some type is built, and options that its type asks for."""
    pick = random.randrange(10)
    if pick < 4:
        return number(random.choice(NUMBERS)), {}
    if pick == 4:
        return random.choice([of(pa.bool_(), [True, False, True, False]), type_cases.bool8]), {}
    if pick == 5:
        data_type, _ = random.choice(TEMPORAL)
        return lambda rows: ticks(list(rows), data_type), {}
    if pick == 6:
        return random.choice(
            [
                fixed_shape,
                refused,
                vocabulary,
                loose_bools,
                type_cases.runs(loose_bools),
                lambda rows: pa.nulls(len(rows)),
                of(pa.decimal128(9, 2), [Decimal("1.50"), Decimal(2), Decimal("-3.25"), Decimal(0)]),
            ]
        ), {}
    if pick == 7 and random.random() < 0.7:
        items = [number(random.choice(NUMBERS)), vocabulary, of(pa.bool_(), [True, False, True, False])]
        return lists_of_two(random, random.choice(items)), {"length": 2}
    if pick == 7:
        data_type = pa.list_(pa.list_(pa.int32(), 2), 2)
        return of(data_type, [[[row, 1], [2, 3]] for row in range(4)]), {}
    case = random.choice(type_cases.CASES)
    return case.build, case.options


def ragged(random: random.Random) -> Callable[[Rows], pa.Array]:
    """A column of lists or strings."""
    pick = random.randrange(7)
    if pick < 2:
        data_type = random.choice(TEXTS)
        return of(data_type, WORDS if "string" in str(data_type) else [word.encode() for word in WORDS])
    if pick == 2:
        return tensors
    make_list, kind = random.choice(list(LISTS.items()))
    if pick == 3:
        inner = random.choice(list(LISTS))(pa.int16())
        return of(make_list(inner), [[[1], [2, 3]], [], [[]], [[4, 5, 6]]])
    item = number(random.choice(NUMBERS)) if pick < 6 else leaf(random)[0]
    sizes = [random.randrange(4) for _ in range(4)]
    has_nulls = random.random() < 0.3
    seed = random.random()

    def build(rows: Rows) -> pa.Array:
        own = np.random.default_rng(int(seed * 1e9))
        lengths = [0 if row is None and seed < 0.5 else sizes[row or 0] for row in rows]
        picks = [None if has_nulls and own.random() < 0.3 else int(own.integers(4)) for _ in range(sum(lengths))]
        items, offsets = item(picks), np.cumsum([0, *lengths])
        data_type = make_list(items.type)
        mask = pa.array([row is None for row in rows], pa.bool_()) if None in rows else None
        width = pa.int64() if "Large" in kind.__name__ else pa.int32()
        if "View" in kind.__name__:
            starts, spans = pa.array(offsets[:-1], width), pa.array(lengths, width)
            return kind.from_arrays(starts, spans, items, data_type, mask=mask)
        return kind.from_arrays(pa.array(offsets, width), items, data_type, mask=mask)

    return build


def tensors(rows: Rows) -> pa.Array:
    """`arrow.variable_shape_tensor` of two dimensions."""
    storage_type = pa.struct([pa.field("data", pa.list_(pa.float32())), pa.field("shape", pa.list_(pa.int32(), 2))])
    values = [{"data": [1.0] * (row * 2), "shape": [row, 2]} for row in range(4)]
    storage = of(storage_type, values)(rows)
    kind = type_cases.Extension(storage_type, "arrow.variable_shape_tensor")
    kind.__arrow_ext_serialize__ = lambda: b"{}"  # type: ignore[method-assign]
    return pa.ExtensionArray.from_storage(kind, storage)


def cut(random: random.Random, array: Any) -> Any:
    """A slice, often of all."""
    if random.random() < 0.5:
        return array
    start = random.randrange(len(array) + 1)
    return array.slice(start, random.randrange(len(array) - start + 1))


def chunked(random: random.Random, build: Callable[[Rows], pa.Array]) -> pa.ChunkedArray:
    count = random.choice([0, 1, 1, 2, 3])
    chunks = [cut(random, build(rows(random))) for _ in range(count)]
    return pa.chunked_array(chunks, build([]).type)


class Only:
    """Data with these attributes alone."""

    def __init__(self, data: Any, *names: str) -> None:
        for name in names:
            setattr(self, name, getattr(data, name))


def reader_of(column: pa.ChunkedArray) -> ad.ArrayStream:
    return ad.from_arrow(column)


def nanoarrow_of(kind: Any, data: Any) -> Any:
    if "view" in str(data.type):
        # nanoarrow ends the process.
        raise TypeError("views")
    return kind(data)


# How a column is passed: each of these makes a fresh object of it, and `explain` has the data of some at hand.
Form = tuple[str, bool, Callable[[Any], Any]]
OF_ARRAYS: list[Form] = [
    ("pyarrow array", True, lambda array: array),
    ("pyarrow array", True, lambda array: array),
    ("Array", True, ad.from_arrow),
    ("nanoarrow array", True, lambda array: nanoarrow_of(nanoarrow.Array, array)),
    ("arro3 array", True, arro3.Array),
    ("capsules", True, lambda array: Only(array, "__arrow_c_array__")),
]
OF_CHUNKS: list[Form] = [
    ("chunked array", True, lambda column: column),
    ("chunked array", True, lambda column: column),
    ("arro3 chunked array", True, arro3.ChunkedArray),
    ("stream", False, reader_of),
    ("nanoarrow stream", False, lambda column: nanoarrow_of(nanoarrow.ArrayStream, column)),
]
OF_BATCHES: list[Form] = [
    ("record batch", True, lambda batch: batch),
    ("record batch", True, lambda batch: batch),
    ("struct array", True, lambda batch: batch.to_struct_array()),
    ("masked structs", True, lambda batch: masked(batch)),
    ("RecordBatch", True, ad.from_arrow),
    ("arro3 batch", True, arro3.RecordBatch),
]
OF_TABLES: list[Form] = [
    ("table", True, lambda table: table),
    ("table", True, lambda table: table),
    ("arro3 table", True, arro3.Table),
    ("misaligned table", True, lambda table: misaligned_table(table)),
    ("list", True, lambda table: batches_of(table)),
    ("lazy frame", False, lambda table: polars_of(table).lazy()),
    ("data set", False, pads.dataset),
    ("chunked structs", True, lambda table: chunked_structs(table)),
    ("relation", False, lambda table: relation_of(table)),
    ("reader", False, lambda table: table.to_reader()),
    ("batch stream", False, lambda table: ad.from_arrow(table)),
    ("arro3 reader", False, arro3.RecordBatchReader.from_arrow),
]


def masked(batch: pa.RecordBatch) -> pa.StructArray:
    """Structs, the last of which is null."""
    mask = pa.array([row == len(batch) - 1 for row in range(len(batch))], pa.bool_())
    return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema), mask=mask)


def misaligned_table(table: pa.Table) -> pa.Table:
    def column(chunks: pa.ChunkedArray) -> pa.ChunkedArray:
        is_plain = pa.types.is_integer(chunks.type) or pa.types.is_floating(chunks.type)
        return pa.chunked_array([misaligned(chunk) for chunk in chunks.chunks], chunks.type) if is_plain else chunks

    return pa.Table.from_arrays([column(chunks) for chunks in table.columns], schema=table.schema)


def chunked_structs(table: pa.Table) -> pa.ChunkedArray:
    return pa.chunked_array([batch.to_struct_array() for batch in table.to_batches()], pa.struct(list(table.schema)))


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    batches = table.to_batches()
    if not batches:
        raise ValueError("the types of no items are not known")
    return batches


def relation_of(table: pa.Table) -> Any:
    types = set(map(str, table.schema.types))
    if not types or not types <= {*NUMBERS, "float", "double", "bool"} or len({*table.schema.names}) < 1:
        raise TypeError("DuckDB has other types for these")
    return duckdb.from_arrow(table)


def polars_of(data: Any) -> Any:
    said = str(data.schema if hasattr(data, "schema") else data.type)
    if any(name in said for name in ("extension", "dictionary", "run_end_encoded", "decimal", "fixed_size_binary")):
        # polars ends the process when it hands some of them out, and makes others of the rest.
        raise TypeError(said)
    return pl.from_arrow(data)


def pandas_of(table: Any, **keywords: Any) -> pd.DataFrame:
    if not table.num_rows:
        # pyarrow ends the process for some types without chunks.
        raise ValueError("no rows")
    return table.to_pandas(**keywords)


# Libraries that take some of the types alone.
OF_FRAMES: list[Form] = [
    ("polars", True, lambda data: polars_of(data)),
    ("pandas", True, lambda table: pandas_of(table)),
    ("pandas of Arrow", True, lambda table: pandas_of(table, types_mapper=pd.ArrowDtype)),
]


def passed(
    random: random.Random, data: Any, forms: list[Form], frames: list[Form]
) -> tuple[str, bool, Callable[[], Any]]:
    """The data in some form that takes it."""
    name, in_hand, form = random.choice(frames if random.random() < 0.2 and frames else forms)
    try:
        form(data)
    except Exception:
        # Each library has errors of its own for types that it does not take.
        name, in_hand, form = forms[0]
    return name, in_hand, lambda: form(data)


def tensor(random: random.Random) -> tuple[str, Callable[[], Any]]:
    """A tensor of NumPy: strided, misaligned, of few or many dimensions."""
    dtype = np.dtype(random.choice([*NUMBERS, "bool", "complex64", "complex128"]))
    shape = [random.choice([0, 1, 2, 3, 4]) for _ in range(random.choice([0, 1, 1, 2, 2, 3]))]
    array = np.zeros(shape, dtype)
    pick = random.randrange(5)
    if pick == 1:
        array = array.T
    if pick == 2 and array.ndim:
        array = array[::-1]
    if pick == 3 and array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    if pick == 4 and array.size:
        memory = np.frombuffer(bytes(array.nbytes + 1), np.uint8)[1:]
        array = memory.view(dtype).reshape(shape)
    own = random.random() < 0.3
    return f"NumPy {dtype} {array.shape} {array.strides}", lambda: ad.from_dlpack(array) if own else array


def tensor_of(build: Callable[[Rows], pa.Array], rows: Rows, asked: dict[str, Any]) -> tuple[str, Callable[[], Any]]:
    """A tensor that came from Arrow, and knows from which type."""
    data = build(rows)
    try:
        ad.to_tensor(data, nulls="keep", **asked)
    except ad.ConversionError:
        asked, data = {}, pa.array([True, False, True])
    return f"Tensor of {data.type}", lambda: ad.to_tensor(data, nulls="keep", **asked)


def elements(random: random.Random, names: list[str], asked: dict[str, Any]) -> dict[str, Any]:
    """Options for the elements, and for what is shared."""
    options: dict[str, Any] = dict(asked)
    if random.random() < 0.35:
        dtype = random.choice(DTYPES)
        options["dtype"] = {random.choice(names): dtype} if names and random.random() < 0.3 else dtype
    if random.random() < 0.6:
        options["nulls"] = random.choice(["error", "nan", "keep", 0, 1, 1.5, True])
    if names and random.random() < 0.1:
        options["nulls"] = {name: random.choice(["error", "keep", 0]) for name in names}
    if random.random() < 0.2:
        options["dictionary"] = random.choice(["codes", "values"])
    if random.random() < 0.2:
        options["decimal"] = "unscaled"
    if random.random() < 0.4:
        options["copy"] = random.choice([True, False, False])
    if random.random() < 0.3:
        options["writable"] = random.choice([True, False])
    if random.random() < 0.1:
        options["device"] = "cpu"
    return options


def column(random: random.Random) -> Example:
    build, asked = leaf(random)
    # Without a length, lists are ragged.
    is_asked = random.random() < 0.8
    options = elements(random, [], {name: value for name, value in asked.items() if is_asked or name == "length"})
    if random.random() < 0.15:
        form, make = tensor(random) if random.random() < 0.7 else tensor_of(build, rows(random), asked)
        return Example(make, "column", options, True, form)
    if random.random() < 0.6:
        data = cut(random, build(rows(random)))
        if random.random() < 0.15 and len(data.buffers()) == 2 and len(data) and pa.types.is_primitive(data.type):
            data = misaligned(data)
        form, in_hand, make = passed(random, data, OF_ARRAYS, [])
    else:
        data = chunked(random, build)
        form, in_hand, make = passed(random, data, OF_CHUNKS, OF_FRAMES[:1])
    return Example(make, "column", options, in_hand, f"{form} of {data.type}")


def rows_of_lists(random: random.Random) -> Example:
    build, options = ragged(random), elements(random, [], {})
    if random.random() < 0.7:
        data = cut(random, build(rows(random)))
        form, in_hand, make = passed(random, data, OF_ARRAYS, [])
    else:
        data = chunked(random, build)
        form, in_hand, make = passed(random, data, OF_CHUNKS, OF_FRAMES[:1])
    if random.random() < 0.3:
        options["pad"] = (random.choice([0, 0, 1, True, 0.5]), random.choice([None, None, 0, 2, 3, 40]))
        options["side"] = random.choice(["left", "right"])
        if options["pad"][1] is None:
            options["multiple_of"] = random.choice([1, 1, 4])
        else:
            options["truncate"] = random.choice(["error", "left", "right"])
    return Example(make, "ragged", options, in_hand, f"{form} of {data.type}")


def batch(random: random.Random, fields: list[tuple[str, Callable[[Rows], pa.Array]]]) -> pa.RecordBatch:
    count = len(rows(random))
    shared = random.choice([0, 0, 0.3])
    picks = [[None if random.random() < shared else random.randrange(4) for _ in range(count)] for _ in fields]
    arrays = [build(picks) for (_, build), picks in zip(fields, picks, strict=True)]
    return cut(random, pa.record_batch(arrays, [name for name, _ in fields]))


def grouped(random: random.Random, number: int, columns: Any) -> Any:
    """A group, perhaps with options of its own."""
    if random.random() < 0.5:
        return columns
    nulls = random.choice([None, None, 0, "keep", "nan"])
    validity = f"valid{number}" if random.random() < 0.5 else None
    return ad.group(columns, dtype=random.choice([None, None, "float64"]), nulls=nulls, validity=validity)


def columns(random: random.Random) -> Example:
    """Several columns: one by one, as a matrix, or in groups."""
    names = ["a", "b", "c", "d"][: random.choice([0, 1, 2, 2, 3, 4])]
    kind = random.choice(["columns", "matrix", "groups"])
    plain = kind != "columns" and random.random() < 0.6
    same = number(random.choice(NUMBERS))
    fields, asked = [], {}
    for name in names:
        build, own = (same if random.random() < 0.5 else number(random.choice(NUMBERS)), {}) if plain else leaf(random)
        if kind == "columns" and random.random() < 0.05:
            build = ragged(random)
        asked.update(own)
        fields.append((name, build))
    options = elements(random, names, asked)
    chosen = random.sample(names, random.randrange(len(names) + 1)) if random.random() < 0.4 else None
    if kind == "groups":
        groups = [random.sample(names, random.randrange(1, len(names) + 1)) for _ in range(2) if names]
        options["columns"] = {
            f"g{number}": grouped(random, number, group if random.random() < 0.6 else group[0])
            for number, group in enumerate(groups)
        }
    elif chosen is not None:
        options["columns"] = chosen
    if kind == "matrix" or (kind == "groups" and random.random() < 0.3):
        options["order"] = random.choice("CFA")
    if random.random() < 0.5:
        data: Any = batch(random, fields)
        if (
            plain
            and kind == "matrix"
            and random.random() < 0.4
            and len(data)
            and not any(column.null_count for column in data)
        ):
            data = side_by_side(data)
        form, in_hand, make = passed(random, data, OF_BATCHES, OF_FRAMES)
    else:
        batches = [batch(random, fields) for _ in range(random.choice([0, 1, 2, 3]))]
        data = pa.Table.from_batches(batches, pa.schema([(name, build([]).type) for name, build in fields]))
        form, in_hand, make = passed(random, data, OF_TABLES, OF_FRAMES)
    # Frames have types of their own.
    is_arrow = not form.startswith(("pandas", "polars", "lazy", "relation"))
    schema = data.schema if is_arrow and random.random() < 0.1 else None
    return Example(make, kind, options, in_hand and schema is None, f"{form} of {data.schema.types}", schema)


def side_by_side(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns of one type, one behind the other in one block of memory."""
    matrix = np.asfortranarray(np.zeros((len(batch), batch.num_columns), batch.schema.types[0].to_pandas_dtype()))
    return pa.record_batch([pa.array(column) for column in matrix.T], batch.schema.names)


def example(seed: int) -> Example:
    """The example of a number."""
    chance = random.Random(seed)
    return chance.choice([column, column, columns, columns, rows_of_lists])(chance)
