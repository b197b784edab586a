"""Batches of `Loader(device=, allocator=)`: memory of the allocator, asked on the thread that makes them."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import pytest
from arrow_dlpack import _native
from device_batches import Consumer, table
from test_allocators import Resource, address_of

PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])
KEYWORDS: dict[str, Any] = {"columns": ["row"], "batch_size": 16}
BATCH = 16 * 8


class Watched(Resource):
    """Notes the threads that ask."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def allocate(self, nbytes: int, stream: Any) -> int:
        self.threads.add(threading.get_ident())
        return super().allocate(nbytes, stream)


@PREFETCH
def test_batches_are_its_memory(prefetch: int, host_waits: Any) -> None:
    resource, consumer, waits = Watched(), Consumer(), host_waits()
    loader = ad.Loader(table(40, 7), device="cuda", prefetch=prefetch, allocator=resource, **KEYWORDS)
    rows, held = [], []
    for batch in loader:
        assert address_of(batch) in resource.memory
        held.append(batch)
        rows.append(consumer.read(batch)[:, 0])
    assert np.array_equal(np.concatenate(rows), np.arange(40))
    assert list(resource.memory.values()) == [BATCH, BATCH, BATCH // 2]
    # The copies are on the loader's own stream, and so is the memory.
    assert len(set(resource.streams)) == 1
    assert driver.LEGACY not in resource.streams
    assert resource.threads.isdisjoint({threading.get_ident()}) == bool(prefetch)
    assert waits.ours == 0
    assert ad.memory_stats()["cuda:0"]["pool_used"] == 0
    del batch, held
    gc.collect()
    driver.settle()
    assert _native.collect() == 0
    assert (len(resource.given_back), resource.memory) == (3, {})


@PREFETCH
def test_of_cumemalloc(prefetch: int) -> None:
    batches = list(ad.Loader(table(32, 7), device="cuda", prefetch=prefetch, allocator="cuMemAlloc", **KEYWORDS))
    statistics = ad.memory_stats()["cuda:0"]
    assert statistics["unpooled_used"] >= 2 * BATCH
    assert statistics["pool_used"] == 0
    assert len(batches) == 2


@PREFETCH
def test_what_it_raises_is_told_at_its_batch(prefetch: int) -> None:
    class Refusing(Resource):
        def allocate(self, nbytes: int, stream: Any) -> int:
            if len(self.streams) == 1:
                raise RuntimeError("no more of it")
            return super().allocate(nbytes, stream)

    resource, consumer = Refusing(), Consumer()
    iterator = iter(ad.Loader(table(48, 7), device="cuda", prefetch=prefetch, allocator=resource, **KEYWORDS))
    assert np.array_equal(consumer.read(next(iterator))[:, 0], np.arange(16))
    with pytest.raises(BufferError, match="no more of it"):
        next(iterator)
    assert next(iterator, None) is None
    again = ad.Loader(table(48, 7), device="cuda", prefetch=prefetch, **KEYWORDS)
    assert np.array_equal(np.concatenate([consumer.read(batch)[:, 0] for batch in again]), np.arange(48))


def test_others_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="allocator"):
        ad.Loader(table(4, 4), device="cuda", allocator="malloc", **KEYWORDS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="allocator"):
        ad.Loader(table(4, 4), device="cuda", allocator=3, **KEYWORDS)  # type: ignore[arg-type]


def test_batches_of_the_host_do_not_ask_it() -> None:
    for device in ("cpu", "cuda_host"):
        resource = Resource()
        assert len(list(ad.Loader(table(32, 7), device=device, allocator=resource, **KEYWORDS))) == 2
        assert not resource.streams


def test_a_loader_that_its_allocator_refers_to_is_collected() -> None:
    resource: Any = Resource()
    resource.loader = ad.Loader(table(4, 4), device="cuda", allocator=resource, **KEYWORDS)
    gone = weakref.ref(resource)
    del resource
    gc.collect()
    assert gone() is None
