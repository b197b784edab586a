"""`track_copies`: every copy made inside, with what, why and how many bytes; on this thread alone."""

import threading

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest

BITS = pa.array([True] * 10)

# What copies, and how many bytes.
COPIES = {
    "unpacking": (lambda: ad.to_tensor(BITS), 10),
    "a cast": (lambda: ad.to_tensor(BITS, dtype="float32"), 40),
    "filling": (lambda: ad.to_tensor(pa.array([1, None, 3]), nulls=0), 24),
    "chunks": (lambda: ad.to_tensor(pa.chunked_array([[1], [2]])), 16),
    "private memory": (lambda: ad.to_tensor(pa.array([1, 2]), writable=True), 16),
    "copy=True": (lambda: ad.from_dlpack(np.arange(3), copy=True), 24),
    "gathering": (lambda: ad.to_arrow(np.arange(10)[::2]), 40),
    "packing": (lambda: ad.to_arrow(np.arange(10), validity=np.ones(10, bool)), 2),
    "validity": (lambda: ad.validity(pa.array([1, None])), 2),
    "validity of columns": (lambda: ad.validity(pa.record_batch({"a": [1, None], "b": ["x", "y"]})), 4),
    "a legacy capsule": (lambda: ad.to_tensor(pa.array([1, 2])).__dlpack__(), 16),
    "a copy for a consumer": (lambda: ad.from_dlpack(np.arange(3)).__dlpack__(copy=True), 24),
    "realigning": (lambda: ad.from_dlpack(producers.dlpack(misaligned_by=1)[1]), 24),
    "several columns": (lambda: ad.to_tensors(pa.record_batch({"a": BITS, "b": BITS, "c": range(10)})), 20),
}
VIEWS = {
    "a view": lambda: ad.to_tensor(pa.array([1, 2])),
    "a tensor": lambda: ad.from_dlpack(np.arange(3)),
    "a versioned capsule": lambda: ad.to_tensor(pa.array([1, 2])).__dlpack__(max_version=(1, 0)),
    "an array": lambda: pa.array(ad.to_arrow(np.arange(6).reshape(3, 2))),
    "a stream": lambda: pa.table(ad.from_arrow(pa.table({"a": [1]}))),
    "bits that pass through": lambda: pa.array(ad.from_arrow(BITS)),
    "nothing": lambda: ad.to_tensor(pa.array([], pa.bool_())),
    "a buffer": lambda: memoryview(ad.to_tensor(pa.array([1, 2]))),
    "a refusal": lambda: refuse(pa.array([1, None])),
}


def refuse(source: pa.Array) -> None:
    with pytest.raises(ad.NullError):
        ad.to_tensor(source)


@pytest.mark.parametrize("case", COPIES)
def test_a_copy_is_recorded(case: str):
    work, expected = COPIES[case]
    with ad.track_copies() as log:
        work()
    assert log.bytes == expected
    assert sum(entry.bytes for entry in log) == expected
    assert all(entry.what and entry.why for entry in log.entries)
    assert len(log) == len(log.entries) > 0
    assert str(expected) in repr(log)
    assert len(str(log).splitlines()) == len(log)


@pytest.mark.parametrize("case", VIEWS)
def test_a_view_is_not(case: str):
    with ad.track_copies() as log:
        VIEWS[case]()
    assert (len(log), log.bytes, list(log)) == (0, 0, [])
    assert str(log) == "no copies"


def test_names_the_column_and_the_reason():
    with ad.track_copies() as log:
        ad.to_tensors(pa.record_batch({"flag": BITS}))
    (entry,) = log
    assert '"flag"' in entry.what
    assert "Boolean" in entry.what
    assert entry.why == "bits unpacked to bytes"
    assert "CopyEntry" in repr(entry)


def test_only_inside_the_block():
    log = ad.track_copies()
    ad.to_tensor(BITS)
    with log:
        pass
    ad.to_tensor(BITS)
    assert len(log) == 0
    with log:
        ad.to_tensor(BITS)
    with log:
        ad.to_tensor(BITS)
    assert len(log) == 2


def test_blocks_nest():
    with ad.track_copies() as outer:
        ad.to_tensor(BITS)
        with ad.track_copies() as inner:
            ad.to_tensor(BITS)
        ad.to_tensor(BITS)
    assert (len(outer), len(inner)) == (3, 1)


def test_the_block_ends_with_an_exception():
    with pytest.raises(KeyError), ad.track_copies() as log:
        raise KeyError
    ad.to_tensor(BITS)
    assert len(log) == 0


def test_other_threads_are_not_recorded():
    with ad.track_copies() as log:
        thread = threading.Thread(target=ad.to_tensor, args=(BITS,))
        thread.start()
        thread.join()
    assert len(log) == 0


def test_large_copies_without_the_interpreter_are_recorded():
    with ad.track_copies() as log:
        ad.to_tensor(pa.array([True] * 100_000))
    assert log.bytes == 100_000
