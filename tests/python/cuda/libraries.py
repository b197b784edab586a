"""Modules like torch, cupy and rmm, as far as their allocators and their `from_dlpack` go, over the simulated driver.

Their caches are what they are in the libraries: a block that is let go is given out again at once to the stream that it
was of, whose work may still use it.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import driver
import fakes


class OutOfMemoryError(RuntimeError):
    """PyTorch's, which is no MemoryError."""


class Cache:
    """The blocks of a library on one device, by the stream that they are of."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.streams: dict[int, int] = {}
        self.idle: list[int] = []
        self.asked: list[int] = []

    def alloc(self, nbytes: int, stream: int) -> int:
        assert driver.is_current(0), "memory of another device than the current one"
        self.asked.append(nbytes)
        for address in self.idle:
            if self.streams[address] == stream and self.sizes[address] >= nbytes:
                self.idle.remove(address)
                return address
        address = driver.new_memory(-(-nbytes // 512) * 512)
        self.sizes[address], self.streams[address] = nbytes, stream
        return address

    def delete(self, address: int) -> None:
        assert address in self.sizes
        assert address not in self.idle
        self.idle.append(address)
        fakes.reuse(address, self.sizes[address], self.streams[address] or driver.LEGACY)

    @property
    def used(self) -> int:
        return len(self.sizes) - len(self.idle)

    def close(self) -> None:
        for address in self.sizes:
            driver.free(address)


class Array:
    """What `from_dlpack` makes."""

    def __init__(self, x: Any, stream: int) -> None:
        self.held = fakes.cupy(x, stream)
        self.address, self.stream = self.held.address, stream

    def tobytes(self, nbytes: int) -> bytes:
        return driver.read(self.address, nbytes, self.stream)


class Stream:
    """A stream object of PyTorch and of CuPy; 0 is the legacy default one."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream = self.ptr = handle


class Torch(types.ModuleType):
    """A module like torch, imported as that. `stream` is the current one."""

    def __init__(self, stream: int = 0) -> None:
        super().__init__("torch")
        self.cache, self.stream = Cache(), stream

        def from_dlpack(x: Any) -> Array:
            return Array(x, self.stream or driver.LEGACY)

        from_dlpack.__module__ = "torch.utils.dlpack"
        self.from_dlpack = from_dlpack
        self.cuda = types.SimpleNamespace(
            is_available=lambda: True,
            current_stream=lambda device=None: Stream(self.stream),
            caching_allocator_alloc=self._alloc,
            caching_allocator_delete=self.cache.delete,
        )
        sys.modules["torch"] = self

    def _alloc(self, size: int, device: int | None = None, stream: Stream | None = None) -> int:
        assert device == 0
        assert stream is not None
        return self.cache.alloc(size, stream.cuda_stream)


class MemoryPointer:
    """Memory of CuPy, which goes back to its pool with this."""

    def __init__(self, cache: Cache, ptr: int) -> None:
        self.cache, self.ptr = cache, ptr

    def __del__(self) -> None:
        self.cache.delete(self.ptr)


class CuPy(types.ModuleType):
    """A module like cupy, imported as that."""

    def __init__(self, stream: int = 0) -> None:
        super().__init__("cupy")
        self.cache, self.stream = Cache(), stream

        def from_dlpack(x: Any) -> Array:
            return Array(x, self.stream or driver.LEGACY)

        from_dlpack.__module__ = "cupy._core.dlpack"
        self.from_dlpack = from_dlpack
        self.cuda = types.SimpleNamespace(
            get_current_stream=lambda: Stream(self.stream),
            alloc=lambda size: MemoryPointer(self.cache, self.cache.alloc(size, self.stream)),
        )
        sys.modules["cupy"] = self


class RmmStream:
    """A stream of RMM, made of an object with `__cuda_stream__`."""

    def __init__(self, obj: Any) -> None:
        version, self.handle = obj.__cuda_stream__()
        assert version == 0

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


class DeviceMemoryResource:
    """A memory resource of RMM, which takes no other stream than RMM's."""

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}
        self.streams: list[int] = []

    def allocate(self, nbytes: int, stream: RmmStream) -> int:
        assert type(stream) is RmmStream
        self.streams.append(stream.handle)
        address = driver.new_memory(nbytes)
        self.memory[address] = nbytes
        return address

    def deallocate(self, ptr: int, nbytes: int, stream: RmmStream) -> None:
        assert type(stream) is RmmStream
        assert self.memory.pop(ptr) == nbytes
        fakes.reuse(ptr, nbytes, stream.handle)
        driver.free(ptr)


DeviceMemoryResource.__module__ = "rmm.pylibrmm.memory_resource"


def rmm() -> type[DeviceMemoryResource]:
    """The class of resources, with the modules that it is of imported."""
    for name in ("rmm", "rmm.pylibrmm", "rmm.pylibrmm.stream"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["rmm.pylibrmm.stream"].Stream = RmmStream  # type: ignore[attr-defined]
    return DeviceMemoryResource
