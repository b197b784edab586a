"""Which image of the kernels does a device load: the cubin of its architecture, or the PTX?"""

from __future__ import annotations

import arrow_dlpack as ad
import driver
import numpy as np
import pyarrow as pa
import pytest
from arrow_dlpack import _native

NO_BINARY_FOR_GPU, INVALID_IMAGE, OUT_OF_MEMORY = 209, 200, 2
INVALID_PTX, UNSUPPORTED_PTX_VERSION, INVALID_SOURCE = 218, 222, 300


def converted() -> list[float]:
    tensor = ad.to_tensor(ad.from_arrow(pa.array([1.5, 2.5])).to_device("cuda:0"), dtype="float32")
    return np.from_dlpack(tensor.to_device("cpu")).tolist()


@pytest.mark.parametrize(
    ("capability", "cubins"),
    [
        ("7.5", 0),
        ("8.0", 1),
        ("8.6", 1),
        ("8.9", 1),
        ("9.0", 1),
        ("10.0", 1),
        ("10.3", 1),
        ("11.0", 0),
        ("12.0", 1),
        ("12.1", 1),
        ("13.0", 0),
    ],
)
def test_the_architecture_decides(monkeypatch: pytest.MonkeyPatch, capability: str, cubins: int) -> None:
    """The driver refuses a cubin of another architecture, and would count two loads."""
    monkeypatch.setenv("SIMULATED_CUDA_COMPUTE_CAPABILITY", capability)
    assert converted() == [1.5, 2.5]
    assert driver.calls("cuModuleLoadData") == 1
    assert driver.live("modules") == 1
    assert driver.live("cubins") == cubins
    assert _native._cuda_images() == {0: "cubin" if cubins else "PTX"}


@pytest.mark.parametrize(
    "code", [NO_BINARY_FOR_GPU, INVALID_IMAGE, INVALID_PTX, UNSUPPORTED_PTX_VERSION, INVALID_SOURCE]
)
def test_a_driver_that_refuses_the_cubin_compiles_the_ptx(code: int) -> None:
    driver.fail("cuModuleLoadData", 1, code)
    assert converted() == [1.5, 2.5]
    assert driver.calls("cuModuleLoadData") == 2
    assert (driver.live("modules"), driver.live("cubins")) == (1, 0)
    assert _native._cuda_images() == {0: "PTX"}


def test_the_user_may_have_the_ptx_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_FORCE_PTX_JIT", "1")
    assert _native._cuda_images() == {}
    assert converted() == [1.5, 2.5]
    assert (driver.live("cubins"), _native._cuda_images()) == (0, {0: "PTX"})
    # A driver would take a cubin all the same.
    assert driver.calls("cuModuleLoadData") == 1


def test_a_driver_that_refuses_both_is_an_error_until_the_next_call() -> None:
    driver.fail("cuModuleLoadData", 1, NO_BINARY_FOR_GPU)
    driver.fail("cuModuleLoadData", 2, INVALID_IMAGE)
    with pytest.raises(BufferError, match="cuModuleLoadData failed with code 200"):
        ad.warm_up("cuda")
    assert driver.live("modules") == 0
    assert converted() == [1.5, 2.5]
    assert driver.live("cubins") == 1


def test_another_failure_is_not_hidden_by_the_ptx() -> None:
    driver.fail("cuModuleLoadData", 1, OUT_OF_MEMORY)
    with pytest.raises(MemoryError, match="cuModuleLoadData failed with code 2"):
        ad.warm_up("cuda")
    assert driver.calls("cuModuleLoadData") == 1
    assert converted() == [1.5, 2.5]
