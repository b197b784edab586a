"""Runs each test in a process of its own, forked from one that never used the driver: what it leaves there ends with it."""

from __future__ import annotations

import os
import pickle

import pytest
from _pytest.runner import runtestprotocol


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool:
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run(item):
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run(item: pytest.Item) -> list[pytest.TestReport]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _report(item, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if not said or status:
        return [_died(item, os.waitstatus_to_exitcode(status))]
    to_report = item.config.hook.pytest_report_from_serializable
    return [to_report(config=item.config, data=data) for data in pickle.loads(said)]


def _report(item: pytest.Item, writer: int) -> None:
    """Runs the test in the child, and ends it."""
    status = 1
    try:
        reports = runtestprotocol(item, log=False)
        to_data = item.config.hook.pytest_report_to_serializable
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump([to_data(config=item.config, report=report) for report in reports], pipe)
        status = 0
    finally:
        os._exit(status)


def _died(item: pytest.Item, status: int) -> pytest.TestReport:
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", f"the test's process ended by {how}", "call")
