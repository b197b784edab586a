"""Callbacks of C streams that fail or answer wrongly, at each of their calls and for each function that reads."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from loader_reference import loader_threads
from producers import Array, Schema, Stream

BATCHES = 3
BATCH = pa.record_batch({"a": pa.array([1, 2, 3], pa.int32()), "b": pa.array([1, 2, 3], pa.int32())})
# Whether the stream is the device interface's, whose arrays say where they are.
FORMS = {"host": None, "device": (1, -1)}
form = pytest.mark.parametrize("form", FORMS)


def plain(answer: Any) -> Any:
    """What a function answered, as lists."""
    if isinstance(answer, dict):
        return {name: plain(one) for name, one in answer.items()}
    if isinstance(answer, ad.RecordBatch):
        return pa.record_batch(answer).to_pydict()
    if isinstance(answer, (list, Iterator)):
        return [plain(one) for one in answer]
    return np.from_dlpack(answer).tolist() if hasattr(answer, "__dlpack__") else answer


def loaded(source: Any, **options: Any) -> Any:
    return iter(ad.Loader(source, **{"batch_size": 2, **options}))


def of_two_shards(source: Any) -> Any:
    """The source beside another one, each read by a thread of its own."""
    shards = [(lambda: source, 9), (pa.Table.from_batches([BATCH] * BATCHES), 9)]
    return iter(ad.Loader(sources=shards, lanes=2, readers=2, batch_size=3))


READERS: dict[str, Callable[[Any], Any]] = {
    "to_tensor": ad.to_tensor,
    "to_tensor, cast": lambda source: ad.to_tensor(source, dtype="float64"),
    "to_tensor, out": lambda source: ad.to_tensor(source, out=np.empty((9, 2), "int32")),
    "to_tensor, xp": lambda source: ad.to_tensor(source, xp=np),
    "to_tensors": ad.to_tensors,
    "to_tensors, groups": lambda source: ad.to_tensors(source, columns={"x": ["b", "a"], "y": "a"}),
    "to_tensors, pass through": lambda source: ad.to_tensors(source, columns={"x": ad.arrow("a"), "y": "b"}),
    "validity": ad.validity,
    "from_arrow": ad.from_arrow,
    "from_arrow, copied": lambda source: ad.from_arrow(source, copy=True),
    "another library": lambda source: pa.table(ad.from_arrow(source)).to_pydict(),
    "an item": lambda source: ad.to_tensor([BATCH, source]),
    "items, read one by one": lambda source: ad.from_arrow(iter([BATCH, source])),
    "statistics": lambda source: ad.statistics(source, {"a": "mean", "b": "mode"}),
    "categories": lambda source: ad.categories(source, ["a"]),
    "loader": loaded,
    "loader without a thread": lambda source: loaded(source, prefetch=0),
    "loader, shuffled": lambda source: loaded(source, shuffle_buffer=4, seed=1),
    "loader, shards": of_two_shards,
}
reader = pytest.mark.parametrize("reader", READERS)
# What was read before them says how many rows there are.
NEED_ALL_ROWS = ("to_tensor, out", "loader, shards")


def schema() -> Schema:
    return Schema(b"+s", children=[Schema(field=b"a"), Schema(field=b"b")])


def array(form: str, **fields: Any) -> Array:
    children = fields.pop("children", None) or [Array(), Array()]
    return Array(**{"length": 3, "buffers": [None], "children": children, "device": FORMS[form], **fields})


def stream(form: str, items: list[Any], **fields: Any) -> Stream:
    device = FORMS[form]
    return Stream(items, schema=fields.pop("schema", schema), device_type=device and device[0], **fields)


def read(reader: str, producer: Stream) -> Any:
    return plain(READERS[reader](producers.stream(producer)))


def expected(reader: str, batches: int = BATCHES) -> Any:
    """What the reader makes of as many batches of pyarrow."""
    return plain(READERS[reader](pa.Table.from_batches([BATCH] * batches, BATCH.schema)))


def is_well(reader: str, form: str) -> None:
    """That nothing is left of a failure: no thread, and the next stream is read from its first to its last batch."""
    gc.collect()
    assert loader_threads() == 0
    items = [array(form) for _ in range(BATCHES)]
    producer = stream(form, list(items))
    assert read(reader, producer) == expected(reader)
    gc.collect()
    assert [one.releases for one in (producer, *items)] == [1] * (1 + BATCHES)


def settled(producer: Stream, items: Sequence[Any]) -> None:
    """That the stream and what it gave were released once, and the rest is still its producer's."""
    gc.collect()
    assert producer.releases == 1
    for number, item in enumerate(items):
        if isinstance(item, Array):
            assert item.releases == int(number < producer.asked_next)
            producers.release_struct(item.struct)


# What a call of get_next may do wrong: its answer, what is raised, and what the text names.
WRONG_BATCHES: dict[str, tuple[Callable[[str], Any], type[BaseException], str | None]] = {
    "fails": (
        lambda form: (5, b"disk lost"),
        ad.ConversionError,
        "get_next failed with code 5: disk lost",
    ),
    "fails with a negative code": (lambda form: (-7, b"odd"), ad.ConversionError, "get_next failed with code -7: odd"),
    "fails without a message": (
        lambda form: (22, None),
        ad.ConversionError,
        "get_next failed with code 22: no message",
    ),
    "is interrupted": (lambda form: (4, b"KeyboardInterrupt"), KeyboardInterrupt, None),
    "another type": (lambda form: Array(device=FORMS[form]), ad.ConversionError, "n_buffers|n_children"),
    "a column too few": (lambda form: array(form, children=[Array()]), ad.ConversionError, "n_children"),
    "a short column": (lambda form: array(form, children=[Array(2), Array()]), ad.ConversionError, "2 slots"),
    "a column without values": (
        lambda form: array(form, children=[Array(buffers=(None, None)), Array()]),
        ad.ConversionError,
        "buffer",
    ),
    "a negative length": (lambda form: array(form, length=-1), ad.ConversionError, "length"),
    "no children": (lambda form: array(form, children_=None), ad.ConversionError, "children"),
    "another device": (lambda form: array(form, device=(2, 0)), ad.ConversionError, "cuda:0"),
}


@form
@reader
def test_a_batch_that_is_wrong(reader: str, form: str):
    for case, (make, error, text) in WRONG_BATCHES.items():
        if case == "another device" and form == "host":
            continue
        for call in range(BATCHES + 1):
            # The last one is in place of the end.
            items = [make(form) if number == call else array(form) for number in range(max(BATCHES, call + 1))]
            producer = stream(form, list(items))
            # Another library has the text alone.
            error_type = Exception if reader == "another library" else error
            with pytest.raises(error_type, match=text) as caught:
                read(reader, producer)
            assert producer.asked_next == call + 1, f"{case} at call {call}: {caught.value}"
            del caught
            settled(producer, items)
    is_well(reader, form)


@form
@reader
def test_an_end_after_which_there_is_more(reader: str, form: str):
    """Who said once that it is at its end is not asked again, and what it has is not lost to the producer."""
    for call in range(BATCHES):
        items = [None if number == call else array(form) for number in range(BATCHES)]
        producer = stream(form, list(items))
        if reader in NEED_ALL_ROWS:
            with pytest.raises((ad.ConversionError, BufferError)):
                read(reader, producer)
        elif reader.startswith(("an item", "items")):
            assert _column(reader, producer) == [1, 2, 3] * (1 + call)
        else:
            try:
                answer = expected(reader, call)
            except ValueError as error:
                # Some answers cannot be had of no rows.
                with pytest.raises(type(error)):
                    read(reader, producer)
            else:
                assert read(reader, producer) == answer
        assert producer.asked_next == call + 1
        settled(producer, items)
    is_well(reader, form)


def _column(reader: str, producer: Stream) -> list[int]:
    """The first column of what a reader of several items gives."""
    answer = read(reader, producer)
    if isinstance(answer[0], dict):
        return [value for batch in answer for value in batch["a"]]
    return [row[0] for row in answer]


# What the call of get_schema may do wrong.
WRONG_SCHEMAS: dict[str, tuple[Any, str]] = {
    "fails": ((12, b"no schema today"), "get_schema failed with code 12: no schema today"),
    "fails without a message": ((-1, None), "get_schema failed with code -1: no message"),
    "gives a released one": (lambda: Schema(release=None), "released"),
    "gives one without a format": (lambda: Schema(None), "format"),
    "gives one of an unknown format": (lambda: Schema(b"?"), r"\?"),
    "gives one without its children": (lambda: Schema(b"+s", n_children=2), "children"),
    "gives one with a broken child": (lambda: Schema(b"+s", children=[Schema(b"!")]), "!"),
}


@form
@reader
def test_a_schema_that_is_wrong(reader: str, form: str):
    for answer, text in WRONG_SCHEMAS.values():
        items = [array(form) for _ in range(BATCHES)]
        producer = stream(form, list(items), schema=answer)
        with pytest.raises(BufferError, match=text) as caught:
            read(reader, producer)
        del caught
        assert (producer.asked_schema, producer.asked_next) == (1, 0)
        settled(producer, items)
    is_well(reader, form)


@form
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("epoch", range(3))
def test_a_schema_that_is_wrong_in_one_epoch(epoch: int, prefetch: int, form: str):
    """A loader asks a callable for a stream in each epoch: one that fails ends its epoch, and no other."""
    for answer, text in WRONG_SCHEMAS.values():
        made: list[tuple[Stream, list[Array]]] = []

        def opened(made: list[tuple[Stream, list[Array]]] = made, answer: Any = answer) -> Any:
            items = [array(form) for _ in range(BATCHES)]
            made.append((stream(form, list(items), schema=answer if len(made) == epoch else schema), items))
            return producers.stream(made[-1][0])

        loader = ad.Loader(opened, batch_size=2, prefetch=prefetch)
        for number in range(epoch + 2):
            if number == epoch:
                with pytest.raises(BufferError, match=text):
                    plain(iter(loader))
            else:
                assert plain(iter(loader)) == expected("loader")
        assert loader_threads() == 0
        for producer, items in made:
            settled(producer, items)


# What a release may do beside releasing.
def converts() -> None:
    assert np.from_dlpack(ad.to_tensor(BATCH)).shape == (3, 2)


def loads() -> None:
    assert len(list(ad.Loader(BATCH, batch_size=2))) == 2


def collects() -> None:
    gc.collect()


def raises() -> None:
    raise LookupError("a release cannot fail")


@form
@reader
def test_a_release_that_does_more(reader: str, form: str, monkeypatch: pytest.MonkeyPatch):
    for act in (converts, loads, collects, raises):
        _releases(act, reader, form, monkeypatch)
    is_well(reader, form)


def _releases(act: Callable[[], None], reader: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda one: seen.append(type(one.exc_value)))

    def acting(one: Any) -> Any:
        def release() -> None:
            # The producer's own parts first: what it raises ends its callback.
            for part in one.parts if act is raises else ():
                producers.release_struct(part.struct)
            act()

        one.on_release = release
        return one

    items = [acting(array(form)) for _ in range(BATCHES)]
    producer = acting(stream(form, list(items), schema=lambda: acting(schema())))
    assert read(reader, producer) == expected(reader)
    gc.collect()
    assert [one.releases for one in (producer, *items)] == [1] * (1 + BATCHES)
    # One of the schema, one of the stream, one of each array.
    assert seen == ([LookupError] * (2 + BATCHES) if act is raises else [])
    monkeypatch.undo()


def endless(form: str, made: list[Array]) -> Iterator[Array]:
    while True:
        made.append(array(form))
        yield made[-1]


@form
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_stream_that_has_no_end_is_let_go(taken: int, form: str):
    for begin in (ad.from_arrow, loaded, lambda source: loaded(source, prefetch=0)):
        made: list[Array] = []
        producer = stream(form, [])
        producer.items = endless(form, made)
        iterator = begin(producers.stream(producer))
        held = [next(iterator) for _ in range(taken)]
        iterator.close()
        assert next(iterator, None) is None
        assert producer.releases == 1
        assert loader_threads() == 0
        del held
        gc.collect()
        assert [one.releases for one in made] == [1] * len(made)
