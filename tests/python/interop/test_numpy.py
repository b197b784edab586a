"""NumPy: every layout is a view both ways, and read-only is kept."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from helpers import address

NUMBERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers(cell, dtype: str):
    source = pa.array([0, 1, 2], pa.from_numpy_dtype(dtype))
    array = np.from_dlpack(ad.to_tensor(source))
    assert array.ctypes.data == source.buffers()[1].address
    assert array.dtype == dtype
    assert array.tolist() == [0, 1, 2]
    cell("to", "numbers", "view")
    back = ad.to_arrow(np.arange(3).astype(dtype), copy=False)
    assert pa.array(back).to_pylist() == [0, 1, 2]
    tensor = ad.from_dlpack(array)
    assert address(tensor) == array.ctypes.data
    cell("from", "numbers", "view")
