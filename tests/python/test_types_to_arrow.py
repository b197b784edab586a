"""Tensors of any dtype and layout become Arrow data, and tensors again; types on request."""

from __future__ import annotations

import arrow_dlpack as ad
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from support import NUMBERS, address
from type_cases import FLOAT8, Extension, dtype_of, read, same

COMPLEX = ["complex64", "complex128"]
SMALL = ["bfloat16", *FLOAT8]
# Views of a grid: what they are, and whether Arrow takes them as they lie.
LAYOUTS = {
    "as it is": (lambda x: x, True),
    "rows from 1": (lambda x: x[1:], True),
    "one row": (lambda x: x[:1], True),
    "no rows": (lambda x: x[:0], True),
    "no items": (lambda x: x[:, :0], True),
    "inner dimensions swapped": (lambda x: x.transpose(0, 2, 1), True),
    "rows last": (lambda x: x.transpose(2, 1, 0), False),
    "rows backwards": (lambda x: x[::-1], False),
    "items backwards": (lambda x: x[:, :, ::-1], False),
    "every other row": (lambda x: x[::2], False),
    "every other item": (lambda x: x[:, :, ::2], False),
    "one column": (lambda x: x[:, 1], False),
    "one element of each row": (lambda x: x[:, 1, 2], False),
    "one row alone": (lambda x: x[1], True),
    "a line": (lambda x: x[1, 1], True),
    "a line backwards": (lambda x: x[1, 1, ::-1], False),
    "one element": (lambda x: x[1, 1, 1], True),
    "rows repeated": (lambda x: np.broadcast_to(x[:1], x.shape), False),
    "one value": (lambda x: np.broadcast_to(x[0, 0, 0], (4, 2)), False),
    "with a dimension of 1": (lambda x: x[:, None], True),
    "flat": (lambda x: x.reshape(-1), True),
}


def grid(dtype: str) -> np.ndarray:
    numbers = np.arange(3 * 2 * 4).reshape(3, 2, 4)
    if dtype == "bool":
        return numbers % 3 == 0
    if dtype in COMPLEX:
        return (numbers * (1 - 2j)).astype(dtype)
    return numbers.astype(dtype)


@pytest.mark.parametrize("dtype", ["bool", *NUMBERS, *COMPLEX])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_there_and_back(dtype: str, layout: str):
    change, viewable = LAYOUTS[layout]
    source = change(grid(dtype))
    source = np.asarray(source)
    expected = source.reshape(1) if source.ndim == 0 else source
    asked = {"dtype": dtype} if dtype in COMPLEX else {}
    with ad.track_copies() as log:
        array = ad.to_arrow(source)
    moves = not viewable and source.size > 0
    assert log.bytes == (source.nbytes if moves else 0)
    again = ad.to_tensor(array, copy=False, **asked)
    assert (again.dtype, again.shape) == (dtype, expected.shape)
    assert same(np.from_dlpack(again), expected)
    if moves:
        with pytest.raises(ad.CopyError, match="strided elements gathered") as caught:
            ad.to_arrow(source, copy=False)
        assert "copy=None" in caught.value.remedy
    elif source.size:
        assert address(ad.to_tensor(ad.to_arrow(source, copy=False), copy=False, **asked)) == source.ctypes.data
    # Through pyarrow too, without a copy of its own.
    imported = pa.array(array)
    imported.validate(full=True)
    if not moves and source.size:
        assert address(ad.to_tensor(imported, copy=False, **asked)) == source.ctypes.data
    assert same(np.from_dlpack(ad.to_tensor(imported, copy=False, **asked)), expected)
    copied = ad.to_tensor(ad.to_arrow(source, copy=True), copy=False, **asked)
    assert same(np.from_dlpack(copied), expected)
    if source.size:
        assert address(copied) != source.ctypes.data


def small(dtype: str) -> ad.Tensor:
    """A tensor of three rows, in three dimensions, of a dtype that NumPy does not export."""
    values = np.tile(np.array([1, 2, 4, 8]), 6).astype(dtype_of(dtype))
    binary = pa.array([value.tobytes() for value in values], pa.binary(values.itemsize))
    items = pa.ExtensionArray.from_storage(Extension(binary.type, f"arrow_dlpack.{dtype}"), binary)
    rows = pa.FixedSizeListArray.from_arrays(items, 8)
    shaped = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(items.type, [2, 4]), rows)
    return ad.to_tensor(shaped, writable=True)


@pytest.mark.parametrize("dtype", SMALL)
def test_small_floats_are_fixed_size_binary_with_an_extension_name(dtype: str):
    tensor = small(dtype)
    # Only the capsule tells what it is: no Arrow field comes along.
    foreign = ad.from_dlpack(tensor)
    field = pa.field(foreign)
    assert "fixed_shape_tensor" in str(field.type) or b"ARROW:extension:name" in field.metadata
    with ad.track_copies() as log:
        array = ad.to_arrow(foreign, copy=False)
        again = ad.to_tensor(array, copy=False)
    assert len(log) == 0
    assert (again.dtype, again.shape, address(again)) == (dtype, (3, 2, 4), address(tensor))
    assert same(read(again), read(tensor))


def test_dtypes_pass_through_torch(torch):
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        source = torch.arange(6, dtype=torch.float32).reshape(3, 2).to(getattr(torch, dtype))
        for view, moves in ((source, False), (source[:, 0], True), (source.T, True), (source[1], False)):
            with ad.track_copies() as log:
                array = ad.to_arrow(view)
            assert (log.bytes > 0) == moves
            tensor = ad.to_tensor(array, copy=False)
            assert tensor.dtype == dtype
            expected = view.float().numpy()
            assert read(tensor).astype("f4").tolist() == expected.tolist()
            if not moves:
                assert address(tensor) == view.data_ptr()
        field = pa.field(ad.to_arrow(source[1]))
        assert field.type == pa.binary(source.element_size())
        assert field.metadata == {b"ARROW:extension:name": f"arrow_dlpack.{dtype}".encode()}


class TestRequests:
    @pytest.mark.parametrize(
        ("values", "data_type", "expected"),
        [
            ([1.5, 2.0], pa.float32(), [1.5, 2.0]),
            ([1.0, 2.0], pa.int8(), [1, 2]),
            ([1, 2, 1], pa.dictionary(pa.int8(), pa.int64()), [1, 2, 1]),
            ([1, 2, 1], pa.dictionary(pa.uint16(), pa.int32()), [1, 2, 1]),
            ([True, False], pa.bool_(), [True, False]),
            ([True, False], pa.int8(), [1, 0]),
            ([True, False], pa.uint8(), [1, 0]),
            ([0, 86400], pa.timestamp("s"), None),
            ([0, 1], pa.duration("ms"), None),
            ([[1, 2], [3, 4]], pa.list_(pa.int64(), 2), [[1, 2], [3, 4]]),
            ([[1, 2], [3, 4]], pa.list_(pa.int32(), 2), [[1, 2], [3, 4]]),
            ([[1, 2], [3, 4]], pa.list_(pa.int64()), [[1, 2], [3, 4]]),
            ([[True, False]], pa.list_(pa.bool_(), 2), [[True, False]]),
            ([1 + 2j], pa.list_(pa.float64(), 2), [[1, 2]]),
            ([1 + 2j], pa.list_(pa.float32(), 2), [[1, 2]]),
        ],
        ids=str,
    )
    def test_that_are_met(self, values, data_type: pa.DataType, expected):
        source = np.array(values)
        array = pa.array(ad.to_arrow(source, type=data_type))
        assert array.type == data_type
        array.validate(full=True)
        if expected is not None:
            assert array.to_pylist() == expected
        assert pa.array(ad.from_dlpack(source), data_type).equals(array)

    @pytest.mark.parametrize(
        ("values", "data_type", "row"),
        [
            ([1, 300], pa.int8(), None),
            ([1, 2.5], pa.int8(), None),
            ([0.5, 0.1], pa.float32(), 1),
            ([1, 2**53 + 1], pa.float64(), 1),
            ([0, 2], pa.bool_(), 1),
            ([[1, 2], [3, 4]], pa.list_(pa.int64(), 4), None),
            ([[1, 2], [3, 4]], pa.int64(), None),
            ([1 + 2j], pa.float64(), None),
            ([1 + 2j], pa.list_(pa.int8(), 3), None),
            (list(range(200)), pa.dictionary(pa.int8(), pa.int64()), None),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_that_cannot_be_met_exactly_are_errors(self, values, data_type: pa.DataType, row: int | None):
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_arrow(np.array(values), type=pa.field("x", data_type))
        assert caught.value.column == "x"
        assert caught.value.reason
        if row is not None:
            assert caught.value.row == row

    def test_bits_are_packed_where_booleans_are_asked_for(self):
        source = np.array([True, False, True] * 3)
        with ad.track_copies() as log:
            array = pa.array(ad.to_arrow(source, type=pa.bool_()))
        assert array.type == pa.bool_()
        assert array.to_pylist() == source.tolist()
        assert log.bytes > 0
        with pytest.raises(ad.CopyError, match="Boolean"):
            ad.to_arrow(source, type=pa.bool_(), copy=False)
        assert pa.array(ad.to_arrow(source, type=pa.bool8(), copy=False)).type == pa.bool8()
        # A tensor of bits returns to bits.
        bits = pa.array([True, None, False, True])[1:]
        tensor = ad.to_tensor(bits, nulls=True)
        with ad.track_copies() as log:
            assert pa.array(tensor).to_pylist() == [True, False, True]
        assert log.bytes == 1
        with pytest.raises(ad.CopyError, match="packed"):
            ad.to_arrow(tensor, copy=False)

    @pytest.mark.parametrize("valid", [None, [True, False, True]], ids=["no nulls", "nulls"])
    def test_bfloat16_widens(self, valid):
        values = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
        binary = pa.array([value.tobytes() for value in values], pa.binary(2))
        tensor = ad.to_tensor(pa.ExtensionArray.from_storage(Extension(binary.type, "arrow_dlpack.bfloat16"), binary))
        validity = None if valid is None else np.array(valid)
        expected = [value if valid is None or valid[row] else None for row, value in enumerate([1, 2.5, -3])]
        for data_type in (pa.float32(), pa.float64(), pa.float16()):
            array = pa.array(ad.to_arrow(tensor, type=data_type, validity=validity))
            assert array.type == data_type
            assert array.to_pylist() == expected
            assert pa.array(tensor, data_type).to_pylist() == [1, 2.5, -3]
        with pytest.raises(ad.CastError):
            ad.to_arrow(tensor, type=pa.int8())
        with pytest.raises(ad.CopyError):
            ad.to_arrow(tensor, type=pa.float32(), copy=False)
        assert pa.array(ad.to_arrow(tensor, type=pa.binary(2), copy=False)).equals(binary)

    @pytest.mark.parametrize("dtype", FLOAT8)
    def test_float8_has_no_casts(self, dtype: str):
        tensor = small(dtype)
        with pytest.raises(ad.ConversionError):
            ad.to_arrow(tensor, type=pa.list_(pa.float32(), 8))
        with pytest.raises(ValueError, match="FixedSize"):
            pa.array(tensor, pa.list_(pa.float32(), 8))
        with pytest.raises(ad.CastError) as caught:
            ad.to_arrow(tensor, type=pa.float32())
        assert caught.value.remedy


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("writable", [False, True])
def test_boolean_and_bool8_lists_return(copy: bool | None, writable: bool):
    bits = pa.array([[True, False], [False, False], [True, True]], pa.list_(pa.bool_(), 2))[1:]
    tensor = ad.to_tensor(bits, copy=copy, writable=writable)
    assert pa.array(tensor).equals(bits)
    bool8 = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 1, 0], pa.int8()))
    tensor = ad.to_tensor(bool8[1:], copy=copy, writable=writable)
    assert pa.array(tensor).equals(bool8[1:])


def test_dunders_agree_with_each_other():
    for tensor in (
        ad.from_dlpack(grid("complex64")),
        ad.to_tensor(pa.array(["a", "b"]).dictionary_encode()),
        ad.to_tensor(pa.array([b"ab"], pa.binary(2))),
        ad.to_tensor(pa.array([1, 2], pa.decimal32(5, 0))),
        small("bfloat16"),
    ):
        field = pa.field(tensor)
        array = pa.array(tensor)
        assert field.type == array.type
        batch = pa.record_batch({"x": array})
        assert batch.column("x").equals(array)
        through_device = pa.array(ad.from_arrow(tensor))
        assert through_device.equals(array)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("wrap", [lambda x: x, ad.from_dlpack], ids=["numpy", "ours"])
def test_complex_tensors_stay_complex_unless_another_dtype_is_asked_for(dtype: str, wrap):
    source = grid(dtype)
    for part in (source, source[:, 0, 0], source[::2], source[:0]):
        row = ad.explain(wrap(part))[0]
        with ad.track_copies() as log:
            tensor = ad.to_tensor(wrap(part))
        assert (tensor.dtype, tensor.shape) == (dtype, part.shape)
        assert (row.dtype, row.shape, row.bytes) == (dtype, part.shape, log.bytes)
        assert same(np.from_dlpack(tensor), np.ascontiguousarray(part))
    assert ad.to_tensor(wrap(source), nulls=0).dtype == dtype
    assert ad.to_tensor(wrap(source), copy=True).copied
    other = COMPLEX[1 - COMPLEX.index(dtype)]
    assert ad.to_tensor(wrap(source), dtype=other).dtype == other
    parts = ad.to_tensor(wrap(source), dtype="float64")
    assert parts.shape == (*source.shape, 2)
    assert np.from_dlpack(parts)[..., 1].tolist() == source.imag.tolist()
    with pytest.raises(ad.CopyError, match="gathered"):
        ad.to_tensor(wrap(source[::2]), copy=False)


@pytest.mark.parametrize(("unit", "in_a_day"), [("s", 86_400), ("ms", 86_400_000), ("ns", 86_400 * 10**9)])
def test_days_in_a_unit_return_as_numbers(unit: str, in_a_day: int):
    """In seconds, too, to which days are decoded first."""
    days = pa.array([0, 1, 1], pa.date32())
    codes = days.dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), days[:2])
    made = [ad.to_tensor(column, unit=unit) for column in (days, codes, runs, pa.chunked_array([days, days]))]
    made += [ad.to_tensors(pa.table({"t": days}), unit=unit)["t"]]
    made += [next(iter(ad.Loader(pa.table({"t": days}), batch_size=3, columns={"t": "t"}, unit=unit)))["t"]]
    for tensor in made:
        assert pa.array(ad.to_arrow(tensor)).type == pa.int64()
    for lists in (pa.array([[0, 1]], pa.list_(pa.date32())), pa.array([[0, 1]], pa.list_(pa.date32(), 2))):
        rows = ad.to_tensor(lists, unit=unit, length=2)
        assert pa.array(ad.to_arrow(rows, type=pa.list_(pa.int64()))).to_pylist() == [[0, in_a_day]]
        assert pa.array(ad.to_arrow(rows)).type == pa.fixed_shape_tensor(pa.int64(), [2])
    ragged = ad.to_ragged(pa.array([[0], [1, 1]], pa.list_(pa.date32())), unit=unit)
    assert pa.array(ragged).type == pa.list_(pa.int64())
    # Without a unit they return as days.
    for column in (days, codes):
        back = pa.array(ad.to_arrow(ad.to_tensor(column, dictionary="values")))
        assert back == days


@pytest.mark.parametrize("values", [np.zeros((3, 2), "uint8"), np.zeros(3, "int16"), np.zeros(3, "int8")])
def test_rows_of_other_values_than_bytes_are_not_text(values):
    ragged = ad.Ragged(values, np.array([0, 2, 3], "int32"))
    with pytest.raises(ad.CastError, match="no cast exists"):
        ad.to_arrow(ragged, type=pa.binary())


@pytest.mark.parametrize(
    "field",
    [
        pa.field("item", pa.int32(), nullable=False),
        pa.field("element", pa.int32()),
        pa.field("element", pa.string()),
        pa.field("element", pa.list_(pa.field("deep", pa.int32()))),
        pa.field("element", pa.list_(pa.field("deep", pa.int32(), nullable=False)), nullable=False),
    ],
    ids=str,
)
@pytest.mark.parametrize("lists", [pa.list_, pa.large_list])
def test_items_keep_their_names_and_whether_they_may_be_null(lists, field):
    value = "a" if field.type == pa.string() else 1 if field.type == pa.int32() else [1]
    rows = pa.array([[value, value], [value]], lists(field))
    returned = pa.array(ad.to_ragged(rows))
    assert returned.equals(rows)
    assert returned.type.value_field.equals(field)
