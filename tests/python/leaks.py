"""What a test has left behind: memory of this package, NumPy and pyarrow, and producers not released exactly once."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
import tracemalloc

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
from arrow_dlpack import _native
from free_threading import is_missing

# Seconds: threads of a reader or a loader may let go a moment after the last batch.
PATIENCE = 10.0


def warm_up() -> None:
    """Has this package and its dependencies make what they make once in a process, and keep."""
    table = pa.table({"x": [1, 2]})
    # The seeds of hash tables, made for the first dictionary of strings.
    ad.to_arrow(ad.to_ragged(pa.array(["a"])), type=pa.dictionary(pa.int8(), pa.string()))
    # The stack of a thread's allocators, made for the first copy of a stream.
    list(ad.from_arrow(table, copy=True))
    # The list of a thread's streams.
    with ad.stream(1):
        pass
    with ad.track_copies():
        ad.to_tensor(table["x"], copy=True)
    ad.to_tensor(table["x"], xp=np)
    with contextlib.suppress(ValueError):
        ad.to_tensor(ad.from_arrow(table), columns=["y"])
    list(ad.Loader(pa.table(ad.from_arrow(table)), batch_size=1))


def _settle() -> None:
    """Lets threads that have just let go of the interpreter free their state, before this one forks.

    They do so under a lock of tracemalloc, which a child would wait for for ever: CPython 3.11 does not renew it.
    """
    settled = time.perf_counter() + 0.002
    while tracemalloc.is_tracing() and time.perf_counter() < settled:
        # Without a pause, in which other threads would have the interpreter again.
        pass


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_settle)


class Watch:
    """What is in use when it is made; of memory only pyarrow's where asked for."""

    def __init__(self, *, of_pyarrow_alone: bool = False) -> None:
        self.of_pyarrow_alone = of_pyarrow_alone
        self.pyarrow = pa.total_allocated_bytes()
        if of_pyarrow_alone:
            return
        self.own = _native._host_memory()
        # NumPy tells it of the data of arrays. What came before is forgotten. Tracing is never stopped: before 3.12.9,
        # CPython ends with a fault if another thread is about to attach meanwhile (python/cpython#128679).
        tracemalloc.start()
        tracemalloc.clear_traces()

    def left(self) -> list[str]:
        """What is left of what came after, in words."""
        gc.collect()
        deadline = time.monotonic() + PATIENCE
        while (found := self._found()) and time.monotonic() < deadline:
            time.sleep(0.001)
        return [*producers.wrongly_released(), *found]

    def stop(self) -> None:
        """Ends the watch."""
        producers.forget_all()
        # What is alive now outlives the tests: the collections to come need not look through it.
        gc.freeze()

    def _found(self) -> list[str]:
        # References that polars could not drop while it was not attached wait for its next call.
        if (polars := sys.modules.get("polars")) and not is_missing("polars"):
            polars.Series([0]).len()
        pyarrow = {"pyarrow's": pa.total_allocated_bytes() - self.pyarrow}
        own = {} if self.of_pyarrow_alone else self._own()
        found = {**own, **pyarrow}
        return [f"the test left {size} bytes of {whose} memory behind" for whose, size in found.items() if size > 0]

    def _own(self) -> dict[str, int]:
        # pandas keeps arrays in frames, which may be older than the test.
        filters = [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain), tracemalloc.Filter(False, "*/pandas/*")]
        arrays = tracemalloc.take_snapshot().filter_traces(filters)
        return {
            "this package's": _native._host_memory() - self.own,
            "NumPy's": sum(trace.size for trace in arrays.traces),
        }
