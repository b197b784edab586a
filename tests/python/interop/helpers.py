"""What the tests of several libraries ask."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import producers


def address(x: Any) -> int:
    """Where the first element of a tensor is, by its own capsule: versioned if it can be."""
    try:
        capsule = x.__dlpack__(max_version=(1, 3))
    except TypeError:
        # Older producers do not know the keyword.
        capsule = x.__dlpack__()
    _, tensor = producers.read_dlpack(capsule)
    return (tensor.data or 0) + tensor.byte_offset


def flags(x: Any) -> int:
    """The flags of a versioned capsule."""
    return producers.read_dlpack(x.__dlpack__(max_version=(1, 3)))[0].flags


def script(code: str, timeout: int = 120) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, which may crash."""
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)
