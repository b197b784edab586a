"""`to_tensor` of several columns: a matrix of shape (rows, columns), as NumPy would make it."""

from __future__ import annotations

import ctypes
import decimal
import itertools
import os
import subprocess
import sys
from typing import Any

import arrow_dlpack as ad
import duckdb
import nanoarrow as na
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support import FLOATS, INTEGERS, NUMBERS, address, numpy_of

X = [1.5, -2.0, 3.25]
N = [4, 5, 6]
BATCH = pa.record_batch({"x": pa.array(X, pa.float32()), "n": pa.array(N, pa.int16())})
EXPECTED = np.array([X, N], np.float32).T


def columns_of(values: np.ndarray, names: str = "abcdefgh") -> pa.RecordBatch:
    """A batch of the columns of a matrix."""
    return pa.record_batch(
        [pa.array(np.ascontiguousarray(column)) for column in values.T], names=list(names)[: values.shape[1]]
    )


class TestSources:
    @pytest.mark.parametrize(
        "source",
        [
            BATCH,
            pa.Table.from_batches([BATCH]),
            BATCH.to_struct_array(),
            pa.chunked_array([BATCH.to_struct_array()]),
            pl.DataFrame(BATCH.to_pydict(), schema={"x": pl.Float32, "n": pl.Int16}),
            pd.DataFrame({"x": np.array(X, "f4"), "n": np.array(N, "i2")}),
            na.array(BATCH),
            ad.from_arrow(BATCH),
        ],
        ids=["batch", "table", "structs", "chunked structs", "polars", "pandas", "nanoarrow", "own"],
    )
    def test_whatever_speaks_arrow(self, source: Any):
        tensor = ad.to_tensor(source)
        assert (tensor.shape, tensor.dtype, tensor.strides) == ((3, 2), "float32", (2, 1))
        np.testing.assert_array_equal(numpy_of(tensor), EXPECTED)

    def test_a_query_of_duckdb(self):
        rows = pa.Table.from_batches([BATCH])  # noqa: F841, the query names it
        tensor = ad.to_tensor(duckdb.sql("select x, n from rows"), columns=["n", "x"])
        np.testing.assert_array_equal(numpy_of(tensor), EXPECTED[:, ::-1])

    def test_a_stream_is_read_once(self):
        reader = pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH, BATCH.slice(1), BATCH.slice(0, 0)])
        tensor = ad.to_tensor(reader)
        np.testing.assert_array_equal(numpy_of(tensor), np.concatenate([EXPECTED, EXPECTED[1:]]))
        assert ad.to_tensor(reader).shape == (0, 2)

    def test_many_chunks_with_offsets_are_packed_as_they_lie(self):
        whole = np.random.default_rng(1).random((5000, 5)).astype("f4")
        batch = columns_of(whole)
        cuts = [0, 1, 7, 7, 1024, 1025, 4000, 5000]
        table = pa.Table.from_batches([batch.slice(a, b - a) for a, b in itertools.pairwise(cuts)])
        for order in "CF":
            with ad.track_copies() as log:
                tensor = ad.to_tensor(table.slice(3, 4990), order=order)
            np.testing.assert_array_equal(numpy_of(tensor), whole[3:4993])
            # One pass, and no column in between.
            assert [entry.bytes for entry in log] == [4990 * 5 * 4]
            assert "chunks joined" in next(iter(log)).why


class TestOrder:
    @pytest.mark.parametrize(("order", "strides"), [("C", (2, 1)), ("F", (1, 3)), ("A", (2, 1))])
    def test_a_copy_lies_in_the_order_asked_for(self, order: Any, strides: tuple[int, ...]):
        tensor = ad.to_tensor(BATCH, order=order)
        assert (tensor.strides, tensor.copied, tensor.writable) == (strides, True, True)
        np.testing.assert_array_equal(numpy_of(tensor), EXPECTED)

    @pytest.mark.parametrize("order", ["c", "K", "", None, 1])
    def test_others_are_errors(self, order: Any):
        with pytest.raises((ValueError, TypeError), match=r"order|str"):
            ad.to_tensor(BATCH, order=order)

    def test_it_has_no_effect_on_a_single_column(self):
        column = pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))
        assert ad.to_tensor(column, order="F").strides == (2, 1)


class TestPromotion:
    @pytest.mark.parametrize("a", [*NUMBERS, "bool"])
    @pytest.mark.parametrize("b", [*NUMBERS, "bool"])
    def test_is_that_of_numpy(self, a: str, b: str):
        batch = pa.record_batch({"a": pa.array(np.ones(2, a)), "b": pa.array(np.zeros(2, b))})
        kinds = {np.dtype(a).kind, np.dtype(b).kind}
        if kinds == {"i", "u"} and "uint64" in (a, b):
            with pytest.raises(ad.UnsupportedTypeError, match=r'"a".*"b"'):
                ad.to_tensor(batch)
            return
        matrix = numpy_of(ad.to_tensor(batch))
        assert matrix.dtype == np.result_type(a, b)
        np.testing.assert_array_equal(matrix, [[1, 0], [1, 0]])

    @pytest.mark.parametrize(
        "dtypes", [("int16", "uint16", "float32"), ("uint64", "int8", "float64"), ("bool", "int8", "uint8", "uint16")]
    )
    def test_the_order_of_columns_does_not_matter(self, dtypes: tuple[str, ...]):
        for order in (dtypes, dtypes[::-1]):
            batch = pa.record_batch([pa.array(np.ones(1, dtype)) for dtype in order], names=list("abcd")[: len(order)])
            assert ad.to_tensor(batch).dtype == np.result_type(*dtypes).name

    def test_nulls_do_not_change_it(self):
        batch = pa.record_batch({"a": pa.array([1, None], pa.int8()), "b": pa.array([1, 2], pa.int8())})
        assert ad.to_tensor(batch, nulls=0).dtype == "int8"

    def test_a_dtype_for_all_ends_it(self):
        batch = pa.record_batch({"a": pa.array([1], pa.int64()), "b": pa.array([2], pa.uint64())})
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch, dtype="int16")), [[1, 2]])

    def test_a_dtype_of_a_column_enters_it(self):
        batch = pa.record_batch({"a": pa.array([1], pa.int64()), "b": pa.array([2.5], pa.float32())})
        assert ad.to_tensor(batch).dtype == "float64"
        assert ad.to_tensor(batch, dtype={"a": "int16"}).dtype == "float32"

    def test_ml_dtypes(self):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        batch = pa.record_batch({"a": pa.array([1, 2], pa.int32()), "b": pa.array([0.5, 0.25])})
        tensor = ad.to_tensor(batch, dtype="bfloat16")
        values = np.frombuffer(memoryview(numpy_of_bits(tensor)), ml_dtypes.bfloat16).reshape(2, 2)
        np.testing.assert_array_equal(values.astype("f4"), [[1, 0.5], [2, 0.25]])


def numpy_of_bits(tensor: ad.Tensor) -> np.ndarray:
    """The bytes of a row-major tensor of a dtype that NumPy has not."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * tensor.nbytes).from_address(address(tensor))).copy()


class TestCodes:
    STAMPS = pa.array([1, 2], pa.timestamp("us"))
    WORDS = pa.array(["a", "b"]).dictionary_encode()

    def test_of_one_type_and_unit_make_a_matrix(self):
        batch = pa.record_batch({"a": self.STAMPS, "b": self.STAMPS})
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch)), [[1, 1], [2, 2]])
        batch = pa.record_batch({"a": self.WORDS, "b": self.WORDS.take(pa.array([1, 0]))})
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch)), [[0, 1], [1, 0]])

    @pytest.mark.parametrize(
        "other",
        [pa.array([1, 2]), pa.array([1.0, 2.0]), pa.array([1, 2], pa.timestamp("ms")), WORDS, pa.array([True, False])],
        ids=lambda array: str(array.type),
    )
    def test_do_not_mix_with_anything_else(self, other: pa.Array):
        for columns in ({"a": self.STAMPS, "b": other}, {"b": other, "a": self.STAMPS}):
            with pytest.raises(ad.UnsupportedTypeError, match="dtype=") as caught:
                ad.to_tensor(pa.record_batch(columns))
            assert '"a"' in str(caught.value)
            assert '"b"' in str(caught.value)

    def test_become_what_a_dtype_says(self):
        batch = pa.record_batch({"a": self.STAMPS, "b": pa.array([0.5, 1.5])})
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch, dtype="float64")), [[1, 0.5], [2, 1.5]])
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch, dtype={"a": "float64"})), [[1, 0.5], [2, 1.5]])

    def test_stand_for_values_where_those_are_asked_for(self):
        prices = pa.array([1.5, 2.5, 1.5]).dictionary_encode()
        batch = pa.record_batch({"p": prices, "x": pa.array([1, 2, 3])})
        for keywords in ({"dictionary": "values"}, {"dtype": "float64"}, {"dictionary": {"p": "values"}}):
            np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch, **keywords)), [[1.5, 1], [2.5, 2], [1.5, 3]])

    def test_decimals(self):
        amounts = pa.array([decimal.Decimal("1.25"), None], pa.decimal64(9, 2))
        batch = pa.record_batch({"a": amounts, "b": pa.array([1.0, 2.0])})
        matrix = numpy_of(ad.to_tensor(batch, dtype="float64", nulls="nan"))
        np.testing.assert_array_equal(matrix, [[1.25, 1], [np.nan, 2]])
        unscaled = ad.to_tensor(batch.select(["a"]), decimal="unscaled", nulls=0)
        np.testing.assert_array_equal(numpy_of(unscaled), [[125], [0]])
        with pytest.raises(ad.UnsupportedTypeError, match=r"unscaled|decimal|codes"):
            ad.to_tensor(batch, decimal="unscaled", nulls=0)


class TestNullsAndCasts:
    BATCH = pa.record_batch(
        {
            "a": pa.array([1, None, 3, None], pa.int32()),
            "b": pa.array([None, 0.5, 1.5, 2.5], pa.float32()),
            "c": pa.array([True, None, False, True]),
        }
    )

    def test_one_pass_casts_fills_and_unpacks(self):
        with ad.track_copies() as log:
            matrix = numpy_of(ad.to_tensor(self.BATCH, nulls="nan"))
        nan = np.nan
        np.testing.assert_array_equal(matrix, [[1, nan, 1], [nan, 0.5, nan], [3, 1.5, 0], [nan, 2.5, 1]])
        (entry,) = log
        assert entry.bytes == matrix.nbytes == 4 * 3 * 8
        for step in ("cast from int32 to float64", "bits unpacked", "4 nulls filled", "packed row-major"):
            assert step in entry.why

    def test_a_policy_for_each_column(self):
        matrix = numpy_of(ad.to_tensor(self.BATCH, nulls={"a": -1, "b": "nan", "c": True}))
        np.testing.assert_array_equal(matrix, [[1, np.nan, 1], [-1, 0.5, 1], [3, 1.5, 0], [-1, 2.5, 1]])
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensor(self.BATCH, nulls={"a": 0})
        assert (caught.value.column, caught.value.row) == ("b", 0)

    def test_refused_nulls_name_the_first_row_over_all_chunks(self):
        table = pa.Table.from_batches([self.BATCH.slice(0, 1), self.BATCH.slice(2, 1), self.BATCH])
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensor(table, columns=["a"])
        assert (caught.value.column, caught.value.row) == ("a", 3)

    def test_kept_nulls_are_zero_in_a_copy(self):
        batch = self.BATCH.select(["a", "c"])
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch, nulls="keep")), [[1, 1], [0, 0], [3, 0], [0, 1]])

    def test_a_fill_value_must_be_exact_in_the_common_dtype(self):
        assert ad.to_tensor(self.BATCH, nulls={"a": 0.5, "b": 0, "c": 0}).dtype == "float64"
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensor(self.BATCH, columns=["a"], nulls=0.5)
        assert caught.value.column == "a"

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_a_value_out_of_range_is_told_by_column_and_row(self, order: Any):
        batch = pa.record_batch({"a": pa.array([1, 2, 300]), "b": pa.array([1.0, 2.5, 3.0])})
        with pytest.raises(ad.CastError, match=r"2\.5") as caught:
            ad.to_tensor(pa.Table.from_batches([batch.slice(0, 1), batch]), dtype="int8", order=order)
        assert (caught.value.column, caught.value.row) == ("b", 2)
        with pytest.raises(ad.CastError, match="300") as caught:
            ad.to_tensor(batch, dtype={"a": "int8", "b": "float32"}, columns=["a"], order=order)
        assert (caught.value.column, caught.value.row) == ("a", 2)

    def test_nulls_of_rows_are_nulls_of_every_column(self):
        structs = pa.StructArray.from_arrays(
            [pa.array([1, 2]), pa.array([3.0, 4.0])], ["a", "b"], mask=pa.array([True, False])
        )
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(structs, nulls="nan")), [[np.nan, np.nan], [2, 4]])


class TestColumns:
    def test_are_chosen_by_name_and_in_that_order(self):
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(BATCH, columns=["n", "x"])), EXPECTED[:, ::-1])
        assert ad.to_tensor(BATCH, columns=["n"]).dtype == "int16"

    def test_that_do_not_exist_or_stand_twice(self):
        with pytest.raises(ad.ConversionError, match=r'"y".*"x", "n"'):
            ad.to_tensor(BATCH, columns=["y"])
        with pytest.raises(ad.ConversionError, match="more than once"):
            ad.to_tensor(BATCH, columns=["x", "x"])
        twice = pa.record_batch([pa.array([1]), pa.array([2])], names=["x", "x"])
        with pytest.raises(ad.ConversionError, match="more than one column"):
            ad.to_tensor(twice)

    @pytest.mark.parametrize("columns", ["x", 3, [1]], ids=repr)
    def test_that_are_no_names(self, columns: Any):
        with pytest.raises(TypeError):
            ad.to_tensor(BATCH, columns=columns)

    def test_options_of_a_column_that_does_not_exist(self):
        for keywords in ({"dtype": {"y": "int8"}}, {"nulls": {"y": 0}}):
            with pytest.raises(ad.ConversionError, match="y"):
                ad.to_tensor(BATCH, **keywords)

    def test_none_need_a_dtype(self):
        with pytest.raises(ad.ConversionError, match="dtype="):
            ad.to_tensor(BATCH, columns=[])
        tensor = ad.to_tensor(BATCH, columns=[], dtype="float32")
        assert (tensor.shape, tensor.dtype) == ((3, 0), "float32")
        empty = pa.record_batch(pa.StructArray.from_arrays([], fields=[]))
        assert ad.to_tensor(empty, dtype="int8").shape == (0, 0)

    @pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 33, 100, 4096, 5000])
    def test_any_number_of_them(self, count: int):
        matrix = np.random.default_rng(count).integers(-9, 9, (7, count)).astype("f4")
        batch = pa.record_batch(list(matrix.T.copy()), names=[f"c{i}" for i in range(count)])
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch)), matrix)
        np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch, dtype="int16")), matrix)

    @pytest.mark.parametrize(
        ("column", "remedy"),
        [
            (pa.array([{"x": 1}]), r'columns=\["s\.x"\]'),
            (pa.array(["a"]), "to_ragged"),
            (pa.array([b"ab"], pa.binary(2)), "columns="),
            (pa.array([[1]]), "to_ragged"),
        ],
        ids=lambda value: str(getattr(value, "type", "")),
    )
    def test_that_are_no_numbers_name_a_remedy(self, column: pa.Array, remedy: str):
        batch = pa.record_batch({"a": pa.array([1.0]), "s": column})
        with pytest.raises(ad.ConversionError, match=remedy) as caught:
            ad.to_tensor(batch)
        assert caught.value.column == "s"

    def test_a_single_array_has_none(self):
        with pytest.raises(ad.ConversionError, match="leave columns= out"):
            ad.to_tensor(pa.array([1]), columns=["x"])

    @pytest.mark.parametrize("convert", [ad.to_tensor, ad.to_tensors])
    def test_are_a_list_of_names(self, convert: Any):
        with pytest.raises(TypeError, match=r"pass \['a'\] for 'a' alone"):
            convert(BATCH, columns="a")
        with pytest.raises(TypeError, match=r"list of names, not 3"):
            convert(BATCH, columns=3)


class TestRows:
    @pytest.mark.parametrize("order", ["C", "F", "A"])
    def test_none(self, order: Any):
        for source in (BATCH.slice(0, 0), pa.Table.from_batches([], BATCH.schema)):
            tensor = ad.to_tensor(source, order=order)
            assert (tensor.shape, tensor.dtype, tensor.copied) == ((0, 2), "float32", False)
            assert numpy_of(tensor).shape == (0, 2)

    def test_columns_of_different_lengths_are_refused(self):
        children = [pa.array([1, 2, 3]), pa.array([1, 2])]
        with pytest.raises((ad.ConversionError, pa.ArrowInvalid)):
            ad.to_tensor(
                pa.StructArray.from_buffers(pa.struct({"a": pa.int64(), "b": pa.int64()}), 3, [None], children=children)
            )


def converted_under(variable: str, value: str) -> subprocess.CompletedProcess[str]:
    """A process that converts a batch under this environment variable."""
    code = "import arrow_dlpack as ad, pyarrow as pa; ad.to_tensor(pa.record_batch({'x': pa.array([1])}))"
    environment = {**os.environ, variable: value}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


class TestThreads:
    def test_give_the_same(self):
        matrix = np.random.default_rng(3).random((300_000, 3))
        batch = columns_of(matrix)
        for threads in (None, 1, 2, 7):
            np.testing.assert_array_equal(numpy_of(ad.to_tensor(batch, threads=threads)), matrix)

    @pytest.mark.parametrize("threads", [0, -1])
    def test_there_is_at_least_one(self, threads: int):
        with pytest.raises(ValueError, match="threads must be 1 or more"):
            ad.to_tensor(BATCH, threads=threads)
        with pytest.raises(ValueError, match="threads must be 1 or more"):
            ad.to_tensors(BATCH, threads=threads)

    @pytest.mark.parametrize(("value", "fits"), [("2", True), ("", True), ("0", False), ("-3", False), ("many", False)])
    def test_the_environment_names_a_number(self, value: str, fits: bool):
        done = converted_under("ARROW_DLPACK_THREADS", value)
        assert (done.returncode == 0) == fits, done.stderr
        assert fits or "ARROW_DLPACK_THREADS" in done.stderr

    @pytest.mark.parametrize(("value", "fits"), [("avx2", True), ("neon", True), ("", True), ("AVX-2", False)])
    def test_the_environment_names_an_instruction_set(self, value: str, fits: bool):
        done = converted_under("ARROW_DLPACK_ISA", value)
        assert (done.returncode == 0) == fits, done.stderr
        assert fits or "set it to portable, neon, avx2 or avx512" in done.stderr


def test_the_result_is_the_array_of_a_library(torch: Any):
    array = ad.to_tensor(BATCH, xp=np)
    assert isinstance(array, np.ndarray)
    tensor = ad.to_tensor(BATCH, xp=torch, order="F")
    assert (tensor.shape, tensor.stride(), tensor.dtype) == ((3, 2), (1, 3), torch.float32)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_every_dtype_is_packed(dtype: str):
    matrix = np.arange(51 * 19).reshape(51, 19).astype(dtype) % 100
    batch = columns_of(matrix, "abcdefghijklmnopqrs")
    for order in "CF":
        found = numpy_of(ad.to_tensor(batch, order=order))
        assert (found.dtype, found.flags["F_CONTIGUOUS"]) == (np.dtype(dtype), order == "F")
        np.testing.assert_array_equal(found, matrix)


def test_complex_numbers_are_pairs_of_floats():
    pairs = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    batch = pa.record_batch({"a": pairs, "b": pairs.take(pa.array([1, 0]))})
    matrix = numpy_of(ad.to_tensor(batch, dtype="complex64"))
    np.testing.assert_array_equal(matrix, np.array([[1 + 2j, 3 + 4j], [3 + 4j, 1 + 2j]], "complex64"))
    with pytest.raises(ad.UnsupportedTypeError):
        ad.to_tensor(pa.record_batch({"a": pairs, "b": pa.array([1.0, 2.0])}), dtype={"a": "complex64"})
