"""Capsules: consumed once, named right, released whether or not anybody takes what is in them."""

import ctypes
import gc
import sys
import threading

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest
from producers import Array, DLPack, Only, Schema, Stream

SOURCE = pa.array(range(1000))


def capsules_of_ours() -> dict[str, list]:
    array = ad.from_arrow(pa.array(range(1000)))
    stream = ad.from_arrow(pa.chunked_array([range(1000)]))
    device_stream = ad.from_arrow(pa.chunked_array([range(1000)]))
    return {
        "dltensor": [ad.to_tensor(array).__dlpack__()],
        "dltensor_versioned": [ad.to_tensor(array).__dlpack__(max_version=(1, 0))],
        "arrow_schema": [array.__arrow_c_schema__()],
        "arrow_array": list(array.__arrow_c_array__()),
        "arrow_device_array": list(array.__arrow_c_device_array__()),
        "arrow_array_stream": [stream.__arrow_c_stream__()],
        "arrow_device_array_stream": [device_stream.__arrow_c_device_stream__()],
    }


NAMES = list(capsules_of_ours())


def consume(name: str, capsules: list):
    """Hands capsules to an importer of ours."""
    if name.startswith("dltensor"):
        return ad.from_dlpack(Only("__dlpack__", lambda **_: capsules[0]))
    if name == "arrow_schema":
        return ad.explain(Only("__arrow_c_schema__", lambda: capsules[0]))
    dunder = {
        "arrow_array": "__arrow_c_array__",
        "arrow_device_array": "__arrow_c_device_array__",
        "arrow_array_stream": "__arrow_c_stream__",
        "arrow_device_array_stream": "__arrow_c_device_stream__",
    }[name]
    answer = tuple(capsules) if len(capsules) > 1 else capsules[0]
    return ad.from_arrow(Only(dunder, lambda: answer))


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str):
    capsules = capsules_of_ours()[name]
    assert producers.capsule_name(capsules[-1]) == name.encode()


@pytest.mark.parametrize("name", NAMES)
def test_an_unconsumed_capsule_releases_what_it_holds(name: str):
    gc.collect()
    before = pa.total_allocated_bytes()
    capsules = capsules_of_ours()[name]
    if name not in ("arrow_schema", "dltensor"):
        assert pa.total_allocated_bytes() > before
    del capsules
    gc.collect()
    assert pa.total_allocated_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_capsule_outlives_what_it_came_from(name: str):
    capsules = capsules_of_ours()[name]
    gc.collect()
    data = consume(name, capsules)
    del capsules
    gc.collect()
    if isinstance(data, ad.ArrayStream):
        (data,) = data
    if not isinstance(data, ad.Report):
        assert np.from_dlpack(data).tolist() == list(range(1000))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "arrow_schema"])
def test_a_capsule_is_consumed_once(name: str):
    capsules = capsules_of_ours()[name]
    first = consume(name, capsules)
    with pytest.raises(ValueError, match="consumed"):
        consume(name, capsules)
    assert first is not None
    if name.startswith("dltensor"):
        assert producers.capsule_name(capsules[0]) == b"used_" + name.encode()


def test_a_schema_can_be_read_again():
    capsules = capsules_of_ours()["arrow_schema"]
    assert str(consume("arrow_schema", capsules)) == str(consume("arrow_schema", capsules))


def fresh(name: str) -> tuple[list, list]:
    """Counted producers, and the capsules that hold them."""
    if name.startswith("dltensor"):
        tensor = DLPack(versioned=name.endswith("versioned"))
        return [tensor], [tensor.capsule()]
    if name == "arrow_schema":
        schema = Schema()
        return [schema], [schema.capsule()]
    if name.endswith("stream"):
        stream = Stream(device_type=1 if "device" in name else None)
        return [stream], [stream.capsule()]
    made = [Schema(), Array(device=(1, -1) if "device" in name else None)]
    return made, [one.capsule() for one in made]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_consumed_is_released_once(name: str):
    made, capsules = fresh(name)
    data = consume(name, capsules)
    if name != "arrow_schema":
        assert not made[-1].released
    del data, capsules
    gc.collect()
    assert [one.releases for one in made] == [1] * len(made)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("dltensor")])
def test_what_was_released_is_refused(name: str):
    made, capsules = fresh(name)
    for one in made:
        producers.release_struct(one.struct)
    with pytest.raises(ad.ConversionError, match="released"):
        consume(name, capsules)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrong", [b"wrong", None, *(name.encode() for name in NAMES), b"used_dltensor", b"used_dltensor_versioned"]
)
def test_another_name_is_refused_and_left_alone(name: str, wrong: bytes | None):
    if wrong == name.encode() or (name.startswith("dltensor") and wrong in (b"dltensor", b"dltensor_versioned")):
        return
    made, capsules = fresh(name)
    renamed = producers.new_capsule(producers.capsule_pointer(capsules[-1], name.encode()), wrong)
    with pytest.raises((TypeError, ValueError)):
        consume(name, [*capsules[:-1], renamed])
    assert [one.releases for one in made] == [0] * len(made)
    assert producers.capsule_name(renamed) == wrong


def test_a_host_capsule_is_no_device_capsule():
    schema, array = Schema(), Array()
    with pytest.raises(TypeError):
        ad.from_arrow(Only("__arrow_c_device_array__", lambda: (schema.capsule(), array.capsule())))


def test_numpy_consumes_a_capsule_once():
    capsule = ad.to_tensor(SOURCE).__dlpack__(max_version=(1, 0))
    source = Only("__dlpack__", lambda **_: capsule)
    assert np.from_dlpack(source).tolist() == SOURCE.to_pylist()
    with pytest.raises((ValueError, RuntimeError)):
        np.from_dlpack(source)


class TestByHand:
    """A consumer in C: takes the struct, and calls its deleter when it likes, where it likes."""

    def take(self, legacy: bool):
        tensor = ad.to_tensor(pa.array(range(1000)), legacy="view")
        capsule = tensor.__dlpack__() if legacy else tensor.__dlpack__(max_version=(1, 3))
        managed, _ = producers.read_dlpack(capsule)
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
        self.used = ctypes.create_string_buffer(b"used_dltensor" if legacy else b"used_dltensor_versioned")
        rename(capsule, ctypes.cast(self.used, ctypes.c_char_p))
        return managed

    # A foreign function called through CFUNCTYPE runs without the GIL.
    def delete(self, managed):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(ctypes.addressof(managed))

    @pytest.mark.parametrize("legacy", [False, True])
    def test_the_deleter_needs_no_gil(self, legacy: bool):
        gc.collect()
        before = pa.total_allocated_bytes()
        managed = self.take(legacy)
        gc.collect()
        values = ctypes.cast(managed.dl_tensor.data, ctypes.POINTER(ctypes.c_int64))
        assert [values[index] for index in range(3)] == [0, 1, 2]
        self.delete(managed)
        assert pa.total_allocated_bytes() == before

    def test_the_deleter_runs_on_any_thread(self):
        gc.collect()
        before = pa.total_allocated_bytes()
        managed = self.take(legacy=False)
        thread = threading.Thread(target=self.delete, args=(managed,))
        thread.start()
        thread.join()
        assert pa.total_allocated_bytes() == before

    def test_a_release_within_a_release_that_let_go_of_the_gil(self):
        # As torch: it drops its storage without the GIL, also where the release of somebody else's memory led there.
        inner = self.take(legacy=False)
        deleted = []

        def release_inner():
            self.delete(inner)
            deleted.append(True)

        outer, source = producers.dlpack(on_release=release_inner)
        tensor = ad.from_dlpack(source)
        del tensor
        assert deleted == [True]
        assert outer.releases == 1

    def test_a_consumer_may_change_the_struct_it_owns(self):
        managed = self.take(legacy=False)
        managed.dl_tensor.ndim = 0
        managed.dl_tensor.shape = managed.dl_tensor.strides = None
        managed.dl_tensor.data = None
        managed.manager_ctx = 12345
        self.delete(managed)


def test_a_release_leaves_the_raised_exception_alone():
    class Noisy(Exception):
        pass

    def raise_in_release():
        # Runs inside a destructor; ctypes reports it as unraisable.
        int("3")

    _, source = producers.dlpack(on_release=raise_in_release)

    def holds_while_raising():
        tensor = ad.from_dlpack(source)
        assert tensor.size == 6
        raise Noisy

    with pytest.raises(Noisy):
        holds_while_raising()


def test_references_are_neither_lost_nor_kept():
    source = np.arange(3.0)
    field = pa.field("x", pa.int64())
    gc.collect()
    objects = [source, SOURCE, field, None, True]
    before = [sys.getrefcount(one) for one in objects]
    for _ in range(100):
        ad.from_dlpack(source, copy=None)
        ad.to_arrow(source, type=field, copy=None)
        ad.to_tensor(SOURCE, copy=True, nulls="keep")
        ad.explain(SOURCE)
        with pytest.raises(ad.CopyError):
            ad.to_tensor(SOURCE, copy=False, writable=True)
    gc.collect()
    after = [sys.getrefcount(one) for one in objects]
    # The singletons are used by everybody else too, but not hundreds of times more than before.
    assert before[:3] == after[:3]
    assert all(abs(b - a) < 50 for b, a in zip(before[3:], after[3:], strict=True))
