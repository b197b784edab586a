"""The exchange table on `Tensor`, called from C as its consumers do."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent / "interop" / "extensions"))

from build import build_c

READ_ONLY, COPIED = 1, 2
CPU, CUDA, CUDA_HOST, ROCM = 1, 2, 3, 10


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The extension module."""
    return build_c(tmp_path_factory.mktemp("exchange"), "exchange")


def test_the_table_is_on_the_type_alone(c) -> None:
    assert c.slots(ad.Tensor) == ((1, 3), 5, False)
    assert "dlpack_exchange_api" in repr(ad.Tensor.__dlpack_c_exchange_api__)
    assert ad.Tensor.__dlpack_c_exchange_api__ is ad.Tensor.__dict__["__dlpack_c_exchange_api__"]
    for other in (ad.Array, ad.RecordBatch, ad.Ragged):
        assert not hasattr(other, "__dlpack_c_exchange_api__")


def test_no_type_inherits_it() -> None:
    with pytest.raises(TypeError, match="acceptable base"):
        type("Sub", (ad.Tensor,), {})


# ---- managed_tensor_from_py_object_no_sync ----


def test_views_of_arrow_are_exported_read_only(c) -> None:
    source = pa.array([0.5, 1.5, 2.5]).slice(1)
    with ad.track_copies() as log:
        # What an unversioned capsule would hold is of no account: this one says that it is read-only.
        handle = c.from_object(ad.Tensor, ad.to_tensor(source, legacy="error"))
    assert len(log) == 0
    version, flags, tensor = c.describe(handle)
    assert (version, flags) == ((1, 3), READ_ONLY)
    address = source.buffers()[1].address + 8
    assert tensor == {
        "data": address,
        "byte_offset": 0,
        "shape": (2,),
        "strides": (1,),
        "dtype": (2, 64, 1),
        "device": (CPU, 0),
    }
    # The fixture sees that pyarrow's memory is given back with the handle, and not before.
    del source
    assert ctypes.c_double.from_address(address).value == 1.5


@pytest.mark.parametrize("where", ["here", "in a thread"])
def test_the_deleter_releases_the_source_once(c, where: str) -> None:
    producer = producers.Array()
    source = producers.arrow(producers.Schema(), producer)
    handle = c.from_object(ad.Tensor, ad.to_tensor(source))
    del source
    assert not producer.released
    if where == "in a thread":
        c.delete_in_thread(handle)
    del handle
    assert producer.released


def test_writable_tensors_of_any_layout_are_exported(c) -> None:
    source = np.arange(24, dtype="int16").reshape(4, 6)[::2, ::-1]
    _, flags, tensor = c.describe(c.from_object(ad.Tensor, ad.from_dlpack(source)))
    assert flags == 0
    assert (tensor["data"], tensor["shape"], tensor["strides"]) == (source.ctypes.data, (2, 6), (12, -1))
    for view, shape in ((np.array(3.0), ()), (np.zeros((0, 3)), (0, 3))):
        assert c.describe(c.from_object(ad.Tensor, ad.from_dlpack(view)))[2]["shape"] == shape


def test_only_tensors_are_exported(c) -> None:
    batch = ad.from_arrow(pa.record_batch({"x": [1]}))
    for wrong in (batch, batch["x"], np.zeros(2), 7, "x", ad.Tensor):
        with pytest.raises(TypeError, match=r"arrow_dlpack\.Tensor, and got"):
            c.from_object(ad.Tensor, wrong)
        with pytest.raises(TypeError, match=r"arrow_dlpack\.Tensor, and got"):
            c.borrow(ad.Tensor, wrong)


def test_arguments_that_are_null_are_refused(c) -> None:
    tensor = ad.from_dlpack(np.zeros(2))
    for call, name in [
        (lambda: c.from_object(ad.Tensor, None), "py_object"),
        (lambda: c.from_object(ad.Tensor, tensor, False), "out"),
        (lambda: c.borrow(ad.Tensor, None), "py_object"),
        (lambda: c.borrow(ad.Tensor, tensor, False), "out"),
        (lambda: c.to_object(ad.Tensor, None), "tensor"),
        (lambda: c.to_object(ad.Tensor, c.make(), False), "out_py_object"),
        (lambda: c.stream(ad.Tensor, CPU, 0, False), "out_current_stream"),
    ]:
        with pytest.raises(ValueError, match=f"{name} is NULL"):
            call()


# ---- dltensor_from_py_object_no_sync ----


def test_writable_memory_is_lent(c) -> None:
    source = np.arange(6.0).reshape(2, 3).T
    tensor = ad.from_dlpack(source)
    for _ in range(2):
        assert c.borrow(ad.Tensor, tensor) == {
            "data": source.ctypes.data,
            "byte_offset": 0,
            "shape": (3, 2),
            "strides": (1, 3),
            "dtype": (2, 64, 1),
            "device": (CPU, 0),
        }
    deep = ad.from_dlpack(np.zeros((1, 2, 3, 4, 5)))
    assert c.borrow(ad.Tensor, deep)["shape"] == (1, 2, 3, 4, 5)
    assert c.borrow(ad.Tensor, ad.from_dlpack(np.zeros((3, 0))))["data"] == 0


def test_read_only_memory_is_not_lent(c) -> None:
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    for tensor in (ad.to_tensor(pa.array([1, 2])), ad.from_dlpack(frozen)):
        with pytest.raises(BufferError, match=r"read-only.*writable=True"):
            c.borrow(ad.Tensor, tensor)
    assert c.borrow(ad.Tensor, ad.to_tensor(pa.array([1, 2]), writable=True))["shape"] == (2,)


# ---- current_work_stream ----


def test_host_memory_has_no_stream(c) -> None:
    for device_type in (CPU, CUDA_HOST):
        assert c.stream(ad.Tensor, device_type, 0) == 0
    for device_type in (ROCM, 77):
        with pytest.raises(BufferError, match="no stream"):
            c.stream(ad.Tensor, device_type, 0)


# ---- managed_tensor_to_py_object_no_sync ----


def test_managed_tensors_become_tensors(c) -> None:
    before = c.deleted()
    for flags in (0, READ_ONLY, COPIED):
        handle = c.make(flags=flags)
        address = c.describe(handle)[2]["data"]
        tensor = c.to_object(ad.Tensor, handle)
        assert type(tensor) is ad.Tensor
        assert (tensor.shape, tensor.strides, tensor.dtype) == ((2, 4), (4, 1), "float64")
        assert (tensor.writable, tensor.copied) == (flags != READ_ONLY, flags == COPIED)
        array = np.from_dlpack(tensor)
        assert array.ctypes.data == address
        del tensor, handle
        assert array.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        del array
    assert c.deleted() == before + 3


WRONG: dict[str, dict[str, Any]] = {
    "another version": {"major": 2},
    "no data": {"data": 0},
    "no shape": {"shape": 0},
    "a negative extent": {"rows": -2},
    "more than memory": {"rows": 1 << 60},
    "an unknown dtype": {"bits": 24},
    "too many dimensions": {"ndim": 99},
    "no address": {"byte_offset": 1 << 62},
    "a device with streams": {"device_type": CUDA},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused_stays_the_callers(c, case: str) -> None:
    before = c.deleted()
    handle = c.make(**WRONG[case])
    for _ in range(2):
        with pytest.raises(ad.ConversionError):
            c.to_object(ad.Tensor, handle)
    assert c.deleted() == before
    del handle
    assert c.deleted() == before + 1


def test_misaligned_memory_is_realigned_and_given_back_at_once(c) -> None:
    before = c.deleted()
    # Seven rows and a half would end beyond the memory; one row starts in the middle of its first element.
    handle = c.make(byte_offset=4, rows=1)
    with ad.track_copies() as log:
        tensor = c.to_object(ad.Tensor, handle)
    assert [entry.why for entry in log] == ["misaligned elements realigned"]
    assert (tensor.shape, tensor.copied, tensor.writable) == ((1, 4), True, True)
    assert c.deleted() == before + 1


def test_ours_come_back_through_the_table_as_the_memory_they_are(c) -> None:
    producer = producers.Array()
    source = producers.arrow(producers.Schema(), producer)
    tensor = c.to_object(ad.Tensor, c.from_object(ad.Tensor, ad.to_tensor(source)))
    del source
    assert np.from_dlpack(tensor).tolist() == [1, 2, 3]
    assert not tensor.writable
    assert not producer.released
    del tensor
    assert producer.released


# ---- managed_tensor_allocator ----


def test_tensors_are_allocated_on_any_thread(c) -> None:
    handle = c.allocate(ad.Tensor, (0, 32, 1), (2, 3), CPU, True)
    version, flags, tensor = c.describe(handle)
    assert (version, flags, tensor["shape"], tensor["strides"]) == ((1, 3), 0, (2, 3), (3, 1))
    assert tensor["data"] % 64 == 0
    made = np.from_dlpack(c.to_object(ad.Tensor, handle))
    assert made.dtype == np.int32
    assert made.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert made.flags.writeable
    assert c.describe(c.allocate(ad.Tensor, (2, 64, 1), (), CPU, True))[2]["shape"] == ()
    assert c.describe(c.allocate(ad.Tensor, (2, 64, 1), (0, 5), CPU, True))[2]["data"] == 0


def test_what_cannot_be_allocated_is_told_by_the_callback_alone(c) -> None:
    for dtype, shape, device, kind, text in [
        ((0, 32, 1), (-1,), CPU, "ValueError", "negative"),
        ((0, 32, 1), (1 << 61,), CPU, "MemoryError", "could not be allocated"),
        ((0, 32, 1), (1 << 62,), CPU, "MemoryError", "larger than memory"),
        ((0, 32, 1), (1 << 62, 1 << 62), CPU, "ValueError", "64 bits"),
        ((0, 24, 1), (1,), CPU, "BufferError", "bits 24"),
        ((0, 32, 1), (1,), CUDA, "BufferError", "cuda"),
    ]:
        status, told, message = c.allocate(ad.Tensor, dtype, shape, device, True)
        assert (status, told) == (-1, kind)
        assert text in message
        assert c.allocate(ad.Tensor, dtype, shape, device, False) == (-1, "", "")
