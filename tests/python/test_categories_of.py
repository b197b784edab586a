"""Does `categories` find the values of a column, whatever the source and its cuts?"""

import pickle
from typing import Any

import arrow_dlpack as ad
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

ROWS = ["b", None, "a", "ü", "b", "Z"]
EXPECTED = ["Z", "a", "b", "ü"]
TABLE = pa.table({"carrier": ROWS, "day": [3, 1, None, 3, 1, 2], "x": [0.5] * 6})


def values(source, columns="carrier", **options):
    return pa.array(ad.categories(source, columns, **options)).to_pylist()


def parquet(path):
    pq.write_table(TABLE, path / "rows.parquet", row_group_size=2)
    return path / "rows.parquet"


def test_any_source_of_a_loader(tmp_path):
    path = parquet(tmp_path)
    sources = [
        TABLE,
        TABLE.to_reader(max_chunksize=1),
        TABLE.to_batches(max_chunksize=4),
        (batch for batch in TABLE.to_batches(max_chunksize=5)),
        pl.from_arrow(TABLE),
        pl.scan_parquet(path),
        pq.ParquetFile(path),
        pa.dataset.dataset(path),
        duckdb.from_arrow(TABLE),
        lambda: pq.ParquetFile(path),
        pa.table({"carrier": TABLE["carrier"].dictionary_encode()}),
    ]
    for source in sources:
        assert values(source) == EXPECTED, source


def test_a_list_of_columns_is_a_dict_for_any_loader():
    found = ad.categories(TABLE, ["carrier", "day"])
    assert {name: pa.array(array).to_pylist() for name, array in found.items()} == {
        "carrier": EXPECTED,
        "day": [1, 2, 3],
    }
    assert pa.array(found["day"]).type == pa.int64()
    nulls = {"carrier": 4, "day": -1}
    options = {"categories": found, "nulls": nulls, "xp": np}
    loader = ad.Loader(TABLE, batch_size=6, columns=["carrier", "day"], **options)
    (batch,) = loader
    assert batch.tolist() == [[2, 2], [4, 0], [1, -1], [3, 2], [2, 0], [0, 1]]
    assert ad.to_tensor(TABLE.select(["carrier", "day"]), **options).tolist() == batch.tolist()
    (again,) = pickle.loads(pickle.dumps(loader))
    assert again.tolist() == batch.tolist()
    (again,) = ad.Loader(TABLE, batch_size=6, columns=["carrier", "day"], **{**options, "categories": dict(found)})
    assert again.tolist() == batch.tolist()


def test_what_is_wrong_is_told_before_a_stream_is_read():
    reader = TABLE.to_reader()
    for columns in ("x", "carier", ["carrier", "x"]):
        with pytest.raises(ad.ConversionError):
            ad.categories(reader, columns)
    assert values(reader) == EXPECTED
    with pytest.raises(ad.ConversionError, match="more than 3 different values"):
        ad.categories(TABLE, "carrier", limit=3)
    assert values(TABLE, limit=4) == EXPECTED
    for limit in (0, "x", 1.5):
        with pytest.raises((TypeError, ValueError)):
            ad.categories(TABLE, "carrier", limit=limit)
    for columns in (3, None, {"carrier": 1}):
        with pytest.raises(TypeError):
            ad.categories(TABLE, columns)
    with pytest.raises(TypeError):
        ad.categories(3, "carrier")


@pytest.mark.parametrize("read", [lambda s: ad.categories(s, "a"), lambda s: ad.statistics(s, {"a": "mode"})])
@pytest.mark.parametrize(
    ("told", "found"), [(0, "0 rows, and has 3"), (2, "2 rows, and has 3"), (4, "4 rows, and has 3")]
)
def test_rows_that_a_shard_was_said_to_have_are_counted(told: int, found: str, read: Any):
    """Values of rows that are missing would be missing too."""
    batches = pa.table({"a": [3, 1, 1]}).to_batches(max_chunksize=2)
    read([(batches, 3), (batches, None)])
    with pytest.raises(ad.ConversionError, match=f"shard 1: the source was said to have {found}"):
        read([(batches, 3), (lambda: iter(batches), told)])


def test_the_error_of_a_source_is_kept_and_the_source_released():
    closed = []

    def failing():
        try:
            yield TABLE.to_batches()[0]
            raise ZeroDivisionError("in the source")
        finally:
            closed.append(True)

    with pytest.raises(Exception, match="in the source"):
        ad.categories(failing(), "carrier")
    assert closed == [True]


def test_lists_that_no_row_shows_have_no_values():
    inner = pa.FixedSizeListArray.from_arrays(pa.array(list("abxycdef")), 2)
    outer = pa.FixedSizeListArray.from_arrays(inner, 2, mask=pa.array([True, False]))
    assert values(pa.table({"carrier": outer})) == ["c", "d", "e", "f"]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(["a", "b", "x", "y"]), 2)
    codes = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int8()), lists)
    assert values(pa.table({"carrier": codes})) == ["x", "y"]
