"""torch tensors come in and go out, as views wherever the layouts agree."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from support import NUMBERS, TEMPORAL, address, ticks, values_address

DTYPES = ["bool", *NUMBERS, "bfloat16", "complex64", "complex128"]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_ways_are_views(torch, dtype: str):
    source = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, dtype))
    tensor = ad.from_dlpack(source, copy=False)
    assert (tensor.dtype, tensor.shape, tensor.writable) == (dtype, (2, 3), True)
    back = torch.from_dlpack(tensor)
    assert back.data_ptr() == source.data_ptr() == address(tensor)
    assert back.dtype == source.dtype
    assert torch.equal(back, source)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_8_bit_floats(torch, dtype: str):
    source = torch.tensor([1, 2, 4], dtype=torch.uint8).view(getattr(torch, dtype))
    tensor = ad.from_dlpack(source)
    assert tensor.dtype == dtype
    back = torch.from_dlpack(tensor)
    assert back.dtype == source.dtype
    assert back.data_ptr() == source.data_ptr()
    column = ad.to_arrow(source, copy=False)
    assert (column.type, len(column)) == ("FixedSizeBinary(1)", 3)
    again = ad.to_tensor(column, copy=False, xp=torch)
    assert again.dtype == source.dtype
    assert again.data_ptr() == source.data_ptr()


def test_strides_scalars_and_size_0(torch):
    source = torch.arange(24.0).reshape(2, 3, 4)
    for view in (source.mT, source[:, ::2], source[1, 2, 3], source[0:0], source[:, :, 1:1], source.expand(5, 2, 3, 4)):
        tensor = ad.from_dlpack(view)
        assert tensor.shape == tuple(view.shape)
        back = torch.from_dlpack(tensor)
        assert torch.equal(back, view)
        if view.numel():
            assert back.data_ptr() == view.data_ptr()


def test_read_only_views_and_memory_of_its_own(torch):
    source = pa.array([1.0, 2.0, 3.0])
    # torch ignores READ_ONLY; writable=True is for those who write.
    view = torch.from_dlpack(ad.to_tensor(source))
    assert view.data_ptr() == source.buffers()[1].address
    own = torch.from_dlpack(ad.to_tensor(source, writable=True))
    own[0] = 9
    assert source.to_pylist() == [1, 2, 3]


def test_copies_asked_of_us(torch):
    source = np.arange(3.0)
    tensor = torch.from_dlpack(ad.from_dlpack(source), copy=True)
    tensor[0] = 9
    assert source[0] == 0
    assert torch.from_dlpack(ad.from_dlpack(source), copy=False).data_ptr() == source.ctypes.data
    assert torch.from_dlpack(ad.from_dlpack(source), device="cpu").data_ptr() == source.ctypes.data


def test_copies_asked_of_torch(torch):
    source = torch.arange(3.0)
    copy = ad.from_dlpack(source, copy=True)
    assert address(copy) != source.data_ptr()
    assert copy.copied
    assert copy.writable


@pytest.mark.parametrize("dtype", NUMBERS)
def test_arrow_to_torch_and_back(torch, dtype: str):
    source = pa.array(range(5), pa.from_numpy_dtype(dtype))
    tensor = ad.to_tensor(source, xp=torch, copy=False)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.data_ptr() == values_address(source)
    back = pa.array(ad.to_arrow(tensor, copy=False))
    assert back.equals(source)
    assert back.buffers()[1].address == tensor.data_ptr()


@pytest.mark.parametrize(("data_type", "dtype"), TEMPORAL, ids=str)
def test_temporal_types(torch, data_type: pa.DataType, dtype: str):
    source = ticks([0, 86400000], data_type)
    tensor = ad.to_tensor(source, xp=torch)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.data_ptr() == values_address(source)
    # torch does not keep the unit; a type brings it back.
    assert pa.array(ad.to_arrow(tensor)).type == pa.from_numpy_dtype(dtype)


def test_bools_nulls_and_lists(torch):
    bools = ad.to_tensor(pa.array([True, None, False]), nulls=False, xp=torch)
    assert bools.tolist() == [True, False, False]
    assert ad.validity(pa.array([1, None]), xp=torch).tolist() == [True, False]
    rows = pa.array([[1, 2], [3, None]], pa.list_(pa.float32(), 2))
    assert torch.equal(
        torch.isnan(ad.to_tensor(rows, nulls="nan", xp=torch)), torch.tensor([[False, False], [False, True]])
    )
    back = pa.array(ad.to_arrow(torch.arange(6).reshape(3, 2), validity=torch.tensor([True, False, True])))
    assert back.is_valid().to_pylist() == [True, False, True]


def test_batches(torch):
    batch = pa.record_batch({"x": [1.5, None], "n": [1, 2]})
    tensors = ad.to_tensors(batch, nulls={"x": "nan"}, dtype={"n": torch.float32}, xp=torch)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {"x": torch.float64, "n": torch.float32}


def test_what_torch_does_not_export_is_its_error(torch):
    with pytest.raises((BufferError, RuntimeError)):
        ad.from_dlpack(torch.ones(3, requires_grad=True))
    with pytest.raises((BufferError, RuntimeError)):
        ad.from_dlpack(torch.ones(3, dtype=torch.complex64).conj())


def test_memory_lives_as_long_as_its_last_user(torch):
    tensor = ad.to_tensor(pa.array(range(1000)), xp=torch)
    assert tensor.tolist() == list(range(1000))
    back = ad.from_dlpack(torch.arange(1000))
    assert np.from_dlpack(back).tolist() == list(range(1000))
