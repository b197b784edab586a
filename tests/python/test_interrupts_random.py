"""Ctrl-C at random moments while a call is made again and again: nothing swallows it, nothing is left behind, and the
same call works again. test_interrupts.py asks how soon a long call ends."""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import loader_threads
from support import numpy_of

# There, os.kill ends a process instead of sending it a signal.
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
ROWS = 60_000
# The most seconds after which Ctrl-C is pressed.
LATEST = 0.03
SEEDS = range(6)

TABLE = pa.table({"row": range(ROWS), "half": [None if row % 7 == 0 else row / 2 for row in range(ROWS)]})
LISTS = pa.array([[row] * (row % 5) for row in range(ROWS)])
WORDS = pa.array([f"word {row % 100}" for row in range(ROWS)])
CATEGORIES = [f"word {row}" for row in range(100)]
VIEWS = WORDS.cast(pa.string_view())
DICTIONARY = WORDS.dictionary_encode()
NUMBERS = pa.DictionaryArray.from_arrays(pa.array([row % 100 for row in range(ROWS)], pa.int32()), pa.array(range(100)))
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array(range(2, ROWS + 1, 2), pa.int32()), pa.array(range(ROWS // 2)))
PAIRS = pa.array([[row, row] for row in reversed(range(ROWS))]).slice(1)
MATRIX = np.ones((ROWS, 4))


def reader() -> pa.RecordBatchReader:
    def generate() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches(max_chunksize=500)

    return pa.RecordBatchReader.from_batches(TABLE.schema, generate())


def total(batches: Any) -> float:
    return float(sum(numpy_of(batch)[:, 0].sum() for batch in batches))


def as_decimals(array: pa.Array) -> pa.Array:
    class Requesting:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return ad.from_arrow(array).__arrow_c_array__(pa.decimal128(20, 1).__arrow_c_schema__())

    return pa.array(Requesting())


def resumed() -> ad.Loader:
    loader = ad.Loader(reader, batch_size=512, nulls=0, prefetch=0)
    loader.load_state_dict(STATE)
    return loader


def state() -> dict[str, Any]:
    loader = ad.Loader(reader, batch_size=512, nulls=0, prefetch=0)
    for number, _ in enumerate(loader):
        if number == 100:
            break
    return loader.state_dict()


STATE = state()


def fingerprint() -> float:
    loader = ad.Loader(reader, batch_size=512, nulls=0, prefetch=2)
    next(iter(loader))
    return float(len(loader.fingerprint()["hashes"]))


# What each call returns is compared with what it returned undisturbed.
CALLS: dict[str, Callable[[], float]] = {
    "a matrix": lambda: float(numpy_of(ad.to_tensor(TABLE, nulls=0, dtype="float32")).sum()),
    "a matrix of a stream": lambda: float(numpy_of(ad.to_tensor(reader(), nulls=0)).sum()),
    "columns of a stream": lambda: float(numpy_of(ad.to_tensors(reader(), nulls=0)["row"]).sum()),
    "padded rows": lambda: float(numpy_of(ad.to_ragged(LISTS, pad=(0, None))[0]).sum()),
    "values and offsets": lambda: float(numpy_of(ad.to_ragged(pa.chunked_array([LISTS, LISTS])).values).sum()),
    "codes": lambda: float(numpy_of(ad.to_tensor(WORDS, categories=CATEGORIES)).sum()),
    "a copied stream": lambda: float(sum(len(batch) for batch in ad.from_arrow(reader(), copy=True))),
    "a batch of a matrix": lambda: float(len(pa.record_batch(ad.to_arrow(np.ones((ROWS, 2)), names=["x", "y"])))),
    "a loader without a thread": lambda: total(ad.Loader(reader(), batch_size=512, nulls=0, prefetch=0)),
    "a loader": lambda: total(ad.Loader(reader(), batch_size=512, nulls=0, prefetch=2)),
    "a loader that shuffles": lambda: total(
        ad.Loader(TABLE, batch_size=512, nulls=0, shuffle_buffer=5000, seed=1, prefetch=2)
    ),
    "values and offsets of views": lambda: float(numpy_of(ad.to_ragged(VIEWS).values).sum()),
    "padded views": lambda: float(numpy_of(ad.to_ragged(VIEWS, pad=(0, None))[0]).sum()),
    "rows to lists": lambda: float(len(pa.array(ad.to_arrow(ad.to_ragged(LISTS), copy=True)))),
    "codes of a dictionary": lambda: float(numpy_of(ad.to_tensor(DICTIONARY, categories=CATEGORIES)).sum()),
    "values of a dictionary": lambda: float(numpy_of(ad.to_tensor(NUMBERS, dictionary="values")).sum()),
    "values of runs": lambda: float(numpy_of(ad.to_tensor(RUNS)).sum()),
    "lists of one length": lambda: float(numpy_of(ad.to_tensor(PAIRS, length=2)).sum()),
    "validity": lambda: float(numpy_of(ad.validity(TABLE["half"])).sum()),
    "out": lambda: float(ad.to_tensor(TABLE, nulls=0, out=np.empty((ROWS, 2))).sum()),
    "strided out": lambda: float(ad.to_tensor(TABLE["half"], nulls=0, out=np.empty((ROWS, 2))[:, 0]).sum()),
    "a strided tensor": lambda: float(len(pa.array(ad.to_arrow(MATRIX[:, ::2])))),
    "a copied array": lambda: float(len(pa.array(ad.from_arrow(WORDS, copy=True)))),
    "a requested type": lambda: float(len(as_decimals(TABLE["row"].combine_chunks()))),
    "a pickled array": lambda: float(len(pa.array(pickle.loads(pickle.dumps(ad.from_arrow(WORDS)))))),
    "a vocabulary": lambda: float(len(pa.array(ad.categories(pa.table({"a": WORDS}), "a")))),
    "a loader of shards": lambda: total(
        ad.Loader(sources=[TABLE, TABLE], batch_size=512, nulls=0, shuffle_shards=True, seed=1, prefetch=2)
    ),
    "a loader that resumes": lambda: total(resumed()),
    "the fingerprint of a loader": fingerprint,
    "statistics": lambda: float(ad.statistics(TABLE, {"half": "mean"})["half"]),
}


@pytest.fixture(autouse=True)
def _no_callbacks() -> Iterator[None]:
    """Python drops what a handler raises in a callback of its collector, such as Hypothesis leaves behind."""
    before = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = before


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c(call: str, seed: int):
    work, expected = CALLS[call], CALLS[call]()
    pressed = False

    def handler(*_: object) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    delay = random.Random(f"{call} {seed}").uniform(0, LATEST)
    press = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))

    def until_pressed() -> None:
        press.start()
        while not pressed:
            assert work() == expected
        pytest.fail("the interrupt was swallowed")

    try:
        with pytest.raises(KeyboardInterrupt):
            until_pressed()
    finally:
        press.join()
        signal.signal(signal.SIGINT, before)
    assert work() == expected
    assert loader_threads() == 0
