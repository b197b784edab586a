"""Data sets of Ray: a `Loader` over the blocks of a split, and a collate function for `iter_torch_batches`."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._native import Loader, from_arrow, to_tensors

__all__ = ["collate", "loader"]


@dataclass(frozen=True)
class _Blocks:
    """Reads an epoch of a split, block by block: slicing blocks into batches is what takes Ray its time."""

    split: Any

    def __call__(self) -> Any:
        blocks = iter(self._tables())
        first = next(blocks, None)
        return self._no_rows() if first is None else _Copies(first, blocks)

    def _no_rows(self) -> Any:
        """No rows of the columns of an empty split, which are those of the others."""
        schema = self.split.schema()
        if schema is None:
            raise ValueError(
                "the split has no rows, and Ray does not know its columns, so there are no batches to make; give each "
                "split rows, such as by streaming_split(n, equal=True)"
            )
        columns = schema.base_schema
        if hasattr(columns, "empty_table"):
            return columns.empty_table()
        # Blocks of pandas.
        pandas = importlib.import_module("pandas")
        types = zip(columns.names, columns.types, strict=True)
        return pandas.DataFrame({name: pandas.Series(dtype=dtype) for name, dtype in types})

    def _tables(self) -> Iterator[Any]:
        for table in self.split.iter_batches(batch_format="pyarrow", batch_size=None):
            if table.num_rows > 0:
                yield table


class _Copies:
    """Blocks as copies: other processes share the memory of the object store, and `arrow` groups would be over it.

    The loader compares the columns of each with those of the first, which a reader of pyarrow would not do.
    """

    def __init__(self, first: Any, blocks: Iterator[Any]) -> None:
        self._first, self._blocks = [first], blocks

    def __iter__(self) -> Iterator[Any]:
        while self._first:
            yield from_arrow(self._first.pop(), copy=True)
            self._first.extend(itertools.islice(self._blocks, 1))


def loader(split: Any, *, batch_size: int, **options: Any) -> Loader[Any]:
    """Returns a `Loader` over the blocks of a split of a data set of Ray.

    split: a `ray.data.DataIterator`: of `ray.train.get_dataset_shard`, `streaming_split`, or `Dataset.iterator()`.
    batch_size, options: as for `Loader`; `xp` is "torch" unless it is passed.

    Blocks are copied out of the object store, so no batch shares memory with another process. Ray deals the rows, so
    `rank`, `world_size` and `worker` are refused: pass `equal=True` to `streaming_split`, and `drop_last=True` here, so
    that each worker has as many batches. Rows come in the same order again only if Ray preserves it
    (`DataContext.execution_options.preserve_order`) and there is one split; else a state cannot be resumed, and a
    resumed `Loader` raises an error. Codes of dictionaries differ from block to block: pass `categories`.

    Raises TypeError for `rank`, `world_size`, `worker`, `sources`, `lanes` or `readers`, and what `Loader` raises.
    `iter()` raises ValueError for a split without rows of which Ray does not know the columns.
    """
    for name in ("rank", "world_size", "worker", "sources", "lanes", "readers"):
        if name in options:
            raise TypeError(f"{name}= does not go with a split of Ray, which deals the rows; leave it out")
    if not callable(getattr(split, "iter_batches", None)):
        raise TypeError(f"split must be a DataIterator of Ray, not {type(split).__name__}; pass dataset.iterator()")
    return Loader(_Blocks(split), batch_size=batch_size, **{"xp": "torch", **options})


def collate(**options: Any) -> Any:
    """Returns a collate function for `iter_torch_batches(collate_fn=...)`, as an `ArrowBatchCollateFn` of Ray.

    options: as for `to_tensors`; `xp` is "torch" unless it is passed. Its batches are copies: views would be over the
    object store, whose memory all processes share. `loader` is several times as fast, as it slices no blocks.

    Raises TypeError for `copy`.
    """
    if "copy" in options:
        raise TypeError("copy= is True for batches of Ray, whose memory all processes share; leave it out")
    base = importlib.import_module("ray.data.collate_fn").ArrowBatchCollateFn

    given = {"xp": "torch", **options, "copy": True}
    # No class statement: Ray is needed for the base, and only here.
    return type("Collate", (base,), {"__call__": _collated, "options": given})()


def _collated(self: Any, batch: Any) -> Any:
    """The tensors of a batch of Ray."""
    return to_tensors(batch, **self.options)
