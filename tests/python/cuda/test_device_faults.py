"""The driver fails, at each call in turn: an error, every struct released once, no memory lost or freed too early."""

from __future__ import annotations

import gc
import json
import os
import traceback
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import device_arrow
import driver
import producers
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import CUDA, CUDA_MANAGED, Consumer, DeviceArray, drain, exported

# Those that the package calls, but for the two that tell the text of an error.
FUNCTIONS = [
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamCreate",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuPointerGetAttributes",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
]
UNKNOWN = 999
FEWER = 77


def forget(node: producers.Array) -> None:
    for part in [node, *node.parts]:
        part.array.null_count = -1  # type: ignore[attr-defined]


def scenario(kind: int) -> Callable[[], Callable[[], None]]:
    """Unknown null counts and offsets are read, and what is made of them is exported."""

    def prepare() -> Callable[[], None]:
        full = pa.py_buffer(b"\xff")
        numbers = [pa.Array.from_buffers(pa.int64(), 4, [full, pa.py_buffer(bytes(32))]) for _ in range(2)]
        columns = DeviceArray(pa.StructArray.from_arrays(numbers, ["a", "b"]), kind, change=forget)
        lists = DeviceArray(pa.array([[1, 2], [], [3]]), kind)

        def run() -> None:
            batch, rows = ad.from_arrow(columns.give()), ad.from_arrow(lists.give())
            tensors = ad.to_tensors(batch)
            with exported(ad.to_arrow(tensors["a"])), exported(batch), exported(batch, sync="host"):
                pass
            with exported(ad.to_ragged(rows)):
                pass

        return run

    return prepare


SCENARIOS = {"device": scenario(CUDA), "managed": scenario(CUDA_MANAGED)}


def attempt(prepare: Callable[[], Callable[[], None]], function: str, nth: int) -> int:
    """Runs a scenario in which one call fails; 0 if that was survived, FEWER if there were fewer calls."""
    run = prepare()
    before = driver.calls(function)
    driver.fail(function, nth, UNKNOWN)
    try:
        run()
    except ad.ConversionError as error:
        said = str(error)
    else:
        said = "999"
    assert "999" in said or "driver" in said, said
    gc.collect()
    if driver.calls(function) - before < nth:
        # What is to fail would fail in what follows.
        return FEWER
    again()
    return 0


def again() -> None:
    """Everything works as before, and nothing is left."""
    drain()
    drain()
    assert _native._cuda_waiting() == 0, "memory waits for work that is done"
    source = DeviceArray(pa.array([1, 2, 3]), change=forget)
    array = ad.from_arrow(source.give())
    assert ad.to_tensor(array).shape == (3,)
    address = source.addresses[1]
    assert Consumer().read(array, [0, 24])[1] == source.memory.blocks[address]
    del array
    drain()
    assert not producers.wrongly_released(), producers.wrongly_released()
    device_arrow.clean_up()
    driver.clean_up()
    assert driver.races() == 0, driver.report()
    assert (driver.live("device"), driver.live("managed")) == (0, 0), driver.report()


def in_child(work: Callable[[], int]) -> tuple[int, str]:
    """What a child of this process returns, and says if it fails."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = work()
        except BaseException:
            os.write(writer, json.dumps(traceback.format_exc()[-3000:]).encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    return (os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)), text


@pytest.mark.no_devices
@pytest.mark.parametrize("memory", SCENARIOS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_may_fail(memory: str, function: str) -> None:
    for nth in range(1, 200):
        work: Any = lambda nth=nth: attempt(SCENARIOS[memory], function, nth)  # noqa: E731
        status, text = in_child(work)
        if status == FEWER:
            return
        assert status == 0, f"call {nth} of {function}: {status} {json.loads(text) if text else 'crashed'}"
    pytest.fail(f"{function} was called very often")
