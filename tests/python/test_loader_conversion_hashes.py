"""The hash in a loader's state of how rows are converted: a number that later releases find again."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest

TABLE = pa.table({
    "a": pa.array([1, None, 3], pa.int32()),
    "b": pa.array([1.5, 2.5, 3.5], pa.float32()),
    "ids": pa.array([[1], [2, 3], []], pa.list_(pa.int16())),
    "times": pa.array([[0], [1_000_000], []], pa.list_(pa.timestamp("us"))),
    "word": ["x", "y", "x"],
})  # fmt: skip

# With another number, a loader takes the states of the release before for those of other options.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "column": ({"columns": ["b"]}, 9484167795161147782),
    "filled": ({"columns": {"a": "a"}, "dtype": "float64", "nulls": -0.0}, 10973533250646442817),
    "matrix": ({"columns": {"x": ad.group(["a", "b"], nulls="nan", dtype="float32")}}, 5009303293209266823),
    "padded": (
        {"columns": {"x": ad.padded("ids", value=7, length=4, truncate="left", side="left")}},
        9678380251034649958,
    ),
    "ragged": ({"columns": {"x": ad.ragged("ids", nulls="keep")}}, 12953432535944804109),
    "ticks": ({"columns": {"x": ad.ragged("times")}, "unit": "s"}, 17587499662282928150),
    "arrow": ({"columns": {"x": ad.arrow("word", "a")}}, 16495722064474576624),
    "categories": ({"columns": ["word"], "categories": {"word": ["y", "x"]}, "unknown": -1}, 7330262111251366103),
}


def conversion(**options: Any) -> int:
    loader = ad.Loader(TABLE, batch_size=1, **options)
    next(iter(loader))
    return loader.state_dict()["conversion"]


@pytest.mark.parametrize("name", CASES)
def test_the_hash_is_that_of_every_release(name: str):
    options, expected = CASES[name]
    assert conversion(**options) == expected


def test_names_of_masks_and_lengths_do_not_matter():
    def padded(**names: str) -> int:
        return conversion(columns={"x": ad.padded("ids", value=0, **names)})

    assert padded(lengths="n", validity="mask") == padded(lengths="m") == padded()


@pytest.mark.parametrize(
    "other", [{"value": 1}, {"length": 3}, {"multiple_of": 8}, {"truncate": "left", "length": 3}, {"side": "left"}]
)
def test_what_changes_rows_matters(other: dict[str, Any]):
    def padded(**options: Any) -> int:
        return conversion(columns={"x": ad.padded("ids", **{"value": 0, **options})})

    assert padded(**other) != padded()
    assert padded(value=0.0) != padded(value=-0.0)


# Of an Arrow column of each type, whose values are hashed as ticks.
TICKS = {
    pa.date32(): 15313927009956931760,
    pa.date64(): 7911263278936339758,
    pa.time32("s"): 1254934822719405455,
    pa.time32("ms"): 7729048767801526108,
    pa.time64("us"): 3673792756421353979,
    pa.time64("ns"): 16169233831050944425,
    pa.timestamp("s"): 5170777993845797222,
    pa.timestamp("ms"): 7369380702679175485,
    pa.timestamp("us"): 4481299924518641240,
    pa.timestamp("ns"): 13094268980960463791,
    pa.timestamp("us", "Europe/Berlin"): 4481299924518641240,
    pa.duration("s"): 15979117980249404914,
    pa.duration("ms"): 5276927579514320469,
    pa.duration("us"): 3388871989582695050,
    pa.duration("ns"): 15733167619169538774,
}


@pytest.mark.parametrize("data_type", TICKS, ids=str)
def test_the_types_of_ticks_have_the_same_text_in_every_release(data_type: pa.DataType):
    table = pa.table({"t": pa.array([0], data_type)})
    loader = ad.Loader(table, batch_size=1, columns={"x": ad.arrow("t")})
    next(iter(loader))
    assert loader.state_dict()["conversion"] == TICKS[data_type]
