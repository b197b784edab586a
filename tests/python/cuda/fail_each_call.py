"""Runs workloads in processes of their own, in each of which one call of the driver fails: the n-th of a function.

    fail_each_call.py CODE once WORKLOAD...   that call alone fails, of each function, until a run makes fewer calls
    fail_each_call.py CODE lost WORKLOAD...   so does every call after it, as when the context is lost: n counts all

`rare` as a workload stands for functions that the common ones do not call. A process checks what is left, and ends as
any other does. Prints how many there were, as JSON, with what went wrong.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import driver  # noqa: E402
import producers  # noqa: E402
import workloads  # noqa: E402
from arrow_dlpack import _native  # noqa: E402

# Calls that free something: what they do not free is left. Objects of these kinds, one of each.
FREES = {
    "cuMemFreeAsync": "device",
    "cuEventDestroy_v2": "events",
    "cuMemPoolDestroy": "pools",
    "cuMemFree_v2": "device",
    "cuMemFreeHost": "pinned",
    "cuStreamDestroy_v2": "streams",
    "cuModuleUnload": "modules",
}
# The failure of these leaves the thread's context, or its capture mode, as it is.
RESTORES = {"cuCtxPopCurrent_v2", "cuThreadExchangeStreamCaptureMode"}
KINDS = ["device", "pinned", "managed", "registered", "streams", "events", "contexts", "pools", "modules", "graphs"]
SECONDS = 240
# All functions, all calls of which fail.
LOST = "*"


@dataclass
class Found:
    """What a child says of itself: which calls it made, and what it keeps when it ends."""

    calls: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    wrong: str = ""


def count() -> dict[str, int]:
    return {name: driver.calls(name) for name in _native._cuda_functions()}


def settle() -> None:
    """What the package has let go of is given back, as nothing uses it any more."""
    # The failure may still be to come.
    driver.drain()
    driver.drain()


def run_once(workload: str, function: str | None, nth: int, code: int) -> dict[str, int]:
    """Runs a workload in which a call fails; the calls that it made."""
    run = (workloads.COMMON | workloads.RARE)[workload]()
    before = count()
    if function is not None:
        driver.fail(function, nth, code)
    said = ""
    try:
        run()
    except (BufferError, MemoryError) as error:
        said = str(error)
    del run
    if said:
        # Where there is no memory, that is said instead.
        no_memory = code == workloads.OUT_OF_MEMORY and "memory" in said
        assert function is not None, said
        assert f"failed with code {code}" in said or no_memory, said
    settle()
    return {name: number - before[name] for name, number in count().items()}


def check(function: str | None, failed: bool) -> None:
    """Nothing is lost, nothing was freed too early, and this thread is as it was."""
    # It may be what failed.
    driver.call("cuInit", 0)
    settle()
    assert _native.collect() == 0, "memory waits for work that is done"
    while driver.has_current_context():
        assert failed, "a context stays current"
        assert function in RESTORES, "a context stays current"
        driver.pop()
    workloads.close()
    assert not producers.wrongly_released(), producers.wrongly_released()
    assert driver.races() == 0, driver.report()
    kept = _native._cuda_kept()
    for kind in KINDS:
        lost = driver.live(kind) - kept.get(kind, 0)
        excused = failed and function is not None and FREES.get(function) == kind
        assert lost == 0 or (excused and lost == 1), f"{lost} {kind} lost\n{driver.report()}"


def child_once(found: Found, workload: str, function: str | None, nth: int, code: int) -> None:
    found.calls = run_once(workload, function, nth, code)
    failed = function is not None and found.calls[function] >= nth
    if function is None or failed:
        check(function, failed)
        if failed:
            # Whatever it was, it is had the next time.
            run_once(workload, None, 0, 0)
            check(function, failed)
    found.kept = _native._cuda_kept()


def child_lost(found: Found, workload: str, nth: int, code: int) -> None:
    # A context is not lost before there is one.
    run_once("no_such_device", None, 0, code)
    first, then = workloads.COMMON[workload](), workloads.COMMON["dlpack"]()
    driver.fail_from(LOST, nth, code)
    before = driver.calls()
    for run in (first, then):
        said = ""
        try:
            run()
        except (BufferError, driver.CudaError) as error:
            # Conversions of a named column say which one it was.
            said = str(error).removeprefix('column "x": ')
        # At first it may have been a call of another library's that failed, or none at all.
        own = "the CUDA context is lost" in said
        assert own or (run is first and (not said or said.startswith(("cu", "simulated")))), said
        gc.collect()
        made = driver.calls() - before
        if run is first and made < nth:
            break
    found.calls = {LOST: made}
    # Foreign memory that work of ours may still use is never given back, and none is before its time.
    assert driver.races() == 0, driver.report()


def in_child(log: Path, work, *arguments) -> tuple[bool, Found]:
    """Runs work in a fork of this process. True in the child, which is to end as a process does; else what it found."""
    reader, writer = os.pipe()
    process = os.fork()
    found = Found()
    if process == 0:
        os.close(reader)
        os.environ["SIMULATED_CUDA_LOG"] = str(log)
        os.environ["SIMULATED_CUDA_REPORT_AT_EXIT"] = "1"
        # One that hangs, at its end too, is ended.
        signal.alarm(SECONDS)
        driver.exempt = True
        try:
            work(found, *arguments)
        except BaseException:
            found.wrong = traceback.format_exc()[-3000:]
        with os.fdopen(writer, "w") as out:
            json.dump(vars(found), out)
        producers.forget_all()
        return True, found
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    found = Found(**json.loads(text)) if text else Found(wrong=f"it said nothing, and ended with status {status}")
    if status and not found.wrong:
        found.wrong = f"it ended with status {status}"
    return False, found


def leaks(log: Path, found: Found, function: str) -> list[str]:
    """What is alive at exit beside what is kept."""
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    wrong = []
    for line in lines:
        if line.startswith("leak: "):
            _, kind, number = line.split()
            allowed = found.kept.get(kind, 0) + (FREES.get(function) == kind)
            if int(number) > allowed:
                wrong.append(line)
        elif not line.startswith("wait: "):
            wrong.append(line)
    return wrong


class Driver:
    """Starts the children, and gathers what they say."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.processes = 0
        self.wrong: list[str] = []

    def run(self, what: str, function: str, nth: int, work, *arguments) -> Found | None:
        """Runs a child, in which the n-th call fails, unless there are fewer. None in the child."""
        is_child, found = in_child(self.log, work, *arguments)
        if is_child:
            return None
        self.processes += 1
        left = leaks(self.log, found, function)
        # With the context all that is in it is lost; and what was to fail would fail later, so that nothing is freed.
        if function == LOST or found.calls.get(function, 0) < nth:
            left = [line for line in left if not line.startswith("leak: ")]
        if found.wrong or left:
            self.wrong.append("\n".join([f"{what}:", *left, found.wrong]))
        return found


def fail_once(driver_: Driver, code: int, names: list[str]) -> dict[str, int] | None:
    """Fails each call of each function; how often each was called. None in a child."""
    called = dict.fromkeys(_native._cuda_functions(), 0)
    plain: dict[str, dict[str, int]] = {}
    rare = "rare" in names
    for workload in [*(workloads.COMMON if rare else names), *(workloads.RARE if rare else [])]:
        found = driver_.run(f"{workload}, in which nothing fails", "", 0, child_once, workload, None, 0, code)
        if found is None:
            return None
        plain[workload] = found.calls
    common = {name for calls in plain.values() for name, number in calls.items() if number}
    if rare:
        common = {name for workload in workloads.COMMON for name, number in plain[workload].items() if number}
    for workload, calls in plain.items():
        if rare and workload in workloads.COMMON:
            continue
        for function in called:
            if not calls.get(function) or (rare and function in common):
                continue
            for nth in range(1, 10_000):
                what = f"{workload}, in which call {nth} of {function} fails"
                found = driver_.run(what, function, nth, child_once, workload, function, nth, code)
                if found is None:
                    return None
                if found.wrong or found.calls[function] < nth:
                    break
                called[function] += 1
    if rare:
        called |= {name: called[name] or 1 for name in common}
    return called


def lose(driver_: Driver, code: int, names: list[str]) -> dict[str, int] | None:
    for workload in names:
        for nth in range(1, 10_000):
            what = f"{workload}, in which all calls fail from {nth} on"
            found = driver_.run(what, LOST, nth, child_lost, workload, nth, code)
            if found is None:
                return None
            if found.wrong or found.calls[LOST] < nth:
                break
    return {}


def main() -> int:
    code, how, *names = sys.argv[1:]
    folder = tempfile.mkdtemp()
    started = Driver(Path(folder) / "log")
    # Made once rather than in each child: pyarrow looks for pandas when it first makes an array.
    workloads.pa.array([1])
    gc.collect()
    gc.freeze()
    work = fail_once if how == "once" else lose
    called = work(started, int(code), names)
    if called is not None:
        os.rmdir(folder)
        print(json.dumps({"processes": started.processes, "wrong": started.wrong, "called": called}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
