"""States of workers, and states that workers go on from: the same batches, and the same end of the epoch."""

from __future__ import annotations

import itertools
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest


def loader(rows: int, lanes: int, batch_size: int, worker: tuple[int, int] = (0, 1), **options: Any) -> ad.Loader[Any]:
    source = (pa.table({"a": range(rows)}), rows)
    options = {"columns": {"a": "a"}, "xp": np, "prefetch": 0, **options}
    return ad.Loader(sources=[source], lanes=lanes, batch_size=batch_size, worker=worker, **options)


def taken(batches: ad.Loader[Any], count: int | None = None) -> list[list[int]]:
    return [batch["a"].tolist() for batch in itertools.islice(batches, count)]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("lanes", "workers"), [(2, 2), (3, 3), (4, 2), (6, 3)])
def test_workers_end_where_one_loader_ends(lanes: int, workers: int, drop_last: bool) -> None:
    for rows, batch_size in itertools.product((6, 7, 13, 17), (1, 2, 3)):
        arguments = (rows, lanes, batch_size)
        whole = taken(loader(*arguments, drop_last=drop_last))
        for before in range(len(whole)):
            one = loader(*arguments, drop_last=drop_last)
            iterator = iter(one)
            for _ in range(before):
                next(iterator)
            state = one.state_dict()
            for number in range(workers):
                expected = whole[before + number :: workers]
                for made in range(len(expected)):
                    worker = loader(*arguments, (number, workers), drop_last=drop_last)
                    worker.load_state_dict(state)
                    batches = iter(worker)
                    assert [next(batches)["a"].tolist() for _ in range(made)] == expected[:made]
                    again = loader(*arguments, (number, workers), drop_last=drop_last)
                    again.load_state_dict(worker.state_dict())
                    assert taken(again) == expected[made:], (arguments, before, number, made)


def test_a_worker_goes_on_where_its_rank_has_no_more_batches_of_others() -> None:
    one = loader(7, 2, 2, drop_last=True)
    next(iter(one))
    first = loader(7, 2, 2, (0, 2), drop_last=True)
    first.load_state_dict(one.state_dict())
    assert next(iter(first))["a"].tolist() == [3, 4]
    state = first.state_dict()
    assert (state["taken"], state["next_lane"], state["of_others"]) == ([4, 2], 1, 1)
    again = loader(7, 2, 2, (0, 2), drop_last=True)
    again.load_state_dict(state)
    assert (taken(again), again.left_out) == ([], 3)


def test_a_larger_batch_before_is_no_end() -> None:
    one = loader(6, 3, 3)
    next(iter(one))
    small = loader(6, 3, 1)
    small.load_state_dict(one.state_dict())
    assert next(iter(small))["a"].tolist() == [2]
    state = small.state_dict()
    assert "of_others" not in state
    for number, expected in enumerate([[[4]], [], []]):
        worker = loader(6, 3, 1, (number, 3))
        worker.load_state_dict(state)
        assert (taken(worker), worker.left_out) == (expected, 2)


def test_a_state_that_kept_short_batches_goes_on_where_they_are_dropped() -> None:
    # Lanes of 3, 3, 4, 3, 3 and 4 rows: batch 7, which the other worker made, is the second one of lane 1, of one row.
    arguments = (20, 6, 2, (0, 2))
    first = loader(*arguments)
    assert taken(first, 4) == [[0, 1], [6, 7], [13, 14], [2]]
    state = first.state_dict()
    assert (state["of_others"], state["drop_last"]) == (1, False)
    for drop_last, expected in [(False, [[8, 9], [15]]), (True, [[8, 9]])]:
        again = loader(*arguments, drop_last=drop_last)
        again.load_state_dict(state)
        assert taken(again) == expected
    # A state of an earlier version does not tell, and is taken for one of the loader's own drop_last.
    del state["drop_last"]
    again = loader(*arguments, drop_last=True)
    again.load_state_dict(state)
    assert taken(again) == []


def test_a_state_that_dropped_short_batches_goes_on_where_they_are_kept() -> None:
    arguments = (20, 6, 2, (0, 2))
    first = loader(*arguments, drop_last=True)
    assert taken(first, 3) == [[0, 1], [6, 7], [13, 14]]
    again = loader(*arguments)
    again.load_state_dict(first.state_dict())
    assert taken(again) == [[2], [8, 9], [15]]


@pytest.mark.parametrize("wrong", [1, "no", None])
def test_whether_batches_are_dropped_is_a_bool(wrong: object) -> None:
    first = loader(7, 2, 2, (0, 2))
    next(iter(first))
    state = {**first.state_dict(), "drop_last": wrong}
    with pytest.raises(ValueError, match="drop_last"):
        loader(7, 2, 2, (0, 2)).load_state_dict(state)
