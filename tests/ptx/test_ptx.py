"""Is the committed PTX what the source compiles to, and do assemblers of every generation take it?"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest
from compile import WHEEL, compile_ptx

SOURCE = Path(__file__).parents[2] / "src" / "cuda" / "kernels.cu"
PTX = SOURCE.with_suffix(".ptx")
ASSEMBLER = "nvidia-cuda-nvcc-cu12"


def installed(wheel: str) -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(wheel)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{wheel} could not be installed")


def assembler() -> str:
    files = installed(ASSEMBLER).files or []
    path = next(Path(str(file.locate())) for file in files if file.name == "ptxas")
    path.chmod(0o755)
    return str(path)


def test_the_committed_ptx_is_what_the_source_compiles_to():
    installed(WHEEL)
    assert compile_ptx(SOURCE) == PTX.read_bytes(), "run `make ptx`"


def test_every_driver_of_cuda_12_takes_its_version():
    text = PTX.read_text()
    assert re.search(r"^\.version 8\.0$", text, re.M)
    assert re.search(r"^\.target sm_70$", text, re.M)


@pytest.mark.parametrize("architecture", ["sm_70", "sm_80", "sm_90"])
def test_an_assembler_takes_it(architecture, tmp_path):
    command = [assembler(), "-arch", architecture, "-v", "-o", str(tmp_path / "out"), str(PTX)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    # Registers that do not fit go to memory, which is slow.
    spilled = re.findall(r"(\d+) bytes spill stores", ran.stderr)
    assert len(spilled) >= 29
    assert set(spilled) == {"0"}
