"""Callbacks of device streams that fail or answer wrongly, at each of their calls and for each function that reads."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, DeviceArray, DeviceStream

BATCHES = 3
ROWS = 40
BATCH = pa.record_batch({"a": pa.array(range(ROWS), pa.int32()), "b": pa.array(range(1, ROWS + 1), pa.int32())})
SHORT = pa.record_batch({"a": pa.array(range(ROWS), pa.int32())})


def device(data: Any = BATCH, kind: int = CUDA, **fields: Any) -> DeviceArray:
    return DeviceArray(data.to_struct_array() if isinstance(data, pa.RecordBatch) else data, kind, **fields)


def on_host(tensor: Any) -> Any:
    return np.from_dlpack(tensor.to_device("cpu")).tolist()


def each(source: Any) -> Any:
    return [pa.array(array.to_device("cpu")).to_pylist() for array in ad.from_arrow(source)]


READERS: dict[str, Callable[[Any], Any]] = {
    "to_tensor": lambda source: on_host(ad.to_tensor(source)),
    "to_tensor, cast": lambda source: on_host(ad.to_tensor(source, dtype="float64")),
    "to_tensor, by columns": lambda source: on_host(ad.to_tensor(source, order="F")),
    "to_tensor, to the host": lambda source: on_host(ad.to_tensor(source, device="cpu")),
    "to_tensor, to another device": lambda source: on_host(ad.to_tensor(source, device="cuda:1")),
    "to_tensors": lambda source: {name: on_host(one) for name, one in ad.to_tensors(source).items()},
    "to_tensors, groups": lambda source: {
        name: on_host(one) for name, one in ad.to_tensors(source, columns={"x": ["b", "a"], "y": "a"}).items()
    },
    "validity": lambda source: on_host(ad.validity(source)),
    "arrays": each,
    "arrays of another device": lambda source: each(ad.from_arrow(source).to_device("cuda:1")),
    "arrays of the host": lambda source: each(ad.from_arrow(source).to_device("cpu")),
}

# What a call of get_next may do wrong, what is raised, and what the text names.
WRONG: dict[str, tuple[Callable[[], Any], type[BaseException], str | None]] = {
    "fails": (
        lambda: (5, b"the device is lost"),
        ad.ConversionError,
        "get_next failed with code 5: the device is lost",
    ),
    "fails without a message": (lambda: (22, None), ad.ConversionError, "get_next failed with code 22: no message"),
    "is interrupted": (lambda: (4, b"KeyboardInterrupt"), KeyboardInterrupt, None),
    "another type": (lambda: device(pa.array([1, 2], pa.int32())), ad.ConversionError, "n_buffers|n_children"),
    "a column too few": (lambda: device(SHORT), ad.ConversionError, "n_children"),
    "another kind of memory": (lambda: device(kind=CUDA_HOST), ad.ConversionError, "cuda_host"),
}


def settled(source: DeviceStream, items: list[Any]) -> None:
    """That the stream and what it gave are released once when the device is done, and the rest is its producer's."""
    stream = source.stream
    gc.collect()
    given = [item.node for item in items[: stream.asked_next] if isinstance(item, DeviceArray)]
    assert driver.soon(lambda: all(node.releases == 1 for node in given))
    assert stream.releases == 1
    for item in items[stream.asked_next :]:
        if isinstance(item, DeviceArray):
            assert item.node.releases == 0
            producers.release_struct(item.struct.array)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", WRONG)
def test_a_batch_that_is_wrong(reader: str, case: str) -> None:
    make, error, text = WRONG[case]
    for call in range(BATCHES + 1):
        # The last one is in place of the end.
        items = [make() if number == call else device() for number in range(max(BATCHES, call + 1))]
        source = DeviceStream(items, field=pa.field("", BATCH.to_struct_array().type))
        with pytest.raises(error, match=text) as caught:
            READERS[reader](source.give())
        assert source.stream.asked_next == call + 1, f"at call {call}: {caught.value}"
        del caught
        settled(source, items)


@pytest.mark.parametrize("reader", READERS)
def test_a_batch_of_a_device_that_there_is_not(reader: str) -> None:
    """Nobody asks the driver about memory before it is used: functions that join the batches read all of them first."""
    for call in range(BATCHES):
        items = [device(device_id=7) if number == call else device() for number in range(BATCHES)]
        source = DeviceStream(items)
        with pytest.raises(BufferError, match="cuda:7"):
            READERS[reader](source.give())
        settled(source, items)


@pytest.mark.parametrize("reader", READERS)
def test_an_end_after_which_there_is_more(reader: str) -> None:
    """Who said once that it is at its end is not asked again."""
    for call in range(BATCHES):
        items = [None if number == call else device() for number in range(BATCHES)]
        source = DeviceStream(items, field=pa.field("", BATCH.to_struct_array().type))
        found = READERS[reader](source.give())
        whole = DeviceStream([device() for _ in range(call)], field=pa.field("", BATCH.to_struct_array().type))
        assert found == READERS[reader](whole.give())
        assert source.stream.asked_next == call + 1
        settled(source, items)
