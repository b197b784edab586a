"""The end of the interpreter: whatever is alive then, and whoever drops it, the process ends well."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from free_threading import IS_FREE_THREADED

PRELUDE = """
import sys
sys.path.insert(0, {here!r})
import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
"""

CASES = {
    "globals": """
        tensor = ad.from_dlpack(np.arange(3))
        column = ad.to_tensor(pa.array([1, 2, 3]))
        copy = ad.to_tensor(pa.array([True, False]))
        array = ad.to_arrow(np.arange(3))
        batch = ad.from_arrow(pa.record_batch({"x": [1]}))
        stream = ad.from_arrow(pa.table({"x": [1]}))
        read = ad.from_arrow(pa.table({"x": [1]}))
        first = next(read)
        view = memoryview(column)
        log = ad.track_copies().__enter__()
    """,
    "capsules": """
        tensor = ad.to_tensor(pa.array([1, 2, 3]))
        capsules = [tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0)), tensor.__arrow_c_array__(),
                    tensor.__arrow_c_device_array__(), tensor.__arrow_c_schema__(),
                    ad.from_arrow(pa.table({"x": [1]})).__arrow_c_stream__()]
    """,
    "in the hands of others": """
        held = [np.from_dlpack(ad.to_tensor(pa.array([1, 2, 3]))), pa.array(ad.to_arrow(np.arange(3))),
                pa.table(ad.from_arrow(pa.table({"x": [1]})))]
    """,
    "cycles": """
        class Node: pass
        node = Node()
        node.self, node.tensor = node, ad.from_dlpack(np.arange(3))
        node.array = pa.array(node.tensor)
    """,
    "kept by modules and builtins": """
        import builtins
        builtins.tensor = ad.from_dlpack(np.arange(3))
        np.tensor = ad.to_tensor(pa.array([1, 2, 3]))
        sys.tensor = pa.array(ad.to_arrow(np.arange(3)))
    """,
    "producers of Python": """
        kept = [ad.from_dlpack(producers.dlpack()[1]),
                ad.from_arrow(producers.arrow(producers.Schema(), producers.Array())),
                ad.from_arrow(producers.stream(producers.Stream()))]
    """,
    # Before 3.14, CPython ends a daemon thread that wants its lock at exit by unwinding the thread's stack, which Rust
    # survives only in the calls that are guarded for it.
    "daemon threads that drop and convert": """
        import threading
        kept = [ad.from_dlpack(np.arange(3)) for _ in range(100)]
        column = ad.to_arrow(np.arange(3))
        started = threading.Event()
        def work():
            while True:
                started.set()
                ad.from_dlpack(np.arange(3))
                np.from_dlpack(ad.to_tensor(column, dtype="float32"))
                if kept:
                    kept.pop()
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
    "a daemon thread in the middle of a large conversion": """
        import threading
        source = ad.from_arrow(pa.array([True] * 5_000_000))
        started = threading.Event()
        def work():
            while True:
                started.set()
                ad.to_tensor(source, dtype="float64")
        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
    "a daemon thread in a dunder that lets go of the lock": """
        import threading
        source = pa.array([True] * 5_000_000)
        started = threading.Event()
        def work():
            while True:
                started.set()
                ad.to_tensor(source, dtype="float64")
        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
    "a daemon thread that reads a stream": """
        import threading
        stream = ad.from_arrow(pa.table({"x": pa.chunked_array([pa.array([1])] * 300_000)}))
        started = threading.Event()
        def work():
            for batch in stream:
                started.set()
        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
    "in atexit": """
        import atexit
        tensor, column = ad.from_dlpack(np.arange(3)), pa.array([1, 2, 3])
        def last():
            global tensor
            assert np.from_dlpack(ad.to_tensor(column)).tolist() == [1, 2, 3]
            assert np.from_dlpack(ad.to_tensor(column, dtype="float32")).tolist() == [1, 2, 3]
            del tensor
        atexit.register(last)
    """,
    "in a finaliser": """
        class Late:
            def __init__(self):
                self.tensor, self.convert, self.source = ad.from_dlpack(np.arange(3)), ad.from_dlpack, np.arange(3)
            def __del__(self):
                self.convert(self.source)
        late = Late()
        sys.late = Late()
    """,
    "by sys.exit with an exception around": """
        try:
            ad.to_tensor(pa.array([1, None]))
        except ad.NullError as error:
            kept = error
        tensor = ad.from_dlpack(np.arange(3))
        sys.exit(0)
    """,
}


# What calls Python code of others, which is busy in there when the interpreter goes down.
CALLS = {
    **{
        dunder: f"""
        class Producer:
            def {dunder}(self, *arguments, **keywords):
                busy()
        call = lambda: {function}(Producer())
        """
        for dunder, function in {
            "__arrow_c_device_array__": "ad.from_arrow",
            "__arrow_c_array__": "ad.from_arrow",
            "__arrow_c_device_stream__": "ad.from_arrow",
            "__arrow_c_stream__": "ad.from_arrow",
            "__arrow_c_schema__": "ad.explain",
        }.items()
    },
    "__dlpack_device__": """
        class Producer:
            def __dlpack_device__(self):
                busy()
            def __dlpack__(self, **keywords):
                raise AssertionError
        call = lambda: ad.from_dlpack(Producer())
    """,
    "__dlpack__": """
        class Producer:
            def __dlpack_device__(self):
                return 1, 0
            def __dlpack__(self, **keywords):
                busy()
        call = lambda: ad.from_dlpack(Producer())
    """,
    "xp.from_dlpack": """
        class Namespace:
            from_dlpack = staticmethod(lambda tensor: busy())
        call = lambda: ad.to_tensors(pa.record_batch({"x": [1]}), xp=Namespace())
    """,
    "the loader's callable": """
        call = lambda: next(iter(ad.Loader(busy, batch_size=1)))
    """,
}


def check(code: str):
    """That the program says `done`, and nothing else."""
    code = PRELUDE.format(here=str(Path(__file__).parent)) + textwrap.dedent(code) + "\nprint('done', flush=True)\n"
    # Development mode, so that what goes wrong at exit is not passed over. But not its allocator beside daemon threads:
    # CPython's take_gil reads the state of one that finalisation may just have freed, and the fill makes it a fault.
    allocator = "mimalloc" if IS_FREE_THREADED else "pymalloc"
    environment = {**os.environ, "PYTHONMALLOC": allocator} if "daemon=True" in code else None
    command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", code]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
    assert result.stderr == ""


@pytest.mark.parametrize("case", CASES)
def test_the_process_ends_well(case: str):
    code = CASES[case]
    if "sys.exit" in code:
        code = code.replace("sys.exit(0)", "print('done', flush=True); sys.exit(0)")
    for _ in range(3 if "daemon" in case else 1):
        check(code)


@pytest.mark.parametrize("call", CALLS)
def test_a_daemon_thread_is_inside_a_call(call: str):
    start = """
        import threading, time
        inside = threading.Event()
        def busy():
            inside.set()
            while True:
                time.sleep(0)
    """
    end = """
        threading.Thread(target=call, daemon=True).start()
        assert inside.wait(60)
    """
    check(textwrap.dedent(start) + textwrap.dedent(CALLS[call]) + textwrap.dedent(end))


def test_torch_at_exit(torch):
    code = """
        import torch
        held = [torch.from_dlpack(ad.to_tensor(pa.array([1, 2, 3]))), ad.from_dlpack(torch.arange(3)),
                pa.array(ad.to_arrow(torch.arange(3)))]
        print("done")
    """
    command = [sys.executable, "-c", PRELUDE.format(here=str(Path(__file__).parent)) + textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
