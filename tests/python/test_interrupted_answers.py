"""What a signal's handler raises within Python code of others ends the call: it is no answer, number or text."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from producers import Only
from test_callables import Tensors, is_well
from test_callbacks import BATCH


class Interrupted:
    """Ctrl-C comes in the code of the attribute of this number that is asked for."""

    def __init__(self, number: int):
        self.left = number

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        own["left"] -= 1
        if own["left"] < 0:
            raise KeyboardInterrupt("on purpose")
        return object.__getattribute__(self, name)


COLUMN = pa.array([1.0, 2.0, 3.0])
WITH_NULL = pa.array([1.0, None, 3.0])
# Functions of an object that is none of what they take, and says so in its own code.
QUESTIONS: dict[str, Callable[[Any], object]] = {
    "to_tensor": ad.to_tensor,
    "to_tensors": ad.to_tensors,
    "to_ragged": ad.to_ragged,
    "to_arrow": ad.to_arrow,
    "from_arrow": ad.from_arrow,
    "from_dlpack": ad.from_dlpack,
    "validity": ad.validity,
    "explain": ad.explain,
    "Loader": lambda found: ad.Loader(found, batch_size=1),
    "an item": lambda found: ad.to_tensor(iter([found])),
    "an item of a list": lambda found: ad.to_tensor([found]),
    "categories of": lambda found: ad.categories(found, "x"),
    "statistics of": lambda found: ad.statistics(found, {"x": "mean"}),
    "what a callable opens": lambda found: list(ad.Loader(lambda: found, batch_size=1)),
    "dtype": lambda found: ad.to_tensor(COLUMN, dtype=found),
    "nulls": lambda found: ad.to_tensor(WITH_NULL, nulls=found),
    "order": lambda found: ad.to_tensor(BATCH, order=found),
    "columns": lambda found: ad.to_tensor(BATCH, columns=found),
    "groups": lambda found: ad.to_tensors(BATCH, columns={"x": found}),
    "decimal": lambda found: ad.to_tensor(COLUMN, decimal=found),
    "dictionary": lambda found: ad.to_tensor(COLUMN, dictionary=found),
    "unit": lambda found: ad.to_tensor(COLUMN, unit=found),
    "length": lambda found: ad.to_tensor(COLUMN, length=found),
    "categories": lambda found: ad.to_tensor(COLUMN, categories=found),
    "a category": lambda found: ad.to_tensor(pa.array([1]), categories=[found]),
    "a category after others": lambda found: ad.to_tensor(pa.array([1]), categories=[1, found]),
    "unknown": lambda found: ad.to_tensor(pa.array([1]), categories=[1], unknown=found),
    "device": lambda found: ad.to_tensor(COLUMN, device=found),
    "allocator": lambda found: ad.to_tensor(COLUMN, allocator=found),
    "out": lambda found: ad.to_tensor(COLUMN, out=found),
    "threads": lambda found: ad.to_tensor(COLUMN, threads=found),
    "xp": lambda found: ad.to_tensor(COLUMN, xp=found),
    "pad": lambda found: ad.to_ragged(pa.array([[1]]), pad=found),
    "pad's value": lambda found: ad.to_ragged(pa.array([[1]]), pad=(found, 3)),
    "names": lambda found: ad.to_arrow(np.ones((2, 1)), names=found),
    "type": lambda found: ad.to_arrow(np.ones(2), type=found),
    "types": lambda found: ad.to_arrow(np.ones((2, 1)), names=["x"], types=found),
    "validity of a tensor": lambda found: ad.to_arrow(np.ones(2), validity=found),
    "batch_size": lambda found: ad.Loader(BATCH, batch_size=found),
    "seed": lambda found: ad.Loader(BATCH, batch_size=1, shuffle_buffer=2, seed=found),
    "sources": lambda found: ad.Loader(sources=found, batch_size=1),
    "a source of several": lambda found: ad.Loader(sources=[found, found], batch_size=1),
    "requested_schema": lambda found: ad.from_arrow(COLUMN).__arrow_c_array__(found),
    "requested_device": lambda found: ad.from_arrow(COLUMN).__arrow_c_device_array__(requested_device=found),
    "max_version": lambda found: ad.to_tensor(COLUMN).__dlpack__(max_version=found),
    "dl_device": lambda found: ad.to_tensor(COLUMN).__dlpack__(dl_device=found),
    "stream": lambda found: ad.to_tensor(COLUMN).__dlpack__(stream=found),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_interrupt_is_no_answer(question: str):
    """A signal's handler runs in whatever code runs. What it raises there ends the call, and does not mean no."""
    ask = QUESTIONS[question]
    for number in range(200):
        found = Interrupted(number)
        try:
            ask(found)
        except KeyboardInterrupt:
            continue
        except Exception as error:
            answer = repr(error)
        else:
            answer = "nothing was raised"
        # An interrupt that was raised is no answer.
        assert object.__getattribute__(found, "__dict__")["left"] >= 0, answer
        break
    else:
        pytest.fail("it asks for ever")
    is_well()


class Counted:
    """Arrow data that has its number of rows at hand."""

    def __init__(self, rows: object):
        self.num_rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return BATCH.__arrow_c_stream__()


class Number:
    """A number in whose code Ctrl-C comes."""

    def __index__(self) -> int:
        raise KeyboardInterrupt("on purpose")

    __float__ = __int__ = __index__


NUMBERS: dict[str, Callable[[Any], object]] = {
    "nulls": lambda number: ad.to_tensor(WITH_NULL, nulls=number),
    "length": lambda number: ad.to_tensor(COLUMN, length=number),
    "a category": lambda number: ad.to_tensor(pa.array([1]), categories=[number]),
    "unknown": lambda number: ad.to_tensor(pa.array([1]), categories=[1], unknown=number),
    "device": lambda number: ad.to_tensor(COLUMN, device=(1, number)),
    "threads": lambda number: ad.to_tensor(COLUMN, threads=number),
    "pad's value": lambda number: ad.to_ragged(pa.array([[1]]), pad=(number, 3)),
    "pad's length": lambda number: ad.to_ragged(pa.array([[1]]), pad=(0, number)),
    "multiple_of": lambda number: ad.to_ragged(pa.array([[1]]), pad=(0, None), multiple_of=number),
    "batch_size": lambda number: ad.Loader(BATCH, batch_size=number),
    "seed": lambda number: ad.Loader(BATCH, batch_size=1, shuffle_buffer=2, seed=number),
    "requested_device": lambda number: ad.from_arrow(COLUMN).__arrow_c_device_array__(requested_device=(1, number)),
    "requested_device's type": lambda number: ad.from_arrow(COLUMN).__arrow_c_device_array__(requested_device=number),
    "max_version": lambda number: ad.to_tensor(COLUMN).__dlpack__(max_version=(number, 0)),
    "dl_device": lambda number: ad.to_tensor(COLUMN).__dlpack__(dl_device=(1, number)),
    "stream": lambda number: ad.to_tensor(COLUMN).__dlpack__(stream=number),
    "a stream": ad.stream,
    "__cuda_stream__": lambda number: ad.stream(SimpleNamespace(__cuda_stream__=lambda: (0, number))),
    "__dlpack_device__": lambda number: ad.from_dlpack(Tensors(np.arange(3).__dlpack__, lambda: (1, number))),
    "num_rows": lambda number: len(ad.Loader(Counted(number), batch_size=1)),
    "padding": lambda number: ad.padded("x", value=number),
    "an index": lambda number: ad.from_arrow(BATCH)[number],
    "a state": lambda number: ad.Loader(BATCH, batch_size=1).load_state_dict(
        {**ad.Loader(BATCH, batch_size=1).state_dict(), "seed": number}
    ),
}


@pytest.mark.parametrize("number", NUMBERS)
def test_an_interrupt_is_no_number(number: str):
    with pytest.raises(KeyboardInterrupt, match="on purpose"):
        NUMBERS[number](Number())


def test_what_handlers_raise_while_a_mapping_is_asked_for_is_no_answer():
    """Whether something is a mapping is decided by Python code, where handlers run, too."""

    class Class:
        @property
        def __class__(self) -> Any:
            raise KeyboardInterrupt("on purpose")

    for ask in (
        lambda: ad.to_tensor(COLUMN, nulls=Class()),
        lambda: ad.to_tensor(COLUMN, dtype=Class()),
        lambda: ad.to_tensor(Class()),
        lambda: ad.Loader(Class(), batch_size=1),
    ):
        with pytest.raises(KeyboardInterrupt, match="on purpose"):
            ask()


class Told:
    """An object whose code for the text of an error is interrupted; as a number it is this one."""

    def __init__(self, number: int):
        self.number = number

    def __index__(self) -> int:
        return self.number

    def __str__(self) -> str:
        raise KeyboardInterrupt("on purpose")

    __repr__ = __str__


TEXTS: dict[str, Callable[[], object]] = {
    "batch_size": lambda: ad.Loader(BATCH, batch_size=Told(0)),
    "threads": lambda: ad.to_tensor(COLUMN, threads=Told(0)),
    "seed": lambda: ad.Loader(BATCH, batch_size=1, shuffle_buffer=2, seed=Told(-1)),
    "device": lambda: ad.to_tensor(COLUMN, device=(Told(1), Told(1 << 40))),
    "a device that is compared": lambda: ad.Device("cpu") == Told(1),
    "a stream": lambda: ad.stream(Told(-1)),
    "a column": lambda: ad.from_arrow(BATCH)[Told(7)],
    "a state": lambda: ad.Loader(BATCH, batch_size=1).load_state_dict(
        {**ad.Loader(BATCH, batch_size=1).state_dict(), "epoch": Told(1 << 80)}
    ),
    "columns": lambda: ad.to_tensor(BATCH, columns=Told(0)),
    "a dunder's answer": lambda: ad.to_tensor(Only("__arrow_c_stream__", lambda: Told(0))),
    "a tensor": lambda: ad.from_dlpack(Tensors(lambda **_: Told(0))),
    "a tensor's device": lambda: ad.from_dlpack(Tensors(lambda **_: None, lambda: Told(0))),
}


@pytest.mark.parametrize("text", TEXTS)
def test_an_interrupt_is_no_text(text: str):
    with pytest.raises(KeyboardInterrupt, match="on purpose"):
        TEXTS[text]()


class Meta(type):
    @property
    def __module__(cls) -> Any:
        raise KeyboardInterrupt("on purpose")


class OfNoModule(metaclass=Meta):
    """A class that is interrupted where it tells its module."""

    def __call__(self, tensor: Any) -> Any:
        return np.from_dlpack(tensor)

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return COLUMN.__arrow_c_array__()


def test_an_interrupt_is_no_package():
    class Function:
        @property
        def __module__(self) -> Any:
            raise KeyboardInterrupt("on purpose")

        __call__ = OfNoModule.__call__

    for ask in (
        lambda: ad.to_tensor(OfNoModule()),
        lambda: ad.to_tensor(iter([OfNoModule()])),
        lambda: ad.to_tensor(COLUMN, xp=SimpleNamespace(from_dlpack=Function())),
    ):
        with pytest.raises(KeyboardInterrupt, match="on purpose"):
            ask()


def test_an_interrupt_is_no_end_of_names():
    class Names:
        def __iter__(self) -> Any:
            raise KeyboardInterrupt("on purpose")

    with pytest.raises(KeyboardInterrupt, match="on purpose"):
        ad.to_arrow(np.ones((2, 1)), names=Names())


class InterruptedOnceRead:
    """Ctrl-C comes once, in the code of the first attribute that is asked for after something of it was read."""

    def __init__(self) -> None:
        self.reads, self.is_interrupted = 0, False

    def __getattr__(self, name: str) -> Any:
        if self.reads and not self.is_interrupted:
            self.is_interrupted = True
            raise KeyboardInterrupt("on purpose")
        raise AttributeError(name)


class Items(InterruptedOnceRead):
    """An iterator whose first item is lost."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self.reads += 1
        if self.reads == 1:
            raise OSError("gone")
        if self.reads == 4:
            raise StopIteration
        return BATCH


class Reader(InterruptedOnceRead):
    """A stream that is read once. Its second one is empty, as that of readers is in some libraries."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.reads += 1
        batches = [BATCH] if self.reads == 1 else []
        return pa.RecordBatchReader.from_batches(BATCH.schema, batches).__arrow_c_stream__()


@pytest.mark.parametrize("opened_by", ["itself", "a callable"])
@pytest.mark.parametrize("kind", [Items, Reader])
def test_an_interrupt_after_a_read_leaves_no_source_unread(kind: type[Any], opened_by: str):
    source = kind()
    loader = ad.Loader(source if opened_by == "itself" else lambda: source, batch_size=1, prefetch=0)
    with pytest.raises((KeyboardInterrupt, OSError)):
        list(loader)
    source.is_interrupted = True
    assert source.reads == 1
    with pytest.raises(ValueError, match="can be read once, and was"):
        list(loader)
    assert source.reads == 1


def test_a_stream_that_another_thread_reads_is_not_lost():
    is_asked, may_answer = threading.Event(), threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        is_asked.set()
        assert may_answer.wait(30)
        yield BATCH
        yield BATCH

    stream = ad.from_arrow(pa.RecordBatchReader.from_batches(BATCH.schema, batches()))
    loader = ad.Loader(stream, batch_size=1, prefetch=0)
    reads = threading.Thread(target=next, args=[stream])
    reads.start()
    assert is_asked.wait(30)
    with pytest.raises(ValueError, match="another thread reads the stream"):
        list(loader)
    may_answer.set()
    reads.join()
    assert len(list(loader)) == BATCH.num_rows


def test_a_reader_that_cannot_be_opened_hides_no_reader_before_it():
    class Refusing:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise OSError("on purpose")

    reader = pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH])
    given = iter([reader, Refusing(), reader])
    loader = ad.Loader(lambda: next(given), batch_size=1, prefetch=0)
    assert len(list(loader)) == BATCH.num_rows
    with pytest.raises(OSError, match="on purpose"):
        list(loader)
    with pytest.raises(ValueError, match="can be read once, and was"):
        list(loader)
