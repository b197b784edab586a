"""Any one dunder is enough, the right one is asked first, and it is asked with no more than it has to know."""

import subprocess
import sys
from pathlib import Path

import arrow_dlpack as ad
import nanoarrow as na
import numpy as np
import polars as pl
import producers
import pyarrow as pa
import pytest
from producers import Only, only
from support import address

COLUMN = pa.array([1, 2, 3])
BATCH = pa.record_batch({"x": COLUMN})
STREAMS = ["__arrow_c_stream__", "__arrow_c_device_stream__"]
ARRAYS = ["__arrow_c_array__", "__arrow_c_device_array__"]


def ours(dunder: str, data: object = COLUMN) -> object:
    """What of ours has this dunder."""
    source = pa.chunked_array([data]) if dunder in STREAMS and isinstance(data, pa.Array) else data
    source = pa.table(data) if dunder in STREAMS and isinstance(data, pa.RecordBatch) else source
    return ad.from_arrow(source)


@pytest.mark.parametrize("dunder", [*ARRAYS, *STREAMS])
def test_one_dunder_is_enough(dunder: str):
    source = only(dunder, ours(dunder))
    tensor = ad.to_tensor(source, copy=False)
    assert np.from_dlpack(tensor).tolist() == [1, 2, 3]
    assert address(tensor) == COLUMN.buffers()[1].address
    assert source.calls == [{}], "keywords are passed only where they say something"
    assert np.from_dlpack(ad.validity(only(dunder, ours(dunder)))).all()


@pytest.mark.parametrize("dunder", [*ARRAYS, *STREAMS])
def test_one_dunder_is_enough_for_a_batch(dunder: str):
    tensors = ad.to_tensors(only(dunder, ours(dunder, BATCH)), copy=False)
    assert address(tensors["x"]) == COLUMN.buffers()[1].address
    imported = ad.from_arrow(only(dunder, ours(dunder, BATCH)))
    assert isinstance(imported, ad.ArrayStream if dunder in STREAMS else ad.RecordBatch)


@pytest.mark.parametrize("dunder", ARRAYS)
def test_one_dunder_of_pyarrow(dunder: str):
    source = only(dunder, COLUMN)
    assert address(ad.to_tensor(source, copy=False)) == COLUMN.buffers()[1].address
    assert source.calls == [{}]


@pytest.mark.parametrize("convert", [ad.from_dlpack, ad.to_tensor, ad.to_arrow, ad.from_arrow])
def test_dlpack_alone_is_enough(convert):
    producer, source = producers.dlpack()
    data = convert(source)
    assert source.calls == [{"max_version": (1, 3)}]
    tensor = data if isinstance(data, ad.Tensor) else ad.to_tensor(data)
    assert np.from_dlpack(tensor).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert address(tensor) == producer.address


def test_a_schema_alone_is_a_type():
    field = only("__arrow_c_schema__", pa.field("x", pa.bool_()))
    assert pa.array(ad.to_arrow(np.array([True]), type=field)).type == pa.bool_()
    assert ad.explain(field).rows[0].dtype == "bool"
    with pytest.raises(TypeError):
        ad.to_tensor(field)


@pytest.mark.parametrize(
    "convert", [ad.to_tensor, ad.to_tensors, ad.validity, ad.from_arrow, ad.from_dlpack, ad.to_arrow, ad.explain]
)
@pytest.mark.parametrize("source", [3, None, "x", [1, 2], ..., np], ids=repr)
def test_no_protocol_is_a_type_error(convert, source):
    with pytest.raises(TypeError):
        convert(source)


def test_device_before_host_and_array_before_stream():
    asked = []

    def refuse(dunder: str):
        def method(self, *args, **kwargs):
            asked.append(dunder)
            raise NotImplementedError(dunder)

        return method

    order = [
        "__arrow_c_device_array__",
        "__arrow_c_array__",
        "__arrow_c_device_stream__",
        "__arrow_c_stream__",
        "__dlpack__",
    ]
    for first in range(len(order)):
        asked.clear()
        source = type("Several", (), {dunder: refuse(dunder) for dunder in order[first:]})()
        with pytest.raises(NotImplementedError):
            ad.to_tensor(source)
        assert asked[0] == order[first]


def asks(module: str, refused: frozenset[str] = frozenset(), has: str = "copy_to") -> tuple[type, list[str]]:
    """A class of this module with both dunders for arrays, some of which refuse, and what its objects were asked."""
    asked = []

    def answering(dunder: str):
        def method(self, *args, **kwargs):
            asked.append(dunder)
            if dunder in refused:
                raise NotImplementedError(dunder)
            return getattr(COLUMN, dunder)()

        return method

    members = {dunder: answering(dunder) for dunder in ARRAYS} | {"__module__": module, has: None}
    return type("Array", (), members), asked


# In a process of its own: a class at the address of one that is gone may be asked in the order of that one.
ORDERS = """
import arrow_dlpack as ad, pyarrow as pa
from test_single_dunder import ARRAYS, COLUMN, address, asks

host, device = ARRAYS
kinds = []
# Batches of pyarrow 17 have no `copy_to`, and their `__arrow_c_array__` does not refuse memory of other devices.
for module, has, order in [
    ("pyarrow.lib", "copy_to", [host, device]),
    ("pyarrow", "copy_to", [host, device]),
    ("pyarrow.lib", "to_pandas", [device, host]),
    ("pyarrows.lib", "copy_to", [device, host]),
]:
    for refused in [[], order[:1], order]:
        kind, asked = asks(module, frozenset(refused), has)
        kinds.append(kind)
        for _ in range(2):
            asked.clear()
            try:
                found = address(ad.to_tensor(kind(), copy=False))
            except NotImplementedError as error:
                found = str(error)
            assert found == (order[0] if refused == order else COLUMN.buffers()[1].address), (module, refused, found)
            assert asked == order[: len(refused) + 1], (module, refused, asked)

# Classes that come and go, of the one kind at the addresses of the other: each is asked once, for either form.
for index in range(300):
    kind, asked = asks("pyarrow.lib" if index % 2 else "others")
    assert address(ad.to_tensor(kind(), copy=False)) == COLUMN.buffers()[1].address
    assert len(asked) == 1, asked
"""


def test_host_before_device_for_classes_of_pyarrow():
    subprocess.run([sys.executable, "-c", ORDERS], cwd=Path(__file__).parent, check=True)


def test_a_subclass_of_pyarrows_is_asked_for_its_device_first():
    asked = []

    class Own(pa.ExtensionArray):
        def __arrow_c_device_array__(self, *args, **kwargs):
            asked.append("device")
            return COLUMN.__arrow_c_device_array__()

    class OwnType(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.int64(), "tests.own")

        def __arrow_ext_serialize__(self):
            return b""

        def __arrow_ext_class__(self):
            return Own

    own = pa.ExtensionArray.from_storage(OwnType(), COLUMN)
    assert type(own) is Own
    assert address(ad.to_tensor(own, copy=False)) == COLUMN.buffers()[1].address
    assert asked == ["device"]


def test_a_class_that_tells_no_module_is_asked():
    class Meta(type):
        @property
        def __module__(cls):
            raise RuntimeError("no module")

    kind = Meta("Kind", (), {dunder: lambda self, name=dunder: getattr(COLUMN, name)() for dunder in ARRAYS})
    assert np.from_dlpack(ad.to_tensor(kind())).tolist() == [1, 2, 3]


@pytest.mark.parametrize("error", [NotImplementedError, ValueError])
@pytest.mark.parametrize("dunder", ARRAYS)
def test_an_array_that_refuses_is_asked_for_a_stream(dunder: str, error: type[Exception]):
    chunks = pa.chunked_array([[1], [2, 3]])

    def refuse(self):
        raise error("several chunks")

    source = type("Chunked", (), {dunder: refuse, "__arrow_c_stream__": lambda self: chunks.__arrow_c_stream__()})()
    assert np.from_dlpack(ad.to_tensor(source)).tolist() == [1, 2, 3]
    alone = type("Alone", (), {dunder: refuse})()
    with pytest.raises(error, match="chunks"):
        ad.to_tensor(alone)


def test_an_array_that_refuses_as_a_device_array_is_asked_for_a_host_array():
    def refuse(self, **keywords):
        raise NotImplementedError("no device")

    array = {"__arrow_c_device_array__": refuse, "__arrow_c_array__": lambda self: pa.array([1, 2]).__arrow_c_array__()}
    assert isinstance(ad.from_arrow(type("Host", (), array)()), ad.Array)


def test_a_strided_tensor_is_no_arrow_data_without_a_copy():
    with ad.track_copies() as log, pytest.raises(ad.CopyError):
        ad.from_arrow(np.arange(10)[::2], copy=False)
    assert len(log) == 0
    assert len(ad.from_arrow(np.arange(10)[::2])) == 5


@pytest.mark.parametrize("dunder", [*ARRAYS, *STREAMS, "__dlpack__"])
@pytest.mark.parametrize("error", [RuntimeError, KeyError, AttributeError, TypeError, MemoryError, KeyboardInterrupt])
def test_what_a_dunder_raises_passes_through(dunder: str, error: type[BaseException]):
    def fail(*args, **kwargs):
        raise error("the producer's own")

    with pytest.raises(error, match="the producer's own"):
        ad.to_tensor(Only(dunder, fail))


@pytest.mark.parametrize("dunder", ARRAYS)
@pytest.mark.parametrize("answer", [None, (), (1,), 3, (1, 2), (None, None, None), "ab"], ids=repr)
def test_an_array_is_two_capsules(dunder: str, answer):
    with pytest.raises(TypeError):
        ad.to_tensor(Only(dunder, lambda: answer))


@pytest.mark.parametrize("dunder", [*STREAMS, "__dlpack__"])
@pytest.mark.parametrize("answer", [None, 3, (1, 2), "ab"], ids=repr)
def test_a_stream_or_tensor_is_a_capsule(dunder: str, answer):
    with pytest.raises(TypeError):
        ad.to_tensor(Only(dunder, lambda **_: answer))


@pytest.mark.parametrize("dunder", ARRAYS)
@pytest.mark.parametrize(
    "make", [lambda: ad.from_dlpack(np.arange(3)), lambda: ad.to_arrow(np.arange(3))], ids=["Tensor", "Array"]
)
def test_consumers_of_one_dunder_of_ours(dunder: str, make):
    source = only(dunder, make())
    assert pa.array(source).to_pylist() == [0, 1, 2]
    if dunder == "__arrow_c_array__":
        assert na.Array(source).to_pylist() == [0, 1, 2]
        assert pl.Series("x", source).to_list() == [0, 1, 2]


def test_consumers_of_one_stream_dunder_of_ours():
    for consume in (lambda s: pa.table(s).to_pydict(), lambda s: pl.DataFrame(s).to_dict(as_series=False)):
        assert consume(only("__arrow_c_stream__", ours("__arrow_c_stream__", BATCH))) == {"x": [1, 2, 3]}


def test_what_each_class_speaks():
    spoken = {
        cls.__name__: {name for name in dir(cls) if name.startswith(("__arrow_c_", "__dlpack"))}
        for cls in (ad.Tensor, ad.Array, ad.RecordBatch, ad.ArrayStream)
    }
    arrays = {"__arrow_c_schema__", *ARRAYS}
    tensors = {"__dlpack__", "__dlpack_device__"}
    assert spoken["Tensor"] >= arrays | tensors
    assert spoken["Array"] == arrays | tensors
    # A batch is a stream of itself too: some consumers ask for streams alone.
    assert spoken["RecordBatch"] == arrays | set(STREAMS)
    assert spoken["ArrayStream"] == {"__arrow_c_schema__", *STREAMS}
