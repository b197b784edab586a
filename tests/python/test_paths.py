"""Fields of structs by path: `columns=["s.a"]` in every function, and the options of the same names."""

import threading

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

ROWS = 30


def nested(rows=ROWS, null_structs=True):
    """A table of a struct of a struct, with nulls at each level, and a column beside it."""
    number = np.arange(rows)
    leaf = pa.array(number.astype("int32"), mask=number % 5 == 1)
    word = pa.array([["lorem", "ipsum", "dolor"][row % 3] for row in range(rows)])
    ids = pa.array([list(range(row % 4)) for row in range(rows)], pa.list_(pa.int64()))
    inner_nulls = pa.array(number % 7 == 2) if null_structs else None
    outer_nulls = pa.array(number % 6 == 3) if null_structs else None
    inner = pa.StructArray.from_arrays([leaf, word], ["c", "word"], mask=inner_nulls)
    plain = pa.array(number.astype("float64"))
    outer = pa.StructArray.from_arrays([plain, inner, ids], ["a", "b", "ids"], mask=outer_nulls)
    return pa.table({"y": pa.array(number), "s": outer})


def expected(table, *path):
    """The rows of a field, None where it or a struct around it is null."""
    rows = table.column(path[0]).to_pylist()
    for name in path[1:]:
        rows = [row and row[name] for row in rows]
    return rows


@pytest.mark.parametrize(
    ("start", "rows", "chunk"), [(0, ROWS, ROWS), (3, 20, ROWS), (8, 13, 5), (0, 0, 7), (1, 29, 4)]
)
@pytest.mark.parametrize("null_structs", [False, True])
def test_values_and_nulls_are_those_of_the_field(start, rows, chunk, null_structs):
    whole = nested(null_structs=null_structs)
    table = pa.Table.from_batches(whole.slice(start, rows).to_batches(max_chunksize=chunk), whole.schema)
    for path in ["s.a", "s.b.c", "y"]:
        wanted = expected(table, *path.split("."))
        got = ad.to_tensors(table, columns=[path], nulls=-1, xp=np)
        assert list(got) == [path]
        assert got[path].tolist() == [-1 if value is None else value for value in wanted]
        valid = ad.to_tensors(table, columns={"x": ad.group([path], validity="v")}, nulls=-1, xp=np)["v"].ravel()
        assert valid.tolist() == [value is not None for value in wanted]
    pairs = [expected(table, "s", "a"), expected(table, "s", "b", "c"), expected(table, "y")]
    wanted = np.array([[np.nan if value is None else value for value in column] for column in pairs]).reshape(3, -1).T
    columns = ["s.a", "s.b.c", "y"]
    matrix = ad.to_tensor(table, columns=columns, dtype="float64", nulls="nan", xp=np)
    np.testing.assert_array_equal(matrix, wanted)
    out = np.empty((rows, 3))
    ad.to_tensor(table, columns=columns, nulls="nan", out=out)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(ad.validity(table, columns=columns, xp=np), ~np.isnan(wanted))
    stream = table.to_reader()
    np.testing.assert_array_equal(ad.to_tensor(stream, columns=columns, dtype="float64", nulls="nan", xp=np), wanted)


def test_a_field_is_a_view():
    table = nested(null_structs=False)
    batch = table.to_batches()[0]
    with ad.track_copies() as log:
        tensor = ad.to_tensor(batch.slice(4, 10), columns=["s.a"], copy=False, xp=np)
        alone = ad.to_tensors(batch.slice(4, 10), columns=["s.a"], copy=False, xp=np)["s.a"]
    assert len(log.entries) == 0
    values = np.frombuffer(batch.column("s").field("a").buffers()[1], "float64")
    assert np.shares_memory(tensor, values)
    assert np.shares_memory(alone, values)
    assert tensor.ravel().tolist() == alone.tolist() == list(range(4, 14))
    report = ad.explain(batch, columns=["s.a"])
    assert [(row.column, row.how) for row in report.rows] == [("s.a", "view")]
    kept = ad.to_tensors(nested().to_batches()[0], columns=["s.a"], nulls="keep", copy=False)
    assert kept["s.a"].shape == (ROWS,)


def test_options_name_the_field_by_the_same_path():
    table = nested()
    columns = {"x": ["s.a", "s.b.c"], "word": "s.b.word", "ids": ad.padded("s.ids"), "raw": ad.arrow("s.b", "y")}
    options = {
        "dtype": {"s.a": "float32", "s.b.c": "float32"},
        "nulls": {"s.a": -1, "s.b.c": -2, "s.b.word": 3, "ids": -4},
        "categories": {"s.b.word": ["dolor", "ipsum", "lorem"]},
    }
    got = ad.to_tensors(table, columns=columns, **options, xp=np)
    assert got["x"].dtype == "float32"
    numbers = [expected(table, "s", "a"), expected(table, "s", "b", "c"), expected(table, "s", "b", "word")]
    fills = [-1, -2, 3]
    code = {"dolor": 0, "ipsum": 1, "lorem": 2}
    filled = [
        [fill if value is None else value for value in column] for column, fill in zip(numbers, fills, strict=True)
    ]
    assert got["x"][:, 0].tolist() == filled[0]
    assert got["x"][:, 1].tolist() == filled[1]
    assert got["word"].tolist() == [code.get(value, value) for value in filled[2]]
    ids = expected(table, "s", "ids")
    assert got["ids"].shape == (ROWS, 3)
    for row, wanted in zip(got["ids"].tolist(), ids, strict=True):
        assert row[: len(wanted or [])] == (wanted or [])
    raw = pa.RecordBatch._import_from_c_capsule(*got["raw"].__arrow_c_array__())
    assert raw.column("s.b").to_pylist() == expected(table, "s", "b")
    assert raw.column("y").to_pylist() == list(range(ROWS))
    report = ad.explain(table, columns=columns, **options)
    assert {row.column for row in report.rows} >= {"s.a", "s.b.c", "word", "ids", "raw"}
    assert not [row for row in report.rows if row.error]
    of_type = ad.explain(table.schema, columns=columns, **options)
    assert {row.column for row in of_type.rows} == {row.column for row in report.rows}


@pytest.mark.parametrize("shuffle", [0, 12])
def test_a_loader_has_the_rows_of_the_functions(shuffle):
    table = nested()
    columns = {"x": ["s.a", "s.b.c"], "word": "s.b.word", "y": "y"}
    options = {"nulls": {"x": -1, "s.b.word": 0}, "categories": {"s.b.word": ["lorem", "ipsum", "dolor"]}}
    whole = ad.to_tensors(table, columns=columns, **options, xp=np)
    chunked = pa.Table.from_batches(table.to_batches(max_chunksize=7))
    loader = {"batch_size": 8, "shuffle_buffer": shuffle, "seed": 1, "columns": columns, "xp": np, **options}
    batches = list(ad.Loader(chunked, **loader))
    order = np.concatenate([batch["y"] for batch in batches])
    assert sorted(order.tolist()) == list(range(ROWS))
    assert (order.tolist() == list(range(ROWS))) == (shuffle == 0)
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([batch[name] for batch in batches]), values[order])
    # A state resumes, with shards too.
    shards = [(table.slice(0, 11), 11), (table.slice(11), ROWS - 11)]
    one = ad.Loader(sources=shards, **loader)
    rows = iter(one)
    first = next(rows)
    state = one.state_dict()
    other = ad.Loader(sources=shards, **loader)
    other.load_state_dict(state)
    left = [batch["y"] for batch in other]
    assert (
        np.concatenate([first["y"], *left]).tolist() == np.concatenate([first["y"], *[b["y"] for b in rows]]).tolist()
    )


def test_categories_of_a_field():
    found = ad.categories(nested(), ["s.b.word", "y"])
    assert pa.array(found["s.b.word"]).to_pylist() == ["dolor", "ipsum", "lorem"]
    assert len(found["y"]) == ROWS


def test_a_column_with_a_dot_in_its_name_wins():
    inner = pa.StructArray.from_arrays([pa.array([5, 6])], ["a"])
    table = pa.table({"s.a": [1, 2], "s": inner})
    assert ad.to_tensors(table, columns=["s.a"], xp=np)["s.a"].tolist() == [1, 2]
    dotted = pa.StructArray.from_arrays([pa.array([7, 8]), inner], ["a.b", "a"])
    table = pa.table({"s": dotted, "t.u": inner})
    assert ad.to_tensors(table, columns=["s.a.b", "s.a.a", "t.u.a"], xp=np)["s.a.b"].tolist() == [7, 8]
    # The longest name wins at each level, even if it leads nowhere.
    table = pa.table({"s.a": inner, "s": pa.StructArray.from_arrays([dotted], ["a"])})
    with pytest.raises(ad.ConversionError, match=r'"s\.a" has no field "b"'):
        ad.to_tensors(table, columns=["s.a.b"])


@pytest.mark.parametrize(
    ("column", "reason", "remedy"),
    [
        ("s.x", 'column "s" has no field "x"', 'its fields are "a", "b", "ids"'),
        ("s.b.words", 'column "s.b" has no field "words"', 'did you mean "word"'),
        ("s.b.", 'column "s.b" has no field ""', 'its fields are "c", "word"'),
        ("y.a", 'column "y" is of type Int64', 'name "y" itself'),
        ("s.a.b", 'column "s.a" is of type Float64', 'name "s.a" itself'),
        ("z.a", "there is no such column", 'the columns are "y", "s"'),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(column, reason, remedy):
    table = nested()
    calls = [
        lambda: ad.to_tensor(table, columns=["y", column]),
        lambda: ad.to_tensors(table.to_reader(), columns={"x": column}),
        lambda: ad.to_tensors(table, columns=["s.a", "y"], nulls={"s.a": 0, column: 1}),
        lambda: ad.explain(table, columns=[column]),
        lambda: ad.explain(table.schema, columns=[column]),
        lambda: ad.validity(table, columns=[column]),
        lambda: ad.Loader(table, columns={"x": column}, batch_size=4),
        lambda: ad.categories(table, column),
    ]
    for call in calls:
        with pytest.raises(ad.ConversionError) as caught:
            call()
        assert caught.value.column == column
        assert reason in str(caught.value)
        assert remedy in str(caught.value)


def test_all_paths_that_lead_nowhere_are_told_at_once():
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_tensor(nested(), columns=["s.x", "y.a", "q", "s.a"])
    assert all(text in str(caught.value) for text in ['"s" has no field "x"', '"y" is of type', '"q"'])


def test_a_stream_is_not_consumed_by_a_wrong_path():
    reader = ad.from_arrow(nested().to_reader())
    with pytest.raises(ad.ConversionError):
        ad.to_tensors(reader, columns=["s.x"])
    assert len(ad.to_tensors(reader, columns=["s.a"], nulls=0)["s.a"]) == ROWS


def test_two_fields_of_one_name_and_structs_as_a_whole_are_errors():
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(ad.ConversionError, match="more than one field"):
        ad.to_tensors(pa.table({"s": twice}), columns=["s.a"])
    for columns in [None, ["s"], ["s.b"]]:
        with pytest.raises(ad.ConversionError):
            ad.to_tensors(nested(), columns=columns)


def test_nulls_that_a_type_cannot_hold_are_refused():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array([1.0, 2.0]))
    for mask in [None, pa.array([False, True, False, False])]:
        table = pa.table({"s": pa.StructArray.from_arrays([runs], ["r"], mask=mask)})
        if mask is None:
            assert ad.to_tensors(table, columns=["s.r"], xp=np)["s.r"].tolist() == [1.0, 1.0, 2.0, 2.0]
            continue
        with pytest.raises(ad.ConversionError, match="has no validity, and its struct has nulls") as caught:
            ad.to_tensors(table, columns=["s.r"], nulls=0)
        assert caught.value.column == "s.r"


def test_a_null_struct_is_refused_by_default_at_its_row():
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_tensors(nested(), columns=["s.a"])
    assert (caught.value.column, caught.value.row) == ("s.a", 3)


def test_many_fields_with_nulls_need_no_deep_stack() -> None:
    count = 4000
    fields = [f"f{number}" for number in range(count)]
    nulls = pa.array([False, False, True])
    structs = pa.StructArray.from_arrays([pa.array([1, None, 3])] * count, fields, mask=nulls)
    table = pa.table({"s": structs})
    made = []

    def convert() -> None:
        made.append(ad.to_tensor(table, columns=[f"s.{name}" for name in fields], nulls=0, xp=np))

    before = threading.stack_size(512 << 10)
    thread = threading.Thread(target=convert)
    thread.start()
    threading.stack_size(before)
    thread.join()
    assert np.array_equal(made[0], np.broadcast_to([[1], [0], [0]], (3, count)))
