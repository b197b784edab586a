"""Shards that have changed between a state and its resumption are found, and `verify="all"` compares each of them."""

import itertools
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import digest, numbered, rows_of


class TestVerifyingAllShards:
    """A state has the hashes of the lanes that its rank has read."""

    @staticmethod
    def shards_of(rows: list[int], reversed_shard: int | None = None) -> list[tuple[pa.Table, int]]:
        tables = [numbered(1000 * number + count, 1 << 20).slice(1000 * number) for number, count in enumerate(rows)]
        if reversed_shard is not None:
            tables[reversed_shard] = tables[reversed_shard].take(list(range(rows[reversed_shard]))[::-1])
        return list(zip(tables, rows, strict=True))

    def after(self, rounds: int, sources: list[tuple[pa.Table, int]], **options: Any) -> dict[str, Any]:
        whole = ad.Loader(sources=sources, **options)
        iterator = iter(whole)
        for _ in range(rounds):
            next(iterator)
        state = whole.state_dict()
        iterator.close()
        return json.loads(json.dumps(state))

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_refuses_the_state_of_another_rank(self, prefetch: int):
        options = {"lanes": 2, "batch_size": 10, "world_size": 2, "prefetch": prefetch}
        rows = [40, 40]
        states = [self.after(2, self.shards_of(rows), rank=rank, **options) for rank in range(2)]
        for rank in range(2):
            for other in range(2):
                # Nobody could tell that the rank's own shard is reversed.
                changed = self.shards_of(rows, reversed_shard=rank)
                loader = ad.Loader(sources=changed, rank=rank, verify="all", **options)
                loader.load_state_dict(states[other])
                named = f"shard {rank}: .*changed" if other == rank else f"no hashes of rows .* of shard {rank}"
                with pytest.raises(ad.ConversionError, match=named) as caught:
                    list(loader)
                assert other == rank or 'verify="replay"' in caught.value.remedy
        # Without it, each rank can load the state of any.
        loader = ad.Loader(sources=self.shards_of(rows), rank=0, **options)
        loader.load_state_dict(states[1])
        assert [rows_of(batch) for batch in loader] == [list(range(20, 30)), list(range(30, 40))]

    def test_a_shard_of_two_lanes_counts_by_the_rows_that_were_read(self):
        # Lane 1 begins at row 30 of shard 0.
        options = {"lanes": 2, "batch_size": 10, "world_size": 2}
        states = [self.after(2, self.shards_of([60, 0]), rank=rank, **options) for rank in range(2)]
        for rank, other, passes in ((0, 0, True), (1, 1, True), (0, 1, True), (1, 0, False)):
            loader = ad.Loader(sources=self.shards_of([60, 0]), rank=rank, verify="all", **options)
            loader.load_state_dict(states[other])
            if passes:
                assert len(list(loader)) == 1
            else:
                with pytest.raises(ad.ConversionError, match="of shard 0"):
                    iter(loader)

    def test_takes_the_own_state_of_each_rank(self):
        chance = random.Random(7)
        for _ in range(40):
            world_size = chance.choice([1, 2, 3])
            rows = [chance.randint(0, 60) for _ in range(chance.randint(1, 8))]
            options: dict[str, Any] = {
                "lanes": world_size * chance.randint(1, 3), "batch_size": chance.randint(1, 9),
                "world_size": world_size, "drop_last": chance.random() < 0.5,
                "shuffle_buffer": chance.choice([0, 5, 40]), "seed": 1, "readers": chance.randint(1, 3),
            }  # fmt: skip
            sources = self.shards_of(rows)
            rounds = chance.randint(0, len(ad.Loader(sources=sources, **options)))
            for rank in range(world_size):
                state = self.after(rounds, sources, rank=rank, **options)
                more = {**options, "batch_size": chance.randint(1, 9), "drop_last": chance.random() < 0.5}
                if options["lanes"] % (2 * world_size) == 0:
                    # A rank of twice as many reads some of the lanes.
                    more["world_size"] = 2 * world_size
                loader = ad.Loader(sources=sources, rank=rank, verify="all", **more)
                loader.load_state_dict(state)
                expected = ad.Loader(sources=sources, rank=rank, **more)
                expected.load_state_dict(state)
                found = [rows_of(batch) for batch in loader]
                assert found == [rows_of(batch) for batch in expected]

    def test_takes_the_own_state_of_ranks_that_share_lanes(self):
        chance = random.Random(8)
        refused = 0
        for _ in range(30):
            world_size = chance.choice([2, 3, 4])
            rows = [chance.randint(0, 40) for _ in range(chance.randint(1, 9))]
            options: dict[str, Any] = {
                "lanes": chance.choice([1, 1, 2, 3]), "batch_size": chance.randint(1, 9), "world_size": world_size,
                "drop_last": chance.random() < 0.5, "shuffle_buffer": chance.choice([0, 0, 40]), "seed": 1,
            }  # fmt: skip
            sources = self.shards_of(rows)
            if options["lanes"] == 1 and chance.random() < 0.3:
                sources = [(lambda table=table: table, None) for table, _ in sources]
            rounds = chance.randint(0, len(ad.Loader(sources=self.shards_of(rows), **options)))
            states = [self.after(rounds, sources, rank=rank, **options) for rank in range(world_size)]
            for rank in range(world_size):
                loader = ad.Loader(sources=sources, rank=rank, verify="all", **options)
                loader.load_state_dict(states[rank])
                expected = ad.Loader(sources=sources, rank=rank, **options)
                expected.load_state_dict(states[rank])
                found = [rows_of(batch) for batch in loader]
                assert found == [rows_of(batch) for batch in expected]
                # And further.
                again = ad.Loader(sources=sources, rank=rank, verify="all", **options)
                again.load_state_dict(states[rank])
                if found:
                    next(iter(again))
                    further = ad.Loader(sources=sources, rank=rank, verify="all", **options)
                    further.load_state_dict(again.state_dict())
                    assert [rows_of(batch) for batch in further] == found[1:]
                try:
                    loader.load_state_dict(states[rank - 1])
                    list(loader)
                except ad.ConversionError:
                    refused += 1
        assert refused > 0

    def test_takes_the_own_state_after_each_of_several_resumes(self):
        chance = random.Random(9)
        for _ in range(60):
            options: dict[str, Any] = {
                "lanes": chance.choice([2, 3]), "batch_size": chance.choice([1, 2, 4]),
                "world_size": chance.choice([2, 3, 4]), "shuffle_buffer": chance.choice([0, 2, 4]),
                "shuffle_shards": False, "seed": 1, "verify": "all",
            }  # fmt: skip
            options["rank"] = chance.randrange(options["world_size"])
            sources = self.shards_of([1, *(chance.choice([1, 3, 10, 20]) for _ in range(4))])
            batches = [rows_of(batch) for batch in ad.Loader(sources=sources, **options)]
            state, taken = None, 0
            while taken < len(batches):
                loader = ad.Loader(sources=sources, **options)
                if state is not None:
                    loader.load_state_dict(state)
                count = chance.randint(1, 3)
                assert [rows_of(batch) for batch in itertools.islice(loader, count)] == batches[taken : taken + count]
                state, taken = loader.state_dict(), taken + count

    def test_of_a_lane_that_ranks_share_needs_the_rows_of_the_rank(self):
        options = {"lanes": 1, "world_size": 4, "batch_size": 12}
        sources = self.shards_of([34] * 8)
        state = self.after(4, sources, rank=3, **options)
        # Rank 3 has rows 36 to 48 and so on, none of them in shard 0.
        assert [shard for shard, *_ in state["hashes"]] == [1, 2, 3, 4, 5]
        loader = ad.Loader(sources=sources, rank=3, verify="all", **options)
        loader.load_state_dict(state)
        assert len(list(loader)) == 1
        for shard in range(1, 6):
            loader = ad.Loader(sources=sources, rank=3, verify="all", **options)
            loader.load_state_dict({**state, "hashes": [known for known in state["hashes"] if known[0] != shard]})
            with pytest.raises(ad.ConversionError, match=f"no hashes of rows .* of shard {shard}") as caught:
                iter(loader)
            assert "that this rank has taken with this world_size" in caught.value.remedy

    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("readers", [1, 2])
    @pytest.mark.parametrize("shuffle_buffer", [0, 4])
    @pytest.mark.parametrize("rounds", [5, 6])
    def test_compares_lanes_without_a_further_batch(
        self, rounds: int, shuffle_buffer: int, readers: int, prefetch: int
    ):
        options = {"lanes": 2, "batch_size": 4, "shuffle_buffer": shuffle_buffer, "shuffle_shards": False, "seed": 1}
        options.update(readers=readers, prefetch=prefetch)
        state = self.after(rounds, self.shards_of([12, 12]), **options)
        for shard in (None, 0, 1):
            loader = ad.Loader(sources=self.shards_of([12, 12], reversed_shard=shard), verify="all", **options)
            loader.load_state_dict(state)
            if shard is None:
                assert len(list(loader)) == 6 - rounds
                continue
            with pytest.raises(ad.ConversionError, match=f"shard {shard}: .*changed"):
                list(loader)


class TestShardsThatDoNotTellTheirRows:
    """Where one of them ends is known once it was read."""

    @staticmethod
    def shards_of(parts: list[np.ndarray]) -> list[Callable[[], pa.Table]]:
        return [lambda part=part: pa.table({"row": part}) for part in parts]

    PARTS = (np.arange(20), np.arange(20, 60), np.arange(60, 65), np.arange(65, 100))

    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("shuffle_buffer", [0, 7])
    @pytest.mark.parametrize("world_size", [1, 2])
    def test_have_hashes_of_each(self, world_size: int, shuffle_buffer: int, prefetch: int):
        options: dict[str, Any] = {"batch_size": 10, "world_size": world_size, "prefetch": prefetch}
        options.update(shuffle_buffer=shuffle_buffer, shuffle_shards=False, seed=1)
        rounds = 6 // world_size
        read = min(50 + 1 + shuffle_buffer, 100)
        for rank in range(world_size):
            whole = ad.Loader(sources=self.shards_of(list(self.PARTS)), rank=rank, **options)
            iterator = iter(whole)
            for _ in range(rounds):
                next(iterator)
            state = json.loads(json.dumps(whole.state_dict()))
            rows = [[struct.pack("<q", row)] for row in range(read)]
            assert state["hashes"] == [[0, *digest(rows[:20])], [1, *digest(rows[20:60])]]
            rest = [rows_of(batch) for batch in iterator]
            rows = [[struct.pack("<q", row)] for row in range(100)]
            expected = [[0, *digest(rows[:20])], [1, *digest(rows[20:60])], [2, *digest(rows[60:65])]]
            assert whole.fingerprint()["hashes"] == [*expected, [3, *digest(rows[65:])]]
            for verify in ("replay", "all"):
                other = ad.Loader(sources=self.shards_of(list(self.PARTS)), rank=rank, verify=verify, **options)
                other.load_state_dict(state)
                assert [rows_of(batch) for batch in other] == rest
                for shard in (0, 1):
                    parts = [part[::-1].copy() if at == shard else part for at, part in enumerate(self.PARTS)]
                    changed = ad.Loader(sources=self.shards_of(parts), rank=rank, verify=verify, **options)
                    changed.load_state_dict(state)
                    with pytest.raises(ad.ConversionError, match=f"shard {shard}: .*rows have changed"):
                        next(iter(changed))
            without = ad.Loader(sources=self.shards_of(list(self.PARTS)), rank=rank, verify="all", **options)
            without.load_state_dict({**state, "hashes": state["hashes"][:1]})
            with pytest.raises(ad.ConversionError, match=r"no hashes of rows .* of shard 1"):
                next(iter(without))
