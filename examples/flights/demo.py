"""Train on every flight out of New York City, from Parquet through Arrow and DLPack to a model, and back.

DuckDB streams record batches, `arrow_dlpack` makes tensors of them, NumPy or torch trains on those, the predictions
return as Arrow data, and DuckDB joins them to the flights. Run it by `make demo`, or directly:

    python examples/flights/demo.py --framework torch --device cpu
"""

from __future__ import annotations

import os

# Read when NumPy and torch are imported: minibatches are too small to share among threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import arrow_dlpack as ad
import data
import duckdb
import features
import report
from arro3.core import RecordBatch, Table
from batches import ROWS, Packer, width
from models import Model, NumpyModel, TorchModel
from tqdm import tqdm

PASSES = 5
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "flights"


def main() -> int:
    """Do the whole job; 0 when the model beats the baselines, 1 when not, 2 when the job cannot be done here."""
    options = _options()
    refused = _refusal(options.framework, options.device)
    if refused:
        print(f"demo: {refused}", file=sys.stderr)
        return 2
    try:
        tables = data.fetch(options.cache)
    except data.DataError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2

    with duckdb.connect() as connection, ad.track_copies() as copies:
        scale = features.build(connection, tables)
        model = _model(options.framework, options.device, scale)
        packer = Packer(model.xp, scale)
        train_seconds = _train(connection, packer, model)
        connection.register("predictions", _predict(connection, packer, model))
        errors = report.measure(connection, scale)
        plot = options.cache / f"report-{options.framework}.png"
        report.draw(connection, tables["airlines"], errors, plot)
    account = report.Account(PASSES, train_seconds, packer.seconds, packer.viewed, packer.packed, copies)
    report.show(errors, account, scale, options.framework, plot)
    if not errors.beaten:
        name, best = errors.best
        print(f"demo: the model ({errors.model:.2f}) does not beat {name} ({best:.2f})", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--framework", choices=["numpy", "torch"], default="numpy", help="what trains (default: numpy)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where it trains (default: cpu)")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="where data and plot are kept (default: .cache/flights)"
    )
    return parser.parse_args()


def _refusal(framework: str, device: str) -> str | None:
    """Say why the job cannot run here, before any work is done for it."""
    if framework == "numpy":
        return "NumPy works on the CPU alone; add --framework torch to use a GPU" if device == "cuda" else None
    if find_spec("torch") is None:
        return "torch is not installed; install python/requirements/demo-torch.txt, or leave --framework out"
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            return "there is no GPU that torch can use on this machine; leave --device out to train on the CPU"
    return None


def _model(framework: str, device: str, scale: features.Scale) -> Model:
    steps = PASSES * -(-scale.train_rows // ROWS)
    if framework == "numpy":
        return NumpyModel(width(scale), steps)
    return TorchModel(width(scale), steps, device)


def _train(connection: duckdb.DuckDBPyConnection, packer: Packer, model: Model) -> float:
    """Pass over the training rows, each time in another order; return the seconds it took."""
    began = time.perf_counter()
    recent = 0.0
    total = PASSES * packer.scale.train_rows
    loader = packer.loader(features.training(connection))
    pause = 0.1 if sys.stderr.isatty() else 5.0  # a log is not flooded
    with tqdm(total=total, unit=" rows", unit_scale=True, desc="training", mininterval=pause) as bar:
        for number in range(PASSES):
            for inputs, label in packer.minibatches(loader):
                error = model.step(inputs, label)
                recent += (error - recent) * (0.02 if recent else 1.0)
                bar.set_postfix_str(f"pass {number + 1} of {PASSES}, error {recent:.1f} min", refresh=False)
                bar.update(len(label))
    return time.perf_counter() - began


def _predict(connection: duckdb.DuckDBPyConnection, packer: Packer, model: Model) -> Table:
    """Predict the rows to measure on: the ids stay the engine's Arrow memory, the predictions become Arrow."""
    batches = []
    for batch in features.measuring(connection):
        if not batches:
            explained = str(ad.explain(batch, columns=features.INPUTS, nulls=features.NULLS)).rstrip()
            print(f"what arrow_dlpack does with a record batch:\n{explained}\n", file=sys.stderr)
        predicted = ad.to_arrow(model.xp.concatenate([model.predict(inputs) for inputs in packer.parts(batch)]))
        batches.append(RecordBatch.from_arrays([batch.column("id"), predicted], names=["id", "predicted"]))
    return Table.from_batches(batches)


if __name__ == "__main__":
    sys.exit(main())
