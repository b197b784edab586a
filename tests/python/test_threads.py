"""Many threads at once: conversions, shared objects, releases on other threads, and a fork."""

import gc
import itertools
import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import arrow_dlpack as ad
import numpy as np
import producers
import pyarrow as pa
import pytest

THREADS = 8


def at_once(work: Callable[[int], object]) -> list:
    """Runs `work` on several threads that start together."""
    barrier = threading.Barrier(THREADS)

    def start(number: int) -> object:
        barrier.wait(30)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start, range(THREADS)))


def test_conversions_side_by_side():
    def convert(number: int) -> bool:
        for size in (10, 1000, 100_000):
            source = pa.array([None if i % 7 == 0 else i + number for i in range(size)])
            expected = source.fill_null(-1).to_numpy()
            tensor = ad.to_tensor(source, nulls=-1, dtype="float64")
            assert (np.from_dlpack(tensor) == expected).all()
            assert pa.array(ad.to_arrow(np.from_dlpack(tensor)))[1].as_py() == 1 + number
        return True

    assert all(at_once(convert))


def test_one_source_for_all():
    source = pa.record_batch({"x": pa.array(range(50_000)), "flag": pa.array([True, None] * 25_000)})
    batch = ad.from_arrow(source)

    def convert(number: int) -> int:
        tensors = ad.to_tensors(batch, nulls={"flag": number % 2 == 0})
        assert np.from_dlpack(tensors["x"]).sum() == sum(range(50_000))
        return int(np.from_dlpack(tensors["flag"]).sum())

    assert at_once(convert) == [50_000 if number % 2 == 0 else 25_000 for number in range(THREADS)]


def test_one_tensor_for_all():
    tensor = ad.to_tensor(pa.array(range(1000)))

    def export(_number: int) -> int:
        total = 0
        for _ in range(200):
            total += int(np.from_dlpack(tensor)[-1]) + len(pa.array(tensor)) + memoryview(tensor)[0]
        return total

    assert at_once(export) == [200 * 1999] * THREADS


def test_a_stream_gives_each_array_to_one_thread():
    source = pa.chunked_array([[i] for i in range(400)])
    stream = ad.from_arrow(source)

    def read(_number: int) -> list[int]:
        mine = []
        while True:
            try:
                array = next(stream, None)
            except ValueError:
                continue  # another thread reads
            if array is None:
                return mine
            mine.append(int(np.from_dlpack(array)[0]))

    read_by_all = at_once(read)
    assert sorted(itertools.chain(*read_by_all)) == list(range(400))


def test_a_capsule_has_one_winner():
    for _ in range(50):
        producer = producers.DLPack()
        capsule = producer.capsule()
        source = producers.Only("__dlpack__", lambda capsule=capsule, **_: capsule)

        def take(_number: int, source=source) -> bool:
            try:
                ad.from_dlpack(source)
            except ValueError:
                return False
            return True

        assert sum(at_once(take)) == 1
        del source, capsule, take
        assert producer.releases == 1


def test_a_stream_has_one_winner():
    for _ in range(50):
        stream = ad.from_arrow(pa.chunked_array([[1]]))

        def take(_number: int, stream=stream) -> int:
            try:
                return ad.to_tensor(stream).size
            except ValueError:
                return 0

        assert sum(at_once(take)) == 1


def test_what_one_thread_makes_another_drops():
    made = [producers.dlpack() for _ in range(THREADS)]
    tensors = [ad.from_dlpack(source) for _, source in made]
    columns = [ad.to_tensor(pa.array(range(1000))) for _ in range(THREADS)]

    def drop(number: int) -> None:
        tensors[number] = columns[number] = None

    at_once(drop)
    assert [producer.releases for producer, _ in made] == [1] * THREADS


def test_logs_are_of_their_thread():
    def convert(number: int) -> int:
        with ad.track_copies() as log:
            for _ in range(10):
                ad.to_tensor(pa.array([True] * (number + 1)))
        return log.bytes

    assert at_once(convert) == [10 * (number + 1) for number in range(THREADS)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_fork_goes_on_converting():
    tensor = ad.to_tensor(pa.array([True] * 100_000), dtype="float32")
    gc.collect()
    with warnings.catch_warnings():
        # Python warns of forks with threads around.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            again = ad.to_tensor(ad.to_arrow(np.arange(100_000)), dtype="float32")
            right = np.from_dlpack(tensor).sum() == 100_000 and np.from_dlpack(again)[-1] == 99_999
        except BaseException:
            right = False
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
