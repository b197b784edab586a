"""Errors about columns name every column that is wrong; a Loader raises them when it is made, and reads nothing."""

import arrow_dlpack as ad
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

TABLE = pa.table(
    {
        "height": [1.0, None, 3.0],
        "weight": [4.0, 5.0, None],
        "name": ["a", "b", "c"],
        "city": ["d", "e", "f"],
        "tags": [[1], [2], [3]],
    }
)
BATCH = TABLE.combine_chunks().to_batches()[0]
NUMBERS = TABLE.select(["height", "weight"])


def sources(table: pa.Table):
    """The forms that data has: one chunk in hand, chunks, a stream, and each by another library."""
    return {"batch": table.combine_chunks().to_batches()[0], "table": table, "reader": table.to_reader()}


def caught(work, *arguments, **options) -> ad.ConversionError:
    with pytest.raises(ad.ConversionError) as error:
        work(*arguments, **options)
    return error.value


def loader(source, **options):
    return ad.Loader(source, batch_size=2, **options)


UNKNOWN = {
    "to_tensor": lambda source, names, **options: ad.to_tensor(source, columns=names, **options),
    "to_tensors": lambda source, names, **options: ad.to_tensors(source, columns=names, **options),
    "to_tensors of groups": lambda source, names, **options: ad.to_tensors(
        source, columns={"x": names[:1], "y": names[1:2], **{name: name for name in names[2:]}}, **options
    ),
    "loader": lambda source, names, **options: loader(source, columns=names, **options),
    "loader of groups": lambda source, names, **options: loader(
        source, columns={"x": names[:1], "y": names[1:]}, **options
    ),
    "explain": lambda source, names, **options: ad.explain(source, columns=names, **options),
    "explain of a matrix": lambda source, names, **options: ad.explain(source, columns=names, order="C", **options),
    "explain of groups": lambda source, names, **options: ad.explain(
        source, columns={"x": names[:1], "y": names[1:]}, **options
    ),
}


@pytest.mark.parametrize("form", ["batch", "table", "reader"])
@pytest.mark.parametrize("call", UNKNOWN)
class TestUnknownColumns:
    def test_are_all_named_with_the_nearest(self, call, form):
        error = caught(UNKNOWN[call], sources(TABLE)[form], ["hieght", "weight", "q", "Weight", "z"])
        assert error.column == "hieght"
        assert str(error).splitlines() == [
            'column "hieght": there is no such column; did you mean "height"?',
            'columns "q", "z": there is no such column; the columns are "height", "weight", "name", "city", "tags"',
            'column "Weight": there is no such column; did you mean "weight"?',
        ]

    def test_of_options_too(self, call, form):
        error = caught(
            UNKNOWN[call],
            sources(TABLE)[form],
            ["q", "height"],
            dtype={"hight": "float32"},
            nulls={"z": 0, "weight": 0},
        )
        for text in ('columns "q", "z": there is no such column', 'column "hight": there is no such column'):
            assert text in str(error)


def test_unknown_columns_of_validity_and_ragged_rows():
    assert 'columns "q", "z"' in str(caught(ad.validity, BATCH, columns=["q", "z"]))
    assert 'columns "q", "z"' in str(caught(ad.to_ragged, TABLE["tags"], dtype={"q": "int8"}, nulls={"z": 0}))


def test_a_name_that_is_asked_for_often_is_named_once():
    error = caught(ad.to_tensors, BATCH, columns={"x": ["q", "height"], "y": "q"})
    assert str(error).count('"q"') == 1


def test_an_error_of_a_wide_table_has_an_end():
    wide = pa.table({f"column {number}": [1] for number in range(2000)})
    error = caught(ad.to_tensor, wide, columns=[f"no {number}" for number in range(2000)])
    assert len(str(error)) < 4000
    assert "and 1980 more: there is no such column" in str(error)


TYPES = {
    "to_tensor": lambda source: ad.to_tensor(source),
    "to_tensors": lambda source: ad.to_tensors(source, nulls="nan"),
    "to_tensors of groups": lambda source: ad.to_tensors(source, columns={"x": ["name", "city"], "y": "tags"}),
    "loader": lambda source: loader(source),
    "loader of groups": lambda source: loader(source, columns={"x": ["name", "city"], "y": "tags"}),
}


@pytest.mark.parametrize("form", ["batch", "table", "reader"])
@pytest.mark.parametrize("call", TYPES)
def test_columns_of_refused_types_are_all_named(call, form):
    error = caught(TYPES[call], sources(TABLE)[form])
    assert isinstance(error, ad.UnsupportedTypeError)
    first, second = str(error).splitlines()
    assert first.startswith('columns "name", "city": ')
    assert second.startswith('column "tags": ')
    assert error.column == "name"


def test_what_a_type_refuses_is_told_before_a_null():
    error = caught(ad.to_tensors, BATCH)
    assert isinstance(error, ad.UnsupportedTypeError)


def test_rows_of_bytes_are_all_named():
    pairs = pa.array([b"ab"], pa.binary(2))
    error = caught(ad.to_tensor, pa.table({"a": [1.0], "b": pairs, "c": pairs}))
    for line, name in zip(str(error).splitlines(), ["b", "c"], strict=True):
        assert line.startswith(f'column "{name}": its rows are bytes, of shape [2]')
        # A line to write instead.
        assert f'to_tensor(data["{name}"])' in line


def test_policies_that_cannot_be_met_are_all_named():
    table = pa.table({"a": [1, None], "b": [1, 2], "c": [1.0, 2.0]})
    for work in (ad.to_tensors, loader):
        error = caught(
            work, table, nulls="nan", **({"columns": {"a": "a", "b": "b", "c": "c"}} if work is loader else {})
        )
        assert isinstance(error, ad.NullError)
        assert str(error).startswith('columns "a", "b": ')


class TestExplain:
    def test_each_row_tells_its_own_and_the_matrix_all(self):
        report = ad.explain(BATCH, order="C")
        for name in ("name", "city", "tags"):
            assert report[name].error.startswith(f'column "{name}": ')
            assert "\n" not in report[name].error
        assert report.matrices[0].error.startswith('columns "name", "city": ')

    def test_prints_a_line_for_each_row(self):
        report = ad.explain(BATCH, order="C")
        assert len(str(report).splitlines()) == 2 + len(report)


class TestTheLoader:
    """Columns and options are checked when it is made, against a schema that is known by then."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda: NUMBERS,
            lambda: NUMBERS.to_batches()[0],
            lambda: NUMBERS.to_reader(),
            lambda: pl.from_arrow(NUMBERS),
            lambda: pl.from_arrow(NUMBERS).lazy(),
            lambda: NUMBERS.to_pandas(),
            lambda: [NUMBERS.to_pandas()],
            lambda: ad.from_arrow(NUMBERS),
            lambda: ad.from_arrow(NUMBERS.to_batches()[0]),
        ],
        ids=[
            "table",
            "batch",
            "reader",
            "polars",
            "lazy",
            "pandas",
            "list of pandas",
            "stream of ours",
            "batch of ours",
        ],
    )
    @pytest.mark.parametrize(
        "options",
        [
            {"columns": ["hight"]},
            {"columns": {"x": ["hight"], "y": "q"}},
            {"dtype": {"q": "int8"}},
            {"nulls": "nan", "dtype": "int32"},
            {"nulls": 0.5, "dtype": "int32"},
            {"columns": {}},
        ],
        ids=str,
    )
    def test_says_what_iter_says_and_reads_nothing(self, make, options):
        source = make()
        error = caught(loader, source, **options)
        late = caught(lambda: iter(loader(lambda: make(), **options)))
        assert (type(error), str(error)) == (type(late), str(late))
        # A stream can be read as before.
        assert len(list(ad.Loader(source, batch_size=1, nulls="nan"))) == 3

    def test_of_one_array(self):
        with pytest.raises(ad.UnsupportedTypeError):
            loader(ad.from_arrow(pa.array(["a"])))
        with pytest.raises(ad.ConversionError, match="no such column"):
            loader(ad.from_arrow(pa.array([1.0])), dtype={"q": "float32"})

    @pytest.mark.parametrize(
        "make",
        [
            lambda: TABLE["height"],
            lambda: TABLE["height"].combine_chunks(),
            lambda: pl.from_arrow(TABLE)["height"],
            lambda: TABLE.to_pandas()["height"],
        ],
        ids=["chunks", "array", "polars", "pandas"],
    )
    def test_of_arrays_of_other_libraries(self, make):
        error = caught(loader, make(), columns=["height"])
        late = caught(lambda: iter(loader(make, columns=["height"])))
        assert (type(error), str(error)) == (type(late), str(late))

    def test_names_alone_where_the_types_are_not_known(self):
        """Of Python objects only the values tell it, and the values are not looked at."""
        frame = pd.DataFrame({"height": [1.0, 2.0], "name": pd.Series(["a", None], dtype=object)})
        error = caught(loader, frame, columns=["hight", "name"])
        assert str(error) == 'column "hight": there is no such column; did you mean "height"?'
        late = loader(frame, columns=["name"])
        assert isinstance(caught(iter, late), ad.UnsupportedTypeError)

    def test_the_index_of_pandas_has_its_names(self):
        def frame(index):
            return pd.DataFrame({"height": [1.0, 2.0]}, index=index)

        for index, name in [
            (pd.Index([5, 3], name="row"), "row"),
            (pd.Index([5, 3]), "__index_level_0__"),
            (pd.MultiIndex.from_tuples([(1, 2), (3, 4)], names=["a", None]), "__index_level_1__"),
            # Slices of it go by labels, which are in no order here.
            (pd.Index([5.5, -3.5], name="row"), "row"),
        ]:
            assert len(list(loader(frame(index), columns=["height", name]))) == 1
            caught(loader, frame(index), columns=["height", "other"])
            # Items of a list have no index.
            caught(loader, [frame(index)], columns=["height", name])
        # A range is no column.
        caught(loader, frame(pd.RangeIndex(2, name="row")), columns=["row"])

    def test_never_asks_a_callable_or_opens_a_stream(self):
        opened = []

        def callable_source():
            opened.append(1)
            return NUMBERS

        loader(callable_source, columns=["q"])

        class Stream:
            def __arrow_c_stream__(self, requested_schema=None):
                return callable_source().__arrow_c_stream__(requested_schema)

        loader(Stream(), columns=["q"])
        assert opened == []

    def test_a_schema_that_raises_is_the_business_of_iter(self):
        class Broken:
            def __arrow_c_schema__(self):
                raise RuntimeError("closed")

            def __arrow_c_stream__(self, requested_schema=None):
                return NUMBERS.__arrow_c_stream__(requested_schema)

        assert len(list(loader(Broken(), nulls=0))) == 2


class TestQueries:
    """A loader knows the columns of a query before it, and running it is the business of `iter`."""

    @pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
    @pytest.mark.parametrize(
        "make", [duckdb.sql, lambda query: duckdb.connect().execute(query)], ids=["sql", "execute"]
    )
    def test_of_duckdb(self, make):
        query = "select range + 0.5 as height, range as weight, 'x' as name from range(3)"
        for options in ({"columns": ["hight", "q"]}, {"columns": {"x": ["q"], "y": "weight"}}, {"nulls": {"q": 0}}):
            error = caught(loader, make(query), **options)
            late = caught(lambda options=options: iter(loader(lambda: make(query), **options)))
            assert (type(error), str(error)) == (type(late), str(late))
        assert [len(batch) for batch in loader(make(query), columns=["weight"])] == [2, 1]

    def test_duckdb_runs_nothing(self):
        relation = duckdb.sql("select error('it ran') as a from range(3)")
        caught(loader, relation, columns=["b"])
        with pytest.raises(Exception, match="it ran"):
            list(loader(relation, columns=["a"]))

    def test_a_connection_without_a_result_tells_nothing(self):
        loader(duckdb.connect(), columns=["q"])

    def test_polars_runs_nothing(self):
        def run(_):
            raise AssertionError("it ran")

        lazy = pl.from_arrow(NUMBERS).lazy().select(pl.col("height").map_batches(run, return_dtype=pl.Float64))
        error = caught(loader, lazy, columns=["weight"])
        assert str(error) == 'column "weight": there is no such column; did you mean "height"?'
        loader(lazy, columns=["height"])

    def test_a_query_that_polars_refuses_is_the_business_of_iter(self):
        late = loader(pl.from_arrow(NUMBERS).lazy().select("nothing"), columns=["height"])
        with pytest.raises(pl.exceptions.ColumnNotFoundError):
            iter(late)

    def test_attributes_that_are_no_names(self):
        """What is called as the columns of a frame or of a cursor, and is neither."""

        class Source:
            columns = ("other",)
            description = "a source"

            def __arrow_c_stream__(self, requested_schema=None):
                return NUMBERS.__arrow_c_stream__(requested_schema)

        assert len(list(loader(Source(), columns=["height"], nulls=0))) == 2


class TestKeptNulls:
    """Batches have no validity, which alone could tell what was null."""

    @pytest.mark.parametrize("make", [lambda: NUMBERS, lambda: lambda: NUMBERS, lambda: pa.array([1.0, None])])
    def test_are_refused(self, make):
        error = caught(loader, make(), nulls="keep")
        assert error.column is None
        assert 'nulls="nan"' in error.remedy
        assert "fill" in error.remedy

    def test_are_refused_by_column(self):
        error = caught(loader, NUMBERS, nulls={"height": "keep", "weight": "keep"})
        assert error.column == "height"
        assert str(error).startswith('columns "height", "weight": ')
        # A column that is not asked for, too: the option has no meaning.
        caught(loader, NUMBERS, columns=["weight"], nulls={"height": "keep", "weight": 0})


@pytest.mark.parametrize(("letters", "is_compared"), [(64, True), (65, False)])
def test_names_of_up_to_64_letters_are_compared_letter_by_letter(letters, is_compared):
    name = "x" * (letters - 1)
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_tensor(pa.table({f"{name}y": [1]}), columns=[f"{name}z"])
    assert (f'did you mean "{name}y"?' in str(caught.value)) == is_compared
