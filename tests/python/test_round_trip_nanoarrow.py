"""nanoarrow's arrays and streams become tensors and come back."""

import arrow_dlpack as ad
import nanoarrow as na
import numpy as np
import pyarrow as pa
import pytest
from nanoarrow.device import c_device_array
from support import NUMBERS, address, view_of

TYPES = {name: getattr(na, name)() for name in NUMBERS}
MAKERS = {"c_array": na.c_array, "Array": na.Array, "stream": na.ArrayStream}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("make", MAKERS)
def test_numbers_are_views(dtype: str, make: str):
    source = MAKERS[make]([1, 2, 3], TYPES[dtype])
    tensor = view_of(source)
    assert (tensor.dtype, np.from_dlpack(tensor).tolist()) == (dtype, [1, 2, 3])
    back = na.c_array(tensor)
    assert back.buffers[1] == address(tensor)
    assert na.Array(ad.to_arrow(tensor)).to_pylist() == [1, 2, 3]


def test_nulls_and_bools():
    source = na.c_array([1, None, 3], na.int32())
    assert np.from_dlpack(ad.to_tensor(source, nulls=0)).tolist() == [1, 0, 3]
    assert np.from_dlpack(ad.validity(source)).tolist() == [True, False, True]
    bools = na.c_array([True, False, None], na.bool_())
    assert np.from_dlpack(ad.to_tensor(bools, nulls="keep")).tolist() == [True, False, False]
    kept = na.Array(ad.to_arrow(np.arange(3), validity=np.array([True, False, True])))
    assert kept.to_pylist() == [0, None, 2]


def test_unknown_null_counts():
    buffers = [b"\x05", np.array([1, 2, 3], "int32")]
    source = na.c_array_from_buffers(na.int32(), 3, buffers, null_count=-1)
    assert np.from_dlpack(ad.to_tensor(source, nulls=0)).tolist() == [1, 0, 3]


@pytest.mark.parametrize("make", [lambda x: x, ad.to_arrow], ids=["Tensor", "Array"])
def test_the_device_dunder(make):
    tensor = ad.from_dlpack(np.arange(4.0))
    device_array = c_device_array(make(tensor))
    assert (device_array.device_type_id, device_array.device_id) == (1, -1)
    assert np.from_dlpack(ad.to_tensor(device_array)).tolist() == [0, 1, 2, 3]
    assert address(ad.to_tensor(device_array)) == address(tensor)


def test_streams():
    stream = ad.from_arrow(na.c_array_stream(na.Array([1, 2, 3], na.int16())))
    assert isinstance(stream, ad.ArrayStream)
    assert na.ArrayStream(stream).read_all().to_pylist() == [1, 2, 3]


def test_a_requested_schema():
    assert na.Array(ad.to_arrow(np.arange(3)), na.float32()).to_pylist() == [0, 1, 2]
    with pytest.raises(ValueError):
        na.c_array(ad.to_arrow(np.array([300])), na.int8())


def test_nulls_among_the_values_of_a_dictionary():
    values = pa.array([True, None, False])
    source = pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 0], pa.int8()), values)
    nested = pa.ListArray.from_arrays([0, 2, 4], source)
    for column in (source, source[1:], nested, pa.array(nested.to_pylist(), nested.type)):
        assert na.Array(ad.from_arrow(column)).to_pylist() == column.to_pylist()
        batch = pa.record_batch({"x": column})
        assert na.Array(ad.from_arrow(batch)).to_pylist() == batch.to_pylist()
        assert na.Array(ad.from_arrow(pa.table(batch))).to_pylist() == batch.to_pylist()
