"""CuPy without a GPU: it can be imported, and each side says clearly why nothing more can be done."""

import arrow_dlpack as ad
import cupy
import numpy as np
import pyarrow as pa
import pytest

NO_GPU = "without a GPU"

pytestmark = pytest.mark.skipif(cupy.cuda.is_available(), reason="what is tested here is a machine without a GPU")


def test_arrays_of_the_cpu_are_refused_by_cupy(cell):
    column = pa.array([1.0, 2.0])
    for give in (lambda: cupy.from_dlpack(ad.to_tensor(column)), lambda: ad.to_tensor(column, xp=cupy)):
        with pytest.raises(TypeError, match="CPU arrays cannot be directly imported to CuPy"):
            give()
    cell("to", "numbers", "refused", "memory of the CPU is not taken; the message says to go by `cupy.array`")
    # The way that the message names.
    assert np.from_dlpack(ad.to_tensor(column)).tolist() == [1, 2]
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        cupy.array(np.from_dlpack(ad.to_tensor(column)))


def test_a_device_that_is_not_there(cell):
    for ask in (
        lambda: ad.to_tensor(pa.array([1.0]), device="cuda"),
        lambda: ad.to_tensor(pa.array([1.0]), device="cuda:0", xp=cupy),
        lambda: ad.to_tensor(pa.array([1.0])).to_device("cuda:0"),
    ):
        with pytest.raises(ad.ConversionError, match="no CUDA driver"):
            ask()
    cell("to", "device", "refused", f'`device="cuda"` {NO_GPU}')


def test_device_objects(cell):
    device = cupy.cuda.Device(0)
    assert ad.Device(device) == ad.Device("cuda:0")
    with pytest.raises(ad.ConversionError, match="no CUDA driver"):
        ad.to_tensor(pa.array([1.0]), device=device)
    cell("to", "device", "refused", f"`device=cupy.cuda.Device(0)` {NO_GPU}")


def test_no_array_can_be_made(cell):
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        cupy.ndarray((3,))
    cell("from", "numbers", "absent", f"no array can be made {NO_GPU}")


def test_the_type_offers_no_exchange_api(cell):
    assert hasattr(cupy.ndarray, "__dlpack__")
    assert not hasattr(cupy.ndarray, "__dlpack_c_exchange_api__")
    cell("from", "exchange API", "absent")


def test_a_tensor_on_a_gpu_is_refused_before_it_is_taken(cell):
    """What an array of CuPy would say of itself, said by an object of ours."""
    asked = []

    class OnGpu:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **keywords):
            asked.append(keywords)

    for take in (ad.from_dlpack, ad.to_arrow, ad.to_tensor):
        with pytest.raises(ad.ConversionError, match="no CUDA driver") as caught:
            take(OnGpu())
        assert "cpu" in (caught.value.remedy or "")
    assert asked == []
    cell("from", "device", "refused", "without a GPU; the message says that there is no CUDA driver")
