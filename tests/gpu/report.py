"""Writes OUT/report.md of what the sections found: `python report.py OUT`, or by run.py after each section."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# What every section tells of the run.
_KEYS = ("date", "device", "bundle", "python", "arrow_dlpack", "torch", "cupy", "jax.numpy", "numpy", "pyarrow")
TITLE = "| figure | value | to reach | verdict |\n|---|---|---|---|"


def _row(name: str, figure: Any) -> str:
    if isinstance(figure, dict):
        target = "" if figure["target"] is None else f"{figure['target']}"
        return f"| {name} | {figure['value']} | {target} | {figure['verdict']} |"
    return f"| {name} | {figure} | | reported |"


def _section(name: str, results: dict[str, Any]) -> list[str]:
    checks = results["checks"]
    passed = [check for check, outcome in checks.items() if outcome == "passed"]
    lines = [f"## {name}", "", f"{len(passed)} of {len(checks)} checks passed."]
    for check, outcome in checks.items():
        if outcome != "passed":
            # The last line of a failure names it.
            lines.append(f"- **{check}**: {outcome.strip().splitlines()[-1]}")
    notes = [f"{key}: {value}" for key, value in results.items() if key not in _KEYS and isinstance(value, str)]
    lines += [f"- {note}" for note in notes]
    figures = results.get("figures", {})
    if figures:
        lines += ["", TITLE, *(_row(figure, value) for figure, value in figures.items())]
    return [*lines, ""]


def _text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def write(out: Path, order: list[str]) -> None:
    """The report of all sections in a folder, in this order and then by name."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    names = sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))
    told = {key: sorted({_text(results[key]) for results in found.values() if key in results}) for key in _KEYS}
    lines = ["# A run of the suite for a real GPU", ""]
    lines += [f"- {key}: {', '.join(values)}" for key, values in told.items() if values]
    if any(results.get("smoke") for results in found.values()):
        lines += ["", "With tiny sizes, on a simulated driver: the figures mean nothing."]
    lines.append("")
    for name in names:
        lines += _section(name, found[name])
    (out / "report.md").write_text("\n".join(lines))


if __name__ == "__main__":
    write(Path(sys.argv[1]), [])
