"""A matrix becomes a record batch of its columns: a view where each column is dense, else one pass over its rows."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import polars as pl
import producers
import pyarrow as pa
import pytest
from support import NUMBERS, address, values_address
from type_cases import FLOAT8, dtype_of, read, same

COMPLEX = ["complex64", "complex128"]
# Views of a matrix of 6 rows and 4 columns: what they are, and whether each column is dense.
LAYOUTS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], bool]] = {
    "row-major": (lambda x: x, False),
    "column-major": (np.asfortranarray, True),
    "transposed": (lambda x: np.ascontiguousarray(x.T).T, True),
    "column-major, first rows": (lambda x: np.asfortranarray(x)[:3], True),
    "column-major, last rows": (lambda x: np.asfortranarray(x)[2:], True),
    "column-major, every other column": (lambda x: np.asfortranarray(x)[:, ::2], True),
    "column-major, columns backwards": (lambda x: np.asfortranarray(x)[:, ::-1], True),
    "column-major, every other row": (lambda x: np.asfortranarray(x)[::2], False),
    "column-major, rows backwards": (lambda x: np.asfortranarray(x)[::-1], False),
    "some columns": (lambda x: x[:, 1:3], False),
    "every other column": (lambda x: x[:, ::2], False),
    "columns backwards": (lambda x: x[:, ::-1], False),
    "rows backwards": (lambda x: x[::-1], False),
    "every other row": (lambda x: x[::2], False),
    "one row": (lambda x: x[:1], True),
    "one column": (lambda x: x[:, 1:2], False),
    "one column, dense": (lambda x: np.ascontiguousarray(x[:, 1:2]), True),
    "rows repeated": (lambda x: np.broadcast_to(x[:1], x.shape), False),
    "columns repeated": (lambda x: np.broadcast_to(np.ascontiguousarray(x[:, :1]), x.shape), True),
    "no rows": (lambda x: x[:0], True),
}

TWELVE = np.arange(12, dtype="int32").tobytes()


def grid(dtype: str) -> np.ndarray:
    numbers = np.arange(6 * 4).reshape(6, 4)
    if dtype == "bool":
        return numbers % 3 == 0
    if dtype in COMPLEX:
        return (numbers * (1 - 2j)).astype(dtype)
    return numbers.astype(dtype)


def names(x: np.ndarray) -> list[str]:
    return [f"c{column}" for column in range(x.shape[1])]


@pytest.mark.parametrize("dtype", ["bool", *NUMBERS, *COMPLEX])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(dtype: str, layout: str):
    change, dense = LAYOUTS[layout]
    source = change(grid(dtype))
    with ad.track_copies() as log:
        batch = ad.to_arrow(source, names=names(source))
    assert type(batch) is ad.RecordBatch
    assert (batch.num_rows, batch.column_names) == (len(source), names(source))
    moves = not dense and source.size > 0
    assert [(entry.why, entry.bytes) for entry in log] == [("rows split into columns", source.nbytes)] * moves
    asked = {"dtype": dtype} if dtype in COMPLEX else {}
    tensors = ad.to_tensors(batch, copy=False, **asked)
    for name, expected in zip(names(source), source.T, strict=True):
        assert tensors[name].dtype == dtype
        assert same(np.from_dlpack(tensors[name]), expected)
        if not moves and source.size:
            assert address(tensors[name]) == expected.ctypes.data
    if moves:
        with pytest.raises(ad.CopyError, match="rows split into columns") as caught:
            ad.to_arrow(source, names=names(source), copy=False)
        assert "copy=None" in caught.value.remedy
    else:
        ad.to_arrow(source, names=names(source), copy=False)
    with ad.track_copies() as log:
        copied = ad.to_tensors(ad.to_arrow(source, names=names(source), copy=True), copy=False, **asked)
    assert log.bytes == source.nbytes
    for name, expected in zip(names(source), source.T, strict=True):
        assert same(np.from_dlpack(copied[name]), expected)
        assert not source.size or address(copied[name]) != expected.ctypes.data


@pytest.mark.parametrize("dtype", ["bfloat16", *FLOAT8])
def test_floats_that_arrow_lacks(dtype: str):
    source = np.arange(12).astype(dtype_of(dtype)).reshape(4, 3)
    storage = pa.array([value.tobytes() for value in source.flat], pa.binary(source.itemsize))
    item = pa.field("item", storage.type, metadata={"ARROW:extension:name": f"arrow_dlpack.{dtype}"})
    rows = pa.FixedSizeListArray.from_arrays(storage, type=pa.list_(item, 3))
    batch = ad.to_arrow(ad.to_tensor(rows), names=["a", "b", "c"])
    for name, expected in zip("abc", source.T, strict=True):
        assert same(read(ad.to_tensor(batch[name], copy=False)), np.ascontiguousarray(expected))
        assert pa.field(batch[name]).metadata[b"ARROW:extension:name"] == f"arrow_dlpack.{dtype}".encode()


def test_a_view_is_pyarrows_memory_too_and_valid():
    source = np.asfortranarray(grid("float32"))
    batch = pa.record_batch(ad.to_arrow(source, names=list("abcd"), copy=False))
    batch.validate(full=True)
    assert batch.schema.names == list("abcd")
    assert [values_address(column) for column in batch.columns] == [column.ctypes.data for column in source.T]
    # What is written to the matrix later is seen: it is the same memory.
    source[2, 1] = -7
    assert batch["b"][2].as_py() == -7


def test_a_view_is_read_only_and_a_copy_is_its_owners():
    source = np.asfortranarray(grid("int64"))
    tensor = ad.to_tensor(ad.to_arrow(source, names=list("abcd"))["a"])
    assert not tensor.writable
    frozen = np.asfortranarray(grid("int64"))
    frozen.flags.writeable = False
    batch = ad.to_arrow(frozen, names=list("abcd"), copy=False)
    assert address(ad.to_tensor(batch["d"])) == frozen[:, 3].ctypes.data


def test_libraries_read_batches():
    for source in (grid("float64"), np.asfortranarray(grid("float64"))):
        batch = ad.to_arrow(source, names=list("abcd"))
        assert np.array_equal(pl.DataFrame(batch).to_numpy(), source)
        assert np.array_equal(pa.table(batch).to_pandas().to_numpy(), source)
        assert pa.RecordBatchReader.from_stream(batch).read_all().column_names == list("abcd")


def test_torch_tensors(torch: Any):
    source = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    batch = pa.record_batch(ad.to_arrow(source, names=["a", "b", "c"]))
    assert batch["b"].to_pylist() == [1, 4, 7, 10]
    with ad.track_copies() as log:
        batch = ad.to_arrow(source.T.contiguous().T, names=["a", "b", "c"], copy=False)
    assert not log.entries
    assert torch.equal(torch.stack([torch.from_dlpack(ad.to_tensor(batch[name])) for name in "abc"], 1), source)
    half = source.to(torch.bfloat16)
    batch = ad.to_arrow(half, names=["a", "b", "c"], type={"a": pa.float32()})
    assert pa.array(batch["a"]).to_pylist() == [0, 3, 6, 9]
    assert torch.equal(torch.from_dlpack(batch["c"]), half[:, 2])


def test_there_and_back_in_large():
    random = np.random.default_rng(4)
    for shape in [(100_003, 16), (20_001, 64), (3, 5_000), (200_000, 3), (70_001, 31)]:
        source = random.standard_normal(shape, dtype="float32")
        for threads in (None, 1, 3):
            batch = ad.to_arrow(source, names=names(source), threads=threads)
            assert all(
                np.array_equal(np.from_dlpack(tensor), column)
                for tensor, column in zip(ad.to_tensors(batch, copy=False).values(), source.T, strict=True)
            )


@pytest.mark.parametrize("shape", [(6, 4), (1000, 3), (1024, 16), (7, 300)])
@pytest.mark.parametrize("dtype", ["int8", "float32", "float64"])
def test_the_way_back_to_a_matrix_is_free(shape: tuple[int, int], dtype: str):
    source = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    for layout, copies in ((np.asfortranarray(source), 0), (source, 1)):
        with ad.track_copies() as log:
            batch = ad.to_arrow(layout, names=names(layout))
        assert len(log) == copies
        for order in ("F", "A"):
            with ad.track_copies() as log:
                matrix = ad.to_tensor(batch, order=order, copy=False)
            assert len(log) == 0
            assert same(np.from_dlpack(matrix), source)
            assert copies or address(matrix) == layout.ctypes.data
            # And again: the columns of that matrix are dense too.
            again = ad.to_arrow(matrix, names=names(source), copy=False)
            assert address(ad.to_tensor(again[-1])) == address(ad.to_tensor(batch[-1]))


def test_memory_that_is_used_again_is_nobody_elses():
    # Each result is large enough for its memory to be kept for the next one, once nobody has it any more.
    sources = [np.full((100_000, 16), value, "float32") for value in range(4)]
    held = []
    for turn in range(24):
        held.append((turn % 4, ad.to_arrow(sources[turn % 4], names=names(sources[0]))))
        if len(held) > 3:
            del held[turn % 3]
        for value, batch in held:
            assert all((np.from_dlpack(tensor) == value).all() for tensor in map(ad.to_tensor, (batch[0], batch[15])))


FORKS = """
import os, sys
import arrow_dlpack as ad, numpy as np
names = [str(column) for column in range(16)]

def is_right(value):
    matrix = np.full((100_000, 16), value, "float32")
    batch = ad.to_arrow(matrix, names=names)
    return all(np.array_equal(np.from_dlpack(tensor), matrix[:, 0]) for tensor in ad.to_tensors(batch).values())

assert is_right(1)
child = os.fork()
right = all(is_right(value + 10 * (child == 0)) for value in range(5))
if child == 0:
    os._exit(0 if right else 1)
assert right
assert os.waitpid(child, 0)[1] == 0
"""


def test_memory_that_is_kept_survives_a_fork():
    result = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


# --- Ownership. ---


def test_a_view_keeps_its_source_until_the_last_column_goes():
    producer, source = producers.dlpack(data=TWELVE, shape=(4, 3), strides=(1, 4))
    batch = ad.to_arrow(source, names=["a", "b", "c"], copy=False)
    last = pa.record_batch(batch)["c"]
    del source, batch
    gc.collect()
    assert not producer.released
    assert last.to_pylist() == [8, 9, 10, 11]
    del last
    gc.collect()
    assert producer.releases == 1


def test_a_split_matrix_lets_go_of_its_source():
    producer, source = producers.dlpack(data=TWELVE, shape=(4, 3), strides=(3, 1))
    batch = ad.to_arrow(source, names=["a", "b", "c"])
    del source
    gc.collect()
    assert producer.releases == 1
    assert pa.array(batch["c"]).to_pylist() == [2, 5, 8, 11]


def test_a_refused_matrix_is_released():
    for keywords in ({"names": ["a"]}, {"names": ["a", "b", "b"]}, {"names": ["a", "b", "c"], "copy": False}):
        producer, source = producers.dlpack(data=TWELVE, shape=(4, 3), strides=(3, 1))
        with pytest.raises(ad.ConversionError):
            ad.to_arrow(source, **keywords)
        del source
        gc.collect()
        assert producer.releases == 1


def test_the_array_lives_as_long_as_a_view_of_it():
    class Own(np.ndarray):
        pass

    source = np.asfortranarray(grid("float32")).view(Own)
    alive = weakref.ref(source)
    column = ad.to_arrow(source, names=list("abcd"))["d"]
    expected = source[:, 3].tolist()
    del source
    gc.collect()
    assert alive() is not None
    assert pa.array(column).to_pylist() == expected
    del column
    gc.collect()
    assert alive() is None


# --- Names. ---


@pytest.mark.parametrize(
    "given", [("a", "b"), iter(["a", "b"]), {"a": 1, "b": 2}, np.array(["a", "b"]), pl.Series(["a", "b"])]
)
def test_names_are_any_iterable_of_str(given: Any):
    assert ad.to_arrow(np.zeros((3, 2)), names=given).column_names == ["a", "b"]


@pytest.mark.parametrize(
    ("shape", "given", "reason"),
    [
        ((3, 2), ["a"], "1 name for 2 columns; pass a name for each column"),
        ((3, 2), ["a", "b", "c"], "3 names for 2 columns"),
        ((3, 2), [], "0 names for 2 columns"),
        ((3, 2), ["a", "a"], 'column "a": more than one column has this name; give each column one of its own'),
        ((3,), ["a"], r"has the shape \[3\]; leave names out, or reshape it to \(rows, columns\)"),
        ((), [], r"has the shape \[\]; leave names out"),
    ],
)
def test_names_that_do_not_fit(shape: tuple[int, ...], given: list[str], reason: str):
    with pytest.raises(ad.ConversionError, match=reason) as caught:
        ad.to_arrow(np.zeros(shape), names=given)
    assert caught.value.remedy


@pytest.mark.parametrize("given", ["ab", b"ab", 3, ["a", 1], ["a", None], [b"a", b"b"]])
def test_names_that_are_none(given: Any):
    with pytest.raises(TypeError, match="names must be a list of str"):
        ad.to_arrow(np.zeros((3, 2)), names=given)


def test_ragged_rows_have_no_columns():
    ragged = ad.to_ragged(pa.array([[1], [2, 3]]))
    with pytest.raises(ad.ConversionError, match="pad the rows"):
        ad.to_arrow(ragged, names=["a"])


def test_no_names_no_batch():
    array = pa.array(ad.to_arrow(grid("int8")))
    assert array.type.storage_type == pa.list_(pa.int8(), 4)
    assert type(ad.to_arrow(grid("int8"), names=None)) is ad.Array


def test_without_columns_the_rows_are_counted():
    batch = pa.record_batch(ad.to_arrow(np.zeros((5, 0)), names=[], copy=False))
    assert (batch.num_rows, batch.num_columns) == (5, 0)
    batch = pa.record_batch(ad.to_arrow(np.zeros((0, 2), "int16"), names=["a", "b"], copy=False))
    assert (batch.num_rows, batch.schema) == (0, pa.schema({"a": pa.int16(), "b": pa.int16()}))


def test_more_dimensions():
    source = np.arange(24, dtype="float32").reshape(4, 2, 3)
    batch = ad.to_arrow(source, names=["a", "b"])
    for index, name in enumerate("ab"):
        column = pa.array(batch[name])
        assert column.type.shape == [3]
        assert np.array_equal(np.from_dlpack(batch[name]), source[:, index])
    with pytest.raises(ad.CopyError) as caught:
        ad.to_arrow(source, names=["a", "b"], copy=False)
    assert caught.value.column == "a"
    stacked = np.ascontiguousarray(source.transpose(1, 0, 2)).transpose(1, 0, 2)
    batch = ad.to_arrow(stacked, names=["a", "b"], copy=False)
    assert address(ad.to_tensor(batch["b"])) == stacked[:, 1].ctypes.data


# --- Validity. ---


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("rows", [1, 7, 8, 64, 1000])
def test_validity_of_rows_and_of_elements(order: str, rows: int):
    random = np.random.default_rng(rows)
    source = np.array(random.integers(0, 99, (rows, 5)), order=order)
    by_row = random.random(rows) < 0.5
    by_element = np.array(random.random((rows, 5)) < 0.7, order=order)
    for valid, expected in [
        (by_row, np.tile(by_row[:, None], 5)),
        (by_element, by_element),
        (by_element[:, :], by_element),
    ]:
        batch = pa.record_batch(ad.to_arrow(source, names=names(source), validity=valid))
        batch.validate(full=True)
        for column, values, flags in zip(batch.columns, source.T, expected.T, strict=True):
            assert column.null_count == (~flags).sum()
            assert column.to_pylist() == [
                value if flag else None for value, flag in zip(values.tolist(), flags, strict=True)
            ]


def test_the_values_stay_a_view_and_bitmaps_are_logged():
    source = np.asfortranarray(grid("float64"))
    valid = source % 5 != 0
    with ad.track_copies() as log:
        batch = ad.to_arrow(source, names=list("abcd"), validity=valid, copy=False)
    assert [(entry.why, entry.bytes) for entry in log] == [("validity packed to bits", 4)]
    assert values_address(pa.record_batch(batch)["c"]) == source[:, 2].ctypes.data
    with ad.track_copies() as log:
        ad.to_arrow(source, names=list("abcd"), validity=np.ascontiguousarray(valid))
    assert [entry.why for entry in log] == ["validity split into columns", "validity packed to bits"]


@pytest.mark.parametrize(
    "valid", [np.ones(5, bool), np.ones((6, 3), bool), np.ones((6, 4, 1), bool), np.ones((6, 4), "uint8")]
)
def test_validity_that_does_not_fit(valid: np.ndarray):
    with pytest.raises(ad.ConversionError, match="validity must be one bool for each of the 6 rows"):
        ad.to_arrow(grid("int8"), names=list("abcd"), validity=valid)


def test_validity_may_be_arrow_data():
    valid = pa.array([True, False] * 3)
    for given in (valid, pa.chunked_array([valid[:2], valid[2:]]), ad.to_tensor(valid)):
        batch = pa.record_batch(ad.to_arrow(grid("int8"), names=list("abcd"), validity=given))
        assert batch["b"].to_pylist() == [1, None, 9, None, 17, None]


# --- Types. ---


def test_one_type_for_all():
    batch = pa.record_batch(ad.to_arrow(grid("int64"), names=list("abcd"), type=pa.int8()))
    assert set(batch.schema.types) == {pa.int8()}
    assert batch["c"].to_pylist() == [2, 6, 10, 14, 18, 22]
    bits = pa.record_batch(ad.to_arrow(grid("bool"), names=list("abcd"), type=pa.bool_()))
    assert set(bits.schema.types) == {pa.bool_()}
    assert bits["a"].to_pylist() == grid("bool")[:, 0].tolist()


def test_a_type_for_each():
    source = np.asfortranarray(grid("int64"))
    expected = pa.schema({"a": pa.int64(), "b": pa.timestamp("s"), "c": pa.int64(), "d": pa.float64()})
    for given in (
        {"b": pa.timestamp("s"), "d": pa.float64(), "a": None},
        [None, pa.timestamp("s"), None, pa.float64()],
    ):
        batch = ad.to_arrow(source, names=list("abcd"), type=given)
        assert pa.record_batch(batch).schema == expected
        assert address(ad.to_tensor(batch["b"])) == source[:, 1].ctypes.data
    ad.to_arrow(source, names=list("abcd"), type={"b": pa.timestamp("s")}, copy=False)
    with pytest.raises(ad.CopyError) as caught:
        ad.to_arrow(source, names=list("abcd"), type={"d": pa.float64()}, copy=False)
    assert caught.value.column == "d"


def test_a_schema():
    fields = [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.float64(), metadata={"unit": "m"})]
    schema = pa.schema(
        [*fields, pa.field("c", pa.int64()), pa.field("d", pa.duration("us"))], metadata={"made": "here"}
    )
    batch = pa.record_batch(ad.to_arrow(grid("int64"), names=list("abcd"), type=schema))
    assert batch.schema.equals(schema, check_metadata=True)
    assert batch.column("d").cast(pa.int64()).to_pylist() == grid("int64")[:, 3].tolist()
    with pytest.raises(ad.ConversionError, match="same names in the same order"):
        ad.to_arrow(grid("int64"), names=list("abdc"), type=schema)
    nulls = np.array([True] * 5 + [False])
    with pytest.raises(ad.NullError) as caught:
        ad.to_arrow(grid("int64"), names=list("abcd"), type=schema, validity=nulls)
    assert caught.value.column == "a"


def test_types_that_do_not_fit():
    source = grid("int64")
    for given, error, reason in [
        ({"e": pa.int8()}, ad.ConversionError, 'type names "e", and the columns are'),
        ([pa.int8()], ad.ConversionError, "1 type for 4 columns; pass None"),
        ("int8", TypeError, "type must be"),
        ({"a": "int8"}, TypeError, "type must be"),
        ({1: pa.int8()}, TypeError, "str"),
    ]:
        with pytest.raises(error, match=reason):
            ad.to_arrow(source, names=list("abcd"), type=given)
    with pytest.raises(ad.CastError) as caught:
        ad.to_arrow(source * 50, names=list("abcd"), type={"c": pa.int8()})
    assert (caught.value.column, caught.value.row) == ("c", 1)
    with pytest.raises(TypeError, match="type must be an Arrow type"):
        ad.to_arrow(source, type={"a": pa.int8()})


def test_codes_keep_their_dictionary():
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0], pa.int8()), ["no", "yes"])
    tensor = ad.to_tensor(pa.FixedSizeListArray.from_arrays(words, 2))
    batch = pa.record_batch(ad.to_arrow(tensor, names=["x", "y"]))
    assert batch["y"].to_pylist() == ["yes", "no"]
    assert batch.schema.types == [words.type] * 2


# --- The other keywords. ---


def test_devices():
    source = np.asfortranarray(grid("float32"))
    assert ad.to_arrow(source, names=list("abcd"), device="cpu").device == ad.Device("cpu")
    with pytest.raises(BufferError):
        ad.to_arrow(source, names=list("abcd"), device="cuda:0")


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_are_counted_from_1(threads: int):
    with pytest.raises(ValueError, match="threads must be 1 or more, or None"):
        ad.to_arrow(grid("int8"), names=list("abcd"), threads=threads)


def test_misaligned_matrices_are_moved_once():
    memory = np.zeros(8 * 24 + 1, "uint8")
    source = memory[1:].view("int64").reshape(6, 4)
    source[:] = grid("int64")
    with ad.track_copies() as log:
        batch = ad.to_arrow(source, names=list("abcd"))
    assert [entry.why for entry in log] == ["rows split into columns"]
    assert pa.record_batch(batch)["c"].to_pylist() == source[:, 2].tolist()
    with ad.track_copies() as log:
        batch = ad.to_arrow(source.reshape(4, 6).T, names=list("abcd"))
    assert [entry.why for entry in log] == ["values not aligned for int64 realigned"]
    assert pa.record_batch(batch)["a"].to_pylist() == list(range(6))


def test_a_copy_of_the_producer_counts():
    class Copies:
        def __dlpack__(self, **_: Any) -> Any:
            return ad.from_dlpack(np.asfortranarray(grid("int8"))).__dlpack__(max_version=(1, 0), copy=True)

    assert ad.to_arrow(Copies(), names=list("abcd")).num_rows == 6
    with pytest.raises(ad.CopyError, match="the producer made a copy"):
        ad.to_arrow(Copies(), names=list("abcd"), copy=False)
