"""DLPack's exchange table by ctypes: as consumers in C use ours, and one of another library for us to use."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_int, c_int32, c_uint32, c_void_p, py_object
from typing import Any

import driver
import fakes
import producers

ALLOCATE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p)
FROM_OBJECT = ctypes.PYFUNCTYPE(c_int, py_object, POINTER(c_void_p))
TO_OBJECT = ctypes.PYFUNCTYPE(c_int, c_void_p, POINTER(c_void_p))
BORROW = ctypes.PYFUNCTYPE(c_int, py_object, POINTER(producers.DLTensor))
STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))
DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class Table(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("prev_api", c_void_p),
        ("allocate", c_void_p),
        ("from_object", c_void_p),
        ("to_object", c_void_p),
        ("borrow", c_void_p),
        ("current_work_stream", c_void_p),
    )


def table(array_type: type) -> Table:
    capsule = array_type.__dlpack_c_exchange_api__  # type: ignore[attr-defined]
    return Table.from_address(producers.capsule_pointer(capsule, b"dlpack_exchange_api"))


def current_work_stream(array_type: type, device: tuple[int, int]) -> int:
    out = c_void_p(77)
    # A failure has set an exception, which ctypes raises.
    STREAM(table(array_type).current_work_stream)(*device, byref(out))
    return out.value or 0


class Managed:
    """A managed tensor that a table gave, or is given."""

    def __init__(self, address: int) -> None:
        self.at = address
        self.managed = producers.DLManagedTensorVersioned.from_address(address)
        self.address = self.managed.dl_tensor.data or 0
        self.device = (self.managed.dl_tensor.device_type, self.managed.dl_tensor.device_id)

    def delete(self) -> None:
        DELETER(self.managed.deleter)(self.at)


def from_object(x: Any) -> Managed:
    out = c_void_p()
    FROM_OBJECT(table(type(x)).from_object)(x, byref(out))
    assert out.value is not None
    return Managed(out.value)


def borrow(x: Any) -> producers.DLTensor:
    out = producers.DLTensor()
    BORROW(table(type(x)).borrow)(x, byref(out))
    return out


def to_object(array_type: type, producer: producers.DLPack) -> Any:
    out = c_void_p()
    TO_OBJECT(table(array_type).to_object)(ctypes.addressof(producer.managed), byref(out))
    assert out.value is not None
    taken = ctypes.cast(out.value, py_object).value
    ctypes.pythonapi["Py_DecRef"](py_object(taken))
    return taken


class Array:
    """An array of a library that has a table, and works on a stream of its own."""

    stream: int = driver.LEGACY
    # By the table, not by `from_dlpack`.
    by_table = 0

    def __init__(self, held: Any) -> None:
        self.held = held

    def read(self, nbytes: int) -> bytes:
        return driver.read(self.held.address, nbytes, Array.stream or driver.LEGACY)

    def close(self) -> None:
        if isinstance(self.held, Managed):
            self.held.delete()
        else:
            self.held.release()


def from_dlpack(x: Any, /) -> Array:
    return Array(fakes.cupy(x, Array.stream or driver.LEGACY) if x.__dlpack_device__()[0] != 1 else None)


@ALLOCATE
def _allocate(*_: Any) -> int:
    return -1


@FROM_OBJECT
def _from_object(_: Any, __: Any) -> int:
    return -1


@TO_OBJECT
def _to_object(managed: int, out: Any) -> int:
    made = Array(Managed(managed))
    Array.by_table += 1
    ctypes.pythonapi["Py_IncRef"](py_object(made))
    out[0] = id(made)
    return 0


@STREAM
def _current_work_stream(device_type: int, _device_id: int, out: Any) -> int:
    out[0] = Array.stream if device_type != 1 else None
    return 0


def _address(function: Any) -> int | None:
    return ctypes.cast(function, c_void_p).value


_TABLE = Table(
    1, 3, None, _address(_allocate), _address(_from_object), _address(_to_object), None, _address(_current_work_stream)
)
TABLE = producers.new_capsule(ctypes.addressof(_TABLE), b"dlpack_exchange_api")
Array.__dlpack_c_exchange_api__ = TABLE  # type: ignore[attr-defined]
