"""`Array.__array__`: `numpy.asarray(array)` is what `numpy.from_dlpack(array)` makes, or an error that says why not."""

from __future__ import annotations

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

NUMBERS = pa.array([1, 2, 3])
BOOLS = pa.array([True, False, True])


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_a_view_of_the_memory_that_cannot_be_written() -> None:
    for array in (np.asarray(ad.from_arrow(NUMBERS)), np.array(ad.from_arrow(NUMBERS), copy=False)):
        assert array.dtype == np.int64
        assert array.tolist() == [1, 2, 3]
        assert address(array) == NUMBERS.buffers()[1].address
        assert not array.flags.writeable


def test_copies_are_made_where_they_are_needed_and_asked_for() -> None:
    unpacked = np.asarray(ad.from_arrow(BOOLS))
    assert unpacked.dtype == np.bool_
    assert unpacked.tolist() == [True, False, True]
    for source in (NUMBERS, BOOLS):
        own = np.array(ad.from_arrow(source), copy=True)
        assert own.flags.writeable
        assert own.tolist() == source.to_pylist()
        assert address(own) != source.buffers()[1].address
    with pytest.raises(ad.CopyError, match=r"bits unpacked to bytes\); pass copy=None"):
        np.array(ad.from_arrow(BOOLS), copy=False)


def test_a_dtype_is_numpys() -> None:
    array = np.asarray(ad.from_arrow(NUMBERS), dtype="float32")
    assert array.dtype == np.float32
    assert array.tolist() == [1, 2, 3]
    assert np.asarray(ad.from_arrow(NUMBERS), dtype="int64").tolist() == [1, 2, 3]
    assert np.array(ad.from_arrow(BOOLS), dtype="int8", copy=True).tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="copy"):
        np.array(ad.from_arrow(NUMBERS), dtype="float32", copy=False)


def test_lists_are_matrices() -> None:
    rows = pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))
    assert np.asarray(ad.from_arrow(rows)).tolist() == [[1, 2], [3, 4]]
    assert np.add(ad.from_arrow(NUMBERS), 1).tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (pa.array([1, None]), ad.NullError, r"row 1: .* \(the options are arrow_dlpack.to_tensor's\)"),
        (pa.array(["a"]), ad.UnsupportedTypeError, "Utf8 has no tensor form"),
    ],
    ids=["nulls", "strings"],
)
def test_what_has_no_tensor_is_no_array_of_one_object(source: pa.Array, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        np.asarray(ad.from_arrow(source))


def test_what_numpy_has_no_type_for_says_so() -> None:
    with pytest.raises(RuntimeError, match="Unsupported dtype") as raised:
        np.asarray(ad.to_arrow(ad.to_tensor(NUMBERS, dtype="bfloat16")))
    assert "bfloat16" in raised.value.__notes__[0]
