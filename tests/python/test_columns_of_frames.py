"""Columns of data frames and relations that a call does not name neither break it nor are computed."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

MIXED = [{"a": 1}, "z"]


def values(tensor: Any) -> list[Any]:
    return np.from_dlpack(tensor).tolist()


def frames() -> dict[str, Any]:
    """Frames with a column x of 1.0 and 2.0, and an y, that cannot be exported whole."""
    two = pd.DataFrame([[1.0, 5, 6, 7], [2.0, 5, 6, 8]], columns=["x", "d", "d", "y"])
    return {
        "objects": pd.DataFrame({"x": [1.0, 2.0], "meta": MIXED, "y": [7, 8]}),
        "objects and an index": pd.DataFrame({"x": [1.0, 2.0], "meta": MIXED, "y": [7, 8]}, index=pd.Index([5, 3])),
        "two columns of one name": two,
        "complex numbers": pd.DataFrame({"x": [1.0, 2.0], "c": [1j, 2j], "y": [7, 8]}),
    }


@pytest.mark.parametrize("name", frames())
class TestFrames:
    def test_are_read_without_the_columns_that_cannot_be_exported(self, name: str):
        frame = frames()[name]
        with pytest.raises(Exception):  # noqa: B017
            ad.to_tensors(frame)
        assert values(ad.to_tensor(frame, columns=["x"])) == [[1], [2]]
        assert values(ad.to_tensor(frame, columns=["y", "x"], dtype="float64")) == [[7, 1], [8, 2]]
        assert {key: values(value) for key, value in ad.to_tensors(frame, columns={"t": "y"}).items()} == {"t": [7, 8]}
        assert values(ad.validity(frame, columns=["x"])) == [[True], [True]]
        assert values(ad.to_tensor([frame, frame], columns=["x"])) == [[1], [2], [1], [2]]
        assert ad.explain(frame, columns=["x"])["x"].shape == (2,)
        assert ad.statistics(frame, {"y": "max"}) == {"y": 8}

    def test_are_read_by_loaders(self, name: str):
        shards = ad.Loader(sources=[frames()[name], frames()[name]], batch_size=3, columns=["x"])
        assert [values(batch) for batch in shards] == [[[1], [2], [1]], [[2]]]
        loader = ad.Loader(frames()[name], batch_size=1, columns=["x"])
        assert [values(batch) for batch in loader] == [[[1]], [[2]]]
        state = loader.state_dict()
        loader.load_state_dict(state)
        assert [values(batch) for batch in loader] == [[[1]], [[2]]]

    def test_raise_their_own_error_for_the_columns_that_cannot(self, name: str):
        frame = frames()[name]
        wrong = next(column for column in frame.columns if column not in ("x", "y"))
        with pytest.raises(Exception) as whole:
            ad.to_tensors(frame)
        for columns in ([wrong], ["x", wrong], ["x", "unknown"]):
            with pytest.raises(type(whole.value)) as caught:
                ad.to_tensors(frame, columns=columns)
            assert str(caught.value) == str(whole.value)


def test_frames_that_can_be_exported_are_asked_once_for_all():
    class Frame:
        columns, dtypes, asked = ["x", "y"], [None, None], 0

        def __len__(self) -> int:
            return 2

        def memory_usage(self) -> int:
            return 0

        def __getitem__(self, names: list[str]) -> Any:
            pytest.fail("its columns were selected")

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            Frame.asked += 1
            return pa.table({"x": [1, 2], "y": ["a", "b"]}).__arrow_c_stream__(requested_schema)

    assert values(ad.to_tensor(Frame(), columns=["x"])) == [[1], [2]]
    with pytest.raises(ad.ConversionError):
        ad.to_tensor(Frame(), columns=["y"])
    assert Frame.asked == 2


def test_the_memory_of_a_frame_is_shared_as_before():
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    shared = ad.to_tensors(frame, columns=["x"], copy=False, xp=np)["x"]
    assert np.shares_memory(shared, frame["x"].to_numpy())


class TestRelations:
    QUERY = "select range as x, range % 3 as \"q\"\"d\", 'text' as t, {'a': range * 2} as s from range(50)"

    def test_do_not_compute_the_other_columns(self):
        # An error of the column that is not read does not come up.
        relation = duckdb.sql("select range as x, error('computed') as bad from range(3)")
        assert values(ad.to_tensor(relation, columns=["x"])) == [[0], [1], [2]]
        assert values(ad.validity(relation, columns=["x"])) == [[True]] * 3
        with pytest.raises(Exception, match="computed"):
            ad.to_tensors(relation, columns={"a": ad.arrow("x", "bad")})

    @pytest.mark.parametrize(
        "columns", [["x"], ['q"d', "x"], ["s.a"], ["t"], ["x", "no"], ["s.b"], [], ["x", "x"]], ids=str
    )
    def test_have_the_results_and_errors_of_all_columns(self, columns: list[str]):
        def outcome(data: Any) -> Any:
            try:
                return values(ad.to_tensor(data, columns=columns))
            except Exception as error:
                return type(error), str(error)

        relation = duckdb.sql(self.QUERY)
        assert outcome(relation) == outcome(relation.to_arrow_table())

    def test_with_names_that_differ_in_case_alone_are_read_whole(self):
        relation = duckdb.sql('select 1 as a, 2 as "A", 3 as b')
        assert ad.explain(relation, columns=["b"]).notes == ad.explain(relation, columns=relation.columns).notes
        assert values(ad.to_tensor(relation, columns=["b"])) == [[3]]

    def test_a_report_says_what_is_read(self):
        notes = ad.explain(duckdb.sql(self.QUERY), columns=["s.a", "x"]).notes
        assert "the DuckDBPyRelation is read by select(...), which reads 2 of its 4 columns" in notes

    def test_keep_the_state_of_a_loader(self):
        loader = ad.Loader(duckdb.sql(self.QUERY), batch_size=20, columns=["x"])
        assert [row for batch in loader for [row] in values(batch)] == list(range(50))
        loader = ad.Loader(duckdb.sql(self.QUERY), batch_size=20, columns=["x"])
        next(iter(loader))
        assert loader.state_dict()["columns"] == ["x", 'q"d', "t", "s"]
