"""What is kept where kernels read lists, where a call fails or is interrupted, and of results that nobody has seen.

As in test_kept.py, a gate holds back the work while everything is let go of.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import libraries
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import Consumer, DeviceArray, DeviceStream, Memory, interrupted, unfinished
from producers import ArrowArray
from test_device_strided import placed
from test_kept import VALUES, given_back, look

LISTS = pa.array([[1, 2, 3], [], [4, 5]] * 50, pa.list_(pa.int32()))


def last_child_in(memory: Memory) -> Callable[[Any], None]:
    """Puts too few bytes in the place of the last child's values."""
    few = memory.place(b"few bytes")

    def change(node: Any) -> None:
        child = ArrowArray.from_address(node.children[-1])
        ctypes.c_void_p.from_address(child.buffers + 8).value = few

    return change


def test_lists_that_are_padded_when_another_chunk_is_refused() -> None:
    """The kernels of the first chunk still read its offsets."""
    memory = Memory()
    chunks = [DeviceArray(LISTS), DeviceArray(LISTS, memory=memory, change=last_child_in(memory))]
    work = driver.Stream()
    gate = driver.gate(work.handle)
    with ad.stream(work), pytest.raises(BufferError, match="beyond an allocation"):
        ad.to_ragged(ad.from_arrow(DeviceStream(chunks).give()), pad=(0, 4))
    given_back(lambda: chunks[0].node.releases, gate)


def test_lists_whose_lengths_are_counted() -> None:
    """The kernel that counts comes behind those that pad, and may run later."""
    source = DeviceArray(pa.StructArray.from_arrays([LISTS], ["x"]))
    work = driver.Stream()
    gate = driver.gate(work.handle)
    columns = {"x": ad.padded("x", value=0, length=2, truncate="left", lengths="n")}
    with ad.stream(work):
        ad.to_tensors(source.give(), columns=columns, nulls="keep")
    driver.open_gate(gate)
    look()
    assert source.node.releases == 1


def test_the_validity_of_padded_rows_alone() -> None:
    """It is read on a stream that waits for nothing else."""
    data = pa.array([[1, None, 3], None, [], [None, 5]] * 50, pa.list_(pa.int32()))
    _, expected = ad.to_ragged(data, pad=(0, 4), nulls="keep")
    work, reader = driver.Stream(), driver.Stream()
    gate = driver.gate(work.handle)
    array = ad.from_arrow(DeviceArray(data).give())
    with ad.stream(work):
        mask = ad.to_ragged(array, pad=(0, 4), nulls="keep")[1]
    held = fakes.cupy(mask, reader.handle)
    driver.open_gate(gate)
    assert driver.read(held.address, mask.nbytes, reader.handle) == np.from_dlpack(expected).tobytes()
    held.release()


def test_a_copy_to_the_host_that_was_interrupted(pool: fakes.Pool) -> None:
    """Neither the source comes back, nor is the staging buffer used again."""
    stream = driver.Stream()
    gate = driver.gate(stream.handle)
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
    with ad.stream(stream), interrupted():
        tensor.to_device("cpu")
    look()
    other = ad.from_dlpack(fakes.Torch(pool, VALUES + 1, stream=driver.LEGACY))
    assert np.from_dlpack(other.to_device("cpu")).tolist() == (VALUES + 1).tolist()
    del tensor
    given_back(lambda: pool.freed, gate)


def test_a_read_that_was_interrupted() -> None:
    """The staging buffer is not used again while the bitmap may be copied to it."""
    data = pa.array([1, None] * 50)

    def forget(node: Any) -> None:
        node.array.null_count = -1

    memory = Memory()
    gate = driver.gate(memory.stream.handle)
    source = DeviceArray(data, memory=memory, change=forget)
    array, other = (ad.from_arrow(given.give()) for given in (source, DeviceArray(data, change=forget)))
    with interrupted():
        ad.to_tensor(array)
    look()
    with pytest.raises(ad.ConversionError, match="null"):
        ad.to_tensor(other)
    del array
    given_back(lambda: source.node.releases, gate)


# What makes a result, on which device, and what waits then: the result, and what was imported for it alone.
Made = tuple[Callable[[], Any], int, int]


def a_copy(pool: fakes.Pool) -> Made:
    array = ad.from_arrow(DeviceArray(pa.array(VALUES)).give())
    return lambda: ad.to_tensor(array, copy=True), 0, 1


def every_second(pool: fakes.Pool) -> Made:
    tensor = placed(pool, VALUES[::2])
    return lambda: ad.to_arrow(tensor), 0, 2


def on_another_device(pool: fakes.Pool) -> Made:
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    return lambda: tensor.to_device("cuda:1"), 1, 1


def on_the_same_device(pool: fakes.Pool) -> Made:
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    return lambda: ad.from_dlpack(tensor, copy=True), 0, 1


def bits_of_bools(pool: fakes.Pool) -> Made:
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES % 2 == 0, stream=driver.LEGACY))
    return lambda: ad.to_arrow(tensor, type=pa.bool_()), 0, 1


@pytest.mark.parametrize("result", [a_copy, every_second, on_another_device, on_the_same_device, bits_of_bools])
def test_results_that_nobody_has_seen(pool: fakes.Pool, result: Callable[[fakes.Pool], Made]) -> None:
    """Their memory is freed behind the work that writes it."""
    make, ordinal, waiting = result(pool)
    work = driver.Stream(ordinal)
    gate = driver.gate(work.handle, ordinal)
    with ad.stream(work):
        make()
    look()
    assert ad.memory_stats()[f"cuda:{ordinal}"]["waiting_blocks"] == waiting
    driver.open_gate(gate)
    driver.synchronize(ordinal)
    look()
    assert ad.memory_stats()[f"cuda:{ordinal}"]["waiting_blocks"] == 0


def test_lent_memory_that_goes_to_another_device(pool: fakes.Pool) -> None:
    """The legacy default streams of two devices have one number: the copy is on that of the other device."""
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.LEGACY))
    fakes.cupy(tensor, driver.LEGACY).release()
    gate = driver.gate(driver.LEGACY, 1)
    moved = tensor.to_device("cuda:1")
    del tensor
    look()
    driver.synchronize(0)
    look()
    assert pool.freed == 0, "it is read by the copy"
    driver.open_gate(gate)
    assert np.from_dlpack(moved.to_device("cpu")).tolist() == VALUES.tolist()
    look()
    assert pool.freed == 1


def test_page_locked_results_that_nobody_has_seen(pool: fakes.Pool) -> None:
    """The next result of the size takes other memory while the first may be written."""
    tensors = [ad.from_dlpack(fakes.Torch(pool, VALUES + number, stream=driver.LEGACY)) for number in range(2)]
    work = driver.Stream()
    gate = driver.gate(work.handle)
    with ad.stream(work):
        tensors[0].to_device("cuda_host")
    look()
    assert np.from_dlpack(tensors[1].to_device("cuda_host")).tolist() == (VALUES + 1).tolist()
    driver.open_gate(gate)


class Resource:
    """An allocator over a pool, which never waits."""

    def __init__(self, pool: fakes.Pool) -> None:
        self.pool = pool

    def allocate(self, nbytes: int, stream: Any) -> int:
        return self.pool.allocate(nbytes)

    def deallocate(self, pointer: int, nbytes: int, stream: Any) -> None:
        self.pool.free(pointer, nbytes, driver.LEGACY)


def bits() -> ad.Array:
    """A column that has to be unpacked."""
    return ad.from_arrow(DeviceArray(pa.array([True, False] * 500)).give())


Allocator = tuple[Callable[[], object], Callable[[], int]]


def of_a_resource(pool: fakes.Pool) -> Allocator:
    source = bits()
    return lambda: ad.to_tensor(source, allocator=Resource(pool)), lambda: pool.freed


def of_torch(pool: fakes.Pool) -> Allocator:
    source, library = bits(), libraries.Torch(driver.Stream().handle)
    return lambda: ad.to_tensor(source, xp=library).held.release(), lambda: len(library.cache.idle)


def of_cupy(pool: fakes.Pool) -> Allocator:
    source, library = bits(), libraries.CuPy(driver.Stream().handle)
    return lambda: ad.to_tensor(source, xp=library).held.release(), lambda: len(library.cache.idle)


@pytest.mark.parametrize("memory", [of_a_resource, of_torch, of_cupy])
def test_memory_of_an_allocator(pool: fakes.Pool, memory: Callable[[fakes.Pool], Allocator]) -> None:
    """Whoever has it next writes to it at once."""
    make, returned = memory(pool)
    work = driver.Stream()
    gate = driver.gate(work.handle)
    with ad.stream(work):
        make()
    given_back(returned, gate)


def test_a_number_whose_wait_was_interrupted() -> None:
    """The page-locked block that it is copied to serves no other copy before the device has written it."""
    array = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 2], pa.int8()))
    # What is idle by now serves what follows.
    ad.to_tensor(DeviceArray(array).give())
    driver.drain()
    source, gate = unfinished(array)
    given = ad.from_arrow(source.give())
    made = driver.calls("cuMemHostAlloc")
    with interrupted():
        ad.to_tensor(given)
    assert driver.calls("cuMemHostAlloc") == made
    other = ad.from_dlpack(VALUES).to_device("cuda")
    assert driver.calls("cuMemHostAlloc") == made + 1, "the block of the number is still to be written"
    driver.open_gate(gate)
    assert driver.drain() == 0
    np.testing.assert_array_equal(np.from_dlpack(other.to_device("cpu")), VALUES)
    # Both blocks are idle now.
    ad.from_dlpack(VALUES).to_device("cuda")
    assert driver.calls("cuMemHostAlloc") == made + 1


def test_bools_that_become_bits(pool: fakes.Pool) -> None:
    """They are written, read, and given back in that order, each on a stream that waits for no other."""
    bools = np.arange(64) % 3 == 0
    stream, work = driver.Stream(), driver.Stream()
    gate = driver.gate(stream.handle)
    tensor = ad.from_dlpack(fakes.Torch(pool, bools, stream=stream.handle))
    with ad.stream(work):
        array = ad.to_arrow(tensor, type=pa.bool_())
    del tensor
    look()
    assert pool.freed == 0
    driver.open_gate(gate)
    assert Consumer().read(array, [0, 8]) == [None, np.packbits(bools, bitorder="little").tobytes()]
    look()
    assert pool.freed == 1
