"""Ragged rows with more elements than offsets can count."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

SHARED = np.zeros((1 << 16) * 1000, dtype="uint8")


@pytest.mark.parametrize("nulls", ["error", "keep", 0])
@pytest.mark.parametrize("kind", ["string", "list"])
def test_more_elements_than_32_bit_offsets_count_are_refused_by_the_plan(kind: str, nulls: Any) -> None:
    """34 chunks over the same memory: together they are beyond 2^31, and nothing of that size is made."""
    offsets = pa.py_buffer(np.arange(0, len(SHARED) + 1, 1000, dtype="int32"))
    if kind == "string":
        chunk = pa.Array.from_buffers(pa.string(), 1 << 16, [None, offsets, pa.py_buffer(SHARED)])
    else:
        items = pa.Array.from_buffers(pa.uint8(), len(SHARED), [None, pa.py_buffer(SHARED)])
        chunk = pa.Array.from_buffers(pa.list_(pa.uint8()), 1 << 16, [None, offsets], children=[items])
    joined = pa.chunked_array([chunk] * 34)
    before = ad.memory_stats()
    for refused in [
        lambda: ad.to_ragged(joined, nulls=nulls),
        lambda: ad.to_tensors(pa.table({"s": joined}), columns={"w": ad.ragged("s")}, nulls=nulls),
    ]:
        with pytest.raises(ad.UnsupportedTypeError, match=r"offsets beyond int32; cast the column to large_list"):
            refused()
    report = str(ad.explain(pa.table({"s": joined}), columns={"w": ad.ragged("s")}, nulls=nulls))
    assert "offsets beyond int32" in report
    assert ad.memory_stats() == before
    # In a loader rows are joined, which is refused before any of them is copied.
    for group in (ad.ragged("s"), ad.arrow("s")):
        loader = ad.Loader(pa.table({"s": joined}), batch_size=34 << 16, columns={"w": group}, nulls=nulls, prefetch=0)
        with pytest.raises(ad.UnsupportedTypeError, match=r'column "s": offsets beyond int32'):
            next(iter(loader))
    assert ad.memory_stats() == before
    # In one chunk less than that they are counted.
    assert ad.to_ragged(pa.chunked_array([chunk] * 2), nulls=nulls).offsets.shape == ((2 << 16) + 1,)


def test_a_shape_without_elements_may_have_any_extents():
    shapes = np.array([[2**31 - 1, 2**31 - 1, 2**31 - 1, 0]], np.int32)
    assert len(ad.Ragged(np.zeros(0), np.zeros(2, np.int32), shapes=shapes)) == 1
    shapes[0, 0] = -1
    with pytest.raises(ad.ConversionError) as caught:
        ad.Ragged(np.zeros(0), np.zeros(2, np.int32), shapes=shapes)
    assert caught.value.row == 0
