"""NumPy arrays come in and go out, as views wherever the layouts agree."""

import weakref

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from support import FLOATS, NUMBERS, address

COMPLEX = ["complex64", "complex128"]


@pytest.mark.parametrize("dtype", ["bool", *NUMBERS, *COMPLEX])
def test_both_ways_are_views(dtype: str):
    source = np.array([0, 1, 0, 1, 1, 0]).astype(dtype).reshape(2, 3)
    tensor = ad.from_dlpack(source, copy=False)
    assert (tensor.dtype, tensor.shape, tensor.strides) == (dtype, (2, 3), (3, 1))
    assert (tensor.ndim, tensor.size, tensor.nbytes) == (2, 6, source.nbytes)
    assert tensor.writable
    assert not tensor.copied
    back = np.from_dlpack(tensor)
    assert back.ctypes.data == source.ctypes.data == address(tensor)
    assert back.dtype == source.dtype
    assert back.flags.writeable
    np.testing.assert_array_equal(back, source)


@pytest.mark.parametrize(
    "view",
    [
        np.s_[::2],
        np.s_[::-1],
        np.s_[1:, 2:, :],
        np.s_[:, ::-3, 1:2],
        np.s_[..., 0],
        np.s_[2, 1, 3, ...],
        np.s_[1:1],
        np.s_[None, :, None],
    ],
    ids=str,
)
def test_strides_are_kept(view):
    source = np.arange(3 * 6 * 4, dtype="int16").reshape(3, 6, 4)[view]
    tensor = ad.from_dlpack(source)
    assert tensor.shape == source.shape
    back = np.from_dlpack(tensor)
    np.testing.assert_array_equal(back, source)
    if source.size:
        assert back.ctypes.data == source.ctypes.data
        relevant = [
            (b, s) for b, s, extent in zip(back.strides, source.strides, source.shape, strict=True) if extent > 1
        ]
        assert all(b == s for b, s in relevant)


def test_broadcast_and_transposed():
    broadcast = np.broadcast_to(np.arange(3.0), (4, 3))
    tensor = ad.from_dlpack(broadcast)
    assert tensor.strides == (0, 1)
    np.testing.assert_array_equal(np.from_dlpack(tensor), broadcast)
    transposed = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)
    np.testing.assert_array_equal(np.from_dlpack(ad.from_dlpack(transposed)), transposed)


def test_read_only_stays_so():
    source = np.arange(3)
    source.flags.writeable = False
    tensor = ad.from_dlpack(source)
    assert not tensor.writable
    assert not np.from_dlpack(tensor).flags.writeable
    copy = ad.from_dlpack(source, copy=True)
    assert copy.writable
    assert copy.copied
    assert np.from_dlpack(copy).ctypes.data != source.ctypes.data


def test_writes_are_seen_on_both_sides():
    source = np.zeros(3)
    np.from_dlpack(ad.from_dlpack(source))[1] = 7
    assert source.tolist() == [0, 7, 0]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_one_dimension_to_arrow_is_a_view(dtype: str):
    source = np.arange(5).astype(dtype)
    with ad.track_copies() as log:
        array = pa.array(ad.to_arrow(source, copy=False))
    assert len(log) == 0
    assert array.type == pa.from_numpy_dtype(dtype)
    assert array.buffers()[1].address == source.ctypes.data
    assert array.to_pylist() == source.tolist()
    assert array.null_count == 0


@pytest.mark.parametrize(
    ("source", "physical", "permutation"),
    [
        (np.arange(24).reshape(4, 6), [6], None),
        (np.arange(24).reshape(4, 2, 3), [2, 3], None),
        (np.arange(24).reshape(4, 2, 3).transpose(0, 2, 1), [2, 3], [1, 0]),
        (np.arange(120).reshape(2, 3, 4, 5).transpose(0, 3, 1, 2), [3, 4, 5], [2, 0, 1]),
        (np.arange(24).reshape(6, 4)[1:3], [4], None),
        (np.arange(6).reshape(1, 2, 3), [2, 3], None),
        (np.arange(6).reshape(3, 2, 1), [2, 1], None),
    ],
)
def test_rows_become_fixed_shape_tensors(source, physical, permutation):
    array = pa.array(ad.to_arrow(source, copy=False))
    assert isinstance(array, pa.FixedShapeTensorArray)
    assert array.type.shape == physical
    assert array.type.permutation == permutation
    assert array.storage.flatten().buffers()[1].address == source.ctypes.data
    # By the specification; pyarrow's own to_numpy_ndarray misreads permutations that are not their own inverse.
    axes = [0, *(1 + axis for axis in permutation or range(len(physical)))]
    flat = array.storage.flatten().to_numpy()
    np.testing.assert_array_equal(flat.reshape(len(array), *physical).transpose(axes), source)
    # And back: the type says how the elements lie.
    tensor = ad.to_tensor(array, copy=False)
    back = np.from_dlpack(tensor)
    assert back.ctypes.data == source.ctypes.data
    np.testing.assert_array_equal(back, source)


@pytest.mark.parametrize(
    "source",
    [
        np.arange(10)[::2],
        np.arange(10)[::-1],
        np.broadcast_to(np.int64(3), (4,)),
        np.arange(6).reshape(2, 3).T,
        np.arange(60).reshape(3, 4, 5)[:, ::2],
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.frombuffer(b"\0" + np.arange(5.0).tobytes(), np.uint8)[1:].view("f8"),
    ],
)
def test_other_layouts_are_copied_if_allowed(source):
    with pytest.raises(ad.CopyError) as caught:
        ad.to_arrow(source, copy=False)
    assert caught.value.remedy
    with ad.track_copies() as log:
        array = pa.array(ad.to_arrow(source))
    assert log.bytes == source.nbytes
    values = array.to_numpy_ndarray() if source.ndim > 1 else array.to_numpy()
    np.testing.assert_array_equal(values, source)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4), (0, 0)])
def test_size_0(shape: tuple[int, ...]):
    source = np.zeros(shape, "float32")
    tensor = ad.from_dlpack(source)
    assert (tensor.shape, tensor.size, tensor.nbytes) == (shape, 0, 0)
    assert np.from_dlpack(tensor).shape == shape
    array = pa.array(ad.to_arrow(source, copy=False))
    assert len(array) == shape[0]
    assert ad.to_tensor(array).shape == shape


def test_0_dimensions():
    source = np.array(2.5)
    tensor = ad.from_dlpack(source)
    assert (tensor.shape, tensor.strides, tensor.size) == ((), (), 1)
    back = np.from_dlpack(tensor)
    assert back.shape == ()
    assert back.ctypes.data == source.ctypes.data
    assert pa.array(ad.to_arrow(source, copy=False)).to_pylist() == [2.5]
    with pytest.raises(TypeError):
        len(tensor)


def test_bool_is_bool8_or_bits():
    source = np.array([True, False, True])
    array = pa.array(ad.to_arrow(source, copy=False))
    assert array.type == pa.bool8()
    assert array.storage.buffers()[1].address == source.ctypes.data
    bits = pa.array(ad.to_arrow(source, type=pa.bool_()))
    assert bits.type == pa.bool_()
    assert bits.to_pylist() == [True, False, True]
    with pytest.raises(ad.CopyError):
        ad.to_arrow(source, type=pa.bool_(), copy=False)


def test_bools_of_several_dimensions():
    source = np.array([[True, False], [False, False], [True, True]])
    array = ad.to_arrow(source, copy=False)
    np.testing.assert_array_equal(np.from_dlpack(ad.to_tensor(array)), source)


@pytest.mark.parametrize(
    "valid", [np.array([True, False, True]), pa.array([True, False, True])], ids=["numpy", "arrow"]
)
@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_validity_becomes_the_bitmap(valid, shape: tuple[int, ...]):
    source = np.arange(int(np.prod(shape)), dtype="float64").reshape(shape)
    array = pa.array(ad.to_arrow(source, validity=valid))
    assert array.is_valid().to_pylist() == [True, False, True]
    assert array.null_count == 1
    expected = np.broadcast_to(np.array([True, False, True]).reshape(3, *[1] * (len(shape) - 1)), shape)
    np.testing.assert_array_equal(np.from_dlpack(ad.validity(array)), expected)
    filled = np.from_dlpack(ad.to_tensor(array, nulls="nan"))
    np.testing.assert_array_equal(np.isnan(filled), ~expected)


@pytest.mark.parametrize(
    "valid",
    [np.array([True, False]), np.array([1, 0, 1]), np.ones((3, 1), bool), np.array(True), pa.array([True, None, True])],
)
def test_validity_is_one_bool_for_each_row(valid):
    with pytest.raises(ad.ConversionError):
        ad.to_arrow(np.arange(3), validity=valid)


def test_strided_validity():
    valid = np.array([True, False, True, True, False, True])[::2]
    assert pa.array(ad.to_arrow(np.arange(3), validity=valid)).is_valid().to_pylist() == valid.tolist()


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_numbers_are_pairs_of_floats(dtype: str):
    source = np.array([1 + 2j, -3j], dtype)
    column = ad.to_arrow(source, copy=False)
    assert pa.array(column).to_pylist() == [[1, 2], [0, -3]]
    assert ad.to_tensor(column).shape == (2, 2)
    again = np.from_dlpack(ad.to_tensor(column, dtype=dtype, copy=False))
    assert again.dtype == dtype
    assert again.ctypes.data == source.ctypes.data
    assert again.tolist() == source.tolist()


@pytest.mark.parametrize("dtype", [">f8", "datetime64[s]", "S3", "O", "float128"])
def test_what_numpy_does_not_export_is_its_error(dtype: str):
    with pytest.raises((BufferError, TypeError)):
        ad.from_dlpack(np.zeros(2, dtype))


def test_memory_lives_as_long_as_its_last_user():
    class Watched(np.ndarray):
        pass

    source = np.arange(5.0).view(Watched)
    watch = weakref.ref(source)
    tensor = ad.from_dlpack(source)
    array = ad.to_arrow(tensor)
    back = pa.array(array)
    del source, tensor, array
    assert watch() is not None
    assert back.to_pylist() == [0, 1, 2, 3, 4]
    del back
    assert watch() is None


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_came_from_arrow_returns_to_its_type(dtype: str):
    source = pa.array([1, 2, 3], pa.timestamp("us", "UTC"))
    tensor = ad.to_tensor(source)
    assert pa.array(tensor).type == source.type
    assert pa.array(ad.to_arrow(tensor)).equals(source)
    # A cast result is no timestamp any more.
    assert pa.array(ad.to_tensor(source, dtype=dtype)).type == pa.from_numpy_dtype(dtype)


def test_as_an_xp():
    array = ad.to_tensor(pa.array([1.0, 2.0]), xp=np)
    assert isinstance(array, np.ndarray)
    assert not array.flags.writeable
    assert ad.to_tensor(pa.array([1.0]), xp=np, writable=True).flags.writeable
    batch = ad.to_tensors(pa.record_batch({"x": [1], "y": [2.0]}), xp=np)
    assert {name: type(column) for name, column in batch.items()} == {"x": np.ndarray, "y": np.ndarray}
    assert isinstance(ad.validity(pa.array([1, None]), xp=np), np.ndarray)
