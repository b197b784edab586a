"""What does each operation do while a stream is captured, at the first use of a device and after `warm_up`?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

import arrow_dlpack as ad
import driver
import exchange
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import DeviceArray, event_of, exported, pointer
from workloads import forget

VALUES = np.arange(64, dtype="int32")
FULL = pa.Array.from_buffers(pa.int64(), 4, [pa.py_buffer(b"\xff"), pa.py_buffer(bytes(32))])

# Makes what other libraries bring, before the capture, and returns what is called under it.
Operation = Callable[[fakes.Pool], Callable[[], object]]
OPERATIONS: dict[str, Operation] = {}


def operation(make: Operation) -> Operation:
    OPERATIONS[make.__name__] = make
    return make


def host(x: ad.Tensor) -> list[object]:
    return np.from_dlpack(x.to_device("cpu")).tolist()


@operation
def import_by_dlpack(pool):
    source = fakes.Torch(pool, VALUES, stream=driver.PER_THREAD)
    return lambda: ad.from_dlpack(source)


@operation
def import_array_interface(pool):
    source = fakes.Numba(pool, VALUES, stream=driver.PER_THREAD)
    return lambda: ad.from_dlpack(source)


@operation
def view(pool):
    given = DeviceArray(pa.array([1.5, 2.5])).give()
    return lambda: ad.to_tensor(given)


@operation
def export_by_dlpack(pool):
    given = ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give())
    return lambda: fakes.cupy(given, driver.PER_THREAD).release()


@operation
def array_interface(pool):
    tensor = ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give())
    return lambda: tensor.__cuda_array_interface__


@operation
def exchange_table(pool):
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.PER_THREAD))
    return lambda: exchange.from_object(tensor).delete()


@operation
def export_arrow(pool):
    array = ad.to_arrow(ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.PER_THREAD)))

    def run():
        with exported(array):
            pass
        with exported(array, sync="host"):
            pass

    return run


@operation
def convert(pool):
    values = ad.from_arrow(DeviceArray(pa.array([1.5, 2.5])).give())
    return lambda: ad.to_tensor(values, dtype="float32")


@operation
def pack(pool):
    batch = DeviceArray(pa.record_batch({"a": [1.5, 2.5], "b": [3.5, 4.5]}).to_struct_array())
    given = batch.give()
    return lambda: ad.to_tensor(given)


@operation
def unpack_bools(pool):
    given = DeviceArray(pa.array([True, False])).give()
    return lambda: ad.to_tensor(given)


@operation
def count_nulls(pool):
    given = DeviceArray(FULL, change=forget).give()
    return lambda: ad.to_tensor(given)


@operation
def read_offsets(pool):
    given = DeviceArray(pa.array([[1, 2], [], [3]])).give()
    return lambda: ad.to_ragged(given)


@operation
def copy(pool):
    tensor = ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give())
    return lambda: ad.from_dlpack(tensor, copy=True)


@operation
def to_the_host(pool):
    tensor = ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give())
    return lambda: host(tensor)


@operation
def to_pinned(pool):
    tensor = ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give())
    return lambda: tensor.to_device("cuda_host")


@operation
def from_the_host(pool):
    return lambda: ad.from_arrow(pa.array([1.5, 2.5])).to_device("cuda:0")


@operation
def load(pool):
    table = pa.table({"a": [1.5, 2.5, 3.5, 4.5]})
    return lambda: list(ad.Loader(table, batch_size=2, device="cuda:0"))


@operation
def collect(pool):
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.PER_THREAD))
    fakes.cupy(tensor, driver.PER_THREAD).release()
    given = [tensor]
    del tensor

    def run():
        given.clear()
        ad.collect()
        ad.memory_stats()

    return run


@operation
def empty_the_cache(pool):
    return ad.empty_cache


@operation
def warm_up(pool):
    return lambda: ad.warm_up("cuda:0")


class Written(fakes.Plain):
    """Its memory was written long ago, so that it waits for nothing."""

    def order(self, stream):
        pass


@operation
def import_without_a_stream(pool):
    source = Written(pool, VALUES, stream=driver.PER_THREAD)
    return lambda: ad.from_dlpack(source)


@operation
def import_page_locked(pool):
    source = fakes.PinnedTorch(VALUES)
    return lambda: ad.from_dlpack(source)


@operation
def import_by_our_table(pool):
    address = pool.allocate(VALUES.nbytes)
    given = producers.DLPack(None, device=(2, 0), shape=(64,), strides=(1,), address=address)
    # What is refused stays its caller's.
    given.expected = 0

    def run():
        tensor = exchange.to_object(ad.Tensor, given)
        given.expected = 1
        return tensor

    return run


@operation
def output_by_a_table(pool):
    array = ad.to_arrow(ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.PER_THREAD)))
    return lambda: ad.to_tensor(array, xp=sys.modules["exchange"]).close()


@operation
def export_to_the_legacy_stream(pool):
    given = ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give())
    return lambda: fakes.cupy(given, driver.LEGACY).release()


@operation
def write_to_out(pool):
    given = DeviceArray(pa.array([1.5, 2.5])).give()
    out = ad.from_dlpack(fakes.Torch(pool, np.zeros(2), stream=driver.PER_THREAD))
    return lambda: ad.to_tensor(given, out=out)


@operation
def join(pool):
    batch = DeviceArray(pa.record_batch({"a": [1.5, 2.5], "b": [3.5, 4.5]}).to_struct_array())
    given = ad.from_arrow(batch.give())
    return lambda: ad.to_tensors(given, device="cuda:0")


@operation
def validity(pool):
    given = ad.from_arrow(DeviceArray(pa.array([1.5, None])).give())
    return lambda: ad.validity(given)


@operation
def to_another_device(pool):
    tensor = ad.to_tensor(DeviceArray(pa.array([1.5, 2.5])).give())

    def run():
        with ad.stream(driver.PER_THREAD):
            tensor.to_device("cuda:1")

    return run


@operation
def unpooled(pool):
    return lambda: ad.from_arrow(pa.array([1.5, 2.5])).to_device("cuda:0", allocator="cuMemAlloc")


# Which stream is captured, and which one this thread uses: the same, another, or the legacy default stream. That waits
# for blocking streams, and whatever is put on it breaks their captures.
KINDS = ["own", "own, blocking", "other", "other, blocking", "legacy", "legacy, blocking"]
ON_THE_STREAM = {"own", "own, blocking", "legacy, blocking"}
REFUSED = {
    "import_without_a_stream": {"own, blocking", "other, blocking", "legacy, blocking"},
    "import_by_our_table": ON_THE_STREAM,
    "convert": ON_THE_STREAM,
    "pack": ON_THE_STREAM,
    "unpack_bools": ON_THE_STREAM,
    "validity": ON_THE_STREAM,
    "write_to_out": ON_THE_STREAM,
    "copy": ON_THE_STREAM,
    "to_the_host": ON_THE_STREAM,
    "to_pinned": ON_THE_STREAM,
    "from_the_host": ON_THE_STREAM,
    "unpooled": ON_THE_STREAM,
}


@contextmanager
def beside(kind: str) -> Iterator[None]:
    """A capture, which is an error at the end of the block if it was broken."""
    captured, work = driver.Stream(flags=0 if "blocking" in kind else driver.NON_BLOCKING), driver.Stream()
    scope = {"own": lambda: ad.stream(captured), "other": lambda: ad.stream(work), "legacy": nullcontext}
    with driver.capture(captured.handle), scope[kind.split(",")[0]]():
        yield


@pytest.mark.parametrize("warmed", [False, True], ids=["at first", "warmed up"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_it_works_or_names_what_to_do(pool: fakes.Pool, name: str, kind: str, warmed: bool) -> None:
    if warmed:
        ad.warm_up("cuda")
    run = OPERATIONS[name](pool)
    driver.settle()
    refused = pytest.raises(BufferError, match=r'is being captured, and .*; call ad.warm_up\("cuda:0"\)')
    with beside(kind), refused if kind in REFUSED.get(name, ()) else nullcontext():
        run()


def test_the_error_of_a_block_is_not_that_of_the_capture_which_it_broke() -> None:
    captured = driver.Stream()
    broken = pytest.raises(driver.CudaError, match="cuStreamSynchronize failed with code 900")
    with broken, driver.capture(captured.handle):
        captured.synchronize()
    # The capture has ended all the same.
    with driver.capture(captured.handle):
        pass


@pytest.mark.parametrize("end", ["inside", "after"])
@pytest.mark.parametrize("blocking", [False, True])
def test_memory_of_a_captured_stream_comes_back(pool: fakes.Pool, end: str, blocking: bool) -> None:
    stream = driver.Stream(flags=0 if blocking else driver.NON_BLOCKING)
    tensors = [ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.PER_THREAD)) for _ in range(2)]
    driver.settle()
    before = pool.freed
    with driver.capture(stream.handle):
        tensors[0].record_stream(stream)
        with ad.stream(stream):
            exchange.from_object(tensors[1]).delete()
        if end == "inside":
            tensors.clear()
    tensors.clear()
    assert driver.soon(lambda: pool.freed == before + 2)


class WithTable(fakes.Torch):
    """A tensor whose type has an exchange table, which names the stream that the library works on."""

    __dlpack_c_exchange_api__ = exchange.TABLE


class TestProducersOnTheCapturedStream:
    """A producer makes the stream that we name wait for its own."""

    def test_with_a_table_its_own_stream_is_named(self, pool: fakes.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        captured = driver.Stream()
        source = WithTable(pool, VALUES, stream=captured.handle)
        monkeypatch.setattr(exchange.Array, "stream", captured.handle)
        driver.settle()
        with driver.capture(captured.handle):
            for _ in range(2):
                with pytest.raises(
                    BufferError, match="is being captured, and an event on it would be a part of the graph"
                ):
                    ad.from_dlpack(source)
        assert [call["stream"] for call in source.calls] == [captured.handle] * 2
        assert host(ad.from_dlpack(source)) == VALUES.tolist()

    def test_without_a_table_its_stream_is_left_to_the_graph(self, pool: fakes.Pool) -> None:
        captured = driver.Stream()
        source = fakes.Torch(pool, VALUES, stream=captured.handle)
        other = fakes.Torch(pool, VALUES, stream=driver.LEGACY)
        driver.settle()
        refused = pytest.raises(BufferError, match="is being captured, and the library of the tensor works on it")
        with driver.capture(captured.handle):
            for _ in range(2):
                with refused:
                    ad.from_dlpack(source)
                # Another stream of ours, which is in no graph.
                ad.from_dlpack(other)
        assert host(ad.from_dlpack(source)) == VALUES.tolist()


# What is done with an array whose event is of a capture; the other array was written before.
USES: dict[str, Callable[[ad.Array, ad.Array], object]] = {
    "by DLPack": lambda given, _: fakes.cupy(ad.to_tensor(given), driver.PER_THREAD).release(),
    "by DLPack to the default stream": lambda given, _: ad.to_tensor(given).__dlpack__(max_version=(1, 3)),
    "by the table": lambda given, _: exchange.from_object(ad.to_tensor(given)).delete(),
    "by the array interface": lambda given, _: ad.to_tensor(given).__cuda_array_interface__,
    "by Arrow to the host": lambda given, _: given.__arrow_c_device_array__(sync="host"),
    "convert": lambda given, _: ad.to_tensor(given, dtype="float32"),
    "copy": lambda given, _: ad.from_dlpack(ad.to_tensor(given), copy=True),
    "to the host": lambda given, _: host(ad.to_tensor(given)),
    "join": lambda given, other: ad.to_arrow(ad.Ragged(ad.to_tensor(given), ad.to_tensor(other))),
}


class TestEventsOfTheCapture:
    """A query of a producer's event breaks the capture of the event, and so does the wait of the legacy stream."""

    @staticmethod
    def recorded(array: DeviceArray, stream: driver.Stream) -> ad.Array:
        array.handle.value = driver.Event(stream.handle).handle
        return ad.from_arrow(array.give())

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("use", USES)
    def test_they_are_refused_and_the_capture_goes_on(self, use: str, kind: str) -> None:
        source, other = DeviceArray(pa.array([1.5, 2.5])), ad.from_arrow(DeviceArray(pa.array([0, 1, 2])).give())
        captured = driver.Stream(flags=0 if "blocking" in kind else driver.NON_BLOCKING)
        scope = {"own": ad.stream(captured), "other": ad.stream(driver.Stream()), "legacy": nullcontext()}
        driver.settle()
        with driver.capture(captured.handle), scope[kind.split(",")[0]]:
            given = self.recorded(source, captured)
            for _ in range(2):
                with pytest.raises(BufferError, match="captur"):
                    USES[use](given, other)
            # Whoever waits for nothing gets the data.
            with exported(given) as struct:
                assert event_of(struct) == source.handle.value
            pointer(ad.to_tensor(given))
            # Another stream of ours, which is in no graph.
            assert ad.to_tensor(other).__cuda_array_interface__["stream"] is None

    @pytest.mark.parametrize("use", USES)
    def test_they_are_refused_after_the_capture(self, use: str) -> None:
        source, other = DeviceArray(pa.array([1.5, 2.5])), ad.from_arrow(DeviceArray(pa.array([0, 1, 2])).give())
        captured = driver.Stream()
        driver.settle()
        with driver.capture(captured.handle):
            given = self.recorded(source, captured)
        for _ in range(2):
            with pytest.raises(BufferError, match=r"so that only the graph writes the data; .* before the capture"):
                USES[use](given, other)
        assert host(ad.to_tensor(other)) == [0, 1, 2]

    @pytest.mark.parametrize("use", USES)
    def test_the_stream_that_became_a_part_of_the_graph_is_not_used_again(self, pool: fakes.Pool, use: str) -> None:
        source, other = DeviceArray(pa.array([1.5, 2.5])), ad.from_arrow(DeviceArray(pa.array([0, 1, 2])).give())
        plain = fakes.Torch(pool, VALUES, stream=driver.LEGACY)
        captured = driver.Stream()
        driver.settle()
        with driver.capture(captured.handle):
            given = self.recorded(source, captured)
            with pytest.raises(BufferError, match="captur"):
                USES[use](given, other)
            # Each of these takes the next stream of the pool, and asks it first.
            for _ in range(driver.live("streams")):
                ad.from_dlpack(plain)

    @pytest.mark.parametrize("use", USES)
    def test_they_are_refused_in_a_capture_that_is_broken(self, pool: fakes.Pool, use: str) -> None:
        """The driver refuses waits for them until that capture ends."""
        source, other = DeviceArray(pa.array([1.5, 2.5])), ad.from_arrow(DeviceArray(pa.array([0, 1, 2])).give())
        plain = fakes.Torch(pool, VALUES, stream=driver.LEGACY)
        captured = driver.Stream()
        driver.settle()
        until_its_end = ExitStack()
        until_its_end.enter_context(driver.capture(captured.handle))
        given = self.recorded(source, captured)
        with pytest.raises(driver.CudaError, match="code 900"):
            captured.synchronize()
        for _ in range(2):
            with pytest.raises(BufferError, match=r"so that only the graph writes the data; .* before the capture"):
                USES[use](given, other)
        for _ in range(driver.live("streams")):
            ad.from_dlpack(plain)
        with pytest.raises(driver.CudaError, match="cuStreamEndCapture failed with code 901"):
            until_its_end.close()
        assert host(ad.to_tensor(other)) == [0, 1, 2]
