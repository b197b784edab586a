"""The README's table of results in other libraries, and what it says of bools, NaN and rounding."""

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

BATCH = ad.to_arrow(np.array([[1.0, 2.0], [3.0, 4.0]]), names=["x", "y"])
ARRAY = ad.to_arrow(np.arange(3))
TABLE = {"x": [1.0, 3.0], "y": [2.0, 4.0]}


def test_pyarrow():
    assert pa.record_batch(BATCH).to_pydict() == TABLE
    assert pa.array(ARRAY).to_pylist() == [0, 1, 2]


def test_polars():
    assert pl.DataFrame(BATCH).to_dict(as_series=False) == TABLE
    assert pl.from_arrow(BATCH).dtype == pl.Struct
    assert pl.Series(ARRAY).alias("x").name == "x"
    assert pl.Series("x", ARRAY).name == ""
    assert pl.Series(ad.to_arrow(np.arange(3), type=pa.field("x", pa.int64()))).name == "x"


def test_pandas():
    assert pd.DataFrame.from_arrow(BATCH).to_dict("list") == TABLE
    assert pd.Series.from_arrow(ARRAY).tolist() == [0, 1, 2]


def test_duckdb():
    duckdb = pytest.importorskip("duckdb")
    batch = BATCH
    assert duckdb.sql("SELECT x FROM batch").fetchall() == [(1.0,), (3.0,)]
    assert batch is BATCH


def test_bools_filter_as_booleans_of_arrow():
    mask = np.array([True, False, True])
    ours, theirs = ad.to_arrow(mask), ad.to_arrow(mask, type=pa.bool_())
    frame, table = pl.DataFrame({"a": [1, 2, 3]}), pa.table({"a": [1, 2, 3]})
    with pytest.raises(TypeError, match="predicate"):
        frame.filter(pl.Series(ours))
    with pytest.raises(pa.ArrowNotImplementedError, match="boolean"):
        table.filter(pa.array(ours))
    assert frame.filter(pl.Series(theirs))["a"].to_list() == [1, 3]
    assert table.filter(pa.array(theirs))["a"].to_pylist() == [1, 3]


def test_nan_is_a_null_of_pandas_alone():
    frame = {"a": [1.0, np.nan], "b": [3.0, 4.0]}
    with pytest.raises(ad.NullError):
        ad.to_tensor(pd.DataFrame(frame))
    for data in (pd.DataFrame(frame), pl.DataFrame(frame), pa.table(frame)):
        assert np.isnan(ad.to_tensor(data, nulls="nan", xp=np)[1, 0])
    assert ad.to_tensor(pd.DataFrame(frame), nulls="keep", xp=np)[1, 0] == 0
    assert np.isnan(ad.to_tensor(pd.DataFrame(frame), nulls="keep", order="F", xp=np)[1, 0])


def test_floats_are_the_nearest():
    large = 2**53 + 1
    assert ad.to_tensor(pa.array([large]), dtype="float64", xp=np).tolist() == [float(2**53)]
    assert ad.to_tensor(pa.table({"a": [large], "b": [1.5]}), xp=np)[0, 0] == 2**53
    with pytest.raises(ad.CastError):
        ad.to_tensor(pa.array([large]), dtype="int32")


def test_bfloat16_rows_keep_their_type_in_a_table():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    x, k = torch.arange(6).reshape(3, 2).to(torch.bfloat16), 2
    kept = pa.list_(pa.field("item", pa.binary(2), metadata={"ARROW:extension:name": "arrow_dlpack.bfloat16"}), k)
    table = pa.table({"x": ad.to_arrow(x, type=kept), "lost": ad.to_arrow(x)})
    tensors = ad.to_tensors(table, xp=torch, writable=False)
    assert torch.equal(tensors["x"], x)
    assert tensors["lost"].dtype == torch.uint8
