"""`explain(x, to_arrow=True)` against what `to_arrow` does: its copies, its bytes, its type, its errors."""

import itertools

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)
TENSORS = {
    "plain": np.arange(10),
    "strided": np.arange(20)[::2],
    "reversed": np.arange(5.0)[::-1],
    "no rows": np.zeros(0, np.int16),
    "one": np.array(3, np.uint8),
    "bools": np.array([True, False, True] * 5),
    "strided bools": np.array([True, False, True, True] * 5)[::2],
    "rows": np.arange(12, dtype=np.int8).reshape(4, 3),
    "transposed": np.arange(12, dtype=np.int8).reshape(3, 4).T,
    "dense columns": np.asfortranarray(MATRIX),
    "cube": np.arange(24.0).reshape(4, 3, 2),
    "misaligned": np.frombuffer(bytes(33), np.uint8)[1:].view(np.float64),
    "bfloat16": ad.to_tensor(pa.array([1.0, 2.0, 3.0]), dtype="bfloat16"),
    "complex": np.arange(4) + 1j,
    "boolean column": ad.to_tensor(pa.array([True, False, True])),
    "codes": ad.to_tensor(pa.array(["a", "b", "a"]).dictionary_encode(), dictionary="codes"),
}
TYPES = [None, pa.int64(), pa.int8(), pa.float64(), pa.float32(), pa.bool_(), pa.timestamp("ns"), pa.decimal128(20, 2)]


def rows_of(tensor):
    return tensor.shape[0] if tensor.shape else 1


def made(tensor, **options):
    """What `to_arrow` makes, the bytes that it logs, its error."""
    with ad.track_copies() as log:
        try:
            result = ad.to_arrow(tensor, **options)
        except ad.ConversionError as error:
            return None, None, error
    return result, sum(entry.bytes for entry in log), None


def agree(report, result, logged, error):
    errors = [row.error for row in report if row.error]
    if error is not None:
        decided_by_values = any(row.refused_if for row in report)
        assert errors or decided_by_values, (report, error)
        return
    assert not errors, (report, result)
    assert report.bytes == logged, report
    assert all(row.view == (row.bytes == 0 and not row.steps) for row in report)


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("copy", [None, False, True])
def test_of_a_tensor_tells_type_bytes_and_refusals(name, copy):
    tensor = TENSORS[name]
    for type, with_validity in itertools.product(TYPES, [False, True]):
        validity = np.ones(rows_of(tensor), bool) if with_validity else None
        result, logged, error = made(tensor, type=type, validity=validity, copy=copy)
        report = ad.explain(tensor, to_arrow=True, type=type, validity=with_validity, copy=copy)
        agree(report, result, logged, error)
        if error is None:
            assert report[0].arrow_type == ad.explain(result)[0].arrow_type


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize(
    "matrix",
    [MATRIX, np.asfortranarray(MATRIX), MATRIX[::2], MATRIX[:, ::-1], MATRIX[:0], MATRIX > 3, TENSORS["cube"]],
    ids=["rows", "columns", "every second", "reversed", "empty", "bools", "cube"],
)
def test_of_a_matrix_tells_each_column(matrix, copy):
    names = ["a", "b", "c"]
    types = [None, pa.float64(), {"b": pa.int16()}, [None, None, pa.float16()]]
    for type, with_validity in itertools.product(types, [False, True]):
        validity = np.ones(len(matrix), bool) if with_validity else None
        result, logged, error = made(matrix, names=names, type=type, validity=validity, copy=copy)
        report = ad.explain(matrix, to_arrow=True, names=names, type=type, validity=with_validity, copy=copy)
        assert [row.column for row in report] == names
        agree(report, result, logged, error)


def test_says_what_is_done():
    (row,) = ad.explain(np.arange(6)[::2], to_arrow=True, type=pa.int8(), validity=True)
    assert row.steps == ["strided elements gathered", "validity packed to bits", "cast to the requested type"]
    assert (row.arrow_type, row.dtype, row.shape, row.bytes) == ("Int8", "int64", (3,), 24 + 1 + 3)
    assert row.refused_if == ["a value is none of the requested type"]
    report = ad.explain(MATRIX, to_arrow=True, names=["a", "b", "c"])
    assert [row.steps for row in report] == [["rows split into columns"]] * 3
    assert (report["b"].bytes, report["b"].shape) == (16, (4,))
    assert "refused if a value is none" in str(
        ad.explain(MATRIX, to_arrow=True, type=pa.bool_(), names=["a", "b", "c"])
    )


def test_says_what_only_values_decide():
    (row,) = ad.explain(np.arange(3), to_arrow=True, type=pa.date64())
    assert (row.how, row.refused_if) == ("view", ["a value is none of the requested type"])
    with pytest.raises(ad.ConversionError):
        ad.to_arrow(np.arange(3), type=pa.date64())
    field = pa.field("x", pa.int64(), nullable=False)
    for names in (None, ["x"]):
        tensor = np.arange(3) if names is None else np.arange(3).reshape(3, 1)
        (row,) = ad.explain(tensor, to_arrow=True, type=field, names=names, validity=True)
        assert row.refused_if == ["values are null"]
        with pytest.raises(ad.ConversionError):
            ad.to_arrow(tensor, type=field, names=names, validity=np.array([True, False, True]))


def test_says_that_codes_of_nulls_are_refused():
    def codes(values):
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(values))
        return ad.to_tensor(column, nulls="keep")

    for type in (pa.dictionary(pa.int8(), pa.string()), pa.string()):
        strict = pa.field("x", type, nullable=False)
        (row,) = ad.explain(codes(["a", None]), to_arrow=True, type=strict)
        assert "values are null" in row.refused_if
        with pytest.raises(ad.NullError):
            ad.to_arrow(codes(["a", None]), type=strict)
        for tensor, field in ((codes(["a", "b"]), strict), (codes(["a", None]), pa.field("x", type))):
            assert "values are null" not in ad.explain(tensor, to_arrow=True, type=field)[0].refused_if
            ad.to_arrow(tensor, type=field)
    assert ad.explain(codes(["a", None]), to_arrow=True)[0].refused_if == []


def test_nulls_of_a_field_that_has_none_make_it_nullable():
    batch = pa.record_batch([pa.array([1.0, 2.0])], schema=pa.schema([pa.field("x", pa.float64(), nullable=False)]))
    tensor = ad.to_tensors(batch)["x"]
    for source, names in ((tensor, None), (np.from_dlpack(tensor).reshape(2, 1), ["x"])):
        (row,) = ad.explain(source, to_arrow=True, names=names, validity=True)
        assert row.refused_if == []
        ad.to_arrow(source, names=names, validity=np.array([True, False]))


def test_misaligned_elements_are_copied_once():
    """They were realigned as they came in, and copied again for copy=True."""
    with ad.track_copies() as log:
        ad.to_arrow(TENSORS["misaligned"], copy=True)
    assert [(entry.bytes, entry.why) for entry in log] == [(32, "values not aligned for float64 realigned")]


def test_copies_and_writes_nothing():
    with ad.track_copies() as log:
        ad.explain(TENSORS["strided"], to_arrow=True, type=pa.int8())
    assert len(log) == 0


def test_no_copy_is_refused_in_its_row():
    (row,) = ad.explain(np.arange(6)[::2], to_arrow=True, copy=False)
    assert row.how == "refused"
    assert "24 bytes" in row.error
    report = ad.explain(MATRIX, to_arrow=True, names=["a", "b", "c"], copy=False)
    assert all("rows split into columns" in row.error for row in report)


def test_a_type_without_a_cast_is_refused_in_its_row():
    (row,) = ad.explain(np.arange(3), to_arrow=True, type=pa.binary())
    with pytest.raises(ad.ConversionError) as raised:
        ad.to_arrow(np.arange(3), type=pa.binary())
    assert row.error.split(";")[0] == str(raised.value).split(";")[0]


@pytest.mark.parametrize(
    "options",
    [
        {"columns": ["a"]},
        {"dtype": "int8"},
        {"order": "C"},
        {"writable": True},
        {"pad": (0, None)},
        {"categories": [1]},
    ],
)
def test_takes_only_what_to_arrow_takes(options):
    with pytest.raises(ValueError, match="to_arrow=True goes with"):
        ad.explain(np.arange(3), to_arrow=True, **options)
    for own in ({"type": pa.int8()}, {"names": ["a"]}):
        with pytest.raises(ValueError, match="type and names with to_arrow=True"):
            ad.explain(np.arange(3), **own)


def test_names_that_are_no_columns_of_the_matrix():
    for wrong in (["a"], ["a", "b", "b"]):
        with pytest.raises(ad.ConversionError):
            ad.explain(MATRIX, to_arrow=True, names=wrong)
    with pytest.raises(TypeError, match="to_arrow expects a tensor"):
        ad.explain(pa.array([1]).to_pylist(), to_arrow=True)


ROWS = {
    "lists": pa.array([[1, 2], [], [3]]),
    "large lists": pa.array([[1.5], [2.5, 3.5]], pa.large_list(pa.float32())),
    "sliced": pa.array([[1, 2], [], [3]])[1:],
    "nulls": pa.array([[1], None, [2, 3]]),
    "bools": pa.array([[True], [False, True]]),
    "nested": pa.array([[[1], [2, 3]], [], [[4]]]),
    "nested text": pa.array([["a", "bc"], []]),
    "text": pa.array(["a", "", "bcd"]),
    "null text": pa.array(["a", None, "bcd"]),
    "large text": pa.array(["a", "", "bcd"], pa.large_string()),
    "bytes": pa.array([b"a", b"bc"]),
    "views": pa.array(["a", "a string of more than twelve bytes"], pa.string_view()),
    "list views": pa.array([[1, 2], [], [3]], pa.list_view(pa.int32())),
    "empty": pa.array([], pa.list_(pa.int8())),
    "codes": pa.array([["a"], ["b", "a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
}
ROW_TYPES = [None, pa.list_(pa.int64()), pa.list_(pa.float64()), pa.large_string(), pa.binary(), pa.string_view()]


@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("name", ROWS)
def test_of_ragged_rows_tells_each_part(name, copy):
    rows = ad.to_ragged(ROWS[name], nulls="keep")
    for type in ROW_TYPES:
        result, logged, error = made(rows, type=type, copy=copy)
        report = ad.explain(rows, to_arrow=True, type=type, copy=copy)
        if error is not None:
            assert any(row.error for row in report) or any(row.refused_if for row in report), (report, error)
            continue
        assert not any(row.error for row in report), (report, result)
        casts = any("cast to the requested type" in row.steps for row in report)
        assert logged == report.bytes if not casts else logged >= report.bytes, (type, report)
        assert report[0].arrow_type == ad.explain(result, nulls="keep")[0].arrow_type, (type, report)


@pytest.mark.parametrize("of", [pa.string(), pa.binary(), pa.string_view()], ids=str)
def test_of_bytes_tells_which_lists_and_which_casts_are_made(of):
    rows = ad.to_ragged(pa.array(["7", "12"], pa.string()).cast(of))
    own = (pa.list_ if rows.offsets.dtype == "int32" else pa.large_list)(pa.uint8())
    for copy in (None, False):
        report = ad.explain(rows, to_arrow=True, type=own, copy=copy)
        assert [row.how for row in report] == ["view", "view"]
        assert pa.array(ad.to_arrow(rows, type=own, copy=copy)).to_pylist() == [[55], [49, 50]]
    types = [pa.int64(), pa.list_(pa.int32()), pa.list_(pa.float32(), 2), pa.dictionary(pa.int8(), of), pa.null()]
    for type, copy in itertools.product(types, (None, False)):
        result, _, error = made(rows, type=type, copy=copy)
        row = ad.explain(rows, to_arrow=True, type=type, copy=copy)["values"]
        if error is not None:
            assert (row.error and row.error in str(error)) or row.refused_if, (type, copy, row, error)
        else:
            assert row.error is None, (type, row, result)
            assert row.steps == ["cast to the requested type"]


def test_of_ragged_rows_says_which_nulls_are_refused():
    words = pa.array([["a", None], None, ["b"]])
    rows = ad.to_ragged(words, nulls="keep")
    any_item, strict_item = pa.field("item", pa.string()), pa.field("item", pa.string(), nullable=False)
    for field, parts in [
        (pa.field("x", pa.list_(any_item)), []),
        (pa.field("x", pa.list_(any_item), nullable=False), ["x.validity"]),
        (pa.field("x", pa.list_(strict_item)), ["x.values.validity"]),
        (pa.field("x", pa.list_(strict_item), nullable=False), ["x.validity", "x.values.validity"]),
    ]:
        report = ad.explain(rows, to_arrow=True, type=field)
        assert [row.column for row in report if row.refused_if == ["values are null"]] == parts
        if not parts:
            ad.to_arrow(rows, type=field)
            continue
        with pytest.raises(ad.NullError):
            ad.to_arrow(rows, type=field)
    filled = ad.to_ragged(words[2:])
    assert not any(row.refused_if for row in ad.explain(filled, to_arrow=True, type=field))
    ad.to_arrow(filled, type=field)
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    rows = ad.to_ragged(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), dictionary), nulls="keep")
    field = pa.field("x", pa.list_(pa.field("item", dictionary.type, nullable=False)))
    assert ad.explain(rows, to_arrow=True, type=field)["x.values"].refused_if == ["values are null"]
    with pytest.raises(ad.NullError):
        ad.to_arrow(rows, type=field)


def test_strided_parts_of_rows_are_gathered():
    values = np.arange(8, dtype=np.int16)[::2]
    rows = ad.Ragged(values, np.array([0, 1, 4]))
    report = ad.explain(rows, to_arrow=True)
    assert [(row.column, row.steps, row.bytes) for row in report] == [
        ("offsets", [], 0),
        ("values", ["strided elements gathered"], 8),
    ]
    assert ad.explain(rows, to_arrow=True, copy=False)["values"].how == "refused"
    with pytest.raises(TypeError, match="validity belongs to the Ragged"):
        ad.explain(rows, to_arrow=True, validity=True)
    with pytest.raises(ad.ConversionError, match="leave names out"):
        ad.explain(rows, to_arrow=True, names=["a"])


def test_says_that_bytes_may_be_no_text():
    rows = ad.to_ragged(pa.array([b"a", b"\xff"]))
    report = ad.explain(rows, to_arrow=True, type=pa.string())
    assert report["values"].refused_if == ["the bytes of a row are not UTF-8"]
    with pytest.raises(ad.ConversionError, match="UTF-8"):
        ad.to_arrow(rows, type=pa.string())
    assert ad.explain(rows, to_arrow=True)["values"].refused_if == []
    assert ad.explain(ad.to_ragged(pa.array(["a"])), to_arrow=True)["values"].refused_if == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_strided_bytes_are_gathered_once(kind):
    offsets = np.array([0, 1, 3], np.int64 if kind == pa.large_string() else np.int32)
    rows = ad.Ragged(np.frombuffer(b"a-b-c-", np.uint8)[::2], offsets)
    report = ad.explain(rows, to_arrow=True, type=kind)
    assert report["values"].steps == ["strided elements gathered"]
    with ad.track_copies() as log:
        array = pa.array(ad.to_arrow(rows, type=kind))
    assert array.cast(pa.string()).to_pylist() == ["a", "bc"]
    assert [(entry.why, entry.bytes) for entry in log] == [("strided elements gathered", 3)]
    assert report["values"].bytes == log.bytes
    with pytest.raises(ad.CopyError):
        ad.to_arrow(rows, type=kind, copy=False)
