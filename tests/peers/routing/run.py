"""Runs a suite in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from routing.suite import Suite

HERE = Path(__file__).resolve().parent
TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Result:
    """What became of a suite: whether pytest was content, each case by outcome, the calls that were routed."""

    succeeded: bool
    output: str
    passed: dict[str, str]
    differs: dict[str, str]
    skipped: dict[str, str]
    failed: dict[str, str]
    routed: dict[str, int]


def folder_of(suite: Suite) -> Path:
    """Where the files of a suite are: in an installed package, or in a checkout that the environment names."""
    if suite.folder.startswith("$"):
        variable, _, folder = suite.folder[1:].partition("/")
        return Path(os.environ[variable]).resolve() / folder
    package, _, folder = suite.folder.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package}, whose suite is to be run, is not installed")
    return Path(spec.origin).parent / folder


def run(suite: Suite, scratch: Path) -> Result:
    """Runs a suite; `scratch` is an empty folder for what comes up on the way."""
    description, report = scratch / "suite.json", scratch / "report.json"
    suite.dump(description)
    folder = folder_of(suite)
    command = [sys.executable, "-m", "pytest", "-p", "routing.plugin", "-p", "no:cacheprovider", "-q", "-rfEX"]
    command += ["--routed-suite", str(description), "--routed-report", str(report), *suite.arguments]
    command += [str(folder / case) for case in suite.cases]
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE.parent),
        # Plugins of other packages take longer to load than most suites to run.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "hypothesis"),
        **suite.environment,
    }
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, env=environment, cwd=scratch
    )
    output = process.stdout + process.stderr
    if not report.exists():
        raise RuntimeError(f"{suite.name} did not get to its end:\n{output}")
    outcomes = json.loads(report.read_text(encoding="utf-8"))
    return Result(succeeded=process.returncode == 0, output=output, **outcomes)
