"""The sections of tests/gpu that need no library of GPUs run on the simulated driver too, with tiny sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECTIONS = Path(__file__).resolve().parents[2] / "gpu" / "sections"


@pytest.mark.no_devices
@pytest.mark.parametrize("section", ["transfers", "kernels"])
def test_sections_run(section: str, tmp_path: Path) -> None:
    (tmp_path / "MANIFEST").write_text("a commit\n")
    program, found = SECTIONS / f"{section}_section.py", tmp_path / f"{section}.json"
    ran = subprocess.run(
        [sys.executable, program, found, "--smoke"],
        env={**os.environ, "GPU_BUNDLE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = json.loads(found.read_text())
    assert results["failed"] == []
    assert set(results["checks"].values()) == {"passed"}
    judged = [figure for figure in results["figures"].values() if isinstance(figure, dict)]
    assert all(figure["value"] > 0 and set(figure) == {"value", "target", "verdict"} for figure in judged)
    assert bool(judged) == (section == "transfers")
