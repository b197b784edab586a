"""As much of CuPy as the sections use, over the simulated driver. The calls that it makes of others are CuPy's."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import driver
import libraries
import numpy as np
from arrays import DTYPES, Array, Block, DType, Library, sleep

__version__ = "a stand-in"
LIBRARY = Library()
float32 = DTYPES["float32"]
_BY_TYPESTR = {dtype.stored.str: dtype for name, dtype in DTYPES.items() if name != "bfloat16"}


class ndarray(Array):
    """An array, with the few names of its own that the sections use."""

    def fill(self, value: Any) -> None:
        self.fill_(value)

    def get(self) -> np.ndarray:
        return self.numpy()

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "strides": None,
            "typestr": self.dtype.stored.str,
            "data": (self.address, False),
            "stream": self.library.stream or driver.LEGACY,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (driver_device(self.address), 0)

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, **_: Any) -> Any:
        # CuPy has the consumer's stream wait; None is the legacy default one.
        if stream != -1:
            self.ordered_before(stream)
        return self.capsule(max_version is not None)


def driver_device(address: int) -> int:
    return 13 if address in _managed else 2


_managed: set[int] = set()


def _own(array: Array) -> ndarray:
    return ndarray(array.library, array.owner, array.address, array.shape, array.strides, array.dtype)


def empty(shape: Any, dtype: DType = float32) -> ndarray:
    if not _allocators:
        return _own(LIBRARY.empty(shape, dtype))
    values = np.empty(shape, dtype.stored)
    owner = _allocators[-1](values.nbytes)
    return ndarray(LIBRARY, owner, owner.address, values.shape, values.strides, dtype)


def zeros(shape: Any, dtype: DType = float32) -> ndarray:
    made = empty(shape, dtype)
    made.fill(0)
    return made


def from_dlpack(x: Any) -> ndarray:
    return _own(LIBRARY.take(x.__dlpack__(stream=LIBRARY.stream or driver.LEGACY, max_version=(1, 0))))


from_dlpack.__module__ = "cupy._core.dlpack"


def asarray(x: Any) -> ndarray:
    """By the CUDA array interface, whose stream is waited for."""
    interface = x.__cuda_array_interface__
    dtype = _BY_TYPESTR[interface["typestr"]]
    if interface.get("stream") is not None:
        event = driver.Event(interface["stream"])
        with driver.current():
            stream = driver.Handle(LIBRARY.stream or driver.LEGACY)
            driver.call("cuStreamWaitEvent", stream, driver.Handle(event.handle), 0)
        event.close()
    strides = interface.get("strides") or np.empty(interface["shape"], dtype.stored).strides
    return ndarray(LIBRARY, x, interface["data"][0], interface["shape"], strides, dtype)


class RawKernel:
    """A kernel that waits for as many cycles as it is told."""

    def __init__(self, code: str, name: str) -> None:
        assert f"void {name}(long long cycles)" in code

    def __call__(self, grid: Any, block: Any, arguments: Any) -> None:
        assert grid == block == (1,)
        sleep(LIBRARY.stream, int(arguments[0]))


class Stream:
    """A stream that is the current one inside its `with` block."""

    def __init__(self, non_blocking: bool = False) -> None:
        self.made = driver.Stream(flags=driver.NON_BLOCKING if non_blocking else 0)
        self.ptr = self.made.handle

    def __enter__(self) -> Stream:
        self.before, LIBRARY.stream = LIBRARY.stream, self.ptr
        return self

    def __exit__(self, *_: object) -> None:
        LIBRARY.stream = self.before

    def synchronize(self) -> None:
        self.made.synchronize()


class ManagedMemory:
    """Managed memory, which a pool keeps for as long as the process."""

    def __init__(self, nbytes: int) -> None:
        self.address = driver.allocate_managed(nbytes)
        _managed.add(self.address)


class MemoryPool:
    def __init__(self, allocator: Callable[[int], Any]) -> None:
        self.malloc = allocator


_allocators: list[Callable[[int], Any]] = []


@contextmanager
def _using_allocator(allocator: Callable[[int], Any]) -> Iterator[None]:
    _allocators.append(allocator)
    try:
        yield
    finally:
        _allocators.pop()


def _alloc(nbytes: int) -> Any:
    assert driver.is_current(0), "memory of another device than the current one"
    block = Block(LIBRARY, nbytes)
    return types.SimpleNamespace(ptr=block.address, owner=block)


cuda = types.SimpleNamespace(
    Stream=Stream,
    Device=lambda ordinal=0: types.SimpleNamespace(synchronize=lambda: driver.synchronize(ordinal)),
    MemoryPool=MemoryPool,
    malloc_managed=ManagedMemory,
    using_allocator=_using_allocator,
    get_current_stream=lambda: libraries.Stream(LIBRARY.stream),
    alloc=_alloc,
)
