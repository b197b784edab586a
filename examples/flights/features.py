"""What does the model see, and what must it predict?

The question, asked as a plane leaves the gate: how many minutes will it lose on the way? Added to the departure delay,
which is known at that moment, the answer predicts the arrival delay. Every input is known at that moment too: the
schedule, the aircraft, the queue on the ground, the weather of the hour before, and how flights to the same place fared
lately, counting only those that have landed. Air time, arrival time and all that follows are not inputs.

The split is by date, as in use: train on January to October, measure on November and December.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import arrow_dlpack as ad
import duckdb

SPLIT = "2013-11-01"
"""The first day that is measured on. The model's size and rate were chosen on the two months before it;
which inputs to give it was decided with these last two months in view, so they are not blind to that choice."""

LABEL = "lost"
"""Minutes between departure delay and arrival delay; below zero when the plane made up time."""

CODES = ["carrier", "origin", "dest", "weekday"]
"""Small integers that stand for categories; 0 is a category that does not occur in training."""

TIME = "departs"
"""The scheduled departure, a timestamp: its tensor holds ticks, here microseconds."""

FLAGS = ["late", "plane_known"]
"""Booleans. Arrow stores booleans as bits and tensors as bytes, so these columns are always copies."""

NULLS: dict[str, str | float] = {
    "plane_age": 0.0,  # one plane in six is not in the register; the flag plane_known tells which
    "gust": 0.0,  # null means that no gust was reported
    "recent": "nan",  # no flight to this place lately; NaN becomes the average once inputs are standardised
    "temp": "nan",
    "wind": "nan",
    "rain": "nan",
    "pressure": "nan",
    "visibility": "nan",
}
"""What to do with nulls, column by column. In every column that is not named here a null is an error."""

NUMBERS = ["dep_delay", "distance", "minutes", "departures", "queue", *NULLS]
"""The float32 columns, which become one matrix."""

INPUTS: dict[str, str | list[str]] = {"numbers": NUMBERS, **{name: name for name in [*CODES, TIME, *FLAGS]}}
"""What the model sees of each row: a matrix of the numbers, and every other column as it is."""

_COLUMNS = ", ".join([*NUMBERS, *CODES, TIME, *FLAGS])

_EXAMPLES = """
CREATE TABLE examples AS
WITH
flight AS (
    SELECT
        row_number() OVER (ORDER BY time_hour, origin, carrier, flight, sched_dep_time, tailnum) AS id,
        *,
        make_timestamp(year, month, day, hour, minute, 0) AS departs,
        departs + to_minutes(dep_delay) AS leaves,
        (sched_arr_time // 100 * 60 + sched_arr_time % 100 - hour * 60 - minute + 1440) % 1440 AS minutes,
        count(*) OVER (PARTITION BY origin, time_hour) AS departures
    FROM read_parquet($flights)
),
known AS (
    SELECT
        id,
        count(*) OVER ground AS queue,
        -- left 14 hours ago or earlier, flew for less than 10: landed by now
        avg(arr_delay - dep_delay) FILTER (WHERE air_time < 600) OVER days AS recent
    FROM flight
    WHERE leaves IS NOT NULL
    WINDOW
        ground AS (PARTITION BY origin ORDER BY leaves RANGE BETWEEN INTERVAL 30 MINUTES PRECEDING AND CURRENT ROW),
        days AS (
            PARTITION BY dest ORDER BY leaves
            RANGE BETWEEN INTERVAL 48 HOURS PRECEDING AND INTERVAL 14 HOURS PRECEDING
        )
),
train AS (FROM flight WHERE departs < $split AND arr_delay IS NOT NULL),
carriers AS (SELECT DISTINCT carrier, dense_rank() OVER (ORDER BY carrier) AS code FROM train),
origins AS (SELECT DISTINCT origin, dense_rank() OVER (ORDER BY origin) AS code FROM train),
dests AS (SELECT DISTINCT dest, dense_rank() OVER (ORDER BY dest) AS code FROM train)
SELECT
    f.id,
    f.departs,
    f.departs < $split AS training,
    f.carrier AS airline,
    f.dest AS airport,
    coalesce(carriers.code, 0)::INTEGER AS carrier,
    coalesce(origins.code, 0)::INTEGER AS origin,
    coalesce(dests.code, 0)::INTEGER AS dest,
    isodow(f.departs)::INTEGER AS weekday,
    f.dep_delay::FLOAT AS dep_delay,
    f.dep_delay > 15 AS late,
    f.distance::FLOAT AS distance,
    f.minutes::FLOAT AS minutes,
    f.departures::FLOAT AS departures,
    k.queue::FLOAT AS queue,
    round(k.recent, 3)::FLOAT AS recent,
    (f.year - p.year)::FLOAT AS plane_age,
    p.year IS NOT NULL AS plane_known,
    w.temp::FLOAT AS temp,
    -- one observation claims a wind of 1,048 miles per hour
    CASE WHEN w.wind_speed < 200 THEN w.wind_speed END::FLOAT AS wind,
    w.wind_gust::FLOAT AS gust,
    w.precip::FLOAT AS rain,
    w.pressure::FLOAT AS pressure,
    w.visib::FLOAT AS visibility,
    (f.arr_delay - f.dep_delay)::FLOAT AS lost
FROM flight f
JOIN known k USING (id)
LEFT JOIN carriers USING (carrier)
LEFT JOIN origins USING (origin)
LEFT JOIN dests USING (dest)
LEFT JOIN read_parquet($planes) p USING (tailnum)
LEFT JOIN read_parquet($weather) w ON w.origin = f.origin AND w.time_hour = f.time_hour - INTERVAL 1 HOUR
-- a cancelled or diverted flight has no arrival delay, so there is nothing to learn from it or to measure
WHERE f.arr_delay IS NOT NULL
"""


@dataclass(frozen=True)
class Scale:
    """What must be known of the training rows before the first pass, and of nothing else."""

    train_rows: int
    test_rows: int
    mean: list[float]  # of each of NUMBERS
    deviation: list[float]
    categories: list[int]  # of each of CODES, the category "not in training" included


def build(connection: duckdb.DuckDBPyConnection, tables: dict[str, Path]) -> Scale:
    """Make the table `examples`, one row per flight that arrived, and measure its training rows."""
    files = {name: str(tables[name]) for name in ("flights", "planes", "weather")}
    connection.execute(_EXAMPLES, {**files, "split": SPLIT})
    # Rounded, because a sum of floats depends on how the engine's threads shared the rows.
    wanted = [f"round(avg({name}), 3), round(stddev({name}), 3)" for name in NUMBERS]
    wanted += [f"max({name}) + 1" for name in CODES] + ["count(*)"]
    *numbers, train_rows = connection.sql(f"SELECT {', '.join(wanted)} FROM examples WHERE training").fetchall()[0]
    (test_rows,) = connection.sql("SELECT count(*) FROM examples WHERE NOT training").fetchall()[0]
    moments, categories = numbers[: 2 * len(NUMBERS)], numbers[2 * len(NUMBERS) :]
    return Scale(train_rows, test_rows, moments[::2], moments[1::2], categories)


def training(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
    """Give the query of the training rows, which runs anew each time that it is read."""
    return connection.sql(f"SELECT {_COLUMNS}, {LABEL} FROM examples WHERE training ORDER BY id")


def measuring(connection: duckdb.DuckDBPyConnection) -> ad.ArrayStream:
    """Stream the rows to measure on, without their label but with the id that joins predictions to flights."""
    return ad.from_arrow(connection.sql(f"SELECT id, {_COLUMNS} FROM examples WHERE NOT training ORDER BY id"))
