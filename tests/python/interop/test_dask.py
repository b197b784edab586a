"""Dask: its collections are plans without data, so that there is nothing to share; their partitions are pandas'."""

import arrow_dlpack as ad
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from frames import dunders
from helpers import address


def made() -> dd.DataFrame:
    return dd.from_pandas(pd.DataFrame({"x": range(6), "f": np.arange(6.0)}), npartitions=2)


class TestFromDask:
    def test_plans_have_no_dunder(self, cell):
        frame = made()
        for plan in (frame, frame["x"], frame["x"].to_dask_array()):
            assert dunders(plan) == set()
            with pytest.raises(TypeError, match="expected Arrow data"):
                ad.from_arrow(plan)
        for case in ("batch", "stream"):
            cell("from", case, "refused", "a collection is a plan; its computed partitions are frames of pandas")
        cell("from", "device", "absent")

    def test_partitions(self, cell):
        frame = made()
        parts = [part.compute() for part in frame.partitions]
        tensors = [ad.to_tensors(part, copy=False) for part in parts]
        assert [np.from_dlpack(one["x"]).tolist() for one in tensors] == [[0, 1, 2], [3, 4, 5]]
        assert [address(one["f"]) for one in tensors] == [part["f"].to_numpy().ctypes.data for part in parts]
        for case in ("numbers", "batch"):
            cell("from", case, "view", "partition by partition: `part.compute()`")

    def test_in_the_plan(self):
        """Within a task, on a thread of Dask's."""
        frame = made()

        def total(part: pd.DataFrame) -> pd.Series:
            tensors = ad.to_tensors(part, copy=False)
            return pd.Series([float(np.from_dlpack(tensors["f"]).sum())])

        sums = frame.map_partitions(total, meta=pd.Series(dtype="float64")).compute(scheduler="threads")
        assert sorted(sums) == [3, 12]

    def test_nulls(self, cell):
        plan = dd.from_pandas(pd.DataFrame({"x": pd.array([1, None], dtype="Int64")}), npartitions=1)
        computed = plan.compute()
        with pytest.raises(ad.NullError, match='column "x", row 1'):
            ad.to_tensors(computed)
        assert np.from_dlpack(ad.to_tensors(computed, nulls=0)["x"]).tolist() == [1, 0]
        cell("from", "nulls", "copy", "partition by partition: `part.compute()`")

    def test_size_0(self, cell):
        frame = made()
        assert ad.to_tensors(frame[frame["x"] > 10].compute())["f"].shape == (0,)
        cell("from", "size 0", "view", "partition by partition: `part.compute()`")


class TestToDask:
    def test_by_way_of_pandas(self, cell):
        batch = ad.from_arrow(pa.record_batch({"x": [1, 2], "f": [1.5, None]}))
        plan = dd.from_pandas(pd.DataFrame.from_arrow(batch), npartitions=1)
        assert plan["x"].sum().compute() == 3
        for case in ("numbers", "nulls", "batch"):
            cell("to", case, "copy", "by `pandas.DataFrame.from_arrow`")

    def test_not_as_it_is(self, cell):
        batch = ad.from_arrow(pa.record_batch({"x": [1, 2]}))
        with pytest.raises(TypeError, match="must be a pandas"):
            dd.from_pandas(batch, npartitions=1)
        cell("to", "device", "absent")

    def test_in_a_plan(self, cell):
        """What is in a plan has to have a token, which its pickle gives."""
        batch = ad.from_arrow(pa.record_batch({"x": [1, 2]}))
        assert dd.from_map(pd.DataFrame.from_arrow, [batch])["x"].compute().tolist() == [1, 2]
        cell("to", "batch", "copy", "by `dask.dataframe.from_map(pandas.DataFrame.from_arrow, batches)`")

    def test_streams_batch_by_batch(self, cell):
        stream = ad.from_arrow(pa.table({"x": pa.chunked_array([[1, 2], [3]])}))
        plan = dd.from_map(lambda part: part, [pd.DataFrame.from_arrow(batch) for batch in stream])
        assert plan["x"].compute().tolist() == [1, 2, 3]
        cell("to", "stream", "copy", "by `pandas.DataFrame.from_arrow`, a partition for each batch")

    def test_arrays(self, cell):
        source = np.arange(6.0).reshape(3, 2)
        tensor = ad.from_dlpack(source)
        plan = da.from_array(np.from_dlpack(tensor), chunks=(3, 2), name=False)
        computed = plan.compute(scheduler="sync")
        np.testing.assert_array_equal(computed, source)
        assert computed.ctypes.data != source.ctypes.data
        cell("to", "fixed-size lists", "copy", "`dask.array` by `numpy.from_dlpack`")
        # Its slices are asked for one by one, which a tensor has not.
        with pytest.raises(TypeError, match="subscriptable"):
            da.from_array(tensor, chunks=3).sum().compute()
