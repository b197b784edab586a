"""`requested_schema`, and items of one source, whose types differ below maps, runs, unions and dictionaries."""

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
    # Another slot of a union may be null: no row shows it.
    shown = pa.table({"m": NULLS[name].slice(0, 1) if name != "map" else NULLS[name].take(pa.array([0]))})
    given = pa.table(ad.from_arrow(shown), schema=requested)
    assert given.schema == requested
    assert given.to_pylist() == shown.to_pylist()


def test_nulls_that_no_row_of_a_union_shows_are_allowed():
    children = [pa.array([1, None]), pa.array([None, 2])]
    source = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), children, ["a", "b"])
    requested = pa.schema([("m", strict(source.type))])
    given = pa.record_batch(ad.from_arrow(table(source).to_batches()[0]), schema=requested)
    assert given["m"].to_pylist() == [1, 2]
