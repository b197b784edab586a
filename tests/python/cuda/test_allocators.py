"""Memory of other libraries' allocators: taken in their order, checked, and given back when all work is done."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import libraries
import numpy as np
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import DeviceArray
from test_no_device import run

VALUES = np.arange(1 << 14, dtype="int32")
BYTES = VALUES.nbytes


def tensor_of(pool: fakes.Pool) -> ad.Tensor:
    return ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))


class Resource:
    """An allocator that keeps a record."""

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}
        self.streams: list[int] = []
        self.given_back: list[tuple[int, int]] = []

    def allocate(self, nbytes: int, stream: Any) -> int:
        assert driver.is_current(0)
        self.streams.append(stream.__cuda_stream__()[1])
        address = driver.new_memory(nbytes)
        self.memory[address] = nbytes
        return address

    def deallocate(self, pointer: int, nbytes: int, stream: Any) -> None:
        assert driver.is_current(0)
        assert stream.__cuda_stream__() == (0, driver.LEGACY)
        assert self.memory.pop(pointer) == nbytes
        self.given_back.append((pointer, nbytes))
        fakes.reuse(pointer, nbytes, driver.LEGACY)
        driver.free(pointer)


def address_of(tensor: ad.Tensor) -> int:
    return tensor.__cuda_array_interface__["data"][0]


def contents(tensor: ad.Tensor) -> bytes:
    return np.from_dlpack(tensor.to_device("cpu")).tobytes()


def bools(rows: int = 3000) -> Any:
    """A column that has to be unpacked."""
    return DeviceArray(pa.array([row % 3 == 0 for row in range(rows)])).give()


EXPECTED = bytes(row % 3 == 0 for row in range(3000))


class TestResources:
    def test_give_the_memory_of_results(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        resource, stream = Resource(), driver.Stream()
        with ad.stream(stream):
            copy = ad.from_dlpack(tensor, copy=True, allocator=resource)
        assert (resource.memory, resource.streams) == ({address_of(copy): BYTES}, [stream.handle])
        assert contents(copy) == VALUES.tobytes()
        assert ad.memory_stats()["cuda:0"]["allocators_used"] == BYTES
        assert ad.memory_stats()["cuda:0"]["pool_used"] == 0
        start = address_of(copy)
        del copy
        driver.settle()
        assert _native.collect() == 0
        assert resource.given_back == [(start, BYTES)]
        assert ad.memory_stats()["cuda:0"]["allocators_used"] == 0

    def test_give_nothing_else(self) -> None:
        resource = Resource()
        unpacked = ad.to_tensor(bools(), allocator=resource)
        # What the kernels need beside the result is not theirs.
        assert list(resource.memory.values()) == [3000]
        assert contents(unpacked) == EXPECTED
        tensors = ad.to_tensors(
            DeviceArray(pa.StructArray.from_arrays([pa.array([True, False])] * 3, names=list("abc"))).give(),
            allocator=resource,
        )
        assert len(resource.memory) == 4
        assert [contents(tensor) for tensor in tensors.values()] == [b"\1\0"] * 3

    def test_get_it_back_when_all_work_is_done(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        resource = Resource()
        copy = ad.from_dlpack(tensor, copy=True, allocator=resource)
        held = fakes.cupy(copy, driver.LEGACY)
        gate = driver.gate(driver.LEGACY)
        held.release()
        del copy
        gc.collect()
        assert _native.collect() == 1
        assert not resource.given_back
        assert ad.memory_stats()["cuda:0"]["waiting_bytes"] == BYTES
        driver.open_gate(gate)
        driver.settle()
        assert _native.collect() == 0
        assert len(resource.given_back) == 1

    def test_are_kept_as_long_as_their_memory(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        resource = Resource()
        given_back = resource.given_back
        copy = ad.from_dlpack(tensor, copy=True, allocator=resource)
        del resource
        gc.collect()
        del copy
        driver.settle()
        assert _native.collect() == 0
        assert len(given_back) == 1

    def test_of_rmm_get_its_streams(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        resource, stream = libraries.rmm()(), driver.Stream()
        with ad.stream(stream):
            copy = tensor.to_device("cuda:0", allocator=resource)
            assert copy is tensor
            copy = ad.from_dlpack(tensor, copy=True, allocator=resource)
        assert resource.streams == [stream.handle]
        assert contents(copy) == VALUES.tobytes()
        del copy
        driver.settle()
        assert _native.collect() == 0
        assert not resource.memory

    def test_give_the_memory_of_what_moves(self) -> None:
        batch = pa.record_batch({"x": pa.array(range(100), pa.int32()), "y": pa.array(["a", None] * 50)})
        moves: list[Any] = [
            lambda resource: ad.from_arrow(batch, device="cuda", allocator=resource),
            lambda resource: ad.from_arrow(batch).to_device("cuda", allocator=resource),
            lambda resource: ad.from_arrow(batch.column(0)).to_device("cuda", allocator=resource),
            lambda resource: ad.to_tensor(batch.column(0), device="cuda", allocator=resource),
            lambda resource: ad.to_tensors(batch.select(["x"]), device="cuda", allocator=resource),
            lambda resource: ad.to_ragged(batch.column(1), nulls="keep", device="cuda", allocator=resource),
            lambda resource: ad.from_dlpack(VALUES, device="cuda", allocator=resource),
            lambda resource: ad.to_arrow(VALUES, device="cuda", allocator=resource),
        ]
        for move in moves:
            resource = Resource()
            moved = move(resource)
            assert ad.memory_stats()["cuda:0"]["allocators_used"] == sum(resource.memory.values()) > 0
            assert ad.memory_stats()["cuda:0"]["pool_used"] == 0
            del moved
            gc.collect()
            driver.settle()
            assert _native.collect() == 0
            assert not resource.memory

    def test_give_the_memory_of_each_array_of_a_stream(self) -> None:
        resource = Resource()
        batches = pa.RecordBatchReader.from_batches(
            pa.schema({"x": pa.int32()}), [pa.record_batch({"x": pa.array([1, 2, 3], pa.int32())})] * 3
        )
        stream = ad.from_arrow(batches, device="cuda", allocator=resource)
        assert resource.streams == []
        for count, batch in enumerate(stream, 1):
            assert pa.record_batch(batch.to_device("cpu")).to_pydict() == {"x": [1, 2, 3]}
            assert len(resource.streams) == count
        del stream, batch
        driver.settle()

    @pytest.mark.parametrize(
        ("wrong", "error", "message"),
        [
            ("cudaMalloc", ValueError, "not 'cudaMalloc'|not \"cudaMalloc\""),
            (1, TypeError, "an object with allocate and deallocate, not int"),
            (object(), TypeError, "an object with allocate and deallocate, not object"),
        ],
        ids=["name", "number", "object"],
    )
    def test_are_no_other_objects(self, wrong: Any, error: type[Exception], message: str) -> None:
        host = np.arange(3)
        for call in [ad.from_dlpack, ad.to_arrow, ad.to_tensor, ad.from_arrow]:
            with pytest.raises(error, match=message):
                call(host, allocator=wrong)
        for call in [ad.to_tensors, ad.to_ragged]:
            with pytest.raises(error, match=message):
                call(pa.table({"x": [[1]]}) if call is ad.to_tensors else pa.array([[1]]), allocator=wrong)

    def test_are_not_asked_for_results_on_the_host(self) -> None:
        resource = Resource()
        before = driver.calls()
        assert ad.to_tensor(pa.array([True, False]), allocator=resource).shape == (2,)
        assert ad.from_dlpack(np.arange(3), copy=True, allocator=resource).shape == (3,)
        assert (resource.streams, driver.calls()) == ([], before)


class Failing(Resource):
    """An allocator that raises, so many times."""

    def __init__(self, error: BaseException, times: int = 1000) -> None:
        super().__init__()
        self.error, self.times, self.asked = error, times, 0

    def allocate(self, nbytes: int, stream: Any) -> int:
        self.asked += 1
        if self.asked <= self.times:
            raise self.error
        return super().allocate(nbytes, stream)


class TestFailures:
    def test_of_memory_are_tried_once_more(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        for error in [MemoryError("none left"), libraries.OutOfMemoryError("none left")]:
            resource = Failing(error, 1)
            assert contents(ad.from_dlpack(tensor, copy=True, allocator=resource)) == VALUES.tobytes()
            assert resource.asked == 2
            driver.settle()
            assert _native.collect() == 0

    def test_of_memory(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        resource = Failing(MemoryError("std::bad_alloc: 12 bytes"))
        with pytest.raises(MemoryError, match=rf"no memory for {BYTES} bytes.*MemoryError: std::bad_alloc: 12 bytes"):
            ad.from_dlpack(tensor, copy=True, allocator=resource)
        assert resource.asked == 2

    def test_of_another_kind(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        resource = Failing(RuntimeError("the pool is closed"))
        with pytest.raises(ad.ConversionError, match="the allocator failed: RuntimeError: the pool is closed"):
            ad.from_dlpack(tensor, copy=True, allocator=resource)
        assert resource.asked == 1

    def test_by_interrupts(self, pool: fakes.Pool) -> None:
        tensor = tensor_of(pool)
        interrupt = KeyboardInterrupt("now")
        with pytest.raises(KeyboardInterrupt) as raised:
            ad.from_dlpack(tensor, copy=True, allocator=Failing(interrupt))
        assert raised.value is interrupt

    @pytest.mark.parametrize(
        "raises", [KeyboardInterrupt("now"), SystemExit(3)], ids=lambda error: type(error).__name__
    )
    def test_by_interrupts_on_the_thread_of_a_loader(self, raises: BaseException) -> None:
        loader = ad.Loader(pa.table({"x": VALUES}), batch_size=64, device="cuda", allocator=Failing(raises))
        with pytest.raises(type(raises)) as raised:
            list(loader)
        assert raised.value is raises

    def test_to_take_it_back_are_shown(self, pool: fakes.Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        tensor = tensor_of(pool)
        shown: list[str] = []
        monkeypatch.setattr(sys, "unraisablehook", lambda raised: shown.append(repr(raised.exc_value)))

        class Broken(Resource):
            def deallocate(self, pointer: int, nbytes: int, stream: Any) -> None:
                super().deallocate(pointer, nbytes, stream)
                raise ValueError("not now")

        resource = Broken()
        ad.from_dlpack(tensor, copy=True, allocator=resource)
        driver.settle()
        assert _native.collect() == 0
        assert len(resource.given_back) == 1
        assert shown == ["ValueError('not now')"]


class Wrong(Resource):
    """An allocator that answers something else. What it gave comes back to it."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer, self.back = answer, []

    def allocate(self, nbytes: int, stream: Any) -> Any:
        return self.answer

    def deallocate(self, pointer: int, nbytes: int, stream: Any) -> None:
        self.back.append(pointer)


@pytest.fixture
def answers(pool: fakes.Pool) -> Iterator[dict[str, Any]]:
    host, other, managed = driver.allocate_host(BYTES), driver.allocate(BYTES, 1), driver.allocate_managed(BYTES)
    yield {
        "null": 0,
        "misaligned": pool.allocate(BYTES + 8) + 8,
        "short": pool.allocate(BYTES - 4),
        "host": host,
        "other device": other,
        "unknown": 1 << 20,
        "text": "here",
        "negative": -1,
        "managed": managed,
    }
    driver.settle()
    driver.free_host(host)
    driver.free(other, 1)
    driver.free(managed)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("null", BufferError, "gave no memory for 65536 bytes on cuda:0, and raised no error"),
        ("misaligned", BufferError, "which is no multiple of 256"),
        ("short", BufferError, "reach beyond an allocation that ends after 65532"),
        ("host", BufferError, "is said to be on cuda:0, and is on cuda_host"),
        ("other device", BufferError, "is said to be on cuda:0, and is on cuda:1"),
        ("unknown", BufferError, "the CUDA driver does not know it"),
        ("text", BufferError, "allocate must return an address, and returned 'here'"),
        ("negative", BufferError, "allocate must return an address, and returned -1"),
    ],
)
def test_what_cannot_be_used_is_refused_and_given_back(
    pool: fakes.Pool, answers: dict[str, Any], name: str, error: type[Exception], message: str
) -> None:
    tensor = tensor_of(pool)
    resource = Wrong(answers[name])
    with pytest.raises(error, match=message):
        ad.from_dlpack(tensor, copy=True, allocator=resource)
    driver.settle()
    _native.collect()
    assert resource.back == ([answers[name]] if name not in ("null", "text", "negative") else [])
    assert ad.memory_stats()["cuda:0"]["allocators_used"] == 0


def test_managed_memory_will_do(pool: fakes.Pool, answers: dict[str, Any]) -> None:
    tensor = tensor_of(pool)
    resource = Wrong(answers["managed"])
    copy = ad.from_dlpack(tensor, copy=True, allocator=resource)
    assert contents(copy) == VALUES.tobytes()
    del copy
    driver.settle()
    assert _native.collect() == 0
    assert resource.back == [answers["managed"]]


LIBRARIES = {"torch": libraries.Torch, "cupy": libraries.CuPy}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Iterator[Any]:
    stream = driver.Stream()
    library = LIBRARIES[request.param](stream.handle)
    yield library
    gc.collect()
    driver.settle()
    assert _native.collect() == 0
    assert library.cache.used == 0
    library.cache.close()


class TestNamespaces:
    def test_give_the_memory_of_their_arrays(self, library: Any) -> None:
        array = ad.to_tensor(bools(), xp=library)
        assert array.address in library.cache.sizes
        assert library.cache.asked == [3000]
        assert array.tobytes(3000) == EXPECTED
        arrays = ad.to_tensors(
            DeviceArray(pa.StructArray.from_arrays([pa.array([True, False])] * 2, names=["a", "b"])).give(), xp=library
        )
        assert {array.address for array in arrays.values()} <= library.cache.sizes.keys()
        assert library.cache.used == 3

    def test_work_that_they_have_under_way_comes_first(self, library: Any) -> None:
        """The memory was let go with work queued, and is given out again at once."""
        first = ad.to_tensor(bools(), xp=library)
        start = first.address
        first.held.release()
        del first
        driver.settle()
        assert _native.collect() == 0
        # The library's own array takes it, is written, and is gone.
        with driver.current():
            assert library.cache.alloc(3000, library.stream) == start
        driver.fill(start, 7, 3000, library.stream)
        library.cache.delete(start)
        with ad.stream(driver.Stream()):
            array = ad.to_tensor(bools(), xp=library)
        assert array.address == start
        assert array.tobytes(3000) == EXPECTED

    def test_their_later_work_comes_after_ours(self, library: Any) -> None:
        with ad.stream(driver.Stream()):
            array = ad.to_tensor(bools(), xp=library)
        start = array.address
        array.held.release()
        del array
        gc.collect()
        driver.settle()
        assert _native.collect() == 0
        with driver.current():
            assert library.cache.alloc(3000, library.stream) == start
        driver.fill(start, 7, 3000, library.stream)
        library.cache.delete(start)

    def test_another_allocator_comes_first(self, library: Any) -> None:
        resource = Resource()
        array = ad.to_tensor(bools(), xp=library, allocator=resource)
        assert list(resource.memory) == [array.address]
        assert library.cache.asked == []
        assert array.tobytes(3000) == EXPECTED
        del array
        driver.settle()

    def test_give_the_memory_of_what_moves(self, library: Any) -> None:
        array = ad.to_tensor(pa.array(range(100), pa.int32()), device="cuda", xp=library)
        assert array.address in library.cache.sizes
        assert array.tobytes(400) == np.arange(100, dtype="int32").tobytes()

    def test_on_its_default_stream(self, library: Any) -> None:
        library.stream = 0
        array = ad.to_tensor(bools(), xp=library)
        assert array.tobytes(3000) == EXPECTED

    def test_of_the_host_are_not_asked(self, library: Any) -> None:
        library.from_dlpack = np.from_dlpack
        assert ad.to_tensor(pa.array([True, False]), xp=library).tolist() == [True, False]
        assert library.cache.asked == []

    def test_under_capture(self, library: Any) -> None:
        array = DeviceArray(pa.array([True, False] * 50), how="pyarrow").give()
        with (
            driver.capture(library.stream),
            pytest.raises(BufferError, match=r"is being captured, and memory is allocated on it.*without `xp`"),
        ):
            ad.to_tensor(array, xp=library)
        driver.settle()
        _native.collect()
        assert library.cache.used == 0

    def test_without_memory(self, library: Any) -> None:
        for error in [libraries.OutOfMemoryError("CUDA out of memory."), MemoryError("CUDA out of memory.")]:

            def fails(nbytes: int, stream: int, error: Exception = error) -> int:
                raise error

            library.cache.alloc = fails
            with pytest.raises(MemoryError, match=r"no memory for 3000 bytes.*CUDA out of memory\."):
                ad.to_tensor(bools(), xp=library)
        del library.cache.alloc


def test_a_torch_without_cuda_takes_memory_of_ours() -> None:
    torch = libraries.Torch()
    torch.cuda.is_available = lambda: False
    array = ad.to_tensor(bools(), xp=torch)
    assert array.tobytes(3000) == EXPECTED
    assert torch.cache.asked == []


def test_after_the_interpreter_nothing_is_given_back() -> None:
    code = """
class Resource:
    def allocate(self, nbytes, stream): return driver.new_memory(nbytes)
    def deallocate(self, pointer, nbytes, stream): print("given back")
pool, stream = fakes.Pool(), driver.Stream()
tensor = ad.from_dlpack(fakes.Torch(pool, np.arange(6, dtype="int32"), stream=stream.handle))
kept, gone = (ad.from_dlpack(tensor, copy=True, allocator=Resource()) for _ in range(2))
del gone
driver.settle()
_native.collect()
print("end")
"""
    ran = run(code)
    assert (ran.returncode, ran.stdout.split("\n"), ran.stderr) == (0, ["given back", "end", ""], "")
