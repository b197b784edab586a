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


def test_nulls_that_a_struct_brings_to_a_column():
    types = [pa.int32(), pa.bool_(), pa.string(), pa.list_(pa.int8()), pa.struct([("y", pa.int8())])]
    values = [1, True, "a", [1], {"y": 1}]
    fields = [pa.field(str(data_type), data_type, nullable=False) for data_type in types]
    columns = [pa.array([value] * 3, data_type) for value, data_type in zip(values, types, strict=True)]
    with_nulls = pa.Array.from_buffers(pa.struct(fields), 3, [pa.py_buffer(b"\5")], children=columns)
    without = pa.Array.from_buffers(pa.struct(fields), 3, [None], children=columns)
    for field, value in zip(fields, values, strict=True):
        # The data does not matter: chunks of a column have one field.
        chunks = [ad.from_arrow(source)[field.name] for source in (without, with_nulls, with_nulls.slice(1), without)]
        for column in chunks:
            assert (column.nullable, na.c_schema(column).flags) == (True, 2)
        assert [na.Array(chunk).to_pylist() for chunk in chunks[1:3]] == [[value, None, value], [None, value]]
        assert len(pa.chunked_array(ad.from_arrow(chunks))) == 11
        # Rows of a record batch are not null.
        column = ad.from_arrow(pa.record_batch(columns, schema=pa.schema(fields)))[field.name]
        assert (column.nullable, na.c_schema(column).flags) == (False, 0)
