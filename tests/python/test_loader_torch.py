"""A Loader in torch's DataLoader gives its batches in the process of the loop, and refuses in worker processes."""

import functools
import itertools
import subprocess
import sys
import threading
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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


def opened_if(path: Path, start: int) -> pa.Table:
    if not path.exists():
        raise OSError("not there")
    return pa.table({"row": range(start, start + 9)})


class TestDataSets:
    """Positions of a `LoaderDataset`."""

    @pytest.mark.parametrize("workers", [0, 2])
    def test_are_kept_if_the_source_cannot_be_opened(self, data, tmp_path: Path, workers: int):
        from arrow_dlpack.torch import LoaderDataset

        def rows() -> list[list[int]]:
            return [batch[:, 0].tolist() for batch in batches]

        path = tmp_path / "there"
        sources = [(functools.partial(opened_if, path, start), 9) for start in (0, 9)]
        dataset = LoaderDataset(sources=sources, lanes=2, batch_size=3)
        batches = data.DataLoader(dataset, batch_size=None, num_workers=workers)
        path.touch()
        iterator = iter(dataset)
        list(itertools.islice(iterator, 2))
        state = dataset.state_dict()
        iterator.close()
        dataset.load_state_dict(state)
        path.unlink()
        with pytest.raises(OSError, match="not there"):
            rows()
        assert dataset.state_dict() == state
        path.touch()
        whole = [[row, row + 1, row + 2] for row in (0, 9, 3, 12, 6, 15)]
        assert [rows(), rows()] == [whole[2:], whole]

    def test_are_not_known_if_a_worker_could_open_its_part(self, data, tmp_path: Path):
        from arrow_dlpack.torch import LoaderDataset

        path = tmp_path / "there"
        sources = [(functools.partial(opened_if, path_of, start), 9) for path_of, start in ((tmp_path, 0), (path, 9))]
        dataset = LoaderDataset(sources=sources, lanes=2, batch_size=3)
        batches = iter(data.DataLoader(dataset, batch_size=None, num_workers=2, timeout=60))
        assert next(batches)[:, 0].tolist() == [0, 1, 2]
        with pytest.raises(OSError, match="not there"):
            list(batches)
        with pytest.raises(RuntimeError, match="worker processes make the batches"):
            dataset.state_dict()
        path.touch()
        assert len(list(data.DataLoader(dataset, batch_size=None, num_workers=2))) == 6

    @pytest.mark.parametrize("part", [0, 1])
    def test_are_kept_by_workers_that_persist_and_cannot_open_a_part(self, data, tmp_path: Path, part: int):
        from arrow_dlpack.torch import LoaderDataset

        def rows(batches: Iterable[Any]) -> list[list[int]]:
            return [batch[:, 0].tolist() for batch in batches]

        path = tmp_path / "there"
        path.touch()
        opens = [functools.partial(opened_if, path if number == part else tmp_path, 9 * number) for number in range(2)]
        options = {"lanes": 2, "batch_size": 3, "shuffle_buffer": 9, "shuffle_shards": False, "seed": 1}
        alone, dataset = (LoaderDataset(sources=[(opened, 9) for opened in opens], **options) for _ in range(2))
        epochs = [rows(alone) for _ in range(4)]
        batches = data.DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True, timeout=60)
        iterator = iter(batches)
        try:
            assert rows(iterator) == epochs[0]
            path.unlink()
            for failed in (1, 2):
                iter(batches)
                # The first batch of worker 0 comes before the error of worker 1, in an epoch that has begun.
                assert rows(itertools.islice(iterator, part)) == epochs[failed][:part]
                with pytest.raises(OSError, match="not there"):
                    next(iterator)
            if part == 0:
                assert dataset.state_dict()["epoch"] == 1
            path.touch()
            assert rows(batches) == epochs[1 if part == 0 else 3]
        finally:
            # pytest's traceback holds the iterator in a cycle, of which torch ends the workers late.
            iterator._shutdown_workers()

    def test_are_those_of_a_start_in_a_worker_that_could_not_open_its_part(self, data, monkeypatch, tmp_path: Path):
        from arrow_dlpack.torch import LoaderDataset

        path = tmp_path / "there"
        path.touch()
        dataset = LoaderDataset(functools.partial(opened_if, path, 0), batch_size=3)
        info = types.SimpleNamespace(id=0, num_workers=1, seed=1)
        monkeypatch.setattr(data, "get_worker_info", lambda: info)
        assert len(list(dataset)) == 3
        path.unlink()
        with pytest.raises(OSError, match="not there"):
            next(iter(dataset))
        state = dataset.state_dict()
        assert (state["has_ended"], state["loader"]["epoch"], state["loader"]["taken"]) == (False, 1, [0])
        path.touch()
        other = LoaderDataset(functools.partial(opened_if, path, 0), batch_size=3)
        other.load_state_dict(state)
        assert [len(list(other)), other.state_dict()["loader"]["epoch"]] == [3, 2]

    def test_begin_with_the_first_batch(self, torch, data):
        from arrow_dlpack.torch import LoaderDataset

        dataset = LoaderDataset(TABLE, batch_size=10, columns=["a"], shuffle_buffer=10, seed=1)
        loader = ad.Loader(TABLE, batch_size=10, columns=["a"], shuffle_buffer=10, seed=1)
        expected = [np.from_dlpack(batch).tolist() for _ in range(6) for batch in loader]
        start = dataset.state_dict()
        unasked = iter(data.DataLoader(dataset, batch_size=None))
        assert dataset.state_dict() == start
        assert [batch.tolist() for batch in dataset] == expected[:1]
        # An iteration is that of the epoch that is the next one when it is asked.
        dataset.set_epoch(3)
        assert next(unasked).tolist() == expected[3]
        assert dataset.state_dict()["epoch"] == 3
        first, second = iter(dataset), iter(dataset)
        assert [next(second).tolist(), next(first).tolist()] == expected[4:]

    @pytest.mark.filterwarnings("ignore:This DataLoader will create")
    @pytest.mark.parametrize("persistent", [False, True])
    def test_batches_come_as_workers_make_them_once_each(self, data, persistent: bool):
        from arrow_dlpack.torch import LoaderDataset

        sources = [(functools.partial(opened_if, Path("/"), start), 9) for start in range(0, 54, 9)]
        options = {"lanes": 6, "batch_size": 2, "shuffle_buffer": 20, "seed": 1}
        batches = data.DataLoader(
            LoaderDataset(sources=sources, **options),
            batch_size=None,
            num_workers=3,
            in_order=False,
            persistent_workers=persistent,
        )
        for epoch in range(3):
            expected = LoaderDataset(sources=sources, **options)
            expected.set_epoch(epoch)
            rows = [batch[:, 0].tolist() for batch in expected]
            found = [batch[:, 0].tolist() for batch in batches]
            assert sorted(found) == sorted(rows)
            for worker in range(3):
                own = rows[worker::3]
                assert [batch for batch in found if batch in own] == own

    def test_of_no_worker_are_refused(self, torch):
        from arrow_dlpack.torch import LoaderDataset

        dataset = LoaderDataset(TABLE, batch_size=10)
        state = {"worker": None, "has_ended": False, "loader": dataset.state_dict()}
        with pytest.raises(ValueError, match="none of a worker"):
            dataset.load_state_dict(state)

    @pytest.mark.parametrize("state", [None, 5, [], {"worker": 5}, {"worker": []}, {"worker": [0, 2]}, {}])
    def test_that_are_no_states_are_errors_of_a_loader(self, torch, state: Any):
        from arrow_dlpack.torch import LoaderDataset

        dataset = LoaderDataset(TABLE, batch_size=10)
        with pytest.raises((TypeError, ValueError), match="the state") as caught:
            dataset.load_state_dict(state)
        if not isinstance(state, dict):
            with pytest.raises(TypeError) as expected:
                ad.Loader(TABLE, batch_size=10).load_state_dict(state)
            assert str(caught.value) == str(expected.value)

    def test_may_be_asked_by_another_thread(self, torch):
        from arrow_dlpack.torch import LoaderDataset

        dataset = LoaderDataset(TABLE, batch_size=10, prefetch=0)
        has_ended, errors = threading.Event(), []

        def ask() -> None:
            try:
                while not has_ended.is_set():
                    dataset.state_dict()
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            for epoch in range(200):
                assert len(list(dataset)) == 1
                assert dataset.state_dict()["epoch"] == epoch + 1
        finally:
            has_ended.set()
            thread.join()
        assert errors == []


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
