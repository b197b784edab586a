"""No data ends the process: what memory cannot hold is a MemoryError, whatever sizes an array of a few bytes claims."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS limits the address space on Linux alone")

# Each first made, then tried within 1.5 GB of address space.
SETUP = """
import sys
sys.path.insert(0, {here!r})
import huge
import arrow_dlpack as ad, numpy as np, pyarrow as pa

def runs(values, rows, first=1):
    return pa.RunEndEncodedArray.from_arrays(pa.array([first, rows], pa.int64()), values)

def lists(child, size):
    return pa.FixedSizeListArray.from_arrays(child, size)

def repeated(shape, dtype):
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, [0] * len(shape))

def request(array, data_type):
    return ad.from_arrow(array).__arrow_c_array__(data_type.__arrow_c_schema__())

bytes_ = pa.array([1, 2], pa.int8())
small = pa.array([1, 2], pa.int32())
wide = lists(pa.array(np.zeros(2 * 1000)), 1000)
vector = lists(pa.array(np.zeros(768, np.float32)), 768)
text = pa.array(["x" * (1 << 20), "y"])
codes = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2_000_000, np.int8)), vector)
words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 20, np.int8)), text)
child = runs(bytes_, 1 << 40)
views = pa.Array.from_buffers(
    pa.large_list_view(child.type),
    2,
    [None, pa.py_buffer(np.array([0, 0])), pa.py_buffer(np.array([1, 1 << 39]))],
    children=[child],
)
def strict(child, rows):
    size = len(child) // rows
    item = pa.field("item", child.type, nullable=False)
    valid = pa.py_buffer(bytes([0xFE] + [0xFF] * (rows // 8)))
    return huge.raw(pa.list_(item, size), rows, [valid], children=[child])

def codes_of(values):
    return pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), values)

def union(values):
    kind = pa.dense_union([pa.field("x", values.type)])
    return huge.raw(kind, 2, [None, pa.py_buffer(bytes(2)), huge.buffer([0, 1], np.int32)], children=[values])

huge.warm_up()
huge.limit()
"""
TRIED = {
    "values of a dictionary that are lists": "ad.to_tensor(codes, dictionary='values')",
    "runs of lists": "ad.to_tensor(runs(wide, 1 << 20))",
    "runs of nine bytes a row": "ad.to_tensor(runs(bytes_, 1 << 31))",
    "nulls as lists": "request(pa.nulls(1 << 20), pa.list_(pa.int64(), 1_000_000))",
    "nulls as nothing": "request(pa.nulls(1 << 40), pa.binary(0))",
    "words as text": "request(words, pa.string())",
    "words as large text": "request(words, pa.large_string())",
    "words as views": "request(words, pa.string_view())",
    "runs as what they stand for": "request(runs(bytes_, 1 << 30), pa.int8())",
    "runs as text": "request(runs(text, 1 << 20), pa.large_string())",
    "not nullable": "request(runs(bytes_, 1 << 45), pa.field('x', runs(bytes_, 1 << 45).type, nullable=False))",
    "items of views": "ad.to_ragged(views, dtype='float32', nulls=0)",
    "padding": "ad.to_ragged(pa.array([[1], [2]]), pad=(0, 1 << 40))",
    "validity of nulls": "ad.validity(pa.nulls(1 << 40))",
    "validity of runs of text": "ad.validity(runs(text, 1 << 40))",
    "a batch of runs": "ad.to_tensor(pa.record_batch({'x': runs(bytes_, 1 << 33), 'y': runs(bytes_, 1 << 33)}))",
    "one row that repeats": "ad.to_arrow(repeated((1 << 40,), np.float32), copy=True)",
    "a bool that repeats": "ad.to_arrow(repeated((1 << 40,), np.bool_), type=pa.bool_())",
    "one element that repeats": "ad.from_dlpack(repeated((1 << 20, 1 << 20), np.float64), copy=True)",
    "a batch size without end": "next(iter(ad.Loader(pa.record_batch({'x': small}), batch_size=1 << 62)))",
    "strict lists of runs": "ad.to_tensor(strict(runs(bytes_, 1 << 40), 1 << 20), nulls=0)",
    "codes of codes of runs": "ad.validity(codes_of(codes_of(runs(bytes_, 1 << 40))))",
    "codes of a union of runs": "ad.validity(codes_of(union(runs(bytes_, 1 << 40))))",
    "a batch of the loader": "next(iter(ad.Loader(pa.record_batch({'x': runs(bytes_, 1 << 40)}), batch_size=8)))",
}
WORKS = {
    "a copy of runs": "assert len(pa.array(ad.from_arrow(runs(bytes_, 1 << 40), copy=True))) == 1 << 40",
    "runs as other runs": "request(runs(bytes_, 1 << 40), pa.run_end_encoded(pa.int64(), pa.int16()))",
    "a copy of strict lists of runs": """
import pickle
assert len(pickle.loads(pickle.dumps(ad.from_arrow(strict(runs(bytes_, 1 << 40), 1 << 20))))) == 1 << 20
""",
    "validity of many runs of text": "assert ad.validity(runs(text, 1 << 20)).shape == (1 << 20,)",
    "runs of half the memory": "assert ad.to_tensor(runs(bytes_, 1 << 29)).shape == (1 << 29,)",
    "a column far from the start": """
start = 1 << 45
item = pa.Array.from_buffers(pa.binary(0), start + 4, [None, pa.py_buffer(b"")]).slice(start)
batch = pa.Array.from_buffers(pa.struct([("x", item.type)]), 4, [pa.py_buffer(bytes([0b0101]))], children=[item])
assert pa.array(ad.from_arrow(batch).column("x")).is_null().to_pylist() == [False, True, False, True]
""",
}


def run(code: str) -> subprocess.CompletedProcess[str]:
    script = SETUP.format(here=str(HERE)) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)


def named(codes: dict[str, str]) -> str:
    """Pieces of code, each of which says its name before it runs."""
    return "\n".join(f"print({name!r}, file=sys.stderr, flush=True)\n{code}" for name, code in codes.items())


def test_what_memory_cannot_hold_is_an_error() -> None:
    tries = [
        f"try:\n    {code}\nexcept MemoryError:\n    pass\nelse:\n    print({name!r}, 'was done')\n"
        # The process and its sources go on.
        "assert ad.to_tensor(small).shape == (2,) and len(codes) == 2_000_000 and len(words) == 1 << 20\n"
        for name, code in TRIED.items()
    ]
    result = run(named(dict(zip(TRIED, tries, strict=True))))
    assert (result.returncode, result.stdout) == (0, ""), result.stderr[-2000:]


def test_what_memory_can_hold_is_done() -> None:
    result = run(named(WORKS))
    assert (result.returncode, result.stdout) == (0, ""), result.stderr[-2000:]


def test_a_slice_far_from_the_start_takes_the_memory_of_its_rows() -> None:
    code = """
rows = 80_000_000
valid = pa.py_buffer(np.full(rows // 8, 0b1010_1110, np.uint8))
column = pa.Array.from_buffers(pa.int8(), rows, [valid, pa.py_buffer(np.ones(rows, np.int8))])
column = pa.Array.from_buffers(pa.struct([("x", pa.int8())]), rows, [valid], children=[column])
with ad.track_copies() as log:
    array = pa.array(ad.from_arrow(column.slice(rows - 80, 80)).column("x"))
assert array.to_pylist() == column.slice(rows - 80, 80).field("x").to_pylist(), array
assert sum(copy.bytes for copy in log) <= 16, str(log)
"""
    result = run(code)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr[-2000:]


@pytest.mark.parametrize("first", [0, 80, 160, 240])
def test_random_sizes_never_end_the_process(first: int) -> None:
    command = [sys.executable, str(HERE / "huge.py"), str(first), "80"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-2000:]
    assert result.stdout.count("\n") >= 80
