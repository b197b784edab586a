"""The example of training on a GPU says what it is and what is missing, where it cannot run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu_training.py"


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the example behind a line of code. It is shown no GPU, whether or not there is one."""
    program = f"{code}\nimport runpy\nrunpy.run_path({str(EXAMPLE)!r}, run_name='__main__')"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )


# As if it were not installed.
WITHOUT = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == {name!r} else find(name)
"""


@pytest.mark.parametrize("name", ["torch"])
def test_without_a_package(name: str) -> None:
    ran = run(WITHOUT.format(name=name))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Train on flights on a GPU")
    assert ran.stdout.endswith(f"Not run: {name} is not installed.\n")


def test_without_a_gpu(torch: object) -> None:
    ran = run("")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Not run: " in ran.stdout
