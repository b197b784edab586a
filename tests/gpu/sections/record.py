"""What a section finds, written as it goes: a section that is cut off leaves what it had."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Record:
    """The results of a section: its checks, each passed or failed, and its figures."""

    def __init__(self) -> None:
        self.path = Path(sys.argv[1])
        self.found: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "bundle": (Path(os.environ["GPU_BUNDLE"]) / "MANIFEST").read_text().splitlines(),
            "python": platform.python_version(),
            "device": _device(),
            "checks": {},
            "figures": {},
        }
        self._write()

    def _write(self) -> None:
        self.path.write_text(json.dumps(self.found, indent=1) + "\n")

    def note(self, name: str, value: Any) -> None:
        """Something to know of the run, such as a library's version."""
        self.found[name] = value
        self._write()

    def figure(self, name: str, value: Any) -> None:
        self.found["figures"][name] = value
        print(f"  {name}: {value}", flush=True)
        self._write()

    def check(self, name: str, test: Callable[[], None]) -> None:
        """Runs a check. What it raises is its failure, and the next one runs."""
        self.found["checks"][name] = "did not end"
        self._write()
        try:
            test()
            outcome = "passed"
        except Exception:
            outcome = "failed: " + traceback.format_exc(limit=4)
        self.found["checks"][name] = outcome
        print(f"  {name}: {outcome}", flush=True)
        self._write()

    def checks(self, namespace: dict[str, Any]) -> None:
        """Runs every function whose name begins with `check_`."""
        for name, function in list(namespace.items()):
            if name.startswith("check_"):
                self.check(name.removeprefix("check_"), function)

    def finish(self) -> int:
        failed = [name for name, outcome in self.found["checks"].items() if outcome != "passed"]
        self.note("failed", failed)
        return 1 if failed else 0


def _device() -> str:
    """The name of the device and the version of the driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(query, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {error}"
