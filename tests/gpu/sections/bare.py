"""The CUDA driver by ctypes: what copies and fills take on a device without any library, and how long work there takes.

The context is the primary one, which is current in this thread from then on, as torch and CuPy have it too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

NON_BLOCKING = 1
PORTABLE = 1
LAZY_PEER_ACCESS = 1
NOT_SUPPORTED = 801

Handle = ctypes.c_void_p
Pointer = ctypes.c_uint64
Size = ctypes.c_size_t


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = (("reserved", ctypes.c_char * 64),)

    def __bytes__(self) -> bytes:
        return ctypes.string_at(ctypes.byref(self), ctypes.sizeof(self))


class Driver:
    """Device 0 and a stream of its own, which waits for no other."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, context, stream = ctypes.c_int(), Handle(), Handle()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(NON_BLOCKING))
        assert stream.value is not None
        self.stream = stream.value

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self.driver, name, None)
        code = NOT_SUPPORTED if function is None else function(*arguments)
        if code:
            raise RuntimeError(f"{name} failed with code {code}")

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.stream)

    def allocate(self, nbytes: int) -> int:
        """Memory of the device."""
        address = Pointer()
        self._call("cuMemAlloc_v2", ctypes.byref(address), Size(nbytes))
        return address.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", Pointer(address))

    def allocate_pinned(self, nbytes: int) -> int:
        """Page-locked memory of the host."""
        address = Handle()
        self._call("cuMemHostAlloc", ctypes.byref(address), Size(nbytes), ctypes.c_uint(PORTABLE))
        assert address.value is not None
        return address.value

    def host_bytes(self, address: int, nbytes: int) -> ctypes.Array[ctypes.c_char]:
        """Memory of the host at an address, for as long as it is there."""
        return (ctypes.c_char * nbytes).from_address(address)

    def handle(self, address: int) -> bytes:
        """What another process opens memory by."""
        handle = IpcHandle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), Pointer(address))
        return bytes(handle)

    def open_handle(self, handle: bytes) -> int:
        """Memory of another process."""
        address = Pointer()
        opened = IpcHandle.from_buffer_copy(handle)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), opened, ctypes.c_uint(LAZY_PEER_ACCESS))
        return address.value

    def close_handle(self, address: int) -> None:
        self._call("cuIpcCloseMemHandle", Pointer(address))

    def free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", Handle(address))

    def to_device(self, target: int, source: int, nbytes: int) -> None:
        self._call("cuMemcpyHtoDAsync_v2", Pointer(target), Handle(source), Size(nbytes), Handle(self.stream))

    def to_host(self, target: int, source: int, nbytes: int) -> None:
        self._call("cuMemcpyDtoHAsync_v2", Handle(target), Pointer(source), Size(nbytes), Handle(self.stream))

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._call("cuMemcpyDtoDAsync_v2", Pointer(target), Pointer(source), Size(nbytes), Handle(self.stream))

    def fill(self, target: int, nbytes: int) -> None:
        """Fills by words, as bytes may be slower."""
        words = Size(nbytes // 4)
        self._call("cuMemsetD32Async", Pointer(target), ctypes.c_uint(0), words, Handle(self.stream))

    def synchronize(self) -> None:
        """Waits for everything that the context has to do."""
        self._call("cuCtxSynchronize")

    def synchronize_stream(self) -> None:
        """Waits for the stream alone."""
        self._call("cuStreamSynchronize", Handle(self.stream))

    def _event(self) -> Handle:
        event = Handle()
        self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        self._call("cuEventRecord", event, Handle(self.stream))
        return event

    def time_on_device(self, work: Callable[[], object], delay: Callable[[], object]) -> float:
        """The seconds between two events of the stream around `work`, which is queued while `delay` runs there: they
        are without what the host takes to queue it."""
        milliseconds = ctypes.c_float()
        delay()
        start = self._event()
        work()
        end = self._event()
        self.synchronize()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
        self._call("cuEventDestroy_v2", start)
        self._call("cuEventDestroy_v2", end)
        return milliseconds.value / 1e3
