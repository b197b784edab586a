"""Values of dictionaries that kernels gather, against what the same conversion makes of the data in host memory."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA_MANAGED, DeviceArray, DeviceStream
from test_device_conversions import FLOATS, INTEGERS, bits, host, numbers

ROWS = 130
VALUES = 90
VALUE_TYPES = ["bool", *INTEGERS, *FLOATS]


def forget(node: producers.Array) -> None:
    for part in [node, *node.parts]:
        part.array.null_count = -1
        if part.array.dictionary:
            producers.ArrowArray.from_address(part.array.dictionary).null_count = -1


def encoded(codes: str, values: pa.Array, rows: int = ROWS, nulls: float = 0.0) -> pa.DictionaryArray:
    """Random codes of a type; both the codes and the values start inside their memory."""
    rng = np.random.default_rng(rows)
    picked = rng.integers(0, len(values) - 3, rows + 5).astype(codes)
    array = pa.DictionaryArray.from_arrays(pa.array(picked, mask=rng.random(rows + 5) < nulls), values[3:])
    return array[5:]


def same(device: Any, data: Any, **keywords: Any) -> None:
    """A conversion gives the same elements on a device as in host memory."""
    made, expected = ad.to_tensor(device, **keywords), ad.to_tensor(data, **keywords)
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    assert np.array_equal(host(made), bits(expected)), keywords


def failed(error: type[Exception], obj: Any, **keywords: Any) -> Any:
    with pytest.raises(error) as raised:
        ad.to_tensor(obj, **keywords)
    return raised.value


@pytest.mark.parametrize("codes", INTEGERS)
@pytest.mark.parametrize("values", VALUE_TYPES)
def test_every_type_of_codes_and_values(codes: str, values: str, host_waits: Any) -> None:
    data = encoded(codes, numbers(values, VALUES))
    array = ad.from_arrow(DeviceArray(data).give())
    waits = host_waits()
    same(array, data, dictionary="values")
    # For the check of codes, and for the copy that the test reads.
    assert waits.ours <= 2
    data = encoded(codes, numbers(values, VALUES, 0.3), nulls=0.3)
    for change in (lambda _: None, forget):
        array = ad.from_arrow(DeviceArray(data, change=change).give())
        same(array, data, dictionary="values", nulls=1)
        same(array, data, dictionary="values", nulls="keep")
        if values in FLOATS:
            same(array, data, dictionary="values", nulls="nan")


@pytest.mark.parametrize("to", ["int16", "float32", "float64", "bool"])
@pytest.mark.parametrize("values", VALUE_TYPES)
def test_values_are_cast_as_they_are_gathered(values: str, to: str) -> None:
    if to == "bool" and values != "bool":
        numbers_of = pa.array([row % 2 for row in range(VALUES)]).cast(numbers(values, 1).type)
    else:
        numbers_of = numbers(values, VALUES)
    data = encoded("int16", numbers_of, nulls=0.2)
    same(DeviceArray(data).give(), data, dtype=to, nulls=0)


def test_a_value_that_does_not_fit_is_named_as_on_the_host() -> None:
    values = pa.array([1, 2, 300, -5], pa.int32())
    data = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 3, 2, 2, 3], pa.int8()), values)
    for dtype in ("uint8", "int8"):
        errors = [failed(ad.CastError, obj, dtype=dtype, nulls=0) for obj in (DeviceArray(data).give(), data)]
        assert (str(errors[0]), errors[0].row) == (str(errors[1]), errors[1].row)


@pytest.mark.parametrize("codes", INTEGERS)
def test_a_code_without_a_value_is_an_error_of_its_row(codes: str) -> None:
    """None of them is read by: the driver would report it."""
    largest = int(np.iinfo(codes).max)
    bad = [3, largest] if codes.startswith("u") else [3, -1, largest, int(np.iinfo(codes).min)]
    for code in bad:
        picked = np.array([0, 1, 2, code, 1, code], codes)
        values = pa.array([1.5, 2.5, 3.5])
        data = pa.DictionaryArray.from_arrays(pa.array(picked), values, safe=False)
        error = failed(ValueError, DeviceArray(data).give(), dictionary="values")
        assert (error.row, f"code {code} " in str(error)) == (3, True)
        # What lies under a null is no code.
        mask = np.array([False, False, False, True, False, True])
        data = pa.DictionaryArray.from_arrays(pa.array(picked, mask=mask), values, safe=False)
        made = ad.to_tensor(DeviceArray(data).give(), dictionary="values", nulls=9)
        assert np.array(made.to_device("cpu")).tolist() == [1.5, 2.5, 3.5, 9, 2.5, 9]


def test_codes_of_no_values() -> None:
    values = pa.array([], pa.int32())
    data = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), values)
    same(DeviceArray(data).give(), data, dictionary="values", nulls=4)
    data = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), values, safe=False)
    assert failed(ValueError, DeviceArray(data).give(), dictionary="values").row == 0


def test_refused_nulls_of_codes_and_of_values_name_their_row() -> None:
    values = pa.array([1, None, 3, None])
    for picked, row in (([0, 2, 1], 2), ([0, None, 1], 1), ([0, 1, None], None), ([0, 2, 0], None)):
        data = pa.DictionaryArray.from_arrays(pa.array(picked, pa.int8()), values)
        for change in (lambda _: None, forget):
            array = ad.from_arrow(DeviceArray(data, change=change).give())
            if 1 not in picked and None not in picked:
                same(array, data, dictionary="values")
                continue
            error = failed(ad.NullError, array, dictionary="values")
            assert row is None or error.row in (row, None)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_columns_of_a_matrix(order: str, nulls: float, host_waits: Any) -> None:
    columns = {
        "a": encoded("int8", numbers("float32", VALUES, nulls), nulls=nulls),
        "b": numbers("float32", ROWS, nulls, 2),
        "c": encoded("uint32", numbers("int16", VALUES, nulls), nulls=nulls),
        "d": encoded("int64", numbers("bool", VALUES, nulls), nulls=nulls),
    }
    data = pa.RecordBatch.from_pydict(columns).to_struct_array()
    array = ad.from_arrow(DeviceArray(data, change=forget).give())
    keywords = {"dtype": "float32", "order": order, "nulls": 2}
    waits = host_waits()
    same(array, data, **keywords)
    assert waits.ours <= 2
    groups = {"x": ["a", "c"], "y": "d"}
    made = ad.to_tensors(array, columns=groups, dtype="float64", nulls=0)
    expected = ad.to_tensors(data, columns=groups, dtype="float64", nulls=0)
    for name in groups:
        assert np.array_equal(host(made[name]), bits(expected[name]))


def test_an_error_in_a_matrix_names_the_column_of_the_lowest_row() -> None:
    bad = [pa.array([0, 1, 0, 7], pa.int8()), pa.array([0, 7, 0, 0], pa.int8())]
    arrays = [pa.DictionaryArray.from_arrays(codes, pa.array([1.0, 2.0]), safe=False) for codes in bad]
    data = pa.StructArray.from_arrays(arrays, ["a", "b"])
    error = failed(ValueError, DeviceArray(data).give(), dictionary="values", dtype="float64")
    assert (error.row, error.column) == (1, "b")


def test_chunks_have_dictionaries_of_their_own() -> None:
    parts = [encoded("int8", numbers("int32", VALUES, seed=seed), rows) for seed, rows in ((1, 40), (2, 0), (3, 70))]
    stream = DeviceStream([DeviceArray(part) for part in parts])
    same(ad.from_arrow(stream.give()), pa.chunked_array(parts), dictionary="values")
    last = pa.DictionaryArray.from_arrays(pa.array([0, 5], pa.int8()), pa.array([1], pa.int32()), safe=False)
    stream = DeviceStream([DeviceArray(part) for part in [parts[0], last]])
    assert failed(ValueError, ad.from_arrow(stream.give()), dictionary="values").row == 41


def test_lists_of_codes() -> None:
    data = encoded("int16", numbers("float32", VALUES, 0.2), 120, 0.2)
    lists = pa.FixedSizeListArray.from_arrays(data, 3, mask=pa.array([row % 7 == 0 for row in range(40)]))
    same(DeviceArray(lists[2:]).give(), lists[2:], dictionary="values", nulls="nan")
    ragged = pa.ListArray.from_arrays(
        pa.array([0, 5, 5, 120], pa.int32()), encoded("int8", numbers("int64", VALUES), 120)
    )
    made = ad.to_ragged(DeviceArray(ragged).give(), dictionary="values")
    assert np.array_equal(host(made.values), bits(ad.to_ragged(ragged, dictionary="values").values))


def test_into_memory_that_is_there() -> None:
    data = encoded("uint8", numbers("float64", VALUES))
    out = ad.to_tensor(DeviceArray(pa.array(np.zeros(ROWS))).give(), writable=True)
    ad.to_tensor(DeviceArray(data).give(), dictionary="values", out=out)
    assert np.array_equal(host(out), bits(ad.to_tensor(data, dictionary="values")))


@pytest.mark.parametrize("kind", [2, CUDA_MANAGED])
def test_explain_says_what_the_kernels_do(kind: int) -> None:
    data = encoded("int8", numbers("int32", VALUES))
    array = ad.from_arrow(DeviceArray(data, kind).give())
    with ad.track_copies() as log:
        ad.to_tensor(array, dictionary="values")
    report = ad.explain(array, dictionary="values")
    (row,) = report
    assert row.steps == ["decoded"]
    assert any("every code" in wait for wait in row.waits)
    assert [entry.bytes for entry in log] == [row.bytes] == [4 * ROWS]
    with pytest.raises(ad.CopyError):
        ad.to_tensor(array, dictionary="values", copy=False)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal256(40, 1)),
        pa.array([b"ab", b"cd"], pa.binary(2)),
    ],
)
def test_other_values_name_the_way_to_the_host(values: pa.Array) -> None:
    data = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), values)
    keywords = {} if pa.types.is_fixed_size_binary(values.type) else {"dtype": "float64"}
    error = failed(BufferError, DeviceArray(data).give(), dictionary="values", **keywords)
    assert "to_device" in str(error)
