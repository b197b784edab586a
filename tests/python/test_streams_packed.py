"""Streams that are packed while they are read: the results of tables, in the memory of the results."""

import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest

KINDS = ["float64", "float32", "int64", "int8", "uint16", "bool", "dictionary", "lists"]


def column(draw: random.Random, kind: str, rows: int, nulls: float) -> pa.Array:
    if kind == "dictionary":
        codes = pa.array([draw.randrange(3) for _ in range(rows)], pa.int8())
        return pa.DictionaryArray.from_arrays(codes, pa.array([1.5, 2.5, 300.5]))
    values: list[Any] = [draw.choice([0, 1, 2, 100, 300 if kind in ("float64", "int64") else 3]) for _ in range(rows)]
    if kind == "lists":
        return pa.array([[value, 1] for value in values], pa.list_(pa.int32(), 2))
    if kind == "bool":
        values = [value > 1 for value in values]
    data_type = pa.bool_() if kind == "bool" else pa.from_numpy_dtype(np.dtype(kind))
    return pa.array([None if draw.random() < nulls else value for value in values], data_type)


def told(call: Callable[[], Any]) -> list[Any]:
    """All that a caller sees of a call, the log of copies included."""
    with ad.track_copies() as log:
        try:
            made = call()
        except ad.ConversionError as error:
            remedy = (error.remedy or "").removesuffix(", both of a table that the stream is read into first")
            return [type(error), error.column, error.row, error.reason, remedy]
    found: list[Any] = [(entry.what, entry.why, entry.bytes) for entry in log]
    for name, tensor in made.items() if isinstance(made, dict) else [("", made)]:
        array = np.from_dlpack(tensor)
        layout = (array.shape, array.strides) if array.size else array.shape
        found.append((name, tensor.dtype, layout, array.tobytes(), tensor.copied, tensor.writable))
    return found


@pytest.mark.parametrize("seed", range(300))
def test_a_stream_gives_what_the_table_gives(seed: int):
    draw = random.Random(seed)
    kinds = [draw.choice(KINDS[:-1]) for _ in range(draw.randrange(1, 5))]
    call = draw.choice(["to_tensor", "to_tensors", "groups", "validity", "column"])
    if call == "column" or (call == "to_tensors" and draw.random() < 0.3):
        kinds[0] = draw.choice(KINDS)
    nulls = [draw.choice([0, 0, 0.02]) for _ in kinds]
    sizes = [draw.choice([0, 0, 1, 2, 5, 64, 130]) for _ in range(draw.randrange(1, 8))]
    names = [f"c{index}" for index in range(len(kinds))]
    pairs = list(zip(kinds, nulls, strict=True))
    batches = [pa.record_batch([column(draw, kind, rows, share) for kind, share in pairs], names) for rows in sizes]
    options: dict[str, Any] = {}
    if draw.random() < 0.5:
        options["dtype"] = draw.choice(["float32", "int8", "float64", "int64"])
    if draw.random() < 0.5:
        options["nulls"] = draw.choice(["nan", 0, "keep", 7])
    if draw.random() < 0.2:
        options["copy"] = draw.choice([True, False])
    if draw.random() < 0.2:
        options["writable"] = True
    order = {"order": draw.choice("CCFA")}
    calls: dict[str, Callable[[Any], Any]] = {
        "to_tensor": lambda data: ad.to_tensor(data, **options, **order),
        "to_tensors": lambda data: ad.to_tensors(data, **options),
        "groups": lambda data: ad.to_tensors(data, columns={"x": names[:2], "y": names[-1]}, **options, **order),
        "validity": lambda data: ad.validity(data, **order),
        "column": lambda data: ad.to_tensor(data, **options),
    }
    table: Any = pa.Table.from_batches(batches)
    if call == "column":
        table = table.column(0)
        stream: Any = ad.from_arrow(table)
    else:
        stream = pa.RecordBatchReader.from_batches(table.schema, iter(batches))
    of_stream, of_table = told(lambda: calls[call](stream)), told(lambda: calls[call](table))
    if of_stream[0] is ad.CopyError and of_stream[3].startswith("a copy is needed of any rows"):
        # The schema tells it, so that the stream is not read: neither its size is known, nor that it has no rows.
        assert options["copy"] is False
        assert sum(sizes) == 0 or issubclass(of_table[0], ad.ConversionError)
        assert sum(len(rest) for rest in stream) == sum(sizes)
        return
    assert of_stream == of_table, (kinds, sizes, options, order)


def counted(rows: int, batches: int, columns: int = 2) -> tuple[Any, list[int]]:
    """A stream of doubles, and how many of its arrays are alive whenever the next one is asked for."""
    made: list[producers.Array] = []
    alive: list[int] = []
    values = np.arange(float(rows)).tobytes()

    def generate():
        for _ in range(batches):
            alive.append(sum(not array.released for array in made))
            children = [producers.Array(rows, (None, values)) for _ in range(columns)]
            made.append(producers.Array(rows, (None,), children=children))
            yield made[-1]

    def schema() -> producers.Schema:
        return producers.Schema(
            b"+s", children=[producers.Schema(b"g", field=b"ab"[i : i + 1]) for i in range(columns)]
        )

    return producers.stream(producers.Stream(generate(), schema=schema)), alive


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "to_tensor": ad.to_tensor,
    "to_tensors": ad.to_tensors,
    "groups": lambda data: ad.to_tensors(data, columns={"x": ["a", "b"], "y": "b"}),
    "xp": lambda data: ad.to_tensor(data, xp=np),
    "cast": lambda data: ad.to_tensor(data, dtype="float32", order="A"),
    "validity": ad.validity,
}


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_batches_are_released_as_they_are_packed(conversion: str):
    stream, alive = counted(rows=2000, batches=50)
    made = CONVERSIONS[conversion](stream)
    assert made is not None
    assert len(alive) == 50
    # An eighth of the results, and the one or two that a view could have been of.
    assert max(alive) <= 8, alive


def test_the_last_array_alone_is_held_where_rows_have_no_fixed_size():
    batch = pa.record_batch({"a": np.arange(1000.0), "text": ["x"] * 1000, "b": np.arange(1000.0)})
    before = pa.total_allocated_bytes()
    held = []

    def generate():
        for _ in range(40):
            held.append(pa.total_allocated_bytes() - before)
            yield pa.record_batch(batch.columns, schema=batch.schema).take(pa.array(range(1000)))

    stream = pa.RecordBatchReader.from_batches(batch.schema, generate())
    assert ad.to_tensor(stream, columns=["a", "b"]).shape == (40_000, 2)
    assert max(held) <= 2 * max(held[1], 1)


class TestErrors:
    def batches(self) -> list[pa.RecordBatch]:
        # Row 70 of "b" does not fit int8; row 65 of "a" is null.
        a = [None if row == 65 else 1 for row in range(100)]
        b = [1000 if row == 70 else 1 for row in range(100)]
        table = pa.table({"b": pa.array(b, pa.int64()), "a": pa.array(a, pa.int64())})
        return table.to_batches(max_chunksize=30)

    @pytest.mark.parametrize("of", [pa.Table.from_batches, lambda b: pa.RecordBatchReader.from_batches(b[0].schema, b)])
    def test_the_lowest_row_then_the_first_column_is_named(self, of: Callable[[Any], Any]):
        for nulls, expected in [("error", (ad.NullError, "a", 65)), (0, (ad.CastError, "b", 70))]:
            for call in [
                ad.to_tensor,
                ad.to_tensors,
                lambda data, **o: ad.to_tensors(data, columns={"x": ["b", "a"]}, **o),
            ]:
                with pytest.raises(ad.ConversionError) as found:
                    call(of(self.batches()), dtype="int8", nulls=nulls)
                assert (type(found.value), found.value.column, found.value.row) == expected

    def test_a_value_in_a_lower_row_than_a_null_comes_first(self):
        table = pa.table({"a": pa.array([1, None], pa.int64()), "b": pa.array([1000, 1], pa.int64())})
        for data in [table, table.to_batches()[0], table.to_reader()]:
            with pytest.raises(ad.CastError) as found:
                ad.to_tensor(data, dtype="int8")
            assert (found.value.column, found.value.row) == ("b", 0)
        for data in [table, table.to_reader()]:
            with pytest.raises(ad.CastError) as found:
                ad.to_tensors(data, dtype="int8")
            assert (found.value.column, found.value.row) == ("b", 0)

    def test_a_stream_that_was_refused_is_read_no_further(self):
        stream = ad.from_arrow(pa.RecordBatchReader.from_batches(self.batches()[0].schema, iter(self.batches())))
        with pytest.raises(ad.NullError):
            ad.to_tensor(stream)
        with pytest.raises(ad.ConversionError, match="consumed"):
            ad.to_tensor(stream)


def run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


PEAK = """
    import resource
    import sys

    import arrow_dlpack as ad
    import numpy as np
    import pyarrow as pa

    COLUMNS, ROWS, BATCHES = 8, 100_000, 60
    schema = pa.schema([(f"c{index}", pa.float32()) for index in range(COLUMNS)])

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def generate():
        for number in range(BATCHES):
            yield pa.record_batch([pa.array(np.full(ROWS, number, "float32")) for _ in schema], schema=schema)

    ad.to_tensor(pa.RecordBatchReader.from_batches(schema, [next(generate())]))
    before = peak()
    reader = pa.RecordBatchReader.from_batches(schema, generate())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource, which tells the peak, is a module of POSIX systems")
@pytest.mark.parametrize(
    "call",
    [
        "ad.to_tensor(reader)",
        "ad.to_tensor(reader, xp=np)",
        'ad.to_tensors(reader, columns={"x": ["c0", "c1", "c2", "c3"], "y": ["c4", "c5", "c6", "c7"]})',
        "ad.to_tensors(reader)",
    ],
)
def test_the_peak_is_the_result_and_a_quarter(call: str):
    code = textwrap.dedent(PEAK) + f"made = {call}\nprint((peak() - before) / (COLUMNS * ROWS * BATCHES * 4))"
    assert float(run(code)) <= 1.25 + 1 / 60


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is kept by Linux alone")
def test_memory_that_cannot_be_had_leaves_the_rest_of_the_stream():
    """What was read is gone; the error is a MemoryError, and the stream goes on."""
    code = """
        import resource
        import arrow_dlpack as ad
        import numpy as np
        import pyarrow as pa

        batch = pa.record_batch({"a": np.zeros(1 << 17), "b": np.zeros(1 << 17)})
        for source in [lambda reader: reader, ad.from_arrow]:
            reader = source(pa.RecordBatchReader.from_batches(batch.schema, [batch] * 100))
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
            try:
                ad.to_tensor(reader, threads=1)
            except MemoryError:
                print("refused", 0 < sum(1 for _ in reader) < 100)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    """
    assert run(code) == "refused True\nrefused True\n"
