"""The keywords of the conversions: how a dtype, a null policy or a namespace may be given, and what is refused."""

from collections import ChainMap, OrderedDict
from types import MappingProxyType

import arrow_dlpack as ad
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from support import NUMBERS, address

COLUMN = pa.array([1, 2, 3])
NULLS = pa.array([1.0, None, 3.0])
BATCH = pa.record_batch({"x": NULLS, "n": pa.array([1, None, 3], pa.int16()), "flag": pa.array([True, False, None])})


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_dtype_by_name_or_as_numpys(dtype: str):
    for given in (dtype, np.dtype(dtype), getattr(np, dtype), f"numpy.{dtype}"):
        assert ad.to_tensor(COLUMN, dtype=given).dtype == dtype


def test_a_dtype_as_others_have_it(torch):
    assert ad.to_tensor(COLUMN, dtype=torch.float32).dtype == "float32"
    assert ad.to_tensor(COLUMN, dtype=torch.bfloat16).dtype == "bfloat16"
    assert ad.to_tensor(pa.array([True]), dtype=torch.bool).dtype == "bool"


def test_bools_and_bfloat16():
    assert ad.to_tensor(pa.array([0, 1]), dtype=np.bool_).dtype == "bool"
    for given in ("bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        tensor = ad.to_tensor(COLUMN, dtype=given)
        assert tensor.dtype == "bfloat16"
        assert tensor.nbytes == 6


@pytest.mark.parametrize("dtype", ["", "float31", "float", str, 3, ..., "float32 ", ["float32"]], ids=repr)
def test_what_is_no_dtype(dtype):
    with pytest.raises(ValueError, match="dtype"):
        ad.to_tensor(COLUMN, dtype=dtype)


@pytest.mark.parametrize(("dtype", "reason"), [("complex64", "imaginary part"), ("float8_e4m3fn", "no cast")])
def test_dtypes_without_a_cast(dtype: str, reason: str):
    with pytest.raises(ad.UnsupportedTypeError, match=reason):
        ad.to_tensor(COLUMN, dtype=dtype)


def test_no_dtype_is_the_columns_own():
    assert ad.to_tensor(COLUMN, dtype=None).dtype == "int64"
    assert ad.to_tensor(COLUMN, dtype="int64", copy=False).dtype == "int64"


class TestNulls:
    @pytest.mark.parametrize("nulls", ["zero", "", "NaN", "Error", "keep "])
    def test_policies_are_three(self, nulls: str):
        with pytest.raises(ValueError, match="nulls"):
            ad.to_tensor(NULLS, nulls=nulls)

    @pytest.mark.parametrize("nulls", [[], (1,), ..., 1j, b"nan"], ids=repr)
    def test_or_a_number(self, nulls):
        with pytest.raises(TypeError, match="nulls"):
            ad.to_tensor(NULLS, nulls=nulls)

    @pytest.mark.parametrize(
        "fill", [0, -1, 0.5, True, np.float32(0.5), np.int64(7), np.bool_(True), float("inf"), np.float16(2)]
    )
    def test_any_number_is_a_fill(self, fill):
        assert np.from_dlpack(ad.to_tensor(NULLS, nulls=fill)).tolist() == [1, float(fill), 3]

    def test_a_nan_is_a_fill(self):
        assert np.isnan(np.from_dlpack(ad.to_tensor(NULLS, nulls=float("nan")))[1])

    @pytest.mark.parametrize("fill", [2**200, -(2**200), 2**64])
    def test_a_number_beyond_every_dtype(self, fill: int):
        with pytest.raises(ValueError):
            ad.to_tensor(pa.array([1, None]), nulls=fill)

    @pytest.mark.parametrize("fill", [2**64, -(2**70), 2**127, 2**200])
    def test_an_integer_that_only_a_float_is(self, fill: int):
        assert np.from_dlpack(ad.to_tensor(NULLS, nulls=fill)).tolist() == [1, float(fill), 3]
        assert np.from_dlpack(ad.to_tensor(NULLS, nulls=fill + 1)).tolist() == [1, float(fill + 1), 3]
        with pytest.raises(ValueError, match="beyond the range"):
            ad.to_tensor(NULLS, nulls=10**400)

    def test_a_number_in_an_array(self, torch):
        for fill in (np.array(2.5), np.float32(2.5), torch.tensor(2.5)):
            assert np.from_dlpack(ad.to_tensor(NULLS, nulls=fill)).tolist() == [1, 2.5, 3]
        assert np.from_dlpack(ad.to_tensor(NULLS, nulls=np.array(2))).tolist() == [1, 2, 3]

    def test_what_a_number_raises_passes_through(self):
        class Number:
            def __index__(self) -> int:
                raise RuntimeError("not today")

        with pytest.raises(RuntimeError, match="not today"):
            ad.to_tensor(NULLS, nulls=Number())

    def test_the_policies_by_name(self):
        with pytest.raises(ad.NullError):
            ad.to_tensor(NULLS, nulls="error")
        with pytest.raises(ad.NullError):
            ad.to_tensor(NULLS)
        assert not ad.to_tensor(NULLS, nulls="keep", copy=False).copied
        assert np.isnan(np.from_dlpack(ad.to_tensor(NULLS, nulls="nan"))[1])


class TestByColumn:
    def test_each_column_has_its_own(self):
        tensors = ad.to_tensors(
            BATCH, nulls={"x": "nan", "n": -1, "flag": "keep"}, dtype={"n": "float32", "flag": np.uint8}
        )
        assert {name: tensor.dtype for name, tensor in tensors.items()} == {
            "x": "float64",
            "n": "float32",
            "flag": "uint8",
        }
        assert np.from_dlpack(tensors["n"]).tolist() == [1, -1, 3]
        assert np.from_dlpack(tensors["flag"]).tolist() == [1, 0, 0]

    def test_a_column_that_is_not_named_has_the_default(self):
        with pytest.raises(ad.NullError) as caught:
            ad.to_tensors(BATCH, nulls={"x": "nan", "n": 0})
        assert caught.value.column == "flag"
        assert ad.to_tensors(BATCH, dtype={}, nulls="keep")["n"].dtype == "int16"
        assert ad.to_tensors(BATCH, dtype={"x": None}, nulls="keep")["x"].dtype == "float64"

    @pytest.mark.parametrize(
        "keywords", [{"nulls": {"y": 0}}, {"dtype": {"X": "int8"}}, {"nulls": {"x": 0, "": 1}}], ids=str
    )
    def test_a_column_that_does_not_exist_is_an_error(self, keywords):
        for convert in (ad.to_tensors, ad.explain):
            with pytest.raises(ValueError, match=r"no such column|no column with an empty name"):
                convert(BATCH, **keywords)
        with pytest.raises(ValueError, match=r"no such column|no column with an empty name"):
            ad.to_tensor(COLUMN, **keywords)

    def test_names_are_strings(self):
        with pytest.raises(TypeError):
            ad.to_tensors(BATCH, nulls={1: 0})

    @pytest.mark.parametrize("kind", [MappingProxyType, ChainMap, OrderedDict])
    def test_any_mapping(self, kind):
        nulls, dtype = kind({"x": 0, "n": 0, "flag": False}), kind({"n": "float32"})
        tensors = ad.to_tensors(BATCH, nulls=nulls, dtype=dtype, columns=kind({"all": ["x", "n"], "flag": "flag"}))
        assert np.from_dlpack(tensors["all"]).tolist() == [[1, 1], [0, 0], [3, 3]]
        assert np.from_dlpack(tensors["flag"]).tolist() == [True, False, False]
        batch = ad.to_arrow(tensors["all"], names=["x", "n"], type=kind({"n": pa.int8()}))
        assert pa.record_batch(batch).schema.types == [pa.float64(), pa.int8()]

    def test_an_array_by_its_own_name(self):
        column = ad.from_arrow(BATCH)["n"]
        assert np.from_dlpack(ad.to_tensor(column, nulls={"n": 5})).tolist() == [1, 5, 3]


class TestColumns:
    def test_in_the_order_given(self):
        assert list(ad.to_tensors(BATCH, columns=["n", "x"], nulls="keep")) == ["n", "x"]
        assert list(ad.to_tensors(BATCH, columns=("flag",), nulls="keep")) == ["flag"]
        assert ad.to_tensors(BATCH, columns=[]) == {}

    def test_only_what_is_chosen_is_looked_at(self):
        batch = pa.record_batch({"x": [1], "s": ["a"]})
        assert list(ad.to_tensors(batch, columns=["x"])) == ["x"]

    def test_unknown_and_repeated_names(self):
        with pytest.raises(ValueError, match="there is no such column"):
            ad.to_tensors(BATCH, columns=["x", "y"])
        repeated = pa.record_batch([COLUMN, COLUMN], names=["x", "x"])
        with pytest.raises(ValueError, match="name"):
            ad.to_tensors(repeated)
        with pytest.raises(ValueError, match="name"):
            ad.to_tensors(repeated, columns=["x"])

    @pytest.mark.parametrize("columns", ["x", 3, [1], [None]], ids=repr)
    def test_columns_are_names(self, columns):
        with pytest.raises(TypeError):
            ad.to_tensors(BATCH, columns=columns)

    def test_an_array_has_no_columns(self):
        with pytest.raises(ValueError, match="to_tensor"):
            ad.to_tensors(COLUMN)
        with pytest.raises(ValueError, match="leave columns= out"):
            ad.to_tensor(COLUMN, columns=["x"])


class TestCopies:
    def test_as_needed(self):
        assert address(ad.to_tensor(COLUMN)) == COLUMN.buffers()[1].address
        assert ad.to_tensor(pa.array([True])).copied

    def test_never(self):
        for source, keywords in [
            (pa.array([True]), {}),
            (COLUMN, {"dtype": "float32"}),
            (COLUMN, {"writable": True}),
            (NULLS, {"nulls": 0}),
            (pa.chunked_array([[1], [2]]), {}),
        ]:
            with pytest.raises(ad.CopyError) as caught:
                ad.to_tensor(source, copy=False, **keywords)
            assert "copy=None" in caught.value.remedy

    def test_never_for_a_strided_tensor(self):
        with pytest.raises(ad.CopyError):
            ad.to_tensor(np.arange(6).reshape(2, 3).T, copy=False)

    def test_always(self):
        tensor = ad.to_tensor(COLUMN, copy=True)
        assert (tensor.copied, tensor.writable) == (True, True)
        assert address(tensor) != COLUMN.buffers()[1].address
        assert all(tensor.copied for tensor in ad.to_tensors(BATCH, copy=True, nulls="keep").values())

    def test_writable(self):
        tensor = ad.to_tensor(COLUMN, writable=True)
        assert tensor.writable
        np.from_dlpack(tensor)[0] = 9
        assert COLUMN.to_pylist() == [1, 2, 3]
        # One copy serves both.
        with ad.track_copies() as log:
            ad.to_tensor(COLUMN, writable=True, copy=True, dtype="float32")
        assert log.bytes == 12
        assert all(tensor.writable for tensor in ad.to_tensors(BATCH, writable=True, nulls="keep").values())

    @pytest.mark.parametrize(
        "keywords", [{"copy": "no"}, {"copy": 0}, {"writable": "no"}, {"writable": 1}, {"legacy": None}], ids=str
    )
    def test_wrong_types(self, keywords):
        with pytest.raises(TypeError):
            ad.to_tensor(COLUMN, **keywords)


class TestXp:
    def test_a_namespace(self):
        assert isinstance(ad.to_tensor(COLUMN, xp=np), np.ndarray)

    def test_is_anything_with_from_dlpack(self):
        class Namespace:
            @staticmethod
            def from_dlpack(x):
                seen.append(type(x))
                return "theirs"

        seen: list[type] = []
        assert ad.to_tensor(COLUMN, xp=Namespace) == "theirs"
        assert ad.to_tensors(pa.record_batch({"x": COLUMN}), xp=Namespace()) == {"x": "theirs"}
        assert ad.validity(COLUMN, xp=Namespace) == "theirs"
        assert seen == [ad.Tensor] * 3

    @pytest.mark.parametrize("xp", [3, ..., pa, "os", "numpy.linalg"], ids=repr)
    def test_and_nothing_else(self, xp):
        with pytest.raises(TypeError, match="xp"):
            ad.to_tensor(COLUMN, xp=xp)

    def test_a_namespace_by_name(self, torch):
        assert isinstance(ad.to_tensor(COLUMN, xp="numpy"), np.ndarray)
        assert isinstance(ad.to_tensor(COLUMN, xp="torch", writable=True), torch.Tensor)
        for named in (
            ad.to_tensors(BATCH, xp="numpy", nulls="keep")["x"],
            ad.to_ragged(pa.array([[1]]), xp="numpy").values,
            ad.validity(COLUMN, xp="numpy"),
            next(iter(ad.Loader(pa.table({"x": COLUMN}), batch_size=3, xp="numpy"))),
        ):
            assert isinstance(named, np.ndarray)

    @pytest.mark.parametrize("xp", ["nump", "", ".numpy", "numpy.nowhere", "no.where", "numpy "])
    def test_a_name_of_no_module(self, xp: str):
        loader = lambda x, xp: ad.Loader(x, batch_size=1, xp=xp)  # noqa: E731
        for convert in (ad.to_tensor, ad.to_tensors, ad.to_ragged, ad.validity, loader):
            stream = ad.from_arrow(pa.table({"x": COLUMN}))
            with pytest.raises(ValueError, match="no module of this name"):
                convert(stream, xp=xp)
            assert pa.table(stream).num_rows == 3

    def test_what_an_import_raises_passes_through(self, tmp_path, monkeypatch):
        (tmp_path / "broken_namespace.py").write_text("import a_module_that_it_needs")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ModuleNotFoundError, match="'a_module_that_it_needs'"):
            ad.to_tensor(COLUMN, xp="broken_namespace")

    def test_what_it_raises_passes_through(self):
        with pytest.raises((RuntimeError, BufferError)):
            ad.to_tensor(COLUMN, dtype="bfloat16", xp=np)


@pytest.mark.parametrize("convert", [ad.to_tensor, ad.to_tensors, ad.validity, ad.to_arrow, ad.from_arrow, ad.explain])
def test_options_are_keywords_and_known(convert):
    with pytest.raises(TypeError):
        convert(COLUMN, None)
    with pytest.raises(TypeError):
        convert(COLUMN, nonsense=None)


def test_objects_that_stand_for_an_integer():
    """By `__index__` alone, which is all that Python's own functions ask for."""

    class Index:
        def __init__(self, number: int):
            self.number = number

        def __index__(self) -> int:
            return self.number

    column, lists = pa.array([None, 7], pa.int64()), pa.array([[1, 2], [3, 4]])
    assert np.from_dlpack(ad.to_tensor(column, nulls=Index(2**53 + 1), threads=Index(1))).tolist() == [2**53 + 1, 7]
    assert np.from_dlpack(ad.to_tensor(lists, length=Index(2))).tolist() == [[1, 2], [3, 4]]
    categories = [Index(7), Index(9)]
    assert np.from_dlpack(ad.to_tensor(pa.array([9, 7]), categories=categories, unknown=Index(3))).tolist() == [1, 0]
    loader = ad.Loader(lists, batch_size=Index(1), length=Index(2), shuffle_buffer=Index(2), seed=Index(2**63))
    assert len(list(loader)) == 2
    assert pa.array(ad.from_arrow(pa.record_batch({"a": [1]}))[Index(0)]).to_pylist() == [1]
