"""Narwhals: it passes streams on to the library behind it, and that library's on to others; it has no memory itself."""

import arrow_dlpack as ad
import frames
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from frames import Spy, at, dunders
from helpers import address, flags

BACKENDS = {"pyarrow": ("view", "stream(None)"), "polars": ("view", "stream()"), "pandas": ("copy", "stream(None)")}


def table() -> pa.Table:
    return pa.table({"x": [1, 2], "f": [1.5, None]})


@pytest.mark.parametrize("backend", BACKENDS)
class TestStreamsGoThere:
    def test_numbers_and_nulls(self, cell, backend: str):
        outcome, call = BACKENDS[backend]
        source = table()
        spy = Spy(ad.from_arrow(source))
        frame = nw.from_arrow(spy, backend=backend)
        assert spy.calls == [call]
        back = pa.table(frame)
        assert back.to_pydict() == source.to_pydict()
        assert (at(frames.first(back["x"])) == at(frames.first(source["x"]))) == (outcome == "view")
        for case in ("numbers", "nulls", "stream"):
            cell("to", case, outcome, f"with the backend {backend}")

    def test_no_rows(self, cell, backend: str):
        frame = nw.from_arrow(ad.from_arrow(table()[:0]), backend=backend)
        assert frame.shape == (0, 2)
        cell("to", "size 0", BACKENDS[backend][0], f"with the backend {backend}")

    def test_batches(self, cell, backend: str):
        outcome, call = BACKENDS[backend]
        source = table().to_batches()[0]
        spy = Spy(ad.from_arrow(source))
        back = pa.table(nw.from_arrow(spy, backend=backend))
        # Polars asks for the array first.
        assert spy.calls == ["array()" if backend == "polars" else call]
        assert back.to_pydict() == source.to_pydict()
        assert (at(frames.first(back["x"])) == at(source["x"])) == (outcome == "view")
        cell("to", "batch", outcome, f"with the backend {backend}")

    def test_only_streams(self, cell, backend: str):
        """Arrays and tensors have `__arrow_c_array__`, which narwhals does not ask for."""
        for data in (ad.to_arrow(np.arange(3)), ad.from_dlpack(np.arange(3))):
            with pytest.raises(TypeError, match="does not support PyCapsule interface"):
                nw.from_arrow(data, backend=backend)
        for data in (ad.from_arrow(table()), ad.from_arrow(table().to_batches()[0]), ad.to_arrow(np.arange(3))):
            with pytest.raises(TypeError, match="Unsupported dataframe type"):
                nw.from_native(data)
        cell("to", "numbers", "refused", "arrays and tensors: `from_arrow` asks for `__arrow_c_stream__`")

    def test_columns(self, cell, backend: str):
        with pytest.raises(Exception, match=r"non-struct|expected `Struct`"):
            nw.from_arrow(ad.from_arrow(pa.chunked_array([[1], [2]])), backend=backend)
        cell("to", "device", "absent")


NATIVE = {
    "pyarrow": lambda: pa.table({"x": [1, 2], "f": [1.5, None]}),
    "polars": lambda: pl.DataFrame({"x": [1, 2], "f": [1.5, None]}),
    "pandas": lambda: pd.DataFrame({"x": [1, 2], "f": [1.5, None]}),
}


SERIES = "a series of pyarrow: Narwhals copies even a single chunk for its dunder of an array; a frame is a view"


@pytest.mark.parametrize("backend", NATIVE)
class TestFromNarwhals:
    def test_frames(self, cell, backend: str):
        native = NATIVE[backend]()
        frame = nw.from_native(native)
        assert dunders(frame) == {"stream"}
        tensors = ad.to_tensors(frame, nulls={"f": "keep"}, copy=False)
        assert np.from_dlpack(tensors["x"]).tolist() == [1, 2]
        # The memory of the library behind it.
        assert address(tensors["x"]) == at(frames.first(pa.table(native)["x"]))
        for case in ("numbers", "batch"):
            cell("from", case, "view", f"of {backend}")
        with pytest.raises(ad.NullError, match='column "f", row 1'):
            ad.to_tensors(frame)
        cell("from", "nulls", "view", f'under `nulls="keep"`, of {backend}')

    def test_columns(self, cell, backend: str):
        native = NATIVE[backend]()
        series = nw.from_native(native)["x"]
        assert dunders(series) == {"array", "stream"}
        tensor = ad.to_tensor(series, copy=False)
        assert np.from_dlpack(tensor).tolist() == [1, 2]
        # The dunder of an array comes first, and pyarrow's one is made by a copy within Narwhals.
        outcome = "copy" if backend == "pyarrow" else "view"
        assert (address(tensor) == at(frames.first(pa.table(native)["x"]))) == (outcome == "view")
        cell("from", "numbers", outcome, SERIES if outcome == "copy" else f"of {backend}")
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view", f"of {backend}")

    def test_bools(self, cell, backend: str):
        series = nw.from_native(NATIVE[backend]())["x"] > 1
        assert np.from_dlpack(ad.to_tensor(series)).tolist() == [False, True]
        with pytest.raises(ad.CopyError):
            ad.to_tensor(series, copy=False)
        cell("from", "bool", "copy", f"of {backend}")

    def test_no_rows(self, cell, backend: str):
        frame = nw.from_native(NATIVE[backend]())
        assert ad.to_tensors(frame.filter(nw.col("x") > 5))["x"].shape == (0,)
        cell("from", "size 0", "view", f"of {backend}")

    def test_strings(self, cell, backend: str):
        native = {
            "pyarrow": lambda: pa.table({"s": ["a", None, frames.LONG]}),
            "polars": lambda: pl.DataFrame({"s": ["a", None, frames.LONG]}),
            "pandas": lambda: pd.DataFrame({"s": ["a", None, frames.LONG]}),
        }[backend]()
        ragged = ad.to_ragged(nw.from_native(native)["s"], nulls="keep")
        assert [row if row is None else bytes(row) for row in frames.rows_of(ragged)] == [
            b"a",
            None,
            frames.LONG.encode(),
        ]
        where = at(frames.first(pa.table(native)["s"]))
        assert (address(ragged.offsets) == where) == (backend == "pandas")
        note = {"pyarrow": SERIES, "polars": "views of strings become offsets", "pandas": "of pandas"}[backend]
        cell("from", "strings", "view" if backend == "pandas" else "copy", note)

    def test_time_zones(self, cell, backend: str):
        column = pa.array([1, 2], pa.timestamp("us", "Europe/Berlin"))
        native = {
            "pyarrow": lambda: pa.table({"t": column}),
            "polars": lambda: pl.DataFrame({"t": pl.Series(column)}),
            "pandas": lambda: pd.DataFrame({"t": column.to_pandas()}),
        }[backend]()
        tensor = ad.to_tensors(nw.from_native(native), copy=False)["t"]
        assert np.from_dlpack(tensor).tolist() == [1, 2]
        assert pa.array(tensor).type == column.type
        cell("from", "temporal", "view", f"of {backend}")


def test_requests_are_those_of_the_backend():
    assert frames.asked(nw.from_native(pl.DataFrame({"x": [300]})), pa.int8()).schema.field("x").type == pa.int64()
    assert frames.asked(nw.from_native(pd.DataFrame({"x": [3]})), pa.int8()).schema.field("x").type == pa.int8()
    with pytest.raises(pa.ArrowInvalid, match="300 not in range"):
        frames.asked(nw.from_native(pa.table({"x": [300]})), pa.int8())


def test_chunks(cell):
    chunks = pa.chunked_array([[1, 2], [3]])
    series = nw.from_native(chunks, series_only=True)
    # A series has the dunder of an array too, which comes before the stream: Narwhals joins its chunks.
    tensor = ad.to_tensor(series, copy=False)
    assert np.from_dlpack(tensor).tolist() == [1, 2, 3]
    assert address(tensor) != at(chunks.chunk(0))
    cell("from", "stream", "copy", "chunks of a series are joined by Narwhals, those of a frame by this package")
    with pytest.raises(ad.CopyError):
        ad.to_tensors(nw.from_native(pa.table({"x": chunks})), copy=False)


def test_lazy_frames_have_no_dunder(cell):
    lazy = nw.from_native(pl.LazyFrame({"x": [1]}))
    assert dunders(lazy) == set()
    with pytest.raises(TypeError, match="expected Arrow data"):
        ad.to_tensors(lazy)
    assert ad.to_tensors(lazy.collect())["x"].shape == (1,)
    cell("from", "stream", "refused", "a lazy frame: `collect()` it")
    cell("from", "device", "absent")
