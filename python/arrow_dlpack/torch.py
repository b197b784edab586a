"""A data set of torch: the batches of a `Loader`, dealt to ranks and to the worker processes of a `DataLoader`."""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ._epochs import Epochs, Turn, epoch_number, is_spawning
from ._native import Device, Loader
from ._shards import names_of

if TYPE_CHECKING:
    # Type checkers without torch take the base for Any.
    from torch import Tensor as _Tensor  # type: ignore[import-not-found, unused-ignore]
    from torch.utils.data import IterableDataset  # type: ignore[import-not-found, unused-ignore]
else:
    # At run time it is registered: a subclass would import torch with this file.
    IterableDataset = Generic

__all__ = ["LoaderDataset"]

_BatchT_co = TypeVar("_BatchT_co", covariant=True)


@dataclass
class _Worker:
    """What a worker process keeps."""

    number: tuple[int, int]
    seed: int | None
    loader: Loader[Any]
    has_ended: bool = False
    # Whether the next iteration goes on from a state of this worker.
    is_loaded: bool = False


class LoaderDataset(IterableDataset[_BatchT_co]):  # type: ignore[misc, unused-ignore]
    """An iterable data set of torch: the batches of a `Loader`, for `DataLoader(dataset, batch_size=None)`.

    source, batch_size, options: as for `Loader`; `xp` is "torch" unless it is passed.
    rank, world_size: which batches are this process's. By default its rank in the process group and the group's size,
        as they are when it iterates; one rank if there is no group.
    group: the process group of torch.distributed; None is the default group.
    compare: whether the ranks compare their `Loader.fingerprint()` over the group at the end of each epoch and in
        `state_dict()`, where the training process makes the batches. All ranks must get there, as in any collective.

    With `num_workers=V`, worker v makes the rank's batches j with j % V == v, so the order does not depend on V;
    world_size * V must divide `lanes`. Each iteration is the next epoch, and a random seed is that of all workers.

    Raises what `Loader` raises for wrong options, and TypeError for a rank without a world size. `iter()` raises
    RuntimeError if WORLD_SIZE tells of other processes, and there is neither a process group nor `rank=`.
    """

    @overload
    def __init__(
        self: LoaderDataset[dict[str, Any]],
        source: Any = None,
        *,
        batch_size: int,
        columns: Mapping[str, Any],
        rank: int | None = None,
        world_size: int | None = None,
        group: Any = None,
        compare: bool = True,
        **options: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: LoaderDataset[Any],
        source: Any = None,
        *,
        batch_size: int,
        columns: Sequence[str] | None = None,
        xp: Any,
        rank: int | None = None,
        world_size: int | None = None,
        group: Any = None,
        compare: bool = True,
        **options: Any,
    ) -> None: ...
    @overload
    def __init__(
        self: LoaderDataset[_Tensor],
        source: Any = None,
        *,
        batch_size: int,
        columns: Sequence[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        group: Any = None,
        compare: bool = True,
        **options: Any,
    ) -> None: ...
    def __init__(
        self,
        source: Any = None,
        *,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        group: Any = None,
        compare: bool = True,
        **options: Any,
    ) -> None:
        if (rank is None) != (world_size is None):
            raise TypeError("rank= and world_size= go together; pass both, or neither for those of torch.distributed")
        if "worker" in options:
            raise TypeError("worker= is told by the DataLoader; pass num_workers= to that")
        xp = options.get("xp", "torch")
        if isinstance(xp, ModuleType) and sys.modules.get(xp.__name__) is xp:
            # Modules do not pickle, and worker processes may be given the data set as a pickle.
            xp = xp.__name__
        # What the caller does to a dict later is no option.
        own = {name: dict(option) if isinstance(option, Mapping) else option for name, option in options.items()}
        self._options: dict[str, Any] = {**own, "batch_size": batch_size, "xp": xp}
        self._source = source
        self._ranks = None if rank is None or world_size is None else (rank, world_size)
        # Those of the process that this was pickled in, for one without a process group, such as a worker.
        self._ranks_of_sender: tuple[int, int] | None = None
        self._group, self._compare = group, compare
        self._worker: _Worker | None = None
        # Whether this process is a worker, and has begun an iteration before.
        self._is_reused = False
        # The loader of this process if that is no worker, and the ranks and the seed that it was made with.
        self._loader: Loader[Any] | None = None
        self._loader_terms: tuple[tuple[int, int], int | None] | None = None
        # Refuses wrong options before the ranks are known. Ranks that shuffle need a seed, which Loader demands.
        first = self._made(self._ranks or (0, 1), options.get("seed"))
        self._epochs = Epochs(first.state_dict()["seed"])
        self._set_up()

    def _set_up(self) -> None:
        # Not the object itself, which has the epochs.
        dataset = weakref.ref(self)
        self._epochs.rank = lambda: 0 if (own := dataset()) is None else own._rank_now()
        importlib.import_module("torch.utils.data").IterableDataset.register(LoaderDataset)

    def _made(self, ranks: tuple[int, int], seed: int | None, **more: Any) -> Loader[Any]:
        self._refuse_spent()
        options = {**self._options, **more, "seed": seed, "rank": ranks[0], "world_size": ranks[1]}
        return Loader(self._source, **options)

    def _refuse_spent(self) -> None:
        """Raises ValueError for a source that can be read once, and was: another Loader would find no rows in it."""
        for loader in (self._loader, None if self._worker is None else self._worker.loader):
            if loader is not None:
                loader._refuse_spent()

    def _ranks_now(self) -> tuple[int, int]:
        if self._ranks is not None:
            return self._ranks
        if distributed := _distributed():
            rank, world_size = distributed.get_rank(self._group), distributed.get_world_size(self._group)
            if rank < 0:
                raise ValueError(
                    "this process is not in the group that was passed; iterate in the ranks of the group alone"
                )
            return rank, world_size
        if self._ranks_of_sender is not None:
            return self._ranks_of_sender
        if (processes := os.environ.get("WORLD_SIZE", "1")) != "1":
            raise RuntimeError(
                f"WORLD_SIZE is {processes}, and without a process group this process would read the batches of all "
                "ranks; call torch.distributed.init_process_group() first, or pass rank= and world_size="
            )
        return 0, 1

    def _rank_now(self) -> int:
        try:
            return self._ranks_now()[0]
        except (RuntimeError, ValueError):
            # Not known yet.
            return 0

    def _seed_of(self, ranks: tuple[int, int], seed: int | None) -> int | None:
        """The seed to make a loader with, where `Epochs` has this one."""
        # A random seed is not that of other ranks.
        return seed if ranks[1] == 1 else self._options.get("seed")

    def _of_process(self) -> Loader[Any]:
        """The loader of a process that is no worker, where its iteration is, or where the next one begins."""
        with self._epochs.lock:
            before, turn = self._loader, self._epochs.coming
            loader = self._of_seed(turn.seed)
            if loader is not before or not self._epochs.is_in_process:
                _place(loader, turn)
            return loader

    def _of_seed(self, seed: int | None) -> Loader[Any]:
        """The loader of a process that is no worker, wherever it stands."""
        ranks = self._ranks_now()
        terms = ranks, self._seed_of(ranks, seed)
        if self._loader is None or self._loader_terms != terms:
            self._loader, self._loader_terms = self._made(*terms), terms
        return self._loader

    def _of_worker(self, number: tuple[int, int]) -> _Worker:
        """What this worker process keeps."""
        if self._worker is None or self._worker.number != number:
            device = self._options.get("device")
            if device is not None and Device(device) != "cpu":
                raise RuntimeError("worker processes make batches in host memory: leave device= out, or num_workers=0")
            self._worker = self._made_for(number, self._seed_of(self._ranks_now(), self._epochs.seed))
        return self._worker

    def _made_for(self, number: tuple[int, int], seed: int | None) -> _Worker:
        # As many threads as torch's operations have there.
        threads = self._options.get("threads") or 1
        loader = self._made(self._ranks_now(), seed, threads=threads, worker=number)
        return _Worker(number, seed, loader)

    def __iter__(self) -> Iterator[_BatchT_co]:
        """Begins the next epoch, or continues that of a loaded state: in a worker process, its share of the batches.

        An iteration that fails to open the source has not begun: the next one begins where it would have. With workers,
        it has begun if worker 0 could open its part: the loop gets the first batch of worker 0 before any other.
        """
        info = _worker_info()
        if info is None:
            return self._of_rank()
        is_reused, self._is_reused = self._is_reused, True
        try:
            return self._share(info)
        except Exception as error:
            # torch hands the loop an error of the first iter() of a worker. An error of a later one, in a worker that
            # persists, would end the process, so it comes with the first batch.
            if not is_reused:
                raise
            return _raising(error)

    def _of_rank(self) -> Iterator[Any]:
        # At the first batch: an iterator that nobody asks for one begins no epoch.
        with self._epochs.lock:
            loader = self._of_seed(self._epochs.seed)
            turn = self._epochs.claim()
            with self._given_back(turn):
                _place(loader, turn)
        # Without the lock, which other threads may ask a state under: opening a source takes its time.
        with self._given_back(turn):
            batches = iter(loader)
        yield from batches
        if self._compare:
            self.compare_ranks()

    @contextlib.contextmanager
    def _given_back(self, turn: Turn) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._epochs.give_back(turn)
            raise

    def _share(self, info: Any) -> Iterator[Any]:
        number = _number(info)
        worker = self._of_worker(number)
        if worker.is_loaded:
            # It is in its epoch, or at the end of it, whatever other workers are at.
            next_epoch = worker.loader.epoch + (not worker.has_ended)
            batches = iter(()) if worker.has_ended else self._batches_of(worker)
            worker.is_loaded = False
            self._epochs.set_state_of_worker(number, next_epoch, worker.seed, info.seed - info.id)
            return batches
        turn = self._epochs.claim_of_worker(number, info.seed - info.id)
        # The loop gets the first batch of worker 0, or its error: what other workers cannot do comes after batches.
        with self._given_back(turn) if number[0] == 0 else contextlib.nullcontext():
            seed = self._seed_of(self._ranks_now(), turn.seed)
            if worker.seed != seed:
                worker = self._worker = self._made_for(number, seed)
            _place(worker.loader, turn)
            return self._batches_of(worker)

    def _batches_of(self, worker: _Worker) -> Iterator[Any]:
        # Before the source is opened: the state of an iteration that has not begun is its start.
        worker.has_ended = False
        batches = iter(worker.loader)

        def each() -> Iterator[Any]:
            yield from batches
            worker.has_ended = True

        return each()

    def __len__(self) -> int:
        """Returns the number of batches of this rank. Raises TypeError if the source does not tell its rows."""
        return len(self._of_process())

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, also in workers. Keeps a loaded state of the same epoch.

        `state_dict()` is then the start of that epoch, or the loaded state, as it is of a `Loader`.

        Raises TypeError for what is no integer, and ValueError for one below 0 or of more than 64 bits.
        """
        epoch = epoch_number(epoch)
        self._epochs.set_epoch(epoch)
        if self._worker is not None and self._worker.loader.epoch != epoch:
            self._worker.is_loaded = False

    def state_dict(self) -> dict[str, Any]:
        """Returns the position as a dict that JSON can hold: `Loader.state_dict()`, or in a worker that of its share.

        The ranks compare their fingerprints, so all of them must call it, unless `compare=False` was passed.

        Raises RuntimeError if worker processes make the batches: only a `StatefulDataLoader` knows how many of those
        the loop has got. After `set_epoch()` or `load_state_dict()` the position is known again.
        """
        info = _worker_info()
        if info is not None:
            worker = self._of_worker(_number(info))
            number = list(worker.number)
            position = {"has_ended": worker.has_ended, "loader": worker.loader.state_dict()}
            return {"worker": number, "world_size": self._ranks_now()[1], **position}
        if self._epochs.is_in_workers:
            raise RuntimeError(
                "worker processes make the batches, and this process does not know which of them the loop has got; "
                "take the state of a torchdata.stateful_dataloader.StatefulDataLoader, or begin an iteration with "
                "num_workers=0"
            )
        loader = self._of_process()
        if self._compare:
            self.compare_ranks()
        return loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state of `state_dict()` or of a `Loader`: the next iteration continues from there, in this process
        or in workers, also in those that persist. The numbers of ranks and workers and the batch size may be others;
        of a state of several workers the batch size alone.

        Raises what `Loader.load_state_dict` raises, and ValueError for the state of another worker, for that of several
        workers and of another number of ranks, and for a source that can be read once, and was. Nothing has changed
        then.
        """
        given: Any = state
        if not isinstance(given, Mapping):
            # Loader says what a state is.
            ranks = self._ranks_now()
            self._made(ranks, self._seed_of(ranks, self._seed_in({}))).load_state_dict(given)
        state, info = dict(given), _worker_info()
        if "worker" in state:
            number = None if info is None else [info.id, info.num_workers]
            if not isinstance(state["worker"], (list, tuple)) or len(state["worker"]) != 2:
                raise ValueError('the state is none of a worker: its "worker" must be [v, V] of worker v of V')
            if list(state["worker"]) != number:
                here = "no worker" if number is None else f"worker {number[0]} of {number[1]}"
                raise ValueError(
                    f"the state is of worker {state['worker'][0]} of {state['worker'][1]}, and this process is {here}; "
                    "load it into a StatefulDataLoader with the same num_workers"
                )
            taken_by, world_size = state.get("world_size"), self._ranks_now()[1]
            # Several workers stand at different batches, and other ranks would deal their lanes otherwise.
            if state["worker"][1] > 1 and taken_by is not None and taken_by != world_size:
                raise ValueError(
                    f"the state is of {state['worker'][1]} workers of each of {taken_by!r} ranks, and there are "
                    f"{world_size} ranks: rows would be lost, and others come twice; resume with as many ranks, or "
                    "take states that others can continue from with num_workers=0 or 1"
                )
            position, has_ended = state.get("loader"), state.get("has_ended")
            if info is None or not isinstance(position, dict) or not isinstance(has_ended, bool):
                raise ValueError('the state is none of a worker: it needs a dict "loader", and a bool "has_ended"')
        else:
            position, has_ended = state, False
        # Refuses a wrong state before anything changes.
        ranks, seed = self._ranks_now(), self._seed_in(position)
        if info is not None:
            worker = self._made_for(_number(info), seed)
            worker.loader.load_state_dict(position)
            worker.seed, worker.has_ended, worker.is_loaded = worker.loader.state_dict()["seed"], has_ended, True
            self._worker = worker
            return
        loader = self._made(ranks, self._seed_of(ranks, seed))
        loader.load_state_dict(position)
        with self._epochs.lock:
            # Its numbers are Python's, whatever integers those of the state are.
            self._epochs.set_state(loader.state_dict())
            self._loader, self._loader_terms = loader, (ranks, self._seed_of(ranks, self._epochs.seed))

    def _seed_in(self, state: Mapping[str, Any]) -> int | None:
        """The seed to go on with: that of a state, unless another was passed, which Loader refuses."""
        passed: int | None = self._options.get("seed")
        # Loader says what else a state without a seed lacks.
        return state.get("seed") if passed is None else passed

    def compare_ranks(self) -> None:
        """Compares `Loader.fingerprint()` of the ranks over the process group, if there is one. A collective.

        It compares options, counts, the names of Parquet files, the hashes of rows that two ranks have read, and the
        dictionaries of codes; columns and the conversion if this process has opened the source. What worker processes
        have read is not compared.

        Raises RuntimeError if two ranks differ: they would train on other rows, some twice and some never.
        """
        distributed = _distributed()
        if distributed is None or _worker_info() is not None:
            return
        gathered: list[Any] = [None] * distributed.get_world_size(self._group)
        own = self._of_process().fingerprint(), names_of(self._options.get("sources"))
        distributed.all_gather_object(gathered, own, group=self._group)
        found = [fingerprint for fingerprint, _ in gathered]
        for rank, (_, names) in enumerate(gathered):
            for shard, (name, first_name) in enumerate(zip(names, gathered[0][1], strict=False)):
                if name != first_name:
                    raise RuntimeError(
                        f"ranks 0 and {rank} do not read the same: shard {shard} is {first_name} and {name}; pass the "
                        "shards in the same order to each rank, such as sorted"
                    )
        known: dict[tuple[int, int], tuple[int, int]] = {}
        encoded: dict[int, tuple[int, int]] = {}
        for rank, fingerprint in enumerate(found):
            of_columns = fingerprint.get("dictionaries_of_columns", [fingerprint.get("dictionaries")])
            for column, dictionary in enumerate(of_columns):
                if (
                    dictionary is not None
                    and (before := encoded.setdefault(column, (rank, dictionary)))[1] != dictionary
                ):
                    raise RuntimeError(
                        f"ranks {before[0]} and {rank} have read different dictionaries, so their codes mean different "
                        'things; pass dictionary="values", or unify the dictionaries first'
                    )
        for rank, fingerprint in enumerate(found):
            # What was passed comes before what follows from it.
            for name, value in sorted(fingerprint.items(), key=lambda item: item[0] in {"taken", "conversion"}):
                if name not in {"hashes", "dictionaries", "dictionaries_of_columns"} and value != found[0].get(name):
                    raise RuntimeError(
                        f"ranks 0 and {rank} do not read the same: {name!r} is {found[0].get(name)!r} and {value!r}; "
                        "pass the same source, options and seed to each rank, and let each make as many batches"
                    )
            for shard, samples, digest in fingerprint["hashes"]:
                other, first = known.setdefault((shard, samples), (rank, digest))
                if first != digest:
                    raise RuntimeError(
                        f"ranks {other} and {rank} do not read the same rows of shard {shard}: some rows are lost, and "
                        "some come twice; give a query an ORDER BY over a unique key, or write its result to files"
                    )

    def __getstate__(self) -> dict[str, Any]:
        self._refuse_spent()
        state = {**self.__dict__, "_loader": None, "_worker": None, "_is_reused": False, "_group": None}
        if not is_spawning():
            # A copy goes on where this one is, and then has epochs of its own. A worker has those of this one.
            with self._epochs.lock:
                epochs = state["_epochs"] = copy.copy(self._epochs)
                if self._loader is not None and self._epochs.is_in_process:
                    epochs.set_state(self._loader.state_dict())
        if self._group is not None:
            # No pickle can hold a group.
            state["_ranks"] = self._ranks_now()
        elif _distributed():
            state["_ranks_of_sender"] = self._ranks_now()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up()


def _place(loader: Loader[Any], turn: Turn) -> None:
    """Moves a loader to where an iteration begins."""
    if turn.state is not None:
        loader.load_state_dict(turn.state)
        return
    # By way of another epoch: a loader that was to go on in this one would keep that.
    loader.set_epoch(turn.epoch ^ 1)
    loader.set_epoch(turn.epoch)


def _raising(error: Exception) -> Iterator[Any]:
    """An iterator that raises this error instead of a first batch."""
    yield from ()
    try:
        raise error
    finally:
        # Its traceback holds this frame.
        del error


def _number(info: Any) -> tuple[int, int]:
    """The number of a worker, and how many there are."""
    return int(info.id), int(info.num_workers)


def _worker_info() -> Any:
    """What torch tells of the worker that this process is; None if it is no worker."""
    return importlib.import_module("torch.utils.data").get_worker_info()


def _distributed() -> Any:
    """torch.distributed, if it has a process group."""
    distributed = importlib.import_module("torch.distributed")
    return distributed if distributed.is_available() and distributed.is_initialized() else None
