"""`out=` on a device: memory of any library, written on the call's stream, between what comes before and after."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import arrow_dlpack as ad
import driver
import exchange
import fakes
import numpy as np
import producers
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream, Memory, drain

BATCH = pa.record_batch({"x": pa.array([1.5, -2.0, 3.25]), "n": pa.array([4, 5, 6], pa.int16())})
EXPECTED = np.array([[1.5, 4], [-2, 5], [3.25, 6]])


def batch() -> ad.RecordBatch:
    return ad.from_arrow(DeviceArray(BATCH.to_struct_array()).give())


class Out:
    """A writable tensor of another library: some of a block that is full of 77."""

    def __init__(
        self, base: np.ndarray, part: Any = ..., *, dtype: str | None = None, ordinal: int = 0, kind: int = CUDA
    ) -> None:
        self.base, self.part, self.kind = base, part, kind
        view = base[part].view(dtype or base.dtype)
        self.memory = Memory(kind, ordinal)
        self.start = self.memory.place(base.tobytes(order="A"))
        event = driver.Event(self.memory.stream.handle, ordinal)
        self.order = event
        skipped = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        self.tensor = producers.DLPack(
            None,
            versioned=True,
            device=(kind, ordinal),
            dtype=(fakes._DTYPES[view.dtype.kind], view.dtype.itemsize * 8, 1),
            shape=view.shape,
            strides=tuple(stride // view.dtype.itemsize for stride in view.strides),
            address=self.start + skipped,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, self.memory.ordinal)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, **_: Any) -> Any:
        with driver.current(self.memory.ordinal):
            driver.call("cuStreamWaitEvent", driver.Handle(stream), driver.Handle(self.order.handle), 0)
        return self.tensor.capsule()

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """The part that was written, and the whole."""
        driver.synchronize()
        read = driver.read(self.start, self.base.nbytes, driver.LEGACY)
        order = "F" if self.base.flags.f_contiguous and not self.base.flags.c_contiguous else "C"
        whole = np.frombuffer(read, self.base.dtype).reshape(self.base.shape, order=order)
        self.order.close()
        return whole[self.part], whole


def filled(shape: tuple[int, ...], dtype: str = "f8", order: Any = "C") -> np.ndarray:
    return np.full(shape, 77, dtype, order=order)


LAYOUTS: dict[str, tuple[np.ndarray, Any]] = {
    "C": (filled((3, 2)), ...),
    "F": (filled((3, 2), order="F"), ...),
    "wide rows": (filled((3, 5)), np.s_[:, :2]),
    "wide rows, right": (filled((3, 5)), np.s_[:, 3:]),
    "every third row": (filled((9, 2)), np.s_[::3]),
    "long columns": (filled((8, 2), order="F"), np.s_[2:5]),
    "f4": (filled((3, 2), "f4"), ...),
    "f2, F": (filled((3, 2), "f2", "F"), ...),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_matrices(name: str) -> None:
    base, part = LAYOUTS[name]
    out = Out(base, part)
    with ad.track_copies() as log:
        assert ad.to_tensor(batch(), out=out) is out
    written, whole = out.read()
    np.testing.assert_array_equal(written, EXPECTED)
    assert (whole == 77).sum() == whole.size - written.size, "what lies between is nobody's"
    assert [entry.bytes for entry in log] == [written.nbytes]


@pytest.mark.parametrize("name", LAYOUTS)
def test_explain_says_what_is_written(name: str) -> None:
    base, part = LAYOUTS[name]
    out = Out(base, part)
    report = ad.explain(batch(), out=out)
    assert (out.read()[1] == 77).all(), "nothing is written"
    [matrix] = report.matrices
    assert (matrix.how, matrix.dtype, matrix.shape) == ("copy", str(base.dtype), (3, 2))
    with ad.track_copies() as log:
        ad.to_tensor(batch(), out=Out(base, part))
    assert [(entry.why, entry.bytes) for entry in log] == [(", ".join(matrix.steps), report.bytes)]


def test_explain_says_why_nothing_can_be_written() -> None:
    cases: list[tuple[Any, tuple[int, int], dict[str, Any]]] = [
        (np.zeros, (3, 2), {}),
        (np.zeros, (4, 2), {"device": "cpu"}),
        (lambda shape: Out(filled(shape)), (4, 2), {}),
        (lambda shape: Out(filled(shape)), (3, 2), {"copy": False}),
        (lambda shape: Out(filled(shape)), (3, 2), {"device": "cpu"}),
    ]
    for out, shape, options in cases:
        [matrix] = ad.explain(batch(), out=out(shape), **options).matrices
        with pytest.raises(ad.ConversionError) as caught:
            ad.to_tensor(batch(), out=out(shape), **options)
        assert matrix.error == str(caught.value), options
    [matrix] = ad.explain(batch(), out=np.zeros((3, 2)), device="cpu").matrices
    assert matrix.how == "copy"


def test_explain_of_streams_says_what_kernels_do() -> None:
    def given(data: pa.Array) -> ad.ArrayStream:
        return ad.from_arrow(DeviceStream([DeviceArray(data)]).give())

    column = given(pa.array([1, None]))
    [row] = ad.explain(column, validity=True)
    assert (str(row.device), row.kernel) == ("cuda:0", True)
    assert ad.validity(column).device == row.device
    batches = given(BATCH.to_struct_array())
    [matrix] = ad.explain(batches, out=Out(filled((3, 2)))).matrices
    assert (str(matrix.device), matrix.kernel, matrix.error) == ("cuda:0", True, None)
    assert ad.to_tensor(batches, out=Out(filled((3, 2)))) is not None


def test_streams_that_come_to_the_host_are_written_there() -> None:
    def given() -> ad.ArrayStream:
        return ad.from_arrow(DeviceStream([DeviceArray(BATCH.to_struct_array())]).give())

    out = np.zeros((3, 2))
    ad.to_tensor(given(), out=out, device="cpu")
    np.testing.assert_array_equal(out, EXPECTED)
    stream = given()
    with pytest.raises(ad.ConversionError, match="out is on cpu, and the data on cuda:0"):
        ad.to_tensor(stream, out=out)
    assert ad.explain(stream, out=out).matrices[0].error.startswith("out is on cpu, and the data on cuda:0")
    assert ad.to_tensor(stream).shape == (3, 2), "nothing was read of it"


def test_tables_of_chunks() -> None:
    chunks = [BATCH.slice(0, 1), BATCH.slice(1, 0), BATCH.slice(1)]
    stream = DeviceStream([DeviceArray(chunk.to_struct_array()) for chunk in chunks])
    out = Out(filled((3, 4)), np.s_[:, 1:3])
    ad.to_tensor(ad.from_arrow(stream.give()), out=out)
    np.testing.assert_array_equal(out.read()[0], EXPECTED)


NUMBERS = pa.array([1, None, 3, 4], pa.int32())
LISTS = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))
COLUMNS: dict[str, tuple[pa.Array, np.ndarray, Any, list[Any]]] = {
    "dense": (NUMBERS, filled((4,), "i4"), ..., [1, 0, 3, 4]),
    "cast": (NUMBERS, filled((4,), "f4"), ..., [1, 0, 3, 4]),
    "slice": (NUMBERS[1:], filled((3,), "i4"), ..., [0, 3, 4]),
    "every second": (NUMBERS, filled((8,), "i8"), np.s_[::2], [1, 0, 3, 4]),
    "bits": (pa.array([True, False, None, True]), filled((4,), "u1").view("?"), ..., [True, False, False, True]),
    "bits apart": (pa.array([True, None]), filled((6,), "u1").view("?"), np.s_[::3], [True, False]),
    "lists": (LISTS, filled((3, 2), "i4"), ..., [[1, 2], [3, 4], [5, 6]]),
    "lists apart": (LISTS, filled((3, 5), "i4"), np.s_[:, 1:3], [[1, 2], [3, 4], [5, 6]]),
    "lists apart, cast": (LISTS, filled((6, 2), "f2"), np.s_[::2], [[1, 2], [3, 4], [5, 6]]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns(name: str) -> None:
    data, base, part, expected = COLUMNS[name]
    out = Out(base, part)
    assert ad.to_tensor(DeviceArray(data).give(), out=out, nulls=0) is out
    written, whole = out.read()
    assert written.tolist() == expected
    assert (whole.view("u1") == base.view("u1")).sum() >= whole.nbytes - written.nbytes


@pytest.mark.parametrize("start", [0, 1])
def test_complex_elements_start_at_a_whole_one(start: int) -> None:
    pairs = DeviceArray(pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)))
    # Aligned to its parts, as complex numbers in host memory need be.
    out = Out(filled((6,)), np.s_[start : start + 4], dtype="c16")
    if start:
        with pytest.raises(ad.ConversionError, match="out is not aligned to the 16 bytes of a complex128"):
            ad.to_tensor(pairs.give(), dtype="complex128", out=out)
        assert (out.read()[1] == 77).all()
    else:
        ad.to_tensor(pairs.give(), dtype="complex128", out=out)
        assert out.read()[1].tolist() == [1, 2, 3, 4, 77, 77]


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (lambda: Out(filled((3, 4)), np.s_[:, ::2]), "dense"),
        (lambda: Out(filled((3, 2)), np.s_[::-1]), "strides"),
        (lambda: Out(filled((2, 3))), "shape"),
        (lambda: Out(filled((3,))), "shape"),
        (lambda: Out(filled((3, 2)), ordinal=1), "on cuda:1, and the data on cuda:0"),
        (lambda: np.zeros((3, 2)), "on cpu, and the data on cuda:0"),
    ],
    ids=["every second column", "backwards", "(2, 3)", "1-d", "another device", "host memory"],
)
def test_others_are_refused(out: Any, error: str) -> None:
    target = out()
    with pytest.raises(ad.ConversionError, match=error):
        ad.to_tensor(batch(), out=target)
    if isinstance(target, Out) and target.memory.ordinal == 0:
        assert (target.read()[1] == 77).all()


def test_a_view_of_arrow_is_read_only() -> None:
    view = ad.to_tensor(DeviceArray(pa.array([1.0, 2.0])).give())
    source = DeviceArray(pa.array([1.0, 2.0]))
    with pytest.raises(ad.ConversionError, match="read-only"):
        ad.to_tensor(source.give(), out=view)
    # `out` is checked before the source is asked for its array.
    source.node.expected = 0


def test_out_over_the_data_is_refused() -> None:
    source = DeviceArray(pa.array([1.0, 2.0, 3.0]))
    array = ad.from_arrow(source.give())
    out = Out(filled((3,)))
    out.tensor.managed.dl_tensor.data = source.addresses[1]
    with pytest.raises(ad.ConversionError, match="overlaps"):
        ad.to_tensor(array, out=out)


def test_data_of_the_host_is_not_written_to_a_device() -> None:
    with pytest.raises(BufferError, match="out is on cuda:0, and the data on the CPU"):
        ad.to_tensor(BATCH, out=Out(filled((3, 2))))


@pytest.mark.parametrize("kind", [CUDA_HOST, CUDA_MANAGED])
def test_data_in_memory_that_the_host_sees(kind: int) -> None:
    out = Out(filled((3, 2)))
    ad.to_tensor(DeviceArray(BATCH.to_struct_array(), kind).give(), out=out)
    np.testing.assert_array_equal(out.read()[0], EXPECTED)


def test_misfits_and_nulls_are_refused() -> None:
    with pytest.raises(ad.CastError) as raised:
        ad.to_tensor(DeviceArray(pa.array([1, 300])).give(), out=Out(filled((2,), "u1")))
    assert (raised.value.row, "300" in str(raised.value)) == (1, True)
    with pytest.raises(ad.NullError):
        ad.to_tensor(DeviceArray(pa.array([1, None])).give(), out=Out(filled((2,), "i8")))
    with pytest.raises(ad.CopyError):
        ad.to_tensor(batch(), out=Out(filled((3, 2))), copy=False)


class Kept(fakes.Torch):
    """A tensor that its maker keeps: the memory is not free when a capsule is released."""

    let_go = 0

    def free(self) -> None:
        self.let_go += 1


def test_out_is_written_behind_its_producer(pool: fakes.Pool, host_waits: Any) -> None:
    """The producer's write is under way, and would come later."""
    stream = driver.Stream()
    array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3, 4])).give())
    gate = driver.gate(stream.handle)
    target = Kept(pool, np.zeros(4, "i8"), stream=stream.handle)
    waits = host_waits()
    assert ad.to_tensor(array, out=target) is target
    assert (waits.ours, waits.drivers) == (0, 0)
    driver.open_gate(gate)
    assert driver.read(target.address, 32, driver.LEGACY) == np.array([1, 2, 3, 4]).tobytes()
    driver.drain()
    assert target.let_go == 1


def two_arrays() -> tuple[ad.Array, ad.Array]:
    """What a tensor has, and what is written to it again."""
    first, second = (ad.from_arrow(DeviceArray(pa.array(values)).give()) for values in ([1, 2, 3], [4, 5, 6]))
    return first, second


def test_a_tensor_of_ours_is_written_again(host_waits: Any) -> None:
    """Whoever asks for it afterwards waits for what was written, on a stream that waits for no other."""
    first, second = two_arrays()
    ours, consumer = driver.Stream(), driver.Stream()
    with ad.stream(ours):
        tensor = ad.to_tensor(first, copy=True)
        waits = host_waits()
        gate = driver.gate(ours.handle)
        assert ad.to_tensor(second, out=tensor) is tensor
    held = fakes.cupy(tensor, consumer.handle)
    assert (waits.ours, waits.drivers) == (0, 0)
    driver.open_gate(gate)
    assert driver.read(held.address, 24, consumer.handle) == np.array([4, 5, 6]).tobytes()
    held.release()


def test_a_tensor_of_ours_is_read_before_it_is_written_again(pool: fakes.Pool, host_waits: Any) -> None:
    """A copy of it is under way on another stream, and would come later."""
    first, second = two_arrays()
    reads, writes = driver.Stream(), driver.Stream()
    tensor = ad.to_tensor(first, copy=True)
    driver.synchronize()
    gate = driver.gate(reads.handle)
    with ad.stream(reads):
        kept = ad.from_dlpack(tensor, copy=True)
    waits = host_waits()
    with ad.stream(writes):
        ad.to_tensor(second, out=tensor)
    assert (waits.ours, waits.drivers) == (0, 0)
    driver.open_gate(gate)
    assert np.from_dlpack(kept.to_device("cpu")).tolist() == [1, 2, 3]
    assert np.from_dlpack(tensor.to_device("cpu")).tolist() == [4, 5, 6]


def test_managed_memory_is_written_under_the_name_of_a_device(pool: fakes.Pool) -> None:
    """Whoever knows it by either name waits for what was written."""
    data = ad.from_arrow(DeviceArray(pa.array([1, 2, 3])).give())
    managed = ad.from_dlpack(Out(filled((3,), "i8"), kind=CUDA_MANAGED))
    named = managed.to_device("cuda:0")
    assert (str(managed.device), str(named.device), named.copied) == ("cuda_managed:0", "cuda:0", False)
    ours = driver.Stream()
    gate = driver.gate(ours.handle)
    with ad.stream(ours):
        ad.to_tensor(data, out=named)
    consumers = [driver.Stream() for _ in range(2)]
    held = [fakes.cupy(tensor, stream.handle) for tensor, stream in zip((managed, named), consumers, strict=True)]
    driver.open_gate(gate)
    for one, stream in zip(held, consumers, strict=True):
        assert driver.read(one.address, 24, stream.handle) == np.array([1, 2, 3]).tobytes()
        one.release()


def test_managed_memory_is_read_before_it_is_written_again(pool: fakes.Pool) -> None:
    first, second = two_arrays()
    named = ad.from_dlpack(Out(filled((3,), "i8"), kind=CUDA_MANAGED)).to_device("cuda:0")
    ad.to_tensor(first, out=named)
    driver.synchronize()
    reads, writes = driver.Stream(), driver.Stream()
    gate = driver.gate(reads.handle)
    with ad.stream(reads):
        kept = ad.from_dlpack(named, copy=True)
    with ad.stream(writes):
        ad.to_tensor(second, out=named)
    driver.open_gate(gate)
    assert np.from_dlpack(kept.to_device("cpu")).tolist() == [1, 2, 3]
    assert np.from_dlpack(named.to_device("cpu")).tolist() == [4, 5, 6]


def test_what_another_device_reads_is_read_before_it_is_written_again() -> None:
    """Each device has a default stream by the same number."""
    first, second = two_arrays()
    tensor = ad.to_tensor(first, copy=True)
    driver.synchronize()
    gate = driver.gate(driver.LEGACY, ordinal=1)
    moved = tensor.to_device("cuda:1")
    ad.to_tensor(second, out=tensor)
    driver.open_gate(gate)
    assert np.from_dlpack(moved.to_device("cpu")).tolist() == [1, 2, 3]
    assert np.from_dlpack(tensor.to_device("cpu")).tolist() == [4, 5, 6]


def test_a_later_stream_with_the_handle_of_another_waits_for_it() -> None:
    """A copy is under way on a stream that was destroyed, whose handle the next stream may get."""
    first, second = two_arrays()
    tensor = ad.to_tensor(first, copy=True)
    driver.synchronize()
    reads, before = driver.Stream(), driver.Stream()
    gate = driver.gate(before.handle)
    reads.wait(event := driver.Event(before.handle))
    with ad.stream(reads.handle):
        kept = ad.from_dlpack(tensor, copy=True)
    handle = reads.handle
    reads.close()
    event.close()
    writes = driver.Stream()
    if writes.handle != handle:
        pytest.skip("the driver gives a new handle each time, but with SIMULATED_CUDA_REUSE=1")
    with ad.stream(writes.handle):
        ad.to_tensor(second, out=tensor)
    driver.open_gate(gate)
    assert np.from_dlpack(kept.to_device("cpu")).tolist() == [1, 2, 3]
    assert np.from_dlpack(tensor.to_device("cpu")).tolist() == [4, 5, 6]


@pytest.mark.parametrize("validity", [False, True])
def test_an_array_over_memory_that_is_written_again(validity: bool) -> None:
    """Its event is that of several parts with a validity. Whoever asks waits for the later write in both cases."""
    first, second = two_arrays()
    mask = ad.to_tensor(ad.from_arrow(DeviceArray(pa.array([True, False, True])).give()))
    tensor = ad.to_tensor(first, copy=True)
    array = ad.to_arrow(tensor, validity=mask) if validity else ad.to_arrow(tensor)
    driver.synchronize()
    ours, consumer = driver.Stream(), driver.Stream()
    gate = driver.gate(ours.handle)
    with ad.stream(ours):
        ad.to_tensor(second, out=tensor)
    held = fakes.cupy(ad.to_tensor(array, nulls="keep", copy=False), consumer.handle)
    driver.open_gate(gate)
    assert driver.read(held.address, 24, consumer.handle) == np.array([4, 5, 6]).tobytes()
    held.release()


def test_names_of_memory_without_an_event_wait_for_what_is_written() -> None:
    """The memory is written under its first name, after it was given another."""
    data = ad.from_arrow(DeviceArray(pa.array([1, 2, 3])).give())
    memory = driver.allocate_managed(24)
    interface = {"shape": (3,), "typestr": "<i8", "data": (memory, False), "version": 3, "stream": None}
    managed = ad.from_dlpack(SimpleNamespace(__cuda_array_interface__=interface))
    assert str(managed.device) == "cuda_managed:0"
    named = managed.to_device("cuda:0")
    ours, consumer = driver.Stream(), driver.Stream()
    gate = driver.gate(ours.handle)
    with ad.stream(ours):
        ad.to_tensor(data, out=managed)
    held = fakes.cupy(named, consumer.handle)
    driver.open_gate(gate)
    assert driver.read(held.address, 24, consumer.handle) == np.array([1, 2, 3]).tobytes()
    held.release()
    del managed, named
    driver.drain()
    driver.free(memory)


class Failing:
    def allocate(self, nbytes: int, stream: Any) -> int:
        raise MemoryError("nothing is asked of it")

    def deallocate(self, pointer: int, nbytes: int, stream: Any) -> None: ...


def test_an_allocator_is_for_results_alone() -> None:
    data, base, part, expected = COLUMNS["lists apart"]
    out = Out(base, part)
    ad.to_tensor(DeviceArray(data).give(), out=out, nulls=0, allocator=Failing())
    assert out.read()[0].tolist() == expected


def test_out_is_kept_until_it_was_written(pool: fakes.Pool) -> None:
    """The target is let go of while the kernel waits: its memory would be reused at once."""
    array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3, 4])).give())
    ours = driver.Stream()
    gate = driver.gate(ours.handle)
    target = fakes.Torch(pool, np.zeros(4, "i8"), stream=driver.LEGACY)
    with ad.stream(ours):
        ad.to_tensor(array, out=target)
    for _ in range(8):
        ad.collect()
    assert pool.freed == 0
    driver.open_gate(gate)
    drain()
    assert pool.freed == 1


class WithTable(Kept):
    """One whose library names the stream that it works on."""

    __dlpack_c_exchange_api__ = exchange.TABLE


@pytest.mark.parametrize("named", [False, True])
def test_the_librarys_stream_waits(pool: fakes.Pool, host_waits: Any, monkeypatch: Any, named: bool) -> None:
    """What the library queues next finds what was written."""
    array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3, 4])).give())
    ours, theirs = driver.Stream(), driver.Stream()
    monkeypatch.setattr(exchange.Array, "stream", theirs.handle)
    target = WithTable(pool, np.zeros(4, "i8"), stream=theirs.handle)
    waits = host_waits()
    gate = driver.gate(ours.handle if named else driver.LEGACY)
    with ad.stream(ours) if named else nullcontext():
        ad.to_tensor(array, out=target)
    assert (waits.ours, waits.drivers) == (0, 0)
    driver.open_gate(gate)
    assert driver.read(target.address, 32, theirs.handle) == np.array([1, 2, 3, 4]).tobytes()
    driver.drain()


def test_a_library_that_works_in_another_context_does_not_fail_what_is_written(
    pool: fakes.Pool, monkeypatch: Any
) -> None:
    array = ad.from_arrow(DeviceArray(pa.array([1, 2, 3, 4])).give())
    theirs = driver.Stream()
    monkeypatch.setattr(exchange.Array, "stream", driver.Stream(1).handle)
    target = WithTable(pool, np.zeros(4, "i8"), stream=theirs.handle)
    ad.to_tensor(array, out=target)
    assert driver.read(target.address, 32, driver.LEGACY) == np.array([1, 2, 3, 4]).tobytes()
    driver.drain()
