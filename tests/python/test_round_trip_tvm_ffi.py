"""tvm-ffi, which takes tensors by their exchange table, reads tensors of ours and is read."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
import tvm_ffi
from support import NUMBERS, address


@pytest.mark.parametrize("dtype", ["bool", *NUMBERS])
def test_both_ways_are_views(dtype: str):
    source = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    theirs = tvm_ffi.from_dlpack(ad.from_dlpack(source))
    assert (str(theirs.dtype), tuple(theirs.shape)) == (dtype, (2, 3))
    tensor = ad.from_dlpack(theirs)
    assert address(tensor) == source.ctypes.data
    np.testing.assert_array_equal(np.from_dlpack(tensor), source)


def test_strides_scalars_and_size_0():
    source = np.arange(12.0).reshape(3, 4)
    for view in (source[::2, ::-1], source.T, source[1:, 2], np.zeros((0, 3)), np.array(2.0)):
        tensor = ad.from_dlpack(tvm_ffi.from_dlpack(ad.from_dlpack(view)))
        assert tensor.shape == view.shape
        np.testing.assert_array_equal(np.from_dlpack(tensor), view)


def test_bfloat16():
    theirs = tvm_ffi.from_dlpack(ad.to_tensor(pa.array([1.5, 2.5]), dtype="bfloat16"))
    assert str(theirs.dtype) == "bfloat16"
    assert ad.from_dlpack(theirs).dtype == "bfloat16"


def test_memory_of_arrow_is_shared_whatever_unversioned_capsules_hold():
    source = pa.array([1, 2, 3])
    for legacy in ("copy", "view", "error"):
        with ad.track_copies() as log:
            theirs = tvm_ffi.from_dlpack(ad.to_tensor(source, legacy=legacy))
        assert len(log) == 0
        assert address(ad.from_dlpack(theirs)) == source.buffers()[1].address


def test_functions_take_and_return_tensors():
    source = pa.array([0.5, 1.5])
    seen = []
    function = tvm_ffi.convert(lambda tensor: (seen.append(tensor), tensor)[1])
    result = function(ad.to_tensor(source))
    assert type(seen.pop()) is tvm_ffi.Tensor
    # What a function returns is of the type that it was given.
    assert type(result) is ad.Tensor
    assert address(result) == source.buffers()[1].address
    assert result.shape == (2,)


def test_callbacks_are_given_tensors():
    source = np.arange(6.0).reshape(2, 3).T
    seen = []
    function = tvm_ffi.convert_func(lambda tensor: seen.append(tensor), tensor_cls=ad.Tensor)
    function(ad.from_dlpack(source))
    tensor = seen.pop()
    assert type(tensor) is ad.Tensor
    assert (tensor.shape, tensor.strides, address(tensor)) == ((3, 2), (1, 3), source.ctypes.data)


def test_as_an_xp():
    tensor = ad.to_tensor(pa.array([1.0, 2.0]), xp=tvm_ffi)
    assert isinstance(tensor, tvm_ffi.Tensor)
    assert np.from_dlpack(tensor).tolist() == [1, 2]


def test_to_arrow():
    source = np.arange(6, dtype="int32").reshape(3, 2)
    array = pa.array(ad.to_arrow(tvm_ffi.from_dlpack(source), copy=False))
    assert array.to_numpy_ndarray().tolist() == source.tolist()
