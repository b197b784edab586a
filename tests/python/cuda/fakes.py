"""Other libraries on CUDA, as far as their producing and consuming goes, over the simulated driver."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

import driver
import numpy as np
import producers

CUDA, CUDA_HOST, MANAGED = 2, 3, 13
_DTYPES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
# What a block holds once it is freed and used for something else.
REUSED = 0xAB


def reuse(pointer: int, nbytes: int, stream: int, ordinal: int = 0) -> None:
    """What the next user of a freed block does, at once: whatever has still to use the block is a race then."""
    # A call that is told to fail may be this one.
    with suppress(driver.CudaError):
        driver.fill(pointer, REUSED, nbytes, stream, ordinal)


class Pool:
    """An allocator like PyTorch's and CuPy's: a freed block is in use again at once, on the stream that it was of."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        self.blocks: list[int] = []
        self.freed = 0

    def allocate(self, nbytes: int) -> int:
        self.blocks.append(driver.allocate(max(nbytes, 1), self.ordinal))
        return self.blocks[-1]

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        self.freed += 1
        if nbytes:
            driver.fill(pointer, REUSED, nbytes, stream, self.ordinal)

    def close(self) -> None:
        """Gives all blocks back to the driver, once the package has released what it has let go of."""
        driver.drain()
        driver.synchronize(self.ordinal)
        for pointer in self.blocks:
            driver.free(pointer, self.ordinal)


class Torch:
    """A tensor of PyTorch: ordered by its current stream, freed to a caching allocator, and exported only from the
    current device and to streams that it knows."""

    current_stream: int = driver.LEGACY

    def __init__(
        self,
        pool: Pool,
        values: np.ndarray,
        *,
        stream: int | None = None,
        versioned: bool = True,
        read_only: bool = False,
        address: int | None = None,
        device: tuple[int, int] | None = None,
    ) -> None:
        values = np.ascontiguousarray(values)
        self.pool, self.ordinal, self.nbytes = pool, pool.ordinal, values.nbytes
        self.stream = Torch.current_stream if stream is None else stream
        self.address = pool.allocate(values.nbytes) if address is None else address
        self.device = device or (CUDA, pool.ordinal)
        if values.nbytes:
            driver.write(self.address, values.tobytes(), self.stream, self.ordinal)
        self.versioned = versioned
        self.flags = producers.READ_ONLY if read_only else 0
        self.dtype = (_DTYPES[values.dtype.kind], values.dtype.itemsize * 8, 1)
        self.shape = values.shape
        self.strides = tuple(stride // values.dtype.itemsize for stride in values.strides)
        self.calls: list[dict[str, Any]] = []
        self.producer: producers.DLPack | None = None

    def free(self) -> None:
        self.pool.free(self.address, self.nbytes, self.stream)

    def capsule(self, versioned: bool) -> Any:
        self.producer = producers.DLPack(
            None,
            versioned=versioned and self.versioned,
            flags=self.flags,
            device=self.device,
            dtype=self.dtype,
            shape=self.shape,
            strides=self.strides,
            address=self.address,
            on_release=self.free,
        )
        return self.producer.capsule()

    def order(self, stream: int | None) -> None:
        """Has the consumer's stream wait for this library's."""
        if stream is None:
            stream = driver.LEGACY
        if stream != self.stream:
            event = driver.Event(self.stream, self.ordinal)
            _wait(stream, event, self.ordinal)
            event.close()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(
        self,
        *,
        stream: int | None = -1,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        self.calls.append({"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy})
        if not driver.is_current(self.ordinal):
            raise BufferError("Can't export tensors on a different CUDA device index.")
        if stream is not None and type(stream) is not int:
            raise TypeError("stream must be ``int`` or ``none``")
        if stream != -1:
            if stream == driver.PER_THREAD:
                raise BufferError("per-thread default stream is not supported.")
            assert stream != 0
            self.order(stream)
        return self.capsule(max_version is not None and max_version[0] >= 1)


def _wait(stream: int, event: driver.Event, ordinal: int) -> None:
    with driver.current(ordinal):
        driver._call("cuStreamWaitEvent", driver.Handle(stream), driver.Handle(event.handle), 0)


class OldTorch(Torch):
    """A producer from before versions: it knows no keyword but the stream."""

    def __dlpack__(self, stream: int | None = None) -> Any:  # type: ignore[override]
        self.calls.append({"stream": stream})
        self.order(stream)
        return self.capsule(False)


class Plain(Torch):
    """A producer that takes no keyword at all: its data is ready on the legacy default stream."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        self.calls.append({})
        self.order(None)
        return self.capsule(False)


class Jax(Torch):
    """A producer that asks for a version, takes nothing else but the stream, and marks what it has as read-only."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.flags = producers.READ_ONLY

    def __dlpack__(self, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:  # type: ignore[override]
        self.calls.append({"stream": stream, "max_version": max_version})
        self.order(stream)
        return self.capsule(max_version is not None)


class PinnedTorch:
    """A page-locked tensor of PyTorch: it says that it is CUDA_HOST, and its capsule that it is the CPU's."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA_HOST, 0)

    def __dlpack__(
        self, *, stream: int | None = -1, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        assert stream is None or stream == -1, "stream should be None on cpu."
        return producers.DLPack(self.values.tobytes(), shape=self.values.shape, strides=(1,)).capsule()


class Numba:
    """A device array of Numba: nothing but the CUDA array interface."""

    def __init__(self, pool: Pool, values: np.ndarray, *, stream: int, named: int | None = -1, **changed: Any) -> None:
        self.pool, self.nbytes, self.stream = pool, values.nbytes, stream
        self.address = pool.allocate(values.nbytes)
        driver.write(self.address, values.tobytes(), stream, pool.ordinal)
        # What it says of its stream: by default the truth.
        self.interface = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": stream if named == -1 else named,
            "version": 3,
            **changed,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface

    def __del__(self) -> None:
        self.pool.free(self.address, self.nbytes, self.stream)


class Held:
    """What a consumer has taken out of a capsule: its memory, until `release`."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule
        managed, self.tensor = producers.read_dlpack(capsule)
        self.versioned = producers.capsule_name(capsule) == b"dltensor_versioned"
        self.flags = managed.flags if self.versioned else None
        self.device = (self.tensor.device_type, self.tensor.device_id)
        self.address = (self.tensor.data or 0) + self.tensor.byte_offset
        self.shape = producers.dims(self.tensor.shape, self.tensor.ndim)

    def release(self) -> None:
        # The capsule's destructor runs the deleter.
        del self.capsule, self.tensor


def cupy(x: Any, stream: int, **keywords: Any) -> Held:
    """Takes a tensor as CuPy and JAX do, for work on a stream."""
    assert x.__dlpack_device__()[0] in (CUDA, MANAGED)
    held = Held(x.__dlpack__(stream=stream, max_version=(1, 0), **keywords))
    assert held.device == x.__dlpack_device__()
    return held


def torch(x: Any, stream: int = driver.LEGACY) -> Held:
    """Takes a tensor as PyTorch does: 1 stands for its default stream."""
    assert x.__dlpack_device__()[0] == CUDA
    try:
        return Held(x.__dlpack__(stream=stream, max_version=(1, 0)))
    except TypeError:
        return Held(x.__dlpack__(stream=stream))


def bytes_at(address: int, nbytes: int) -> bytes:
    """What the host finds in memory that it reaches."""
    return ctypes.string_at(address, nbytes)
