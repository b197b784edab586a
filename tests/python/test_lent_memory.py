"""Memory whose owner writes to it after it was lent: checked again, or bounded, and never read out of bounds."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest


class Legacy:
    """An array that offers an unversioned capsule alone, which cannot say that its memory is read-only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


@pytest.mark.parametrize("lend", [read_only, Legacy, lambda array: array], ids=["read-only", "legacy", "writable"])
@pytest.mark.parametrize("export", [pa.array, ad.to_arrow], ids=["dunder", "function"])
def test_lent_offsets_are_checked_again_before_export(lend, export):
    offsets = np.array([0, 2, 3], np.int32)
    ragged = ad.Ragged(np.arange(3.0), lend(offsets))
    assert pa.array(export(ragged)).to_pylist() == [[0.0, 1.0], [2.0]]
    offsets[1:] = [10**6, 10**6 + 5]
    with pytest.raises(ValueError, match="offset 1000000"):
        export(ragged)


def test_offsets_of_a_pandas_series_are_checked_again():
    series = pd.Series(np.array([0, 2, 3], np.int32))
    ragged = ad.Ragged(np.arange(3.0), series.to_numpy())
    series.iloc[1] = 10**6
    series.iloc[2] = 10**6 + 5
    if np.from_dlpack(ragged.offsets)[1] == 1:
        # pandas copied on write.
        pa.array(ragged).validate(full=True)
    else:
        with pytest.raises(ValueError, match="offset 1000000"):
            pa.array(ragged)


def test_lengths_of_views_are_checked_again():
    offsets, lengths = np.array([0, 1], np.int64), np.array([1, 2], np.int64)
    ragged = ad.Ragged(np.arange(3.0), read_only(offsets), read_only(lengths))
    assert pa.array(ragged).to_pylist() == [[0.0], [1.0, 2.0]]
    lengths[1] = 10**9
    with pytest.raises(ValueError, match="length 1000000000"):
        pa.array(ragged)


def test_strings_whose_offsets_were_written_to_are_checked_to_be_utf8():
    ragged = ad.to_ragged(pa.array(["a", "é", "b"]).slice(1))
    assert pa.array(ragged).to_pylist() == ["é", "b"]
    np.from_dlpack(ragged.offsets)[1] = 1
    with pytest.raises(ad.CastError, match="UTF-8"):
        pa.array(ragged)


def test_arrow_offsets_are_a_view_of_both():
    lists = pa.array([[1, 2], [3]], pa.list_(pa.int16()))
    with ad.track_copies() as log:
        assert pa.array(ad.to_ragged(lists)).equals(lists)
    assert log.bytes == 0


RACE = """
    import threading, time
    import numpy as np, pyarrow as pa
    import arrow_dlpack as ad

    offsets = np.arange(0, 40_004, 4, dtype=np.int32)
    lists = pa.ListArray.from_arrays(pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)]),
                                     pa.array(np.arange(40_000, dtype=np.float32)))
    own, far, done = offsets[5000:5002].copy(), np.array([1 << 30, (1 << 30) + 4], np.int32), False

    def write():
        while not done:
            offsets[5000:5002] = far
            offsets[5000:5002] = own

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    until = time.monotonic() + 3
    while time.monotonic() < until:
        try:
            ad.to_ragged(lists, pad=(0, 4))
        except ValueError:
            pass
    done = True
    thread.join()
    print("done")
"""


def test_offsets_that_change_while_rows_are_padded():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(RACE)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


def capsule(name: bytes, address: int) -> Any:
    # A prototype of its own: those of `ctypes.pythonapi` are shared by all tests.
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(("PyCapsule_New", ctypes.pythonapi))(address, name, None)


NAMES = [
    b"arrow_schema",
    b"arrow_array",
    b"arrow_device_array",
    b"arrow_array_stream",
    b"dltensor",
    b"dltensor_versioned",
]
# A capsule keeps the address of its name.
KEPT = {name: ctypes.create_string_buffer(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES, ids=bytes.decode)
def test_a_misaligned_pointer_in_a_capsule_is_refused(name):
    memory = ctypes.create_string_buffer(512)
    new = capsule(KEPT[name], ctypes.addressof(memory) | 1)  # type: ignore[arg-type]
    schema = pa.int32().__arrow_c_schema__()

    class Source:
        pass

    def give(*_: Any, **__: Any) -> Any:
        return new

    if name == b"arrow_schema":
        Source.__arrow_c_array__ = lambda *_, **__: (new, pa.array([1]).__arrow_c_array__()[1])  # type: ignore[attr-defined]
    elif name == b"arrow_array":
        Source.__arrow_c_array__ = lambda *_, **__: (schema, new)  # type: ignore[attr-defined]
    elif name == b"arrow_device_array":
        Source.__arrow_c_device_array__ = lambda *_, **__: (schema, new)  # type: ignore[attr-defined]
    elif name == b"arrow_array_stream":
        Source.__arrow_c_stream__ = give  # type: ignore[attr-defined]
    else:
        Source.__dlpack__ = give  # type: ignore[attr-defined]
        Source.__dlpack_device__ = lambda _: (1, 0)  # type: ignore[attr-defined]
    take = ad.from_dlpack if name.startswith(b"dl") else ad.from_arrow
    with pytest.raises(ValueError, match="misaligned"):
        take(Source())
