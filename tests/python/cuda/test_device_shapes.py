"""Columns of several elements a row in a matrix, with data or results on a device."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, DeviceArray, DeviceStream

ROWS, WIDTH = 130, 5
NUMBER = np.arange(ROWS)
EMBEDDING = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
EXPECTED = np.concatenate([NUMBER[:, None].astype("float32"), EMBEDDING], axis=1)
PACKED = {"C": "packed row-major", "F": "packed column-major", "A": "packed row-major"}
BATCH = pa.StructArray.from_arrays(
    [pa.array(NUMBER.astype("float32")), pa.FixedSizeListArray.from_arrays(pa.array(EMBEDDING.reshape(-1)), WIDTH)],
    ["a", "emb"],
)


def test_the_host_packs_them_for_a_device() -> None:
    made = ad.to_tensor(BATCH, device="cuda")
    assert (made.device.type, made.shape) == (CUDA, (ROWS, WIDTH + 1))
    assert np.array_equal(np.array(made.to_device("cpu")), EXPECTED)


def test_kernels_pack_them_in_both_orders() -> None:
    for order, strides in (("C", (WIDTH + 1, 1)), ("F", (1, ROWS))):
        made = ad.to_tensor(DeviceArray(BATCH).give(), order=order)
        assert (made.device.type, made.strides) == (CUDA, strides)
        assert np.array_equal(np.array(made.to_device("cpu")), EXPECTED)
    made = ad.validity(DeviceArray(BATCH).give())
    assert (made.device.type, made.shape) == (CUDA, (ROWS, WIDTH + 1))
    assert np.array(made.to_device("cpu")).all()
    report = ad.explain(ad.from_arrow(DeviceArray(BATCH).give()), columns={"x": ["a", "emb"]})
    assert (report.matrices[0].how, report.matrices[0].steps) == ("copy", ["packed row-major"])


def test_a_loader_reads_them_of_a_device_and_batches_go_to_one() -> None:
    for source, device in ((ad.from_arrow(DeviceArray(BATCH).give()), "cpu"), (BATCH, "cuda")):
        loader = ad.Loader(source, batch_size=32, columns={"x": ["a", "emb"]}, prefetch=0, device=device)
        made = np.concatenate([np.array(rows["x"].to_device("cpu")) for rows in loader])
        assert np.array_equal(made, EXPECTED)


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST])
def test_a_matrix_without_columns_has_the_rows_of_all_chunks(kind: int) -> None:
    def stream() -> ad.ArrayStream:
        return ad.from_arrow(DeviceStream([DeviceArray(BATCH[:rows], kind) for rows in (3, 0, 2)], kind).give())

    assert ad.to_tensor(stream(), columns=[], dtype="int8").shape == (5, 0)
    assert ad.to_tensors(stream(), columns={"x": []}, dtype="int8")["x"].shape == (5, 0)


@pytest.mark.parametrize("kind", ["cuda", "cuda_host"])
@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_explain_of_a_stream_knows_that_kernels_pack_them(kind: str, order: Any) -> None:
    def stream() -> Any:
        return ad.from_arrow(pa.chunked_array([BATCH])).to_device(kind)

    (matrix,) = ad.explain(stream(), order=order).matrices
    assert (matrix.error, matrix.how, matrix.steps) == (None, "copy", [PACKED[order]])
    assert np.array_equal(np.array(ad.to_tensor(stream(), order=order).to_device("cpu")), EXPECTED)
    (matrix,) = ad.explain(stream(), columns={"x": ["emb"]}, order=order).matrices
    assert (matrix.error, matrix.how, matrix.steps) == (None, "copy", [PACKED[order]])
    made = ad.to_tensors(stream(), columns={"x": ["emb"]}, order=order)["x"]
    assert np.array_equal(np.array(made.to_device("cpu")), EMBEDDING)
    assert ad.explain(stream(), order=order, device="cpu").matrices[0].error is None
    assert ad.explain(stream(), columns=["a", "emb"])["emb"].error is None
    lists = pa.StructArray.from_arrays([pa.array([[], []], pa.list_(pa.int32(), 0))], ["x"])
    empty = [ad.from_arrow(pa.chunked_array([lists])).to_device(kind) for _ in range(2)]
    assert ad.explain(empty[0], columns={"g": ["x"]}, order=order).matrices[0].error is None
    assert ad.to_tensors(empty[1], columns={"g": ["x"]}, order=order)["g"].shape == (2, 0)


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", None]))
CODES = pa.array(["a", None]).dictionary_encode()
UNTOLD = {
    "runs": RUNS,
    "runs in rows": pa.FixedSizeListArray.from_arrays(RUNS, 1),
    "runs of codes": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), CODES),
    "nulls": pa.nulls(3),
    "rows": BATCH.field(1)[:3],
}


@pytest.mark.parametrize("name", UNTOLD)
def test_explain_of_a_stream_knows_whose_validity_no_kernel_makes(name: str) -> None:
    whole = pa.StructArray.from_arrays([UNTOLD[name]], ["x"])
    for data in (UNTOLD[name], whole):

        def stream(data: pa.Array = data) -> Any:
            return ad.from_arrow(pa.chunked_array([data])).to_device("cuda")

        (row,) = ad.explain(stream(), validity=True)
        if name == "rows":
            assert (row.error, ad.validity(stream()).shape) == (None, (3, WIDTH))
            continue
        with pytest.raises(ad.ConversionError) as caught:
            ad.validity(stream())
        assert (row.how, row.error) == ("refused", str(caught.value))
        (row,) = ad.explain(stream(), validity=True, device="cpu")
        assert row.error is None
        assert len(ad.validity(stream(), device="cpu")) == 3


def test_the_error_of_chunks_that_no_kernel_joins_names_what_helps() -> None:
    """A chunk by itself would be refused as well."""
    decimals = pa.array([1, 2], pa.decimal256(40, 1))
    matrix = pa.StructArray.from_arrays([pa.array([1.5, 2.5]), decimals], ["a", "b"])
    for data, keywords in ((matrix, {}), (matrix, {"order": "F"}), (decimals, {})):
        convert: Any = lambda given, keywords=keywords: ad.to_tensor(given, dtype="float64", **keywords)  # noqa: E731
        for chunks in (1, 2):
            stream = ad.from_arrow(pa.chunked_array([data] * chunks)).to_device("cuda")
            with pytest.raises(ad.ConversionError, match="a copy on cuda:0 is needed") as caught:
                convert(stream)
            assert caught.value.remedy == 'copy it with .to_device("cpu") first'
        assert len(convert(ad.from_arrow(pa.chunked_array([data] * 2)).to_device("cuda").to_device("cpu"))) == 4


@pytest.mark.parametrize("data_type", [pa.list_(pa.int8()), pa.large_list_view(pa.int8()), pa.string()], ids=str)
def test_explain_of_a_stream_of_rows_says_that_kernels_join_them(data_type: pa.DataType) -> None:
    rows = pa.array(["a", "bc"] if data_type == pa.string() else [[1], [2, 3]], data_type)
    is_view = "view" in str(data_type)

    def stream(chunks: int) -> Any:
        return ad.from_arrow(pa.chunked_array([rows] * chunks)).to_device("cuda")

    rebased = [] if is_view else ["offsets of a slice rebased, if it is one"]
    for nulls, told in (("error", ["values are null"]), ("keep", []), (0, ["null rows span elements"])):
        keywords: dict[str, Any] = {"nulls": nulls}
        row = ad.explain(stream(1), **keywords)["offsets"]
        assert (row.how, row.kernel, row.refused_if) == ("view or copy", True, told)
        assert row.steps == ["copied, unless all rows are in one aligned chunk", *rebased]
        assert ["null rows span" in wait for wait in row.waits] == ([nulls == 0] if nulls == 0 or not is_view else [])
        assert not ad.to_ragged(stream(1), **keywords).offsets.copied
        made = ad.to_ragged(stream(2), **keywords)
        assert made.offsets.copied
        assert len(made.values) == 6
        row = ad.explain(stream(1), copy=False, **keywords)["offsets"]
        slices = [] if is_view else ["they are those of a slice"]
        assert (row.how, row.refused_if) == ("view", ["rows are not in one aligned chunk", *slices, *told])
        with pytest.raises(ad.CopyError, match="2 chunks joined"):
            ad.to_ragged(stream(2), copy=False, **keywords)
    assert ad.explain(stream(2), pad=(0, None))[0].refused_if == ["values are null"]
    assert ad.to_ragged(stream(2), pad=(0, None))[0].shape == (4, 2)
