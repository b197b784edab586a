"""Shards of Parquet files: what reads each, and its number of rows."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

_READERS = ("pyarrow.parquet", "duckdb", "polars")

# Footers that this process has parsed: each shard of a file would parse them again. Reading threads share them.
_footers: dict[tuple[str, int, int, int, int], tuple[Any, int]] = {}
# The most bytes of footers, as they are in the files; in memory they take about five times as many.
_FOOTER_BYTES = 8 << 20
# How many there are.
_footer_bytes = 0
_lock = threading.Lock()


def _renew() -> None:
    """Makes another lock in a process that was forked while a thread had this one, and counts what that left."""
    global _lock, _footer_bytes
    _lock, _footer_bytes = threading.Lock(), sum(size for _, size in _footers.values())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def _opened(parquet: Any, path: str) -> Any:
    """A Parquet file of pyarrow, with a footer that was parsed before if the file is as it was."""
    try:
        found = os.stat(path)
    except OSError:
        # Not on this machine, or not there: pyarrow knows.
        return parquet.ParquetFile(path)
    key = (path, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
    known, _ = _footers.get(key, (None, 0))
    file = parquet.ParquetFile(path, metadata=known)
    if known is None:
        _keep(key, file.metadata)
    return file


def _keep(key: tuple[str, int, int, int, int], metadata: Any) -> None:
    """Keeps a footer, and frees the oldest where they are too many."""
    global _footer_bytes
    size = metadata.serialized_size
    with _lock:
        # Two threads may have parsed the same one.
        _, before = _footers.pop(key, (None, 0))
        _footer_bytes = _footer_bytes - before + size if _footers else size
        _footers[key] = metadata, size
        while _footer_bytes > _FOOTER_BYTES and _footers:
            _, freed = _footers.pop(next(iter(_footers)))
            _footer_bytes -= freed


@dataclass(frozen=True)
class _ArrowRowGroup:
    """Reads one row group with pyarrow."""

    path: str
    group: int
    columns: list[str] | None

    def __call__(self) -> Any:
        return _ArrowRows(self)


@dataclass(frozen=True)
class _ArrowRows:
    """The rows of a row group, which tell their columns and can be read without some of them."""

    shard: _ArrowRowGroup

    def __iter__(self) -> Iterator[Any]:
        return self.iter_batches()

    @property
    def schema_arrow(self) -> Any:
        """The type of the rows; None where columns of the shard may be parts of structs."""
        parquet = importlib.import_module("pyarrow.parquet")
        with _opened(parquet, self.shard.path) as file:
            schema = file.schema_arrow
        columns = self.shard.columns
        if columns is None:
            return schema
        # pyarrow reads all paths that begin with a name, and names may have dots.
        if not set(columns).issubset(schema.names) or any("." in name for name in schema.names):
            return None
        arrow = importlib.import_module("pyarrow")
        return arrow.schema([field for field in schema if field.name in columns], metadata=schema.metadata)

    def iter_batches(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yields the rows, of these columns alone or of all that the shard has."""
        path, group = self.shard.path, self.shard.group
        columns = self.shard.columns if columns is None else columns
        parquet = importlib.import_module("pyarrow.parquet")
        with _opened(parquet, path) as file:
            is_empty = True
            for batch in file.iter_batches(row_groups=[group], columns=columns):
                is_empty = False
                yield batch
            if is_empty:
                # Without a batch nobody would know the columns.
                table = file.read_row_group(group, columns=columns)
                arrow = importlib.import_module("pyarrow")
                yield arrow.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


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


_OF_FILES = (_ArrowRowGroup, _DuckFile, _PolarsFile)


def _literal(path: str) -> str:
    """A path of DuckDB in which nothing stands for other files."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _check_columns(path: str, metadata: Any, columns: list[str] | None) -> None:
    """Refuses names of no column, which pyarrow leaves out. A name may be a struct's, or the path of a field of one."""
    schema = metadata.schema
    leaves = [schema.column(index).path for index in range(metadata.num_columns)] if columns else []
    for name in columns or ():
        if not any(leaf == name or leaf.startswith(f"{name}.") for leaf in leaves):
            raise ValueError(f"{path} has no column {name!r}; its columns are {', '.join(sorted(set(leaves)))}")


def _by_arrow(parquet: Any, path: str, columns: list[str] | None) -> list[tuple[Callable[[], Any], int]]:
    with _opened(parquet, path) as file:
        metadata = file.metadata
        _check_columns(path, metadata, columns)
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return [(_ArrowRowGroup(path, group, columns), count) for group, count in enumerate(rows)]


def _by_duckdb(duckdb: Any, path: str, columns: list[str] | None) -> list[tuple[Callable[[], Any], int]]:
    query = "SELECT num_rows FROM parquet_file_metadata(?)"
    [(rows,)] = duckdb.connect().execute(query, [_literal(path)]).fetchall()
    return [(_DuckFile(path, columns), rows)]


def _by_polars(polars: Any, path: str, columns: list[str] | None) -> list[tuple[Callable[[], Any], int]]:
    rows = polars.scan_parquet(path, glob=False).select(polars.len()).collect().item()
    return [(_PolarsFile(path, columns), rows)]


def names_of(shards: Any) -> list[str]:
    """The files and row groups of shards, by the names that they have on every machine; empty for other shards."""
    try:
        items = [item[0] if isinstance(item, tuple) and item else item for item in shards or ()]
    except TypeError:
        return []
    folders = {os.path.dirname(item.path) for item in items if isinstance(item, _OF_FILES)}
    try:
        # It may be mounted elsewhere. Within it, folders tell the files of a partitioned data set apart.
        common = os.path.commonpath(folders) if folders else ""
        within = {folder: os.path.relpath(folder or os.curdir, common or os.curdir) for folder in folders}
    except ValueError:
        # Some are relative, or on another drive.
        within = dict.fromkeys(folders, os.curdir)
    return [_name_of(item, within) if isinstance(item, _OF_FILES) else "" for item in items]


def _name_of(shard: _ArrowRowGroup | _DuckFile | _PolarsFile, within: dict[str, str]) -> str:
    folder, file = os.path.split(shard.path)
    name = repr("/".join([part for part in within[folder].split(os.sep) if part != os.curdir] + [file]))
    return f"row group {shard.group} of {name}" if isinstance(shard, _ArrowRowGroup) else name


def parquet_shards(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]], *, columns: Sequence[str] | None = None
) -> list[tuple[Callable[[], Any], int]]:
    """Returns shards of Parquet files for `Loader(sources=...)`: callables that read them, with numbers of rows.

    Each row group is a shard if pyarrow is installed, and else each file, which DuckDB or polars reads. The callables
    pickle, and hold the paths. Only the metadata of the files is read here.

    paths: a path, or several in the order of their rows.
    columns: the columns to read; None reads all. Of the shards that pyarrow reads, a loader reads no other columns
        than it is asked for.

    Raises ImportError if no reader is installed, ValueError or the reader's error for a name of no column, and the
    reader's error for a file that it cannot read.
    """
    files = [fspath(paths)] if isinstance(paths, str | PathLike) else [fspath(path) for path in paths]
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, such as [{columns!r}]")
    names = None if columns is None else list(columns)
    for reader, shards_of in zip(_READERS, (_by_arrow, _by_duckdb, _by_polars), strict=True):
        try:
            module = importlib.import_module(reader)
        except ImportError:
            continue
        return [shard for path in files for shard in shards_of(module, path, names)]
    raise ImportError("parquet_shards() needs a reader of Parquet files; install pyarrow, duckdb or polars")


parquet_shards.__module__ = "arrow_dlpack"
