"""Batches of a loader on a device, and what they have to be: those of the same loader on the CPU, bit for bit."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import producers
import pyarrow as pa


def table(rows: int, chunk: int, seed: int = 0) -> pa.Table:
    """Columns of several types, with nulls, in chunks of so many rows."""
    random = np.random.default_rng(seed)
    whole = pa.table(
        {
            "a": random.standard_normal(rows).astype("float32"),
            "b": pa.array(random.integers(-100, 100, rows, dtype="int16"), mask=random.random(rows) < 0.2),
            "c": pa.array(random.random(rows) < 0.5),
            "row": np.arange(rows, dtype="int64"),
            "pair": pa.FixedSizeListArray.from_arrays(random.standard_normal(2 * rows).astype("float32"), 2),
        }
    )
    return pa.Table.from_batches(whole.to_batches(max_chunksize=chunk), whole.schema)


GROUPS = {"x": ad.group(["a", "b", "c"], validity="valid"), "y": "row", "z": ad.group("pair", validity="pairs valid")}
NULLS = {"b": 7}


class Consumer:
    """Reads on a stream of its own, which does not wait for the legacy default stream."""

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal, self.stream = ordinal, driver.Stream(ordinal)

    def read(self, tensor: Any) -> np.ndarray:
        """What the stream finds in a tensor. It is done with it afterwards."""
        held = fakes.cupy(tensor, self.stream.handle)
        assert held.device == (fakes.CUDA, self.ordinal)
        assert not (held.flags or 0) & producers.READ_ONLY, "it is nobody else's"
        shape = tuple(held.shape or ())
        dtype = np.dtype(tensor.dtype.name if hasattr(tensor.dtype, "name") else str(tensor.dtype))
        nbytes = int(np.prod(shape)) * dtype.itemsize
        data = driver.read(held.address, nbytes, self.stream.handle, self.ordinal) if nbytes else b""
        held.release()
        return np.frombuffer(data, dtype).reshape(shape)

    def batch(self, batch: Any) -> Any:
        if isinstance(batch, dict):
            return {name: self.read(tensor) for name, tensor in batch.items()}
        return self.read(batch)


def host(batch: Any) -> Any:
    """A batch on the CPU, or in page-locked memory, as arrays of NumPy."""
    if isinstance(batch, dict):
        return {name: np.from_dlpack(tensor) for name, tensor in batch.items()}
    return np.from_dlpack(batch)


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in expected)
    return (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


def on_cpu(source: Any, **keywords: Any) -> list[Any]:
    return [host(batch) for batch in ad.Loader(source, **keywords)]
