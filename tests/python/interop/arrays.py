"""What is asked of every array library: a class of tests, which each library's file subclasses.

A library says how its arrays are made, read and located, and where it does anything but share memory. Whatever it says
is proven: a view by equal addresses, a copy by different ones and equal values, a refusal by the error.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from helpers import address
from matrix import CASES, DIRECTIONS

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = [*INTEGERS, "float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
# By the codes of dlpack.h.
FLOAT8 = {
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
BFLOAT16 = 4
LAYOUTS = ["rows", "columns", "transposed", "broadcast"]


@dataclass(frozen=True)
class Expect:
    """What becomes of one conversion."""

    outcome: str
    note: str = ""
    # What a refusal raises.
    error: type[BaseException] | tuple[type[BaseException], ...] = ()
    match: str = ""
    # What the numbers become, if they do not stay what they are.
    dtype: str = ""


VIEW = Expect("view")
LEGACY = Expect(
    "copy",
    "asks for unversioned capsules, which cannot say read-only: memory of Arrow is copied,"
    ' unless `legacy="view"` vouches that nobody writes',
)

# Rows of which the second one is empty, by the case and the width of their offsets.
RAGGED = {
    "lists int32": pa.array([[1], [], [2, 3]], pa.list_(pa.float32())),
    "lists int64": pa.array([[1], [], [2, 3]], pa.large_list(pa.float32())),
    "strings int32": pa.array(["a", "", "bc"]),
    "strings int64": pa.array(["a", "", "bc"], pa.large_string()),
}
BY_RAGGED = "values and offsets, by `to_ragged`"
FROM_RAGGED = "values and offsets, by `Ragged`"


def aligned(values: Any) -> np.ndarray:
    """A NumPy array of these values in memory that is aligned to 64 bytes."""
    return np.from_dlpack(ad.from_dlpack(np.asarray(values), copy=True))


def narrow(code: int) -> ad.Tensor:
    """Four numbers of a type that NumPy does not have: 0, 1, 2, 3 as bits, in aligned memory of our own."""
    bits = 16 if code == BFLOAT16 else 8
    data = np.arange(4, dtype=f"uint{bits}").tobytes()
    _, source = producers.dlpack(data=data, dtype=(code, bits, 1), shape=(4,), strides=(1,))
    return ad.from_dlpack(source, copy=True)


class Battery:
    """The tests. `expected` is looked up by "to numbers float64", then "to numbers", then "to arrow" or "to tensor"."""

    expected: ClassVar[dict[str, Expect]] = {}
    # What `xp=` is given.
    xp: Any
    # Whether the array type carries __dlpack_c_exchange_api__.
    exchange: ClassVar[bool] = False
    # What it copies less aligned memory for.
    alignment: ClassVar[int] = 1
    # The library's names of its arrays' dtypes, where they are others.
    dtypes: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls) -> None:
        """Fails on an expectation of something that no test asks."""
        variants = {*NUMBERS, *COMPLEX, *FLOAT8, *LAYOUTS, "bits", "bool8", "keep"}
        for key in cls.expected:
            direction, _, rest = key.partition(" ")
            asked = [case for case in (*CASES, "arrow", "tensor") if rest == case or rest.startswith(f"{case} ")]
            variant = rest.removeprefix(asked[0]).strip() if asked else "?"
            if direction not in DIRECTIONS or variant not in {"", *variants}:
                raise ValueError(f"{cls.__name__} expects {key!r}, which nothing asks")

    # --- What a library says. ---

    @classmethod
    def take(cls, tensor: Any) -> Any:
        """The library's array of a DLPack tensor."""
        return cls.xp.from_dlpack(tensor)

    @classmethod
    def offer(cls, theirs: Any) -> Any:
        """What speaks DLPack for an array of the library."""
        return theirs

    @classmethod
    def make(cls, values: np.ndarray) -> Any:
        """An array of the library, of these values and this dtype."""
        raise NotImplementedError

    @classmethod
    def make_narrow(cls, dtype: str) -> Any:
        """An array of the library, of four numbers of a dtype that NumPy has not."""
        raise NotImplementedError

    @classmethod
    def layout(cls, theirs: Any, name: str) -> Any:
        """A view of a (4, 6) array in one of the layouts, by the library's own means."""
        return layout(theirs, name)

    @classmethod
    def address(cls, theirs: Any) -> int:
        return address(theirs)

    @classmethod
    def values(cls, theirs: Any) -> np.ndarray:
        return np.asarray(theirs)

    @classmethod
    def dtype(cls, theirs: Any) -> str:
        return str(theirs.dtype).rpartition(".")[2]

    # --- How it is proven. ---

    @classmethod
    def expect(cls, direction: str, case: str, variant: str = "", kind: str = "tensor") -> Expect:
        for key in (f"{direction} {case} {variant}", f"{direction} {case}", f"{direction} {kind}"):
            if key in cls.expected:
                return cls.expected[key]
        return VIEW

    def to(self, cell: Any, case: str, tensor: ad.Tensor, expected: Expect, values: Any = None) -> Any:
        """Hands a tensor to the library, and proves what is expected of that."""
        if expected.outcome in ("refused", "wrong"):
            with pytest.raises(expected.error, match=expected.match):
                self.take(tensor)
            cell("to", case, expected.outcome, expected.note)
            return None
        theirs = self.take(tensor)
        self.same(theirs, address(tensor), expected, tensor.size)
        assert tuple(theirs.shape) == tensor.shape
        wanted = expected.dtype or tensor.dtype
        assert self.dtype(theirs) == self.dtypes.get(wanted, wanted)
        if values is not None:
            np.testing.assert_array_equal(self.values(theirs), values)
        cell("to", case, expected.outcome, expected.note)
        return theirs

    def same(self, theirs: Any, ours: int, expected: Expect, size: int = 1) -> None:
        # No elements are nowhere.
        if size:
            assert (self.address(theirs) == ours) == (expected.outcome == "view")

    def back(self, cell: Any, case: str, theirs: Any, expected: Expect, values: Any = None, dtype: str = "") -> Any:
        """Takes an array of the library, and proves what is expected of that."""
        if expected.outcome in ("refused", "wrong"):
            with pytest.raises(expected.error, match=expected.match):
                ad.from_dlpack(self.offer(theirs))
            cell("from", case, expected.outcome, expected.note)
            return None
        assert expected.outcome == "view"
        tensor = ad.from_dlpack(self.offer(theirs), copy=False)
        self.same(theirs, address(tensor), expected, tensor.size)
        assert not tensor.copied
        assert tensor.shape == tuple(theirs.shape)
        if dtype:
            assert tensor.dtype == (expected.dtype or dtype)
        if values is not None:
            np.testing.assert_array_equal(np.from_dlpack(tensor), values)
        cell("from", case, expected.outcome, expected.note)
        return tensor

    # --- Numbers. ---

    @pytest.mark.parametrize("dtype", NUMBERS)
    def test_numbers_to(self, cell, dtype):
        column = pa.array([0, 1, 2], pa.from_numpy_dtype(dtype))
        expected = self.expect("to", "numbers", dtype, "arrow")
        self.to(cell, "numbers", ad.to_tensor(column, copy=False), expected, [0, 1, 2])

    @pytest.mark.parametrize("dtype", NUMBERS)
    def test_numbers_from(self, cell, dtype):
        expected = self.expect("from", "numbers", dtype)
        if expected.outcome == "absent":
            with pytest.raises(expected.error):
                self.make(np.arange(3).astype(dtype))
            cell("from", "numbers", "absent", expected.note)
            return
        theirs = self.make(np.arange(3).astype(dtype))
        tensor = self.back(cell, "numbers", theirs, expected, [0, 1, 2], dtype)
        if tensor is None:
            return
        column = pa.array(ad.to_arrow(self.offer(theirs), copy=False))
        assert column.type == pa.from_numpy_dtype(tensor.dtype)
        assert column.buffers()[1].address == self.address(theirs)
        assert column.to_pylist() == [0, 1, 2]

    @pytest.mark.parametrize("dtype", COMPLEX)
    def test_complex_to(self, cell, dtype):
        values = np.array([1 + 2j, 3], dtype)
        storage = pa.float32() if dtype == "complex64" else pa.float64()
        column = pa.array([[1, 2], [3, 0]], pa.list_(storage, 2))
        tensor = ad.to_tensor(column, dtype=dtype, copy=False)
        self.to(cell, "complex", tensor, self.expect("to", "complex", dtype, "arrow"), values)

    @pytest.mark.parametrize("dtype", COMPLEX)
    def test_complex_from(self, cell, dtype):
        values = np.array([1 + 2j, 3], dtype)
        expected = self.expect("from", "complex", dtype)
        if expected.outcome == "absent":
            with pytest.raises(expected.error):
                self.make(values)
            cell("from", "complex", "absent", expected.note)
            return
        theirs = self.make(values)
        self.back(cell, "complex", theirs, expected, values, dtype)
        column = pa.array(ad.to_arrow(self.offer(theirs), copy=False))
        assert column.to_pylist() == [[1, 2], [3, 0]]
        assert column.flatten().buffers()[1].address == self.address(theirs)

    def test_bool_to(self, cell):
        values = [True, False, True]
        expected = self.expect("to", "bool", "bits")
        bits = ad.to_tensor(pa.array(values))
        assert bits.copied
        theirs = self.to(cell, "bool", bits, expected, values)
        if theirs is not None:
            cell("to", "bool", "copy", "a Boolean column is bits, which are unpacked")
        self.to_bool8(cell, values)

    def to_bool8(self, cell, values):
        column = pa.ExtensionArray.from_storage(pa.bool8(), pa.array(values).cast(pa.int8()))
        tensor = ad.to_tensor(column, copy=False)
        expected = self.expect("to", "bool", "bool8", "arrow")
        self.to(cell, "bool", tensor, expected, values)

    def test_bool_from(self, cell):
        values = [True, False, True]
        expected = self.expect("from", "bool")
        theirs = self.make(np.array(values))
        tensor = self.back(cell, "bool", theirs, expected, values, "bool")
        if tensor is None:
            return
        column = pa.array(ad.to_arrow(self.offer(theirs), copy=False))
        assert column.type == pa.bool8()
        assert column.storage.buffers()[1].address == self.address(theirs)
        bits = pa.array(ad.to_arrow(self.offer(theirs), type=pa.bool_()))
        assert bits.to_pylist() == values

    @pytest.mark.parametrize("dtype", ["bfloat16", *FLOAT8])
    def test_narrow_floats_to(self, cell, dtype):
        bits = 16 if dtype == "bfloat16" else 8
        case = dtype if bits == 16 else "float8"
        column = ad.to_arrow(narrow(FLOAT8.get(dtype, BFLOAT16)), copy=False)
        tensor = ad.to_tensor(column, copy=False)
        assert tensor.dtype == dtype
        theirs = self.to(cell, case, tensor, self.expect("to", case, dtype, "arrow"))
        if theirs is not None:
            raw = ctypes.string_at(self.address(theirs), tensor.nbytes)
            assert raw == np.arange(4, dtype=f"uint{bits}").tobytes()

    @pytest.mark.parametrize("dtype", ["bfloat16", *FLOAT8])
    def test_narrow_floats_from(self, cell, dtype):
        case = dtype if dtype == "bfloat16" else "float8"
        expected = self.expect("from", case, dtype)
        if expected.outcome == "absent":
            with pytest.raises(expected.error):
                self.make_narrow(dtype)
            cell("from", case, "absent", expected.note)
            return
        theirs = self.make_narrow(dtype)
        if self.back(cell, case, theirs, expected, dtype=dtype) is None:
            return
        # By way of Arrow, which has the type by an extension name.
        column = ad.to_arrow(self.offer(theirs), copy=False)
        tensor = ad.to_tensor(column, copy=False)
        assert tensor.dtype == dtype
        assert address(tensor) == self.address(theirs)

    # --- Columns of Arrow. ---

    def test_nulls(self, cell):
        column = pa.array([1, None, 3], pa.float32())
        with pytest.raises(ad.NullError, match="null"):
            ad.to_tensor(column, xp=self.xp)
        cell("to", "nulls", "refused", "unless `nulls=` says what becomes of them")
        theirs = ad.to_tensor(column, nulls="nan", xp=self.xp)
        np.testing.assert_array_equal(self.values(theirs), [1, np.nan, 3])
        assert self.address(theirs) != column.buffers()[1].address
        cell("to", "nulls", "copy", '`nulls="nan"` or a value to fill with')
        expected = self.expect("to", "nulls", "keep", "arrow")
        kept = ad.to_tensor(column, nulls="keep", xp=self.xp)
        self.same(kept, column.buffers()[1].address, expected)
        assert self.values(kept)[[0, 2]].tolist() == [1, 3]
        cell("to", "nulls", expected.outcome, expected.note)

    def test_validity(self, cell):
        column = pa.array([1, None, 3], pa.float32())
        valid = ad.validity(column, xp=self.xp)
        assert self.values(valid).tolist() == [True, False, True]
        if "from bool" in self.expected:
            return
        theirs = self.make(np.array([1, 2, 3], "float32"))
        back = pa.array(ad.to_arrow(self.offer(theirs), validity=self.offer(self.make(np.array([True, False, True])))))
        assert back.to_pylist() == [1, None, 3]
        assert back.buffers()[1].address == self.address(theirs)
        cell("from", "nulls", "view", "`to_arrow(validity=)` packs a bool array of the library; the values are a view")

    @pytest.mark.parametrize(
        ("data_type", "dtype"),
        [
            (pa.date32(), "int32"),
            (pa.time32("s"), "int32"),
            (pa.timestamp("us", "UTC"), "int64"),
            (pa.duration("ms"), "int64"),
        ],
        ids=str,
    )
    def test_temporal(self, cell, data_type, dtype):
        column = pa.array([0, 1, 2], dtype).cast(data_type)
        expected = self.expect("to", "temporal", dtype, "arrow")
        self.to(cell, "temporal", ad.to_tensor(column, copy=False), expected, [0, 1, 2])

    def test_temporal_from(self, cell):
        theirs = self.make(np.arange(3, dtype="int32"))
        for data_type in (pa.date32(), pa.time32("s")):
            column = pa.array(ad.to_arrow(self.offer(theirs), type=data_type, copy=False))
            assert column.type == data_type
            assert column.cast(pa.int32()).to_pylist() == [0, 1, 2]
            assert column.buffers()[1].address == self.address(theirs)
        cell("from", "temporal", "view", "`to_arrow(type=)`")

    def test_decimal(self, cell):
        column = pa.array([Decimal(1), Decimal(2)], pa.decimal32(9, 0))
        expected = self.expect("to", "decimal", "", "arrow")
        self.to(cell, "decimal", ad.to_tensor(column, copy=False), expected, [1, 2])
        column = pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal128(9, 1))
        with pytest.raises(ad.UnsupportedTypeError, match="dtype="):
            ad.to_tensor(column, xp=self.xp)
        theirs = ad.to_tensor(column, dtype="float32", xp=self.xp)
        assert self.values(theirs).tolist() == [1.5, 2.5]
        cell("to", "decimal", "copy", "of 128 bits, or with a scale: the values are cast to a `dtype=`")

    def test_decimal_from(self, cell):
        theirs = self.make(np.arange(3, dtype="int32"))
        column = pa.array(ad.to_arrow(self.offer(theirs), type=pa.decimal128(9, 0)))
        assert column.to_pylist() == [0, 1, 2]
        cell("from", "decimal", "copy", "`to_arrow(type=)` is a checked cast")

    def test_dictionary(self, cell):
        column = pa.array([1.5, 2.5, 1.5], pa.float32()).dictionary_encode()
        tensor = ad.to_tensor(column, copy=False)
        assert address(tensor) == column.indices.buffers()[1].address
        self.to(cell, "dictionary", tensor, self.expect("to", "dictionary", "", "arrow"), [0, 1, 0])
        theirs = self.decoded(column, dictionary="values")
        assert self.values(theirs).tolist() == [1.5, 2.5, 1.5]
        cell("to", "dictionary", "copy", '`dictionary="values"`; the codes are what is there')

    def test_run_ends(self):
        theirs = self.decoded(pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([1.5, 2.5], pa.float32())))
        assert self.values(theirs).tolist() == [1.5, 1.5, 2.5]

    def decoded(self, column: pa.Array, **keywords: Any) -> Any:
        """What is decoded may be written to, so that nobody has to copy it once more."""
        with ad.track_copies() as log:
            tensor = ad.to_tensor(column, **keywords)
            theirs = self.take(tensor)
        assert tensor.writable
        assert len(log) == 1
        if address(tensor) % self.alignment == 0:
            self.same(theirs, address(tensor), self.expected.get("to tensor", VIEW))
        return theirs

    @pytest.mark.parametrize("name", RAGGED)
    def test_lists_and_strings_to(self, cell, name):
        case, column = name.split()[0], RAGGED[name]
        with pytest.raises(ad.UnsupportedTypeError, match="to_ragged"):
            ad.to_tensor(column, xp=self.xp)
        ours = ad.to_ragged(column, copy=False)
        theirs = ad.to_ragged(column, xp=self.xp)
        expected = self.expect("to", case, "", "arrow")
        self.same(theirs.values, address(ours.values), expected)
        assert self.values(theirs.values).tolist() == np.from_dlpack(ours.values).tolist()
        cell("to", case, expected.outcome, BY_RAGGED)
        if expected is LEGACY:
            vouched = self.take(ad.to_tensor(ours.values, legacy="view"))
            assert self.address(vouched) == address(ours.values)
        # Offsets of large forms are int64.
        expected = self.expect("to", "numbers", ours.offsets.dtype, "arrow")
        self.same(theirs.offsets, address(ours.offsets), expected)
        assert self.values(theirs.offsets).tolist() == [0, 1, 1, 3]
        wanted = expected.dtype or ours.offsets.dtype
        assert self.dtype(theirs.offsets) == self.dtypes.get(wanted, wanted)
        cell("to", case, expected.outcome, expected.note)

    @pytest.mark.parametrize("offsets", ["int32", "int64"])
    def test_lists_from(self, cell, offsets):
        expected = self.expect("from", "numbers", offsets)
        values, starts = self.make(np.arange(3, dtype="float32")), self.make(np.array([0, 1, 1, 3], offsets))
        column = pa.array(ad.to_arrow(ad.Ragged(self.offer(values), self.offer(starts)), copy=False))
        large = (expected.dtype or offsets) == "int64"
        assert column.type == (pa.large_list if large else pa.list_)(pa.float32())
        assert column.to_pylist() == [[0], [], [1, 2]]
        assert column.buffers()[1].address == self.address(starts)
        assert column.values.buffers()[1].address == self.address(values)
        cell("from", "lists", "view", FROM_RAGGED)
        cell("from", "lists", "view", expected.note)

    def test_strings_from(self, cell):
        values, starts = self.make(np.frombuffer(b"abc", "uint8").copy()), self.make(np.array([0, 1, 1, 3], "int32"))
        ragged = ad.Ragged(self.offer(values), self.offer(starts))
        column = pa.array(ad.to_arrow(ragged, type=pa.string(), copy=False))
        assert column.to_pylist() == ["a", "", "bc"]
        assert [one.address for one in column.buffers()[1:]] == [self.address(starts), self.address(values)]
        cell("from", "strings", "view", f"{FROM_RAGGED} and `to_arrow(type=)`")

    def test_fixed_size_lists(self, cell):
        column = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2))
        expected = self.expect("to", "fixed-size lists", "", "arrow")
        self.to(cell, "fixed-size lists", ad.to_tensor(column, copy=False), expected, [[1, 2], [3, 4], [5, 6]])
        theirs = self.make(np.arange(6, dtype="float32").reshape(3, 2))
        back = pa.array(ad.to_arrow(self.offer(theirs), copy=False))
        assert back.to_numpy_ndarray().tolist() == [[0, 1], [2, 3], [4, 5]]
        assert back.storage.flatten().buffers()[1].address == self.address(theirs)
        cell("from", "fixed-size lists", "view")

    def test_batch(self, cell):
        batch = pa.record_batch({"x": pa.array([1, 2], pa.float32()), "n": pa.array([3, 4], pa.int32())})
        expected = self.expect("to", "batch", "", "arrow")
        columns = ad.to_tensors(batch, xp=self.xp)
        assert list(columns) == ["x", "n"]
        for name, theirs in columns.items():
            self.same(theirs, batch[name].buffers()[1].address, expected)
            assert self.values(theirs).tolist() == batch[name].to_pylist()
        cell("to", "batch", expected.outcome, expected.note)

    def test_stream(self, cell):
        chunks = pa.chunked_array([pa.array([1, 2], pa.int32()), pa.array([3], pa.int32())])
        theirs = ad.to_tensor(chunks, xp=self.xp)
        assert self.values(theirs).tolist() == [1, 2, 3]
        cell("to", "stream", "copy", "several chunks become one tensor")
        with pytest.raises(ad.CopyError):
            ad.to_tensor(chunks, xp=self.xp, copy=False)

    # --- Layouts. ---

    @pytest.mark.parametrize("name", LAYOUTS)
    def test_strides_to(self, cell, name):
        values = layout(aligned(np.arange(24, dtype="float32").reshape(4, 6)), name)
        self.to(cell, "strided", ad.from_dlpack(values, copy=False), self.expect("to", "strided", name), values)

    @pytest.mark.parametrize("name", LAYOUTS)
    def test_strides_from(self, cell, name):
        values = np.arange(24, dtype="float32").reshape(4, 6)
        expected = self.expect("from", "strided", name)
        if expected.outcome == "absent":
            cell("from", "strided", "absent", expected.note)
            return
        theirs = self.layout(self.make(values), name)
        self.back(cell, "strided", theirs, expected, layout(values, name))
        rows = pa.array(ad.to_arrow(self.offer(theirs)))
        tensor = np.from_dlpack(ad.to_tensor(rows))
        np.testing.assert_array_equal(tensor, layout(values, name))

    def test_negative_strides_to(self, cell):
        values = aligned(np.arange(6, dtype="float32"))[::-1]
        expected = self.expect("to", "negative strides")
        self.to(cell, "negative strides", ad.from_dlpack(values, copy=False), expected, values)

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)], ids=str)
    def test_size_0(self, cell, shape):
        tensor = ad.from_dlpack(np.zeros(shape, "float32"))
        self.to(cell, "size 0", tensor, self.expect("to", "size 0"))
        expected = self.expect("from", "size 0")
        if expected.outcome == "absent":
            cell("from", "size 0", "absent", expected.note)
            return
        theirs = self.make(np.zeros(shape, "float32"))
        self.back(cell, "size 0", theirs, expected)
        column = ad.to_arrow(self.offer(theirs), copy=False)
        assert len(column) == shape[0]
        assert ad.to_tensor(column).shape == shape

    def test_0_d(self, cell):
        tensor = ad.from_dlpack(np.array(2.5, "float32"), copy=True)
        self.to(cell, "0-d", tensor, self.expect("to", "0-d"), 2.5)
        expected = self.expect("from", "0-d")
        if expected.outcome == "absent":
            cell("from", "0-d", "absent", expected.note)
            return
        theirs = self.make(np.array(2.5, "float32"))
        self.back(cell, "0-d", theirs, expected, 2.5)
        column = pa.array(ad.to_arrow(self.offer(theirs), copy=False))
        assert column.to_pylist() == [2.5]
        assert column.buffers()[1].address == self.address(theirs)

    def test_misaligned(self, cell):
        memory = aligned(np.frombuffer(b"\0" + np.arange(3, dtype="float32").tobytes(), "uint8"))
        tensor = ad.from_dlpack(memory[1:].view("float32"))
        assert tensor.copied
        theirs = self.take(tensor)
        assert self.values(theirs).tolist() == [0, 1, 2]
        cell("to", "misaligned", "copy", "what is not aligned for its type is realigned by this package")

    def test_legacy_capsules_in(self):
        producer = producers.DLPack(versioned=False, dtype=(0, 32, 1))
        tensor = ad.from_dlpack(producers.Only("__dlpack__", lambda **_: producer.capsule()))
        # It cannot say that it may be written to.
        assert not tensor.writable
        assert self.values(self.take(tensor)).tolist() == [[0, 1, 2], [3, 4, 5]]

    def test_a_device_without_a_driver_is_refused(self, cell):
        theirs = self.make(np.arange(3, dtype="float32"))
        tensor = ad.from_dlpack(self.offer(theirs), device="cpu", copy=False)
        assert address(tensor) == self.address(theirs)
        cell("from", "device", "view", '`device="cpu"`')
        with pytest.raises(ad.ConversionError, match="no CUDA driver"):
            ad.from_dlpack(self.offer(theirs), device="cuda:0")
        with pytest.raises(ad.ConversionError, match="no CUDA driver"):
            ad.to_tensor(pa.array([1]), device="cuda:0", xp=self.xp)
        cell("from", "device", "refused", '`device="cuda:0"` without a CUDA driver')

    def test_exchange_api(self, cell, monkeypatch):
        offered = hasattr(type(self.make(np.arange(3, dtype="float32"))), "__dlpack_c_exchange_api__")
        assert offered == self.exchange
        if not offered:
            cell("from", "exchange API", "absent")
            return
        cell(
            "from",
            "exchange API",
            "view",
            "is offered; this package takes the tensor by `__dlpack__`, which checks more",
        )
        calls = []
        from_dlpack = self.xp.from_dlpack

        @functools.wraps(from_dlpack)
        def counting(tensor, **keywords):
            calls.append(tensor.shape)
            return from_dlpack(tensor, **keywords)

        monkeypatch.setattr(self.xp, "from_dlpack", counting)
        batch = pa.record_batch({str(index): np.arange(3) + index for index in range(4)})
        for of_the_function in (1, 0):
            calls.clear()
            theirs = ad.to_tensors(batch, xp=self.xp)
            assert len(calls) == of_the_function
            for index, array in enumerate(theirs.values()):
                assert self.address(array) == batch[index].buffers()[1].address
                assert self.values(array).tolist() == [index, index + 1, index + 2]
            # Not every library gives memory back that several of its arrays were made of.
            del theirs, array
        cell("to", "exchange API", "view", "`xp=`: all arrays but the first are made by the table of the library")

    def test_memory_lives_as_long_as_its_last_user(self):
        theirs = ad.to_tensor(pa.array(range(1000), pa.int32()), xp=self.xp)
        assert self.values(theirs).tolist() == list(range(1000))
        tensor = ad.from_dlpack(self.offer(self.make(np.arange(1000, dtype="int32"))))
        assert np.from_dlpack(tensor).tolist() == list(range(1000))
        assert pa.array(ad.to_arrow(tensor)).to_pylist() == list(range(1000))


def layout(values: Any, name: str) -> Any:
    """A view of a (4, 6) array, in the syntax that most libraries share."""
    match name:
        case "rows":
            return values[1:3]
        case "columns":
            return values[:, ::2]
        case "transposed":
            return values.T
        case _:
            return np.broadcast_to(values[0], (5, 6))
