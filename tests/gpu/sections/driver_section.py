"""The Rust tests of CUDA on the real driver: those that ask nothing of the simulated one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from record import Record

PROGRAM = Path(os.environ["GPU_BUNDLE"]) / "cuda-tests"


def run(name: str) -> None:
    ran = subprocess.run(
        [PROGRAM, name, "--exact", "--ignored", "--nocapture"], capture_output=True, text=True, timeout=120, check=False
    )
    if ran.returncode:
        raise RuntimeError((ran.stdout + ran.stderr)[-2000:])


record = Record()
listed = subprocess.run(
    [PROGRAM, "--list", "--format", "terse", "--ignored"], check=True, capture_output=True, text=True
)
for line in listed.stdout.splitlines():
    if line.endswith(": test"):
        test = line.removesuffix(": test")
        record.check(test, lambda test=test: run(test))
sys.exit(record.finish())
