"""pyarrow, whose data are stand-ins."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset

from routing import pyarrow_objects
from routing.namespace import Namespace


def namespaces() -> dict[str, Namespace]:
    """What a suite sees instead."""
    scanner = pyarrow_objects.Kind(pa.dataset.Scanner, pyarrow_objects.Routed)
    dataset = Namespace(pa.dataset, {"Scanner": scanner})
    replaced = {**pyarrow_objects.replaced(), "dataset": dataset}
    return {"pyarrow": Namespace(pa, replaced), "pyarrow.dataset": dataset}
