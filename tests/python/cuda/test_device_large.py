"""Data beyond one step of a kernel's grid, or one staging buffer: against the host; and threads that copy or read."""

from __future__ import annotations

import threading

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray
from test_device_dictionaries import forget
from test_device_out import Out, filled
from test_device_strided import back, placed
from test_kept import look

# The simulated device runs 160 blocks of 256 threads at once: a kernel takes a second step for more.
THREADS = 160 * 256


def test_strided_elements(pool: fakes.Pool) -> None:
    view = np.arange(10 * THREADS, dtype="int32")[::2]
    array = ad.to_arrow(ad.from_dlpack(placed(pool, view)))
    assert back(array).equals(pa.array(view))


def test_columns_of_a_row_major_matrix(pool: fakes.Pool) -> None:
    matrix = np.arange(3 * 2 * THREADS, dtype="float32").reshape(-1, 3)
    batch = ad.to_arrow(ad.from_dlpack(placed(pool, matrix)), names=["a", "b", "c"])
    moved = pa.record_batch(batch.to_device("cpu"))
    assert moved.equals(pa.RecordBatch.from_arrays([pa.array(column) for column in matrix.T], ["a", "b", "c"]))


@pytest.mark.parametrize(("rows", "columns"), [(8_300, 100), (12_000, 64), (180_000, 3)])
def test_rows_with_nulls(rows: int, columns: int) -> None:
    """More tiles than blocks: in strips of columns, in whole rows, and in rows that are no vectors."""
    nulls = np.arange(rows) % 7 == 3
    values = np.arange(rows, dtype="float32")
    arrays = [pa.array(values + index, mask=nulls if index % 3 else None) for index in range(columns)]
    batch = pa.record_batch(arrays, [f"c{index}" for index in range(columns)])
    made = ad.to_tensor(ad.from_arrow(batch).to_device("cuda:0"), nulls=-1)
    np.testing.assert_array_equal(np.from_dlpack(made.to_device("cpu")), np.from_dlpack(ad.to_tensor(batch, nulls=-1)))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["int32", "uint64"])
def test_casts(name: str, order: str) -> None:
    """Frequent ones and others, of more rows than the blocks cast in one step."""
    rows = 4 * THREADS + 1_500
    values = np.arange(rows).astype(name)
    arrays = [pa.array(values + index, mask=values % 7 == 3) for index in range(3)]
    batch = pa.record_batch(arrays, ["a", "b", "c"])
    made = ad.to_tensor(ad.from_arrow(batch).to_device("cuda:0"), nulls=-1, dtype="float32", order=order)
    expected = ad.to_tensor(batch, nulls=-1, dtype="float32")
    np.testing.assert_array_equal(np.from_dlpack(made.to_device("cpu")), np.from_dlpack(expected))


def test_bits() -> None:
    """More than two vectors of 16 bytes for each thread, from the middle of a byte on."""
    bools = pa.array(np.arange(3 * 32 * THREADS + 5) % 5 == 1)[3:]
    made = ad.to_tensor(ad.from_arrow(bools).to_device("cuda:0"))
    np.testing.assert_array_equal(np.from_dlpack(made.to_device("cpu")), np.from_dlpack(ad.to_tensor(bools)))


@pytest.mark.parametrize("length", [2, 10, 12])
@pytest.mark.parametrize("validity", [False, True])
def test_padded_rows(validity: bool, length: int) -> None:
    """A thread places four elements of a row: as one vector, if rows are whole vectors."""
    rows = int(1.5 * THREADS)
    lengths = np.arange(rows) % (length + 1)
    offsets = pa.array(np.concatenate([[0], lengths.cumsum()]).astype("int32"))
    items = pa.array(np.arange(lengths.sum(), dtype="int16"), mask=np.arange(lengths.sum()) % 5 == 0)
    data = pa.ListArray.from_arrays(offsets, items)
    made = ad.to_ragged(DeviceArray(data).give(), pad=(-1, length), nulls="keep" if validity else 7)
    expected = ad.to_ragged(data, pad=(-1, length), nulls="keep" if validity else 7)
    for one, other in zip(made, expected, strict=True):
        assert np.array_equal(np.from_dlpack(one.to_device("cpu")), np.from_dlpack(other))


def test_more_columns_than_a_grid_has_rows_of_blocks(pool: fakes.Pool) -> None:
    matrix = np.arange(2 * (1 << 16) + 2, dtype="int32").reshape(-1, 2).T
    batch = ad.to_arrow(placed(pool, matrix), names=[str(index) for index in range(matrix.shape[1])])
    made = ad.to_tensor(batch, order="F", dtype="int64")
    assert np.array_equal(np.from_dlpack(made.to_device("cpu")), matrix)


def test_rows_with_gaps() -> None:
    rows = THREADS
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3 * rows) % 127, pa.int8()), 3)
    out = Out(filled((rows, 4), "i1"), np.s_[:, :3])
    ad.to_tensor(DeviceArray(lists).give(), out=out)
    written, whole = out.read()
    assert np.array_equal(written.ravel(), np.arange(3 * rows) % 127)
    assert (whole[:, 3] == 77).all()


@pytest.mark.parametrize("null", [None, 20_000_000 - 1, 3])
def test_a_bitmap_of_more_than_a_staging_buffer(null: int | None) -> None:
    rows = 20_000_000
    valid = np.full(rows // 8, 255, "u1")
    if null is not None:
        valid[null // 8] ^= 1 << null % 8
    data = pa.Array.from_buffers(pa.int8(), rows, [pa.py_buffer(valid), pa.py_buffer(np.zeros(rows, "i1"))])
    array = ad.from_arrow(DeviceArray(data, change=forget).give())
    if null is None:
        assert not ad.to_tensor(array).copied
        return
    with pytest.raises(ad.NullError) as caught:
        ad.to_tensor(array)
    assert caught.value.row == null


def test_a_large_page_locked_block_is_not_kept_for_a_small_result(pool: fakes.Pool) -> None:
    large = ad.from_dlpack(fakes.Torch(pool, np.zeros(8 << 20, "u1"), stream=driver.LEGACY))
    small = ad.from_dlpack(fakes.Torch(pool, np.arange(512), stream=driver.LEGACY))
    large.to_device("cuda_host")
    driver.drain()
    made = small.to_device("cuda_host")
    assert ad.memory_stats()["cuda_host"]["used"] < 64 << 10
    assert np.from_dlpack(made).tolist() == list(range(512))


def test_worker_threads_do_not_copy_on_default_streams_of_their_own() -> None:
    values = np.arange(3_000_000)
    stream = driver.Stream()
    with ad.stream(driver.PER_THREAD):
        moved = ad.from_dlpack(values).to_device("cuda", threads=4)
    held = fakes.cupy(moved, stream.handle)
    assert driver.read(held.address, values.nbytes, stream.handle) == values.tobytes()
    held.release()


def test_a_use_on_another_threads_default_stream_is_waited_for(pool: fakes.Pool) -> None:
    tensor = ad.from_dlpack(fakes.Torch(pool, np.arange(1024), stream=driver.LEGACY))
    gates = []

    def use(used: ad.Tensor) -> None:
        with driver.current(0):
            gates.append(driver.gate(driver.PER_THREAD))
        used.record_stream(driver.PER_THREAD)

    thread = threading.Thread(target=use, args=[tensor])
    thread.start()
    thread.join()
    del tensor
    driver.synchronize_stream(driver.LEGACY)
    look()
    assert pool.freed == 0
    driver.open_gate(gates[0])
    driver.drain()
    assert pool.freed == 1
