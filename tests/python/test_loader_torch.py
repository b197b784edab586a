"""A Loader in torch's DataLoader gives its batches in the process of the loop, and refuses in worker processes."""

import subprocess
import sys
from pathlib import Path

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

TABLE = pa.table({"a": np.arange(10.0), "b": np.arange(10.0)})


def opened():
    return TABLE


@pytest.fixture
def data(torch):
    import torch.utils.data

    return torch.utils.data


def test_in_a_worker_it_names_num_workers(data):
    class Batches(data.IterableDataset):
        def __iter__(self):
            return iter(ad.Loader(opened, batch_size=4))

    with pytest.raises(RuntimeError, match="num_workers=0"):
        list(data.DataLoader(Batches(), batch_size=None, num_workers=1))


def test_without_workers_it_gives_its_batches(torch, data):
    class Batches(data.IterableDataset):
        def __iter__(self):
            return iter(ad.Loader(opened, batch_size=4, xp=torch))

    batches = list(data.DataLoader(Batches(), batch_size=None))
    assert torch.equal(torch.cat(batches), torch.from_numpy(np.column_stack([np.arange(10.0)] * 2)))


def test_registered_as_a_data_set(torch, data):
    # In a process of its own: the registration stays.
    code = """
import arrow_dlpack as ad, pyarrow as pa, torch
loader = ad.Loader(pa.table({"a": [1.0, 2.0, 3.0]}), batch_size=2, xp=torch)
torch.utils.data.IterableDataset.register(ad.Loader)
batches = torch.utils.data.DataLoader(loader, batch_size=None)
assert len(batches) == 2
assert [batch.tolist() for batch in batches] == [[[1.0], [2.0]], [[3.0]]]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_document_has_that_line():
    document = Path(__file__).parents[2] / "docs" / "loader.md"
    assert "torch.utils.data.IterableDataset.register(ad.Loader)" in document.read_text()


def test_torch_is_not_imported():
    code = """
import sys
import arrow_dlpack as ad, pyarrow as pa
list(ad.Loader(pa.table({"a": [1.0]}), batch_size=2))
assert "torch" not in sys.modules
sys.modules["torch.utils.data"] = None
list(ad.Loader(pa.table({"a": [1.0]}), batch_size=2))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
