"""Metadata of schemas and fields crosses both borders byte by byte, also where it is not text."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest

# Text, bytes that no encoding of text has, and the marks by which this package tells them apart.
STRINGS = [
    b"",
    b"k",
    b"a\0b",
    "ü".encode(),
    b"\xff",
    b"\xfe",
    b"\x80\x05\x95",
    "\ufffd".encode(),
    "\U0010fffe".encode(),
]
METADATA = dict(zip(STRINGS, reversed(STRINGS), strict=True))


class Pickled(pa.ExtensionType):
    """Has parameters that are no text, as the tensors of Ray have."""

    def __init__(self, storage: pa.DataType, parameters: Any):
        self.parameters = parameters
        super().__init__(storage, "arrow_dlpack.tests.pickled")

    def __arrow_ext_serialize__(self) -> bytes:
        return pickle.dumps(self.parameters)

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "Pickled":
        return cls(storage_type, pickle.loads(serialized))


@pytest.fixture
def pickled():
    pa.register_extension_type(Pickled(pa.int32(), None))
    yield Pickled(pa.int32(), {"shape": (2, 3), "bytes": b"\xff\0"})
    pa.unregister_extension_type("arrow_dlpack.tests.pickled")


ROUTES: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "a batch": ad.from_arrow,
    "its copy": lambda batch: ad.from_arrow(batch, copy=True),
    "a pickle": lambda batch: pickle.loads(pickle.dumps(ad.from_arrow(batch))),
    "a deepcopy": lambda batch: copy.deepcopy(ad.from_arrow(batch)),
    "a stream": lambda batch: next(ad.from_arrow(pa.table(batch))),
    "a requested schema": lambda batch: pa.RecordBatch._import_from_c_capsule(
        *ad.from_arrow(batch).__arrow_c_array__(batch.schema.__arrow_c_schema__())
    ),
}


@pytest.mark.parametrize("route", ROUTES)
def test_bytes_come_back_on_each_level(route: str):
    item = pa.field("item", pa.int8(), metadata=METADATA)
    codes = pa.field("d", pa.dictionary(pa.int8(), pa.list_(item)), metadata={b"\xff": b"\xff"})
    fields = [pa.field("l", pa.list_(item), metadata=METADATA), pa.field("s", pa.struct([item])), codes]
    schema = pa.schema(fields, metadata=METADATA)
    values = pa.array([[1], [2, 3]], schema.field("l").type)
    dictionary = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), values)
    batch = pa.record_batch([values, pa.array([{"item": 1}, None], fields[1].type), dictionary], schema=schema)
    for _ in range(2):
        found = pa.record_batch(ROUTES[route](batch))
        assert found.schema.equals(schema, check_metadata=True)
        assert found.equals(batch)


@pytest.mark.parametrize("route", ROUTES)
def test_parameters_of_an_extension_type_that_are_no_text(route: str, pickled: Pickled):
    column = pa.ExtensionArray.from_storage(pickled, pa.array([1, None, 3], pa.int32()))
    found = pa.record_batch(ROUTES[route](pa.record_batch({"x": column})))
    assert found.schema.field("x").type == pickled
    assert found["x"].type.parameters == {"shape": (2, 3), "bytes": b"\xff\0"}
    assert found["x"].equals(column)


def test_parameters_pass_through_a_loader_and_through_tensors(pickled: Pickled):
    column = pa.ExtensionArray.from_storage(pickled, pa.array([1, 2, 3], pa.int32()))
    table = pa.table({"x": column})
    for batch in ad.Loader(table, batch_size=2, columns={"x": ad.arrow("x")}, shuffle_buffer=3, seed=0):
        assert pa.record_batch(batch["x"]).schema.field("x").type.parameters == pickled.parameters
    assert pa.array(ad.to_arrow(ad.to_tensor(column))).equals(column)


def test_different_bytes_are_different_fields():
    columns = [pa.field("x", pa.int8(), metadata={b"k": value}) for value in STRINGS]
    batches = [pa.record_batch([pa.array([1], pa.int8())], schema=pa.schema([field])) for field in columns]
    for _ in range(2):
        found = [pa.record_batch(ad.from_arrow(batch)).schema.field("x").metadata[b"k"] for batch in batches]
        assert found == STRINGS
