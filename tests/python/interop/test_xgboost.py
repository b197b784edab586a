"""XGBoost: every matrix is copied into a form of its own; tensors go there as NumPy arrays, tables as pyarrow's."""

import arrow_dlpack as ad
import frames
import numpy as np
import pyarrow as pa
import pytest
import xgboost as xgb
from frames import dunders
from helpers import address

X = np.arange(8.0).reshape(4, 2)
Y = np.arange(4.0)
OWN = "every matrix becomes float32 in a form of its own"
AS_IT_IS = (
    "as it is: what has `__array_interface__` is taken for a NumPy array, and asked for its `flags`;"
    " pass `numpy.from_dlpack(tensor)`"
)


def dense(matrix: xgb.DMatrix) -> list:
    return matrix.get_data().toarray().tolist()


def numpy_of(x: object) -> np.ndarray:
    return np.from_dlpack(ad.from_dlpack(x))


class TestTensorsAsTheyAre:
    """What has `__array_interface__` it takes for an array of NumPy, which has `flags` too."""

    @pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", "float16", "float32", "float64", "bool"])
    @pytest.mark.parametrize("kind", [xgb.DMatrix, xgb.QuantileDMatrix])
    def test_are_refused(self, cell, kind, dtype: str):
        """Without that attribute they became a sparse matrix, in which a zero is a missing value."""
        with pytest.raises(AttributeError, match="flags"):
            kind(ad.from_dlpack(X.astype(dtype)))
        cell("to", "bool" if dtype == "bool" else "numbers", "refused", AS_IT_IS)

    @pytest.mark.parametrize("what", ["label", "weight", "base_margin"])
    def test_labels_are_refused(self, cell, what: str):
        with pytest.raises(AttributeError, match="flags"):
            xgb.DMatrix(X, **{what: ad.from_dlpack(Y)})
        cell("to", "numbers", "refused", AS_IT_IS)

    def test_its_estimators_refuse_them(self, cell):
        with pytest.raises(AttributeError, match="flags"):
            xgb.XGBRegressor(n_estimators=1).fit(ad.from_dlpack(X), Y)
        cell("to", "numbers", "refused", AS_IT_IS)

    def test_predictions_are_refused(self, cell):
        model = xgb.train({}, xgb.DMatrix(X, label=Y), 1)
        with pytest.raises(AttributeError, match="flags"):
            model.inplace_predict(ad.from_dlpack(X))
        assert model.inplace_predict(numpy_of(X)).tolist() == model.predict(xgb.DMatrix(X)).tolist()
        cell("to", "numbers", "refused", AS_IT_IS)

    def test_read_only_rows_of_arrow_are_refused(self):
        source = pa.array(X.tolist(), pa.list_(pa.float64(), 2))
        with pytest.raises(AttributeError, match="flags"):
            xgb.DMatrix(ad.to_tensor(source, copy=False))

    @pytest.mark.filterwarnings("ignore:Unknown data type:UserWarning")
    def test_bfloat16_is_refused(self, cell):
        """It has no `__array_interface__`, so that SciPy is asked to make a sparse matrix of it."""
        rows = pa.array(X.tolist(), pa.list_(pa.float64(), 2))
        with pytest.raises(TypeError, match="Not supported type"):
            xgb.DMatrix(ad.to_tensor(rows, dtype="bfloat16"))
        cell("to", "bfloat16", "refused", "has no such type")


class TestTensorsGoThere:
    """By `numpy.from_dlpack`, which shares the memory up to here."""

    @pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint16", "float16", "float32", "float64"])
    @pytest.mark.parametrize("kind", [xgb.DMatrix, xgb.QuantileDMatrix])
    def test_numbers(self, cell, kind, dtype: str):
        source = numpy_of(X.astype(dtype))
        matrix = kind(source, label=numpy_of(Y))
        assert (matrix.num_row(), matrix.num_nonmissing()) == (4, 8)
        assert matrix.get_label().tolist() == Y.tolist()
        if kind is xgb.DMatrix:
            assert dense(matrix) == X.tolist()
        cell("to", "numbers", "copy", OWN)

    def test_bools(self, cell):
        assert dense(xgb.DMatrix(numpy_of(X > 2))) == (X > 2).tolist()
        assert xgb.DMatrix(numpy_of(X > 2)).num_nonmissing() == 8
        cell("to", "bool", "copy", "by `numpy.from_dlpack`")

    @pytest.mark.parametrize(
        ("part", "case"),
        [((slice(None), slice(None, None, 2)), "strided"), ((slice(None, None, -1), slice(None)), "negative strides")],
    )
    def test_strides(self, cell, part, case: str):
        assert dense(xgb.DMatrix(numpy_of(X[part]))) == X[part].tolist()
        cell("to", case, "copy")

    def test_read_only_rows_of_arrow(self, cell):
        source = pa.array(X.tolist(), pa.list_(pa.float64(), 2))
        array = np.from_dlpack(ad.to_tensor(source, copy=False))
        assert not array.flags.writeable
        assert dense(xgb.DMatrix(array)) == X.tolist()
        cell("to", "fixed-size lists", "copy")
        cell("to", "read-only", "copy")

    def test_nulls(self, cell):
        source = pa.array([[0.0, None], [2.5, 3.5]], pa.list_(pa.float64(), 2))
        matrix = xgb.DMatrix(np.from_dlpack(ad.to_tensor(source, nulls="nan")))
        assert matrix.num_nonmissing() == 3
        cell("to", "nulls", "copy", 'NaN is what is missing: `nulls="nan"`')

    def test_size_0_and_one_dimension(self, cell):
        assert xgb.DMatrix(numpy_of(X[:0])).num_row() == 0
        cell("to", "size 0", "copy")
        with pytest.raises(ValueError, match="2-dimensional"):
            xgb.DMatrix(numpy_of(Y))
        with pytest.raises((TypeError, ValueError)):
            xgb.DMatrix(numpy_of(np.array(5.0)))
        cell("to", "0-d", "refused", "a matrix has two dimensions")


class TestArrowGoesThere:
    pytestmark = pytest.mark.filterwarnings("ignore:Unknown data type:UserWarning")

    def test_by_pyarrow_s_tables_only(self, cell):
        table = pa.table({"x": [1, None, 3], "b": [True, False, True]})
        for data in (ad.from_arrow(table), ad.from_arrow(table.to_batches()[0]), ad.to_arrow(Y)):
            with pytest.raises(TypeError, match="Not supported type"):
                xgb.DMatrix(data)
            with pytest.raises(TypeError, match="not supported"):
                xgb.QuantileDMatrix(data)
        for case in ("batch", "stream"):
            cell("to", case, "refused", "as it is; pass `pyarrow.table(x)`")
        matrix = xgb.DMatrix(pa.table(ad.from_arrow(table)))
        assert (matrix.num_row(), matrix.num_col(), matrix.num_nonmissing()) == (3, 2, 5)
        assert matrix.feature_names == ["x", "b"]
        for case in ("batch", "stream", "nulls", "bool"):
            cell("to", case, "copy", "by `pyarrow.table`; a null is missing")

    def test_temporal_columns(self, cell):
        with pytest.raises(KeyError, match="date32"):
            xgb.DMatrix(pa.table(ad.from_arrow(pa.table({"d": frames.column("date32")}))))
        cell("to", "temporal", "refused", "pass their tensor, which has the ticks")
        ticks = np.from_dlpack(ad.to_tensor(frames.column("date32")))
        assert xgb.DMatrix(ticks[:, None]).num_row() == 2

    def test_batches_as_an_iterator(self, cell):
        chunks = [X[:3].tolist(), X[3:].tolist()]
        stream = ad.from_arrow(pa.table({"v": pa.chunked_array(chunks, pa.list_(pa.float64(), 2))}))

        class Batches(xgb.DataIter):
            def __init__(self, batches: list) -> None:
                self.batches = batches
                self.reset()
                super().__init__()

            def reset(self) -> None:
                self.left = iter(self.batches)

            def next(self, input_data) -> bool:
                batch = next(self.left, None)
                if batch is not None:
                    input_data(data=np.from_dlpack(ad.to_tensors(batch, copy=False)["v"]))
                return batch is not None

        matrix = xgb.QuantileDMatrix(Batches(list(stream)))
        assert (matrix.num_row(), matrix.num_col()) == (4, 2)
        cell("to", "stream", "copy", "batch by batch, by a `DataIter` over tensors")


def test_predictions_come_back(cell):
    model = xgb.train({"verbosity": 0}, xgb.DMatrix(X, label=Y), 2)
    predictions = model.predict(xgb.DMatrix(X))
    assert predictions.dtype == np.float32
    assert address(ad.from_dlpack(predictions)) == predictions.ctypes.data
    cell("from", "numbers", "view", "predictions are NumPy arrays")
    assert dunders(xgb.DMatrix(X)) == set()
    cell("from", "batch", "absent", "a matrix cannot be read back as Arrow")
