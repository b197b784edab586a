"""The virtual clock of the simulated driver, in nanoseconds: what time it is, and what lasted from when to when."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

import driver
import pytest

MICROSECOND, MILLISECOND, SECOND = 1_000, 1_000_000, 1_000_000_000

is_there = os.environ.get("SIMULATED_CUDA_SCHEDULE") == "clock"
"""Whether the tests run under the schedule with a virtual clock."""

has_slow_copies = os.environ.get("SIMULATED_CUDA_MACHINE") == "a100-x4"
"""Whether the machine copies to the device more slowly than one of its threads packs."""

needed = pytest.mark.skipif(not is_there, reason="asks for virtual time: run.py --schedules clock")
"""Marks tests that ask for the time."""


class Lasted(NamedTuple):
    """An operation of a stream, or a wait, a sleep or a long call of a host thread."""

    start: int
    end: int
    bytes: int
    what: str
    whose: str

    @property
    def duration(self) -> int:
        return self.end - self.start


def now() -> int:
    """The virtual time."""
    return _function("simulated_cuda_virtual_time", ctypes.c_uint64)()


def seconds() -> float:
    """The time by which the package sleeps: the virtual one, or the wall's."""
    return now() / SECOND if is_there else time.monotonic()


def sleep(nanoseconds: int) -> None:
    """Lets this thread sleep by the virtual clock."""
    assert _function("simulated_cuda_sleep", ctypes.c_int)(ctypes.c_uint64(nanoseconds))


def busy(stream: int, nanoseconds: int, ordinal: int = 0) -> None:
    """Queues work that keeps the kernels of a device busy."""
    with driver.current(ordinal):
        assert _function("simulated_cuda_busy", ctypes.c_int)(ctypes.c_void_p(stream), ctypes.c_uint64(nanoseconds))


def is_exact() -> bool:
    """Whether the clock has moved by costs alone, and not because a thread computed for long."""
    return _function("simulated_cuda_forced_moves", ctypes.c_uint64)() == 0


def timeline(since: int = 0) -> list[Lasted]:
    """What lasted, of what began at `since` or later."""
    function = _function("simulated_cuda_timeline", ctypes.c_size_t)
    text = ctypes.create_string_buffer(function(None, ctypes.c_size_t(0)) + (1 << 16))
    function(text, ctypes.c_size_t(len(text)))
    lines = (line.split("\t") for line in text.value.decode().splitlines())
    found = (Lasted(int(start), int(end), int(count), what, whose) for start, end, count, what, whose in lines)
    return [lasted for lasted in found if lasted.start >= since]


def total(lasted: Iterable[Lasted], *whats: str) -> int:
    """How long everything of these kinds took, one after the other."""
    return sum(one.duration for one in lasted if one.what in whats)


def together(first: Iterable[Lasted], second: Iterable[Lasted]) -> int:
    """How long one of the first and one of the second lasted at once, if those of each follow each other."""
    second = list(second)
    return sum(max(0, min(a.end, b.end) - max(a.start, b.start)) for a in first for b in second)


def _function(name: str, result: type) -> ctypes._FuncPointer:
    lib = driver.simulated()
    assert lib is not None
    function = getattr(lib, name)
    function.restype = result
    return function
