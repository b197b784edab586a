"""The CUDA driver by ctypes: what the tests' producers and consumers do themselves, and what the simulated one says.

Every call checks its code. Handles are plain integers.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from arrow_dlpack import _native

NON_BLOCKING = 1
DISABLE_TIMING = 2
LEGACY, PER_THREAD = 1, 2
INVALID_HANDLE = 400
# Seconds, for what takes milliseconds on an idle machine.
SOON = 30.0

Handle = ctypes.c_void_p
U64 = ctypes.c_uint64
INT = ctypes.c_int
SIZE = ctypes.c_size_t


class CudaError(RuntimeError):
    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} failed with code {code}")
        self.code = code


@functools.cache
def simulated() -> ctypes.CDLL | None:
    """The simulated driver, if it is the one that is found; no test runs on another."""
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return found if hasattr(found, "simulated_cuda_version") else None


def call(name: str, *arguments: object) -> None:
    """Calls a function of the driver; an error is raised."""
    _call(name, *arguments)


# Whether only the package's calls are counted and told to fail, and not those made here.
exempt = False


def _call(name: str, *arguments: object) -> None:
    lib = simulated()
    assert lib is not None
    function = getattr(lib, name)
    function.restype = ctypes.c_uint
    if exempt:
        lib.simulated_cuda_exempt(1)
    code = function(*arguments)
    if exempt:
        lib.simulated_cuda_exempt(0)
    if code:
        raise CudaError(name, code)


_used: set[int] = set()


@functools.cache
def _context(ordinal: int) -> int:
    _used.add(ordinal)
    _call("cuInit", 0)
    device, context = INT(), Handle()
    _call("cuDeviceGet", ctypes.byref(device), INT(ordinal))
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    assert context.value is not None
    return context.value


@contextmanager
def current(ordinal: int = 0) -> Iterator[None]:
    """Makes the primary context of a device current in this thread."""
    _call("cuCtxPushCurrent_v2", Handle(_context(ordinal)))
    try:
        yield
    finally:
        popped = Handle()
        _call("cuCtxPopCurrent_v2", ctypes.byref(popped))


class Stream:
    """A stream of a device, which is destroyed with this."""

    def __init__(self, ordinal: int = 0, flags: int = NON_BLOCKING) -> None:
        handle = Handle()
        with current(ordinal):
            _call("cuStreamCreate", ctypes.byref(handle), flags)
        assert handle.value is not None
        self.ordinal, self.handle = ordinal, handle.value

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def synchronize(self) -> None:
        with current(self.ordinal):
            _call("cuStreamSynchronize", Handle(self.handle))

    def wait(self, event: Event) -> None:
        with current(self.ordinal):
            _call("cuStreamWaitEvent", Handle(self.handle), Handle(event.handle), 0)

    def close(self) -> None:
        with current(self.ordinal):
            _call("cuStreamDestroy_v2", Handle(self.handle))


class Event:
    """An event that was recorded once."""

    def __init__(self, stream: int, ordinal: int = 0) -> None:
        handle = Handle()
        self.ordinal = ordinal
        with current(ordinal):
            _call("cuEventCreate", ctypes.byref(handle), DISABLE_TIMING)
            _call("cuEventRecord", handle, Handle(stream))
        assert handle.value is not None
        self.handle = handle.value

    def close(self) -> None:
        with current(self.ordinal):
            _call("cuEventDestroy_v2", Handle(self.handle))


def allocate(nbytes: int, ordinal: int = 0) -> int:
    """Device memory, to be freed by `free`."""
    pointer = U64()
    with current(ordinal):
        _call("cuMemAlloc_v2", ctypes.byref(pointer), SIZE(nbytes))
    return pointer.value


def free(pointer: int, ordinal: int = 0) -> None:
    with current(ordinal):
        _call("cuMemFree_v2", U64(pointer))


def allocate_host(nbytes: int, ordinal: int = 0) -> int:
    """Page-locked host memory, to be freed by `free_host`."""
    pointer = Handle()
    with current(ordinal):
        _call("cuMemHostAlloc", ctypes.byref(pointer), SIZE(nbytes), 1)
    assert pointer.value is not None
    return pointer.value


def free_host(pointer: int, ordinal: int = 0) -> None:
    with current(ordinal):
        _call("cuMemFreeHost", Handle(pointer))


def allocate_managed(nbytes: int, ordinal: int = 0) -> int:
    """Managed memory, to be freed by `free`."""
    pointer = U64()
    with current(ordinal):
        _call("cuMemAllocManaged", ctypes.byref(pointer), SIZE(nbytes), 1)
    return pointer.value


HOST_MEMORY, DEVICE_MEMORY = 1, 2
"""What `memory_type` says."""


def memory_type(address: int) -> int:
    """What the driver says memory is, of the device or page-locked."""
    found = ctypes.c_uint()
    _call("cuPointerGetAttribute", ctypes.byref(found), 2, U64(address))
    return found.value


def write(target: int, data: bytes, stream: int, ordinal: int = 0) -> None:
    """Writes bytes to device memory in the order of a stream. The source is snapshot before this returns."""
    staging = allocate_host(max(len(data), 1), ordinal)
    ctypes.memmove(staging, data, len(data))
    with current(ordinal):
        _call("cuMemcpyHtoDAsync_v2", U64(target), Handle(staging), SIZE(len(data)), Handle(stream))
    _staging.append((staging, ordinal))


# Pinned sources live until the test is over: a pending copy reads them.
_staging: list[tuple[int, int]] = []


def copy(target: int, source: int, nbytes: int, stream: int, ordinal: int = 0) -> None:
    """Copies on the device, in the order of a stream."""
    with current(ordinal):
        _call("cuMemcpyDtoDAsync_v2", U64(target), U64(source), SIZE(nbytes), Handle(stream))


def fill(target: int, value: int, nbytes: int, stream: int, ordinal: int = 0) -> None:
    """Sets bytes on the device, in the order of a stream."""
    with current(ordinal):
        _call("cuMemsetD8Async", U64(target), ctypes.c_ubyte(value), SIZE(nbytes), Handle(stream))


def read(source: int, nbytes: int, stream: int, ordinal: int = 0) -> bytes:
    """What a stream finds in device memory, once it gets there: a consumer that waits on the host."""
    target = allocate_host(max(nbytes, 1), ordinal)
    with current(ordinal):
        _call("cuMemcpyDtoHAsync_v2", Handle(target), U64(source), SIZE(nbytes), Handle(stream))
        _call("cuStreamSynchronize", Handle(stream))
    data = ctypes.string_at(target, nbytes)
    free_host(target, ordinal)
    return data


def copy_to_host(target: int, source: int, nbytes: int, stream: int, ordinal: int = 0) -> None:
    """Copies from the device to page-locked host memory, in the order of a stream."""
    with current(ordinal):
        _call("cuMemcpyDtoHAsync_v2", Handle(target), U64(source), SIZE(nbytes), Handle(stream))


def copy_from_host(target: int, source: int, nbytes: int, stream: int, ordinal: int = 0) -> None:
    """Copies from page-locked host memory to the device, in the order of a stream."""
    with current(ordinal):
        _call("cuMemcpyHtoDAsync_v2", U64(target), Handle(source), SIZE(nbytes), Handle(stream))


def use(ordinal: int) -> None:
    """Makes a device current in the place of the one before, as libraries do where a user chooses a device."""
    _call("cuCtxSetCurrent", Handle(_context(ordinal)))


def synchronize(ordinal: int = 0) -> None:
    with current(ordinal):
        _call("cuCtxSynchronize")


def synchronize_stream(stream: int, ordinal: int = 0) -> None:
    with current(ordinal):
        _call("cuStreamSynchronize", Handle(stream))


def _ask(name: str, *arguments: object) -> int:
    lib = simulated()
    assert lib is not None
    function = getattr(lib, name)
    function.restype = U64
    return function(*arguments)


def races() -> int:
    """Unordered conflicting accesses so far."""
    return _ask("simulated_cuda_races")


def host_waits() -> int:
    """How often the host has waited so far, in calls that say so and in calls that do not.

    Not for the kernels, which are loaded once on each device, when it is first used, and not on the reaper thread.
    Nobody waits for that, and it alone synchronises with events.
    """
    while True:
        of_reaper = calls("cuEventSynchronize")
        waits = _ask("simulated_cuda_host_waits") - calls("cuModuleLoadData")
        # The thread may have called meanwhile.
        if of_reaper == calls("cuEventSynchronize"):
            return waits - of_reaper


def gate(stream: int, ordinal: int = 0) -> int:
    """Stops a stream until `open_gate`: what is behind has no end until then."""
    with current(ordinal):
        number = _ask("simulated_cuda_gate", Handle(stream))
    if not number:
        raise CudaError("simulated_cuda_gate", INVALID_HANDLE)
    _gates.append(number)
    return number


_gates: list[int] = []


def open_gates() -> None:
    """Opens every gate of a test: one that failed has left it closed."""
    for number in _gates:
        open_gate(number)
    _gates.clear()


def open_gate(number: int) -> None:
    lib = simulated()
    assert lib is not None
    lib.simulated_cuda_open_gate(U64(number))


def report() -> str:
    """What the simulated driver has to say: races, leaks, counts."""
    lib = simulated()
    assert lib is not None
    text = ctypes.create_string_buffer(1 << 16)
    lib.simulated_cuda_report(text, SIZE(len(text)))
    return text.value.decode()


def settle() -> None:
    """Waits for all work of every device that this process uses. A gate that a failed test left is opened."""
    open_gates()
    for ordinal in _used:
        synchronize(ordinal)


def soon(condition: Callable[[], bool]) -> bool:
    """Whether something comes true by itself: the package is not called meanwhile."""
    end = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def drain() -> int:
    """Runs all work, and has the package release what waits for it; the number of blocks that still wait.

    What is released may queue work of its own, behind which its owner lets go of more: hence the repetitions.
    """
    for _ in range(8):
        gc.collect()
        run_all()
        settle()
        left = _native.collect()
        if left == 0:
            break
    return left


def clean_up() -> None:
    """Waits for everything, and frees what producers of the test left."""
    for pointer, ordinal in _staging:
        synchronize(ordinal)
        free_host(pointer, ordinal)
    _staging.clear()


def calls(function: str = "*") -> int:
    """How often a function of the driver was called so far."""
    return _ask("simulated_cuda_calls", function.encode())


def thread_calls() -> int:
    """How often this thread called functions of the driver so far."""
    return _ask("simulated_cuda_thread_calls")


def live(kind: str) -> int:
    """How many objects of a kind are alive."""
    return _ask("simulated_cuda_live", kind.encode())


def fail(function: str, nth: int, code: int) -> None:
    """Has the n-th call of a function from now fail."""
    lib = simulated()
    assert lib is not None
    lib.simulated_cuda_fail(function.encode(), U64(nth), ctypes.c_uint(code))


def fail_from(function: str, nth: int, code: int) -> None:
    """Has the n-th call of a function from now fail, and all after it."""
    lib = simulated()
    assert lib is not None
    lib.simulated_cuda_fail_from(function.encode(), U64(nth), ctypes.c_uint(code))


def fail_late(function: str, nth: int, code: int) -> None:
    """Has the n-th call of a function from now have its effect, and return the code as that of an earlier launch."""
    lib = simulated()
    assert lib is not None
    lib.simulated_cuda_fail_late(function.encode(), U64(nth), ctypes.c_uint(code))


def fail_nothing() -> None:
    """Has no call fail any more that was told to and has not come yet."""
    lib = simulated()
    assert lib is not None
    lib.simulated_cuda_fail_nothing()


@contextmanager
def hold(function: str) -> Iterator[None]:
    """Keeps each call of a function in the driver, as one that takes long, until the end of the block."""
    lib = simulated()
    assert lib is not None
    lib.simulated_cuda_hold(function.encode())
    try:
        yield
    finally:
        lib.simulated_cuda_hold(None)


def held() -> int:
    """How many calls of the function that is held are in the driver."""
    return _ask("simulated_cuda_held")


def run_all() -> None:
    """Runs whatever can run. Nobody learns of it."""
    lib = simulated()
    assert lib is not None
    lib.simulated_cuda_run_all()


def pop() -> None:
    """Makes the context before it current in this thread."""
    popped = Handle()
    _call("cuCtxPopCurrent_v2", ctypes.byref(popped))


def has_current_context() -> bool:
    context = Handle()
    _call("cuCtxGetCurrent", ctypes.byref(context))
    return context.value is not None


def is_current(ordinal: int) -> bool:
    """Whether the primary context of a device is the current one of this thread."""
    context = Handle()
    _call("cuCtxGetCurrent", ctypes.byref(context))
    return context.value == _context(ordinal)


@contextmanager
def other_context(ordinal: int = 0) -> Iterator[None]:
    """A context that is not the primary one, current inside."""
    context, device = Handle(), INT()
    _call("cuInit", 0)
    _call("cuDeviceGet", ctypes.byref(device), INT(ordinal))
    _call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    try:
        yield
    finally:
        popped = Handle()
        _call("cuCtxPopCurrent_v2", ctypes.byref(popped))


def new_stream() -> int:
    """A stream of whatever context is current."""
    handle = Handle()
    _call("cuStreamCreate", ctypes.byref(handle), NON_BLOCKING)
    assert handle.value is not None
    return handle.value


def new_memory(nbytes: int) -> int:
    """Memory of whatever context is current."""
    pointer = U64()
    _call("cuMemAlloc_v2", ctypes.byref(pointer), SIZE(nbytes))
    return pointer.value


GLOBAL = 0


@contextmanager
def capture(stream: int, ordinal: int = 0) -> Iterator[None]:
    """Captures a stream, in the mode that the calls of any thread can break."""
    with current(ordinal):
        _call("cuStreamBeginCapture_v2", Handle(stream), GLOBAL)
    try:
        yield
    except BaseException:
        # What broke the block may have broken the capture.
        with suppress(CudaError):
            _end_capture(stream, ordinal)
        raise
    _end_capture(stream, ordinal)


def _end_capture(stream: int, ordinal: int) -> None:
    graph = Handle()
    with current(ordinal):
        _call("cuStreamEndCapture", Handle(stream), ctypes.byref(graph))
        _call("cuGraphDestroy", graph)
