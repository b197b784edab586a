"""Tests of CUDA, on the simulated driver alone: `make test-cuda` puts it in the way and runs each test in a process."""

from __future__ import annotations

from collections.abc import Iterator

import driver
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if driver.library() is None:
        missing = pytest.mark.skip(reason="no simulated CUDA driver is loaded; run `make test-cuda`")
        for item in items:
            if "cuda" in item.path.parts:
                item.add_marker(missing)


@pytest.fixture(autouse=True)
def _no_races() -> Iterator[None]:
    yield
    if driver.library() is None:
        return
    driver.clean_up()
    assert driver.races() == 0, driver.report()
