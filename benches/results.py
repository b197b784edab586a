"""What was measured, as docs/benchmarks/*.json have it: which tables, figures and fastest routes are there?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "docs" / "benchmarks"

Results = dict[str, dict[str, Any]]


def read(folder: Path = RESULTS) -> Results:
    """The results of every topic, by its name."""
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
    page = PAGE.read_text(encoding="utf-8")
    # In the order of the page.
    return dict(sorted(found.items(), key=lambda entry: page.find(f": {entry[0]}/")))


def table_of(results: Results, name: str) -> dict[str, Any]:
    """A table by "topic/name"."""
    topic, _, wanted = name.partition("/")
    return next(table for table in results[topic]["tables"] if table["name"] == wanted)


def tables(results: Results) -> Iterator[dict[str, Any]]:
    """All tables."""
    for result in results.values():
        yield from result["tables"]


def spread(table: dict[str, Any], route: str) -> float:
    """The largest time per byte of a route by its smallest."""
    found = [
        cell["seconds"] / case["bytes"] for case in table["cases"] for cell in case["routes"] if cell["route"] == route
    ]
    return max(found) / min(found)


def figures(results: Results) -> Iterator[dict[str, Any]]:
    """Every figure that was to be reached, with the best of the peers in its case."""
    for table in tables(results):
        for case in table["cases"]:
            for cell in case["routes"]:
                if "target" in cell:
                    what = f"{table['label']}: {case['name']}"
                    others = {by: best(case, by) for by in ("peer", "hand")}
                    yield {"what": what, "against": case["yardstick"]["route"], **others, **cell}
        if "spread" in table:
            asked = table["spread"]
            what = f"{table['label']}: largest time per byte by the smallest"
            ratio = spread(table, asked["of"])
            common = {"what": what, "route": asked["of"], "against": "itself", "peer": None, "hand": None}
            yield {**common, "ratio": ratio, "target": asked["limit"]}


def best(case: dict[str, Any], by: str) -> dict[str, Any] | None:
    """The fastest route of a kind."""
    found = [cell for cell in case["routes"] if cell["by"] == by and "ratio" in cell]
    return min(found, key=lambda cell: cell["ratio"], default=None)
