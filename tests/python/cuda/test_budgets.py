"""How many calls of the driver do imports and exports make? All threads are counted."""

from __future__ import annotations

import gc
import sys

import arrow_dlpack as ad
import driver
import exchange
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray, Memory
from driver import soon
from test_reaper import lend

VALUES = np.arange(64, dtype="int32")


@pytest.fixture(autouse=True)
def _only_ours() -> None:
    driver.exempt = True
    yield
    driver.exempt = False


class WithTable(fakes.Torch):
    """As PyTorch's type, which has an exchange table."""

    __dlpack_c_exchange_api__ = exchange.TABLE


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("by_arrow", [False, True])
@pytest.mark.parametrize("waiting", [0, 40])
def test_a_round_trip_makes_few_calls(
    pool: fakes.Pool, waiting: int, by_arrow: bool, table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch -> ad -> torch, in a thread whose context is current, as a library's is. Memory of others waits. Without a
    table one more call asks whether our stream was drawn into a graph."""
    busy, consumer, writer = driver.Stream(), driver.Stream(), driver.Stream()
    monkeypatch.setattr(exchange.Array, "stream", writer.handle)
    most = 8 if table else 9
    gate = driver.gate(busy.handle)
    for _ in range(waiting):
        lend(pool, record=busy)
    driver.synchronize_stream(driver.LEGACY)
    assert soon(lambda: ad.collect() == waiting)
    calls, own = [], []
    with driver.current():
        for _ in range(6):
            source = (WithTable if table else fakes.Torch)(pool, VALUES, stream=writer.handle)
            before, before_own = driver.calls(), driver.thread_calls()
            if by_arrow:
                taken = fakes.cupy(ad.to_tensor(ad.to_arrow(source)), consumer.handle)
            else:
                taken = fakes.cupy(ad.from_dlpack(source), consumer.handle)
            calls.append(driver.calls() - before)
            own.append(driver.thread_calls() - before_own)
            driver.synchronize_stream(consumer.handle)
            taken.release()
            del taken
            gc.collect()
            driver.synchronize_stream(driver.LEGACY)
            assert soon(lambda: ad.collect() == waiting)
    driver.open_gate(gate)
    # The first ones make what the later ones use: events, and streams to name to producers.
    assert min(own[-3:]) > 0, own
    assert max(own[-3:]) <= most, own
    # While memory waits, the package's own thread asks now and then whether it is free; no round trip makes it ask.
    least_or_most = min if waiting else max
    assert least_or_most(calls[-3:]) <= most, calls


class OneBlock(Memory):
    """Memory of one allocation, as that of a library with a pool is."""

    ALIGNMENT = 256

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.start = super().place(bytes(pieces * OneBlock.ALIGNMENT))
        self.used = 0

    def place(self, data: bytes, room: int = 0) -> int:
        address = self.start + self.used
        self.used += OneBlock.ALIGNMENT
        self._write(address, data)
        return address


def one_block(columns: int) -> DeviceArray:
    """A batch of int32 columns c0, c1, ... of three rows each."""
    arrays = [pa.array([at, at + 1, at + 2], pa.int32()) for at in range(columns)]
    names = [f"c{at}" for at in range(columns)]
    return DeviceArray(pa.StructArray.from_arrays(arrays, names), memory=OneBlock(columns))


@pytest.mark.parametrize("stream", ["legacy", "own"])
def test_a_thousand_tensors_of_one_batch_make_fewer_than_50_calls(stream: str) -> None:
    """One wait for all of them, and one question for each allocation."""
    array = exchange.Array
    array.stream = driver.LEGACY if stream == "legacy" else driver.Stream().handle
    columns = 1000
    batch = ad.from_arrow(one_block(columns).give())
    library = sys.modules["exchange"]
    # What a first call learns of the library, it learns of its first tensor.
    [first] = ad.to_tensors(ad.from_arrow(one_block(1).give()), xp=library).values()
    before, by_table = driver.calls(), array.by_table
    tensors = ad.to_tensors(batch, xp=library)
    assert driver.calls() - before < 50
    assert array.by_table - by_table == columns
    driver.exempt = False
    assert tensors["c999"].read(12) == np.array([999, 1000, 1001], "int32").tobytes()
    for tensor in [first, *tensors.values()]:
        tensor.close()
    gc.collect()


def test_the_hundredth_read_under_way_makes_as_many_calls_as_the_tenth(pool: fakes.Pool) -> None:
    """None of the reads before it is asked for: that of the same stream is done when the last one is."""
    tensor = ad.from_dlpack(fakes.Torch(pool, np.arange(3), stream=driver.LEGACY))
    ad.from_dlpack(tensor, copy=True)
    gate = driver.gate(driver.LEGACY)
    calls, copies = [], []
    for _ in range(100):
        before = driver.calls()
        copies.append(ad.from_dlpack(tensor, copy=True))
        calls.append(driver.calls() - before)
    driver.open_gate(gate)
    assert sum(calls[-10:]) <= sum(calls[5:15]) + 10, calls
