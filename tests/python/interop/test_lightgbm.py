"""LightGBM: every matrix is binned into a form of its own; tensors go there as buffers, tables as pyarrow's."""

import arrow_dlpack as ad
import frames
import lightgbm as lgb
import numpy as np
import pyarrow as pa
import pytest
from frames import dunders
from helpers import address, script

X = np.arange(8.0).reshape(4, 2)
Y = np.arange(4.0)
PARAMETERS = {"verbose": -1, "min_data_in_leaf": 1, "min_data_in_bin": 1}
OWN = "every matrix is binned into a form of its own"


def data_of(data: object, **keywords: object) -> lgb.Dataset:
    return lgb.Dataset(data, params=PARAMETERS, **keywords).construct()


def predictions(data: object) -> list[float]:
    """What a model says of rows, which shows that each value arrived."""
    model = lgb.train(PARAMETERS, lgb.Dataset(X, label=X.sum(axis=1), params=PARAMETERS), 20)
    return model.predict(data).tolist()


class TestTensorsGoThere:
    """Of floats they become a sparse matrix on the way, in which zeros stay zeros."""

    pytestmark = pytest.mark.filterwarnings("ignore:Converting data to scipy sparse matrix:UserWarning")

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_floats(self, cell, dtype: str):
        tensor = ad.from_dlpack(X.astype(dtype))
        assert (data_of(tensor).num_data(), data_of(tensor).num_feature()) == (4, 2)
        assert predictions(tensor) == predictions(X)
        assert len(set(predictions(X))) == 4
        cell("to", "numbers", "copy", OWN)
        cell("to", "buffer protocol", "copy")

    @pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "float16", "bool"])
    def test_others_by_numpy(self, cell, dtype: str):
        source = X.astype(dtype)
        tensor = ad.from_dlpack(source)
        with pytest.raises(TypeError, match="Cannot initialize Dataset from Tensor"):
            data_of(tensor)
        case = "bool" if dtype == "bool" else "numbers"
        cell("to", case, "refused", "other than float32 and float64: pass `numpy.from_dlpack(tensor)`")
        assert data_of(np.from_dlpack(tensor)).num_data() == 4
        assert predictions(np.from_dlpack(tensor)) == predictions(source.astype("float64"))
        cell("to", case, "copy", "by `numpy.from_dlpack`" if case == "bool" else OWN)

    def test_labels(self, cell):
        with pytest.raises(TypeError, match="Wrong type"):
            data_of(X, label=ad.from_dlpack(Y))
        with pytest.raises(TypeError, match="Wrong type"):
            data_of(X, label=ad.to_arrow(Y))
        cell("to", "numbers", "refused", "labels: pass `numpy.from_dlpack(tensor)`")
        assert data_of(X, label=np.from_dlpack(ad.from_dlpack(Y))).get_label().tolist() == Y.tolist()

    def test_estimators_take_labels_too(self):
        """Those check what they are given by scikit-learn, which takes tensors."""
        settings = {"n_estimators": 20, "verbose": -1, "min_child_samples": 1}
        model = lgb.LGBMRegressor(**settings).fit(ad.from_dlpack(X), ad.from_dlpack(Y))
        expected = lgb.LGBMRegressor(**settings).fit(X, Y).predict(X)
        assert model.predict(ad.from_dlpack(X)).tolist() == expected.tolist()
        assert len(set(expected.tolist())) > 1

    @pytest.mark.parametrize(
        ("part", "case"),
        [((slice(None, None, 2), slice(None)), "strided"), ((slice(None, None, -1), slice(None)), "negative strides")],
    )
    def test_strides(self, cell, part, case: str):
        assert predictions(ad.from_dlpack(X[part])) == predictions(X[part])
        cell("to", case, "copy")

    def test_read_only_rows_of_arrow(self, cell):
        tensor = ad.to_tensor(pa.array(X.tolist(), pa.list_(pa.float64(), 2)), copy=False)
        assert predictions(tensor) == predictions(X)
        cell("to", "fixed-size lists", "copy")
        cell("to", "read-only", "copy")

    def test_nulls(self, cell):
        source = pa.array([[1.5, None], [2.5, 3.5]], pa.list_(pa.float64(), 2))
        assert predictions(ad.to_tensor(source, nulls="nan")) == predictions(np.array([[1.5, np.nan], [2.5, 3.5]]))
        cell("to", "nulls", "copy", 'NaN is what is missing: `nulls="nan"`')


class TestArrowGoesThere:
    def test_by_pyarrow_s_tables_only(self, cell):
        table = pa.table({"x": X[:, 0], "y": X[:, 1]})
        for data in (ad.from_arrow(table), ad.from_arrow(table.to_batches()[0]), ad.to_arrow(X)):
            with pytest.raises(TypeError, match="Cannot initialize Dataset"):
                data_of(data)
        for case in ("batch", "stream"):
            cell("to", case, "refused", "as it is; pass `pyarrow.table(x)`")
        for case, data in (("batch", ad.from_arrow(table.to_batches()[0])), ("stream", ad.from_arrow(table))):
            assert predictions(pa.table(data)) == predictions(X)
            cell("to", case, "copy", "by `pyarrow.table`")

    def test_nulls_and_bools(self, cell):
        table = pa.table({"x": [1.5, 2.5], "y": [None, 3.5]})
        assert predictions(pa.table(ad.from_arrow(table))) == predictions(np.array([[1.5, np.nan], [2.5, 3.5]]))
        cell("to", "nulls", "copy", "by `pyarrow.table`; a null is missing")
        table = pa.table({"x": [True, False], "y": [False, True]})
        assert predictions(pa.table(ad.from_arrow(table))) == predictions(np.array([[1.0, 0.0], [0.0, 1.0]]))
        cell("to", "bool", "copy", "by `pyarrow.table`")

    @pytest.mark.parametrize(
        ("case", "column"),
        [
            ("numbers", "pa.array([1.0, 2.0], pa.float16())"),
            ("temporal", "pa.array([1, 2], pa.date32())"),
            ("strings", "pa.array(['a', 'b'])"),
            ("lists", "pa.array([[1.0], [2.0]])"),
        ],
    )
    def test_other_types_kill_the_process(self, cell, case: str, column: str):
        code = f"import lightgbm, pyarrow as pa; lightgbm.Dataset(pa.table({{'x': {column}}})).construct()"
        done = script(code)
        assert done.returncode < 0
        assert "terminate called" in done.stderr
        cell("to", case, "wrong", "a table with a column of float16, dates, strings or lists kills the process")


def test_predictions_come_back(cell):
    model = lgb.train(PARAMETERS, lgb.Dataset(X, label=Y, params=PARAMETERS), 2)
    result = model.predict(X)
    assert address(ad.from_dlpack(result)) == result.ctypes.data
    cell("from", "numbers", "view", "predictions are NumPy arrays")
    assert dunders(lgb.Dataset(X)) == set()
    cell("from", "batch", "absent", "a dataset cannot be read back as Arrow")
    kept = data_of(ad.from_dlpack(X), free_raw_data=False)
    assert address(kept.get_data()) == X.ctypes.data
    assert frames.dunders(kept.get_data()) >= {"dlpack"}
