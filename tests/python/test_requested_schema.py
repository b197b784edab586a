"""`requested_schema`, asked of us: exactly that type, or an error; never a value lost, never a value made null."""

import datetime
import decimal
from typing import Any

import arrow_dlpack as ad
import nanoarrow as na
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from producers import Array, Only, Schema


def ours(data) -> object:
    return ad.from_arrow(data)


def as_type(source: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The array dunder of ours, asked for a type."""
    return pa.array(ours(source), data_type)


LOSSLESS = [
    (pa.array([1, None, -3], pa.int64()), pa.int8()),
    (pa.array([1, None, 3], pa.int64()), pa.float32()),
    (pa.array([1.0, None, -3.0]), pa.int16()),
    (pa.array([1.5, None, float("nan")]), pa.float32()),
    (pa.array([1.5, None]), pa.float16()),
    (pa.array([True, None, False]), pa.uint8()),
    (pa.array([0, 1, None], pa.int8()), pa.bool_()),
    (pa.array([1, None], pa.timestamp("s")), pa.timestamp("ns")),
    (pa.array([1000, None], pa.timestamp("ms")), pa.timestamp("s")),
    (pa.array([1, None], pa.timestamp("s")), pa.timestamp("ms", "UTC")),
    (pa.array([1, None], pa.timestamp("ns", "UTC")), pa.timestamp("ns")),
    (pa.array([1, None], pa.timestamp("s", "Asia/Tokyo")), pa.timestamp("s", "Europe/Berlin")),
    (pa.array([1, None], pa.duration("s")), pa.duration("us")),
    (pa.array([1, None], pa.date32()), pa.date64()),
    (pa.array(["a", None]), pa.large_string()),
    (pa.array(["a", None]), pa.string_view()),
    (pa.array(["a", "b", "a"]), pa.dictionary(pa.int32(), pa.string())),
    (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string()),
    (pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None])), pa.string()),
    (pa.array([86_400_000, None, -86_400_000]), pa.date64()),
    (pa.array([0, None, 86_399_999_999]), pa.time64("us")),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)), pa.list_(pa.float32(), 2)),
    (pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), pa.list_(pa.int64())),
    (pa.array([[1, 2], None, []]), pa.large_list(pa.int8())),
    (pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2)), pa.decimal128(10, 2)),
    (pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2)), pa.float64()),
    (pa.array([1, None]), pa.int64()),
]


@pytest.mark.parametrize(("source", "data_type"), LOSSLESS, ids=lambda x: str(getattr(x, "type", x)))
def test_values_that_survive_are_cast(source: pa.Array, data_type: pa.DataType):
    result = as_type(source, data_type)
    assert result.type == data_type
    assert result.is_valid().to_pylist() == source.is_valid().to_pylist()
    back = result.cast(source.type) if not pa.types.is_dictionary(source.type) else result.dictionary_encode()
    if not any(value != value for value in source.to_pylist()):
        assert back.to_pylist() == source.to_pylist()


def text_without_rows() -> pa.Array:
    """A slice whose first offset is beyond its data, of which there is none."""
    return pa.array(["aaa", "b", "cc"]).slice(1, 0)


def numbered(data_type: pa.DataType, valid: int, values: pa.Array) -> pa.Array:
    """Three rows of a type whose child is not nullable."""
    return pa.Array.from_buffers(data_type, 3, [pa.py_buffer(bytes([valid]))], children=[values])


NO_OFFSETS = pa.py_buffer(np.zeros(3, np.int32))
STRICT = pa.field("x", pa.int32(), nullable=False)
NESTED = {
    "lists of no text": (
        pa.Array.from_buffers(pa.list_(pa.string()), 2, [None, NO_OFFSETS], children=[text_without_rows()]),
        pa.large_list(pa.large_string()),
    ),
    "codes of no text": (
        pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), text_without_rows()),
        pa.large_string(),
    ),
    "lists of no structs of text": (
        pa.Array.from_buffers(
            pa.list_(pa.struct([("x", pa.string())])),
            2,
            [None, NO_OFFSETS],
            children=[
                pa.Array.from_buffers(pa.struct([("x", pa.string())]), 0, [None], children=[text_without_rows()])
            ],
        ),
        pa.large_list(pa.struct([("x", pa.large_string())])),
    ),
    "lists that hide nulls": (
        numbered(pa.list_(STRICT, 2), 0b110, pa.array([None, 2, 3, 4, 5, 6], pa.int32())).slice(1),
        pa.list_(pa.int64(), 2),
    ),
    "lists that hide nulls before others": (
        numbered(pa.list_(STRICT, 2), 0b101, pa.array([1, 2, None, None, 5, 6], pa.int32())).slice(1),
        pa.list_(pa.int64(), 2),
    ),
    "structs that hide nulls": (
        numbered(pa.struct([STRICT]), 0b101, pa.array([1, None, 3], pa.int32())).slice(1),
        pa.struct([("x", pa.int64())]),
    ),
}


@pytest.mark.parametrize("name", NESTED)
def test_valid_arrays_are_read_whatever_their_children_are_slices_of(name: str):
    source, data_type = NESTED[name]
    source.validate(full=True)
    result = as_type(source, data_type)
    result.validate(full=True)
    assert result.type == data_type
    assert result.to_pylist() == source.to_pylist()


def test_nulls_that_a_strict_child_shows_are_refused():
    values = pa.array([1, 2, 3, 4, 5, None], pa.int32())
    with pytest.raises(ad.ConversionError, match="not nullable"):
        as_type(numbered(pa.list_(STRICT, 2), 0b101, values).slice(1), pa.list_(pa.int64(), 2))


LOSSY = [
    (pa.array([300]), pa.int8()),
    (pa.array([-1]), pa.uint64()),
    (pa.array([1, 2**53 + 1]), pa.float64()),
    (pa.array([0, 2**63 - 1]), pa.float64()),
    (pa.array([2**24 + 1], pa.int32()), pa.float32()),
    (pa.array([1]), pa.date64()),
    (pa.array([1], pa.timestamp("ms")), pa.date64()),
    (pa.array([-1]), pa.time64("ns")),
    (pa.array([86_400], pa.int32()), pa.time32("s")),
    (pa.array([[86_400]], pa.list_(pa.int32())), pa.list_(pa.time32("s"))),
    (pa.array([1.5]), pa.int32()),
    (pa.array([float("nan")]), pa.int32()),
    (pa.array([0.1]), pa.float32()),
    (pa.array([1e300]), pa.float32()),
    (pa.array([2, 0], pa.int8()), pa.bool_()),
    (pa.array([1500], pa.timestamp("ms")), pa.timestamp("s")),
    (pa.array([2**62], pa.timestamp("s")), pa.timestamp("ns")),
    (pa.array([1], pa.timestamp("us")), pa.date32()),
    (pa.array(["x"]), pa.int32()),
    (pa.array(["1", "01"]), pa.int32()),
    (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pa.list_(pa.int64(), 1)),
    (pa.array([[300, 2]], pa.list_(pa.int64(), 2)), pa.list_(pa.int8(), 2)),
    (pa.array([decimal.Decimal("1.55")], pa.decimal128(5, 2)), pa.decimal128(5, 1)),
    (pa.array([1]), pa.struct([("a", pa.int64())])),
    (pa.array([1]), pa.null()),
]


@pytest.mark.parametrize(("source", "data_type"), LOSSY, ids=lambda x: str(getattr(x, "type", x)))
def test_a_loss_is_a_value_error(source: pa.Array, data_type: pa.DataType):
    with pytest.raises(ValueError) as caught:
        as_type(source, data_type)
    assert isinstance(caught.value, ad.ConversionError)
    # The same loss behind a null, and in a slot that is none.
    with pytest.raises(ValueError):
        as_type(pa.concat_arrays([pa.nulls(3, source.type), source]), data_type)


def test_a_loss_names_the_row():
    source = pa.array([1.0, 2.0, 3.5])
    with pytest.raises(ad.CastError) as caught:
        as_type(source, pa.int64())
    assert caught.value.row == 2
    assert "Float64" in caught.value.reason
    assert "Int64" in caught.value.reason


@pytest.mark.parametrize(
    ("source", "data_type"),
    [
        (pa.array([0, 2**63 - 1]), pa.float64()),
        (pa.array([0, 1]), pa.date64()),
        (pa.array([0, 1], pa.timestamp("ms")), pa.date64()),
        (pa.array([0, -1], pa.int32()), pa.time32("ms")),
    ],
    ids=str,
)
def test_a_loss_names_row_and_remedy(source: pa.Array, data_type: pa.DataType):
    with pytest.raises(ad.CastError) as caught:
        as_type(source, data_type)
    assert caught.value.row == 1
    assert caught.value.remedy == "request a type that holds every value"


@pytest.mark.parametrize(
    ("values", "own", "data_type", "row"),
    [
        # A later value has no cast there, or none back.
        ([1, 0.5, 300], pa.float64(), pa.int8(), 1),
        ([0, 2049, 32767], pa.int16(), pa.float16(), 1),
        ([1, 300, 0.5], pa.float64(), pa.int8(), 1),
        ([[1], [2, 0.5], [300]], pa.list_(pa.float64()), pa.list_(pa.int8()), 1),
    ],
    ids=str,
)
def test_a_loss_names_the_lowest_row(values: list[Any], own: pa.DataType, data_type: pa.DataType, row: int):
    with pytest.raises(ad.CastError) as caught:
        as_type(pa.array(values, own), data_type)
    assert caught.value.row == row


# Midnights in Berlin, in winter and in summer, as seconds.
MIDNIGHTS = {datetime.date(2024, 1, 1): 1_704_063_600, datetime.date(2024, 7, 1): 1_719_784_800}


class TestNamedTimeZones:
    berlin = pa.array([*MIDNIGHTS.values(), None], pa.timestamp("s", "Europe/Berlin"))

    @pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "GMT", "+00:00"])
    def test_those_of_utc_are_naive_timestamps(self, zone: str):
        naive, zoned = (pa.array([1, None], pa.timestamp("s", which)) for which in (None, zone))
        assert as_type(naive, zoned.type).equals(zoned)
        assert as_type(zoned, naive.type).equals(naive)
        assert pa.array(ad.to_arrow(ad.to_tensor(naive.slice(0, 1)), type=zoned.type)).equals(zoned.slice(0, 1))
        schema = pa.schema([("t", zoned.type)])
        assert pa.table(ours(pa.table({"t": naive})), schema=schema)["t"].to_pylist() == zoned.to_pylist()

    def test_dates_are_those_of_the_zone(self):
        dates = pa.array([*MIDNIGHTS, None], pa.date32())
        assert as_type(self.berlin, pa.date32()).equals(dates)
        assert as_type(dates, self.berlin.type).equals(self.berlin)
        with pytest.raises(ad.CastError):
            as_type(self.berlin.cast(pa.timestamp("s", "UTC")), pa.date32())

    def test_texts_have_the_offset_of_their_time(self):
        texts = pa.array(["2024-01-01T00:00:00+01:00", "2024-07-01T00:00:00+02:00", None])
        assert as_type(self.berlin, pa.string()).equals(texts)
        assert as_type(texts, self.berlin.type).equals(self.berlin)

    def test_the_clock_of_a_zone_is_not_that_of_utc(self):
        """arrow-rs reads naive timestamps by the clock of the zone, and writes them by that of UTC."""
        for source, to in ((self.berlin, pa.timestamp("s")), (self.berlin.cast(pa.timestamp("s")), self.berlin.type)):
            with pytest.raises(ad.CastError, match="does not survive the round trip") as caught:
                as_type(source, to)
            assert caught.value.row == 0

    def test_unknown_ones_are_named(self):
        for source, zone in (
            (pa.array([1], pa.timestamp("s")), "Mars/Base"),
            (self.berlin.cast(pa.timestamp("s")), "X"),
        ):
            for own, to in ((source, pa.timestamp("s", zone)), (source.cast(pa.timestamp("s", zone)), source.type)):
                with pytest.raises(ad.CastError, match=f'"{zone}" is no time zone') as caught:
                    as_type(own, to)
                assert caught.value.remedy is not None


def test_garbage_in_null_slots_is_no_loss():
    source = pa.array(np.array([1, 300, 3]), mask=np.array([False, True, False]))
    assert as_type(source, pa.int8()).to_pylist() == [1, None, 3]


class TestWithoutACast:
    def test_the_same_type_shares_memory(self):
        source = pa.array([1, 2, 3])
        with ad.track_copies() as log:
            result = as_type(source, pa.int64())
        assert result.buffers()[1].address == source.buffers()[1].address
        assert len(log) == 0

    def test_names_and_metadata_alone_share_memory(self):
        source = pa.record_batch({"x": [1, 2]})
        schema = pa.schema([pa.field("x", pa.int64(), nullable=False, metadata={"a": "b"})])
        with ad.track_copies() as log:
            result = pa.record_batch(ours(source), schema=schema)
        assert result.schema.equals(schema, check_metadata=True)
        assert result["x"].buffers()[1].address == source["x"].buffers()[1].address
        assert len(log) == 0

    def test_bool8_and_its_storage(self):
        source = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1], pa.int8()))
        assert pa.array(ours(source), pa.bool_()).to_pylist() == [False, True]

    def test_a_cast_is_a_logged_copy(self):
        with ad.track_copies() as log:
            as_type(pa.array([1, 2, 3]), pa.int16())
        assert log.bytes > 0
        (entry,) = log
        assert "Int16" in entry.why


BATCH = pa.record_batch({"a": pa.array([1, 2, None]), "b": pa.array([1.5, None, 2.5]), "c": pa.array(["x", "y", "z"])})


def schema_of(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


@pytest.mark.parametrize(
    "schema",
    [
        schema_of(a=pa.int32(), b=pa.float32(), c=pa.large_string()),
        schema_of(a=pa.float64(), b=pa.float64(), c=pa.string()),
        schema_of(a=pa.int64(), b=pa.float16(), c=pa.string_view()),
    ],
    ids=str,
)
@pytest.mark.parametrize("part", [slice(None), slice(1, 3), slice(0, 0)], ids=["whole", "slice", "empty"])
def test_batches_and_streams(schema: pa.Schema, part: slice):
    source = BATCH[part]
    batch = pa.record_batch(ours(source), schema=schema)
    assert batch.schema == schema
    assert batch.to_pydict() == source.to_pydict()
    table = pa.table(ours(pa.table(source)), schema=schema)
    assert table.schema == schema
    assert table.to_pydict() == source.to_pydict()
    reader = pa.RecordBatchReader.from_stream(ours(pa.Table.from_batches([source, source])), schema=schema)
    assert reader.schema == schema
    assert reader.read_all().num_rows == 2 * len(source)


@pytest.mark.parametrize(
    "schema",
    [
        schema_of(a=pa.int64(), b=pa.float64()),
        schema_of(a=pa.int64(), b=pa.float64(), c=pa.string(), d=pa.int8()),
        schema_of(b=pa.float64(), a=pa.int64(), c=pa.string()),
        schema_of(a=pa.int64(), b=pa.float64(), C=pa.string()),
        pa.schema([]),
        schema_of(a=pa.int64(), b=pa.float64(), c=pa.struct([("x", pa.int64())])),
    ],
    ids=str,
)
def test_names_and_their_number_must_match(schema: pa.Schema):
    with pytest.raises(ValueError):
        pa.record_batch(ours(BATCH), schema=schema)
    stream = ours(pa.table(BATCH))
    with pytest.raises(ValueError):
        pa.table(stream, schema=schema)
    # A request that no data could meet does not consume the stream.
    assert pa.table(stream).num_rows == 3


def test_nested_names_must_match():
    source = pa.array([{"x": {"y": 1}}])
    assert as_type(source, pa.struct([("x", pa.struct([("y", pa.int8())]))])).to_pylist() == source.to_pylist()
    with pytest.raises(ValueError):
        as_type(source, pa.struct([("x", pa.struct([("z", pa.int8())]))]))


def test_items_of_lists_may_be_called_anything():
    source = pa.array([[1, 2], [3, 4]], pa.list_(pa.field("item", pa.int64()), 2))
    requested = pa.list_(pa.field("element", pa.int64()), 2)
    assert as_type(source, requested).to_pylist() == source.to_pylist()


class TestNullability:
    not_null = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.float64()), ("c", pa.string())])

    def test_a_null_against_a_field_without(self):
        with pytest.raises(ValueError, match="null") as caught:
            pa.record_batch(ours(BATCH), schema=self.not_null)
        assert isinstance(caught.value, ad.NullError)
        assert (caught.value.column, caught.value.row) == ("a", 2)

    def test_no_null_against_a_field_without(self):
        batch = pa.record_batch(ours(BATCH[:2]), schema=self.not_null)
        assert batch.schema == self.not_null

    def test_in_a_stream_it_fails_where_the_null_is(self):
        source = pa.Table.from_batches([BATCH[:2], BATCH[2:]])
        reader = pa.RecordBatchReader.from_stream(ours(source), schema=self.not_null)
        assert reader.read_next_batch().num_rows == 2
        with pytest.raises(pa.ArrowException, match="null"):
            reader.read_next_batch()

    def test_with_a_cast(self):
        schema = pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.float64()), ("c", pa.string())])
        assert pa.record_batch(ours(BATCH[:2]), schema=schema).schema == schema
        with pytest.raises(ValueError, match="null"):
            pa.record_batch(ours(BATCH), schema=schema)

    def test_of_items(self):
        requested = pa.list_(pa.field("item", pa.int64(), nullable=False), 2)
        assert as_type(pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), requested).to_pylist() == [[1, 2], None]
        with pytest.raises(ValueError, match="null"):
            as_type(pa.array([[1, None]], pa.list_(pa.int64(), 2)), requested)


def test_a_stream_fails_where_the_loss_is():
    source = pa.chunked_array([[1, 2], [3, 400]])
    reader = pa.RecordBatchReader.from_stream(ours(pa.table({"x": source})), schema=schema_of(x=pa.int8()))
    assert reader.read_next_batch().to_pydict() == {"x": [1, 2]}
    with pytest.raises(pa.ArrowException, match="400"):
        reader.read_next_batch()


@pytest.mark.parametrize("dunder", ["__arrow_c_array__", "__arrow_c_device_array__"])
@pytest.mark.parametrize("how", ["position", "keyword"])
def test_by_position_and_by_keyword(dunder: str, how: str):
    for source in (ad.to_arrow(np.arange(3)), ad.from_dlpack(np.arange(3))):
        capsule = pa.float32().__arrow_c_schema__()
        method = getattr(source, dunder)
        answer = method(capsule) if how == "position" else method(requested_schema=capsule)
        result = pa.array(Only(dunder, lambda *_, answer=answer: answer))
        assert result.type == pa.float32()
        assert result.to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("dunder", ["__arrow_c_stream__", "__arrow_c_device_stream__"])
def test_of_both_stream_dunders(dunder: str):
    stream = ours(pa.chunked_array([[1], [2]]))
    capsule = getattr(stream, dunder)(pa.int8().__arrow_c_schema__())
    imported = ad.from_arrow(Only(dunder, lambda: capsule))
    assert imported.type == "Int8"
    assert [np.from_dlpack(array).tolist() for array in imported] == [[1], [2]]


@pytest.mark.parametrize("requested", [3, "int8", (), object(), pa.int8()], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize(
    "dunder", ["__arrow_c_array__", "__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_device_stream__"]
)
def test_what_is_no_schema_capsule_is_a_type_error(dunder: str, requested):
    source = ours(pa.chunked_array([[1]]) if "stream" in dunder else pa.array([1]))
    with pytest.raises(TypeError, match="arrow_schema"):
        getattr(source, dunder)(requested)
    # None is no request, and the failed one consumed nothing.
    assert getattr(source, dunder)(None) is not None


def test_a_hostile_request():
    source = ours(pa.array([1]))
    for schema in (Schema(b"?"), Schema(b"+w:1"), Schema(None)):
        capsule = schema.capsule()
        with pytest.raises(BufferError):
            source.__arrow_c_array__(capsule)
        del capsule
        assert schema.releases == 1
    array = Array()
    capsule = array.capsule()
    with pytest.raises(TypeError):
        source.__arrow_c_array__(capsule)
    del capsule
    assert array.releases == 1


def test_tensors_answer_requests():
    tensor = ad.from_dlpack(np.arange(6.0).reshape(3, 2))
    requested = pa.list_(pa.float32(), 2)
    assert pa.array(tensor, requested).to_pylist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ValueError):
        pa.array(tensor, pa.list_(pa.float32(), 3))
    when = ad.to_tensor(pa.array([1, 2], pa.timestamp("s")))
    assert pa.array(when, pa.timestamp("ms")).to_pylist() == [
        datetime.datetime(1970, 1, 1, 0, 0, second) for second in (1, 2)
    ]


def test_to_arrow_takes_a_type():
    source = np.arange(3)
    for requested in (pa.int8(), pa.field("x", pa.int8())):
        assert pa.array(ad.to_arrow(source, type=requested)).type == pa.int8()
    assert ad.to_arrow(source, type=pa.field("x", pa.int8(), nullable=False)).name == "x"
    assert not ad.to_arrow(source, type=pa.field("x", pa.int64(), nullable=False)).nullable
    with pytest.raises(ValueError):
        ad.to_arrow(np.array([1.5]), type=pa.int8())
    with pytest.raises(ad.CopyError):
        ad.to_arrow(source, type=pa.int8(), copy=False)
    assert pa.array(ad.to_arrow(source, type=pa.timestamp("s"))).type == pa.timestamp("s")
    with pytest.raises(TypeError, match="type"):
        ad.to_arrow(source, type="int8")


def test_other_consumers_ask_too():
    array = ad.to_arrow(np.arange(3))
    assert na.Array(array, na.float64()).schema.type == na.Type.DOUBLE
    with pytest.raises(ValueError):
        na.c_array(ad.to_arrow(np.array([300])), na.uint8())
    assert pl.Series("x", array).dtype == pl.Int64
