"""Training loops over `LoaderDataset`: torchdata's StatefulDataLoader, Lightning, accelerate, and spawned workers."""

import functools
import json
from pathlib import Path

import arrow_dlpack as ad
import pyarrow as pa
import pytest
import pytorch_lightning as lightning
import torch
from accelerate import Accelerator
from arrow_dlpack.torch import LoaderDataset
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = [13, 0, 40, 7, 31]
OPTIONS = {"lanes": 12, "batch_size": 3, "shuffle_buffer": 30, "seed": 5}


def opened(start: int, rows: int) -> pa.Table:
    return pa.table({"row": pa.array(range(start, start + rows), pa.int64())})


def opened_if(path: Path, rows: int) -> pa.Table:
    if not path.exists():
        raise OSError("not there")
    return opened(0, rows)


def shards() -> list:
    starts = [sum(ROWS[:shard]) for shard in range(len(ROWS))]
    return [(functools.partial(opened, start, rows), rows) for start, rows in zip(starts, ROWS, strict=True)]


def dataset() -> LoaderDataset:
    return LoaderDataset(sources=shards(), **OPTIONS)


def rows(batch: torch.Tensor) -> list[int]:
    return batch[:, 0].tolist()


def epochs(count: int) -> list[list[list[int]]]:
    loader = ad.Loader(sources=shards(), **OPTIONS, xp="torch")
    return [[rows(batch) for batch in loader] for _ in range(count)]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("taken", [0, 1, 7, 1000])
def test_a_stateful_data_loader_resumes(taken: int, workers: int, persistent: bool):
    options = {"batch_size": None, "num_workers": workers, "persistent_workers": persistent}
    expected = epochs(3)
    first = StatefulDataLoader(dataset(), **options)
    found = []
    for batch in first:
        if len(found) == taken:
            break
        found.append(rows(batch))
        state = first.state_dict()
    else:
        state = first.state_dict()
    if not found:
        state = StatefulDataLoader(dataset(), **options).state_dict()
    state = json.loads(json.dumps(state))
    resumed = StatefulDataLoader(dataset(), **options)
    resumed.load_state_dict(state)
    rest = [[rows(batch) for batch in resumed] for _ in range(2)]
    if taken == 1000:
        assert (found, rest) == (expected[0], expected[1:])
    else:
        assert [found + rest[0], rest[1]] == expected[:2]


def test_a_stateful_data_loader_keeps_its_place_if_the_source_cannot_be_opened(tmp_path):
    path = tmp_path / "there"
    options = {"batch_size": None, "num_workers": 1, "persistent_workers": True}
    sources = [functools.partial(opened_if, path, rows) for rows in (13, 40)]
    loader = ad.Loader(sources=sources, batch_size=3, shuffle_buffer=30, seed=5, xp="torch")
    made = functools.partial(LoaderDataset, sources=sources, batch_size=3, shuffle_buffer=30, seed=5)
    path.touch()
    expected = [[rows(batch) for batch in loader] for _ in range(3)]
    first = StatefulDataLoader(made(), **options)
    assert [rows(batch) for batch in first] == expected[0]
    path.unlink()
    with pytest.raises(OSError, match="not there"):
        list(first)
    state = json.loads(json.dumps(first.state_dict()))
    resumed = StatefulDataLoader(made(), **options)
    resumed.load_state_dict(state)
    # The state is not lost either where it cannot be resumed yet.
    with pytest.raises(OSError, match="not there"):
        list(resumed)
    path.touch()
    for batched in (first, resumed):
        assert [[rows(batch) for batch in batched] for _ in range(2)] == expected[1:]


def test_workers_that_are_spawned():
    batched = DataLoader(dataset(), batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert [rows(batch) for batch in batched] == epochs(1)[0]


class Model(lightning.LightningModule):
    """Notes the rows of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen: list[list[list[int]]] = []

    def on_train_epoch_start(self) -> None:
        self.seen.append([])

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        self.seen[-1].append(rows(batch))
        return self.weight.sum() * batch.float().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-9)


@pytest.mark.parametrize("workers", [0, 2])
def test_lightning(workers: int, tmp_path):
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    model = Model()
    trainer.fit(model, DataLoader(dataset(), batch_size=None, num_workers=workers))
    assert model.seen == epochs(2)


@pytest.mark.parametrize("workers", [0, 2])
def test_accelerate(workers: int):
    accelerator = Accelerator(cpu=True)
    batched = accelerator.prepare(DataLoader(dataset(), batch_size=None, num_workers=workers))
    assert [[rows(batch) for batch in batched] for _ in range(2)] == epochs(2)
