"""Producers of both protocols whose every field can be set, and which count how often they were released.

They are made with ctypes, so that a test can say what no library would. A producer stays registered until the end of
the test that made it; the fixture in `conftest.py` then asks that each was released exactly once.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

# --- The C structs, as dlpack.h 1.3 and Arrow's C data, stream and device interfaces have them. ---

READ_ONLY = 1
IS_COPIED = 2
NULLABLE = 2
CPU = 1
CUDA = 2


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("dl_tensor", DLTensor),
    )


class ArrowSchema(ctypes.Structure):
    _fields_ = (
        ("format", c_void_p),
        ("name", c_void_p),
        ("metadata", c_void_p),
        ("flags", c_int64),
        ("n_children", c_int64),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    )


class ArrowArray(ctypes.Structure):
    _fields_ = (
        ("length", c_int64),
        ("null_count", c_int64),
        ("offset", c_int64),
        ("n_buffers", c_int64),
        ("n_children", c_int64),
        ("buffers", c_void_p),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    )


class ArrowDeviceArray(ctypes.Structure):
    _fields_ = (
        ("array", ArrowArray),
        ("device_id", c_int64),
        ("device_type", c_int32),
        ("sync_event", c_void_p),
        ("reserved", c_int64 * 3),
    )


class ArrowArrayStream(ctypes.Structure):
    _fields_ = (
        ("get_schema", c_void_p),
        ("get_next", c_void_p),
        ("get_last_error", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    )


class ArrowDeviceArrayStream(ctypes.Structure):
    _fields_ = (("device_type", c_int32), *ArrowArrayStream._fields_)


assert ctypes.sizeof(DLTensor) == 48
assert ctypes.sizeof(DLManagedTensorVersioned) == 80
assert ctypes.sizeof(ArrowDeviceArray) == 128

# --- The registry. ---

REGISTRY: dict[int, Producer] = {}
_keys = itertools.count(1)


class Producer:
    """What was made, and how often it was released."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.key = next(_keys)
        self.releases = 0
        # How many releases are right at the end of the test. 0 for what no consumer is ever given, or cannot release.
        self.expected = 1
        REGISTRY[self.key] = self

    @property
    def released(self) -> bool:
        return self.releases > 0


def wrongly_released() -> list[str]:
    """The producers of this test that were not released as often as they should have been."""
    wrong = [one for one in REGISTRY.values() if one.releases != one.expected]
    return [f"{one.what} was released {one.releases} times, not {one.expected}" for one in wrong]


def forget_all() -> None:
    """Forgets every producer. What was not released stays in memory: somebody may still refer to it."""
    _leaked.extend(one for one in REGISTRY.values() if one.releases < one.expected)
    REGISTRY.clear()


_leaked: list[Producer] = []

# --- Capsules. ---

# By index, which makes function objects of our own: libraries set the argument types of the shared attributes too.
_new = ctypes.pythonapi["PyCapsule_New"]
_new.restype = ctypes.py_object
_new.argtypes = (c_void_p, c_void_p, c_void_p)
_is_valid = ctypes.pythonapi["PyCapsule_IsValid"]
_is_valid.restype = c_int
_is_valid.argtypes = (c_void_p, c_char_p)
_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_pointer.restype = c_void_p
_pointer.argtypes = (c_void_p, c_char_p)
_name = ctypes.pythonapi["PyCapsule_GetName"]
_name.restype = c_char_p
_name.argtypes = (ctypes.py_object,)

# A capsule does not own its name, so names live as long as the process.
_NAMES: dict[bytes, ctypes.Array[ctypes.c_char]] = {}


def new_capsule(address: int, name: bytes | None, destructor: object = None) -> Any:
    """A PyCapsule. `destructor` is one of the callbacks below."""
    text = None if name is None else _NAMES.setdefault(name, ctypes.create_string_buffer(name))
    return _new(
        address,
        None if text is None else ctypes.addressof(text),
        ctypes.cast(destructor, c_void_p) if destructor else None,
    )


def capsule_name(capsule: Any) -> bytes | None:
    return _name(capsule)


def capsule_pointer(capsule: Any, name: bytes) -> int:
    address = _pointer(id(capsule), name)
    assert address
    return address


def _destructor(names: Mapping[bytes, Callable[[int], None]]) -> Any:
    """A capsule destructor that releases what nobody has taken. It sees a dying object, so it takes an address."""

    @ctypes.PYFUNCTYPE(None, c_void_p)
    def destroy(capsule: int) -> None:
        for name, release in names.items():
            if _is_valid(capsule, name):
                release(_pointer(capsule, name))

    return destroy


# --- DLPack. ---

# A deleter is given the struct's address; the structs are never freed, so that a second call is counted, not fatal.
_MANAGED: dict[int, DLPack] = {}


@ctypes.CFUNCTYPE(None, c_void_p)
def _delete(address: int) -> None:
    producer = _MANAGED[address]
    producer.releases += 1
    if producer.on_release:
        producer.on_release()


_DESTROY_DLPACK = _destructor({b"dltensor": _delete, b"dltensor_versioned": _delete})

Dims = Sequence[int] | None
SIX = struct.pack("6i", *range(6))


class DLPack(Producer):
    """A DLPack tensor over a buffer, by default a good one of int32 [0, 1, 2, 3, 4, 5] in shape (2, 3)."""

    def __init__(
        self,
        data: bytes | None = SIX,
        *,
        versioned: bool = True,
        version: tuple[int, int] = (1, 3),
        flags: int = 0,
        device: tuple[int, int] = (CPU, 0),
        ndim: int | None = None,
        dtype: tuple[int, int, int] = (0, 32, 1),
        shape: Dims = (2, 3),
        strides: Dims = (3, 1),
        byte_offset: int = 0,
        address: int | None = None,
        misaligned_by: int = 0,
        name: bytes | None = None,
        deleter: bool = True,
        context: bool = False,
        on_release: Callable[[], object] | None = None,
    ) -> None:
        super().__init__("a DLPack tensor")
        self.name = name or (b"dltensor_versioned" if versioned else b"dltensor")
        self.on_release = on_release
        # 64-byte aligned, whatever the allocator does; `misaligned_by` moves it off again.
        self.memory = ctypes.create_string_buffer(len(data or b"") + 128)
        base = ctypes.addressof(self.memory)
        self.address = base + (-base % 64) + misaligned_by
        if data:
            ctypes.memmove(self.address, data, len(data))
        self.size = len(data or b"")
        self.managed = DLManagedTensorVersioned() if versioned else DLManagedTensor()
        if versioned:
            self.managed.major, self.managed.minor = version
            self.managed.flags = flags
        tensor = self.managed.dl_tensor
        tensor.data = (None if data is None else self.address) if address is None else address
        tensor.device_type, tensor.device_id = device
        tensor.ndim = (len(shape) if shape is not None else 0) if ndim is None else ndim
        tensor.code, tensor.bits, tensor.lanes = dtype
        tensor.shape = self._dims(shape)
        tensor.strides = self._dims(strides)
        tensor.byte_offset = byte_offset
        if context:
            self.managed.manager_ctx = ctypes.addressof(self.managed)
        if deleter:
            self.managed.deleter = ctypes.cast(_delete, c_void_p)
        else:
            self.expected = 0
        _MANAGED[ctypes.addressof(self.managed)] = self

    @staticmethod
    def _dims(dims: Dims) -> Any:
        return None if dims is None else (c_int64 * max(len(dims), 1))(*dims)

    def capsule(self) -> Any:
        return new_capsule(ctypes.addressof(self.managed), self.name, _DESTROY_DLPACK)

    def bytes(self) -> bytes:
        return ctypes.string_at(self.address, self.size)


def read_dlpack(capsule: Any) -> tuple[DLManagedTensor | DLManagedTensorVersioned, DLTensor]:
    """The struct in a capsule that nobody has consumed, and its tensor. Both are only valid as long as the capsule."""
    versioned = capsule_name(capsule) == b"dltensor_versioned"
    kind, name = (DLManagedTensorVersioned, b"dltensor_versioned") if versioned else (DLManagedTensor, b"dltensor")
    managed = kind.from_address(capsule_pointer(capsule, name))
    return managed, managed.dl_tensor


def dims(pointer: Any, ndim: int) -> tuple[int, ...]:
    return tuple(pointer[index] for index in range(ndim))


# --- Arrow. ---


def _releasing(kind: type[ctypes.Structure], after: Callable[[Any], None] = lambda _: None) -> Any:
    @ctypes.CFUNCTYPE(None, c_void_p)
    def release(address: int) -> None:
        moved = kind.from_address(address)
        producer = REGISTRY.get(moved.private_data)
        if producer is not None:
            producer.releases += 1
            if getattr(producer, "on_release", None):
                producer.on_release()
            after(producer)
        moved.release = None

    return release


def _release_children(producer: ArrowNode) -> None:
    for child in producer.parts:
        release_struct(child.struct)


_RELEASE_SCHEMA = _releasing(ArrowSchema, _release_children)
_RELEASE_ARRAY = _releasing(ArrowArray, _release_children)
_RELEASE_STREAM = _releasing(ArrowArrayStream)
_RELEASE_DEVICE_STREAM = _releasing(ArrowDeviceArrayStream)
_CALL = ctypes.CFUNCTYPE(None, c_void_p)


def release_struct(value: Any) -> None:
    """Releases a struct unless that was done or it was moved away."""
    holder = value.array if isinstance(value, ArrowDeviceArray) else value
    if holder.release:
        _CALL(holder.release)(ctypes.addressof(holder))


def _release_at(kind: type[ctypes.Structure]) -> Callable[[int], None]:
    return lambda address: release_struct(kind.from_address(address))


_DESTROY_ARROW = _destructor(
    {
        b"arrow_schema": _release_at(ArrowSchema),
        b"arrow_array": _release_at(ArrowArray),
        b"arrow_device_array": _release_at(ArrowDeviceArray),
        b"arrow_array_stream": _release_at(ArrowArrayStream),
        b"arrow_device_array_stream": _release_at(ArrowDeviceArrayStream),
    }
)


class ArrowNode(Producer):
    """A struct of the C data interface with its children; children are released with their parent."""

    struct: Any
    name: bytes

    def __init__(self, what: str, parts: Sequence[ArrowNode]) -> None:
        super().__init__(what)
        self.parts = list(parts)
        self.on_release: Callable[[], object] | None = None

    def _pointers(self, nodes: Sequence[ArrowNode]) -> Any:
        return (c_void_p * max(len(nodes), 1))(*(ctypes.addressof(node.struct) for node in nodes))

    def capsule(self, name: bytes | None = None) -> Any:
        return new_capsule(ctypes.addressof(self.struct), name or self.name, _DESTROY_ARROW)


class Schema(ArrowNode):
    """An `ArrowSchema`. `fields` are members of the struct to overwrite once it is made."""

    name = b"arrow_schema"

    def __init__(
        self,
        format: bytes | None = b"i",
        *,
        field: bytes | None = b"",
        metadata: Mapping[bytes, bytes] | bytes | None = None,
        flags: int = NULLABLE,
        children: Sequence[Schema] = (),
        dictionary: Schema | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(f"an ArrowSchema {format!r}", [*children, *([dictionary] if dictionary else [])])
        self.texts = [None if text is None else ctypes.create_string_buffer(text) for text in (format, field)]
        packed = metadata if metadata is None or isinstance(metadata, bytes) else pack_metadata(metadata)
        self.metadata = None if packed is None else ctypes.create_string_buffer(packed, len(packed) or 1)
        self.children = self._pointers(children)
        self.struct = ArrowSchema(
            format=address_of(self.texts[0]),
            name=address_of(self.texts[1]),
            metadata=address_of(self.metadata),
            flags=flags,
            n_children=len(children),
            children=ctypes.addressof(self.children) if children else None,
            dictionary=ctypes.addressof(dictionary.struct) if dictionary else None,
            release=ctypes.cast(_RELEASE_SCHEMA, c_void_p),
            private_data=self.key,
        )
        overwrite(self.struct, fields)


THREE = struct.pack("3i", 1, 2, 3)


class Array(ArrowNode):
    """An `ArrowArray` in host memory, or an `ArrowDeviceArray` of it. Buffers are bytes, None, or an address."""

    def __init__(
        self,
        length: int = 3,
        buffers: Sequence[bytes | int | None] = (None, THREE),
        *,
        null_count: int = 0,
        offset: int = 0,
        children: Sequence[Array] = (),
        dictionary: Array | None = None,
        device: tuple[int, int] | None = None,
        sync_event: int | None = None,
        reserved: int = 0,
        misaligned_by: int = 0,
        **fields: Any,
    ) -> None:
        super().__init__("an ArrowArray", [*children, *([dictionary] if dictionary else [])])
        self.memory: list[Any] = []
        addresses = [self._place(buffer, misaligned_by) for buffer in buffers]
        self.buffers = (c_void_p * max(len(addresses), 1))(*addresses)
        self.children = self._pointers(children)
        self.array = ArrowArray(
            length=length,
            null_count=null_count,
            offset=offset,
            n_buffers=len(addresses),
            n_children=len(children),
            buffers=ctypes.addressof(self.buffers),
            children=ctypes.addressof(self.children) if children else None,
            dictionary=ctypes.addressof(dictionary.struct) if dictionary else None,
            release=ctypes.cast(_RELEASE_ARRAY, c_void_p),
            private_data=self.key,
        )
        overwrite(self.array, fields)
        self.struct: Any = self.array
        self.name = b"arrow_array"
        if device is not None:
            garbage = (c_int64 * 3)(reserved, reserved, reserved)
            self.struct = ArrowDeviceArray(
                array=self.array, device_id=device[1], device_type=device[0], sync_event=sync_event, reserved=garbage
            )
            self.name = b"arrow_device_array"

    def _place(self, buffer: bytes | int | None, misaligned_by: int) -> int | None:
        if buffer is None or isinstance(buffer, int):
            return buffer
        memory = ctypes.create_string_buffer(len(buffer) + 128)
        self.memory.append(memory)
        base = ctypes.addressof(memory)
        start = base + (-base % 64) + misaligned_by
        ctypes.memmove(start, buffer, len(buffer))
        return start


_NEXT = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
_LAST = ctypes.CFUNCTYPE(c_void_p, c_void_p)


def _stream_of(address: int, kind: type[ctypes.Structure]) -> Stream:
    return REGISTRY[kind.from_address(address).private_data]  # type: ignore[return-value]


def _callbacks(kind: type[ctypes.Structure], array_kind: type[ctypes.Structure]) -> tuple[Any, Any, Any]:
    @_NEXT
    def get_schema(stream: int, out: int) -> int:
        return _stream_of(stream, kind).give_schema(out)

    @_NEXT
    def get_next(stream: int, out: int) -> int:
        return _stream_of(stream, kind).give_next(out, array_kind)

    @_LAST
    def get_last_error(stream: int) -> int | None:
        return address_of(_stream_of(stream, kind).error)

    return get_schema, get_next, get_last_error


_STREAM = _callbacks(ArrowArrayStream, ArrowArray)
_DEVICE_STREAM = _callbacks(ArrowDeviceArrayStream, ArrowDeviceArray)


class Stream(ArrowNode):
    """An `ArrowArrayStream`, or its device form. An error among the items is the code and message of a failing call."""

    def __init__(
        self,
        items: Iterable[Array | tuple[int, bytes | None]] = (),
        *,
        schema: Callable[[], Schema] | tuple[int, bytes | None] = Schema,
        device_type: int | None = None,
        **fields: Any,
    ) -> None:
        super().__init__("an ArrowArrayStream", [])
        self.items: Iterator[Array | tuple[int, bytes | None]] = iter(items)
        self.schema = schema
        self.asked_schema = 0
        self.asked_next = 0
        self.error: Any = None
        on_device = device_type is not None
        callbacks = _DEVICE_STREAM if on_device else _STREAM
        self.struct = ArrowDeviceArrayStream(device_type=device_type) if on_device else ArrowArrayStream()
        self.name = b"arrow_device_array_stream" if on_device else b"arrow_array_stream"
        for member, callback in zip(("get_schema", "get_next", "get_last_error"), callbacks, strict=True):
            setattr(self.struct, member, ctypes.cast(callback, c_void_p))
        self.struct.release = ctypes.cast(_RELEASE_DEVICE_STREAM if on_device else _RELEASE_STREAM, c_void_p)
        self.struct.private_data = self.key
        overwrite(self.struct, fields)

    def fail(self, failure: tuple[int, bytes | None]) -> int:
        code, message = failure
        self.error = None if message is None else ctypes.create_string_buffer(message)
        return code

    def give_schema(self, out: int) -> int:
        self.asked_schema += 1
        if isinstance(self.schema, tuple):
            return self.fail(self.schema)
        move(self.schema().struct, out)
        return 0

    def give_next(self, out: int, kind: type[ctypes.Structure]) -> int:
        self.asked_next += 1
        item = next(self.items, None)
        if isinstance(item, tuple):
            return self.fail(item)
        if item is None:
            ctypes.memset(out, 0, ctypes.sizeof(kind))
        else:
            move(item.struct, out)
        return 0


def overwrite(value: ctypes.Structure, fields: Mapping[str, Any]) -> None:
    for name, content in fields.items():
        # `buffers_` is the member `buffers`, whose name is taken by an argument.
        member = name.rstrip("_")
        assert hasattr(value, member), member
        setattr(value, member, content)
    if "release" in fields and not fields["release"]:
        REGISTRY[value.private_data].expected = 0  # type: ignore[attr-defined]


def move(source: ctypes.Structure, out: int) -> None:
    """The move of the C data interface: a bitwise copy, then the source counts as released."""
    ctypes.memmove(out, byref(source), ctypes.sizeof(source))
    holder = source.array if isinstance(source, ArrowDeviceArray) else source
    holder.release = None


def address_of(buffer: Any) -> int | None:
    return None if buffer is None else ctypes.addressof(buffer)


def pack_metadata(entries: Mapping[bytes, bytes]) -> bytes:
    packed = struct.pack("i", len(entries))
    for key, value in entries.items():
        packed += struct.pack("i", len(key)) + key + struct.pack("i", len(value)) + value
    return packed


# --- Objects that speak exactly one dunder. ---


class Only:
    """An object with exactly one dunder, which answers with `answer(**keywords)` and remembers the keywords."""

    def __new__(cls, dunder: str, answer: Callable[..., object]) -> Any:
        def call(self: Any, *positional: object, **keywords: object) -> object:
            self.calls.append(keywords)
            return self.answer(*positional, **keywords)

        source: Any = type(f"Only{dunder}", (), {dunder: call})()
        # On the object: polars keeps the classes that it has seen.
        source.calls, source.answer = [], answer
        return source


def only(dunder: str, of: object) -> Any:
    """An object with exactly this dunder, that of another object."""
    return Only(dunder, getattr(of, dunder))


def dlpack(**fields: Any) -> tuple[DLPack, Any]:
    """A DLPack producer, and an object whose `__dlpack__` gives its capsule."""
    producer = DLPack(**fields)
    return producer, Only("__dlpack__", lambda **_: producer.capsule())


def arrow(schema: Schema, array: Array) -> Any:
    """An object that gives both structs through the array dunder that fits, once."""
    dunder = "__arrow_c_array__" if array.name == b"arrow_array" else "__arrow_c_device_array__"
    return Only(dunder, lambda: (schema.capsule(), array.capsule()))


def stream(producer: Stream) -> Any:
    """An object that gives the stream through the dunder that fits, once."""
    dunder = "__arrow_c_stream__" if producer.name == b"arrow_array_stream" else "__arrow_c_device_stream__"
    return Only(dunder, lambda: producer.capsule())
