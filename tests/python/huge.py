"""Small arrays with huge logical sizes, and everything that can be asked of them: `python huge.py SEED COUNT` runs so
many cases in little address space. A case may raise or return; the process must live, and no case may take long."""

from __future__ import annotations

import faulthandler
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa

# Bytes of address space beyond what the process has at its start.
SPACE = 3 << 29
# Seconds for one case: a debug build moves a gigabyte in less.
PATIENCE = 60
# What a refusal raises; BufferError is what DLPack asks for.
ALLOWED = (
    MemoryError,
    BufferError,
    ad.ConversionError,
    TypeError,
    OverflowError,
    NotImplementedError,
    ValueError,
    OSError,
)

# Logical sizes: what fits, what fits for some types, what nothing can hold.
SIZES = [0, 1, 7, 1000, 1 << 20, 1 << 22, 1 << 30, (1 << 31) - 1, 1 << 31, 1 << 33, 1 << 40, 1 << 45, 1 << 52]
PLAIN = [pa.int8(), pa.int64(), pa.uint16(), pa.float32(), pa.float64(), pa.float16(), pa.bool_(), pa.date32()]
WORDS = [pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.binary_view()]
OTHER = [
    pa.decimal128(20, 2),
    pa.decimal256(50, 0),
    pa.binary(3),
    pa.null(),
    pa.timestamp("us"),
    pa.month_day_nano_interval(),
]
TYPES = [*PLAIN, *WORDS, *OTHER]
REQUESTED = [
    *TYPES,
    pa.binary(0),
    pa.binary(2**31 - 1),
    pa.list_(pa.int64(), 1_000_000),
    pa.list_(pa.null(), 2**31 - 1),
    pa.list_(pa.list_(pa.float64(), 1000), 1000),
    pa.list_(pa.int8()),
    pa.large_list(pa.float64()),
    pa.list_view(pa.int64()),
    pa.large_list_view(pa.string()),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.int64()),
    pa.run_end_encoded(pa.int32(), pa.int8()),
    pa.run_end_encoded(pa.int64(), pa.string_view()),
    pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64(), 100))]),
    pa.map_(pa.string(), pa.int64()),
]


def raw(kind: pa.DataType, length: int, buffers: list[pa.Buffer | None], offset: int = 0, **more: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, length, buffers, offset=offset, **more)


def no_values(rows: int) -> pa.Array:
    """Nulls without a bitmap, for which pyarrow would allocate one."""
    return raw(pa.null(), rows, [None])


def buffer(values: Any, dtype: Any) -> pa.Buffer:
    return pa.py_buffer(np.array(values, dtype))


class Asking:
    """A stream that is asked for another schema."""

    def __init__(self, stream: Any, schema: pa.Schema) -> None:
        self.stream, self.schema = stream, schema

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.stream.__arrow_c_stream__(self.schema.__arrow_c_schema__())


class Cases:
    """What a seed says: a source, and what is asked of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def size(self, most: int = 1 << 62) -> int:
        return self.random.choice([size for size in SIZES if size <= most])

    def rows(self) -> int:
        return self.random.choice([0, 1, 2, 3, 10, 100])

    def plain(self, rows: int, kind: pa.DataType | None = None) -> pa.Array:
        """So many values of a type, some of them null."""
        kind = kind or self.random.choice(TYPES if self.random.random() < 0.5 else PLAIN)
        if pa.types.is_null(kind):
            return no_values(rows)
        if kind in (pa.date32(), pa.timestamp("us"), pa.month_day_nano_interval()):
            return pa.nulls(rows, kind)
        if kind in WORDS:
            long = "x" * self.random.choice([0, 1, 13, 100_000])
            values: list[Any] = [self.random.choice(["", "a", "1", long]) for _ in range(min(rows, 1000))]
            values += ["7"] * (rows - len(values))
        elif pa.types.is_fixed_size_binary(kind):
            values = [b"\0\1\2"] * rows
        else:
            values = [self.random.randint(0, 1)] * rows
        if self.random.random() < 0.3:
            values = [None if self.random.random() < 0.2 else value for value in values]
        if pa.types.is_boolean(kind):
            values = [None if value is None else bool(value) for value in values]
        return pa.array(values, kind)

    def nulls(self, rows: int, depth: int) -> pa.Array:
        return no_values(rows)

    def bitmap(self, rows: int) -> pa.Buffer | None:
        if self.random.random() < 0.7 or rows > 1 << 23:
            return None
        return pa.py_buffer(bytes([0b1010_1110]) * (rows // 8 + 1))

    def runs(self, rows: int, depth: int) -> pa.Array:
        wide = rows >= 1 << 31 or self.random.random() < 0.5
        runs = self.random.choice([1, 2, 3]) if rows > 3 else rows
        ends = [rows * (run + 1) // runs for run in range(runs)] if runs else []
        return pa.RunEndEncodedArray.from_arrays(
            pa.array(ends, pa.int64() if wide else pa.int32()), self.array(runs, depth)
        )

    def fixed(self, rows: int, depth: int) -> pa.Array:
        most = ((1 << 56) // rows) if rows else 1 << 31
        k = self.size(min(most, (1 << 31) - 1))
        child = self.array(rows * k, depth)
        field = pa.field("item", child.type, self.random.random() < 0.9)
        return raw(pa.list_(field, k), rows, [self.bitmap(rows)], children=[child])

    def empty_binary(self, rows: int, depth: int) -> pa.Array:
        return raw(pa.binary(0), rows, [None, pa.py_buffer(b"")])

    def empty_struct(self, rows: int, depth: int) -> pa.Array:
        return raw(pa.struct([]), rows, [None], children=[])

    def struct(self, rows: int, depth: int) -> pa.Array:
        children = [self.array(rows, depth) for _ in range(self.random.choice([1, 2]))]
        fields = [pa.field(f"c{index}", child.type) for index, child in enumerate(children)]
        return raw(pa.struct(fields), rows, [self.bitmap(rows)], children=children)

    def codes(self, rows: int, depth: int) -> pa.Array:
        kind = self.random.choice([pa.int8(), pa.int32(), pa.uint64()])
        values = self.array(self.random.choice([1, 2, 100]), depth)
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, kind.to_pandas_dtype())), values)

    def lists(self, rows: int, depth: int) -> pa.Array:
        make = self.random.choice([pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
        large = make in (pa.large_list, pa.large_list_view)
        size = self.size((1 << 52) if large else (1 << 31) - 1)
        child = self.array(size, depth)
        dtype = np.int64 if large else np.int32
        bitmap = self.bitmap(rows)
        if make in (pa.list_, pa.large_list):
            first = self.random.choice([0, size // 2])
            offsets = [first + (size - first) * row // rows for row in range(rows + 1)] if rows else [0]
            return raw(make(child.type), rows, [bitmap, buffer(offsets, dtype)], children=[child])
        # All views span all, so that their sum is huge; or few.
        lengths = [self.random.choice([0, 1, size]) if size else 0 for _ in range(rows)]
        offsets = [0 if length == size else size // 2 for length in lengths]
        buffers = [bitmap, buffer(offsets, dtype), buffer(lengths, dtype)]
        return raw(make(child.type), rows, buffers, children=[child])

    def sparse(self, rows: int, depth: int) -> pa.Array:
        rows = min(rows, 1000)
        children = [no_values(rows), self.array(rows, depth)]
        return pa.UnionArray.from_sparse(pa.array([0] * rows, pa.int8()), children)

    def far(self, rows: int, depth: int) -> pa.Array:
        """A slice far behind the start."""
        start = self.size(1 << 45)
        array = self.array(rows + start, depth)
        return array.slice(start, rows)

    def bits(self, rows: int, depth: int) -> pa.Array:
        return raw(pa.bool_(), rows, [None, pa.py_buffer(bytes(rows // 8 + 1))])

    def array(self, rows: int, depth: int = 3) -> pa.Array:
        """An array of so many rows, in little memory."""
        huge: list[Callable[[int, int], pa.Array]] = [
            self.nulls,
            self.runs,
            self.runs,
            self.fixed,
            self.struct,
            self.empty_binary,
            self.empty_struct,
        ]
        if rows <= 1 << 21:
            huge += [self.codes, self.codes, self.bits]
        if rows <= 1000:
            huge += [self.lists, self.lists, self.sparse]
        if rows <= 1 << 45:
            huge.append(self.far)
        if depth == 0:
            return self.plain(rows) if rows <= 100_000 else no_values(rows)
        if rows <= 100_000 and self.random.random() < 0.3:
            return self.plain(rows)
        made = self.random.choice(huge)(rows, depth - 1)
        return made if len(made) == rows else no_values(rows)

    def repeated(self) -> np.ndarray:
        """One element that is said to be many."""
        one = np.zeros(1, self.random.choice([np.int8, np.float32, np.float64, np.bool_, np.complex64]))
        shape = tuple(self.size(1 << 45) for _ in range(self.random.choice([1, 1, 2])))
        if np.prod([float(extent) for extent in shape]) >= 1 << 55:
            shape = shape[:1]
        return np.lib.stride_tricks.as_strided(one, shape, [0] * len(shape))

    def source(self) -> Any:
        """An array, a batch, a table, a stream or a tensor."""
        rows = self.size() if self.random.random() < 0.6 else self.rows()
        if self.random.random() < 0.1:
            return self.repeated()
        form = self.random.choice(["array", "array", "batch", "table", "reader", "chunked", "wrapped"])
        if form == "array":
            return self.array(rows)
        if form == "wrapped":
            return ad.from_arrow(self.array(rows))
        columns = [self.array(rows) for _ in range(self.random.choice([1, 2, 3]))]
        if form == "chunked":
            return pa.chunked_array([columns[0]] * 2)
        names = [f"c{index}" for index in range(len(columns))]
        batch = pa.record_batch(columns, names=names)
        if form == "batch":
            return batch
        batches = [batch] * self.random.choice([1, 2])
        return (
            pa.Table.from_batches(batches)
            if form == "table"
            else pa.RecordBatchReader.from_batches(batch.schema, batches)
        )

    def options(self) -> dict[str, Any]:
        choices: dict[str, list[Any]] = {
            "dtype": ["float32", "float64", "int64", "int8", "bool", "complex64", "uint8"],
            "nulls": ["nan", "keep", 0, 1, "keep", "keep"],
            "dictionary": ["codes", "values", "values"],
            "decimal": ["unscaled"],
            "copy": [True, False],
            "writable": [True],
        }
        picked = {name: self.random.choice(values) for name, values in choices.items()}
        return {name: value for name, value in picked.items() if self.random.random() < 0.35}

    def use(self, result: Any) -> None:
        """Touches what came out of a function where that is small."""
        if isinstance(result, dict):
            result = next(iter(result.values()), None)
        if isinstance(result, tuple):
            result = result[0]
        if isinstance(result, ad.Ragged):
            requested = self.random.choice([None, self.requested()])
            result.__arrow_c_array__(requested)
        if isinstance(result, ad.Tensor):
            asked: list[Callable[[], Any]] = [
                lambda: result.__arrow_c_array__(),
                lambda: result.__arrow_c_array__(self.requested()),
                lambda: result.__arrow_c_device_array__(self.requested()),
                lambda: result.__dlpack__(),
                lambda: result.__dlpack__(max_version=(1, 1), copy=True),
                lambda: ad.from_dlpack(result, copy=True),
                lambda: ad.to_arrow(result),
                lambda: ad.to_arrow(result, copy=True),
                lambda: result.to_device("cpu", copy=True) if result.nbytes < 1 << 28 else None,
                lambda: ad.to_tensor(result, dtype="float64", copy=True),
                lambda: np.from_dlpack(result),
            ]
            self.random.choice(asked)()

    def requested(self) -> Any:
        return self.random.choice(REQUESTED).__arrow_c_schema__()

    def load(self, source: Any) -> None:
        options = {name: value for name, value in self.options().items() if name not in ("copy", "writable")}
        batch_size = self.random.choice([1, 3, 1000, 1 << 20, 1 << 31, 1 << 40, (1 << 62), (1 << 63) - 1])
        more: dict[str, Any] = {"prefetch": self.random.choice([0, 1, 2])}
        if self.random.random() < 0.3:
            more.update(shuffle_buffer=self.random.choice([1, 10, 1 << 20, 1 << 40, 1 << 62]), seed=1)
        if self.random.random() < 0.2:
            more.update(drop_last=True)
        loader: Any = ad.Loader(source, batch_size=batch_size, **options, **more)
        batches = iter(loader)
        for _ in range(3):
            if next(batches, None) is None:
                break
        batches.close()

    def request(self, source: Any) -> None:
        taken = ad.from_arrow(source)
        if isinstance(taken, ad.Array):
            own = pa.field(taken)
            kinds = [*REQUESTED, own.type, own.type]
            schema: Any = pa.field("", self.random.choice(kinds), self.random.random() < 0.8)
            ask: list[Callable[[Any], Any]] = [taken.__arrow_c_array__, taken.__arrow_c_device_array__]
        else:
            fields = [
                pa.field(field.name, self.random.choice([*REQUESTED, field.type]), self.random.random() < 0.8)
                for field in pa.schema(taken)
            ]
            schema = pa.schema(fields)
            ask = [taken.__arrow_c_stream__, taken.__arrow_c_device_stream__]
            if isinstance(taken, ad.RecordBatch):
                ask += [taken.__arrow_c_array__, taken.__arrow_c_device_array__]
        self.random.choice(ask)(schema.__arrow_c_schema__())

    def streamed(self, source: Any) -> None:
        """Pulls a stream of a requested type."""
        batch = pa.record_batch([source], names=["x"]) if isinstance(source, pa.Array) else source
        taken: Any = ad.from_arrow(batch)
        if isinstance(taken, ad.Array):
            return self.request(batch)
        schema = pa.schema([(name, self.random.choice(REQUESTED)) for name in taken.column_names])
        return self.drain(ad.from_arrow(Asking(taken, schema)))

    def run(self, source: Any) -> str:
        functions: dict[str, Callable[[], Any]] = {
            "to_tensor": lambda: self.use(ad.to_tensor(source, **self.options(), **self.order())),
            "to_tensors": lambda: self.use(ad.to_tensors(source, **self.options())),
            "to_ragged": lambda: self.use(ad.to_ragged(source, **self.options())),
            "to_ragged pad": lambda: self.use(ad.to_ragged(source, pad=self.pad(), **self.options())),
            "validity": lambda: ad.validity(source),
            "to_arrow": lambda: ad.to_arrow(source, **self.arrow_options()),
            "from_arrow": lambda: self.drain(ad.from_arrow(source, copy=True)),
            "explain": lambda: str(ad.explain(source, **self.options())),
            "from_dlpack": lambda: self.from_dlpack(source),
            "request": lambda: self.request(source),
            "streamed": lambda: self.streamed(source),
            "loader": lambda: self.load(source),
        }
        name = self.random.choice(list(functions))
        try:
            functions[name]()
            return f"{name}: done"
        except ALLOWED as error:
            return f"{name}: {type(error).__name__}: {str(error)[:150]}"

    def from_dlpack(self, source: Any) -> None:
        taken: Any = source if isinstance(source, np.ndarray) else ad.from_arrow(source)
        if isinstance(taken, (ad.Array, np.ndarray)):
            self.use(ad.from_dlpack(taken, copy=self.random.choice([None, True])))

    def drain(self, taken: Any) -> None:
        if isinstance(taken, ad.ArrayStream):
            for _ in taken:
                pass

    def pad(self) -> Any:
        return self.random.choice([0, 0.5, (0, 3), (0, 1 << 31), (0, 1 << 40), (0, 1 << 62)])

    def arrow_options(self) -> dict[str, Any]:
        picked: dict[str, Any] = {
            "type": self.random.choice([*REQUESTED, pa.bool_()]),
            "names": self.random.choice([["x"], ["x", "y"]]),
            "validity": np.ones(1, bool),
            "copy": self.random.choice([True, False]),
        }
        return {name: value for name, value in picked.items() if self.random.random() < 0.3}

    def order(self) -> dict[str, Any]:
        picked: dict[str, Any] = {
            "order": self.random.choice(["C", "F", "A"]),
            "threads": self.random.choice([1, 2, None]),
        }
        return picked if self.random.random() < 0.3 else {}


def limit(space: int = SPACE) -> None:
    """Leaves the process so much address space beyond what it has."""
    import resource

    used = next(
        int(line.split()[1]) << 10 for line in Path("/proc/self/status").read_text().splitlines() if "VmSize" in line
    )
    resource.setrlimit(resource.RLIMIT_AS, (used + space, used + space))


def warm_up() -> None:
    """Loads what is loaded on first use, and starts a thread, before memory gets scarce."""
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    for _ in ad.Loader(pa.record_batch({"x": [1.0, 2.0]}), batch_size=1):
        pass
    ad.to_tensor(pa.record_batch({"x": np.zeros(1 << 20), "y": np.zeros(1 << 20)}))


def described(source: Any) -> str:
    kind = getattr(source, "schema", None) or getattr(source, "type", type(source))
    try:
        return f"{type(source).__name__} {len(source)} of {str(kind)[:300]!r}"
    except TypeError:
        return f"{type(source).__name__} of {str(kind)[:300]!r}"


def main(first: int, count: int) -> Iterator[str]:
    for seed in range(first, first + count):
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        cases = Cases(seed)
        try:
            source = cases.source()
        except (pa.ArrowException, *ALLOWED) as error:
            yield f"{seed} not made: {error}"
            continue
        yield f"{seed} {described(source)}"
        yield f"  {cases.run(source)}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    warm_up()
    limit()
    for line in main(int(sys.argv[1]), int(sys.argv[2])):
        print(line, flush=True)
