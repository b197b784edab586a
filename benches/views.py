"""What crosses without a copy: nanoseconds a call, which are the protocols' and ours."""

from __future__ import annotations

import measure
import numpy as np
import peers
import pyarrow as pa
from measure import Bench, Route


def run(bench: Bench) -> None:
    """Four tables, each against the cheapest call of its kind."""
    import arrow_dlpack as ad

    array = np.arange(1000)
    column = pa.array(array)
    tensor = ad.to_tensor(column)
    from_arrays(bench, array, column, tensor)
    table = bench.table("views-to-tensor", "A pyarrow column to a tensor", against="pa.Array.__arrow_c_array__()")
    routes = [
        Route("ad.to_tensor(pa.Array)", lambda: ad.to_tensor(column), by="ours", read=np.from_dlpack),
        Route("pa.Array.__dlpack__(max_version=(1, 0))", lambda: column.__dlpack__(max_version=(1, 0)), read=None),
        Route("pa.Array.to_numpy", column.to_numpy),
    ]
    polars = peers.find("polars")
    if polars is not None:
        series = polars.Series(column)
        routes.append(Route("polars Series.to_numpy", series.to_numpy))
    bare = Route("pa.Array.__arrow_c_array__()", lambda: column.__arrow_c_array__(), by="floor", read=None)
    table.case("int64", bare, routes, expected=array)
    fixed_size_lists(bench)
    to_arrow(bench, array)


def from_arrays(bench: Bench, array: np.ndarray, column: pa.Array, tensor: object) -> None:
    """From one array type to the next."""
    import arrow_dlpack as ad

    table = bench.table("views", "1,000 int64 from library to library by DLPack", against="np.from_dlpack(ndarray)")
    routes = [
        Route("np.from_dlpack(ad.Tensor)", lambda: np.from_dlpack(tensor), by="ours"),
        Route("ad.from_dlpack(ndarray)", lambda: ad.from_dlpack(array), by="ours"),
        Route("np.from_dlpack(pa.Array)", lambda: np.from_dlpack(column)),
    ]
    torch, tvm_ffi = peers.find("torch"), peers.find("tvm_ffi")
    if torch is not None:
        routes += [
            Route("torch.from_dlpack(ad.Tensor)", lambda: torch.from_dlpack(tensor), by="ours"),
            Route("torch.from_dlpack(pa.Array)", lambda: torch.from_dlpack(column)),
            Route("torch.from_dlpack(ndarray)", lambda: torch.from_dlpack(array)),
            Route("torch.from_numpy(ndarray)", lambda: torch.from_numpy(array)),
        ]
    if tvm_ffi is not None:
        routes += [
            Route(
                "tvm_ffi.from_dlpack(ad.Tensor)", lambda: tvm_ffi.from_dlpack(tensor), by="ours", read=np.from_dlpack
            ),
            Route("tvm_ffi.from_dlpack(ndarray)", lambda: tvm_ffi.from_dlpack(array), read=np.from_dlpack),
        ]
    bare = Route("np.from_dlpack(ndarray)", lambda: np.from_dlpack(array), by="floor")
    table.case("int64", bare, routes, expected=array)


def fixed_size_lists(bench: Bench) -> None:
    import arrow_dlpack as ad

    values = np.random.default_rng(0).random((bench.rows(200_000), 768), np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 768)
    title = "Fixed-size lists, 200,000 of 768 float32, to a matrix"
    table = bench.table("views-lists", title, against="pyarrow to_tensor(), a view")
    routes = [Route("ad.to_tensor", lambda: ad.to_tensor(lists), by="ours")]
    polars = peers.find("polars")
    if polars is not None:
        series = polars.Series(lists)
        routes.append(Route("polars Series.to_numpy", series.to_numpy))
    bare = Route("pyarrow to_tensor()", lambda: lists.to_tensor(), by="floor")
    table.case("float32", bare, routes, expected=values)


def to_arrow(bench: Bench, array: np.ndarray) -> None:
    import arrow_dlpack as ad

    table = bench.table("views-to-arrow", "A NumPy array to an Arrow column", against="pa.Array.from_dlpack(ndarray)")
    routes = [
        Route(
            "ad.to_arrow(ndarray)", lambda: ad.to_arrow(array), by="ours", read=lambda made: pa.array(made).to_numpy()
        ),
        Route("pa.array(ndarray)", lambda: pa.array(array)),
    ]
    polars = peers.find("polars")
    if polars is not None:
        routes.append(Route("polars Series(ndarray)", lambda: polars.Series(array)))
    bare = Route("pa.Array.from_dlpack(ndarray)", lambda: pa.Array.from_dlpack(array), by="floor")
    table.case("int64", bare, routes, expected=array)


if __name__ == "__main__":
    measure.main("views", run)
