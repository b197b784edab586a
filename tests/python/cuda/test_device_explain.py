"""What `explain` says of data on a device is what the conversion then does, and it asks the driver for nothing."""

from __future__ import annotations

import time
from typing import Any

import arrow_dlpack as ad
import driver
import numpy as np
import producers
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from device_arrow import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream, Memory

ROWS = 100
BATCH = pa.RecordBatch.from_pydict(
    {
        "view": pa.array(np.arange(ROWS, dtype="float32")),
        "bits": pa.array([row % 3 == 0 for row in range(ROWS)]),
        "nulls": pa.array([None if row % 7 == 0 else row for row in range(ROWS)], pa.int32()),
        "whole": pa.array(np.arange(ROWS, dtype="int16")),
        "lists": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * ROWS, dtype="int64")), 2),
    }
)
KEYWORDS: dict[str, Any] = {"nulls": {"nulls": 0}, "dtype": {"whole": "float64"}}


def on(kind: int, data: Any = BATCH, **keywords: Any) -> Any:
    """The data in memory of this kind, as ours."""
    if kind == CPU:
        return ad.from_arrow(data)
    if isinstance(data, pa.RecordBatch):
        data = data.to_struct_array()
    return ad.from_arrow(DeviceArray(data, kind, **keywords).give())


def explained(source: Any, **keywords: Any) -> ad.Report:
    """The report, for which no function of the driver was called."""
    # What other threads of the package still do is not for the report.
    driver.run_all()
    while ad.collect():
        time.sleep(0.001)
    calls = driver.calls()
    report = ad.explain(source, **keywords)
    assert str(report)
    assert driver.calls() == calls
    return report


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_each_column(kind: int) -> None:
    source = on(kind)
    own = source.device
    report = explained(source, **KEYWORDS)
    rows = {row.column: (row.how, row.kernel, row.device, row.bytes) for row in report}
    made = ad.Device("cuda:0")
    assert rows == {
        "view": ("view", False, own, 0),
        "bits": ("copy", True, made, ROWS),
        "nulls": ("copy", True, made, 4 * ROWS),
        "whole": ("copy", True, made, 8 * ROWS),
        "lists": ("view", False, own, 0),
    }
    assert [row.column for row in report if row.waits] == ["whole"]
    assert "every value fits" in report["whole"].waits[0]
    assert report.transfer is None
    with ad.track_copies() as log:
        tensors = ad.to_tensors(source, **KEYWORDS)
    assert log.bytes == report.bytes
    for row in report:
        tensor = tensors[row.column]
        assert (tensor.device, tensor.dtype, tensor.shape) == (row.device, row.dtype, row.shape)
        assert tensor.copied == row.kernel


def test_its_text_names_the_device_the_kernel_and_the_waits() -> None:
    source = on(CUDA)
    head, *lines = str(explained(source, **KEYWORDS)).splitlines()
    assert head.split() == ["column", "Arrow", "type", "dtype", "shape", "device", "how", "bytes", "why"]
    assert all(" cuda:0 " in line for line in lines)
    assert lines[0].endswith("the layouts agree")
    assert lines[1].endswith("bits unpacked to bytes by a kernel")
    assert "cast from int16 to float64 by a kernel; the host waits: whether every value fits" in lines[3]
    sent = str(explained(source, columns=["bits"], device="cuda_host"))
    assert "bits unpacked to bytes by a kernel, copied to cuda_host:0, direct" in sent
    assert "device" not in str(explained(on(CPU), **KEYWORDS)).splitlines()[0]


@pytest.mark.parametrize("count", [True, False])
def test_the_host_waits_as_it_says(count: bool) -> None:
    def uncounted(array: Any) -> None:
        array.array.null_count = -1

    data = pa.array([0, 1, 2] if count else [None, 1, 2], pa.int8())
    source = on(CUDA, data, change=(lambda _: None) if count else uncounted)
    (row,) = explained(source)
    assert (row.how, bool(row.waits)) == ("view", not count)
    if not count:
        (row,) = explained(source, nulls=0)
        assert (row.how, row.steps, row.waits) == ("copy", ["at most 3 nulls filled"], [])


def test_bools_of_bytes() -> None:
    source = on(CUDA, pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 2], pa.int8())))
    (row,) = explained(source)
    assert (row.how, row.kernel, len(row.waits)) == ("view or copy", True, 1)
    (row,) = explained(source, copy=True)
    assert (row.how, row.waits) == ("copy", [])


@pytest.mark.parametrize("order", ["C", "F"])
def test_matrices(order: str) -> None:
    source = on(CUDA)
    columns = ["view", "bits", "whole"]
    report = explained(source, columns=columns, order=order)
    (matrix,) = report.matrices
    assert (matrix.how, matrix.kernel, matrix.device) == ("copy", True, ad.Device("cuda:0"))
    assert f"packed {'row' if order == 'C' else 'column'}-major" in matrix.steps
    assert len(matrix.waits) == 1
    assert report["whole"].waits == matrix.waits
    assert report["bits"].waits == []
    with ad.track_copies() as log:
        ad.to_tensor(source, columns=columns, order=order)
    assert log.bytes == matrix.bytes == report.bytes


@pytest.mark.parametrize("target", ["cpu", "cuda", "cuda_host"])
@pytest.mark.parametrize("kind", [CPU, CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("form", ["columns", "matrix"])
def test_transfers(kind: int, target: str, form: str) -> None:
    source = on(kind)
    is_before = target == "cpu" and kind != CPU
    if form == "columns":
        keywords = {**KEYWORDS, "device": target}
        report = explained(source, **keywords)
    else:
        keywords = {"nulls": {"nulls": 0}, "columns": ["view", "bits", "nulls", "whole"], "device": target}
        report = explained(source, order="C", **keywords)
    assert all(row.error is None for row in [*report, *report.matrices])
    with ad.track_copies() as log:
        tensors = ad.to_tensors(source, **keywords) if form == "columns" else {"": ad.to_tensor(source, **keywords)}
    results = list(report) if form == "columns" else report.matrices
    for row, tensor in zip(results, tensors.values(), strict=True):
        assert (row.device.type, tensor.dtype, tensor.shape) == (tensor.device.type, row.dtype, row.shape)
        if not is_before:
            assert tensor.copied == (row.how == "copy"), (row, tensor)
    assert report.bytes == log.bytes
    assert (report.transfer is not None) == is_before
    if is_before and kind == CUDA:
        assert report.transfer.how == "copy"
        assert report.transfer.bytes == log.entries[0].bytes


SLICED: dict[str, Any] = {
    "runs": pc.run_end_encode(pa.array(np.arange(10_000) // 2)),
    "list views": pa.array([[number, None] for number in range(10_000)], pa.list_view(pa.int32())),
    "views": pa.array([f"number {number:10}" for number in range(10_000)], pa.string_view()),
    "in structs": pa.array([{"s": [f"number {number:10}"]} for number in range(10_000)]),
}


@pytest.mark.parametrize("form", SLICED)
def test_slices_that_go_to_a_device_have_what_they_show(form: str) -> None:
    rows = pa.record_batch({"x": SLICED[form]}).slice(4_001, 5)
    keywords = {"columns": {"rows": ad.arrow("x")}, "device": "cuda"}
    report = ad.explain(rows, **keywords)
    with ad.track_copies() as log:
        sent = ad.to_tensors(rows, **keywords)["rows"]
    assert report.bytes == log.bytes
    assert 0 < log.bytes < 1_000
    assert pa.record_batch(sent.to_device("cpu")).to_pylist() == rows.to_pylist()


def test_where_offsets_tell_the_bytes() -> None:
    source = on(CUDA, pa.array(["a", "bc"]))
    report = explained(source, device="cpu")
    assert (report.transfer.how, report.transfer.bytes) == ("copy", 0)
    assert "offsets" in report.transfer.waits[0]
    assert "?" in str(report).splitlines()[1]
    here = explained(source)
    assert "offset" in here[0].waits[0]
    # The host has not read whether the offsets are those of a slice.
    assert [row.how for row in here] == ["view or copy", "view"]


def test_lists_of_what_kernels_convert() -> None:
    source = on(CUDA, pa.array([[True], [False, True]]))
    report = explained(source)
    assert report["values"].kernel
    assert report["values"].error is None
    assert ad.to_ragged(source).values.copied


@pytest.mark.parametrize("target", ["cpu", "cuda", "cuda_host"])
def test_lists_in_page_locked_memory_go_where_they_are_asked_for(target: str) -> None:
    data = pa.array([[True], [False, True]])
    ragged = ad.to_ragged(on(CUDA_HOST, data), device=target)
    assert ragged.values.device.type == ragged.offsets.device.type == ad.Device(target).type
    assert np.array(ragged.values.to_device("cpu")).tolist() == [True, False, True]
    if target != "cpu":
        report = explained(on(CUDA_HOST, data), device=target)
        assert {row.device.type for row in report} == {ad.Device(target).type}


RAGGED: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "kept, and none is null": (pa.array([[1], [2, 3]]), {"nulls": "keep"}),
    "kept": (pa.array([[1], None]), {"nulls": "keep"}),
    "filled": (pa.array([[1], None]), {"nulls": 0}),
    "filled, and none is null": (pa.array([[1], [2, 3]]), {"nulls": 0}),
    "copied": (pa.array([[1]]), {"copy": True}),
    "cast": (pa.array([[1], [2, 3]]), {"dtype": "float32"}),
    "list views": (pa.array([[1], [2, 3]], pa.list_view(pa.int32())), {"nulls": "keep"}),
    "nested": (pa.array([[[1], [2, 3]], []]), {}),
    "views": (pa.array(["a"], pa.string_view()), {}),
}


def parts_of(path: str, ragged: ad.Ragged) -> dict[str, ad.Tensor]:
    parts = {path + name: getattr(ragged, name) for name in ("offsets", "lengths", "validity")}
    values = ragged.values
    inner = parts_of(f"{path}values.", values) if isinstance(values, ad.Ragged) else {f"{path}values": values}
    return {name: part for name, part in (parts | inner).items() if part is not None}


@pytest.mark.parametrize("name", RAGGED)
def test_parts_of_rows_are_those_of_the_conversion(name: str) -> None:
    data, keywords = RAGGED[name]
    source = on(CUDA, data)
    report = explained(source, **keywords)
    if any(row.error for row in report):
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_ragged(source, **keywords)
        assert str(caught.value) in {row.error for row in report}
        return
    made = parts_of("", ad.to_ragged(source, **keywords))
    assert {row.column: (row.dtype, row.error, row.how == "copy") for row in report} == {
        column: (part.dtype, None, part.copied) for column, part in made.items()
    }


def test_misaligned_offsets_are_refused_as_the_conversion_does() -> None:
    data = pa.array([[1], [2, 3]])
    memory = Memory()
    moved = memory.place(b"\0\0" + data.buffers()[1].to_pybytes()) + 2

    def replace(node: producers.Array) -> None:
        node.buffers[1] = moved

    source = ad.from_arrow(DeviceArray(data, memory=memory, change=replace).give())
    with pytest.raises(ad.ConversionError) as caught:
        ad.to_ragged(source)
    assert str(caught.value) in {row.error for row in explained(source)}


def test_padded_rows_that_move_are_made_on_the_host() -> None:
    data = pa.array([[1], [2, 3]], pa.list_(pa.int8()))
    source = on(CUDA, data)
    moved = explained(source, pad=(0, 3), device="cpu")
    assert [(row.how, row.shape, row.device) for row in moved] == [("copy", (None, 3), ad.Device("cpu"))] * 2
    assert moved.transfer is not None
    assert all(row.steps[0] == "moved to cpu first" for row in moved)
    made = ad.to_ragged(source, pad=(0, 3), device="cpu")
    assert [(tensor.dtype, tensor.shape[1]) for tensor in made] == [(row.dtype, row.shape[1]) for row in moved]


def test_refusals() -> None:
    source = on(CUDA)
    for target in ("cpu", "cuda_host"):
        report = explained(source, columns=["view"], copy=False, device=target)
        assert "copy=None" in report["view"].error
        with pytest.raises(ad.ConversionError, match="pass copy=None"):
            ad.to_tensors(source, columns=["view"], copy=False, device=target)
    assert explained(source, columns=["view"], copy=False, device="cuda")["view"].how == "view"
    report = explained(source, columns=["view"], device="metal")
    assert "no copy between these" in report["view"].error
    decimals = on(CUDA, pa.array([1, 2], pa.decimal256(40, 1)))
    (row,) = explained(decimals, dtype="float64")
    assert (row.how, row.kernel) == ("refused", False)


def test_tensors_and_schemas() -> None:
    tensor = ad.to_tensor(on(CUDA, pa.array(np.arange(12.0))))
    (row,) = explained(tensor, device="cpu")
    assert (row.device, row.how) == (ad.Device("cpu"), "copy")
    (row,) = explained(tensor, device="cuda_host")
    assert (row.device, row.bytes) == (ad.Device("cuda_host"), 96)
    report = explained(BATCH.schema, device="cuda", nulls=0)
    assert {row.how for row in report} == {"copy"}
    assert all("staged" in row.steps[-1] for row in report)


def stream_on(device: str, data: Any = BATCH) -> ad.ArrayStream:
    return ad.from_arrow(pa.table(data)).to_device(device)


class Foreign:
    """A stream of another library, which says where it is."""

    def __init__(self, stream: ad.ArrayStream) -> None:
        self.stream, self.device = stream, str(stream.device)

    def __arrow_c_schema__(self) -> Any:
        return self.stream.__arrow_c_schema__()

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **_keywords: Any) -> Any:
        return self.stream.__arrow_c_device_stream__(requested_schema)


@pytest.mark.parametrize(("own", "foreign"), [("cuda:0", False), ("cuda:0", True), ("cuda_host:0", False)])
@pytest.mark.parametrize("target", [None, "cpu", "cuda:0", "cuda:1", "cuda_host"])
def test_streams_are_where_they_are(own: str, foreign: bool, target: str | None) -> None:
    stream: Any = Foreign(stream_on(own)) if foreign else stream_on(own)
    keywords = KEYWORDS if target is None else {**KEYWORDS, "device": target}
    report = explained(stream, **keywords)
    tensors = ad.to_tensors(stream, **keywords)
    assert (report.transfer is not None) == (target == "cpu")
    for row in report:
        tensor = tensors[row.column]
        assert (row.dtype, row.error) == (tensor.dtype, None)
        # What a kernel fills in page-locked memory is on its device, and whether one does is not known.
        if target is not None or own == "cuda:0" or row.how != "view or copy":
            assert row.device == tensor.device
        if target != "cpu" and row.how != "view or copy":
            assert (row.how == "copy") == tensor.copied, row
        if row.how == "view or copy":
            assert "if there are any" in row.steps[0] or "unless all rows are in one" in row.steps[0]
    if target is None:
        assert report["bits"].kernel
        assert "every value fits" in report["whole"].waits[-1]
    if target == "cpu":
        assert report.transfer.how == ("copy" if own == "cuda:0" else "view")


@pytest.mark.parametrize("chunks", [1, 2])
def test_chunks_of_a_stream_are_joined_by_a_kernel(chunks: int) -> None:
    """Neither how many a stream has nor their dictionaries are known before it is read."""
    codes = pa.array(["a", "b", "a"]).dictionary_encode()
    for data, refused in ((pa.array([1, 2]), []), (codes, ["chunks have different dictionaries"])):
        made = [DeviceStream([DeviceArray(data) for _ in range(chunks)]) for _ in range(2)]
        streams = [ad.from_arrow(stream.give()) for stream in made]
        (row,) = explained(streams[0], dictionary="codes")
        assert (row.how, row.kernel) == ("view or copy", True)
        assert row.steps == ["copied, unless all rows are in one aligned chunk"]
        assert row.refused_if == ["values are null", *refused]
        assert any("dictionaries" in wait for wait in row.waits) == bool(refused)
        assert ad.to_tensor(streams[0]).copied == (chunks > 1)
        (row,) = explained(streams[1], dictionary="codes", copy=False)
        assert row.refused_if == ["values are null", *refused, "rows are not in one aligned chunk"]
        assert not any("dictionaries" in wait for wait in row.waits)
        if chunks > 1:
            with pytest.raises(ad.CopyError, match="2 chunks joined"):
                ad.to_tensor(streams[1], copy=False)
        else:
            assert not ad.to_tensor(streams[1], copy=False).copied
    # No kernel is for numbers of 32 bytes.
    stream = ad.from_arrow(DeviceStream([DeviceArray(pa.array([1, 2], pa.decimal256(40, 1)))]).give())
    assert explained(stream)[0].how == "refused"
    assert len(list(stream)) == 1


def test_streams_of_what_no_kernel_is_for() -> None:
    data = {"d": pa.array([1, 2], pa.decimal256(40, 1)), "x": pa.array([1, 2])}
    report = explained(stream_on("cuda", data), dtype={"d": "float64"})
    assert [row.how for row in report] == ["refused", "view or copy"]
    (matrix,) = explained(stream_on("cuda", data), dtype="float64", order="C").matrices
    assert matrix.how == "refused"
    (matrix,) = explained(stream_on("cuda"), columns=["view", "whole"], order="C").matrices
    assert (matrix.device, matrix.kernel, matrix.error) == (ad.Device("cuda"), True, None)
    lists = explained(ad.ArrayStream.to_device(ad.from_arrow(pa.chunked_array([[[1], [2]]])), "cuda"))
    assert [(row.device, row.how) for row in lists] == [(ad.Device("cuda"), "view or copy")] * 2
    assert "offset" in lists["offsets"].waits[0]


@pytest.mark.parametrize("item", [pa.list_(pa.int32()), pa.list_view(pa.int32())])
@pytest.mark.parametrize("outer", [pa.list_, pa.list_view])
def test_a_stream_of_rows_waits_once_for_the_ends_of_each_level(item: pa.DataType, outer: Any) -> None:
    """Rows of list views have no ends to read."""
    data = pa.array([[[1]], [[2, 3], []]], outer(item))
    stream = explained(ad.ArrayStream.to_device(ad.from_arrow(pa.chunked_array([data])), "cuda"))
    waits = {row.column: len(row.waits) for row in stream if row.column.endswith("offsets")}
    is_list = [pa.types.is_list(data.type), pa.types.is_list(item)]
    assert waits == dict(zip(["offsets", "values.offsets"], map(int, is_list), strict=True))
    assert [row.shape[0] for row in stream] == [None] * len(stream)
    array = explained(on(CUDA, data))
    assert [row.column for row in array] == [row.column for row in stream]
    assert {row.column: len(row.waits) for row in array if row.column in waits} == waits


@pytest.mark.parametrize("form", ["column", "columns", "matrix", "groups"])
def test_nulls_that_are_counted_are_refused_wherever_they_go(form: str) -> None:
    data = pa.RecordBatch.from_pydict({"a": pa.array([1.0, None]), "b": pa.array([1.0, 2.0])})
    source = on(CUDA, data.column(0)) if form == "column" else on(CUDA, data)
    keywords: dict[str, Any] = {
        "column": {},
        "columns": {},
        "matrix": {"order": "C"},
        "groups": {"columns": {"g": ["a", "b"]}},
    }[form]
    for target in (None, "cpu"):
        device = {} if target is None else {"device": target}
        report = explained(source, **keywords, **device)
        convert: Any = ad.to_tensor if form in ("column", "matrix") else ad.to_tensors
        with pytest.raises(ad.NullError) as raised:
            convert(source, **device, **keywords)
        row = report.matrices[0] if report.matrices else report[0]
        assert (row.how, row.view) == ("refused", False), (target, row)
        assert raised.value.remedy in row.error
        assert "nan" in row.error
    assert explained(source, **keywords, nulls=0, device="cpu")[0].error is None


@pytest.mark.parametrize(
    ("kind", "target"), [(CPU, "cuda:0"), (CUDA, "cpu"), (CUDA, "cuda_host:0"), (CUDA_HOST, "cuda:0")]
)
@pytest.mark.parametrize("form", ["column", "columns", "matrix", "rows"])
def test_a_copy_that_is_asked_for_is_the_one_on_the_way(kind: int, target: str, form: str) -> None:
    """What a transfer copies is nobody else's: no second copy of it is made."""
    data = {"column": BATCH["view"], "rows": pa.array([[1, 2], [3]])}.get(form, BATCH.select(["view"]))
    convert = {"column": ad.to_tensor, "matrix": ad.to_tensor, "columns": ad.to_tensors, "rows": ad.to_ragged}[form]
    keywords: dict[str, Any] = {"device": target, "copy": True}
    report = explained(on(kind, data), **keywords, **({"order": "C"} if form == "matrix" else {}))
    with ad.track_copies() as log:
        made = convert(on(kind, data), **keywords)
    results = report.matrices if form == "matrix" else report.rows
    copies = 1 if report.transfer else sum(row.how == "copy" for row in results)
    assert len(log.entries) == copies, log.entries
    if None not in [extent for row in results for extent in row.shape]:
        # After a transfer only the type is known: whether columns lie as the matrix is not.
        assert log.bytes <= report.bytes if report.transfer else log.bytes == report.bytes
    tensors = [made["view"]] if form == "columns" else [made.values, made.offsets] if form == "rows" else [made]
    assert all(tensor.device == ad.Device(target) and tensor.copied for tensor in tensors)


@pytest.mark.parametrize("names", [None, ["a", "b"]])
@pytest.mark.parametrize("target", [None, "cpu", "cuda"])
@pytest.mark.parametrize("kind", [CPU, CUDA, CUDA_MANAGED])
def test_of_tensors_that_become_arrow_data(kind: int, target: str | None, names: list[str] | None) -> None:
    values = pa.array(np.arange(2 * ROWS, dtype="int64"))
    tensor = ad.to_tensor(on(kind, pa.FixedSizeListArray.from_arrays(values, 2) if names else values))
    report = explained(tensor, to_arrow=True, names=names, device=target)
    with ad.track_copies() as log:
        made = ad.to_arrow(tensor, names=names, device=target)
    assert all(row.how != ("view" if len(log) else "copy") for row in report), report
    assert {row.device for row in report} == {made.device}
    if not any(row.how == "view or copy" for row in report):
        assert sum(entry.bytes for entry in log) == report.bytes, report
    narrow = explained(tensor, to_arrow=True, names=names, type=pa.int8(), device=target)
    if kind == CPU or target == "cpu":
        assert all("cast to the requested type" in row.steps and row.refused_if for row in narrow), narrow
    else:
        assert all("a cast, and none is made on" in (row.error or "") for row in narrow), narrow


@pytest.mark.parametrize("names", [None, ["a", "b"]])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", [CPU, CUDA, CUDA_HOST, CUDA_MANAGED])
def test_a_tensor_is_copied_once_on_its_way_to_arrow(kind: int, target: str, names: list[str] | None) -> None:
    values = pa.array(np.arange(2 * ROWS, dtype="int64"))
    batch = pa.record_batch({"a": values[:ROWS], "b": values[ROWS:]})
    # The columns of the matrix are dense.
    tensor = ad.to_tensor(on(kind, batch), order="F") if names else ad.to_tensor(on(kind, values))
    report = explained(tensor, to_arrow=True, names=names, device=target, copy=True)
    with ad.track_copies() as log:
        made = ad.to_arrow(tensor, names=names, device=target, copy=True)
    assert made.device == ad.Device(target)
    if not any(row.how == "view or copy" for row in [*report, report.transfer] if row):
        assert sum(entry.bytes for entry in log) == report.bytes, (report, list(log))


def test_of_a_validity_on_the_way_to_a_device() -> None:
    tensor = ad.to_tensor(pa.array(np.arange(ROWS, dtype="int64")))
    report = explained(tensor, to_arrow=True, validity=True, type=pa.int16(), device="cuda")
    small = ad.to_tensor(pa.array(np.arange(ROWS, dtype="int64")))
    with ad.track_copies() as log:
        ad.to_arrow(small, type=pa.int16(), validity=np.arange(ROWS) > 3, device="cuda")
    assert sum(entry.bytes for entry in log) == report.bytes, (report, log)


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize("target", [None, "cpu", "cuda"])
@pytest.mark.parametrize("kind", [CPU, CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize("rows", [pa.array([[1, 2], [3]] * 40), pa.array(["ab", "c"] * 40)], ids=["lists", "text"])
def test_of_rows_that_become_arrow_data(rows: Any, kind: int, target: str | None, copy: bool | None) -> None:
    ragged = ad.to_ragged(on(kind, rows))
    report = explained(ragged, to_arrow=True, device=target, copy=copy)
    if any(row.error for row in report):
        # Whether copies of strings are UTF-8 only the host can see.
        assert "the elements are on" in (report["values"].error or ""), report
        with pytest.raises(ad.ConversionError, match="the elements are on"):
            ad.to_arrow(ragged, device=target, copy=copy)
        return
    with ad.track_copies() as log:
        made = ad.to_arrow(ragged, device=target, copy=copy)
    assert {row.device for row in report} == {made.device}, (report, made)
    if not any(row.how == "view or copy" for row in report):
        assert sum(entry.bytes for entry in log) == report.bytes, (report, list(log))
