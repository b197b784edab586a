"""Rows that are in no batch: who converts them, when their errors are raised, and which iteration counts them."""

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import numbered, rows_of

PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])
ROWS = pa.table({"row": [0, 1, 2, 3, 4, None]})


@PREFETCH
class TestNulls:
    @pytest.mark.parametrize(
        ("options", "handed_out"),
        [
            ({"batch_size": 4, "drop_last": True}, [[0, 1, 2, 3]]),
            ({"batch_size": 2, "rank": 0, "world_size": 2}, [[0, 1]]),
        ],
        ids=["drop_last", "an incomplete round"],
    )
    def test_of_dropped_rows_are_raised_after_the_last_batch(
        self, options: dict[str, Any], handed_out: list[list[int]], prefetch: int
    ):
        loader = ad.Loader(ROWS, prefetch=prefetch, **options)
        iterator = iter(loader)
        assert [rows_of(next(iterator)) for _ in handed_out] == handed_out
        with pytest.raises(ad.NullError) as caught:
            next(iterator)
        assert (caught.value.column, caught.value.row) == ("row", 5)
        assert list(iterator) == []
        # The epoch has not come to its end.
        assert (loader.epoch, loader.state_dict()["taken"], loader.left_out) == (0, [4], None)

    def test_of_an_incomplete_round_are_no_error_of_a_rank_without_the_batch(self, prefetch: int):
        loader = ad.Loader(ROWS, batch_size=2, rank=1, world_size=2, prefetch=prefetch)
        assert [rows_of(batch) for batch in loader] == [[2, 3]]
        assert (loader.epoch, loader.left_out) == (1, 2)

    @pytest.mark.parametrize("readers", [1, 2])
    def test_of_several_lanes_are_not_read(self, prefetch: int, readers: int):
        options = {"lanes": 2, "batch_size": 2, "drop_last": True, "prefetch": prefetch, "readers": readers}
        loader = ad.Loader(sources=[ROWS], **options)
        assert [rows_of(batch) for batch in loader] == [[0, 1], [3, 4]]
        assert loader.left_out == 2

    def test_with_a_shuffle_are_raised_with_the_batch_for_which_they_are_read(self, prefetch: int):
        options = {"batch_size": 2, "shuffle_buffer": 3, "seed": 0, "drop_last": True, "prefetch": prefetch}
        iterator = iter(ad.Loader(ROWS.slice(1), **options))
        # Rows 1 to 4 of the 5 fill the buffer and make the first row of the first batch.
        with pytest.raises(ad.NullError) as caught:
            next(iterator)
        assert caught.value.row == 4

    @pytest.mark.parametrize("group", [ad.padded("l"), ad.ragged("l")], ids=["padded", "ragged"])
    def test_of_padded_and_ragged_rows_are_those_of_their_batch(self, group: Any, prefetch: int):
        table = pa.table({"l": [[1], [2], [3], [4], [5], None]})
        options = {"batch_size": 4, "columns": {"l": group}, "prefetch": prefetch}
        assert len(list(ad.Loader(table, drop_last=True, **options))) == 1
        iterator = iter(ad.Loader(table, **options))
        next(iterator)
        with pytest.raises(ad.NullError) as caught:
            next(iterator)
        assert caught.value.row == 5


class TestLeftOut:
    """Of two iterations of one loader the later one alone counts, as in its state."""

    def test_of_an_iteration_that_another_followed_is_not_counted(self):
        loader = ad.Loader(numbered(10), batch_size=4, drop_last=True)
        first, second = iter(loader), iter(loader)
        assert len(list(first)) == 2
        assert (loader.epoch, loader.left_out) == (1, None)
        assert len(list(second)) == 2
        assert (loader.epoch, loader.left_out) == (2, 2)

    def test_that_ends_after_the_later_one_changes_nothing(self):
        sizes = iter([11, 10])
        loader = ad.Loader(lambda: numbered(next(sizes)), batch_size=4, drop_last=True)
        first, second = iter(loader), iter(loader)
        assert len(list(second)) == 2
        found = (loader.epoch, loader.left_out, loader.state_dict())
        assert found[:2] == (2, 2)
        assert len(list(first)) == 2
        assert (loader.epoch, loader.left_out, loader.state_dict()) == found

    @pytest.mark.parametrize("change", ["set_epoch", "load_state_dict"])
    def test_after_a_change_of_place_an_older_iteration_does_not_count(self, change: str):
        loader = ad.Loader(numbered(10), batch_size=4, drop_last=True)
        state = loader.state_dict()
        iterator = iter(loader)
        next(iterator)
        if change == "set_epoch":
            loader.set_epoch(3)
        else:
            loader.load_state_dict(state)
        assert len(list(iterator)) == 1
        assert (loader.epoch, loader.left_out) == (3 if change == "set_epoch" else 0, None)

    def test_of_the_epoch_before_stays_until_the_next_one_ends(self):
        sizes = iter([10, 11])
        loader = ad.Loader(lambda: numbered(next(sizes)), batch_size=4, drop_last=True)
        assert len(list(loader)) == 2
        iterator = iter(loader)
        assert loader.left_out == 2
        assert len(list(iterator)) == 2
        assert loader.left_out == 3


class TestAnIterationWithoutABatch:
    """It is the epoch that it began, though nobody asked it for a batch."""

    @PREFETCH
    def test_counts_as_an_epoch_and_its_state_is_the_start_of_it(self, prefetch: int):
        loader = ad.Loader(numbered(20), batch_size=4, shuffle_buffer=20, seed=1, prefetch=prefetch)
        expected = [[rows_of(batch) for batch in loader] for _ in range(3)]
        loader.set_epoch(0)
        iterator = iter(loader)
        state = loader.state_dict()
        assert (loader.epoch, state["epoch"], state["taken"]) == (0, 0, [0])
        del iterator
        # The state did not change by that: it starts epoch 0, and this loader goes on with the next one.
        assert loader.state_dict() == state
        other = ad.Loader(numbered(20), batch_size=4, shuffle_buffer=20, seed=1)
        other.load_state_dict(state)
        assert [rows_of(batch) for batch in other] == expected[0]
        assert [rows_of(batch) for batch in loader] == expected[1]
        assert [rows_of(batch) for batch in loader] == expected[2]

    @PREFETCH
    def test_uses_up_a_loaded_state_that_its_own_state_repeats(self, prefetch: int):
        options = {"batch_size": 4, "shuffle_buffer": 9, "seed": 1, "prefetch": prefetch}
        whole = ad.Loader(numbered(20), **options)
        expected = [[rows_of(batch) for batch in whole] for _ in range(2)]
        whole.set_epoch(0)
        iterator = iter(whole)
        next(iterator)
        state = whole.state_dict()
        loader = ad.Loader(numbered(20), **options)
        loader.load_state_dict(state)
        iter(loader)
        again = loader.state_dict()
        assert [again[name] for name in ("epoch", "taken", "hashes")] == [0, [4], state["hashes"]]
        # The iteration after it is of the next epoch, and the state goes on with the rest of this one.
        assert [rows_of(batch) for batch in loader] == expected[1]
        loader.load_state_dict(again)
        assert [rows_of(batch) for batch in loader] == expected[0][1:]

    def test_that_could_not_begin_is_none(self):
        tables: list[Any] = [OSError("not today"), numbered(5), numbered(5)]

        def opened() -> pa.Table:
            found = tables.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        loader = ad.Loader(opened, batch_size=5, shuffle_buffer=5, seed=1)
        state = loader.state_dict()
        with pytest.raises(OSError, match="not today"):
            iter(loader)
        assert (loader.epoch, loader.state_dict()) == (0, state)
        found = [np.from_dlpack(batch)[:, 0].tolist() for batch in loader]
        same = ad.Loader(numbered(5), batch_size=5, shuffle_buffer=5, seed=1)
        assert found == [rows_of(batch) for batch in same]
