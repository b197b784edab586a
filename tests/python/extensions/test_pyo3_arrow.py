"""Classes of pyo3-arrow to this crate's arrays and streams, and back, over the same memory."""

from __future__ import annotations

import subprocess
import sys

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest

ROCM = 10


def values_at(array: pa.Array) -> int:
    """The address of the values of an array of fixed width."""
    return array.buffers()[1].address + array.offset * array.type.bit_width // 8


def of_package(data: object) -> object:
    """The data as a class of the package, so that this crate is who reads it."""
    return ad.from_arrow(data)


# ---- Arrays ----


@pytest.mark.parametrize("offset", [0, 2])
def test_an_array_is_viewed(beside, offset: int) -> None:
    source = pa.array([1, 2, 3, 4], pa.int16())[offset:]
    tensor = beside.view_array(source)
    assert type(tensor) is ad.Tensor
    assert np.from_dlpack(tensor).tolist() == source.to_pylist()
    assert np.from_dlpack(tensor).ctypes.data == values_at(source)


def test_an_array_keeps_its_field_and_memory(beside) -> None:
    field = pa.field("day", pa.timestamp("ms", "UTC"), metadata={"unit": "day"})
    source = pa.record_batch([pa.array([1, None, 3], field.type)], schema=pa.schema([field]))
    array = beside.package_array(pa.array([1, None, 3], field.type))
    assert type(array) is ad.Array
    assert pa.array(array).equals(source["day"])
    column = of_package(source)["day"]
    back = beside.array(column)
    assert pa.field(back) == field
    assert pa.field(back).metadata == {b"unit": b"day"}
    assert pa.array(back).equals(source["day"])
    assert [each.address for each in pa.array(back).buffers()] == [each.address for each in source["day"].buffers()]


@pytest.mark.parametrize(
    "source",
    [
        pa.array([True, None, False]),
        pa.array(["a", None, "bcd"]),
        pa.array(["a", None, "b" * 40], pa.string_view()),
        pa.array([b"a", None], pa.large_binary()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([[1, 2], None, []], pa.list_(pa.int8())),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
        pa.array([{"x": 1, "y": "a"}, {"x": None, "y": "b"}]),
        pa.array([None, None]),
        pa.array([], pa.float64()),
    ],
    ids=lambda source: str(source.type),
)
def test_every_type_goes_both_ways(beside, source: pa.Array) -> None:
    assert pa.array(beside.package_array(source)).equals(source)
    assert pa.array(beside.array(of_package(source))).equals(source)


def test_a_null_is_an_error_of_the_package(beside) -> None:
    with pytest.raises(ad.NullError, match="null"):
        beside.view_array(pa.array([1, None]))


def test_bools_are_no_view(beside) -> None:
    with pytest.raises(ad.CopyError):
        beside.view_array(pa.array([True, False]))


# ---- Chunked arrays ----


def test_a_chunked_array_goes_both_ways(beside) -> None:
    source = pa.chunked_array([[1.5], [], [2.5, None]])
    stream = beside.package_chunked(source)
    assert type(stream) is ad.ArrayStream
    assert pa.chunked_array(stream).equals(source)
    for back in (beside.chunked(of_package(source)), beside.rechunked_column(source)):
        back = pa.chunked_array(back)
        assert back.equals(source)
        assert [values_at(chunk) for chunk in back.chunks if len(chunk)] == [
            values_at(chunk) for chunk in source.chunks if len(chunk)
        ]


def test_one_chunk_is_viewed_and_two_are_no_view(beside) -> None:
    source = pa.chunked_array([[1, 2]])
    assert np.from_dlpack(beside.view_chunked(source)).ctypes.data == values_at(source.chunk(0))
    with pytest.raises(ad.CopyError, match="chunk"):
        beside.view_chunked(pa.chunked_array([[1], [2]]))


def test_a_chunked_array_without_chunks_has_a_type(beside) -> None:
    source = pa.chunked_array([], pa.int16())
    tensor = beside.view_chunked(source)
    assert (tensor.dtype, tensor.shape) == ("int16", (0,))
    assert pa.chunked_array(beside.rechunked_column(source)).type == pa.int16()


# ---- Batches and tables ----


@pytest.fixture(scope="module")
def batch() -> pa.RecordBatch:
    schema = pa.schema({"x": pa.float32(), "y": pa.float32()}, metadata={"made": "today"})
    return pa.record_batch([pa.array([1, 2], pa.float32()), pa.array([3, 4], pa.float32())], schema=schema)


def test_a_batch_goes_both_ways(beside, batch) -> None:
    made = beside.package_batch(batch)
    assert type(made) is ad.RecordBatch
    assert pa.record_batch(made).equals(batch, check_metadata=True)
    back = pa.record_batch(beside.batch(of_package(batch)))
    assert back.equals(batch, check_metadata=True)
    assert values_at(back["y"]) == values_at(batch["y"])
    assert np.from_dlpack(beside.batch_matrix(batch)).tolist() == [[1, 3], [2, 4]]


def test_a_batch_without_columns_keeps_its_rows(beside) -> None:
    source = pa.record_batch({"x": [1, 2, 3]}).select([])
    assert pa.record_batch(beside.package_batch(source)).num_rows == 3
    assert pa.record_batch(beside.batch(of_package(source))).num_rows == 3


def test_a_table_goes_both_ways(beside, batch) -> None:
    source = pa.Table.from_batches([batch, batch.slice(1), batch])
    stream = beside.package_table(source)
    assert type(stream) is ad.ArrayStream
    assert pa.table(stream).equals(source, check_metadata=True)
    for back in (beside.table(of_package(source)), beside.rechunked_table(source)):
        back = pa.table(back)
        assert back.equals(source, check_metadata=True)
        assert [values_at(chunk) for chunk in back["x"].chunks] == [values_at(chunk) for chunk in source["x"].chunks]
    assert np.from_dlpack(beside.table_matrix(source)).tolist() == [[1, 3], [2, 4], [2, 4], [1, 3], [2, 4]]


def test_a_table_without_batches_has_a_schema(beside, batch) -> None:
    source = batch.schema.empty_table()
    assert beside.table_matrix(source).shape == (0, 2)
    assert pa.table(beside.rechunked_table(source)).schema == batch.schema


# ---- Readers ----


def test_a_reader_is_read_batch_by_batch(beside, batch) -> None:
    made = []

    def batches():
        for number in range(3):
            made.append(number)
            yield batch

    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    stream = beside.package_reader(reader)
    assert made == []
    assert next(iter(stream)).num_rows == 2
    assert made == [0]
    made.clear()
    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    reader = pa.RecordBatchReader.from_stream(beside.reader(of_package(reader)))
    assert made == []
    assert reader.read_next_batch().equals(batch)
    assert made == [0]
    assert reader.read_all().num_rows == 4
    reader = pa.RecordBatchReader.from_batches(batch.schema, batches())
    assert beside.reader_matrix(reader).shape == (6, 2)


THREAD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("beside_pyo3_arrow", sys.argv[1])
beside = importlib.util.module_from_spec(spec)
spec.loader.exec_module(beside)
import pyarrow as pa
assert pa.table(beside.table_of_a_thread()).num_rows == 2
print("read")
"""


def test_a_stream_is_read_without_the_interpreter(beside) -> None:
    # Its producer's thread needs it. In a process of its own, which a timeout can end.
    command = [sys.executable, "-X", "faulthandler", "-c", THREAD, beside.__file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", "")


def test_the_error_of_a_source_is_raised(beside, batch) -> None:
    def batches():
        yield batch
        raise ZeroDivisionError("the second batch")

    for function in (beside.reader_matrix, lambda reader: beside.table(of_package(reader))):
        with pytest.raises(Exception, match="the second batch"):
            function(pa.RecordBatchReader.from_batches(batch.schema, batches()))


# ---- Schemas ----


def test_a_schema_goes_both_ways(beside, batch) -> None:
    for data in (batch, pa.table(batch)):
        made = pa.schema(beside.schema(of_package(data)))
        assert made.equals(batch.schema, check_metadata=True)
    assert pa.schema(beside.same_schema(batch.schema)).equals(batch.schema, check_metadata=True)


# ---- Bad input ----


def test_an_array_of_numbers_is_no_batch(beside) -> None:
    for function, data in [
        (beside.batch, pa.array([1])),
        (beside.schema, pa.array([1])),
        (beside.table, pa.chunked_array([[1]])),
        (beside.reader, pa.chunked_array([[1]])),
        (beside.schema, pa.chunked_array([[1]])),
    ]:
        with pytest.raises(ValueError, match="is no record batch"):
            function(of_package(data))


def test_null_rows_are_no_batch(beside) -> None:
    with pytest.raises(ad.NullError, match="no null rows"):
        beside.batch(of_package(pa.array([{"x": 1}, None])))


def on_rocm() -> tuple[producers.Array, object]:
    array = producers.Array(device=(ROCM, 0))
    return array, producers.arrow(producers.Schema(), array)


def test_memory_of_a_device_is_refused(beside) -> None:
    array, source = on_rocm()
    with pytest.raises(BufferError, match="rocm"):
        beside.array(source)
    assert array.released
    stream = producers.Stream([producers.Array(device=(ROCM, 0))], device_type=ROCM)
    with pytest.raises(BufferError, match="rocm"):
        beside.chunked(producers.stream(stream))
    assert stream.released


def test_memory_is_released_once(beside) -> None:
    array = producers.Array()
    kept = beside.package_array(producers.arrow(producers.Schema(), array))
    assert not array.released
    del kept
    assert array.released
    array = producers.Array()
    kept = beside.array(producers.arrow(producers.Schema(), array))
    assert not array.released
    del kept
    assert array.released
    stream = producers.Stream([producers.Array(), producers.Array()])
    kept = beside.package_chunked(producers.stream(stream))
    assert stream.released, "pyo3-arrow has read it"
    del kept


def test_a_stream_that_fails_releases_what_it_gave(beside) -> None:
    first = producers.Array()
    stream = producers.Stream([first, (5, b"no network")])
    with pytest.raises(Exception, match="no network"):
        beside.chunked(producers.stream(stream))
    assert stream.released
    assert first.released
