"""Which rows come in which batch: what docs/loader.md says, whatever the chunks, the threads and the prefetching."""

import itertools
import random

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import Draws, batches, chacha, numbered, order, rows_of


def test_the_reference_is_chacha():
    # The first vector of draft-strombergson-chacha-test-vectors for 8 rounds and a key of 256 bits: all zeros.
    words = list(itertools.islice(chacha(bytes(32), 0), 8))
    keystream = b"".join(word.to_bytes(8, "little") for word in words)
    assert keystream[:32].hex() == "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e"


def test_the_numbers_that_the_rust_tests_know():
    draws = Draws(0, 0)
    assert [draws.below(1000) for _ in range(4)] == [836, 631, 232, 117]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle_buffer", [0, 1, 7, 53, 100])
def test_the_documented_order(shuffle_buffer: int, drop_last: bool, prefetch: int):
    options = {"batch_size": 8, "shuffle_buffer": shuffle_buffer, "drop_last": drop_last}
    loader = ad.Loader(numbered(53, 9), seed=2**64 - 1, prefetch=prefetch, **options)
    for epoch in range(3):
        expected = batches(53, seed=2**64 - 1, epoch=epoch, **options)
        assert len(loader) == len(expected)
        assert [rows_of(batch) for batch in loader] == expected


def test_any_options_in_any_combination():
    chance = random.Random(20)
    for _ in range(150):
        world_size = chance.randint(1, 4)
        rows = chance.randint(0, 120)
        options = {
            "batch_size": chance.randint(1, 25),
            "shuffle_buffer": chance.choice([0, 0, 1, 10, 60, 200]),
            "seed": chance.getrandbits(64),
            "drop_last": chance.random() < 0.5,
            "world_size": world_size,
            "rank": chance.randrange(world_size),
        }
        epoch = chance.randrange(3)
        loader = ad.Loader(numbered(rows, chance.randint(1, 40)), prefetch=chance.randrange(4), **options)
        loader.set_epoch(epoch)
        expected = batches(rows, epoch=epoch, **options)
        assert [rows_of(batch) for batch in loader] == expected, (rows, epoch, options)
        assert len(loader) == len(expected)


def test_a_buffer_for_all_rows_shuffles_them_uniformly():
    loader = ad.Loader(numbered(3), batch_size=3, shuffle_buffer=3, seed=4, prefetch=0)
    seen = [tuple(rows_of(next(iter(loader)))) for _ in range(1200)]
    counts = {one: seen.count(one) for one in itertools.permutations(range(3))}
    # 200 each; five standard deviations are 65.
    assert all(135 < count < 265 for count in counts.values()), counts


def test_epochs_and_seeds_have_orders_of_their_own():
    def first(seed: int, epoch: int) -> list[int]:
        loader = ad.Loader(numbered(40), batch_size=40, shuffle_buffer=40, seed=seed)
        loader.set_epoch(epoch)
        return rows_of(next(iter(loader)))

    seen = [first(seed, epoch) for seed in range(3) for epoch in range(3)]
    assert all(sorted(one) == list(range(40)) for one in seen)
    assert len({tuple(one) for one in seen}) == 9


def test_without_a_seed_each_loader_has_its_own_and_tells_it():
    loaders = [ad.Loader(numbered(40), batch_size=40, shuffle_buffer=40) for _ in range(2)]
    seeds = [loader.state_dict()["seed"] for loader in loaders]
    assert seeds[0] != seeds[1]
    for loader, seed in zip(loaders, seeds, strict=True):
        for epoch in range(2):
            assert [rows_of(batch) for batch in loader] == [order(40, 40, seed, epoch)]


class TestRanks:
    @pytest.mark.parametrize("shuffle_buffer", [0, 20])
    @pytest.mark.parametrize("drop_last", [False, True])
    @pytest.mark.parametrize("rows", [0, 7, 8, 40, 47, 48, 49])
    def test_together_have_every_row_of_complete_rounds_once(self, rows: int, drop_last: bool, shuffle_buffer: int):
        options = {"batch_size": 8, "shuffle_buffer": shuffle_buffer, "seed": 1, "drop_last": drop_last}
        ranks = [
            [rows_of(batch) for batch in ad.Loader(numbered(rows, 5), rank=rank, world_size=3, **options)]
            for rank in range(3)
        ]
        assert len({len(rank) for rank in ranks}) == 1
        together = [row for round_ in zip(*ranks, strict=True) for batch in round_ for row in batch]
        assert together == order(rows, shuffle_buffer, 1, 0)[: len(together)]
        whole = -(-rows // 8) if not drop_last else rows // 8
        assert len(ranks[0]) == whole // 3

    def test_need_one_seed(self):
        with pytest.raises(ValueError, match="seed"):
            ad.Loader(numbered(4), batch_size=1, shuffle_buffer=2, world_size=2)
        ad.Loader(numbered(4), batch_size=1, world_size=2)


class TestEpochs:
    def test_each_iteration_begins_the_next(self):
        loader = ad.Loader(numbered(20), batch_size=20, shuffle_buffer=20, seed=0)
        expected = [order(20, 20, 0, epoch) for epoch in range(7)]
        assert [rows_of(next(iter(loader))) for _ in range(3)] == expected[:3]
        assert loader.epoch == 2
        loader.set_epoch(5)
        assert loader.epoch == 5
        assert [rows_of(batch) for batch in loader] == expected[5:6]
        assert loader.epoch == 6
        assert [rows_of(batch) for batch in loader] == expected[6:7]
        loader.set_epoch(1)
        loader.set_epoch(1)
        assert [rows_of(batch) for batch in loader] == expected[1:2]

    def test_two_iterations_at_once(self):
        loader = ad.Loader(numbered(40), batch_size=8, shuffle_buffer=9, seed=0)
        pairs = [(rows_of(one), rows_of(other)) for one, other in zip(loader, loader, strict=True)]
        for epoch in range(2):
            assert [pair[epoch] for pair in pairs] == batches(40, 8, shuffle_buffer=9, seed=0, epoch=epoch)

    def test_a_source_may_differ_from_epoch_to_epoch(self):
        tables = iter([numbered(5), numbered(9), numbered(0)])
        loader = ad.Loader(lambda: next(tables), batch_size=4)
        assert [[len(batch) for batch in loader] for _ in range(3)] == [[4, 1], [4, 4, 1], []]


def test_groups_are_shuffled_alike():
    table = pa.table({"a": np.arange(50), "b": np.arange(50) * 2.5, "c": np.arange(50, dtype="int8")})
    columns = {"x": ["b", "a"], "y": "c"}
    loader = ad.Loader(table, batch_size=16, columns=columns, shuffle_buffer=30, seed=9, xp=np)
    expected = order(50, 30, 9, 0)
    found = list(loader)
    assert np.concatenate([batch["y"] for batch in found]).tolist() == expected
    both = np.concatenate([batch["x"] for batch in found])
    assert both.tolist() == [[row * 2.5, row] for row in expected]
