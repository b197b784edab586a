"""Answers of a real driver: errors of earlier launches, features that it refuses, attributes that it does not know."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pytest
from arrow_dlpack import _native
from test_reaper import run

VALUES = np.arange(1024, dtype="int32")
KEPT_EVENTS = 256
NOT_SUPPORTED, UNKNOWN = 801, 999


@pytest.fixture(autouse=True)
def _only_the_package() -> None:
    """Only calls of the package are counted and fail."""
    driver.exempt = True


def tensor_of(pool: fakes.Pool) -> ad.Tensor:
    return ad.from_dlpack(fakes.Torch(pool, VALUES, stream=driver.Stream().handle))


def contents(tensor: ad.Tensor) -> bytes:
    return np.from_dlpack(tensor.to_device("cpu")).tobytes()


class TestACallThatHasTakenEffect:
    """It returns the error of an earlier asynchronous launch. Made again, it would do its work twice."""

    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_pops_no_context_of_another_library(self, pool: fakes.Pool, nth: int) -> None:
        tensor = tensor_of(pool)
        with driver.current(1):
            driver.fail_late("cuCtxPopCurrent_v2", nth, UNKNOWN)
            copy = ad.from_dlpack(tensor, copy=True)
            assert contents(copy) == VALUES.tobytes()
            assert driver.is_current(1)
        assert not driver.has_current_context()

    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_pushes_no_context_for_good(self, pool: fakes.Pool, nth: int) -> None:
        tensor = tensor_of(pool)
        driver.fail_late("cuCtxPushCurrent_v2", nth, UNKNOWN)
        with suppress(BufferError):
            contents(ad.from_dlpack(tensor, copy=True))
        assert not driver.has_current_context()

    def test_frees_no_memory_twice(self, pool: fakes.Pool) -> None:
        copy = ad.from_dlpack(tensor_of(pool), copy=True)
        # Makes the stream for frees.
        fakes.cupy(ad.from_dlpack(copy, copy=True), driver.LEGACY).release()
        # Whichever thread frees has a context: a call that is refused for want of one has no effect, and is made again.
        with driver.current():
            assert driver.drain() == 0
            held, before = fakes.cupy(copy, driver.LEGACY), driver.calls("cuMemFreeAsync")
            driver.fail_late("cuMemFreeAsync", 1, UNKNOWN)
            held.release()
            del copy
            assert driver.drain() == 0
            assert driver.calls("cuMemFreeAsync") - before == 1
        driver.run_all()
        assert ad.memory_stats()["cuda:0"]["pool_used"] == 0

    def test_destroys_no_event_twice(self, pool: fakes.Pool) -> None:
        source = fakes.Numba(pool, VALUES, stream=driver.Stream().handle)
        with driver.current():
            for _ in range(2):
                tensors = [ad.from_dlpack(source) for _ in range(KEPT_EVENTS + 2)]
                alive, before = driver.live("events"), driver.calls("cuEventDestroy_v2")
                driver.fail_late("cuEventDestroy_v2", 1, UNKNOWN)
                tensors.clear()
                assert driver.drain() == 0
                destroyed = alive - driver.live("events")
                assert destroyed >= 1
                assert driver.calls("cuEventDestroy_v2") - before == destroyed
        assert driver.live("events") == _native._cuda_kept()["events"]
