"""Which epoch an iteration is, agreed on by a process and those that it starts as workers."""

from __future__ import annotations

import contextlib
import fcntl
import json
import multiprocessing.context
import operator
import os
import tempfile
from collections.abc import Iterator
from multiprocessing import reduction
from typing import Any

# Iterations that begin at once: a worker of an older one may come late.
_REMEMBERED = 16


class Epochs:
    """Numbers iterations. Processes that were forked or spawned from one that has it share it; other pickles copy it.

    An unnamed file holds the numbers: a lock on it ends with the process that has it, however that ends.
    """

    def __init__(self, seed: int | None, next_epoch: int = 0) -> None:
        self._begin({"next": next_epoch, "seed": seed, "is_in_workers": False, "claims": []})

    def _begin(self, numbers: dict[str, Any]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the object is
        os.pwrite(self._file.fileno(), json.dumps(numbers).encode(), 0)
        self._passes: dict[tuple[int, int, int], int] = {}

    @contextlib.contextmanager
    def _numbers(self) -> Iterator[dict[str, Any]]:
        descriptor = self._file.fileno()
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        try:
            content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
            numbers = json.loads(content)
            yield numbers
            # In one call, so that a process that is killed leaves either text.
            os.pwrite(descriptor, json.dumps(numbers).encode().ljust(len(content)), 0)
        finally:
            fcntl.lockf(descriptor, fcntl.LOCK_UN)

    def _get(self, name: str) -> Any:
        with self._numbers() as numbers:
            return numbers[name]

    @property
    def seed(self) -> int | None:
        """The seed of all processes."""
        seed: int | None = self._get("seed")
        return seed

    @property
    def next(self) -> int:
        """The epoch of the next iteration."""
        return int(self._get("next"))

    @property
    def is_in_workers(self) -> bool:
        """Whether the latest iteration is in worker processes."""
        return bool(self._get("is_in_workers"))

    def claimed(self) -> int:
        """The epoch of an iteration in this process; the next one has the next."""
        with self._numbers() as numbers:
            numbers["next"] += 1
            numbers["is_in_workers"] = False
            return int(numbers["next"]) - 1

    def claimed_by_worker(self, worker: int, iteration: int) -> int:
        """The epoch of an iteration in a worker process; its other workers get the same.

        iteration: a number that the workers of an iteration have in common, such as torch's base seed.
        """
        # Workers that persist go on with the same number.
        key = (os.getpid(), worker, iteration)
        passes = self._passes[key] = self._passes.get(key, 0) + 1
        with self._numbers() as numbers:
            claims = numbers["claims"]
            for claim in reversed(claims):
                # The same number once more, of a generator that was seeded again, is another iteration.
                if claim["of"] == [iteration, passes] and worker not in claim["workers"]:
                    claim["workers"].append(worker)
                    return int(claim["epoch"])
            epoch = int(numbers["next"])
            numbers["next"], numbers["is_in_workers"] = epoch + 1, True
            claims.append({"of": [iteration, passes], "epoch": epoch, "workers": [worker]})
            numbers["claims"] = claims[-_REMEMBERED:]
            return epoch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch."""
        with self._numbers() as numbers:
            numbers["next"] = epoch

    def set_state(self, epoch: int, seed: int | None) -> None:
        """The next iteration is of this epoch, by this seed, in whichever process."""
        with self._numbers() as numbers:
            numbers.update(next=epoch, seed=seed, is_in_workers=False)

    def set_state_of_worker(self, next_epoch: int, seed: int | None) -> None:
        """A worker goes on in the epoch before this one, or has ended it, and so do the other workers."""
        with self._numbers() as numbers:
            numbers.update(next=max(numbers["next"], next_epoch), seed=seed, is_in_workers=True)

    def __getstate__(self) -> Any:
        if is_spawning():
            return reduction.DupFd(self._file.fileno())
        with self._numbers() as numbers:
            return {**numbers, "is_in_workers": False, "claims": []}

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self._begin(state)
        else:
            self._file, self._passes = os.fdopen(state.detach(), "r+b"), {}


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
