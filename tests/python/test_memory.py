"""Memory stays where it is, over very many conversions of each kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What is done again and again. None of it allocates anything that outlives the call.
WORK = {
    "to_tensor": "ad.to_tensor(column)",
    "to_tensor with a copy": "ad.to_tensor(bits, dtype='float32')",
    "to_tensors": "ad.to_tensors(batch)",
    "from_dlpack": "ad.from_dlpack(array)",
    "numpy.from_dlpack": "np.from_dlpack(tensor)",
    "to_arrow": "ad.to_arrow(array)",
    "to_arrow with validity": "ad.to_arrow(array, validity=valid)",
    "pyarrow.array": "pa.array(tensor)",
    "both ways": "pa.array(ad.to_arrow(np.from_dlpack(ad.to_tensor(column))))",
    "legacy capsules": "tensor.__dlpack__()",
    "streams": "pa.table(ad.from_arrow(table))",
    "requests": "pa.array(imported, pa.int8())",
    "validity": "ad.validity(column)",
    "explain": "str(ad.explain(batch))",
    "buffers": "memoryview(tensor)",
    "a matrix": "ad.to_tensor(numbers, dtype='float32')",
    "a matrix in column order": "ad.to_tensor(numbers, order='F')",
    "a matrix into out": "ad.to_tensor(numbers, out=out)",
    "groups": "ad.to_tensors(numbers, columns={'a': ['x', 'n'], 'b': 'n'})",
    "matrices to batches": "ad.to_arrow(out, names=['x', 'n'])",
    "the validity of a matrix": "ad.validity(numbers)",
    "ragged rows": "ad.to_ragged(lists)",
    "padded rows": "ad.to_ragged(lists, pad=(0, None), dtype='float32')",
    "strings": "pa.array(ad.to_ragged(words))",
    "codes": "pa.array(ad.to_arrow(ad.to_tensor(codes)))",
    "values of a dictionary": "ad.to_tensor(lookup, dictionary='values')",
    "decimals": "ad.to_tensor(decimals, dtype='float64')",
    "runs": "ad.to_tensor(runs)",
    "a loader": "list(ad.Loader(numbers, batch_size=1, prefetch=0))",
    "a thread of a loader": "list(ad.Loader(numbers, batch_size=2))",
    "an iterator": "ad.to_tensor(iter([numbers]))",
    "a stream": "ad.to_tensor(ad.from_arrow(table))",
    "pickles": "pickle.loads(pickle.dumps(tensor))",
    "a log of copies": "logged()",
    "a page of a notebook": "ad.explain(batch)._repr_html_()",
    "wrong options": "wrong_options()",
    "refusals": "refuse()",
    "refused capsules": "refuse_capsule()",
}
ROUNDS = 20_000
# 26 bytes a call: less than the smallest header, and what the interpreter's own memory was seen to vary by.
LIMIT = 1 << 19

MEASURE = """
import os, pickle, sys
sys.path.insert(0, {here!r})
import arrow_dlpack as ad, numpy as np, pyarrow as pa
from arrow_dlpack import _native
column, bits, array = pa.array([1, 2, 3]), pa.array([True] * 50), np.arange(100)
valid = np.ones(100, bool)
batch = pa.record_batch({{"x": [1.5], "n": [2]}})
table, tensor, imported = pa.table(batch), ad.to_tensor(column), ad.from_arrow(column)
nulls, strided = pa.array([1, None]), np.arange(10)[::2]

numbers = pa.record_batch({{"x": [1.5, 2.5], "n": [2, 3]}})
out = np.empty((2, 2))
lists, words = pa.array([[1, 2], [], [3]]), pa.array(["a", "b" * 20], pa.string_view())
codes, lookup = words.cast(pa.string()).dictionary_encode(), pa.array([7, 8, 7]).dictionary_encode()
decimals = pa.array([1, 2]).cast(pa.decimal128(20, 1))
runs = pa.RunEndEncodedArray.from_arrays([2, 3], [1.5, 2.5])

def logged():
    with ad.track_copies() as log:
        ad.to_tensor(column, copy=True)
    return str(log)

def wrong_options():
    for keywords in ({{"columns": ["z"]}}, {{"out": out[:, :1]}}, {{"device": "nonsense"}}, {{"dtype": "complex64"}}):
        try:
            ad.to_tensor(ad.from_arrow(table), **keywords)
        except ValueError:
            continue
        raise AssertionError(keywords)

def refuse():
    for call in (lambda: ad.to_tensor(nulls), lambda: ad.to_arrow(strided, copy=False), lambda: ad.to_tensor(3)):
        try:
            call()
        except (ad.ConversionError, TypeError):
            continue

class Consumed:
    def __dlpack__(self, **_):
        return used

used = tensor.__dlpack__(max_version=(1, 0))
ad.from_dlpack(Consumed())

def refuse_capsule():
    try:
        ad.from_dlpack(Consumed())
    except ValueError:
        pass

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def work(rounds):
    for _ in range(rounds):
        {work}

import gc
_native._host_memory()
work({rounds} // 10)
gc.collect()
own, before = _native._host_memory(), resident()
work({rounds})
gc.collect()
print(resident() - before, _native._host_memory() - own)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("case", WORK)
def test_stays_where_it_is(case: str):
    resident, own = grown(WORK[case], ROUNDS)
    assert resident < LIMIT
    assert own <= 0, "memory of this package that outlives the calls"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_quarter_of_a_million_views():
    resident, own = grown("np.from_dlpack(ad.to_tensor(column))", 250_000)
    assert resident < 1 << 20
    assert own <= 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_measurement_finds_a_leak():
    # 100 bytes each: what a lost header block would be.
    assert grown("kept.append(bytes(100))", ROUNDS, "kept = []") > (1 << 20, 0)
    # One tensor, of whatever size.
    assert grown("kept[:] = [*kept, ad.to_tensor(column)][:20]", 200, "kept = []")[1] == 0
    assert grown("kept.append(ad.to_tensor(column))", 1, "kept = []")[1] > 0


def grown(work: str, rounds: int, setup: str = "") -> tuple[int, int]:
    """By how many bytes resident memory, and this package's own, grows over so many rounds, after a warm-up."""
    code = MEASURE.format(here=str(Path(__file__).parent), work=work, rounds=rounds)
    command = [sys.executable, "-c", setup + "\n" + code]
    # One arena, so that the allocator's own growth by thread does not count.
    environment = {"MALLOC_ARENA_MAX": "1", "PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    resident, own = map(int, result.stdout.split())
    return resident, own
