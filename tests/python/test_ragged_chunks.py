"""Ragged rows of several chunks, some of which have no rows."""

from __future__ import annotations

from itertools import permutations

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

ITEMS = {
    "numbers": (pa.int32(), [[[9, 9, 9]], [[1], [2, 3]], [[4]]]),
    "text": (pa.string(), [[["xx", "y"]], [["a"], ["b", "cc"]], [["d"]]]),
    "lists": (pa.list_view(pa.int8()), [[[[9], [8, 8]]], [[[1]], [[], [2, 3]]], [[[4]]]]),
    "fixed-size lists": (pa.list_(pa.int8(), 2), [[[[9, 9]]], [[[1, 2]], [[3, 4], [5, 6]]], [[]]]),
    "null rows": (pa.list_view(pa.int8()), [[[None, [8]]], [[[1]], [None, [2, 3]]], [None, [[]]]]),
}


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("make", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_elements_of_chunks_without_rows_are_none_of_the_values(make: object, item: str):
    data_type, rows = ITEMS[item]
    first, second, third = (pa.array(part, make(data_type)) for part in rows)
    for chunks in permutations([first.slice(0, 0), second.slice(0, 0), second, third], 3):
        source = pa.chunked_array(chunks)
        ragged = ad.to_ragged(source, nulls="keep")
        assert pa.array(ad.to_arrow(ragged)).to_pylist() == source.to_pylist()
        batches = [pa.record_batch({"x": chunk}) for chunk in chunks]
        by_stream = ad.to_tensors(iter(batches), columns={"r": ad.ragged("x")}, nulls="keep")["r"]
        assert pa.array(ad.to_arrow(by_stream)).to_pylist() == source.to_pylist()


@pytest.mark.parametrize("make", [pa.list_view, pa.large_list_view])
def test_the_only_chunk_with_rows_is_viewed(make: object):
    first, second = pa.array([[9, 9, 9]], make(pa.int32())), pa.array([[1], [2, 3]], make(pa.int32()))
    chunks = pa.chunked_array([first.slice(0, 0), second, first.slice(1)])
    assert np.from_dlpack(ad.to_ragged(chunks, copy=False).values).tolist() == [1, 2, 3]
    assert np.from_dlpack(ad.to_ragged(first.slice(0, 0), copy=False).values).tolist() == []
