"""Arrow's bitmaps to bytes, and back."""

from __future__ import annotations

from collections.abc import Iterator

import floors
import measure
import numpy as np
import peers
import pyarrow as pa
from measure import Bench, Route
from sources import SEED, bits


def run(bench: Bench) -> None:
    """Three tables: into memory that is there, into fresh memory, and back."""
    rows = bench.rows(100_000_000, 10_000)
    values = np.random.default_rng(SEED).integers(0, 2, rows, np.uint8).view(bool)
    column = pa.Array.from_buffers(pa.bool_(), rows, [None, bits(values)])
    unpack(bench, column, values)
    pack(bench, column, values)


def unpack(bench: Bench, column: pa.Array, values: np.ndarray) -> None:
    import arrow_dlpack as ad

    own = ad.from_arrow(column)
    out = np.zeros_like(values)
    packed = np.frombuffer(column.buffers()[1], np.uint8)
    title = "A bool column of 100,000,000 rows, a bitmap, to bool tensors"
    into = bench.table("bitmap", title, against="a warm memset of the output", label="bitmap of 100,000,000")
    routes = [
        Route("ad.to_tensor(out=)", lambda: ad.to_tensor(own, out=out), by="ours", target=1.2),
        Route("ad.to_tensor", lambda: ad.to_tensor(own), by="ours"),
        *others(column, packed),
        floors.memcpy(out, values),
    ]
    into.case("warm", floors.memset(out), routes, expected=values, nbytes=values.nbytes)
    fresh = bench.table(
        "bitmap-fresh",
        f"{title}, in fresh memory",
        against="memset of fresh memory (np.empty)",
        label="bitmap of 100,000,000",
    )
    before = floors.nothing_kept()
    routes = [Route("ad.to_tensor", lambda: ad.to_tensor(own), by="ours", target=1.2, before=before)]
    fresh.case("fresh", floors.fresh_memset(values.nbytes), routes, expected=values, nbytes=values.nbytes)


def others(column: pa.Array, packed: np.ndarray) -> Iterator[Route]:
    """The peers that are here."""
    yield Route("np.unpackbits", lambda: np.unpackbits(packed, count=len(column), bitorder="little").view(bool))
    yield Route("pyarrow cast to uint8", lambda: column.cast(pa.uint8()), read=lambda made: np.asarray(made).view(bool))
    yield Route("pyarrow to_numpy", lambda: column.to_numpy(zero_copy_only=False))
    polars, arro3 = peers.find("polars"), peers.find("arro3.core")
    if polars is not None:
        series = polars.Series(column)
        yield Route("polars to_numpy", series.to_numpy)
    if arro3 is not None:
        array = arro3.Array.from_arrow(column)
        yield Route("arro3 to_numpy", array.to_numpy)


def pack(bench: Bench, column: pa.Array, values: np.ndarray) -> None:
    import arrow_dlpack as ad

    data_type = column.type
    out = np.zeros_like(values)
    title = "A bool array of 100,000,000 rows to a bool column, a bitmap"
    table = bench.table("bitmap-back", title, against="a warm memcpy of the input")

    def unpacked(made: object) -> np.ndarray:
        return pa.array(made).to_numpy(zero_copy_only=False)

    routes = [
        Route("ad.to_arrow(type=bool)", lambda: ad.to_arrow(values, type=data_type), by="ours", read=unpacked),
        Route(
            "np.packbits",
            lambda: np.packbits(values, bitorder="little"),
            read=lambda made: np.unpackbits(made, count=len(values), bitorder="little").view(bool),
        ),
        Route("pa.array", lambda: pa.array(values), read=unpacked),
    ]
    polars = peers.find("polars")
    if polars is not None:
        routes.append(Route("polars Series", lambda: polars.Series(values), read=lambda made: made.to_numpy()))
    table.case("back", floors.memcpy(out, values), routes, expected=values, nbytes=values.nbytes)


if __name__ == "__main__":
    measure.main("bitmap", run)
