"""The pytest plugin of a peer's run: its suite's shim, its exceptions, and a report of what became of each case."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from routing import counting
from routing.namespace import seen
from routing.suite import Suite


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("arrow_dlpack")
    group.addoption("--routed-suite", type=Path, help="the suite, as Suite.dump wrote it")
    group.addoption("--routed-report", type=Path, help="where the report is written")


def pytest_configure(config: pytest.Config) -> None:
    suite = Suite.load(config.getoption("--routed-suite"))
    config.pluginmanager.register(Routing(suite, config.getoption("--routed-report")), "arrow_dlpack_routing")


def names_of(nodeid: str) -> tuple[str, str]:
    """The two names that a suite may use for a case: with its parameters, and for all of them."""
    folder_and_file, _, case = nodeid.partition("::")
    name = f"{folder_and_file.rsplit('/', 1)[-1]}::{case}"
    return name, name.partition("[")[0]


class Routing:
    """The hooks of one run."""

    def __init__(self, suite: Suite, report: Path) -> None:
        self.suite = suite
        self.report = report
        self.namespaces = importlib.import_module(f"routing.{suite.shim}").namespaces()
        self.outcomes: dict[str, dict[str, str]] = {"passed": {}, "differs": {}, "skipped": {}, "failed": {}}
        self.routed_by_case: dict[str, int] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """A test module is imported while it is collected: only it sees the replaced modules."""
        if not isinstance(collector, pytest.Module):
            return (yield)
        with seen(self.namespaces):
            return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        named = {name for item in items for name in names_of(item.nodeid)}
        listed = {*self.suite.differs, *self.suite.left_out, *self.suite.skips}
        if unknown := sorted(listed - named):
            raise pytest.UsageError(f"listed for {self.suite.name}, and in no case's name: {unknown}")
        kept = []
        for item in items:
            if of(self.suite.left_out, item):
                continue
            if differs := of(self.suite.differs, item):
                item.add_marker(pytest.mark.xfail(reason=differs.reason, strict=True))
            kept.append(item)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        before = counting.total()
        try:
            return (yield)
        finally:
            self.routed_by_case[item.nodeid] = counting.total() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if wrong := self.wrong(item, call, report):
            report.outcome, report.longrepr = "failed", wrong
            # Otherwise it would count as expected.
            vars(report).pop("wasxfail", None)
        self.note(item, call, report)
        return report

    def wrong(self, item: pytest.Item, call: pytest.CallInfo[None], report: Any) -> str | None:
        """Why the outcome of a phase is not what the suite says, where pytest itself is content."""
        if report.failed:
            return None
        if report.skipped and hasattr(report, "wasxfail"):
            shows, shown = of(self.suite.differs, item).shows, f"{call.excinfo.typename}: {call.excinfo.value}"
            return None if re.search(shows, shown) else f"expected to fail with {shows!r}, failed with {shown!r}"
        if report.skipped:
            says, said = of(self.suite.skips, item), str(call.excinfo.value)
            return None if says and says in said else f"skipped, and not listed as such: {said}"
        if report.when == "call" and not self.routed_by_case[item.nodeid]:
            return "passed without a call through the package: leave it out with a reason, or route it"
        return None

    def note(self, item: pytest.Item, call: pytest.CallInfo[None], report: Any) -> None:
        name = names_of(item.nodeid)[0]
        if report.failed:
            self.outcomes["failed"][name] = str(report.longrepr)
        elif report.skipped:
            self.outcomes["differs" if hasattr(report, "wasxfail") else "skipped"][name] = str(call.excinfo.value)
        elif report.when == "call":
            self.outcomes["passed"][name] = f"{self.routed_by_case[item.nodeid]} calls"

    def pytest_sessionfinish(self) -> None:
        report = {**self.outcomes, "routed": dict(counting.routed)}
        self.report.write_text(json.dumps(report, indent=1), encoding="utf-8")


def of(table: Any, item: pytest.Item) -> Any:
    """The row of a case: its own, or that of all its parameters; None without."""
    with_parameters, without = names_of(item.nodeid)
    return table.get(with_parameters, table.get(without))
