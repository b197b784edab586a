"""All columns of a batch as torch tensors, made and dropped, against a bare loop over torch's exchange table in C."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import floors
import measure
import numpy as np
import peers
import pyarrow as pa
from measure import Bench, Route
from sources import plain

CODE = Path(__file__).with_name("exchange.c")
COLUMNS, ROWS = 100, 1_000


def floor() -> ModuleType:
    """exchange.c, compiled for this interpreter."""
    flags = ["-std=c11", "-O3", "-shared", "-fPIC", "-I", sysconfig.get_path("include")]
    built = floors.compiled(CODE, flags, sysconfig.get_config_var("EXT_SUFFIX"))
    spec = importlib.util.spec_from_file_location("exchange_floor", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(bench: Bench) -> None:
    """One table, if torch is here."""
    torch = peers.find("torch")
    if torch is None:
        return
    import arrow_dlpack as ad

    matrix = np.random.default_rng(0).random((COLUMNS, ROWS), np.float32)
    columns = {f"column_{index}": plain(values) for index, values in enumerate(matrix)}
    batch = pa.record_batch(columns)
    own = ad.from_arrow(batch)
    tensors = floor().tensors
    exchange = torch.Tensor.__dlpack_c_exchange_api__
    names = tuple(map(sys.intern, columns))
    addresses = tuple(column.buffers()[1].address for column in batch.columns)

    def bare() -> dict[str, Any]:
        return tensors(exchange, names, addresses, ROWS)

    def bare_and_batch() -> dict[str, Any]:
        batch.__arrow_c_array__()
        return bare()

    def read(made: dict[str, Any]) -> np.ndarray:
        # A copy would have the same values.
        assert [tensor.data_ptr() for tensor in made.values()] == list(addresses)
        return np.stack([tensor.numpy() for tensor in made.values()])

    table = bench.table(
        "exchange",
        f"A batch of {COLUMNS} float32 columns to a dict of torch tensors",
        against="a bare loop in C over torch's exchange table",
        label=f"{COLUMNS} columns to torch",
    )
    routes = [
        Route("ad.to_tensors(batch, xp=torch)", lambda: ad.to_tensors(own, xp=torch), "ours", read=read, target=1.3),
        Route(
            "ad.to_tensors(batch), then torch.from_dlpack of each",
            lambda: {name: torch.from_dlpack(tensor) for name, tensor in ad.to_tensors(own).items()},
            "ours",
            read=read,
        ),
    ]
    table.case("ad.RecordBatch", Route("bare loop", bare, "floor", read=read), routes, expected=matrix)
    # torch warns of read-only arrays, and of read-only tensors it does not.
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    routes = [
        Route("ad.to_tensors(batch, xp=torch)", lambda: ad.to_tensors(batch, xp=torch), "ours", read=read, target=1.3),
        Route(
            "torch.from_dlpack of each column",
            lambda: {name: torch.from_dlpack(batch.column(index)) for index, name in enumerate(names)},
            read=read,
        ),
        Route(
            "torch.from_numpy of each column",
            lambda: {name: torch.from_numpy(batch.column(index).to_numpy()) for index, name in enumerate(names)},
            read=read,
        ),
    ]
    yardstick = Route("bare loop and __arrow_c_array__()", bare_and_batch, "floor", read=read)
    table.case("pyarrow.RecordBatch", yardstick, routes, expected=matrix)


if __name__ == "__main__":
    measure.main("exchange", run)
