"""The suite for a real GPU (tests/gpu), rehearsed: its sections with tiny sizes on the simulated driver, and stand-ins
for torch, CuPy and JAX that work there; and what becomes of sections that do not end well."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUITE = ROOT / "tests" / "gpu"
PROGRAM = """#!/bin/sh
case "$*" in *--list*) echo "a_test: test";; esac
"""
PATH = [SUITE / "stand_ins", ROOT / "tests" / "python" / "cuda", ROOT / "tests" / "python"]
SECTIONS = [path.name.removesuffix("_section.py") for path in (SUITE / "sections").glob("*_section.py")]

# Each has a schedule of its own, so once is enough.
IS_LAZY = os.environ.get("SIMULATED_CUDA_SCHEDULE", "lazy") == "lazy"
pytestmark = [
    pytest.mark.no_devices,
    pytest.mark.skipif(not IS_LAZY, reason="the rehearsal runs once, with the schedule lazy"),
]


def bundle(folder: Path) -> Path:
    """What `make gpu-bundle` makes, but for the wheel and the Rust tests, of which a script takes the place."""
    made = folder / "bundle"
    shutil.copytree(SUITE / "sections", made / "sections")
    for source in (SUITE / "run.py", SUITE / "report.py"):
        shutil.copy(source, made)
    (made / "MANIFEST").write_text("a commit\n")
    program = made / "cuda-tests"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return made


def run(made: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = [*map(str, PATH), os.environ.get("PYTHONPATH", "")]
    # Work is late under this schedule alone: under others a read without a wait may find what it should not.
    added = {"PYTHONPATH": ":".join(filter(None, path)), "SIMULATED_CUDA_SCHEDULE": "lazy"}
    return subprocess.run(
        [sys.executable, made / "run.py", out, *arguments],
        env={**os.environ, **added},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@pytest.mark.parametrize("section", SECTIONS)
def test_sections_pass(section: str, tmp_path: Path) -> None:
    ran = run(bundle(tmp_path), tmp_path / "out", section, "--smoke")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = json.loads((tmp_path / "out" / f"{section}.json").read_text())
    assert results["failed"] == []
    assert set(results["checks"].values()) <= {"passed"}
    # Numba and cuDF have no stand-ins.
    assert results["checks"] or section == "smoke"
    # Of the simulated driver, so that nothing is left out.
    assert section != "processes" or "another process reads and writes" in results["checks"]
    # So that compute-sanitizer, which watches this section, sees every kernel.
    kernels = re.findall(r"^\.visible \.entry (\w+)\(", (ROOT / "src/cuda/kernels.ptx").read_text(), re.M)
    assert section not in ("kernels", "ptx") or sorted(kernels) == results["launched"]
    assert results.get("image") == {"kernels": "cubin", "ptx": "PTX"}.get(section)
    judged = [figure for figure in results["figures"].values() if isinstance(figure, dict)]
    assert all(figure["value"] > 0 and set(figure) == {"value", "target", "verdict"} for figure in judged)
    assert bool(judged) == (section in ("transfers", "loader", "figures", "bandwidth"))
    report = (tmp_path / "out" / "report.md").read_text()
    assert f"## {section}\n\n{len(results['checks'])} of {len(results['checks'])} checks passed." in report


def test_groups_are_short_and_have_every_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SUITE)
    import run as suite

    assert sorted(suite.LIMITS) == sorted(SECTIONS)
    assert max(sum(group.values()) for group in suite.GROUPS.values()) <= 8 * 60
    assert sum(suite.LIMITS.values()) <= 30 * 60


ENDS = {
    "an exit": ("import os; record.check('one', int); os._exit(3)", "status 3"),
    "a crash": ("import os; record.check('one', int); os.kill(os.getpid(), 11)", "status -11"),
    "an error": ("record.check('one', int); raise RuntimeError('of the section itself')", "of the section itself"),
    "half a file": ("import os; record.path.write_text('{\"checks\": '); os._exit(0)", "status 0"),
    "no limit kept": ("import time; record.check('one', int); time.sleep(60)", "not within 6 s"),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_section_that_ends_badly_leaves_its_file(end: str, tmp_path: Path) -> None:
    made = bundle(tmp_path)
    code, reason = ENDS[end]
    (made / "sections" / "jax_section.py").write_text(f"from record import Record\nrecord = Record()\n{code}\n")
    if end == "no limit kept":
        program = made / "run.py"
        program.write_text(program.read_text().replace('"jax": 40', '"jax": 2'))
    ran = run(made, tmp_path / "out", "jax", "smoke", "--smoke")
    assert ran.returncode == 1
    results = json.loads((tmp_path / "out" / "jax.json").read_text())
    assert results["failed"] == ["the section comes to its end"]
    assert reason in results["checks"]["the section comes to its end"]
    assert results["checks"].get("one", "passed") == "passed"
    # The next one ran.
    assert json.loads((tmp_path / "out" / "smoke.json").read_text())["failed"] == []
    assert "**the section comes to its end**" in (tmp_path / "out" / "report.md").read_text()


MACHINES = {
    "without a library": ("record.need('no_such_library', optional=True)", {"no_such_library": "not installed"}, {}),
    "without a library that it needs": (
        "record.need('no_such_library')",
        {},
        {"no_such_library can be used": "failed: ModuleNotFoundError: No module named 'no_such_library'"},
    ),
    "without a right": (
        "record.check('one', int)\ndef two(): raise LeftOut('code 800')\nrecord.check('two', two)",
        {"two": "left out: code 800"},
        {"one": "passed"},
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_what_a_machine_lacks_is_told(machine: str, tmp_path: Path) -> None:
    made = bundle(tmp_path)
    code, notes, checks = MACHINES[machine]
    text = f"import sys\nfrom record import LeftOut, Record\nrecord = Record()\n{code}\nsys.exit(record.finish())\n"
    (made / "sections" / "jax_section.py").write_text(text)
    ran = run(made, tmp_path / "out", "jax", "--smoke")
    results = json.loads((tmp_path / "out" / "jax.json").read_text())
    assert (ran.returncode == 0) == (set(checks.values()) <= {"passed"})
    assert results["checks"] == checks
    assert notes.items() <= results.items()


def test_all_results_are_in_one_file(tmp_path: Path) -> None:
    ran = run(bundle(tmp_path), tmp_path / "out", "driver", "smoke", "--smoke")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with tarfile.open(tmp_path / "out" / "results.tar") as archive:
        assert archive.getnames() == ["driver.json", "smoke.json", "report.md"]


def test_names_that_are_none_are_told(tmp_path: Path) -> None:
    ran = run(bundle(tmp_path), tmp_path / "out", "no_section")
    assert ran.returncode == 1
    assert "no group or section no_section; there are: first, second," in ran.stderr
