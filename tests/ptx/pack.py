"""Assemble the PTX for the usual architectures, and pack these cubins with it: without a GPU or nvcc.

usage: python tests/ptx/pack.py KERNELS.ptx OUT

ptxas makes the same cubin at every run. The cubins are compressed together, because they resemble each other: a quarter
smaller than each by itself. A cubin is decoded with all before it. The PTX, which few devices need, is text, and
compressed by itself.
"""

from __future__ import annotations

import importlib.metadata
import lzma
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

WHEEL, VERSION = "nvidia-cuda-nvcc-cu12", "12.9.86"
ARCHITECTURES = (80, 90, 100, 120)
PTX = 0
FILTER = {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "nice_len": 273, "dict_size": 1 << 22}
# Cubins are aligned as instructions are, of which the position within one tells more than the bytes before.
ALIGNMENT = 16
OF_CUBINS = {**FILTER, "pb": 4, "lp": 2, "lc": 2}
OF_TEXT = {**FILTER, "pb": 0, "lp": 0, "lc": 2}
HEADER = 13


def assembler() -> str:
    """ptxas, from the wheel of the one version whose output is committed."""
    found = importlib.metadata.version(WHEEL)
    if found != VERSION:
        raise ImportError(f"{WHEEL} is {found}, and {VERSION} is needed")
    files = importlib.metadata.files(WHEEL) or []
    path = next(Path(str(file.locate())) for file in files if file.name == "ptxas")
    path.chmod(0o755)
    return str(path)


def assemble(ptx: Path, architecture: int) -> tuple[bytes, str]:
    """The cubin of an architecture, and what ptxas says of each kernel."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cubin"
        command = [assembler(), "-arch", f"sm_{architecture}", "-v", "-o", str(out), str(ptx)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(f"ptxas says:\n{ran.stderr}")
        return out.read_bytes(), ran.stderr


def compress(data: bytes, options: dict[str, int]) -> bytes:
    """LZMA with the size in its header, which Python leaves open."""
    packed = lzma.compress(data, format=lzma.FORMAT_ALONE, filters=[options])
    return packed[: HEADER - 8] + struct.pack("<Q", len(data)) + packed[HEADER:]


def decompress(packed: bytes) -> bytes:
    # Older versions of liblzma refuse an end marker beside a size.
    return lzma.decompress(packed[: HEADER - 8] + b"\xff" * 8 + packed[HEADER:], format=lzma.FORMAT_ALONE)


def aligned(end: int) -> int:
    return -(-end // ALIGNMENT) * ALIGNMENT


def pack(images: dict[int, bytes]) -> bytes:
    """The length of the first stream (u32, little-endian), that stream (index and cubins), and that of the PTX."""
    stream = struct.pack("<I", len(images)) + b"".join(
        struct.pack("<II", architecture, len(image)) for architecture, image in images.items()
    )
    for architecture, image in images.items():
        if architecture != PTX:
            stream = stream.ljust(aligned(len(stream)), b"\0") + image
    packed = compress(stream, OF_CUBINS)
    return struct.pack("<I", len(packed)) + packed + compress(images[PTX], OF_TEXT)


def unpack(packed: bytes) -> dict[int, bytes]:
    """The images by architecture; 0 is the PTX."""
    (length,) = struct.unpack_from("<I", packed)
    data = decompress(packed[4 : 4 + length])
    (count,) = struct.unpack_from("<I", data)
    end, images = 4 + 8 * count, {}
    for architecture, length_of_image in struct.iter_unpack("<II", data[4:end]):
        if architecture == PTX:
            images[PTX] = decompress(packed[4 + length :])
            continue
        start = aligned(end)
        end = start + length_of_image
        images[architecture] = data[start:end]
    return images


def images(ptx: Path) -> dict[int, bytes]:
    """Every image of a PTX, in the order in which they are packed. The driver takes PTX that ends with a NUL."""
    cubins = {architecture: assemble(ptx, architecture)[0] for architecture in ARCHITECTURES}
    return {**cubins, PTX: ptx.read_bytes() + b"\0"}


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ptx, out = map(Path, sys.argv[1:])
    made = images(ptx)
    # Another version of liblzma may pack the same images otherwise: what is committed stays.
    if not out.exists() or unpack(out.read_bytes()) != made:
        out.write_bytes(pack(made))


if __name__ == "__main__":
    main()
