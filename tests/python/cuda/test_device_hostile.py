"""Device arrays that are not what they say: a clear error each, and every struct released once."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
from typing import Any

import arrow_dlpack as ad
import driver
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, Memory, drain, interrupted, pointer, unfinished
from producers import Array, Only

INTS = pa.array([1, 2, 3, 4], pa.int32())


def test_a_released_array_is_refused() -> None:
    source = DeviceArray(INTS)
    give = source.give()
    ad.from_arrow(give)
    with pytest.raises(ad.ConversionError, match="released or consumed"):
        ad.from_arrow(give)


@pytest.mark.parametrize("label", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_host_memory_that_is_labelled_as_the_devices(label: int) -> None:
    node = Array(4, (None, bytes(16)), device=(label, 0))
    give = Only("__arrow_c_device_array__", lambda **_: (pa.field("", pa.int32()).__arrow_c_schema__(), node.capsule()))
    array = ad.from_arrow(give)
    with pytest.raises(BufferError, match="driver does not know it"):
        ad.to_tensor(array)


@pytest.mark.parametrize(
    ("kind", "label"), [(CUDA, CUDA_HOST), (CUDA, CUDA_MANAGED), (CUDA_HOST, CUDA), (CUDA_MANAGED, CUDA_HOST)]
)
def test_memory_of_another_kind(kind: int, label: int) -> None:
    array = ad.from_arrow(DeviceArray(INTS, kind, device_type=label).give())
    with pytest.raises(BufferError, match="is said to be on"):
        ad.to_tensor(array)


@pytest.mark.parametrize(("kind", "label"), [(CUDA, CUDA_HOST), (CUDA, CUDA_MANAGED), (CUDA_MANAGED, CUDA_HOST)])
def test_memory_of_another_kind_is_not_the_hosts(kind: int, label: int) -> None:
    """The host would read addresses that may be no memory of its own."""
    array = ad.from_arrow(DeviceArray(INTS, kind, device_type=label).give())
    with pytest.raises(BufferError, match="is said to be on"):
        array.to_device("cpu")


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_the_host_reads_nothing_beyond_an_allocation(kind: int) -> None:
    array = ad.from_arrow(DeviceArray(INTS, kind, change=grown(1 << 20)).give())
    with pytest.raises(BufferError, match="beyond an allocation"):
        array.to_device("cpu")


def test_managed_memory_passes_for_memory_of_a_device() -> None:
    array = ad.from_arrow(DeviceArray(INTS, CUDA_MANAGED, device_type=CUDA).give())
    assert ad.to_tensor(array).device.type == CUDA


@pytest.mark.parametrize(("ordinal", "label"), [(0, 1), (1, 0)])
def test_memory_of_another_device(ordinal: int, label: int) -> None:
    array = ad.from_arrow(DeviceArray(INTS, CUDA, ordinal, device_id=label).give())
    with pytest.raises(BufferError, match=f"is said to be on cuda:{label}, and is on cuda:{ordinal}"):
        ad.to_tensor(array)


@pytest.mark.parametrize("label", [2, 63, 64, 7000, -1, 2**31 - 1])
def test_devices_that_there_are_not(label: int) -> None:
    array = ad.from_arrow(DeviceArray(INTS, device_id=label).give())
    repr(array)
    with pytest.raises(BufferError, match="there is no device"):
        ad.to_tensor(array)


@pytest.mark.parametrize("label", [2**31, -(2**31) - 1, 2**62])
def test_ids_beyond_32_bits(label: int) -> None:
    with pytest.raises(BufferError, match="device_id"):
        ad.from_arrow(DeviceArray(INTS, device_id=label).give())


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_memory_of_no_one_device_may_have_the_id_of_none(kind: int) -> None:
    array = ad.from_arrow(DeviceArray(INTS, kind, device_id=-1).give())
    assert ad.to_tensor(array).shape == (4,)


def grown(length: int, null_count: int = 0) -> Any:
    def grow(node: producers.Array) -> None:
        node.array.length, node.array.null_count = length, null_count

    return grow


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_values_beyond_their_allocation(kind: int) -> None:
    with pytest.raises(BufferError, match="beyond an allocation"):
        ad.to_tensor(DeviceArray(INTS, kind, change=grown(1 << 20)).give())


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_a_bitmap_beyond_its_allocation(kind: int) -> None:
    data = pa.array([1, None] * 4, pa.int8())
    memory = Memory(kind)
    small, values = memory.place(b"\x55"), memory.place(bytes(1 << 16))

    def change(node: producers.Array) -> None:
        node.buffers[0], node.buffers[1] = small, values
        node.array.length, node.array.null_count = 1 << 16, -1

    array = ad.from_arrow(DeviceArray(data, kind, memory=memory, change=change).give())
    with pytest.raises(BufferError, match="beyond an allocation"):
        ad.to_tensor(array)
    with pytest.raises(BufferError, match="beyond an allocation"):
        ad.validity(array, bits=True)


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_offsets_and_elements_beyond_their_allocation(kind: int) -> None:
    data = pa.array(["ab", "c"])
    with pytest.raises(BufferError, match="beyond an allocation"):
        ad.to_ragged(DeviceArray(data, kind, change=grown(1 << 16)).give())
    memory = Memory(kind)
    far = memory.place((0).to_bytes(4, "little") + (1 << 20).to_bytes(4, "little") * 2)

    def replace(node: producers.Array) -> None:
        node.buffers[1] = far

    with pytest.raises(BufferError, match="beyond an allocation"):
        ad.to_ragged(DeviceArray(data, kind, memory=memory, change=replace).give())


def moved_by(index: int, step: int) -> Any:
    def move(node: producers.Array) -> None:
        node.buffers[index] += step
        node.array.length -= 1

    return move


def test_misaligned_buffers() -> None:
    array = ad.from_arrow(DeviceArray(INTS, change=moved_by(1, 1)).give())
    with pytest.raises(ad.CopyError, match="not aligned"):
        ad.to_tensor(array, copy=False)
    tensor = ad.to_tensor(array)
    assert (tensor.shape, tensor.copied, pointer(tensor) % 8) == ((len(INTS) - 1,), True, 0)
    with pytest.raises(BufferError, match="not aligned"):
        ad.to_ragged(DeviceArray(pa.array(["a", "b", "c"]), change=moved_by(1, 2)).give())


def test_a_misaligned_event() -> None:
    source = DeviceArray(INTS)
    source.struct.sync_event += 1
    with pytest.raises(ad.ConversionError, match="sync_event is a misaligned pointer"):
        ad.from_arrow(source.give())


def test_an_event_pointer_to_null_is_no_event() -> None:
    source = DeviceArray(INTS, how="pyarrow")
    nothing = ctypes.c_void_p(None)
    source.struct.sync_event = ctypes.addressof(nothing)
    array = ad.from_arrow(source.give())
    assert ad.to_tensor(array).shape == (4,)
    array.__arrow_c_device_array__(sync="host")
    del array


def test_an_event_on_the_cpu_is_refused() -> None:
    node = Array(3, device=(1, -1), sync_event=64)
    give = Only("__arrow_c_device_array__", lambda **_: (pa.field("", pa.int32()).__arrow_c_schema__(), node.capsule()))
    with pytest.raises(ad.ConversionError, match="sync_event must be NULL"):
        ad.from_arrow(give)


@pytest.mark.parametrize("device_id", [-1, 0])
def test_arrays_on_the_cpu_may_be_of_either_id(device_id: int) -> None:
    node = Array(3, device=(1, device_id), reserved=-1)
    give = Only("__arrow_c_device_array__", lambda **_: (pa.field("", pa.int32()).__arrow_c_schema__(), node.capsule()))
    assert str(ad.from_arrow(give).device) == "cpu"


def test_memory_of_a_context_that_is_not_the_primary_one() -> None:
    context, device = driver.Handle(), driver.INT()
    pointer = driver.U64()
    driver.allocate(1)
    driver.call("cuDeviceGet", ctypes.byref(device), driver.INT(0))
    driver.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    driver.call("cuMemAlloc_v2", ctypes.byref(pointer), driver.SIZE(64))
    node = Array(4, (None, pointer.value), device=(CUDA, 0))
    give = Only("__arrow_c_device_array__", lambda **_: (pa.field("", pa.int32()).__arrow_c_schema__(), node.capsule()))
    with pytest.raises(BufferError, match="context that is not the primary one"):
        ad.to_tensor(give)
    driver.call("cuMemFree_v2", pointer)
    driver.call("cuCtxDestroy_v2", context)


CHECKED = """
import driver, device_arrow, producers, pyarrow as pa
import arrow_dlpack as ad

memory = device_arrow.Memory()
values = memory.place(bytes(16))
node = producers.Array(4, (None, values))
field = pa.field("x", pa.struct([pa.field("y", pa.int32())]))
node = producers.Array(4, (None,), children=[node])
give = producers.Only("__arrow_c_array__", lambda **_: (field.__arrow_c_schema__(), node.capsule()))
# The driver is in use by now.
ad.to_tensor(device_arrow.DeviceArray(pa.array([1])).give())
try:
    ad.from_arrow(give)
except BufferError as error:
    print(error)
assert node.released
"""


def run(program: str, **environment: str | None) -> str:
    """What a program in a process of its own prints."""
    folder = os.path.dirname(__file__)
    path = os.pathsep.join([folder, os.path.dirname(folder), *filter(None, sys.path)])
    variables = {**os.environ, "PYTHONPATH": path, **environment}
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.strip()


INNER = """
import arrow_dlpack as ad
import device_arrow, driver, numpy as np, pyarrow as pa

def refused(data, kind, buffer, values):
    memory = device_arrow.Memory(kind)
    wrong = memory.place(np.array(values, "int32").tobytes())
    def replace(node):
        node.buffers[buffer] = wrong
    try:
        ad.to_ragged(device_arrow.DeviceArray(data, kind, memory=memory, change=replace).give())
    except ad.ConversionError as error:
        print(error)

lists = pa.array([[1, 2], [], [3]])
for kind in (2, 13):
    ad.to_ragged(device_arrow.DeviceArray(lists, kind).give())
    ad.to_ragged(device_arrow.DeviceArray(pa.array([[1], [2]], pa.list_view(pa.int64())), kind).give())
    refused(lists, kind, 1, [0, 2, 1, 3])
    refused(lists, kind, 1, [0, 1 << 20, 3, 3])
    refused(pa.array(["ab", "", "c"]), kind, 1, [0, -2, 1, 3])
    refused(pa.array([[1], [2]], pa.list_view(pa.int64())), kind, 1, [0, 2])
    refused(pa.array([[1], [2]], pa.list_view(pa.int64())), kind, 2, [1, -1])
device_arrow.drain()
assert driver.races() == 0, driver.report()
"""


def test_offsets_in_the_middle_are_looked_at_where_that_is_asked_for() -> None:
    said = run(INNER, ARROW_DLPACK_CHECK="1").splitlines()
    words = [
        "row 1: offset 1 after 2 of 3 elements",
        "row 0: offset 1048576 after 0 of 3 elements",
        "row 0: offset -2 after 0",
        "row 1: offset 2 and length 1 of 2 elements",
        "row 1: offset 1 and length -1 of 2 elements",
    ]
    assert len(said) == 2 * len(words), said
    for line, word in zip(said, 2 * words, strict=True):
        assert word in line
    assert run(INNER, ARROW_DLPACK_CHECK=None) == ""


def test_device_pointers_labelled_as_the_cpus_are_found_where_that_is_asked_for() -> None:
    assert "is said to be on the CPU, and is on cuda:0" in run(CHECKED, ARROW_DLPACK_CHECK="1")
    assert run(CHECKED, ARROW_DLPACK_CHECK=None) == ""
    assert run(CHECKED, ARROW_DLPACK_CHECK="0") == ""


UNREACHABLE = """
import pyarrow as pa, producers
import arrow_dlpack as ad

def give(kind=2, null_count=0):
    buffers = (64 if null_count else None, 4096)
    node = producers.Array(4, buffers, null_count=null_count, device=(kind, 0), sync_event=None)
    field = pa.field("", pa.int32())
    return producers.Only("__arrow_c_device_array__", lambda **_: (field.__arrow_c_schema__(), node.capsule()))

array = ad.from_arrow(give())
array.__arrow_c_device_array__()
repr(array), ad.explain(array)
for attempt in (lambda: ad.to_tensor(array), lambda: ad.validity(give(null_count=1), bits=True),
                lambda: ad.to_tensor(give(3)), lambda: ad.to_tensor(give(13))):
    try:
        attempt()
    except BufferError as error:
        print(error)
assert ad.to_tensor(pa.array([1, 2])).shape == (2,)
"""


@pytest.mark.parametrize("how", ["no library", "no device"])
def test_without_a_driver_or_a_device(how: str) -> None:
    if how == "no library":
        printed = run(UNREACHABLE, LD_LIBRARY_PATH=None)
        expected = "there is no CUDA driver on this machine"
    else:
        printed = run(UNREACHABLE, SIMULATED_CUDA_DEVICES="0")
        expected = "finds no device"
    lines = printed.splitlines()
    assert len(lines) == 4, printed
    assert all(expected in line for line in lines), printed


def test_an_event_that_never_completes_leaves_the_host_interruptible() -> None:
    source, gate = unfinished(INTS)
    array = ad.from_arrow(source.give())
    with interrupted():
        array.__arrow_c_device_array__(sync="host")
    driver.open_gate(gate)
    array.__arrow_c_device_array__(sync="host")


def test_memory_is_released_behind_a_read_that_was_interrupted() -> None:
    def forget(node: producers.Array) -> None:
        node.array.null_count = -1

    source, gate = unfinished(pa.array([1, None]), change=forget)
    array = ad.from_arrow(source.give())
    with interrupted():
        ad.to_tensor(array)
    del array
    gc.collect()
    assert not source.memory.reused, "the copy may still be under way"
    driver.open_gate(gate)
    drain()
    assert source.memory.reused


def test_managed_memory_that_becomes_a_devices_is_of_its_size_and_kind() -> None:
    """Nobody asks the driver again about memory under another name."""
    array = ad.from_arrow(DeviceArray(INTS, CUDA_MANAGED, change=grown(1 << 20)).give())
    with pytest.raises(BufferError, match="beyond an allocation"):
        array.to_device("cuda:0")
    array = ad.from_arrow(DeviceArray(INTS, CUDA, device_type=CUDA_MANAGED).give())
    with pytest.raises(BufferError, match="is said to be on"):
        array.to_device("cuda:0")


def test_managed_memory_does_not_become_that_of_no_device() -> None:
    array = ad.from_arrow(DeviceArray(INTS, CUDA_MANAGED).give())
    for data in (array, ad.to_tensor(array)):
        with pytest.raises(BufferError, match="there is no device cuda:7"):
            data.to_device("cuda:7")
