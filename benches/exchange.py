"""All columns of a batch as torch tensors, made and dropped, against a bare loop over torch's exchange table in C.

One process, interleaved, medians. Prints a Markdown table: python benches/exchange.py
"""

from __future__ import annotations

import gc
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import torch

ROUNDS = 101
# Calls in a turn: one takes tens of microseconds.
NUMBER = 20
COLUMNS, ROWS = 100, 1_000

Call = Callable[[], object]


def floor() -> ModuleType:
    """exchange.c, compiled for this interpreter."""
    name = "exchange_floor"
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / (name + sysconfig.get_config_var("EXT_SUFFIX"))
        source = Path(__file__).with_name("exchange.c")
        flags = ["-std=c11", "-O3", "-shared", "-fPIC", "-I", sysconfig.get_path("include")]
        subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", str(target), str(source)], check=True)
        spec = importlib.util.spec_from_file_location(name, target)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def turn(call: Call) -> float:
    """Seconds a column, the tensors of each call dropped before the next one."""
    start = time.perf_counter()
    for _ in range(NUMBER):
        call()
    return (time.perf_counter() - start) / (NUMBER * COLUMNS)


def figures(against: Call, calls: dict[str, Call]) -> None:
    """A line for each call: nanoseconds, and how many times those of the yardstick in the same round."""
    for call in (against, *calls.values()):
        turn(call)
    rounds = []
    gc.collect()
    gc.disable()
    for number in range(ROUNDS):
        # Each comes first in some rounds.
        names = list(calls)
        order = names[number % len(names) :] + names[: number % len(names)]
        by = turn(against)
        rounds.append({None: by} | {name: turn(calls[name]) for name in order})
    gc.enable()
    print(f"| the yardstick | {statistics.median(one[None] for one in rounds) * 1e9:,.0f} | 1 |")
    for name in calls:
        own = statistics.median(one[name] for one in rounds)
        times = statistics.median(one[name] / one[None] for one in rounds)
        print(f"| {name} | {own * 1e9:,.0f} | {times:.2f} |")


def main() -> None:
    """Prints both tables."""
    columns = {f"column_{index}": pa.array(np.full(ROWS, index, np.float32)) for index in range(COLUMNS)}
    batch = pa.record_batch(columns)
    own = ad.from_arrow(batch)
    tensors = floor().tensors
    table = torch.Tensor.__dlpack_c_exchange_api__
    names = tuple(map(sys.intern, columns))
    addresses = tuple(column.buffers()[1].address for column in batch.columns)

    def bare() -> dict[str, torch.Tensor]:
        return tensors(table, names, addresses, ROWS)

    def bare_and_batch() -> None:
        bare()
        batch.__arrow_c_array__()

    for made in (bare(), ad.to_tensors(own, xp=torch), ad.to_tensors(batch, xp=torch)):
        assert [tensor.data_ptr() for tensor in made.values()] == list(addresses)
        assert all(tensor.shape == (ROWS,) and tensor[0] == index for index, tensor in enumerate(made.values()))
    versions = f"torch {torch.__version__}, pyarrow {pa.__version__}, arrow-dlpack {ad.__version__}"
    print(f"CPython {platform.python_version()}, {versions}; nanoseconds a column, of {COLUMNS}")
    print("\nFrom an `ad.RecordBatch`, against a bare loop over torch's exchange table\n")
    print("| what | ns | times |\n|---|---|---|")
    figures(
        bare,
        {
            "ad.to_tensors(batch, xp=torch)": lambda: ad.to_tensors(own, xp=torch),
            "ad.to_tensors(batch), no torch": lambda: ad.to_tensors(own),
            "torch.from_dlpack of each ad.Tensor": lambda: {
                name: torch.from_dlpack(tensor) for name, tensor in ad.to_tensors(own).items()
            },
        },
    )
    print("\nFrom a pyarrow batch, against that loop and the batch's own `__arrow_c_array__()`\n")
    print("| what | ns | times |\n|---|---|---|")
    figures(
        bare_and_batch,
        {
            "ad.to_tensors(batch, xp=torch)": lambda: ad.to_tensors(batch, xp=torch),
            "ad.from_arrow(batch)": lambda: ad.from_arrow(batch),
            "batch.__arrow_c_array__()": batch.__arrow_c_array__,
            "torch.from_dlpack of each column": lambda: {
                name: torch.from_dlpack(batch.column(index)) for index, name in enumerate(names)
            },
        },
    )


if __name__ == "__main__":
    main()
