"""What notebooks show: well-formed tables of what the text says, in which names from data are text and no markup."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

HOSTILE = "<b>&\"'</td><script>alert(1)</script>&lt;"


class Page(HTMLParser):
    """Collects the text of cells and paragraphs, and fails on what is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.paragraphs: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[Any]) -> None:
        assert not attrs
        self.open.append(tag)
        self.tags.add(tag)
        self.text = ""
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.rows[-1].append(self.text)
        elif tag == "p":
            self.paragraphs.append(self.text)

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)


def page(x: Any) -> Page:
    found = Page(x._repr_html_())
    assert found.tags <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}
    return found


def attributes(x: Any) -> dict[str, str]:
    return dict(page(x).rows)


def as_text(found: Page) -> str:
    """The table as `print` shows it."""
    widths = [max(map(len, column)) for column in zip(*found.rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in found.rows]
    return "\n".join([line.rstrip() for line in lines] + found.paragraphs[1:])


def several() -> pa.Table:
    return pa.table(
        {
            HOSTILE: pa.array([1, None, 3]),
            "a'b": pa.array(["x", "y", "z"]),
            "l": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float64(), 2)),
            "s": pa.array([{HOSTILE: 1}] * 3),
            "f": pa.array([1.0, 2.0, 3.0]),
        }
    )


class TestReport:
    @pytest.mark.parametrize(
        ("data", "options"),
        [
            (several(), {}),
            (several().schema, {}),
            (several(), {"columns": ["f"], "order": "C"}),
            (several(), {"columns": {HOSTILE: ["f"], "y": "f"}}),
            (several(), {"columns": [HOSTILE, "f"], "order": "F"}),
            (several(), {"columns": ["f"], "device": "cuda"}),
            (pa.schema([pa.field("n", pa.int64())]), {"dtype": "int8"}),
            (pa.array([[1], [2, 3]]), {}),
            (pa.table({}), {}),
            (pd.DataFrame({"x": [1.0]}, index=pd.Index([5], name=HOSTILE)), {}),
        ],
        ids=["refused", "schema", "matrix", "groups", "no matrix", "device", "refused if", "ragged", "none", "index"],
    )
    def test_is_the_text(self, data, options):
        report = ad.explain(data, **options)
        assert as_text(page(report)) == str(report) == repr(report)

    def test_names_are_escaped(self):
        assert page(ad.explain(several())).rows[1][0] == HOSTILE

    def test_notes_and_what_is_left_out_are_there(self):
        frame = pd.DataFrame({"x": [1.0]}, index=pd.Index([5], name=HOSTILE))
        assert HOSTILE in page(ad.explain(frame)).paragraphs[1]


class TestCopyLog:
    def test_has_every_copy_and_the_total(self):
        with ad.track_copies() as log:
            ad.to_tensors(pa.table({HOSTILE: pa.array([1, 2]), "y": [1.0, 2.0]}), copy=True)
        found = page(log)
        assert found.rows[0] == ["what", "why", "bytes"]
        assert found.rows[1:] == [[entry.what, entry.why, str(entry.bytes)] for entry in log]
        assert "</td><script>alert(1)</script>&lt;" in found.rows[1][0]
        assert found.paragraphs == [repr(log)]
        assert f"{log.bytes} bytes" in repr(log)

    def test_of_no_copy(self):
        found = page(ad.track_copies())
        assert found.rows == [["what", "why", "bytes"]]
        assert found.paragraphs == ["CopyLog(0 copies, 0 bytes)"]

    @pytest.mark.parametrize("copies", [100, 101, 250])
    def test_of_many_copies_the_first_ones(self, copies):
        array = pa.array([1, 2])
        with ad.track_copies() as log:
            for _ in range(copies):
                ad.to_tensor(array, copy=True)
        found = page(log)
        assert len(found.rows) == 101
        assert found.paragraphs[0] == repr(log) == f"CopyLog({copies} copies, {log.bytes} bytes)"
        more = [] if copies == 100 else [f"and {copies - 100} more: print(log) shows all"]
        assert found.paragraphs[1:] == more


class TestTensor:
    @pytest.mark.parametrize(
        "array",
        [
            np.array(1.5),
            np.empty((0, 3), np.int8),
            np.arange(3, dtype=np.uint16),
            np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            np.arange(6.0)[::-1],
        ],
        ids=["0-d", "empty", "1-d", "F", "reversed"],
    )
    def test_has_the_attributes(self, array):
        tensor = ad.from_dlpack(array)
        names = ("dtype", "shape", "strides", "device", "nbytes", "writable", "copied")
        assert attributes(tensor) == {name: str(getattr(tensor, name)) for name in names} | {"device": "cpu"}

    def test_has_the_field(self):
        batch = pa.record_batch({HOSTILE: pa.array([1, 2], pa.int16())})
        assert attributes(ad.to_tensors(batch)[HOSTILE])["from"] == f"{HOSTILE}: Int16"
        found = attributes(ad.to_tensor(pa.array([1, 2], pa.int16())))
        assert (found["from"], found["writable"]) == ("Int16", "False")

    def test_reads_no_element(self):
        # Elements of another library's memory may change while they are read, and a device has to be asked for them.
        assert "12345" not in ad.from_dlpack(np.array([12345.0]))._repr_html_()


class TestRecordBatch:
    def test_has_the_columns_and_the_rows(self):
        batch = pa.record_batch(
            [pa.array([1, 2]), pa.array(["x", None])],
            schema=pa.schema([pa.field(HOSTILE, pa.int64(), nullable=False), pa.field("s", pa.string())]),
        )
        found = page(ad.from_arrow(batch))
        assert found.rows == [["column", "type", "nullable"], [HOSTILE, "Int64", "False"], ["s", "Utf8", "True"]]
        assert found.paragraphs == ["RecordBatch(2 rows, 2 columns, device=cpu)"]

    def test_without_columns(self):
        assert page(ad.from_arrow(pa.record_batch({}))).rows == [["column", "type", "nullable"]]

    def test_types_are_those_of_the_text(self):
        batch = ad.from_arrow(several().to_batches()[0])
        text = repr(batch)
        for name, kind, _ in page(batch).rows[1:]:
            assert f"{name}: {kind}" in text


class TestRagged:
    def test_has_rows_dtypes_and_bytes(self):
        ragged = ad.to_ragged(pa.array([[1, 2], None, [3]], pa.list_(pa.int16())), nulls="keep")
        assert attributes(ragged) == {
            "rows": "3",
            "values": "int16 (3,)",
            "offsets": "int32 (4,)",
            "validity": "bool (3,)",
            "device": "cpu",
            "bytes": str(3 * 2 + 4 * 4 + 3),
            "from": str(ragged).partition("from ")[2].removesuffix(")"),
        }

    def test_of_nested_lists(self):
        ragged = ad.to_ragged(pa.array([[[1], [2, 3]], [[4]]], pa.list_(pa.list_(pa.int8()))))
        found = attributes(ragged)
        assert (found["rows"], found["values"]) == ("2", "3 rows of int8 (4,)")
        assert found["bytes"] == str(4 + 4 * 4 + 3 * 4)

    def test_of_list_views_and_tensors(self):
        views = ad.Ragged(np.arange(4), np.array([0, 1]), lengths=np.array([2, 1]))
        assert attributes(views)["lengths"] == "int64 (2,)"
        shaped = ad.Ragged(np.arange(6), np.array([0, 2, 6], np.int32), shapes=np.array([[1, 2], [2, 2]], np.int32))
        assert attributes(shaped)["shapes"] == "int32 (2, 2)"
