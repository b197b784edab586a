"""Generates docs/interoperability.md from the results of the tests: `python tests/python/interop/document.py`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import matrix

PATH = matrix.HERE.parents[2] / "docs" / "interoperability.md"

INTRO = """\
# Interoperability

Find your library's row to see which data passes to it and from it, and whether as a view or a copy.

A cell reads "to the library / from the library":

{outcomes}

A number refers to the notes under the table. If one side of the slash is empty, it was not tested. Bitmaps of
booleans are unpacked, and nulls are replaced, by a copy of this package, which `copy=False` refuses.

`tests/python/interop/document.py` generates this page from the results of the tests in `tests/python/interop`; change
those, not this page. `make interop` runs the tests, each against the installed library in its own environment, and
`python tests/python/interop/run.py --write` writes the page.
"""


def generate() -> str:
    """The whole document."""
    outcomes = "\n".join(f"- **{outcome}**: {meaning}" for outcome, meaning in matrix.OUTCOMES.items())
    parts = [INTRO.format(outcomes=outcomes)]
    known = list(matrix.libraries().values())
    parts += [section(title, [one for one in known if one.table == table]) for table, title in matrix.TABLES.items()]
    return "\n".join(parts)


def write() -> None:
    PATH.write_text(generate(), encoding="utf-8")


def section(title: str, libraries: list[matrix.Library]) -> str:
    """One table with its notes."""
    tested = [(library, results) for library in libraries if (results := matrix.read_results(library))]
    cases = [case for case in matrix.CASES if any(case in results["cells"] for _, results in tested)]
    notes: list[str] = []
    common = shared([results for _, results in tested])
    lines = [f"## {title}", ""]
    if tested:
        lines += [f"| | {' | '.join(cases)} |", f"|---|{'---|' * len(cases)}"]
        lines += [row(library, results, cases, notes, common) for library, results in tested]
    if notes:
        lines += ["", "Notes:", "", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
    lines += ["", *(f"{library.title} is not tested: {library.why_not}" for library in libraries if library.why_not)]
    return "\n".join(lines).rstrip() + "\n"


def shared(all_results: list[dict[str, Any]]) -> set[str]:
    """The notes that more than one library has; they are told once, without a name."""
    found: Counter[str] = Counter()
    for results in all_results:
        halves = [half for cell in results["cells"].values() for half in cell.values()]
        found.update({note for half in halves for notes in half.values() for note in notes})
    return {note for note, libraries in found.items() if libraries > 1}


def row(library: matrix.Library, results: dict[str, Any], cases: list[str], notes: list[str], common: set[str]) -> str:
    versions = list(results["versions"].items())
    # The first distribution is the library itself; others are told by name.
    told = ", ".join(version if index == 0 else f"{name} {version}" for index, (name, version) in enumerate(versions))
    cells = [cell(library, results["cells"].get(case, {}), notes, common) for case in cases]
    return f"| {f'{library.title} {told}'.rstrip()} | {' | '.join(cells)} |"


def cell(library: matrix.Library, found: dict[str, Any], notes: list[str], common: set[str]) -> str:
    """Both directions, such as "view / copy (3)"; the notes are added to the list."""
    halves = []
    for direction in matrix.DIRECTIONS:
        told = []
        for outcome, why in found.get(direction, {}).items():
            numbers = []
            for text in why:
                note = text if text in common else f"{library.title}: {text}"
                if note not in notes:
                    notes.append(note)
                numbers.append(notes.index(note) + 1)
            told.append(f"{outcome} ({', '.join(map(str, sorted(numbers)))})" if numbers else outcome)
        halves.append(", ".join(told))
    return " / ".join(half or " " for half in halves).strip() if any(halves) else ""


if __name__ == "__main__":
    write()
