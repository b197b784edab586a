"""An object that cannot be read gets an error that says what it is and which line to write; that line then works."""

from __future__ import annotations

import pathlib
import re
import time
import types
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet
import pytest

torch = pytest.importorskip(
    "torch", reason="torch is not installed: half of the remedies are for its arrays", exc_type=ImportError
)

TABLE = pa.table({"a": [1, 2], "b": [3, 4]})

READS: dict[str, Callable[[Any], Any]] = {
    "to_tensor": ad.to_tensor,
    "to_tensors": ad.to_tensors,
    "to_ragged": ad.to_ragged,
    "validity": ad.validity,
    "from_arrow": ad.from_arrow,
    "explain": ad.explain,
    "Loader": lambda source: next(iter(ad.Loader(source, batch_size=2))),
    "Loader of a callable": lambda source: next(iter(ad.Loader(lambda: source, batch_size=2))),
}


class Splits(dict[str, Any]):
    """As a DatasetDict of Hugging Face."""


class Rows:
    """As a data set of Hugging Face."""

    def with_format(self, name: str, columns: object = None) -> Rows:
        return self

    def iter(self, batch_size: int) -> Any:
        return iter(TABLE.to_batches())

    def __getitem__(self, rows: slice) -> pa.Table:
        return TABLE[rows]


# An object, the text of its remedy, and the names that the lines in it use.
SOURCES: list[tuple[str, Any, str, str]] = [
    ("columns", {"a": pa.array([1]), "b": pa.array([2])}, "a mapping has no schema: pass pyarrow.table(data)", "data"),
    ("columns of NumPy", {"a": np.arange(3)}, "a mapping has no schema: pass pyarrow.table(data)", "data"),
    (
        "another mapping",
        types.MappingProxyType({"a": [1, 2]}),
        "a mapping has no schema: pass pyarrow.table(dict(data))",
        "data",
    ),
    ("nothing", {}, "a mapping has no schema: pass pyarrow.table(data)", "data"),
    ("a row", {"a": 1, "b": 2.0}, "pass pyarrow.Table.from_pylist([data])", "data"),
    ("tables", {"train": TABLE}, "it has a table for each key: pass one of them, such as data['train']", "data"),
    (
        "frames",
        {"x": pd.DataFrame({"a": [1]})},
        "it has a table for each key: pass one of them, such as data['x']",
        "data",
    ),
    (
        "splits",
        Splits(train=Rows(), test=Rows()),
        "it has a data set for each key: pass one of them, such as dataset['train']",
        "dataset",
    ),
    ("arrays", [np.zeros(2), np.ones(2)], "pass numpy.stack(arrays) for one array, or [arrow_dlpack", "arrays"),
    ("tensors", (torch.zeros(2), torch.ones(2)), "pass torch.stack(arrays) for one array, or [arrow_dlpack", "arrays"),
    ("numbers", [1, 2, None], "pass pyarrow.array(values)", "values"),
    ("scalars", [np.float32(1), np.float32(2)], "pass pyarrow.array(values)", "values"),
    ("lists", [[1, 2], [3]], "pass pyarrow.array(values)", "values"),
    ("rows", [{"a": 1}, {"a": 2}], "pass pyarrow.Table.from_pylist(rows)", "rows"),
    ("a set", {1, 2}, "a set has no order: pass pyarrow.array(sorted(values))", "values"),
    ("an index", pd.Index([1, 2]), "call .to_numpy() and pass its result", "data"),
]


@pytest.mark.parametrize("function", READS)
@pytest.mark.parametrize(("source", "remedy"), [pytest.param(*case[1:3], id=case[0]) for case in SOURCES])
def test_an_object_that_is_no_source(function: str, source: Any, remedy: str):
    with pytest.raises(TypeError) as raised:
        READS[function](source)
    name = type(source).__name__
    assert f"got {name}" in str(raised.value) or f"not {name}" in str(raised.value)
    assert f"; {remedy}" in str(raised.value)


def lines(error: BaseException) -> list[str]:
    """The lines of code in an error, each of which names a module or subscripts a variable."""
    found = re.findall(r"(?:pass|or|such as) (\[.*?\](?= )|[\w.]+(?:\(.*?\)+|\[.*?\]))(?= |$|,)", str(error))
    assert found, error
    return found


@pytest.mark.parametrize(
    ("source", "name"),
    [pytest.param(case[1], case[3], id=case[0]) for case in SOURCES if "call ." not in case[2] and case[1] != {}],
)
def test_the_line_that_an_error_says_can_be_read(source: Any, name: str):
    with pytest.raises(TypeError) as raised:
        ad.to_tensor(source)
    for line in lines(raised.value):
        names = {name: source, "pyarrow": pa, "numpy": np, "torch": torch, "arrow_dlpack": ad}
        read = ad.from_arrow(eval(line, names))
        assert (sum(map(len, read)) if isinstance(read, ad.ArrayStream) else len(read)) > 0


def test_a_loader_reads_tensors_of_ours_alone():
    for data in (np.zeros((4, 2)), torch.zeros(4, 2)):
        with pytest.raises(TypeError, match=r"; pass arrow_dlpack\.from_dlpack\(data\)$"):
            ad.Loader(data, batch_size=2)
        assert len(list(ad.Loader(ad.from_dlpack(data), batch_size=2))) == 2


WRITES: dict[str, Callable[[str], object]] = {
    "x.parquet": lambda path: pa.parquet.write_table(TABLE, path),
    "X.Parquet": lambda path: pa.parquet.write_table(TABLE, path),
    "x.csv": lambda path: pa.csv.write_csv(TABLE, path),
    "x.json": lambda path: pathlib.Path(path).write_text('{"a": 1}\n{"a": 2}\n'),
    "x.jsonl": lambda path: pathlib.Path(path).write_text('{"a": 1}\n{"a": 2}\n'),
    "x.feather": lambda path: pa.feather.write_feather(TABLE, path),
    "x.arrow": lambda path: pa.feather.write_feather(TABLE, path),
    "x.npy": lambda path: np.save(path, np.zeros((2, 1))),
    "directory": lambda path: pa.dataset.write_dataset(TABLE, path, format="parquet"),
}


@pytest.mark.parametrize("function", READS)
@pytest.mark.parametrize("kind", [str, pathlib.Path])
@pytest.mark.parametrize("name", WRITES)
def test_a_path(name: str, kind: type, function: str, tmp_path: pathlib.Path):
    WRITES[name](str(tmp_path / name))
    path = kind(tmp_path / name)
    with pytest.raises(TypeError, match="a path is not opened here: pass ") as raised:
        READS[function](path)
    before = pa.total_allocated_bytes()
    for line in lines(raised.value):
        assert len(ad.to_tensors(eval(line, {"pyarrow": pa, "numpy": np})) if "npy" not in name else "x") > 0
    # Threads of pyarrow let go of the last block of a file once the table is there.
    for _ in range(500):
        if pa.total_allocated_bytes() <= before:
            break
        time.sleep(0.01)


def test_a_text_that_is_no_short_path_is_not_repeated():
    for text in ("x" * 5000, "a\nb"):
        with pytest.raises(TypeError, match=r"pyarrow\.dataset\.dataset\(path\)") as raised:
            ad.to_tensor(text)
        assert len(str(raised.value)) < 500


@pytest.mark.parametrize("function", [ad.to_arrow, ad.from_dlpack])
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ([1, 2], "numpy.asarray(values)"),
        ([], "numpy.asarray(values)"),
        ([np.zeros(2), np.ones(2)], "numpy.stack(arrays)"),
        ((torch.zeros(2),), "torch.stack(arrays)"),
    ],
)
def test_what_is_no_tensor(function: Callable[[Any], Any], source: Any, line: str):
    with pytest.raises(TypeError, match=re.escape(f"; pass {line}")):
        function(source)
    made = eval(line, {"numpy": np, "torch": torch, "values": source, "arrays": source})
    assert len(pa.array(ad.to_arrow(made))) == len(source)


def package(name: str, below: str) -> types.ModuleType:
    made, namespace = types.ModuleType(name), types.ModuleType(f"{name}.{below}")
    namespace.from_dlpack = np.from_dlpack  # type: ignore[attr-defined]
    setattr(made, below, namespace)
    return made


@pytest.mark.parametrize(
    ("xp", "meant"),
    [
        (package("jax", "numpy"), "pass xp=jax.numpy"),
        (package("mlx", "core"), "pass xp=mlx.core"),
        (np.zeros(2), "pass xp=numpy"),
        (np.float32, "pass xp=numpy"),
        (torch.Tensor, "pass xp=torch"),
        (torch.float32, "pass xp=torch"),
        (re, "pass numpy, torch, jax.numpy, cupy or another module with from_dlpack"),
        ("re", "pass numpy, torch, jax.numpy, cupy or another module with from_dlpack"),
        (pd, "pass numpy, torch, jax.numpy, cupy or another module with from_dlpack"),
    ],
)
@pytest.mark.parametrize("function", ["to_tensor", "to_tensors", "to_ragged", "validity", "Loader"])
def test_an_xp_that_is_no_namespace(function: str, xp: Any, meant: str):
    calls: dict[str, Callable[[], object]] = {
        "to_tensor": lambda: ad.to_tensor(TABLE, xp=xp),
        "to_tensors": lambda: ad.to_tensors(TABLE, xp=xp),
        "to_ragged": lambda: ad.to_ragged(pa.array([[1]]), xp=xp),
        "validity": lambda: ad.validity(TABLE, xp=xp),
        "Loader": lambda: list(ad.Loader(TABLE, batch_size=2, xp=xp)),
    }
    with pytest.raises(TypeError, match="xp must be an array namespace") as raised:
        calls[function]()
    assert str(raised.value).endswith(f"; {meant}")


@pytest.mark.parametrize(
    "source",
    [
        pa.nulls(2),
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([None, 1])),
        pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([None, 1]), pa.array(["a", "b"])]),
    ],
    ids=["null", "runs", "union"],
)
def test_a_type_without_a_bitmap(source: pa.Array):
    with pytest.raises(ad.UnsupportedTypeError, match="has no validity bitmap") as raised:
        ad.validity(source, bits=True)
    assert raised.value.remedy == "ask for validity() without bits"
    assert ad.validity(source).shape == (2,)


@pytest.mark.parametrize(
    "source",
    [pa.chunked_array([[1], [2]]), pd.Series([1, 2]), TABLE, ad.from_arrow(TABLE.to_batches()[0])],
    ids=["chunks", "pandas", "table", "batch"],
)
def test_arrow_data_is_no_tensor_to_import(source: Any):
    with pytest.raises(TypeError, match="it is Arrow data: pass ") as raised:
        ad.from_dlpack(source)
    made = eval(str(raised.value).split(": pass ")[1], {"arrow_dlpack": ad, "data": source})
    assert made.shape[0] == len(source)
