"""Devices whose runtime is not known here: type, shape, lifetime and event are kept, and the rest is an error."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import arrow_dlpack as ad
import driver
import exchange
import fakes
import producers
import pyarrow as pa
import pytest
from device_arrow import exported
from producers import Array, Only

ROCM, ONEAPI, METAL, UNKNOWN = 10, 14, 8, 99
# No address of anything: whoever looks behind it crashes.
EVENT, VALUES = 0x1233, 0x7000


def opaque(kind: int, ordinal: int = 1, *, null_count: int = 0, event: int | None = EVENT) -> tuple[Array, Any]:
    bitmap = VALUES + 0x1000 if null_count else None
    node = Array(4, (bitmap, VALUES), null_count=null_count, device=(kind, ordinal), sync_event=event)
    field = pa.field("x", pa.float32())
    return node, Only("__arrow_c_device_array__", lambda **_: (field.__arrow_c_schema__(), node.capsule()))


@pytest.mark.parametrize("kind", [ROCM, ONEAPI, METAL, UNKNOWN])
def test_arrays_pass_through(kind: int) -> None:
    calls = driver.calls()
    node, give = opaque(kind)
    array = ad.from_arrow(give)
    assert (array.device.type, array.device.id) == (kind, 1)
    assert str(array.device).endswith(":1")
    with exported(array) as struct:
        assert (struct.device_type, struct.device_id, struct.sync_event) == (kind, 1, EVENT)
        buffers = (ctypes.c_void_p * 2).from_address(struct.array.buffers)
        assert list(buffers) == [None, VALUES]
        del array
        assert not node.released
    assert node.released
    assert driver.calls() == calls


@pytest.mark.parametrize("kind", [ROCM, ONEAPI, METAL, UNKNOWN])
def test_columns_are_tensors_that_keep_their_place(kind: int) -> None:
    node, give = opaque(kind)
    tensor = ad.to_tensor(give)
    assert (tensor.dtype, tensor.shape, tensor.device.type) == ("float32", (4,), kind)
    with exported(tensor) as struct:
        assert (struct.device_type, struct.sync_event) == (kind, EVENT)
    bits, offset = ad.validity(opaque(kind, null_count=1)[1], bits=True)
    assert (bits.shape, offset, bits.device.type) == ((1,), 0, kind)
    del tensor
    assert node.released


@pytest.mark.parametrize("kind", [ROCM, METAL])
def test_no_stream_is_known(kind: int) -> None:
    """A consumer of the exchange table orders its work itself, and no stream can be named to us."""
    calls = driver.calls()
    tensor = ad.to_tensor(opaque(kind)[1])
    managed = exchange.from_object(tensor)
    assert managed.address == VALUES
    managed.delete()
    with pytest.raises(BufferError, match="has no streams"):
        tensor.record_stream(1)
    assert driver.calls() == calls


def test_the_default_stream_of_rocm_is_0() -> None:
    """What is written has nothing to wait for on any stream."""
    tensor = ad.to_tensor(opaque(ROCM, event=None)[1])
    held = fakes.Held(tensor.__dlpack__(stream=0, max_version=(1, 0)))
    assert held.device == (ROCM, 1)
    held.release()
    with pytest.raises(BufferError, match="rocm:1"):
        ad.to_tensor(opaque(ROCM)[1]).__dlpack__(stream=0, max_version=(1, 0))


def test_what_needs_the_runtime_is_an_error() -> None:
    _, give = opaque(ROCM, null_count=-1)
    array = ad.from_arrow(give)
    with pytest.raises(BufferError, match="rocm:1"):
        ad.to_tensor(array)
    with pytest.raises(BufferError, match="rocm:1"):
        array.__arrow_c_device_array__(sync="host")
    with pytest.raises(BufferError, match="with the library that made it"):
        array.__arrow_c_array__()
    with pytest.raises(BufferError, match="rocm:1"):
        ad.to_tensor(array, dtype="float64", nulls="keep")
    with pytest.raises(BufferError, match="rocm:1"):
        ad.from_arrow(array, copy=True)
    # Without an event there is nothing to wait for.
    _, give = opaque(ROCM, event=None)
    ad.from_arrow(give).__arrow_c_device_array__(sync="host")


def test_batches_and_streams_pass_through() -> None:
    inner = Array(4, (None, VALUES))
    node = Array(4, (None,), children=[inner], device=(METAL, 0), sync_event=EVENT)
    field = pa.field("", pa.struct([pa.field("x", pa.float32())]))
    give = Only("__arrow_c_device_array__", lambda **_: (field.__arrow_c_schema__(), node.capsule()))
    batch = ad.from_arrow(give)
    capsule = batch.__arrow_c_device_stream__()
    stream = producers.ArrowDeviceArrayStream.from_address(
        producers.capsule_pointer(capsule, b"arrow_device_array_stream")
    )
    assert stream.device_type == METAL
    assert {name: tensor.device.type for name, tensor in ad.to_tensors(batch).items()} == {"x": METAL}
    assert ad.to_tensor(batch, order="F").shape == (4, 1)


def test_arrays_of_dpnp_on_the_cpu() -> None:
    """A real producer of kDLOneAPI, where its runtime runs on the CPU.

    Where it is installed by pip, OCL_ICD_FILENAMES has to name the libintelocl.so of its environment: the file there
    that tells of it leads elsewhere.
    """
    if not os.environ.get("ARROW_DLPACK_DPNP"):
        pytest.skip("ARROW_DLPACK_DPNP=1 asks for dpnp")
    dpnp = pytest.importorskip("dpnp")
    source = dpnp.arange(6, dtype="int32", device="cpu")
    assert source.__dlpack_device__()[0] == ONEAPI
    tensor = ad.from_dlpack(source)
    assert (tensor.shape, tensor.device.type) == ((6,), ONEAPI)
    array = ad.to_arrow(tensor)
    assert (len(array), array.device.type) == (6, ONEAPI)
    back = dpnp.from_dlpack(ad.to_tensor(array))
    assert back.sum() == 15


def test_rows_whose_offsets_nobody_reads_are_views_and_others_are_refused() -> None:
    """Rows of list views are checked where they are read."""
    starts, lengths, items = VALUES, VALUES + 0x1000, VALUES + 0x2000

    def rows(data_type: pa.DataType, *buffers: int, nulls: int = 0) -> Any:
        child = Array(8, (None, items))
        bitmap = VALUES + 0x3000 if nulls else None
        node = Array(4, (bitmap, *buffers), children=[child], null_count=nulls, device=(METAL, 0), sync_event=EVENT)
        field = pa.field("x", data_type)
        return Only("__arrow_c_device_array__", lambda **_: (field.__arrow_c_schema__(), node.capsule()))

    views = ad.from_arrow(rows(pa.list_view(pa.float32()), starts, lengths))
    report = ad.explain(views)
    made = ad.to_ragged(views)
    assert [row.how for row in report] == ["view"] * 3
    assert [part.device.type for part in (made.offsets, made.lengths, made.values)] == [METAL] * 3
    lists = ad.from_arrow(rows(pa.list_(pa.float32()), starts))
    with pytest.raises(ad.ConversionError, match="whose runtime is not known here") as caught:
        ad.to_ragged(lists)
    assert str(caught.value) in {row.error for row in ad.explain(lists)}
    with pytest.raises(ad.ConversionError, match=r"a copy on metal:0 is needed .* own asked for") as caught:
        ad.to_ragged(views, copy=True)
    assert str(caught.value) in {row.error for row in ad.explain(views, copy=True)}
    for options in ({}, {"nulls": 0}):
        nullable = ad.from_arrow(rows(pa.list_view(pa.float32()), starts, lengths, nulls=1))
        with pytest.raises(ad.ConversionError, match="whose runtime is not known here") as caught:
            ad.to_ragged(nullable, **options)
        assert str(caught.value) in {row.error for row in ad.explain(nullable, **options)}


def test_a_validity_that_nothing_makes_is_explained_as_it_is_refused() -> None:
    """Of a stream, by its type alone."""
    column = ad.from_arrow(opaque(ROCM, null_count=1)[1])

    def stream() -> Any:
        node = Array(4, (None,), children=[Array(4, (VALUES + 0x1000, VALUES), null_count=1)], device=(ROCM, 0))
        field = pa.field("", pa.struct([pa.field("x", pa.float32())]))
        give = Only("__arrow_c_device_array__", lambda **_: (field.__arrow_c_schema__(), node.capsule()))
        batch = ad.from_arrow(give)
        return ad.from_arrow(Only("__arrow_c_device_stream__", lambda **_: batch.__arrow_c_device_stream__()))

    for source in (lambda: column, stream):
        (row,) = ad.explain(source(), validity=True)
        with pytest.raises(BufferError, match="bits unpacked") as caught:
            ad.validity(source())
        assert str(row.error) == str(caught.value)
