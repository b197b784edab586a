"""As much of JAX as the sections use, over the simulated driver. The calls that it makes of others are JAX's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

__version__ = "a stand-in"


def jit(function: Any) -> Any:
    """Every call is queued as it stands."""
    return function


def _fori_loop(start: int, end: int, body: Callable[[int, Any], Any], value: Any) -> Any:
    for index in range(start, end):
        value = body(index, value)
    return value


lax = SimpleNamespace(fori_loop=_fori_loop)
