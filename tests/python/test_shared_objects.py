"""Many threads that use one object at once: results are right, and each release happens once.

They hold with the lock of the interpreter and without it. Threads start together, and producers sleep to let others in.
"""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from loader_reference import loader_threads
from support import numpy_of

THREADS = 8
ROWS = 600
TABLE = pa.table({"row": pa.array(range(ROWS), pa.int64()), "half": [row / 2 for row in range(ROWS)]})
BATCHES = TABLE.to_batches(max_chunksize=20)


def at_once(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """What `work` returns for each number, on threads that start together."""
    barrier = threading.Barrier(threads)

    def start(number: int) -> Any:
        barrier.wait(30)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(start, range(threads)))


class Once:
    """An iterator of batches, the first of which takes a while."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.items = iter(BATCHES)
        self.is_first = True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self.lock:
            is_first, self.is_first = self.is_first, False
            item = next(self.items)
        if is_first:
            time.sleep(0.05)
        return item


class SlowStream:
    """A stream that can be read once, the dunder of which takes a while."""

    def __init__(self) -> None:
        self.calls = 0
        self.reader = pa.RecordBatchReader.from_batches(TABLE.schema, BATCHES)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.calls += 1
        time.sleep(0.05)
        return self.reader.__arrow_c_stream__(requested_schema)


def rows_read(loader: ad.Loader) -> list[int] | None:
    """The rows of an epoch; None where the source was read by another one."""
    try:
        epoch = iter(loader)
    except ValueError as error:
        assert "can be read once" in str(error)  # noqa: PT017
        return None
    return [int(row) for batch in epoch for row in numpy_of(batch)[:, 0]]


class TestSources:
    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("make", [Once, SlowStream])
    def test_what_can_be_read_once_is_read_by_one(self, make: Callable[[], Any], prefetch: int):
        for _ in range(3):
            source = make()
            loader = ad.Loader(source, batch_size=32, prefetch=prefetch)
            read = [rows for rows in at_once(lambda _, loader=loader: rows_read(loader)) if rows is not None]
            assert read == [list(range(ROWS))]
            assert getattr(source, "calls", 1) == 1
        assert loader_threads() == 0

    def test_a_callable_that_returns_one_reader(self):
        source = SlowStream()
        loader = ad.Loader(lambda: source, batch_size=32)
        read = [rows for rows in at_once(lambda _: rows_read(loader)) if rows is not None]
        assert (read, source.calls) == ([list(range(ROWS))], 1)

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_a_table_is_read_by_all(self, prefetch: int):
        loader = ad.Loader(TABLE, batch_size=32, prefetch=prefetch)
        assert at_once(lambda _: rows_read(loader)) == [list(range(ROWS))] * THREADS
        assert loader_threads() == 0

    def test_a_failed_opening_is_no_reading(self):
        class Fails:
            calls = itertools.count()

            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                time.sleep(0.01)
                if next(self.calls) < THREADS - 1:
                    raise OSError("not yet")
                return TABLE.__arrow_c_stream__(requested_schema)

        loader = ad.Loader(Fails(), batch_size=32)

        def read(_: int) -> Any:
            try:
                return rows_read(loader)
            except OSError as error:
                return str(error)

        assert sorted(at_once(read), key=str) == sorted(["not yet"] * (THREADS - 1) + [list(range(ROWS))], key=str)

    def test_a_source_that_begins_an_iteration_of_its_own_loader(self):
        class Nested:
            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                return next(iter(loader))

        loader = ad.Loader(Nested(), batch_size=2)
        with pytest.raises(ValueError, match="begins an iteration of the loader that opens it"):
            iter(loader)

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one process")
    def test_a_signal_ends_the_wait_for_another_thread(self):
        opened, go_on, let_go = threading.Event(), threading.Event(), []

        class Waits:
            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                opened.set()
                let_go.append(go_on.wait(30))
                return TABLE.__arrow_c_stream__(requested_schema)

        loader = ad.Loader(Waits(), batch_size=ROWS)
        read: list[Any] = []
        other = threading.Thread(target=lambda: read.append(rows_read(loader)))
        other.start()
        opened.wait(30)
        press = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))

        def wait() -> None:
            press.start()
            iter(loader)

        try:
            with pytest.raises(KeyboardInterrupt):
                wait()
            # The other thread still opens the source: nothing else has ended the wait.
            assert not let_go
        finally:
            go_on.set()
            other.join()
            press.join()
        assert read == [list(range(ROWS))]


class TestLoaders:
    @pytest.mark.parametrize("prefetch", [0, 1, 4])
    def test_each_batch_of_an_iteration_goes_to_one_thread(self, prefetch: int):
        iterator = iter(ad.Loader(TABLE, batch_size=3, prefetch=prefetch))

        def read(_: int) -> list[int]:
            rows: list[int] = []
            while True:
                try:
                    batch = next(iterator, None)
                except ad.ConversionError as error:
                    assert "being made already" in str(error)  # noqa: PT017
                    continue
                if batch is None:
                    return rows
                rows.extend(numpy_of(batch)[:, 0].astype(int))

        assert sorted(itertools.chain(*at_once(read))) == list(range(ROWS))
        assert loader_threads() == 0

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_iterations_that_others_close(self, prefetch: int):
        for _ in range(20):
            producer = producers.Stream(producers.Array() for _ in range(40))
            iterator = iter(ad.Loader(producers.stream(producer), batch_size=2, prefetch=prefetch))

            def use(number: int, iterator: Any = iterator) -> None:
                if number == 0:
                    iterator.close()
                    return
                try:
                    while next(iterator, None) is not None:
                        pass
                except ad.ConversionError as error:
                    assert any(text in str(error) for text in ("being made already", "was closed"))  # noqa: PT017

            at_once(use)
            iterator.close()
            assert producer.releases == 1
        assert loader_threads() == 0

    def test_states_taken_meanwhile_are_those_of_a_place_between_two_batches(self):
        loader = ad.Loader(TABLE, batch_size=8, prefetch=2, shuffle_buffer=50, seed=1)
        whole = [numpy_of(batch).tolist() for batch in ad.Loader(TABLE, batch_size=8, shuffle_buffer=50, seed=1)]
        iterator = iter(loader)

        def use(number: int) -> list[Any]:
            if number > 0:
                return [loader.state_dict() for _ in range(20)]
            for _ in range(30):
                next(iterator)
            return []

        for state in itertools.chain(*at_once(use, 3)):
            resumed = ad.Loader(TABLE, batch_size=8, shuffle_buffer=50)
            resumed.load_state_dict(state)
            done = state["taken"][0] // 8
            assert numpy_of(next(iter(resumed))).tolist() == whole[done]
        iterator.close()


class TestStreams:
    def test_a_stream_that_is_gone_is_so_for_all(self):
        for _ in range(20):
            stream = ad.from_arrow(pa.chunked_array([[1]]))
            assert len(list(stream)) == 1

            def read(_: int, stream: Any = stream) -> Any:
                return [next(stream, None) for _ in range(50)]

            assert at_once(read) == [[None] * 50] * THREADS

    def test_one_stream_that_is_read_closed_and_taken(self):
        for number in range(40):
            producer = producers.Stream(producers.Array() for _ in range(10))
            stream = ad.from_arrow(producers.stream(producer))
            uses: list[Callable[[], Any]] = [
                lambda stream=stream: list(stream),
                lambda stream=stream: ad.to_tensor(stream),
                stream.close,
                lambda stream=stream: stream.__arrow_c_stream__(),
            ]

            def use(thread: int, uses: Any = uses, number: int = number) -> None:
                try:
                    uses[(thread + number) % len(uses)]()
                except ValueError as error:
                    assert any(text in str(error) for text in ("another thread", "consumed"))  # noqa: PT017

            at_once(use)
            del stream, uses, use
            gc.collect()
            assert producer.releases == 1


class TestTensors:
    def test_every_use_of_one_tensor_while_others_drop_theirs(self):
        for _ in range(10):
            producer, source = producers.dlpack()
            tensor = ad.from_dlpack(source)
            uses: list[Callable[[Any], Any]] = [
                lambda tensor: np.from_dlpack(tensor).sum(),
                lambda tensor: sum(itertools.chain(*memoryview(tensor).tolist())),
                lambda tensor: pa.array(tensor).storage.flatten().to_numpy().sum(),
                lambda tensor: numpy_of(ad.to_tensor(ad.to_arrow(tensor, copy=True))).sum(),
                lambda tensor: numpy_of(ad.from_dlpack(tensor)).sum(),
            ]
            held = [[tensor] for _ in range(THREADS)]

            def use(number: int, held: Any = held, uses: Any = uses) -> list[Any]:
                results = [uses[number % len(uses)](held[number][0]) for _ in range(50)]
                held[number].clear()
                return results

            del tensor
            results = at_once(use)
            assert all(len(set(map(float, own))) == 1 for own in results)
            del source, use
            gc.collect()
            assert producer.releases == 1

    def test_one_array_converted_dropped_and_shared(self):
        for _ in range(10):
            schema, array = producers.Schema(), producers.Array()
            shared = ad.from_arrow(producers.arrow(schema, array))
            expected = numpy_of(shared).tolist()

            def use(_: int, shared: Any = shared, expected: Any = expected) -> bool:
                return all(numpy_of(ad.to_tensor(shared, copy=copy)).tolist() == expected for copy in (None, True) * 25)

            assert all(at_once(use))
            assert array.releases == 0
            del shared, use
            gc.collect()
            assert array.releases == 1


class TestCaches:
    def test_names_of_more_schemas_than_are_kept(self):
        batches = [pa.record_batch({f"a{number}": [number], f"b{number}": [-number]}) for number in range(24)]

        def convert(thread: int) -> bool:
            for turn in range(200):
                number = (thread * 7 + turn) % len(batches)
                tensors = ad.to_tensors(batches[number])
                assert list(tensors) == [f"a{number}", f"b{number}"]
                assert [numpy_of(tensor).tolist() for tensor in tensors.values()] == [[number], [-number]]
                if turn % 50 == 0:
                    ad.empty_cache()
            return True

        assert all(at_once(convert))

    def test_namespaces_that_come_and_go(self):
        source = pa.array([1.0, 2.0])

        def convert(_: int) -> bool:
            for turn in range(100):
                own = types.ModuleType("own")
                own.from_dlpack = lambda tensor: np.from_dlpack(tensor)
                namespace = np if turn % 2 else own
                assert ad.to_tensor(source, xp=namespace, copy=True).tolist() == [1.0, 2.0]
                assert ad.to_tensor(source, xp=namespace, copy=True).tolist() == [1.0, 2.0]
            return True

        assert all(at_once(convert))

    def test_one_group_and_one_list_of_categories(self):
        words = pa.table({"w": ["a", "b", "c"] * 200, "x": range(600), "y": range(600)})
        group = ad.group(["x", "y"], dtype="float32", nulls=0)
        categories = {"w": ["a", "b", "c"]}
        expected = [0, 1, 2] * 200

        def convert(_: int) -> bool:
            for _ in range(20):
                tensors = ad.to_tensors(words, columns={"g": group, "w": "w"}, categories=categories, xp=np)
                assert tensors["w"].tolist() == expected
                assert tensors["g"].sum() == 2 * sum(range(600))
            return True

        assert all(at_once(convert))


class TestOptions:
    def test_a_dict_that_changes_while_it_is_read(self):
        """By what its values run: the dict as it was when the call began counts."""

        class DType:
            def __str__(self) -> str:
                dtypes[f"more{len(dtypes)}"] = "int8"
                return "float32"

        dtypes: dict[str, Any] = {"row": DType(), "half": DType()}
        assert ad.to_tensor(TABLE, dtype=dtypes, xp=np).dtype == np.float32
        assert len(dtypes) == 4

    def test_a_dict_that_another_thread_changes(self):
        groups: dict[str, Any] = {"x": ["row", "half"]}
        over = threading.Event()

        def change() -> None:
            for number in itertools.count():
                if over.is_set():
                    return
                groups[f"g{number % 50}"] = ["row"]
                groups.pop(f"g{(number + 25) % 50}", None)

        changing = threading.Thread(target=change)
        changing.start()
        try:
            for _ in range(300):
                assert ad.to_tensors(BATCHES[0], columns=groups)["x"].shape == (20, 2)
        finally:
            over.set()
            changing.join()

    def test_a_list_that_another_thread_changes(self):
        batch = BATCHES[0].append_column("zero", [0] * 20)
        columns = ["row", "half"]
        over = threading.Event()

        def change() -> None:
            while not over.is_set():
                columns.append("zero")
                columns.pop()

        changing = threading.Thread(target=change)
        changing.start()
        try:
            for _ in range(300):
                tensor = numpy_of(ad.to_tensor(batch, columns=columns))
                assert tensor[1].tolist() in ([1.0, 0.5], [1.0, 0.5, 0.0])
        finally:
            over.set()
            changing.join()


COLD = """
    import sys, threading
    import arrow_dlpack as ad
    import numpy as np
    import pyarrow as pa

    table = pa.table({"a": [1.0, None, 3.0], "b": [True, False, None], "w": ["x", "y", "x"]})
    barrier = threading.Barrier(8)
    answers = [None] * 8

    def first(number):
        barrier.wait(30)
        try:
            ad.to_tensor(table)
        except ad.ConversionError as error:
            reason = error.reason
        groups = {"m": ["a", "b"], "w": "w"}
        tensors = ad.to_tensors(table, columns=groups, nulls=0, categories={"w": ["x", "y"]}, xp=np)
        report = str(ad.explain(table.select(["a"]), nulls="nan"))
        loaded = [batch.shape for batch in ad.Loader(table.select(["a"]), batch_size=2, nulls=0, xp=np)]
        memory = memoryview(ad.to_tensor(pa.array([1, 2]))).tolist()
        capsule = np.from_dlpack(ad.to_tensor(pa.array([1, 2]))).tolist()
        answers[number] = (
            reason, tensors["m"].tolist(), tensors["w"].tolist(), report, loaded, memory, capsule, str(ad.Device("cpu"))
        )

    threads = [threading.Thread(target=first, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert answers[0] is not None
    assert all(answer == answers[0] for answer in answers), answers
    print("done", flush=True)
"""


def test_the_first_uses_of_a_process_at_once():
    """No cache is filled, no exception class made, no method replaced before."""
    for _ in range(2):
        command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", textwrap.dedent(COLD)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", "")
