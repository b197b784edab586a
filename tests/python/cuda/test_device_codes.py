"""Codes of dictionaries on a device that are filled, cast or made private, against the same data in host memory."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA_MANAGED, DeviceArray, DeviceStream
from test_device_conversions import INTEGERS, bits, host
from test_device_dictionaries import failed, forget, same

ROWS = 130
WORDS = ["a", None, "bc", "d", None, "e", "f"]


def known(_: producers.Array) -> None:
    """Counts of nulls stay as they are."""


def codes(dtype: str, words: list[str | None], rows: int = ROWS, nulls: float = 0.0) -> pa.DictionaryArray:
    """Random codes of text; both the codes and the values start inside their memory."""
    rng = np.random.default_rng(rows)
    picked = rng.integers(0, len(words), rows + 5).astype(dtype)
    values = pa.array(["x", None, *words], pa.string())[2:]
    return pa.DictionaryArray.from_arrays(pa.array(picked, mask=rng.random(rows + 5) < nulls), values)[5:]


@pytest.mark.parametrize("change", [known, forget])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_codes_of_every_type_are_filled(dtype: str, nulls: float, change: Any, host_waits: Any) -> None:
    for words in (WORDS, ["a", "b", "c"]):
        data = codes(dtype, words, nulls=nulls)
        array = ad.from_arrow(DeviceArray(data, change=change).give())
        same(array, data, nulls=100)
        for keywords in ({"nulls": 100}, {"nulls": "keep"}, {"nulls": -1}):
            if dtype.startswith("u") and keywords["nulls"] == -1:
                keywords["dtype"] = "int8"
            same(array, data, dictionary="codes", **{"dtype": "int64", **keywords})
    # Only codes that may be null by their values are looked at: one copy of each of two results is the test's.
    data = codes(dtype, ["a", "b"], nulls=nulls)
    array = ad.from_arrow(DeviceArray(data).give())
    waits = host_waits()
    ad.to_tensor(array, nulls=100)
    assert waits.ours == 0


@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_codes_without_refused_nulls_are_cast_and_copied(nulls: float) -> None:
    data = codes("int16", ["a", "b", "c"], nulls=nulls)
    array = ad.from_arrow(DeviceArray(data).give())
    if nulls:
        for keywords in ({"dtype": "int64", "dictionary": "codes"}, {"writable": True}):
            errors = [failed(ad.NullError, obj, **keywords) for obj in (array, data)]
            assert errors[0].row == errors[1].row
        return
    same(array, data, dtype="float32", dictionary="codes")
    made = ad.to_tensor(array, writable=True)
    assert (made.copied, made.dtype) == (True, "int16")
    same(array, data, writable=True)
    assert ad.to_arrow(made).type.startswith("Dictionary")


def test_a_cast_that_does_not_fit_names_the_code() -> None:
    values = pa.array([str(row) if row % 2 else None for row in range(300)])
    data = pa.DictionaryArray.from_arrays(pa.array([1, 299, 298], pa.int16()), values)
    keywords = {"dtype": "int8", "dictionary": "codes", "nulls": 0}
    errors = [failed(ad.CastError, obj, **keywords) for obj in (DeviceArray(data).give(), data)]
    assert (str(errors[0]), errors[0].row) == (str(errors[1]), errors[1].row)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_code_that_no_value_says_to_be_null_is_an_error_of_its_row(dtype: str) -> None:
    """No bit is read by it: the driver would report it."""
    largest = int(np.iinfo(dtype).max)
    for code in [3, largest] if dtype.startswith("u") else [3, -1, largest, int(np.iinfo(dtype).min)]:
        picked = np.array([0, 1, 2, code, 1, code], dtype)
        data = pa.DictionaryArray.from_arrays(pa.array(picked), pa.array(["a", None, "b"]), safe=False)
        errors = [failed(ValueError, obj, nulls=7) for obj in (DeviceArray(data).give(), data)]
        assert [error.row for error in errors] == [3, 3]
        # What lies under a null is no code.
        mask = np.array([False, False, False, True, False, True])
        data = pa.DictionaryArray.from_arrays(pa.array(picked, mask=mask), pa.array(["a", None, "b"]), safe=False)
        made = ad.to_tensor(DeviceArray(data).give(), nulls=7)
        assert np.array(made.to_device("cpu")).tolist() == [0, 7, 2, 7, 7, 7]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_columns_of_a_matrix(order: str, nulls: float) -> None:
    columns = {"a": codes("int8", WORDS, nulls=nulls), "b": codes("int8", ["x", None, "z"], nulls=nulls)}
    data = pa.RecordBatch.from_pydict(columns).to_struct_array()
    for change in (known, forget):
        array = ad.from_arrow(DeviceArray(data, change=change).give())
        same(array, data, order=order, nulls=9)
        same(array, data, order=order, nulls=9, dtype="int64", dictionary="codes")
    made = ad.to_tensors(array, nulls=9)
    for name, expected in ad.to_tensors(data, nulls=9).items():
        assert np.array_equal(host(made[name]), bits(expected))


@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_a_matrix_of_one_column_is_filled_where_only_values_are_null(order: str) -> None:
    picked = pa.array([0, 1, 0], pa.int8())
    data = pa.StructArray.from_arrays([pa.DictionaryArray.from_arrays(picked, pa.array(["a", None]))], ["x"])
    array = ad.from_arrow(DeviceArray(data).give())
    same(array, data, order=order, nulls=9, dictionary="codes")
    [matrix] = ad.explain(array, order=order, nulls=9, dictionary="codes").matrices
    assert matrix.how == "copy"
    # Neither a null nor a value of a dictionary decides about no rows.
    rows = [DeviceArray(part) for part in (data[1:1], data[:1])]
    made = ad.to_tensor(ad.from_arrow(DeviceStream(rows).give()), order=order, dictionary="codes", nulls=9)
    assert np.array(made.to_device("cpu")).tolist() == [[0]]


@pytest.mark.parametrize("change", [known, forget])
def test_no_rows_of_a_dictionary_with_nulls_are_no_codes_of_it(change: Any, host_waits: Any) -> None:
    values = pa.array(["a", None])
    empty = pa.DictionaryArray.from_arrays(pa.array([], pa.int8()), values)
    filled = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", "b"]))
    one = ad.from_arrow(DeviceArray(empty, change=change).give())
    waits = host_waits()
    assert ad.to_tensor(one).shape == (0,)
    assert waits.ours == 0
    parts = [DeviceArray(empty, change=change), DeviceArray(filled)]
    assert np.array(ad.to_tensor(ad.from_arrow(DeviceStream(parts).give())).to_device("cpu")).tolist() == [0, 1]
    named = [pa.StructArray.from_arrays([part], ["x"]) for part in (empty, filled)]
    stream = ad.from_arrow(DeviceStream([DeviceArray(part, change=change) for part in named]).give())
    assert np.array(ad.to_tensors(stream)["x"].to_device("cpu")).tolist() == [0, 1]


def test_lists_of_codes() -> None:
    lists = pa.FixedSizeListArray.from_arrays(
        codes("int16", WORDS, 120, 0.2), 3, mask=pa.array([row % 7 == 0 for row in range(40)])
    )
    same(DeviceArray(lists[2:]).give(), lists[2:], nulls=9)
    same(DeviceArray(lists[2:]).give(), lists[2:], nulls="keep", dtype="int32", dictionary="codes")


def test_into_memory_that_is_there() -> None:
    data = codes("uint8", WORDS, nulls=0.1)
    out = ad.to_tensor(DeviceArray(pa.array(np.zeros(ROWS, "uint8"))).give(), writable=True)
    ad.to_tensor(DeviceArray(data).give(), dictionary="codes", nulls=200, out=out)
    assert np.array_equal(host(out), bits(ad.to_tensor(data, nulls=200)))


def test_one_chunk_of_a_stream_is_filled() -> None:
    parts = [codes("int8", WORDS, rows) for rows in (0, 40)]
    stream = DeviceStream([DeviceArray(part) for part in parts])
    same(ad.from_arrow(stream.give()), pa.chunked_array(parts), nulls=9)


def test_values_with_nulls_of_their_own_name_the_way_to_the_host() -> None:
    inner = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    data = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), inner)
    assert "copy the data to the CPU" in str(failed(BufferError, DeviceArray(data).give(), nulls=9))
    data = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.nulls(2))
    assert "copy the data to the CPU" in str(failed(BufferError, DeviceArray(data).give(), nulls=9))


@pytest.mark.parametrize("kind", [2, CUDA_MANAGED])
def test_explain_says_what_the_kernels_do(kind: int) -> None:
    data = codes("int8", WORDS)
    array = ad.from_arrow(DeviceArray(data, kind).give())
    with ad.track_copies() as log:
        ad.to_tensor(array, nulls=9)
    (row,) = ad.explain(array, nulls=9)
    assert row.steps == [f"at most {ROWS} nulls filled"]
    assert any("every code" in wait for wait in row.waits)
    assert [entry.bytes for entry in log] == [row.bytes] == [ROWS]
    with pytest.raises(ad.CopyError):
        ad.to_tensor(array, nulls=9, copy=False)


@pytest.mark.parametrize("form", ["column", "matrix"])
def test_explain_refuses_codes_whose_values_are_counted_nulls(form: str) -> None:
    """The conversion refuses them before it reads anything, whichever nulls the codes have beside them."""
    convert: Any = ad.to_tensor if form == "column" else ad.to_tensors
    for nulls in (0.0, 0.3):
        data = codes("int8", WORDS, nulls=nulls)
        whole = data if form == "column" else pa.StructArray.from_arrays([data, data], ["a", "b"])
        array = ad.from_arrow(DeviceArray(whole).give())
        keywords: dict[str, Any] = {} if form == "column" else {"columns": {"x": ["a", "b"]}}
        report = ad.explain(array, dictionary="codes", **keywords)
        with pytest.raises(ad.UnsupportedTypeError, match="may have nulls") as caught:
            convert(array, dictionary="codes", **keywords)
        assert (report.matrices or report.rows)[0].error == str(caught.value)
        kept = ad.explain(array, dictionary="codes", nulls="keep", **keywords)
        assert (kept.matrices or kept.rows)[0].error is None
    # What is not counted is read: the host waits for it.
    array = ad.from_arrow(DeviceArray(codes("int8", WORDS), change=forget).give())
    (row,) = ad.explain(array)
    assert (row.error, len(row.waits)) == (None, 1)
    # The host knows which codes stand for nulls.
    assert ad.explain(ad.from_arrow(DeviceArray(codes("int8", WORDS)).give()), device="cpu")[0].error is None
