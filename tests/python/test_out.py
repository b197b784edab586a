"""`out=`: memory of any library that a conversion writes into, and returns."""

from __future__ import annotations

import array
import gc
import sys
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import polars as pl
import producers
import pyarrow as pa
import pytest
from support import FLOATS, INTEGERS, lists, numpy_of

BATCH = pa.record_batch({"x": pa.array([1.5, -2.0, 3.25]), "n": pa.array([4, 5, 6], pa.int16())})
EXPECTED = np.array([[1.5, 4], [-2, 5], [3.25, 6]])


def filled(shape: tuple[int, ...], dtype: str = "f8", order: Any = "C") -> np.ndarray:
    return np.full(shape, 77, dtype, order=order)


class TestLayouts:
    @pytest.mark.parametrize(
        "out",
        [
            filled((3, 2)),
            filled((3, 2), order="F"),
            filled((3, 5))[:, :2],
            filled((3, 5))[:, 3:],
            filled((9, 2))[::3],
            filled((3, 7), order="F")[:, ::3][:, :2],
            filled((8, 2), order="F")[2:5],
            filled((3, 2), "f4"),
            filled((3, 2), "f2", "F"),
        ],
        ids=[
            "C",
            "F",
            "wide rows",
            "wide rows, right",
            "every third row",
            "every third column",
            "long columns",
            "f4",
            "f2, F",
        ],
    )
    def test_rows_or_columns_may_lie_apart(self, out: np.ndarray):
        base = out if out.base is None else out.base
        others = base.size - out.size
        with ad.track_copies() as log:
            result = ad.to_tensor(BATCH, out=out)
        assert result is out
        np.testing.assert_array_equal(out, EXPECTED)
        assert (base == 77).sum() == others, "what lies between is nobody's"
        (entry,) = log
        assert entry.bytes == out.nbytes
        column_major = out.strides[0] == out.itemsize
        assert ("packed column-major" if column_major else "packed row-major") in entry.why

    @pytest.mark.parametrize(
        ("out", "error"),
        [
            (filled((3, 4))[:, ::2], "dense"),
            (filled((3, 2))[::-1], "strides"),
            (filled((3, 2))[:, ::-1], "strides"),
            (np.lib.stride_tricks.as_strided(filled((4,)), (3, 2), (8, 8)), "overlap"),
            (filled((2, 3)), "shape"),
            (filled((3, 3)), "shape"),
            (filled((3,)), "shape"),
            (filled((3, 2, 1)), "shape"),
            (filled((49,), "u1")[1:].view("f8").reshape(3, 2), "align"),
        ],
        ids=[
            "every second column",
            "backwards",
            "mirrored",
            "overlapping",
            "(2, 3)",
            "(3, 3)",
            "1-d",
            "3-d",
            "misaligned",
        ],
    )
    def test_others_are_refused(self, out: np.ndarray, error: str):
        before = out.copy()
        with pytest.raises(ad.ConversionError, match=error):
            ad.to_tensor(BATCH, out=out)
        np.testing.assert_array_equal(out, before)

    @pytest.mark.parametrize("shape", [(3, 3), (4, 2), (3,), ()])
    def test_the_remedy_of_another_shape_names_the_keyword(self, shape: tuple[int, ...]):
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_tensor(BATCH, out=np.zeros(shape))
        assert caught.value.remedy == "pass an out of the result's shape"

    @pytest.mark.parametrize("shape", [(1, 2), (3, 1), (1, 1), (0, 2), (3, 0), (0, 0)])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_short_ones(self, shape: tuple[int, int], order: Any):
        batch = BATCH.select(BATCH.schema.names[: shape[1]]).slice(0, shape[0])
        if shape[1] == 0:
            # A batch without columns has no rows for pyarrow.
            batch, columns = BATCH.slice(0, shape[0]), []
        else:
            columns = None
        for out in (filled(shape, order=order), filled((2 * shape[0], 2 * shape[1]), order=order)[::2, : shape[1]]):
            assert ad.to_tensor(batch, columns=columns, out=out) is out
            np.testing.assert_array_equal(out, EXPECTED[: shape[0], : shape[1]])

    def test_what_is_read_only(self):
        out = filled((3, 2))
        out.flags.writeable = False
        with pytest.raises(ad.ConversionError, match="read-only"):
            ad.to_tensor(BATCH, out=out)
        with pytest.raises(ad.ConversionError, match="read-only"):
            ad.to_tensor(BATCH, out=ad.to_tensor(pa.array([1.0, 2.0])))


class TestDtypes:
    def test_it_is_the_default(self):
        out = filled((3, 2), "f4")
        ad.to_tensor(BATCH, out=out)
        np.testing.assert_array_equal(out, EXPECTED)
        with pytest.raises(ad.CastError) as caught:
            ad.to_tensor(BATCH, out=filled((3, 2), "i4"))
        assert (caught.value.column, caught.value.row) == ("x", 0)

    def test_another_one_is_an_error(self):
        for dtype in ("float32", {"x": "float32"}):
            if isinstance(dtype, dict):
                # The other column has the dtype of out: they promote to it.
                np.testing.assert_array_equal(ad.to_tensor(BATCH, out=filled((3, 2)), dtype=dtype), EXPECTED)
                continue
            with pytest.raises(ad.ConversionError, match=r"float64.*float32|float32.*float64"):
                ad.to_tensor(BATCH, out=filled((3, 2)), dtype=dtype)
        with pytest.raises(ad.ConversionError, match="float64"):
            ad.to_tensor(BATCH, out=filled((3, 2), "f4"), dtype={"x": "float64"})

    @pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "bool"])
    def test_every_one_that_numpy_has(self, dtype: str):
        values = np.array([[0, 1], [1, 0]], dtype)
        batch = pa.record_batch([pa.array(column.copy()) for column in values.T], names=["a", "b"])
        out = np.ones_like(values)
        ad.to_tensor(batch, out=out)
        np.testing.assert_array_equal(out, values)

    def test_complex_numbers(self):
        pairs = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
        out = np.zeros((2, 1), "complex64")
        ad.to_tensor(pa.record_batch({"a": pairs}), out=out)
        np.testing.assert_array_equal(out, [[1 + 2j], [3 + 4j]])

    def test_of_another_byte_order(self):
        with pytest.raises(BufferError):
            ad.to_tensor(BATCH, out=np.zeros((3, 2), ">f8"))

    def test_codes_become_what_it_holds(self):
        batch = pa.record_batch({"t": pa.array([1, 2], pa.timestamp("us")), "x": pa.array([0.5, 1.5])})
        np.testing.assert_array_equal(ad.to_tensor(batch, out=filled((2, 2))), [[1, 0.5], [2, 1.5]])


class TestLibraries:
    def test_torch(self, torch: Any):
        for out in (torch.zeros(3, 2), torch.zeros(3, 4)[:, 1:3], torch.zeros(2, 3, dtype=torch.float64).T):
            assert ad.to_tensor(BATCH, out=out) is out
            np.testing.assert_array_equal(out.numpy(), EXPECTED)

    def test_one_that_asks_for_gradients(self, torch: Any):
        with pytest.raises((BufferError, RuntimeError), match="grad"):
            ad.to_tensor(BATCH, out=torch.zeros(3, 2, requires_grad=True))

    def test_our_own(self):
        memory = filled((3, 2))
        out = ad.from_dlpack(memory)
        assert ad.to_tensor(BATCH, out=out) is out
        np.testing.assert_array_equal(memory, EXPECTED)
        made = ad.to_tensor(BATCH)
        ad.to_tensor(BATCH, dtype="float64", nulls=0, out=made)
        np.testing.assert_array_equal(numpy_of(made), EXPECTED)

    def test_a_capsule_alone(self):
        producer, out = producers.dlpack(data=bytes(48), shape=(3, 2), dtype=(2, 64, 1))
        assert ad.to_tensor(BATCH, out=out) is out
        gc.collect()
        assert producer.released

    @pytest.mark.parametrize(
        "out", [[0.0] * 6, bytearray(48), array.array("d", [0.0] * 6), memoryview(bytearray(48)), 1], ids=type
    )
    def test_what_is_no_tensor(self, out: Any):
        with pytest.raises(TypeError, match="out must be a writable tensor"):
            ad.to_tensor(BATCH, out=out)

    def test_it_is_let_go_of(self):
        out = filled((3, 2))
        before = sys.getrefcount(out)
        for _ in range(3):
            ad.to_tensor(BATCH, out=out)
        with pytest.raises(ad.ConversionError):
            ad.to_tensor(BATCH, out=out, dtype="int8")
        assert sys.getrefcount(out) == before
        # No export is left: an array with one cannot be resized.
        out.resize((1, 2), refcheck=False)

    @pytest.mark.parametrize(
        "source",
        [
            pl.DataFrame(BATCH.to_pydict()),
            pd.DataFrame(BATCH.to_pydict()),
            pa.Table.from_batches([BATCH.slice(0, 1), BATCH.slice(1)]),
        ],
        ids=["polars", "pandas", "table"],
    )
    def test_any_source(self, source: Any):
        np.testing.assert_array_equal(ad.to_tensor(source, out=filled((3, 2))), EXPECTED)


class TestKeywords:
    def test_no_copy_is_none_at_all(self):
        for source in (BATCH, BATCH.column("x")):
            with pytest.raises(ad.CopyError, match="out"):
                ad.to_tensor(source, out=filled((3, 2)) if source is BATCH else filled((3,)), copy=False)

    def test_a_namespace_has_no_say(self):
        with pytest.raises(ValueError, match="out or xp"):
            ad.to_tensor(BATCH, out=filled((3, 2)), xp=np)

    def test_the_others(self):
        for keywords in (
            {"writable": True},
            {"copy": True},
            {"legacy": "error"},
            {"order": "F"},
            {"threads": 2},
            {"device": "cpu"},
        ):
            out = filled((3, 2))
            np.testing.assert_array_equal(ad.to_tensor(BATCH, out=out, **keywords), EXPECTED)


class TestOverlap:
    def test_of_the_values(self):
        source = np.asfortranarray(EXPECTED)
        batch = pa.record_batch([pa.array(column) for column in source.T], names=["a", "b"])
        for out in (source, source[:, ::-1][:, ::-1], np.ndarray((3, 2), buffer=source.T, strides=(16, 8))):
            with pytest.raises(ad.ConversionError, match="overlap"):
                ad.to_tensor(batch, out=out)
        np.testing.assert_array_equal(source, EXPECTED)
        # The other column's memory is free.
        ad.to_tensor(batch, columns=["a"], out=source[:, 1:])
        np.testing.assert_array_equal(source, EXPECTED[:, [0, 0]])

    def test_of_the_validity(self):
        bits = np.full(64, 255, "u1")
        column = pa.Array.from_buffers(pa.float64(), 3, [pa.py_buffer(bits), pa.array([1.0, 2.0, 3.0]).buffers()[1]])
        with pytest.raises(ad.ConversionError, match="overlap") as caught:
            ad.to_tensor(pa.record_batch({"a": column}), out=bits[:24].view("f8").reshape(3, 1))
        assert caught.value.column == "a"
        with pytest.raises(ad.ConversionError, match="overlap"):
            ad.to_tensor(column, out=bits[:24].view("f8"))
        assert (bits == 255).all()

    def test_of_a_dictionary(self):
        values = np.array([1.5, 2.5, 3.5])
        codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(values))
        with pytest.raises(ad.ConversionError, match="overlap"):
            ad.to_tensor(pa.record_batch({"a": codes}), out=values.reshape(3, 1))
        with pytest.raises(ad.ConversionError, match="overlap"):
            ad.to_tensor(codes, out=values)
        np.testing.assert_array_equal(values, [1.5, 2.5, 3.5])

    def test_of_a_later_chunk(self):
        source = np.arange(3.0)
        table = pa.table({"a": pa.chunked_array([pa.array([1.0]), pa.array(source)])})
        whole = np.zeros(8)
        whole[:3] = source
        table = pa.table({"a": pa.chunked_array([pa.array([1.0]), pa.array(whole[:3])])})
        with pytest.raises(ad.ConversionError, match="overlap"):
            ad.to_tensor(table, out=whole[2:6].reshape(4, 1))
        assert ad.to_tensor(table, out=whole[3:7].reshape(4, 1)).ravel().tolist() == [1, 0, 1, 2]


class TestSingleColumns:
    COLUMN = pa.chunked_array([[1, None, 3], [4]], pa.int32())

    @pytest.mark.parametrize(
        "out",
        [filled((4,)), filled((4, 3))[:, 1], filled((9,))[1::2], filled((4,), "f4")],
        ids=["dense", "column", "every second", "f4"],
    )
    def test_of_any_stride(self, out: np.ndarray):
        with ad.track_copies() as log:
            assert ad.to_tensor(self.COLUMN, nulls=0, out=out) is out
        np.testing.assert_array_equal(out, [1, 0, 3, 4])
        base = out if out.base is None else out.base
        assert (base == 77).sum() == base.size - out.size
        (entry,) = log
        assert (entry.bytes, entry.why.split(", ")[-1]) == (out.nbytes, "written to out")

    def test_errors_are_those_of_a_fresh_tensor(self):
        for keywords in ({}, {"nulls": 0.5, "dtype": "int32"}):
            with pytest.raises(ad.NullError) as fresh:
                ad.to_tensor(self.COLUMN, **keywords)
            with pytest.raises(ad.NullError) as written:
                ad.to_tensor(self.COLUMN, out=filled((4,), "i4"), **keywords)
            assert (fresh.value.row, fresh.value.reason) == (written.value.row, written.value.reason)
        with pytest.raises(ad.CastError) as caught:
            ad.to_tensor(pa.chunked_array([[1], [2, 300]]), out=filled((6,), "u1")[::2])
        assert caught.value.row == 2

    @pytest.mark.parametrize("rows_apart", [False, True])
    def test_values_have_their_own_layout(self, rows_apart: bool):
        column = lists([[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [0, 1, 2]]], pa.int16(), 2, 3)
        out = filled((2, 2, 2, 3))[:, 1] if rows_apart else filled((2, 2, 3))
        ad.to_tensor(column, out=out)
        np.testing.assert_array_equal(out, column.to_pylist())
        with pytest.raises(ad.ConversionError, match="laid out"):
            ad.to_tensor(column, out=filled((2, 2, 3), order="F"))
        with pytest.raises(ad.ConversionError, match="shape"):
            ad.to_tensor(column, out=filled((2, 3, 2)))

    def test_of_a_permuted_tensor_type(self):
        storage = pa.array([list(range(6)), list(range(6, 12))], pa.list_(pa.int32(), 6))
        column = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0]), storage)
        expected = numpy_of(ad.to_tensor(column))
        out = np.zeros((2, 2, 3), "i4").transpose(0, 2, 1)
        np.testing.assert_array_equal(ad.to_tensor(column, out=out), expected)

    @pytest.mark.parametrize("rows", [10_000, 400_000])
    def test_large_ones(self, rows: int):
        values = np.random.default_rng(2).integers(0, 9, (rows, 3), "i8")
        column = pa.chunked_array(
            [pa.FixedSizeListArray.from_arrays(part.ravel(), 3) for part in np.array_split(values, 3)]
        )
        for out in (filled((rows, 3), "f4"), filled((rows, 5), "f4")[:, 1:4]):
            np.testing.assert_array_equal(ad.to_tensor(column, out=out, threads=2), values)
        flat = pa.chunked_array([values[:, 0], values[:, 1]])
        for out in (filled((2 * rows,)), filled((2 * rows, 2))[:, 1]):
            np.testing.assert_array_equal(
                ad.to_tensor(flat, out=out, threads=3), np.concatenate([values[:, 0], values[:, 1]])
            )

    def test_no_rows(self):
        out = filled((0,))
        assert ad.to_tensor(pa.array([], pa.int32()), out=out) is out
        out = filled((2, 0))
        assert ad.to_tensor(pa.array([[], []], pa.list_(pa.int32(), 0)), out=out) is out

    def test_bits_and_dictionaries(self):
        out = np.zeros(3, bool)
        np.testing.assert_array_equal(ad.to_tensor(pa.array([True, False, True]), out=out), [True, False, True])
        codes = pa.array(["b", "a", "b"]).dictionary_encode()
        with pytest.raises(ad.ConversionError):
            ad.to_tensor(codes, out=np.zeros(3, "i4"))
        np.testing.assert_array_equal(ad.to_tensor(codes, out=np.zeros(3, "i8"), dictionary="codes"), [0, 1, 0])
        prices = pa.array([1.5, 2.5, 1.5]).dictionary_encode()
        np.testing.assert_array_equal(ad.to_tensor(prices, out=np.zeros(3)), [1.5, 2.5, 1.5])

    def test_of_a_tensor(self):
        source = np.arange(6.0).reshape(3, 2)
        np.testing.assert_array_equal(ad.to_tensor(source, out=filled((3, 2), "f4")), source)
        with pytest.raises(ad.ConversionError, match="overlap"):
            ad.to_tensor(source, out=source)
