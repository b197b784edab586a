"""Statistics of columns whose elements are no plain numbers: fixed-size binary, and permuted tensors."""

from __future__ import annotations

import arrow_dlpack as ad
import pyarrow as pa
import pytest

PAIRS = pa.list_(pa.binary(3), 2)
VALUES = pa.array([b"abc", None], pa.binary(3))


@pytest.mark.parametrize(
    ("column", "count", "nulls"),
    [
        (pa.array([b"0" * 16] * 3, pa.uuid()), 3, 0),
        (VALUES, 1, 1),
        (pa.array([b"", None, b""], pa.binary(0)), 2, 1),
        (pa.array([[b"abc", None], None, [b"abc", b"def"]], PAIRS), 3, 3),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None]), VALUES), 2, 2),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), VALUES), 2, 3),
    ],
    ids=str,
)
def test_values_of_bytes_are_counted_once(column: pa.Array, count: int, nulls: int) -> None:
    table = pa.table({"x": column})
    assert ad.statistics(table, {"x": "count"}) == {"x": count}
    assert ad.statistics(table, {"x": "null_count"}) == {"x": nulls}
    for statistic in ("mean", "mode", "max"):
        with pytest.raises(ad.UnsupportedTypeError, match="are no numbers"):
            ad.statistics(table, {"x": statistic})


def test_tensors_of_permuted_dimensions_have_statistics() -> None:
    items = pa.array([*range(11), None], pa.int32())
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
    table = pa.table({"x": pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(items, 6))})
    expected = {"count": 11, "null_count": 1, "mean": 5.0, "min": 0, "max": 10}
    for statistic, value in expected.items():
        assert ad.statistics(table, {"x": statistic}) == {"x": value}
