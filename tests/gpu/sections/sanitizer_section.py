"""All kernels under compute-sanitizer: the section `kernels` once more under each of its tools, with fewer rows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from record import SMOKE, LeftOut, Record

TOOLS = ("memcheck", "racecheck", "synccheck")
# As run.py has it, a simulated driver takes longer.
SECONDS = 140 * (3 if SMOKE else 1)
# What the tool says where it may not watch: in containers without the permission, and on devices that it does not know.
REFUSALS = (
    "unable to attach",
    "failed to attach",
    "insufficient privileges",
    "permission denied",
    "device not supported",
    "debugger is not supported",
)
ERRORS_FOUND = 9
KERNELS = Path(__file__).with_name("kernels_section.py")

record = Record()
sanitizer = shutil.which("compute-sanitizer")
record.note("compute-sanitizer", sanitizer or "not on the path")


def watched(command: list[str]) -> tuple[int, str]:
    """The status and the output of a command. After its time all of its processes end: the tool starts one."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, output


def sanitized(tool: str) -> None:
    """In a process that the tool watches. The simulated driver has no code that it could."""
    assert sanitizer is not None or SMOKE
    path = record.path.with_suffix(f".{tool}")
    watch = [] if SMOKE else [str(sanitizer), "--tool", tool, "--error-exitcode", str(ERRORS_FOUND)]
    status, output = watched([*watch, sys.executable, str(KERNELS), str(path), "--smoke" if SMOKE else "--few"])
    found = path.read_text() if path.exists() else "no results"
    path.unlink(missing_ok=True)
    if status not in (0, ERRORS_FOUND) and any(refusal in output.lower() for refusal in REFUSALS):
        raise LeftOut(f"status {status}: {output[-1200:]}")
    if status:
        raise RuntimeError(f"status {status}: {found[-600:]} {output[-1200:]}")


if sanitizer is not None or SMOKE:
    for tool in TOOLS[:1] if SMOKE else TOOLS:
        record.check(tool, lambda tool=tool: sanitized(tool))
sys.exit(record.finish())
