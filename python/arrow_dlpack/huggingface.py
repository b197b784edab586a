"""Data sets of Hugging Face as shards of a `Loader`."""

from __future__ import annotations

from typing import Any

__all__ = ["shards"]


def shards(dataset: Any, num_shards: int | None = None) -> list[Any]:
    """Returns the shards of a data set of Hugging Face, for `Loader(sources=...)`: consecutive parts, in its order.

    dataset: a `datasets.Dataset`, whose shards tell their rows, or an `IterableDataset`, whose shards do not, so that
        a `Loader` has one lane of them.
    num_shards: how many; None is one for each file of a `Dataset` (one without files is one shard), but no more than
        it has rows, and the `num_shards` of an `IterableDataset`.

    The shards pickle if the data set does, and keep its `select` and `shuffle`. An `IterableDataset` that is not in
    Arrow format is read in that format. Its `skip` and `take` are split over the shards; `interleave_datasets`,
    `repeat`, `batch`, and `map` or `filter` of batches or with indices work within each shard. Such shards have other
    rows than the stream, and those of `repeat` another order: pass such a stream itself as the source.

    Raises TypeError for other objects, such as a `DatasetDict`, and ValueError for fewer than one shard, and for more
    than a `Dataset` has rows or an `IterableDataset` has shards.
    """
    if not callable(getattr(dataset, "shard", None)) or not callable(getattr(dataset, "with_format", None)):
        found = type(dataset).__name__
        hint = "; pass one of its splits, such as dataset['train']" if isinstance(dataset, dict) else ""
        raise TypeError(f"dataset must be a Dataset or an IterableDataset of Hugging Face, not {found}{hint}")
    is_stream = not hasattr(dataset, "__len__")
    rows = 0 if is_stream else len(dataset)
    if num_shards is None:
        # A selection of few rows still names all files.
        num_shards = int(dataset.num_shards) if is_stream else max(min(len(dataset.cache_files), rows), 1)
    if num_shards < 1:
        raise ValueError(f"num_shards must be 1 or more, not {num_shards}")
    if not is_stream and num_shards > max(rows, 1):
        raise ValueError(f"the data set has {rows} rows, and num_shards is {num_shards}; pass as many at most")
    if not is_stream:
        parts = [dataset.shard(num_shards, index, contiguous=True) for index in range(num_shards)]
        return [(part, len(part)) for part in parts]
    if num_shards > dataset.num_shards:
        raise ValueError(
            f"the data set has {dataset.num_shards} shards, and num_shards is {num_shards}; pass as many at most"
        )
    formatted = dataset.with_format("arrow")
    return [formatted.shard(num_shards, index, contiguous=True) for index in range(num_shards)]
