"""The libraries we are compared with: each imported when a route needs it, held to one thread, left out if missing."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

# How each is installed, by the module that is imported.
DISTRIBUTIONS = {
    "arro3.core": "arro3-core",
    "arrow_dlpack": "arrow-dlpack",
    "datasets": "datasets",
    "duckdb": "duckdb",
    "nanoarrow": "nanoarrow",
    "numpy": "numpy",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "pyarrow",
    "torch": "torch",
    "tvm_ffi": "apache-tvm-ffi",
}

_used: dict[str, Any] = {}
_unwanted: set[str] = set()


def leave_out(names: str) -> None:
    """Names that are not imported, separated by commas."""
    _unwanted.update(filter(None, names.split(",")))


def find(name: str) -> Any | None:
    """The module, limited to one thread; None if it is not here."""
    if name not in _used:
        _used[name] = None if name in _unwanted else load(name)
    return _used[name]


def load(name: str) -> Any | None:
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    # The others obey the environment, or have one thread.
    if name == "torch":
        module.set_num_threads(1)
    elif name == "pyarrow":
        module.set_cpu_count(1)
        module.set_io_thread_count(1)
    elif name == "duckdb":
        module.execute("SET threads = 1")
    elif name == "datasets":
        module.disable_progress_bars()
    return module


def versions() -> dict[str, str]:
    """The version of each library that was used."""
    here = {"arrow_dlpack", "numpy", "pyarrow"} | {name for name, module in _used.items() if module is not None}
    return {DISTRIBUTIONS[name]: importlib.metadata.version(DISTRIBUTIONS[name]) for name in sorted(here)}


def left_out() -> list[str]:
    """Which libraries were asked for and are not here."""
    return sorted(DISTRIBUTIONS[name] for name, module in _used.items() if module is None)
