"""Dictionaries: codes and values, chunks, what codes stand for on the way back, and dictionaries that are wrong."""

from __future__ import annotations

import arrow_dlpack as ad
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from support import address
from type_cases import converted

LETTERS = pa.array(["a", "b", None, "d"])
COLUMN = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 3, 1], pa.int8()), LETTERS)


def encoded(codes: list[int | None], values: pa.Array, index: pa.DataType = pa.int8()) -> pa.DictionaryArray:  # noqa: B008
    return pa.DictionaryArray.from_arrays(pa.array(codes, index), values, safe=False)


def unchecked(codes: bytes, valid: int | None, values: pa.Array) -> pa.DictionaryArray:
    """Codes as they are, also in the slots of nulls."""
    bitmap = None if valid is None else pa.py_buffer(bytes([valid]))
    indices = pa.Array.from_buffers(pa.int8(), len(codes), [bitmap, pa.py_buffer(codes)])
    return pa.DictionaryArray.from_arrays(indices, values, safe=False)


@pytest.mark.parametrize(
    "index", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], ids=str
)
def test_codes_of_every_index_type_are_views_and_return(index: pa.DataType):
    source = encoded([3, 0, 1, 0], LETTERS, index)[1:]
    tensor = converted(source, copy=False)
    assert tensor.dtype == str(index)
    assert address(tensor) == source.indices.buffers()[1].address + index.bit_width // 8
    assert np.from_dlpack(tensor).tolist() == [0, 1, 0]
    back = pa.array(tensor)
    assert back.equals(source)
    assert back.indices.buffers()[1].address == source.indices.buffers()[1].address + index.bit_width // 8 - (
        back.offset * index.bit_width // 8
    )


def test_dtype_none_is_codes_and_dtype_is_values():
    source = encoded([2, 0, 1], pa.array([10, 20, 30], pa.int16()))
    assert np.from_dlpack(ad.to_tensor(source)).tolist() == [2, 0, 1]
    values = converted(source, dtype="float64")
    assert np.from_dlpack(values).tolist() == [30, 10, 20]
    codes = converted(source, dtype="float64", dictionary="codes")
    assert np.from_dlpack(codes).tolist() == [2, 0, 1]
    assert converted(source, dtype="int8", dictionary="codes", copy=False).dtype == "int8"
    assert np.from_dlpack(converted(source, dictionary="values", dtype="int16")).tolist() == [30, 10, 20]
    with pytest.raises(ad.CastError) as caught:
        ad.to_tensor(encoded([1, 0, 1], pa.array([1, 300])), dtype="uint8")
    assert caught.value.row == 0


def test_both_keywords_by_column():
    batch = pa.record_batch(
        {
            "c": encoded([1, 0], pa.array([10, 20])),
            "v": encoded([1, 0], pa.array([10, 20])),
            "d": pa.array([1, 2], pa.decimal32(5, 0)),
        }
    )
    options = {"dictionary": {"v": "values"}, "decimal": {"d": "unscaled"}}
    tensors = ad.to_tensors(batch, **options)
    assert {name: np.from_dlpack(tensor).tolist() for name, tensor in tensors.items()} == {
        "c": [1, 0],
        "v": [20, 10],
        "d": [1, 2],
    }
    assert [row.how for row in ad.explain(batch, **options)] == ["view", "copy", "view"]
    # Of a type alone nobody knows whether its rows will be in one chunk.
    chunks = ["copied, unless all rows are in one aligned chunk"]
    assert [row.steps for row in ad.explain(batch.schema, **options)] == [chunks, ["decoded"], chunks]
    for keyword in ("dictionary", "decimal"):
        with pytest.raises(ValueError, match="nobody"):
            ad.to_tensors(batch, **{keyword: {"nobody": None}})
        with pytest.raises(ValueError, match=keyword):
            ad.to_tensors(batch, **{keyword: "something"})


def test_a_code_of_a_null_is_a_null():
    with pytest.raises(ad.NullError, match="has nulls, the first one here") as caught:
        converted(COLUMN)
    assert caught.value.row == 1
    assert np.from_dlpack(converted(COLUMN, nulls=-1)).tolist() == [0, -1, -1, 3, 1]
    assert np.from_dlpack(ad.validity(COLUMN)).tolist() == [True, False, False, True, True]
    assert np.from_dlpack(ad.validity(COLUMN[3:])).tolist() == [True, True]
    all_null = encoded([0, 1, 0], pa.nulls(2, pa.string()))
    assert np.from_dlpack(ad.validity(all_null)).tolist() == [False] * 3
    of_null_type = encoded([0, 1, None], pa.nulls(2))
    assert np.from_dlpack(ad.validity(of_null_type)).tolist() == [False] * 3
    assert np.from_dlpack(converted(of_null_type, nulls=7)).tolist() == [7] * 3


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 4], pa.int32()), pa.array([5, None, 7]))


@pytest.mark.parametrize(
    ("values", "valid"),
    [
        (encoded([1, None, 0], pa.array([10, None])), [False, False, True]),
        (encoded([0, 0, 1], encoded([0, 1], pa.array(["x", None]))), [True, True, False]),
        (RUNS, [True, False, True]),
        (RUNS[1:], [False, True, True]),
        (pa.array([[1], None, []]), [True, False, True]),
        (pa.array([{"x": 1}, None, {"x": None}]), [True, False, True]),
        (pa.array([[1, 2], None, [None, 3]], pa.list_(pa.int8(), 2)), [True, False, True]),
    ],
    ids=["dictionary", "two dictionaries", "runs", "runs cut", "lists", "structs", "fixed-size lists"],
)
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_nulls_of_whatever_a_dictionary_holds(values: pa.Array, valid: list[bool], offset: int):
    codes = [2, 0, 1, None, 1, 2]
    source = encoded(codes, values)[offset:]
    expected = [code is not None and valid[code] for code in codes][offset:]
    assert np.from_dlpack(ad.validity(source)).tolist() == expected
    filled = [code if ok else 9 for code, ok in zip(codes[offset:], expected, strict=True)]
    assert np.from_dlpack(converted(source, nulls=9)).tolist() == filled


class TestChunks:
    same = (COLUMN[3:], encoded([1, 0], pa.concat_arrays([LETTERS[:1], LETTERS])[1:]))
    other = encoded([0, 1], pa.array(["b", "a", None, "d"]))

    def test_of_equal_dictionaries_have_their_codes_in_common(self):
        tensor = converted(pa.chunked_array(list(self.same)))
        assert np.from_dlpack(tensor).tolist() == [3, 1, 1, 0]
        assert pa.array(tensor).to_pylist() == ["d", "b", "b", "a"]

    @pytest.mark.parametrize("options", [{}, {"nulls": "keep"}, {"dictionary": "codes", "dtype": "int64"}], ids=str)
    def test_of_different_dictionaries_are_an_error_that_names_the_remedy(self, options):
        for chunks in ([self.same[0], self.other], [*self.same, self.other], [self.other, self.same[0]]):
            with pytest.raises(ad.UnsupportedTypeError, match="different dictionaries") as caught:
                ad.to_tensors(pa.table({"letter": pa.chunked_array(chunks)}), **options)
            assert caught.value.column == "letter"
            assert "categories=" in caught.value.remedy
        longer = encoded([0], pa.array(["a", "b", None, "d", "e"]))
        with pytest.raises(ad.UnsupportedTypeError, match="different dictionaries"):
            ad.to_tensor(pa.chunked_array([self.same[0], longer]), **options)

    def test_of_different_dictionaries_have_values_and_validity(self):
        chunks = pa.chunked_array([encoded([1, 2], pa.array([1, 2, None])), encoded([0, 1], pa.array([2, 7, 9]))])
        assert np.from_dlpack(converted(chunks, dictionary="values", nulls=0)).tolist() == [2, 0, 2, 7]
        assert np.from_dlpack(converted(chunks, dtype="float32", nulls="nan"))[2:].tolist() == [2, 7]
        assert np.from_dlpack(ad.validity(chunks)).tolist() == [True, False, True, True]

    def test_without_rows_have_any_dictionary(self):
        tensor = converted(pa.chunked_array([self.other[:0], self.same[0], self.other[:0]]), copy=False)
        assert pa.array(tensor).to_pylist() == ["d", "b"]
        tensor = converted(pa.chunked_array([self.other[:0], self.same[0][:0]]), copy=False)
        assert pa.array(tensor).type == COLUMN.type
        tensor = converted(pa.chunked_array([], COLUMN.type), copy=False)
        assert pa.array(tensor).type == COLUMN.type

    def test_of_nulls_without_values_have_any_dictionary(self):
        """As Parquet has them of a group of rows that are all null."""
        nulls, plain = encoded([None, None], LETTERS[:0]), encoded([1, 0], pa.array(["a", "b"]))
        for parts, codes in (([nulls, plain], [-1, -1, 1, 0]), ([plain, nulls, plain], [1, 0, -1, -1, 1, 0])):
            chunks = pa.chunked_array(parts)
            table = pa.table({"c": chunks, "d": chunks})
            for column in (ad.to_tensor(chunks, nulls=-1), ad.to_tensors(table.to_reader(), nulls=-1)["c"]):
                assert np.from_dlpack(column).tolist() == codes
            for data in (table, table.to_reader()):
                matrix = ad.to_tensor(data, dictionary="codes", nulls=-1, dtype="int8")
                assert np.from_dlpack(matrix).T.tolist() == [codes, codes]
            for kept in (ad.to_tensor(chunks, nulls="keep"), ad.to_tensors(table.to_reader(), nulls="keep")["c"]):
                assert pa.array(kept.dictionary).to_pylist() == ["a", "b"]
                back = ad.to_arrow(kept, validity=np.array(codes) >= 0)
                assert pa.array(back).to_pylist() == chunks.to_pylist()
            lists = pa.chunked_array([pa.ListArray.from_arrays([0, 2], part) for part in parts])
            assert np.from_dlpack(ad.to_ragged(lists, nulls=-1).values).tolist() == codes
            assert np.from_dlpack(ad.to_ragged(lists, nulls=-1, pad=(-1, 2))[0]).ravel().tolist() == codes
        # A code that stands for no value is none of another dictionary.
        wrong = encoded([1, None], LETTERS[:0])
        for parts in ([wrong, plain], [plain, wrong]):
            with pytest.raises(ad.UnsupportedTypeError, match="different dictionaries"):
                ad.to_tensor(pa.chunked_array(parts), nulls=-1)

    @pytest.mark.parametrize("wrap", ["runs", "lists", "lists of runs"])
    def test_under_runs_and_lists_need_equal_dictionaries_too(self, wrap: str):
        def chunk(values: list[str]) -> pa.Array:
            array = encoded([0, 1], pa.array(values))
            if "runs" in wrap:
                array = pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), array)
            return pa.FixedSizeListArray.from_arrays(array, 2) if "lists" in wrap else array

        with pytest.raises(ad.UnsupportedTypeError, match="different dictionaries"):
            ad.to_tensor(pa.chunked_array([chunk(["a", "b"]), chunk(["b", "a"])]))
        equal = pa.chunked_array([chunk(["a", "b"]), chunk(["a", "b"])])
        tensor = converted(equal)
        codes = [0, 1, 1, 1] * 2 if "runs" in wrap else [0, 1] * 2
        assert np.from_dlpack(tensor).reshape(-1).tolist() == codes
        back = pa.array(tensor)
        flat = back.flatten() if "lists" in wrap else back
        assert flat.to_pylist() == [["a", "b"][code] for code in codes]


class TestOnTheWayBack:
    def test_filled_codes_are_codes_of_nothing(self):
        back = pa.array(ad.to_tensor(COLUMN, nulls=-1))
        assert back.to_pylist() == [0, -1, -1, 3, 1]
        assert back.type == pa.int8()

    def test_cast_codes_are_numbers(self):
        assert pa.array(ad.to_tensor(COLUMN[3:], dictionary="codes", dtype="int64")).type == pa.int64()

    def test_codes_that_were_changed_stand_for_other_values(self):
        tensor = ad.to_tensor(COLUMN[3:], writable=True)
        np.from_dlpack(tensor)[:] = [0, 2]
        assert pa.array(tensor).to_pylist() == ["a", None]

    @pytest.mark.parametrize("code", [4, -1, 127])
    @pytest.mark.parametrize("options", [{"writable": True}, {"copy": True}], ids=str)
    def test_codes_beyond_the_dictionary_are_refused(self, code: int, options):
        batch = pa.record_batch({"letter": COLUMN[3:]})
        tensor = ad.to_tensors(batch, **options)["letter"]
        np.from_dlpack(tensor)[1] = code
        for convert in (pa.array, ad.to_arrow, ad.from_arrow):
            with pytest.raises(ValueError, match=f"code {code} is beyond the dictionary's 4 values") as caught:
                convert(tensor)
            assert (caught.value.column, caught.value.row) == ("letter", 1)
            assert caught.value.remedy

    def test_codes_in_the_slots_of_nulls_are_not_trusted(self):
        """A null's slot can hold anything; without its null it would be an index beyond the dictionary."""
        source = unchecked(bytes([0, 100, 1]), 0b101, LETTERS)
        tensor = converted(source, nulls="keep", copy=False)
        with pytest.raises(ad.ConversionError, match="code 100") as caught:
            pa.array(tensor)
        assert caught.value.row == 1
        assert "validity=" in caught.value.remedy
        back = pa.array(ad.to_arrow(tensor, validity=ad.validity(source), copy=False))
        back.validate(full=True)
        assert back.to_pylist() == ["a", None, "b"]
        assert back.indices.buffers()[1].address == source.indices.buffers()[1].address
        # In lists, a bool for each row does not tell the nulls of items.
        lists = pa.FixedSizeListArray.from_arrays(unchecked(bytes([0, 100, 1, 1]), 0b1101, LETTERS), 2)
        tensor = ad.to_tensor(lists, nulls="keep")
        with pytest.raises(ad.ConversionError, match="code 100"):
            pa.array(tensor)
        back = pa.array(ad.to_arrow(tensor, validity=np.array([False, True])))
        assert back.to_pylist() == [None, ["b", "b"]]
        # Readers look at the items of null lists too.
        back.validate(full=True)
        assert back.values.null_count == 2

    def test_items_of_null_lists_are_null_where_their_codes_have_no_value(self):
        lists = pa.FixedSizeListArray.from_arrays(encoded([1] * 20, LETTERS), 2)
        tensor, valid = ad.to_tensor(lists, writable=True), np.arange(10) == 9
        assert pa.array(ad.to_arrow(tensor, validity=valid)).values.null_count == 0
        np.from_dlpack(tensor)[:9] = 100
        back = pa.array(ad.to_arrow(tensor, validity=valid))
        back.validate(full=True)
        assert back.values.is_valid().to_pylist() == [False] * 18 + [True] * 2
        assert back.values.null_count == 18

    def test_of_an_empty_dictionary(self):
        source = encoded([None, None], pa.array([], pa.string()))
        for options in ({}, {"copy": True}):
            tensor = ad.to_tensor(source, nulls="keep", **options)
            with pytest.raises(ad.ConversionError, match="0 values"):
                pa.array(tensor)
            assert pa.array(ad.to_arrow(tensor, validity=ad.validity(source))).equals(source)

    def test_a_tensor_keeps_its_dictionary_alive(self):
        tensor = ad.to_tensor(encoded([1, 0], pa.array(["x" * 100, "y" * 100])))
        back = pa.array(tensor)
        del tensor
        assert back.to_pylist() == ["y" * 100, "x" * 100]

    def test_requests_are_met_or_refused(self):
        tensor = ad.to_tensor(COLUMN[3:])
        assert pa.array(tensor, pa.string()).to_pylist() == ["d", "b"]
        wider = pa.dictionary(pa.int32(), pa.large_string())
        assert pa.array(tensor, wider).to_pylist() == ["d", "b"]
        assert pa.array(ad.to_arrow(tensor, type=pa.string())).to_pylist() == ["d", "b"]
        numbers = ad.to_tensor(encoded([1, 0], pa.array([1, 300])))
        assert pa.array(ad.to_arrow(numbers, type=pa.int16())).to_pylist() == [300, 1]
        with pytest.raises(ValueError, match="Int8"):
            ad.to_arrow(numbers, type=pa.int8())
        with pytest.raises(ad.CopyError):
            ad.to_arrow(numbers, type=pa.int64(), copy=False)

    def test_ordered_dictionaries_stay_ordered(self):
        ordered = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), pa.array(["lo", "hi"]), ordered=True)
        assert pa.array(ad.to_tensor(ordered)).type == ordered.type


def test_values_that_have_no_tensor_form_name_the_codes():
    for options in ({"dictionary": "values"}, {"dtype": "float32"}):
        with pytest.raises(ad.UnsupportedTypeError) as caught:
            ad.to_tensors(pa.record_batch({"letter": COLUMN}), **options)
        assert caught.value.column == "letter"
        assert 'dictionary="codes"' in caught.value.remedy


@pytest.mark.parametrize("codes", [bytes([0, 1, 9]), bytes([0, 1, 255])], ids=["beyond", "negative"])
def test_codes_out_of_range_meet_a_null_in_the_dictionary(codes: bytes):
    """Whether such a code is null cannot be told, so that it is an error also where nulls are kept."""
    batch = pa.record_batch({"letter": unchecked(codes, None, LETTERS)})
    for call in (
        lambda: ad.to_tensors(batch, nulls="keep"),
        lambda: ad.to_tensors(batch, nulls=0),
        lambda: ad.to_tensors(pa.table({"letter": pa.chunked_array([COLUMN, batch["letter"]])}), nulls=0),
    ):
        with pytest.raises(ad.ConversionError, match="beyond the dictionary's 4 values") as caught:
            call()
        assert caught.value.column == "letter"
        assert caught.value.row in (2, 7)
    assert "beyond" in ad.explain(batch)["letter"].error
    with pytest.raises(ad.ConversionError, match="beyond"):
        ad.validity(batch["letter"])
    for options in ({"dictionary": "values"}, {"dtype": "float32"}):
        numbers = unchecked(codes, None, pa.array([1, None, 3]))
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_tensors(pa.record_batch({"n": numbers}), nulls=0, **options)
        assert caught.value.column == "n"


def test_codes_in_the_nulls_of_a_struct_need_not_be_valid():
    for values in (pa.array([5, 6]), pa.array([5, None])):
        codes = unchecked(bytes([0, 0, 99, 200]), None, values)
        struct = pa.StructArray.from_arrays([codes], ["x"], mask=pa.array([False, False, True, True]))
        for options, found in (({}, [0, 0, 7, 7]), ({"dictionary": "values"}, [5, 5, 7, 7])):
            tensor = ad.to_tensors(struct, nulls=7, **options)["x"]
            assert np.from_dlpack(tensor).tolist() == found
        tensor = ad.to_tensors(struct, nulls="keep")["x"]
        with pytest.raises(ad.ConversionError, match="code 99") as caught:
            pa.array(tensor)
        assert (caught.value.column, caught.value.row) == ("x", 2)


class TestPolars:
    def test_categories(self):
        series = pl.Series("c", ["b", None, "a", "b"], dtype=pl.Categorical)
        tensor = converted(series, nulls="keep")
        assert tensor.dtype == "uint32"
        valid = np.from_dlpack(ad.validity(series))
        assert valid.tolist() == [True, False, True, True]
        back = pa.array(ad.to_arrow(tensor, validity=valid))
        assert back.to_pylist() == ["b", None, "a", "b"]

    def test_enums(self):
        series = pl.Series("e", ["lo", "hi", "lo"], dtype=pl.Enum(["lo", "mid", "hi"]))
        tensor = converted(series, copy=False)
        assert np.from_dlpack(tensor).tolist() == [0, 2, 0]
        assert pl.Series("e", tensor).equals(series)


@pytest.mark.xfail(
    raises=AssertionError,
    reason="arrow-rs has no field for the values of a dictionary, so that an extension type is lost",
)
@pytest.mark.parametrize("way", ["through", "values"])
def test_values_of_an_extension_type_keep_it(way: str):
    bool8 = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1], pa.int8()))
    source = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int8()), bool8)
    if way == "through":
        assert pa.array(ad.from_arrow(source)).type == source.type
    else:
        assert ad.to_tensor(source, dictionary="values").dtype == "bool"


def test_a_bitmap_marks_no_codes_of_null_values():
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    assert np.asarray(ad.validity(codes)).tolist() == [True, False, False]
    bits, offset = ad.validity(codes, bits=True)
    assert (offset, np.asarray(bits)[0] & 0b111) == (0, 0b011)
