"""A nullable int64 column as what it is: its values, viewed, and a bool for each that says whether it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import floors
import measure
import numpy as np
import peers
import pyarrow as pa
from measure import Bench, Route
from sources import SEED, bits, pooled


def run(bench: Bench) -> None:
    """One table."""
    import arrow_dlpack as ad

    rows = bench.rows(10_000_000, 10_000)
    generator = np.random.default_rng(SEED)
    # Larger than what a double holds: a way through doubles would give other values.
    values = generator.integers(2**60, 2**62, rows)
    valid = generator.random(rows, np.float32) >= 0.1
    column = pa.Array.from_buffers(pa.int64(), rows, [bits(valid), pooled(values)])
    own = ad.from_arrow(column)
    out = np.zeros_like(values)

    def ours() -> tuple[ad.Tensor, ad.Tensor]:
        return ad.to_tensor(own, nulls="keep"), ad.validity(own)

    title = "Nullable int64, 10,000,000 rows, 10% nulls, to values and validity"
    table = bench.table(
        "nullable", title, against="a warm single-thread memcpy of the values", label="nullable int64, 10,000,000 rows"
    )
    routes = [
        pair('ad.to_tensor(nulls="keep"), ad.validity', ours, by="ours", target=0.13),
        *others(column),
    ]
    yardstick = floors.memcpy(out, values)
    table.case("int64", yardstick, routes, expected=np.where(valid, values, 0), nbytes=values.nbytes)


def pair(name: str, call: Callable[[], tuple[Any, Any]], by: str = "peer", target: float | None = None) -> Route:
    """A route that gives values and validity; the values of nulls are not compared."""

    def read(made: tuple[Any, Any]) -> np.ndarray:
        values, valid = (np.asarray(one) for one in made)
        return np.where(valid, values, 0)

    return Route(name, call, by=by, read=read, target=target)


def others(column: pa.Array) -> Iterator[Route]:
    """The peers that are here."""

    def by_hand() -> tuple[np.ndarray, np.ndarray]:
        bitmap, values = column.buffers()
        valid = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=len(column), bitorder="little").view(bool)
        return np.frombuffer(values, np.int64), valid

    yield pair("NumPy by hand: np.frombuffer, np.unpackbits", by_hand, by="hand")
    yield pair(
        "pyarrow to_tensor(allow_nulls=True), is_valid",
        lambda: (column.to_tensor(allow_nulls=True).to_numpy(), column.is_valid().to_numpy(zero_copy_only=False)),
    )
    polars, pandas, duckdb = (peers.find(name) for name in ("polars", "pandas", "duckdb"))
    if polars is not None:
        series = polars.Series(column)
        yield pair(
            "polars fill_null, is_not_null", lambda: (series.fill_null(0).to_numpy(), series.is_not_null().to_numpy())
        )
    if pandas is not None:
        types = {pa.int64(): pandas.Int64Dtype()}.get

        def by_pandas() -> tuple[np.ndarray, np.ndarray]:
            made = column.to_pandas(types_mapper=types)
            return made.to_numpy(np.int64, na_value=0), made.notna().to_numpy()

        yield pair("pandas Int64, to_numpy and notna", by_pandas)
    if duckdb is not None:
        relation = duckdb.from_arrow(pa.table({"values": column}))

        def by_duckdb() -> tuple[np.ndarray, np.ndarray]:
            made = relation.fetchnumpy()["values"]
            return made.data, ~made.mask

        yield pair("duckdb fetchnumpy", by_duckdb)


if __name__ == "__main__":
    measure.main("nullable", run)
