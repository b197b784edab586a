"""Arrow data in memory of the simulated device, as nanoarrow, pyarrow and cuDF make it, and consumers as they are.

Every producer writes on a stream of its own, and reuses the memory at once when it is released: a read that nobody
ordered before that is a race.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import arrow_dlpack as ad
import driver
import producers
import pyarrow as pa
import pytest
from producers import ArrowArray, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema, Only

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
ALLOCATE: dict[int, Callable[[int, int], int]] = {
    CUDA: driver.allocate,
    CUDA_HOST: driver.allocate_host,
    CUDA_MANAGED: driver.allocate_managed,
}
VIEWS = ("vu", "vz")


def buffer_sizes(array: pa.Array) -> dict[int, int]:
    """The bytes of every buffer by its address, those of children and of dictionaries included."""
    sizes = {buffer.address: buffer.size for buffer in array.buffers() if buffer is not None}
    for child in children(array):
        sizes |= buffer_sizes(child)
    return sizes


def children(array: pa.Array) -> list[pa.Array]:
    if isinstance(array, pa.ExtensionArray):
        return [array.storage]
    kind = array.type
    if pa.types.is_dictionary(kind):
        return [array.dictionary]
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [array.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    return [array.values] if pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind) else []


class Memory:
    """Blocks of one kind of memory, written on one stream. Given back, they are reused on it, as a cache does."""

    def __init__(self, kind: int = CUDA, ordinal: int = 0, stream: driver.Stream | None = None) -> None:
        self.kind, self.ordinal = kind, ordinal
        self.stream = stream or driver.Stream(ordinal)
        self.blocks: dict[int, bytes] = {}
        self.reused = False
        _memories.append(self)

    def place(self, data: bytes, room: int = 0) -> int:
        """Memory with these bytes, once the stream has written them."""
        address = ALLOCATE[self.kind](max(len(data), room, 1), self.ordinal)
        self.blocks[address] = data
        if data:
            self._write(address, data)
        return address

    def _write(self, address: int, data: bytes) -> None:
        if self.kind == CUDA_HOST:
            # The host's own memory is written by a copy from the device, as a result would be.
            source = driver.allocate(len(data), self.ordinal)
            driver.write(source, data, self.stream.handle, self.ordinal)
            driver.copy_to_host(address, source, len(data), self.stream.handle, self.ordinal)
            _temporary.append((source, self.ordinal))
        else:
            driver.write(address, data, self.stream.handle, self.ordinal)

    def reuse(self) -> None:
        """What a cache does with memory that comes back: the next user writes to it on the stream, at once."""
        self.reused = True
        for address, data in self.blocks.items():
            if data and self.kind != CUDA_HOST:
                # A call that is told to fail may be this one.
                with suppress(driver.CudaError):
                    driver.fill(address, 0xDD, len(data), self.stream.handle, self.ordinal)

    def free(self) -> None:
        for address in self.blocks:
            (driver.free_host if self.kind == CUDA_HOST else driver.free)(address, self.ordinal)
        self.blocks.clear()


_memories: list[Memory] = []
_temporary: list[tuple[int, int]] = []
_events: list[driver.Event] = []
_handles: list[Any] = []


def clean_up() -> None:
    """Frees what the producers of a test had, once everything is done."""
    driver.run_all()
    for memory in _memories:
        driver.synchronize(memory.ordinal)
        memory.free()
        memory.stream.close()
    for address, ordinal in _temporary:
        driver.free(address, ordinal)
    for event in _events:
        event.close()
    for kept in (_memories, _temporary, _events, _handles):
        kept.clear()


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _release_attached(address: int) -> None:
    """As pylibcudf's, which takes the interpreter for held: without it, this crashes."""
    producers._RELEASE_ARRAY(address)


class DeviceArray:
    """An Arrow array in memory of a device, to be given away once.

    `how` it is filled: "nanoarrow" points to an event and has no keywords, "pyarrow" has waited for the data and leaves
    garbage in what is reserved, "cudf" points to an event, and is released with the interpreter held.
    """

    def __init__(
        self,
        array: pa.Array,
        kind: int = CUDA,
        ordinal: int = 0,
        how: str = "nanoarrow",
        field: pa.Field | None = None,
        memory: Memory | None = None,
        change: Callable[[producers.Array], None] = lambda _: None,
        **fields: Any,
    ) -> None:
        self.array, self.how = array, how
        self.field = field or pa.field("", array.type)
        self.memory = memory or Memory(kind, ordinal)
        self.addresses: list[int | None] = []
        schema, source = array.__arrow_c_array__()
        sizes = buffer_sizes(array)
        formats = ArrowSchema.from_address(producers.capsule_pointer(schema, b"arrow_schema"))
        struct = ArrowArray.from_address(producers.capsule_pointer(source, b"arrow_array"))
        self.handle: Any = None
        node = self._node(struct, formats, sizes)
        self.event = None
        if how == "pyarrow":
            self.memory.stream.synchronize()
        else:
            self.event = driver.Event(self.memory.stream.handle, ordinal)
            _events.append(self.event)
            self.handle = ctypes.c_void_p(self.event.handle)
            _handles.append(self.handle)
        node.on_release = self.memory.reuse
        if how == "cudf":
            node.array.release = ctypes.cast(_release_attached, ctypes.c_void_p)
        change(node)
        self.struct = ArrowDeviceArray(
            array=node.array,
            device_id=fields.get("device_id", ordinal),
            device_type=fields.get("device_type", kind),
            sync_event=fields.get("sync_event", ctypes.addressof(self.handle) if self.handle else None),
            reserved=(ctypes.c_int64 * 3)(*([-0x5A5A5A5A5A5A5A5B] * 3 if how == "pyarrow" else [0] * 3)),
        )
        node.struct = self.struct
        node.name = b"arrow_device_array"
        self.node = node

    def _node(self, struct: ArrowArray, schema: ArrowSchema, sizes: dict[int, int]) -> producers.Array:
        pointers = (ctypes.c_void_p * struct.n_buffers).from_address(struct.buffers) if struct.n_buffers else []
        is_view = ctypes.string_at(schema.format).decode() in VIEWS
        addresses = []
        for index, address in enumerate(pointers):
            if is_view and index == struct.n_buffers - 1:
                sizes[address] = 8 * (struct.n_buffers - 3)
            data = ctypes.string_at(address, sizes[address]) if address and address in sizes else None
            on_host = is_view and index == struct.n_buffers - 1 and self.how == "pyarrow"
            # Arrow C++ keeps the sizes of view buffers in host memory, others on the device.
            addresses.append(None if address is None else data if on_host else self.memory.place(data or b""))
        self.addresses += [address for address in addresses if not isinstance(address, bytes)]
        children = [
            self._node(
                ArrowArray.from_address(_entry(struct.children, index)),
                ArrowSchema.from_address(_entry(schema.children, index)),
                sizes,
            )
            for index in range(struct.n_children)
        ]
        dictionary = None
        if struct.dictionary:
            values = ArrowSchema.from_address(schema.dictionary)
            dictionary = self._node(ArrowArray.from_address(struct.dictionary), values, sizes)
        return producers.Array(
            struct.length,
            addresses,
            null_count=struct.null_count,
            offset=struct.offset,
            children=children,
            dictionary=dictionary,
        )

    def give(self) -> Any:
        """An object with the device dunder alone."""
        capsules = lambda: (self.field.__arrow_c_schema__(), self.node.capsule())  # noqa: E731
        if self.how == "nanoarrow":
            return Only("__arrow_c_device_array__", lambda requested_schema=None: capsules())
        return Only("__arrow_c_device_array__", lambda requested_schema=None, **_: capsules())


def _entry(pointers: int, index: int) -> int:
    return ctypes.c_void_p.from_address(pointers + 8 * index).value or 0


@contextmanager
def exported(obj: Any, **keywords: Any) -> Iterator[ArrowDeviceArray]:
    """The struct of what an object exports, released at the end."""
    schema, capsule = obj.__arrow_c_device_array__(**keywords)
    struct = ArrowDeviceArray.from_address(producers.capsule_pointer(capsule, b"arrow_device_array"))
    yield struct
    del schema, capsule


def event_of(struct: ArrowDeviceArray) -> int | None:
    """The handle that `sync_event` points to."""
    return ctypes.c_void_p.from_address(struct.sync_event).value if struct.sync_event else None


class Consumer:
    """Reads exported arrays on a stream of its own: behind their event, or, as pyarrow does, as if there were none."""

    def __init__(self, ordinal: int = 0, *, waits: bool = True) -> None:
        self.stream = driver.Stream(ordinal)
        self.ordinal, self.waits = ordinal, waits

    def read(self, obj: Any, sizes: list[int], **keywords: Any) -> list[bytes | None]:
        """Every buffer, children after their parents, dictionaries last: so many bytes of each."""
        with exported(obj, **keywords) as struct:
            event = event_of(struct)
            if self.waits and event:
                with driver.current(self.ordinal):
                    driver.call("cuStreamWaitEvent", driver.Handle(self.stream.handle), driver.Handle(event), 0)
            addresses = list(buffers_of(struct.array))
            read = [
                None if address is None else driver.read(address, size, self.stream.handle, self.ordinal)
                for address, size in zip(addresses, sizes, strict=True)
            ]
        return read


def buffers_of(array: ArrowArray) -> Iterator[int | None]:
    """The addresses of all buffers: of the array, of its children, and of its dictionary."""
    for index in range(array.n_buffers):
        yield ctypes.c_void_p.from_address(array.buffers + 8 * index).value
    for index in range(array.n_children):
        yield from buffers_of(ArrowArray.from_address(_entry(array.children, index)))
    if array.dictionary:
        yield from buffers_of(ArrowArray.from_address(array.dictionary))


class DeviceStream:
    """A stream of arrays on devices, to be given away once."""

    def __init__(
        self, items: list[DeviceArray | tuple[int, bytes]], kind: int = CUDA, field: pa.Field | None = None
    ) -> None:
        arrays = [item for item in items if isinstance(item, DeviceArray)]
        self.field = field or arrays[0].field
        nodes = [item.node if isinstance(item, DeviceArray) else item for item in items]
        self.stream = producers.Stream(nodes, schema=self._schema, device_type=kind)

    def _schema(self) -> Any:
        return _Schema(self.field)

    def give(self) -> Any:
        return Only("__arrow_c_device_stream__", lambda requested_schema=None, **_: self.stream.capsule())


class _Schema:
    """A schema of pyarrow's that can be moved."""

    def __init__(self, field: pa.Field) -> None:
        self.capsule = field.__arrow_c_schema__()
        self.struct = ArrowSchema.from_address(producers.capsule_pointer(self.capsule, b"arrow_schema"))
        _handles.append(self.capsule)


def next_of(struct: ArrowDeviceArrayStream, address: int) -> tuple[int, ArrowDeviceArray]:
    """Calls `get_next` of an exported stream."""
    out = ArrowDeviceArray()
    code = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(struct.get_next)(
        address, ctypes.addressof(out)
    )
    return code, out


def pointer(tensor: ad.Tensor) -> int:
    """The address of the first element; asks for no synchronisation."""
    capsule = tensor.__dlpack__(stream=-1, max_version=(1, 3))
    _, dl_tensor = producers.read_dlpack(capsule)
    return (dl_tensor.data or 0) + dl_tensor.byte_offset


class Stop(Exception):
    pass


@contextmanager
def interrupted() -> Iterator[None]:
    """A wait inside is ended by a signal."""

    def stop(*_: object) -> None:
        raise Stop

    signal.signal(signal.SIGALRM, stop)
    with pytest.raises(Stop):  # noqa: PT012
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        yield


def unfinished(data: pa.Array, **fields: Any) -> tuple[DeviceArray, int]:
    """An array whose event completes when the gate is opened."""
    source = DeviceArray(data, **fields)
    gate = driver.gate(source.memory.stream.handle)
    source.handle.value = driver.Event(source.memory.stream.handle).handle
    return source, gate


def drain() -> None:
    """Runs what is queued, and has the package release what waits: when something comes in, and when it is asked to."""
    driver.drain()
    ad.from_arrow(DeviceArray(pa.array([1]), how="pyarrow").give())
