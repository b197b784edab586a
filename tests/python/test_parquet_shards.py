"""`parquet_shards`: what is kept of files between their shards, and for how long."""

import os
import pickle
import signal
import sys
import threading
import types
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import arrow_dlpack._shards as module
import pyarrow as pa
import pytest
from loader_reference import numbered, rows_of
from test_loader_process import forked

parquet = pytest.importorskip("pyarrow.parquet")
FILE = parquet.ParquetFile


@pytest.fixture(autouse=True)
def parsed(monkeypatch: Any) -> list[str]:
    """The files of which the footer is parsed, in an empty cache."""
    found: list[str] = []
    open_file = parquet.ParquetFile

    def noting(path: str, metadata: Any = None, **options: Any) -> Any:
        if metadata is None:
            found.append(Path(path).name)
        return open_file(path, metadata=metadata, **options)

    monkeypatch.setattr(parquet, "ParquetFile", noting)
    monkeypatch.setattr(module, "_footers", {})
    return found


def written(path: Path, table: pa.Table, rows: int = 10) -> Path:
    parquet.write_table(table, path, row_group_size=rows)
    return path


def read(shards: Any) -> list[int]:
    return [row for batch in ad.Loader(sources=shards, batch_size=7) for row in rows_of(batch)]


def test_a_footer_is_parsed_once_for_all_row_groups(tmp_path: Path, parsed: list[str]):
    path = written(tmp_path / "a.parquet", numbered(200))
    shards = ad.parquet_shards(path)
    assert len(shards) == 20
    for _ in range(2):
        assert read(shards) == list(range(200))
    assert parsed == ["a.parquet"]


def test_it_is_of_a_process_and_of_no_pickle(tmp_path: Path, parsed: list[str]):
    path = written(tmp_path / "a.parquet", numbered(2000), rows=2)
    shards = ad.parquet_shards(path)
    assert len(pickle.dumps(shards[0])) < 500
    module._footers.clear()
    assert read(pickle.loads(pickle.dumps(shards))) == list(range(2000))
    assert parsed == ["a.parquet"] * 2


def test_a_file_that_was_written_again_is_parsed_again(tmp_path: Path, parsed: list[str]):
    path = written(tmp_path / "a.parquet", numbered(20))
    shards = ad.parquet_shards(path)
    assert read(shards) == list(range(20))
    # As large, and of as many rows.
    before = os.stat(path)
    written(path, pa.table({"row": range(100, 120)}))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert read(shards) == list(range(100, 120))
    assert parsed == ["a.parquet"] * 2


def test_footers_are_bounded(tmp_path: Path, parsed: list[str], monkeypatch: Any):
    paths = [written(tmp_path / f"{number}.parquet", numbered(20)) for number in range(6)]
    size = parquet.read_metadata(paths[0]).serialized_size
    parsed.clear()
    monkeypatch.setattr(module, "_FOOTER_BYTES", 2 * size + size // 2)
    shards = ad.parquet_shards(paths)
    assert read(shards) == list(range(20)) * 6
    assert [Path(key[0]).name for key in module._footers] == ["4.parquet", "5.parquet"]
    # Those of the last two were there already, until the first ones were parsed again.
    assert parsed == [f"{number}.parquet" for number in range(6)] * 2


def test_what_is_no_file_of_this_machine_is_left_to_the_reader(monkeypatch: Any):
    opened: list[str] = []
    monkeypatch.setattr(parquet, "ParquetFile", opened.append)
    module._opened(parquet, "s3://bucket/a.parquet")
    assert (opened, module._footers) == (["s3://bucket/a.parquet"], {})


def test_an_empty_file_is_a_shard_without_rows(tmp_path: Path):
    table = pa.table({"i": [1, 2, 3], "tag": pa.array(["x", "y", "x"]).dictionary_encode()})
    parquet.write_table(table[:0], tmp_path / "a.parquet")
    parquet.write_table(table, tmp_path / "b.parquet")
    shards = ad.parquet_shards([tmp_path / "b.parquet", tmp_path / "a.parquet", tmp_path / "b.parquet"])
    batches = list(ad.Loader(sources=shards, batch_size=4, columns={"i": "i"}, xp="numpy"))
    assert [batch["i"].tolist() for batch in batches] == [[1, 2, 3, 1], [2, 3]]
    first = ad.Loader(sources=shards[1:], batch_size=4, columns={"i": "i"}, xp="numpy")
    assert [batch["i"].tolist() for batch in first] == [[1, 2, 3]]
    assert pa.array(ad.categories(shards, "tag")).to_pylist() == ["x", "y"]


def test_a_file_without_rows_has_the_columns_that_are_asked_for(tmp_path: Path):
    """Also where their type is not told: paths and names with dots may be parts of structs."""
    table = pa.table({"a.b": pa.array([], pa.int64()), "s": pa.array([], pa.struct({"x": pa.int8(), "y": pa.int8()}))})
    parquet.write_table(table, tmp_path / "a.parquet")
    for columns, names in (([], []), (["a.b"], ["a.b"]), (["s.x"], ["s.x"]), (["s", "a.b"], ["a.b", "s.y"])):
        [(shard, rows)] = ad.parquet_shards(tmp_path / "a.parquet", columns=columns)
        assert (rows, list(ad.Loader(sources=[(shard, rows)], batch_size=4, columns=names, dtype="int8"))) == (0, [])
        assert {name.partition(".")[0] for name in columns} == {
            name.partition(".")[0] for batch in shard() for name in batch.schema.names
        }


def test_of_the_columns_that_are_passed_a_loader_reads_those_that_it_names(tmp_path: Path, monkeypatch: Any):
    path = written(tmp_path / "a.parquet", pa.table({"a": range(30), "b": range(30), "c": range(30)}))
    asked: list[Any] = []
    read_batches = FILE.iter_batches

    def noting(file: Any, *, columns: Any = None, **options: Any) -> Any:
        asked.append(columns)
        return read_batches(file, columns=columns, **options)

    monkeypatch.setattr(FILE, "iter_batches", noting)
    loader = ad.Loader(sources=ad.parquet_shards(path, columns=["c", "a"]), batch_size=7, columns=["c"])
    assert [row for batch in loader for row in rows_of(batch)] == list(range(30))
    assert asked == [["c"]] * 3
    assert loader.state_dict()["columns"] == ["a", "c"]


def test_names_of_no_column_are_refused(tmp_path: Path):
    table = pa.table({"a": [1], "b": [2], "s": [{"x": 1, "y": 2}], "l": [[1, 2]]})
    parquet.write_table(table, tmp_path / "a.parquet")
    for columns in (["a", "typo"], ["s.z"], ["x"]):
        with pytest.raises(ValueError, match=f"has no column '{columns[-1]}'; its columns are a, b, "):
            ad.parquet_shards(tmp_path / "a.parquet", columns=columns)
    with pytest.raises(TypeError, match=r"a list of names, such as \['ab'\]"):
        ad.parquet_shards(tmp_path / "a.parquet", columns="ab")
    for columns in (["a"], ["s"], ["s.x", "b"], ["l"], []):
        assert len(ad.parquet_shards(tmp_path / "a.parquet", columns=columns)) == 1


def test_threads_may_keep_footers(monkeypatch: Any):
    monkeypatch.setattr(module, "_FOOTER_BYTES", 10)
    footer, errors = types.SimpleNamespace(serialized_size=5), []

    def keep(thread: int) -> None:
        try:
            for number in range(10_000):
                # Some are those of another thread.
                module._keep((str(thread // 2), number, 0, 0, 0), footer)
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=keep, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert (len(module._footers), module._footer_bytes) == (2, 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_fork_while_a_thread_keeps_a_footer_leaves_no_lock(tmp_path: Path, monkeypatch: Any):
    path = written(tmp_path / "a.parquet", numbered(20))
    shards = ad.parquet_shards(path)
    size = module._footer_bytes
    has_it, is_forked = threading.Event(), threading.Event()

    class Footer:
        serialized_size = 10

    class Held(dict):
        def pop(self, *key: Any) -> Any:
            # The thread has the lock, and has taken one footer out of what is counted.
            found = super().pop(*key)
            if threading.current_thread() is thread:
                has_it.set()
                is_forked.wait(60)
            return found

    monkeypatch.setattr(module, "_footers", Held(module._footers))
    [known] = module._footers
    thread = threading.Thread(target=module._keep, args=(known, Footer()))
    thread.start()
    assert has_it.wait(60)

    def child() -> None:
        # Ends a child that waits for ever.
        signal.alarm(60)
        assert (module._footers, module._footer_bytes) == ({}, 0)
        assert read(shards) == list(range(20))
        assert module._footer_bytes == size

    try:
        forked(child)
    finally:
        is_forked.set()
        thread.join(60)
    assert module._footer_bytes == 10


def test_many_footers_take_as_long_as_few_each(parsed: list[str]):
    """The bytes that are kept are counted, not asked of each footer again."""
    asked = 0

    class Footer:
        @property
        def serialized_size(self) -> int:
            nonlocal asked
            asked += 1
            return 1000

    for number in range(20_000):
        module._keep((str(number), 0, 0, 0, 0), Footer())
    assert (asked, len(module._footers)) == (20_000, (8 << 20) // 1000)
