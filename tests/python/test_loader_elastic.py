"""A state says where the order stands, not how it was cut: other sizes of batches and rounds go on with the rest."""

import json
import random

import arrow_dlpack as ad
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
