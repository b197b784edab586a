"""Which pieces of memory does one copy bring, and which come apart?"""

from __future__ import annotations

import arrow_dlpack as ad
import driver
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA_HOST, DeviceArray, Memory


def copied(before: dict[str, int]) -> dict[str, int]:
    return {name: driver.calls(name) - before[name] for name in before}


def test_what_lies_as_it_will_is_copied_together() -> None:
    """Buffers of a block of ours, with the padding between them: in one copy, and one question to the driver."""
    columns = [pa.array(np.arange(start, start + 1000, dtype="float32")) for start in range(50)]
    batch = pa.record_batch(columns, [f"c{start}" for start in range(50)])
    pinned = ad.from_arrow(batch).to_device("cuda_host")
    stream = driver.Stream()
    ways = dict.fromkeys(["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2"], 0)
    start = {name: driver.calls(name) for name in [*ways, "cuPointerGetAttributes"]}
    moved = pinned.to_device("cuda:0", stream=stream)
    found = copied(start)
    assert {name: found[name] for name in ways} == {**ways, "cuMemcpyHtoDAsync_v2": 1}
    assert found["cuPointerGetAttributes"] <= 2
    # Small pieces that may be read are staged: their padding is nobody's to read.
    staged = pinned.to_device("cuda:0")
    assert pa.record_batch(staged.to_device("cpu")) == batch
    start = {name: driver.calls(name) for name in ways}
    back = [moved.to_device("cuda_host", stream=stream), moved.to_device("cpu", stream=stream)]
    assert copied(start) == {**ways, "cuMemcpyDtoHAsync_v2": 2}
    for result in back:
        assert pa.record_batch(result.to_device("cpu")) == batch
    stream.close()


class Places(Memory):
    """Page-locked memory in one block, at these distances from its start."""

    def __init__(self, places: list[int]) -> None:
        super().__init__(CUDA_HOST)
        self.start, self.places = super().place(bytes(4096)), places

    def place(self, data: bytes, room: int = 0) -> int:
        address = self.start + self.places.pop(0)
        if data:
            self._write(address, data)
        return address


@pytest.mark.parametrize(
    ("places", "copies"),
    [
        ([0, 64, 128, 192], 1),
        ([0, 64, 192, 256], 2),
        ([64, 0, 128, 192], 3),
        ([0, 60, 128, 192], 3),
        ([0, 40, 104, 168], 2),
        (None, 4),
    ],
)
def test_what_lies_otherwise_is_copied_apart(places: list[int] | None, copies: int) -> None:
    """Each column takes 40 bytes of a line, and is put into a line of its own."""
    columns = {f"c{start}": pa.array(np.arange(start, start + 10, dtype="float32")) for start in range(4)}
    batch = pa.record_batch(columns)
    # A column has no bitmap; the struct neither.
    memory = Memory(CUDA_HOST) if places is None else Places(places)
    source = DeviceArray(batch.to_struct_array(), CUDA_HOST, memory=memory)
    before, stream = driver.calls("cuMemcpyHtoDAsync_v2"), driver.Stream()
    moved = ad.from_arrow(source.give()).to_device("cuda:0", stream=stream)
    assert driver.calls("cuMemcpyHtoDAsync_v2") - before == copies
    assert pa.RecordBatch.from_struct_array(pa.array(moved.to_device("cpu"))) == batch
    stream.close()


@pytest.mark.parametrize("is_idle", [True, False])
def test_small_pieces_are_staged_if_this_threads_stream_is_idle(is_idle: bool) -> None:
    """Work on it may still write them. One more question tells, however many there are."""
    batch = pa.record_batch(
        {f"c{start}": pa.array(np.arange(start, start + 10, dtype="float32")) for start in range(4)}
    )
    memory = Places([64, 0, 128, 192])
    array = ad.from_arrow(DeviceArray(batch.to_struct_array(), CUDA_HOST, memory=memory).give())
    stream, ways = driver.Stream(), ["cuMemcpyHtoDAsync_v2", "cuStreamQuery"]
    first = array.to_device("cuda:0")
    driver.synchronize()
    start = {name: driver.calls(name) for name in ways}
    array.to_device("cuda:0")
    assert copied(start) == {"cuMemcpyHtoDAsync_v2": 1, "cuStreamQuery": 0}
    gate = None if is_idle else driver.gate(stream.handle)
    start = {name: driver.calls(name) for name in ways}
    with ad.stream(stream):
        moved = array.to_device("cuda:0")
    assert copied(start) == {"cuMemcpyHtoDAsync_v2": 1 if is_idle else 3, "cuStreamQuery": 1}
    if gate is not None:
        driver.open_gate(gate)
    for result in (first, moved):
        assert pa.RecordBatch.from_struct_array(pa.array(result.to_device("cpu"))) == batch
    stream.close()
