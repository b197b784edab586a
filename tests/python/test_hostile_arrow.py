"""Arrow structs that break the C data interface, or bend it: the right data or a clear error, released exactly once."""

import contextlib
import gc
import struct
from collections.abc import Callable

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from producers import Array, Only, Schema, Stream

MAX = 2**63 - 1
MIN = -(2**63)
I3 = struct.pack("3i", 1, 2, 3)
Pair = tuple[Schema, Array]


def of(format: bytes, *buffers: bytes | None, length: int = 3, **fields) -> Pair:
    return Schema(format), Array(length, buffers, **fields)


def listed(size: bytes = b"+w:1", *, child: dict | None = None, **fields) -> Pair:
    buffers = fields.pop("buffers", [None])
    return (
        Schema(size, children=[Schema(field=b"item")]),
        Array(fields.pop("length", 3), buffers, children=[Array(**(child or {}))], **fields),
    )


def record(children: int = 2, **fields) -> Pair:
    schemas = [Schema(field=b"abc"[i : i + 1]) for i in range(children)]
    return Schema(b"+s", children=schemas), Array(3, [None], children=[Array() for _ in range(children)], **fields)


def dictionary(**fields) -> Pair:
    values = Array(2, [None, struct.pack("3i", 0, 1, 2), b"ab"])
    return Schema(b"i", dictionary=Schema(b"u")), Array(
        3, [None, struct.pack("3i", 0, 1, 0)], dictionary=values, **fields
    )


def nested(depth: int, **fields) -> Pair:
    schema, array = Schema(), Array()
    for _ in range(depth):
        schema, array = Schema(b"+w:1", children=[schema]), Array(3, [None], children=[array])
    return schema, array


# What is refused: how to make it, and in what class the error is.
REFUSED: dict[str, Callable[[], Pair]] = {
    "negative length": lambda: of(b"i", None, I3, length=-1),
    "lowest length": lambda: of(b"i", None, I3, length=MIN),
    "negative offset": lambda: of(b"i", None, I3, offset=-1),
    "offset and length that overflow": lambda: of(b"i", None, I3, length=MAX, offset=MAX),
    "a length whose bytes overflow": lambda: of(b"l", None, I3, length=MAX),
    "a length whose bytes leave the address space": lambda: of(b"l", None, I3, length=2**60),
    "null count -2": lambda: of(b"i", None, I3, null_count=-2),
    "more nulls than values": lambda: of(b"i", b"\0", I3, null_count=4),
    "nulls without a bitmap": lambda: of(b"i", None, I3, null_count=1),
    "one buffer too few": lambda: of(b"i", None),
    "no buffers": lambda: of(b"i"),
    "one buffer too many": lambda: of(b"i", None, I3, I3),
    "negative buffer count": lambda: of(b"i", None, I3, n_buffers=-1),
    "highest buffer count": lambda: of(b"i", None, I3, n_buffers=MAX),
    "more buffers than a view can name": lambda: of(b"vu", None, bytes(48), bytes(8), n_buffers=2**62),
    "no array of buffers": lambda: of(b"i", None, I3, buffers_=None),
    "misaligned array of buffers": lambda: of(b"i", None, I3, buffers_=0x1001),
    "no values": lambda: of(b"i", None, None),
    "values at the end of the address space": lambda: (Schema(), Array(3, [None, 2**64 - 8])),
    "no bits": lambda: of(b"b", None, None),
    "a child of a number": lambda: (Schema(b"i"), Array(children=[Array()])),
    "a child of a number in the schema": lambda: (Schema(b"i", children=[Schema()]), Array()),
    "a dictionary of a number": lambda: (Schema(b"i"), Array(dictionary=Array())),
    "no dictionary": lambda: (Schema(b"i", dictionary=Schema(b"u")), Array()),
    "a dictionary of floats": lambda: (Schema(b"f", dictionary=Schema(b"u")), Array(dictionary=Array())),
    "a list without a child": lambda: (Schema(b"+w:1", children=[Schema()]), Array(3, [None])),
    "a list without a child in the schema": lambda: (Schema(b"+w:1"), Array(3, [None], children=[Array()])),
    "a list with two children": lambda: (
        Schema(b"+w:1", children=[Schema()]),
        Array(3, [None], children=[Array(), Array()]),
    ),
    "a list whose child is too short": lambda: listed(b"+w:2"),
    "a list whose sliced child is too short": lambda: listed(b"+w:1", offset=1),
    "a list whose child is negative": lambda: listed(child={"length": -3}),
    "a list whose size overflows": lambda: listed(b"+w:2147483647", length=MAX // 4),
    "negative child count": lambda: listed(n_children=-1),
    "child count without children": lambda: listed(children_=None),
    "misaligned array of children": lambda: listed(children_=0x1003),
    "a struct with a column too few": lambda: (
        Schema(b"+s", children=[Schema(), Schema()]),
        Array(3, [None], children=[Array()]),
    ),
    "a struct whose column is too short": lambda: (
        Schema(b"+s", children=[Schema()]),
        Array(3, [None], children=[Array(2, [None, I3])]),
    ),
    "a sliced struct whose column is too short": lambda: record(1, offset=1),
    "a struct with a bitmap that is not there": lambda: record(1, null_count=1),
    "negative list size": lambda: listed(b"+w:-1"),
    "list size beyond 32 bits": lambda: listed(b"+w:99999999999"),
    "list size that is no number": lambda: listed(b"+w:x"),
    "nesting without end": lambda: nested(100),
    "no format": lambda: (Schema(None), Array()),
    "empty format": lambda: (Schema(b""), Array()),
    "unknown format": lambda: (Schema(b"?"), Array()),
    "trailing format": lambda: (Schema(b"ii"), Array()),
    "format that is not UTF-8": lambda: (Schema(b"\xff\xfe"), Array()),
    "name that is not UTF-8": lambda: (Schema(b"i", field=b"\xff\xfe"), Array()),
    "negative child count in the schema": lambda: (Schema(n_children=-1), Array()),
    "children missing from the schema": lambda: (Schema(b"+s", n_children=2), Array(3, [None])),
    "misaligned children in the schema": lambda: (Schema(b"+s", n_children=1, children_=0x1001), Array(3, [None])),
    "time zone of a date": lambda: (Schema(b"tdD:UTC"), Array()),
    "unknown unit": lambda: (Schema(b"tsx:"), Array()),
    "negative count of metadata": lambda: (Schema(metadata=struct.pack("i", -1)), Array()),
    "negative length in metadata": lambda: (Schema(metadata=struct.pack("ii", 1, -5)), Array()),
    "tensor metadata that is no JSON": lambda: tensor_type(b"nonsense"),
    "tensor metadata without a shape": lambda: tensor_type(b"{}"),
    "tensor shape of another size": lambda: tensor_type(b'{"shape":[2,2]}'),
    "negative tensor shape": lambda: tensor_type(b'{"shape":[-1,-3]}'),
    "tensor shape that overflows": lambda: tensor_type(b'{"shape":[9223372036854775807,3]}'),
    "permutation out of range": lambda: tensor_type(b'{"shape":[3,1],"permutation":[0,2]}'),
    "permutation that repeats": lambda: tensor_type(b'{"shape":[3,1],"permutation":[0,0]}'),
    "permutation too long": lambda: tensor_type(b'{"shape":[3,1],"permutation":[0,1,2]}'),
    "an event on the CPU": lambda: (Schema(), Array(device=(1, -1), sync_event=0x1000)),
    "device id beyond 32 bits": lambda: (Schema(), Array(device=(2, 2**40))),
}


def tensor_type(metadata: bytes) -> Pair:
    entries = {b"ARROW:extension:name": b"arrow.fixed_shape_tensor", b"ARROW:extension:metadata": metadata}
    schema = Schema(b"+w:3", metadata=entries, children=[Schema(field=b"item")])
    return schema, Array(1, [None], children=[Array()])


CONVERSIONS = [ad.to_tensor, ad.to_tensors, ad.validity, ad.from_arrow, ad.explain]


@pytest.mark.parametrize("form", ["host", "device", "stream"])
@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str, form: str):
    # Explaining reads no stream.
    for convert in CONVERSIONS[: 4 if form == "stream" else 5]:
        schema, array = REFUSED[case]()
        if array.name == b"arrow_array" and form == "device":
            as_device(array)
        source = producers.arrow(schema, array)
        if form == "stream":
            device_type = None if array.name == b"arrow_array" else array.struct.device_type
            source = producers.stream(Stream([array], schema=lambda made=schema: made, device_type=device_type))
        with pytest.raises((BufferError, TypeError)) as caught:
            drain(convert(source))
        assert str(caught.value)
        del source, caught
        gc.collect()
        if form == "stream" and not array.released:
            # The stream's schema was wrong already, and the array stayed its producer's.
            forget(array)
        assert (schema.releases, array.releases) == (schema.expected, array.expected)


def drain(answer: object) -> None:
    """Some faults show only when a stream is read, or the row of a report."""
    for one in answer if isinstance(answer, (ad.ArrayStream, ad.Report)) else [answer]:
        if isinstance(one, ad.ReportRow):
            raise BufferError(one.error or "")
        convert = ad.to_tensors if isinstance(one, ad.RecordBatch) else ad.to_tensor
        if not isinstance(one, (ad.Tensor, dict)):
            convert(one)


def forget(*made: producers.ArrowNode) -> None:
    """For what no consumer was given."""
    for one in made:
        if not one.released:
            producers.release_struct(one.struct)


def as_device(array: Array) -> None:
    array.struct = producers.ArrowDeviceArray(array=array.array, device_id=-1, device_type=1)
    array.name = b"arrow_device_array"


ACCEPTED: dict[str, tuple[Callable[[], Pair], list | None]] = {
    "plain": (lambda: (Schema(), Array()), [1, 2, 3]),
    "no name": (lambda: (Schema(field=None), Array()), [1, 2, 3]),
    "unknown null count, no bitmap": (lambda: of(b"i", None, I3, null_count=-1), [1, 2, 3]),
    "unknown null count, no nulls": (lambda: of(b"i", b"\7", I3, null_count=-1), [1, 2, 3]),
    "a bitmap that counts as unused": (lambda: of(b"i", b"\0", I3, null_count=0), [1, 2, 3]),
    "offset": (lambda: of(b"i", None, I3, length=2, offset=1), [2, 3]),
    "no length": (lambda: of(b"i", None, I3, length=0), []),
    "no length and no values": (lambda: of(b"i", None, None, length=0), []),
    "no length at an offset": (lambda: of(b"i", None, None, length=0, offset=5), []),
    "no length and no bits": (lambda: of(b"b", None, None, length=0), []),
    "misaligned values": (lambda: (Schema(), Array(3, [None, I3], misaligned_by=1)), [1, 2, 3]),
    "bits": (lambda: of(b"b", None, b"\x05"), [True, False, True]),
    "a list": (listed, [[1], [2], [3]]),
    "a list with a longer child": (lambda: listed(length=2), [[1], [2]]),
    "a list at an offset": (lambda: listed(length=2, offset=1), [[2], [3]]),
    "a child at an offset": (lambda: listed(length=2, child={"length": 2, "offset": 1}), [[2], [3]]),
    "lists of nothing": (
        lambda: (Schema(b"+w:0", children=[Schema()]), Array(3, [None], children=[Array(0, [None, None])])),
        [[], [], []],
    ),
    "nesting to a depth": (lambda: nested(20), None),
    "unknown flags": (lambda: (Schema(flags=-1), Array()), [1, 2, 3]),
    "no null flag, and no null": (lambda: (Schema(flags=0), Array()), [1, 2, 3]),
    "metadata": (lambda: (Schema(metadata={b"k": b"v", b"": b"", b"\xff": b"\xff\0"}), Array()), [1, 2, 3]),
    "an unknown extension": (lambda: (Schema(metadata={b"ARROW:extension:name": b"mine"}), Array()), [1, 2, 3]),
    "a device id of 0": (lambda: (Schema(), Array(device=(1, 0))), [1, 2, 3]),
    "garbage in reserved bytes": (lambda: (Schema(), Array(device=(1, -1), reserved=-1)), [1, 2, 3]),
    "tensor": (lambda: tensor_type(b'{"shape":[3,1],"dim_names":["a","b"]}'), [[[1], [2], [3]]]),
    "permuted tensor": (lambda: tensor_type(b'{"shape":[3,1],"permutation":[1,0]}'), [[[1, 2, 3]]]),
    "timestamp": (lambda: (Schema(b"tsu:UTC"), Array(1, [None, struct.pack("q", 7)])), [7]),
}


@pytest.mark.parametrize("form", ["host", "device", "stream"])
@pytest.mark.parametrize("case", ACCEPTED)
def test_is_accepted(case: str, form: str):
    make, expected = ACCEPTED[case]
    schema, array = make()
    if form != "host" and array.name == b"arrow_array":
        as_device(array)
    if form == "stream":
        source = producers.stream(Stream([array], schema=lambda: schema, device_type=1))
    else:
        source = producers.arrow(schema, array)
    tensor = ad.to_tensor(source)
    values = np.from_dlpack(tensor)
    assert expected is None or values.tolist() == expected
    # A copy does not hold on to its source.
    assert array.releases == int(tensor.copied or tensor.size == 0)
    assert pa.array(ad.to_arrow(tensor)) is not None
    del values, tensor, source
    gc.collect()
    assert array.releases == 1


def test_a_schema_that_was_released():
    schema = Schema(release=None)
    array = Array()
    with pytest.raises(ad.ConversionError, match="released"):
        ad.to_tensor(producers.arrow(schema, array))


class TestContents:
    """What only the buffers show: such data passes through, and is refused where it would have to be read."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda: of(b"u", None, struct.pack("4i", 0, 1, 2, 2**31 - 1), b"abc"),
            lambda: of(b"u", None, struct.pack("4i", 0, 5, 2, 3), b"abc"),
            lambda: of(b"u", None, struct.pack("4i", -1, 1, 2, 3), b"abc"),
            lambda: of(b"u", None, struct.pack("4i", 0, 1, 2, 3), b"\xff\xff\xff"),
            lambda: of(b"U", None, struct.pack("4q", 0, 1, 2, -3), b"abc"),
            lambda: (
                Schema(b"+l", children=[Schema()]),
                Array(3, [None, struct.pack("4i", 0, 1, 2, 99)], children=[Array()]),
            ),
        ],
    )
    def test_is_validated_where_it_is_read(self, make):
        schema, array = make()
        imported = ad.from_arrow(producers.arrow(schema, array))
        assert len(imported) == 3
        with pytest.raises(ad.UnsupportedTypeError):
            ad.to_tensor(imported)
        requested = pa.field("", pa.string_view())
        with pytest.raises(ValueError):
            imported.__arrow_c_array__(requested.__arrow_c_schema__())
        del imported
        assert array.releases == 1

    def test_codes_beyond_the_dictionary_are_refused_where_they_are_looked_up(self):
        array = Array(3, [None, struct.pack("3i", 0, 7, -1)], dictionary=Array())
        imported = ad.from_arrow(producers.arrow(Schema(b"i", dictionary=Schema()), array))
        assert np.from_dlpack(ad.to_tensor(imported)).tolist() == [0, 7, -1]
        with pytest.raises(ad.ConversionError, match="7"):
            ad.to_tensor(imported, dictionary="values")
        del imported
        gc.collect()
        assert array.releases == 1


class TestOtherDevices:
    """Memory on a device is held and never read."""

    @pytest.mark.parametrize("device", [(2, 0), (3, 1), (14, 0), (99, 5)])
    def test_arrays(self, device):
        array = Array(3, [None, 64], device=device)
        schema = Schema(field=b"x")
        held = ad.from_arrow(producers.arrow(schema, array))
        assert (held.device.type, held.device.id) == device
        assert "x" in repr(held)
        for hold in (ad.to_tensor, lambda a: a.__dlpack__()):
            # A view that nobody reads, but where a driver has to be asked first.
            with contextlib.suppress(BufferError):
                hold(held)
        for read in (
            ad.validity,
            lambda a: a.__arrow_c_array__(),
            lambda a: a.to_device("cpu"),
            lambda a: ad.from_arrow(a, copy=True),
            lambda a: ad.from_arrow(a, device="cpu"),
            lambda a: ad.to_tensor(a, device="cpu"),
        ):
            with pytest.raises(BufferError):
                read(held)
        remedy = r"to_device\(\"cpu\"\)" if device[0] in (2, 3) else "with the library that made it"
        with pytest.raises(BufferError, match=remedy):
            held.__arrow_c_array__()
        # It passes through the device dunder as it came.
        back = ad.from_arrow(producers.only("__arrow_c_device_array__", held))
        assert (back.device.type, back.device.id) == device
        del held, back
        gc.collect()
        assert array.releases == 1

    def test_streams(self):
        array = Array(3, [None, 64], device=(2, 0))
        stream = Stream([array], device_type=2)
        held = ad.from_arrow(producers.stream(stream))
        with pytest.raises(BufferError):
            held.__arrow_c_stream__()
        with pytest.raises(BufferError):
            held.to_device("cpu")
        (only,) = held
        assert only.device.type == 2
        del only, held
        assert (array.releases, stream.releases) == (1, 1)


class TestStreams:
    @pytest.mark.parametrize(
        "fields",
        [{"get_schema": None}, {"get_next": None}, {"get_last_error": None}],
        ids=lambda fields: next(iter(fields)),
    )
    def test_without_a_callback(self, fields):
        array = Array()
        stream = Stream([array, (5, b"never told")], **fields)
        with pytest.raises(ad.ConversionError, match=r"NULL|no message"):
            ad.to_tensor(producers.stream(stream))
        assert stream.releases == 1
        forget(array)

    def test_without_a_release(self):
        stream = Stream(release=None)
        with pytest.raises(ad.ConversionError, match="released"):
            ad.from_arrow(producers.stream(stream))

    def test_arrays_of_another_type(self):
        arrays = [Array(), Array(3, [None, I3, I3])]
        stream = Stream(arrays)
        with pytest.raises(ad.ConversionError, match="n_buffers"):
            ad.to_tensor(producers.stream(stream))
        assert [array.releases for array in arrays] == [1, 1]

    def test_arrays_on_another_device(self):
        arrays = [Array(device=(1, 0)), Array(device=(2, 0))]
        stream = Stream(arrays, device_type=1)
        with pytest.raises(ad.ConversionError, match="cuda:0"):
            ad.to_tensor(producers.stream(stream))
        assert [array.releases for array in arrays] == [1, 1]

    @pytest.mark.parametrize("message", [b"no \xff UTF-8", b"", None, b"x" * 10_000])
    def test_messages(self, message):
        stream = Stream([(5, message)])
        with pytest.raises(ad.ConversionError, match="code 5"):
            ad.to_tensor(producers.stream(stream))
        assert stream.releases == 1


def test_a_dunder_that_uses_us_while_it_is_asked():
    def answer():
        assert np.from_dlpack(ad.to_tensor(producers.arrow(Schema(), Array()))).tolist() == [1, 2, 3]
        return schema.capsule(), array.capsule()

    schema, array = Schema(), Array()
    assert np.from_dlpack(ad.to_tensor(Only("__arrow_c_array__", answer))).tolist() == [1, 2, 3]
