"""What the package does on CUDA, piece by piece: work in which tests have every call of the driver fail in turn.

A workload first makes what other libraries bring, and returns the work itself. All that work takes is given back when
it ends, however it ends, but for what the other libraries free in `close`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import arrow_dlpack as ad
import device_arrow
import driver
import exchange
import fakes
import numpy as np
import producers
import pyarrow as pa
from arrow_dlpack import _native
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, Consumer, DeviceArray, DeviceStream, exported

VALUES = np.arange(64, dtype="int32")
UNKNOWN, OUT_OF_MEMORY = 999, 2
# As many events are kept for later, so that from there on some are destroyed.
KEPT_EVENTS = 256

Run = Callable[[], None]
# By name; those that every function of the driver fails in, and those for functions that are not called there.
COMMON: dict[str, Callable[[], Run]] = {}
RARE: dict[str, Callable[[], Run]] = {}
_pools: list[fakes.Pool] = []
_streams: list[driver.Stream] = []


def common(workload: Callable[[], Run]) -> Callable[[], Run]:
    COMMON[workload.__name__] = workload
    return workload


def rare(workload: Callable[[], Run]) -> Callable[[], Run]:
    RARE[workload.__name__] = workload
    return workload


def pool() -> fakes.Pool:
    _pools.append(fakes.Pool())
    return _pools[-1]


def stream(flags: int = driver.NON_BLOCKING) -> driver.Stream:
    _streams.append(driver.Stream(flags=flags))
    return _streams[-1]


def close() -> None:
    """Has the other libraries free what they have, once nothing uses it."""
    driver.settle()
    driver.clean_up()
    device_arrow.clean_up()
    for one in _pools:
        one.close()
    for one in _streams:
        one.close()
    _pools.clear()
    _streams.clear()


@contextmanager
def held(x: object, consumer: driver.Stream, **keywords: object) -> Iterator[fakes.Held]:
    taken = fakes.cupy(x, consumer.handle, **keywords)
    try:
        yield taken
    finally:
        taken.release()


def expect(address: int, consumer: driver.Stream | int) -> None:
    handle = consumer if isinstance(consumer, int) else consumer.handle
    assert driver.read(address, VALUES.nbytes, handle) == VALUES.tobytes()


def forget(node: producers.Array) -> None:
    """Has an array say of no column how many nulls it has."""
    for part in [node, *node.parts]:
        part.array.null_count = -1  # type: ignore[attr-defined]


@common
def dlpack() -> Run:
    producer, consumer = stream(), stream()
    source = fakes.Torch(pool(), VALUES, stream=producer.handle)

    def run() -> None:
        tensor = ad.from_dlpack(source)
        with held(tensor, consumer) as taken:
            expect(taken.address, consumer)
        with held(tensor, consumer, copy=True) as taken:
            expect(taken.address, consumer)
        tensor.record_stream(consumer)
        tensor.record_stream(driver.PER_THREAD)

    return run


@common
def array_interface() -> Run:
    producer, consumer = stream(), stream()
    source = fakes.Torch(pool(), VALUES, stream=producer.handle)
    other = fakes.Numba(pool(), VALUES, stream=producer.handle)

    def run() -> None:
        tensor = ad.from_dlpack(source)
        interface = tensor.__cuda_array_interface__
        expect(interface["data"][0], interface["stream"] or consumer.handle)
        ad.from_dlpack(other)

    return run


@common
def exchange_tables() -> Run:
    producer, work = stream(), stream()
    source = fakes.Torch(pool(), VALUES, stream=producer.handle)

    def run() -> None:
        tensor = ad.from_dlpack(source)
        with ad.stream(work):
            managed = exchange.from_object(tensor)
            try:
                expect(managed.address, work)
            finally:
                managed.delete()
            expect(exchange.borrow(tensor).data, work)
        exchange.Array.stream = work.handle
        ad.to_tensor(ad.to_arrow(tensor), xp=sys.modules["exchange"]).close()

    return run


@common
def to_the_cpu() -> Run:
    producer = stream()
    source = fakes.Torch(pool(), VALUES, stream=producer.handle)
    pinned = fakes.PinnedTorch(VALUES)

    def run() -> None:
        assert np.array_equal(np.from_dlpack(ad.from_dlpack(source).to_device("cpu")), VALUES)
        ad.from_dlpack(pinned)

    return run


@common
def arrays() -> Run:
    return _arrays(CUDA)


@common
def managed_arrays() -> Run:
    return _arrays(CUDA_MANAGED)


def _arrays(kind: int) -> Run:
    """Unknown null counts and offsets are read, and what is made of them is exported."""
    full = pa.py_buffer(b"\xff")
    numbers = [pa.Array.from_buffers(pa.int64(), 4, [full, pa.py_buffer(bytes(32))]) for _ in range(2)]
    columns = DeviceArray(pa.StructArray.from_arrays(numbers, ["a", "b"]), kind, change=forget)
    lists = pa.array([[1, 2], [], [3]])
    given = [source.give() for source in (columns, DeviceArray(lists, kind), DeviceArray(table_of(lists), kind))]

    def run() -> None:
        batch, rows, table = map(ad.from_arrow, given)
        tensors = ad.to_tensors(batch)
        with exported(ad.to_arrow(tensors["a"])), exported(batch), exported(batch, sync="host"):
            pass
        with exported(ad.to_ragged(rows)):
            pass
        ad.to_tensors(table, columns={"x": ad.padded("x", lengths="n", validity="mask")})

    return run


def table_of(lists: pa.Array) -> pa.StructArray:
    """Lists whose elements may be null, so that the host reads what kernels find."""
    items = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\xff"), pa.py_buffer(bytes(24))])
    return pa.StructArray.from_arrays([pa.ListArray.from_arrays(lists.offsets, items)], ["x"])


@common
def streams() -> Run:
    field = pa.field("x", pa.int32())
    items = [DeviceArray(pa.array(VALUES), field=field) for _ in range(2)]
    given = DeviceStream(list(items)).give()
    consumer = Consumer()
    _streams.append(consumer.stream)

    def run() -> None:
        for array in ad.from_arrow(given):
            assert consumer.read(array, [0, VALUES.nbytes])[1] == VALUES.tobytes()

    return run


@common
def codes_of_chunks() -> Run:
    """The host compares their dictionaries."""
    data = pa.array(["a", None, "b"]).dictionary_encode()
    given = DeviceStream([DeviceArray(data) for _ in range(2)]).give()

    def run() -> None:
        made = ad.to_tensor(ad.from_arrow(given), nulls=9)
        assert np.from_dlpack(made.to_device("cpu")).tolist() == [0, 9, 1] * 2

    return run


@common
def rows_of_tensors() -> Run:
    """A kernel looks at the offsets, before and after somebody may have changed them."""
    own = pool()
    values, offsets = fakes.Torch(own, VALUES), fakes.Torch(own, np.array([0, 2, 3]))
    valid = fakes.Torch(own, np.array([True, False]))

    def run() -> None:
        made = ad.to_arrow(ad.Ragged(values, offsets, validity=valid))
        assert pa.array(made.to_device("cpu")).is_valid().to_pylist() == [True, False]

    return run


@common
def page_locked_bits() -> Run:
    """A kernel writes them where the host reads."""
    bool8 = {"ARROW:extension:name": "arrow.bool8", "ARROW:extension:metadata": ""}
    fields = [pa.field("x", pa.int32(), False), pa.field("valid", pa.int8(), False, metadata=bool8)]
    columns = [pa.array(VALUES), pa.array((VALUES % 2).astype("i1"))]
    given = DeviceArray(pa.StructArray.from_arrays(columns, fields=fields), CUDA_HOST).give()

    def run() -> None:
        tensors = ad.to_tensors(ad.from_arrow(given))
        made = ad.to_arrow(tensors["x"], validity=tensors["valid"])
        assert pa.array(made.to_device("cpu")).null_count == len(VALUES) // 2

    return run


@common
def round_trip() -> Run:
    producer, consumer = stream(), stream()
    values = fakes.Torch(pool(), VALUES, stream=producer.handle)

    def run() -> None:
        array = ad.from_arrow(ad.to_arrow(ad.from_dlpack(values)))
        with held(ad.to_tensor(array), consumer) as taken:
            expect(taken.address, consumer)
        with exported(array):
            pass

    return run


@common
def deferred_free() -> Run:
    producer, consumer = stream(), stream(flags=0)
    source, other = (fakes.Torch(pool(), VALUES, stream=producer.handle) for _ in range(2))

    def run() -> None:
        tensor = ad.from_dlpack(source)
        tensor.record_stream(consumer)
        with held(tensor, consumer):
            gate = driver.gate(consumer.handle)
        del tensor
        try:
            ad.from_dlpack(other)
        finally:
            driver.open_gate(gate)
        driver.run_all()
        _native.collect()

    return run


@common
def no_such_device() -> Run:
    source = fakes.Torch(pool(), VALUES, stream=driver.LEGACY, device=(CUDA, 7))

    def run() -> None:
        with suppress(ad.ConversionError):
            ad.from_dlpack(source)

    return run


BATCH = pa.record_batch({"a": pa.array([1.0, None, 3.0]), "b": pa.array([1, 2, 3])})
STRINGS = pa.record_batch({"a": pa.array([1.0, None, 3.0]), "s": pa.array(["one", None, "three"])})


@common
def to_a_device() -> Run:
    """There, to another device, to page-locked memory, and back."""

    def run() -> None:
        moved = ad.from_arrow(STRINGS).to_device("cuda:0").to_device("cuda:1").to_device("cuda_host")
        assert pa.record_batch(moved.to_device("cuda").to_device("cpu")).equals(STRINGS)

    return run


@common
def warmed_up() -> Run:
    """A device that was prepared converts as any other."""
    prepared = packed()

    def run() -> None:
        ad.warm_up("cuda:0")
        prepared()

    return run


@common
def packed() -> Run:
    """Kernels make a matrix of columns."""

    def run() -> None:
        matrix = ad.to_tensor(ad.from_arrow(BATCH).to_device("cuda:0"), dtype="float32", nulls=0)
        assert np.array_equal(np.from_dlpack(matrix.to_device("cpu")), [[1, 1], [0, 2], [3, 3]])

    return run


@common
def split() -> Run:
    """Kernels gather the elements of a column, split rows into columns, and pack their validity."""
    producer = stream()
    values = np.arange(12, dtype="float32").reshape(4, 3)
    whole = fakes.Torch(pool(), values, stream=producer.handle)
    valid = fakes.Torch(pool(), values > 4, stream=producer.handle)
    column = fakes.Torch(pool(), values, stream=producer.handle)
    column.shape, column.strides = (4,), (3,)

    def run() -> None:
        made = ad.to_arrow(column).to_device("cpu")
        assert pa.array(made).to_pylist() == values[:, 0].tolist()
        batch = pa.array(ad.to_arrow(whole, names=["a", "b", "c"], validity=valid).to_device("cpu"))
        assert batch.field(1).to_pylist() == [None, None, 7, 10]

    return run


@common
def memory() -> Run:
    """Memory of results: page-locked, and no pool's. What is kept is given back."""

    def run() -> None:
        ad.from_arrow(BATCH).to_device("cuda_host")
        ad.from_arrow(BATCH).to_device("cuda:0", allocator="cuMemAlloc")
        ad.from_arrow(BATCH).to_device("cuda:0")
        ad.memory_stats()
        # Else the memory may still wait for the copies to it, or the reaper be about to give it back.
        driver.run_all()
        _native.collect()
        ad.empty_cache()

    return run


@rare
def more_events_than_are_kept() -> Run:
    source = fakes.Numba(pool(), VALUES, stream=stream().handle)

    def run() -> None:
        [ad.from_dlpack(source) for _ in range(KEPT_EVENTS + 2)]

    return run


@rare
def no_memory_left_at_first() -> Run:
    run = dlpack()

    def short() -> None:
        driver.fail("cuMemAllocFromPoolAsync", 1, OUT_OF_MEMORY)
        run()

    return short


@rare
def a_pool_without_its_attribute() -> Run:
    run = dlpack()

    def refused() -> None:
        driver.fail("cuMemPoolSetAttribute", 1, UNKNOWN)
        with suppress(ad.ConversionError):
            run()

    return refused


@rare
def a_module_without_a_kernel() -> Run:
    def refused() -> None:
        driver.fail("cuModuleGetFunction", 1, UNKNOWN)
        with suppress(ad.ConversionError):
            ad.to_tensor(ad.from_arrow(BATCH).to_device("cuda:0"), dtype="float32", nulls=0)

    return refused


@rare
def text_of_an_error() -> Run:
    run = dlpack()

    def told() -> None:
        driver.fail("cuEventRecord", 1, UNKNOWN)
        with suppress(ad.ConversionError):
            run()

    return told
