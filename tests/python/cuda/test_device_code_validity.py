"""The validity of codes and runs on a device, whose values may be null, too, against that of the data on the host."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA_MANAGED, DeviceArray, DeviceStream, Memory
from test_device_conversions import INTEGERS, bits, host
from test_device_dictionaries import forget

ROWS = 130
VALUES = {
    "text": pa.array(["x", "a", None, "bc", None, "d"])[1:],
    "whole text": pa.array(["a", "b", "c", "d", "e"]),
    "numbers": pa.array([0.5, 1.5, None, 2.5, None])[1:],
    "bools": pa.array([True, None, False, None]),
    "decimals of 256 bits": pa.array([1, None, 3]).cast(pa.decimal256(40, 2)),
}


def codes(dtype: str, values: pa.Array, nulls: float, rows: int = ROWS) -> pa.DictionaryArray:
    rng = np.random.default_rng(rows)
    picked = pa.array(rng.integers(0, len(values), rows + 5).astype(dtype), mask=rng.random(rows + 5) < nulls)
    return pa.DictionaryArray.from_arrays(picked, values)[5:]


def runs(values: pa.Array, rows: int = 40) -> pa.RunEndEncodedArray:
    rng = np.random.default_rng(rows)
    ends = pa.array(rng.integers(1, 7, rows).cumsum().astype("int32"))
    return pa.RunEndEncodedArray.from_arrays(ends, values.take(pa.array(rng.integers(0, len(values), rows))))[3:]


def known(_: producers.Array) -> None:
    """Counts of nulls stay as they are."""


def same(obj: Any, data: Any, waits: Any, **keywords: Any) -> None:
    """The same bools as on the host; the host waits only where `explain` says so, beside the copy that this makes."""
    (row,) = ad.explain(obj, validity=True, **keywords)
    assert row.error is None
    before = waits()
    made, expected = ad.validity(obj, **keywords), ad.validity(data, **keywords)
    assert before.ours <= len(row.waits)
    assert (made.dtype, made.device.type, made.shape) == ("bool", row.device.type, expected.shape)
    assert np.array_equal(host(made) if row.device.type == 2 else bits(made.to_device("cpu")), bits(expected))


@pytest.mark.parametrize("change", [known, forget])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_codes_of_every_type(dtype: str, values: str, nulls: float, change: Any, host_waits: Any) -> None:
    data = codes(dtype, VALUES[values], nulls)
    same(ad.from_arrow(DeviceArray(data, change=change).give()), data, host_waits)


@pytest.mark.parametrize("kind", [2, CUDA_MANAGED])
@pytest.mark.parametrize("values", ["numbers", "bools", "decimals of 256 bits"])
def test_runs_and_their_slices(values: str, kind: int, host_waits: Any) -> None:
    data = runs(VALUES[values])
    for part in (data, data[7:], data[20:21]):
        same(ad.from_arrow(DeviceArray(part, kind).give()), part, host_waits)


def test_the_host_waits_for_values_that_are_looked_up_alone(host_waits: Any) -> None:
    for values, expected in (("whole text", 0), ("text", 1)):
        array = ad.from_arrow(DeviceArray(codes("int32", VALUES[values], 0.2)).give())
        waits = host_waits()
        ad.validity(array)
        # None for work that is done by then.
        assert waits.ours <= expected
        (row,) = ad.explain(array, validity=True)
        assert len(row.waits) == expected


def test_lists_chunks_and_columns(host_waits: Any) -> None:
    pairs = pa.FixedSizeListArray.from_arrays(codes("int8", VALUES["text"], 0.2), 2)
    same(ad.from_arrow(DeviceArray(pairs[3:]).give()), pairs[3:], host_waits)
    chunks = [codes("int16", VALUES["text"], 0.2, rows) for rows in (3, 70)]
    stream = ad.from_arrow(DeviceStream([DeviceArray(chunk) for chunk in chunks]).give())
    (row,) = ad.explain(stream, validity=True)
    assert (row.error, ["every code has a value" in wait for wait in row.waits]) == (None, [True])
    assert np.array_equal(host(ad.validity(stream)), bits(ad.validity(pa.chunked_array(chunks))))
    words, numbers = codes("int8", VALUES["text"], 0.1), runs(VALUES["numbers"], 60)
    rows = min(len(words), len(numbers))
    columns = {"words": words[:rows], "runs": numbers[:rows], "plain": pa.array([1, None] * rows)[:rows]}
    data = pa.StructArray.from_arrays(list(columns.values()), list(columns))
    array = ad.from_arrow(DeviceArray(data).give())
    for order in ("C", "F"):
        same(array, data, host_waits, order=order)
    same(array, data, host_waits, columns=["plain", "words"])
    groups = {
        "x": ad.group(["runs", "plain"], dtype="float64", nulls=0, validity="valid"),
        "y": ad.group("words", nulls=-1, validity="said"),
    }
    made, expected = (ad.to_tensors(obj, columns=groups) for obj in (array, data))
    for name in ("x", "valid", "y", "said"):
        assert np.array_equal(host(made[name]), bits(expected[name])), name


def test_a_code_without_a_value_is_an_error_of_its_row() -> None:
    data = codes("int32", VALUES["text"], 0.0)
    memory, wrong = Memory(), np.zeros(ROWS, "int32")
    wrong[[40, 90]] = 5, -1
    placed = memory.place(wrong.tobytes())

    def replace(node: producers.Array) -> None:
        node.buffers[1], node.array.offset = placed, 0

    array = DeviceArray(data, memory=memory, change=replace)
    with pytest.raises(ValueError, match="5") as caught:
        ad.validity(array.give())
    assert caught.value.row == 40


def test_values_that_are_decoded_themselves_name_the_way_to_the_host() -> None:
    inner = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(["a"]))
    nested = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int8()), inner)
    words = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["x", None]))
    for data in (nested, words):
        array = ad.from_arrow(DeviceArray(data).give())
        (row,) = ad.explain(array, validity=True)
        with pytest.raises(BufferError, match="copy the data to the CPU") as caught:
            ad.validity(array)
        assert str(row.error) == str(caught.value)
