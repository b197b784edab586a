"""Compile kernels to PTX without nvcc or a GPU, through the nvrtc library of a wheel.

usage: python tests/ptx/compile.py SOURCE OUT

nvrtc 12.0.76 writes PTX ISA 8.0, which every driver from CUDA 12.0 on takes; its output is the same at every run.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import sys
from pathlib import Path

WHEEL, VERSION = "nvidia-cuda-nvrtc-cu12", "12.0.76"
OPTIONS = [b"--gpu-architecture=compute_70", b"--std=c++17"]


def library() -> ctypes.CDLL:
    """nvrtc, from the wheel of the one version whose output is committed."""
    found = importlib.metadata.version(WHEEL)
    if found != VERSION:
        raise ImportError(f"{WHEEL} is {found}, and {VERSION} is needed")
    files = importlib.metadata.files(WHEEL) or []
    path = next(file.locate() for file in files if file.name == "libnvrtc.so.12")
    return ctypes.CDLL(str(path))


def compile_ptx(path: Path) -> bytes:
    """The PTX of a source, which may include the .cuh files beside it."""
    nvrtc = library()
    headers = sorted(path.parent.glob("*.cuh"))
    texts = (ctypes.c_char_p * len(headers))(*(header.read_bytes() for header in headers))
    names = (ctypes.c_char_p * len(headers))(*(header.name.encode() for header in headers))
    program = ctypes.c_void_p()

    def call(function: str, *arguments: object) -> None:
        if code := getattr(nvrtc, function)(*arguments):
            raise RuntimeError(f"{function} failed with code {code}")

    def text(kind: str) -> bytes:
        size = ctypes.c_size_t()
        call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        call(f"nvrtcGet{kind}", program, buffer)
        return buffer.value

    call("nvrtcCreateProgram", ctypes.byref(program), path.read_bytes(), path.name.encode(), len(headers), texts, names)
    try:
        options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
        failed = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
        log = text("ProgramLog").decode().strip()
        if failed or log:
            raise RuntimeError(f"nvrtc says:\n{log}")
        return without_unused(text("PTX"))
    finally:
        call("nvrtcDestroyProgram", ctypes.byref(program))


def without_unused(ptx: bytes) -> bytes:
    """The PTX without comments and empty lines, and without the variables that nothing refers to, as nvrtc keeps the
    static members of every template: each would be a symbol of every cubin."""
    ptx = re.sub(rb"^\s*(?://.*)?\n", b"", ptx, flags=re.MULTILINE)
    declaration = re.compile(rb"^\.global [^;\n]*?(\w+)(?:\[\d+\])?(?: = [^;\n]*)?;\n", re.MULTILINE)
    return declaration.sub(lambda found: b"" if ptx.count(found[1]) == 1 else found[0], ptx)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, out = map(Path, sys.argv[1:])
    out.write_bytes(compile_ptx(source))


if __name__ == "__main__":
    main()
