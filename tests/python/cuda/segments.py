"""Memory that is mapped, as PyTorch's expandable segments are, and memory of other processes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import driver
import fakes
import numpy as np

UNIT = 2 << 20
"""What is mapped at once: the granularity of the driver."""
READ_AND_WRITE = 3


class _Location(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("security", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Segment(fakes.Pool):
    """An expandable segment: a reservation that grows by a mapping when a block does not fit, so that blocks lie across
    mappings. It is unmapped with its last block, as PyTorch does when memory is short, after a wait for the block's own
    stream."""

    def __init__(self, ordinal: int = 0, units: int = 8, peers: tuple[int, ...] = ()) -> None:
        super().__init__(ordinal)
        base = ctypes.c_uint64()
        nothing = driver.U64(0)
        with driver.current(ordinal):
            driver.call("cuMemAddressReserve", ctypes.byref(base), driver.SIZE(units * UNIT), nothing, nothing, nothing)
        self.base, self.units, self.peers = base.value, units, peers
        self.mapped, self.live = 0, 0
        # The next block begins so many bytes before the end of a mapping.
        self.next = self.base + UNIT - 256

    def allocate(self, nbytes: int) -> int:
        self.live += 1
        address, self.next = self.next, self.next + max(nbytes, 1) + -max(nbytes, 1) % 256
        assert self.next <= self.base + self.units * UNIT
        while self.base + self.mapped * UNIT < self.next:
            self._grow()
        return address

    def _grow(self) -> None:
        properties, handle = _Properties(kind=1, location=_Location(1, self.ordinal)), driver.U64()
        start = driver.U64(self.base + self.mapped * UNIT)
        driver.call("cuMemCreate", ctypes.byref(handle), driver.SIZE(UNIT), ctypes.byref(properties), driver.U64(0))
        driver.call("cuMemMap", start, driver.SIZE(UNIT), driver.SIZE(0), handle, driver.U64(0))
        driver.call("cuMemRelease", handle)
        grants = [_Access(_Location(1, ordinal), READ_AND_WRITE) for ordinal in (self.ordinal, *self.peers)]
        array = (_Access * len(grants))(*grants)
        driver.call("cuMemSetAccess", start, driver.SIZE(UNIT), array, driver.SIZE(len(grants)))
        self.mapped += 1

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        self.freed, self.live = self.freed + 1, self.live - 1
        driver.synchronize_stream(stream, self.ordinal)
        if not self.live:
            self.unmap()

    def unmap(self) -> None:
        """Waits for nothing: whatever still uses the memory races with it."""
        if self.mapped:
            driver.call("cuMemUnmap", driver.U64(self.base), driver.SIZE(self.mapped * UNIT))
            self.mapped = 0

    def close(self) -> None:
        driver.drain()
        driver.synchronize(self.ordinal)
        self.unmap()
        driver.call("cuMemAddressFree", driver.U64(self.base), driver.SIZE(self.units * UNIT))


class IpcHandle(ctypes.Structure):
    """`CUipcMemHandle`, which is passed by value."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


def handle(address: int) -> bytes:
    """What another process opens memory by."""
    found = IpcHandle()
    with driver.current():
        driver.call("cuIpcGetMemHandle", ctypes.byref(found), driver.U64(address))
    return ctypes.string_at(ctypes.byref(found), ctypes.sizeof(found))


class Opened(fakes.Pool):
    """Memory of another process, which is closed with its last tensor."""

    def __init__(self, handle: bytes) -> None:
        super().__init__()
        address = driver.U64()
        with driver.current():
            opened = IpcHandle.from_buffer_copy(handle)
            driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), opened, ctypes.c_uint(1))
        self.address, self.live = address.value, 0

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        self.freed, self.live = self.freed + 1, self.live - 1
        driver.synchronize_stream(stream)
        if self.live:
            return
        with driver.current():
            driver.call("cuIpcCloseMemHandle", driver.U64(self.address))

    def tensor(self, count: int, stream: int) -> fakes.Torch:
        """int32 elements that the other process has written."""
        self.live += 1
        tensor = fakes.Torch(self, np.empty(0, "int32"), stream=stream, address=self.address)
        tensor.shape, tensor.strides, tensor.nbytes = (count,), (1,), 4 * count
        return tensor


OWNER = """
import sys
sys.path[:0] = {folders!r}
import driver, numpy as np, segments
values = np.arange({count}, dtype="int32")
address = driver.allocate(values.nbytes)
driver.write(address, values.tobytes(), driver.LEGACY)
driver.synchronize()
print(segments.handle(address).hex(), flush=True)
# As long as the other one needs it.
sys.stdin.read()
print(driver.read(address, values.nbytes, driver.LEGACY).hex(), flush=True)
"""


@contextmanager
def other_process(count: int) -> Iterator[tuple[bytes, Any]]:
    """The handle of int32 elements of another process, 0 and on, and what asks it what they are now, which ends it."""
    folders = [path for path in sys.path if path]
    program = OWNER.format(folders=folders, count=count)
    command = [sys.executable, "-c", program]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdin is not None
    assert owner.stdout is not None

    def found() -> np.ndarray:
        text, _ = owner.communicate()
        return np.frombuffer(bytes.fromhex(text), "int32")

    try:
        yield bytes.fromhex(owner.stdout.readline()), found
    finally:
        owner.kill()
        owner.wait()
