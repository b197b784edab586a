"""Which epoch an iteration is, agreed on by a process and those that it starts as workers."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import multiprocessing.context
import operator
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from typing import Any

from . import _shared_file

# Iterations that begin at once: a worker of an older one may come late.
_REMEMBERED = 16


@dataclass(frozen=True)
class Turn:
    """Where an iteration begins."""

    epoch: int
    seed: int | None
    # A position within the epoch, as `Loader.state_dict()` returns it; None is the epoch's start.
    state: dict[str, Any] | None
    # How many turns were set or claimed before, with this one if it was claimed.
    version: int


class Epochs:
    """Numbers iterations. Processes that were forked or spawned from one that has it share it; other pickles copy it.

    An unnamed file holds the numbers of each rank: the epoch, the seed and the loaded state of the next iteration, and
    which iterations of workers have begun. A lock on the file ends with the process that has it, however that ends.
    """

    # Tells the rank of this process, or of the one that it is a worker of.
    rank: Callable[[], int] = int

    def __init__(self, seed: int | None, next_epoch: int = 0) -> None:
        self._begin({"next": next_epoch, "seed": seed, "state": None, "latest": None, "version": 0, "claims": []})

    def _begin(self, numbers: dict[str, Any]) -> None:
        # Open as long as the object is.
        self._join(tempfile.TemporaryFile(), 0, _encoded(numbers))  # noqa: SIM115
        _shared_file.write(self._file.fileno(), _encoded({"0": numbers}))

    def _join(self, file: Any, generation: int, known: bytes) -> None:
        self._file = file
        # The numbers that this process knew last, or the one that started it: a rank begins with them.
        self._known = known
        self._passes: dict[tuple[int, int, int], int] = {}
        # Counts what this process has set. Workers have the number of the time when they were started.
        self._generation = generation
        self._locks: dict[int, threading.RLock] = {}
        # The process of which a thread has the lock on the file.
        self._holder: int | None = None

    @property
    def lock(self) -> threading.RLock:
        """Excludes the threads of this process, whose locks on the file do not exclude each other."""
        # A lock for each process: a thread that a fork left behind may hold that of the parent. A signal handler may
        # ask for a state while its thread has the lock.
        return self._locks.setdefault(os.getpid(), threading.RLock())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        descriptor = self._file.fileno()
        with self.lock:
            # The lock on the file does not nest.
            is_outer = self._holder != os.getpid()
            if is_outer:
                _shared_file.lock(descriptor)
                self._holder = os.getpid()
            try:
                yield descriptor
            finally:
                if is_outer:
                    self._holder = None
                    _shared_file.unlock(descriptor)

    def _read(self) -> dict[str, Any]:
        with self._locked() as descriptor:
            return self._own(_parsed(descriptor))

    def _own(self, of_ranks: dict[str, Any]) -> dict[str, Any]:
        """The numbers of this rank."""
        numbers: dict[str, Any] = of_ranks.setdefault(str(self.rank()), json.loads(self._known))
        self._known = _encoded(numbers)
        return numbers

    @contextlib.contextmanager
    def _numbers(self) -> Iterator[dict[str, Any]]:
        """The numbers, to change them."""
        with self._locked() as descriptor:
            of_ranks = _parsed(descriptor)
            numbers = self._own(of_ranks)
            yield numbers
            self._known = _encoded(numbers)
            text = _encoded(of_ranks)
            # In one call: a process that is killed leaves either text, perhaps with spaces after it, or at worst the
            # first pages of a long one.
            _shared_file.write(descriptor, text.ljust(os.fstat(descriptor).st_size))
            os.ftruncate(descriptor, len(text))

    @property
    def coming(self) -> Turn:
        """Where the next iteration begins."""
        return _turn(self._read())

    @property
    def next(self) -> int:
        """The epoch of the next iteration."""
        return self.coming.epoch

    @property
    def seed(self) -> int | None:
        """The seed of all processes."""
        return self.coming.seed

    @property
    def is_in_workers(self) -> bool:
        """Whether worker processes make the latest iteration, and no later one was set."""
        return bool(self._read()["latest"] == "workers")

    @property
    def is_in_process(self) -> bool:
        """Whether a process that is no worker makes the latest iteration, and no later one was set."""
        return bool(self._read()["latest"] == "process")

    def claim(self) -> Turn:
        """Where an iteration in this process begins; the next one has the next epoch."""
        with self._numbers() as numbers:
            return _claimed(numbers, "process")

    def claim_of_worker(self, number: tuple[int, int], iteration: int) -> Turn:
        """Where an iteration in a worker process begins; its other workers get the same.

        number: (v, V) for worker v of V.
        iteration: a number that the workers of an iteration have in common, such as torch's base seed.
        """
        # Workers that persist go on with the same number.
        key = (os.getpid(), number[0], iteration)
        passes = self._passes[key] = self._passes.get(key, 0) + 1
        of = [*self._of(number, iteration), passes]
        with self._numbers() as numbers:
            for claim in reversed(numbers["claims"]):
                if _joins(claim, of, number):
                    return Turn(*claim["turn"])
            turn = _claimed(numbers, "workers")
            claim = {**_begun(of, number), "turn": astuple(turn)}
            numbers["claims"] = [*numbers["claims"], claim][-_REMEMBERED:]
            return turn

    def _of(self, number: tuple[int, int], iteration: int) -> list[Any]:
        """What the workers of an iteration have in common.

        A generator that was seeded again yields the same number for another iteration. That is told by what was set
        before its workers were started, and by their processes.
        """
        parent = multiprocessing.parent_process()
        return [self._generation, iteration, number[1], None if parent is None else parent.pid]

    def give_back(self, turn: Turn) -> None:
        """The next iteration begins there, as this one could not, unless another has begun, or was set, since."""
        with self._numbers() as numbers:
            if numbers["version"] == turn.version:
                _set(numbers, next=turn.epoch, state=turn.state, latest=None)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch; it keeps a state of the same epoch."""
        with self._numbers() as numbers:
            self._generation += 1
            state = numbers["state"]
            is_of_it = state is not None and state["epoch"] == epoch
            _set(numbers, next=epoch, state=state if is_of_it else None, latest=None)

    def set_state(self, state: dict[str, Any]) -> None:
        """The next iteration goes on from this state of `Loader.state_dict()`, in whichever process."""
        with self._numbers() as numbers:
            self._generation += 1
            _set(numbers, next=state["epoch"], seed=state["seed"], state=state, latest=None)

    def set_state_of_worker(self, number: tuple[int, int], next_epoch: int, seed: int | None, iteration: int) -> None:
        """A worker goes on in the epoch before this one, or has ended it, and so do the other workers of the iteration.

        number, iteration: as for `claim_of_worker`.
        """
        of = self._of(number, iteration)
        with self._numbers() as numbers:
            # The first of them goes back, too, where the state is that of an earlier epoch.
            is_first = not _joins(numbers.get("loaded"), of, number)
            if is_first:
                numbers["loaded"] = _begun(of, number)
            latest = next_epoch if is_first else max(numbers["next"], next_epoch)
            _set(numbers, next=latest, seed=seed, state=None, latest="workers")

    def __getstate__(self) -> Any:
        if is_spawning():
            return _shared_file.passed(self._file), self._generation, self._known
        return {**self._read(), "latest": None, "claims": []}

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self._begin(state)
        else:
            file, generation, known = state
            self._join(_shared_file.received(file), generation, known)


def _encoded(numbers: dict[str, Any]) -> bytes:
    return json.dumps(numbers, separators=(",", ":")).encode()


def _parsed(descriptor: int) -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads(_shared_file.read(descriptor))
    return numbers


def _turn(numbers: dict[str, Any]) -> Turn:
    return Turn(numbers["next"], numbers["seed"], numbers["state"], numbers["version"])


def _set(numbers: dict[str, Any], **changes: Any) -> None:
    numbers.update(changes, version=numbers["version"] + 1)


def _begun(of: list[Any], number: tuple[int, int]) -> dict[str, Any]:
    """An iteration whose first worker is this one."""
    return {"of": of, "workers": [[number[0], _process_number()]]}


def _joins(begun: dict[str, Any] | None, of: list[Any], number: tuple[int, int]) -> bool:
    """Notes that this worker, too, has begun an iteration, if it is one of that; returns whether it is.

    Some workers of an older iteration may never have begun.
    """
    if begun is None or begun["of"] != of:
        return False
    worker, workers = number
    process = _process_number()
    for other, its_process in begun["workers"]:
        if worker == other:
            return False
        if process is None or its_process is None:
            continue
        # The processes of an iteration are started in the order of its workers. Other threads may start some in
        # between; those of a later iteration are further away than the older one had workers.
        between = abs(process - its_process) - abs(worker - other)
        if (process > its_process) != (worker > other) or not 0 <= between < workers:
            return False
    begun["workers"].append([worker, process])
    return True


def _process_number() -> int | None:
    """The number of this process among those that its parent has started, as the name has it that it has by default."""
    identity = multiprocessing.current_process()._identity
    return identity[-1] if identity else None


def _claimed(numbers: dict[str, Any], latest: str) -> Turn:
    turn = _turn(numbers)
    _set(numbers, next=turn.epoch + 1, state=None, latest=latest)
    return replace(turn, version=numbers["version"])


def epoch_number(epoch: Any) -> int:
    """The number of an epoch, of any integer type. Raises TypeError and ValueError as `Loader.set_epoch` does."""
    try:
        if isinstance(epoch, bool):
            raise TypeError
        number = operator.index(epoch)
    except TypeError:
        raise TypeError(f"epoch must be an integer, not {type(epoch).__name__}") from None
    if not 0 <= number < 1 << 64:
        raise ValueError(f"epoch must be from 0 to 2**64 - 1, not {number}")
    return number


def is_spawning() -> bool:
    """Whether a pickle is made for a process that is being started."""
    return multiprocessing.context.get_spawning_popen() is not None
