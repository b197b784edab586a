"""polars series and frames become tensors and come back."""

import datetime

import arrow_dlpack as ad
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support import NUMBERS, address, view_of

DTYPES = {
    name: getattr(pl, name.replace("int", "Int").replace("uI", "UI").replace("float", "Float")) for name in NUMBERS
}


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("part", [slice(None), slice(2, 5), slice(0, 0)], ids=["whole", "slice", "empty"])
def test_numbers_are_views(dtype: str, part: slice):
    source = pl.Series("x", range(8), dtype=DTYPES[dtype])[part]
    tensor = view_of(source)
    assert (tensor.dtype, tensor.shape) == (dtype, (len(source),))
    assert np.from_dlpack(tensor).tolist() == source.to_list()
    if len(source) and dtype != "float16":
        assert address(tensor) == source.to_numpy(allow_copy=False).ctypes.data
    back = pl.Series("x", ad.to_arrow(tensor))
    assert back.equals(source, check_dtypes=True)


@pytest.mark.parametrize(
    ("values", "dtype", "stored"),
    [
        ([datetime.date(1970, 1, 2)], pl.Date, ("int32", [1])),
        ([datetime.datetime(1970, 1, 1, 0, 0, 1)], pl.Datetime("us"), ("int64", [1_000_000])),
        ([datetime.timedelta(seconds=1)], pl.Duration("ms"), ("int64", [1000])),
        ([datetime.time(0, 0, 1)], pl.Time, ("int64", [1_000_000_000])),
    ],
    ids=["date", "datetime", "duration", "time"],
)
def test_temporal_types(values, dtype, stored):
    source = pl.Series("x", values, dtype=dtype)
    tensor = view_of(source)
    assert (tensor.dtype, np.from_dlpack(tensor).tolist()) == stored
    assert pl.Series("x", tensor).equals(source, check_dtypes=True)


def test_bools_and_nulls():
    source = pl.Series("flag", [True, None, False])
    assert np.from_dlpack(ad.to_tensor(source, nulls=True)).tolist() == [True, True, False]
    assert np.from_dlpack(ad.validity(source)).tolist() == [True, False, True]
    with pytest.raises(ad.NullError) as caught:
        ad.to_tensor(source)
    # polars names the field of a series.
    assert (caught.value.column, caught.value.row) == ("flag", 1)
    np.testing.assert_array_equal(
        np.from_dlpack(ad.to_tensor(pl.Series([1, None]), dtype="float32", nulls="nan")), np.float32([1, np.nan])
    )


def test_arrays_are_inner_dimensions():
    source = pl.Series("p", np.arange(12, dtype="float32").reshape(3, 2, 2))
    tensor = view_of(source)
    assert (tensor.dtype, tensor.shape) == ("float32", (3, 2, 2))
    np.testing.assert_array_equal(np.from_dlpack(tensor), source.to_numpy())
    assert pl.Series("p", tensor).equals(source, check_dtypes=True)


def test_frames():
    frame = pl.DataFrame({"x": [1.5, 2.5], "n": [1, None], "s": ["a", "b"]})
    tensors = ad.to_tensors(frame, columns=["x", "n"], nulls={"n": 0})
    assert np.from_dlpack(tensors["x"]).tolist() == [1.5, 2.5]
    assert np.from_dlpack(tensors["n"]).tolist() == [1, 0]
    assert address(tensors["x"]) == frame["x"].to_numpy().ctypes.data
    assert pl.DataFrame(ad.from_arrow(frame)).equals(frame)
    report = ad.explain(frame)
    assert [row.column for row in report] == ["x", "n", "s"]


def test_chunked_series_are_joined():
    source = pl.concat([pl.Series("x", [1, 2]), pl.Series("x", [3])], rechunk=False)
    assert source.n_chunks() == 2
    assert np.from_dlpack(ad.to_tensor(source)).tolist() == [1, 2, 3]
    with pytest.raises(ad.CopyError):
        ad.to_tensor(source, copy=False)


def test_polars_reads_rows_and_streams():
    rows = pl.Series("r", ad.from_arrow(ad.to_arrow(np.arange(6).reshape(3, 2))))
    assert rows.to_list() == [[0, 1], [2, 3], [4, 5]]
    bits = pl.Series("b", ad.to_arrow(np.array([True, False]), type=pa.bool_()))
    assert bits.dtype == pl.Boolean
    assert bits.to_list() == [True, False]


def test_a_type_of_polars_alone_is_named_with_its_column():
    frame = pl.DataFrame({"wide": pl.Series([1, 2], dtype=pl.Int128), "x": [0.5, 1.5]})
    with pytest.raises(
        ad.UnsupportedTypeError, match=r'^column "wide": .*cast the column first, or pass the data without it'
    ):
        ad.to_tensors(frame, columns=["x"])
    assert ad.to_tensors(frame.drop("wide"))["x"].shape == (2,)
    assert ad.to_tensor(frame["wide"].cast(pl.Int64)).dtype == "int64"
