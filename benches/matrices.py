"""Every way from a record batch to a row-major float32 matrix that there is: ours, the peers', and by hand.

What a library imports without a copy it has before the clock runs; what it copies is part of its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import peers
from measure import Route
from sources import Source

# A cast is asked for only where the columns are something else.
CAST = ("mixed", "bool")

# HF datasets takes seconds for what takes others milliseconds: it is asked for one kind, and up to so many values.
DATASETS_VALUES = 20_000_000


def packed(source: Source, out: np.ndarray, target: float | None = None, name: str = "ad.to_tensor(out=)") -> Route:
    """Ours, into memory that is there already."""
    import arrow_dlpack as ad

    batch = ad.from_arrow(source.batch)
    options = asked(source.kind)
    return Route(name, lambda: ad.to_tensor(batch, out=out, **options), by="ours", target=target)


def packed_fresh(source: Source, name: str = "ad.to_tensor", **more: Any) -> Route:
    """Ours, into memory of its own."""
    import arrow_dlpack as ad

    batch = ad.from_arrow(source.batch)
    options = asked(source.kind)
    return Route(name, lambda: ad.to_tensor(batch, **options), by="ours", **more)


def asked(kind: str) -> dict[str, Any]:
    """The options that a kind of source needs."""
    return {"dtype": "float32"} if kind in CAST else {"nulls": "nan"} if kind == "nulls" else {}


def others(source: Source, out: np.ndarray) -> list[Route]:
    """The peers that are here."""
    found = [*pyarrow_routes(source), *polars_routes(source), *pandas_routes(source), *torch_routes(source)]
    return [*found, *numpy_routes(source, out), *duckdb_routes(source), *datasets_routes(source), *smaller(source)]


def pyarrow_routes(source: Source) -> Iterator[Route]:
    batch = source.batch
    nulls = source.kind == "nulls"

    def row_major() -> np.ndarray:
        return batch.to_tensor(null_to_nan=nulls).to_numpy().astype(np.float32, copy=False)

    def column_major() -> np.ndarray:
        made = batch.to_tensor(null_to_nan=nulls, row_major=False).to_numpy()
        return np.ascontiguousarray(made, np.float32)

    yield Route("pyarrow to_tensor(row_major=True)", row_major)
    yield Route("pyarrow to_tensor(row_major=False), np.ascontiguousarray", column_major)


def polars_routes(source: Source) -> Iterator[Route]:
    polars = peers.find("polars")
    if polars is None:
        return
    frame = polars.from_arrow(source.batch)
    as_floats: Callable[[], Any] = (lambda: frame.cast(polars.Float32)) if source.kind in CAST else (lambda: frame)
    yield Route('polars to_numpy(order="c")', lambda: as_floats().to_numpy(order="c"))
    if peers.find("torch") is not None:
        yield Route("polars to_torch().contiguous()", lambda: as_floats().to_torch().contiguous())


def pandas_routes(source: Source) -> Iterator[Route]:
    if peers.find("pandas") is None:
        return
    batch = source.batch
    yield Route(
        "pandas to_numpy, np.ascontiguousarray", lambda: np.ascontiguousarray(batch.to_pandas().to_numpy(np.float32))
    )


def torch_routes(source: Source) -> Iterator[Route]:
    torch = peers.find("torch")
    if torch is None:
        return
    columns = source.batch.columns
    if source.kind in CAST:

        def stacked() -> Any:
            return torch.stack([torch.from_dlpack(one).to(torch.float32) for one in columns], dim=1)

    else:

        def stacked() -> Any:
            return torch.stack([torch.from_dlpack(one) for one in columns], dim=1)

    yield Route("torch.stack of from_dlpack", stacked)


def numpy_routes(source: Source, out: np.ndarray) -> Iterator[Route]:
    columns = source.batch.columns

    def stacked() -> np.ndarray:
        # With nulls, to_numpy makes them NaN in a copy.
        parts = [one.to_numpy(zero_copy_only=False) for one in columns]
        return np.stack(parts, axis=1, dtype=np.float32, casting="unsafe")

    yield Route("np.stack of pyarrow's to_numpy", stacked)
    yield Route("NumPy by hand: blocks of rows, out=", by_hand(source, out), by="hand")


def by_hand(source: Source, out: np.ndarray, block: int = 4096) -> Callable[[], np.ndarray]:
    """A loop over blocks that fit into the cache, and over columns; nulls and bits by np.unpackbits."""
    rows = source.batch.num_rows
    block = min(block, rows)
    values = []
    valid = []
    for one in source.batch.columns:
        bitmap, data = one.buffers()
        values.append(np.frombuffer(data, np.uint8 if source.kind == "bool" else one.type.to_pandas_dtype()))
        valid.append(None if bitmap is None else np.frombuffer(bitmap, np.uint8))

    def call() -> np.ndarray:
        for first in range(0, rows, block):
            end = min(first + block, rows)
            part = slice(first // 8, -(-end // 8))
            for index, column in enumerate(values):
                target = out[first:end, index]
                bitmap = valid[index]
                if source.kind == "bool":
                    target[:] = np.unpackbits(column[part], count=end - first, bitorder="little")
                elif bitmap is None:
                    target[:] = column[first:end]
                else:
                    is_valid = np.unpackbits(bitmap[part], count=end - first, bitorder="little").view(bool)
                    target[:] = np.where(is_valid, column[first:end], np.float32(np.nan))
        return out

    return call


def duckdb_routes(source: Source) -> Iterator[Route]:
    duckdb = peers.find("duckdb")
    if duckdb is None:
        return
    import pyarrow as pa

    relation = duckdb.from_arrow(pa.Table.from_batches([source.batch]))

    def by_numpy() -> np.ndarray:
        parts = [
            np.ma.filled(one, np.nan) if np.ma.isMaskedArray(one) else one for one in relation.fetchnumpy().values()
        ]
        return np.stack(parts, axis=1, dtype=np.float32, casting="unsafe")

    yield Route("duckdb fetchnumpy, np.stack", by_numpy)
    torch = peers.find("torch")
    if torch is not None:
        yield Route(
            "duckdb torch, torch.stack",
            lambda: torch.stack([one.to(torch.float32) for one in relation.torch().values()], dim=1),
        )


def datasets_routes(source: Source) -> Iterator[Route]:
    if source.kind != "float32" or source.matrix.size > DATASETS_VALUES:
        return
    datasets, torch = peers.find("datasets"), peers.find("torch")
    if datasets is None or torch is None:
        return
    import pyarrow as pa

    dataset = datasets.Dataset(pa.Table.from_batches([source.batch])).with_format("torch")
    yield Route(
        "HF datasets in torch format, torch.stack",
        lambda: torch.stack([one.to(torch.float32) for one in dataset[:].values()], dim=1),
    )


def smaller(source: Source) -> Iterator[Route]:
    """Libraries that give columns, and no matrix; from some number of columns on it is np.stack that takes the time."""
    if source.kind != "float32" or source.batch.num_columns > 64:
        return
    arro3, nanoarrow = peers.find("arro3.core"), peers.find("nanoarrow")
    width = source.batch.num_columns
    if arro3 is not None:
        batch = arro3.RecordBatch.from_arrow(source.batch)
        yield Route(
            "arro3 to_numpy, np.stack",
            lambda: np.stack([batch.column(index).to_numpy() for index in range(width)], axis=1),
        )
    if nanoarrow is not None:
        array = nanoarrow.array(source.batch)
        yield Route(
            "nanoarrow buffers, np.stack",
            lambda: np.stack([np.asarray(one.buffers[1]) for one in array.iter_children()], axis=1),
        )
