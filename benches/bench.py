"""Ratios against a plain copy or a peer: one process, interleaved, medians. Prints a Markdown table.

make bench > /tmp/figures.md
"""

from __future__ import annotations

import gc
import platform
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa

ROUNDS = 31


def seconds(call: Callable[[], object], number: int) -> float:
    """Seconds a call, over `number` calls."""
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


def ratio(ours: Callable[[], object], theirs: Callable[[], object], number: int) -> tuple[float, float, float]:
    """Medians of both in seconds, and of their ratio, the two taking turns."""
    for call in (ours, theirs):
        seconds(call, number)
    gc.disable()
    pairs = [(seconds(ours, number), seconds(theirs, number)) for _ in range(ROUNDS)]
    gc.enable()
    own, other = (statistics.median(times) for times in zip(*pairs, strict=True))
    return own, other, statistics.median(a / b for a, b in pairs)


def row(what: str, against: str, ours: Callable[[], object], theirs: Callable[[], object], number: int) -> None:
    """One line of the table."""
    own, other, times = ratio(ours, theirs, number)
    print(f"| {what} | {against} | {own * 1e9:,.0f} | {other * 1e9:,.0f} | {times:.2f} |")


def small() -> None:
    """Calls that move nothing: their cost is the protocol's."""
    array = np.arange(1000)
    column = pa.array(array)
    tensor = ad.to_tensor(column)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(4000, np.float32)), 4)
    row(
        "np.from_dlpack(ad.Tensor)",
        "np.from_dlpack(ndarray)",
        lambda: np.from_dlpack(tensor),
        lambda: np.from_dlpack(array),
        2000,
    )
    row(
        "np.from_dlpack(pa.Array)",
        "np.from_dlpack(ndarray)",
        lambda: np.from_dlpack(column),
        lambda: np.from_dlpack(array),
        2000,
    )
    row(
        "ad.to_tensor(pa.Array)",
        "pa.Array.__arrow_c_array__()",
        lambda: ad.to_tensor(column),
        column.__arrow_c_array__,
        2000,
    )
    row(
        "ad.from_dlpack(ndarray)",
        "np.from_dlpack(ndarray)",
        lambda: ad.from_dlpack(array),
        lambda: np.from_dlpack(array),
        2000,
    )
    row(
        "ad.to_tensor(fixed-size lists)", "pa to_tensor()", lambda: ad.to_tensor(lists), lambda: lists.to_tensor(), 2000
    )
    row(
        "ad.to_arrow(ndarray)",
        "pa.Array.from_dlpack(ndarray)",
        lambda: ad.to_arrow(array),
        lambda: pa.Array.from_dlpack(array),
        2000,
    )


def large() -> None:
    """Conversions that move bytes, against copying as many bytes into fresh memory."""
    rows = 10_000_000
    generator = np.random.default_rng(0)
    nulls = generator.random(rows) < 0.1
    ints = pa.array(generator.integers(0, 1000, rows))
    with_nulls = pa.array(generator.random(rows), mask=nulls)
    bools = pa.array(generator.random(rows) < 0.5)
    doubles = ints.to_numpy().astype(np.float64)
    bytes_ = np.zeros(rows, np.uint8)
    floats = np.zeros(rows, np.float32)
    copy = "copy of the output into fresh memory"
    row("int64 to float32, checked", copy, lambda: ad.to_tensor(ints, dtype="float32"), floats.copy, 1)
    row("10% nulls to NaN, float64", copy, lambda: ad.to_tensor(with_nulls, nulls="nan"), doubles.copy, 1)
    row("writable=True, float64", copy, lambda: ad.to_tensor(pa.array(doubles), writable=True), doubles.copy, 1)
    row("bool bitmap to bool", copy, lambda: ad.to_tensor(bools), bytes_.copy, 1)
    row(
        "bool bitmap to bool",
        "np.unpackbits",
        lambda: ad.to_tensor(bools),
        lambda: np.unpackbits(np.frombuffer(bools.buffers()[1], np.uint8), bitorder="little"),
        1,
    )
    row(
        "validity of 10% nulls",
        "pa is_valid() and to_numpy",
        lambda: ad.validity(with_nulls),
        lambda: with_nulls.is_valid().to_numpy(zero_copy_only=False),
        1,
    )
    strided = np.zeros((rows // 10, 10), np.float64)[:, ::2]
    row(
        "strided tensor to Arrow",
        "np.ascontiguousarray",
        lambda: ad.to_arrow(strided),
        lambda: np.ascontiguousarray(strided),
        1,
    )


def resident() -> int:
    """Resident memory in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def memory() -> None:
    """Growth of resident memory over a million conversions."""
    column = pa.array([1.0, None, 3.0])
    array = np.arange(10)

    def convert(times: int) -> None:
        for _ in range(times):
            np.from_dlpack(ad.to_tensor(column, nulls="nan"))
            ad.to_arrow(ad.from_dlpack(array))

    convert(10_000)
    gc.collect()
    before = resident()
    convert(990_000)
    gc.collect()
    growth = (resident() - before) / 2**20
    print(f"\nResident memory after 1,000,000 conversions each way: {growth:+.2f} MiB over that after 10,000.")


def main() -> None:
    """Prints every figure."""
    versions = f"numpy {np.__version__}, pyarrow {pa.__version__}, arrow-dlpack {ad.__version__}"
    print(f"CPython {platform.python_version()}, {versions}\n")
    print("| what | against | ns | ns of the other | times |\n|---|---|---|---|---|")
    small()
    large()
    memory()


if __name__ == "__main__":
    main()
