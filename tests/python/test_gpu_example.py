"""The examples for a GPU say what they are and what is missing, where they cannot run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRAINING, CUDF = "gpu_training.py", "cudf_interchange.py"


def run(example: str, code: str) -> subprocess.CompletedProcess[str]:
    """Runs an example behind some code. It is shown no GPU, whether or not there is one."""
    path = str(EXAMPLES / example)
    program = f"{code}\nimport runpy, sys\nsys.argv = [{path!r}]\nrunpy.run_path({path!r}, run_name='__main__')"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )


# As if one were not installed, and another one were.
PACKAGES = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == {missing!r} else find("sys" if name == {there!r} else name)
"""


@pytest.mark.parametrize(
    ("example", "name", "there", "first"),
    [
        (TRAINING, "torch", None, "Train on flights on a GPU"),
        (CUDF, "pylibcudf", None, "A column of cuDF becomes a tensor of torch"),
        (CUDF, "torch", "pylibcudf", "A column of cuDF becomes a tensor of torch"),
    ],
)
def test_without_a_package(example: str, name: str, there: str | None, first: str) -> None:
    ran = run(example, PACKAGES.format(missing=name, there=there))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(first)
    assert ran.stdout.endswith(f"Not run: {name} is not installed.\n")


@pytest.mark.parametrize(("example", "there"), [(TRAINING, None), (CUDF, "pylibcudf")])
def test_without_a_gpu(example: str, there: str | None, torch: object) -> None:
    ran = run(example, PACKAGES.format(missing=None, there=there))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Not run: " in ran.stdout
    if example == CUDF:
        assert ran.stdout.endswith("there is no GPU that torch can use on this machine.\n")
