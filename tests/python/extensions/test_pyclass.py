"""Classes of another crate that have the dunders of both protocols by `python::protocol`: `examples/pyclass`."""

from __future__ import annotations

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
import support

sys.path.insert(0, str(Path(__file__).parents[1] / "interop" / "extensions"))

from build import build_c


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The consumer of exchange tables in C."""
    return build_c(tmp_path_factory.mktemp("exchange"), "exchange")


def test_init_adds_no_names(frames) -> None:
    assert {name for name in vars(frames) if not name.startswith("__")} == {"Column", "Frame", "Matrix"}


# ---- DLPack ----


def test_numpy_views_a_column(frames) -> None:
    column = frames.Column("x", [0.5, 1.5, 2.5])
    view = np.from_dlpack(column)
    assert view.tolist() == [0.5, 1.5, 2.5]
    assert not view.flags.writeable
    assert column.__dlpack_device__() == (1, 0)
    assert support.address(column) == view.ctypes.data
    del column
    assert view.tolist() == [0.5, 1.5, 2.5], "the view keeps the memory"


def test_torch_views_a_column(frames, torch) -> None:
    column = frames.Column("x", [0.5, 1.5])
    assert torch.from_dlpack(column).tolist() == [0.5, 1.5]
    source = np.zeros((2, 3), "float32")
    matrix = frames.Matrix(source)
    torch.from_dlpack(matrix)[1, 2] = 7
    assert source[1, 2] == 7, "the same memory, through the table or the dunder"


def test_a_null_is_an_error_of_the_crate(frames) -> None:
    with pytest.raises(BufferError, match="null") as raised:
        np.from_dlpack(frames.Column("x", [1.0, None]))
    assert raised.value.column == "x"


def test_keywords_are_those_of_the_standard(frames) -> None:
    column = frames.Column("x", [1.0])
    assert producers.capsule_name(column.__dlpack__()) == b"dltensor"
    assert producers.capsule_name(column.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    none = {"stream": None, "max_version": None, "dl_device": None, "copy": None}
    assert producers.capsule_name(column.__dlpack__(**none)) == b"dltensor"
    copied = column.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=True)
    managed, tensor = producers.read_dlpack(copied)
    assert managed.flags == producers.IS_COPIED
    assert tensor.data != support.address(column)
    for wrong, error, message in [
        ({"strem": None}, TypeError, "unexpected keyword argument 'strem'"),
        ({"copy": 7}, TypeError, "bool"),
        ({"max_version": 1}, TypeError, "max_version"),
        ({"stream": 1}, BufferError, "stream"),
        ({"copy": False, "max_version": None}, BufferError, "read-only"),
    ]:
        with pytest.raises(error, match=message):
            column.__dlpack__(**wrong)


def test_writable_memory_is_written_and_released_once(frames) -> None:
    producer, tensor = producers.dlpack()
    matrix = frames.Matrix(tensor)
    del tensor
    array = np.from_dlpack(matrix)
    del matrix
    assert not producer.released
    del array
    assert producer.released


def test_memory_is_released_on_any_thread(frames) -> None:
    producer, tensor = producers.dlpack()
    matrix = frames.Matrix(tensor)
    array = [np.from_dlpack(matrix)]
    del matrix, tensor
    thread = threading.Thread(target=array.clear)
    thread.start()
    thread.join()
    assert producer.released


def test_what_is_no_tensor_is_refused(frames) -> None:
    with pytest.raises(TypeError, match="__dlpack__"):
        frames.Matrix(7)


# ---- The exchange table of one's own class ----


def test_the_table_reads_and_makes_instances(frames, c) -> None:
    assert c.slots(frames.Matrix) == ((1, 3), 5, False)
    source = np.arange(6, dtype="int16").reshape(2, 3)
    matrix = frames.Matrix(source)
    version, flags, tensor = c.describe(c.from_object(frames.Matrix, matrix))
    assert (version, flags, tensor["shape"], tensor["data"]) == ((1, 3), 0, (2, 3), source.ctypes.data)
    assert c.borrow(frames.Matrix, matrix)["data"] == source.ctypes.data
    made = c.to_object(frames.Matrix, c.make())
    assert type(made) is frames.Matrix
    assert np.from_dlpack(made) is not None


def test_the_table_is_of_one_class(frames, c) -> None:
    for wrong in (np.zeros(2), 7, frames.Column("x", [])):
        with pytest.raises(TypeError, match=r"frames\.Matrix, and got"):
            c.from_object(frames.Matrix, wrong)


# ---- Arrow ----


def test_pyarrow_reads_a_column(frames) -> None:
    column = frames.Column("x", [1.0, None])
    array = pa.array(column)
    assert array.to_pylist() == [1.0, None]
    assert pa.field(column) == pa.field("x", pa.float64())
    # The same buffer each time.
    assert array.buffers()[1].address == pa.array(column).buffers()[1].address
    assert pa.array(column, type=pa.float32()).type == pa.float32()


def test_device_dunders_speak_to_pyarrow(frames) -> None:
    column = frames.Column("x", [1.0, 2.0])
    schema, array = column.__arrow_c_device_array__(None, requested_device=None)
    assert pa.Array._import_from_c_device_capsule(schema, array).to_pylist() == [1.0, 2.0]
    with pytest.raises(NotImplementedError, match="colour"):
        column.__arrow_c_device_array__(colour="red")


def test_pyarrow_reads_a_frame(frames) -> None:
    table = pa.table({"x": pa.chunked_array([[1], [2, 3]]), "y": ["a", "b", "c"]})
    frame = frames.Frame(table)
    assert len(frame) == 3
    back = pa.table(frame)
    assert back == table
    assert back["x"].chunk(1).buffers()[1].address == table["x"].chunk(1).buffers()[1].address
    schema = pa.schema({"x": pa.int32(), "y": pa.string()})
    assert pa.table(frame, schema=schema).schema == schema
    on_device = ad.from_arrow(producers.only("__arrow_c_device_stream__", frame))
    assert pa.table(on_device) == table


def test_a_request_that_no_cast_meets_is_refused(frames) -> None:
    frame = frames.Frame(pa.table({"x": ["a"]}))
    wrong = pa.schema({"y": pa.string()})
    for dunder in (frame.__arrow_c_stream__, frame.__arrow_c_device_stream__):
        with pytest.raises(BufferError, match="y"):
            dunder(wrong.__arrow_c_schema__())


def test_arrow_memory_is_released_once(frames) -> None:
    schema, array = producers.Schema(), producers.Array()
    frame = frames.Frame(producers.arrow(schema, array))
    stream = frame.__arrow_c_stream__()
    del frame
    assert not array.released
    del stream
    assert array.released


# ---- The process ----

EXIT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("frames", sys.argv[1])
frames = importlib.util.module_from_spec(spec)
spec.loader.exec_module(frames)
import numpy as np
kept = frames.Matrix(np.zeros(3))
class Late:
    def __del__(self):
        np.from_dlpack(kept)
late = Late()
print("ended")
"""


def test_the_interpreter_exits_with_instances_alive(frames) -> None:
    command = [sys.executable, "-X", "faulthandler", "-c", EXIT, frames.__file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_a_subinterpreter_is_refused(frames) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("CPython 3.12 and later refuse the module before it is asked")
    code = f"""
import _xxsubinterpreters as subs
sub = subs.create(isolated=False)
try:
    subs.run_string(sub, '''
import importlib.util
spec = importlib.util.spec_from_file_location("frames", {frames.__file__!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
''')
except subs.RunFailedError as error:
    print(error)
subs.destroy(sub)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "subinterpreter" in done.stdout


def test_the_read_only_flag_is_kept(frames) -> None:
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    assert support.flags(frames.Matrix(frozen)) == producers.READ_ONLY
