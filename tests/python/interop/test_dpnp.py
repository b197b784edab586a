"""dpnp: a DLPack device that is not the CPU, kDLOneAPI, on the CPU. This build works on host memory only."""

import gc
import sys

import arrow_dlpack as ad
import dpctl
import dpnp
import numpy as np
import producers
import pyarrow as pa
import pytest
from arrays import BFLOAT16, FLOAT8, narrow
from helpers import address

ONE_API = (14, 0)
NOT_HERE = "the data is on oneapi:0: this build works on host memory, and the message says so"

if not dpctl.get_devices():
    pytest.fail("no device of SYCL was found; OCL_ICD_FILENAMES names the OpenCL runtime", pytrace=False)


def test_the_device_is_real():
    array = dpnp.arange(3)
    assert array.__dlpack_device__() == ONE_API
    _, tensor = producers.read_dlpack(array.__dlpack__(max_version=(1, 3)))
    assert (tensor.device_type, tensor.device_id) == ONE_API


@pytest.mark.parametrize(
    "values", [dpnp.arange(3), dpnp.zeros((0, 3)), dpnp.asarray(2.5)], ids=["1-d", "size 0", "0-d"]
)
def test_what_would_read_it_is_refused(cell, values):
    tensor = ad.from_dlpack(values)
    for convert in (
        lambda: ad.to_arrow(values),
        lambda: ad.to_arrow(tensor),
        lambda: pa.array(tensor),
        lambda: ad.from_dlpack(values, copy=True),
    ):
        with pytest.raises(BufferError, match="oneapi:0"):
            convert()
    for case in ("numbers", "size 0", "0-d"):
        cell("from", case, "refused", NOT_HERE)


def test_a_tensor_is_imported_as_it_is(cell):
    """The type, the shape, the strides and the device are kept, and the tensor goes out as it came in."""
    array = dpnp.reshape(dpnp.arange(24, dtype="float32"), (4, 6))[:, ::2]
    tensor = ad.from_dlpack(array, copy=False)
    assert (tensor.dtype, tensor.shape, tensor.strides) == ("float32", (4, 3), (6, 2))
    assert (tensor.device.type, tensor.device.id) == ONE_API
    assert tensor.__dlpack_device__() == ONE_API
    assert address(tensor) == address(array)
    back = dpnp.from_dlpack(tensor)
    assert isinstance(back, dpnp.ndarray)
    assert address(back) == address(array)
    assert dpnp.asnumpy(back).tolist() == dpnp.asnumpy(array).tolist()
    cell("from", "device", "view", "kDLOneAPI: imported and exported as it is, and nothing else")
    cell("from", "strided", "view", "imported and exported as it is")


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "complex64"])
def test_types_are_kept(cell, dtype):
    array = dpnp.ones(3, dtype=dtype)
    tensor = ad.from_dlpack(array, copy=False)
    assert tensor.dtype == dtype
    assert address(tensor) == address(array)
    cell(
        "from", {"bool": "bool", "complex64": "complex"}.get(dtype, "numbers"), "view", "imported and exported as it is"
    )


def test_the_memory_lives_as_long_as_the_tensor():
    array = dpnp.arange(3)
    memory = array.get_array().usm_data
    before = sys.getrefcount(memory)
    tensor = ad.from_dlpack(array)
    assert sys.getrefcount(memory) == before + 1
    del array
    assert dpnp.asnumpy(dpnp.from_dlpack(tensor)).tolist() == [0, 1, 2]
    after = sys.getrefcount(memory)
    del tensor
    gc.collect()
    assert sys.getrefcount(memory) == after - 1


def test_nothing_reads_it_as_host_memory():
    tensor = ad.from_dlpack(dpnp.arange(3))
    with pytest.raises(BufferError):
        memoryview(tensor)
    with pytest.raises((BufferError, RuntimeError), match=r"[Uu]nsupported device|oneapi"):
        np.from_dlpack(tensor)
    with pytest.raises(BufferError, match="oneapi:0"):
        tensor.to_device("cpu")


def test_the_producer_copies_to_the_host(cell):
    """Asked for the CPU, dpnp makes the copy itself."""
    array = dpnp.arange(3)
    tensor = ad.from_dlpack(array, device="cpu")
    assert tensor.copied
    assert tensor.device == ad.Device("cpu")
    assert np.from_dlpack(tensor).tolist() == [0, 1, 2]
    column = pa.array(ad.to_arrow(array, device="cpu"))
    assert column.to_pylist() == [0, 1, 2]
    cell("from", "device", "copy", '`device="cpu"`: dpnp copies to the host')


def test_device_objects(cell):
    """They are named after what SYCL calls its devices, which DLPack does not know."""
    array = dpnp.arange(3)
    for device in (array.device, array.sycl_device):
        with pytest.raises(TypeError, match="opencl"):
            ad.from_dlpack(array, device=device)
    assert address(ad.from_dlpack(array, device=ad.from_dlpack(array).device, copy=False)) == address(array)
    cell("from", "device", "refused", "`device=array.device`, which is named after a backend of SYCL")


def test_lists(cell):
    values, offsets = dpnp.arange(3, dtype="float32"), dpnp.asarray([0, 1, 1, 3], dtype="int32")
    on_host = np.array([0, 1, 1, 3], "int32")
    for parts in ((values, offsets), (values, on_host), (np.arange(3.0), offsets)):
        with pytest.raises(ad.ConversionError, match="oneapi:0"):
            ad.Ragged(*parts)
    cell("from", "lists", "refused", NOT_HERE)
    moved = ad.Ragged(ad.from_dlpack(values, device="cpu"), ad.from_dlpack(offsets, device="cpu"))
    assert pa.array(moved).to_pylist() == [[0], [], [1, 2]]
    cell("from", "lists", "copy", '`device="cpu"`: dpnp copies to the host')
    column = pa.array([[1], [], [2, 3]], pa.list_(pa.float32()))
    theirs = ad.to_ragged(column, xp=dpnp)
    assert type(theirs.values) is type(theirs.offsets) is np.ndarray
    assert theirs.values.ctypes.data == column.values.buffers()[1].address
    assert theirs.offsets.ctypes.data == column.buffers()[1].address
    cell("to", "lists", "view", "what is on the host stays there: an array of NumPy")
    with pytest.raises(ad.ConversionError, match="oneapi:0"):
        ad.to_ragged(column, device=ONE_API)


def test_from_the_host(cell):
    column = pa.array([1, 2, 3], pa.int32())
    tensor = ad.to_tensor(column)
    theirs = dpnp.from_dlpack(tensor)
    # What is on the host stays there, as NumPy's.
    assert type(theirs) is np.ndarray
    assert theirs.ctypes.data == column.buffers()[1].address
    cell("to", "numbers", "view", "what is on the host stays there: an array of NumPy")
    moved = dpnp.from_dlpack(tensor, device="cpu")
    assert isinstance(moved, dpnp.ndarray)
    assert moved.__dlpack_device__() == ONE_API
    assert dpnp.asnumpy(moved).tolist() == [1, 2, 3]
    cell("to", "device", "copy", '`dpnp.from_dlpack(tensor, device="cpu")`, which is its name of the SYCL device')


def test_other_devices_are_refused(cell):
    for ask in (
        lambda: ad.to_tensor(pa.array([1]), device=ONE_API),
        lambda: ad.to_tensor(pa.array([1])).to_device(ONE_API),
        lambda: ad.to_tensor(pa.array([1])).__dlpack__(dl_device=ONE_API),
    ):
        with pytest.raises(BufferError, match="oneapi:0"):
            ask()
    cell("to", "device", "refused", "`device=(14, 0)`: this build moves nothing between devices")


def test_narrow_floats_are_refused(cell):
    for case, code in (("bfloat16", BFLOAT16), ("float8", FLOAT8["float8_e5m2"])):
        with pytest.raises(BufferError, match="type code"):
            dpnp.from_dlpack(narrow(code))
        cell("to", case, "refused", "has no such type")


def test_exchange_api(cell):
    assert not hasattr(dpnp.ndarray, "__dlpack_c_exchange_api__")
    cell("from", "exchange API", "absent")
