"""A loop as training is one, on a stream of its own: it computes on each batch, keeps some, and none is overwritten."""

from __future__ import annotations

import random
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pytest
from arrow_dlpack import _native
from device_batches import table

ROWS, BATCH = 16_000, 64
BYTES = BATCH * 8


class Model:
    """What is computed of batches, on a stream that does not wait for the legacy default stream, without the host."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal, self.stream = ordinal, driver.Stream(ordinal)
        self.weights = driver.allocate(BYTES, ordinal)
        self.history: list[int] = []

    def step(self, batch: ad.Tensor) -> None:
        """Reads the batch, writes it as an update in place does, and keeps what came of it."""
        held = fakes.cupy(batch, self.stream.handle)
        batch.record_stream(self.stream)
        kept = driver.allocate(BYTES, self.ordinal)
        driver.copy(kept, held.address, BYTES, self.stream.handle, self.ordinal)
        driver.copy(self.weights, held.address, BYTES, self.stream.handle, self.ordinal)
        driver.copy(held.address, self.weights, BYTES, self.stream.handle, self.ordinal)
        self.history.append(kept)
        held.release()

    def close(self) -> bytes:
        """What was found, in the order of the steps."""
        self.stream.synchronize()
        found = [driver.read(kept, BYTES, self.stream.handle, self.ordinal) for kept in self.history]
        for address in [self.weights, *self.history]:
            driver.free(address, self.ordinal)
        return b"".join(found)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("ordinal", [0, 1])
def test_no_batch_is_overwritten(ordinal: int, prefetch: int, host_waits: Any) -> None:
    chance, waits, model = random.Random(prefetch), host_waits(), Model(ordinal)
    held: list[tuple[int, ad.Tensor]] = []
    loader = ad.Loader(
        table(ROWS, 999),
        columns=["row"],
        batch_size=BATCH,
        shuffle_buffer=500,
        seed=1,
        device=f"cuda:{ordinal}",
        prefetch=prefetch,
        threads=1,
    )
    for index, batch in enumerate(loader):
        model.step(batch)
        if chance.random() < 0.1:
            held.append((index, batch))
        if len(held) > 10 and chance.random() < 0.5:
            held.pop(chance.randrange(len(held)))
    del batch
    assert waits.ours == 0
    cpu = [
        np.from_dlpack(batch).tobytes()
        for batch in ad.Loader(table(ROWS, 999), columns=["row"], batch_size=BATCH, shuffle_buffer=500, seed=1)
    ]
    assert len(held) > 5
    for index, kept in held:
        again = fakes.cupy(kept, model.stream.handle)
        assert driver.read(again.address, BYTES, model.stream.handle, ordinal) == cpu[index]
        again.release()
    assert model.close() == b"".join(cpu)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_loops_in_turn_on_two_devices(prefetch: int) -> None:
    """Each rank has a device of its own, as it has a share of the batches."""
    models = [Model(0), Model(1)]
    source = table(640, 50)
    iterators = [
        iter(
            ad.Loader(
                source,
                columns=["row"],
                batch_size=BATCH,
                device=("cuda", "cuda:1")[rank],
                rank=rank,
                world_size=2,
                prefetch=prefetch,
            )
        )
        for rank in range(2)
    ]
    for batches in zip(*iterators, strict=True):
        for model, batch in zip(models, batches, strict=True):
            model.step(batch)
    del batches, batch, iterators
    rows = np.arange(640).reshape(5, 2, BATCH)
    for rank, model in enumerate(models):
        assert model.close() == rows[:, rank].tobytes()
    driver.settle()
    assert _native.collect() == 0
