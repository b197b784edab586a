"""`LoaderDataset` of `arrow_dlpack.torch`: workers and ranks share the batches of one order that they do not change."""

import copy
import functools
import gc
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import deal, lanes_of, loader_threads, numbered

# torch says that this machine has fewer processors.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

ROWS = [13, 0, 40, 7, 31]
OPTIONS = {"lanes": 12, "batch_size": 3, "shuffle_buffer": 30, "seed": 5}


def opened(start: int, rows: int) -> pa.Table:
    return numbered(start + rows, 10).slice(start)


def shards(rows: list[int] = ROWS) -> list[Any]:
    starts = [sum(rows[:shard]) for shard in range(len(rows))]
    return [(functools.partial(opened, start, count), count) for start, count in zip(starts, rows, strict=True)]


def expected(epoch: int, rank: int = 0, world_size: int = 1) -> list[list[int]]:
    """The batches of a rank, by the words of the document."""
    lanes = lanes_of(ROWS, 12, shuffle_buffer=30, seed=5, epoch=epoch, shuffle_shards=True)
    dealt, _ = deal(lanes, [0] * 12, 0, batch_size=3, world_size=world_size, drop_last=False)
    return dealt[rank::world_size]


@pytest.fixture
def dataset(torch):
    from arrow_dlpack.torch import LoaderDataset

    return functools.partial(LoaderDataset, sources=shards(), **OPTIONS)


@pytest.fixture
def loader_of(torch):
    from torch.utils.data import DataLoader

    def made(dataset, workers: int, **options: Any):
        return DataLoader(dataset, batch_size=None, num_workers=workers, **options)

    return made


def rows(batch: Any) -> list[int]:
    return batch[:, 0].tolist()


def fails(batches: Any, error: type[Exception], match: str, after: int = 0) -> None:
    """After so many batches comes this error."""
    iterator = iter(batches)
    for _ in range(after):
        next(iterator)
    with pytest.raises(error, match=match) as caught:
        list(iterator)
    # The frames hold the iterator, which torch does not shut down in good time when it is a part of a cycle.
    caught.value.__traceback__ = None
    iterator._shutdown_workers()


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_order_does_not_depend_on_workers(dataset, loader_of, workers: int):
    batched = loader_of(dataset(), workers)
    assert len(batched) == len(expected(0))
    for epoch in range(2):
        assert [rows(batch) for batch in batched] == expected(epoch)
    assert loader_threads() == 0


def test_workers_that_persist_go_on_with_the_next_epoch(dataset, loader_of):
    batched = loader_of(dataset(), 2, persistent_workers=True)
    for epoch in range(3):
        assert [rows(batch) for batch in batched] == expected(epoch)


def test_an_iteration_that_is_left_counts_as_an_epoch(torch, dataset, loader_of):
    for workers in (0, 2):
        batched = loader_of(dataset(), workers)
        for epoch in range(3):
            # Iterations of one base seed are not taken for one.
            torch.manual_seed(7)
            iterator = iter(batched)
            assert rows(next(iterator)) == expected(epoch)[0]
            del iterator
        batched.dataset.set_epoch(9)
        assert [rows(batch) for batch in batched] == expected(9)


@pytest.mark.parametrize("persists", [False, True])
def test_an_iteration_of_which_a_worker_did_not_begin_is_not_gone_on_with(
    torch, dataset, loader_of, tmp_path: Path, persists: bool
):
    def begins(worker: int) -> None:
        if worker == 0 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError("not yet")

    batched = loader_of(dataset(), 2, worker_init_fn=begins, persistent_workers=persists)
    torch.manual_seed(7)
    fails(batched, ValueError, "not yet")
    batched._iterator = None
    for epoch in (1, 2):
        torch.manual_seed(7)
        assert [rows(batch) for batch in batched] == expected(epoch)


def test_ranks_deal_their_batches_to_workers(dataset, loader_of):
    for rank in range(2):
        batched = loader_of(dataset(rank=rank, world_size=2), 3)
        assert [rows(batch) for batch in batched] == expected(0, rank, 2)


def test_a_random_seed_is_that_of_all_workers(torch, loader_of):
    from arrow_dlpack.torch import LoaderDataset

    options = {"lanes": 4, "batch_size": 3, "shuffle_buffer": 30}
    batched = loader_of(LoaderDataset(sources=shards(), **options), 2)
    for _ in range(2):
        assert len({row for batch in batched for row in rows(batch)}) > sum(ROWS) - 4 * 3


@pytest.mark.parametrize(("lanes", "world_size", "workers"), [(1, 1, 2), (12, 2, 4), (12, 1, 5)])
def test_workers_that_would_share_a_lane_are_refused(dataset, loader_of, lanes: int, world_size: int, workers: int):
    data = dataset(lanes=lanes, rank=0, world_size=world_size)
    refusal = f"{workers} workers of each of {world_size} ranks cannot share {lanes} lanes"
    fails(loader_of(data, workers), ValueError, refusal)


class TestOptions:
    def test_wrong_ones_are_those_of_the_loader(self, dataset):
        with pytest.raises(ValueError, match="batch_size"):
            dataset(batch_size=0)
        with pytest.raises(TypeError, match="num_workers="):
            dataset(worker=(0, 2))
        for ranks in ({"rank": 1}, {"world_size": 2}):
            with pytest.raises(TypeError, match="go together"):
                dataset(**ranks)
        with pytest.raises(ValueError, match="seed"):
            dataset(seed=None, rank=0, world_size=2)

    def test_a_process_of_several_needs_a_group(self, dataset, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "4")
        for read in (list, len):
            with pytest.raises(RuntimeError, match="init_process_group"):
                read(dataset())
        assert len(list(dataset(rank=1, world_size=4))) == len(expected(0, 1, 4))

    def test_arrays_of_another_library(self, dataset):
        assert isinstance(next(iter(dataset(xp=np))), np.ndarray)

    @pytest.mark.parametrize("device", ["cpu", (1, 0), ad.Device("cpu")])
    def test_workers_make_batches_in_host_memory(self, dataset, loader_of, device: Any):
        assert [rows(batch) for batch in loader_of(dataset(device=device), 1)] == [rows(batch) for batch in dataset()]

    def test_a_device_is_not_for_workers(self, dataset, loader_of, monkeypatch):
        data = dataset(device="cuda:0")
        fails(loader_of(data, 1), RuntimeError, "host memory")


class TestStates:
    @pytest.mark.parametrize("taken", [0, 1, 7, 1000])
    def test_go_on_in_another_process_with_other_workers(self, dataset, loader_of, taken: int):
        first = dataset()
        iterator = iter(first)
        found = [rows(batch) for batch in itertools.islice(iterator, taken)]
        state = json.loads(json.dumps(first.state_dict()))
        resumed = loader_of(dataset(), 3)
        resumed.dataset.load_state_dict(state)
        rest = [rows(batch) for batch in resumed]
        if taken == 1000:
            assert (found, rest) == (expected(0), expected(1))
        else:
            assert found + rest == expected(0)
            assert [rows(batch) for batch in resumed] == expected(1)

    def test_of_a_random_seed(self, torch, loader_of):
        from arrow_dlpack.torch import LoaderDataset

        options = {"lanes": 4, "batch_size": 3, "shuffle_buffer": 30}
        first, second = (LoaderDataset(sources=shards(), **options) for _ in range(2))
        iterator = iter(first)
        next(iterator)
        second.load_state_dict(first.state_dict())
        assert [rows(batch) for batch in loader_of(second, 2)] == [rows(batch) for batch in iterator]
        # The later epochs have the seed of the state too.
        assert [rows(batch) for batch in loader_of(second, 2)] == [rows(batch) for batch in first]

    def test_a_process_whose_workers_make_the_batches_has_none(self, dataset, loader_of):
        data = dataset()
        next(iter(loader_of(data, 2)))
        with pytest.raises(RuntimeError, match="StatefulDataLoader"):
            data.state_dict()
        state = {"worker": [0, 2], "has_ended": False, "loader": ad.Loader(sources=shards(), **OPTIONS).state_dict()}
        with pytest.raises(ValueError, match="worker 0 of 2"):
            data.load_state_dict(state)

    def test_are_refused_by_other_options(self, dataset):
        with pytest.raises(ValueError, match="shuffle_buffer"):
            dataset(shuffle_buffer=5).load_state_dict(dataset().state_dict())

    def test_of_an_epoch_that_was_set(self, dataset, loader_of):
        def begun(data: Any) -> None:
            next(iter(data))

        def loaded(data: Any) -> None:
            data.load_state_dict(middle)

        def in_workers(data: Any) -> None:
            list(loader_of(data, 2))

        first = dataset()
        iterator = iter(first)
        next(iterator)
        middle = first.state_dict()
        for before in (len, list, begun, loaded, in_workers):
            data = dataset()
            before(data)
            data.set_epoch(5)
            state = data.state_dict()
            assert (state["epoch"], state["taken"]) == (5, [0] * 12)
            for other in (copy.copy(data), copy.deepcopy(data), pickle.loads(pickle.dumps(data)), data):
                assert [rows(batch) for batch in other] == expected(5)
        loaded(data)
        data.set_epoch(0)
        assert data.state_dict() == middle

    def test_pickles_go_on_after_the_epochs_of_workers(self, dataset, loader_of):
        data = dataset()
        len(data)
        batched = loader_of(data, 2)
        for _ in range(2):
            list(batched)
        assert [rows(batch) for batch in pickle.loads(pickle.dumps(data))] == expected(2)

    def test_copies_have_epochs_of_their_own(self, dataset):
        first = dataset()
        other = copy.copy(first)
        for data in (first, other):
            assert [[rows(batch) for batch in data] for _ in range(2)] == [expected(0), expected(1)]

    @pytest.mark.parametrize("seed", [5, None])
    def test_are_loaded_by_workers_that_persist(self, dataset, loader_of, seed: int | None):
        first = dataset(seed=seed)
        iterator = iter(first)
        list(itertools.islice(iterator, 4))
        state = first.state_dict()
        rest = [rows(batch) for batch in iterator]
        batched = loader_of(dataset(seed=seed), 2, persistent_workers=True)
        list(batched)
        batched.dataset.load_state_dict(state)
        for epoch in (rest, [rows(batch) for batch in first]):
            assert [rows(batch) for batch in batched] == epoch

    def test_are_used_once(self, dataset, loader_of):
        first = dataset()
        next(iter(first))
        state = first.state_dict()
        data = dataset()
        for again in (loader_of(data, 2), loader_of(data, 0)):
            data.load_state_dict(state)
            assert [rows(batch) for batch in loader_of(data, 2)] == expected(0)[1:]
            data.set_epoch(0)
            assert [rows(batch) for batch in again] == expected(0)

    def test_copies_and_pickles_go_on(self, dataset):
        first = dataset()
        iterator = iter(first)
        next(iterator)
        others = [copy.deepcopy(first), pickle.loads(pickle.dumps(first))]
        rest = [rows(batch) for batch in iterator]
        for other in others:
            assert [rows(batch) for batch in other] == rest == expected(0)[1:]
            assert [rows(batch) for batch in other] == expected(1)


def failing(number: int) -> pa.Table:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        raise OSError("the disk is gone")
    return numbered(30)


class TestFaults:
    def test_a_worker_that_is_killed(self, torch, loader_of):
        from arrow_dlpack.torch import LoaderDataset

        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        sources = [(functools.partial(failing, number), 30) for number in (0, 1)]
        batched = loader_of(LoaderDataset(sources=sources, lanes=2, batch_size=5), 2)
        fails(batched, RuntimeError, "exited unexpectedly")
        # The numbers that workers share are not locked by the one that is gone.
        batched.dataset.set_epoch(0)
        del batched
        gc.collect()
        # Threads of torch close the queues of its workers.
        until = time.monotonic() + 30
        while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < until:
            time.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) <= before

    def test_the_error_of_a_shard_is_that_of_its_batch(self, torch, loader_of):
        from arrow_dlpack.torch import LoaderDataset

        sources = [(functools.partial(failing, number), 30) for number in (0, 2)]
        batched = loader_of(LoaderDataset(sources=sources, lanes=2, batch_size=5), 2)
        fails(batched, OSError, "the disk is gone", after=1)


def refusal(dataset: Any, steps: int | None = None) -> str:
    """The error of an epoch, or of the state after so many batches."""
    iterator = iter(dataset)
    if steps is not None:
        list(itertools.islice(iterator, steps))
    with pytest.raises(RuntimeError) as caught:
        list(iterator) if steps is None else dataset.state_dict()
    return str(caught.value)


def of_rank(rank: int, store: str, result: str) -> None:
    """What each of two processes does."""
    import torch.distributed
    from arrow_dlpack.torch import LoaderDataset
    from torch.utils.data import DataLoader

    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    dataset = LoaderDataset(sources=shards(), **OPTIONS)
    found: dict[str, Any] = {"epochs": []}
    for workers in (0, 2):
        batched = DataLoader(dataset, batch_size=None, num_workers=workers)
        found["epochs"].append([rows(batch) for batch in batched])
    # What the training process knows is compared there too.
    dataset.compare_ranks()
    iterator = iter(dataset)
    list(itertools.islice(iterator, 3))
    found["state"] = dataset.state_dict()
    iterator.close()
    found["options"] = refusal(LoaderDataset(sources=shards(), **{**OPTIONS, "shuffle_buffer": 30 + rank}))
    numbers = np.random.default_rng(rank).permutation(1000)
    found["rows"] = refusal(LoaderDataset(pa.table({"row": numbers}), batch_size=10))
    found["steps"] = refusal(LoaderDataset(sources=shards(), **OPTIONS), steps=1 + rank)
    Path(result).write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


def test_two_processes_of_gloo(torch, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    # Forked, as torch is imported here already.
    context = multiprocessing.get_context("fork")
    results = [tmp_path / f"rank{rank}.json" for rank in range(2)]
    arguments = [(rank, str(tmp_path / "store"), str(result)) for rank, result in enumerate(results)]
    processes = [context.Process(target=of_rank, args=given) for given in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    found = [json.loads(result.read_text()) for result in results]
    for rank in range(2):
        assert found[rank]["epochs"] == [expected(epoch, rank, 2) for epoch in range(2)]
        assert "ranks 0 and 1 do not read the same: 'shuffle_buffer' is 30 and 31" in found[rank]["options"]
        assert "ranks 0 and 1 do not read the same rows of shard 0" in found[rank]["rows"]
        assert "pass the same source" in found[rank]["steps"]
    # Each has the hashes of its own shards.
    assert {**found[0]["state"], "hashes": []} == {**found[1]["state"], "hashes": []}
    # The state of two ranks, resumed by three: each row comes once.
    resumed = [ad.Loader(sources=shards(), rank=rank, world_size=3, **OPTIONS) for rank in range(3)]
    for loader in resumed:
        loader.load_state_dict(found[0]["state"])
    left = [row for loader in resumed for batch in loader for row in np.from_dlpack(batch)[:, 0].tolist()]
    taken = [row for rank in range(2) for batch in expected(2, rank, 2)[:3] for row in batch]
    assert len({*taken, *left}) == len(taken) + len(left) == sum(ROWS) - resumed[0].left_out


class TestWrongEpochsAndStates:
    """They are refused, and leave the data set as it was."""

    @pytest.mark.parametrize(
        ("epoch", "error"),
        [
            ("a", TypeError),
            (1.5, TypeError),
            (None, TypeError),
            (True, TypeError),
            (-1, ValueError),
            (2**64, ValueError),
        ],
    )
    def test_of_an_epoch(self, dataset, epoch: Any, error: type[Exception]):
        data = dataset()
        with pytest.raises(error, match="epoch must be"):
            data.set_epoch(epoch)
        assert [rows(batch) for batch in data] == expected(0)

    @pytest.mark.parametrize("number", [np.int64(3), np.uint8(3)])
    def test_integers_of_numpy_are_epochs(self, dataset, loader_of, number: Any):
        data = dataset()
        data.set_epoch(number)
        assert [rows(batch) for batch in data] == expected(3)
        data.load_state_dict({**data.state_dict(), "epoch": number})
        assert [rows(batch) for batch in loader_of(data, 2)] == expected(3)
        assert [rows(batch) for batch in loader_of(data, 2)] == expected(4)

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            (lambda state: {}, 'no "version"'),
            (lambda state: {**state, "epoch": "a"}, "epoch"),
            (lambda state: {**state, "lanes": 3, "taken": [0] * 3}, "3 lanes"),
            (lambda state: {**state, "seed": 6}, "seed"),
            (lambda state: {key: value for key, value in state.items() if key != "seed"}, 'no "seed"'),
        ],
    )
    def test_of_a_state(self, dataset, change: Any, match: str):
        data = dataset()
        iterator = iter(data)
        next(iterator)
        with pytest.raises(ValueError, match=match):
            data.load_state_dict(change(data.state_dict()))
        assert rows(next(iterator)) == expected(0)[1]
        assert [rows(batch) for batch in data] == expected(1)

    def test_of_a_state_without_a_seed(self, dataset):
        # Nor was one passed.
        with pytest.raises(ValueError, match='no "version"'):
            dataset(seed=None).load_state_dict({})

    def test_of_a_worker(self, dataset, torch, monkeypatch: Any):
        import types

        data = dataset()
        info = types.SimpleNamespace(id=1, num_workers=2, seed=1)
        monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: info)
        good = data.state_dict()
        for state in (
            {"worker": [1, 2]}, {**good, "loader": {}}, {**good, "loader": 5}, {**good, "has_ended": 5},
            {**good, "loader": {**good["loader"], "epoch": "a"}},
        ):  # fmt: skip
            with pytest.raises(ValueError, match="state"):
                data.load_state_dict(state)
            assert data.state_dict() == good
        data.load_state_dict(good)
        assert [rows(batch) for batch in data] == expected(0)[1::2]
        iterator = iter(data)
        next(iterator)
        middle = data.state_dict()
        # A state of all workers is one of each.
        for state in (middle, middle["loader"]):
            other = dataset()
            other.load_state_dict(state)
            assert other.state_dict() == middle
            assert [rows(batch) for batch in other] == expected(1)[3::2]
            assert [rows(batch) for batch in other] == expected(2)[1::2]

    def test_a_pickle_makes_no_other_loader(self, torch):
        from arrow_dlpack.torch import LoaderDataset

        with pytest.warns(UserWarning, match="3 rows are too few for 4 lanes"):
            data = LoaderDataset(sources=[numbered(3)], lanes=4, batch_size=1)
        assert list(data) == []
        with warnings.catch_warnings():
            # The warning of fewer rows than lanes would be an error.
            warnings.simplefilter("error", UserWarning)
            assert pickle.dumps(data)

    def test_a_source_that_was_read_once_is_not_read_again(self, torch):
        from arrow_dlpack.torch import LoaderDataset

        data = LoaderDataset(numbered(20).to_reader(), batch_size=5)
        start = data.state_dict()
        # Not read yet.
        data.load_state_dict(start)
        assert [rows(batch) for batch in data] == [list(range(at, at + 5)) for at in range(0, 20, 5)]
        for again in (lambda: data.load_state_dict(start), lambda: list(data), lambda: copy.copy(data)):
            with pytest.raises(ValueError, match="can be read once, and was"):
                again()
