"""`arrow_dlpack.ray.loader` over splits that stand in for Ray's: what comes in blocks is copied and compared."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from arrow_dlpack.ray import loader
from support import values_address

TABLE = pa.table({"a": pa.array(range(6), pa.int64()), "b": [row / 2 for row in range(6)]})


class Split:
    """A `ray.data.DataIterator` of these blocks; an error among them is raised in its turn."""

    def __init__(self, *blocks: Any, schema: pa.Schema | None = TABLE.schema) -> None:
        self.blocks, self.base_schema, self.open = blocks, schema, 0

    def iter_batches(self, *, batch_format: str, batch_size: None) -> Iterator[pa.Table]:
        assert (batch_format, batch_size) == ("pyarrow", None)
        self.open += 1
        try:
            for block in self.blocks:
                if isinstance(block, Exception):
                    raise block
                yield block
        finally:
            self.open -= 1

    def schema(self) -> Any:
        return None if self.base_schema is None else self


def rows_of(split: Split, **options: Any) -> list[Any]:
    return [batch.tolist() for batch in loader(split, batch_size=4, xp=np, **{"columns": ["a"], **options})]


def test_batches_go_on_over_blocks():
    split = Split(TABLE[:3], TABLE[:0], TABLE[3:4], TABLE[4:])
    batches = loader(split, batch_size=4, columns={"x": ["a", "b"], "y": "a"}, dtype={"x": "float32"}, xp=np)
    for _ in range(2):
        found = list(batches)
        assert [batch["y"].tolist() for batch in found] == [[0, 1, 2, 3], [4, 5]]
        assert found[1]["x"].tolist() == [[4, 2], [5, 2.5]]
    assert split.open == 0


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (TABLE.select(["b", "a"]), r'the columns \["b", "a"\]'),
        (TABLE.set_column(0, "a", TABLE["a"].cast(pa.int32())), '"a" of type Int32, and the first one Int64'),
        (TABLE.set_column(0, "a", TABLE["b"]), '"a" of type Float64, and the first one Int64'),
        (TABLE.set_column(0, "a", pa.nulls(6)), '"a" of type Null, and the first one Int64'),
        (TABLE.append_column("c", TABLE["a"]), r'the columns \["a", "b", "c"\]'),
        (TABLE.select(["a"]), r'the columns \["a"\]'),
    ],
    ids=["order", "width", "kind", "nulls alone", "one more", "one less"],
)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_blocks_of_other_columns_are_refused(other: pa.Table, named: str, prefetch: int):
    """Their bytes are never taken for those of the first block's columns."""
    split = Split(TABLE, TABLE[:2], other)
    iterator = iter(loader(split, batch_size=4, columns=["a"], xp=np, prefetch=prefetch))
    assert [next(iterator).tolist() for _ in range(2)] == [[[0], [1], [2], [3]], [[4], [5], [0], [1]]]
    with pytest.raises(ad.ConversionError, match=f"item 3 of the iterator has .*{named}"):
        next(iterator)
    assert split.open == 0


def test_blocks_may_differ_in_metadata_and_nullability():
    fields = [field.with_nullable(False) for field in TABLE.schema]
    assert rows_of(Split(TABLE[:3], TABLE[3:].cast(pa.schema(fields, metadata={"k": "v"})))) == [
        [[0], [1], [2], [3]],
        [[4], [5]],
    ]


def test_arrow_columns_are_copies():
    blocks = [TABLE[:3], TABLE[3:]]
    found = list(loader(Split(*blocks), batch_size=3, columns={"raw": ad.arrow("a")}, xp=np))
    for batch, block in zip(found, blocks, strict=True):
        column = pa.record_batch(batch["raw"])["a"]
        assert column.to_pylist() == block["a"].to_pylist()
        assert values_address(column) != values_address(block["a"].chunk(0))


def test_errors_of_ray_are_raised_as_they_are():
    iterator = iter(loader(Split(TABLE[:4], OSError("the node is gone")), batch_size=4, columns=["a"], xp=np))
    assert next(iterator).tolist() == [[0], [1], [2], [3]]
    with pytest.raises(OSError, match="the node is gone"):
        next(iterator)
    with pytest.raises(OSError, match="not there"):
        iter(loader(Split(OSError("not there")), batch_size=4))


def test_a_split_without_rows_has_the_columns_of_the_others():
    for blocks in ([], [TABLE[:0]]):
        assert rows_of(Split(*blocks)) == []
        with pytest.raises(ad.ConversionError, match="nothing"):
            rows_of(Split(*blocks), columns=["nothing"])
        with pytest.raises(ValueError, match="Ray does not know its columns"):
            rows_of(Split(*blocks, schema=None))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_closed_iteration_closes_that_of_the_split(prefetch: int):
    split = Split(*[TABLE] * 100)
    iterator = iter(loader(split, batch_size=4, columns=["a"], xp=np, prefetch=prefetch))
    next(iterator)
    assert split.open == 1
    iterator.close()
    del iterator
    assert split.open == 0


def test_a_state_finds_rows_in_another_order():
    first = loader(Split(TABLE[:3], TABLE[3:]), batch_size=4, columns=["a"], xp=np)
    next(iter(first))
    state = json.loads(json.dumps(first.state_dict()))
    same = loader(Split(TABLE[:1], TABLE[1:]), batch_size=4, columns=["a"], xp=np)
    same.load_state_dict(state)
    assert [batch.tolist() for batch in same] == [[[4], [5]]]
    other = loader(Split(TABLE[3:], TABLE[:3]), batch_size=4, columns=["a"], xp=np)
    other.load_state_dict(state)
    with pytest.raises(ad.ConversionError, match="rows have changed"):
        next(iter(other))


def test_wrong_options():
    for name in ("rank", "world_size", "worker", "sources", "lanes", "readers"):
        with pytest.raises(TypeError, match=f"{name}= does not go with a split"):
            loader(Split(TABLE), batch_size=1, **{name: 1})
    with pytest.raises(TypeError, match=r"dataset\.iterator\(\)"):
        loader(TABLE, batch_size=1)


def test_a_split_without_rows_of_pandas_has_the_columns_of_the_others():
    names, types = ["id", "name"], [np.dtype("int64"), np.dtype("object")]
    split = Split(schema=SimpleNamespace(names=names, types=types))
    batches = loader(split, batch_size=4, columns={"id": "id"}, xp=np)
    assert list(batches) == []
    with pytest.raises(ad.ConversionError, match="other"):
        list(loader(split, batch_size=4, columns={"x": "other"}, xp=np))


def test_blocks_of_extension_types_with_other_parameters_are_told_apart():
    def block(shape: list[int]) -> pa.Table:
        storage = pa.array([[1.0, 2.0, 3.0, 4.0]], pa.list_(pa.float32(), 4))
        return pa.table({"a": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), shape), storage)})

    split = Split(block([2, 2]), block([1, 4]), schema=block([2, 2]).schema)
    with pytest.raises(ad.ConversionError, match=r"1,4.*2,2"):
        list(loader(split, batch_size=4, columns={"a": "a"}, xp=np))
