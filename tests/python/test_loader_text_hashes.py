"""Hashes of rows by texts, and of rows that cannot be converted, in a `Loader` that is resumed."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from loader_reference import digest, fold, fold_bytes, samples

ROWS = 100
TICKS = [row * 1_000_003 for row in range(ROWS)]
DATES = [2**31 - 1 - row for row in range(ROWS)]
LATE = [2**62 + row for row in range(ROWS)]


def ticks(values: list[int], data_type: pa.DataType) -> pa.Array:
    """The values as ticks of a type, whatever dates and times they are."""
    width = pa.int32() if data_type.bit_width == 32 else pa.int64()
    return pa.array(values, width).view(data_type)


def lists(values: pa.Array) -> pa.Array:
    """Each value as a list of its own."""
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


ZONED = ticks(TICKS, pa.timestamp("us", "UTC"))
# Columns, and the texts of their values.
COLUMNS: dict[str, tuple[pa.Array, list[str]]] = {
    "utc": (ZONED, list(map(str, TICKS))),
    "named zone": (ticks(TICKS, pa.timestamp("ns", "Europe/Berlin")), list(map(str, TICKS))),
    "no zone": (ticks(TICKS, pa.timestamp("ms")), list(map(str, TICKS))),
    "late timestamp": (ticks(LATE, pa.timestamp("s")), list(map(str, LATE))),
    "late date": (ticks(DATES, pa.date32()), list(map(str, DATES))),
    "late date64": (ticks(LATE, pa.date64()), list(map(str, LATE))),
    "time beyond a day": (ticks(DATES, pa.time32("s")), list(map(str, DATES))),
    "long duration": (ticks(LATE, pa.duration("s")), list(map(str, LATE))),
    "lists": (lists(ZONED), [f"[{value}]" for value in TICKS]),
    "lists of lists": (lists(lists(ZONED)), [f"[[{value}]]" for value in TICKS]),
    "structs": (
        pa.StructArray.from_arrays([ZONED, pa.array(TICKS)], ["t", "n"]),
        [f"{{t: {v}, n: {v}}}" for v in TICKS],
    ),
    "codes": (ZONED.dictionary_encode(), list(map(str, TICKS))),
    "codes in lists": (lists(ZONED.dictionary_encode()), [f"[{value}]" for value in TICKS]),
}


def resumed(table: Any, changed: Any, columns: dict[str, Any], batches: int = 3, **options: Any) -> ad.Loader:
    """A loader of the changed table with the state of a loader of the table."""
    loader = ad.Loader(table, batch_size=20, columns=columns, **options)
    list(itertools.islice(loader, batches))
    other = ad.Loader(changed, batch_size=20, columns=columns, **options)
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    return other


def hashes(rows: int, row_hash: Callable[[int], int]) -> list[list[int]]:
    """The hashes of one shard with so many rows, by the hash of each row."""
    d, count = 0, 0
    for row in itertools.takewhile(rows.__gt__, samples()):
        d = fold(fold(d, row), row_hash(row))
        count += 1
    return [[0, count, d]]


def nulls_of(made: str) -> pa.Array:
    """The values "a", null and "", a hundred times, with the nulls in different places."""
    if made == "null codes":
        return pa.array(["a", None, ""] * 100).dictionary_encode()
    if made == "null values":
        return pa.DictionaryArray.from_arrays(pa.array([1, 0, 2] * 100, pa.int32()), pa.array([None, "a", ""]))
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, 301), pa.int32()), pa.array(["a", None, ""] * 100))


@pytest.mark.parametrize("made", ["null codes", "null values", "runs"])
def test_a_null_is_hashed_as_one_wherever_the_encoding_has_it(made: str):
    loader = ad.Loader(pa.table({"t": nulls_of(made)}), batch_size=20, columns={"t": ad.arrow("t")})
    list(loader)
    text = {0: fold_bytes(fold(0, 1), b"a"), 1: fold(0, 0), 2: fold_bytes(fold(0, 1), b"")}
    assert loader.fingerprint()["hashes"] == hashes(300, lambda row: text[row % 3])


@pytest.mark.parametrize("made", ["null codes", "null values"])
def test_a_null_may_move_from_the_codes_to_the_dictionary(made: str):
    one, other = (pa.table({"t": nulls_of(name)}) for name in ("null codes", made))
    assert len(list(resumed(one, other, {"t": ad.arrow("t")}))) == 12


def test_a_null_row_is_null_in_each_column():
    """Whatever the columns have there."""
    null = pa.array([False, True, False] * 100)
    hidden, other, shown = (
        pa.StructArray.from_arrays([pa.array(["a", text, ""] * 100)], ["t"], mask=mask)
        for text, mask in (("x", null), ("y", null), ("x", None))
    )
    columns = {"t": ad.arrow("t")}
    loader = ad.Loader(hidden, batch_size=20, columns=columns)
    list(loader)
    text = {0: fold_bytes(fold(0, 1), b"a"), 1: fold(0, 0), 2: fold_bytes(fold(0, 1), b"")}
    assert loader.fingerprint()["hashes"] == hashes(300, lambda row: text[row % 3])
    assert len(list(resumed(hidden, other, columns))) == 12
    with pytest.raises(ad.ConversionError, match="rows have changed"):
        next(iter(resumed(hidden, shown, columns)))


def runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), values)


@pytest.mark.parametrize(
    "made",
    [
        lambda values: pa.array(values, pa.binary()),
        lambda values: pa.array(values, pa.large_binary()),
        lambda values: pa.array(values, pa.binary_view()),
        lambda values: pa.array(values, pa.binary()).dictionary_encode(),
        lambda values: pa.array(values, pa.large_binary())[3:],
        lambda values: runs(pa.array(values, pa.binary())),
        lambda values: pa.array([value and value[:1] * 5 for value in values], pa.binary(5)),
    ],
)
def test_the_text_of_bytes_is_their_digits(made: Callable[[list[bytes | None]], pa.Array]):
    column = made([None if row % 10 == 3 else bytes(range(row, 2 * row)) or b"\xff" for row in range(ROWS)])
    loader = ad.Loader(pa.table({"b": column}), batch_size=20, columns={"b": ad.arrow("b")})
    list(loader)
    values = column.to_pylist()

    def row_hash(row: int) -> int:
        return fold(0, 0) if values[row] is None else fold_bytes(fold(0, 1), values[row].hex().encode())

    assert loader.fingerprint()["hashes"] == hashes(len(values), row_hash)


class TestTicks:
    @pytest.mark.parametrize("name", COLUMNS)
    def test_of_arrow_groups_are_hashed(self, name: str):
        column, texts = COLUMNS[name]
        nulls = pa.nulls(1, column.type)
        table = pa.table(
            {"t": pa.chunked_array([nulls, column[1:50], column[50:]]), "x": np.arange(ROWS, dtype="int32")}
        )
        columns = {"t": ad.arrow("t"), "x": "x"}
        loader = ad.Loader(table, batch_size=20, columns=columns)
        list(loader)

        def row_hash(row: int) -> int:
            h = fold_bytes(0, struct.pack("<i", row))
            # A null code of a dictionary is a null, and so is a null list.
            return fold(h, 0) if row == 0 else fold_bytes(fold(h, 1), texts[row].encode())

        assert loader.fingerprint()["hashes"] == hashes(ROWS, row_hash)
        reordered = table.take([0, *reversed(range(1, ROWS))])
        for at, same in (("t", table["x"]), ("x", table["t"])):
            # Only one of the columns has changed.
            one = pa.table({"t": reordered["t"], "x": same} if at == "t" else {"t": same, "x": reordered["x"]})
            with pytest.raises(ad.ConversionError, match="rows have changed"):
                next(iter(resumed(table, one, columns)))
        batch = pa.record_batch(next(iter(resumed(table, table, columns)))["t"])
        assert batch.to_struct_array().field(0)[0] == column[60]

    def test_of_another_unit_are_not_compared(self):
        one, other = (
            pa.table({"t": ticks(TICKS, pa.timestamp(unit, zone))}) for unit, zone in (("us", "UTC"), ("ns", "UTC"))
        )
        assert len(list(resumed(one, other, {"t": ad.arrow("t")}))) == 2
        with pytest.raises(ad.ConversionError, match="verif"):
            next(iter(resumed(one, other, {"t": ad.arrow("t")}, verify="all")))
        zone = pa.table({"t": ticks(TICKS[::-1], pa.timestamp("us", "Asia/Tokyo"))})
        with pytest.raises(ad.ConversionError, match="rows have changed"):
            next(iter(resumed(one, zone, {"t": ad.arrow("t")})))

    @pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
    def test_of_the_values_of_codes_are_hashed(self, zone: str | None):
        values = ticks(TICKS[:10], pa.timestamp("us", zone))
        codes = pa.array([row % 10 for row in range(ROWS)], pa.int8())
        table, changed = (
            pa.table({"t": pa.DictionaryArray.from_arrays(codes, values)}) for values in (values, values[::-1])
        )
        loader = ad.Loader(table, batch_size=20, columns={"t": "t"})
        list(loader)
        rows = [[struct.pack("<b", row % 10)] for row in range(ROWS)]
        assert loader.fingerprint()["hashes"] == [[0, *digest(rows, [list(map(str, TICKS[:10]))])]]
        with pytest.raises(ad.ConversionError, match="rows have changed"):
            next(iter(resumed(table, changed, {"t": "t"})))


class TestARowThatCannotBeConverted:
    @pytest.mark.parametrize("make", [ad.padded, ad.ragged])
    def test_keeps_the_hash_of_its_other_groups(self, make: Any):
        values = [[row] if row != 30 else [row, None] for row in range(ROWS)]
        table = pa.table({"v": pa.array(values, pa.list_(pa.int32())), "x": np.arange(ROWS, dtype="int32")})
        columns = {"v": make("v"), "x": "x"}
        loader = ad.Loader(table, batch_size=20, columns=columns, rank=0, world_size=2)
        list(itertools.islice(loader, 2))

        def row_hash(row: int) -> int:
            h = fold_bytes(0, struct.pack("<i", row))
            if row == 30:
                return fold(h, 2**64 - 1)
            if make is ad.padded:
                return fold_bytes(fold_bytes(h, struct.pack("<i", row)), b"\x01")
            return fold_bytes(fold_bytes(fold_bytes(h, b"\x01"), struct.pack("<q", 1)), struct.pack("<i", row))

        # The last batch of the second round needs one row.
        assert loader.state_dict()["hashes"] == hashes(61, row_hash)
        with pytest.raises(ad.NullError, match="row 30"):
            list(ad.Loader(table, batch_size=20, columns=columns, rank=1, world_size=2))
        x = np.arange(ROWS, dtype="int32")
        x[30] = -1
        changed = table.set_column(1, "x", pa.array(x))
        with pytest.raises(ad.ConversionError, match="rows have changed"):
            next(iter(resumed(table, changed, columns, 2, rank=0, world_size=2)))
