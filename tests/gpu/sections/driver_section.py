"""The Rust tests of CUDA on the real driver: those that ask nothing of the simulated one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bare import Driver
from record import Record

PROGRAM = Path(os.environ["GPU_BUNDLE"]) / "cuda-tests"
SECONDS = 60


def run(name: str) -> None:
    command = [PROGRAM, name, "--exact", "--ignored", "--nocapture"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if ran.returncode:
        raise RuntimeError((ran.stdout + ran.stderr)[-1500:])


record = Record()
held: list[Driver] = []
# A driver that nobody uses starts the device for each test anew, which may take a second.
record.check("a context is held meanwhile", lambda: held.append(Driver()))
listed: list[str] = []
record.check(
    "the tests are listed",
    lambda: listed.extend(
        subprocess.run(
            [PROGRAM, "--list", "--format", "terse", "--ignored"], check=True, capture_output=True, text=True
        ).stdout.splitlines()
    ),
)
for line in listed:
    if line.endswith(": test"):
        test = line.removesuffix(": test")
        record.check(test, lambda test=test: run(test))
sys.exit(record.finish())
