"""The rows of the type table beyond plain numbers, as cases: how a column of each is built, and what its tensor holds.

A case builds a column from rows that are indices into its values, or None; what the tensor should hold of each value is
written out, not computed by the package or by pyarrow.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import arrow_dlpack as ad
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from support import address

Rows = Sequence[int | None]

# Runs of rows, so that a slice cuts inside of one; each value again later.
PICKS = [0, 0, 1, 1, 1, 2, 0, 3, 3, 2, 1]
NULLS = {
    "no nulls": [],
    "first null": [0],
    "last null": [10],
    "some null": [0, 1, 5, 10],
    "inside a run": [3],
    "all null": list(range(11)),
}
SLICES = [slice(None), slice(1, None), slice(3, 10), slice(5, 6), slice(9, 11), slice(0, 1), slice(4, 4)]


class Extension(pa.ExtensionType):
    """An extension type by name; it is not registered, so that pyarrow gives its storage back."""

    def __init__(self, storage: pa.DataType, name: str) -> None:
        super().__init__(storage, name)

    def __arrow_ext_serialize__(self) -> bytes:
        return self.extension_name.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Extension:
        return cls(storage, serialized.decode())


@dataclass
class Case:
    name: str
    # The column of these rows.
    build: Callable[[Rows], pa.Array]
    # What the tensor holds of each value: a number, or lists of numbers.
    values: list[Any]
    dtype: str
    options: dict[str, Any] = field(default_factory=dict)
    # Whether a column without nulls, in one chunk, is a view.
    view: bool = True
    # Bytes that decoding writes for each element, before anything else is done.
    decoded: int = 0
    # Whether the tensor returns to the type of the column.
    returns: bool = True
    # Where validity() has the shape of other values: of what the column holds when nothing is asked for.
    validity_inner: tuple[int, ...] | None = None
    # Other than 1 where 1 cannot be.
    fill: Any = 1

    def rows(self, nulls: Sequence[int]) -> list[int | None]:
        return [None if row in nulls else pick for row, pick in enumerate(PICKS)]

    def expected(self, rows: Rows, fill: Any) -> np.ndarray:
        """The tensor's elements, nulls filled."""
        inner = np.shape(self.values[0])
        values = [np.full(inner, fill) if row is None else self.values[row] for row in rows]
        return np.array(values, dtype_of(self.dtype)).reshape((len(rows), *inner))

    def __str__(self) -> str:
        return self.name


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def read(tensor: ad.Tensor) -> np.ndarray:
    """A tensor's elements, of dtypes that NumPy does not take by DLPack too."""
    if not hasattr(ml_dtypes, tensor.dtype):
        return np.from_dlpack(tensor)
    dtype = dtype_of(tensor.dtype)
    if tensor.size == 0:
        return np.empty(tensor.shape, dtype)
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
    bits = np.frombuffer(ctypes.string_at(address(tensor), span * dtype.itemsize), f"u{dtype.itemsize}")
    strides = [dtype.itemsize * stride for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(bits, tensor.shape, strides).view(dtype)


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether the elements are the same, bit by bit."""
    return (
        found.dtype == expected.dtype
        and found.shape == expected.shape
        and np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()
    )


def converted(source: Any, **options: Any) -> ad.Tensor:
    """`to_tensor`, checked against what `explain` says and the copy log tells, errors included."""
    # Streams are not explained: that would read them.
    row = ad.explain(source, **options)[0] if hasattr(source, "__arrow_c_array__") else None
    with ad.track_copies() as log:
        try:
            tensor = ad.to_tensor(source, **options)
        except ad.CastError:
            # What only values decide is not explained.
            raise
        except ad.ConversionError as error:
            explained = str(error) if row is None else row.error
            if (explained, len(log)) != (str(error), 0):
                raise AssertionError(f"explained as {explained}, {len(log)} copies made") from error
            raise
    assert tensor.copied == (log.bytes > 0)
    assert all(entry.bytes > 0 for entry in log.entries)
    if row is not None:
        assert row.error is None
        assert (row.dtype, row.shape) == (tensor.dtype, tensor.shape)
        assert row.view == (row.how == "view")
        assert row.view <= (not tensor.copied)
        assert log.bytes == row.bytes or (row.how == "view or copy" and log.bytes == 0)
        assert all(any(step in entry.why for entry in log.entries) for step in row.steps) or row.how == "view or copy"
    return tensor


def of_type(data_type: pa.DataType, values: Sequence[Any]) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.array([None if row is None else values[row] for row in rows], data_type)


def dictionary(index: pa.DataType, values: pa.Array) -> Callable[[Rows], pa.Array]:
    """A dictionary array; the dictionary has an offset of its own."""
    longer = pa.concat_arrays([values[-1:], values, values[:1]])
    return lambda rows: pa.DictionaryArray.from_arrays(pa.array(rows, index), longer[1:-1])


def through_the_dictionary(values: pa.Array) -> Callable[[Rows], pa.Array]:
    """Nulls as codes of a null in the dictionary."""
    longer = pa.concat_arrays([values, pa.nulls(1, values.type)])

    def build(rows: Rows) -> pa.Array:
        codes = [len(values) if row is None else row for row in rows]
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int16()), longer)

    return build


def runs(build: Callable[[Rows], pa.Array], ends: pa.DataType | None = None) -> Callable[[Rows], pa.Array]:
    def encode(rows: Rows) -> pa.Array:
        groups = [(key, len(list(group))) for key, group in itertools.groupby(rows)]
        run_ends = list(itertools.accumulate(length for _, length in groups))
        return pa.RunEndEncodedArray.from_arrays(
            pa.array(run_ends, ends or pa.int32()), build([key for key, _ in groups])
        )

    return encode


def extension(name: str, build: Callable[[Rows], pa.Array]) -> Callable[[Rows], pa.Array]:
    def wrap(rows: Rows) -> pa.Array:
        storage = build(rows)
        return pa.ExtensionArray.from_storage(Extension(storage.type, name), storage)

    return wrap


def ml_case(name: str, extension_name: str | None = None) -> Case:
    dtype = dtype_of(name)
    values = np.array([1, 2, 0.5, 4]).astype(dtype)
    binary = of_type(pa.binary(dtype.itemsize), [value.tobytes() for value in values])
    extension_name = extension_name or f"arrow_dlpack.{name}"
    return Case(extension_name, extension(extension_name, binary), list(values), name)


def decimals(data_type: pa.DataType, *values: str) -> Callable[[Rows], pa.Array]:
    return of_type(data_type, [Decimal(value) for value in values])


PRICES = ("1.50", "-2.25", "999.99", "0.00")
CENTS = [150, -225, 99999, 0]
WHOLE = ("7", "-8", "99999", "0")
STRINGS = pa.array(["a", "b", "c", "d"])
STAMPS = pa.array([10, 20, 30, 40], pa.timestamp("us"))
BYTES = pa.array([b"ab", b"cd", b"ef", b"gh"], pa.binary(2))
PAIRS = [[1.5, 2], [-3, 0.25], [5, 6], [0, -7]]
NUMBERS = [1.5 + 2j, -3 + 0.25j, 5 + 6j, complex(0, -7)]
POINTS = [[1, 2], [3, 4], [5, 6], [7, 8]]
UNSCALED = {"decimal": "unscaled"}
BOOL8 = [True, False, True, False]


def bool8(rows: Rows) -> pa.Array:
    storage = pa.array([None if row is None else int(BOOL8[row]) for row in rows], pa.int8())
    return pa.ExtensionArray.from_storage(pa.bool8(), storage)


FLOAT8 = [
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]

SCALARS = [
    Case("bool8", bool8, BOOL8, "bool"),
    Case("decimal32 of scale 0", decimals(pa.decimal32(5, 0), *WHOLE), [7, -8, 99999, 0], "int32"),
    Case("decimal64 of scale 0", decimals(pa.decimal64(18, 0), *WHOLE), [7, -8, 99999, 0], "int64"),
    Case("decimal32 unscaled", decimals(pa.decimal32(5, 2), *PRICES), CENTS, "int32", UNSCALED),
    Case("decimal64 unscaled", decimals(pa.decimal64(9, 2), *PRICES), CENTS, "int64", UNSCALED),
    Case(
        "decimal64 of negative scale unscaled",
        decimals(pa.decimal64(5, -2), "700", "-800", "9999900", "0"),
        [7, -8, 99999, 0],
        "int64",
        UNSCALED,
    ),
    Case(
        "decimal128 unscaled",
        decimals(pa.decimal128(20, 2), *PRICES),
        CENTS,
        "int64",
        {"decimal": "unscaled", "dtype": "int64"},
        view=False,
        returns=False,
    ),
    *(
        Case(
            f"{data_type} as {dtype}",
            decimals(data_type, *PRICES),
            [1.5, -2.25, 999.99, 0],
            dtype,
            {"dtype": dtype},
            view=False,
            returns=False,
        )
        for data_type, dtype in [
            (pa.decimal32(5, 2), "float64"),
            (pa.decimal64(5, 2), "float32"),
            (pa.decimal128(38, 2), "float64"),
            (pa.decimal256(76, 2), "float16"),
        ]
    ),
    Case(
        "decimal256 as int8",
        decimals(pa.decimal256(76, 3), "1", "-2", "100", "0"),
        [1, -2, 100, 0],
        "int8",
        {"dtype": "int8"},
        view=False,
        returns=False,
    ),
    Case("codes", dictionary(pa.int8(), STRINGS), [0, 1, 2, 3], "int8"),
    Case("uint64 codes", dictionary(pa.uint64(), STRINGS), [0, 1, 2, 3], "uint64"),
    Case("int64 codes", dictionary(pa.int64(), STAMPS), [0, 1, 2, 3], "int64"),
    Case("codes of views", dictionary(pa.uint16(), STRINGS.cast(pa.string_view())), [0, 1, 2, 3], "uint16"),
    Case("codes of lists", dictionary(pa.int32(), pa.array([["a"], [], ["b", "c"], ["d"]])), [0, 1, 2, 3], "int32"),
    Case("codes of structs", dictionary(pa.int32(), pa.array([{"x": i} for i in range(4)])), [0, 1, 2, 3], "int32"),
    Case("codes with a null behind", through_the_dictionary(STRINGS), [0, 1, 2, 3], "int16"),
    Case(
        "codes cast",
        dictionary(pa.int8(), STRINGS),
        [0, 1, 2, 3],
        "float32",
        {"dictionary": "codes", "dtype": "float32"},
        view=False,
        returns=False,
    ),
    *(
        Case(
            f"values of {values.type}, {name}",
            build(values),
            found,
            dtype,
            {"dictionary": "values"},
            view=False,
            returns=False,
            decoded=decoded,
            validity_inner=(),
        )
        for (name, build), (values, found, dtype, decoded) in itertools.product(
            [
                ("nulls of codes", lambda values: dictionary(pa.uint8(), values)),
                ("nulls behind", through_the_dictionary),
            ],
            [
                (pa.array([10, 20, -30, 40]), [10, 20, -30, 40], "int64", 8),
                (pa.array([True, False, True, True]), [True, False, True, True], "bool", 1),
                (STAMPS, [10, 20, 30, 40], "int64", 8),
                (pa.array(POINTS, pa.list_(pa.int16(), 2)), POINTS, "int16", 2),
                (
                    BYTES,
                    [[97, 98], [99, 100], [101, 102], [103, 104]],
                    "uint8",
                    1,
                ),
            ],
        )
    ),
    Case(
        "values of a dictionary of a dictionary",
        dictionary(pa.int8(), pa.DictionaryArray.from_arrays(pa.array([3, 2, 1, 0]), pa.array([1.5, 2, 3, 4]))),
        [4, 3, 2, 1.5],
        "float64",
        {"dictionary": "values"},
        view=False,
        returns=False,
        decoded=8,
    ),
    Case(
        "values as dtype",
        dictionary(pa.int8(), pa.array([10, 20, 30, 40])),
        [10, 20, 30, 40],
        "float32",
        {"dtype": "float32"},
        view=False,
        returns=False,
        decoded=8,
    ),
    *(
        Case(
            f"runs of {inner.name} by {ends}",
            runs(inner.build, ends),
            inner.values,
            inner.dtype,
            inner.options,
            view=False,
            returns=False,
            decoded=decoded,
            validity_inner=inner.validity_inner,
        )
        for inner, ends, decoded in [
            (Case("int16", of_type(pa.int16(), [5, 6, 7, 8]), [5, 6, 7, 8], "int16"), pa.int16(), 2),
            (Case("float64", of_type(pa.float64(), [5, 6, 7, 8]), [5, 6, 7, 8], "float64"), pa.int32(), 8),
            (Case("bool", of_type(pa.bool_(), BOOL8), BOOL8, "bool"), pa.int64(), 1),
            (Case("time", of_type(pa.time32("s"), [5, 6, 7, 8]), [5, 6, 7, 8], "int32"), pa.int32(), 4),
            (
                Case("decimal32", decimals(pa.decimal32(5, 2), *PRICES), CENTS, "int32", UNSCALED),
                pa.int32(),
                4,
            ),
            (Case("points", of_type(pa.list_(pa.int8(), 2), POINTS), POINTS, "int8"), pa.int32(), 1),
            (Case("codes", dictionary(pa.int8(), STRINGS), [0, 1, 2, 3], "int8"), pa.int32(), 1),
            (Case("codes of nulls", through_the_dictionary(STRINGS), [0, 1, 2, 3], "int16"), pa.int32(), 2),
            (
                Case(
                    "dictionary values",
                    dictionary(pa.int8(), pa.array([1.5, 2, 3, 4])),
                    [1.5, 2, 3, 4],
                    "float64",
                    {"dictionary": "values"},
                ),
                pa.int32(),
                8,
            ),
        ]
    ),
    Case(
        "fixed-size binary",
        of_type(pa.binary(3), [b"abc", b"\0\1\2", b"xyz", b"\xff\xfe\xfd"]),
        [[97, 98, 99], [0, 1, 2], [120, 121, 122], [255, 254, 253]],
        "uint8",
    ),
    Case(
        "fixed-size binary of an unknown extension",
        extension("example.uuid", of_type(pa.binary(1), [b"a", b"b", b"c", b"d"])),
        [[97], [98], [99], [100]],
        "uint8",
    ),
    ml_case("bfloat16"),
    ml_case("bfloat16", "lance.bfloat16"),
    *map(ml_case, FLOAT8),
    Case(
        "bfloat16 as float32",
        ml_case("bfloat16").build,
        [1, 2, 0.5, 4],
        "float32",
        {"dtype": "float32"},
        view=False,
        returns=False,
    ),
    Case(
        "complex128",
        of_type(pa.list_(pa.float64(), 2), PAIRS),
        NUMBERS,
        "complex128",
        {"dtype": "complex128"},
        validity_inner=(2,),
    ),
    Case(
        "complex64 of doubles",
        of_type(pa.list_(pa.float64(), 2), PAIRS),
        NUMBERS,
        "complex64",
        {"dtype": "complex64"},
        view=False,
        returns=False,
        validity_inner=(2,),
    ),
    Case(
        "complex128 of halves",
        of_type(pa.list_(pa.float16(), 2), [[np.float16(part) for part in pair] for pair in PAIRS]),
        NUMBERS,
        "complex128",
        {"dtype": "complex128"},
        view=False,
        returns=False,
        validity_inner=(2,),
    ),
]


def listed(case: Case) -> Case:
    """Fixed-size lists of 2 of a case, whose child has an offset. A null row is a null list over values."""

    def build(rows: Rows) -> pa.Array:
        picks = [0 if row is None else row for row in rows]
        items = [pick for row in picks for pick in (row, (row + 1) % 4)]
        child = case.build([3, *items])[1:]
        mask = pa.array([row is None for row in rows], pa.bool_())
        return pa.FixedSizeListArray.from_arrays(child, 2, mask=mask if None in rows else None)

    values = [[case.values[pick], case.values[(pick + 1) % 4]] for pick in range(4)]
    inner = None if case.validity_inner is None else (2, *case.validity_inner)
    options = {**case.__dict__, "name": f"lists of {case}", "build": build, "values": values, "validity_inner": inner}
    return Case(**options)


CASES = [*SCALARS, *map(listed, SCALARS)]


# Each of the few where nulls are, but of what others show already.
WITH_NULLS = [
    pytest.param(case, nulls, id=f"{case}, {name}")
    for case in CASES
    for name, nulls in NULLS.items()
    if name in ("no nulls", "some null") or (case in SCALARS and "float8" not in case.name)
]

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_case_with_nulls = pytest.mark.parametrize(("case", "nulls"), WITH_NULLS)


def slices(case: Case, nulls: Sequence[int]) -> Iterator[tuple[pa.Array, list[int | None]]]:
    """The column sliced, and its rows. A slice of an array with nulls does not tell how many of them it has."""
    rows = case.rows(nulls)
    column = case.build(rows)
    for part in SLICES:
        yield column[part], rows[part]
