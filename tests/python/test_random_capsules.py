"""Random capsules from random dunders: a result or a plain exception, and each struct is released once."""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pytest
from producers import Array, DLPack, Schema, Stream

# What Python code that hands over the wrong thing has to expect.
EXPECTED = (TypeError, ValueError, BufferError, NotImplementedError, ad.ConversionError)
# The kinds of structs that each dunder returns, by the numbers of `random_producer`.
DUNDERS = {
    "__dlpack__": [0],
    "__arrow_c_schema__": [2],
    "__arrow_c_array__": [2, 3],
    "__arrow_c_device_array__": [2, 4],
    "__arrow_c_stream__": [5],
    "__arrow_c_device_stream__": [6],
}
ODD_NAMES = (None, b"", b"capsule", b"arrow_", b"dltensor_", b"used_dltensor", b"used_dltensor_versioned")
# Of each of the eight parts.
CASES = 80
TENSOR_USES: list[Callable[[Any], Any]] = [ad.from_dlpack, ad.to_arrow, ad.explain]
SCHEMA_USES: list[Callable[[Any], Any]] = [ad.explain, lambda source: ad.to_arrow(np.arange(3), type=source)]
ARROW_USES: list[Callable[[Any], Any]] = [
    ad.from_arrow,
    ad.to_tensor,
    ad.to_ragged,
    ad.explain,
    lambda source: next(iter(ad.Loader(source, batch_size=2)), None),
]
USES = [*TENSOR_USES, *SCHEMA_USES, *ARROW_USES]

set_context = ctypes.pythonapi["PyCapsule_SetContext"]
set_context.argtypes = (ctypes.py_object, ctypes.c_void_p)


def random_producer(draw: random.Random, kind: int) -> Any:
    """One of the seven structs, mostly a good one."""
    if kind < 2:
        return DLPack(versioned=draw.random() < 0.5, version=draw.choice([(1, 3), (1, 0), (1, 1), (2, 0)]))
    format = draw.choice([b"i", b"i", b"i", b"c", b"?"])
    if kind == 2:
        return Schema(format)
    if kind < 5:
        return Array(length=draw.choice([3, 3, 3, 0, -1]), device=(1, -1) if kind == 4 else None)
    # Made when it is read: what nobody reads is nobody's to release.
    items = (Array(device=(1, -1) if kind == 6 else None) for _ in range(draw.randrange(3)))
    failure = [(5, b"no more")] * draw.randrange(2)
    device_type = 1 if kind == 6 else None
    return Stream(itertools.chain(items, failure), schema=lambda: Schema(format), device_type=device_type)


def random_capsule(draw: random.Random, kind: int, kept: list[Any]) -> Any:
    """A capsule, or something in its place. `kept` lives as long as the case."""
    producer = random_producer(draw, kind)
    capsule = producer.capsule()
    kept += [producer, capsule]
    match draw.randrange(24):
        case 0 if not isinstance(producer, DLPack):
            producers.release_struct(producer.struct)
        case 1:
            address = producers.capsule_pointer(capsule, producer.name)
            return producers.new_capsule(address, draw.choice(ODD_NAMES))
        case 2:
            address = producers.capsule_pointer(capsule, producer.name)
            return producers.new_capsule(address + draw.randrange(1, 8), producer.name)
        case 3:
            set_context(capsule, 0xDEAD)
        case 4:
            return draw.choice([None, 3, b"capsule", (), object(), producer])
    return capsule


def random_answer(draw: random.Random, dunder: str, kept: list[Any]) -> Any:
    """What a dunder returns: a capsule, or some of them in something."""
    kinds = list(DUNDERS[dunder])
    match draw.randrange(24):
        case 0:
            kinds[-1] = draw.randrange(7)
        case 1:
            kinds.reverse()
        case 2:
            kinds.append(draw.randrange(7))
        case 3:
            kinds.pop()
    capsules = [random_capsule(draw, kind, kept) for kind in kinds]
    if len(capsules) == 1 and draw.random() < 0.9:
        return capsules[0]
    return draw.choice([tuple] * 8 + [list, iter])(capsules)


def tried(use: Callable[[Any], Any], source: Any) -> str:
    """Uses a source, reads what comes of it to the end, and tells what came."""
    try:
        result = use(source)
        if isinstance(result, ad.ArrayStream):
            list(result)
    except EXPECTED as error:
        return type(error).__name__
    return type(result).__name__


def case(seed: int) -> str:
    """A case of two uses, the second of what the first one may have consumed."""
    draw = random.Random(seed)
    kept: list[Any] = []
    dunders = draw.sample(list(DUNDERS), draw.choice([1, 1, 2]))
    answers = {dunder: random_answer(draw, dunder, kept) for dunder in dunders}
    methods = {dunder: lambda self, *_, answer=answer, **__: answer for dunder, answer in answers.items()}
    if draw.random() < 0.8:
        methods["__dlpack_device__"] = lambda self: (1, 0)
    source = type("Random", (), methods)()
    fitting = {"__dlpack__": TENSOR_USES, "__arrow_c_schema__": SCHEMA_USES}.get(dunders[0], ARROW_USES)
    uses = [draw.choice(fitting if draw.random() < 0.9 else USES) for _ in range(2)]
    return " ".join(tried(use, source) for use in uses)


@pytest.mark.parametrize("part", range(8))
def test_each_struct_is_released_once(part: int):
    outcomes = set()
    for seed in range(part * CASES, (part + 1) * CASES):
        outcomes.update(case(seed).split())
        gc.collect(0)
        wrong = producers.wrongly_released()
        if wrong:
            gc.collect()
            wrong = producers.wrongly_released()
        assert not wrong, f"seed {seed}: {wrong}"
        producers.forget_all()
    # The cases are neither all refused nor all accepted.
    assert {"TypeError", "Tensor"} <= outcomes
