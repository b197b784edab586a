"""The interoperability matrix: which libraries there are, what is asked of each, and what the answers may be."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"

# What is asked, in the order of the document's columns.
CASES = [
    "numbers",
    "bool",
    "nulls",
    "bfloat16",
    "float8",
    "complex",
    "temporal",
    "decimal",
    "dictionary",
    "strings",
    "lists",
    "fixed-size lists",
    "batch",
    "stream",
    "strided",
    "negative strides",
    "read-only",
    "size 0",
    "0-d",
    "misaligned",
    "device",
    "exchange API",
    "buffer protocol",
]
# To the library, from the library.
DIRECTIONS = ["to", "from"]
OUTCOMES = {
    "view": "shares memory: the same address on both sides",
    "copy": "other memory with equal values",
    "refused": "a clear error of either side",
    "absent": "the library has no such thing",
    "wrong": "the library gives wrong data or crashes: a test records the bug",
}
TABLES = {"arrays": "Array libraries", "frames": "Dataframe libraries"}


@dataclass(frozen=True)
class Library:
    """One entry of `environments.toml`."""

    name: str
    # How the document calls it.
    title: str
    # Which table of the document it is in; none where it exchanges no data of its own, and so has no results.
    table: str = ""
    # `python/requirements/interop/<environment>.txt`, and a folder of that name under `.venv/interop`.
    environment: str = ""
    # The distributions whose versions are stated; the first one names the library. None for what only needs Python.
    distributions: tuple[str, ...] = ()
    # More than about 300 MB, or in need of an environment of its own.
    heavy: bool = False
    # The file with its tests, if that is not test_<name>.py.
    test: str = ""
    # Which Pythons it installs on, such as ">=3.12,<3.15". Libraries that share an environment agree.
    python: str = ""
    # Environment variables; {prefix} is where the environment is.
    env: dict[str, str] = field(default_factory=dict)
    # Why there are no tests.
    why_not: str = ""

    @property
    def file(self) -> Path:
        return HERE / (self.test or f"test_{self.name}.py")

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.json"


def libraries() -> dict[str, Library]:
    """Every entry of `environments.toml`, in its order."""
    entries = tomllib.loads((HERE / "environments.toml").read_text(encoding="utf-8"))
    found = {}
    for name, entry in entries.items():
        entry["distributions"] = tuple(entry.get("distributions", ()))
        library = Library(name=name, **entry)
        if library.table and library.table not in TABLES:
            raise ValueError(f"{name}: table is one of {', '.join(TABLES)}, not {library.table!r}")
        if not library.why_not and not library.environment:
            raise ValueError(f"{name}: needs an environment, or why_not")
        found[name] = library
    return found


class Cells:
    """What the tests of one library found: an outcome can have several notes, and a cell several outcomes."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, dict[str, set[str]]]] = {}

    def add(self, direction: str, case: str, outcome: str, note: str) -> None:
        notes = self.found.setdefault(case, {}).setdefault(direction, {}).setdefault(outcome, set())
        if note:
            notes.add(note)

    def as_json(self) -> dict[str, Any]:
        """In the order of the lists above, whatever the order of the tests."""
        return {
            case: {
                direction: {
                    outcome: sorted(self.found[case][direction][outcome])
                    for outcome in OUTCOMES
                    if outcome in self.found[case][direction]
                }
                for direction in DIRECTIONS
                if direction in self.found[case]
            }
            for case in CASES
            if case in self.found
        }


def results_of(library: Library, cells: Cells) -> dict[str, Any]:
    """What is written down: no time and no machine, so that it changes only with the findings."""
    versions = {name: metadata.version(name) for name in library.distributions}
    return {"library": library.name, "versions": versions, "cells": cells.as_json()}


def read_results(library: Library) -> dict[str, Any] | None:
    if not library.results.exists():
        return None
    return json.loads(library.results.read_text(encoding="utf-8"))


def write_results(library: Library, results: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    library.results.write_text(text, encoding="utf-8")
