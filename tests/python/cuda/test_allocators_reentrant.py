"""Allocators whose own code converts, or lets go of results, when it is called."""

from __future__ import annotations

import signal
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import libraries
import pyarrow as pa
from arrow_dlpack import _native
from device_arrow import DeviceArray
from test_allocators import VALUES, Resource, address_of, contents, tensor_of


def test_an_allocator_may_need_memory_of_ours(pool: fakes.Pool) -> None:
    """The call that asks an allocator for memory has it as the one of this thread."""
    tensor = tensor_of(pool)

    class Needing(Resource):
        def allocate(self, nbytes: int, stream: Any) -> int:
            self.needed = ad.from_dlpack(tensor, copy=True)
            return super().allocate(nbytes, stream)

    resource = Needing()
    copy = ad.from_dlpack(tensor, copy=True, allocator=resource)
    assert list(resource.memory) == [address_of(copy)]
    assert contents(resource.needed) == contents(copy) == VALUES.tobytes()


def test_an_allocator_may_need_memory_of_ours_when_it_takes_its_own_back(pool: fakes.Pool) -> None:
    """That may be in a call that has another allocator."""
    tensor = tensor_of(pool)
    needed: list[ad.Tensor] = []

    class Needing(Resource):
        def deallocate(self, pointer: int, nbytes: int, stream: Any) -> None:
            needed.append(ad.from_dlpack(tensor, copy=True))
            super().deallocate(pointer, nbytes, stream)

    class Source:
        """Lets go of what it has when it is read."""

        def __init__(self) -> None:
            self.copy: ad.Tensor | None = ad.from_dlpack(tensor, copy=True, allocator=Needing())

        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            driver.settle()
            self.copy = None
            assert driver.drain() == 0
            return pa.array([True, False]).__arrow_c_array__(requested_schema)

    other = Resource()
    ad.from_arrow(Source(), allocator=other)
    assert other.memory == {}
    assert [contents(copy) for copy in needed] == [VALUES.tobytes()]


def test_code_that_runs_when_a_pointer_goes_may_let_others_go() -> None:
    """CuPy's pools and their hooks are Python code, which may end up here again, or wait for a thread that does."""
    library = libraries.CuPy(driver.Stream().handle)
    arrays: list[Any] = []

    class Pointer(libraries.MemoryPointer):
        def __del__(self) -> None:
            super().__del__()
            arrays.clear()
            driver.settle()
            _native.collect()

    library.cuda.alloc = lambda size: Pointer(library.cache, library.cache.alloc(size, library.stream))
    columns = pa.StructArray.from_arrays([pa.array([True, False])] * 2, names=["a", "b"])
    arrays += ad.to_tensors(DeviceArray(columns).give(), xp=library).values()
    assert library.cache.used == 2
    # A thread that waits for itself ends with this process.
    signal.alarm(int(2 * driver.SOON))
    del arrays[0]
    assert driver.soon(lambda: driver.drain() == 0 and library.cache.used == 0)
    signal.alarm(0)
    library.cache.close()
