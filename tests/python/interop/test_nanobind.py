"""nanobind: what `nb::ndarray` takes under each constraint, what it gives back, and who frees it when.

Compiles `extensions/nanobind_arrays.cpp`. A function answers with the address, shape, strides, dtype and device it saw.
"""

from __future__ import annotations

import gc
import sys
from types import ModuleType
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from helpers import address

sys.path.insert(0, __file__.rpartition("/")[0] + "/extensions")

from build import build_nanobind

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
FLOAT8 = {"float8_e3m4": 7, "float8_e4m3fn": 10, "float8_e5m2": 12, "float8_e8m0fnu": 14}
PRIVATE_COPY = (
    '`nb::ro` asks for an unversioned capsule first, which is a private copy of memory of Arrow; with `legacy="error"`'
    " it asks again for a versioned one, and gets a view"
)
REFUSES_READ_ONLY = "an array without `nb::ro` or const elements takes no read-only memory: `TypeError`"


@pytest.fixture(scope="module")
def nb(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The extension module."""
    return build_nanobind(tmp_path_factory.mktemp("nanobind"))


class Asked:
    """A tensor that notes with what it is asked for a capsule."""

    def __init__(self, tensor: ad.Tensor) -> None:
        self.tensor = tensor
        self.calls: list[dict[str, Any]] = []

    def __dlpack__(self, **keywords: Any) -> Any:
        self.calls.append(keywords)
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


def of_dtype(dtype: str) -> tuple[int, int, int]:
    numpy_dtype = np.dtype(dtype)
    return CODES[numpy_dtype.kind], numpy_dtype.itemsize * 8, 1


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers(nb, cell, dtype: str) -> None:
    source = np.arange(6).astype(dtype).reshape(2, 3)
    expected = (source.ctypes.data, (2, 3), (3, 1), of_dtype(dtype), (1, 0))
    tensor = ad.from_dlpack(source)
    assert nb.writable(tensor) == expected
    assert nb.read_only(tensor) == expected
    cell("to", "numbers", "view")
    code, bits, _ = of_dtype(dtype)
    made = nb.make((2, 3), (3, 1), code, bits)
    back = ad.from_dlpack(made)
    assert (back.dtype, back.shape, back.writable, back.copied) == (dtype, (2, 3), True, False)
    assert address(back) == address(made)
    assert bytes(memoryview(back)) == bytes(range(6 * bits // 8))
    cell("from", "numbers", "view")


def test_columns_of_arrow(nb, cell) -> None:
    source = pa.array([0.0, 1.0, 2.0])
    where = source.buffers()[1].address
    asked = Asked(ad.to_tensor(source))
    assert nb.read_only(asked)[0] != where
    assert nb.sum(asked) == 3
    assert asked.calls == [{}, {}]
    cell("to", "read-only", "copy", PRIVATE_COPY)
    asked = Asked(ad.to_tensor(source, legacy="error"))
    assert nb.read_only(asked)[0] == where
    assert asked.calls == [{}, {"max_version": (1, 1)}]
    cell("to", "read-only", "view", PRIVATE_COPY)
    assert nb.read_only(ad.to_tensor(source, legacy="view"))[0] == where
    # An Array is a producer too.
    assert nb.sum(ad.from_arrow(source)) == 3


def test_read_only_memory_is_not_taken_for_writing(nb, cell) -> None:
    source = pa.array([0.0, 1.0, 2.0])
    for legacy in ("copy", "view", "error"):
        asked = Asked(ad.to_tensor(source, legacy=legacy))
        with pytest.raises(TypeError, match="incompatible function arguments"):
            nb.writable(asked)
        with pytest.raises(TypeError, match="incompatible function arguments"):
            nb.fill(asked, 9)
        assert asked.calls == [{"max_version": (1, 1)}] * 2
    assert source.to_pylist() == [0, 1, 2]
    cell("to", "read-only", "refused", REFUSES_READ_ONLY)
    own = ad.to_tensor(source, writable=True)
    nb.fill(own, 9)
    assert np.from_dlpack(own).tolist() == [9, 9, 9]
    assert source.to_pylist() == [0, 1, 2]


def test_read_only_arrays_stay_so(nb, cell) -> None:
    made = nb.make_read_only((3,), (1,), 0, 32)
    back = ad.from_dlpack(made)
    assert not back.writable
    assert address(back) == address(made)
    cell("from", "read-only", "view")


def test_bools_and_nulls(nb, cell) -> None:
    tensor = ad.to_tensor(pa.array([True, False, True]))
    seen = nb.boolean(tensor)
    assert seen[1:] == ((3,), (1,), (6, 8, 1), (1, 0))
    assert memoryview(tensor).tolist() == [True, False, True]
    assert seen[0] == address(tensor)
    cell("to", "bool", "copy")
    made = nb.make((2,), (1,), 6, 8)
    assert memoryview(ad.from_dlpack(made)).tolist() == [False, True]
    assert address(ad.from_dlpack(made)) == address(made)
    cell("from", "bool", "view")
    assert np.isnan(nb.sum(ad.to_tensor(pa.array([1.0, None]), nulls="nan")))
    assert nb.sum(ad.to_tensor(pa.array([1.0, None, 3.0]), nulls=0.5)) == 4.5
    cell("to", "nulls", "copy")


@pytest.mark.parametrize(
    ("case", "dtype", "code", "bits"),
    [
        ("bfloat16", "bfloat16", 4, 16),
        *(("float8", dtype, code, 8) for dtype, code in FLOAT8.items()),
        ("complex", "complex64", 5, 64),
        ("complex", "complex128", 5, 128),
    ],
)
def test_other_dtypes(nb, cell, case: str, dtype: str, code: int, bits: int) -> None:
    made = nb.make((4,), (1,), code, bits)
    tensor = ad.from_dlpack(made)
    assert tensor.dtype == dtype
    assert address(tensor) == address(made)
    cell("from", case, "view")
    assert nb.writable(tensor) == (address(made), (4,), (1,), (code, bits, 1), (1, 0))
    cell("to", case, "view")


LAYOUTS = {
    "strided": np.s_[::2, ::2],
    "negative strides": np.s_[::-1, ::-2],
    "size 0": np.s_[:, 4:],
    "0-d": np.s_[1, 2],
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_layouts(nb, cell, case: str) -> None:
    base = np.arange(24, dtype="int32").reshape(4, 6)
    source = np.asarray(base[LAYOUTS[case]]) if case != "size 0" else base[:, 6:]
    tensor = ad.from_dlpack(source)
    where, shape, strides, *_ = nb.read_only(tensor)
    assert shape == source.shape
    if source.size:
        assert strides == tuple(step // 4 for step in source.strides)
        assert where == source.ctypes.data
    cell("to", case, "view")
    # From the middle of its memory, so that negative strides stay inside.
    made = nb.make(source.shape, tuple(step // 4 for step in source.strides), 0, 32, 256)
    back = ad.from_dlpack(made)
    assert (back.shape, back.copied) == (source.shape, False)
    if source.size:
        assert back.strides == tuple(step // 4 for step in source.strides)
        assert address(back) == address(made)
        memory = np.arange(512, dtype="uint8")
        expected = np.ndarray(source.shape, "int32", memory, 256, source.strides)
        assert memoryview(back).tolist() == expected.tolist()
    cell("from", case, "view")


def test_orders_and_shapes(nb) -> None:
    rows, columns = np.zeros((2, 3)), np.zeros((2, 3), order="F")
    for source, takes, refuses in [(rows, nb.row_major, nb.column_major), (columns, nb.column_major, nb.row_major)]:
        tensor = ad.from_dlpack(source)
        assert takes(tensor)[0] == source.ctypes.data
        with pytest.raises(TypeError, match="order="):
            refuses(tensor)
        assert nb.two_by_three(tensor)[1] == (2, 3)
        assert nb.any_by_three(tensor)[1] == (2, 3)
    with pytest.raises(TypeError, match="shape="):
        nb.two_by_three(ad.from_dlpack(np.zeros((3, 2))))
    # Fixed-size lists are the inner dimension.
    lists = pa.FixedSizeListArray.from_arrays(pa.array(range(6), pa.int32()), 3)
    assert nb.two_by_three(ad.to_tensor(lists))[1:4] == ((2, 3), (3, 1), (0, 32, 1))


def test_other_dtypes_and_devices_are_refused_and_released(nb, cell) -> None:
    for refuses in (nb.float32, nb.complex64, nb.on_cuda):
        producer, source = producers.dlpack()
        tensor = ad.from_dlpack(source)
        with pytest.raises(TypeError, match="incompatible function arguments"):
            refuses(tensor)
        assert nb.on_cpu(tensor)[4] == (1, 0)
        assert not producer.released
        del tensor
        assert producer.releases == 1
    cell("to", "device", "refused", "`nb::device::cuda` takes nothing that is on the CPU: `TypeError`")
    before = nb.deleted()
    with pytest.raises(ad.ConversionError, match="no CUDA driver"):
        ad.from_dlpack(nb.make((3,), (1,), 2, 32, device_type=2))
    gc.collect()
    assert nb.deleted() == before + 1
    cell("from", "device", "refused", "an array that says it is on a GPU; there is none, and the message says so")


def test_misaligned_memory_is_realigned(nb, cell) -> None:
    made = nb.make((3,), (1,), 0, 32, 1)
    back = ad.from_dlpack(made)
    assert back.copied
    assert address(back) % 64 == 0
    assert bytes(memoryview(back)) == bytes(range(1, 13))
    with pytest.raises(ad.CopyError):
        ad.from_dlpack(made, copy=False)
    cell("from", "misaligned", "copy")


def test_buffers(nb, cell) -> None:
    source = pa.array([0.0, 1.0, 2.0])
    view = memoryview(ad.to_tensor(source))
    assert nb.read_only(view)[0] == source.buffers()[1].address
    with pytest.raises(TypeError, match="incompatible function arguments"):
        nb.writable(view)
    cell("to", "buffer protocol", "view")
    with pytest.raises(TypeError, match="expected a tensor"):
        ad.from_dlpack(memoryview(nb.make((3,), (1,), 0, 32)))
    cell(
        "from",
        "buffer protocol",
        "absent",
        "this package imports DLPack and Arrow, not buffers; its arrays have DLPack",
    )
    assert not hasattr(type(nb.make((1,), (1,), 0, 32)), "__dlpack_c_exchange_api__")
    cell("from", "exchange API", "absent")


@pytest.mark.parametrize("drop", ["drop", "drop_in_thread"])
@pytest.mark.parametrize("versioned", [True, False])
def test_what_is_kept_is_released_once(nb, drop: str, versioned: bool) -> None:
    """`drop_in_thread` lets the last reference go in a thread of C++ that Python does not know."""
    producer, source = producers.dlpack(versioned=versioned)
    nb.keep(ad.from_dlpack(source))
    gc.collect()
    assert not producer.released
    getattr(nb, drop)()
    assert producer.releases == 1


def test_arrays_are_deleted_once_after_their_last_view(nb) -> None:
    before = nb.deleted()
    made = nb.make((4,), (1,), 0, 32)
    tensor = ad.from_dlpack(made)
    array = pa.array(ad.to_arrow(tensor))
    del made, tensor
    gc.collect()
    assert nb.deleted() == before
    assert array.to_pylist() == np.arange(16, dtype="uint8").view("int32").tolist()
    del array
    gc.collect()
    assert nb.deleted() == before + 1
