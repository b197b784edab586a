"""What every test gets: the choice of libraries, and a fixture that fails a test which leaks."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import free_threading
import leaks
import loader_reference
import pytest

pytest_plugins = ("pytester",)
# Each file there needs an environment of its own, which interop/run.py makes.
collect_ignore = ["interop"]

INTEROP = os.environ.get("ARROW_DLPACK_INTEROP", "full")
if INTEROP not in ("full", "light"):
    raise pytest.UsageError(f'ARROW_DLPACK_INTEROP is full or light, not "{INTEROP}"')
if INTEROP == "light":
    # Also where another library would import it on the side.
    sys.modules["torch"] = None  # type: ignore[assignment]

free_threading.stand_in()

# Who is started in the background by a shell ignores this signal, and so do the processes that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def torch() -> Any:
    """torch; a test that asks for it is skipped only where that was asked for."""
    if INTEROP == "light":
        pytest.skip("ARROW_DLPACK_INTEROP=light leaves torch out")
    try:
        import torch
    except ImportError as error:
        pytest.fail(f"torch cannot be imported ({error}); ARROW_DLPACK_INTEROP=light leaves it out")
    settle()
    return torch


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


PASSED = pytest.StashKey[bool]()


def settle() -> None:
    """Libraries that were loaded stay; the collection after each test need not look through them again."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    leaks.warm_up()
    settle()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
    # A library that needs the lock can bring it back when it is imported, unless this variable forbids it.
    if os.environ.get("PYTHON_GIL") == "0":
        assert not sys._is_gil_enabled()


@pytest.fixture(autouse=True)
def no_leak(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves memory behind, or a producer that was not released exactly once."""
    # A driver that is started keeps contexts and streams; those tests count the memory of devices.
    starts_driver = request.path.parent.name == "cuda"
    loader_reference.forget_threads()
    watch = leaks.Watch(of_pyarrow_alone=starts_driver)
    yield
    try:
        # A failed test's traceback keeps its variables alive.
        if request.node.stash.get(PASSED, False):
            left = watch.left()
            assert not left, "; ".join(left)
    finally:
        watch.stop()
