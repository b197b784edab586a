"""Workers of a rank: `worker=` shares out the rank's batches, and processes that start workers agree on epochs."""

import functools
import itertools
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from typing import Any

import arrow_dlpack as ad
import pytest
from arrow_dlpack import _epochs
from loader_reference import deal, lanes_of, numbered, rows_of


def opened(start: int, rows: int) -> Any:
    return numbered(start + rows, 7).slice(start)


def shards(rows: list[int]) -> list[Any]:
    starts = [sum(rows[:shard]) for shard in range(len(rows))]
    return [(functools.partial(opened, start, count), count) for start, count in zip(starts, rows, strict=True)]


def test_workers_share_the_batches_of_each_rank_from_any_place_and_resume():
    chance = random.Random(15)
    for _ in range(40):
        rows = [chance.randint(0, 30) for _ in range(chance.randint(1, 6))]
        world_size, workers = chance.randint(1, 3), chance.randint(1, 4)
        lanes = world_size * workers * chance.randint(1, 2)
        order = {"lanes": lanes, "shuffle_buffer": chance.choice([0, 9, 300]), "seed": chance.getrandbits(64)}
        is_permuted = order["shuffle_buffer"] > 0
        # The place of a loader with other ranks and another batch size, where lanes end unevenly.
        before = {"batch_size": chance.randint(1, 5), "world_size": chance.randint(1, 4)}
        first = ad.Loader(sources=shards(rows), rank=0, **before, **order)
        for _ in itertools.islice(first, chance.randint(0, 4)):
            pass
        state = first.state_dict()
        cut = {"batch_size": chance.randint(1, 5), "world_size": world_size, "drop_last": chance.random() < 0.3}
        in_lanes = lanes_of(rows, **order, epoch=state["epoch"], shuffle_shards=is_permuted)
        expected, left_out = deal(in_lanes, state["taken"], state["next_lane"], **cut)
        for rank, worker in itertools.product(range(world_size), range(workers)):
            options = {"sources": shards(rows), "rank": rank, "worker": (worker, workers), **cut, **order}
            loader = ad.Loader(**options)
            loader.load_state_dict(state)
            own = expected[rank::world_size][worker::workers]
            iterator = iter(loader)
            taken = chance.randint(0, len(own))
            found = [rows_of(next(iterator)) for _ in range(taken)]
            resumed = pickle.loads(pickle.dumps(loader))
            found += [rows_of(batch) for batch in resumed]
            assert found == own, (rows, order, before, cut, rank, worker, workers)
            assert [rows_of(batch) for batch in iterator] == own[taken:]
            assert loader.left_out == left_out


class TestOptions:
    @pytest.mark.parametrize(
        ("worker", "error", "named"),
        [
            (3, TypeError, "tuple"),
            ((1,), TypeError, "tuple"),
            ([0, 1], TypeError, "tuple"),
            ((0, 1.5), TypeError, "number of workers"),
            ((True, 2), TypeError, "the worker"),
            ((-1, 2), ValueError, "the worker"),
            ((0, 0), ValueError, "number of workers"),
            ((2, 2), ValueError, "below the number"),
            ((0, 2**63), ValueError, "too many|cannot share"),
            ((0, 3), ValueError, "pass sources= and lanes=6"),
        ],
    )
    def test_that_are_wrong(self, worker: Any, error: type[Exception], named: str):
        with pytest.raises(error, match=named):
            ad.Loader(sources=[numbered(9)], lanes=4, batch_size=1, world_size=2, worker=worker)

    def test_one_worker_needs_no_lanes(self):
        loader = ad.Loader(numbered(5), batch_size=2, worker=(0, 1))
        assert [rows_of(batch) for batch in loader] == [[0, 1], [2, 3], [4]]
        assert repr(loader) == "Loader(Table, batch_size=2, worker=(0, 1))"


class Epochs(_epochs.Epochs):
    """Those of one to three workers, of whose turns only the epochs are asked."""

    def claimed(self) -> int:
        return self.claim().epoch

    def claimed_by_worker(self, worker: int, iteration: int) -> int:
        return self.claim_of_worker((worker, 3), iteration).epoch


def claims(epochs: Epochs, worker: int, iteration: int, results: Any) -> None:
    results.put(epochs.claimed_by_worker(worker, iteration))


def dies(epochs: Epochs) -> None:
    with epochs._numbers():
        os.kill(os.getpid(), signal.SIGKILL)


class TestEpochs:
    def test_the_workers_of_an_iteration_have_one(self):
        epochs = Epochs(None)
        assert [epochs.claimed_by_worker(worker, 77) for worker in (1, 0, 2)] == [0, 0, 0]
        # Another iteration, one of the same number, and a worker of the first one that comes late.
        assert [epochs.claimed_by_worker(worker, 78) for worker in (1, 0)] == [1, 1]
        assert epochs.claimed() == 2
        other = pickle.loads(pickle.dumps(epochs))
        assert (epochs.claimed(), other.claimed(), other.claimed()) == (3, 3, 4)
        epochs.set_epoch(9)
        assert (epochs.next, epochs.claimed()) == (9, 9)

    def test_few_iterations_are_remembered(self):
        epochs = Epochs(None)
        for iteration in range(1000):
            assert epochs.claimed_by_worker(0, iteration) == iteration
        assert os.fstat(epochs._file.fileno()).st_size < 2000

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_processes_share_them(self, method: str):
        context = multiprocessing.get_context(method)
        epochs, results = Epochs(5), context.SimpleQueue()
        for worker in range(2):
            process = context.Process(target=claims, args=(epochs, worker, 77, results))
            process.start()
            assert results.get() == 0
            process.join()
        assert (epochs.claimed(), epochs.seed) == (1, 5)

    def test_a_process_that_is_killed_leaves_no_lock(self):
        epochs = Epochs(5)
        process = multiprocessing.get_context("fork").Process(target=dies, args=(epochs,))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert (epochs.claimed(), epochs.seed) == (0, 5)

    def test_threads_share_them(self):
        epochs, found, errors = Epochs(5), [], []

        def claim() -> None:
            try:
                for _ in range(300):
                    found.append(epochs.claimed())
                    assert epochs.seed == 5
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=claim) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (errors, sorted(found)) == ([], list(range(1200)))

    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
    def test_a_fork_while_a_thread_has_them_leaves_no_lock(self):
        context = multiprocessing.get_context("fork")
        epochs, results = Epochs(5), context.SimpleQueue()
        has_it, is_forked = threading.Event(), threading.Event()

        def holds() -> None:
            with epochs.lock:
                has_it.set()
                is_forked.wait()

        thread = threading.Thread(target=holds)
        thread.start()
        has_it.wait()
        process = context.Process(target=claims, args=(epochs, 0, 77, results))
        process.start()
        is_forked.set()
        thread.join()
        process.join(60)
        # It would wait for ever.
        process.kill()
        assert process.exitcode == 0
        assert results.get() == 0

    def test_reading_writes_nothing_and_a_shorter_text_leaves_nothing_behind(self, monkeypatch: Any):
        epochs = Epochs(5)
        size = os.fstat(epochs._file.fileno()).st_size
        epochs.set_state({"epoch": 3, "seed": 7, "taken": [0] * 10_000})
        assert os.fstat(epochs._file.fileno()).st_size > 10_000
        epochs.set_epoch(4)
        assert os.fstat(epochs._file.fileno()).st_size < 2 * size
        monkeypatch.setattr(os, "pwrite", None)
        assert (epochs.seed, epochs.next, epochs.is_in_workers, epochs.coming.state) == (7, 4, False, None)

    def test_a_read_within_a_change_keeps_the_lock_on_the_file(self):
        epochs = Epochs(5)
        command = [sys.executable, "-c", "import fcntl; fcntl.lockf(0, fcntl.LOCK_EX | fcntl.LOCK_NB)"]
        with epochs._numbers():
            assert epochs.next == 0
            assert subprocess.run(command, stdin=epochs._file, capture_output=True, check=False).returncode == 1
        subprocess.run(command, stdin=epochs._file, check=True)

    def test_a_late_worker_joins_the_iteration_that_it_was_started_for(self):
        epochs = Epochs(5)
        late = pickle.loads(pickle.dumps(epochs))
        # As a fork has it.
        late._file, late._passes = epochs._file, {}
        assert epochs.claimed_by_worker(0, 77) == 0
        epochs.set_epoch(9)
        assert late.claimed_by_worker(1, 77) == 0
        epochs._passes.clear()
        assert [epochs.claimed_by_worker(worker, 77) for worker in (1, 0)] == [9, 9]

    @pytest.mark.parametrize("begun", [[0], [1], [2], [0, 1], [0, 2], [1, 2]])
    def test_workers_of_a_later_iteration_join_none_whose_workers_did_not_all_begin(
        self, monkeypatch, begun: list[int]
    ):
        """Where a generator that was seeded again yields the same number."""
        for order in itertools.permutations(range(3)):
            epochs = Epochs(5)
            processes: dict[str, int] = {}
            monkeypatch.setattr(_epochs, "_process_number", lambda processes=processes: processes["own"])

            def claimed(
                worker: int, process: int, epochs: Epochs = epochs, processes: dict[str, int] = processes
            ) -> int:
                processes["own"] = process
                epochs._passes.clear()
                return epochs.claimed_by_worker(worker, 77)

            assert {claimed(worker, 4 + worker) for worker in begun} == {0}
            # Two processes of another thread are started before worker 2.
            assert [claimed(worker, 7 + worker + 2 * (worker == 2)) for worker in order] == [1, 1, 1]
            assert [claimed(worker, 20 + worker) for worker in order] == [2, 2, 2]
            epochs._file.close()

    def test_a_turn_is_given_back_unless_another_was_claimed_or_set(self):
        epochs = Epochs(5)
        state = {"epoch": 3, "seed": 7}
        epochs.set_state(state)
        turn = epochs.claim()
        assert (turn.epoch, turn.seed, turn.state) == (3, 7, state)
        assert (epochs.coming.epoch, epochs.coming.state) == (4, None)
        epochs.give_back(turn)
        assert (epochs.coming.epoch, epochs.coming.state) == (3, state)
        turns = [epochs.claim_of_worker((worker, 2), 77) for worker in range(2)]
        assert turns[0] == turns[1] != turn
        epochs.set_epoch(8)
        epochs.give_back(turns[0])
        assert epochs.next == 8
        turn = epochs.claim()
        assert (turn.epoch, epochs.claimed()) == (8, 9)
        epochs.give_back(turn)
        assert epochs.next == 10
