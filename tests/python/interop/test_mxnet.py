"""MXNet: unversioned capsules by functions of its own, from before there were dunders.

It needs a NumPy that pyarrow does not go with, so that Arrow data is made by this package.
"""

import arrow_dlpack as ad
import mxnet as mx
import numpy as np
import producers
import pytest
from helpers import address

LEGACY = "takes unversioned capsules by `mx.nd.from_dlpack(tensor.__dlpack__())`"
NUMBERS = ["int8", "int32", "int64", "uint8", "float16", "float32", "float64"]


class Offer:
    """An array with the dunder that it lacks."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.to_dlpack_for_read()


def take(tensor):
    return mx.nd.from_dlpack(tensor.__dlpack__())


def bools(*values: bool) -> ad.Tensor:
    """Which the NumPy of that time does not export."""
    _, source = producers.dlpack(data=bytes(values), dtype=(6, 8, 1), shape=(len(values),), strides=(1,))
    return ad.from_dlpack(source, copy=True)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_to(cell, dtype):
    tensor = ad.from_dlpack(np.arange(6).astype(dtype).reshape(2, 3), copy=True)
    theirs = take(tensor)
    assert np.dtype(theirs.dtype) == dtype
    assert address(Offer(theirs)) == address(tensor)
    assert theirs.asnumpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    cell("to", "numbers", "view", LEGACY)


@pytest.mark.parametrize("dtype", ["int16", "uint16", "uint32", "uint64"])
def test_numbers_that_it_does_not_have(cell, dtype):
    with pytest.raises(mx.MXNetError, match="Unknown DLDataType"):
        take(ad.from_dlpack(np.arange(3).astype(dtype), copy=True))
    cell("to", "numbers", "refused", "int16 and the larger unsigned integers are no types of MXNet 1")


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_from(cell, dtype):
    theirs = mx.nd.array([0, 1, 2], dtype=dtype)
    tensor = ad.from_dlpack(Offer(theirs), copy=False)
    assert tensor.dtype == dtype
    assert not tensor.writable
    assert address(Offer(theirs)) == address(tensor)
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2]
    cell("from", "numbers", "view", "by an object whose `__dlpack__` calls `to_dlpack_for_read`")


def test_it_has_no_dunder():
    with pytest.raises(TypeError, match="__dlpack__"):
        ad.from_dlpack(mx.nd.array([1]))


def test_bool(cell):
    """It says that a bool is an integer of one bit."""
    with pytest.raises(ad.UnsupportedTypeError, match="bits 1"):
        ad.from_dlpack(Offer(mx.nd.array([0, 1], dtype="bool")))
    cell("from", "bool", "refused", "exported as an integer of one bit")
    with pytest.raises(mx.MXNetError, match="Unknown DLDataType"):
        take(bools(True, False))
    cell("to", "bool", "refused", "DLPack's bool is no type of MXNet 1")


def test_read_only(cell):
    column = ad.to_arrow(np.arange(3.0))
    tensor = ad.to_tensor(column)
    assert not tensor.writable
    theirs = take(tensor)
    assert address(Offer(theirs)) != address(tensor)
    cell("to", "read-only", "copy", 'unversioned capsules cannot say read-only, unless `legacy="view"` vouches')
    vouched = take(ad.to_tensor(column, legacy="view"))
    assert address(Offer(vouched)) == address(tensor)
    cell("to", "read-only", "view", '`legacy="view"`')
    with pytest.raises(AssertionError, match="Invalid DLPack Tensor"):
        mx.nd.from_dlpack(tensor.__dlpack__(max_version=(1, 3)))


def test_nulls(cell):
    column = ad.to_arrow(np.arange(3.0), validity=bools(True, False, True))
    theirs = take(ad.to_tensor(column, nulls="nan"))
    assert np.isnan(theirs.asnumpy()).tolist() == [False, True, False]
    cell("to", "nulls", "copy", '`nulls="nan"` or a value to fill with')


@pytest.mark.parametrize("data_type", ["List", "Utf8"])
def test_lists_and_strings(cell, data_type):
    dtype, case = {"List": ("float32", "lists"), "Utf8": ("uint8", "strings")}[data_type]
    values, offsets = mx.nd.array([97, 98, 99], dtype=dtype), mx.nd.array([0, 1, 1, 3], dtype="int32")
    rows = ad.Ragged(Offer(values), Offer(offsets))
    string = producers.Only("__arrow_c_schema__", lambda: producers.Schema(b"u").capsule())
    column = ad.to_arrow(rows, type=string if case == "strings" else None, copy=False)
    assert column.type.startswith(data_type)
    again = ad.to_ragged(column, copy=False)
    assert address(again.values) == address(Offer(values))
    assert address(again.offsets) == address(Offer(offsets))
    cell("from", case, "view", "values and offsets, by `Ragged`")
    # They came from unversioned capsules, so that nobody may write to them.
    theirs = take(again.values)
    assert theirs.asnumpy().tolist() == [97, 98, 99]
    assert take(again.offsets).asnumpy().tolist() == [0, 1, 1, 3]
    assert address(Offer(theirs)) != address(again.values)
    cell("to", case, "copy", "values and offsets, by `to_ragged`")


def test_byte_offsets_are_ignored_by_mxnet_but_not_through_us():
    def source():
        data = np.arange(8, dtype="int32").tobytes()
        return producers.DLPack(data=data, shape=(4,), strides=(1,), byte_offset=8, versioned=False)

    assert mx.nd.from_dlpack(source().capsule()).asnumpy().tolist() == [0, 1, 2, 3]
    offset = source()
    tensor = ad.from_dlpack(producers.Only("__dlpack__", lambda **_: offset.capsule()), copy=True)
    assert take(tensor).asnumpy().tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(("shape", "strides"), [((3, 2), (1, 3)), ((2, 2), (3, 2)), ((3, 2), (0, 1))])
def test_strides(cell, shape, strides):
    _, source = producers.dlpack(shape=shape, strides=strides)
    with pytest.raises(mx.MXNetError, match="only support compact tensor"):
        take(ad.from_dlpack(source, copy=False))
    cell("to", "strided", "refused", "only row-major memory")


def test_0_d(cell):
    tensor = ad.from_dlpack(np.array(2.5), copy=True)
    theirs = take(tensor)
    assert theirs.shape == ()
    assert address(Offer(theirs)) == address(tensor)
    cell("to", "0-d", "view")


def test_size_0(cell):
    assert take(ad.from_dlpack(np.zeros((0, 3)), copy=True)).shape == (0, 3)
    cell("to", "size 0", "view")


def test_exchange_api(cell):
    assert not hasattr(mx.nd.NDArray, "__dlpack_c_exchange_api__")
    cell("from", "exchange API", "absent")
