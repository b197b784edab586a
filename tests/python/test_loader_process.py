"""Interrupts, the end of the interpreter, forks and very many epochs: processes that a loader must not harm."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pytest
from loader_reference import batches, counted, loader_threads, numbered, rows_of, settle_before_fork

PRELUDE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import os, signal, threading, time
import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
from loader_reference import batches, loader_threads, numbered, rows_of, settle_before_fork

def slow(seconds=0.2, first=None, rows=10**9):
    def generate():
        for row in range(0, rows, 4):
            if first:
                first.set()
            time.sleep(seconds)
            yield pa.record_batch({{"row": [row, row + 1, row + 2, row + 3]}})
    return pa.RecordBatchReader.from_batches(numbered(0).schema, generate())
"""


def run(code: str, *flags: str, **keywords: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-c", PRELUDE + textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **keywords)


class TestInterrupts:
    def test_ctrl_c_while_a_batch_is_waited_for(self):
        """It is seen at once, though the source is in the middle of an array; the iterator can be used afterwards."""
        result = run("""
            entered, leave = threading.Event(), threading.Event()
            def generate():
                yield from numbered(4).to_batches()
                entered.set()
                assert leave.wait(60)
                yield from numbered(4).to_batches()
            source = pa.RecordBatchReader.from_batches(numbered(0).schema, generate())
            iterator = iter(ad.Loader(source, batch_size=4))
            next(iterator)
            def press():
                assert entered.wait(60)
                time.sleep(0.2)
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=press, daemon=True).start()
            try:
                next(iterator)
            except KeyboardInterrupt:
                print("interrupted", leave.is_set())
            leave.set()
            print(rows_of(next(iterator)), next(iterator, None), loader_threads())
        """)
        assert (result.stdout, result.stderr) == ("interrupted False\n[0, 1, 2, 3] None 0\n", "")

    @pytest.mark.parametrize("prefetch", [1, 3])
    def test_a_batch_that_comes_while_ctrl_c_waits_is_the_next_one(self, prefetch: int):
        """Python looks for signals between two waits, and the batch ends the one in which the signal came."""
        result = run(f"""
            entered, leave = threading.Event(), threading.Event()
            def generate():
                yield from numbered(2, 1).to_batches()
                entered.set()
                assert leave.wait(60)
                yield from numbered(5, 1).to_batches()[2:]
            make = lambda: ad.Loader(lambda: generate(), batch_size=1, prefetch={prefetch})
            def press():
                assert entered.wait(60)
                time.sleep(0.225)
                os.kill(os.getpid(), signal.SIGINT)
                leave.set()
            for _ in range(5):
                entered.clear(), leave.clear()
                loader = make()
                iterator = iter(loader)
                got = [rows_of(next(iterator))[0] for _ in range(2)]
                threading.Thread(target=press, daemon=True).start()
                try:
                    next(iterator)
                except KeyboardInterrupt:
                    state = loader.state_dict()
                got += [rows_of(batch)[0] for batch in iterator]
                other = make()
                other.load_state_dict(state)
                print(got, state["taken"], [rows_of(batch)[0] for batch in other])
        """)
        assert (result.stdout, result.stderr) == ("[0, 1, 2, 3, 4] [2] [2, 3, 4]\n" * 5, "")

    # Without a thread it is the source's code that is interrupted.
    @pytest.mark.parametrize("prefetch", [1, 4])
    def test_ctrl_c_that_nobody_catches_ends_the_process(self, prefetch: int):
        code = PRELUDE + textwrap.dedent(f"""
            print("ready", flush=True)
            for batch in ad.Loader(slow(), batch_size=8, prefetch={prefetch}):
                pass
        """)
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGINT
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert "panic" not in errors

    def test_a_long_replay_runs_handlers(self):
        """With `prefetch=0`; before the first array of the source is read. Signals that nobody looks for are one."""
        result = run("""
            make = lambda: ad.Loader(
                sources=[(lambda: numbered(4), 10**9)], batch_size=1, shuffle_buffer=100, seed=0, prefetch=0
            )
            loader = make()
            loader.load_state_dict({**loader.state_dict(), "taken": [9 * 10**8]})
            calls = []
            def handle(*_):
                calls.append(1)
                if len(calls) == 3:
                    raise KeyboardInterrupt
            signal.signal(signal.SIGALRM, handle)
            batches = iter(loader)
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
            try:
                next(batches)
            except KeyboardInterrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
                print(len(calls), next(batches, None))
        """)
        assert (result.stdout, result.stderr) == ("3 None\n", "")


# Whatever is alive at the end of the interpreter, and whoever drops it, the process ends well.
AT_EXIT = {
    "an iterator in the middle of its epoch": """
        iterator = iter(ad.Loader(numbered(10_000, 10), batch_size=8))
        next(iterator)
    """,
    "a source of Python code": """
        iterator = iter(ad.Loader(slow(0.01), batch_size=8))
        next(iterator)
    """,
    "a source that is in the middle of an array": """
        entered = threading.Event()
        iterator = iter(ad.Loader(slow(0.5, entered), batch_size=8))
        entered.wait()
    """,
    "a loader that reads a loader": """
        def generate():
            for batch in ad.Loader(lambda: slow(0.01), batch_size=8):
                yield pa.record_batch([pa.array(ad.to_arrow(np.from_dlpack(batch)[:, 0]))], ["row"])
        source = pa.RecordBatchReader.from_batches(numbered(0).schema, generate())
        iterator = iter(ad.Loader(source, batch_size=10))
        next(iterator)
    """,
    "kept by modules and builtins": """
        import builtins
        builtins.loader = ad.Loader(lambda: slow(0.01), batch_size=8)
        np.iterator = iter(builtins.loader)
        sys.iterator = iter(builtins.loader)
        next(sys.iterator)
    """,
    "without a thread": """
        iterator = iter(ad.Loader(slow(0.01), batch_size=8, prefetch=0))
        next(iterator)
    """,
    "in a cycle": """
        class Node: pass
        node = Node()
        node.self, node.iterator = node, iter(ad.Loader(slow(0.01), batch_size=8))
        next(node.iterator)
    """,
    "a daemon thread that iterates": """
        started = threading.Event()
        def work():
            for batch in ad.Loader(slow(0.01), batch_size=8):
                started.set()
        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
    "a daemon thread that begins epoch after epoch": """
        started = threading.Event()
        def work():
            try:
                while True:
                    for batch in ad.Loader(numbered(100, 10), batch_size=8):
                        started.set()
            except RuntimeError as error:
                assert "going down" in str(error)
        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """,
    "batches in the hands of others": """
        held = list(ad.Loader(numbered(100, 10), batch_size=8, xp=np))
        sys.held = list(ad.Loader(numbered(100, 10), batch_size=8))
    """,
    "in atexit": """
        import atexit
        iterator = iter(ad.Loader(numbered(100, 10), batch_size=8))
        def last():
            # Registered after the package's own, so it runs before.
            assert rows_of(next(iterator)) == list(range(8))
            assert len(list(ad.Loader(numbered(100, 10), batch_size=8))) == 13
        atexit.register(last)
    """,
    "in a finaliser": """
        class Late:
            def __init__(self):
                self.loader = ad.Loader(numbered(100, 10), batch_size=8)
                self.iterator = iter(self.loader)
            def __del__(self):
                assert next(self.iterator, None) is None
                try:
                    iter(self.loader)
                except RuntimeError as error:
                    assert "going down" in str(error)
                else:
                    print("an epoch began")
        sys.late = Late()
    """,
}


@pytest.mark.parametrize("case", AT_EXIT)
def test_the_process_ends_well(case: str):
    for _ in range(3 if "daemon" in case else 1):
        result = run(textwrap.dedent(AT_EXIT[case]) + "\nprint('done', flush=True)\n", "-X", "dev", "-W", "ignore")
        assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
        assert result.stderr == ""


def test_a_source_that_never_ends_does_not_hold_the_exit_against_ctrl_c():
    code = PRELUDE + textwrap.dedent("""
        entered = threading.Event()
        iterator = iter(ad.Loader(slow(1000, entered), batch_size=8))
        entered.wait()
        print("done", flush=True)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert "panic" not in errors


def forked(work: Any) -> None:
    """Runs `work` in a child, and asks that it ends well."""
    with warnings.catch_warnings():
        # Python warns of forks with threads around.
        warnings.simplefilter("ignore", DeprecationWarning)
        settle_before_fork()
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
class TestForks:
    @pytest.mark.parametrize("prefetch", [0, 1, 4])
    @pytest.mark.parametrize("taken", [0, 2])
    def test_an_iteration_stays_with_its_process(self, taken: int, prefetch: int):
        producer, source = counted()
        iterator = iter(ad.Loader(source, batch_size=4, prefetch=prefetch))
        held = [next(iterator) for _ in range(taken)]

        def child() -> None:
            nonlocal iterator, held
            releases = producer.releases
            for _ in range(2):
                with pytest.raises(RuntimeError, match="fork"):
                    next(iterator)
            iterator.close()
            assert [np.from_dlpack(batch).shape for batch in held] == [(4,)] * taken
            del iterator, held
            gc.collect()
            assert producer.releases == releases

        forked(child)
        assert producer.releases == 0
        assert sum(len(batch) for batch in iterator) == 60 - 4 * taken
        assert producer.releases == 1

    def test_a_loader_begins_anew_in_the_child(self):
        loader = ad.Loader(lambda: numbered(50, 9), batch_size=8, shuffle_buffer=9, seed=1)
        iterator = iter(loader)
        next(iterator)

        def child() -> None:
            expected = batches(50, 8, shuffle_buffer=9, seed=1, epoch=1)
            assert [rows_of(batch) for batch in loader] == expected
            assert loader_threads() == 0

        forked(child)
        assert len(list(iterator)) == 6

    def test_a_child_opens_a_source_that_threads_of_its_parent_open_and_wait_for(self):
        parent, entered, leave = os.getpid(), threading.Event(), threading.Event()

        class Slow:
            def __len__(self) -> int:
                return 9

            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                if os.getpid() == parent:
                    entered.set()
                    assert leave.wait(60)
                return numbered(9).__arrow_c_stream__(requested_schema)

        loader = ad.Loader(Slow(), batch_size=4, prefetch=0)
        found: list[list[int]] = []
        threads = [
            threading.Thread(target=lambda: found.append([row for one in loader for row in rows_of(one)]))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        assert entered.wait(60)

        def child() -> None:
            # Ends a child that waits for ever.
            signal.alarm(60)
            for _ in range(2):
                assert [row for one in loader for row in rows_of(one)] == list(range(9))

        try:
            for _ in range(10):
                forked(child)
        finally:
            leave.set()
            for thread in threads:
                thread.join(60)
        assert found == [list(range(9))] * len(threads)

    def test_many_forks_while_the_thread_works(self):
        loader = ad.Loader(numbered(20_000, 33), batch_size=10)
        for index, batch in enumerate(loader):
            if index % 400 == 0:

                def child(batch: Any = batch) -> None:
                    # Gives its block back to a pool whose lock the thread may have had.
                    del batch
                    assert len(list(ad.Loader(numbered(30), batch_size=10))) == 3

                forked(child)
            assert len(batch) == 10

    def test_the_child_exits_as_a_process_does(self):
        result = run(
            """
            iterator = iter(ad.Loader(slow(0.01), batch_size=8))
            next(iterator)
            settle_before_fork()
            child = os.fork()
            if child == 0:
                sys.exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            del iterator
            print(loader_threads())
        """,
            "-W",
            "ignore",
        )
        assert (result.returncode, result.stdout) == (0, "7\n0\n"), result.stderr


def test_resident_memory_stays_where_it_is():
    result = run("""
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        table = pa.table({"a": np.arange(100_000.0), "b": np.arange(100_000.0)})
        loader = ad.Loader(table, batch_size=10_000, shuffle_buffer=30_000, columns={"x": ["a", "b"], "y": "a"}, xp=np)
        def work(rounds):
            for epoch in range(rounds):
                for index, batch in enumerate(loader):
                    if epoch % 3 == 0 and index == 4:
                        break
        work(30)
        before = resident()
        work(150)
        print(resident() - before)
    """)
    assert result.returncode == 0, result.stderr
    # An epoch's blocks are 2 MB and more.
    assert int(result.stdout) < 16 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("world_size", [1, 4])
def test_rows_that_wait_are_copied_array_by_array(world_size: int):
    """So that a buffer of rows of 16 KiB holds twice its rows, and not those that it copies, too."""
    result = run(
        f"""
        def peak():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
        def source():
            for number in range(400):
                offsets = np.arange(0, (100 + 1) << 14, 1 << 14, dtype="int32")
                buffers = [pa.py_buffer(one) for one in (offsets, np.full(100 << 14, 65 + number % 26, "uint8"))]
                yield pa.record_batch({{"text": pa.StringArray.from_buffers(100, *buffers)}})
        options = dict(batch_size=50, shuffle_buffer=10_000, seed=3, columns={{"a": ad.arrow("text")}}, prefetch=0)
        loader = ad.Loader(source, rank=0, world_size={world_size}, **options)
        before = peak()
        assert sum(1 for _ in loader) == 40_000 // 50 // {world_size}
        print((peak() - before) / (10_000 << 14))
        """,
        # Memory that was freed is the system's again.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 2.5


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_skipped_rows_are_released():
    result = run("""
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        def source():
            for number in range(440):
                yield pa.record_batch({"text": pa.array([bytes([number % 256]) * (1 << 18)])})
        options = dict(batch_size=4, shuffle_buffer=8, seed=3, columns={"a": ad.arrow("text")}, prefetch=0)
        state = ad.Loader(source, **options).state_dict()
        def begun(taken):
            loader = ad.Loader(source, **options)
            loader.load_state_dict({**state, "taken": [taken]})
            iterator = iter(loader)
            next(iterator)
            return iterator
        begun(0).close()
        before = resident()
        iterator = begun(400)
        print(resident() - before)
    """)
    assert result.returncode == 0, result.stderr
    # 400 rows of 256 KiB were skipped, and 12 are held.
    assert int(result.stdout) < 48 << 20
