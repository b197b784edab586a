"""Ray: a loader over blocks of splits, and a collate function, both copied out of the object store."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
import ray
import torch
from arrow_dlpack import ray as adapter

ROWS = 5000


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    context = ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield context
    ray.shutdown()


def dataset(blocks: int = 7):
    table = pa.table({"row": range(ROWS), "x": np.arange(ROWS) / 4, "word": [f"w{row % 3}" for row in range(ROWS)]})
    return ray.data.from_arrow(table).repartition(blocks).materialize()


def test_a_loader_over_all_blocks():
    loader = adapter.loader(
        dataset().iterator(),
        batch_size=300,
        columns={"x": ["x"], "word": "word", "row": "row", "raw": ad.arrow("row", "word")},
        categories={"word": ["w0", "w1", "w2"]},
    )
    for _ in range(2):
        batches = list(loader)
        assert [len(batch["x"]) for batch in batches] == [300] * 16 + [200]
        row = torch.cat([batch["row"] for batch in batches])
        assert row.tolist() == list(range(ROWS))
        assert torch.equal(torch.cat([batch["word"] for batch in batches]), (row % 3).int())
        assert [value for batch in batches for value in pa.table(batch["raw"])["row"].to_pylist()] == row.tolist()


@ray.remote(num_cpus=0.5)
def epochs_of(split):
    from arrow_dlpack import ray as adapter

    loader = adapter.loader(split, batch_size=128, columns=["row"], drop_last=True, shuffle_buffer=500, seed=1)
    return [[row for batch in loader for row in batch[:, 0].tolist()] for _ in range(2)]


def test_workers_of_a_split_have_each_row_once():
    splits = dataset(8).streaming_split(2, equal=True)
    found = ray.get([epochs_of.remote(split) for split in splits])
    for epoch in range(2):
        one, other = (worker[epoch] for worker in found)
        assert len(one) == len(other) >= ROWS // 2 - 256
        assert len({*one, *other}) == len(one) + len(other)
        assert one != sorted(one)


def test_an_empty_split_has_columns():
    loader = adapter.loader(dataset(1).filter(lambda row: row["row"] < 0).iterator(), batch_size=10, columns=["x"])
    assert list(loader) == []


def test_batches_are_not_over_the_object_store():
    data = dataset()
    for batch in adapter.loader(data.iterator(), batch_size=1000, columns={"row": "row", "raw": ad.arrow("row")}):
        batch["row"] += 100
        torch.from_dlpack(ad.to_tensor(pa.table(batch["raw"])["row"].chunk(0), copy=False)).add_(100)
    collated = data.iterator().iter_torch_batches(batch_size=1000, collate_fn=adapter.collate(columns=["row"]))
    for batch in collated:
        batch["row"] += 100
    assert [row["row"] for row in data.take_all()] == list(range(ROWS))


def test_a_collate_function():
    collate_fn = adapter.collate(columns={"features": ["x", "row"], "y": "row"}, dtype={"features": "float32"})
    batches = list(dataset().iterator().iter_torch_batches(batch_size=400, collate_fn=collate_fn))
    assert [tuple(batch["features"].shape) for batch in batches] == [(400, 2)] * 12 + [(200, 2)]
    assert torch.cat([batch["y"] for batch in batches]).tolist() == list(range(ROWS))


def test_wrong_options():
    split = dataset().iterator()
    for name in ("rank", "world_size", "sources", "lanes", "readers"):
        with pytest.raises(TypeError, match=f"{name}= does not go with a split"):
            adapter.loader(split, batch_size=1, **{name: 1})
    with pytest.raises(TypeError, match=r"dataset\.iterator\(\)"):
        adapter.loader(pa.table({"a": [1]}), batch_size=1)
    with pytest.raises(TypeError, match="copy="):
        adapter.collate(copy=False)
    with pytest.raises(ad.ConversionError, match="nothing"):
        next(iter(adapter.loader(split, batch_size=1, columns=["nothing"])))


def test_blocks_of_another_type_are_an_error():
    """Ray unifies the schemas of blocks in what it tells, and hands out each block as it is."""
    first = pa.table({"a": np.arange(10)})
    other = pa.table({"a": np.arange(10, dtype="int32")})
    loader = adapter.loader(ray.data.from_arrow([first, other]).materialize().iterator(), batch_size=4)
    with pytest.raises(ad.ConversionError, match=r"item 2 of the iterator .* type Int32"):
        list(loader)
