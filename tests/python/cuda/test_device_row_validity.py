"""Tensors on a device that become Arrow arrays with a validity, which kernels pack to bits."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA_HOST, CUDA_MANAGED, DeviceArray, Memory, buffers_of, event_of, exported


def on_device(values: Any, kind: int = 2) -> ad.Tensor:
    return ad.to_tensor(DeviceArray(pa.array(values), kind).give())


def bools(values: list[bool]) -> ad.Tensor:
    """Bytes of a tensor: bits of Arrow are unpacked by a kernel."""
    return ad.to_tensor(DeviceArray(pa.array(values, pa.bool_())).give())


def back(array: ad.Array) -> pa.Array:
    return pa.array(array.to_device("cpu"))


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 100, 1001])
def test_rows_are_null_where_the_validity_says_so(rows: int, host_waits: Any) -> None:
    valid = [row % 3 != 1 for row in range(rows)]
    for dtype in ("int8", "float64"):
        tensor, told = on_device(np.arange(rows).astype(dtype)), bools(valid)
        waits = host_waits()
        array = ad.to_arrow(tensor, validity=told)
        assert waits.ours == 0
        assert (array.device.type, array.type) == (2, {"int8": "Int8", "float64": "Float64"}[dtype])
        expected = ad.to_arrow(np.arange(rows).astype(dtype), validity=np.array(valid))
        assert back(array).equals(pa.array(expected))


def test_rows_of_a_shape_and_bools() -> None:
    valid = [True, False, True]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0)), 2)
    array = ad.to_arrow(ad.to_tensor(DeviceArray(lists).give()), validity=bools(valid))
    assert back(array).to_pylist() == [[0.0, 1.0], None, [4.0, 5.0]]
    flags = bools([False, True, True])
    assert back(ad.to_arrow(flags, validity=bools(valid))).to_pylist() == [False, None, True]
    made = ad.to_arrow(ad.from_dlpack(flags), type=pa.bool_(), validity=bools(valid))
    assert back(made).to_pylist() == [False, None, True]
    empty = ad.to_arrow(on_device(np.zeros(0)), validity=bools([]))
    assert len(back(empty)) == 0


def test_the_tensor_of_a_column_returns_to_it_with_its_nulls() -> None:
    data = pa.array([1, None, 3, None, 5], pa.int32())
    array = ad.from_arrow(DeviceArray(data).give())
    tensor, valid = ad.to_tensor(array, nulls="keep"), ad.validity(array)
    again = ad.to_arrow(tensor, validity=valid)
    assert back(again).equals(data)
    codes = pa.array(["a", None, "b"]).dictionary_encode()
    array = ad.from_arrow(DeviceArray(codes).give())
    valid = ad.to_tensor(DeviceArray(pa.array([True, False, True])).give())
    again = ad.to_arrow(ad.to_tensor(array, nulls="keep", dictionary="codes"), validity=valid)
    assert back(again).to_pylist() == ["a", None, "b"]


def test_the_copy_is_on_record() -> None:
    tensor, told = on_device(np.arange(20.0)), bools([True] * 20)
    with ad.track_copies() as log:
        ad.to_arrow(tensor, validity=told)
    assert [(entry.bytes, entry.why) for entry in log] == [(3, "validity packed to bits")]


def test_the_array_waits_for_values_and_validity(pool: fakes.Pool) -> None:
    """Both are written on streams of their own: the driver would report a read before."""
    streams = [driver.Stream(), driver.Stream()]
    values = fakes.Torch(pool, np.arange(64.0), stream=streams[0].handle)
    valid = fakes.Torch(pool, np.arange(64) % 2 == 0, stream=streams[1].handle)
    array = ad.to_arrow(values, validity=ad.from_dlpack(valid))
    assert back(array).to_pylist() == [float(row) if row % 2 == 0 else None for row in range(64)]
    del array, values, valid
    driver.drain()
    for stream in streams:
        stream.close()


BOOL8 = {"ARROW:extension:name": "arrow.bool8", "ARROW:extension:metadata": ""}


def bools_in(kind: int, values: Any) -> ad.Tensor:
    """Bytes in memory of this kind."""
    field = pa.field("", pa.int8(), metadata=BOOL8)
    return ad.to_tensor(DeviceArray(pa.array(np.asarray(values, "i1").ravel()), kind, field=field).give())


def test_nobody_allocates_managed_memory() -> None:
    tensor, valid = on_device(np.arange(3.0), CUDA_MANAGED), bools_in(CUDA_MANAGED, [True] * 3)
    calls = driver.calls("cuLaunchKernel")
    with pytest.raises(BufferError, match="validity packed"):
        ad.to_arrow(tensor, validity=valid)
    assert driver.calls("cuLaunchKernel") == calls


@pytest.mark.parametrize("rows", [1, 8, 1001])
def test_bits_beside_page_locked_values_are_page_locked(rows: int) -> None:
    kind = CUDA_HOST
    valid = np.arange(rows) % 3 > 0
    expected = pa.array(ad.to_arrow(np.arange(rows), validity=valid))
    tensor = on_device(np.arange(rows), kind)
    with ad.track_copies() as log:
        array = ad.to_arrow(tensor, validity=bools_in(kind, valid), copy=False)
    assert [(entry.bytes, entry.why) for entry in log] == [((rows + 7) // 8, "validity packed to bits")]
    assert array.device.type == kind
    assert back(array).equals(expected)
    # A kernel writes the bits; whoever waits for the event reads them where they are.
    with exported(array) as struct:
        bitmap, event = next(buffers_of(struct.array)), event_of(struct)
        assert bitmap is not None
        if event:
            with driver.current(0):
                driver.call("cuEventSynchronize", driver.Handle(event))
        assert ctypes.string_at(bitmap, (rows + 7) // 8) == np.packbits(valid, bitorder="little").tobytes()


@pytest.mark.parametrize("nth", range(1, 6))
def test_page_locked_bits_whose_end_nobody_can_record_are_not_reused(nth: int) -> None:
    """The host writes what comes from the cache of page-locked memory."""
    rows = 8 * 4096
    tensor, valid = on_device(np.arange(rows), CUDA_HOST), bools_in(CUDA_HOST, np.arange(rows) % 2)
    driver.run_all()
    driver.fail("cuEventRecord", nth, 999)
    with contextlib.suppress(ad.ConversionError):
        ad.to_arrow(tensor, validity=valid)
    driver.fail_nothing()
    kept = [ad.from_dlpack(np.full(4096, 7, "u1")).to_device("cuda_host") for _ in range(3)]
    driver.run_all()
    assert [np.array(one.to_device("cpu")).tolist() for one in kept] == [[7] * 4096] * 3


def lists_of(values: pa.Array, metadata: dict[str, str] | None = None) -> tuple[pa.Array, pa.Field]:
    kind = pa.list_(pa.field("item", values.type, metadata=metadata), 3)
    return pa.FixedSizeListArray.from_arrays(values, type=kind), pa.field("", kind)


@pytest.mark.parametrize("shape", [(50,), (50, 3)])
def test_rows_that_are_split_and_their_bits_are_on_the_device(shape: tuple[int, ...]) -> None:
    """Kernels write columns of their own memory, and the bits beside them."""
    kind = CUDA_HOST
    matrix = ad.to_tensor(DeviceArray(lists_of(pa.array(np.arange(150)))[0], kind).give())
    valid = (np.arange(np.prod(shape)) % 3 > 0).reshape(shape)
    if len(shape) == 1:
        told = bools_in(kind, valid)
    else:
        lists, field = lists_of(pa.array(valid.ravel().astype("i1")), BOOL8)
        told = ad.to_tensor(DeviceArray(lists, kind, field=field).give())
    assert (told.dtype, told.shape, matrix.device.type) == ("bool", shape, kind)
    names = ["a", "b", "c"]
    batch = ad.to_arrow(matrix, names=names, validity=told)
    assert batch.device.type == 2
    expected = ad.to_arrow(np.arange(150).reshape(50, 3), names=names, validity=valid)
    assert pa.array(batch.to_device("cpu")).equals(pa.array(expected))
    array = ad.to_arrow(matrix, validity=bools_in(kind, valid.ravel()[:50]))
    assert array.device.type == kind
    assert back(array).is_valid().to_pylist() == valid.ravel()[:50].tolist()


class In:
    """An array's bytes in memory of this kind, with its strides."""

    def __init__(self, kind: int, view: np.ndarray) -> None:
        memory = Memory(kind)
        low, high = np.lib.array_utils.byte_bounds(view)
        start = memory.place(ctypes.string_at(low, high - low))
        memory.stream.synchronize()
        self.device = (kind, 0)
        code = {"b": 6, "i": 0, "f": 2}[view.dtype.kind]
        self.producer = producers.DLPack(
            None,
            device=self.device,
            dtype=(code, view.dtype.itemsize * 8, 1),
            shape=view.shape,
            strides=[stride // view.dtype.itemsize for stride in view.strides],
            address=start + view.__array_interface__["data"][0] - low,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        return self.producer.capsule()


def columns_of(shape: tuple[int, ...], order: Any, dtype: str = "int64") -> np.ndarray:
    return np.asarray(np.arange(np.prod(shape)).reshape(shape) % (2 if dtype == "bool" else 97), dtype, order=order)


@pytest.mark.parametrize("elements", [False, True])
@pytest.mark.parametrize(
    ("values", "keywords", "device"),
    [
        (columns_of((50, 3), "F"), {}, CUDA_HOST),
        (columns_of((50, 3), "F"), {"copy": True}, 2),
        (columns_of((50, 3, 2), "C"), {}, 2),
        (columns_of((50, 3), "F", "bool"), {"type": pa.bool_()}, 2),
    ],
    ids=["views", "copies", "shapes", "bits"],
)
def test_bits_are_where_the_columns_go(values: Any, keywords: Any, device: int, elements: bool) -> None:
    valid = np.asfortranarray((np.arange(150) % 4 > 0).reshape(50, 3))
    valid = valid if elements else valid[:, 0].copy()
    expected = ad.to_arrow(values, names=["a", "b", "c"], validity=valid, **keywords)
    made = ad.to_arrow(In(CUDA_HOST, values), names=["a", "b", "c"], validity=In(CUDA_HOST, valid), **keywords)
    assert made.device.type == device
    assert pa.array(made.to_device("cpu")).equals(pa.array(expected))


def test_a_validity_that_does_not_fit_is_refused() -> None:
    tensor = on_device(np.arange(3.0))
    with pytest.raises(ValueError, match="one bool for each of the 3 rows"):
        ad.to_arrow(tensor, validity=bools([True] * 2))
    with pytest.raises(ValueError, match="one bool for each"):
        ad.to_arrow(tensor, validity=on_device(np.arange(3.0)))
    with pytest.raises(ValueError, match="their validity is on cpu"):
        ad.to_arrow(tensor, validity=np.array([True] * 3))


@pytest.mark.parametrize("shape", [(3,), (3, 0)])
def test_a_matrix_without_columns_has_a_validity_of_none(pool: fakes.Pool, shape: tuple[int, ...]) -> None:
    """It is the same batch without columns as on the host."""
    matrix = fakes.Torch(pool, np.zeros((3, 0), "int8"))
    valid = fakes.Torch(pool, np.ones(shape, bool))
    for given, told in ((matrix, valid), (np.zeros((3, 0), "int8"), np.ones(shape, bool))):
        made = ad.to_arrow(given, names=[], validity=told)
        assert (made.num_columns, made.num_rows) == (0, 3)
