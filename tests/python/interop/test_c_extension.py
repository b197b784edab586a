"""An extension in plain C: the buffer protocol as C asks for it, and DLPack capsules without any library.

Compiles `extensions/c_consumer.c`.
"""

from __future__ import annotations

import gc
import struct
import sys
from types import ModuleType
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest

sys.path.insert(0, __file__.rpartition("/")[0] + "/extensions")

from build import build_c

FORMATS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
ONLY_STRIDES = "a request for a buffer without `PyBUF_STRIDES` is a `BufferError`"
NO_FORMAT = "no format of the buffer protocol says it: `BufferError`; DLPack does"


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The extension module."""
    return build_c(tmp_path_factory.mktemp("c"))


@pytest.mark.parametrize("dtype", FORMATS)
def test_numbers(c, cell, dtype: str) -> None:
    source = pa.array([0, 1, 2, 3], pa.from_numpy_dtype(dtype)).slice(1)
    tensor = ad.to_tensor(source)
    size = np.dtype(dtype).itemsize
    where = source.buffers()[1].address + size
    assert c.buffer(tensor, c.PyBUF_FULL_RO) == {
        "address": where,
        "len": 3 * size,
        "itemsize": size,
        "readonly": 1,
        "ndim": 1,
        "format": FORMATS[dtype],
        "shape": (3,),
        "strides": (size,),
        "suboffsets": None,
    }
    assert struct.calcsize(FORMATS[dtype]) == size
    cell("to", "buffer protocol", "view")
    taken = c.taken(c.take(tensor.__dlpack__(max_version=(1, 3))))
    assert (taken["address"], taken["shape"], taken["strides"]) == (where, (3,), (1,))
    assert taken["dtype"][1:] == (size * 8, 1)
    cell("to", "numbers", "view")


def test_only_what_was_asked_for_is_filled_in(c) -> None:
    tensor = ad.from_dlpack(np.zeros((2, 3)))
    for flags, known in [
        (c.PyBUF_SIMPLE, set()),
        (c.PyBUF_WRITABLE, set()),
        (c.PyBUF_FORMAT, {"format"}),
        (c.PyBUF_ND, {"shape"}),
        (c.PyBUF_STRIDES, {"shape", "strides"}),
        (c.PyBUF_INDIRECT, {"shape", "strides"}),
        (c.PyBUF_FULL, {"format", "shape", "strides"}),
    ]:
        view = c.buffer(tensor, flags)
        assert {name for name in ("format", "shape", "strides", "suboffsets") if view[name] is not None} == known
        # These hold whatever was asked for.
        assert (view["len"], view["itemsize"], view["ndim"], view["readonly"]) == (48, 8, 2, 0)


def test_read_only_memory_is_not_given_for_writing(c, cell) -> None:
    source = pa.array([1.0, 2.0])
    tensor = ad.to_tensor(source)
    for flags in (c.PyBUF_WRITABLE, c.PyBUF_WRITABLE | c.PyBUF_ND, c.PyBUF_FULL):
        with pytest.raises(BufferError, match="read-only"):
            c.buffer(tensor, flags)
    with pytest.raises(BufferError, match="read-only"):
        c.fill(tensor, 0)
    assert source.to_pylist() == [1, 2]
    cell(
        "to", "read-only", "refused", "`PyBUF_WRITABLE` of memory of Arrow: `BufferError`; `writable=True` makes a copy"
    )
    own = ad.to_tensor(source, writable=True)
    c.fill(own, 0)
    assert memoryview(own).tolist() == [0, 0]
    assert source.to_pylist() == [1, 2]


LAYOUTS = {
    "strided": np.s_[::2, ::2],
    "negative strides": np.s_[::-1, ::-2],
    "size 0": np.s_[:, 6:],
    "0-d": np.s_[1, 2],
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_layouts(c, cell, case: str) -> None:
    source = np.asarray(np.arange(24.0).reshape(4, 6)[LAYOUTS[case]])
    tensor = ad.from_dlpack(source)
    view = c.buffer(tensor, c.PyBUF_FULL)
    # The protocol has no shape, NULL, where there are no dimensions.
    assert (view["shape"], view["len"], view["ndim"]) == (source.shape or None, source.nbytes, source.ndim)
    assert c.sum(tensor) == source.sum()
    taken = c.taken(c.take(tensor.__dlpack__(max_version=(1, 3))))
    if source.size:
        assert view["address"] == taken["address"] == source.ctypes.data
        assert view["strides"] == (source.strides or None)
    if source.flags.c_contiguous:
        assert c.buffer(tensor, c.PyBUF_SIMPLE)["len"] == source.nbytes
    else:
        for flags in (c.PyBUF_SIMPLE, c.PyBUF_ND, c.PyBUF_C_CONTIGUOUS, c.PyBUF_F_CONTIGUOUS):
            with pytest.raises(BufferError, match="-major memory"):
                c.buffer(tensor, flags)
    cell("to", case, "view", "" if source.flags.c_contiguous else ONLY_STRIDES)


def test_dtypes(c, cell) -> None:
    bools = ad.to_tensor(pa.array([True, False]))
    assert c.buffer(bools, c.PyBUF_FULL_RO)["format"] == "?"
    cell("to", "bool", "copy")
    for dtype, text in [("complex64", "Zf"), ("complex128", "Zd")]:
        source = np.ones(2, dtype)
        view = c.buffer(ad.from_dlpack(source), c.PyBUF_FULL)
        assert (view["address"], view["format"]) == (source.ctypes.data, text)
    cell("to", "complex", "view")
    bfloat16 = ad.to_tensor(pa.array([1.0]), dtype="bfloat16")
    _, source = producers.dlpack(data=bytes(4), dtype=(10, 8, 1), shape=(4,), strides=(1,))
    float8 = ad.from_dlpack(source)
    for case, tensor, dtype in [("bfloat16", bfloat16, (4, 16, 1)), ("float8", float8, (10, 8, 1))]:
        with pytest.raises(BufferError, match=tensor.dtype):
            c.buffer(tensor, c.PyBUF_FULL_RO)
        cell("to", case, "refused", NO_FORMAT)
        assert c.taken(c.take(tensor.__dlpack__(max_version=(1, 3))))["dtype"] == dtype


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_buffers_are_released_in_any_order(c, order: tuple[int, ...]) -> None:
    producer, source = producers.dlpack()
    tensor = ad.from_dlpack(source)
    views = {index: c.hold(tensor, c.PyBUF_FULL) for index in range(3)}
    del tensor
    for index in order:
        gc.collect()
        assert not producer.released
        assert c.held(views[index])["address"] == producer.address
        del views[index]
    assert producer.releases == 1


@pytest.mark.parametrize("where", ["here", "detached", "thread"])
@pytest.mark.parametrize("max_version", [None, (1, 0), (1, 3)])
def test_deleters_run_once_wherever_they_are_called(c, where: str, max_version: tuple[int, int] | None) -> None:
    """Of memory that came through Python, and of memory of pyarrow: the deleter attaches by itself where it must."""
    producer, source = producers.dlpack()
    capsule = ad.from_dlpack(source).__dlpack__(max_version=max_version)
    handle = c.take(capsule)
    assert producers.capsule_name(capsule) == (b"used_dltensor_versioned" if max_version else b"used_dltensor")
    with pytest.raises(ValueError, match="consumed"):
        c.take(capsule)
    del capsule
    gc.collect()
    assert not producer.released
    assert c.taken(handle)["address"] == producer.address
    c.delete(handle, where)
    assert producer.releases == 1
    assert c.taken(handle) is None
    before = pa.total_allocated_bytes()
    handle = c.take(ad.to_tensor(pa.array(range(1000))).__dlpack__(max_version=max_version))
    gc.collect()
    # An unversioned capsule is a private copy.
    assert (pa.total_allocated_bytes() > before) == (max_version is not None)
    c.delete(handle, where)
    assert pa.total_allocated_bytes() == before


def test_versions_and_flags(c, cell) -> None:
    source = pa.array([1, 2, 3])
    where = source.buffers()[1].address
    tensor = ad.to_tensor(source)
    for asked in ((1, 0), (1, 3), (2, 0)):
        taken = c.taken(c.take(tensor.__dlpack__(max_version=asked)))
        assert (taken["version"][0], taken["flags"], taken["address"]) == (1, producers.READ_ONLY, where)
    copied = c.taken(c.take(tensor.__dlpack__(max_version=(1, 0), copy=True)))
    assert (copied["flags"], copied["address"] == where) == (producers.IS_COPIED, False)
    for asked in (None, (0, 8)):
        taken = c.taken(c.take(tensor.__dlpack__(max_version=asked)))
        assert (taken["version"], taken["flags"], taken["address"] == where) == (None, None, False)
    cell("to", "read-only", "view", "a versioned capsule says so; an unversioned one cannot, and is a private copy")
    assert c.taken(c.take(ad.to_tensor(source, legacy="view").__dlpack__()))["address"] == where


class Made:
    """A producer of a capsule that C made."""

    def __init__(self, c: ModuleType, flags: int) -> None:
        self.c, self.flags = c, flags

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.c.make(3, self.flags)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("flags", [-1, 0, producers.READ_ONLY, producers.IS_COPIED])
def test_capsules_of_c(c, cell, flags: int) -> None:
    before = c.deleted()
    tensor = ad.from_dlpack(Made(c, flags))
    assert (tensor.dtype, tensor.shape, tensor.copied) == ("float64", (3,), flags == producers.IS_COPIED)
    assert tensor.writable == (flags not in (-1, producers.READ_ONLY))
    array = pa.array(ad.to_arrow(tensor, copy=False))
    del tensor
    gc.collect()
    assert array.to_pylist() == [0, 1, 2]
    assert c.deleted() == before
    del array
    gc.collect()
    assert c.deleted() == before + 1
    cell("from", "numbers", "view")
    if flags in (-1, producers.READ_ONLY):
        cell("from", "read-only", "view")


def test_buffers_are_not_imported(c, cell) -> None:
    with pytest.raises(TypeError, match="expected a tensor"):
        ad.from_dlpack(bytearray(8))
    cell("from", "buffer protocol", "absent", "this package imports DLPack and Arrow, not buffers")


def test_exchange_api(tmp_path, cell):
    """In full in `tests/python/test_exchange_api.py`."""
    exchange = build_c(tmp_path, "exchange")
    source = pa.array([0.5, 1.5])
    handle = exchange.from_object(ad.Tensor, ad.to_tensor(source))
    assert exchange.describe(handle)[2]["data"] == source.buffers()[1].address
    cell("to", "exchange API", "view")
    with pytest.raises(BufferError, match="read-only"):
        exchange.borrow(ad.Tensor, ad.to_tensor(source))
    cell("to", "exchange API", "refused", "a `DLTensor` of memory of Arrow, as it cannot say read-only")
    before = exchange.deleted()
    tensor = exchange.to_object(ad.Tensor, exchange.make())
    assert np.from_dlpack(tensor).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    del tensor
    assert exchange.deleted() == before + 1
    cell("from", "exchange API", "view")
