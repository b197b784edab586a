"""Each large allocation of this package fails in turn, on whichever thread: a MemoryError, or the usual result."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or COMPILER is None, reason="the library to preload is for glibc, and needs cc"
)

SETUP = """
import ctypes, gc, os, pickle, sys
import arrow_dlpack as ad, numpy as np, pyarrow as pa
from arrow_dlpack import _native

preloaded = ctypes.CDLL(None)
preloaded.failing_library.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
preloaded.failing_start.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
preloaded.failing_stop.restype = ctypes.c_size_t
with open("/proc/self/maps") as maps:
    file = os.path.realpath(_native.__file__)
    ranges = [line.split()[0].split("-") for line in maps if line.rstrip().endswith(file)]
preloaded.failing_library(int(ranges[0][0], 16), int(ranges[-1][1], 16))

# So many that a bit of each is large, and so few that a result is in no huge pages.
ROWS = 33_000
NONE = (1 << 64) - 1
numbers = pa.array([None if row % 7 == 3 else row % 100 for row in range(ROWS)], pa.int32())
floats = pa.array(np.arange(ROWS, dtype="float32"))
flags = pa.array([row % 3 == 0 for row in range(ROWS)])
words = pa.array([["ab", "", "a word that no view has inline"][row % 3] for row in range(ROWS)])
lists = pa.array([[row] * (row % 3) for row in range(ROWS)], pa.list_(pa.int32()))
batch = pa.record_batch({"a": numbers, "b": floats, "c": flags, "d": words, "e": lists})
pair = pa.record_batch({"a": floats, "b": floats})
valid = np.array([row % 5 != 2 for row in range(ROWS)])
enclosed = pa.StructArray.from_arrays([numbers], ["x"], mask=pa.array(~valid))
matrix = np.arange(2 * ROWS, dtype="float64").reshape(ROWS, 2)
wide = np.arange(1_200_000, dtype="float64")
large = pa.table({"x": pa.chunked_array([wide[:400_000], wide[400_000:800_000], wide[800_000:]])})

def request(array, data_type):
    return pa.Array._import_from_c_capsule(*ad.from_arrow(array).__arrow_c_array__(data_type.__arrow_c_schema__()))

def loaded(**options):
    return list(ad.Loader(**{"nulls": 0, "columns": ["a", "b"], "batch_size": 9000, **options}))

def shards(number):
    return [(lambda: pa.table(batch), ROWS)] * number

class Old:
    def __dlpack__(self):
        return ad.to_tensor(floats).__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)

def plain(made):
    if isinstance(made, dict):
        return {name: plain(one) for name, one in made.items()}
    if isinstance(made, (list, tuple)):
        return [plain(one) for one in made]
    if isinstance(made, ad.Ragged):
        return plain([made.values, made.offsets])
    if isinstance(made, (ad.Tensor, np.ndarray)):
        return np.from_dlpack(made).tobytes()
    if isinstance(made, (ad.Array, ad.RecordBatch, ad.ArrayStream)):
        return plain(pa.table(made) if isinstance(made, ad.ArrayStream) else made.__arrow_c_array__())
    return made.to_pylist() if hasattr(made, "to_pylist") else made

def arrow(made):
    return pa.array(made) if isinstance(made, ad.Array) else pa.record_batch(made)

def within(least, left, others, work):
    # The library's last large block is not used again, but freed.
    _native._host_memory()
    preloaded.failing_start(least, left, others)
    try:
        return work()
    except MemoryError:
        return None
    finally:
        counts.append(preloaded.failing_stop())

def each_fails(least, work):
    expected, count = plain(within(least, NONE, 0, work)), counts.pop()
    assert expected is not None and count > 0, "nothing large is allocated"
    assert plain(work()) == expected
    before, refused = _native._host_memory(), 0
    for others in (0, 1):
        for left in range(count):
            made = within(least, left, others, work)
            refused += made is None
            assert made is None or plain(made) == expected, (left, others)
    assert refused > 0, f"none of {count} allocations matters"
    assert plain(work()) == expected
    made = None
    gc.collect()
    left = _native._host_memory() - before
    assert left < 1024, f"{left} bytes are left"

counts = []
pickled = pickle.dumps(ad.from_arrow(batch))
"""
LARGE = 4096
# The loader has a table of lanes, of which each node takes 12 KB.
OF_LOADERS = 16 << 10
# More than arrow-rs allocates here: memory that is asked for before it is called has a MiB more.
BEYOND_ARROW_RS = 1 << 20
CASES = {
    "Arrow": {
        "a pickle of an array": (LARGE, "pickle.dumps(ad.from_arrow(numbers))"),
        "a pickle of text": (LARGE, "pickle.dumps(ad.from_arrow(words))"),
        "a pickle of a batch": (LARGE, "pickle.dumps(ad.from_arrow(batch))"),
        "a pickle of a part": (LARGE, "pickle.dumps(ad.from_arrow(batch.slice(3, ROWS - 5)))"),
        "a pickle of a column": (LARGE, "pickle.dumps(ad.from_dlpack(matrix[:, 1]))"),
        "back from a pickle": (LARGE, "arrow(pickle.loads(pickled))"),
        "a copy of an array": (LARGE, "arrow(ad.from_arrow(numbers, copy=True))"),
        "a copy of a batch": (LARGE, "arrow(ad.from_arrow(batch, copy=True))"),
        "a copy of a stream": (LARGE, "[arrow(one) for one in ad.from_arrow(pa.table(batch), copy=True)]"),
    },
    "DLPack": {
        "a copy of a tensor": (LARGE, "ad.from_dlpack(matrix, copy=True)"),
        "a copy of a column": (LARGE, "ad.from_dlpack(matrix[:, 1], copy=True)"),
        "a copy for an old consumer": (LARGE, "ad.from_dlpack(Old())"),
        "a matrix to Arrow": (LARGE, "arrow(ad.to_arrow(matrix, names=['x', 'y']))"),
        "a matrix with validity": (
            LARGE,
            "arrow(ad.to_arrow(matrix, names=['x', 'y'], validity=np.stack([valid] * 2, 1)))",
        ),
        "bools as bits": (LARGE, "arrow(ad.to_arrow(valid, type=pa.bool_()))"),
        "a tensor with validity": (LARGE, "arrow(ad.to_arrow(matrix[:, 0], validity=valid))"),
        "nulls of a struct": (LARGE, "arrow(ad.from_arrow(enclosed).column('x'))"),
        "another type": (BEYOND_ARROW_RS, "request(numbers, pa.int64())"),
        "text of another type": (BEYOND_ARROW_RS, "request(words, pa.string_view())"),
        "a tensor of another type": (BEYOND_ARROW_RS, "arrow(ad.to_arrow(wide[:ROWS], type=pa.float32()))"),
    },
    "tensors": {
        "a stream that is joined": (LARGE, "ad.to_tensor(pa.Table.from_batches([pair] * 3))"),
        "a stream in groups": (LARGE, "ad.to_tensors(pa.Table.from_batches([batch] * 3), columns=['a', 'c'], nulls=0)"),
        "pages that are mapped": (LARGE, "ad.to_tensor(large.to_reader())"),
        "threads": (LARGE, "ad.to_tensor(large, dtype='float32', threads=3)"),
        "rows of different lengths": (LARGE, "ad.to_ragged(lists, dtype='float64')"),
        "padded rows": (LARGE, "ad.to_ragged(lists, pad=(0, 3))"),
        "validity": (LARGE, "ad.validity(batch)"),
        "categories": (LARGE, "ad.to_tensor(words, categories=pa.array(['', 'ab', 'a word that no view has inline']))"),
        "statistics": (OF_LOADERS, "ad.statistics(batch, {'a': 'mean', 'b': 'mode'})"),
    },
    "loaders": {
        "a loader": (OF_LOADERS, "loaded(source=batch, prefetch=0)"),
        "a loader with a thread": (OF_LOADERS, "loaded(source=batch)"),
        "a loader that shuffles": (OF_LOADERS, "loaded(source=batch, shuffle_buffer=9000, seed=1)"),
        "a loader with readers": (OF_LOADERS, "loaded(sources=shards(4), lanes=4, readers=2)"),
    },
}


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("preloaded") / "failing_allocations.so"
    source = HERE / "failing_allocations.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", library, source], check=True)
    return str(library)


@pytest.mark.parametrize("group", CASES)
def test_each_allocation_fails(preloaded: str, group: str):
    each = [
        f"print({name!r}, file=sys.stderr, flush=True)\neach_fails({least}, lambda: {work})"
        for name, (least, work) in CASES[group].items()
    ]
    command = [sys.executable, "-c", "\n".join([SETUP, *each])]
    before = os.environ.get("LD_PRELOAD")
    environment = {**os.environ, "LD_PRELOAD": f"{preloaded}:{before}" if before else str(preloaded)}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr[-2000:]
