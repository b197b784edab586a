"""NumPy, whose `from_dlpack` is `ad.from_dlpack`: NumPy's arrays are the producers."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np

from routing.counting import count
from routing.namespace import Namespace


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> np.ndarray:
    """A tensor of ours as an array."""
    count("ad.from_dlpack")
    return np.from_dlpack(ad.from_dlpack(x, device=device, copy=copy))


def namespaces() -> dict[str, Namespace]:
    """What a suite sees instead."""
    return {"numpy": Namespace(np, {"from_dlpack": from_dlpack})}
