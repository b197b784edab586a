"""Are the committed PTX and cubins what the source compiles to, for architectures of every generation?"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pack
import pytest
import report
from compile import VERSION, WHEEL, compile_ptx

SOURCE = Path(__file__).parents[2] / "src" / "cuda" / "kernels.cu"
PTX = SOURCE.with_suffix(".ptx")
PACKED = SOURCE.with_suffix(".lzma")
PAGE = SOURCE.parents[2] / "docs" / "kernels.md"


def installed(wheel: str, version: str) -> None:
    try:
        found = importlib.metadata.version(wheel)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{wheel} could not be installed")
    if found != version:
        pytest.skip(f"{wheel} {version} could not be installed over {found}")


def test_the_committed_ptx_is_what_the_source_compiles_to():
    installed(WHEEL, VERSION)
    assert compile_ptx(SOURCE) == PTX.read_bytes(), "run `make ptx`"


def test_every_driver_of_cuda_12_takes_its_version():
    text = PTX.read_text()
    assert re.search(r"^\.version 8\.0$", text, re.M)
    assert re.search(r"^\.target sm_70$", text, re.M)


@pytest.mark.parametrize("architecture", [70, *pack.ARCHITECTURES])
def test_the_committed_cubins_are_what_the_ptx_is_assembled_to(architecture):
    """PTX alone is for sm_70, and others without a cubin."""
    installed(pack.WHEEL, pack.VERSION)
    cubin, said = pack.assemble(PTX, architecture)
    if architecture in pack.ARCHITECTURES:
        assert cubin == pack.unpack(PACKED.read_bytes())[architecture], "run `make cubins`"
    # Registers that do not fit go to memory, which is slow.
    spilled = re.findall(r"(\d+) bytes spill stores", said)
    assert len(spilled) >= len(re.findall(r"^\.visible \.entry ", PTX.read_text(), re.M)) >= 26
    assert set(spilled) == {"0"}


def test_the_images_are_packed_with_the_ptx_last():
    images = pack.unpack(PACKED.read_bytes())
    assert list(images) == [*pack.ARCHITECTURES, pack.PTX]
    assert images[pack.PTX] == PTX.read_bytes() + b"\0", "run `make cubins`"
    assert pack.unpack(pack.pack(images)) == images


def test_the_images_stay_small():
    """They are a part of every wheel."""
    assert PACKED.stat().st_size < 200_000


def test_the_page_of_kernels_is_what_the_assembler_says():
    installed(pack.WHEEL, pack.VERSION)
    assert report.made(PTX) == PAGE.read_text(), "run `make cubins`"


def test_every_kernel_has_its_bytes_and_its_reason():
    kernels = re.findall(r"^\.visible \.entry (\w+)\(", PTX.read_text(), re.M)
    for kernel in kernels:
        family, size = report.family_of(kernel)
        assert family.reason
        assert size in family.flight
        assert f"| `{kernel}` |" in PAGE.read_text()


@pytest.mark.parametrize(
    ("registers", "shared", "architecture", "warps"),
    [
        (32, 0, 90, 64),
        (33, 0, 90, 48),
        (48, 0, 90, 40),
        (48, 17408, 90, 40),
        (48, 17408, 120, 40),
        (40, 17408, 120, 40),
        (32, 0, 120, 48),
        (64, 0, 80, 32),
        (255, 0, 100, 8),
        (32, 48 << 10, 90, 32),
    ],
)
def test_the_formula_of_occupancy(registers, shared, architecture, warps):
    """Blocks of 256 threads, worked out by hand."""
    usage = report.Usage(registers, stack=0, spilled=0, shared=shared)
    assert usage.warps(report.MACHINES[architecture]) == warps
