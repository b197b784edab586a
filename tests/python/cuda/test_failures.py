"""Every call of the driver fails in turn: what was taken is given back, nothing is used or freed before its time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import workloads
from arrow_dlpack import _native

SCRIPT = Path(__file__).parent / "fail_each_call.py"
UNKNOWN, OUT_OF_MEMORY, ILLEGAL_ADDRESS = 999, 2, 700
RANDOM_SEEDS = 4


def of_this_schedule(names: Iterable[str]) -> list[str]:
    """All of them when work runs late; the other schedules take a share each, the eager one that of the first seed."""
    schedule, _, seed = os.environ.get("SIMULATED_CUDA_SCHEDULE", "lazy").partition(":")
    return [name for at, name in enumerate(names) if schedule == "lazy" or (at + int(seed or 1)) % RANDOM_SEEDS == 0]


def run(code: int, how: str, *names: str) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), str(code), how, *names]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=870, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout)
    assert not found["wrong"], f"{len(found['wrong'])} of {found['processes']} processes: " + found["wrong"][0]
    return found


@pytest.mark.no_devices
@pytest.mark.parametrize("workload", of_this_schedule(workloads.COMMON))
def test_each_call_fails_once(workload: str) -> None:
    assert run(UNKNOWN, "once", workload)["processes"] > 1


@pytest.mark.no_devices
def test_no_function_is_left_out() -> None:
    called = run(UNKNOWN, "once", "rare")["called"]
    assert set(called) == set(_native._cuda_functions())
    left_out = [function for function, calls in called.items() if not calls]
    assert not left_out, "a workload has to call these (workloads.py)"


@pytest.mark.no_devices
@pytest.mark.parametrize("workload", of_this_schedule(["dlpack", "to_the_cpu"]))
def test_memory_that_is_not_to_be_had(workload: str) -> None:
    assert run(OUT_OF_MEMORY, "once", workload)["processes"] > 1


@pytest.mark.no_devices
@pytest.mark.parametrize("workload", of_this_schedule(["dlpack", "arrays", "to_the_cpu", "deferred_free"]))
def test_a_lost_context_is_named_and_the_process_ends_well(workload: str) -> None:
    assert run(ILLEGAL_ADDRESS, "lost", workload)["processes"] > 1
