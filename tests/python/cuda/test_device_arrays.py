"""Device arrays in and out: every type and kind of memory, with events, never read by the host."""

from __future__ import annotations

import decimal

import arrow_dlpack as ad
import driver
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, buffers_of, event_of, exported

TYPES: dict[str, pa.Array] = {
    "int32": pa.array([1, None, 3], pa.int32()),
    "float64": pa.array([1.0, 2.0, 3.0]),
    "bool": pa.array([True, None, False]),
    "null": pa.nulls(3),
    "date": pa.array([1, 2, 3], pa.date32()),
    "timestamp": pa.array([1, 2, None], pa.timestamp("ns", "UTC")),
    "interval": pa.array([(1, 2, 3), None, (4, 5, 6)], pa.month_day_nano_interval()),
    "decimal": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("2.5")], pa.decimal128(5, 1)),
    "binary_fixed": pa.array([b"ab", b"cd", None], pa.binary(2)),
    "string": pa.array(["a", None, "ccc"]),
    "large_string": pa.array(["a", "bb", "ccc"], pa.large_string()),
    "binary": pa.array([b"a", b"", None]),
    "string_view": pa.array(["a", "a string that is no inline one", None], pa.string_view()),
    "binary_view": pa.array([b"a", b"bb", None], pa.binary_view()),
    "list": pa.array([[1, 2], None, [3]]),
    "large_list": pa.array([["a"], [], ["b", None]], pa.large_list(pa.string())),
    "list_view": pa.array([[1, 2], [], [3]], pa.list_view(pa.int8())),
    "fixed_size_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, {"a": 3, "b": None}]),
    "map": pa.array([[("a", 1)], [], [("b", 2)]], pa.map_(pa.string(), pa.int32())),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "dictionary_in_struct": pa.StructArray.from_arrays([pa.array(["a", "b"]).dictionary_encode()], ["d"]),
    "run_end": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", "y"])),
    "sparse_union": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    "dense_union": pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["a"])]
    ),
    "nested": pa.array([{"a": [[1, 2], None]}, None, {"a": []}]),
    "empty": pa.array([], pa.list_(pa.string())),
    "slice": pa.array([None, 1, 2, None, 4, 5, 6, 7, 8, 9], pa.int64())[3:7],
    "slice_of_struct": pa.array([{"a": index} for index in range(20)])[9:12],
}


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("how", ["nanoarrow", "pyarrow", "cudf"])
def test_every_type_passes_through_untouched(name: str, kind: int, how: str) -> None:
    source = DeviceArray(TYPES[name], kind, how=how)
    waits, ours = driver.host_waits(), driver.calls()
    array = ad.from_arrow(source.give())
    assert (array.device.type, array.device.id) == (kind, 0)
    assert len(array) == len(TYPES[name])
    repr(array)
    with exported(array) as struct:
        assert list(struct.reserved) == [0, 0, 0]
        assert (struct.device_type, struct.device_id) == (kind, 0)
        found = [address for address in buffers_of(struct.array)]
        if "slice_of_struct" not in name:
            expected = list(buffers_of(source.node.array))
            assert found == expected
        else:
            assert (struct.array.offset, struct.array.null_count) == (0, 0)
        assert event_of(struct) == (None if how == "pyarrow" else source.event.handle)
    assert driver.host_waits() == waits
    # Events may be recorded for the release, and nothing else is asked of the driver.
    assert driver.calls() - ours < 20
    del array, struct
