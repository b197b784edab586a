"""Do columns become the codes of categories in every function, and what is refused?"""

import copy
import pickle

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

CARRIERS = ["AA", "DL", "UA"]
ROWS = ["UA", None, "AA", "DL", "UA"]


def codes(rows, **options):
    return np.from_dlpack(ad.to_tensor(rows, **options)).tolist()


@pytest.mark.parametrize("unknown", [0, {"x": 0}, {"x": "error"}])
def test_unknown_codes_by_column_need_categories(unknown: object):
    batch = pa.record_batch({"x": [1, 2]})
    for convert in (ad.to_tensors, lambda obj, **keywords: ad.Loader(obj, batch_size=1, **keywords)):
        with pytest.raises(ValueError, match="none of categories=: pass both"):
            convert(batch, unknown=unknown)


@pytest.mark.parametrize(
    "vocabulary",
    [
        CARRIERS,
        tuple(CARRIERS),
        pa.array(CARRIERS),
        pa.chunked_array([CARRIERS[:1], CARRIERS[1:]]),
        pa.array(CARRIERS, pa.large_string()),
        pa.array(CARRIERS, pa.string_view()),
        pl.Series(CARRIERS),
    ],
    ids=lambda vocabulary: type(vocabulary).__name__,
)
def test_every_layout_of_column_and_categories(vocabulary):
    columns = [
        pa.array(ROWS),
        pa.array(ROWS, pa.large_string()),
        pa.array(ROWS, pa.string_view()),
        pa.array(ROWS).dictionary_encode(),
        pa.chunked_array([ROWS[:2], ROWS[2:]]),
        pl.Series(ROWS),
        pl.Series(ROWS, dtype=pl.Categorical),
        pl.Series(ROWS, dtype=pl.Enum(["DL", "UA", "AA"])),
        pd.Series(ROWS, dtype="string"),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4, 5], pa.array(ROWS)),
    ]
    for column in columns:
        assert codes(column, categories=vocabulary, nulls=3) == [2, 3, 0, 1, 2]
        assert codes(column, categories=vocabulary, nulls=-100, dtype="int64") == [2, -100, 0, 1, 2]


def test_bytes_and_integers():
    assert codes(pa.array([b"b", b"a"]), categories=[b"a", b"b"]) == [1, 0]
    assert codes(pa.array([7, 5, 9], pa.int16()), categories=[5, 7], unknown=2) == [1, 0, 2]
    assert codes(pa.array([7, 2**63], pa.uint64()), categories=[2**63, 7]) == [1, 0]
    assert codes(pa.array([7, 5]), categories=np.array([5, 7])) == [1, 0]
    assert codes(pa.array([7, 5, 7]).dictionary_encode(), categories=[5, 7]) == [1, 0, 1]


def test_tensor_dictionary_is_the_vocabulary():
    tensor = ad.to_tensor(pa.array(ROWS), categories=CARRIERS, nulls=3)
    assert pa.array(tensor.dictionary).to_pylist() == CARRIERS
    for twin in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor), tensor.to_device("cpu")):
        assert pa.array(twin.dictionary).to_pylist() == CARRIERS
        assert np.from_dlpack(twin).tolist() == [2, 3, 0, 1, 2]
    # Codes with a fill among them are no dictionary's.
    assert pa.array(tensor).type == pa.int32()
    whole = ad.to_tensor(pa.array(["UA", "AA"]), categories=CARRIERS)
    assert pa.array(whole).to_pylist() == ["UA", "AA"]
    assert pa.array(pickle.loads(pickle.dumps(whole))).to_pylist() == ["UA", "AA"]
    encoded = pa.array(["x", "y"]).dictionary_encode()
    assert pa.array(ad.to_tensor(encoded).dictionary).to_pylist() == ["x", "y"]
    assert ad.to_tensor(pa.array([1, 2])).dictionary is None


def table(rows=None):
    rows = rows or ["UA", "AA", "DL", "UA"]
    count = range(len(rows))
    return pa.table({"carrier": rows, "day": [row % 2 + 5 for row in count], "x": [float(row) for row in count]})


def test_tables_groups_and_matrices():
    categories = {"carrier": CARRIERS, "day": [5, 6], "x": None}
    tensors = ad.to_tensors(table(), categories=categories)
    assert np.from_dlpack(tensors["carrier"]).tolist() == [2, 0, 1, 2]
    assert np.from_dlpack(tensors["day"]).tolist() == [0, 1, 0, 1]
    assert tensors["x"].dtype == "float64"
    groups = {"ids": ["carrier", "day"], "all": ad.group(["carrier", "x"], dtype="float32", validity="valid")}
    named = ad.to_tensors(table(), columns=groups, categories=categories, xp=np)
    assert named["ids"].tolist() == [[2, 0], [0, 1], [1, 0], [2, 1]]
    assert named["ids"].dtype == np.int32
    assert named["all"].tolist() == [[2, 0], [0, 1], [1, 2], [2, 3]]
    assert named["valid"].all()
    with pytest.raises(ad.ConversionError, match="codes of categories"):
        ad.to_tensor(table(), categories=categories)
    out = np.empty((4, 2), np.int64)
    ad.to_tensor(table(), columns=["carrier", "day"], categories=categories, out=out)
    assert out.tolist() == [[2, 0], [0, 1], [1, 0], [2, 1]]


def test_unknown_values():
    rows = pa.chunked_array([["UA"], ["AA", "B6", None]])
    with pytest.raises(ad.CastError, match='the value "B6" is none of the 3 categories') as caught:
        ad.to_tensor(rows, categories=CARRIERS)
    assert caught.value.row == 2
    assert "unknown=" in caught.value.remedy
    with pytest.raises(ad.CastError, match="B6") as caught:
        ad.to_tensors(table(["UA", "B6"]), categories={"carrier": CARRIERS})
    assert (caught.value.column, caught.value.row) == ("carrier", 1)
    # A null that is refused lies behind it.
    with pytest.raises(ad.NullError):
        ad.to_tensor(rows, categories=CARRIERS, unknown=3)
    assert codes(rows, categories=CARRIERS, unknown=3, nulls=4) == [2, 0, 3, 4]
    both = pa.table({"a": ["x"], "b": ["y"]})
    options = {"categories": {"a": ["b"], "b": ["a"]}, "unknown": {"a": 7, "b": -1}}
    assert np.from_dlpack(ad.to_tensor(both, **options)).tolist() == [[7, -1]]


def test_explain_says_that_values_are_encoded():
    for subject in (table(), table().schema):
        report = ad.explain(subject, categories={"carrier": CARRIERS})
        assert report[0].steps[0] == "encoded by 3 categories"
        assert report[0].dtype == "int32"
    report = ad.explain(pa.array(["UA", "B6"]), categories=CARRIERS)
    assert "B6" in str(report[0].error)
    assert report[0].how == "refused"
    with pytest.raises(ad.CopyError, match="encoded by 3 categories"):
        ad.to_tensor(pa.array(["UA"]), categories=CARRIERS, copy=False)
    with ad.track_copies() as log:
        ad.to_tensor(pa.array(["UA"]), categories=CARRIERS)
    assert [entry.why for entry in log] == ["encoded by 3 categories"]


@pytest.mark.parametrize(
    ("categories", "error", "match"),
    [
        (["a", "b", "a"], ad.ConversionError, 'category 2 is "a", as category 0 is'),
        ([1, 1], ad.ConversionError, "category 1 is 1"),
        (pa.array(["a", None]), ad.ConversionError, "category 1 is null"),
        (pa.chunked_array([["a"], ["b", None]]), ad.ConversionError, "category 2 is null"),
        (pa.chunked_array([["a"], ["b", "a"]]), ad.ConversionError, 'category 2 is "a", as category 0 is'),
        (["a", None], TypeError, "no None"),
        (["a", 1], TypeError, "strings, bytes or integers alone"),
        ([1, True], TypeError, "strings, bytes or integers alone"),
        ([1.5], TypeError, "strings, bytes or integers alone"),
        ([], ValueError, "empty list"),
        ("abc", TypeError, "a list of values or an Arrow array"),
        ([2**64], ValueError, "uint64"),
        (pa.array([1.5]), ad.ConversionError, "double|Float64"),
        (pa.array(["a"]).dictionary_encode(), ad.ConversionError, "pass the dictionary's values"),
        (pa.nulls(2**31), ad.ConversionError, "more than int32 has codes"),
        ([1, 2], ad.ConversionError, "a Utf8 column cannot be looked up in Int64 categories"),
        ({"y": ["a"]}, ad.ConversionError, "y"),
    ],
)
def test_wrong_categories(categories, error, match):
    with pytest.raises(error, match=match):
        ad.to_tensor(pa.array(["a"]), categories=categories)


@pytest.mark.parametrize("unknown", ["ignore", 1.5, True, 2**31, [1]])
def test_wrong_codes_of_unknown_values(unknown):
    with pytest.raises(ValueError, match="unknown must be"):
        ad.to_tensor(pa.array(["a"]), categories=["a"], unknown=unknown)


def test_codes_of_unknown_values_need_categories():
    for options in (
        {"unknown": 1},
        {"categories": {"a": ["x"]}, "unknown": {"b": 1}},
        {"categories": ["x"], "unknown": {"b": 1}},
    ):
        with pytest.raises(ValueError, match="unknown="):
            ad.to_tensor(pa.array(["x"]), **options)


def loader(source=None, **options):
    options = {"batch_size": 2, "columns": {"c": "carrier", "d": ["day", "carrier"]}} | options
    categories = {"carrier": CARRIERS, "day": pa.array([5, 6])}
    return ad.Loader(source or table(), categories=categories, xp=np, **options)


def test_a_loader_has_what_the_function_has():
    expected = ad.to_tensors(
        table(),
        columns={"c": "carrier", "d": ["day", "carrier"]},
        xp=np,
        categories={"carrier": CARRIERS, "day": [5, 6]},
    )
    for source in (
        table(),
        pa.table({name: table()[name].combine_chunks().dictionary_encode() for name in ("carrier", "day")}),
    ):
        for prefetch in (0, 2):
            batches = list(loader(source, prefetch=prefetch))
            for name in ("c", "d"):
                assert np.concatenate([batch[name] for batch in batches]).tolist() == expected[name].tolist()
    tensors = list(ad.Loader(table(), batch_size=4, columns={"c": "carrier"}, categories={"carrier": CARRIERS}))
    assert pa.array(tensors[0]["c"].dictionary).to_pylist() == CARRIERS


def test_a_loader_shuffles_and_resumes_codes():
    rows = [CARRIERS[row * 7 % 3] for row in range(50)]
    source = table(rows)
    options = {"shuffle_buffer": 16, "seed": 3}
    whole = [batch["c"].tolist() for batch in loader(source, **options)]
    assert sorted(code for batch in whole for code in batch) == sorted(CARRIERS.index(row) for row in rows)
    half = loader(source, **options)
    iterator = iter(half)
    first = [next(iterator)["c"].tolist() for _ in range(10)]
    twin = pickle.loads(pickle.dumps(half))
    assert first + [batch["c"].tolist() for batch in twin] == whole
    # Other categories convert otherwise, so that hashes are not compared: verify="all" says so.
    other = ad.Loader(
        source,
        batch_size=2,
        columns={"c": "carrier", "d": ["day", "carrier"]},
        verify="all",
        categories={"carrier": CARRIERS[::-1], "day": [5, 6]},
        **options,
    )
    other.load_state_dict(half.state_dict())
    with pytest.raises(ad.ConversionError):
        next(iter(other))


def test_an_unknown_value_is_an_error_of_its_batch():
    rows = ["UA"] * 7 + ["B6"] + ["UA"] * 4
    for options in ({}, {"prefetch": 0}, {"columns": {"c": "carrier"}}, {"columns": ["carrier", "day"]}):
        batches = iter(loader(table(rows), **options))
        for _ in range(3):
            next(batches)
        with pytest.raises(ad.CastError, match='"B6" is none of the 3 categories') as caught:
            next(batches)
        assert (caught.value.column, caught.value.row) == ("carrier", 7)
        with pytest.raises(StopIteration):
            next(batches)
    # The batch is another rank's.
    assert len(list(loader(table(rows), rank=0, world_size=2))) == 3
    (all_rows,) = ad.Loader(
        table(rows), batch_size=12, columns=["carrier"], categories={"carrier": CARRIERS}, unknown=9, xp=np
    )
    assert all_rows[7].tolist() == [9]


def test_a_loader_refuses_what_no_data_makes_possible():
    with pytest.raises(ad.ConversionError, match=r"a (Double|Float64) column cannot be looked up"):
        ad.Loader(table(), batch_size=2, categories={"x": ["a"]}, columns=["x"])
    with pytest.raises(ad.ConversionError, match="carier"):
        ad.Loader(table(), batch_size=2, categories={"carier": ["a"]}, columns=["x"])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_bytes_that_are_no_text_are_no_category(kind: pa.DataType):
    offsets = np.array([0, 2, 3, 5], np.int32 if kind == pa.string() else np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"AA\xffDL")]
    values = pa.Array.from_buffers(kind, 3, buffers)
    assert ad.to_tensor(values, categories=["AA", "DL"], unknown=7, xp=np).tolist() == [0, 7, 1]
    with pytest.raises(ad.CastError, match="is none of the 2 categories") as caught:
        ad.to_tensor(values, categories=["AA", "DL"])
    assert caught.value.row == 1


def test_views_of_bytes_that_are_no_text_are_no_category():
    views = pa.array([b"AA", b"\xff", b"DL", b"a value of more than twelve bytes \xff"], pa.binary_view())
    values = pa.Array.from_buffers(pa.string_view(), 4, views.buffers())
    assert ad.to_tensor(values, categories=["AA", "DL"], unknown=7, xp=np).tolist() == [0, 7, 1, 7]
    with pytest.raises(ad.CastError, match="is none of the 2 categories") as caught:
        ad.to_tensor(values, categories=["AA", "DL"])
    assert caught.value.row == 1
