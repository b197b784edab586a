"""Strided tensors of a device as columns, and row-major matrices there as batches: kernels gather and split them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA_HOST, CUDA_MANAGED, DeviceArray

RANDOM = np.random.default_rng(7)
DTYPES = ["bool", "int8", "float16", "int32", "float64", "complex128"]


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RANDOM.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def placed(pool: fakes.Pool, view: np.ndarray, *, shift: int = 0, stream: int | None = None) -> fakes.Torch:
    """A tensor on the device with the bytes and the strides of a view, `shift` bytes behind an aligned address."""
    low, high = np.lib.array_utils.byte_bounds(view)
    stored = b"\0" * shift + ctypes.string_at(low, high - low)
    tensor = fakes.Torch(pool, np.frombuffer(stored, "u1"), stream=stream)
    first, nbytes, owner = tensor.address, tensor.nbytes, tensor.stream
    tensor.free = lambda: pool.free(first, nbytes, owner)  # type: ignore[method-assign]
    tensor.address += shift + view.__array_interface__["data"][0] - low
    tensor.dtype = (fakes._DTYPES[view.dtype.kind], view.dtype.itemsize * 8, 1)
    tensor.shape, tensor.strides = view.shape, tuple(stride // view.dtype.itemsize for stride in view.strides)
    return tensor


def back(array: ad.Array) -> pa.Array:
    return pa.array(array.to_device("cpu"))


VIEWS: dict[str, Callable[[str], np.ndarray]] = {
    "every third": lambda dtype: values((3_001,), dtype)[::3],
    "backwards": lambda dtype: values((300,), dtype)[::-1],
    "backwards, every second": lambda dtype: values((1_001,), dtype)[::-2],
    "rows with gaps": lambda dtype: values((70, 9), dtype)[:, 1:8],
    "a column": lambda dtype: values((500, 3), dtype)[:, 1],
    "transposed parts": lambda dtype: values((40, 70), dtype)[3:, 2:67].T,
    "permuted parts": lambda dtype: values((5, 7, 11), dtype)[:, 1:, ::2].transpose(0, 2, 1),
    "repeated rows": lambda dtype: np.broadcast_to(values((9,), dtype), (40, 9)),
    "repeated elements": lambda dtype: np.broadcast_to(values((40, 1), dtype), (40, 33)),
    "five dimensions": lambda dtype: values((4, 3, 4, 5, 3), dtype)[::2, :, ::-1, 1:4, ::2].transpose(2, 0, 1, 4, 3),
    "one element": lambda dtype: values((3, 3), dtype)[1:2, 1],
    "none": lambda dtype: values((0, 3), dtype)[:, ::2],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VIEWS)
def test_a_strided_tensor_is_the_column_that_the_host_makes(
    name: str, dtype: str, pool: fakes.Pool, host_waits: Any
) -> None:
    view = VIEWS[name](dtype)
    tensor, waits = placed(pool, view), host_waits()
    array = ad.to_arrow(tensor)
    assert waits.ours == 0
    expected = pa.array(ad.to_arrow(view))
    assert array.device.type == 2
    assert back(array).equals(expected)
    del array, tensor


@pytest.mark.parametrize("shift", [1, 2, 4, 12])
def test_elements_of_any_alignment_are_gathered(shift: int, pool: fakes.Pool) -> None:
    for dtype in ("int16", "float64", "complex128"):
        view = values((90, 5), dtype)[:, ::2]
        expected = pa.array(ad.to_arrow(view))
        assert back(ad.to_arrow(placed(pool, view, shift=shift))).equals(expected), dtype
        batch = ad.to_arrow(placed(pool, view, shift=shift), names=["a", "b", "c"])
        assert back(batch).equals(pa.array(ad.to_arrow(view, names=["a", "b", "c"]))), dtype


ROWS_OF_WORDS: dict[str, Callable[[int, int], np.ndarray]] = {
    "whole": lambda rows, width: values((rows, width), "int32"),
    "with gaps": lambda rows, width: values((rows, width + 3), "int32")[:, 2 : width + 2],
    "backwards": lambda rows, width: values((rows, width), "float32")[::-1],
    "every second": lambda rows, width: values((2 * rows, width), "uint32")[::2],
}


@pytest.mark.parametrize("kind", ROWS_OF_WORDS)
@pytest.mark.parametrize("width", [2, 3, 4, 5, 7, 8, 17, 33, 70])
def test_rows_of_words_of_four_bytes_become_columns(kind: str, width: int, pool: fakes.Pool) -> None:
    names = [str(number) for number in range(width)]
    for rows in (3, 4, 5, 31, 64, 1_030, 2_051):
        view = ROWS_OF_WORDS[kind](rows, width)
        batch = ad.to_arrow(placed(pool, view, shift=4), names=names)
        assert batch.device.type == 2
        assert back(batch).equals(pa.array(ad.to_arrow(view, names=names))), rows
        column = ad.to_arrow(placed(pool, view.T))
        assert back(column).equals(pa.array(ad.to_arrow(view.T))), rows


@pytest.mark.parametrize("shape", [(8, 3_001), (12, 40_007), (171_234, 4)])
def test_blocks_of_rows_that_become_columns(shape: tuple[int, int], pool: fakes.Pool) -> None:
    """Blocks of few rows are wide; those of more than the launch has blocks follow one another."""
    view = np.arange(shape[0] * shape[1], dtype="uint32").reshape(shape)
    assert back(ad.to_arrow(placed(pool, view.T))).equals(pa.array(ad.to_arrow(view.T)))


@pytest.mark.parametrize("dtype", ["int8", "float64"])
def test_a_block_of_the_kernel_copies_one_tile_after_the_other(dtype: str, pool: fakes.Pool) -> None:
    # More tiles of 1,024 elements than the launch has blocks: 160 on the only multiprocessor.
    view = values((500, 700), dtype).T
    assert back(ad.to_arrow(placed(pool, view))).equals(pa.array(ad.to_arrow(view)))


def test_a_copy_is_made_only_if_it_is_allowed(pool: fakes.Pool) -> None:
    view = values((100,), "int32")[::2]
    with pytest.raises(ad.CopyError, match="strided elements gathered"):
        ad.to_arrow(placed(pool, view), copy=False)
    with pytest.raises(ad.CopyError, match="rows split into columns"):
        ad.to_arrow(placed(pool, values((9, 2), "int8")), names=["a", "b"], copy=False)
    with ad.track_copies() as log:
        array = ad.to_arrow(placed(pool, view))
    entries = list(log)
    assert [(entry.bytes, entry.why) for entry in entries] == [(200, "strided elements gathered")]
    assert "cuda:0" in entries[0].what
    report = ad.explain(placed(pool, view))
    assert (report[0].how, report[0].bytes, list(report[0].steps)) == ("copy", 200, ["strided elements gathered"])
    assert "kernel" in str(report).lower()
    refused = ad.explain(placed(pool, view), copy=False)
    assert refused[0].how == "refused"
    del array


def test_a_copy_that_is_asked_for_is_made_on_the_device(pool: fakes.Pool) -> None:
    view = values((64,), "float32")
    tensor = placed(pool, view)
    array = ad.to_arrow(tensor, copy=True)
    assert back(array).equals(pa.array(view))
    again = ad.to_tensor(array)
    assert again.__dlpack_device__() == (2, 0)
    batch = ad.to_arrow(placed(pool, values((64, 2), "float32").T.copy().T), names=["a", "b"], copy=True)
    assert len(back(batch)) == 64
    del array, again, batch


def test_strided_tensors_are_converted_and_moved(pool: fakes.Pool) -> None:
    view = values((200, 3), "int32")[:, 1]
    made = ad.to_tensor(placed(pool, view), dtype="float64")
    assert (made.__dlpack_device__(), made.dtype) == ((2, 0), "float64")
    assert np.array_equal(np.from_dlpack(made.to_device("cpu")), view.astype("float64"))
    host = ad.to_arrow(placed(pool, view), device="cpu")
    assert pa.array(host).equals(pa.array(view.copy()))


def test_a_strided_tensor_waits_for_what_writes_it(pool: fakes.Pool) -> None:
    """And the source is given back behind the kernel: its memory is used again at once."""
    stream = driver.Stream()
    view = values((400, 2), "float64")
    array = ad.to_arrow(placed(pool, view[:, 1], stream=stream.handle))
    batch = ad.to_arrow(placed(pool, view, stream=stream.handle), names=["a", "b"])
    assert back(array).equals(pa.array(view[:, 1].copy()))
    assert back(batch).field(1).equals(pa.array(view[:, 1].copy()))
    del array, batch
    driver.drain()
    stream.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (65, 3), (1_000, 16), (77, 70), (2, 1_500), (1_200, 1)])
def test_a_row_major_matrix_is_split_into_columns(
    shape: tuple[int, int], dtype: str, pool: fakes.Pool, host_waits: Any
) -> None:
    rows = values(shape, dtype)
    names = [f"c{index}" for index in range(shape[1])]
    waits = host_waits()
    batch = ad.to_arrow(placed(pool, rows), names=names)
    assert waits.ours == 0
    assert batch.device.type == 2
    assert back(batch).equals(pa.array(ad.to_arrow(rows, names=names)))


@pytest.mark.parametrize(
    "cut",
    [
        lambda rows: rows[:, 1:6],
        lambda rows: rows[::3, ::2],
        lambda rows: rows[::-1, ::-1],
        lambda rows: np.broadcast_to(rows[:1], rows.shape),
        lambda rows: np.broadcast_to(rows[:, :1], rows.shape),
        lambda rows: rows[:0],
    ],
    ids=["a part", "with gaps", "backwards", "one row", "one column", "no rows"],
)
def test_so_is_a_part_of_one(cut: Any, pool: fakes.Pool) -> None:
    part = cut(values((200, 8), "int16"))
    names = [f"c{index}" for index in range(part.shape[1])]
    assert back(ad.to_arrow(placed(pool, part), names=names)).equals(pa.array(ad.to_arrow(part, names=names)))


def test_columns_of_more_dimensions_are_gathered_one_by_one(pool: fakes.Pool) -> None:
    rows = values((60, 3, 5), "float32")
    batch = ad.to_arrow(placed(pool, rows), names=["a", "b", "c"])
    assert back(batch).equals(pa.array(ad.to_arrow(rows, names=["a", "b", "c"])))


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_memory_that_the_host_reaches_is_split_on_the_device(kind: int) -> None:
    rows = values((50, 3), "int32")
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3)
    batch = ad.to_arrow(ad.to_tensor(DeviceArray(column, kind).give()), names=["a", "b", "c"])
    assert batch.device.type == 2
    assert back(batch).equals(pa.array(ad.to_arrow(rows, names=["a", "b", "c"])))


def test_codes_that_are_split_are_trusted_as_they_were(host_waits: Any) -> None:
    """Codes of an array are checked, or read-only ever since: nobody compares their copies with the dictionary."""
    codes = pa.array(["x", "y", "z", "x", "z", "y"]).dictionary_encode()
    lists = pa.FixedSizeListArray.from_arrays(codes, 2)
    matrix = ad.to_tensor(DeviceArray(lists).give(), dictionary="codes")
    waits = host_waits()
    batch = ad.to_arrow(matrix, names=["a", "b"])
    assert waits.ours == 0
    expected = ad.to_arrow(ad.to_tensor(lists, dictionary="codes"), names=["a", "b"])
    assert back(batch).equals(pa.array(expected))


class TestValidityOfColumns:
    NAMES = ("a", "b", "c")

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("per", ["row", "element", "element, column-major"])
    def test_it_is_packed_there(self, per: str, order: str, pool: fakes.Pool, host_waits: Any) -> None:
        rows = np.asarray(values((300, 3), "float64"), order=order)
        valid = values((300,) if per == "row" else (300, 3), "bool")
        if "column-major" in per:
            valid = np.asfortranarray(valid)
        waits = host_waits()
        batch = ad.to_arrow(placed(pool, rows), names=self.NAMES, validity=placed(pool, valid))
        assert waits.ours == 0
        assert batch.device.type == 2
        assert back(batch).equals(pa.array(ad.to_arrow(rows, names=self.NAMES, validity=valid)))

    def test_strided_bools_are_gathered(self, pool: fakes.Pool) -> None:
        column, valid = values((200,), "int64"), values((400,), "bool")[::2]
        array = ad.to_arrow(placed(pool, column), validity=placed(pool, valid))
        assert back(array).equals(pa.array(ad.to_arrow(column, validity=valid)))
        rows = values((200, 3), "int64")
        batch = ad.to_arrow(placed(pool, rows), names=self.NAMES, validity=placed(pool, valid))
        assert back(batch).equals(pa.array(ad.to_arrow(rows, names=self.NAMES, validity=valid)))

    def test_bools_are_packed_beside_it(self, pool: fakes.Pool) -> None:
        rows, valid = values((200, 3), "bool"), values((200, 3), "bool")
        batch = ad.to_arrow(placed(pool, rows), names=self.NAMES, validity=placed(pool, valid), type=pa.bool_())
        expected = ad.to_arrow(rows, names=self.NAMES, validity=valid, type=pa.bool_())
        assert back(batch).equals(pa.array(expected))

    def test_columns_of_more_dimensions_have_one_for_each_row(self, pool: fakes.Pool) -> None:
        rows, valid = values((60, 3, 2), "float32"), values((60,), "bool")
        batch = ad.to_arrow(placed(pool, rows), names=self.NAMES, validity=placed(pool, valid))
        assert back(batch).equals(pa.array(ad.to_arrow(rows, names=self.NAMES, validity=valid)))

    def test_no_rows_have_none(self, pool: fakes.Pool) -> None:
        rows, valid = values((0, 3), "float32"), values((0, 3), "bool")
        batch = ad.to_arrow(placed(pool, rows), names=self.NAMES, validity=placed(pool, valid))
        assert len(back(batch)) == 0

    def test_one_that_does_not_fit_is_refused(self, pool: fakes.Pool) -> None:
        rows = placed(pool, values((20, 3), "float32"))
        for shape in ((20, 2), (19, 3), (19,), (20, 3, 1)):
            with pytest.raises(ValueError, match="one bool for each of the 20 rows"):
                ad.to_arrow(rows, names=self.NAMES, validity=placed(pool, values(shape, "bool")))
        with pytest.raises(ValueError, match="one bool for each"):
            ad.to_arrow(rows, names=self.NAMES, validity=placed(pool, values((20, 3), "int8")))
        for shape in ((20,), (20, 3)):
            with pytest.raises(ValueError, match="validity is on cpu"):
                ad.to_arrow(rows, names=self.NAMES, validity=values(shape, "bool"))


def test_more_dimensions_than_a_kernel_takes_are_refused(pool: fakes.Pool) -> None:
    view = values((4,) * 6 + (2,) * 6, "int8")[(slice(None, None, 3),) * 6].transpose(range(11, -1, -1))
    with pytest.raises(BufferError, match="more than 10 dimensions"):
        ad.to_arrow(placed(pool, view))
