"""Sources that raise: who lets the exception go, and what their streams give after that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

BATCH = pa.record_batch({"x": [1.0, 2.0, 3.0]})

# Each runs below a call of this package: another library lets go of the interpreter, and reads and releases a stream.
NESTED = {
    "a producer": """
class Source:
    def __arrow_c_stream__(self, requested_schema=None):
        skip(iter([batch, Bad(), Bad(), Bad()]))
        return pa.table({"x": [1]}).__arrow_c_stream__()
print(ad.to_tensor(Source()).shape)
""",
    "a namespace": """
class Namespace:
    @staticmethod
    def from_dlpack(tensor):
        skip(iter([batch, Bad()]))
        return np.from_dlpack(tensor)
print(ad.to_tensor(pa.array([1.0]), xp=Namespace).shape)
""",
    "a thread of a loader": """
def source():
    yield from skip(iter([batch, Bad()]))
    yield batch
for prefetch in (0, 2):
    print([len(rows) for rows in ad.Loader(source, batch_size=2, prefetch=prefetch)])
""",
    "an allocator": """
import gc
class Resource:
    def allocate(self, nbytes, stream): raise MemoryError
    def deallocate(self, pointer, nbytes, stream): pass
class Source:
    def __arrow_c_stream__(self, requested_schema=None):
        stream = ad.from_arrow(iter([batch]), copy=True, allocator=Resource())
        reader = pa.RecordBatchReader.from_stream(stream)
        del stream
        gc.collect()
        reader.close()
        return pa.table({"x": [1]}).__arrow_c_stream__()
print(ad.to_tensor(Source()).shape)
""",
}
COMMON = """
import arrow_dlpack as ad, numpy as np, pyarrow as pa
batch = pa.record_batch({"x": [1, 2, 3]})
class Bad:
    def __arrow_c_array__(self, requested_schema=None): raise OSError("lost")
def skip(source):
    reader, read = pa.RecordBatchReader.from_stream(ad.from_arrow(source)), []
    for _ in range(5):
        try: read.append(reader.read_next_batch())
        except StopIteration: break
        except OSError: pass
    reader.close()
    return read
"""


@pytest.mark.parametrize("below", NESTED)
def test_an_exception_is_let_go_by_whoever_is_attached(below: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", COMMON + NESTED[below]],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def interrupted(at: int) -> Iterator[pa.RecordBatch]:
    for number in range(3):
        if number == at:
            raise KeyboardInterrupt
        yield BATCH


class Resumable:
    """An iterator that goes on after it raised."""

    def __init__(self) -> None:
        self.calls = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> pa.RecordBatch:
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        if self.calls > 5:
            raise StopIteration
        return BATCH


def test_a_generator_that_was_interrupted_is_no_end() -> None:
    stream = ad.from_arrow(interrupted(2))
    with pytest.raises(KeyboardInterrupt):
        ad.to_tensor(stream)
    with pytest.raises(ad.ConversionError, match="the iterator raised an exception before, and ended with that"):
        ad.to_tensor(stream)
    one_by_one = ad.from_arrow(interrupted(1))
    next(one_by_one)
    with pytest.raises(KeyboardInterrupt):
        next(one_by_one)
    with pytest.raises(ad.ConversionError, match="items may be missing"):
        next(one_by_one)


def test_an_iterator_that_goes_on_after_an_interrupt_is_read_on() -> None:
    source = Resumable()
    stream = ad.from_arrow(source)
    with pytest.raises(KeyboardInterrupt):
        ad.to_tensor(stream)
    assert np.asarray(ad.to_tensor(stream)).shape == (6, 1)
    assert source.calls == 6


class OneReader:
    """What gives its reader each time, and an array never."""

    def __init__(self) -> None:
        self.reader = pa.table({"x": [1, 2]}).to_reader()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader.__arrow_c_stream__(requested_schema)


class NoArray(OneReader):
    __arrow_c_array__ = None


class RefusesArray(OneReader):
    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        raise ValueError("several chunks")


@pytest.mark.parametrize("kind", [OneReader, NoArray, RefusesArray])
def test_a_reader_that_has_no_array_is_read_once(kind: type[OneReader]) -> None:
    loader = ad.Loader(kind(), batch_size=1)
    assert len(list(loader)) == 2
    with pytest.raises(ValueError, match="can be read once, and was"):
        list(loader)


def test_no_masked_array_is_written() -> None:
    data = pa.array([1.0, 2.0, 3.0])
    for dtype in ("float64", "float32", "complex128"):
        out = np.ma.masked_array(np.zeros(3, dtype), mask=[False, True, False])
        with pytest.raises(ad.NullError, match="1 masked value"):
            ad.to_tensor(data, out=out)
        assert np.all(out.data == 0)
    unmasked = np.ma.masked_array(np.zeros(3), mask=False)
    ad.to_tensor(data, out=unmasked)
    assert unmasked.tolist() == [1.0, 2.0, 3.0]


class HostStream:
    """A table whose dunder for devices is not implemented."""

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **_: Any) -> Any:
        raise NotImplementedError("no devices")

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return pa.table({"x": [1, 2]}).__arrow_c_stream__(requested_schema)


class NoStream(HostStream):
    __arrow_c_stream__ = None


def test_a_stream_dunder_for_devices_that_is_not_implemented_leaves_the_one_for_the_host() -> None:
    assert np.asarray(ad.to_tensor(HostStream())).tolist() == [[1], [2]]
    assert [len(batch) for batch in ad.Loader(HostStream(), batch_size=1)] == [1, 1]
    with pytest.raises(NotImplementedError, match="no devices"):
        ad.to_tensor(NoStream())


@pytest.mark.parametrize("kind", [AttributeError, TypeError])
@pytest.mark.parametrize("dunder", ["__arrow_c_array__", "__arrow_c_stream__", "__arrow_c_schema__"])
def test_what_the_first_call_raised_is_raised(dunder: str, kind: type[Exception]):
    class Source:
        is_called = False

        def __getattr__(self, name: str) -> Any:
            if name != dunder:
                raise AttributeError(name)
            if self.is_called:
                raise RuntimeError("asked again")

            def call(*_: Any) -> None:
                self.is_called = True
                raise kind("what is wrong")

            return call

    work = ad.explain if dunder == "__arrow_c_schema__" else ad.to_tensor
    with pytest.raises(kind, match="what is wrong"):
        work(Source())
