"""Train on flights on a GPU: rows are packed on the CPU and copied ahead, while the device learns from those before.

    python examples/gpu_training.py

The job is that of examples/flights/demo.py, and so are data, features and model. What differs is the loop:
`Loader(device="cuda", xp=torch)` hands out batches that are on the device already, or on their way: torch's current
stream waits for the copy, and Python waits for nothing. The error is read once a pass, as each look at a number of
the device would stop the loop.

Without torch, a GPU or the demo's packages (python/requirements/demo.txt) it says what is missing, and ends well.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import arrow_dlpack as ad

if TYPE_CHECKING:
    import duckdb

FLIGHTS = Path(__file__).resolve().parent / "flights"
PASSES = 5


def main() -> int:
    """Train, or say why that cannot be done here."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda", help="which GPU (default: cuda)")
    parser.add_argument(
        "--cache", type=Path, default=FLIGHTS.parents[1] / ".cache" / "flights", help="where data is kept"
    )
    options = parser.parse_args()
    missing = _missing(options.device)
    if missing:
        print(f"{(__doc__ or '').strip()}\n\nNot run: {missing}.")
        return 0

    sys.path.insert(0, str(FLIGHTS))
    import data
    import duckdb
    import features

    try:
        tables = data.fetch(options.cache)
    except data.DataError as error:
        print(f"gpu_training: {error}", file=sys.stderr)
        return 2
    with duckdb.connect() as connection:
        scale = features.build(connection, tables)
        _train(connection, scale, options.device)
    return 0


def _missing(device: str) -> str | None:
    """What is not there that is needed."""
    for package in ("torch", "duckdb", "arro3.core"):
        if find_spec(package.partition(".")[0]) is None:
            return f"{package} is not installed"
    import torch

    if not torch.cuda.is_available():
        return "there is no GPU that torch can use on this machine"
    count = torch.cuda.device_count()
    return None if (torch.device(device).index or 0) < count else f"there is no {device}; torch finds {count}"


def _train(connection: duckdb.DuckDBPyConnection, scale: Any, device: str) -> None:
    """Pass over the training rows, each time in another order, and say how that went."""
    import batches
    import features
    import models
    import torch

    # The tables and moments by which inputs are put together are made on the GPU too.
    torch.set_default_device(device)
    packer = batches.Packer(torch, scale)
    steps = PASSES * -(-scale.train_rows // batches.ROWS)
    model = models.TorchModel(batches.width(scale), steps, device)
    loader = ad.Loader(
        features.training(connection),
        batch_size=batches.ROWS,
        columns={**features.INPUTS, features.LABEL: features.LABEL},
        nulls=features.NULLS,
        shuffle_buffer=scale.train_rows,
        seed=batches.SEED,
        xp=torch,
        device=device,
    )
    for number in range(PASSES):
        began, rows, error = time.perf_counter(), 0, torch.zeros(())
        for inputs, label in packer.minibatches(loader):
            error += model.learn(inputs, label)
            rows += len(label)
        mean = float(error) * batches.ROWS / rows  # the one wait of a pass
        seconds = time.perf_counter() - began
        print(f"pass {number + 1} of {PASSES}: error {mean:.2f} min, {rows / seconds:,.0f} rows/s")
    statistics = ad.memory_stats()
    print(f"memory of the package: {statistics}")


if __name__ == "__main__":
    sys.exit(main())
