"""pyarrow, whose data are stand-ins."""

from __future__ import annotations

import pyarrow as pa

from routing import pyarrow_objects
from routing.namespace import Namespace


def namespaces() -> dict[str, Namespace]:
    """What a suite sees instead."""
    return {"pyarrow": Namespace(pa, pyarrow_objects.replaced())}
