"""Was it worth it? Errors against baselines by SQL, the account of bytes and seconds, and a plot."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import arrow_dlpack as ad
import duckdb
import matplotlib
from features import Scale

matplotlib.use("Agg")  # draw into files: there may be no display
from matplotlib import pyplot

_JUDGED = """
CREATE VIEW judged AS
WITH
train AS (FROM examples WHERE training),
typical AS (SELECT median(lost) AS typical FROM train),
route AS (SELECT origin, dest, carrier, median(lost) AS usual FROM train GROUP BY ALL)
SELECT airline, lost, predicted, typical, coalesce(usual, typical) AS usual
FROM examples JOIN predictions USING (id) LEFT JOIN route USING (origin, dest, carrier) CROSS JOIN typical
"""

_ERRORS = """
SELECT
    count(*),
    avg(abs(lost - predicted)),
    avg(abs(lost)) AS "as late as it left",
    avg(abs(lost - typical)) AS "the median of all flights",
    avg(abs(lost - usual)) AS "the median of its airline on its route"
FROM judged
"""

_AIRLINES = """
SELECT name, count(*) AS flights, avg(abs(lost - predicted)), avg(abs(lost - usual))
FROM judged JOIN read_parquet($airlines) ON carrier = airline
GROUP BY name HAVING flights >= 100 ORDER BY flights
"""

_OUTCOMES = """
SELECT round(predicted / 2) * 2 AS bin, quantile_cont(lost, [0.25, 0.5, 0.75]) AS quarters
FROM judged GROUP BY bin HAVING count(*) >= 100 ORDER BY bin
"""


@dataclass(frozen=True)
class Errors:
    """Mean absolute errors, in minutes, on the flights measured."""

    flights: int
    model: float
    baselines: dict[str, float]

    @property
    def best(self) -> tuple[str, float]:
        """The baseline that is hardest to beat."""
        return min(self.baselines.items(), key=lambda entry: entry[1])

    @property
    def beaten(self) -> bool:
        """Whether the model is better than every baseline."""
        return self.model < self.best[1]


@dataclass(frozen=True)
class Account:
    """What the run took."""

    passes: int
    train_seconds: float
    waited: float  # seconds for arrays, training and measuring
    viewed: int
    packed: int
    copies: ad.CopyLog


def measure(connection: duckdb.DuckDBPyConnection, scale: Scale) -> Errors:
    """Join the predictions to the flights, and judge them beside baselines that know only the training rows."""
    connection.execute(_JUDGED)
    relation = connection.sql(_ERRORS)
    flights, model, *baselines = relation.fetchall()[0]
    if flights != scale.test_rows:
        raise RuntimeError(f"{flights:,} predictions found their flight, of {scale.test_rows:,}")
    return Errors(flights, model, dict(zip(relation.columns[2:], baselines, strict=True)))


def show(errors: Errors, account: Account, scale: Scale, library: str, plot: Path) -> None:
    """Print the report."""
    rows = account.passes * scale.train_rows
    print(f"\nrows        {scale.train_rows:,} to train on (January to October), {scale.test_rows:,} to measure on")
    print(
        f"training    {account.passes} passes: {rows:,} rows in {account.train_seconds:.1f} s, "
        f"{rows / account.train_seconds:,.0f} rows/s with query, packing and model"
    )
    print(f"waiting     {account.waited:.3f} s of that and of measuring, for {library} arrays of the query's rows")
    print(f"viewed      {_megabytes(account.viewed)}: tensors on the engine's own memory")
    print(f"copied      {_megabytes(account.copies.bytes)} by arrow_dlpack")
    for why, size in _reasons(account.copies):
        print(f"            {_megabytes(size)}: {why}")
    print(f"packed      {_megabytes(account.packed)} by {library}: the inputs of the model")
    print(f"error       {errors.model:.2f} minutes on average: the model")
    for other, error in errors.baselines.items():
        print(f"            {error:.2f} minutes: {other}")
    if errors.beaten:
        name, best = errors.best
        print(f"verdict     {1 - errors.model / best:.1%} better than {name}, the best of the baselines")
    print(f"plot        {plot}")


def draw(connection: duckdb.DuckDBPyConnection, airlines: Path, errors: Errors, plot: Path) -> None:
    """Draw the error by airline, and what happened against what was predicted."""
    airline_rows = connection.execute(_AIRLINES, {"airlines": str(airlines)}).fetchall()
    names, flights, model, baseline = zip(*airline_rows, strict=True)
    bins, quarters = zip(*connection.sql(_OUTCOMES).fetchall(), strict=True)
    low, middle, high = zip(*quarters, strict=True)

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    figure.suptitle(f"Minutes lost from departure to arrival: {errors.flights:,} flights, November and December 2013")
    rows = range(len(names))
    left.hlines(rows, model, baseline, color="lightgray", linewidth=3, zorder=0)
    left.scatter(baseline, rows, color="gray", label=f"{errors.best[0]} ({errors.best[1]:.1f})")
    left.scatter(model, rows, color="tab:blue", label=f"the model ({errors.model:.1f})")
    left.set_yticks(rows, [f"{name} ({count:,})" for name, count in zip(names, flights, strict=True)])
    left.set(title="Error by airline", xlabel="mean absolute error in minutes", xlim=(0, None))
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), frameon=False)

    ends = [min(bins), max(bins)]
    right.plot(ends, ends, color="gray", linestyle="--", label="as predicted")
    right.fill_between(bins, low, high, color="tab:blue", alpha=0.2, linewidth=0, label="middle half of the flights")
    right.plot(bins, middle, color="tab:blue", label="median flight")
    right.set(title="What happened", xlabel="minutes predicted", ylabel="minutes lost")
    right.legend(loc="upper left")
    figure.savefig(plot, dpi=120)
    pyplot.close(figure)


def _reasons(copies: ad.CopyLog) -> list[tuple[str, int]]:
    """Sum copied bytes by reason, the largest first; how many nulls there were in a batch is left out."""
    sizes: Counter[str] = Counter()
    for entry in copies.entries:
        sizes[re.sub(r"\d+ ", "", entry.why)] += entry.bytes
    return sizes.most_common()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
