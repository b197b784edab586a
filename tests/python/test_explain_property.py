"""`explain` is true: what it says of any data under any options is what the conversion does and what the log tells."""

from __future__ import annotations

import re
from typing import Any

import arrow_dlpack as ad
import explain_cases
import pytest
from explain_cases import Example


def converted(example: Example, source: Any, **options: Any) -> dict[str, Any]:
    """What the conversion gives, by the names of the report's rows."""
    if example.kind == "ragged":
        made = ad.to_ragged(source, **options)
        return dict(zip(["values", "validity"], made, strict=True)) if "pad" in options else parts("", made)
    if example.kind in ("column", "matrix"):
        return {"": ad.to_tensor(source, **options)}
    return ad.to_tensors(source, **options)


def parts(path: str, ragged: Any) -> dict[str, Any]:
    names = ["offsets", "lengths", "shapes", "validity", "values"]
    found: dict[str, Any] = {}
    for name in names:
        part = getattr(ragged, name)
        if isinstance(part, ad.Ragged):
            found |= parts(f"{path}{name}.", part)
        elif part is not None:
            found[path + name] = part
    return found


def attempt(work: Any) -> tuple[Any, Any, Any]:
    """The result or the error, and the copies."""
    with ad.track_copies() as log:
        try:
            return work(), None, log
        except Exception as error:
            return None, error, log


def check(example: Example) -> None:
    source = example.make()
    explained = source if example.schema is None else example.schema
    report, raised, log = attempt(lambda: ad.explain(explained, **example.options))
    assert len(log) == 0, "explain copies nothing"
    results, error, log = attempt(lambda: converted(example, source, **example.options))
    if raised is not None:
        assert error is not None, f"explain raised {raised!r}, and the conversion did not"
        assert (type(raised), str(raised)) == (type(error), str(error))
        return
    outcomes = report.matrices if example.kind == "matrix" else outcomes_of(example, report)
    if isinstance(error, ad.CastError):
        return
    if error is not None:
        check_refusal(example, outcomes, error)
        return
    assert len(outcomes) == len(results)
    least = most = 0
    for row, (name, tensor) in zip(outcomes, results.items(), strict=True):
        assert example.kind in ("column", "matrix") or row.column == name
        check_row(example, row, tensor)
        most += row.bytes
        # What only values decide.
        is_bound = row.how == "view or copy" or any("if there are any" in step for step in row.steps)
        least += 0 if is_bound else row.bytes
    if example.in_hand:
        assert least <= log.bytes <= most, f"{log.entries} and {[(row.bytes, row.how) for row in outcomes]}"
        assert report.bytes == most


def outcomes_of(example: Example, report: ad.Report) -> list[Any]:
    """The rows that stand for a result."""
    if example.kind != "groups":
        return list(report)
    outcomes = []
    for name, group in example.options["columns"].items():
        outcomes.append(report[name])
        if isinstance(group, ad.Group) and group.validity is not None:
            outcomes.append(report[group.validity])
    return outcomes


def reasons(*errors: str | None) -> set[str]:
    """What is wrong, whatever column it is wrong with: an error tells it for all columns that have it."""
    lines = [line for error in errors if error for line in error.split("\n")]
    return {re.sub(r'^columns? "\w"(, "\w")*: ', "", line) for line in lines}


def check_refusal(example: Example, outcomes: list[Any], error: Exception) -> None:
    """A row says the error, or that data may hold what leads to it."""
    errors = [row.error for row in outcomes]
    conditions = [condition for row in outcomes for condition in row.refused_if]
    if reasons(str(error)) <= reasons(*errors):
        return
    if isinstance(error, ad.CopyError) and "bytes above 1" in str(error):
        assert "bytes are above 1" in conditions
        return
    assert not example.in_hand, f"{error!r} and {errors}"
    if isinstance(error, ad.NullError):
        assert "values are null" in conditions, f"{error!r} and {conditions}"
    elif "different dictionaries" in str(error):
        assert "chunks have different dictionaries" in conditions
    elif "and is padded to" in str(error):
        assert any(said.startswith("rows have more than") for said in conditions), f"{error!r} and {conditions}"
    else:
        assert isinstance(error, ad.CopyError), f"{error!r} and {errors}"
        others = set(conditions) - {"values are null", "chunks have different dictionaries"}
        assert others or any("a copy is needed" in said for said in errors if said)


def check_row(example: Example, row: Any, tensor: Any) -> None:
    if row.error is not None:
        assert not example.in_hand, row.error
        assert "a copy is needed of any rows" in row.error
        assert is_of_no_rows(row, tensor)
        return
    assert row.dtype == tensor.dtype
    if example.in_hand:
        assert row.shape == tensor.shape
    else:
        assert len(row.shape) == len(tensor.shape)
        assert all(said in (None, found) for said, found in zip(row.shape, tensor.shape, strict=True))
    assert str(row.device) == str(tensor.device)
    assert row.view == (row.how == "view") == (not row.steps)
    copied = tensor.copied
    if row.how == "view":
        assert not copied or is_of_no_rows(row, tensor)
    elif row.how == "copy":
        assert copied or is_of_no_rows(row, tensor)


def is_of_no_rows(row: Any, tensor: Any) -> bool:
    """Whether there is nothing to view or to copy: the offsets of no rows are one zero."""
    return tensor.size == 0 or (row.column.endswith("offsets") and tensor.size == 1)


SEEDS = 2000
PART = 100


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_what_explain_says_is_what_is_done(first: int):
    for seed in range(first, first + PART):
        example = explain_cases.example(seed)
        try:
            check(example)
        except Exception as error:
            raise AssertionError(f"example({seed}): {example}: {error}") from error
