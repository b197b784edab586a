"""The names in a `repr` are written with Python's escapes, and lead back to the names."""

import ast

import arrow_dlpack as ad
import pyarrow as pa
import pytest

NAMES = ["a", "a'b", 'a"b', "a\\b", "\n\t\r", "\x7f", "\x07\x1b", "\xad", "\u200b", "\U000e0001", r"\u{7f}", "é", "😀"]
named = pytest.mark.parametrize("name", NAMES, ids=ascii)


def literal(text: str, start: str) -> str:
    """The string literal after `start`: the shortest text that Python reads as one."""
    rest = text[text.index(start) + len(start) :]
    ends = [end + 1 for end, character in enumerate(rest) if character == rest[0] and end > 0]
    for end in ends:
        try:
            return ast.literal_eval(rest[:end])
        except SyntaxError:
            continue
    raise AssertionError(text)


@named
def test_of_groups(name: str):
    groups = [ad.group([name], validity=name), ad.group(name, dtype="int8"), ad.arrow(name), ad.ragged(name)]
    for group in groups:
        assert eval(repr(group), {"group": ad.group, "arrow": ad.arrow, "ragged": ad.ragged}) == group


@named
def test_of_types(name: str):
    struct = pa.array([{name: 1}])
    batch = pa.record_batch({"s": struct})
    lists = pa.array([[{name: 1}]])
    for shown in [ad.from_arrow(lists), next(iter(ad.from_arrow(batch.to_struct_array()))), ad.from_arrow(batch)]:
        assert literal(repr(shown), "Struct(") == name
    assert literal(repr(ad.from_arrow(pa.table(batch))), '"s": Struct(') == name
    runs = pa.array([[{name: [1]}]])
    assert literal(repr(ad.from_arrow(runs)), "Struct(") == name


@named
def test_of_columns(name: str):
    batch = pa.record_batch({name: [1]})
    assert literal(repr(ad.explain(batch).rows[0]), "ReportRow(") == name
    shown = repr(ad.from_arrow(batch))
    start = "RecordBatch(1 row, device=cpu; "
    plain = f"{start}{name}: Int64)"
    assert shown == plain if name.isprintable() else literal(shown, start) == name


@named
def test_of_an_array(name: str):
    column = ad.from_arrow(pa.record_batch({name: [1]}))[name]
    assert literal(repr(column), "Array(") == name
