"""The instruction sets that the kernels have paths for, each in a process of its own: the choice is made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import floors
import matrices
import measure
import numpy as np
from measure import Bench
from sources import source

VARIABLE = "ARROW_DLPACK_ISA"
# Each path with the feature that it needs and how far it may stay behind the figures to reach, if that is said.
PATHS: dict[str, tuple[str, float | None]] = {
    "avx512": ("avx512f", None),
    "avx2": ("avx2", 1.5),
    "portable": ("", None),
}
CASES = {("float32", 16): 1.0, ("float32", 64): 1.0, ("mixed", 64): 1.4, ("nulls", 64): 1.2, ("bool", 64): 0.7}


def run(bench: Bench) -> None:
    """One table; each process measures one of its rows."""
    path = os.environ.get(VARIABLE)
    if path is not None:
        return measure_path(bench, path)
    table = bench.table(
        "isa",
        "Packing by instruction set, 1,000,000 rows, out=",
        against="a warm single-thread memcpy of the output",
        label="pack up to AVX2",
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for path, (feature, _) in PATHS.items():
            if feature and not measure.has(feature):
                continue
            quick = ["--quick"] if bench.quick else []
            command = [sys.executable, __file__, "--to", folder, *quick]
            subprocess.run(command, env=os.environ | {VARIABLE: path}, check=True)
            found.append(json.loads((Path(folder) / "isa.json").read_text(encoding="utf-8"))["tables"][0]["cases"])
    for same in zip(*found, strict=True):
        routes = [route for case in same for route in case["routes"]]
        table.made["cases"].append({**same[0], "routes": routes})
    return None


def measure_path(bench: Bench, path: str) -> None:
    """One row of the table."""
    table = bench.table("isa", path, against="")
    for (kind, columns), target in CASES.items():
        made = source(kind, bench.rows(1_000_000), columns)
        out = np.zeros_like(made.matrix)
        _, behind = PATHS[path]
        ours = matrices.packed(made, out, None if behind is None else round(target * behind, 2), f"{VARIABLE}={path}")
        name = f"{kind}, {columns} columns"
        table.case(name, floors.memcpy(out, made.matrix), [ours], expected=made.matrix, nbytes=out.nbytes)


if __name__ == "__main__":
    measure.main("isa", run)
