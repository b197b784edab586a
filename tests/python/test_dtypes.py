"""`dtype=` as each library writes it: names, codes, classes, type objects; and what is refused, with what to write."""

from typing import Any

import arro3.core as arro3
import arrow_dlpack as ad
import ml_dtypes
import nanoarrow as na
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from producers import Only
from support import INTEGERS, NUMBERS

COLUMN = pa.array([1, 0, 1])


def dtype_of(given: Any) -> str:
    return ad.to_tensor(COLUMN, dtype=given).dtype


def capitalised(dtype: str) -> str:
    """The name as polars and pandas write it, such as UInt8."""
    return dtype.capitalize().replace("Uint", "UInt")


@pytest.mark.parametrize("dtype", NUMBERS)
class TestNumbers:
    def test_numpy(self, dtype: str):
        plain = np.dtype(dtype)
        for given in (
            dtype,
            plain,
            plain.type,
            plain.str,
            plain.str.lstrip("<|"),
            plain.newbyteorder("="),
            f"numpy.{dtype}",
        ):
            assert dtype_of(given) == dtype

    def test_pyarrow(self, dtype: str):
        kind = getattr(pa, dtype)()
        for given in (kind, pa.field("x", kind)):
            assert dtype_of(given) == dtype

    def test_arro3(self, dtype: str):
        assert dtype_of(getattr(arro3.DataType, dtype)()) == dtype

    def test_nanoarrow(self, dtype: str):
        assert dtype_of(getattr(na, dtype)()) == dtype

    def test_polars(self, dtype: str):
        kind = getattr(pl, capitalised(dtype))
        assert dtype_of(kind) == dtype_of(kind()) == dtype

    def test_any_object_with_a_schema(self, dtype: str):
        assert dtype_of(Only("__arrow_c_schema__", getattr(pa, dtype)().__arrow_c_schema__)) == dtype


@pytest.mark.parametrize("dtype", [*INTEGERS, "float32", "float64"])
def test_pandas(dtype: str):
    masked = getattr(pd, f"{capitalised(dtype)}Dtype")
    for given in (masked, masked(), pd.ArrowDtype(getattr(pa, dtype)()), pd.Series([1], dtype=dtype).dtype):
        assert dtype_of(given) == dtype


@pytest.mark.parametrize("dtype", [*NUMBERS, "bfloat16"])
def test_torch(torch, dtype: str):
    assert dtype_of(getattr(torch, dtype)) == dtype_of(str(getattr(torch, dtype))) == dtype


def test_bools(torch):
    kinds = [bool, np.bool_, np.dtype("?"), "bool", "b1", "|b1", pa.bool_(), pa.bool8(), pl.Boolean, pl.Boolean()]
    kinds += [
        pd.BooleanDtype(),
        pd.BooleanDtype,
        pd.ArrowDtype(pa.bool_()),
        na.bool_(),
        arro3.DataType.bool(),
        torch.bool,
    ]
    for given in kinds:
        assert dtype_of(given) == "bool", given


def test_pythons_numbers():
    assert (dtype_of(float), dtype_of(int)) == ("float64", "int64")
    pairs = pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))
    for given in (complex, "c16", np.complex128, "complex128"):
        assert ad.to_tensor(pairs, dtype=given).dtype == "complex128"
    assert ad.to_tensor(pairs, dtype="c8").dtype == "complex64"


def test_a_class_of_numpy_as_tensorflow_has_it():
    class DType:
        def __init__(self, as_numpy_dtype: type) -> None:
            self.as_numpy_dtype = as_numpy_dtype

    assert (dtype_of(DType(np.float32)), dtype_of(DType(ml_dtypes.bfloat16))) == ("float32", "bfloat16")
    with pytest.raises(ValueError, match="is not a dtype"):
        dtype_of(DType(object))


def test_numpys_integers_of_equal_width():
    assert dtype_of(np.longlong) == dtype_of(np.intp) == dtype_of(np.dtype("q")) == "int64"
    assert dtype_of(np.ulonglong) == dtype_of(np.uintp) == "uint64"
    assert (dtype_of(np.intc), dtype_of(np.half), dtype_of(np.double)) == ("int32", "float16", "float64")


def test_bfloat16_and_float8_by_any_library(torch):
    for given in (ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), "bfloat16", torch.bfloat16):
        assert dtype_of(given) == "bfloat16"
    for name in ("float8_e4m3fn", "float8_e5m2"):
        bits = ad.from_dlpack(torch.zeros(2, dtype=getattr(torch, name)))
        for given in (name, getattr(ml_dtypes, name), np.dtype(getattr(ml_dtypes, name)), getattr(torch, name)):
            assert ad.to_tensor(bits, dtype=given).dtype == name
        assert ad.to_tensor(bits, dtype=ad.to_arrow(bits)).dtype == name


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("float", '"float32" or "float64"'),
        ("double", '"float64"'),
        ("half", '"float16"'),
        ("int", '"int32" or "int64"'),
        ("uint", '"uint32" or "uint64"'),
        ("long", '"int32" or "int64"'),
        ("complex", '"complex64"'),
        ("bool_", '"bool"'),
        ("boolean", '"bool"'),
        ("Float32", '"float32"'),
        ("Int64", '"int64"'),
        *((letter, '"float32"') for letter in "bBhHiIlLqQefdg?cCsS"),
    ],
)
def test_names_on_which_libraries_disagree(name: str, instead: str):
    with pytest.raises(ValueError, match="is not a dtype") as caught:
        dtype_of(name)
    assert instead in str(caught.value)
    assert repr(name).strip("'") in str(caught.value)


@pytest.mark.parametrize("given", [">f4", np.dtype(">f4"), ">i8", np.dtype(">u2"), np.dtype(">c16")], ids=repr)
def test_another_byte_order(given: Any):
    with pytest.raises(ValueError, match="byte order"):
        dtype_of(given)


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        (pa.timestamp("s"), '"int64" for its ticks'),
        (pa.date32(), '"int32" for its ticks'),
        (pa.duration("ms"), '"int64" for its ticks'),
        (pa.decimal128(5, 2), '"float64"'),
        (pa.string(), "a number"),
        (pa.list_(pa.float32()), "a number"),
        (pa.list_(pa.float32(), 2), "a number"),
        (pa.dictionary(pa.int8(), pa.int32()), "a number"),
        (pa.schema({"x": pa.int8()}), "a number"),
        (pa.binary(4), "a number"),
        (pa.uuid(), "a number"),
        (pa.null(), "a number"),
        (na.timestamp("s"), '"int64" for its ticks'),
        (arro3.DataType.utf8(), "a number"),
    ],
    ids=str,
)
def test_arrow_types_that_are_no_plain_numbers(given: Any, instead: str):
    with pytest.raises(ValueError, match=r"the Arrow type .* is not a dtype") as caught:
        dtype_of(given)
    assert instead in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "float31",
        "float32 ",
        "f3",
        "int128",
        "torch.",
        "O",
        "U3",
        "M8[ns]",
        3,
        1.5,
        True,
        ...,
        ["float32"],
        ("f4",),
        str,
        object,
        np.str_,
        np.datetime64,
        np.floating,
        np.longdouble,
        np.dtype("M8[ns]"),
        np.dtype([("x", "f4")]),
        np.dtype(("f4", (2,))),
        np.float32(3),
        np.zeros(2, np.float32),
        pd.StringDtype(),
        pd.CategoricalDtype(),
        pd.Series([1.0], name="float32"),
        pl.Series("Float32", [1.0]),
        pl.String,
        pl.Datetime,
        pl.Datetime("ns"),
        pl.Int128,
        pl.List(pl.Float32),
        ml_dtypes.int4,
        pa.float32,
        pa.DataType,
        np,
    ],
    ids=lambda x: getattr(x, "__name__", repr(x)),
)
def test_what_is_no_dtype(given: Any):
    with pytest.raises(ValueError, match="is not a dtype"):
        dtype_of(given)


def test_what_torch_has_beyond_ours(torch):
    for given in (torch.complex32, torch.qint8, torch.strided, torch.tensor(1.0)):
        with pytest.raises(ValueError, match="is not a dtype"):
            dtype_of(given)


def test_what_the_object_raises_passes_through():
    class Dtype:
        def __str__(self) -> str:
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        dtype_of(Dtype())


class TestEverywhere:
    """The same resolver wherever a dtype is taken."""

    BATCH = pa.record_batch({"a": pa.array([1, 2]), "b": pa.array([1.5, 2.5])})
    FORMS = (pa.float32(), pl.Float32, "f4", np.float32, pd.Float32Dtype())

    @pytest.mark.parametrize("form", FORMS, ids=repr)
    def test_functions(self, form: Any):
        assert ad.to_tensor(self.BATCH, dtype=form).dtype == "float32"
        assert ad.to_tensor(self.BATCH, dtype={"a": form, "b": form}).dtype == "float32"
        assert ad.to_tensors(self.BATCH, dtype={"a": form})["a"].dtype == "float32"
        assert ad.to_tensors(self.BATCH, columns={"x": ["a", "b"]}, dtype=form)["x"].dtype == "float32"
        assert ad.to_ragged(pa.array([[1], [2, 3]]), dtype=form).values.dtype == "float32"
        assert [row.dtype for row in ad.explain(self.BATCH, dtype=form)] == ["float32"] * 2
        assert next(iter(ad.Loader(self.BATCH, batch_size=2, dtype=form))).dtype == "float32"

    @pytest.mark.parametrize("wrong", ["float", ">f4", pa.string(), ...], ids=str)
    def test_a_wrong_one_is_seen_before_a_stream_is_read(self, wrong: Any):
        for convert in (
            ad.to_tensor,
            ad.to_tensors,
            ad.to_ragged,
            ad.explain,
            lambda x, dtype: ad.Loader(x, batch_size=1, dtype=dtype),
        ):
            for dtype in (wrong, {"a": wrong}):
                stream = ad.from_arrow(pa.Table.from_batches([self.BATCH]))
                with pytest.raises(ValueError, match="is not a dtype"):
                    convert(stream, dtype=dtype)
                assert pa.table(stream).num_rows == 2
