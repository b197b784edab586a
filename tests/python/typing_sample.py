"""Not run: the stubs as a user's type checker sees them. A line that must be refused says so in its `ignore`, and an
`ignore` that refuses nothing is an error too (`warn_unused_ignores`)."""

from types import ModuleType
from typing import Any, Literal, assert_type

import arrow_dlpack as ad
import numpy as np
from arrow_dlpack.torch import LoaderDataset
from torch.utils.data import DataLoader  # type: ignore[import-not-found, unused-ignore]


def converts(source: ad.Array, batch: ad.RecordBatch, stream: ad.ArrayStream) -> None:
    tensor = ad.to_tensor(source, dtype="float32", nulls="nan", copy=None, writable=False)
    assert_type(tensor, ad.Tensor)
    assert_type(ad.to_tensors(batch, columns=["x"]), dict[str, ad.Tensor])
    assert_type(ad.to_tensors(batch, nulls={"x": "nan"}), dict[str, ad.Tensor])
    assert_type(ad.to_tensor(source, unit="s", length={"x": 3}), ad.Tensor)
    assert_type(ad.statistics(batch, {"x": "mean"}), dict[str, int | float])
    assert_type(ad.validity(source), ad.Tensor)
    assert_type(ad.validity(source, order="F", columns=["a"], length={"a": 3}), ad.Tensor)
    assert_type(ad.validity(source, bits=True), tuple[ad.Tensor, int] | None)
    ad.from_arrow(source, sync="host")
    ad.from_arrow(source, sync="stream")  # type: ignore[arg-type]
    assert_type(ad.from_dlpack(np.zeros(3), copy=False), ad.Tensor)
    assert_type(ad.to_tensor(source).shape, tuple[int, ...])
    for each in stream:
        assert_type(each, ad.RecordBatch | ad.Array)
    with ad.track_copies() as log:
        ad.to_arrow(tensor)
    str(log), str(ad.explain(batch))
    # A tensor is what NumPy's own stubs ask for.
    np.from_dlpack(tensor)


def reads_data_sets_of_torch(source: ad.RecordBatch) -> None:
    groups = LoaderDataset(source, batch_size=2, columns={"x": "a"})
    for batch in groups:
        assert_type(batch, dict[str, Any])
    for matrix in LoaderDataset(source, batch_size=2, nulls=0):
        len(matrix.shape)
    for other in LoaderDataset(source, batch_size=2, xp="numpy"):
        assert_type(other, Any)
    # Of a list or a dict, both kinds of batches.
    LoaderDataset(source, batch_size=2, columns=["a"] if source else {"x": "a"})
    LoaderDataset(source, batch_size=2, columns=3)  # type: ignore[call-overload]
    loader: DataLoader[dict[str, Any]] = DataLoader(groups, batch_size=None)
    iter(loader)


def takes_options_of_variables(source: ad.Array, batch: ad.RecordBatch) -> None:
    ad.to_tensor(source, nulls=None)
    ad.Loader(batch, batch_size=4, nulls=None)
    ad.to_tensor(source, categories=np.array([1]))
    # A dict of mixed values in a variable needs its type: mypy takes {"a": 0, "b": "nan"} for a dict[str, object].
    nulls: dict[str, Literal["nan"] | int] = {"a": 0, "b": "nan"}
    assert_type(ad.to_tensors(batch, nulls=nulls), dict[str, ad.Tensor])
    groups: dict[str, Any] = {"r": ad.ragged("a"), "z": "b"}
    ad.to_tensors(batch, columns=groups)
    ad.Loader(batch, batch_size=4, columns=groups)


def is_ragged(source: ad.Array) -> None:
    ragged = ad.to_ragged(source, nulls="keep")
    assert_type(ragged, ad.Ragged[ad.Tensor])
    assert_type(ragged.validity, ad.Tensor | None)
    assert_type(ad.to_ragged(source, pad=(0, None)), tuple[ad.Tensor, ad.Tensor])
    assert_type(ad.Ragged(np.arange(3), np.arange(2)), ad.Ragged[ad.Tensor])
    assert_type(ad.to_arrow(ad.Ragged(ragged, np.arange(2))), ad.Array)
    cut = ad.to_ragged(source, pad=(0, 4), truncate="left", side="left")
    assert_type(cut, tuple[ad.Tensor, ad.Tensor])
    ad.to_ragged(source, truncate="left")  # type: ignore[call-overload]
    ad.to_ragged(source, pad=3)  # type: ignore[call-overload]


def is_a_matrix(batch: ad.RecordBatch, matrix: np.ndarray) -> None:
    assert_type(ad.to_tensor(batch, order="F", columns=["a", "b"], threads=2), ad.Tensor)
    assert_type(ad.to_tensor(batch, out=matrix), np.ndarray)
    assert_type(ad.to_tensors(batch, columns={"x": ["a", "b"], "y": "c"}, order="A"), dict[str, ad.Tensor])
    assert_type(ad.explain(batch, order="C").matrices[0].promotion, str | None)
    assert_type(ad.explain(batch, pad=(0, None)), ad.Report)
    ad.to_tensor(batch, order="K")  # type: ignore[call-overload]
    ad.to_tensor(batch, out=[1.0])  # type: ignore[call-overload]
    ad.to_tensor(batch, out=matrix, xp=np)  # type: ignore[call-overload]


def loads(table: ad.RecordBatch, stream: ad.ArrayStream) -> None:
    assert_type(ad.Loader(table, batch_size=4), ad.Loader[ad.Tensor])
    ad.Loader(table, batch_size=4, columns={"r": ad.ragged("a"), "z": "b"}, categories={"b": ["x"]}, unknown=0)
    ad.to_tensors(table, columns={"r": ad.ragged("a"), "z": "b"}, categories={"b": ["x"]}, unknown=0)
    ad.explain(table, columns={"r": ad.ragged("a"), "z": "b"}, categories={"b": ["x"]})
    ad.Loader(sources=[table], lanes=2, batch_size=4, worker=(0, 2))
    ad.Loader(table, batch_size=4, worker=1)  # type: ignore[call-overload]
    groups = ad.Loader(
        lambda: stream,
        batch_size=4,
        columns={"x": ["a", "b"], "y": "c"},
        shuffle_buffer=10,
        shuffle_bytes=1 << 30,
        seed=1,
    )
    for batch in groups:
        assert_type(batch, dict[str, ad.Tensor])
    groups.load_state_dict(groups.state_dict())
    own = ad.group(["a", "b"], dtype="float32", nulls="keep", validity="valid")
    assert_type(own, ad.Group)
    assert_type(next(iter(ad.Loader(table, batch_size=4, columns={"x": own}))), dict[str, ad.Tensor])
    assert_type(ad.to_tensors(table, columns={"x": own, "y": "c"}, dtype={"y": "int8"}), dict[str, ad.Tensor])
    ad.group(["a"], nulls={"a": 0})  # type: ignore[arg-type]
    ad.Loader(table, batch_size=4, nulls="keep")  # type: ignore[call-overload]
    assert_type(next(iter(ad.Loader(stream, batch_size=4))), ad.Tensor)
    assert_type(ad.Loader(table, batch_size=4, device="cuda", allocator="cuMemAlloc"), ad.Loader[ad.Tensor])
    ad.Loader(table, batch_size=4, allocator="malloc")  # type: ignore[call-overload]
    ad.Loader(stream)  # type: ignore[call-overload]


def is_a_batch(tensor: ad.Tensor, batch: ad.RecordBatch) -> None:
    assert_type(ad.to_arrow(tensor), ad.Array)
    assert_type(ad.to_arrow(tensor, names=["a", "b"], threads=1), ad.RecordBatch)
    ad.to_arrow(tensor, names=("a", "b"), type={"a": batch, "b": None}, validity=np.ones((3, 2), bool))
    ad.to_arrow(tensor, names=["a", "b"], type=[batch, None])
    ad.to_arrow(tensor, type=[batch, None])  # type: ignore[call-overload]
    ad.to_arrow(tensor, names=3)  # type: ignore[call-overload]


def streams(tensor: ad.Tensor) -> None:
    class Library:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 1)

    with ad.stream(Library()) as block:
        assert_type(block, ad.StreamContext)
        assert_type(tensor.to_device("cpu", stream=1), ad.Tensor)
    tensor.record_stream(2)
    ad.stream("1")  # type: ignore[arg-type]
    ad.warm_up("cuda:0")
    ad.warm_up((2, 0))
    ad.warm_up(device="cuda")  # type: ignore[call-arg]


def reports(source: ad.Array) -> None:
    try:
        ad.to_tensor(source, copy=False)
    except (ad.CopyError, ad.NullError, ad.CastError, ad.UnsupportedTypeError, ad.InternalError) as error:
        assert_type(error.column, str | None)
        assert_type(error.row, int | None)


def is_both(error: ad.ConversionError) -> tuple[BufferError, ValueError]:
    return error, error


def is_refused(source: ad.Array, tensor: ad.Tensor) -> None:
    ad.to_tensor(source, "float32")  # type: ignore[call-overload]
    ad.to_tensor(source, copy="never")  # type: ignore[call-overload]
    ad.to_tensor(source, nul="nan")  # type: ignore[call-overload]
    ad.to_tensor(3)  # type: ignore[call-overload]
    tensor.shape = (1,)  # type: ignore[misc]


def makes_arrays(batch: ad.RecordBatch, module: ModuleType) -> None:
    assert_type(ad.to_tensor(batch, xp=module), Any)
    assert_type(ad.to_tensors(batch, xp=module), dict[str, Any])
    assert_type(ad.Loader(batch, batch_size=4, xp=module), ad.Loader[Any])
    assert_type(ad.to_ragged(batch, xp=module), ad.Ragged[Any])
    assert_type(ad.validity(batch, xp=module), Any)
