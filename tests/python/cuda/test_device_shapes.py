"""Columns of several elements a row in a matrix, with data or results on a device."""

from __future__ import annotations

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, DeviceArray, DeviceStream

ROWS, WIDTH = 130, 5
NUMBER = np.arange(ROWS)
EMBEDDING = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
EXPECTED = np.concatenate([NUMBER[:, None].astype("float32"), EMBEDDING], axis=1)
BATCH = pa.StructArray.from_arrays(
    [pa.array(NUMBER.astype("float32")), pa.FixedSizeListArray.from_arrays(pa.array(EMBEDDING.reshape(-1)), WIDTH)],
    ["a", "emb"],
)


def test_the_host_packs_them_for_a_device() -> None:
    made = ad.to_tensor(BATCH, device="cuda")
    assert (made.device.type, made.shape) == (CUDA, (ROWS, WIDTH + 1))
    assert np.array_equal(np.array(made.to_device("cpu")), EXPECTED)


def test_no_kernel_packs_them_and_the_error_says_what_to_do() -> None:
    for work in (ad.to_tensor, ad.validity):
        with pytest.raises(ad.ConversionError, match="cpu"):
            work(DeviceArray(BATCH).give())
    report = ad.explain(ad.from_arrow(DeviceArray(BATCH).give()), columns={"x": ["a", "emb"]})
    assert "cpu" in str(report.matrices[0].error)
    made = ad.to_tensor(DeviceArray(BATCH).give(), device="cpu", xp=np)
    assert np.array_equal(made, EXPECTED)


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
