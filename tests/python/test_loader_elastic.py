"""A state says where the order stands, not how it was cut: other sizes of batches and rounds go on with the rest."""

import json
import random
import warnings

import arrow_dlpack as ad
import pyarrow as pa
import pytest
from loader_reference import batches, numbered, order, rows_of


def taken_by(ranks: list[ad.Loader], rounds: int) -> list[int]:
    """The rows of so many rounds, in the order of the batches."""
    iterators = [iter(rank) for rank in ranks]
    return [row for _ in range(rounds) for iterator in iterators for row in rows_of(next(iterator))]


def restored(state: dict, rows: int, world_size: int, **options: object) -> list[ad.Loader]:
    ranks = [ad.Loader(numbered(rows, 7), rank=rank, world_size=world_size, **options) for rank in range(world_size)]
    for rank in ranks:
        rank.load_state_dict(json.loads(json.dumps(state)))
    return ranks


def test_none_is_lost_and_none_comes_twice():
    chance = random.Random(15)
    for _ in range(60):
        rows, shuffle_buffer, seed = chance.randint(0, 150), chance.choice([0, 1, 12, 60, 200]), chance.getrandbits(64)
        options = {"shuffle_buffer": shuffle_buffer, "seed": seed}
        expected = order(rows, shuffle_buffer, seed, 0)
        state = ad.Loader(numbered(rows, 7), batch_size=1, **options).state_dict()
        seen: list[int] = []
        for _ in range(4):
            size, world, drop_last = chance.randint(1, 12), chance.randint(1, 4), chance.random() < 0.5
            ranks = restored(state, rows, world, batch_size=size, drop_last=drop_last, **options)
            all_rounds = len(batches(rows - len(seen), size, drop_last=drop_last, world_size=world))
            rounds = chance.randint(0, min(3, all_rounds))
            seen += taken_by(ranks, rounds)
            assert seen == expected[: len(seen)]
            states = [rank.state_dict() for rank in ranks]
            assert all(found == states[0] for found in states), states
            state = states[0]
            assert state["taken"][0] in range(len(seen), len(seen) + size)
        # The rest, to the end of the epoch, and the epoch after.
        [last] = restored(state, rows, 1, batch_size=5, **options)
        assert seen + [row for batch in last for row in rows_of(batch)] == expected
        assert [row for batch in last for row in rows_of(batch)] == order(rows, shuffle_buffer, seed, 1)


@pytest.mark.parametrize(("drop_last", "left"), [(False, 43 - 40), (True, 43 - 40)])
def test_the_rows_of_an_incomplete_round_are_counted(drop_last: bool, left: int):
    for rank in range(2):
        loader = ad.Loader(numbered(43), batch_size=10, drop_last=drop_last, rank=rank, world_size=2)
        assert loader.left_out is None
        assert len(list(loader)) == 2
        assert loader.left_out == left


@pytest.mark.parametrize("shuffle_buffer", [0, 9, 100])
def test_what_is_left_out_is_what_no_rank_has(shuffle_buffer: int):
    for rows in range(0, 40, 3):
        for world_size, drop_last in [(1, False), (1, True), (3, False), (3, True)]:
            options = {"batch_size": 4, "shuffle_buffer": shuffle_buffer, "seed": 1, "drop_last": drop_last}
            options["world_size"] = world_size
            ranks = [ad.Loader(numbered(rows), rank=rank, **options) for rank in range(world_size)]
            seen = sum(len(rows_of(batch)) for rank in ranks for batch in rank)
            assert [rank.left_out for rank in ranks] == [rows - seen] * world_size


class TestLanes:
    """The numbers of rows that docs/loader.md says are left out."""

    @staticmethod
    def lanes_of(rows: int, lanes: int, batch_size: int, **options: object) -> ad.Loader:
        return ad.Loader(sources=[(numbered(rows, 1 << 20), rows)], lanes=lanes, batch_size=batch_size, **options)

    @pytest.mark.parametrize(
        ("batches_before", "batch_size", "left_out"), [(32, 32, 14_848), (64, 32, 0), (128, 32, 0), (32, 512, 0)]
    )
    def test_that_are_out_of_step_leave_rows_out(self, batches_before: int, batch_size: int, left_out: int):
        loader = self.lanes_of(128_000, 64, 512)
        taken_by([loader], batches_before)
        state = loader.state_dict()
        other = self.lanes_of(128_000, 64, batch_size)
        other.load_state_dict(state)
        assert sum(len(rows_of(batch)) for batch in other) == 128_000 - 512 * batches_before - left_out
        assert other.left_out == left_out

    def test_that_are_in_step_leave_out_fewer_rows_than_there_are_lanes(self):
        chance = random.Random(64)
        for _ in range(60):
            lanes, size, world = chance.randint(2, 9), chance.randint(1, 20), chance.randint(1, 5)
            rows, drop_last = chance.randint(lanes, 400), chance.random() < 0.5
            loader = self.lanes_of(rows, lanes, size, world_size=world, drop_last=drop_last)
            all_rounds = len(list(loader))
            bound = lanes * size if drop_last else lanes
            shared = 0 if lanes % world == 0 else (world - 1) * size
            assert loader.left_out < bound + shared
            # Another size after whole rounds of lanes.
            whole = self.lanes_of(rows, lanes, size)
            taken_by([whole], chance.randint(0, all_rounds * world // lanes) * lanes)
            state = whole.state_dict()
            if state["next_lane"] == 0 and len(set(state["taken"])) == 1:
                other = self.lanes_of(rows, lanes, chance.randint(1, 20))
                other.load_state_dict(state)
                list(other)
                assert other.left_out < lanes

    def test_without_rows_are_warned_of(self):
        with pytest.warns(UserWarning, match="60 rows are too few for 64 lanes"):
            loader = self.lanes_of(60, 64, 1)
        assert len(loader) == len(list(loader)) == 0
        assert loader.left_out == 60
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.lanes_of(64, 64, 1)
            self.lanes_of(0, 64, 1)


def test_a_lane_that_ended_before_the_batch_size_was_changed_does_not_end_the_epoch():
    def restored_from(state: dict | None, batch_size: int) -> ad.Loader:
        loader = ad.Loader(sources=[(numbered(9), 9)], lanes=3, batch_size=batch_size)
        if state is not None:
            loader.load_state_dict(state)
        return loader

    # A batch of the 3 rows of lane 0, which counts 4.
    first = restored_from(None, 4)
    assert rows_of(next(iter(first))) == [0, 1, 2]
    second = restored_from(first.state_dict(), 1)
    iterator = iter(second)
    assert rows_of(next(iterator)) == [3]
    state = second.state_dict()
    third = restored_from(state, 1)
    assert [rows_of(batch) for batch in third] == [rows_of(batch) for batch in iterator] == [[6]]
    assert third.left_out == second.left_out == 4


@pytest.mark.parametrize("begins", [False, True])
def test_a_state_that_is_passed_on_knows_the_size_of_its_last_batch(begins: bool):
    """It was not full, and counts as a full one of the loader that made it, whoever loaded the state since."""
    options = {"shuffle_buffer": 4, "seed": 1}
    first = ad.Loader(numbered(10), batch_size=4, **options)
    iterator = iter(first)
    assert sum(len(rows_of(next(iterator))) for _ in range(3)) == 10
    state = first.state_dict()
    assert (state["epoch"], state["taken"], state["batch_size"]) == (0, [12], 4)
    for batch_size in (1, 3):
        [loader] = restored(state, 10, 1, batch_size=batch_size, **options)
        if begins:
            iter(loader)
        state = loader.state_dict()
        assert (state["epoch"], state["taken"], state["batch_size"]) == (0, [12], 4)
    [last] = restored(state, 10, 1, batch_size=2, **options)
    assert list(last) == []
    assert [row for batch in last for row in rows_of(batch)] == order(10, 4, 1, 1)


def test_a_state_of_the_first_version_goes_on():
    state = {
        "version": 1, "seed": 3, "epoch": 2, "batches": 2, "batch_size": 4, "shuffle_buffer": 9,
        "drop_last": False, "world_size": 2, "columns": ["row"], "rows": 45,
    }  # fmt: skip
    [loader] = restored(state, 45, 1, batch_size=5, shuffle_buffer=9)
    expected = order(45, 9, 3, 2)[16:]
    assert [row for batch in loader for row in rows_of(batch)] == expected
    with pytest.raises(ValueError, match="more batches than"):
        restored({**state, "batches": 2**62}, 45, 1, batch_size=5, shuffle_buffer=9)
    with pytest.raises(ValueError, match="rows"):
        restored(state, 46, 1, batch_size=5, shuffle_buffer=9)
    # It has no hashes.
    [loader] = restored(state, 45, 1, batch_size=5, shuffle_buffer=9, verify="all")
    with pytest.raises(ad.ConversionError, match="no hashes"):
        iter(loader)


@pytest.mark.parametrize(("lanes", "verify"), [(1, "replay"), (1, "all"), (3, "all")])
@pytest.mark.parametrize("taken", [200, 10**6, 2**62, 2**63])
def test_a_state_beyond_the_rows_is_refused(lanes: int, verify: str, taken: int):
    """With several lanes, by what is verified alone: see the test below."""

    def resume():
        other = in_lanes(lanes, 4, verify=verify)
        other.load_state_dict(state)
        next(iter(other))

    first = in_lanes(lanes, 4)
    next(iter(first))
    state = {**first.state_dict(), "taken": [taken] * lanes}
    with pytest.raises(ad.ConversionError, match=f"the state is after row {taken}|no hashes of rows"):
        resume()


def test_a_lane_whose_last_batch_counted_more_rows_than_later_ones_have():
    """A batch that was not full counts as full, of whatever size batches had then."""
    first = in_lanes(3, 100)
    seen = [next(iter(first))]
    state = first.state_dict()
    for _ in range(2):
        later = in_lanes(3, 4)
        later.load_state_dict(state)
        seen.append(next(iter(later)))
        state = later.state_dict()
    assert (state["taken"], [len(batch) for batch in seen]) == ([100, 4, 4], [34, 4, 4])
    last = in_lanes(3, 4)
    last.load_state_dict(state)
    assert (list(last), last.left_out) == ([], 103 - 34 - 8)


def in_lanes(lanes: int, batch_size: int, **options: str) -> ad.Loader:
    sources = [(pa.table({"a": list(range(103))}), 103)]
    return ad.Loader(sources=sources, lanes=lanes, batch_size=batch_size, columns=["a"], **options)


@pytest.mark.parametrize("shuffle_buffer", [0, 6])
def test_a_state_beyond_the_lane_of_its_last_batch_is_refused(shuffle_buffer: int):
    table = pa.table({"a": list(range(40))})

    def loader() -> ad.Loader:
        return ad.Loader(
            sources=[(table, 40)], batch_size=2, lanes=4, shuffle_shards=False, shuffle_buffer=shuffle_buffer, seed=1
        )

    first = loader()
    next(iter(first))
    state = first.state_dict()
    for taken, lane in (([1000, 0, 0, 0], 0), ([1000] * 4, 0)):
        resumed = loader()
        resumed.load_state_dict({**state, "taken": taken})
        with pytest.raises(ad.ConversionError, match=f"after row 1000 of lane {lane}, and the lane has 10"):
            list(resumed)
    resumed = loader()
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 19
