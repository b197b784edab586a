"""Each test in a process of its own: what a test leaves in the driver, or how it crashes, is no other's."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import tempfile
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

# Seconds for one test; those that run many processes take minutes.
LONGEST = 900


def run(item: pytest.Item) -> list[Any]:
    """The reports of a test that runs in a child of this process."""
    with tempfile.TemporaryFile() as found:
        sys.stdout.flush()
        sys.stderr.flush()
        # The child's collections need not look through what this process keeps.
        gc.freeze()
        child = os.fork()
        if child == 0:
            _run_here(item, found)
        in_time = _ends(child)
        _, status = os.waitpid(child, 0)
        found.seek(0)
        text = found.read()
    if not in_time:
        return [_crash(item, f"not within {LONGEST} s")]
    if status or not text:
        how = (
            f"killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
        )
        return [_crash(item, how)]
    return [_report(item, data) for data in json.loads(text)]


def _ends(child: int) -> bool:
    """Waits for the end of a process; one that is too late is killed."""
    process = os.pidfd_open(child)
    try:
        if select.select([process], [], [], LONGEST)[0]:
            return True
        os.kill(child, signal.SIGKILL)
        return False
    finally:
        os.close(process)


def _report(item: pytest.Item, data: dict[str, Any]) -> Any:
    report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
    if isinstance(report.longrepr, list):
        # Where a test was skipped, and why: a tuple that JSON does not know.
        report.longrepr = tuple(report.longrepr)
    return report


def _run_here(item: pytest.Item, found: Any) -> None:
    """Runs the test, and ends the process."""
    status = 1
    try:
        hook = item.config.hook
        reports = runtestprotocol(item, log=False)
        data = [hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
        found.write(json.dumps(data, default=str).encode())
        found.flush()
        status = 0
    finally:
        # Nothing that the parent has yet to do is done here.
        os._exit(status)


def _crash(item: pytest.Item, how: str) -> pytest.TestReport:
    message = f"the process of the test ended: {how}"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
