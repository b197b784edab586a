"""Which libraries have no wheel for free-threaded Python? Tests that use one are skipped there, with that reason."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import types
from typing import Any

import pytest

IS_FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# Of those of python/requirements/test.txt. Everywhere else a library that cannot be imported fails the tests.
WITHOUT_WHEELS = ("polars", "duckdb")


class Missing(types.ModuleType):
    """Stands for a library: whoever looks a name up in it is skipped, a test or a file of tests."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        pytest.skip(f"{self.__name__} has no wheel for free-threaded Python", allow_module_level=True)


def stand_in() -> None:
    """Puts a stand-in in the place of each such library that is not installed; nothing where Python has its lock."""
    for library in WITHOUT_WHEELS if IS_FREE_THREADED else ():
        if importlib.util.find_spec(library) is None:
            sys.modules[library] = Missing(library)


def skip_without(*libraries: str) -> None:
    """Skips the test if a stand-in is in the place of one of these libraries: for programs that the test starts."""
    for library in libraries:
        if is_missing(library):
            pytest.skip(f"{library} has no wheel for free-threaded Python")


def is_missing(library: str) -> bool:
    """Whether a stand-in is in the place of a library."""
    return isinstance(sys.modules.get(library), Missing)
