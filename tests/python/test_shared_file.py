"""The file that numbers epochs: both ways of sharing it, the one of Windows with its calls made of those of POSIX."""

from __future__ import annotations

import importlib.util
import multiprocessing.context
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import arrow_dlpack as ad
import pytest
from arrow_dlpack import _shared_file

fcntl = pytest.importorskip("fcntl", reason="Windows has no calls of POSIX to make its own of")


class Msvcrt(ModuleType):
    """Locks as Windows has them: of bytes from the file's position on, refused by `PermissionError`."""

    LK_NBLCK, LK_UNLCK = 2, 0

    @classmethod
    def locking(cls, descriptor: int, mode: int, size: int) -> None:
        does = fcntl.LOCK_EX | fcntl.LOCK_NB if mode == cls.LK_NBLCK else fcntl.LOCK_UN
        try:
            fcntl.lockf(descriptor, does, size, 0, os.SEEK_CUR)
        except BlockingIOError as error:
            raise PermissionError(*error.args) from None

    get_osfhandle = staticmethod(lambda descriptor: descriptor)
    open_osfhandle = staticmethod(lambda handle, flags: os.dup(handle))


class Spawning:
    duplicate_for_child = staticmethod(os.dup)


@pytest.fixture
def windows(monkeypatch: Any) -> Any:
    """The module as Windows has it."""
    for flag in ("O_BINARY", "O_TEMPORARY"):
        monkeypatch.setattr(os, flag, 0, raising=False)
    monkeypatch.setattr(multiprocessing.context, "get_spawning_popen", lambda: Spawning)
    path = Path(ad.__file__).with_name("_shared_file.py")
    spec = importlib.util.spec_from_file_location("_shared_file_of_windows", path)
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as importing:
        importing.setattr(sys, "platform", "win32")
        importing.setitem(sys.modules, "msvcrt", Msvcrt("msvcrt"))
        spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["posix", "windows"])
def shared(request: Any) -> Any:
    return _shared_file if request.param == "posix" else request.getfixturevalue("windows")


def add(shared: Any, file: Any, turns: int) -> None:
    # A process that is forked would share the position, as no process does on Windows.
    own = file if shared is _shared_file else shared.received(shared.passed(file))
    descriptor = own.fileno()
    for _ in range(turns):
        shared.lock(descriptor)
        shared.write(descriptor, str(int(shared.read(descriptor)) + 1).encode().rjust(8))
        shared.unlock(descriptor)


def test_processes_exclude_each_other(shared: Any) -> None:
    with tempfile.NamedTemporaryFile() as file:
        shared.write(file.fileno(), b"0".rjust(8))
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=add, args=(shared, file, 300)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0, 0]
        assert int(shared.read(file.fileno())) == 900


def test_a_handler_that_uses_the_file_in_between_changes_nothing(shared: Any, monkeypatch: Any) -> None:
    with tempfile.TemporaryFile() as file:
        descriptor, sought = file.fileno(), os.lseek

        def seek_and_be_interrupted(*arguments: int) -> int:
            place = sought(*arguments)
            if arguments[1:] == (0, os.SEEK_SET):
                monkeypatch.setattr(os, "lseek", sought)
                assert shared.read(descriptor) == b"as it was"
            return place

        shared.write(descriptor, b"as it was")
        monkeypatch.setattr(os, "lseek", seek_and_be_interrupted)
        assert shared.read(descriptor) == b"as it was"
        monkeypatch.setattr(os, "lseek", seek_and_be_interrupted)
        shared.write(descriptor, b"and after")
        assert shared.read(descriptor)[:9] == b"and after"


def test_windows_passes_the_file_to_a_process_that_is_spawned(windows: Any) -> None:
    with tempfile.NamedTemporaryFile() as file:
        windows.write(file.fileno(), b"numbers")
        with windows.received(windows.passed(file)) as received:
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            assert windows.read(received.fileno()) == b"numbers"
            # A position of its own.
            assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 0
