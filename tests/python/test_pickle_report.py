"""Pickled reports: the same rows, text and errors, of another process too, and nothing that a report cannot say."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import arrow_dlpack as ad
import pandas as pd
import pyarrow as pa
import pytest

NAMES = (
    *("column", "arrow_type", "dtype", "shape", "device", "view", "how", "steps", "kernel", "waits"),
    *("bytes", "refused_if", "promotion", "error"),
)
TABLE = pa.table(
    {
        "n": pa.array([1, None, 3]),
        "t": pa.array(["x", "y", "z"]),
        "u": pa.array(["x", "y", "z"]),
        "l": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float64(), 2)),
        "f": pa.array([1.0, 2.0, 3.0]),
        "b": pa.array([True, False, True]),
    }
)
REPORTS = {
    "table": (TABLE, {}),
    "schema": (TABLE.schema, {"dtype": "int8"}),
    "matrix": (TABLE, {"columns": ["f", "b"], "order": "C"}),
    "groups": (TABLE, {"columns": {"x": ["f", "b"], "y": "f"}}),
    "wrong columns": (TABLE, {"columns": ["t", "u", "f"], "order": "C"}),
    "to a device": (TABLE, {"columns": ["f", "b"], "device": "cuda"}),
    "ragged": (pa.array([[1], [2, 3]]), {}),
    "index": (pd.DataFrame({"x": [1.0]}, index=pd.Index([5], name="i")), {}),
    "empty": (pa.table({}), {}),
}


def values(row: ad.ReportRow | None) -> Any:
    return row and [getattr(row, name) for name in NAMES]


def everything(report: ad.Report) -> Any:
    rows = [[values(row) for row in rows] for rows in (report.rows, report.matrices)]
    return rows, values(report.transfer), report.left_out, report.notes, report.bytes, str(report), report._repr_html_()


def echo(x: Any) -> Any:
    return x


@pytest.mark.parametrize("name", REPORTS)
def test_is_the_same(name):
    data, options = REPORTS[name]
    report = ad.explain(data, **options)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert everything(pickle.loads(pickle.dumps(report, protocol))) == everything(report)
    assert everything(copy.copy(report)) == everything(copy.deepcopy(report)) == everything(report)


def test_of_a_row():
    row = ad.explain(TABLE)["n"]
    assert values(pickle.loads(pickle.dumps(row))) == values(copy.copy(row)) == values(row)


def test_between_processes():
    report = ad.explain(TABLE)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert everything(pool.map(echo, [report])[0]) == everything(report)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((0, 2), "float33"),
        ((0, 2), 5),
        ((0, 3), (2**63,)),
        ((0, 3), None),
        ((0,), ("a", "b")),
        ((1,), "nowhere"),
        ((2, 4), -1),
        ((2, 0), None),
        ((3, 0), "abc"),
        ((3, 3), 1),
        ((4,), [("a", -1, "r", None)]),
        ((4,), None),
    ],
    ids=repr,
)
def test_of_other_values_is_an_error(place, value):
    rebuild, arguments = ad.explain(TABLE)["f"].__reduce__()

    def replaced(parts: Any, place: tuple[int, ...]) -> Any:
        parts = list(parts)
        parts[place[0]] = replaced(parts[place[0]], place[1:]) if len(place) > 1 else value
        return tuple(parts)

    assert values(rebuild(*arguments)) == values(ad.explain(TABLE)["f"])
    with pytest.raises((TypeError, ValueError, OverflowError)):
        rebuild(*replaced(arguments, place))


def test_rows_are_rows():
    rebuild, (_, *others) = ad.explain(TABLE).__reduce__()
    with pytest.raises(TypeError):
        rebuild([1], *others)
