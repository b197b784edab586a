"""`Loader(device="cuda")` with all forms of groups: what the CPU's loader makes, in order of a consumer's stream."""

from __future__ import annotations

import datetime
from typing import Any

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import DeviceArray
from device_batches import Consumer, host, same

ROWS = 110
CARRIERS = ["AA", "DL", None, "UA"]


def source() -> pa.Table:
    """Lists, strings, categories, an embedding and times, in chunks of 23 rows."""
    random = np.random.default_rng(0)
    first = datetime.datetime(2026, 1, 1)
    whole = pa.table(
        {
            "ids": pa.array(
                [None if row % 9 == 5 else list(range(row % 7)) for row in range(ROWS)], pa.list_(pa.int32())
            ),
            "text": ["é" * (row % 4) + "a" for row in range(ROWS)],
            "carrier": [CARRIERS[row % 4] for row in range(ROWS)],
            "emb": pa.FixedSizeListArray.from_arrays(random.standard_normal(3 * ROWS).astype("float32"), 3),
            "pair": pa.array([[row, -row] for row in range(ROWS)], pa.list_(pa.int16())),
            "at": [first + datetime.timedelta(seconds=row) for row in range(ROWS)],
            "row": np.arange(ROWS, dtype="int64"),
        }
    )
    return pa.Table.from_batches(whole.to_batches(max_chunksize=23), whole.schema)


OPTIONS: dict[str, Any] = {
    "batch_size": 16,
    "columns": {
        "ids": ad.padded("ids", value=-1, lengths="n", validity="mask"),
        "text": ad.ragged("text"),
        "carrier": "carrier",
        "x": ad.group(["emb", "row"], dtype="float32", validity="valid"),
        "times": ad.group(["pair", "at"], dtype="int64"),
        "raw": ad.arrow("text", "row"),
    },
    "nulls": {"carrier": 3, "ids": 0},
    "categories": {"carrier": ["UA", "DL", "AA"]},
    "unit": {"at": "s"},
    "length": {"pair": 2},
    "seed": 5,
}
DENSE = ["ids", "mask", "n", "carrier", "x", "valid", "times"]


def parts(batch: Any) -> dict[str, Any]:
    """The tensors of a batch by name; ragged rows are two of them."""
    ragged = batch["text"]
    return {name: batch[name] for name in DENSE} | {"values": ragged.values, "offsets": ragged.offsets}


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("shuffle_buffer", [0, 37])
def test_the_results_are_those_of_the_cpu(shuffle_buffer: int, prefetch: int) -> None:
    keywords = OPTIONS | {"shuffle_buffer": shuffle_buffer}
    expected = list(ad.Loader(source(), **keywords))
    assert len(expected) == 7
    # What is compared holds what the source has.
    assert any(batch["mask"].shape[1] == 6 for batch in expected)
    consumer, loader = Consumer(), ad.Loader(source(), device="cuda", prefetch=prefetch, **keywords)
    for found, wanted in zip(loader, expected, strict=True):
        assert same(consumer.batch(parts(found)), host(parts(wanted)))
        # Arrow data is passed through where it is.
        assert str(found["raw"].device) == "cpu"
        assert pa.record_batch(found["raw"]).equals(pa.record_batch(wanted["raw"]))
    assert not driver.has_current_context()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_copies_do_not_wait_for_the_default_stream(prefetch: int) -> None:
    columns = {"ids": OPTIONS["columns"]["ids"], "text": OPTIONS["columns"]["text"]}
    stream, gate = driver.Stream(), driver.gate(driver.LEGACY)
    read = driver.allocate_host(110 * 8)
    found = []
    for batch in ad.Loader(source(), **{**OPTIONS, "columns": columns}, device="cuda", prefetch=prefetch):
        held = fakes.cupy(batch["n"], stream.handle)
        driver.copy_to_host(read + 8 * len(found), held.address, 8 * batch["n"].shape[0], stream.handle)
        found += [0] * batch["n"].shape[0]
        batch["n"].record_stream(stream)
        held.release()
    driver.synchronize_stream(stream.handle)
    lengths = np.frombuffer(fakes.bytes_at(read, 880), "int64")
    assert lengths.tolist() == [0 if row % 9 == 5 else row % 7 for row in range(ROWS)]
    driver.open_gate(gate)
    driver.free_host(read)


def test_rows_that_differ_in_length_of_a_source_on_a_device() -> None:
    """They are copied to the host, packed there, and the results back."""
    lists = pa.array([[1, 2], [3], [], [4, 5, 6]] * 10, pa.list_(pa.int64()))
    struct = pa.StructArray.from_arrays([lists], ["ids"])
    columns = {"ids": ad.padded("ids", length=4, lengths="n")}
    expected = list(ad.Loader(struct, batch_size=8, columns=columns))
    consumer = Consumer()
    loader = ad.Loader(ad.from_arrow(DeviceArray(struct).give()), batch_size=8, columns=columns, device="cuda")
    found = [consumer.batch(batch) for batch in loader]
    assert len(found) == 5
    assert all(map(same, found, [host(batch) for batch in expected]))


def test_an_error_of_a_row_ends_the_epoch_and_leaves_nothing() -> None:
    """The memory of batches that were made before it comes back."""
    table = source()
    loader = ad.Loader(
        table,
        device="cuda",
        batch_size=16,
        columns={"ids": ad.padded("ids", length=3), "x": ["row"]},
        nulls={"ids": 0},
    )
    with pytest.raises(ad.ConversionError, match=r'column "ids", row 4\b'):
        list(loader)
    assert driver.drain() == 0
