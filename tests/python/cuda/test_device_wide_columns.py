"""Matrices on a device whose columns have several elements a row, against those that the host makes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream
from test_device_conversions import bits, nested, numbers
from test_device_out import Out, filled

ROWS = 70
NUMBERS = ["bool", "int8", "int16", "int32", "float16", "float32", "float64"]
SIZES: list[tuple[int, ...]] = [(), (), (0,), (1,), (2,), (5,), (3, 2), (33,)]


def values(draw: random.Random, count: int, nulls: float) -> pa.Array:
    """So many random elements, in one of the ways in which kernels read them."""
    plain = numbers(draw.choice(NUMBERS), count, nulls, draw.randrange(1000))
    match draw.randrange(6):
        case 0 if not pa.types.is_boolean(plain.type) and not pa.types.is_float16(plain.type):
            return plain.dictionary_encode()
        case 1 if count:
            ends = pa.array(sorted({*draw.sample(range(1, count + 1), min(count, 9)), count}), pa.int32())
            return pa.RunEndEncodedArray.from_arrays(ends, numbers("int16", len(ends), nulls))
        case 2:
            return numbers("int32", count, nulls, draw.randrange(1000)).cast(pa.decimal128(20, 2))
        case _:
            return plain


def column(draw: random.Random, rows: int, nulls: float) -> pa.Array:
    sizes = draw.choice(SIZES)
    made = values(draw, rows * int(np.prod(sizes)), nulls)
    if 0 in sizes:
        return pa.array([[]] * rows, pa.list_(made.type, 0))
    return nested(made, *sizes, nulls=nulls)


def chunks(draw: random.Random, nulls: float) -> list[pa.Array]:
    """The chunks of a struct: columns of one and of several elements a row, some with an offset."""
    before = draw.choice([0, 0, 3])
    count = draw.randint(2, 5)
    whole = pa.StructArray.from_arrays(
        [column(draw, ROWS + before, nulls) for _ in range(count)], [f"c{index}" for index in range(count)]
    )[before:]
    cuts = sorted(draw.choices(range(ROWS + 1), k=draw.choice([0, 0, 1, 3])))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, ROWS], strict=True)]


def is_the_same(made: ad.Tensor, expected: ad.Tensor) -> None:
    assert made.device.type == CUDA
    assert (made.dtype, made.shape, made.strides) == (expected.dtype, expected.shape, expected.strides)
    assert np.array_equal(bits(made.to_device("cpu")), bits(expected))


@pytest.mark.parametrize("seed", range(60))
def test_kernels_make_what_the_host_makes(seed: int) -> None:
    draw = random.Random(seed)
    policy: dict[str, Any] = draw.choice([{"nulls": "error"}, {"nulls": 3}, {"nulls": 3}])
    parts = chunks(draw, 0.0 if policy["nulls"] == "error" else 0.2)
    keywords = {**policy, "order": draw.choice(["C", "F"]), "dtype": draw.choice(["float32", "float64", "int16"])}
    kind = draw.choice([CUDA, CUDA, CUDA_HOST, CUDA_MANAGED])

    def stream() -> ad.ArrayStream:
        return ad.from_arrow(DeviceStream([DeviceArray(part, kind) for part in parts], kind).give())

    expected = ad.to_tensor(pa.chunked_array(parts), **keywords)
    made = ad.to_tensor(stream(), **keywords)
    if expected.size == 0:
        assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
        return
    is_the_same(made, expected)


@pytest.mark.parametrize("seed", range(40))
def test_outputs_of_any_distance_keep_what_lies_between(seed: int) -> None:
    draw = random.Random(seed)
    parts = chunks(draw, 0.2)
    dtype = draw.choice(["float32", "float64", "int16"])
    expected = ad.to_tensor(pa.chunked_array(parts), dtype=dtype, nulls=3)
    rows, width = expected.shape
    order, before, after = draw.choice(["C", "F"]), draw.choice([0, 1, 5]), draw.choice([0, 0, 3, 8])
    whole = filled((rows + before + after, width + before + after), dtype, order)
    part = np.s_[before : before + rows, before : before + width]
    out = Out(whole, part)
    stream = ad.from_arrow(DeviceStream([DeviceArray(part) for part in parts]).give())
    ad.to_tensor(stream, nulls=3, out=out)
    made, found = out.read()
    assert np.array_equal(made, np.array(expected))
    whole[part] = made
    assert np.array_equal(found, whole)


def test_errors_name_the_column_and_the_lowest_row() -> None:
    """Columns of other widths count elements of other rows."""
    wide = np.zeros((ROWS, 40))
    wide[2, 39], wide[30, 0] = 1e9, 1e9
    narrow = np.zeros((ROWS, 3))
    narrow[5, 0] = 7e8
    fields = [nested(pa.array(wide.reshape(-1)), 40), nested(pa.array(narrow.reshape(-1)), 3), pa.array(np.zeros(ROWS))]
    batch = pa.StructArray.from_arrays(fields, ["wide", "narrow", "x"])
    for cuts in ([0, ROWS], [0, 1, ROWS], [0, 10, ROWS]):
        parts = [batch[start:end] for start, end in itertools.pairwise(cuts)]
        for order in ("C", "F"):
            stream = ad.from_arrow(DeviceStream([DeviceArray(part) for part in parts]).give())
            with pytest.raises(ad.ConversionError, match=r"1000000000\S* does not fit int16") as caught:
                ad.to_tensor(stream, dtype="int16", order=order)  # type: ignore[call-overload]
            assert (caught.value.column, caught.value.row) == ("wide", 2)


@pytest.mark.parametrize("seed", range(30))
def test_validity_is_that_of_the_host(seed: int) -> None:
    draw = random.Random(seed)
    shapes = [draw.choice(SIZES) for _ in range(draw.randint(2, 4))]
    columns = [
        nested(numbers("int16", ROWS * int(np.prod(sizes)), 0.2), *sizes, nulls=0.2)
        for sizes in shapes
        if 0 not in sizes
    ]
    whole = pa.StructArray.from_arrays(
        [*columns, numbers("int8", ROWS, 0.5)], [str(index) for index in range(len(columns) + 1)]
    )
    cut = draw.randrange(ROWS)
    parts = [whole[:cut], whole[cut:]]
    stream = ad.from_arrow(DeviceStream([DeviceArray(part) for part in parts]).give())
    is_the_same(ad.validity(stream), ad.validity(pa.chunked_array(parts)))
