"""Python code of others that raises or answers wrongly, at each of its calls: dunders, callables, namespaces."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from loader_reference import loader_threads
from producers import Array, Only, Producer, Schema, Stream
from test_callbacks import BATCH, READERS, array, loaded, of_two_shards, plain, schema, stream

ITEMS = 3


class Broken(Exception):
    """As a producer may raise."""


# Those that Python gives a meaning of their own are among them.
ERRORS: list[type[BaseException]] = [
    Broken,
    KeyError,
    AttributeError,
    BufferError,
    MemoryError,
    OSError,
    RecursionError,
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    KeyboardInterrupt,
    SystemExit,
    ad.NullError,
]
call = pytest.mark.parametrize("call", range(ITEMS))
# The readers that take any source; the one of two shards opens its own on a thread.
SOURCES = {name: read for name, read in READERS.items() if read is not of_two_shards}
reader = pytest.mark.parametrize("reader", SOURCES)
DUNDERS = ["__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_device_stream__", "__arrow_c_stream__"]


def raising(error: type[BaseException]) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error("on purpose")

    return fail


def raised_by(
    begin: Callable[[], Any],
    error: type[BaseException],
    *,
    read: Callable[[Any], Any] = plain,
    by_another_library: bool = False,
) -> None:
    """That `begin` or reading its answer raises this error; a `__next__` raises RuntimeError from StopIteration."""
    answers: list[Any] = []

    def use() -> None:
        answers.append(begin())
        read(answers[0])

    with pytest.raises(BaseException, match=r"on purpose|StopIteration") as caught:
        use()
    found: BaseException | None = caught.value
    if by_another_library and isinstance(found, (OSError, pa.ArrowException)):
        # It has the text alone.
        assert error.__name__ in str(found), repr(found)
    else:
        # What `begin` raises is of no `__next__`.
        if error is StopIteration and any(isinstance(answer, Iterator) for answer in answers):
            assert type(found) is RuntimeError, repr(found)
            found = found.__cause__
        assert type(found) is error, repr(found)
    assert "on purpose" in str(found), repr(found)


def is_well() -> None:
    gc.collect()
    assert loader_threads() == 0


def good(dunder: str) -> tuple[list[Producer], Any]:
    """What was made for it, and an object that offers a batch of `BATCH` by this dunder."""
    form = "device" if "device" in dunder else "host"
    only = array(form)
    if "stream" in dunder:
        producer = stream(form, [only])
        return [producer, only], producers.stream(producer)
    type_of = schema()
    return [type_of, only], producers.arrow(type_of, only)


@reader
@pytest.mark.parametrize("dunder", DUNDERS)
def test_an_item_whose_dunder_raises(dunder: str, reader: str):
    """No item passes for the end of the items, whatever it raises."""
    for error in (Broken, AttributeError, MemoryError, StopIteration, KeyboardInterrupt):
        for number in range(ITEMS):
            made = [good(dunder) for _ in range(number)]
            items = [*(source for _, source in made), Only(dunder, raising(error)), BATCH]
            by_another_library = reader == "another library"
            raised_by(lambda items=items: SOURCES[reader](iter(items)), error, by_another_library=by_another_library)
            del items
            is_well()
            for parts, _ in made:
                assert [one.releases for one in parts] == [1, 1]
    whole = [BATCH] * ITEMS
    assert plain(SOURCES[reader](iter(whole))) == plain(SOURCES[reader](pa.Table.from_batches(whole)))


def consumed(capsule: Any) -> Any:
    ad.from_arrow(Only("__arrow_c_stream__", lambda: capsule))
    return capsule


# What a dunder may answer instead of what its protocol says.
WRONG_ANSWERS: dict[str, Callable[[str], Any]] = {
    "None": lambda dunder: None,
    "a number": lambda dunder: 3,
    "text": lambda dunder: "ab",
    "itself": lambda dunder: Only(dunder, lambda: None),
    "one of two": lambda dunder: (Schema(b"+s", release=None).capsule(),),
    "two of nothing": lambda dunder: (None, None),
    "three": lambda dunder: (None, None, None),
    "a capsule of another name": lambda dunder: producers.new_capsule(1, b"arrow_something"),
    "a capsule without a name": lambda dunder: producers.new_capsule(1, None),
    "capsules of other names": lambda dunder: (producers.new_capsule(1, b"x"), producers.new_capsule(1, b"y")),
    "a stream that was released": lambda dunder: Stream(
        release=None, device_type=1 if "device" in dunder else None
    ).capsule(),
    "a schema that was released": lambda dunder: (
        Schema(release=None).capsule(),
        Array(release=None, device=(1, -1) if "device" in dunder else None).capsule(),
    ),
    "a capsule that was consumed": lambda dunder: consumed(BATCH.__arrow_c_stream__()),
}


@reader
@pytest.mark.parametrize("dunder", DUNDERS)
def test_an_item_whose_dunder_answers_wrongly(dunder: str, reader: str):
    for name, answer in WRONG_ANSWERS.items():
        for number in range(ITEMS):
            made = [good(dunder) for _ in range(number)]
            wrong = Only(dunder, lambda *_, answer=answer, **__: answer(dunder))
            items = [*(source for _, source in made), wrong, BATCH]
            with pytest.raises((TypeError, BufferError, OSError, pa.ArrowException)) as caught:
                plain(SOURCES[reader](iter(items)))
            assert str(caught.value), name
            del caught, items
            is_well()
            for parts, _ in made:
                assert [one.releases for one in parts] == [1, 1]


def _a_callable_of_a_loader_that_raises(prefetch: int, error: type[BaseException], call: int) -> None:
    calls = 0

    def opened() -> Any:
        nonlocal calls
        calls += 1
        return raising(error)() if calls == call + 1 else BATCH

    loader = ad.Loader(opened, batch_size=2, prefetch=prefetch)
    for epoch in range(ITEMS + 1):
        if epoch == call:
            raised_by(lambda: iter(loader), error)
        else:
            assert plain(iter(loader)) == [[[1, 1], [2, 2]], [[3, 3]]]
        is_well()


@call
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_callable_of_a_loader_that_raises(prefetch: int, call: int):
    """In one of its epochs, and in no other."""
    for error in ERRORS:
        _a_callable_of_a_loader_that_raises(prefetch, error, call)


def _a_shard_that_raises(readers: int, error: type[BaseException], call: int) -> None:
    fails = True
    sources = [((lambda n=n: raising(error)() if fails and n == call else BATCH), 3) for n in range(ITEMS)]
    loader = ad.Loader(sources=sources, lanes=ITEMS, readers=readers, batch_size=3)
    begun: list[Any] = []

    def begin() -> Any:
        # The first shard tells the schema, and is opened at once.
        begun.append(iter(loader))
        return begun[0]

    def read(iterator: Any) -> None:
        assert [plain(next(iterator)) for _ in range(call)] == [[[1, 1], [2, 2], [3, 3]]] * call
        next(iterator)

    raised_by(begin, error, read=read)
    assert [next(iterator, None) for iterator in begun] == [None] * len(begun)
    assert begun or call == 0
    is_well()
    fails = False
    assert len(list(loader)) == ITEMS
    is_well()


@call
@pytest.mark.parametrize("readers", [1, 2])
def test_a_shard_that_raises(readers: int, call: int):
    """The batches before it come out, and it does not pass for a shard without rows."""
    for error in ERRORS:
        _a_shard_that_raises(readers, error, call)


@call
@pytest.mark.parametrize("answer", [None, 3, "text", [1, 2], {"a": 1}, np], ids=lambda answer: type(answer).__name__)
def test_a_callable_of_a_loader_that_answers_wrongly(answer: object, call: int):
    calls = 0

    def opened() -> Any:
        nonlocal calls
        calls += 1
        return answer if calls == call + 1 else BATCH

    loader = ad.Loader(opened, batch_size=2)
    for epoch in range(ITEMS + 1):
        if epoch == call:
            with pytest.raises(TypeError):
                plain(iter(loader))
        else:
            assert len(list(loader)) == 2
        is_well()


def namespace(error: type[BaseException], number: int) -> Any:
    """A namespace whose function raises when it is called for this time, and no other."""
    calls = 0

    def from_dlpack(tensor: Any) -> Any:
        nonlocal calls
        calls += 1
        return raising(error)() if calls == number + 1 else np.from_dlpack(tensor)

    return SimpleNamespace(from_dlpack=from_dlpack)


def _a_namespace_that_raises(error: type[BaseException], call: int) -> None:
    columns = {"x": "a", "y": ["a", "b"], "z": "b"}
    with pytest.raises(error, match="on purpose"):
        ad.to_tensors(BATCH, columns=columns, xp=namespace(error, call))
    lists = pa.array([[1], [2, 3], None])
    # Of values, offsets and validity.
    with pytest.raises(error, match="on purpose"):
        ad.to_ragged(lists, nulls="keep", xp=namespace(error, call))
    if call == 0:
        for convert in (ad.to_tensor, ad.validity):
            with pytest.raises(error, match="on purpose"):
                convert(BATCH, xp=namespace(error, call))
    assert len(ad.to_tensors(BATCH, columns=columns, xp=namespace(error, ITEMS))) == 3


@call
def test_a_namespace_that_raises(call: int):
    for error in ERRORS:
        _a_namespace_that_raises(error, call)


def _a_namespace_that_raises_in_a_loader(prefetch: int, error: type[BaseException], call: int) -> None:
    loader = ad.Loader(pa.Table.from_batches([BATCH]), batch_size=1, prefetch=prefetch, xp=namespace(error, call))
    iterator = iter(loader)
    assert [next(iterator).tolist() for _ in range(call)] == [[[n + 1, n + 1]] for n in range(call)]
    raised_by(lambda: iterator, error, read=next)
    assert next(iterator, None) is None
    is_well()
    assert len(list(loader)) == 3
    is_well()


@call
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_namespace_that_raises_in_a_loader(prefetch: int, call: int):
    """At the batch that it fails for, after which the epoch is over: none is skipped."""
    for error in ERRORS:
        _a_namespace_that_raises_in_a_loader(prefetch, error, call)


class Tensors:
    """A producer of DLPack whose dunders answer as they are told."""

    def __init__(self, dlpack: Callable[..., Any], device: Callable[[], Any] = lambda: (1, 0)) -> None:
        self.dlpack, self.device = dlpack, device

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.dlpack(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.device()


def offsets() -> np.ndarray:
    return np.array([0, 2, 6], "int32")


# Every function that asks for a tensor.
TAKERS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": ad.from_dlpack,
    "from_dlpack, no copy": lambda tensor: ad.from_dlpack(tensor, copy=False),
    "from_dlpack, copy": lambda tensor: ad.from_dlpack(tensor, copy=True),
    "from_dlpack, device": lambda tensor: ad.from_dlpack(tensor, device="cpu"),
    "to_tensor": ad.to_tensor,
    "to_arrow": ad.to_arrow,
    "to_arrow, names": lambda tensor: ad.to_arrow(tensor, names=["a", "b", "c"]),
    "to_arrow, validity": lambda tensor: ad.to_arrow(np.arange(2), validity=tensor),
    "from_arrow": ad.from_arrow,
    "Ragged, values": lambda tensor: ad.Ragged(tensor, offsets()),
    "Ragged, offsets": lambda tensor: ad.Ragged(np.arange(6), tensor),
    "Ragged, lengths": lambda tensor: ad.Ragged(np.arange(6), offsets()[:2].copy(), tensor),
    "Ragged, validity": lambda tensor: ad.Ragged(np.arange(6), offsets(), validity=tensor),
    "out": lambda tensor: ad.to_tensor(BATCH, out=tensor),
}
taker = pytest.mark.parametrize("taker", TAKERS)


def _a_tensor_whose_dunder_raises(error: type[BaseException], taker: str) -> None:
    with pytest.raises(error, match="on purpose"):
        TAKERS[taker](Tensors(raising(error)))


@taker
def test_a_tensor_whose_dunder_raises(taker: str):
    for error in ERRORS:
        _a_tensor_whose_dunder_raises(error, taker)


# What `__dlpack__` may answer instead of a capsule of a tensor.
WRONG_TENSORS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a number": lambda: 3,
    "a pair": lambda: (1, 2),
    "an array": lambda: np.arange(3),
    "a capsule of another name": lambda: producers.new_capsule(1, b"dltensor_other"),
    "a capsule without a name": lambda: producers.new_capsule(1, None),
    "a capsule that was used": lambda: producers.new_capsule(1, b"used_dltensor"),
    "a versioned capsule that was used": lambda: producers.new_capsule(1, b"used_dltensor_versioned"),
    "a capsule of the next version": lambda: producers.DLPack(version=(2, 0)).capsule(),
    "a tensor without dimensions but a count": lambda: producers.DLPack(shape=None, ndim=2).capsule(),
    "a tensor of negative size": lambda: producers.DLPack(shape=(-1, 3), strides=None).capsule(),
    "a tensor of memory that is nowhere": lambda: producers.DLPack(data=None).capsule(),
    "a tensor of no dtype": lambda: producers.DLPack(dtype=(77, 3, 0)).capsule(),
}


@taker
def test_a_tensor_whose_dunder_answers_wrongly(taker: str):
    for name, answer in WRONG_TENSORS.items():
        with pytest.raises((TypeError, ValueError, BufferError)) as caught:
            TAKERS[taker](Tensors(lambda answer=answer, **_: answer()))
        assert str(caught.value), name
        del caught
        gc.collect()
        assert producers.wrongly_released() == [], name


def _a_device_dunder_that_raises(error: type[BaseException]) -> None:
    for use in (
        lambda tensor: ad.from_dlpack(tensor, device="cpu"),
        lambda tensor: ad.from_dlpack(tensor),
    ):
        producer = producers.DLPack()
        asked: list[int] = []

        def fail(asked: list[int] = asked) -> Any:
            asked.append(1)
            return raising(error)()

        tensor = Tensors(lambda producer=producer, **_: producer.capsule(), fail)
        with contextlib.suppress(error):
            use(tensor)
        # It is raised where it was asked for, and then no tensor is.
        producer.expected = 1 - len(asked)
        gc.collect()
        assert producer.releases == producer.expected


def test_a_device_dunder_that_raises():
    for error in ERRORS:
        _a_device_dunder_that_raises(error)


def test_loaders_end_with_the_first_error_alone():
    """Both the source and the namespace fail: the one that comes first is raised, and nothing after it."""
    for prefetch in (0, 2):
        for number in range(3):
            producer = stream("host", [array("host"), (5, b"the source")])
            iterator = loaded(producers.stream(producer), batch_size=1, prefetch=prefetch, xp=namespace(Broken, number))
            for _ in range(number):
                next(iterator)
            with pytest.raises(Broken):
                next(iterator)
            assert next(iterator, None) is None
            assert producer.releases == 1
            is_well()
