"""A caller's allocator that fails at one of its calls: does it get all memory back?"""

from __future__ import annotations

import gc
from typing import Any

import arrow_dlpack as ad
import driver
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import DeviceArray
from test_allocators import Resource


class FailingAt(Resource):
    """An allocator that keeps its word but for one call, and for those after it if it fails for good."""

    def __init__(self, call: int, answer: BaseException | int, for_good: bool) -> None:
        super().__init__()
        self.call, self.answer, self.for_good, self.asked = call, answer, for_good, 0

    def allocate(self, nbytes: int, stream: Any) -> int:
        number = self.asked
        self.asked += 1
        if number == self.call or (self.for_good and number > self.call):
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer
        return super().allocate(nbytes, stream)


TABLE = pa.table(
    {
        "x": pa.array(range(100), pa.int32()),
        "y": pa.array(["a", None] * 50),
        "z": pa.array([[1], None, [2, 3], []] * 25),
    }
)


BITS = pa.record_batch({name: pa.array([row % 3 == 0 for row in range(100)]) for name in "abc"})


@pytest.mark.parametrize(
    "move",
    [
        lambda own: ad.from_arrow(TABLE.to_batches()[0], device="cuda", allocator=own),
        lambda own: ad.from_arrow(TABLE.to_batches()[0]).to_device("cuda", allocator=own),
        lambda own: list(ad.from_arrow(TABLE.to_reader(max_chunksize=40), device="cuda", allocator=own)),
        lambda own: ad.to_tensors(TABLE.select(["x"]), device="cuda", allocator=own),
        lambda own: ad.to_ragged(TABLE["y"].combine_chunks(), nulls="keep", device="cuda", allocator=own),
        lambda own: ad.to_ragged(TABLE["z"].combine_chunks(), nulls="keep", device="cuda", allocator=own),
        lambda own: list(ad.Loader(TABLE.select(["x"]), batch_size=30, device="cuda", allocator=own)),
        lambda own: ad.to_tensors(DeviceArray(BITS.to_struct_array()).give(), dtype={"a": "float64"}, allocator=own),
    ],
    ids=["batch", "moved batch", "stream", "tensors", "text", "lists", "loader", "kernels"],
)
def test_each_call_that_fails_gives_all_memory_back(move: Any) -> None:
    def left(resource: Resource) -> int:
        gc.collect()
        driver.settle()
        assert _native.collect() == 0
        assert ad.memory_stats()["cuda:0"]["allocators_used"] == sum(resource.memory.values())
        return len(resource.memory)

    resource = FailingAt(-1, 0, False)
    made = move(resource)
    del made
    calls = resource.asked
    assert (calls > 0, left(resource)) == (True, 0)
    for call in range(calls):
        for answer, for_good, error in [
            (MemoryError("none left"), True, MemoryError),
            (RuntimeError("the pool is closed"), False, ad.ConversionError),
            (KeyboardInterrupt("now"), False, KeyboardInterrupt),
            (0, False, BufferError),
            (-1, False, BufferError),
        ]:
            resource = FailingAt(call, answer, for_good)
            with pytest.raises(error):
                move(resource)
            assert left(resource) == 0, (call, answer)
        # The second try after an error of memory succeeds.
        resource = FailingAt(call, MemoryError("none left"), False)
        made = move(resource)
        assert resource.asked == calls + 1
        del made
        assert left(resource) == 0
