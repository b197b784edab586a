"""What `device=`, `copy=` and `stream=` ask for comes by one copy where one is enough, else an error says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from test_device_opaque import METAL, ROCM, opaque

BATCH = pa.RecordBatch.from_pydict({"a": pa.array([1, 2, 3], pa.int32()), "s": ["x", "y", "z"]})


@pytest.fixture
def pool() -> Iterator[fakes.Pool]:
    made = fakes.Pool()
    yield made
    made.close()


def listed(tensor: Any) -> Any:
    return np.array(tensor.to_device("cpu")).tolist()


class TestTensorsForTheCpu:
    def test_strided_ones_are_moved_first(self, pool: fakes.Pool) -> None:
        def strided() -> fakes.Torch:
            tensor = fakes.Torch(pool, np.arange(6, dtype="int32"))
            tensor.shape, tensor.strides = (3,), (2,)
            return tensor

        assert listed(ad.to_tensor(strided(), device="cpu")) == [0, 2, 4]
        own = ad.from_dlpack(strided())
        assert listed(ad.to_tensor(own, device="cpu")) == [0, 2, 4]
        report = ad.explain(own, device="cpu")
        assert (report[0].how, report.transfer.how) == ("copy", "copy")
        assert (ad.explain(own)[0].how, str(ad.explain(own)[0].device)) == ("copy", "cuda:0")

    def test_their_validity_too(self, pool: fakes.Pool) -> None:
        values = fakes.Torch(pool, np.arange(3, dtype="int32"))
        valid = fakes.Torch(pool, np.array([True, False, True]))
        assert pa.array(ad.to_arrow(values, validity=valid, device="cpu")).to_pylist() == [0, None, 2]


@pytest.mark.parametrize("form", ["column", "tensor", "matrix", "columns"])
@pytest.mark.parametrize("keywords", [{}, {"writable": True}, {"copy": True}])
def test_what_was_copied_for_a_call_is_its_own(form: str, keywords: dict[str, Any]) -> None:
    source = ad.from_arrow(BATCH.select(["a"])).to_device("cuda")
    with ad.track_copies() as log:
        if form == "columns":
            result = ad.to_tensors(source, device="cpu", **keywords)["a"]
            report = ad.explain(source, device="cpu", **keywords)
        elif form == "matrix":
            result = ad.to_tensor(source, device="cpu", **keywords)
            report = ad.explain(source, order="C", device="cpu", **keywords)
        else:
            one: Any = source["a"] if form == "column" else ad.to_tensor(source["a"])
            result = ad.to_tensor(one, device="cpu", **keywords)
            report = ad.explain(one, device="cpu", **keywords)
    assert (result.copied, result.writable) == (True, True)
    assert [entry.bytes for entry in log] == [12]
    assert (report.matrices or report.rows)[0].how == "copy"
    if form != "matrix":
        assert report.bytes >= log.bytes
    assert np.array(result).ravel().tolist() == [1, 2, 3]


def test_two_results_share_no_writable_memory() -> None:
    source = ad.from_arrow(BATCH).to_device("cuda")
    made = ad.to_tensors(source, columns={"x": "a", "y": "a"}, device="cpu", writable=True)
    np.from_dlpack(made["x"])[0] = 9
    assert listed(made["y"]) == [1, 2, 3]
    # Memory that the host reads where it is stays the producer's.
    pinned = ad.to_tensor(ad.from_arrow(BATCH).to_device("cuda_host")["a"], device="cpu")
    assert (pinned.copied, pinned.writable) == (False, False)


@pytest.mark.parametrize("target", ["cuda:1", "cuda_host"])
def test_a_transfer_is_the_copy(target: str) -> None:
    batch = ad.from_arrow(BATCH).to_device("cuda:0")
    moved = next(ad.from_arrow(ad.from_arrow(pa.table(BATCH)).to_device("cuda:0"), device=target, copy=True))
    assert moved.device == ad.Device(target)
    assert pa.record_batch(moved.to_device("cpu")) == BATCH
    tensor = ad.to_tensor(batch["a"])
    with ad.track_copies() as log:
        array = ad.to_arrow(tensor, device=target, copy=True)
    assert (array.device, len(list(log))) == (ad.Device(target), 1)
    columns = ad.to_arrow(ad.from_dlpack(tensor), device=target, copy=True)
    assert pa.array(columns.to_device("cpu")).to_pylist() == [1, 2, 3]
    rows = ad.to_ragged(batch["s"], device=target, copy=True)
    assert rows.values.device == rows.offsets.device == ad.Device(target)
    assert rows.values.copied


def test_streams_on_the_host_are_copied_where_they_go() -> None:
    for keywords in ({}, {"device": "cpu"}, {"device": "cuda"}):
        (batch,) = ad.from_arrow(pa.table(BATCH), copy=True, **keywords)
        assert pa.record_batch(batch.to_device("cpu")) == BATCH


def test_a_copy_that_is_not_made_says_what_to_do() -> None:
    pinned = ad.to_tensor(ad.from_arrow(BATCH).to_device("cuda_host")["a"])
    with pytest.raises(ad.ConversionError, match=r'cuda_host.* copy=True .*to_device\("cpu"\)'):
        ad.from_dlpack(pinned, copy=True)
    foreign = ad.to_tensor(opaque(METAL)[1])
    with pytest.raises(ad.ConversionError, match=r"metal.* copy=True .*the library that made it"):
        ad.from_dlpack(foreign, copy=True)
    with pytest.raises(ad.ConversionError, match="no copy of an array is made; pass device="):
        ad.from_arrow(ad.from_arrow(BATCH).to_device("cuda"), copy=True)


@pytest.mark.parametrize("kind", [ROCM, METAL])
def test_devices_without_a_way_to_the_cpu_are_left_to_their_library(kind: int) -> None:
    array = ad.from_arrow(opaque(kind)[1])
    for refused in (array.__arrow_c_array__, lambda: ad.to_tensor(array, dtype="float64")):
        with pytest.raises(ad.ConversionError, match="with the library that made it") as raised:
            refused()
        assert "to_device" not in str(raised.value)


def test_nulls_that_are_not_counted_are_so_many_at_most() -> None:
    lists = pa.array([[9, 9], [1, 2], [3, None], [5, 6]], pa.list_(pa.int32(), 2))[1:]
    with pytest.raises(ad.CopyError, match="at most 6 nulls filled"):
        ad.to_tensor(ad.from_arrow(lists).to_device("cuda"), nulls=0, copy=False)


def test_a_batch_without_columns_is_a_matrix_without_columns() -> None:
    empty = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    source = ad.from_arrow(empty)
    for one in (source, source.to_device("cuda")):
        assert ad.to_tensor(one, dtype="float32").shape == (2, 0)


class TestStreamsByIndex:
    def test_what_has_an_index_is_a_stream(self) -> None:
        tensor = ad.to_tensor(ad.from_arrow(BATCH).to_device("cuda")["a"])
        for number in (np.int64(1), np.int32(2), np.uint64(driver.Stream().handle)):
            with ad.stream(number):
                pass
            tensor.to_device("cpu", stream=number)
            tensor.__dlpack__(stream=number)
        tensor.record_stream(np.int64(1))
        tensor.__dlpack__(stream=np.int64(-1))

    def test_others_are_none(self) -> None:
        for wrong in (True, np.bool_(True), 1.0, "1"):
            with pytest.raises(TypeError):
                ad.stream(wrong)
        with pytest.raises(ad.ConversionError):
            ad.stream(np.int64(0))


def test_a_cast_of_a_stream_is_refused_at_once() -> None:
    def stream() -> ad.ArrayStream:
        return ad.from_arrow(pa.table(BATCH.select(["a"]))).to_device("cuda")

    wider = pa.schema([("a", pa.int64())]).__arrow_c_schema__
    asked = stream()
    with pytest.raises(ad.ConversionError, match='column "a": Int32 as Int64 is a cast'):
        asked.__arrow_c_device_stream__(wider())
    # It was not consumed.
    assert len(list(asked)) == 1
    (batch,) = ad.from_arrow(Given(stream().__arrow_c_device_stream__(wider(), requested_device="cpu")))
    assert pa.record_batch(batch).schema.field("a").type == pa.int64()
    same = pa.schema([pa.field("a", pa.int32(), metadata={"k": "v"})]).__arrow_c_schema__()
    assert len(list(ad.from_arrow(Given(stream().__arrow_c_device_stream__(same))))) == 1


class Given:
    """What has a device stream."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **_keywords: Any) -> Any:
        return self.capsule


@pytest.mark.parametrize("device", ["cuda", "cuda_host"])
def test_arrays_say_as_streams_do_which_cast_is_not_made(device: str) -> None:
    requested = pa.field("x", pa.struct([("a", pa.int64()), ("s", pa.string())]))
    rows = BATCH.to_struct_array()
    array = ad.from_arrow(rows).to_device(device)
    stream = ad.from_arrow(pa.chunked_array([rows])).to_device(device)
    errors = []
    for export in (array.__arrow_c_device_array__, stream.__arrow_c_device_stream__):
        with pytest.raises(ad.ConversionError, match="Int32 as Int64 is a cast, and none is made on") as caught:
            export(requested.__arrow_c_schema__())
        assert caught.value.column == "a"
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    with pytest.raises(ad.ConversionError, match="Utf8 as LargeUtf8 is a cast") as caught:
        array["s"].__arrow_c_device_array__(pa.field("", pa.large_string()).__arrow_c_schema__())
    assert (caught.value.column, 'copy it with .to_device("cpu") first' in caught.value.remedy) == ("s", True)
    made = array["s"].to_device("cpu").__arrow_c_array__(pa.field("", pa.large_string()).__arrow_c_schema__())
    assert pa.Array._import_from_c_capsule(*made).to_pylist() == ["x", "y", "z"]
