"""pandas series and frames become tensors and come back."""

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import pytest
from support import NUMBERS, address, view_of


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("part", [slice(None), slice(2, 5), slice(0, 0)], ids=["whole", "slice", "empty"])
def test_numbers_are_views(dtype: str, part: slice):
    source = pd.Series(range(8), dtype=dtype, name="x")[part]
    tensor = view_of(source)
    assert (tensor.dtype, tensor.shape) == (dtype, (len(source),))
    assert np.from_dlpack(tensor).tolist() == source.tolist()
    if len(source):
        assert address(tensor) == source.to_numpy().ctypes.data
    back = pd.Series.from_arrow(ad.to_arrow(tensor))
    assert back.dtype == source.dtype
    assert back.tolist() == source.tolist()


def test_bools_and_nulls():
    assert np.from_dlpack(ad.to_tensor(pd.Series([True, False, True]))).tolist() == [True, False, True]
    nullable = pd.Series([True, None, False], dtype="boolean")
    assert np.from_dlpack(ad.to_tensor(nullable, nulls=False)).tolist() == [True, False, False]
    numbers = pd.Series([1, None, 3], dtype="Int64")
    assert np.from_dlpack(ad.to_tensor(numbers, nulls=-1)).tolist() == [1, -1, 3]
    assert np.from_dlpack(ad.validity(numbers)).tolist() == [True, False, True]
    with pytest.raises(ad.NullError):
        ad.to_tensor(numbers)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps(unit: str):
    source = pd.Series(np.array([0, 5], f"datetime64[{unit}]"))
    tensor = view_of(source)
    assert (tensor.dtype, np.from_dlpack(tensor).tolist()) == ("int64", [0, 5])
    back = pd.Series.from_arrow(ad.to_arrow(tensor))
    assert back.dtype == source.dtype
    assert (back == source).all()


def test_frames():
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5], "n": [1, 2, 3], "s": ["a", "b", "c"]})
    tensors = ad.to_tensors(frame, columns=["n", "x"])
    assert list(tensors) == ["n", "x"]
    assert np.from_dlpack(tensors["x"]).tolist() == [1.5, 2.5, 3.5]
    assert not tensors["x"].copied
    back = pd.DataFrame.from_arrow(ad.from_arrow(frame))
    pd.testing.assert_frame_equal(back, frame)


def test_index_slices():
    frame = pd.DataFrame({"x": np.arange(6.0)})[::2]
    assert np.from_dlpack(ad.to_tensors(frame, columns=["x"])["x"]).tolist() == [0, 2, 4]
