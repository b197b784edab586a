"""Tests of CUDA, on the simulated driver alone: `make test-cuda` puts it in the way and runs each test in a process."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import device_arrow
import driver
import fakes
import processes
import pytest
from arrow_dlpack import _native


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "no_devices: the test uses the driver in processes of its own alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = _share(items, int(os.environ.get("ARROW_DLPACK_CUDA_SHARE", "1")))
    left_out = set(items).difference(chosen)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = chosen
    if driver.simulated() is None:
        missing = pytest.mark.skip(reason="no simulated CUDA driver is loaded; run `make test-cuda`")
        for item in filter(_is_here, items):
            item.add_marker(missing)


def _share(items: list[pytest.Item], one_in: int) -> list[pytest.Item]:
    """Every test here, with about one in so many of its parameter sets: the same in each run, the first among them."""
    seen, chosen = set(), []
    for item in items:
        test = item.nodeid.partition("[")[0]
        if not _is_here(item) or test not in seen or zlib.crc32(item.nodeid.encode()) % one_in == 0:
            chosen.append(item)
        seen.add(test)
    return chosen


def _is_here(item: pytest.Item) -> bool:
    """The hooks of a folder see the items of all."""
    return Path(__file__).parent in item.path.parents


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    if not _is_here(item) or driver.simulated() is None or item.config.getoption("usepdb"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in processes.run(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def drain() -> None:
    assert driver.drain() == 0, "memory is waiting for work that is done"


@pytest.fixture(autouse=True)
def _no_races(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if driver.simulated() is None or request.node.get_closest_marker("no_devices"):
        return
    drain()
    device_arrow.clean_up()
    driver.clean_up()
    assert driver.races() == 0, driver.report()


@pytest.fixture
def pool() -> Iterator[fakes.Pool]:
    pool = fakes.Pool()
    yield pool
    drain()
    pool.close()


class HostWaits:
    """Host waits since the beginning: ours, and those that the driver has seen."""

    def __init__(self) -> None:
        self.start = (_native._cuda_host_waits(), driver.host_waits())

    @property
    def ours(self) -> int:
        return _native._cuda_host_waits() - self.start[0]

    @property
    def drivers(self) -> int:
        return driver.host_waits() - self.start[1]


@pytest.fixture
def host_waits() -> type[HostWaits]:
    return HostWaits
