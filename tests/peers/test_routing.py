"""The checks of a run are checked: what must fail a run does."""

from __future__ import annotations

from pathlib import Path

import pytest
from routing.run import Result, run
from routing.suite import Differs, Suite

CASES = """
import numpy as np
import pytest


def test_routed():
    assert np.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]


def test_elsewhere():
    assert np.arange(3).sum() == 3


@pytest.mark.parametrize("answer", [1, 2])
def test_differs(answer):
    assert np.from_dlpack(np.arange(answer)).size == 3


def test_skips():
    pytest.skip("for a good reason")
"""
LISTED = {
    "differs": {"test_cases.py::test_differs": Differs("another answer", r"assert [12] == 3")},
    "left_out": {"test_cases.py::test_elsewhere": "makes no tensor"},
    "skips": {"test_cases.py::test_skips": "good reason"},
}


@pytest.fixture
def run_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the cases above with these lists."""

    def run_them(**lists: object) -> Result:
        (tmp_path / "test_cases.py").write_text(CASES, encoding="utf-8")
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        monkeypatch.setenv("CASES", str(tmp_path))
        rows = {**LISTED, **lists}
        suite = Suite("own", "$CASES", cases=("test_cases.py",), shim="numpy_consumer", at_least=1, **rows)
        return run(suite, scratch)

    return run_them


def test_a_run_that_goes_as_listed_succeeds(run_listed) -> None:
    result = run_listed()
    assert result.succeeded, result.output
    assert list(result.passed) == ["test_cases.py::test_routed"]
    assert list(result.differs) == ["test_cases.py::test_differs[1]", "test_cases.py::test_differs[2]"]
    assert result.routed == {"ad.from_dlpack": 3}


@pytest.mark.parametrize(
    ("lists", "case", "says"),
    [
        ({"left_out": {}}, "test_elsewhere", "without a call through the package"),
        ({"differs": {}}, "test_differs[1]", "assert 1 == 3"),
        ({"differs": {"test_cases.py::test_differs": Differs("", "assert 1 == 3")}}, "test_differs[2]", "failed with"),
        ({"differs": {**LISTED["differs"], "test_cases.py::test_routed": Differs("", "")}}, "test_routed", "XPASS"),
        ({"skips": {}}, "test_skips", "not listed as such"),
        ({"skips": {"test_cases.py::test_skips": "another"}}, "test_skips", "not listed as such"),
    ],
)
def test_a_case_that_goes_otherwise_fails_the_run(run_listed, lists: dict, case: str, says: str) -> None:
    result = run_listed(**lists)
    assert not result.succeeded
    assert says in result.failed[f"test_cases.py::{case}"]


def test_a_listed_case_that_is_gone_fails_the_run(run_listed) -> None:
    result = run_listed(left_out={**LISTED["left_out"], "test_cases.py::test_gone": "was here"})
    assert not result.succeeded
    assert "test_cases.py::test_gone" in result.output


def test_only_the_suite_sees_the_shim(tmp_path: Path) -> None:
    import numpy as np
    from routing import numpy_consumer
    from routing.namespace import seen

    original = np.from_dlpack
    with seen(numpy_consumer.namespaces()):
        import numpy as shimmed

        assert shimmed.from_dlpack is numpy_consumer.from_dlpack
    assert np.from_dlpack is original
