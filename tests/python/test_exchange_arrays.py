"""Arrays of other libraries through their exchange tables: which are used, and who owns what when one refuses."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent / "interop" / "extensions"))

from build import build_c


@pytest.fixture(scope="module")
def c(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The extension module, which has libraries of arrays."""
    return build_c(tmp_path_factory.mktemp("exchange"), "exchange")


@pytest.fixture(autouse=True)
def well_behaved(c: ModuleType) -> Iterator[None]:
    c.behave(c.MAKE, 0)
    yield
    c.behave(c.MAKE, 0)


def counted(library: ModuleType) -> tuple[ModuleType, list[Any]]:
    """The library with a `from_dlpack` that counts, and what it was called with. It is of the library's own package."""
    calls: list[Any] = []
    original = library.from_dlpack

    def from_dlpack(tensor: Any) -> Any:
        calls.append(tensor.shape)
        return original(tensor)

    from_dlpack.__module__ = "exchange_arrays.functions"
    library.from_dlpack = from_dlpack
    return library, calls


ONE = pa.array([1])


def batch(columns: int = 5, rows: int = 3) -> pa.RecordBatch:
    return pa.record_batch({f"column {index}": np.arange(rows, dtype=np.int64) + index for index in range(columns)})


def addresses(source: pa.RecordBatch) -> list[int]:
    return [column.buffers()[1].address for column in source.columns]


def of_columns(*formats: bytes) -> tuple[producers.Array, Any]:
    """A batch that counts its releases, of columns "0", "1" and so on."""
    fields = [producers.Schema(format=format, field=b"%d" % index) for index, format in enumerate(formats)]
    producer = producers.Array(buffers=(None,), children=[producers.Array() for _ in formats])
    return producer, producers.arrow(producers.Schema(format=b"+s", children=fields), producer)


def test_all_but_the_first_array_are_made_by_the_table(c) -> None:
    library, calls = counted(c.make_library("good"))
    source = batch()
    for first in (1, 0):
        calls.clear()
        c.behave(c.MAKE, 0)
        arrays = ad.to_tensors(source, xp=library)
        assert list(arrays) == source.schema.names
        assert [array.address for array in arrays.values()] == addresses(source)
        assert {type(array) for array in arrays.values()} == {library.Array}
        assert (len(calls), c.table_calls()) == (first, 5 - first)
    assert ad.to_tensor(source["column 2"], xp=library).address == addresses(source)[2]
    assert ad.to_tensors(source, columns=["column 4", "column 0"], xp=library)["column 0"].rows == 3
    assert len(calls) == 0
    assert c.table_calls() == 5 + 1 + 2


def test_arrays_keep_the_memory_until_the_last_is_gone(c) -> None:
    library = c.make_library("good")
    producer, source = of_columns(b"i", b"i")
    arrays = ad.to_tensors(source, xp=library)
    x, y = arrays.pop("0"), arrays.pop("1")
    del source, x
    assert not producer.released
    # Its deleter runs detached.
    del y
    assert producer.released


@pytest.mark.parametrize("kind", ["FAIL", "FAIL_DELETED", "FAIL_SILENTLY", "NOTHING", "OTHER"])
@pytest.mark.parametrize("good", [0, 2])
def test_what_a_table_refuses_goes_through_the_function(c, kind: str, good: int) -> None:
    """Some tables run the deleter before they fail, others do not: nothing is freed twice, or never."""
    library, calls = counted(c.make_library("good"))
    source = batch()
    ad.to_tensors(source, xp=library)
    calls.clear()
    c.behave(getattr(c, kind), good)
    arrays = ad.to_tensors(source, xp=library)
    assert [array.address for array in arrays.values()] == addresses(source)
    assert (len(calls), c.table_calls()) == (5 - good, 5)


@pytest.mark.parametrize("kind", ["FAIL", "FAIL_DELETED"])
def test_the_error_of_the_function_is_the_one_that_is_raised(c, kind: str) -> None:
    library = c.make_library("good")
    ad.to_tensors(batch(), xp=library)
    c.behave(getattr(c, kind), 2)
    producer, source = of_columns(b"i", b"i", b"c", b"i")
    with pytest.raises(TypeError, match="no bytes, please"):
        ad.to_tensors(source, xp=library)
    del source
    gc.collect()
    assert producer.released


def test_an_interrupt_is_no_refusal(c) -> None:
    library, calls = counted(c.make_library("good"))
    source = batch()
    ad.to_tensors(source, xp=library)
    calls.clear()
    c.behave(c.INTERRUPT, 2)
    with pytest.raises(KeyboardInterrupt):
        ad.to_tensors(source, xp=library)
    assert (len(calls), c.table_calls()) == (0, 3)


def test_a_conversion_that_fails_lets_go_of_the_arrays_before_it(c) -> None:
    library = c.make_library("good")
    source = pa.record_batch({"a": [1, 2], "b": [0.5, 1.5], "c": [1, None], "d": [1, 2]})
    with pytest.raises(ad.NullError) as raised:
        ad.to_tensors(source, xp=library)
    assert raised.value.column == "c"


UNUSABLE = ["endless", "older", "no allocator", "no maker", "no stream", "misnamed", "an address", "misaligned"]


@pytest.mark.parametrize("kind", UNUSABLE)
def test_tables_that_are_none_are_left_alone(c, kind: str) -> None:
    library, calls = counted(c.make_library(kind))
    source = batch()
    for _ in range(2):
        arrays = ad.to_tensors(source, xp=library)
        assert [array.address for array in arrays.values()] == addresses(source)
    assert (len(calls), c.table_calls()) == (10, 0)


def test_an_older_table_behind_a_newer_one_is_used(c) -> None:
    library = c.make_library("newer")
    ad.to_tensors(batch(), xp=library)
    assert c.table_calls() == 4


def test_a_function_that_is_not_the_librarys_is_called_for_each_array(c) -> None:
    """It may do more than make an array: copy it, move it, count it."""
    library = c.make_library("good")
    calls = []

    def from_dlpack(tensor: Any) -> Any:
        calls.append(tensor)
        return library.from_dlpack(tensor)

    # A module of somebody else, and what is no module, whatever it says of itself.
    other = ModuleType("other")
    other.from_dlpack = from_dlpack
    from_dlpack.__module__ = "other"
    instance = SimpleNamespace(from_dlpack=library.from_dlpack)
    for xp in (other, SimpleNamespace(from_dlpack=from_dlpack), instance):
        ad.to_tensors(batch(), xp=xp)
        ad.to_tensors(batch(), xp=xp)
    assert (len(calls), c.table_calls()) == (20, 0)


def test_a_function_that_is_replaced_is_not_mistaken_for_the_old_one(c) -> None:
    library, calls = counted(c.make_library("good"))
    ad.to_tensors(batch(), xp=library)
    made = []
    original = library.from_dlpack
    library.from_dlpack = lambda tensor: made.append(original(tensor)) or made[-1]
    ad.to_tensors(batch(), xp=library)
    assert len(made) == 5
    library.from_dlpack = original
    calls.clear()
    ad.to_tensors(batch(), xp=library)
    assert calls == []


def test_an_inherited_table_is_that_of_other_arrays(c) -> None:
    library = c.make_library("good")
    library.from_dlpack = c.function_of(
        type("Sub", (library.Array,), {"__module__": "exchange_arrays", "__slots__": ()})
    )
    for _ in range(2):
        arrays = ad.to_tensors(batch(), xp=library)
        assert {type(array).__name__ for array in arrays.values()} == {"Sub"}
    assert c.table_calls() == 0


def test_functions_are_remembered_without_being_kept(c) -> None:
    library, calls = counted(c.make_library("good"))
    ad.to_tensors(batch(), xp=library)
    function = weakref.ref(library.from_dlpack)
    del library, calls
    gc.collect()
    assert function() is None


def test_more_functions_than_are_remembered(c) -> None:
    libraries = [counted(c.make_library("good")) for _ in range(40)]
    for _ in range(2):
        for library, _ in libraries:
            arrays = ad.to_tensors(batch(2), xp=library)
            assert len(arrays) == 2


def test_the_functions_that_were_learnt_last_are_remembered(c) -> None:
    libraries = [counted(c.make_library("good"))[0] for _ in range(17)]
    for library in libraries:
        ad.to_tensor(ONE, xp=library)
    c.behave(c.MAKE, 0)
    for library in libraries[1:]:
        ad.to_tensor(ONE, xp=library)
    assert c.table_calls() == 16
    ad.to_tensor(ONE, xp=libraries[0])
    assert c.table_calls() == 16


def test_functions_that_are_gone_take_no_place(c) -> None:
    library, _ = counted(c.make_library("good"))
    ad.to_tensor(ONE, xp=library)
    # Functions that are gone have these addresses, until others take them.
    others = [counted(c.make_library("good"))[0] for _ in range(15)]
    for other in others:
        ad.to_tensor(ONE, xp=other)
    del other, others
    gc.collect()
    taken = [lambda number=number: number for number in range(1000)]
    others = [counted(c.make_library("good"))[0] for _ in range(15)]
    for other in others:
        ad.to_tensor(ONE, xp=other)
    del taken
    c.behave(c.MAKE, 0)
    ad.to_tensor(ONE, xp=library)
    assert c.table_calls() == 1


def test_another_function_at_the_address_of_one_that_is_gone_is_called(c) -> None:
    """It may be no library's, as what the next module makes."""
    library, _ = counted(c.make_library("good"))
    ad.to_tensor(ONE, xp=library)
    address = id(library.from_dlpack)
    del library.from_dlpack
    gc.collect()
    made: list[Any] = []
    for _ in range(1000):
        made.append(lambda tensor: (tensor,))
        if id(made[-1]) == address:
            break
    else:
        pytest.skip("no function got that address")
    library.from_dlpack = made[-1]
    assert type(ad.to_tensor(ONE, xp=library)) is tuple


def test_what_a_library_raises_notes_which_tensor_it_was_given() -> None:
    with pytest.raises(RuntimeError, match="Unsupported dtype in DLTensor") as raised:
        ad.to_tensors(pa.table({"a": [1], "b": [2]}), columns={"a": "a", "b": ["a", "b"]}, dtype="bfloat16", xp=np)
    tensor = ad.to_tensor(pa.array([1]), dtype="bfloat16")
    assert raised.value.__notes__ == [f"from_dlpack was given arrow_dlpack.{tensor!r}"]

    def library(error: BaseException) -> SimpleNamespace:
        def from_dlpack(tensor: ad.Tensor) -> None:
            raise error

        return SimpleNamespace(from_dlpack=from_dlpack)

    class Stubborn(Exception):
        note: BaseException = ValueError("no notes")

        def add_note(self, note: str) -> None:
            raise self.note

    with pytest.raises(Stubborn):
        ad.to_tensor(pa.array([1]), xp=library(Stubborn()))
    Stubborn.note = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ad.to_tensor(pa.array([1]), xp=library(Stubborn()))
    # One object is raised again and again.
    error = ValueError("no int64, please")
    for _ in range(3):
        with pytest.raises(ValueError, match="no int64, please"):
            ad.to_tensor(pa.array([1]), xp=library(error))
    assert len(error.__notes__) == 1


def test_what_is_no_namespace_is_refused_before_a_stream_is_read() -> None:
    table = pa.table({"x": [1]})
    stream = ad.from_arrow(table)
    for convert in (ad.to_tensor, ad.to_tensors):
        with pytest.raises(TypeError, match="array namespace"):
            convert(stream, xp=7)
    assert ad.to_tensors(stream)["x"].shape == (1,)


# ---- torch ----


def test_torch_arrays_are_what_from_dlpack_makes(torch) -> None:
    source = pa.record_batch(
        {
            "float": pa.array([0.5, 1.5]),
            "bool": pa.array([True, False]),
            "lists": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
            "nulls": pa.array([1, None], pa.int32()),
            "none": pa.array([1, 2], pa.uint8()),
        }
    )
    own = ad.from_arrow(source)
    for keywords in ({"nulls": 1}, {"nulls": "keep", "writable": True}):
        ours = ad.to_tensors(own, xp=torch, **keywords)
        theirs = {name: torch.from_dlpack(tensor) for name, tensor in ad.to_tensors(own, **keywords).items()}
        assert list(ours) == list(theirs)
        for name, made in theirs.items():
            assert type(ours[name]) is torch.Tensor
            assert ours[name].dtype == made.dtype
            assert ours[name].stride() == made.stride()
            assert ours[name].equal(made)
            assert not ours[name].requires_grad
    assert ours["float"].data_ptr() != source["float"].buffers()[1].address
    view = ad.to_tensors(own, columns=["float", "float"], xp=torch)
    assert view["float"].data_ptr() == source["float"].buffers()[1].address
    assert ad.to_tensors(source.slice(1), columns=["lists"], xp=torch)["lists"].tolist() == [[3, 4]]
    assert ad.validity(source["nulls"], xp=torch).tolist() == [True, False]
    empty = ad.to_tensors(source.slice(2), xp=torch)
    assert {tuple(array.shape) for array in empty.values()} == {(0,), (0, 2)}


def test_torch_makes_arrays_without_its_function(torch, monkeypatch) -> None:
    """What is patched is used, and what is not patched is not called once its table is known."""
    ad.to_tensors(batch(), xp=torch)
    calls = []
    monkeypatch.setattr(torch._C, "_from_dlpack", lambda capsule: calls.append(capsule))
    assert len(ad.to_tensors(batch(), xp=torch)) == 5
    assert calls == []
    monkeypatch.setattr(torch, "from_dlpack", lambda tensor: tensor.shape)
    assert ad.to_tensors(batch(1), xp=torch) == {"column 0": (3,)}


def test_torch_says_in_its_own_words_what_it_cannot_take(torch) -> None:
    ad.to_tensors(batch(), xp=torch)
    tensor = ad.to_tensor(pa.array([1.0, 2.0]), dtype="float32")
    strange = pa.FixedSizeBinaryArray.from_buffers(pa.binary(1), 2, [None, pa.py_buffer(b"\0\1")])
    field = pa.field("x", pa.binary(1), metadata={"ARROW:extension:name": "arrow_dlpack.float8_e3m4"})
    source = pa.record_batch([strange], schema=pa.schema([field]))
    with pytest.raises(BufferError) as theirs:
        torch.from_dlpack(ad.to_tensors(source)["x"])
    with pytest.raises(BufferError) as ours:
        ad.to_tensors(source, xp=torch)
    assert str(ours.value) == str(theirs.value)
    assert tensor.shape == (2,)


@pytest.mark.parametrize("wrong", ["requires_grad", "conj"])
def test_torchs_table_is_not_asked_for_its_tensors(torch, wrong: str) -> None:
    """It would export them, without the gradient and without the conjugation."""
    theirs = torch.ones(2, dtype=torch.complex64)
    theirs = theirs.requires_grad_() if wrong == "requires_grad" else theirs.conj()
    for convert in (ad.from_dlpack, ad.to_arrow, ad.to_tensor):
        with pytest.raises((BufferError, RuntimeError), match=r"grad|conj"):
            convert(theirs)


def test_torch_tensors_are_made_on_many_threads(torch) -> None:
    source = batch(20)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                made = ad.to_tensors(source, xp=torch)
                assert [array.data_ptr() for array in made.values()] == addresses(source)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
