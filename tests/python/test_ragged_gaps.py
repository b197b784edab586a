"""Items that no row shows, in gaps of list views and under null rows, keep no row from its way back to Arrow."""

import struct
from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest

TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]


def packed(values: list[int]) -> pa.Buffer:
    return pa.py_buffer(struct.pack(f"{len(values)}i", *values))


@pytest.mark.parametrize("nullable", [False, True], ids=["not null", "nullable"])
@pytest.mark.parametrize("item", TEXTS, ids=str)
def test_texts_that_no_row_shows(item: pa.DataType, nullable: bool):
    field = pa.field("item", item, nullable=nullable)
    items = pa.array([b"gap", b"a", b"bc", b"gap"], pa.binary()).cast(item)
    views = pa.Array.from_buffers(
        pa.list_view(field), 3, [None, packed([2, 1, 1]), packed([1, 0, 2])], children=[items]
    )
    bitmap = pa.py_buffer(b"\6")
    lists = pa.Array.from_buffers(pa.list_(field), 3, [bitmap, packed([0, 1, 1, 3])], children=[items])
    for source in (views, lists):
        source.validate(full=True)
        back: Any = pa.array(ad.to_arrow(ad.to_ragged(source, nulls="keep")))
        back.validate(full=True)
        assert back.to_pylist() == source.to_pylist()
        assert back.type.value_type == item
