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
            with pytest.raises(ValueError, match='has column "m" of type|one schema'):
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
