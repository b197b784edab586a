"""duckdb's results become tensors, and it reads arrays, batches and streams of ours."""

import arrow_dlpack as ad
import duckdb
import numpy as np
import pyarrow as pa
import pytest

QUERY = """
    select i::float as f, i % 2 = 0 as even, [i, i + 1]::int[2] as pair, date '1970-01-01' + i::int as day,
        case when i % 3 = 0 then null else i end as maybe
    from range(5) t(i)
"""


def test_results_are_tensors():
    tensors = ad.to_tensors(duckdb.sql(QUERY), nulls={"maybe": -1})
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "f": "float32",
        "even": "bool",
        "pair": "int32",
        "day": "int32",
        "maybe": "int64",
    }
    assert not tensors["f"].copied
    values = {name: np.from_dlpack(tensor).tolist() for name, tensor in tensors.items()}
    assert values["f"] == [0, 1, 2, 3, 4]
    assert values["even"] == [True, False, True, False, True]
    assert values["pair"] == [[i, i + 1] for i in range(5)]
    assert values["day"] == [0, 1, 2, 3, 4]
    assert values["maybe"] == [-1, 1, 2, -1, 4]


def test_results_are_streams_of_batches():
    stream = ad.from_arrow(duckdb.sql("select i from range(300_000) t(i)"))
    total = 0
    for batch in stream:
        column = np.from_dlpack(ad.to_tensor(batch["i"], copy=False))
        assert column[0] == total
        total += len(column)
    assert total == 300_000


def query(text: str, data: object) -> duckdb.DuckDBPyRelation:
    """The query over `data`, which duckdb finds by the variable's name."""
    assert data is not None
    return duckdb.sql(text)


def table() -> pa.Table:
    return pa.table({"n": pa.chunked_array([[1, 2], [3]]), "flag": pa.chunked_array([[True, None], [False]])})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (lambda: ad.from_arrow(table()), [(1, True), (2, None), (3, False)]),
        (lambda: ad.from_arrow(table().to_batches()[0]), [(1, True), (2, None)]),
        (lambda: ad.to_arrow(np.arange(3)), [(0,), (1,), (2,)]),
        (lambda: ad.to_tensor(pa.array([1.5, 2.5])), [(1.5,), (2.5,)]),
        (lambda: ad.to_arrow(np.array([1, 0], bool), type=pa.bool_()), [(True,), (False,)]),
    ],
    ids=["stream", "batch", "array", "tensor", "bools"],
)
def test_duckdb_reads_what_is_ours(source, expected):
    # A stream can be read once, so duckdb has to learn its type without opening it.
    assert query("select * from data", source()).fetchall() == expected


def test_a_stream_is_opened_once():
    relation = query("select sum(n) as total from data", ad.from_arrow(table()))
    assert relation.columns == ["total"]
    assert relation.fetchall() == [(6,)]


def test_there_and_back():
    rows = ad.to_arrow(np.arange(6, dtype="float32").reshape(3, 2), type=pa.list_(pa.float32(), 2))
    back = ad.to_tensors(query("select * from data", rows))
    (column,) = back.values()
    assert np.from_dlpack(column).tolist() == [[0, 1], [2, 3], [4, 5]]
