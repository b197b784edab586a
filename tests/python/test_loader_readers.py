"""Several `readers=`: Ctrl-C, the end of the interpreter, forks and errors leave no thread, file or row behind."""

import functools
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest
from loader_reference import deal, lanes_of, loader_threads, numbered, rows_of
from test_loader_process import PRELUDE, forked, run

OPTIONS: dict[str, Any] = {"lanes": 4, "readers": 3, "batch_size": 4}
SHARDS = textwrap.dedent("""
    def shard(number, pause=0.01, entered=None):
        def generate():
            for row in range(0, 1000, 4):
                if entered:
                    entered.set()
                time.sleep(pause)
                yield pa.record_batch({"row": [1000 * number + row + at for at in range(4)]})
        return pa.RecordBatchReader.from_batches(numbered(0).schema, generate())

    def loader_of(pause=0.01, entered=None, prefetch=2):
        import functools
        sources = [(functools.partial(shard, number, pause, entered), 1000) for number in range(4)]
        return ad.Loader(sources=sources, lanes=4, readers=3, batch_size=4, prefetch=prefetch)
""")


def started(code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-X", "dev", "-W", "ignore", "-c", PRELUDE + SHARDS + textwrap.dedent(code)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


AT_EXIT = {
    "in the middle of an epoch": """
        iterator = iter(loader_of())
        next(iterator)
    """,
    "while each reader is in an array": """
        entered = threading.Event()
        iterator = iter(loader_of(0.5, entered))
        entered.wait()
    """,
    "in a daemon thread": """
        begun = threading.Event()
        def work():
            for batch in loader_of():
                begun.set()
        threading.Thread(target=work, daemon=True).start()
        begun.wait()
    """,
}


@pytest.mark.parametrize("case", AT_EXIT)
def test_the_process_ends_well(case: str):
    with started(textwrap.dedent(AT_EXIT[case]) + "\nprint('done', flush=True)\n") as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "done\n", "")


def test_ctrl_c_that_nobody_catches_ends_the_process():
    with started("""
        for batch in loader_of(0.1):
            print("ready", flush=True)
    """) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert "panic" not in errors


def test_ctrl_c_that_is_caught_loses_no_batch():
    """A source holds the next batch back until the signal was seen: none is lost between `next` and the list."""
    with started("""
        resume = threading.Event()
        def held():
            for number, batch in enumerate(shard(0)):
                if number == 5:
                    assert resume.wait(60)
                yield batch
        def first_shard():
            return pa.RecordBatchReader.from_batches(numbered(0).schema, held())
        sources = [(first_shard, 1000), *((lambda number=number: shard(number), 1000) for number in (1, 2, 3))]
        iterator = iter(ad.Loader(sources=sources, lanes=4, readers=3, batch_size=4))
        found = []
        def press():
            while len(found) < 20:
                time.sleep(0.01)
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=press, daemon=True).start()
        interrupted = 0
        while len(found) < 40:
            try:
                found.append(rows_of(next(iterator)))
            except KeyboardInterrupt:
                interrupted += 1
                resume.set()
        expected = [[1000 * (k % 4) + k // 4 * 4 + at for at in range(4)] for k in range(40)]
        print(interrupted, found == expected)
        iterator.close()
        print(loader_threads())
    """) as process:
        output, errors = process.communicate(timeout=120)
    assert (output, errors) == ("1 True\n0\n", "")


def shard_of(number: int, rows: int, closed: list[int] | None = None) -> Iterator[pa.Table]:
    try:
        for start in range(0, rows, 5):
            yield numbered(1000 * number + min(start + 5, rows), 1 << 20).slice(1000 * number + start)
    finally:
        if closed is not None:
            closed.append(number)


class TestForks:
    @pytest.mark.parametrize("taken", [0, 3])
    def test_an_iteration_stays_with_its_process(self, taken: int):
        sources = [(functools.partial(shard_of, number, 40), 40) for number in range(4)]
        loader = ad.Loader(sources=sources, **OPTIONS)
        iterator = iter(loader)
        first = [rows_of(next(iterator)) for _ in range(taken)]
        whole = [[1000 * (k % 4) + k // 4 * 4 + at for at in range(4)] for k in range(40)]

        def child() -> None:
            nonlocal iterator
            with pytest.raises(RuntimeError, match="fork"):
                next(iterator)
            del iterator
            gc.collect()
            # The loader begins its next epoch there, with readers of its own.
            assert [rows_of(batch) for batch in loader] == whole
            assert loader_threads() == 0

        forked(child)
        assert first + [rows_of(batch) for batch in iterator] == whole
        assert loader_threads() == 0


class TestErrors:
    @pytest.mark.parametrize("fails", range(4))
    def test_the_other_readers_end_and_their_shards_are_closed(self, fails: int):
        closed: list[int] = []

        def failing(number: int) -> Iterator[pa.Table]:
            yield from shard_of(number, 20, closed)
            raise OSError(f"shard {number} is gone")

        opens = [functools.partial(failing if n == fails else shard_of, n) for n in range(4)]
        opens = [
            open_shard if n == fails else functools.partial(open_shard, 40, closed)
            for n, open_shard in enumerate(opens)
        ]
        iterator = iter(ad.Loader(sources=[(open_shard, 40) for open_shard in opens], **OPTIONS))
        found = [rows_of(next(iterator)) for _ in range(4 * 5 + fails)]
        with pytest.raises(OSError, match=f"shard {fails} is gone"):
            next(iterator)
        # Those before the batch of the error, which is the sixth of its lane.
        expected = [[1000 * (k % 4) + k // 4 * 4 + at for at in range(4)] for k in range(4 * 5 + fails)]
        assert found == expected
        assert loader_threads() == 0
        gc.collect()
        assert sorted(closed) == [0, 1, 2, 3]

    @pytest.mark.parametrize("taken", [0, 1, 9])
    def test_files_are_closed(self, taken: int, tmp_path: Path):
        parquet = pytest.importorskip("pyarrow.parquet")
        paths = [tmp_path / f"{number}.parquet" for number in range(6)]
        for path in paths:
            parquet.write_table(numbered(200), path, row_group_size=50)
        loader = ad.Loader(sources=ad.parquet_shards(paths), shuffle_buffer=100, seed=1, **OPTIONS)
        iterator = iter(loader)
        for _ in range(taken):
            next(iterator)
        iterator.close()
        gc.collect()
        assert not files() & {str(path) for path in paths}

    def test_consumers_of_several_threads_get_each_batch_once(self):
        sources = [(functools.partial(shard_of, number, 100), 100) for number in range(4)]
        iterator = iter(ad.Loader(sources=sources, **OPTIONS))
        found: list[list[int]] = []

        def consume() -> None:
            for batch in iterator:
                found.append(rows_of(batch))

        threads = [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected, _ = deal(
            lanes_of([100] * 4, 4, shuffle_buffer=0, seed=None, epoch=0, shuffle_shards=False),
            [0] * 4, 0, batch_size=4, world_size=1, drop_last=False,
        )  # fmt: skip
        assert sorted(found) == sorted([[1000 * (r // 100) + r % 100 for r in batch] for batch in expected])


Outcome = tuple[list[list[int]], str | None, int | None]


def outcome(loader: ad.Loader) -> Outcome:
    """The rows of an epoch's batches, the error that ended it, and the rows that it left out."""
    found: list[list[int]] = []
    try:
        for batch in loader:
            found.append(rows_of(batch))
    except ad.ConversionError as error:
        return found, str(error), loader.left_out
    return found, None, loader.left_out


class TestShardsWithOtherRowsThanTheyTold:
    @pytest.mark.parametrize("found", [10, 17])
    @pytest.mark.parametrize("readers", [1, 2])
    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("lying", [0, 1])
    def test_are_found_whichever_reader_has_them(self, lying: int, prefetch: int, readers: int, found: int):
        sources = [(numbered(found if shard == lying else 10), 10) for shard in range(2)]
        loader = ad.Loader(sources=sources, lanes=2, batch_size=5, readers=readers, prefetch=prefetch)
        batches, error, left_out = outcome(loader)
        assert len(batches) == 4
        if found == 10:
            assert (error, left_out) == (None, 0)
        else:
            assert error is not None
            assert error.startswith(f"shard {lying}: the source was said to have 10 rows, and has more")
            assert left_out is None
        assert loader_threads() == 0

    @pytest.mark.parametrize("readers", [1, 2, 4])
    def test_are_waited_for_while_other_readers_have_ended(self, readers: int):
        resume = threading.Event()

        def slow() -> Iterator[pa.Table]:
            yield numbered(10)
            assert resume.wait(60)
            yield numbered(1)

        sources = [(numbered(10), 10), (slow, 10), (numbered(10), 10), (numbered(10), 10)]
        iterator = iter(ad.Loader(sources=sources, lanes=4, batch_size=10, readers=readers))
        assert [len(rows_of(next(iterator))) for _ in range(4)] == [10] * 4
        threading.Timer(0.3, resume.set).start()
        with pytest.raises(ad.ConversionError, match=r"shard 1: .* has more"):
            next(iterator)
        assert next(iterator, None) is None
        assert loader_threads() == 0

    def test_rows_that_the_epoch_leaves_out_are_not_read(self):
        read: list[int] = []

        def opened(number: int) -> Iterator[pa.Table]:
            for start in range(0, 400, 5):
                read.append(number)
                yield numbered(start + 5, 1 << 20).slice(start)

        # Lane 0 has no row left after 25 of its rows, and lane 1 has 375.
        sources = [(functools.partial(opened, 0), 25), (functools.partial(opened, 1), 375)]
        state = ad.Loader(sources=sources, lanes=2, batch_size=5).state_dict() | {"taken": [175, 0]}
        loader = ad.Loader(sources=sources, lanes=2, batch_size=5, readers=2)
        loader.load_state_dict(state)
        batches, error, left_out = outcome(loader)
        assert (len(batches), left_out) == (10, 175)
        assert error is None
        assert len(read) < 80

    @pytest.mark.parametrize("readers", [1, 2])
    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("told", [[0, 20], [20, 0], [10, 0, 10], [5, 0, 15], [0, 0]])
    def test_those_that_told_none_are_found_too(self, told: list[int], prefetch: int, readers: int):
        options = {"batch_size": 5, "readers": readers, "prefetch": prefetch}
        for lanes in (1, 2, 4):
            honest = [(numbered(rows), rows) for rows in told]
            assert outcome(ad.Loader(sources=honest, lanes=lanes, **options))[1:] == (None, 0)
            sources = [(numbered(rows or 7), rows) for rows in told]
            _, error, left_out = outcome(ad.Loader(sources=sources, lanes=lanes, **options))
            assert error is not None
            assert error.startswith(f"shard {told.index(0)}: the source was said to have 0 rows, and has more")
            assert left_out is None

    def test_readers_have_the_outcome_of_one(self):
        chance = random.Random(52)
        raised = 0
        for _ in range(80):
            told = [chance.choice([0, *range(1, 30)]) for _ in range(chance.randint(1, 8))]
            real = [max(0, rows + chance.choice([0, 0, 0, 0, 0, 1, 7, -1])) for rows in told]
            options: dict[str, Any] = {
                "lanes": chance.randint(1, 6), "batch_size": chance.randint(1, 7), "drop_last": chance.random() < 0.3,
                "shuffle_buffer": chance.choice([0, 0, 4, 50]), "seed": 3, "world_size": chance.choice([1, 1, 2, 3]),
            }  # fmt: skip
            tables = [shard_of_rows(number, rows) for number, rows in enumerate(real)]
            sources = list(zip(tables, told, strict=True))
            for rank in range(options["world_size"]):
                expected = outcome(ad.Loader(sources=sources, rank=rank, prefetch=0, **options))
                raised += expected[1] is not None
                for readers in (1, 2, 5):
                    loader = ad.Loader(sources=sources, rank=rank, readers=readers, **options)
                    assert outcome(loader) == expected, (told, real, options, rank, readers)
        assert raised > 20


def shard_of_rows(number: int, rows: int) -> pa.Table:
    return numbered(1000 * number + rows, 1 << 20).slice(1000 * number)


def files() -> set[str]:
    """The files that this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            # That of the folder itself.
            continue
    return found


FILES_OF_DUCKDB = """
import sys
import arrow_dlpack as ad
import duckdb

path = sys.argv[1]
duckdb.connect(path).execute("CREATE TABLE t AS SELECT range AS id FROM range(100000)").close()

def opened():
    return duckdb.connect(path, read_only=True).sql("FROM t ORDER BY id")

for lanes in (1, 2, 3):
    batches = ad.Loader(sources=[(opened, 100_000)], lanes=lanes, batch_size=1000, xp="numpy")
    print(sum(len(batch) for batch in batches))
"""


def test_a_connection_that_a_callable_makes_lives_as_long_as_its_relation_is_read(tmp_path: Path):
    """DuckDB stands still where the same file is opened while a relation is read whose connection is gone."""
    pytest.importorskip("duckdb")
    command = [sys.executable, "-c", FILES_OF_DUCKDB, str(tmp_path / "x.db")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stdout.split()) == (0, ["100000"] * 3), ran.stderr


@pytest.mark.parametrize("prefetch", [0, 2])
def test_what_a_callable_returned_is_let_go_with_the_epoch(prefetch: int):
    class Rows:
        """A source that somebody can refer to weakly."""

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return pa.table({"a": range(10)}).__arrow_c_stream__(requested_schema)

    made: list[Any] = []

    def opened() -> Rows:
        rows = Rows()
        made.append(weakref.ref(rows))
        return rows

    loader = ad.Loader(opened, batch_size=4, prefetch=prefetch, xp="numpy")
    iterator = iter(loader)
    next(iterator)
    assert made[0]() is not None
    list(iterator)
    assert made[0]() is None
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    assert [one() for one in made] == [None, None]


class Opened:
    """A table that counts how many threads export it at once."""

    def __init__(self) -> None:
        self.table, self.now, self.most = pa.table({"id": list(range(400))}), 0, 0

    def __len__(self) -> int:
        return 400

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.005)
        capsule = self.table.__arrow_c_stream__()
        self.now -= 1
        return capsule


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_one_object_is_opened_once_at_a_time(shards: int) -> None:
    """Also where several shards are that object: pyarrow's ParquetFile crashes otherwise."""
    source = Opened()
    shares: dict[str, Any] = {"lanes": 8, "readers": 4, "batch_size": 16, "prefetch": 4}
    loader = ad.Loader(sources=[(source, 400)] * shards, columns=["id"], **shares)
    for _ in range(3):
        assert sum(len(batch) for batch in loader) == 400 * shards
    assert source.most == 1


def test_an_iteration_ends_while_the_thread_that_ends_it_opens_the_source() -> None:
    """The source runs the collector, which ends an older iteration, whose thread waits for its turn to open it."""
    result = run("""
        import faulthandler, gc
        faulthandler.dump_traceback_later(30, exit=True)
        first_ends = threading.Event()

        class Source:
            opened = 0

            def __len__(self):
                return 4

            def rows(self, held):
                yield numbered(4).to_batches()[0]
                if held:
                    assert first_ends.wait(20)

            def __arrow_c_stream__(self, requested_schema=None):
                self.opened += 1
                if self.opened == 2:
                    first_ends.set()
                    time.sleep(1)  # The older iteration's thread asks for its turn, to open the second shard.
                    gc.collect()
                    print("collected", loader_threads())
                reader = pa.RecordBatchReader.from_batches(numbered(0).schema, self.rows(self.opened == 1))
                return reader.__arrow_c_stream__()

        source = Source()
        loader = ad.Loader(sources=[(source, 4), (source, 4)], batch_size=4)
        cycle = [iter(loader)]
        cycle.append(cycle)
        next(cycle[0])
        gc.disable()
        del cycle
        print([rows_of(batch) for batch in loader])
    """)
    assert (result.stdout, result.stderr) == ("collected 0\n[[0, 1, 2, 3], [0, 1, 2, 3]]\n", "")
