"""scikit-learn: tensors go there by the buffer protocol, as NumPy arrays that share memory; Arrow data does not."""

import arrow_dlpack as ad
import frames
import numpy as np
import pyarrow as pa
import pytest
from frames import at
from helpers import address
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array

X = np.arange(8.0).reshape(4, 2)
BY = "by the buffer protocol"


def column_of_rows() -> pa.Array:
    return pa.array(X.tolist(), pa.list_(pa.float64(), 2))


class TestTensorsGoThere:
    @pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "float16", "float32", "float64"])
    def test_numbers(self, cell, dtype: str):
        source = X.astype(dtype)
        array = check_array(ad.from_dlpack(source))
        assert array.dtype == dtype
        assert array.ctypes.data == source.ctypes.data
        cell("to", "numbers", "view", BY)
        cell("to", "buffer protocol", "view")

    def test_models(self):
        model = LinearRegression().fit(ad.from_dlpack(X), ad.from_dlpack(X.sum(axis=1)))
        np.testing.assert_allclose(model.coef_, [1, 1])
        np.testing.assert_allclose(model.predict(ad.from_dlpack(X)), X.sum(axis=1))

    def test_rows_of_arrow(self, cell):
        source = column_of_rows()
        tensor = ad.to_tensor(source, copy=False)
        array = check_array(tensor)
        assert array.ctypes.data == at(source)
        assert not array.flags.writeable
        cell("to", "fixed-size lists", "view", BY)
        cell("to", "read-only", "view", BY)

    def test_in_place_work_leaves_arrow_alone(self, cell):
        source = column_of_rows()
        scaled = StandardScaler(copy=False).fit_transform(ad.to_tensor(source))
        assert scaled.ctypes.data != at(source)
        assert source.to_pylist() == X.tolist()
        cell("to", "read-only", "copy", "where an estimator writes (`copy=False`): it copies what is read-only")
        mine = X.copy()
        assert StandardScaler(copy=False).fit_transform(ad.from_dlpack(mine)).ctypes.data == mine.ctypes.data

    @pytest.mark.parametrize(
        ("part", "case"),
        [((slice(None), slice(None, None, -1)), "negative strides"), ((slice(None, None, 2), slice(None)), "strided")],
    )
    def test_strides(self, cell, part, case: str):
        source = X[part]
        array = check_array(ad.from_dlpack(source))
        np.testing.assert_array_equal(array, source)
        assert array.ctypes.data == source.ctypes.data
        cell("to", case, "view", BY)

    def test_bools(self, cell):
        source = X > 2
        array = check_array(ad.from_dlpack(source))
        assert array.dtype == bool
        assert array.ctypes.data == source.ctypes.data
        cell("to", "bool", "view", BY)

    def test_what_it_refuses(self, cell):
        with pytest.raises(ValueError, match="Complex data not supported"):
            check_array(ad.from_dlpack(X + 1j))
        cell("to", "complex", "refused", "scikit-learn has no complex numbers")
        with pytest.raises(ValueError, match="0 sample"):
            check_array(ad.from_dlpack(X[:0]))
        assert check_array(ad.from_dlpack(X[:0]), ensure_min_samples=0).shape == (0, 2)
        cell("to", "size 0", "view", "where no row is enough: `ensure_min_samples=0`")
        with pytest.raises(ValueError, match="Expected 2D array, got scalar"):
            check_array(ad.from_dlpack(np.array(5.0)))
        cell("to", "0-d", "refused", "estimators take rows")
        # The buffer protocol has no name for it, so that NumPy makes an object of the tensor.
        bfloat16 = ad.to_tensors(frames.small_floats("bfloat16"))["x"]
        with pytest.raises(ValueError, match="got scalar array"):
            check_array(bfloat16)
        cell("to", "bfloat16", "refused", "NumPy has none")

    def test_nulls(self, cell):
        source = pa.array([[1.5, None], [2.5, 3.5]], pa.list_(pa.float64(), 2))
        tensor = ad.to_tensor(source, nulls="nan")
        with pytest.raises(ValueError, match="contains NaN"):
            check_array(tensor)
        allowed = check_array(tensor, ensure_all_finite="allow-nan")
        assert np.isnan(allowed[0, 1])
        cell("to", "nulls", "view", 'as NaN, of what `nulls="nan"` made')

    def test_tensors_are_no_namespace(self):
        """Array API dispatch asks for `__array_namespace__`, which a tensor has not."""
        assert not hasattr(ad.Tensor, "__array_namespace__")


def test_arrow_data_does_not_go_there(cell):
    batch = ad.from_arrow(pa.record_batch({"x": [1.0, 2.0], "y": [3.0, 4.0]}))
    for data in (batch, ad.to_arrow(X)):
        with pytest.raises(ValueError, match="Expected 2D array, got scalar"):
            LinearRegression().fit(data, [1, 2])
    cell("to", "batch", "refused", "an Arrow batch or array: pass a tensor")


class TestFromSklearn:
    def test_predictions(self, cell):
        model = LinearRegression().fit(X, X.sum(axis=1))
        predictions = model.predict(X)
        tensor = ad.from_dlpack(predictions)
        assert address(tensor) == predictions.ctypes.data
        back = pa.array(ad.to_arrow(tensor))
        assert back.to_pylist() == predictions.tolist()
        assert at(back) == predictions.ctypes.data
        cell("from", "numbers", "view", "results are NumPy arrays")

    def test_column_major_results(self, cell):
        transposed = np.asfortranarray(StandardScaler().fit_transform(X))
        tensor = ad.from_dlpack(transposed)
        assert tensor.strides == (1, 4)
        assert address(tensor) == transposed.ctypes.data
        cell("from", "strided", "view", "results are NumPy arrays")
