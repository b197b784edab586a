"""Yardsticks and floors: copies by the C library, timed in C (floor.c)."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import measure
import numpy as np
from measure import Route

CODE = Path(__file__).with_name("floor.c")
# Columns and rows that the floor of packing takes at once.
TILE = 16


def compiled(code: Path, flags: list[str], suffix: str = ".so") -> Path:
    """A shared library of this code, made once."""
    digest = hashlib.sha256(code.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    built = Path(sys.prefix) / "benches" / f"{code.stem}-{digest}{suffix}"
    if not built.exists():
        built.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            made = Path(folder) / built.name
            subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", str(made), str(code)], check=True)
            # Another process may be at the same.
            made.replace(built)
    return built


@cache
def library() -> ctypes.CDLL:
    """floor.c, compiled for this processor."""
    built = compiled(CODE, ["-O3", "-march=native", "-shared", "-fPIC"])
    loaded = ctypes.CDLL(str(built))
    pointer, size, times = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long
    loaded.copy.argtypes = loaded.copy_past_cache.argtypes = [pointer, pointer, size, times]
    loaded.fill.argtypes = [pointer, ctypes.c_int, size, times]
    loaded.pack.argtypes = [pointer, size, size, pointer, size, times]
    timed = [loaded.copy, loaded.copy_past_cache, loaded.fill, loaded.pack]
    if has_tiles():
        loaded.pack_tiles.argtypes = loaded.pack.argtypes
        timed.append(loaded.pack_tiles)
    for function in timed:
        function.restype = ctypes.c_double
    return loaded


def has_tiles() -> bool:
    """Whether the processor runs the floor of packing."""
    return measure.has("avx2")


def tiles(columns: list[np.ndarray], out: int, times: int = 1) -> float:
    """The floor of packing float32 columns, 16 x 16 values at a time in registers: seconds for the whole matrix.

    It packs as many columns and rows as come in 16s, to the first multiple of 64 bytes from the address `out` on. The
    columns and rows that it leaves out count as if they took as long a byte.
    """
    width, rows = (count // TILE * TILE for count in (len(columns), len(columns[0])))
    addresses = (ctypes.c_void_p * width)(*(one.ctypes.data for one in columns[:width]))
    to = out + -out % 64
    start = time.thread_time()
    library().pack_tiles(addresses, width, rows, to, 4096, times)
    return (time.thread_time() - start) * len(columns) * len(columns[0]) / (width * rows)


def native(name: str, loop: Callable[[int], float], by: str = "floor") -> Route:
    """A route that is timed in C."""
    return Route(name, lambda: loop(1), by=by, loop=loop, read=None)


def memcpy(out: np.ndarray, source: np.ndarray | None = None) -> Route:
    """The C library's memcpy into `out`, from as many bytes that were written before."""
    source = written_like(out) if source is None else source
    return native("memcpy, warm", lambda times: library().copy(out.ctypes.data, source.ctypes.data, out.nbytes, times))


def memcpy_past_cache(out: np.ndarray, source: np.ndarray) -> Route:
    """A copy by non-temporal stores: nothing that reads and writes as many bytes is much faster."""
    address = out.ctypes.data, source.ctypes.data
    return native("copy by non-temporal stores", lambda times: library().copy_past_cache(*address, out.nbytes, times))


def memset(out: np.ndarray) -> Route:
    """The C library's memset of `out`."""
    return native("memset, warm", lambda times: library().fill(out.ctypes.data, 1, out.nbytes, times))


def fresh_memcpy(source: np.ndarray) -> Route:
    """Allocates as NumPy does, which asks for huge pages, copies, and frees."""

    def call() -> None:
        out = np.empty_like(source)
        library().copy(out.ctypes.data, source.ctypes.data, source.nbytes, 1)

    return Route("memcpy into fresh memory (np.empty)", call, by="floor", read=None)


def fresh_memset(nbytes: int) -> Route:
    """Allocates as NumPy does, sets every byte, and frees."""

    def call() -> None:
        out = np.empty(nbytes, np.uint8)
        library().fill(out.ctypes.data, 1, nbytes, 1)

    return Route("memset of fresh memory (np.empty)", call, by="floor", read=None)


def small_pages_memcpy(source: np.ndarray) -> Route:
    """Maps memory in pages of the smallest size, copies, and unmaps."""

    def call() -> None:
        with mmap.mmap(-1, source.nbytes) as memory:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            out = np.frombuffer(memory, np.uint8)
            library().copy(out.ctypes.data, source.ctypes.data, source.nbytes, 1)
            # The mapping cannot be closed while an array shows it.
            del out

    return Route("memcpy into fresh memory (4 KiB pages)", call, by="floor", read=None)


def plain_pack(columns: list[np.ndarray], out: np.ndarray, block: int = 4096) -> Route:
    """Two loops in C over blocks of rows, as the compiler vectorises them."""
    addresses = (ctypes.c_void_p * len(columns))(*(one.ctypes.data for one in columns))

    def loop(times: int) -> float:
        assert columns
        return library().pack(addresses, len(columns), len(out), out.ctypes.data, block, times)

    return native("two loops in C over blocks, out=", loop)


def written_like(out: np.ndarray) -> np.ndarray:
    """As many bytes, touched, so that a copy of them finds memory and not the page of zeros."""
    return np.ones(out.nbytes, np.uint8)


def nothing_kept() -> Callable[[], object]:
    """Undoes that this package keeps the last large block that was let go: another takes its place."""
    import arrow_dlpack as ad

    # Of the smallest size that is kept, and smaller than what is measured.
    small = np.zeros(4 << 20, np.uint8)
    return lambda: ad.from_dlpack(small, copy=True)


def always_fresh() -> None:
    """Makes every allocation of the C library from 4 MiB on a mapping of its own, which is given back when it is freed.

    Otherwise it keeps some of what was freed, and the next allocation is not fresh.
    """
    m_mmap_threshold = -3
    if ctypes.CDLL(None).mallopt(m_mmap_threshold, 4 << 20) != 1:
        raise OSError("the C library has no such option")
