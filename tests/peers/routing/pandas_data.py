"""pandas and pyarrow for pandas' Arrow suites: what either imports comes through the package."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from routing import pyarrow_objects
from routing.namespace import Namespace
from routing.pyarrow_objects import ARROW_METHODS, plain, through


class FromArrow:
    """`pd.Series` or `pd.DataFrame`, whose `from_arrow` is given what the package imported."""

    def __init__(self, real: type) -> None:
        self._real = real

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._real(*arguments, **keywords)

    def from_arrow(self, source: Any) -> Any:
        """As pandas', of the package's array, batch or stream."""
        source = plain(source)
        is_arrow = any(hasattr(source, method) for method in ARROW_METHODS)
        return self._real.from_arrow(through(source) if is_arrow else source)


def namespaces() -> dict[str, Namespace]:
    """What a suite sees instead."""
    classes = {name: FromArrow(getattr(pd, name)) for name in ("Series", "DataFrame")}
    return {"pandas": Namespace(pd, classes), "pyarrow": Namespace(pa, pyarrow_objects.replaced())}
