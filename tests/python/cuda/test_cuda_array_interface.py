"""The CUDA array interface: of our tensors, and of objects that have nothing better."""

from __future__ import annotations

import ctypes
import gc

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray
from fakes import CUDA_HOST, MANAGED

VALUES = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture
def stream() -> driver.Stream:
    return driver.Stream()


class TestExport:
    def test_of_what_is_being_written(self, pool, stream, host_waits) -> None:
        gate = driver.gate(stream.handle)
        source = fakes.Torch(pool, VALUES, stream=stream.handle)
        tensor = ad.from_dlpack(source)
        waits = host_waits()
        interface = tensor.__cuda_array_interface__
        assert (waits.ours, waits.drivers) == (0, 0)
        assert interface["stream"] > 2
        expected = {
            "version": 3,
            "shape": (2, 3),
            "typestr": "<f4",
            "strides": None,
            "data": (source.address, False),
            "stream": interface["stream"],
        }
        assert interface == expected
        driver.open_gate(gate)
        assert driver.read(source.address, VALUES.nbytes, interface["stream"]) == VALUES.tobytes()

    def test_of_what_is_written_no_stream_is_needed(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        driver.settle()
        assert tensor.__cuda_array_interface__["stream"] is None

    def test_work_on_the_stream_is_waited_for(self, pool, stream) -> None:
        target = pool.allocate(VALUES.nbytes)
        gate = driver.gate(stream.handle)
        tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
        interface = tensor.__cuda_array_interface__
        driver.copy(target, interface["data"][0], VALUES.nbytes, interface["stream"])
        del tensor
        gc.collect()
        driver.open_gate(gate)
        assert driver.read(target, VALUES.nbytes, interface["stream"]) == VALUES.tobytes()

    def test_an_export_releases_memory(self, pool, stream, monkeypatch) -> None:
        """Without the reaper, what nothing uses any more goes back when the package is called next."""
        monkeypatch.setenv("ARROW_DLPACK_REAPER", "0")
        tensor, other = (ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle)) for _ in range(2))
        gate = driver.gate(driver.LEGACY)
        fakes.cupy(other, driver.LEGACY).release()
        del other
        gc.collect()
        driver.open_gate(gate)
        driver.settle()
        assert pool.freed == 0
        assert tensor.__cuda_array_interface__["stream"] is None
        assert pool.freed == 1

    def test_strides_are_bytes_and_flags_are_told(self, pool, stream) -> None:
        source = fakes.Torch(pool, VALUES, stream=stream.handle, read_only=True)
        source.shape, source.strides = (3, 2), (1, 3)
        interface = ad.from_dlpack(source).__cuda_array_interface__
        assert (interface["shape"], interface["strides"]) == ((3, 2), (4, 12))
        assert interface["data"] == (source.address, True)

    def test_no_elements(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Torch(pool, np.empty((0, 3), "int8"), stream=stream.handle))
        assert tensor.__cuda_array_interface__["data"][0] == 0

    def test_host_memory_has_none(self) -> None:
        tensor = ad.from_dlpack(np.arange(3))
        assert not hasattr(tensor, "__cuda_array_interface__")
        with pytest.raises(AttributeError, match="CUDA devices only"):
            _ = tensor.__cuda_array_interface__

    def test_managed_memory_has_it_and_page_locked_memory_has_none(self) -> None:
        managed, pinned = (ad.to_tensor(DeviceArray(pa.array([1, 2]), kind).give()) for kind in (MANAGED, CUDA_HOST))
        assert managed.__cuda_array_interface__["shape"] == (2,)
        with pytest.raises(AttributeError, match="CUDA devices only"):
            _ = pinned.__cuda_array_interface__

    def test_memory_of_a_device_has_no_array_interface(self, pool, stream) -> None:
        assert not hasattr(ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle)), "__array_interface__")


class TestImport:
    def check(self, tensor: ad.Tensor, stream: driver.Stream | None = None) -> None:
        consumer = stream or driver.Stream()
        held = fakes.cupy(tensor, consumer.handle)
        assert driver.read(held.address, VALUES.nbytes, consumer.handle) == VALUES.tobytes()
        held.release()

    def test_behind_its_stream(self, pool, stream, host_waits) -> None:
        source = fakes.Numba(pool, VALUES, stream=stream.handle)
        waits = host_waits()
        tensor = ad.from_dlpack(source)
        assert (waits.ours, waits.drivers) == (0, 0)
        assert (tensor.shape, tensor.dtype, str(tensor.device), tensor.writable) == ((2, 3), "float32", "cuda:0", True)
        self.check(tensor)

    @pytest.mark.parametrize("number", [driver.LEGACY, driver.PER_THREAD])
    def test_behind_a_default_stream(self, pool, number: int) -> None:
        self.check(ad.from_dlpack(fakes.Numba(pool, VALUES, stream=number)))

    def test_without_a_stream_nothing_has_to_be_waited_for(self, pool, stream) -> None:
        source = fakes.Numba(pool, VALUES, stream=stream.handle, named=None)
        records = driver.calls("cuEventRecord")
        tensor = ad.from_dlpack(source)
        assert driver.calls("cuEventRecord") == records
        # In the order that its producer has seen to.
        self.check(tensor, stream)

    def test_the_object_is_kept(self, pool, stream) -> None:
        tensor = ad.from_dlpack(fakes.Numba(pool, VALUES, stream=stream.handle))
        gc.collect()
        assert pool.freed == 0
        self.check(tensor)
        del tensor
        driver.settle()
        ad.from_dlpack(fakes.Numba(pool, VALUES, stream=stream.handle))
        assert pool.freed >= 1

    def test_strides_and_read_only(self, pool, stream) -> None:
        source = fakes.Numba(pool, VALUES, stream=stream.handle, shape=(3, 2), strides=(4, 12))
        source.interface["data"] = (source.address, True)
        tensor = ad.from_dlpack(source)
        assert (tensor.shape, tensor.strides, tensor.writable) == ((3, 2), (1, 3), False)

    def test_offsets_that_their_owner_changes_are_checked_again(self, pool, stream) -> None:
        """A read-only flag binds us alone."""
        offsets = np.array([0, 2, 3], "int32")
        address = driver.allocate_managed(offsets.nbytes)
        ctypes.memmove(address, offsets.tobytes(), offsets.nbytes)
        source = fakes.Numba(pool, offsets, stream=stream.handle, named=None, data=(address, True))
        imported = ad.from_dlpack(source)
        assert (imported.device.type, imported.writable) == (MANAGED, False)
        rows = ad.Ragged(np.arange(3.0), imported.to_device("cpu"))
        assert len(ad.to_arrow(rows)) == 2
        ctypes.c_int32.from_address(address + 4).value = 1 << 30
        with pytest.raises(ValueError, match=str(1 << 30)):
            ad.to_arrow(rows)
        del imported, rows
        gc.collect()
        driver.drain()
        driver.free(address)

    @pytest.mark.parametrize("address", [0, None])
    def test_no_elements(self, pool, stream, address: int | None) -> None:
        source = fakes.Numba(pool, VALUES, stream=stream.handle, shape=(0, 3), data=(address, False))
        tensor = ad.from_dlpack(source)
        assert (tensor.shape, str(tensor.device)) == ((0, 3), "cuda:0")

    def test_a_stream_that_is_captured(self, pool, stream) -> None:
        source = fakes.Numba(pool, VALUES, stream=stream.handle)
        with driver.capture(stream.handle), pytest.raises(BufferError, match="__cuda_array_interface__ names it"):
            ad.from_dlpack(source)

    def test_as_a_column(self, pool, stream) -> None:
        column = ad.to_arrow(fakes.Numba(pool, VALUES.reshape(6), stream=stream.handle))
        assert column.type == "Float32"
        self.check(ad.to_tensor(fakes.Numba(pool, VALUES.reshape(6), stream=stream.handle)))

    @pytest.mark.parametrize(
        ("changed", "error", "match"),
        [
            ({"mask": ...}, BufferError, "mask"),
            ({"stream": 0}, BufferError, "stream 0"),
            ({"strides": (12, 3)}, BufferError, "multiple"),
            ({"strides": (4,)}, BufferError, "strides"),
            ({"typestr": ">f4"}, BufferError, "typestr"),
            ({"typestr": "<M8"}, BufferError, "typestr"),
            ({"typestr": 4}, TypeError, "typestr"),
            ({"shape": 6}, TypeError, "shape"),
            ({"shape": (-1, 3)}, BufferError, "negative"),
            ({"shape": (1 << 40, 3)}, BufferError, "beyond an allocation"),
            ({"data": 0}, TypeError, "data"),
            ({"data": (0, False)}, BufferError, "NULL|know"),
            ({"data": (64, False)}, BufferError, "know"),
            ({"version": "3"}, TypeError, "version"),
        ],
        ids=repr,
    )
    def test_what_is_wrong_with_it(self, pool, stream, changed, error, match) -> None:
        source = fakes.Numba(pool, VALUES, stream=stream.handle)
        source.interface.update(changed)
        with pytest.raises(error, match=match):
            ad.from_dlpack(source)

    def test_a_stream_of_another_device(self, pool, stream) -> None:
        with pytest.raises(BufferError, match="not of the primary context"):
            ad.from_dlpack(fakes.Numba(pool, VALUES, stream=stream.handle, named=driver.Stream(1).handle))
