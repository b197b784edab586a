"""`explain` of what is written to memory that is there, and of validity: it is true of results and copies."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import explain_cases
import numpy as np
import pyarrow as pa
import pytest
from explain_cases import Example

SEEDS = 1200
PART = 100


def attempt(work: Callable[[], Any]) -> tuple[Any, Any, Any]:
    """The result or the error, and the copies."""
    with ad.track_copies() as log:
        try:
            return work(), None, log
        except Exception as error:
            return None, error, log


def memory_for(random: random.Random, example: Example) -> Any:
    """Memory to write to: most often of the result's shape."""
    pick = random.randrange(8)
    try:
        made = ad.to_tensor(example.make(), **example.options | {"copy": True})
    except Exception:
        return np.zeros(random.choice([(2,), (3, 2)]), random.choice(["int32", "float64", "bool"]))
    if pick < 3 or made.dtype not in explain_cases.NUMBERS:
        return made
    dtype = random.choice(explain_cases.NUMBERS) if pick == 3 else made.dtype
    shape = list(made.shape)
    if pick == 4 and shape:
        shape[random.randrange(len(shape))] += 1
    if pick == 5 and shape:
        return np.zeros([shape[0] * 2, *shape[1:]], dtype)[::2]
    return np.zeros(shape, dtype, order=random.choice(["C", "F"]))


def check(outcomes: Any, report: Any, error: Any, log: Any, in_hand: bool) -> None:
    """A report says what was done, and why it was refused."""
    if error is not None:
        told = [row.error for row in outcomes if row.error]
        conditions = [condition for row in outcomes for condition in row.refused_if]
        # Of several reasons, one is told: that of the type first for streams, and of the data where it is at hand.
        if told:
            return
        assert not in_hand, f"{error!r}\n{report}"
        if isinstance(error, ad.NullError):
            assert "values are null" in conditions, f"{error!r}\n{report}"
        elif "different dictionaries" in str(error):
            assert "chunks have different dictionaries" in conditions, f"{error!r}\n{report}"
        else:
            assert "out has shape" in str(error) or "the list has" in str(error), f"{error!r}\n{report}"
        return
    least = most = 0
    for row in outcomes:
        assert row.error is None or not in_hand, row.error
        most += row.bytes
        is_bound = row.how == "view or copy" or any("if there are any" in step for step in row.steps)
        least += 0 if is_bound else row.bytes
    if in_hand:
        assert least <= log.bytes <= most, f"{log.entries}\n{report}"


def check_output(seed: int) -> None:
    example, choose = explain_cases.example(seed), random.Random(seed)
    if example.kind not in ("column", "matrix"):
        return
    options = {name: value for name, value in example.options.items() if name != "order"}
    out = memory_for(choose, example)
    explained = example.make() if example.schema is None else example.schema
    report, raised, log = attempt(lambda: ad.explain(explained, out=out, **options))
    assert len(log) == 0, "explain copies nothing"
    source = example.make()
    _, error, log = attempt(lambda: ad.to_tensor(source, out=out, **options))
    if raised is not None:
        assert (type(raised), str(raised)) == (type(error), str(error))
        return
    if not isinstance(error, ad.CastError):
        check(report.matrices or list(report), report, error, log, example.in_hand)


def check_validity(seed: int) -> None:
    example = explain_cases.example(seed)
    if example.kind not in ("column", "matrix"):
        return
    options = {name: value for name, value in example.options.items() if name in ("columns", "order", "length")}
    explained = example.make() if example.schema is None else example.schema
    report, raised, log = attempt(lambda: ad.explain(explained, validity=True, **options))
    assert len(log) == 0, "explain copies nothing"
    source = example.make()
    made, error, log = attempt(lambda: ad.validity(source, **options))
    if raised is not None:
        assert (type(raised), str(raised)) == (type(error), str(error))
        return
    [row] = report
    check([row], report, error, log, example.in_hand)
    if error is None and example.in_hand:
        assert (row.dtype, row.shape) == (made.dtype, made.shape)


@pytest.mark.parametrize("check_one", [check_output, check_validity])
@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_what_explain_says_is_what_is_done(first: int, check_one: Callable[[int], None]):
    for seed in range(first, first + PART):
        try:
            check_one(seed)
        except Exception as error:
            raise AssertionError(f"example({seed}): {explain_cases.example(seed)}: {error}") from error


def table() -> pa.Table:
    return pa.table({"a": pa.array([1, 2, 3], pa.int32()), "b": pa.array([0.5, 1.5, 2.5])})


def test_the_steps_are_those_of_the_log():
    column, out = pa.array([1, 2, 3], pa.int32()), np.zeros(3)
    [row] = ad.explain(column, out=out)
    assert (row.steps, row.bytes, row.how) == (["cast from int32 to float64", "written to out"], 24, "copy")
    with ad.track_copies() as log:
        ad.to_tensor(column, out=out)
    assert [entry.why for entry in log] == [", ".join(row.steps)]
    matrix = np.zeros((2, 3), "float32").T
    report = ad.explain(table(), out=matrix)
    with ad.track_copies() as log:
        ad.to_tensor(table(), out=matrix)
    assert [entry.why for entry in log] == [", ".join(report.matrices[0].steps)]
    assert (report.matrices[0].dtype, report.bytes) == ("float32", 24)
    assert report.matrices[0].promotion == "float32 as asked for"
    assert "packed column-major" in report.matrices[0].steps


def test_memory_that_does_not_fit_is_the_error_of_the_row():
    [row] = ad.explain(pa.array([1, 2, 3]), out=np.zeros(2))
    assert str(row.error).startswith("out has shape [2], and the result [3]")
    assert (row.how, row.bytes, row.steps) == ("refused", 0, [])
    [row] = ad.explain(pa.array([1, 2, 3]), out=np.zeros(3), copy=False)
    assert str(row.error).startswith("what is written to out is a copy")
    report = ad.explain(table(), out=np.zeros((3, 3)))
    assert report.matrices[0].how == "refused"
    own = np.arange(3)
    [row] = ad.explain(pa.array(own), out=own)
    assert "overlaps" in str(row.error)
    rows = np.arange(6.0).reshape(2, 3)
    source = pa.table({"a": pa.array(rows[0]), "b": pa.array(rows[1])})
    assert "overlaps" in str(ad.explain(source, out=rows.T).matrices[0].error)


def test_a_null_that_is_refused_comes_before_memory_that_does_not_fit():
    column, out = pa.array([1, None]), np.zeros(3)
    [row] = ad.explain(column, out=out)
    with pytest.raises(ad.NullError) as caught:
        ad.to_tensor(column, out=out)
    assert row.error == str(caught.value)


def test_options_of_columns_that_there_are_not_are_refused():
    for source, out in ((table(), np.zeros((3, 2))), (pa.array([1, 2, 3]), np.zeros(3))):
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_tensor(source, out=out, dtype={"nope": "float32"})
        with pytest.raises(ad.ConversionError, match=re.escape(str(caught.value))):
            ad.explain(source, out=out, dtype={"nope": "float32"})


@pytest.mark.parametrize(
    ("array", "out"),
    [
        (np.zeros(6, "c8")[::2], np.zeros(3, "c16")),
        (np.zeros(6, "c8")[::2], np.zeros((3, 2), "f4")),
        (np.arange(12, dtype="f4")[::2], np.zeros(11)),
        (np.arange(12, dtype="f4")[::2], np.zeros((6, 1))),
    ],
    ids=["dtype", "pairs", "rows", "dimensions"],
)
def test_memory_that_does_not_fit_a_strided_tensor(array: np.ndarray, out: np.ndarray):
    [row] = ad.explain(array, out=out)
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_tensor(array, out=out)
    assert row.error == str(caught.value)


def test_a_strided_tensor_is_gathered_first():
    array, out = np.arange(12, dtype="f4")[::2], np.zeros(6)
    [row] = ad.explain(array, out=out, copy=True)
    with ad.track_copies() as log:
        ad.to_tensor(array, out=out, copy=True)
    assert (row.bytes, row.refused_if) == (log.bytes, [])
    assert ", ".join(entry.why for entry in log) == ", ".join(row.steps)


def test_what_is_written_is_no_view_and_no_private_copy():
    empty = ad.explain(table().slice(0, 0), out=np.zeros((0, 2)))
    assert empty.matrices[0].how == "copy"
    for source in (table(), table().to_reader(), table().schema):
        for options in ({"copy": True}, {"writable": True}):
            report = ad.explain(source, out=np.zeros((3, 2)), **options)
            assert not any("of its own" in step for row in [*report, *report.matrices] for step in row.steps), report
    out = np.zeros(3)
    [row] = ad.explain(pa.array([1.0, 2.0, 3.0]), out=out, copy=True)
    with ad.track_copies() as log:
        ad.to_tensor(pa.array([1.0, 2.0, 3.0]), out=out, copy=True)
    assert row.steps == ["written to out"] == [entry.why for entry in log]


def test_nothing_is_sent_on_after_it_was_written():
    report = ad.explain(table(), out=np.zeros((3, 2)), device="cuda")
    assert report.matrices[0].how == "refused"
    assert not any("copied to" in step for row in report for step in row.steps)


def test_columns_that_a_tensor_has_not_are_refused():
    array = np.zeros(6, "f4")
    for options in ({"columns": ["a"]}, {"dtype": {"a": "float64"}}, {"nulls": {"a": 0}}):
        for of in (array, array[::2]):
            with pytest.raises(ad.ConversionError) as caught:
                ad.explain(of, **options)
            with pytest.raises(type(caught.value), match=re.escape(str(caught.value))):
                ad.to_tensor(of, **options)


def test_a_stream_and_a_type_are_told_too():
    [row] = ad.explain(pa.field("a", pa.int32()), out=np.zeros(3))
    assert row.steps == ["cast from int32 to float64", "written to out"]
    stream = ad.from_arrow(table())
    report = ad.explain(stream, out=np.zeros((3, 2)))
    assert report.matrices[0].steps[-1] == "packed row-major"
    assert ad.explain(stream, out=np.zeros((3, 4))).matrices[0].how == "refused"
    [row] = ad.explain(pa.field("a", pa.int32()), validity=True)
    assert (row.dtype, row.how) == ("bool", "copy")
    schema = pa.schema({"a": pa.float64(), "b": pa.float64()})
    for out, order in ((np.zeros((3, 2)), "row"), (np.zeros((2, 3)).T, "column")):
        report = ad.explain(schema, out=out)
        assert (report.matrices[0].how, report.matrices[0].steps) == ("copy", [f"packed {order}-major"])
        assert [row.how for row in report] == ["copy", "copy"]
    assert len(ad.to_tensor(stream)) == 3, "explain has read nothing of it"


def test_one_question_is_asked_at_a_time():
    column = pa.array([1, None])
    for pair in ({"validity": True, "out": np.zeros(2)}, {"validity": True, "pad": (0, 2)}):
        with pytest.raises(ValueError, match="one call at a time"):
            ad.explain(column, **pair)
    options = [
        {"dtype": "float32"},
        {"nulls": 0},
        {"copy": False},
        {"writable": True},
        {"categories": [1]},
        {"unknown": 0},
        {"decimal": "unscaled"},
        {"dictionary": "codes"},
        {"unit": "s"},
    ]
    for option in options:
        with pytest.raises(ValueError, match="columns, order, length and device alone"):
            ad.explain(column, validity=True, **option)
    [row] = ad.explain(column, validity=True)
    assert (row.shape, row.bytes, row.steps) == ((2,), 2, ["bits unpacked to bytes"])
    for question in ({"validity": True}, {"out": np.zeros((3, 1))}):
        with pytest.raises(TypeError, match="columns must be a list of names"):
            ad.explain(table(), columns={"x": ["a"]}, **question)
    with pytest.raises(TypeError, match="writable tensor"):
        ad.explain(column, out=object())


def test_a_matrix_that_may_not_be_copied_to_out_is_explained_with_its_rows():
    table, out = pa.table({"a": [1, 2], "b": [3, 4]}), np.zeros((2, 2), "float32")
    report = ad.explain(table, out=out, copy=False)
    assert [(row.column, row.shape, row.bytes) for row in report] == [("a", (2,), 8), ("b", (2,), 8)]
    [matrix] = report.matrices
    assert (matrix.how, matrix.shape) == ("refused", (2, 2))
