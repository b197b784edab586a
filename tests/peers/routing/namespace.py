"""A module with some of its names replaced, and how a suite gets to see it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class Namespace(ModuleType):
    """`original`, with the names of `replaced` instead of its own."""

    def __init__(self, original: ModuleType, replaced: Mapping[str, Any]) -> None:
        super().__init__(original.__name__, original.__doc__)
        # Imports of submodules ask the parent for these.
        for name in ("__path__", "__spec__", "__file__"):
            setattr(self, name, getattr(original, name, None))
        self._original = original
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


@contextmanager
def seen(namespaces: Mapping[str, ModuleType]) -> Iterator[None]:
    """Whoever imports one of these modules inside the block gets the replacement; all others keep the original."""
    originals = {name: sys.modules[name] for name in namespaces}
    sys.modules.update(namespaces)
    try:
        yield
    finally:
        sys.modules.update(originals)
