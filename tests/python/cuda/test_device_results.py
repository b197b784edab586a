"""Is what kernels wrote on the stream of a call read in its order, by a stream that waits for no other?"""

from __future__ import annotations

from collections.abc import Callable

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray
from test_device_strided import placed

# What makes tensors, and what is in them.
Made = tuple[Callable[[], list[ad.Tensor]], list[np.ndarray]]
MAKERS: list[Callable[[fakes.Pool], Made]] = []


def maker(make: Callable[[fakes.Pool], Made]) -> Callable[[fakes.Pool], Made]:
    MAKERS.append(make)
    return make


@maker
def cast(_: fakes.Pool) -> Made:
    given = ad.from_arrow(DeviceArray(pa.array([1, 2, 3])).give())
    return lambda: [ad.to_tensor(given, dtype="float32")], [np.array([1, 2, 3], "float32")]


@maker
def unpacked(_: fakes.Pool) -> Made:
    given = ad.from_arrow(DeviceArray(pa.array([True, False, True])).give())
    return lambda: [ad.to_tensor(given)], [np.array([True, False, True])]


@maker
def matrix(_: fakes.Pool) -> Made:
    data = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "b"])
    given = ad.from_arrow(DeviceArray(data).give())
    return lambda: [ad.to_tensor(given, order="C")], [np.array([[1, 3], [2, 4]])]


@maker
def validity(_: fakes.Pool) -> Made:
    given = ad.from_arrow(DeviceArray(pa.array([1, None, 3])).give())
    return lambda: [ad.validity(given)], [np.array([True, False, True])]


@maker
def padded(_: fakes.Pool) -> Made:
    given = ad.from_arrow(DeviceArray(pa.array([[1], [2, 3]])).give())
    made = lambda: list(ad.to_ragged(given, pad=(0, 2)))  # noqa: E731
    return made, [np.array([[1, 0], [2, 3]]), np.array([[True, False], [True, True]])]


@maker
def rebased(_: fakes.Pool) -> Made:
    given = ad.from_arrow(DeviceArray(pa.array([[0], [1, 2], [3]])[1:]).give())
    return lambda: [ad.to_ragged(given).offsets], [np.array([0, 2, 3], "int32")]


@maker
def gathered(pool: fakes.Pool) -> Made:
    tensor = placed(pool, np.arange(12, dtype="int64")[::3])
    return lambda: [ad.to_tensor(ad.to_arrow(tensor))], [np.array([0, 3, 6, 9])]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_they_are_waited_for(pool: fakes.Pool, make: Callable[[fakes.Pool], Made]) -> None:
    convert, expected = make(pool)
    # The host may wait for what it reads, so that no gate is closed yet.
    driver.settle()
    work, consumer = driver.Stream(), driver.Stream()
    with ad.stream(work):
        made = convert()
    held = [fakes.cupy(tensor, consumer.handle) for tensor in made]
    for one, data in zip(held, expected, strict=True):
        assert driver.read(one.address, data.nbytes, consumer.handle) == data.tobytes()
        one.release()
