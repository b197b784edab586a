"""An extension that links a copy of the crate with CUDA.

Its results are the package's, in the order of the package's streams and in memory of the package's allocators.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from test_allocators import Resource, address_of, contents

sys.path.insert(0, str(Path(__file__).parents[1] / "extensions"))

import crates

SOURCE = pa.array(range(1 << 14), pa.int32())
EXPECTED = np.arange(1 << 14, dtype="int32").tobytes()


@pytest.fixture
def guest(tmp_path: Path) -> ModuleType:
    return crates.guest("guest_pyo3_0_29", tmp_path)


class Within:
    """Arrow data whose dunder calls the extension, as the package calls it in the scope of `allocator=`."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        self.result = self.call()
        return SOURCE.__arrow_c_array__(requested_schema)


def test_a_result_is_in_the_order_of_the_packages_stream(guest) -> None:
    stream = driver.Stream()
    with ad.stream(stream):
        tensor = guest.to_device(SOURCE, "cuda:0")
    assert type(tensor) is ad.Tensor
    assert str(tensor.device) == "cuda:0"
    assert tensor.copied
    # The fixture reports a race if the copy back does not wait for the one there.
    assert contents(tensor) == EXPECTED


def test_a_result_over_memory_of_another_library_is_in_the_order_of_its_work(guest, pool) -> None:
    """The extension's copy of the crate knows the event behind that work, and the package does not."""
    values = np.frombuffer(EXPECTED, "int32")
    tensor = guest.from_dlpack(fakes.Torch(pool, values, stream=driver.Stream().handle))
    consumer = driver.Stream()
    held = fakes.cupy(tensor, consumer.handle)
    assert driver.read(held.address, len(EXPECTED), consumer.handle) == EXPECTED
    held.release()
    del tensor
    # The extension gives it back in its own thread.
    assert driver.soon(lambda: driver.drain() == 0 and pool.freed == 1)


def test_memory_outlives_the_work_on_it(guest) -> None:
    tensor = guest.to_device(SOURCE, "cuda:0")
    doubled = ad.from_arrow(ad.to_arrow(tensor))
    del tensor
    gc.collect()
    assert np.from_dlpack(ad.to_tensor(doubled.to_device("cpu"))).tobytes() == EXPECTED


def test_results_come_from_the_packages_allocator(guest) -> None:
    resource = Resource()
    source = Within(lambda: guest.to_device(SOURCE, "cuda:0"))
    ad.from_arrow(source, allocator=resource)
    (address,) = resource.memory
    assert address_of(source.result) == address
    assert contents(source.result) == EXPECTED
    source.result = None
    assert driver.drain() == 0
    # The extension frees its memory itself, in its own thread or when it next looks; the allocator's scope has ended.
    assert contents(guest.to_device(SOURCE, "cuda:0")) == EXPECTED
    assert driver.soon(lambda: resource.given_back == [(address, len(EXPECTED))])
    assert resource.memory == {}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyboardInterrupt("stop"), KeyboardInterrupt),
        (MemoryError("none left"), MemoryError),
        (ValueError("broken"), ad.ConversionError),
    ],
)
def test_what_an_allocator_raises_is_told(guest, error: BaseException, expected: type[BaseException]) -> None:
    class Failing(Resource):
        def allocate(self, nbytes: int, stream: Any) -> int:
            raise error

    source = Within(lambda: guest.to_device(SOURCE, "cuda:0"))
    with pytest.raises(expected, match=str(error)) as raised:
        ad.from_arrow(source, allocator=Failing())
    if expected is KeyboardInterrupt:
        assert raised.value is error


def test_a_build_without_cuda_says_so(tmp_path: Path) -> None:
    guest = crates.guest("guest", tmp_path)
    with pytest.raises(ad.ConversionError, match="cuda"):
        guest.to_device(SOURCE, "cuda:0")
