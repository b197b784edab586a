"""What fails while batches are made on a device, and loops that end early: no leak, no hang, all goes on afterwards."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import pyarrow as pa
import pytest
from device_batches import GROUPS, NULLS, Consumer, host, on_cpu, same, table
from loader_reference import loader_threads

pytestmark = pytest.mark.skipif(
    os.environ.get("SIMULATED_CUDA_SCHEDULE", "lazy") not in ("lazy", "random:1"),
    reason="the calls that fail are the same under every schedule: two of them are enough",
)

HERE = Path(__file__).parent
PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])
DEVICES = pytest.mark.parametrize("device", ["cuda", "cuda_host"])
UNKNOWN, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 999, 2, 700
KEYWORDS: dict[str, Any] = {"columns": GROUPS, "nulls": NULLS, "batch_size": 16, "threads": 1}

# Every function that a loader has us call again and again.
OFTEN = [
    "cuCtxPushCurrent_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuEventRecord",
    "cuEventQuery",
    "cuMemAllocFromPoolAsync",
    "cuMemcpyHtoDAsync_v2",
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
# Of these page-locked memory needs no stream and no pool.
ONCE_ON_THE_HOST = ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuEventCreate", "cuMemHostAlloc"]
# The exit status of a process in which there was no such call.
FEWER = 7


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Any:
    yield
    gc.collect()
    assert loader_threads() == 0


def expected() -> list[Any]:
    return on_cpu(table(64, 20), **KEYWORDS)


def read(consumer: Consumer, batch: Any, device: str) -> Any:
    return consumer.batch(batch) if device == "cuda" else host(batch)


def epoch(consumer: Consumer, prefetch: int, device: str, found: list[Any]) -> None:
    """Appends what each batch holds. None is alive afterwards."""
    for batch in ad.Loader(table(64, 20), device=device, prefetch=prefetch, **KEYWORDS):
        found.append(read(consumer, batch, device))


def attempt(consumer: Consumer, prefetch: int, device: str = "cuda") -> bool:
    """Whether a whole epoch came out. What did come out is right, and what was taken is given back by now."""
    found: list[Any] = []
    text = ""
    try:
        epoch(consumer, prefetch, device, found)
    except (BufferError, MemoryError) as error:
        text = str(error)
    assert not text or "failed with code" in text or "no device" in text, text
    whole = expected()
    assert all(map(same, found, whole))
    assert text or len(found) == len(whole)
    del found
    settle()
    return not text


def settle() -> None:
    # The failure may still be to come.
    driver.drain()
    assert driver.drain() == 0
    driver.clean_up()


def check() -> None:
    assert driver.races() == 0, driver.report()
    assert not driver.has_current_context()
    # Of ours none is in use now.
    assert driver.live("device") == 0, driver.report()


@pytest.fixture(autouse=True)
def _ask_again() -> None:
    """Calls of the consumer fail too: it asks again."""
    driver.exempt = True


@PREFETCH
@pytest.mark.parametrize("code", [UNKNOWN, OUT_OF_MEMORY])
@pytest.mark.parametrize("function", OFTEN)
def test_fails_in_turn(function: str, code: int, prefetch: int) -> None:
    consumer = Consumer()
    assert attempt(consumer, prefetch)
    for nth in [*range(1, 8), *range(8, 1000, 9)]:
        before = driver.calls(function)
        driver.fail(function, nth, code)
        attempt(consumer, prefetch)
        check()
        if driver.calls(function) - before < nth:
            break
    assert nth > 1, "the function is not called"


def in_processes(run: Callable[[int], bool]) -> None:
    """Runs with each number from 1 in a process of its own, until that says that there is nothing more to fail."""
    for nth in [*range(1, 7), *range(7, 200, 12)]:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if run(nth) else FEWER
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, FEWER), nth
        if status == FEWER:
            break
    assert nth > 1, "there is no such call"


@pytest.mark.parametrize(
    ("device", "prefetch", "function"),
    [*(("cuda", 2, function) for function in ONCE), *(("cuda_host", 0, function) for function in ONCE_ON_THE_HOST)],
)
def test_fails_when_first_called(function: str, device: str, prefetch: int) -> None:
    def run(nth: int) -> bool:
        driver.fail(function, nth, UNKNOWN)
        consumer = Consumer()
        attempt(consumer, prefetch, device)
        check()
        has_failed = driver.calls(function) >= nth
        # Whatever it was, it is had the next time.
        assert attempt(consumer, prefetch, device) or not has_failed
        return driver.calls(function) >= nth

    in_processes(run)


@PREFETCH
@pytest.mark.parametrize("function", ["cuMemAllocFromPoolAsync", "cuMemHostAlloc", "cuMemcpyHtoDAsync_v2"])
def test_the_device_is_lost(function: str, prefetch: int) -> None:
    """An error that stays: the epoch ends with it, and nothing hangs, neither then nor at the exit."""

    def run(nth: int) -> bool:
        driver.fail(function, nth, ILLEGAL_ADDRESS)
        held = []
        text = ""
        try:
            held.extend(ad.Loader(table(64, 20), device="cuda", prefetch=prefetch, **KEYWORDS))
        except BufferError as error:
            text = str(error)
        if not text:
            return False
        assert "code 700" in text
        with pytest.raises(BufferError, match="code 700"):
            list(ad.Loader(table(64, 20), device="cuda", prefetch=prefetch, **KEYWORDS))
        assert loader_threads() == 0
        return True

    in_processes(run)


@PREFETCH
def test_no_memory_is_left(prefetch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device has room for three batches: whoever holds more gets an error, and goes on when there is room."""
    rows = 1 << 13
    monkeypatch.setenv("SIMULATED_CUDA_MEMORY", str(rows * 8 * 7 // 2))
    source = table(rows * 6, rows)
    keywords: dict[str, Any] = {"columns": ["row"], "batch_size": rows, "device": "cuda", "prefetch": prefetch}
    held = []
    with pytest.raises(MemoryError, match="cuda:0 has no memory for 65536 bytes"):
        held.extend(ad.Loader(source, **keywords))
    assert len(held) <= 3
    consumer = Consumer()
    for index, batch in enumerate(held):
        assert np.array_equal(consumer.read(batch)[:, 0], np.arange(index * rows, (index + 1) * rows))
    del held, batch
    settle()
    rest = [consumer.read(batch)[0, 0] for batch in ad.Loader(source, **keywords | {"prefetch": 0})]
    assert rest == [index * rows for index in range(6)]


@PREFETCH
@DEVICES
@pytest.mark.parametrize("taken", [0, 1, 3])
@pytest.mark.parametrize("how", ["dropped", "closed", "collected"])
def test_a_loop_that_ends_early(how: str, taken: int, device: str, prefetch: int) -> None:
    """Copies may be in flight then: their memory is used again when they are done."""
    for _ in range(3):
        iterator = iter(ad.Loader(table(960, 50), device=device, prefetch=prefetch, **KEYWORDS))
        held = [next(iterator) for _ in range(taken)]
        match how:
            case "closed":
                iterator.close()
                assert next(iterator, None) is None
            case "collected":
                cycle: list[Any] = [iterator]
                cycle.append(cycle)
                del cycle
        del iterator
        gc.collect()
        assert loader_threads() == 0
        del held
        settle()
    check()


@PREFETCH
@DEVICES
@pytest.mark.parametrize("at", [0, 1, 3])
def test_the_source_fails(at: int, device: str, prefetch: int) -> None:
    """After the batches before it, which stay as they are."""

    def chunks() -> Any:
        yield from table(16 * at, 16).to_batches()
        raise RuntimeError("the disk is lost")

    source = pa.RecordBatchReader.from_batches(table(0, 1).schema, chunks())
    held = []
    with pytest.raises(ad.ConversionError, match="the disk is lost"):
        held.extend(ad.Loader(source, columns=["row"], batch_size=16, device=device, prefetch=prefetch))
    assert len(held) == at
    for index, batch in enumerate(held):
        rows = Consumer().read(batch) if device == "cuda" else np.from_dlpack(batch)
        assert np.array_equal(rows[:, 0], np.arange(16 * index, 16 * index + 16))


@DEVICES
def test_a_signal_while_a_batch_is_waited_for(device: str) -> None:
    entered, asked, leave = threading.Event(), threading.Event(), threading.Event()

    def chunks() -> Any:
        yield from table(32, 16).to_batches()
        entered.set()
        assert leave.wait(60)
        yield from table(16, 16).to_batches()

    source = pa.RecordBatchReader.from_batches(table(0, 1).schema, chunks())
    iterator = iter(ad.Loader(source, columns=["row"], batch_size=16, device=device, prefetch=2))
    first = next(iterator)
    assert next(iterator) is not None

    def press() -> None:
        entered.wait(60)
        asked.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    # The signal may come as soon as it is allowed to.
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        asked.set()
        next(iterator)
    presser.join()
    leave.set()
    last = next(iterator)
    assert next(iterator, None) is None
    for batch in (first, last):
        rows = Consumer().read(batch) if device == "cuda" else np.from_dlpack(batch)
        assert np.array_equal(rows[:, 0], np.arange(16))


class TestForks:
    @PREFETCH
    @DEVICES
    def test_in_a_child_each_is_an_error_and_nothing_is_freed(self, device: str, prefetch: int) -> None:
        loader = ad.Loader(table(960, 50), device=device, prefetch=prefetch, **KEYWORDS)
        iterator = iter(loader)
        held = [next(iterator) for _ in range(2)]
        calls = driver.calls()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(RuntimeError, match="another process"):
                    next(iterator)
                with pytest.raises(BufferError, match="fork"):
                    iter(loader)
                del iterator, held
                gc.collect()
                # A loader of host memory works as ever.
                assert sum(1 for _ in ad.Loader(table(960, 50), prefetch=prefetch, **KEYWORDS)) == 60
                # Of the child's, the counts are a copy.
                assert prefetch or driver.calls() == calls
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        consumer = Consumer()
        for batch in [*held, *iterator]:
            assert read(consumer, batch, device)["y"].shape == (16,)
        del held, batch, iterator
        settle()
        check()


PRELUDE = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
import arrow_dlpack as ad, driver, fakes, numpy as np
from device_batches import GROUPS, NULLS, table
"""


@PREFETCH
@DEVICES
@pytest.mark.parametrize("held", ["", "held = [batch, next(iterator)]", "import builtins; builtins.held = batch"])
def test_the_interpreter_ends_in_the_middle_of_an_epoch(held: str, device: str, prefetch: int) -> None:
    code = f"""
source = table(9600, 50)
iterator = iter(ad.Loader(source, batch_size=16, columns=GROUPS, nulls=NULLS, device={device!r}, prefetch={prefetch}))
batch = next(iterator)
{held}
print("left")
"""
    ran = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "left\n", "")


class TestWithoutADriver:
    CODE = """
import pyarrow as pa
for device in ("cuda", "cuda_host"):
    for prefetch in (0, 2):
        loader = ad.Loader(pa.table({"a": [1, 2]}), batch_size=1, device=device, prefetch=prefetch)
        print(len(loader))
        try:
            iter(loader)
        except BufferError as error:
            print(error)
"""

    def run(self, **environment: str) -> str:
        prelude = PRELUDE.replace("from device_batches import GROUPS, NULLS, table", "")
        ran = subprocess.run(
            [sys.executable, "-c", prelude + self.CODE],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    def test_an_epoch_does_not_begin(self, tmp_path: Path) -> None:
        said = self.run(LD_LIBRARY_PATH=str(tmp_path))
        # Where a real driver is installed, there is one.
        if "there is no CUDA driver on this machine" not in said:
            pytest.skip("a CUDA driver is installed on this machine")
        assert said.count('use device="cpu"') == 4

    @pytest.mark.no_devices
    def test_nor_without_a_device(self) -> None:
        said = self.run(SIMULATED_CUDA_DEVICES="0")
        assert said.count("finds no device") == 4
        assert said.count("2\n") == 4


def test_one_device_is_lost_and_another_goes_on() -> None:
    def run(nth: int) -> bool:
        if nth > 1:
            return False
        driver.fail("cuMemcpyHtoDAsync_v2", 3, ILLEGAL_ADDRESS)
        keywords: dict[str, Any] = {"columns": ["row"], "batch_size": 16}
        with pytest.raises(BufferError, match="code 700"):
            list(ad.Loader(table(64, 20), device="cuda:1", prefetch=0, **keywords))
        consumer = Consumer(0)
        rows = [consumer.read(batch)[:, 0] for batch in ad.Loader(table(64, 20), device="cuda", **keywords)]
        assert np.array_equal(np.concatenate(rows), np.arange(64))
        return True

    in_processes(run)
