"""`Loader(device="cuda")`: the batches of the CPU's loader, copied ahead; nothing waits on the host."""

from __future__ import annotations

import gc
import itertools
import json
from typing import Any

import arrow_dlpack as ad
import driver
import exchange
import fakes
import numpy as np
import pyarrow as pa
import pytest
from arrow_dlpack import _native
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream
from device_batches import GROUPS, NULLS, Consumer, host, on_cpu, same, table

PREFETCH = pytest.mark.parametrize("prefetch", [0, 1, 3])


class Device:
    """A device as other libraries name it."""

    def __str__(self) -> str:
        return "cuda:1"


@PREFETCH
@pytest.mark.parametrize("shuffle_buffer", [0, 37])
@pytest.mark.parametrize("columns", [None, ["row", "a"], GROUPS], ids=["all", "some", "groups"])
def test_the_batches_are_those_of_the_cpu(columns: Any, shuffle_buffer: int, prefetch: int, host_waits: Any) -> None:
    source = table(310, 45)
    if columns is None:
        source = source.drop_columns("pair")
    shared: dict[str, Any] = {"batch_size": 32, "columns": columns, "nulls": NULLS, "shuffle_buffer": shuffle_buffer}
    for drop_last, (rank, world_size) in itertools.product([False, True], [(0, 1), (1, 2)]):
        keywords = shared | {"seed": 5, "drop_last": drop_last, "rank": rank, "world_size": world_size}
        expected = on_cpu(source, **keywords)
        consumer, waits = Consumer(), host_waits()
        loader = ad.Loader(source, device="cuda", prefetch=prefetch, **keywords)
        found = [consumer.batch(batch) for batch in loader]
        assert len(found) == len(expected) == len(loader)
        assert all(map(same, found, expected))
        assert waits.ours == 0


@pytest.mark.parametrize("device", ["cuda:1", (2, 1), Device(), ad.Device("cuda:1")], ids=str)
def test_devices_by_name_and_number(device: Any) -> None:
    consumer = Consumer(1)
    found = [consumer.batch(batch) for batch in ad.Loader(table(20, 6), columns=["row"], batch_size=8, device=device)]
    assert [batch.shape[0] for batch in found] == [8, 8, 4]
    assert np.array_equal(np.concatenate(found)[:, 0], np.arange(20))
    assert not driver.has_current_context()


@PREFETCH
def test_several_threads_pack_page_locked_blocks_again_and_again(prefetch: int) -> None:
    """Batches of 2 MiB, each thread writing 1 MiB: the fixture of races fails for a write before the copy ends."""
    values = np.arange(1 << 17, dtype="float32")
    source = pa.table({f"c{at}": values + at for at in range(16)})
    expected = np.stack([column.to_numpy() for column in source.columns], axis=1)
    consumer = Consumer()
    loader = ad.Loader(source, batch_size=1 << 15, device="cuda", prefetch=prefetch, threads=2)
    for _ in range(3):
        found = [consumer.batch(batch) for batch in loader]
        assert np.array_equal(np.concatenate(found), expected)


@PREFETCH
def test_nothing_is_waited_for(prefetch: int, host_waits: Any) -> None:
    """Neither by us nor by the driver, whose batches are all still to be copied when they are handed out."""
    waits, stream = host_waits(), driver.Stream()
    target = driver.allocate(32 * 8)
    for batch in ad.Loader(table(320, 64), columns=["row"], batch_size=32, device="cuda", prefetch=prefetch):
        held = fakes.cupy(batch, stream.handle)
        driver.copy(target, held.address, 32 * 8, stream.handle)
        batch.record_stream(stream)
        held.release()
        del batch, held
    assert (waits.ours, waits.drivers) == (0, 0)
    assert driver.read(target, 32 * 8, stream.handle) == np.arange(288, 320).tobytes()
    driver.free(target)


def test_copies_do_not_wait_for_the_consumer() -> None:
    """What the default stream has to do holds up no batch."""
    gate, stream = driver.gate(driver.LEGACY), driver.Stream()
    found = driver.allocate_host(100 * 8)
    for index, batch in enumerate(ad.Loader(table(100, 30), columns=["row"], batch_size=10, device="cuda")):
        held = fakes.cupy(batch, stream.handle)
        driver.copy_to_host(found + index * 80, held.address, 80, stream.handle)
        batch.record_stream(stream)
        held.release()
    driver.synchronize_stream(stream.handle)
    assert fakes.bytes_at(found, 800) == np.arange(100).tobytes()
    driver.open_gate(gate)
    driver.free_host(found)


@PREFETCH
def test_few_blocks_are_used_again_and_again(prefetch: int) -> None:
    consumer = Consumer()

    def epoch(rows: int) -> None:
        for batch in ad.Loader(
            table(rows, 50), columns=GROUPS, nulls=NULLS, batch_size=16, device="cuda", prefetch=prefetch
        ):
            consumer.batch(batch)

    def live() -> list[int]:
        gc.collect()
        driver.settle()
        assert _native.collect() == 0
        return [driver.live(kind) for kind in ("device", "streams", "pools")]

    epoch(320)
    before, pinned = live(), driver.live("pinned")
    for _ in range(5):
        epoch(1600)
    assert live() == before
    # By the schedule a few slots more may be under copies at once, each with a block for every group.
    assert driver.live("pinned") <= pinned + 3 * 8


@PREFETCH
def test_held_batches_are_their_own(prefetch: int) -> None:
    source, consumer = table(600, 70), Consumer()
    keywords: dict[str, Any] = {"columns": GROUPS, "nulls": NULLS, "batch_size": 20}
    expected = on_cpu(source, **keywords)
    held = list(ad.Loader(source, device="cuda", prefetch=prefetch, **keywords))
    assert all(map(same, map(consumer.batch, held), expected))


@PREFETCH
def test_set_epoch_and_states_go_from_device_to_device(prefetch: int) -> None:
    source, consumer = table(200, 33), Consumer()
    keywords: dict[str, Any] = {"columns": ["row"], "batch_size": 16, "shuffle_buffer": 50, "seed": 3}
    on_device = ad.Loader(source, device="cuda", prefetch=prefetch, **keywords)
    on_device.set_epoch(4)
    iterator = iter(on_device)
    first = [consumer.read(next(iterator)) for _ in range(5)]
    state = json.loads(json.dumps(on_device.state_dict()))
    del iterator
    for device, read in (("cpu", host), ("cuda:0", consumer.read), ("cuda_host", host)):
        other = ad.Loader(source, device=device, prefetch=prefetch, **keywords)
        other.load_state_dict(state)
        rest = [read(batch) for batch in other]
        whole = ad.Loader(source, **keywords)
        whole.set_epoch(4)
        assert all(map(same, first + rest, map(host, whole)))


@PREFETCH
@pytest.mark.parametrize("by_table", [False, True])
def test_arrays_of_another_library(prefetch: int, by_table: bool) -> None:
    """The stream that the library works on waits for each batch."""
    stream = driver.Stream()
    exchange.Array.stream = stream.handle
    namespace: Any = exchange if by_table else FakeTorch
    before = exchange.Array.by_table
    loader = ad.Loader(table(64, 10), columns=["row"], batch_size=16, device="cuda", xp=namespace, prefetch=prefetch)
    rows = []
    for array in loader:
        rows.append(np.frombuffer(array.read(16 * 8), "int64"))
        array.close()
    assert np.array_equal(np.concatenate(rows), np.arange(64))
    assert (exchange.Array.by_table > before) == by_table


class FakeTorch:
    """A namespace that is no module: its function alone makes arrays."""

    @staticmethod
    def from_dlpack(x: Any) -> exchange.Array:
        return exchange.from_dlpack(x)


@pytest.mark.parametrize("device", ["cuda", "cuda_host"])
def test_batches_without_bytes(device: str) -> None:
    read = Consumer().batch if device == "cuda" else host
    assert list(ad.Loader(table(0, 1), columns=["a"], batch_size=4, device=device)) == []
    empty = [read(batch) for batch in ad.Loader(table(10, 3), columns=[], dtype="int8", batch_size=4, device=device)]
    assert [batch.shape for batch in empty] == [(4, 0), (4, 0), (2, 0)]


class TestPageLocked:
    @PREFETCH
    @pytest.mark.parametrize("columns", [["row", "a"], GROUPS], ids=["some", "groups"])
    def test_the_batches_are_those_of_the_cpu(self, columns: Any, prefetch: int, host_waits: Any) -> None:
        source = table(310, 45)
        keywords: dict[str, Any] = {"columns": columns, "nulls": NULLS, "batch_size": 32, "shuffle_buffer": 20}
        expected, waits = on_cpu(source, seed=1, **keywords), host_waits()
        loader = ad.Loader(source, device="cuda_host", seed=1, prefetch=prefetch, **keywords)
        found = []
        for batch in loader:
            tensors = list(batch.values()) if isinstance(batch, dict) else [batch]
            assert {tensor.__dlpack_device__() for tensor in tensors} == {(fakes.CUDA_HOST, 0)}
            found.append(host(batch))
        assert all(map(same, found, expected))
        assert (waits.ours, waits.drivers) == (0, 0)

    @PREFETCH
    def test_memory_is_used_again_behind_what_reads_it(self, prefetch: int) -> None:
        """A consumer copies each batch to a device and lets go of it before that is done."""
        targets = []
        for batch in ad.Loader(table(320, 50), columns=["row"], batch_size=16, device="cuda_host", prefetch=prefetch):
            held = fakes.Held(batch.__dlpack__(max_version=(1, 0)))
            targets.append(driver.allocate(16 * 8))
            driver.copy_from_host(targets[-1], held.address, 16 * 8, driver.LEGACY)
            held.release()
            del batch, held
        found = b"".join(driver.read(target, 16 * 8, driver.LEGACY) for target in targets)
        assert found == np.arange(320).tobytes()
        for target in targets:
            driver.free(target)

    @PREFETCH
    @pytest.mark.parametrize("recorded", [False, True])
    def test_memory_is_used_again_behind_what_another_device_reads(self, prefetch: int, recorded: bool) -> None:
        """Page-locked memory is every device's, by whichever device it was asked for."""
        targets = []
        work = driver.Stream(1) if recorded else None
        number = work.handle if work is not None else driver.LEGACY
        for batch in ad.Loader(table(320, 50), columns=["row"], batch_size=16, device="cuda_host", prefetch=prefetch):
            held = fakes.Held(batch.__dlpack__(max_version=(1, 0)))
            if work is not None:
                batch.record_stream(work)
            targets.append(driver.allocate(16 * 8, 1))
            driver.copy_from_host(targets[-1], held.address, 16 * 8, number, 1)
            held.release()
            del batch, held
        found = b"".join(driver.read(target, 16 * 8, number, 1) for target in targets)
        assert found == np.arange(320).tobytes()
        for target in targets:
            driver.free(target, 1)

    @PREFETCH
    @pytest.mark.parametrize("form", ["tensor", "arrow"])
    def test_memory_that_is_viewed_as_the_cpus_is_used_again_behind_what_reads_it(
        self, form: str, prefetch: int
    ) -> None:
        """The driver knows it as page-locked by any name, so that PyTorch copies it to a device without waiting."""
        targets = []
        for batch in ad.Loader(table(320, 50), columns=["row"], batch_size=16, device="cuda_host", prefetch=prefetch):
            if form == "tensor":
                view: Any = np.from_dlpack(batch.to_device("cpu"))
            else:
                view = np.from_dlpack(ad.to_tensor(ad.to_arrow(batch).to_device("cpu")))
            targets.append(driver.allocate(16 * 8))
            driver.copy_from_host(targets[-1], view.ctypes.data, 16 * 8, driver.LEGACY)
            del batch, view
        found = b"".join(driver.read(target, 16 * 8, driver.LEGACY) for target in targets)
        assert found == np.arange(320).tobytes()
        for target in targets:
            driver.free(target)

    @PREFETCH
    def test_behind_a_recorded_stream(self, prefetch: int) -> None:
        stream = driver.Stream()
        targets = []
        for batch in ad.Loader(table(160, 50), columns=["row"], batch_size=16, device="cuda_host", prefetch=prefetch):
            held = fakes.Held(batch.__dlpack__(max_version=(1, 0)))
            batch.record_stream(stream)
            targets.append(driver.allocate(16 * 8))
            driver.copy_from_host(targets[-1], held.address, 16 * 8, stream.handle)
            held.release()
            del batch, held
        found = b"".join(driver.read(target, 16 * 8, stream.handle) for target in targets)
        assert found == np.arange(160).tobytes()
        for target in targets:
            driver.free(target)

    def test_a_batch_that_outlives_its_loader_is_used_again_behind_what_reads_it(self) -> None:
        """Its block has no ring to return to: it serves the next result in page-locked memory."""
        batch = next(iter(ad.Loader(table(16, 16), columns=["row"], batch_size=16, device="cuda_host", prefetch=0)))
        gc.collect()
        held = fakes.Held(batch.__dlpack__(max_version=(1, 0)))
        address, target = held.address, driver.allocate(16 * 8)
        gate = driver.gate(driver.LEGACY)
        driver.copy_from_host(target, address, 16 * 8, driver.LEGACY)
        held.release()
        del batch, held
        other = ad.from_dlpack(np.full(16, -1)).to_device("cuda_host")
        driver.open_gate(gate)
        assert driver.read(target, 16 * 8, driver.LEGACY) == np.arange(16).tobytes()
        assert driver.drain() == 0
        again = ad.from_dlpack(np.full(16, -1)).to_device("cuda_host")
        assert np.from_dlpack(other).ctypes.data != address == np.from_dlpack(again).ctypes.data
        driver.free(target)

    @pytest.mark.parametrize("outlives", [False, True])
    def test_a_batch_that_a_copy_may_read_for_ever_is_not_used_again(self, outlives: bool) -> None:
        """The driver tells the end of the copy neither by an event nor by a query."""
        iterator = iter(ad.Loader(table(64, 64), columns=["row"], batch_size=16, device="cuda_host", prefetch=0))
        batch = next(iterator)
        address, stream = np.from_dlpack(batch).ctypes.data, driver.Stream()
        # Makes what the next copy needs.
        batch.to_device("cuda", stream=stream)
        driver.settle()
        gate = driver.gate(stream.handle)
        driver.fail_from("cuEventRecord", 1, 999)
        driver.fail_from("cuStreamQuery", 1, 999)
        with pytest.raises(BufferError, match="999"):
            batch.to_device("cuda", stream=stream)
        driver.fail_nothing()
        left = [] if outlives else [iterator]
        del batch, iterator
        gc.collect()
        kept = [tensor for one in left for tensor in one]
        kept += [ad.from_dlpack(np.full(16, -1)).to_device("cuda_host") for _ in range(4)]
        assert address not in {np.from_dlpack(tensor).ctypes.data for tensor in kept}
        driver.open_gate(gate)


class TestSourcesOnDevices:
    """Their arrays are copied to the host one by one, when their rows are packed."""

    # What a loader's thread reads of page-locked memory that is not ours, the simulated driver cannot order.
    @pytest.mark.parametrize(("kind", "prefetch"), [(CUDA, 0), (CUDA, 2), (CUDA_HOST, 0), (CUDA_MANAGED, 0)])
    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_the_batches_are_those_of_the_same_data_on_the_host(self, device: str, kind: int, prefetch: int) -> None:
        source = table(100, 23).drop_columns("pair")
        keywords: dict[str, Any] = {"nulls": NULLS, "batch_size": 16, "shuffle_buffer": 30, "seed": 2}
        expected = on_cpu(source, **keywords)
        parts = [pa.array(batch.to_struct_array()) for batch in source.to_batches()]
        stream = DeviceStream([DeviceArray(part, kind) for part in parts], kind)
        with ad.track_copies() as log:
            loader = ad.Loader(stream.give(), device=device, prefetch=prefetch, threads=1, **keywords)
            read = Consumer().read if device == "cuda" else host
            found = [read(batch) for batch in loader]
        assert len(found) == len(expected)
        assert all(map(same, found, expected))
        whys = {entry.why for entry in log.entries if "packed" in entry.why}
        assert all(why.startswith("copied to the host, packed") == (kind != CUDA_HOST) for why in whys)

    @PREFETCH
    def test_a_stream_that_goes_from_device_to_device(self, prefetch: int) -> None:
        rows = [pa.array([{"row": row} for row in range(start, start + 10)]) for start in range(0, 40, 10)]
        stream = DeviceStream([DeviceArray(part, ordinal=index % 2) for index, part in enumerate(rows)])
        consumer = Consumer(1)
        loader = ad.Loader(stream.give(), batch_size=16, device="cuda:1", prefetch=prefetch, threads=1)
        assert np.array_equal(np.concatenate([consumer.read(batch)[:, 0] for batch in loader]), np.arange(40))

    @PREFETCH
    def test_an_array_of_another_type_of_device_is_an_error_at_its_batch(self, prefetch: int) -> None:
        rows = [pa.array([{"row": row} for row in range(start, start + 16)]) for start in range(0, 48, 16)]
        arrays = [DeviceArray(rows[0]), DeviceArray(rows[1]), DeviceArray(rows[2], CUDA_HOST)]
        consumer = Consumer()
        iterator = iter(ad.Loader(DeviceStream(arrays).give(), batch_size=16, device="cuda", prefetch=prefetch))
        found = [consumer.read(next(iterator)) for _ in range(2)]
        assert np.array_equal(np.concatenate(found)[:, 0], np.arange(32))
        with pytest.raises(BufferError, match="cuda_host"):
            next(iterator)
        assert next(iterator, None) is None

    def test_work_of_others_is_not_waited_for(self) -> None:
        """The copy waits for what writes an array, and not for what the default stream has besides."""
        part = DeviceArray(pa.array([{"row": row} for row in range(16)]))
        gate = driver.gate(driver.LEGACY)
        batch = next(iter(ad.Loader(DeviceStream([part]).give(), batch_size=16, threads=1)))
        assert np.array_equal(np.from_dlpack(batch)[:, 0], np.arange(16))
        driver.open_gate(gate)


def test_the_copy_log_tells_of_each_batch() -> None:
    for device, said in (("cuda", "copied to cuda:0"), ("cuda_host", "in page-locked memory"), ("cpu", "packed")):
        with ad.track_copies() as log:
            list(ad.Loader(table(40, 9), columns=["row"], batch_size=16, device=device))
        copies = log.entries
        assert [copied.bytes for copied in copies] == [128, 128, 64]
        assert all(said in copied.why for copied in copies)


@pytest.mark.parametrize("device", ["rocm", "cuda_managed", "metal:0", (2, -3)], ids=str)
def test_other_devices_are_refused_at_once(device: Any) -> None:
    with pytest.raises((BufferError, ValueError)):
        ad.Loader(table(4, 4), columns=["row"], batch_size=2, device=device)


@pytest.mark.parametrize("device", ["cuda:9", "cuda_host:9"])
def test_a_device_that_does_not_exist_is_an_error_when_the_epoch_begins(device: str) -> None:
    loader = ad.Loader(table(4, 4), columns=["row"], batch_size=2, device=device)
    with pytest.raises(BufferError, match="no device cuda:9"):
        iter(loader)
