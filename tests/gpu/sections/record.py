"""What a section finds, written as it goes: a section that is cut off leaves what it had."""

from __future__ import annotations

import importlib
import importlib.util
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

# Of a failure that many may share, such as a driver's.
MOST_TEXT = 2000
# Tiny sizes, on a driver without a device: the figures mean nothing then.
SMOKE = "--smoke" in sys.argv


class LeftOut(Exception):
    """A check raises it where the machine lacks what the check is for: the reason is a note, and no check failed."""


class Record:
    """The results of a section: its checks, each passed or failed, and its figures."""

    def __init__(self) -> None:
        self.path = Path(sys.argv[1])
        self.found: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "bundle": (Path(os.environ["GPU_BUNDLE"]) / "MANIFEST").read_text().splitlines(),
            "python": platform.python_version(),
            "device": _device(),
            "smoke": SMOKE,
            "checks": {},
            "seconds": {},
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

    def judge(self, name: str, value: float, target: float | None) -> None:
        """A ratio and the least that it has to be; without a target it is reported, not judged."""
        verdict = "reported" if target is None else "reached" if value >= target else "not reached"
        self.figure(name, {"value": round(value, 3), "target": target, "verdict": verdict})

    def need(self, name: str, use: Callable[[Any], object] = lambda library: library, *, optional: bool = False) -> Any:
        """A library that the section is for. Where it is not installed, or `use` of it fails, such as its first work on
        a device, the section ends here, and says so. That an `optional` one is not installed is no failure."""
        if optional and importlib.util.find_spec(name.split(".")[0]) is None:
            self.note(name, "not installed")
            sys.exit(self.finish())
        try:
            library = importlib.import_module(name)
            self.note(name, getattr(sys.modules[name.split(".")[0]], "__version__", "unknown"))
            use(library)
        except Exception as error:
            self._outcome(f"{name} can be used", f"failed: {type(error).__name__}: {str(error)[:MOST_TEXT]}")
            sys.exit(self.finish())
        return library

    def check(self, name: str, test: Callable[[], object]) -> None:
        """Runs a check. What it raises is its failure, and the next one runs."""
        self.found["checks"][name] = "did not end"
        self._write()
        start = time.monotonic()
        try:
            test()
            outcome = "passed"
        except LeftOut as why:
            del self.found["checks"][name]
            print(f"  {name}: left out: {why}", flush=True)
            self.note(name, f"left out: {str(why)[:MOST_TEXT]}")
            return
        except Exception:
            outcome = "failed: " + traceback.format_exc(limit=4)[-MOST_TEXT:]
        self.found["seconds"][name] = round(time.monotonic() - start, 2)
        self._outcome(name, outcome)

    def _outcome(self, name: str, outcome: str) -> None:
        self.found["checks"][name] = outcome
        print(f"  {name}: {outcome}", flush=True)
        self._write()

    def run(self, namespace: dict[str, Any]) -> int:
        """Runs every function whose name begins with `check_` or `measure_`, as they stand in the file, and ends the
        section. What one of them raises keeps none of the others from running."""
        for name, function in list(namespace.items()):
            if name.startswith(("check_", "measure_")):
                self.check(name.removeprefix("check_"), function)
        return self.finish()

    def finish(self) -> int:
        failed = [name for name, outcome in self.found["checks"].items() if outcome != "passed"]
        self.note("failed", failed)
        return 1 if failed else 0


class Unordered:
    """A tensor of ours handed out without its order, as if no stream had waited: what a missing wait looks like."""

    def __init__(self, ours: Any) -> None:
        self.ours = ours

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.ours.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.ours.__dlpack__(**{**keywords, "stream": -1})


def expect_order(early: int, behind: int, size: int) -> None:
    """Elements without their values yet: some where nothing waited, or the check could not fail, and none elsewhere."""
    assert early > 0, "without a wait the values were there already: the kernel ends too soon to show anything"
    assert behind == 0, f"{behind} of {size} elements did not have their values"


def _device() -> str:
    """The name of the device and the version of the driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(query, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {error}"
