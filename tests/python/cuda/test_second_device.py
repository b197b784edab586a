"""Data of a second device: is the first one, by whose label it may go, left alone?"""

from __future__ import annotations

import gc
from collections.abc import Callable

import arrow_dlpack as ad
import driver
import numpy as np
import pyarrow as pa
import pytest

VALUES = np.arange(6.0)
OUT_OF_MEMORY = 2


def started() -> int:
    return driver.calls("cuDevicePrimaryCtxRetain")


def read(tensor: ad.Tensor) -> list[float]:
    return np.from_dlpack(tensor.to_device("cpu")).tolist()


PINNED: dict[str, Callable[[ad.Tensor], list[float]]] = {
    "numpy": lambda tensor: np.from_dlpack(tensor).tolist(),
    "the CPU": read,
    "its device": lambda tensor: read(tensor.to_device("cuda:1")),
    "an array": lambda tensor: pa.array(ad.to_arrow(tensor).to_device("cpu")).to_pylist(),
}


@pytest.mark.parametrize("use", PINNED)
def test_page_locked_memory_of_it_starts_no_other_device(use: str) -> None:
    """It is every device's: "cuda_host" is only its name, whether the first device can be started or not."""
    there = ad.from_dlpack(VALUES).to_device("cuda:1")
    gate = driver.gate(driver.LEGACY, 1)
    pinned = there.to_device("cuda_host")
    before = started()
    driver.fail_from("cuDevicePrimaryCtxRetain", 1, OUT_OF_MEMORY)
    driver.open_gate(gate)
    assert PINNED[use](pinned) == VALUES.tolist()
    del pinned
    gc.collect()
    driver.synchronize(1)
    assert driver.soon(lambda: ad.collect() == 0)
    assert started() == before
