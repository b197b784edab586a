"""Shards of Parquet files: what reads each, and its number of rows."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

_READERS = ("pyarrow.parquet", "duckdb", "polars")

# Footers that this process has parsed: each shard of a file would parse them again. There is no lock, which a fork
# could leave locked: each access of a dict is atomic.
_footers: dict[tuple[str, int, int, int, int], Any] = {}
# The most bytes of footers, as they are in the files.
_FOOTER_BYTES = 32 << 20


def _opened(parquet: Any, path: str) -> Any:
    """A Parquet file of pyarrow, with a footer that was parsed before if the file is as it was."""
    try:
        found = os.stat(path)
    except OSError:
        # Not on this machine, or not there: pyarrow knows.
        return parquet.ParquetFile(path)
    key = (path, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
    known = _footers.get(key)
    file = parquet.ParquetFile(path, metadata=known)
    if known is None:
        _footers[key] = file.metadata
        kept = [(key, metadata.serialized_size) for key, metadata in list(_footers.items())]
        size = sum(size for _, size in kept)
        for oldest, freed in kept:
            if size <= _FOOTER_BYTES:
                break
            _footers.pop(oldest, None)
            size -= freed
    return file


@dataclass(frozen=True)
class _ArrowRowGroup:
    """Reads one row group with pyarrow."""

    path: str
    group: int
    columns: list[str] | None

    def __call__(self) -> Any:
        return self._batches()

    def _batches(self) -> Any:
        parquet = importlib.import_module("pyarrow.parquet")
        with _opened(parquet, self.path) as file:
            yield from file.iter_batches(row_groups=[self.group], columns=self.columns)


@dataclass(frozen=True)
class _DuckFile:
    """Reads a file with DuckDB, in the order of its rows."""

    path: str
    columns: list[str] | None

    def __call__(self) -> Any:
        # A connection of its own: connections are not shared between threads.
        connection = importlib.import_module("duckdb").connect()
        connection.execute("SET preserve_insertion_order = true")
        names = "*" if self.columns is None else ", ".join('"' + name.replace('"', '""') + '"' for name in self.columns)
        return connection.sql(f"SELECT {names} FROM read_parquet(?)", params=[_literal(self.path)])


@dataclass(frozen=True)
class _PolarsFile:
    """Reads a file with polars."""

    path: str
    columns: list[str] | None

    def __call__(self) -> Any:
        polars = importlib.import_module("polars")
        return polars.read_parquet(self.path, columns=self.columns, glob=False)


def _literal(path: str) -> str:
    """A path of DuckDB in which nothing stands for other files."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _by_arrow(parquet: Any, path: str, columns: list[str] | None) -> list[tuple[Callable[[], Any], int]]:
    with _opened(parquet, path) as file:
        metadata = file.metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return [(_ArrowRowGroup(path, group, columns), count) for group, count in enumerate(rows)]


def _by_duckdb(duckdb: Any, path: str, columns: list[str] | None) -> list[tuple[Callable[[], Any], int]]:
    query = "SELECT num_rows FROM parquet_file_metadata(?)"
    [(rows,)] = duckdb.connect().execute(query, [_literal(path)]).fetchall()
    return [(_DuckFile(path, columns), rows)]


def _by_polars(polars: Any, path: str, columns: list[str] | None) -> list[tuple[Callable[[], Any], int]]:
    rows = polars.scan_parquet(path, glob=False).select(polars.len()).collect().item()
    return [(_PolarsFile(path, columns), rows)]


def parquet_shards(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]], *, columns: Sequence[str] | None = None
) -> list[tuple[Callable[[], Any], int]]:
    """Returns shards of Parquet files for `Loader(sources=...)`: callables that read them, with numbers of rows.

    Each row group is a shard if pyarrow is installed, and else each file, which DuckDB or polars reads. The callables
    pickle, and hold the paths. Only the metadata of the files is read here.

    paths: a path, or several in the order of their rows.
    columns: the columns to read; None reads all.

    Raises ImportError if no reader is installed, and the reader's error for a file that it cannot read.
    """
    files = [fspath(paths)] if isinstance(paths, str | PathLike) else [fspath(path) for path in paths]
    names = None if columns is None else list(columns)
    for reader, shards_of in zip(_READERS, (_by_arrow, _by_duckdb, _by_polars), strict=True):
        try:
            module = importlib.import_module(reader)
        except ImportError:
            continue
        return [shard for path in files for shard in shards_of(module, path, names)]
    raise ImportError("parquet_shards() needs a reader of Parquet files; install pyarrow, duckdb or polars")


parquet_shards.__module__ = "arrow_dlpack"
