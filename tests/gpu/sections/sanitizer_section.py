"""All kernels under compute-sanitizer: the section `kernels` once more under each of its tools, with fewer rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from record import SMOKE, Record

TOOLS = ("memcheck", "racecheck", "synccheck")
# As run.py has it, a simulated driver takes longer.
SECONDS = 140 * (3 if SMOKE else 1)
KERNELS = Path(__file__).with_name("kernels_section.py")

record = Record()
sanitizer = shutil.which("compute-sanitizer")
record.note("compute-sanitizer", sanitizer or "not on the path")


def sanitized(tool: str) -> None:
    """In a process that the tool watches. The simulated driver has no code that it could."""
    assert sanitizer is not None or SMOKE
    path = record.path.with_suffix(f".{tool}")
    watch = [] if SMOKE else [str(sanitizer), "--tool", tool, "--error-exitcode", "9"]
    command = [*watch, sys.executable, str(KERNELS), str(path), "--smoke" if SMOKE else "--few"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=os.environ)
    found = path.read_text() if path.exists() else "no results"
    path.unlink(missing_ok=True)
    if ran.returncode:
        raise RuntimeError(f"status {ran.returncode}: {found[-600:]} {(ran.stdout + ran.stderr)[-1200:]}")


if sanitizer is not None or SMOKE:
    for tool in TOOLS[:1] if SMOKE else TOOLS:
        record.check(tool, lambda tool=tool: sanitized(tool))
sys.exit(record.finish())
