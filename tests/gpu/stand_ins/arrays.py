"""Arrays in device memory, as torch, CuPy and JAX have them, computed by NumPy: what the stand-ins for them share.

Every operation is queued on a stream of the simulated driver, and what it reads is what that stream finds there: so a
wait that is missing shows. Blocks that are let go are in use again at once, as in the caches of those libraries.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import clock
import driver
import fakes
import libraries
import numpy as np
import producers

RELAXED = 2
# Of a device whose clock is at 2 GHz.
CYCLES_PER_NANOSECOND = 2


@dataclass(frozen=True)
class DType:
    """An element: its code and bits in DLPack, the NumPy type that stores it, and a value as that stores it."""

    name: str
    code: int
    stored: np.dtype[Any]
    encode: Callable[[Any], Any] = lambda value: value

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.code, self.stored.itemsize * 8, 1)


def _bfloat16(value: Any) -> Any:
    return (np.asarray(value, np.float32).view(np.uint32) >> 16).astype(np.uint16)


_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_NAMES = [
    "bool",
    "float16",
    "float32",
    "float64",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
]
DTYPES = {
    name: DType(name, _CODES[np.dtype(name).kind], np.dtype(name))
    for name in [*_NAMES, "float16", "float32", "float64"]
}
DTYPES["bfloat16"] = DType("bfloat16", 4, np.dtype(np.uint16), _bfloat16)
_BY_KEY = {dtype.key: dtype for dtype in DTYPES.values()}


class Relaxed:
    """Calls that a capture elsewhere does not forbid, as the libraries make theirs to allocate."""

    def _exchange(self) -> None:
        mode = ctypes.c_uint(self.mode)
        with driver.current():
            driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        self.mode = mode.value

    def __enter__(self) -> None:
        self.mode = RELAXED
        self._exchange()

    def __exit__(self, *_: object) -> None:
        self._exchange()


def sleep(stream: int, cycles: int) -> None:
    """Keeps a stream busy for as many cycles, or until somebody waits for it."""
    clock.busy(_legacy(stream), cycles // CYCLES_PER_NANOSECOND)


def _legacy(stream: int) -> int:
    return stream or driver.LEGACY


class Library:
    """A library's cache of memory and its current stream; 0 is the legacy default one."""

    def __init__(self) -> None:
        self.cache, self.stream = libraries.Cache(), 0

    def block(self, nbytes: int) -> Block:
        return Block(self, nbytes)

    def empty(self, shape: Any, dtype: DType) -> Array:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        values = np.empty(shape, dtype.stored)
        block = self.block(max(values.nbytes, 1))
        return Array(self, block, block.address, values.shape, values.strides, dtype)

    def array(self, values: np.ndarray, dtype: DType | None = None) -> Array:
        made = self.empty(values.shape, dtype or DTYPES[values.dtype.name])
        made.store(values)
        return made

    def take(self, capsule: Any) -> Array:
        """What a capsule holds, for as long as the array is used."""
        held = fakes.Held(capsule)
        tensor = held.tensor
        dtype = _BY_KEY[(tensor.code, tensor.bits, tensor.lanes)]
        strides = [stride * dtype.stored.itemsize for stride in producers.dims(tensor.strides, tensor.ndim)]
        return Array(self, held, held.address, held.shape, strides, dtype)


class Block:
    """Memory of a library's cache, which goes back there with this."""

    def __init__(self, library: Library, nbytes: int) -> None:
        self.library = library
        with driver.current(), Relaxed():
            self.address = library.cache.alloc(nbytes, library.stream)

    def __del__(self) -> None:
        self.library.cache.delete(self.address)


class Place:
    """Device memory that NumPy slices for us, and never reads."""

    def __init__(self, address: int, shape: Any, strides: Any, stored: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": stored.str,
            "data": (address, False),
        }


_idle: dict[int, list[int]] = {}


def _pinned(nbytes: int) -> int:
    """Page-locked memory. The driver waits for the device when it allocates some, so it is used again and again."""
    if _idle.get(nbytes):
        return _idle[nbytes].pop()
    with Relaxed():
        return driver.allocate_host(nbytes)


def _is_capturing(stream: int) -> bool:
    status = ctypes.c_uint()
    with driver.current():
        driver.call("cuStreamIsCapturing", driver.Handle(stream), ctypes.byref(status))
    return status.value != 0


_constants: dict[Any, Array] = {}


class Later:
    """What a stream will have copied to the host: elements, and what is computed of them once they are there."""

    def __init__(self, array: Array) -> None:
        self.stream, self.array = _legacy(array.library.stream), array
        self.pinned = _pinned(max(array.nbytes, 1))
        driver.copy_to_host(self.pinned, array.address, array.nbytes, self.stream)
        # A graph writes there again.
        self.captured = _is_capturing(self.stream)
        self.steps: list[Callable[[Any], Any]] = []

    def then(self, step: Callable[[Any], Any]) -> Later:
        self.steps.append(step)
        return self

    def values(self) -> np.ndarray:
        driver.synchronize_stream(self.stream)
        buffer = (ctypes.c_char * self.array.nbytes).from_address(self.pinned)
        shape, strides, stored = self.array.shape, self.array.strides, self.array.dtype.stored
        value: Any = np.ndarray(shape, stored, buffer, strides=strides).copy()
        if not self.captured:
            _idle.setdefault(max(self.array.nbytes, 1), []).append(self.pinned)
        for step in self.steps:
            value = step(value)
        return value

    def sum(self) -> Later:
        return self.then(lambda values: values.sum())

    def all(self) -> Later:
        return self.then(lambda values: values.all())

    def item(self) -> Any:
        return self.values().item()

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())


class Array:
    """Elements of a block, by strides in bytes. Operations are queued on the library's current stream."""

    def __init__(self, library: Library, owner: object, address: int, shape: Any, strides: Any, dtype: DType) -> None:
        self.library, self.owner, self.dtype = library, owner, dtype
        self.address, self.shape, self.strides = address, tuple(shape), tuple(strides)

    @property
    def nbytes(self) -> int:
        """From the first element to the end of the last."""
        if 0 in self.shape:
            return 0
        reach = sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        return reach + self.dtype.stored.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def part(self, of: Callable[[np.ndarray], np.ndarray]) -> Array:
        """A view, of the elements that NumPy would take."""
        part = of(np.asarray(Place(self.address, self.shape, self.strides, self.dtype.stored)))
        address = part.__array_interface__["data"][0]
        return type(self)(self.library, self.owner, address, part.shape, part.strides, self.dtype)

    def __getitem__(self, key: Any) -> Array:
        return self.part(lambda whole: whole[key])

    def store(self, values: np.ndarray) -> None:
        """Writes elements in the order of the current stream."""
        assert self.nbytes == values.nbytes, "memory with gaps"
        with Relaxed():
            driver.write(self.address, np.ascontiguousarray(values).tobytes(), _legacy(self.library.stream))

    def fill_(self, value: Any) -> Array:
        stored, stream = self.dtype.stored, _legacy(self.library.stream)
        pattern = np.asarray(self.dtype.encode(value)).astype(stored)
        words = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
        if stored.itemsize in words and self.nbytes:
            word = ctypes.c_uint(int(pattern.view(f"u{stored.itemsize}")))
            count = driver.SIZE(self.nbytes // stored.itemsize)
            with driver.current():
                driver.call(words[stored.itemsize], driver.U64(self.address), word, count, driver.Handle(stream))
        elif self.nbytes:
            # Written once, and copied from then on.
            key = (stored.str, pattern.tobytes(), self.shape)
            if key not in _constants:
                _constants[key] = self.library.array(np.full(self.shape, pattern, stored))
            driver.copy(self.address, _constants[key].address, self.nbytes, stream)
        return self

    def copy_(self, source: Array, non_blocking: bool = False) -> Array:
        del non_blocking
        assert self.strides == source.strides
        driver.copy(self.address, source.address, self.nbytes, _legacy(self.library.stream))
        return self

    def passed(self) -> Array:
        """The elements as work of a kernel that reads each and writes it back: in place."""
        through = self.library.block(max(self.nbytes, 1))
        stream = _legacy(self.library.stream)
        driver.copy(through.address, self.address, self.nbytes, stream)
        driver.copy(self.address, through.address, self.nbytes, stream)
        return self

    def fetch(self) -> Later:
        return Later(self)

    def numpy(self) -> np.ndarray:
        return self.fetch().values()

    def sum(self) -> Any:
        return self.fetch().sum()

    def __eq__(self, other: object) -> Any:
        return self.fetch().then(lambda values: values == _there(other, self.dtype))

    def __ne__(self, other: object) -> Any:
        return self.fetch().then(lambda values: values != _there(other, self.dtype))

    __hash__ = None  # type: ignore[assignment]

    def capsule(self, versioned: bool) -> Any:
        producer = producers.DLPack(
            None,
            versioned=versioned,
            device=self.__dlpack_device__(),
            dtype=self.dtype.key,
            shape=self.shape,
            strides=tuple(stride // self.dtype.stored.itemsize for stride in self.strides),
            address=self.address,
            on_release=_Keep(self),
        )
        return producer.capsule()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (fakes.CUDA, 0)

    def ordered_before(self, stream: int | None) -> None:
        """Has a consumer's stream wait for the current one."""
        event = driver.Event(_legacy(self.library.stream))
        with driver.current():
            driver.call("cuStreamWaitEvent", driver.Handle(stream or driver.LEGACY), driver.Handle(event.handle), 0)
        event.close()


class _Keep:
    """Keeps an array until its capsule is released."""

    def __init__(self, array: Array) -> None:
        self.array: Array | None = array

    def __call__(self) -> None:
        self.array = None


def _there(other: object, dtype: DType) -> Any:
    return other.numpy() if isinstance(other, Array) else dtype.encode(other)
