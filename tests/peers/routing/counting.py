"""How many calls of a suite went through the package."""

from __future__ import annotations

from collections import Counter

routed: Counter[str] = Counter()


def count(call: str) -> None:
    """Notes that `call` went through the package."""
    routed[call] += 1


def total() -> int:
    """The number of calls so far."""
    return routed.total()
