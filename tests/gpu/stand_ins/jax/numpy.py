"""Arrays that never change, computed on JAX's own stream. What another library lent is released behind that."""

from __future__ import annotations

from typing import Any

import driver
import fakes
import numpy as np
from arrays import DTYPES, Array, DType, Library, sleep

LIBRARY = Library()
LIBRARY.stream = driver.Stream().handle
float32 = DTYPES["float32"]
CYCLES = 400_000_000


class ndarray:
    def __init__(self, array: Array) -> None:
        self.array = array

    def __mul__(self, factor: float) -> ndarray:
        assert factor == 1.0
        made = LIBRARY.empty(self.array.shape, self.array.dtype)
        made.copy_(self.array)
        return ndarray(made)

    def __matmul__(self, other: ndarray) -> ndarray:
        """Of zeros with zeros, which is the same, and takes a while."""
        assert other is self
        sleep(LIBRARY.stream, CYCLES)
        return self

    def __getitem__(self, place: tuple[int, int]) -> float:
        """Of a matrix of zeros. What is computed with it comes after the matrix, by the order of the stream."""
        del place
        return 0.0

    def sum(self) -> Any:
        return self.array.sum()

    def unsafe_buffer_pointer(self) -> int:
        return self.array.address

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, ndarray)
        return self.array == other.array

    __hash__ = None  # type: ignore[assignment]

    def block_until_ready(self) -> ndarray:
        driver.synchronize_stream(LIBRARY.stream)
        return self

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None, **_: Any) -> Any:
        self.array.ordered_before(stream)
        return self.array.capsule(max_version is not None)


def zeros(shape: Any, dtype: DType = float32) -> ndarray:
    return ndarray(LIBRARY.array(np.zeros(shape, dtype.stored)))


def arange(length: int, dtype: DType = float32) -> ndarray:
    return ndarray(LIBRARY.array(np.arange(length, dtype=dtype.stored)))


class _Lent:
    """Another library's tensor, which goes back to it when JAX's work is done."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __del__(self) -> None:
        driver.synchronize_stream(LIBRARY.stream)


def from_dlpack(x: Any) -> ndarray:
    assert x.__dlpack_device__()[0] == fakes.CUDA
    taken = LIBRARY.take(x.__dlpack__(stream=LIBRARY.stream))
    taken.owner = _Lent(taken.owner)
    return ndarray(taken)
