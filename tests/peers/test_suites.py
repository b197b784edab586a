"""Each peer's suite passes through the package, but for the cases that its table names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from routing import table
from routing.run import run
from routing.suite import Suite


@pytest.mark.parametrize("suite", table.SUITES, ids=lambda suite: suite.name)
def test_passes(suite: Suite, tmp_path: Path) -> None:
    if suite.folder.startswith("$") and not os.environ.get(suite.folder[1:]):
        pytest.skip(f"no package has {suite.name}; pass {suite.folder[1:]}=<a checkout>, as README.md says")
    result = run(suite, tmp_path)
    assert not result.failed, "\n\n".join(f"{case}:\n{why}" for case, why in result.failed.items())
    assert result.succeeded, result.output
    assert len(result.passed) >= suite.at_least, f"fewer cases passed than before: {sorted(result.passed)}"
