"""As much of torch as the sections use, over the simulated driver. The calls that it makes of others are torch's."""

from __future__ import annotations

import ctypes
import itertools
import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import driver
import fakes
import numpy as np
from arrays import DTYPES, Array, DType, Library, Relaxed, sleep

__version__ = "a stand-in"
LIBRARY = Library()
bool, int8, int64, uint8 = DTYPES["bool"], DTYPES["int8"], DTYPES["int64"], DTYPES["uint8"]
float32, float64, bfloat16 = DTYPES["float32"], DTYPES["float64"], DTYPES["bfloat16"]


class Tensor:
    """A tensor in memory of the device, or of the host, which may be page-locked."""

    def __init__(self, array: Array | np.ndarray, held: object = None) -> None:
        self.array, self.held = array, held

    @property
    def is_cuda(self) -> Any:
        return isinstance(self.array, Array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def data_ptr(self) -> int:
        return self.array.address if isinstance(self.array, Array) else self.array.ctypes.data

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self.array[key], self)

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key].fill_(value)

    def view(self, *shape: int) -> Tensor:
        assert isinstance(self.array, Array)
        return Tensor(self.array.part(lambda whole: whole.reshape(shape)), self)

    def t(self) -> Tensor:
        assert isinstance(self.array, Array)
        return Tensor(self.array.part(lambda whole: whole.T), self)

    def fill_(self, value: Any) -> Tensor:
        if isinstance(self.array, Array):
            self.array.fill_(value)
        else:
            self.array[...] = value
        return self

    def copy_(self, source: Tensor, non_blocking: Any = False) -> Tensor:
        if not isinstance(self.array, Array):
            raise NotImplementedError("a copy to the host")
        if isinstance(source.array, Array):
            self.array.copy_(source.array)
        else:
            stream = LIBRARY.stream or driver.LEGACY
            driver.copy_from_host(self.data_ptr(), source.data_ptr(), self.array.nbytes, stream)
        del non_blocking
        return self

    def mul_(self, factor: float) -> Tensor:
        assert factor == 1.0
        assert isinstance(self.array, Array)
        self.array.passed()
        return self

    def sum(self) -> Any:
        return self.array.sum()

    def __ne__(self, other: object) -> Any:
        return self.array != other

    __hash__ = None  # type: ignore[assignment]

    def item(self) -> Any:
        return self.cpu().array.item()

    def cpu(self) -> Tensor:
        return Tensor(self.array.numpy()) if isinstance(self.array, Array) else self

    def numpy(self) -> np.ndarray:
        assert isinstance(self.array, np.ndarray)
        return self.array

    def to(self, device: str, non_blocking: Any = False) -> Tensor:
        del non_blocking
        if device == "cpu":
            return self.cpu()
        return Tensor(LIBRARY.array(self.array)) if isinstance(self.array, np.ndarray) else self

    def pin_memory(self) -> Tensor:
        made = empty(self.shape, dtype=DTYPES[self.array.dtype.name], pin_memory=True)
        made.array[...] = self.array
        return made

    def __dlpack_device__(self) -> tuple[int, int]:
        if isinstance(self.array, Array):
            return self.array.__dlpack_device__()
        return (fakes.CUDA_HOST, 0) if isinstance(self.held, _Pinned) else (1, 0)

    def __dlpack__(
        self, *, stream: int | None = -1, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if not isinstance(self.array, Array):
            # Page-locked memory, too, is the CPU's in the capsule.
            assert stream in (None, -1), "stream should be None on cpu."
            return self.array.__dlpack__(max_version=max_version, dl_device=(1, 0), copy=copy)
        if stream is not None and stream != -1:
            assert stream != 0
            if stream == driver.PER_THREAD:
                raise BufferError("per-thread default stream is not supported.")
            if stream != (LIBRARY.stream or driver.LEGACY):
                self.array.ordered_before(stream)
        return self.array.capsule(max_version is not None and max_version[0] >= 1)


class _Pinned:
    """Page-locked memory of the host, as long as a tensor of it is used."""

    def __init__(self, nbytes: int) -> None:
        with Relaxed():
            self.address = driver.allocate_host(max(nbytes, 1))
        self.buffer = (ctypes.c_char * max(nbytes, 1)).from_address(self.address)

    def __del__(self) -> None:
        driver.free_host(self.address)


def empty(*shape: Any, dtype: DType = float32, device: str = "cpu", pin_memory: Any = False) -> Tensor:
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
    if device != "cpu":
        return Tensor(LIBRARY.empty(shape, dtype))
    if not pin_memory:
        return Tensor(np.empty(shape, dtype.stored))
    pinned = _Pinned(int(np.prod(shape)) * dtype.stored.itemsize)
    return Tensor(np.ndarray(shape, dtype.stored, pinned.buffer), pinned)


def full(shape: Any, value: Any, **keywords: Any) -> Tensor:
    return empty(*shape, **keywords).fill_(value)


def zeros(*shape: Any, **keywords: Any) -> Tensor:
    return full(shape, 0, **keywords)


def arange(length: int, dtype: DType = int64, device: str = "cpu") -> Tensor:
    return from_numpy(np.arange(length, dtype=dtype.stored)).to(device)


def from_numpy(values: np.ndarray) -> Tensor:
    return Tensor(values)


def equal(one: Tensor, other: Tensor) -> Any:
    return np.array_equal(one.cpu().array, other.cpu().array)


def _of_capsule(capsule: Any) -> Tensor:
    return Tensor(LIBRARY.take(capsule))


def from_dlpack(x: Any) -> Tensor:
    if x.__dlpack_device__()[0] in (1, fakes.CUDA_HOST):
        return Tensor(np.from_dlpack(x), x)
    keywords = {"stream": LIBRARY.stream or driver.LEGACY}
    try:
        capsule = x.__dlpack__(**keywords, max_version=(1, 0))
    except TypeError:
        capsule = x.__dlpack__(**keywords)
    return _of_capsule(capsule)


from_dlpack.__module__ = "torch.utils.dlpack"
utils = types.SimpleNamespace(dlpack=types.SimpleNamespace(from_dlpack=_of_capsule))


class Stream:
    """A stream that waits for no other; of a handle, the one that has it."""

    def __init__(self, handle: int | None = None) -> None:
        self.made = None if handle is not None else driver.Stream()
        self.cuda_stream = handle if self.made is None else self.made.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.cuda_stream or 0)

    def synchronize(self) -> None:
        driver.synchronize_stream(self.cuda_stream or driver.LEGACY)

    def query(self) -> Any:
        try:
            with driver.current():
                driver.call("cuStreamQuery", driver.Handle(self.cuda_stream))
        except driver.CudaError:
            return False
        return True


@contextmanager
def _stream(stream: Stream) -> Iterator[None]:
    before, LIBRARY.stream = LIBRARY.stream, stream.cuda_stream
    try:
        yield
    finally:
        LIBRARY.stream = before


class CUDAGraph:
    """What was captured, to be run again."""

    def capture_begin(self, capture_error_mode: str) -> None:
        assert capture_error_mode == "global"
        self.stream = driver.Handle(LIBRARY.stream)
        with driver.current():
            driver.call("cuStreamBeginCapture_v2", self.stream, driver.GLOBAL)

    def capture_end(self) -> None:
        captured, self.made = driver.Handle(), driver.Handle()
        with driver.current():
            driver.call("cuStreamEndCapture", self.stream, ctypes.byref(captured))
            driver.call("cuGraphInstantiateWithFlags", ctypes.byref(self.made), captured, driver.U64(0))

    def replay(self) -> None:
        with driver.current():
            driver.call("cuGraphLaunch", self.made, driver.Handle(LIBRARY.stream))


@contextmanager
def _graph(graph: CUDAGraph, stream: Stream) -> Iterator[None]:
    driver.synchronize()
    with _stream(stream):
        graph.capture_begin("global")
        yield
        graph.capture_end()


def _sleep(cycles: int) -> None:
    sleep(LIBRARY.stream, cycles)


def _memory_info() -> tuple[int, int]:
    free, total = driver.SIZE(), driver.SIZE()
    with driver.current():
        driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return (free.value, total.value)


def _empty_cache() -> None:
    driver.synchronize()
    cache = LIBRARY.cache
    for address in cache.idle:
        driver.free(address)
        del cache.sizes[address], cache.streams[address]
    cache.idle.clear()


def _allocate(size: int, device: int | None = None, stream: Stream | None = None) -> int:
    assert device == 0
    assert stream is not None
    return LIBRARY.cache.alloc(size, stream.cuda_stream or 0)


def _allocated() -> int:
    cache = LIBRARY.cache
    return sum(itertools.chain(cache.sizes.values())) - sum(cache.sizes[address] for address in cache.idle)


cuda = types.SimpleNamespace(
    is_available=lambda: True,
    Stream=Stream,
    stream=_stream,
    current_stream=lambda device=None: Stream(LIBRARY.stream),
    default_stream=lambda device=None: Stream(0),
    synchronize=driver.synchronize,
    CUDAGraph=CUDAGraph,
    graph=_graph,
    mem_get_info=_memory_info,
    memory_allocated=_allocated,
    memory_snapshot=lambda: [{"is_expandable": "expandable_segments:True" in os.environ["PYTORCH_ALLOC_CONF"]}],
    empty_cache=_empty_cache,
    caching_allocator_alloc=_allocate,
    caching_allocator_delete=LIBRARY.cache.delete,
    _sleep=_sleep,
)
