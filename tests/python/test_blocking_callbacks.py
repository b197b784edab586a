"""A callback that blocks keeps neither the interpreter's lock nor one of this package: all else goes on meanwhile."""

from __future__ import annotations

import ctypes
import os
import pickle
import platform
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from loader_reference import loader_threads
from producers import Array, DLPack, Only, Schema, Stream
from test_callbacks import BATCH, BATCHES, READERS, of_two_shards, plain

# Seconds that no test should take.
PATIENCE = 60


class Gate:
    """Where a callback waits, each time or from the call of a number on, until the test lets it go on."""

    def __init__(self, calls_before: int = 0):
        self.calls_before = calls_before
        self.entered = threading.Event()
        self.opened = threading.Event()

    def wait(self) -> None:
        self.calls_before -= 1
        if self.calls_before < 0:
            self.entered.set()
            end = time.monotonic() + PATIENCE
            # A signal that comes just before a wait is seen after it.
            while not self.opened.wait(0.05):
                assert time.monotonic() < end, "the gate was not opened"

    def before(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        """`answer`, at whose call this waits."""

        def late(*positional: object, **keywords: object) -> Any:
            self.wait()
            return answer(*positional, **keywords)

        return late


NULLS = pa.array([None if row % 5 == 2 else float(row) for row in range(100_000)])
TABLE = pa.Table.from_batches([BATCH] * BATCHES)


def released() -> None:
    tensor_producer, tensor = producers.dlpack()
    array = Array()
    imported = [ad.from_dlpack(tensor), ad.from_arrow(producers.arrow(Schema(), array))]
    del imported
    assert (tensor_producer.releases, array.releases) == (1, 1)


# What another thread does meanwhile, all of it to its end.
USES: dict[str, Callable[[], object]] = {
    "a conversion": lambda: ad.to_tensor(NULLS, nulls=0, dtype="float32"),
    "threads": lambda: ad.to_tensor(pa.array(np.zeros(1 << 19)), copy=True, threads=2),
    "a stream": lambda: ad.to_tensors(TABLE),
    "items": lambda: ad.to_tensor(iter([BATCH, BATCH])),
    "another library": lambda: pa.table(ad.from_arrow(TABLE)),
    "capsules": lambda: np.from_dlpack(ad.to_tensor(NULLS.fill_null(1))),
    "releases": released,
    "a report": lambda: ad.explain(TABLE),
    "a log": lambda: ad.track_copies().__enter__(),
    "a pickle": lambda: pickle.loads(pickle.dumps(ad.from_arrow(BATCH))),
    "a loader": lambda: list(ad.Loader(TABLE, batch_size=4)),
    "a loader of shards": lambda: list(
        ad.Loader(sources=[(lambda: TABLE, 9)] * 2, lanes=2, readers=2, batch_size=4, shuffle_buffer=4, seed=1)
    ),
    "statistics": lambda: ad.statistics(TABLE, {"a": "mean"}),
    "memory": lambda: (ad.memory_stats(), ad.collect(), ad.empty_cache()),
    "lists": lambda: ad.to_ragged(pa.array([[1, 2], [3]]), pad=(0, None)),
    "to Arrow": lambda: ad.to_arrow(np.ones((9, 2)), names=["x", "y"], validity=np.ones((9, 2), bool)),
}


class Work:
    """A piece of work on a thread of its own, and what came of it."""

    def __init__(self, work: Callable[[], object]):
        self.answer: Any = None
        self.error: BaseException | None = None

        def run() -> None:
            try:
                self.answer = work()
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def result(self) -> Any:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "it still waits"
        if self.error:
            raise self.error
        return self.answer


def others_go_on(more: Callable[[], object] = lambda: None) -> None:
    """That another thread ends all of the uses, and `more`."""
    begun: list[str] = []

    def use_all() -> None:
        for name, use in {**USES, "of the object itself": more}.items():
            begun.append(name)
            use()

    work = Work(use_all)
    work.thread.join(PATIENCE / 2)
    assert not work.thread.is_alive(), f"{begun[-1]} waits for the callback"
    work.result()


def goes_on(gate: Gate, call: Callable[[], object], more: Callable[[], object] = lambda: None) -> Any:
    """What the call answers, whose callback waits at the gate while all else goes on."""
    work = Work(call)
    try:
        assert gate.entered.wait(PATIENCE), work.error
        others_go_on(more)
        assert work.thread.is_alive()
    finally:
        gate.opened.set()
    return work.result()


SOURCES = {name: read for name, read in READERS.items() if read is not of_two_shards and name != "an item"}
reader = pytest.mark.parametrize("reader", SOURCES)


def generated(gate: Gate) -> pa.RecordBatchReader:
    """A reader of pyarrow over a generator, each of whose steps waits."""

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(BATCHES):
            gate.wait()
            yield BATCH
        gate.wait()

    return pa.RecordBatchReader.from_batches(BATCH.schema, batches())


def iterated(gate: Gate) -> Any:
    """An iterator of batches."""
    return map(gate.before(lambda batch: batch), [BATCH] * BATCHES)


def offered(gate: Gate) -> Any:
    """Items whose dunders wait."""
    return iter([Only("__arrow_c_array__", gate.before(BATCH.__arrow_c_array__)) for _ in range(BATCHES)])


def streamed(gate: Gate) -> Any:
    """An object whose stream dunder waits."""
    return Only("__arrow_c_stream__", gate.before(TABLE.__arrow_c_stream__))


# With the calls before the one that waits; the last one of a generator is its end.
FORMS: dict[str, tuple[Callable[[Gate], Any], int]] = {
    "a generator": (generated, BATCHES),
    "an iterator": (iterated, 1),
    "items": (offered, 1),
    "a stream": (streamed, 0),
}


@pytest.mark.parametrize("form", FORMS)
@reader
def test_a_source_that_blocks(reader: str, form: str):
    make, calls_before = FORMS[form]
    gate = Gate(calls_before)
    source = make(gate)
    assert goes_on(gate, lambda: plain(SOURCES[reader](source))) == plain(SOURCES[reader](TABLE))
    assert loader_threads() == 0


def held(gate: Gate) -> tuple[Any, Callable[[], object]]:
    """A stream of ours over a source that waits, and its uses beside the call that reads it."""
    stream = ad.from_arrow(generated(gate))

    def uses() -> None:
        assert stream.column_names == ["a", "b"]
        assert "RecordBatch" in repr(stream) or repr(stream)
        for refused in (lambda: next(stream), stream.close, stream.__arrow_c_stream__, lambda: ad.to_tensor(stream)):
            with pytest.raises(ValueError, match="another thread"):
                refused()

    return stream, uses


@pytest.mark.parametrize("use", ["next", "to_tensor", "another library"])
def test_a_stream_of_ours_tells_other_threads_that_it_is_read(use: str):
    gate = Gate()
    stream, uses = held(gate)
    if use == "another library":
        taken = pa.RecordBatchReader.from_stream(stream)
        assert goes_on(gate, taken.read_all) == TABLE
    else:
        call = {"next": lambda: next(stream), "to_tensor": lambda: ad.to_tensor(stream)}[use]
        expected = {"next": lambda: BATCH, "to_tensor": lambda: TABLE}[use]()
        assert plain(ad.to_tensor(goes_on(gate, call, uses))) == plain(ad.to_tensor(expected))


@pytest.mark.parametrize("dunder", ["__arrow_c_array__", "__arrow_c_device_array__"])
@pytest.mark.parametrize("call", [ad.to_tensor, ad.from_arrow, ad.validity, ad.to_tensors, ad.explain])
def test_a_dunder_of_arrow_that_blocks(dunder: str, call: Callable[[Any], Any]):
    gate = Gate()
    source = Only(dunder, gate.before(getattr(ad.from_arrow(BATCH), dunder)))
    answer = goes_on(gate, lambda: call(source))
    assert call is ad.explain or plain(answer) == plain(call(BATCH))


@pytest.mark.parametrize("dunder", ["__dlpack__", "__dlpack_device__"])
@pytest.mark.parametrize("call", [ad.to_tensor, ad.from_dlpack, ad.to_arrow])
def test_a_dunder_of_dlpack_that_blocks(dunder: str, call: Callable[[Any], Any]):
    gate, values = Gate(), np.arange(6.0)
    dunders = {name: getattr(values, name) for name in ("__dlpack__", "__dlpack_device__")}
    dunders[dunder] = gate.before(dunders[dunder])
    source = type("Source", (), {name: (lambda self, *a, at=at, **k: at(*a, **k)) for name, at in dunders.items()})()
    assert np.asarray(pa.array(goes_on(gate, lambda: call(source)))).tolist() == values.tolist()


def test_a_function_of_a_namespace_that_blocks():
    gate = Gate()
    namespace = SimpleNamespace(__name__="waits", from_dlpack=gate.before(np.from_dlpack))
    tensor = goes_on(gate, lambda: ad.to_tensor(pa.array([1, 2]), xp=namespace))
    assert tensor.tolist() == [1, 2]


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, {"lanes": 2, "readers": 2}, {"shuffle_buffer": 4, "seed": 1}])
@pytest.mark.parametrize("shard", [0, 1])
def test_what_opens_a_shard_blocks(shard: int, options: dict[str, Any]):
    def loaded(openers: list[Any]) -> Any:
        return plain(list(ad.Loader(sources=[(one, 9) for one in openers], batch_size=4, **options)))

    gate, usual = Gate(), lambda: TABLE
    openers = [usual, usual]
    openers[shard] = gate.before(usual)
    assert goes_on(gate, lambda: loaded(openers)) == loaded([usual, usual])
    assert loader_threads() == 0


# How each producer is imported, to be dropped by the call.
RELEASES: dict[str, Callable[[Callable[[], object]], tuple[Any, Any]]] = {}


def released_late(make: Callable[[Gate], tuple[Any, Any]]) -> Callable[[Gate], tuple[Any, Any]]:
    RELEASES[make.__name__.replace("_", " ")] = make
    return make


@released_late
def a_tensor(gate: Gate) -> tuple[Any, Any]:
    producer = DLPack(on_release=gate.wait)
    return producer, ad.from_dlpack(Only("__dlpack__", lambda **_: producer.capsule()))


@released_late
def an_old_tensor(gate: Gate) -> tuple[Any, Any]:
    producer = DLPack(versioned=False, on_release=gate.wait)
    return producer, ad.from_dlpack(Only("__dlpack__", lambda **_: producer.capsule()))


@released_late
def an_array(gate: Gate) -> tuple[Any, Any]:
    producer = Array()
    producer.on_release = gate.wait
    return producer, ad.from_arrow(producers.arrow(Schema(), producer))


@released_late
def an_array_of_a_device(gate: Gate) -> tuple[Any, Any]:
    producer = Array(device=(1, -1))
    producer.on_release = gate.wait
    return producer, ad.from_arrow(producers.arrow(Schema(), producer))


@released_late
def a_view(gate: Gate) -> tuple[Any, Any]:
    producer = Array()
    producer.on_release = gate.wait
    return producer, ad.to_tensor(producers.arrow(Schema(), producer))


@released_late
def a_stream_that_is_not_read(gate: Gate) -> tuple[Any, Any]:
    producer = Stream()
    producer.on_release = gate.wait
    return producer, ad.from_arrow(producers.stream(producer))


@pytest.mark.parametrize("what", RELEASES)
def test_a_release_that_blocks(what: str):
    gate = Gate()
    producer, imported = RELEASES[what](gate)
    kept = [imported]
    del imported
    goes_on(gate, kept.clear)
    assert producer.releases == 1


def test_a_release_that_blocks_at_the_end_of_a_stream():
    gate = Gate()
    producer = Stream([Array() for _ in range(2)])
    producer.on_release = gate.wait
    source = producers.stream(producer)
    assert np.from_dlpack(goes_on(gate, lambda: ad.to_tensor(source))).tolist() == [1, 2, 3, 1, 2, 3]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The gate of gate.c, which knows nothing of Python."""
    compiler = shutil.which("cc")
    if platform.system() != "Linux" or compiler is None:
        pytest.skip("semaphores with a limit of time are of Linux, and need cc")
    library = tmp_path_factory.mktemp("gate") / "gate.so"
    source = Path(__file__).parent / "gate.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-pthread", "-o", library, source], check=True)
    gate = ctypes.CDLL(str(library))
    gate.gate_close.argtypes = (ctypes.c_void_p, ctypes.c_int)
    return gate


class TestWithoutPython:
    """A callback in C that blocks says nothing to the interpreter: whoever calls it has to have let it go."""

    @pytest.mark.parametrize("before_schema", [True, False], ids=["get_schema", "get_next"])
    @reader
    def test_a_stream(self, gate: ctypes.CDLL, reader: str, before_schema: bool):
        capsule = TABLE.__arrow_c_stream__()
        gate.gate_close(producers.capsule_pointer(capsule, b"arrow_array_stream"), before_schema)
        source = Only("__arrow_c_stream__", lambda: capsule)
        work = Work(lambda: plain(SOURCES[reader](source)))
        try:
            assert gate.gate_wait_until_entered() == 0, work.error
            others_go_on()
        finally:
            was_late = gate.gate_open()
        assert work.result() == plain(SOURCES[reader](TABLE))
        assert not was_late, "the interpreter was kept while the callback waited"


def interrupted(gate: Gate, call: Callable[[threading.Event], object]) -> None:
    """That Ctrl-C ends a call, once a callback waits and the call has said that it goes on, or a second has passed."""
    goes_on, is_over = threading.Event(), threading.Event()

    def press() -> None:
        assert gate.entered.wait(PATIENCE)
        goes_on.wait(1)
        # The main thread is on its way from the event into the call. A call that failed must not be pressed for later.
        if not is_over.wait(0.1):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    # A process in the background of a shell ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    work = Work(press)
    try:
        with pytest.raises(KeyboardInterrupt):
            call(goes_on)
    finally:
        is_over.set()
        gate.opened.set()
        signal.signal(signal.SIGINT, before)
    work.result()


of_threads = pytest.mark.skipif(os.name == "nt", reason="there are no signals for a thread on Windows")


@of_threads
@pytest.mark.parametrize("form", FORMS)
@reader
def test_ctrl_c_ends_a_call_whose_source_blocks(reader: str, form: str):
    """Python code of others sees the signal itself; a loader whose thread runs it does not wait for that."""
    if reader == "another library":
        pytest.skip("it has the text of the interrupt alone")
    gate, made = Gate(), []
    sources = [FORMS[form][0](gate)]

    def use(goes_on: threading.Event) -> None:
        # A loader runs the source's code on its thread, perhaps before it has returned an iterator to keep.
        if not reader.startswith("loader"):
            goes_on.set()
        made.append(SOURCES[reader](sources[0]))
        goes_on.set()
        plain(made[0])

    interrupted(gate, use)
    # To drop a loader's iterator waits for its thread.
    made.clear()
    sources.clear()
    assert loader_threads() == 0


@of_threads
@pytest.mark.parametrize("readers", [1, 2])
def test_ctrl_c_ends_a_close_that_waits_for_a_source(readers: int):
    gate = Gate()
    sources = [(lambda: TABLE, 9), (lambda: generated(gate), 9)]
    iterator = iter(ad.Loader(sources=sources, lanes=2, readers=readers, batch_size=3, prefetch=2))

    def close(goes_on: threading.Event) -> None:
        assert gate.entered.wait(PATIENCE)
        goes_on.set()
        iterator.close()

    interrupted(gate, close)
    iterator.close()
    assert list(iterator) == []
    assert loader_threads() == 0
