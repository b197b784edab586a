"""NumPy's masked arrays: DLPack has no mask, so masked values are an error, and not values."""

import subprocess
import sys

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

MASKED = np.ma.masked_array([1, 2, 3], mask=[0, 1, 0])


@pytest.mark.parametrize(
    "take",
    [
        ad.to_arrow,
        ad.to_tensor,
        ad.from_dlpack,
        ad.from_arrow,
        ad.explain,
        ad.validity,
        lambda array: ad.to_tensors(array),
        lambda array: ad.to_tensor(array, nulls="keep", xp=np),
        lambda array: ad.to_arrow(array, copy=True),
        lambda array: ad.Loader(array, batch_size=2),
        lambda array: ad.Ragged(array, np.array([0, 3])),
        lambda array: list(ad.Loader(lambda: array, batch_size=2)),
    ],
)
def test_masked_values_are_an_error(take):
    with pytest.raises(ad.NullError, match="1 masked value") as raised:
        take(MASKED)
    assert "to_arrow(x.data, validity=~numpy.ma.getmaskarray(x))" in raised.value.remedy


def test_the_remedies_work():
    x = MASKED
    column = ad.to_arrow(x.data, validity=~np.ma.getmaskarray(x))
    assert pa.array(column).to_pylist() == [1, None, 3] == pa.array(x).to_pylist()
    assert ad.to_tensor(column, nulls=9, xp=np).tolist() == [1, 9, 3]
    assert ad.to_tensor(x.filled(0), xp=np).tolist() == [1, 0, 3]
    assert ad.to_tensor(x.data, xp=np).tolist() == [1, 2, 3]


def test_a_masked_matrix():
    x = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [1, 0]])
    with pytest.raises(ad.NullError, match="2 masked values") as raised:
        ad.to_tensor(x)
    assert "to_arrow(x.data, names=names, validity=~numpy.ma.getmaskarray(x))" in raised.value.remedy
    batch = ad.to_arrow(x.data, names=["a", "b"], validity=~np.ma.getmaskarray(x))
    assert pa.record_batch(batch).to_pydict() == {"a": [1, None], "b": [None, 4]}
    with pytest.raises(ad.NullError):
        ad.to_arrow(x, names=["a", "b"])


@pytest.mark.parametrize("x", [np.ma.masked, np.ma.masked_array(np.ones((1, 1, 2)), mask=[[[0, 1]]])])
def test_other_shapes_are_filled(x):
    with pytest.raises(ad.NullError) as raised:
        ad.to_tensor(x)
    assert raised.value.remedy.startswith("pass x.filled(0)")
    assert ad.to_tensor(x.filled(0), xp=np).tolist() in ([0], [[[1, 0]]])


def test_a_list_of_masked_arrays_is_stacked_with_its_mask():
    with pytest.raises(TypeError, match=r"pass numpy\.ma\.stack\(arrays\)"):
        ad.to_tensor([MASKED, MASKED])
    with pytest.raises(ad.NullError):
        ad.to_tensor(np.ma.stack([MASKED, MASKED]))


@pytest.mark.parametrize("mask", [np.ma.nomask, [0, 0, 0]])
def test_an_array_without_masked_values_is_like_any_array(mask):
    array = np.ma.masked_array([1, 2, 3], mask=mask)
    assert ad.to_tensor(array, copy=False, xp=np).ctypes.data == array.ctypes.data
    assert pa.array(ad.to_arrow(array)).to_pylist() == [1, 2, 3]


def test_the_module_of_masked_arrays_is_not_imported():
    code = (
        "import sys, numpy, arrow_dlpack as ad; had = 'numpy.ma' in sys.modules; "
        "ad.to_tensor(numpy.arange(3)); assert ('numpy.ma' in sys.modules) == had"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
