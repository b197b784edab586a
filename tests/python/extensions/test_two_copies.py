"""Extensions of two builds that link a copy of the crate each know the installed package: docs/two-copies.md."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest

# ---- Objects are the package's ----


def test_a_tensor_is_the_packages(guest) -> None:
    source = pa.array([1, 2, 3], pa.timestamp("ms"))
    tensor = guest.to_tensor(source)
    assert type(tensor) is ad.Tensor
    assert (tensor.dtype, tensor.shape, tensor.writable, tensor.copied) == ("int64", (3,), False, False)
    assert np.from_dlpack(tensor).ctypes.data == source.buffers()[1].address
    back = pa.array(ad.to_arrow(tensor))
    assert back.equals(source), "the field came along"
    assert back.buffers()[1].address == source.buffers()[1].address


def test_a_copy_says_that_it_is_one(guest) -> None:
    tensor = guest.to_tensor(pa.array([1.5, 2.5]), copy=True)
    assert tensor.copied
    assert tensor.writable
    assert np.from_dlpack(tensor).tolist() == [1.5, 2.5]


def test_codes_keep_their_dictionary(guest) -> None:
    source = pa.array(["a", "b", "a"]).dictionary_encode()
    assert pa.array(ad.to_arrow(guest.to_tensor(source))).equals(source)


def test_rows_of_lists_keep_their_shape(guest) -> None:
    source = pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2))
    tensor = guest.to_tensor(source)
    assert tensor.shape == (2, 2)
    assert pa.array(ad.to_arrow(tensor)).equals(source)


def test_arrays_batches_and_streams_are_the_packages(guest) -> None:
    source = pa.array([1, None, 3])
    array = guest.from_arrow(source)
    assert type(array) is ad.Array
    assert pa.array(array).equals(source)
    assert pa.array(array).buffers()[1].address == source.buffers()[1].address
    batch = pa.record_batch({"x": [1, 2], "y": ["a", None]})
    assert type(guest.from_arrow(batch)) is ad.RecordBatch
    assert pa.record_batch(guest.from_arrow(batch)) == batch
    table = pa.table({"x": pa.chunked_array([[1], [2, 3]])})
    stream = guest.from_arrow(table)
    assert type(stream) is ad.ArrayStream
    assert pa.table(stream) == table


@pytest.mark.parametrize(
    "source",
    [
        pa.array([[1, 2], [], [3]], pa.list_(pa.int16())),
        pa.array([[1.5]], pa.large_list(pa.float64())),
        pa.array([[[1], [2, 3]], []], pa.list_(pa.list_(pa.int32()))),
        pa.array(["a", "bcd", ""]),
    ],
    ids=lambda source: str(source.type),
)
def test_rows_of_different_lengths_are_the_packages(guest, source: pa.Array) -> None:
    ragged = guest.to_ragged(source)
    assert type(ragged) is ad.Ragged
    assert ragged.validity is None
    assert pa.array(ragged).equals(source), "the type came along"
    inner = ragged.values
    while isinstance(inner, ad.Ragged):
        inner = inner.values
    assert np.from_dlpack(inner).ctypes.data == source.buffers()[-1].address


def test_null_rows_keep_their_validity(guest) -> None:
    source = pa.array([[1], None, [2, 3]])
    ragged = guest.to_ragged(source, keep=True)
    assert np.from_dlpack(ragged.validity).tolist() == [True, False, True]
    assert pa.array(ragged).equals(source)
    with pytest.raises(ad.NullError):
        guest.to_ragged(source)


def test_a_tensor_of_the_package_is_read_as_a_tensor(guest) -> None:
    # By its Arrow dunders the strided rows would be copied, whatever copy= says.
    source = np.arange(12.0).reshape(3, 4)[:, ::2]
    with ad.track_copies() as log, pytest.raises(BufferError):
        guest.to_tensor(ad.from_dlpack(source), copy=False)
    assert len(log) == 0


@pytest.mark.parametrize("there", ["here", "in a thread"])
def test_memory_is_released_once(guest, there: str) -> None:
    producer, tensor = producers.dlpack()
    kept = [guest.from_dlpack(tensor)]
    del tensor
    assert type(kept[0]) is ad.Tensor
    assert not producer.released
    if there == "here":
        kept.clear()
    else:
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
    assert producer.released


def test_arrays_and_streams_are_released_once(guest) -> None:
    array = producers.Array()
    kept = guest.from_arrow(producers.arrow(producers.Schema(), array))
    assert not array.released
    del kept
    assert array.released
    stream = producers.Stream([producers.Array()])
    kept = guest.from_arrow(producers.stream(stream))
    assert not stream.released
    list(kept)
    del kept
    assert stream.released


# ---- Errors, streams and logs ----


def test_errors_are_the_packages(guest) -> None:
    with pytest.raises(ad.NullError) as raised:
        guest.to_tensor(ad.from_arrow(pa.record_batch({"x": pa.array([1, None])}))["x"])
    assert type(raised.value) is ad.NullError
    assert raised.value.column == "x"
    with pytest.raises(ad.CopyError):
        guest.to_tensor(pa.chunked_array([[1], [2]]), copy=False)
    with pytest.raises(ad.UnsupportedTypeError):
        guest.to_tensor(pa.array([{"a": "b"}], pa.map_(pa.string(), pa.string())))


def test_copies_are_tracked(guest) -> None:
    source = pa.chunked_array([[1.0], [2.0]])
    with ad.track_copies() as log:
        guest.to_tensor(pa.array([1.0]), copy=False)
        assert len(log) == 0
        guest.to_tensor(source)
        assert [entry.bytes for entry in log] == [16]
        assert "2 chunks" in log.entries[0].why
        thread = threading.Thread(target=guest.to_tensor, args=(source,))
        thread.start()
        thread.join()
        assert len(log) == 1, "another thread's copies are its own"
    guest.to_tensor(source)
    assert len(log) == 1


def test_streams_are_of_the_thread_whoever_set_them(guests) -> None:
    one, other = guests.values()
    legacy, per_thread, handle = 1, 2, 0x70
    seen = []

    def nested() -> int:
        with ad.stream(handle):
            return other.current_stream()

    assert one.current_stream() == other.current_stream() == legacy
    with ad.stream(handle):
        seen += [one.current_stream(), other.current_stream()]
        thread = threading.Thread(target=lambda: seen.append(one.current_stream()))
        thread.start()
        thread.join()
        seen += [one.in_scope(True, other.current_stream), one.in_scope(True, nested), one.in_scope(False, nested)]
        seen += [one.in_scope(True, lambda: other.in_scope(False, one.current_stream)), one.current_stream()]
        with pytest.raises(ZeroDivisionError):
            one.in_scope(True, lambda: 1 // 0)
        seen.append(other.current_stream())
    assert seen == [handle, handle, legacy, per_thread, handle, handle, legacy, handle, handle]
    assert one.current_stream() == legacy


# ---- Processes of their own: without the package, and with another table ----


def run(guest: ModuleType, code: str, site: Path | None = None, **environment: str) -> str:
    """What a process prints that loads the extension, with `site` in front of the path or without the package."""
    hide = "" if site else "sys.modules['arrow_dlpack'] = None"
    start = f"""
import importlib.util, sys
{hide}
def guest():
    spec = importlib.util.spec_from_file_location("guest", {guest.__file__!r})
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
    path = os.pathsep.join(filter(None, [str(site or ""), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", start + code],
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_the_package_there_is_a_clear_error(guest) -> None:
    code = """
import numpy as np, pyarrow as pa
guest = guest()
for call in (lambda: guest.to_tensor(pa.array([1])), lambda: guest.from_dlpack(np.zeros(2))):
    try:
        call()
    except ModuleNotFoundError as error:
        print(error)
try:
    guest.to_tensor(pa.array([1, None]))
except BufferError as error:
    print(type(error).__name__)
print(guest.current_stream())
"""
    lines = run(guest, code).splitlines()
    assert lines == 2 * [lines[0]] + ["NullError", "1"]
    assert "pip install arrow-dlpack" in lines[0]


PACKAGE = """
import ctypes
__version__ = "0.0.9"
class Header(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("size", ctypes.c_size_t)]
    _fields_ += 10 * [("f", ctypes.c_void_p)]
header = Header({major}, 0, {size})
name = b"arrow_dlpack._native._table"
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
{table}
"""

CAPSULE = "_table = new(ctypes.addressof(header), name, None)"


@pytest.mark.parametrize(
    ("major", "size", "table", "words"),
    [
        (2, 96, CAPSULE, ["version 2", "version 1", "0.0.9", "upgrade the extension"]),
        (0, 96, CAPSULE, ["version 0", "upgrade the package"]),
        (1, 88, CAPSULE, ["88 bytes", "upgrade the package"]),
        (1, 96, CAPSULE, ["without some of its functions"]),
        (1, 96, "_table = new(ctypes.addressof(header) + 1, name, None)", ["something else"]),
        (1, 96, "_table = 7", ["something else"]),
        (1, 96, "", ["has none", "upgrade the package"]),
    ],
    ids=["newer", "older", "short", "empty", "misaligned", "no capsule", "none"],
)
def test_another_table_is_refused(guest, tmp_path: Path, major: int, size: int, table: str, words: list[str]) -> None:
    package = tmp_path / "arrow_dlpack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_native.py").write_text(PACKAGE.format(major=major, size=size, table=table))
    code = """
try:
    guest()
except ImportError as error:
    print(error)
"""
    message = run(guest, code, tmp_path)
    assert [word for word in words if word not in message] == [], message


def test_a_broken_package_is_told_of(guest, tmp_path: Path) -> None:
    package = tmp_path / "arrow_dlpack"
    package.mkdir()
    (package / "__init__.py").write_text("import missing_dependency")
    message = run(guest, "try:\n    guest()\nexcept ImportError as error:\n    print(error)", tmp_path)
    assert "missing_dependency" in message


def test_the_process_ends_with_objects_of_both_alive(guest) -> None:
    code = """
import arrow_dlpack as ad, numpy as np, pyarrow as pa
guest = guest()
kept = [guest.from_dlpack(np.zeros(3)), guest.from_arrow(pa.table({"x": [1]})), guest.to_tensor(pa.array([1]))]
class Late:
    def __del__(self):
        np.from_dlpack(kept[0])
late = Late()
print("ended")
"""
    site = Path(ad.__file__).parents[1]
    assert run(guest, code, site) == "ended\n"
