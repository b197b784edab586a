"""Data of a second device: is the first one, by whose label it may go, left alone?"""

from __future__ import annotations

import gc
from collections.abc import Callable

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA_MANAGED, DeviceArray, event_of, exported
from test_device_out import Out, filled

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


def test_managed_memory_of_the_first_device_is_written_by_it() -> None:
    """Who knows the memory by its first name, or by an event of it, reads behind the kernel of the other device."""
    out = Out(filled((3,), "i8"), kind=CUDA_MANAGED)
    first = ad.from_dlpack(out)
    named = first.to_device("cuda:1")
    source = ad.from_arrow(DeviceArray(pa.array([1, 2, 3]), ordinal=1).give())
    readers = [driver.Stream(), driver.Stream(), driver.Stream(1)]
    with exported(first) as struct:
        gate = driver.gate(driver.LEGACY, 1)
        ad.to_tensor(source, out=named)
        held = [fakes.Held(first.__dlpack__(stream=readers[0].handle, max_version=(1, 0)))]
        with driver.current():
            driver.call("cuStreamWaitEvent", driver.Handle(readers[1].handle), driver.Handle(event_of(struct)), 0)
        held.append(fakes.Held(named.__dlpack__(stream=readers[2].handle, max_version=(1, 0))))
        driver.open_gate(gate)
        for reader in readers:
            found = driver.read(out.start, 24, reader.handle, reader.ordinal)
            assert np.frombuffer(found, "i8").tolist() == [1, 2, 3]
    for one in held:
        one.release()
    assert read(named) == read(first) == [1, 2, 3]
    driver.synchronize(1)
    assert out.read()[0].tolist() == [1, 2, 3]
