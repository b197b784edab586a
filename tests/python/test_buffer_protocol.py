"""`memoryview(tensor)`: formats, requests for contiguous or writable memory, and lifetimes."""

import ctypes
import gc
import struct

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

FORMATS = {
    "bool": "?",
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
    "complex64": "Zf",
    "complex128": "Zd",
}


@pytest.mark.parametrize("dtype", FORMATS)
def test_formats(dtype: str):
    source = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    view = memoryview(ad.from_dlpack(source))
    assert view.format == FORMATS[dtype]
    assert (view.itemsize, view.shape, view.strides, view.ndim) == (source.itemsize, (2, 3), source.strides, 2)
    assert (view.nbytes, view.readonly, view.c_contiguous, view.suboffsets) == (source.nbytes, False, True, ())
    assert view.tobytes() == source.tobytes()
    array = np.asarray(view)
    assert array.dtype == source.dtype
    assert array.ctypes.data == source.ctypes.data


def test_values():
    assert memoryview(ad.to_tensor(pa.array([1, 2, 3], pa.int16()))).tolist() == [1, 2, 3]
    assert struct.unpack("3d", ad.to_tensor(pa.array([1.0, 2.0, 3.0]))) == (1, 2, 3)
    assert bytes(ad.to_tensor(pa.array([1, 2], pa.uint8()))) == b"\1\2"


@pytest.mark.parametrize(
    "view",
    [np.s_[::2], np.s_[::-1], np.s_[:, ::2], np.s_[0], np.s_[1, 2], np.s_[0:0], np.s_[:, 1:1], np.s_[:, 1:2]],
    ids=str,
)
def test_layouts(view):
    base = np.arange(12, dtype="int32").reshape(3, 4)
    source = np.asarray(base[view])
    buffer = memoryview(ad.from_dlpack(source))
    assert buffer.shape == source.shape
    np.testing.assert_array_equal(np.asarray(buffer), source)
    assert buffer.nbytes == source.nbytes
    assert buffer.c_contiguous == source.flags.c_contiguous
    assert buffer.f_contiguous == source.flags.f_contiguous


class Buffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


get = ctypes.pythonapi.PyObject_GetBuffer
get.argtypes = (ctypes.py_object, ctypes.POINTER(Buffer), ctypes.c_int)
release = ctypes.pythonapi.PyBuffer_Release
release.argtypes = (ctypes.POINTER(Buffer),)

SIMPLE, WRITABLE, FORMAT, ND = 0, 1, 4, 8
STRIDES = 0x10 | ND
C, F, ANY = 0x20 | STRIDES, 0x40 | STRIDES, 0x80 | STRIDES

ROW_MAJOR = np.arange(6).reshape(2, 3)
LAYOUTS = {"C": ROW_MAJOR, "F": np.asfortranarray(ROW_MAJOR), "neither": np.arange(24).reshape(4, 6)[::2, ::2]}
# Which layouts each request is met for.
REQUESTS = {
    SIMPLE: "C",
    ND: "C",
    STRIDES: "C F neither",
    C: "C",
    F: "F",
    ANY: "C F",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("flags", REQUESTS)
@pytest.mark.parametrize("more", [0, FORMAT, WRITABLE])
def test_requests(layout: str, flags: int, more: int):
    tensor, view = ad.from_dlpack(LAYOUTS[layout]), Buffer()
    if layout not in REQUESTS[flags].split():
        with pytest.raises(BufferError):
            get(tensor, view, flags | more)
        return
    get(tensor, view, flags | more)
    try:
        assert view.buf == LAYOUTS[layout].ctypes.data
        assert view.len == LAYOUTS[layout].nbytes
        assert view.readonly == 0
        assert view.format == (b"q" if more == FORMAT else None)
        assert bool(view.shape) == bool(flags & ND)
        assert bool(view.strides) == (flags & STRIDES == STRIDES)
        if view.strides:
            assert tuple(view.strides[: view.ndim]) == LAYOUTS[layout].strides
    finally:
        release(view)


def test_read_only_memory_is_not_given_for_writing():
    tensor = ad.to_tensor(pa.array([1, 2, 3]))
    assert memoryview(tensor).readonly
    view = Buffer()
    with pytest.raises(BufferError, match="read-only"):
        get(tensor, view, WRITABLE)
    with pytest.raises(TypeError):
        memoryview(tensor)[0] = 1
    own = ad.to_tensor(pa.array([1, 2, 3]), writable=True)
    memoryview(own)[0] = 9
    assert np.from_dlpack(own).tolist() == [9, 2, 3]


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_dtypes_without_a_format(dtype: str):
    with pytest.raises(BufferError, match=dtype):
        memoryview(ad.to_tensor(pa.array([1.0]), dtype=dtype))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_size_0(shape):
    view = memoryview(ad.from_dlpack(np.ones(shape)))
    assert (view.shape, view.ndim) == (shape, len(shape))
    assert view.nbytes == (0 if 0 in shape else 8)
    assert np.asarray(view).shape == shape


def test_a_view_keeps_the_memory():
    gc.collect()
    before = pa.total_allocated_bytes()
    view = memoryview(ad.to_tensor(pa.array(range(1000))))
    gc.collect()
    assert view[999] == 999
    views = [view[i:] for i in range(10)]
    del view
    assert views[9][0] == 9
    del views
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("number", [int, float])
def test_memory_is_no_text_of_a_number(number: type):
    for dtype in (pa.int8(), pa.uint8(), pa.int64()):
        with pytest.raises(TypeError, match=r"no number.*item"):
            number(ad.to_tensor(pa.array([49], dtype)))


def test_other_classes_have_no_buffer():
    for source in (ad.from_arrow(pa.array([1])), ad.from_arrow(pa.record_batch({"x": [1]}))):
        with pytest.raises(TypeError):
            memoryview(source)


@pytest.mark.parametrize(("source", "has_dimensions"), [(np.array(7.0), False), (np.arange(3.0), True)])
def test_without_dimensions_there_is_neither_shape_nor_strides(source: np.ndarray, has_dimensions: bool):
    view = Buffer()
    get(ad.from_dlpack(source), view, STRIDES | FORMAT)
    try:
        assert view.ndim == source.ndim
        assert (bool(view.shape), bool(view.strides)) == (has_dimensions, has_dimensions)
    finally:
        release(view)
