"""Conversions on a device that fail midway: an error, nothing lost, and everything usable afterwards."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import device_arrow
import driver
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import DeviceArray, drain, interrupted, unfinished

pytestmark = pytest.mark.skipif(
    os.environ.get("SIMULATED_CUDA_SCHEDULE", "lazy") not in ("lazy", "random:1"),
    reason="the calls that fail are the same under every schedule: two of them are enough",
)

UNKNOWN, OUT_OF_MEMORY = 999, 2
# Every function that conversions call.
FUNCTIONS = [
    "cuCtxPushCurrent_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamCreate",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuPointerGetAttributes",
    "cuMemAllocFromPoolAsync",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemsetD8Async",
    "cuLaunchKernel",
]


def forget(node: producers.Array) -> None:
    for part in [node, *node.parts]:
        part.array.null_count = -1  # type: ignore[attr-defined]


def prepare() -> tuple[Callable[[], None], fakes.Pool]:
    """All kinds of conversions: cast, filled, packed, unpacked, normalised, joined, padded, written to an output."""
    full = pa.py_buffer(b"\xff")
    numbers = [pa.Array.from_buffers(pa.int64(), 4, [full, pa.py_buffer(bytes(32))]) for _ in range(2)]
    columns = DeviceArray(pa.StructArray.from_arrays(numbers, ["a", "b"]), change=forget)
    lists = DeviceArray(pa.array([[True, None], None, [False, True]], pa.list_(pa.bool_(), 2)))
    bools = DeviceArray(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 2], pa.int8())))
    codes = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.int8()), pa.array([5, None], pa.int16()))
    coded = DeviceArray(pa.ListArray.from_arrays(pa.array([0, 3, 4], pa.int32()), codes), change=forget)
    slices = DeviceArray(pa.array([[1], [2, 3], []], pa.list_(pa.int32()))[1:])
    # Taken over before anything fails: what is not given away is released by nobody.
    sources = (columns, lists, bools, coded, slices)
    batch, rows, bytes8, words, sliced = (ad.from_arrow(source.give()) for source in sources)
    pool = fakes.Pool()
    out = fakes.Torch(pool, np.zeros((4, 2), "f4"))
    bytes_ = fakes.Torch(pool, np.ones(40, "?"))

    def run() -> None:
        ad.to_tensors(batch, dtype="float32")
        ad.to_tensors(batch, columns={"x": ["a", "b"], "y": "b"}, dtype="int8")
        ad.to_tensor(batch, order="F", nulls=0)
        assert ad.to_tensor(batch, out=out) is out
        ad.to_tensor(rows, nulls=False)
        ad.validity(rows)
        ad.validity(batch)
        ad.to_tensor(bytes8)
        ad.to_ragged(words, pad=(0, None), nulls="keep", dictionary="values")
        ad.to_ragged(sliced)
        ad.to_arrow(bytes_, type=pa.bool_())

    return run, pool


def attempt() -> bool:
    """Whether all conversions were made; whatever they have taken is given back by now."""
    run, pool = prepare()
    done = False
    try:
        run()
        done = True
    except (ad.ConversionError, MemoryError) as error:
        text = str(error)
    if not done:
        assert "failed with code" in text or "memory" in text, text
    del run
    gc.collect()
    # The failure may still be to come.
    for _ in range(2):
        drain()
    assert _native.collect() == 0, "memory waits for work that is done"
    assert not producers.wrongly_released(), producers.wrongly_released()
    producers.forget_all()
    device_arrow.clean_up()
    driver.clean_up()
    pool.close()
    assert driver.races() == 0, driver.report()
    assert driver.live("device") == 0, driver.report()
    return done


@pytest.fixture(autouse=True)
def _ask_again() -> None:
    """Only calls of the package are counted and fail."""
    driver.exempt = True


@pytest.mark.parametrize("code", [UNKNOWN, OUT_OF_MEMORY])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_call_may_fail(function: str, code: int) -> None:
    assert attempt()
    for nth in range(1, 1000):
        before = driver.calls(function)
        driver.fail(function, nth, code)
        attempt()
        if driver.calls(function) - before < nth:
            break
    assert nth > 1 or function in ("cuStreamCreate", "cuEventCreate", "cuMemHostAlloc"), "the function is not called"
    # What was to fail next fails the first of these.
    assert attempt() or attempt()


def test_a_module_that_does_not_load_leaves_views() -> None:
    """As on a device that neither the cubins nor the PTX are for."""
    script = """
        import sys
        sys.path[:0] = {path!r}
        import arrow_dlpack as ad, pyarrow as pa
        from device_arrow import DeviceArray
        import driver
        array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3])).give())
        assert not ad.to_tensor(array).copied
        for image in (1, 2):
            driver.fail("cuModuleLoadData", image, 209)
        try:
            ad.to_tensor(array, dtype="float32")
        except BufferError as error:
            assert "cuModuleLoadData failed with code 209" in str(error), error
        else:
            raise AssertionError
        assert not ad.to_tensor(array).copied
        # What fails once may not the next time.
        assert ad.to_tensor(array, dtype="float32").copied
    """
    text = textwrap.dedent(script).format(path=sys.path)
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


BOOLS = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 2], pa.int8()))
WAITS: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "misfits": (pa.array([1, 2, 3]), {"dtype": "float32"}),
    "bools": (BOOLS, {}),
}


@pytest.mark.parametrize("name", WAITS)
def test_an_interrupted_wait_leaves_the_memory_to_the_kernels(name: str) -> None:
    data, keywords = WAITS[name]
    # What is idle by now serves what follows.
    ad.to_tensor(DeviceArray(data).give(), **keywords)
    drain()
    for _ in range(3):
        source, gate = unfinished(data)
        array = ad.from_arrow(source.give())
        with interrupted():
            ad.to_tensor(array, **keywords)
        del array
        gc.collect()
        assert not source.memory.reused, "the kernel may still be under way"
        driver.open_gate(gate)
        drain()
        assert source.memory.reused
        device_arrow.clean_up()
        assert driver.live("device") == 0, driver.report()
    source, _ = unfinished(data)
    driver.open_gates()
    assert ad.to_tensor(source.give(), **keywords).copied


def test_page_locked_blocks_are_not_lost_to_interrupts() -> None:
    for number in range(4):
        source, gate = unfinished(BOOLS)
        array = ad.from_arrow(source.give())
        made = driver.calls("cuMemHostAlloc")
        with interrupted():
            ad.to_tensor(array)
        # The first one is made, and comes back.
        assert driver.calls("cuMemHostAlloc") - made <= (number == 0)
        driver.open_gate(gate)
        drain()
