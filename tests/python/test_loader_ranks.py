"""Ranks of `LoaderDataset`: what a pickle knows of them, what they compare, and which states go to other ranks."""

import functools
import json
import multiprocessing
import pickle
import types
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_dlpack._epochs import Epochs
from arrow_dlpack._shards import names_of

TABLE = pa.table({"id": range(96)})
OPTIONS: dict[str, Any] = {"lanes": 8, "batch_size": 4, "columns": ["id"]}


def rows(batch: Any) -> list[int]:
    return batch[:, 0].tolist()


def refused(work: Any) -> str:
    try:
        work()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


def of_rank(rank: int, folder: str) -> None:
    """What each of two processes does."""
    import torch.distributed
    from arrow_dlpack.torch import LoaderDataset

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found: dict[str, Any] = {}
    box = [LoaderDataset(sources=[TABLE], **OPTIONS) if rank == 0 else None]
    torch.distributed.broadcast_object_list(box, src=0)
    found["broadcast"] = [row for batch in box[0] for row in rows(batch)]
    paths = [f"{folder}/{name}.parquet" for name in "abcd"]
    shards = ad.parquet_shards(paths[::-1] if rank else paths)
    found["order"] = refused(lambda: list(LoaderDataset(sources=shards, lanes=2, batch_size=4, columns=["id"])))
    alone = torch.distributed.new_group([0])
    outside = LoaderDataset(sources=[TABLE], group=alone, compare=False, **OPTIONS)
    found["outside"] = refused(lambda: list(outside))
    Path(f"{folder}/{rank}.json").write_text(json.dumps(found))
    # A pickle that a process without a group loads has the ranks of this one.
    Path(f"{folder}/{rank}.pickle").write_bytes(pickle.dumps(LoaderDataset(sources=[TABLE], **OPTIONS)))
    torch.distributed.destroy_process_group()


def test_ranks_take_their_own_batches_of_a_pickle_and_tell_other_orders(torch, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    for number, name in enumerate("abcd"):
        pq.write_table(pa.table({"id": range(8 * number, 8 * number + 8)}), tmp_path / f"{name}.parquet")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=of_rank, args=(rank, str(tmp_path))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert sorted(found[0]["broadcast"] + found[1]["broadcast"]) == list(range(96))
    for rank in range(2):
        assert "shard 0 is row group 0 of 'a.parquet' and row group 0 of 'd.parquet'" in found[rank]["order"]
    assert (found[0]["outside"], "not in the group" in found[1]["outside"]) == ("", True)
    alone = [pickle.loads((tmp_path / f"{rank}.pickle").read_bytes()) for rank in range(2)]
    assert sorted(row for dataset in alone for batch in dataset for row in rows(batch)) == list(range(96))
    assert next(rows(batch) for batch in alone[0]) == rows(next(iter(ad.Loader(sources=[TABLE], xp=torch, **OPTIONS))))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_state_of_several_workers_is_for_as_many_ranks(torch, monkeypatch, workers: int):
    from arrow_dlpack.torch import LoaderDataset

    info = types.SimpleNamespace(id=0, num_workers=workers, seed=1)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: info)
    made = functools.partial(LoaderDataset, sources=[TABLE], **OPTIONS)
    first = made(rank=0, world_size=2)
    next(iter(first))
    state = json.loads(json.dumps(first.state_dict()))
    made(rank=1, world_size=2).load_state_dict(state)
    others = made(rank=0, world_size=1)
    if workers == 1:
        others.load_state_dict(state)
        return
    with pytest.raises(ValueError, match="of 2 workers of each of 2 ranks, and there are 1 ranks"):
        others.load_state_dict(state)
    # A state of before has no number of ranks.
    others.load_state_dict({name: value for name, value in state.items() if name != "world_size"})


def test_workers_of_a_state_go_back_to_its_epoch():
    epochs = Epochs(5)
    for _ in range(4):
        epochs.claim()
    for worker, next_epoch, iteration, expected in [(0, 1, 7, 1), (1, 2, 7, 2), (2, 1, 7, 2), (0, 1, 8, 1)]:
        epochs.set_state_of_worker((worker, 3), next_epoch, 5, iteration)
        assert epochs.next == expected
    # Another iteration of the same number: the generator was seeded again.
    epochs.set_state_of_worker((0, 3), 0, 5, 8)
    assert epochs.next == 0
    epochs._file.close()


def test_names_of_shards_are_those_on_every_machine(tmp_path: Path, monkeypatch):
    pq.write_table(TABLE, tmp_path / "x.parquet", row_group_size=50)
    shards = ad.parquet_shards(tmp_path / "x.parquet")
    assert names_of(shards) == ["row group 0 of 'x.parquet'", "row group 1 of 'x.parquet'"]
    assert names_of([TABLE, (TABLE, 96)]) == ["", ""]
    # Files of one name, as partitioned data sets have them, and two folders of those.
    for root in ("one", "two/deeper"):
        paths = [tmp_path / root / f"day={day}" / "0.parquet" for day in range(2)]
        for path in paths:
            path.parent.mkdir(parents=True)
            pq.write_table(TABLE, path)
        for order in (1, -1):
            found = names_of(ad.parquet_shards(paths[::order]))
            assert found == [f"row group 0 of 'day={day}/0.parquet'" for day in range(2)][::order]
    monkeypatch.chdir(tmp_path)
    assert (
        names_of(ad.parquet_shards(["x.parquet", "one/day=0/0.parquet"]))[2] == "row group 0 of 'one/day=0/0.parquet'"
    )
    assert names_of(ad.parquet_shards([tmp_path / "x.parquet", "x.parquet"]))[::2] == ["row group 0 of 'x.parquet'"] * 2
    assert names_of(None) == names_of(5) == []


def of_rank_with_workers(rank: int, dataset: Any, workers: int, folder: str) -> None:
    """What each of two processes does that were started with one data set."""
    import torch.distributed
    from torch.utils.data import DataLoader

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    epochs = [
        [row for batch in DataLoader(dataset, batch_size=None, num_workers=workers) for row in batch["id"].tolist()]
        for _ in range(3)
    ]
    Path(f"{folder}/{rank}.json").write_text(json.dumps(epochs))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_ranks_that_start_with_one_data_set_count_epochs_of_their_own(torch, tmp_path: Path, monkeypatch, workers: int):
    from arrow_dlpack.torch import LoaderDataset

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    shards = [pa.table({"id": range(6 * number, 6 * number + 6)}) for number in range(4)]
    dataset = LoaderDataset(
        sources=shards, lanes=4, batch_size=1, shuffle_buffer=100, seed=0, columns={"id": "id"}, compare=workers == 0
    )
    dataset.set_epoch(5)
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=of_rank_with_workers, args=(rank, dataset, workers, str(tmp_path))) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    of_ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    alone = ad.Loader(
        sources=shards, lanes=4, batch_size=1, shuffle_buffer=100, seed=0, columns={"id": "id"}, world_size=1
    )
    alone.set_epoch(5)
    for epochs in zip(*of_ranks, strict=True):
        expected = [row for batch in alone for row in np.asarray(batch["id"]).tolist()]
        assert [row for pair in zip(*epochs, strict=True) for row in pair] == expected
