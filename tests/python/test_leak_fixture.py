"""The fixture that looks for leaks finds one."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from loader_reference import LOADER, forget_threads, loader_threads

HERE = Path(__file__).parent

LEAKS = """
import types

import arrow_dlpack as ad
import leaks
import numpy as np
import producers
import pyarrow as pa
import pytest

# Each leak takes this long to be one.
leaks.PATIENCE = 1.0
kept, libraries = [], []

def test_memory():
    kept.append(ad.to_tensor(pa.array(range(1000))))

def test_own_memory():
    kept.append(ad.to_tensor(pa.array([True])))

def test_a_view_of_numpy():
    kept.append(ad.from_dlpack(np.ones(1)))

def test_an_array_of_numpy():
    kept.append(np.ones(1))

def test_never_released():
    kept.append(ad.from_dlpack(producers.dlpack()[1]))

def test_released_twice():
    producer, tensor = producers.dlpack()
    ad.from_dlpack(tensor)
    producers._delete(producers.ctypes.addressof(producer.managed))

def test_child_never_released():
    schema = producers.Schema(b"+s", children=[producers.Schema(b"i")])
    kept.append(schema.capsule())

def test_clean():
    ad.from_dlpack(producers.dlpack()[1])
    ad.to_tensor(pa.array(range(1000)))

def fail():
    raise OSError("no more rows")
    yield

def test_what_is_kept_by_design():
    # The last matrix's spec, the last fields and names, the block of a large result, and the message of a failed call.
    table = pa.table({"a": range(1_000_000), "b": range(1_000_000)})
    ad.to_tensor(table), ad.to_tensors(table.to_batches()[0])
    rows = pa.RecordBatchReader.from_stream(ad.from_arrow(pa.RecordBatchReader.from_batches(table.schema, fail())))
    with pytest.raises(OSError):
        rows.read_all()
    # Iterations that have ended.
    loader = ad.Loader(table, batch_size=500_000)
    list(zip(loader, loader))
    # The functions of libraries.
    for name in "abcde":
        libraries.append(types.ModuleType(name))
        libraries[-1].from_dlpack = lambda tensor: np.from_dlpack(tensor)
        ad.to_tensor(table["a"], xp=libraries[-1])
"""


def test_leaks_are_found(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    pytester.makeconftest((HERE / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(LEAKS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    # A leak shows when the fixture is torn down, after the test itself has passed.
    result.assert_outcomes(passed=9, errors=7)
    result.stdout.fnmatch_lines(
        [
            "*the test left *bytes of this package's memory behind; *bytes of pyarrow's memory behind*",
            "*the test left * bytes of this package's memory behind*",
            "*the test left * bytes of this package's memory behind; the test left 8 bytes of NumPy's memory behind*",
            "*Error: the test left 8 bytes of NumPy's memory behind*",
            "*a DLPack tensor was released 0 times, not 1*",
            "*a DLPack tensor was released 2 times, not 1*",
            "*an ArrowSchema b'+s' was released 0 times, not 1*",
        ]
    )


@contextmanager
def named_as_a_loader() -> Iterator[None]:
    """A thread with the name of a loader's: what a library's pool starts while a thread of a loader calls it."""
    named, end = threading.Event(), threading.Event()

    def run() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(LOADER)
        named.set()
        end.wait()

    thread = threading.Thread(target=run)
    thread.start()
    named.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="the names of threads are files on Linux alone")
def test_threads_that_were_there_before_are_not_the_tests_own():
    with named_as_a_loader():
        assert loader_threads(patience=0) == 1
        forget_threads()
        assert loader_threads() == 0
        with named_as_a_loader():
            assert loader_threads(patience=0) == 1
    assert loader_threads() == 0
