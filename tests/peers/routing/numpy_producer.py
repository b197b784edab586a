"""NumPy, whose arrays are handed out as tensors of ours: `Tensor.__dlpack__` answers for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np

from routing.counting import count
from routing.namespace import Namespace

CREATION = ("arange", "array", "empty", "empty_like", "eye", "full", "full_like", "linspace", "ones", "zeros")


class Routed(np.ndarray):
    """An array whose DLPack methods are those of a tensor of ours. Views and results are routed too."""

    def __dlpack__(self, **keywords: Any) -> Any:
        count("Tensor.__dlpack__")
        return ad.from_dlpack(self.view(np.ndarray)).__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        count("Tensor.__dlpack_device__")
        return ad.from_dlpack(self.view(np.ndarray)).__dlpack_device__()


def routing(create: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """`create`, with a routed result that owns its memory, so that what exports hold is the result itself."""

    @functools.wraps(create)
    def created(*arguments: Any, **keywords: Any) -> np.ndarray:
        return np.array(create(*arguments, **keywords).view(Routed), subok=True)

    return created


def asarray(*arguments: Any, **keywords: Any) -> np.ndarray:
    """NumPy's own, with a routed result."""
    return np.asarray(*arguments, **keywords).view(Routed)


def from_dlpack(x: Any, /, **keywords: Any) -> np.ndarray:
    """NumPy's own, with a routed result."""
    return np.from_dlpack(x, **keywords).view(Routed)


def replaced() -> dict[str, Any]:
    """The names that make or are arrays."""
    created = {name: routing(getattr(np, name)) for name in CREATION}
    return {**created, "asarray": asarray, "ndarray": Routed, "from_dlpack": from_dlpack}


def namespaces() -> dict[str, Namespace]:
    """What a suite sees instead."""
    return {"numpy": Namespace(np, replaced())}
