"""Ctrl-C while a stream is read or a long array converted: the call ends soon, and what was not read can be read on."""

import operator
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from free_threading import skip_without
from loader_reference import loader_threads

# A reader of many batches that runs no bytecode of Python: only the caller of the stream sees signals between batches.
PRELUDE = """
import gc, itertools, operator, os, signal, sys, threading, time
import arrow_dlpack as ad
import numpy as np
import pyarrow as pa

# A process that a shell starts in the background ignores this signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So many that no machine has read them before the signal comes.
COUNT = 1_000_000
counter = itertools.count()
batch = pa.record_batch({"a": [1.0, 2.0], "b": [3.0, 4.0]})

def reader():
    batches = map(operator.itemgetter(0), zip(itertools.repeat(batch, COUNT), counter))
    return pa.RecordBatchReader.from_batches(batch.schema, batches)

def press_when_it_reads():
    def press():
        while repr(counter) == "count(0)":
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press).start()

def told(call, rest):
    # How the call ended, whether batches are left, and whether each of the others was read and let go.
    press_when_it_reads()
    try:
        call()
        ended = "returned"
    except KeyboardInterrupt:
        ended = "interrupted"
    left = next(iter(rest()), None) is not None
    gc.collect()
    print(ended, left, pa.total_allocated_bytes() - before)

before = pa.total_allocated_bytes()
"""

READS = {
    "to_tensor": "ad.to_tensor(source)",
    "to_tensors": "ad.to_tensors(source)",
    "groups": 'ad.to_tensors(source, columns={"x": ["a", "b"], "y": "a"})',
    "out": "ad.to_tensor(source, out=np.zeros((2 * COUNT, 2)))",
    "xp": "ad.to_tensor(source, xp=np)",
    "validity": "ad.validity(source)",
    "F": 'ad.to_tensor(source, order="F")',
}


def run(code: str) -> str:
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


class TestBetweenBatches:
    @pytest.mark.parametrize("read", READS)
    def test_of_a_reader(self, read: str):
        """The reader of another library can be read on by that library."""
        assert run(f"source = reader()\ntold(lambda: {READS[read]}, lambda: source)") == "interrupted True 0\n"

    @pytest.mark.parametrize("read", ["to_tensor", "to_tensors", "validity"])
    def test_of_a_stream_of_ours(self, read: str):
        code = f"source = ad.from_arrow(reader())\ntold(lambda: {READS[read]}, lambda: source)"
        assert run(code) == "interrupted True 0\n"

    def test_of_a_loader_without_a_thread(self):
        """The iteration is closed: rows that were read are in no batch. The source can be read on."""
        code = """
            source = reader()
            iterator = iter(ad.Loader(source, batch_size=2 * COUNT, prefetch=0))
            told(lambda: next(iterator), lambda: source)
            print(next(iterator, None))
        """
        assert run(code) == "interrupted True 0\nNone\n"


def raising(error: BaseException) -> pa.RecordBatchReader:
    def generate() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1.0]})
        raise error

    return pa.RecordBatchReader.from_batches(pa.schema([("a", pa.float64())]), generate())


CALLS: dict[str, Callable[[Any], object]] = {
    "to_tensor": ad.to_tensor,
    "to_tensors": ad.to_tensors,
    "groups": lambda source: ad.to_tensors(source, columns={"x": ["a"]}),
    "out": lambda source: ad.to_tensor(source, out=np.zeros((1, 1))),
    "validity": ad.validity,
    "iteration": lambda source: list(ad.from_arrow(source)),
    **{
        f"loader, {prefetch} ahead": lambda source, prefetch=prefetch: list(
            ad.Loader(source, batch_size=1, prefetch=prefetch)
        )
        for prefetch in [0, 1, 4]
    },
}


class TestProducers:
    """The C interface has text alone for what a producer raises."""

    @pytest.mark.parametrize("wrap", [lambda reader: reader, ad.from_arrow, pa.RecordBatchReader.from_stream])
    @pytest.mark.parametrize("call", CALLS)
    def test_their_keyboard_interrupt_is_one_here(self, call: str, wrap: Callable[[Any], Any]):
        with pytest.raises(KeyboardInterrupt):
            CALLS[call](wrap(raising(KeyboardInterrupt("by hand"))))
        assert loader_threads() == 0

    @pytest.mark.parametrize("call", CALLS)
    def test_other_exceptions_that_speak_of_one_are_none(self, call: str):
        with pytest.raises(ad.ConversionError, match="KeyboardInterrupt"):
            CALLS[call](raising(ValueError("not a KeyboardInterrupt")))

    def test_a_stream_that_was_ended_by_one_is_over(self):
        stream = ad.from_arrow(raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            ad.to_tensor(stream)
        with pytest.raises(ad.ConversionError, match="consumed"):
            ad.to_tensor(stream)


# Queries that run for minutes: without rows, and with rows at the start alone. With more threads DuckDB may look for
# signals no more.
SLOW = """
import duckdb

NO_ROWS = "select i from range(1000000000000) t(i) where i < 0"
FIRST_ROWS = "select i from range(1000000000000) t(i) where i < 5000"
connection = duckdb.connect()
connection.execute("set threads = 1")

def told(call, *presses):
    # How a call ends once the presses were made, a second after it began.
    def press():
        time.sleep(1)
        for one in presses:
            one()
    threading.Thread(target=press).start()
    try:
        call()
    except BaseException as error:
        print(type(error).__name__)

def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)
"""


class TestDuckDB:
    """DuckDB hides the exception of a signal's handler behind an error of its own."""

    @pytest.fixture(autouse=True)
    def _is_there(self) -> None:
        skip_without("duckdb")

    @pytest.mark.parametrize(
        "call",
        [
            "ad.to_tensor(connection.sql(NO_ROWS))",
            "ad.from_arrow(connection.sql(NO_ROWS))",
            "ad.explain(connection.sql(NO_ROWS))",
            *(f"list(ad.Loader(connection.sql(NO_ROWS), batch_size=2, prefetch={ahead}))" for ahead in (0, 1, 4)),
        ],
    )
    def test_ctrl_c_while_it_runs_a_query(self, call: str):
        assert run(f"{SLOW}\ntold(lambda: {call}, ctrl_c)") == "KeyboardInterrupt\n"

    @pytest.mark.parametrize(
        ("handlers", "error"),
        [
            # What the handler has raised is not known, so the error stays that of DuckDB.
            ("def fail(*_): raise TimeoutError\nsignal.signal(signal.SIGINT, fail)", "RuntimeError"),
            ("def fail(*_): raise TimeoutError\nsignal.signal(signal.SIGALRM, fail)", "RuntimeError"),
            ("signal.signal(signal.SIGALRM, signal.SIG_IGN)", "KeyboardInterrupt"),
        ],
    )
    def test_only_a_handler_that_must_have_been_that_of_ctrl_c_counts(self, handlers: str, error: str):
        code = f"{SLOW}\n{handlers}\ntold(lambda: ad.to_tensor(connection.sql(NO_ROWS)), ctrl_c)"
        assert run(code) == f"{error}\n"

    def test_its_text_alone_does_not_count(self):
        class Source:
            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                raise RuntimeError("Query interrupted")

        with pytest.raises(RuntimeError, match="Query interrupted"):
            ad.to_tensor(Source())

    @pytest.mark.parametrize("presses", ["ctrl_c, connection.interrupt", "connection.interrupt"])
    def test_a_query_that_is_ended_between_two_batches(self, presses: str):
        """Without a signal it is an error of the producer's."""
        code = f"{SLOW}\ntold(lambda: ad.to_tensor(connection.sql(FIRST_ROWS)), {presses})"
        assert run(code) == ("KeyboardInterrupt\n" if "ctrl_c" in presses else "ConversionError\n")


WORDS = [f"word {number}" for number in range(1000)]


def ints(rows: int) -> pa.Array:
    return pa.array(np.arange(rows))


def words(rows: int, mask: Any = None) -> pa.Array:
    return pa.array(WORDS).take(pa.array(np.resize(np.arange(len(WORDS), dtype="int16"), rows), mask=mask))


def lists(rows: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * rows + 1, 2), pa.int32()), ints(2 * rows))


def codes(rows: int, values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.resize(np.arange(len(values), dtype="int32"), rows)), values)


def columns(rows: int) -> pa.RecordBatch:
    return pa.record_batch({name: ints(rows) for name in "abcdefgh"})


def requested(array: pa.Array, to: pa.DataType) -> Callable[[], object]:
    return partial(ad.from_arrow(array).__arrow_c_array__, to.__arrow_c_schema__())


# Calls on so many rows that look for signals between their first row and their last one.
LONG: dict[str, Callable[[int], Callable[[], object]]] = {
    "many chunks": lambda rows: partial(
        ad.to_tensor, pa.chunked_array([ints(rows // 64)] * 64), dtype="float32", nulls=0
    ),
    "strided out": lambda rows: partial(ad.to_tensor, ints(rows), out=np.zeros((rows, 2))[:, 0], threads=1),
    "codes": lambda rows: partial(ad.to_tensor, words(rows), categories=WORDS),
    "codes of a column with nulls": lambda rows: partial(
        ad.to_tensor, words(rows, mask=np.arange(rows) % 3 == 0), categories=WORDS, nulls=0
    ),
    "codes of a large dictionary": lambda rows: partial(ad.to_tensor, codes(rows, words(2 * rows)), categories=WORDS),
    "bools of a dictionary": lambda rows: partial(
        ad.to_tensor, codes(8 * rows, pa.array([True, False])), dictionary="values"
    ),
    "values and offsets": lambda rows: partial(ad.to_ragged, pa.chunked_array([lists(rows)] * 2)),
    "values and offsets of views": lambda rows: partial(ad.to_ragged, words(rows).cast(pa.string_view())),
    "padded lists": lambda rows: partial(ad.to_ragged, lists(rows), pad=(0, None)),
    "padded words": lambda rows: partial(ad.to_ragged, words(rows), pad=(0, None)),
    "padded views": lambda rows: partial(ad.to_ragged, words(rows).cast(pa.string_view()), pad=(0, None)),
    "the columns of a matrix": lambda rows: partial(ad.to_arrow, np.zeros((rows, 4)), names=list("abcd"), threads=1),
    "a strided matrix": lambda rows: partial(ad.to_arrow, np.zeros((rows, 4))[:, ::2]),
    "a strided vector": lambda rows: partial(ad.to_arrow, np.zeros((rows, 4))[:, 0]),
    "a requested number": lambda rows: requested(ints(rows), pa.float64()),
    "requested views": lambda rows: requested(words(rows), pa.string_view()),
    "requested values": lambda rows: requested(codes(rows, ints(1000)), pa.int64()),
    "a copied batch": lambda rows: partial(ad.from_arrow, columns(rows), copy=True),
    "a vocabulary": lambda rows: partial(ad.categories, pa.table({"a": words(rows)}), "a"),
    "statistics": lambda rows: partial(ad.statistics, pa.table({"a": ints(rows)}), {"a": "mean"}),
}

# Seconds of the processor that a call takes at least, and rows that take several rounds at least.
LEAST = 0.15
FEWEST = 2_000_000


def seconds(call: Callable[[], object]) -> float:
    """What a call takes of the processor at least, once its memory is there."""

    def once() -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    call()
    # What else runs makes some calls take several times as long.
    return min(once() for _ in range(3))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer of the processor")
@pytest.mark.parametrize("name", LONG)
def test_a_long_call_ends_before_its_last_row(name: str):
    rows = FEWEST
    while (taken := seconds(call := LONG[name](rows))) < LEAST:
        rows *= 2

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    # No bytecode runs between the call and the list: a result is there if the call went on to its end.
    results: list[object] = []

    def until_pressed() -> None:
        # Early, as handlers run at most every 50 ms, and behind the last of several passes none is looked for.
        signal.setitimer(signal.ITIMER_PROF, taken / 8)
        while not results:
            results.extend(map(operator.call, [call]))

    before = signal.signal(signal.SIGPROF, press)
    try:
        with pytest.raises(KeyboardInterrupt):
            until_pressed()
        assert not results
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timer of the processor")
@pytest.mark.parametrize("part", range(5))
def test_a_stream_goes_on_behind_the_batch_whose_copy_was_interrupted(part: int):
    batch = columns(1_000_000)

    def copies() -> ad.ArrayStream:
        return ad.from_arrow(pa.RecordBatchReader.from_batches(batch.schema, [batch] * 5), copy=True)

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    taken = seconds(lambda: [len(copy) for copy in copies()])
    stream, read = copies(), 0

    def until_pressed() -> None:
        nonlocal read
        signal.setitimer(signal.ITIMER_PROF, taken * (part + 0.5) / 6)
        for _ in stream:
            read += 1
        # For a timer that was late.
        while True:
            copies()

    before = signal.signal(signal.SIGPROF, press)
    try:
        with pytest.raises(KeyboardInterrupt):
            until_pressed()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert read + sum(1 for _ in stream) >= 4


# More rows than a round of any of these has, and no multiple of it.
MANY = 1_200_001
NUMBERS = np.arange(MANY, dtype=float)
CHUNKS = pa.chunked_array([NUMBERS[:700_003], NUMBERS[700_003:]])
CODES = np.arange(MANY) % 1000


def read(array: Any) -> np.ndarray:
    return np.from_dlpack(ad.to_tensor(array)).reshape(-1)


# What is made of many rows, and what it should be.
WHOLE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "out": lambda: (ad.to_tensor(CHUNKS, out=np.empty(MANY, "float32"), threads=1), NUMBERS),
    "strided out": lambda: (ad.to_tensor(CHUNKS, out=np.empty((MANY, 2))[:, 1], threads=1), NUMBERS),
    "a column": lambda: (read(ad.to_arrow(ad.to_tensor(CHUNKS))), NUMBERS),
    "a column of a matrix": lambda: (
        read(pa.record_batch(ad.to_arrow(np.stack([NUMBERS, -NUMBERS], 1), names=["a", "b"], threads=1))["b"]),
        -NUMBERS,
    ),
    "a strided vector": lambda: (read(ad.to_arrow(np.repeat(NUMBERS, 2)[::2])), NUMBERS),
    "a vector backwards": lambda: (read(ad.to_arrow(NUMBERS[::-1])), NUMBERS[::-1]),
    "a strided matrix": lambda: (
        read(ad.to_arrow(np.repeat(NUMBERS, 6).reshape(MANY, 6)[:, ::2])),
        np.repeat(NUMBERS, 3),
    ),
    "values of a dictionary": lambda: (
        ad.to_tensor(pa.DictionaryArray.from_arrays(CODES, NUMBERS[:1000]), dictionary="values", xp=np),
        CODES,
    ),
    "codes": lambda: (ad.to_tensor(pa.array(WORDS).take(pa.array(CODES)), categories=WORDS, xp=np), CODES),
    "codes of a large dictionary": lambda: (
        ad.to_tensor(codes(MANY, pa.array([WORDS[0]] * 2 * MANY)), categories=WORDS, xp=np),
        np.zeros(MANY),
    ),
    "padded lists": lambda: (ad.to_ragged(lists(MANY), pad=(-1, 3), xp=np)[0][:, 1], np.arange(1, 2 * MANY, 2)),
    "lengths of views": lambda: (
        np.diff(ad.to_ragged(words(MANY).cast(pa.string_view()), xp=np).offsets),
        np.array([len(word) for word in WORDS])[CODES],
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_made_in_rounds_is_whole(name: str):
    found, expected = WHOLE[name]()
    assert np.array_equal(found, expected)


def test_a_request_names_the_first_row_that_does_not_survive():
    values = ints(MANY).to_numpy() * 2
    values[[900_007, 1_100_001]] = 2**53 + 1
    with pytest.raises(ad.CastError, match="round trip") as caught:
        requested(pa.array(values), pa.float64())()
    assert caught.value.row == 900_007


def test_the_thread_of_a_loader_asks_for_no_lock_to_look_for_signals(monkeypatch: pytest.MonkeyPatch):
    """A thread finds out once whether it is the main one, which runs handlers."""
    asking: list[int] = []
    main_thread = threading.main_thread

    def asked() -> threading.Thread:
        asking.append(threading.get_ident())
        return main_thread()

    monkeypatch.setattr(threading, "main_thread", asked)
    table = pa.table({"a": words(6_000_000)})
    loader = ad.Loader(table, batch_size=1_000_000, categories={"a": WORDS}, prefetch=2)
    assert sum(len(np.from_dlpack(batch)) for batch in loader) == len(table)
    assert set(asking) <= {main_thread().ident}
