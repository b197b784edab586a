"""`requested_schema`, and items of one source, whose types differ below maps, runs, unions and dictionaries."""

from collections.abc import Callable
from decimal import Decimal

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

X = pa.struct([("x", pa.int64()), ("y", pa.int64())])
Y = pa.struct([("y", pa.int64()), ("x", pa.int64())])
Z = pa.struct([("x", pa.int64()), ("z", pa.int64())])
NARROW = pa.struct([("x", pa.int8()), ("y", pa.int64())])


def structs(data_type: pa.StructType, first: int = 1) -> pa.Array:
    """Two rows, whose fields `x` and `y` are 1 and 2, 3 and 4."""
    values = {"x": [first, first + 2], "y": [first + 1, first + 3], "z": [0, 0]}
    return pa.StructArray.from_arrays([pa.array(values[f.name], f.type) for f in data_type], fields=list(data_type))


def runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), values)


def union(values: pa.Array, mode: str, names: tuple[str, str] = ("a", "b")) -> pa.Array:
    children = [values, pa.array([7, 8])]
    if mode == "sparse":
        return pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), children, list(names))
    return pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), children, list(names))


NESTING = {
    "struct": lambda values: values,
    "map": lambda values: pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["k", "l"]), values),
    "keys of a map": lambda values: pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values, pa.array([1, 2])),
    "runs": runs,
    "sparse union": lambda values: union(values, "sparse"),
    "dense union": lambda values: union(values, "dense"),
    "dictionary": lambda values: pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), values),
    "list": lambda values: pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values),
    "list of maps": lambda values: pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), NESTING["map"](values)),
    "fixed lists": lambda values: pa.FixedSizeListArray.from_arrays(values, 1),
    "struct of runs": lambda values: pa.StructArray.from_arrays([runs(values)], names=["r"]),
}


def table(array: pa.Array) -> pa.Table:
    return pa.table({"m": array})


@pytest.mark.parametrize("other", [Y, Z], ids=["order", "name"])
@pytest.mark.parametrize("nesting", NESTING)
class TestFieldsOfOtherNames:
    def test_are_refused_in_a_request(self, nesting: str, other: pa.DataType):
        source, requested = table(NESTING[nesting](structs(X))), table(NESTING[nesting](structs(other)))
        for name in ("table", "batch"):
            data = ad.from_arrow(source if name == "table" else source.to_batches()[0])
            with pytest.raises(ad.CastError, match="requested_schema has the fields") as raised:
                getattr(pa, "table" if name == "table" else "record_batch")(data, schema=requested.schema)
            assert raised.value.remedy is not None

    def test_are_refused_in_one_source(self, nesting: str, other: pa.DataType):
        items = [table(NESTING[nesting](structs(X))), table(NESTING[nesting](structs(other)))]
        reason = 'item 2 of the iterator has column "m" of type'
        # pyarrow raises OSError for the error of a stream.
        with pytest.raises(OSError, match=reason):
            pa.table(ad.from_arrow(items))
        with pytest.raises(ValueError, match=reason):
            ad.to_tensors(items, columns={"r": ad.arrow("m")})

    def test_are_refused_by_a_loader(self, nesting: str, other: pa.DataType):
        items = [table(NESTING[nesting](structs(X))), table(NESTING[nesting](structs(other)))]
        for source in (items, {"first": items[0], "second": items[1]}.values()):
            with pytest.raises(ValueError, match=r'has column "m" of type|one schema'):
                list(ad.Loader(source, batch_size=4, columns={"r": ad.arrow("m")}, xp=np))


@pytest.mark.parametrize("nesting", NESTING)
def test_fields_of_the_same_names_are_given(nesting: str):
    source = table(NESTING[nesting](structs(X)))
    assert pa.table(ad.from_arrow(source), schema=source.schema).to_pylist() == source.to_pylist()
    both = pa.table(ad.from_arrow([source, table(NESTING[nesting](structs(X, 5)))]))
    assert both.slice(0, 2).to_pylist() == source.to_pylist()


@pytest.mark.parametrize("names", [("b", "a"), ("a", "c")], ids=["order", "name"])
@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_fields_of_unions_are_not_renamed(mode: str, names: tuple[str, str]):
    source, other = (table(union(pa.array([1, 2]), mode, which)) for which in (("a", "b"), names))
    with pytest.raises(ad.CastError, match="requested_schema has the fields"):
        pa.table(ad.from_arrow(source), schema=other.schema)
    with pytest.raises(OSError, match="item 2 of the iterator has column"):
        pa.table(ad.from_arrow([source, other]))


def test_names_of_entries_mean_nothing():
    source = pa.array([[("k", {"x": 1, "y": 2})]], pa.map_(pa.string(), X))
    other = pa.map_(pa.field("other key", pa.string(), nullable=False), pa.field("other value", X))
    for requested in (other, pa.map_(pa.string(), NARROW)):
        given = pa.table(ad.from_arrow(table(source)), schema=pa.schema([("m", requested)]))
        assert given.schema.field("m").type == requested
        assert given["m"].to_pylist() == source.to_pylist()
    both = pa.table(ad.from_arrow([table(source), table(source.cast(other))]))
    assert both["m"].to_pylist() == 2 * source.to_pylist()


def strict(data_type: pa.DataType) -> pa.DataType:
    """The type, whose innermost fields are not nullable."""
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_type, pa.field("value", data_type.item_type, nullable=False))
    if pa.types.is_union(data_type):
        fields = [pa.field(f.name, f.type, nullable=False) for f in data_type]
        return pa.union(fields, data_type.mode)
    raise AssertionError(data_type)


NULLS = {
    "map": pa.array([[("k", 1)], [("l", None)]], pa.map_(pa.string(), pa.int64())),
    "sparse union": union(pa.array([1, None]), "sparse"),
    "dense union": union(pa.array([1, None]), "dense"),
}


@pytest.mark.parametrize("name", NULLS)
def test_nulls_below_are_refused_where_a_field_is_not_nullable(name: str):
    source = table(NULLS[name])
    requested = pa.schema([("m", strict(NULLS[name].type))])
    with pytest.raises(ad.NullError) as raised:
        pa.record_batch(ad.from_arrow(source.to_batches()[0]), schema=requested)
    assert raised.value.column == ("value" if name == "map" else "a")
    assert raised.value.row == (None if name == "map" else 1)
    with pytest.raises(pa.ArrowException, match="not nullable"):
        pa.table(ad.from_arrow(source), schema=requested)
    # Another slot may be null: no row shows it.
    shown = pa.table({"m": NULLS[name].slice(0, 1)})
    given = pa.table(ad.from_arrow(shown), schema=requested)
    assert given.schema == requested
    assert given.to_pylist() == shown.to_pylist()
    assert pa.record_batch(ad.from_arrow(shown.to_batches()[0]), schema=requested).to_pylist() == shown.to_pylist()


@pytest.mark.parametrize("kind", ["map", "list", "large list", "list view"])
def test_nulls_under_a_null_row_are_allowed(kind: str):
    """Row 1 is null, and the null below it is one of its own."""
    valid, offsets = pa.py_buffer(b"\x05"), [0, 1, 2, 3]
    items = pa.array([1, None, 3], pa.int64())
    strict_item = pa.field("value", pa.int64(), nullable=False)
    if kind == "map":
        own, requested = pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), strict_item)
        entries = pa.StructArray.from_arrays([pa.array(["a", "b", "c"]), items], fields=[own.key_field, own.item_field])
        buffers, items = [pa.array(offsets, pa.int32()).buffers()[1]], entries
    elif kind == "list view":
        own, requested = pa.list_view(pa.int64()), pa.list_view(strict_item)
        buffers = [pa.array(numbers, pa.int32()).buffers()[1] for numbers in (offsets, [1, 1, 1])]
    else:
        make, number = (pa.list_, pa.int32()) if kind == "list" else (pa.large_list, pa.int64())
        own, requested = make(pa.int64()), make(strict_item)
        buffers = [pa.array(offsets, number).buffers()[1]]
    source = pa.Array.from_buffers(own, 3, [valid, *buffers], children=[items])
    given = pa.array(ad.from_arrow(source), requested)
    assert given.type == requested
    assert given.to_pylist() == source.to_pylist()
    shown = pa.Array.from_buffers(own, 3, [None, *buffers], children=[items])
    with pytest.raises(ad.NullError):
        pa.array(ad.from_arrow(shown), requested)
    assert pa.array(ad.from_arrow(shown.slice(2)), requested).to_pylist() == shown.slice(2).to_pylist()


def test_nulls_that_no_row_of_a_union_shows_are_allowed():
    children = [pa.array([1, None]), pa.array([None, 2])]
    source = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), children, ["a", "b"])
    requested = pa.schema([("m", strict(source.type))])
    given = pa.record_batch(ad.from_arrow(table(source).to_batches()[0]), schema=requested)
    assert given["m"].to_pylist() == [1, 2]


NUMBERS = pa.array([1, 2], pa.int32())


def retyped(source: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The array with dates in place of their integers, which pyarrow does not look at."""
    return pa.Array._import_from_c_capsule(data_type.__arrow_c_schema__(), source.__arrow_c_array__()[1])


# A date of 1 ms is no whole day, which nobody asks of a column that keeps its type.
ODD = retyped(pa.array([1, None], pa.int64()), pa.date64())


@pytest.mark.parametrize("nesting", [name for name in NESTING if "union" not in name and name != "keys of a map"])
def test_values_that_keep_their_type_are_given_as_they_are(nesting: str):
    def nested(date: pa.DataType, number: pa.DataType) -> pa.Array:
        columns = [pa.array([1, None], pa.int64()) if date == pa.int64() else pa.nulls(2, date), NUMBERS.cast(number)]
        return NESTING[nesting](pa.StructArray.from_arrays(columns, names=["d", "n"]))

    source = retyped(nested(pa.int64(), pa.int32()), nested(pa.date64(), pa.int32()).type)
    requested = nested(pa.date64(), pa.int64()).type
    given = pa.array(ad.from_arrow(source), requested)
    assert given.type == requested
    assert given.to_pylist() == source.to_pylist()


def test_items_that_are_renamed_alone_keep_their_values():
    lists = pa.ListArray.from_arrays([0, 1, 2], ODD)
    source = pa.StructArray.from_arrays([lists, NUMBERS], names=["l", "n"])
    requested = pa.struct([("l", pa.list_(pa.field("element", pa.date64()))), ("n", pa.int64())])
    given = pa.array(ad.from_arrow(source), requested)
    assert given.type == requested
    assert given.to_pylist() == source.to_pylist()


def test_codes_of_other_integers_keep_their_values():
    source = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), ODD)
    for requested in (pa.dictionary(pa.int16(), pa.date64()), pa.date64()):
        assert pa.array(ad.from_arrow(source), requested).to_pylist() == source.to_pylist()
    values = retyped(runs(pa.array([1, None], pa.int64())), runs(pa.nulls(2, pa.date64())).type)
    assert pa.array(ad.from_arrow(values), pa.date64()).to_pylist() == values.to_pylist()


# Seconds, of which the second one is no time of a day.
SECONDS = pa.array([5, 90_000, 7], pa.int32())
LIST_OFFSETS = pa.array([0, 1, 2, 3], pa.int32())
SOME = pa.array([False, True, False])
HIDDEN = {
    "a value without a code": (
        pa.DictionaryArray.from_arrays(pa.array([0, 0, 2], pa.int8()), SECONDS),
        pa.dictionary(pa.int8(), pa.time32("s")),
    ),
    "a code in a null": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8(), mask=np.array([0, 1, 0], bool)), SECONDS),
        pa.dictionary(pa.int8(), pa.time32("s")),
    ),
    "items before a slice": (pa.ListArray.from_arrays(LIST_OFFSETS, SECONDS).slice(2), pa.list_(pa.time32("s"))),
    "items behind a slice": (pa.ListArray.from_arrays(LIST_OFFSETS, SECONDS).slice(0, 1), pa.list_(pa.time32("s"))),
    "items in a null": (pa.ListArray.from_arrays(LIST_OFFSETS, SECONDS, mask=SOME), pa.list_(pa.time32("s"))),
    "items of no view": (
        pa.ListViewArray.from_arrays(pa.array([2, 0], pa.int32()), pa.array([1, 1], pa.int32()), SECONDS),
        pa.list_view(pa.time32("s")),
    ),
    "items of structs in a null": (
        pa.StructArray.from_arrays([pa.ListArray.from_arrays(LIST_OFFSETS, SECONDS)], names=["l"], mask=SOME),
        pa.struct([("l", pa.list_(pa.time32("s")))]),
    ),
    "runs outside of a slice": (
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 6], pa.int32()), SECONDS).slice(4),
        pa.run_end_encoded(pa.int32(), pa.time32("s")),
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_values_that_no_row_shows_are_not_looked_at(name: str):
    source, requested = HIDDEN[name]
    given = pa.array(ad.from_arrow(source), requested)
    assert given.type == requested
    assert given.is_valid().to_pylist() == source.is_valid().to_pylist()


SHOWN = {
    "a dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), SECONDS),
        pa.dictionary(pa.int8(), pa.time32("s")),
    ),
    "a list": (pa.ListArray.from_arrays(LIST_OFFSETS, SECONDS).slice(1), pa.list_(pa.time32("s"))),
    "a view": (
        pa.ListViewArray.from_arrays(pa.array([1, 0], pa.int32()), pa.array([1, 1], pa.int32()), SECONDS),
        pa.list_view(pa.time32("s")),
    ),
    "a run": (
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 6], pa.int32()), SECONDS).slice(3),
        pa.run_end_encoded(pa.int32(), pa.time32("s")),
    ),
    "structs beside what is kept": (
        pa.ListArray.from_arrays([0, 2], pa.StructArray.from_arrays([ODD, SECONDS.slice(0, 2)], names=["d", "n"])),
        pa.list_(pa.struct([("d", pa.date64()), ("n", pa.time32("s"))])),
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_values_that_a_row_shows_are_refused(name: str):
    source, requested = SHOWN[name]
    with pytest.raises(ad.CastError, match="no time of a day") as raised:
        pa.array(ad.from_arrow(source), requested)
    if name == "structs beside what is kept":
        assert raised.value.column == "n"


def test_values_of_runs_of_an_extension_type():
    values = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None]))
    source = runs(values)
    for data, wrap in (
        (source, lambda data_type: data_type),
        (pa.StructArray.from_arrays([source], names=["a"]), lambda data_type: pa.struct([("a", data_type)])),
        (pa.ListArray.from_arrays([0, 2], source), pa.list_),
    ):
        others = (pa.string(), pa.json_(), pa.run_end_encoded(pa.int64(), pa.json_()))
        for requested in map(wrap, others):
            schema = pa.schema([("x", requested)])
            for rows in (data, data[:0]):
                given = pa.record_batch(ad.from_arrow(pa.record_batch({"x": rows})), schema=schema)
                assert given.schema == schema
                assert given["x"].to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    "other", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view], ids=lambda make: make.__name__
)
def test_lists_of_no_items_keep_their_number(other: Callable[..., pa.DataType]):
    lists = pa.array([[], None, []], pa.list_(pa.int32(), 0))
    for source in (lists, lists[1:], lists[:1], lists[:0]):
        for requested in (pa.list_(pa.float64(), 0), other(pa.string())):
            given = pa.array(ad.from_arrow(source), requested)
            assert given.type == requested
            assert given.to_pylist() == source.to_pylist()
    given = pa.array(ad.to_arrow(np.zeros((3, 0)), type=pa.list_(pa.float32(), 0)))
    assert given.to_pylist() == [[], [], []]


def test_lists_of_no_items_keep_their_number_in_structs(capfd: pytest.CaptureFixture[str]):
    lists = pa.array([[], None, []], pa.list_(pa.int8(), 0))
    rows = pa.StructArray.from_arrays([lists, pa.array([1, 2, 3])], names=["a", "b"])
    for item in (pa.list_(pa.int16(), 0), pa.list_(pa.int16())):
        requested = pa.struct([("a", item), ("b", pa.int8())])
        given = pa.array(ad.from_arrow(rows), requested)
        assert given.type == requested
        assert given.to_pylist() == rows.to_pylist()
        nested = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), rows)
        assert pa.array(ad.from_arrow(nested), pa.list_(requested)).to_pylist() == nested.to_pylist()
    assert "panicked" not in capfd.readouterr().err


def test_a_column_without_validity_in_null_structs_is_left_as_it_is():
    decimals = pa.array([Decimal("1.5"), None], pa.decimal128(5, 1))
    structs = pa.StructArray.from_arrays([decimals, pa.nulls(2)], ["d", "n"], mask=pa.array([False, True]))
    found = pa.array(ad.from_arrow(structs), type=pa.struct([("d", pa.float64()), ("n", pa.null())]))
    assert found.to_pylist() == [{"d": 1.5, "n": None}, None]
