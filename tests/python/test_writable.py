"""`writable=`: what may be written to, and the warning where a library writes through a read-only view."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from support import address, flags

COLUMN = pa.array([1.0, 2.0, 3.0])
BATCH = pa.record_batch({"a": COLUMN, "b": pa.array([4.0, 5.0, 6.0])})
CHUNKS = pa.chunked_array([[1.0], [2.0, 3.0]])
LISTS = pa.array([[1, 2], [3]])

# How each function is called, and the arrays that it makes.
MADE: dict[str, Callable[..., list[Any]]] = {
    "a view": lambda **keywords: [ad.to_tensor(COLUMN, **keywords)],
    "chunks": lambda **keywords: [ad.to_tensor(CHUNKS, **keywords)],
    "a cast": lambda **keywords: [ad.to_tensor(COLUMN, dtype="float32", **keywords)],
    "nothing": lambda **keywords: [ad.to_tensor(COLUMN[:0], **keywords)],
    "a matrix": lambda **keywords: [ad.to_tensor(BATCH, **keywords)],
    "a view of a matrix": lambda **keywords: [ad.to_tensor(BATCH.select(["a"]), order="F", **keywords)],
    "columns": lambda **keywords: [*ad.to_tensors(BATCH, **keywords).values()],
    "groups": lambda **keywords: [*ad.to_tensors(BATCH, columns={"x": ["a", "b"], "y": "a"}, **keywords).values()],
    "a tensor of NumPy": lambda **keywords: [ad.to_tensor(np.arange(3.0), **keywords)],
    "rows": lambda **keywords: parts(ad.to_ragged(LISTS, **keywords)),
    "rows of rows": lambda **keywords: parts(ad.to_ragged(pa.array([[[1], [2]], []]), **keywords)),
    "padded rows": lambda **keywords: [*ad.to_ragged(LISTS, pad=(0, 3), **keywords)],
}


def parts(ragged: ad.Ragged[Any]) -> list[Any]:
    values = parts(ragged.values) if isinstance(ragged.values, ad.Ragged) else [ragged.values]
    return [*values, ragged.offsets]


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
class TestWhatMayBeWritten:
    def test_true_is_memory_of_its_own(self, made: Callable[..., list[Any]]):
        for tensor in made(writable=True):
            assert tensor.writable
            assert not flags(tensor) & producers.READ_ONLY
        for array in made(writable=True, xp=np):
            array[...] = 7
        assert (COLUMN.to_pylist(), LISTS.to_pylist()) == ([1, 2, 3], [[1, 2], [3]])

    def test_false_is_read_only_copies_too(self, made: Callable[..., list[Any]]):
        for tensor in made(writable=False):
            assert not tensor.writable
            assert flags(tensor) & producers.READ_ONLY
            assert memoryview(tensor).readonly
        # Of no elements NumPy makes an array of its own.
        assert not any(array.flags.writeable for array in made(writable=False, xp=np) if array.size)

    def test_none_is_the_default(self, made: Callable[..., list[Any]]):
        assert [tensor.writable for tensor in made(writable=None)] == [tensor.writable for tensor in made()]
        for tensor in made():
            assert tensor.writable == (tensor.copied or tensor.size == 0)


def test_false_asks_for_no_copy():
    with ad.track_copies() as log:
        tensor = ad.to_tensor(COLUMN, writable=False, copy=False)
        ad.to_tensor(BATCH.select(["a"]), order="F", writable=False, copy=False)
    assert len(log) == 0
    assert address(tensor) == COLUMN.buffers()[1].address
    # A copy of one pass, and no other for the flag.
    with ad.track_copies() as log:
        ad.to_tensor(CHUNKS, writable=False)
    assert log.bytes == 24


def test_true_is_an_error_where_no_copy_is_allowed():
    for convert, source in ((ad.to_tensor, COLUMN), (ad.to_tensors, BATCH), (ad.to_ragged, LISTS)):
        with pytest.raises(ad.CopyError, match="a copy of"):
            convert(source, writable=True, copy=False)


def test_explain_takes_all_three():
    for writable in (None, False):
        assert [row.view for row in ad.explain(BATCH, writable=writable)] == [True, True]
    assert [row.view for row in ad.explain(BATCH, writable=True)] == [False, False]


def test_what_is_read_only_goes_back_to_arrow():
    for tensor in (ad.to_tensor(CHUNKS, writable=False), ad.to_tensor(COLUMN, dtype="float32", writable=False)):
        assert pa.array(ad.to_arrow(tensor)).to_pylist() == [1, 2, 3]
    words = pa.chunked_array([["a"], ["bc"]])
    assert pa.array(ad.to_ragged(words, writable=False)).to_pylist() == ["a", "bc"]


def script(body: str, *options: str) -> list[str]:
    """The lines that a fresh process prints: the warning comes once in each."""
    imports = "import warnings, torch, numpy as np, pyarrow as pa, arrow_dlpack as ad"
    code = f"{imports}\nCOLUMN = pa.array([1.0, 2.0, 3.0])\n{body}"
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


COUNTED = """
def count(make):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make()
    return [warning for warning in found if warning.category is ad.ReadOnlyViewWarning]
"""


@pytest.mark.usefixtures("torch")
class TestWarning:
    def test_it_is_one_for_a_process_and_says_what_to_pass(self):
        body = """
found = count(lambda: ad.to_tensor(COLUMN, xp=torch))
print(len(found), found[0].filename)
print(found[0].message)
many = [lambda: ad.to_tensor(COLUMN, xp="torch"), lambda: ad.to_ragged(pa.array([[1]]), xp=torch)]
print(sum(len(count(make)) for make in many))
"""
        first, message, later = script(COUNTED + body)
        assert first.split() == ["1", "<string>"]
        assert later == "0"
        for part in ("torch", "writable=True", "writable=False", "view"):
            assert part in message

    def test_views_that_torch_could_write_to(self):
        calls = [
            "ad.to_tensor(COLUMN, xp=torch)",
            "ad.to_tensor(COLUMN, xp='torch', copy=False)",
            "ad.to_tensors(pa.record_batch({'x': COLUMN}), xp=torch)",
            "ad.to_tensors(pa.record_batch({'x': COLUMN}), columns={'g': 'x'}, xp=torch)",
            "ad.to_tensor(pa.record_batch({'x': COLUMN}), order='F', xp=torch)",
            "ad.to_ragged(pa.array([[1]]), xp=torch)",
            "ad.to_tensor(pa.table({'x': COLUMN}), order='F', xp=torch)",
            "ad.to_tensor(np.arange(3.0), xp=torch)",
            "ad.to_tensor(COLUMN, xp=type('Namespace', (), {'from_dlpack': torch.from_dlpack}))",
        ]
        body = f"""
import os
for call in {calls!r}:
    # A process for each, which has warned of nothing.
    child = os.fork()
    if not child:
        print(len(count(lambda: eval(call))), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
        assert script(COUNTED + body) == ["1"] * len(calls)

    def test_what_needs_none(self):
        calls = [
            "ad.to_tensor(COLUMN, xp=np)",
            "ad.to_tensor(COLUMN, xp=torch, writable=True)",
            "ad.to_tensor(COLUMN, xp=torch, writable=False)",
            "ad.to_tensor(COLUMN, xp=torch, copy=True)",
            "ad.to_tensor(COLUMN, xp=torch, dtype='float32')",
            "ad.to_tensor(COLUMN[:0], xp=torch)",
            "ad.to_tensor(pa.chunked_array([COLUMN, COLUMN]), xp=torch)",
            "ad.to_tensor(pa.array([1, None]), nulls=0, xp=torch)",
            "ad.to_tensor(COLUMN)",
            "torch.from_dlpack(ad.to_tensor(COLUMN))",
            "ad.validity(COLUMN, xp=torch)",
            "list(ad.Loader(pa.table({'x': COLUMN}), batch_size=2, xp=torch))",
            "ad.to_ragged(pa.array([[1]]), xp=torch, pad=(0, 2))",
            "ad.to_ragged(pa.array([[1]]), xp=torch, writable=True)",
        ]
        body = "\n".join(f"print(len(count(lambda: {call})))" for call in calls)
        # The next view is warned about: none of these was.
        last = "print(len(count(lambda: ad.to_tensor(COLUMN, xp=torch))))"
        assert script(f"{COUNTED}\n{body}\n{last}") == [*["0"] * len(calls), "1"]

    def test_the_line_is_the_callers(self):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            ad.to_tensor(COLUMN, xp="torch")
        # Another test of this process may have had it.
        assert all(warning.filename == __file__ for warning in found)

    def test_as_an_error_it_is_raised_at_each_view_and_nothing_is_kept(self):
        body = """
def refused(make):
    try:
        make()
    except ad.ReadOnlyViewWarning:
        return True
    return False

before = pa.total_allocated_bytes()
column = pa.array(np.arange(1000.0)).take(pa.array(np.arange(1000)))
made = pa.total_allocated_bytes()
reader = pa.table({"x": column}).to_reader()
print(refused(lambda: ad.to_tensor(column, xp=torch)), refused(lambda: ad.to_tensor(column, xp=torch)))
print(refused(lambda: ad.to_tensors(reader, xp=torch)), refused(lambda: ad.to_ragged(pa.array([[1]]), xp=torch)))
print(ad.to_tensor(column, xp=torch, writable=False).shape, ad.to_tensor(column, xp=torch, writable=True).shape)
# Under copy=False a stream can be nothing but a view: known before it is read.
stream = ad.from_arrow(pa.table({"x": column}))
print(refused(lambda: ad.to_tensor(stream, order="F", copy=False, xp=torch)))
print(refused(lambda: ad.to_tensors(stream, copy=False, xp=torch)), pa.table(stream).num_rows)
del reader, stream
import gc; gc.collect()
print(pa.total_allocated_bytes() == made)
del column; gc.collect()
print(pa.total_allocated_bytes() == before)
"""
        expected = [
            "True True",
            "True True",
            "torch.Size([1000]) torch.Size([1000])",
            "True",
            "True 1000",
            "True",
            "True",
        ]
        assert script(body, "-W", "error") == expected

    def test_a_warning_that_is_ignored_is_the_only_one(self):
        body = """
warnings.simplefilter("ignore")
ad.to_tensor(COLUMN, xp=torch)
print(len(count(lambda: ad.to_tensor(COLUMN, xp=torch))))
"""
        assert script(COUNTED + body) == ["0"]

    def test_it_can_be_filtered_by_its_class(self):
        assert issubclass(ad.ReadOnlyViewWarning, UserWarning)
        assert (ad.ReadOnlyViewWarning.__module__, ad.ReadOnlyViewWarning.__doc__ is None) == ("arrow_dlpack", False)
        # `-W` takes no class of an installed package: it is read before the interpreter knows where packages are.
        body = """
warnings.simplefilter("ignore", ad.ReadOnlyViewWarning)
print(ad.to_tensor(COLUMN, xp=torch).shape)
"""
        assert script(body, "-W", "error") == ["torch.Size([3])"]


@pytest.mark.usefixtures("torch")
def test_threads_warn_once_together():
    body = """
import threading
start = threading.Barrier(8)
def make():
    start.wait()
    ad.to_tensor(COLUMN, xp=torch)
def all_of_them():
    threads = [threading.Thread(target=make) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print(len(count(all_of_them)))
"""
    assert script(COUNTED + body) == ["1"]
