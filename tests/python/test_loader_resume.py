"""A state that was taken after any batch gives the batches after it, and nothing else takes it."""

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import batches, numbered, rows_of

ROWS = 45


def loader(source: Any = None, **options: Any) -> ad.Loader:
    return ad.Loader(numbered(ROWS, 7) if source is None else source, **{"batch_size": 4, **options})


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("options", [{}, {"shuffle_buffer": 10}, {"shuffle_buffer": 100, "drop_last": True}], ids=str)
def test_after_every_batch(options: dict, prefetch: int):
    whole = loader(prefetch=prefetch, **options)
    seed = whole.state_dict()["seed"]
    for epoch in range(2):
        expected = batches(ROWS, 4, seed=seed, epoch=epoch, **options)
        states = [whole.state_dict()]
        iterator = iter(whole)
        for batch in expected:
            assert rows_of(next(iterator)) == batch
            states.append(whole.state_dict())
        for done, state in enumerate(states):
            assert state["epoch"] == epoch
            assert state["taken"] == [4 * done]
            resumed = loader(prefetch=2 - prefetch // 2, **options)
            resumed.load_state_dict(json.loads(json.dumps(state)))
            assert resumed.state_dict() == state
            assert [rows_of(batch) for batch in resumed] == expected[done:]
            # And the epoch after.
            after = batches(ROWS, 4, seed=seed, epoch=epoch + 1, **options)
            assert [rows_of(batch) for batch in resumed] == after
        assert next(iterator, None) is None


def test_at_the_end_of_an_epoch_the_state_is_the_start_of_the_next():
    whole = loader(shuffle_buffer=10, seed=1)
    assert len(list(whole)) == 12
    state = whole.state_dict()
    assert (state["epoch"], state["taken"]) == (1, [0])
    resumed = loader(shuffle_buffer=10)
    resumed.load_state_dict(state)
    expected = batches(ROWS, 4, shuffle_buffer=10, seed=1, epoch=1)
    assert [rows_of(batch) for batch in resumed] == expected


def test_what_is_prefetched_is_not_handed_out():
    whole = loader(prefetch=8)
    iterator = iter(whole)
    next(iterator)
    assert whole.state_dict()["taken"] == [4]
    iterator.close()
    assert whole.state_dict()["taken"] == [4]


def test_the_ranks_share_a_state():
    options = {"shuffle_buffer": 9, "seed": 3, "world_size": 2}
    first = loader(rank=0, **options)
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    for rank in range(2):
        resumed = loader(rank=rank, **options)
        resumed.load_state_dict(first.state_dict())
        assert [rows_of(batch) for batch in resumed] == batches(ROWS, 4, rank=rank, **options)[3:]


def test_the_length_is_that_of_a_whole_epoch():
    whole = loader()
    iterator = iter(whole)
    next(iterator)
    resumed = loader()
    resumed.load_state_dict(whole.state_dict())
    count = len(batches(ROWS, 4))
    assert [len(whole), len(resumed)] == [count, count]
    assert len(list(resumed)) == count - 1
    shards = ad.Loader(sources=[numbered(9), numbered(9)], lanes=2, batch_size=4)
    next(iter(shards))
    shards.load_state_dict(shards.state_dict())
    assert (len(shards), len(list(shards)), len(list(shards))) == (6, 5, 6)


def test_into_the_same_loader():
    whole = loader(shuffle_buffer=10, seed=1)
    iterator = iter(whole)
    next(iterator)
    state = whole.state_dict()
    next(iterator)
    whole.load_state_dict(state)
    # The iteration that was there goes on, and does not count any more.
    next(iterator)
    assert whole.state_dict() == state
    expected = batches(ROWS, 4, shuffle_buffer=10, seed=1)
    assert [rows_of(batch) for batch in whole] == expected[1:]


def test_the_latest_iteration_counts():
    whole = loader()
    first, second = iter(whole), iter(whole)
    next(first)
    next(second)
    next(first)
    assert (whole.state_dict()["epoch"], whole.state_dict()["taken"]) == (1, [4])


def test_setting_the_epoch_of_a_state_keeps_it():
    whole = loader(shuffle_buffer=10, seed=1)
    iterator = iter(whole)
    next(iterator)
    state = whole.state_dict()
    resumed = loader(shuffle_buffer=10)
    resumed.load_state_dict(state)
    # As a loop that sets each epoch does.
    resumed.set_epoch(state["epoch"])
    assert rows_of(next(iter(resumed))) == batches(ROWS, 4, shuffle_buffer=10, seed=1)[1]
    other = loader(shuffle_buffer=10)
    other.load_state_dict(state)
    other.set_epoch(3)
    assert rows_of(next(iter(other))) == batches(ROWS, 4, shuffle_buffer=10, seed=1, epoch=3)[0]


def test_a_batch_that_could_not_be_handed_out_does_not_count():
    class Broken:
        calls = 0

        @classmethod
        def from_dlpack(cls, tensor: Any) -> Any:
            cls.calls += 1
            if cls.calls == 2:
                raise RuntimeError("no array today")
            return tensor

    whole = loader(xp=Broken)
    iterator = iter(whole)
    next(iterator)
    with pytest.raises(RuntimeError, match="no array today"):
        next(iterator)
    # The one after it must not pass for it.
    assert list(iterator) == []
    state = whole.state_dict()
    assert (state["epoch"], state["taken"]) == (0, [4])
    resumed = loader()
    resumed.load_state_dict(state)
    assert rows_of(next(iter(resumed))) == batches(ROWS, 4)[1]


class Endless(list):
    """A list that tells a length which it has not."""

    def __len__(self) -> int:
        return 2**62


class Claims(Sequence):
    """As `Endless`, of a class of its own."""

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, index: int) -> int:
        return 0


class TestRefused:
    STATE = loader(shuffle_buffer=10, seed=1).state_dict()

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"shuffle_buffer": 11}, "shuffle_buffer 10, and the loader 11"),
            ({"seed": 2}, "seed"),
            ({"source": numbered(ROWS + 1)}, "rows"),
        ],
    )
    def test_other_options(self, options: dict, named: str):
        other = loader(**{"shuffle_buffer": 10, **options})
        before = other.state_dict()
        with pytest.raises(ValueError, match=named):
            other.load_state_dict(self.STATE)
        assert other.state_dict() == before
        assert len(list(other)) > 0

    def test_without_the_shuffle(self):
        with pytest.raises(ValueError, match="shuffle_buffer"):
            loader().load_state_dict(self.STATE)

    def test_another_source_by_its_columns(self):
        whole = loader(lambda: numbered(ROWS))
        next(iter(whole))
        other = loader(lambda: pa.table({"line": [1, 2]}))
        other.load_state_dict(whole.state_dict())
        with pytest.raises(ad.ConversionError, match="columns"):
            iter(other)

    def test_another_source_by_its_length(self):
        whole = loader(lambda: numbered(ROWS))
        iterator = iter(whole)
        for _ in range(5):
            next(iterator)
        state = whole.state_dict()
        without_hashes = {**state, "hashes": []}
        for rows, fits in [(20, True), (17, True), (16, False), (0, False)]:
            for known, error in [(state, f"has {rows} rows, and had more"), (without_hashes, f"row 20 .* has {rows}")]:
                other = loader(lambda rows=rows: numbered(rows))
                other.load_state_dict(known)
                if fits:
                    assert list(other) == []
                else:
                    with pytest.raises(ad.ConversionError, match=error):
                        list(other)

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 0},
            {"version": 3},
            {"version": "1"},
            {"version": 1},
            {"epoch": -1},
            {"epoch": None},
            {"taken": "three"},
            {"taken": [-1]},
            {"taken": [2**64]},
            {"taken": [0, 0]},
            {"taken": []},
            {"taken": 4},
            {"next_lane": 1},
            {"hashes": [[0, 1]]},
            {"hashes": [[0, 1, 2**64]]},
            {"hashes": 5},
            {"hashes": [5]},
            {"conversion": -1},
            {"batch_size": 0},
            {"seed": 2**64},
            {"seed": None},
            {"columns": 3},
            {"batch_size": 4.5},
        ],
        ids=str,
    )
    def test_what_is_no_state(self, change: dict):
        with pytest.raises(ValueError, match=r"state|lane"):
            loader(shuffle_buffer=10).load_state_dict({**self.STATE, **change})

    @pytest.mark.parametrize("key", sorted(STATE))
    def test_what_lacks_something(self, key: str):
        state = {name: value for name, value in self.STATE.items() if name != key}
        with pytest.raises(ValueError, match=key):
            loader(shuffle_buffer=10).load_state_dict(state)

    def test_what_is_no_dict(self):
        with pytest.raises(TypeError):
            loader().load_state_dict([1])

    @pytest.mark.parametrize("key", ["taken", "hashes", "shards", "columns"])
    @pytest.mark.parametrize("value", [range(10**12), Claims()], ids=["range", "claims"])
    def test_the_length_that_a_sequence_claims_is_not_allocated(self, key: str, value: Sequence):
        with pytest.raises(ValueError, match=f'the state\'s "{key}" cannot be'):
            loader(shuffle_buffer=10).load_state_dict({**self.STATE, key: value})

    def test_a_list_has_the_items_that_it_holds(self):
        other = loader(shuffle_buffer=10)
        other.load_state_dict({**self.STATE, "taken": Endless(self.STATE["taken"])})
        assert other.state_dict() == self.STATE
        with pytest.raises(ValueError, match="hashes"):
            other.load_state_dict({**self.STATE, "hashes": [(True, 1, 2)]})


class TestOneIterationOfTwoThreads:
    """A thread may be converting a batch for its caller while another one is handed the next."""

    def taken_late(self, last: Callable[[], None]) -> tuple[ad.Loader, Any, threading.Thread, threading.Event]:
        """A loader whose first batch a thread converts until the event is set, and then calls `last`."""
        begun, goes_on = threading.Event(), threading.Event()

        def from_dlpack(batch: Any) -> Any:
            if not begun.is_set():
                begun.set()
                assert goes_on.wait(30)
                last()
            return np.from_dlpack(batch)

        one = ad.Loader(numbered(4), batch_size=2, xp=SimpleNamespace(from_dlpack=from_dlpack))
        iterator = iter(one)

        def take() -> None:
            with contextlib.suppress(InterruptedError):
                next(iterator, None)

        thread = threading.Thread(target=take)
        thread.start()
        assert begun.wait(30)
        return one, iterator, thread, goes_on

    def test_a_batch_behind_one_that_failed_does_not_count(self):
        def fail() -> None:
            raise InterruptedError

        one, iterator, thread, goes_on = self.taken_late(fail)
        assert rows_of(next(iterator)) == [2, 3]
        assert one.state_dict()["taken"] == [0]
        goes_on.set()
        thread.join()
        assert one.state_dict()["taken"] == [0]

    def test_both_count_once_both_are_handed_out(self):
        one, iterator, thread, goes_on = self.taken_late(lambda: None)
        next(iterator)
        goes_on.set()
        thread.join()
        assert one.state_dict()["taken"] == [4]

    def test_a_batch_of_an_epoch_that_has_ended_is_not_of_the_next(self):
        one, iterator, thread, goes_on = self.taken_late(lambda: None)
        assert len(list(iterator)) == 1
        goes_on.set()
        thread.join()
        state = one.state_dict()
        assert (state["epoch"], state["taken"]) == (1, [0])

    def test_one_behind_a_batch_that_never_came_is_not_of_the_next_iteration(self):
        def fail() -> None:
            raise InterruptedError

        one, iterator, thread, goes_on = self.taken_late(fail)
        next(iterator)
        goes_on.set()
        thread.join()
        again = iter(one)
        assert rows_of(next(again)) == [0, 1]
        assert (one.epoch, one.state_dict()["taken"]) == (1, [2])


def test_a_loaded_state_keeps_the_rows_that_the_source_does_not_tell():
    table = pa.table({"a": list(range(40))})
    loader = ad.Loader(table, batch_size=10)
    next(iter(loader))
    state = loader.state_dict()
    other = ad.Loader(lambda: table.to_reader(), batch_size=10)
    other.load_state_dict(state)
    assert (state["rows"], other.state_dict()) == (40, state)


def test_a_fingerprint_within_an_epoch_is_not_that_of_the_epoch_before():
    table = pa.table({"a": list(range(100))})
    loader, fresh = (ad.Loader(table, batch_size=10) for _ in range(2))
    list(loader)
    whole = loader.fingerprint()["hashes"]
    iterators = [iter(loader), iter(fresh)]
    for iterator in iterators:
        next(iterator)
    assert loader.fingerprint()["hashes"] == fresh.fingerprint()["hashes"] != whole
