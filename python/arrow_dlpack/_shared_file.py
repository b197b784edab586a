"""A file that processes share: how is it locked, read, written and passed to a process that is being spawned?"""

from __future__ import annotations

import multiprocessing.context
import os
import sys
import time
from typing import Any

if sys.platform == "win32":
    import msvcrt

    # Others cannot read a locked byte, so it lies behind all that is written.
    _LOCKED = 1 << 30
    _NAP_SECONDS = 0.001

    def lock(descriptor: int) -> None:
        """Waits until no other process has the lock. The lock ends with the process."""
        while True:
            os.lseek(descriptor, _LOCKED, os.SEEK_SET)
            try:
                return msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except PermissionError:
                time.sleep(_NAP_SECONDS)

    def unlock(descriptor: int) -> None:
        """Lets the next process have the lock."""
        os.lseek(descriptor, _LOCKED, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def read(descriptor: int) -> bytes:
        """All bytes of the file, for the process that has its lock."""
        while True:
            size = os.fstat(descriptor).st_size
            os.lseek(descriptor, 0, os.SEEK_SET)
            # A signal handler that uses the file moves the position in between.
            if len(found := os.read(descriptor, size)) == size:
                return found

    def write(descriptor: int, content: bytes) -> None:
        """Replaces the first bytes of the file, for the process that has its lock."""
        while True:
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, content)
            # As above.
            if os.lseek(descriptor, 0, os.SEEK_CUR) == len(content):
                return

    def passed(file: Any) -> Any:
        """What `received` takes in the process that is being spawned, of a named temporary file."""
        spawning: Any = multiprocessing.context.get_spawning_popen()
        return file.name, spawning.duplicate_for_child(msvcrt.get_osfhandle(file.fileno()))

    def received(passed: Any) -> Any:
        """The file that the parent has `passed`."""
        name, handle = passed
        # A duplicate shares its position in the file with the parent. It keeps the file until there is another.
        duplicate = msvcrt.open_osfhandle(handle, os.O_RDWR | os.O_BINARY)
        try:
            return open(name, "r+b", buffering=0, opener=_opened_again)
        finally:
            os.close(duplicate)

    def _opened_again(name: str, flags: int) -> int:
        # Without this flag, nobody can open a temporary file a second time.
        return os.open(name, flags | os.O_TEMPORARY)

else:
    import fcntl
    from multiprocessing import reduction

    def lock(descriptor: int) -> None:
        """Waits until no other process has the lock. The lock ends with the process."""
        fcntl.lockf(descriptor, fcntl.LOCK_EX)

    def unlock(descriptor: int) -> None:
        """Lets the next process have the lock."""
        fcntl.lockf(descriptor, fcntl.LOCK_UN)

    def read(descriptor: int) -> bytes:
        """All bytes of the file, for the process that has its lock."""
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def write(descriptor: int, content: bytes) -> None:
        """Replaces the first bytes of the file, for the process that has its lock, in one call."""
        os.pwrite(descriptor, content, 0)

    def passed(file: Any) -> Any:
        """What `received` takes in the process that is being spawned."""
        return reduction.DupFd(file.fileno())

    def received(passed: Any) -> Any:
        """The file that the parent has `passed`."""
        return os.fdopen(passed.detach(), "r+b")
