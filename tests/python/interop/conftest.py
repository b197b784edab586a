"""What every test of a library gets: `cell`, which fills the matrix, and a fixture that fails a test which leaks."""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import matrix
import producers
import pytest

Cell = Callable[..., None]
PASSED = pytest.StashKey[bool]()
CELLS = matrix.Cells()

# Not every environment has it.
pa = importlib.import_module("pyarrow") if importlib.util.find_spec("pyarrow") else None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("interop")
    group.addoption("--library", help="its entry in environments.toml; by default what the file name says")
    group.addoption("--write-results", action="store_true", help="write results/<library>.json")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


def pytest_collection_finish() -> None:
    # Libraries that were loaded stay; the collection after each test need not look through them again.
    gc.collect()
    gc.freeze()


@pytest.fixture
def cell(request: pytest.FixtureRequest) -> Iterator[Cell]:
    """`cell(direction, case, outcome, note)` fills one cell of the matrix, once the asserts that prove it have passed.

    A test may fill several, and several tests the same one. What a failed test filled does not count.
    """
    found = []

    def record(direction: str, case: str, outcome: str, note: str = "") -> None:
        assert direction in matrix.DIRECTIONS, direction
        assert case in matrix.CASES, case
        assert outcome in matrix.OUTCOMES, outcome
        assert note or outcome != "wrong", "what is wrong needs a note that says what"
        assert note or outcome != "refused", "what is refused needs a note that says why"
        found.append((direction, case, outcome, note))

    yield record
    if request.node.stash.get(PASSED, False):
        for one in found:
            CELLS.add(*one)


@pytest.fixture(autouse=True)
def no_leak(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves memory of pyarrow behind, or a producer that was not released exactly once."""
    before = pa.total_allocated_bytes() if pa else 0
    yield
    try:
        # A failed test's traceback keeps its variables alive.
        if not request.node.stash.get(PASSED, False):
            return
        gc.collect()
        wrong = producers.wrongly_released()
        assert not wrong, "; ".join(wrong)
        if pa and not request.node.get_closest_marker("keeps_memory"):
            after = _allocated_at_last(before)
            assert after <= before, f"the test left {after - before} bytes of pyarrow's memory behind"
    finally:
        producers.forget_all()


def _allocated_at_last(expected: int) -> int:
    """pyarrow's memory once its own threads have let go: those of a scanner may do so just after its last batch."""
    deadline = time.monotonic() + 1
    while (allocated := pa.total_allocated_bytes()) > expected and time.monotonic() < deadline:
        time.sleep(0.001)
    return allocated


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    gc.unfreeze()
    library = _library(session.config)
    if library is None or not library.table or exitstatus != pytest.ExitCode.OK:
        return
    found = matrix.results_of(library, CELLS)
    if session.config.getoption("--write-results"):
        matrix.write_results(library, found)
    elif session.config.getoption("--library"):
        # Only a whole run can be compared, which is what run.py does.
        problem = difference(matrix.read_results(library), found)
        if problem:
            session.config.get_terminal_writer().line(f"\nERROR: {library.results.name}: {problem}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def difference(committed: dict | None, found: dict) -> str | None:
    """How the findings, or the versions they are of, differ from those that are written down; None if not."""
    if committed is None:
        return "there is none; --write writes it"
    if committed["versions"] != found["versions"]:
        return f"written down for {committed['versions']}, and this is {found['versions']}; --write writes it"
    cases = [case for case in matrix.CASES if committed["cells"].get(case) != found["cells"].get(case)]
    return f"the tests found otherwise for {', '.join(cases)}; --write writes it" if cases else None


def _library(config: pytest.Config) -> matrix.Library | None:
    """The library whose tests these are: the one asked for, or that of the only file."""
    name = config.getoption("--library")
    if name is None:
        files = {Path(argument.split("::")[0]).stem for argument in config.args}
        name = files.pop().removeprefix("test_") if len(files) == 1 else None
    return matrix.libraries().get(name) if name else None
