"""Every call of the driver fails once: what was taken is given back, and nothing is used before its time."""

from __future__ import annotations

import gc
import os
import traceback

import arrow_dlpack as ad
import driver
import exchange
import fakes
import numpy as np
import producers
import pytest
from arrow_dlpack import _native

VALUES = np.arange(64, dtype="int32")
UNKNOWN, OUT_OF_MEMORY = 999, 2

# Every function that the work below has us call again and again.
OFTEN = [
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuEventRecord",
    "cuEventQuery",
    "cuPointerGetAttributes",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
]
# And those that are called when something is first needed.
ONCE = [
    "cuInit",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuStreamCreate",
    "cuEventCreate",
    "cuMemHostAlloc",
    "cuMemPoolCreate",
    "cuMemPoolSetAttribute",
]
# What failed gives something back: a block, or a context that stays current.
GIVES_BACK = {"cuMemFreeAsync", "cuCtxPopCurrent_v2"}
# The exit status of a process in which there was no such call.
FEWER = 7


def work(pool: fakes.Pool, streams: list[driver.Stream]) -> None:
    """All that DLPack on CUDA does, once."""
    stream, consumer = streams
    source = fakes.Torch(pool, VALUES, stream=stream.handle)
    tensor = ad.from_dlpack(source)
    held = fakes.cupy(tensor, consumer.handle)
    assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
    held.release()
    copied = fakes.cupy(tensor, consumer.handle, copy=True)
    assert driver.read(copied.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
    copied.release()
    assert np.array_equal(np.from_dlpack(tensor.to_device("cpu")), VALUES)
    tensor.record_stream(consumer)
    driver.read(source.address, VALUES.nbytes, tensor.__cuda_array_interface__["stream"] or consumer.handle)
    managed = exchange.from_object(tensor)
    driver.read(managed.address, VALUES.nbytes, driver.LEGACY)
    managed.delete()
    ad.from_dlpack(fakes.Numba(pool, VALUES, stream=stream.handle))


def attempt() -> bool:
    """Whether the work was done; whatever it has taken is given back by now."""
    pool, streams = fakes.Pool(), [driver.Stream(), driver.Stream()]
    done = False
    try:
        work(pool, streams)
        done = True
    except (BufferError, MemoryError) as error:
        text = str(error)
    if not done:
        assert "failed with code" in text or "no device" in text, text
    gc.collect()
    # The failure may still be to come.
    for _ in range(2):
        driver.settle()
        _native._cuda_waiting()
    waiting = _native._cuda_waiting()
    driver.clean_up()
    pool.close()
    for stream in streams:
        stream.close()
    assert waiting == 0
    return done


def check(function: str) -> None:
    assert not producers.wrongly_released(), driver.report()
    producers.forget_all()
    assert driver.races() == 0, driver.report()
    if driver.has_current_context():
        assert function == "cuCtxPopCurrent_v2"
        driver.pop()
    # Of ours none is in use now.
    assert driver.live("device") == 0 or function in GIVES_BACK, driver.report()


@pytest.fixture(autouse=True)
def _ask_again() -> None:
    """Calls of the other libraries fail too: they ask again."""
    driver.ATTEMPTS = 2


@pytest.mark.parametrize("code", [UNKNOWN, OUT_OF_MEMORY])
@pytest.mark.parametrize("function", OFTEN)
def test_fails_in_turn(function: str, code: int) -> None:
    attempt()
    for nth in range(1, 1000):
        before = driver.calls(function)
        driver.fail(function, nth, code)
        attempt()
        check(function)
        if driver.calls(function) - before < nth:
            break
    assert nth > 1, "the function is not called"


@pytest.mark.parametrize("function", ONCE)
def test_fails_when_first_called(function: str) -> None:
    for nth in range(1, 1000):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                driver.fail(function, nth, UNKNOWN)
                attempt()
                check(function)
                # Whatever it was, it is had the next time.
                assert attempt() or driver.calls(function) > nth
                status = FEWER if driver.calls(function) < nth else 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, FEWER), nth
        if status == FEWER:
            break
    assert nth > 1, "the function is not called"
