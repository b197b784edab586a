"""Run-end-encoded columns: every slice of every kind, decoded as a copy that is told; and runs that are wrong."""

from __future__ import annotations

import itertools
import sys
import threading
import time

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from type_cases import converted, read

VALUES = [1.5, None, 3, 4, None]
ENDS = [1, 3, 4, 8, 9]
ROWS = [1.5, None, None, 3, 4, 4, 4, 4, None]


def run_array(ends: list[int], values: pa.Array, index: pa.DataType | None = None) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, index or pa.int32()), values)


@pytest.mark.parametrize("index", [pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_every_slice(index: pa.DataType):
    source = run_array(ENDS, pa.array(VALUES), index)
    for start, end in itertools.combinations_with_replacement(range(10), 2):
        part = source[start:end]
        filled = [0 if value is None else value for value in ROWS[start:end]]
        assert read(converted(part, nulls=0)).tolist() == filled
        assert np.from_dlpack(ad.validity(part)).tolist() == [value is not None for value in ROWS[start:end]]


def test_children_that_are_slices():
    ends = pa.array([7, *ENDS, 99], pa.int32())[1:-1]
    values = pa.array([7, *VALUES, 99])[1:-1]
    source = pa.RunEndEncodedArray.from_arrays(ends, values)
    assert read(converted(source[2:], nulls=0)).tolist() == [0, 3, 4, 4, 4, 4, 0]


def test_copies_are_told_and_refused():
    source = run_array([2, 5], pa.array([1, 2], pa.int16()))[1:]
    row = ad.explain(source)[0]
    assert (row.how, row.steps, row.bytes) == ("copy", ["decoded"], 8)
    assert ad.explain(pa.schema([pa.field("x", source.type)]))["x"].steps == ["decoded"]
    with ad.track_copies() as log:
        tensor = ad.to_tensors(pa.record_batch({"x": source}))["x"]
    (entry,) = log.entries
    assert (entry.bytes, entry.why) == (8, "decoded")
    assert "x" in entry.what
    assert tensor.copied
    with pytest.raises(ad.CopyError, match="decoded") as caught:
        ad.to_tensors(pa.record_batch({"x": source}), copy=False)
    assert caught.value.column == "x"
    assert converted(source, dtype="float64", writable=True).writable
    with ad.track_copies() as log:
        ad.to_tensor(source, dtype="float64")
    assert log.bytes == 8 + 32
    assert ad.to_tensor(source[:0], copy=False).shape == (0,)


def test_items_of_lists():
    source = run_array(ENDS, pa.array(VALUES))
    lists = pa.FixedSizeListArray.from_arrays(source[1:], 2)
    for start in range(4):
        rows = np.array([0 if value is None else value for value in ROWS[1:]]).reshape(4, 2)[start:]
        assert read(converted(lists[start:], nulls=0)).tolist() == rows.tolist()
    masked = pa.FixedSizeListArray.from_arrays(source[1:], 2, mask=pa.array([False, True, False, False]))
    assert read(converted(masked, nulls=0)).tolist() == [[0, 0], [0, 0], [4, 4], [4, 0]]
    valid = np.from_dlpack(ad.validity(masked)).tolist()
    assert valid == [[False, False], [False, False], [True, True], [True, False]]


def test_under_structs_with_nulls():
    source = run_array(ENDS, pa.array(VALUES))
    mask = [False, False, False, True, False, True, False, False, True]
    inner = pa.StructArray.from_arrays([source], ["x"], mask=pa.array(mask))
    outer = pa.StructArray.from_arrays([inner], ["s"])
    batch = ad.from_arrow(outer)
    column = pa.record_batch(batch)["s"]
    for part in (slice(None), slice(2, None), slice(3, 7)):
        expected = [0 if value is None or null else value for value, null in zip(ROWS, mask, strict=True)][part]
        assert read(ad.to_tensors(inner[part], nulls=0)["x"]).tolist() == expected
        assert read(ad.to_tensors(column[part], nulls=0)["x"]).tolist() == expected
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensors(inner[part])
        assert (caught.value.column, caught.value.row) == ("x", expected.index(0))


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "c", "d", None]),
        pa.array([[1], None, [], [2, 3], None]),
        pa.array([b"a", None, b"c", b"d", None], pa.binary_view()),
        pa.array([True, None, False, True, None]),
    ],
    ids=lambda values: str(values.type),
)
def test_validity_of_values_of_any_type(values: pa.Array):
    assert np.from_dlpack(ad.validity(run_array(ENDS, values)[2:])).tolist() == [
        value is not None for value in ROWS[2:]
    ]


def test_values_without_a_tensor_form_are_refused_by_type():
    with pytest.raises(ad.UnsupportedTypeError, match="Utf8") as caught:
        ad.to_tensors(pa.record_batch({"x": run_array([1], pa.array(["a"]))}))
    assert (caught.value.column, bool(caught.value.remedy)) == ("x", True)


def test_bool8_and_extensions_inside_are_what_they_say():
    bool8 = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 2, 1], pa.int8()))
    tensor = ad.to_tensor(run_array([1, 3, 4], bool8))
    assert tensor.dtype == "bool"
    assert read(tensor).view("u1").tolist() == [0, 1, 1, 1]
    shaped = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), [2, 1], permutation=[1, 0]), pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))
    )
    assert read(ad.to_tensor(run_array([1, 3], shaped))).tolist() == [[[1, 2]], [[3, 4]], [[3, 4]]]


def test_other_threads_run_while_a_column_is_decoded():
    source = run_array([4_000_000], pa.array([1.5]))
    turns, stop, started = [0], threading.Event(), threading.Event()

    def take_turns() -> None:
        while not stop.is_set():
            turns[0] += 1
            started.set()
            time.sleep(0)

    other = threading.Thread(target=take_turns)
    interval = sys.getswitchinterval()
    try:
        # Nobody is made to let go of the interpreter: a thread runs only where another lets go of it itself.
        sys.setswitchinterval(100)
        other.start()
        started.wait()
        before = turns[0]
        # On a busy machine the other thread may sleep through one.
        for _ in range(50):
            tensor = ad.to_tensor(source)
            if (after := turns[0]) > before:
                break
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        other.join()
    assert tensor.copied
    assert after > before


PAIRS = pa.array([[1, 2], [3], [4, 5]], pa.list_(pa.int32()))


def test_lengths_of_lists_count_where_a_row_shows_them():
    runs = run_array([2, 4, 6], PAIRS)
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 1, 2, 2], pa.int8()), PAIRS)
    nested = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, 1, 2, 2], pa.int8()), codes.take([0, 2, 4]))
    for source in (runs, codes, nested):
        options = {"length": 2, "dictionary": "values"}
        for rows, expected in ((slice(4, 6), [[4, 5]] * 2), (slice(0, 2), [[1, 2]] * 2), (slice(0, 0), [])):
            assert read(converted(source[rows], **options)).tolist() == expected
        with pytest.raises(ad.ConversionError, match="has 1 element, and not 2") as caught:
            ad.to_tensor(source[1:], **options)
        assert caught.value.row == 1
    assert ad.validity(runs[4:], length=2).shape == (2, 2)
    with pytest.raises(ad.ConversionError, match="has 1 element, and not 2") as caught:
        ad.validity(runs[1:], length=2)
    assert caught.value.row == 1


def test_lengths_of_lists_in_fixed_size_lists_are_those_of_their_rows():
    items = pa.concat_arrays([PAIRS[:1], PAIRS[2:], PAIRS[:2], PAIRS[2:], PAIRS[:1]])
    source = pa.FixedSizeListArray.from_arrays(items, 2)
    for call in (ad.to_tensor, ad.validity):
        with pytest.raises(ad.ConversionError, match="has 1 element, and not 2") as caught:
            call(source, length=2)
        assert caught.value.row == 1
    hidden = pa.FixedSizeListArray.from_arrays(items, 2, mask=pa.array([False, True, False]))
    made = read(converted(hidden, length=2, nulls=0)).tolist()
    assert made == [[[1, 2], [4, 5]], [[0, 0], [0, 0]], [[4, 5], [1, 2]]]
    assert np.from_dlpack(ad.validity(hidden, length=2)).all(axis=(1, 2)).tolist() == [True, False, True]


@pytest.mark.parametrize("size", [-1, 3])
def test_a_length_is_that_of_the_lists_of_runs_and_of_a_dictionary(size: int):
    lists = pa.array([[1, 2, 3]], pa.list_(pa.int32(), size))
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), lists)
    for source in (run_array([2], lists), codes, run_array([2], codes[:1])):
        data = pa.table({"x": source, "y": [7, 8]})
        for length in (3, {"x": 3}):
            made = ad.to_tensors(data, length=length, dictionary="values")
            assert read(made["x"]).tolist() == [[1, 2, 3]] * 2
        for length in (2, {"x": 2}):
            with pytest.raises(ad.ConversionError, match=r"3 elements, and not (the )?2") as caught:
                ad.to_tensors(data, length=length, dictionary="values")
            assert caught.value.column == "x"
    with pytest.raises(ad.ConversionError, match="for columns of lists, and this one is of Dictionary"):
        ad.to_tensors(pa.table({"x": codes}), length={"x": 3}, dictionary="codes")


def test_slices_of_one_array_are_validated_once():
    count = 400_000
    ends, values = pa.array(np.arange(1, count + 1, dtype=np.int32) * 2), pa.array(np.arange(count, dtype=np.float32))
    whole = pa.RunEndEncodedArray.from_arrays(ends, values)
    slices = pa.chunked_array([whole.slice(start, 8000) for start in range(0, len(whole), 8000)])

    def seconds(source: object) -> float:
        start = time.process_time()
        tensor = ad.to_tensor(source)
        taken = time.process_time() - start
        assert np.array_equal(np.from_dlpack(tensor), np.repeat(np.arange(count, dtype=np.float32), 2))
        return taken

    fastest = [min(seconds(source) for _ in range(3)) for source in (whole, slices)]
    # 100 slices, each of which would validate all runs.
    assert fastest[1] < 6 * fastest[0]


def test_runs_that_a_slice_does_not_show_are_no_unknown_categories():
    values = pa.array(["b", None, "x", "a", *["y"] * 20])
    whole = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4, *range(6, 27)], pa.int32()), values)
    shown = pa.chunked_array([whole[:3], whole[4:6], whole[3:3], whole[1:2]])
    tensor = ad.to_tensor(shown, categories=["a", "b"], nulls=9)
    assert np.from_dlpack(tensor).tolist() == [1, 1, 9, 0, 0, 1]
    with pytest.raises(ad.CastError) as caught:
        ad.to_tensor(pa.chunked_array([whole[:2], whole[1:4]]), categories=["a", "b"], nulls=9)
    assert caught.value.row == 4
