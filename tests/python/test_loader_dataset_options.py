"""`LoaderDataset` takes the options that `Loader` takes, as they were when it was made."""

from __future__ import annotations

import pickle
import types
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("torch")
from arrow_dlpack.torch import LoaderDataset

TABLE = pa.table({"x": [1, 2, 3], "y": [4, 5, 6]})


class Namespace:
    """What is no module."""

    from_dlpack = staticmethod(np.from_dlpack)


def unimported() -> types.ModuleType:
    module = types.ModuleType("nobody_imports_this")
    module.from_dlpack = np.from_dlpack  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize("xp", [Namespace, unimported(), np, "numpy"], ids=["class", "unimported", "numpy", "name"])
def test_every_namespace_of_a_loader_is_one_of_a_data_set(xp: Any) -> None:
    expected = [batch.tolist() for batch in ad.Loader(TABLE, batch_size=2, xp=xp)]
    assert [batch.tolist() for batch in LoaderDataset(TABLE, batch_size=2, xp=xp)] == expected


def test_a_module_is_pickled_by_its_name() -> None:
    dataset = pickle.loads(pickle.dumps(LoaderDataset(TABLE, batch_size=2, xp=np)))
    assert [batch.shape for batch in dataset] == [(2, 2), (1, 2)]


def test_what_a_caller_does_to_a_dict_later_is_no_option() -> None:
    columns = {"a": "x"}
    dataset = LoaderDataset(TABLE, batch_size=3, columns=columns)
    columns["b"] = "y"
    assert [list(batch) for batch in dataset] == [["a"]]
