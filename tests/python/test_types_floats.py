"""Fixed-size binary, bfloat16 and float8 by extension name, complex numbers from pairs, and tensors of them."""

from __future__ import annotations

import arrow_dlpack as ad
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from support import address
from type_cases import FLOAT8, Extension, converted, dtype_of, read, same

SMALL = ["bfloat16", *FLOAT8]


def column(values: np.ndarray, name: str | None = None, valid: np.ndarray | None = None) -> pa.Array:
    """A column of an extension type over fixed-size binary."""
    storage = pa.array(
        [value.tobytes() for value in values], pa.binary(values.itemsize), mask=None if valid is None else ~valid
    )
    return pa.ExtensionArray.from_storage(Extension(storage.type, name or f"arrow_dlpack.{values.dtype.name}"), storage)


def fixed_shape(items: pa.Array, shape: list[int], permutation: list[int] | None = None) -> pa.Array:
    size = int(np.prod(shape))
    field = pa.field("item", items.type)
    storage = pa.FixedSizeListArray.from_arrays(items, type=pa.list_(field, size))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(items.type, shape, permutation=permutation), storage)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_encoding_passes_unchanged(dtype: str):
    bits = np.arange(256, dtype="u1")
    tensor = converted(column(bits.view(dtype_of(dtype))), copy=False)
    assert (tensor.dtype, tensor.shape) == (dtype, (256,))
    assert (read(tensor).view("u1") == bits).all()
    copied = converted(column(bits.view(dtype_of(dtype))), copy=True)
    assert (read(copied).view("u1") == bits).all()
    assert pa.array(tensor).to_pylist() == [bytes([bit]) for bit in bits]


def test_every_bfloat16_passes_unchanged_and_widens():
    bits = np.arange(65536, dtype="u2")
    source = column(bits.view(ml_dtypes.bfloat16))
    assert (read(converted(source, copy=False)).view("u2") == bits).all()
    wide = read(converted(source, dtype="float32"))
    finite = np.isfinite(wide)
    assert same(wide[finite], bits.view(ml_dtypes.bfloat16).astype("f4")[finite])
    assert (np.isnan(wide) == np.isnan(bits.view(ml_dtypes.bfloat16))).all()


@pytest.mark.parametrize("dtype", SMALL)
def test_nulls_and_fills(dtype: str):
    values = np.array([1, 2, 4, 1]).astype(dtype_of(dtype))
    valid = np.array([True, False, True, False])
    source = column(values, valid=valid)
    filled = converted(source, nulls="nan")
    assert (np.isnan(read(filled)) == ~valid).all()
    assert (read(filled)[valid] == values[valid]).all()
    assert (read(converted(source, nulls=2)) == np.where(valid, values, dtype_of(dtype).type(2))).all()
    for wrong in (1e300, -1e300):
        with pytest.raises(ad.NullError, match=dtype):
            converted(source, nulls=wrong)
    assert np.from_dlpack(ad.validity(source)).tolist() == valid.tolist()
    assert np.from_dlpack(ad.validity(source.storage)).shape == (4, values.itemsize)


@pytest.mark.parametrize("dtype", SMALL)
def test_casts(dtype: str):
    source = column(np.array([1, 2]).astype(dtype_of(dtype)))
    batch = pa.record_batch({"x": source})
    assert not converted(source, dtype=dtype, copy=False).copied
    if dtype == "bfloat16":
        assert np.from_dlpack(converted(source, dtype="int16")).tolist() == [1, 2]
        assert np.from_dlpack(converted(source, dtype="float64")).tolist() == [1, 2]
        with pytest.raises(ad.CastError) as caught:
            ad.to_tensors(pa.record_batch({"x": column(np.array([1, 1.5], ml_dtypes.bfloat16))}), dtype="int8")
        assert (caught.value.column, caught.value.row) == ("x", 1)
        return
    with pytest.raises(ad.UnsupportedTypeError, match="no cast") as caught:
        ad.to_tensors(batch, dtype="float32")
    assert (caught.value.column, bool(caught.value.remedy)) == ("x", True)
    with pytest.raises(ad.UnsupportedTypeError, match="no cast"):
        ad.to_tensor(pa.array([1.0]), dtype=dtype)


@pytest.mark.parametrize("dtype", [*SMALL, "bool"])
@pytest.mark.parametrize("permutation", [None, [1, 0]], ids=["row-major", "permuted"])
def test_fixed_shape_tensors(dtype: str, permutation: list[int] | None):
    values = np.array([1, 2, 4] * 8).astype(dtype_of(dtype)) if dtype != "bool" else np.arange(24) % 3 == 0
    if dtype == "bool":
        items = pa.ExtensionArray.from_storage(pa.bool8(), pa.array(values.astype("i1")))
    else:
        items = column(values)
    source = fixed_shape(items, [2, 3], permutation)
    expected = values.reshape(4, 2, 3)
    expected = expected if permutation is None else expected.transpose(0, 2, 1)
    for part in (slice(None), slice(1, 3)):
        tensor = converted(source[part], copy=False)
        assert (tensor.dtype, tensor.shape) == (dtype, expected[part].shape)
        assert same(read(tensor), expected[part])
        copied = converted(source[part], copy=True)
        assert (copied.strides, copied.copied) == (tensor.strides, True)
        assert same(read(copied), expected[part])
        for one in (tensor, copied):
            with ad.track_copies() as log:
                back = ad.to_arrow(one, copy=False)
            assert len(log) == 0
            again = ad.to_tensor(back, copy=False)
            assert (again.strides, again.shape, again.dtype) == (one.strides, one.shape, dtype)
            assert address(again) == address(one)


def test_fixed_shape_tensors_of_codes_and_decimals():
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0, 0, 0], pa.int8()), pa.array(["a", "b"]))
    decimals = pa.array([1, 2, 3, 4, 5, 6], pa.decimal32(5, 0))
    for items, expected in ((codes, [[0, 1], [1, 0], [0, 0]]), (decimals, [[1, 2], [3, 4], [5, 6]])):
        storage = pa.FixedSizeListArray.from_arrays(items, 6)
        field = pa.field(
            "x",
            storage.type,
            metadata={
                "ARROW:extension:name": "arrow.fixed_shape_tensor",
                "ARROW:extension:metadata": '{"shape":[3,2],"permutation":[1,0]}',
            },
        )
        batch = pa.record_batch([storage], pa.schema([field]))
        tensor = ad.to_tensors(batch, copy=False)["x"]
        assert np.from_dlpack(tensor).tolist() == [np.transpose(expected).tolist()]
        back = ad.to_arrow(tensor, copy=False)
        assert pa.field(back).type == field.type or pa.field(back).type.storage_type == field.type
        writable = ad.to_tensors(batch, writable=True)["x"]
        assert pa.array(ad.to_arrow(writable)).to_pylist() is not None


class TestBinary:
    source = pa.array([b"abc", b"\0\1\2", b"xyz", b"\xff\xfe\xfd"], pa.binary(3))

    @pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(3, 4), slice(2, 2)])
    def test_is_rows_of_bytes(self, part: slice):
        rows = self.source[part]
        tensor = converted(rows, copy=False)
        assert (tensor.dtype, tensor.shape) == ("uint8", (len(rows), 3))
        assert np.from_dlpack(tensor).tobytes() == b"".join(rows.to_pylist())
        if len(rows):
            assert address(tensor) == self.source.buffers()[1].address + 3 * rows.offset
        assert pa.array(tensor).equals(rows)

    def test_nulls_are_whole_rows(self):
        rows = pa.array([b"abc", None, b"xyz"], pa.binary(3))
        with pytest.raises(ad.NullError) as caught:
            converted(rows)
        assert caught.value.row == 1
        assert np.from_dlpack(converted(rows, nulls=255))[1].tolist() == [255] * 3
        assert np.from_dlpack(ad.validity(rows)).tolist() == [[True] * 3, [False] * 3, [True] * 3]
        with pytest.raises(ad.NullError):
            converted(rows, nulls=256)
        assert np.isnan(np.from_dlpack(converted(rows, nulls="nan", dtype="float32"))[1]).all()

    def test_width_0(self):
        rows = pa.array([b"", None, b""], pa.binary(0))
        for nulls in ("error", "keep", 0):
            tensor = converted(rows[:1], nulls=nulls, copy=False)
            assert tensor.shape == (1, 0)
            assert pa.array(tensor).equals(rows[:1])
        assert ad.validity(rows).shape == (3, 0)

    def test_in_lists_and_back(self):
        items = pa.array([b"abcd"] * 3 + [b"efgh"] * 4, pa.binary(4))[1:]
        lists = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(items, 3), 1)
        tensor = converted(lists, copy=False)
        assert tensor.shape == (2, 1, 3, 4)
        assert np.from_dlpack(tensor)[0, 0].tobytes() == b"abcdabcdefgh"
        assert pa.array(tensor).equals(lists)
        assert address(ad.to_tensor(pa.array(tensor), copy=False)) == address(tensor)

    def test_requests(self):
        tensor = ad.to_tensor(self.source)
        assert pa.array(tensor, pa.binary()).to_pylist() == self.source.to_pylist()
        with pytest.raises(ValueError, match="FixedSizeBinary"):
            pa.array(tensor, pa.binary(4))


class TestComplex:
    @pytest.mark.parametrize(("part", "dtype"), [(pa.float32(), "complex64"), (pa.float64(), "complex128")], ids=str)
    def test_pairs_of_the_same_parts_are_views(self, part: pa.DataType, dtype: str):
        flat = pa.array([9, 1, 2, 3, 4, 5, 6, 7, 8], part)[1:]
        source = pa.FixedSizeListArray.from_arrays(flat, 2)
        tensor = converted(source[1:], dtype=dtype, copy=False)
        assert (tensor.dtype, tensor.shape) == (dtype, (3,))
        assert np.from_dlpack(tensor).tolist() == [3 + 4j, 5 + 6j, 7 + 8j]
        assert address(tensor) == flat.buffers()[1].address + 3 * part.bit_width // 8
        back = pa.array(tensor)
        assert back.equals(source[1:])
        assert back.type == source.type
        # Unless complex is asked for, pairs are pairs.
        assert converted(source, copy=False).shape == (4, 2)

    def test_the_innermost_dimension_holds_the_parts(self):
        grid = np.arange(24, dtype="f4").reshape(2, 2, 3, 2)
        source = pa.array(grid.tolist(), pa.list_(pa.list_(pa.list_(pa.float32(), 2), 3), 2))
        tensor = converted(source, dtype="complex64", copy=False)
        assert same(np.from_dlpack(tensor), grid.view("c8")[..., 0])
        for permutation, axes in (([0, 1, 2], (0, 1, 2)), ([1, 0, 2], (0, 2, 1))):
            shaped = fixed_shape(pa.array(grid.reshape(-1)), [2, 3, 2], permutation)
            tensor = converted(shaped, dtype="complex64", copy=False)
            assert same(np.from_dlpack(tensor), grid.view("c8")[..., 0].transpose(axes))
            assert pa.array(tensor).equals(shaped)
            copied = converted(shaped, dtype="complex128")
            np.testing.assert_array_equal(np.from_dlpack(copied), np.from_dlpack(tensor))
        for shape, permutation in (([2, 2, 3], None), ([2, 3, 2], [0, 2, 1]), ([2, 6, 1], None)):
            batch = pa.record_batch({"z": fixed_shape(pa.array(grid.reshape(-1)), shape, permutation)})
            with pytest.raises(ad.UnsupportedTypeError, match="imaginary") as caught:
                ad.to_tensors(batch, dtype="complex64")
            assert (caught.value.column, bool(caught.value.remedy)) == ("z", True)

    @pytest.mark.parametrize(
        "source",
        [
            pa.array([1.0]),
            pa.array([[1.0, 2, 3]], pa.list_(pa.float32(), 3)),
            pa.array([[1, 2]], pa.list_(pa.int32(), 2)),
            pa.array([[True, False]], pa.list_(pa.bool_(), 2)),
            pa.array([b"ab"], pa.binary(2)),
            column(np.array([1, 2], ml_dtypes.bfloat16)),
            pa.FixedSizeListArray.from_arrays(column(np.array([1, 2], "f4").astype(dtype_of("float8_e5m2"))), 2),
        ],
        ids=lambda source: str(source.type),
    )
    def test_what_holds_no_pairs_of_floats_is_refused(self, source: pa.Array):
        with pytest.raises(ad.UnsupportedTypeError, match="imaginary part"):
            ad.to_tensor(source, dtype="complex128")

    def test_pairs_of_bfloat16_are_cast(self):
        pairs = pa.FixedSizeListArray.from_arrays(column(np.array([1, 2, 3, 4], ml_dtypes.bfloat16)), 2)
        assert np.from_dlpack(converted(pairs, dtype="complex64")).tolist() == [1 + 2j, 3 + 4j]

    @pytest.mark.parametrize("dtype", ["complex64", "complex128"])
    @pytest.mark.parametrize("offset", range(5))
    def test_a_null_part_makes_the_number_null(self, dtype: str, offset: int):
        parts = [1.0, None, 3, 4, None, None, 7, 8, 9, 10, None, 12]
        mask = [False, False, False, False, True, False]
        source = pa.FixedSizeListArray.from_arrays(pa.array(parts), 2, mask=pa.array(mask))[offset:]
        numbers = [None, 3 + 4j, None, 7 + 8j, None, None][offset:]
        with pytest.raises(ad.NullError) as caught:
            converted(source, dtype=dtype)
        assert caught.value.row == numbers.index(None)
        filled = [5 if number is None else number for number in numbers]
        assert np.from_dlpack(converted(source, dtype=dtype, nulls=5)).tolist() == filled
        nans = np.from_dlpack(converted(source, dtype=dtype, nulls="nan"))
        assert np.isnan(nans.real).tolist() == [number is None for number in numbers]
        assert (nans.imag[np.isnan(nans.real)] == 0).all()
        kept = np.from_dlpack(converted(source, dtype=dtype, nulls="keep", copy=True))
        assert kept.tolist() == [0 if number is None else number for number in numbers]

    def test_parts_that_do_not_fit(self):
        parts = pa.array([[1, 2], [3, 1e300], [None, 1e300]], pa.list_(pa.float64(), 2))
        with pytest.raises(ad.CastError) as caught:
            ad.to_tensors(pa.record_batch({"z": parts}), dtype="complex64", nulls=0)
        assert (caught.value.column, caught.value.row) == ("z", 1)
        assert "1e300" in caught.value.reason
        found = ad.to_tensor(pa.concat_arrays([parts[:1], parts[2:]]), dtype="complex64", nulls=0)
        assert np.from_dlpack(found).tolist() == [1 + 2j, 0]


class TestItems:
    """Nulls of the items of lists, and not of the lists."""

    @pytest.mark.parametrize("offset", range(4))
    def test_nulls_of_codes_decimals_and_bools_in_lists(self, offset: int):
        valid = [True, False, True, True, False, False, True, True, True, False, True]
        picks = [0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0]
        rows = [pick if ok else None for pick, ok in zip(picks, valid, strict=True)]
        letters = pa.array(["a", "b", None])
        behind = pa.DictionaryArray.from_arrays(pa.array([2 if row is None else row for row in rows]), letters)
        for items, options in (
            (pa.DictionaryArray.from_arrays(pa.array(rows, pa.int8()), letters), {}),
            (behind, {}),
            (pa.array(rows, pa.decimal32(5, 0)), {}),
            (pa.array(rows, pa.decimal256(70, 0)), {"dtype": "int8"}),
            (pa.ExtensionArray.from_storage(pa.bool8(), pa.array(rows, pa.int8())), {}),
            (pa.array([None if row is None else bytes([row]) for row in rows], pa.binary(1)), {}),
            (pa.DictionaryArray.from_arrays(pa.array(rows, pa.int8()), pa.array([0, 1])), {"dictionary": "values"}),
        ):
            lists = pa.FixedSizeListArray.from_arrays(items[1:], 2)[offset:]
            start = 1 + 2 * offset
            with pytest.raises(ad.NullError) as caught:
                converted(lists, **options)
            assert caught.value.row == valid[start:].index(False) // 2
            filled = [1 if row is None else row for row in rows][start:]
            assert np.from_dlpack(converted(lists, nulls=1, **options)).reshape(-1).tolist() == filled
            assert np.from_dlpack(ad.validity(lists)).reshape(-1).tolist() == valid[start:]
