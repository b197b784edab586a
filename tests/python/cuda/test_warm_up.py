"""What is left to make at the first use of a device that was warmed up, and what may go wrong before?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray
from test_no_device import run

VALUES = np.arange(64, dtype="int32")
# What is made once for a device.
ONCE = [
    "cuDevicePrimaryCtxRetain",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuMemPoolCreate",
    "cuMemHostAlloc",
]


def made() -> dict[str, int]:
    return {function: driver.calls(function) for function in ONCE}


def test_the_first_use_makes_nothing_more(pool: fakes.Pool) -> None:
    ad.warm_up("cuda:0")
    source = fakes.Torch(pool, VALUES, stream=driver.LEGACY)
    values = DeviceArray(pa.array([1.5, 2.5])).give()
    driver.exempt = True
    before = made()
    tensor = ad.from_dlpack(source)
    converted = ad.to_tensor(values, dtype="float32")
    found = np.from_dlpack(converted.to_device("cpu")).tolist(), np.from_dlpack(tensor.to_device("cpu"))
    assert made() == before
    driver.exempt = False
    assert found[0] == [1.5, 2.5]
    np.testing.assert_array_equal(found[1], VALUES)


def test_a_second_time_makes_nothing_more() -> None:
    ad.warm_up("cuda")
    before = made()
    ad.warm_up((2, 0))
    assert made() == before
    ad.warm_up(ad.Device("cuda:1"))
    assert driver.calls("cuModuleLoadData") == 2


def test_a_view_needs_no_more_than_the_context(pool: fakes.Pool) -> None:
    """No kernels, pool or page-locked memory."""
    source = fakes.Torch(pool, VALUES, stream=driver.LEGACY)
    driver.exempt = True
    before = made()
    fakes.cupy(ad.from_dlpack(source), driver.LEGACY).release()
    after = made()
    driver.exempt = False
    assert {name for name in ONCE if after[name] > before[name]} <= {"cuDevicePrimaryCtxRetain"}


@pytest.mark.parametrize("warmed", [False, True])
def test_a_capture_elsewhere_goes_on(warmed: bool) -> None:
    """Of the mode that calls of any thread end, such as one that allocates or loads a module."""
    captured, work = driver.Stream(), driver.Stream()
    values = ad.from_arrow(DeviceArray(pa.array([1.5, 2.5])).give())
    driver.settle()
    with driver.capture(captured.handle):
        if warmed:
            ad.warm_up("cuda")
        with ad.stream(work):
            converted = ad.to_tensor(values, dtype="float32")
    assert np.from_dlpack(converted.to_device("cpu")).tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("device", "match"),
    [
        ("cpu", "cpu has nothing to prepare.*name a CUDA device"),
        ("cuda_host", "nothing to prepare"),
        ((10, 0), "nothing to prepare"),
        ("cuda:7", "there is no device cuda:7; there are 2"),
    ],
)
def test_other_devices_are_refused(device: object, match: str) -> None:
    with pytest.raises(BufferError, match=match):
        ad.warm_up(device)


def test_what_is_no_device_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a device"):
        ad.warm_up(1.5)


def test_a_failure_leaves_what_the_next_call_needs() -> None:
    driver.fail("cuModuleLoadData", 1, 999)
    with pytest.raises(BufferError, match="cuModuleLoadData failed with code 999"):
        ad.warm_up("cuda")
    ad.warm_up("cuda")
    assert driver.calls("cuModuleLoadData") == 2


@pytest.mark.no_devices
def test_a_driver_that_lacks_a_function_is_named_as_too_old(tmp_path: Path) -> None:
    source, library = tmp_path / "old.c", tmp_path / "libcuda.so.1"
    source.write_text("int cuInit(unsigned flags) { return 0; }\n")
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    (tmp_path / "libcuda.so").symlink_to(library)
    code = """
try:
    ad.warm_up("cuda")
except BufferError as error:
    print(error)
"""
    ran = run(code, LD_LIBRARY_PATH=f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    assert ran.returncode == 0, ran.stderr
    assert "the CUDA driver has no function cuDeviceGetCount" in ran.stdout
    assert "install a driver of CUDA 12.0 or newer" in ran.stdout
