"""One column whose bytes have to move: casts, nulls, private copies, validity, strides, rows of different lengths."""

from __future__ import annotations

import floors
import measure
import numpy as np
import pyarrow as pa
from measure import Bench, Route, Table
from sources import SEED, bits, plain, pooled

FRESH = "memcpy of the output into fresh memory (np.empty, which asks for huge pages)"


def run(bench: Bench) -> None:
    """Two tables, of which the second has lists."""
    rows = bench.rows(10_000_000, 10_000)
    generator = np.random.default_rng(SEED)
    table = bench.table("columns", "One column of 10,000,000 rows", against=FRESH)
    casts(table, generator.integers(0, 1000, rows))
    nulls(table, generator.random(rows), generator.random(rows) >= 0.1)
    strided(table, np.zeros((rows // 10, 10))[:, ::2])
    ragged(bench, generator)


def casts(table: Table, ints: np.ndarray) -> None:
    import arrow_dlpack as ad

    column = plain(ints)
    floats = ints.astype(np.float32)
    routes = [
        Route("arrow-dlpack", lambda: ad.to_tensor(column, dtype="float32"), by="ours"),
        Route("pyarrow", lambda: column.cast(pa.float32()).to_numpy()),
        Route("NumPy, unchecked", lambda: column.to_numpy().astype(np.float32)),
    ]
    table.case("int64 to float32, checked", floors.fresh_memcpy(floats), routes, expected=floats, nbytes=floats.nbytes)


def nulls(table: Table, values: np.ndarray, valid: np.ndarray) -> None:
    import arrow_dlpack as ad

    column = pa.Array.from_buffers(pa.float64(), len(values), [bits(valid), pooled(values)])
    full = plain(values)
    expected = np.where(valid, values, np.nan)
    copy = floors.fresh_memcpy(expected)
    routes = [
        Route("arrow-dlpack", lambda: ad.to_tensor(column, nulls="nan"), by="ours"),
        Route("pyarrow", lambda: column.to_numpy(zero_copy_only=False)),
    ]
    table.case("10% nulls to NaN, float64", copy, routes, expected=expected, nbytes=values.nbytes)
    routes = [
        Route("arrow-dlpack", lambda: ad.to_tensor(full, writable=True), by="ours"),
        Route("NumPy, unchecked", lambda: full.to_numpy().copy()),
    ]
    table.case("writable=True, float64", copy, routes, expected=values, nbytes=values.nbytes)
    routes = [
        Route("arrow-dlpack", lambda: ad.validity(column), by="ours"),
        Route("pyarrow", lambda: column.is_valid().to_numpy(zero_copy_only=False)),
    ]
    table.case("validity of 10% nulls", floors.fresh_memcpy(valid), routes, expected=valid, nbytes=valid.nbytes)


def strided(table: Table, array: np.ndarray) -> None:
    import arrow_dlpack as ad

    compact = np.ascontiguousarray(array)
    routes = [
        Route(
            "arrow-dlpack", lambda: ad.to_arrow(array), by="ours", read=lambda made: pa.array(made).to_numpy_ndarray()
        ),
        Route("NumPy, unchecked", lambda: np.ascontiguousarray(array)),
    ]
    copy = floors.fresh_memcpy(compact)
    table.case("strided tensor to Arrow, float64", copy, routes, expected=compact, nbytes=compact.nbytes)


def ragged(bench: Bench, generator: np.random.Generator) -> None:
    import arrow_dlpack as ad

    rows = bench.rows(1_000_000)
    offsets = np.concatenate([[0], np.cumsum(generator.integers(0, 20, rows))]).astype(np.int32)
    values = generator.integers(0, 1000, int(offsets[-1]), np.int32)
    lists = pa.ListArray.from_arrays(plain(offsets), plain(values))
    half = lists.slice(rows // 2)
    title = "1,000,000 lists of 0 to 19 int32 to values and offsets, or padded"
    table = bench.table("ragged", title, against="a warm single-thread memcpy of the values")
    yardstick = floors.memcpy(np.zeros_like(values))

    def by_hand() -> tuple[np.ndarray, np.ndarray]:
        return lists.values.to_numpy(), lists.offsets.to_numpy()

    def slice_by_hand() -> tuple[np.ndarray, np.ndarray]:
        return half.flatten().to_numpy(), half.offsets.to_numpy() - half.offsets[0].as_py()

    def values_of(made: object) -> np.ndarray:
        return np.asarray(made[0] if isinstance(made, tuple) else made.values)

    def matrix_of(made: object) -> np.ndarray:
        return np.asarray(made[0] if isinstance(made, tuple) else made)

    routes = [
        Route("arrow-dlpack", lambda: ad.to_ragged(lists), by="ours", read=values_of),
        Route("NumPy by hand", by_hand, by="hand", read=values_of),
    ]
    table.case("all rows", yardstick, routes, expected=values, nbytes=values.nbytes)
    routes = [
        Route("arrow-dlpack", lambda: ad.to_ragged(half), by="ours", read=values_of),
        Route("NumPy by hand", slice_by_hand, by="hand", read=values_of),
    ]
    table.case(
        "a slice, offsets rebased", yardstick, routes, expected=values[offsets[rows // 2] :], nbytes=values.nbytes
    )

    def pad_by_hand() -> np.ndarray:
        out = np.zeros((rows, 20), np.int32)
        out[np.arange(20) < np.diff(offsets)[:, None]] = values
        return out

    routes = [
        Route("arrow-dlpack", lambda: ad.to_ragged(lists, pad=(0, 20)), by="ours", read=matrix_of),
        Route("NumPy by hand", pad_by_hand, by="hand"),
    ]
    table.case("padded to 20 columns", yardstick, routes, expected=pad_by_hand(), nbytes=values.nbytes)
    texts(bench, offsets, generator)


def texts(bench: Bench, offsets: np.ndarray, generator: np.random.Generator) -> None:
    import arrow_dlpack as ad

    letters = generator.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    strings = pa.StringArray.from_buffers(len(offsets) - 1, pooled(offsets), pooled(letters))
    views = strings.cast(pa.string_view())
    table = bench.table(
        "strings", "1,000,000 strings of 0 to 19 letters to values and offsets", against="a warm memcpy of the letters"
    )
    yardstick = floors.memcpy(np.zeros_like(letters))

    def read(made: ad.Ragged) -> np.ndarray:
        return np.asarray(made.values)

    routes = [Route("arrow-dlpack", lambda: ad.to_ragged(strings), by="ours", read=read)]
    table.case("string", yardstick, routes, expected=letters, nbytes=letters.nbytes)
    routes = [Route("arrow-dlpack", lambda: ad.to_ragged(views), by="ours", read=read)]
    table.case("string_view, gathered", yardstick, routes, expected=letters, nbytes=letters.nbytes)


if __name__ == "__main__":
    measure.main("columns", run)
