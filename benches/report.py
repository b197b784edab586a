"""Writes docs/benchmarks.md and its plots from the results: `python benches/report.py [--from DIR] [--check]`.

Between the markers of that page everything is generated; the rest is prose. The results are docs/benchmarks/*.json,
which `make bench` writes. `--check` changes nothing and fails where the page or a plot is not what the results make.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from results import PAGE, RESULTS, ROOT, Results, figures, read, spread, table_of

# <!-- table: pack/float32 --> ... <!-- end -->
MARKED = re.compile(r"(<!-- (about|figures|table|fact)(?:: (\S+?))? -->)(.*?)(<!-- end -->)", flags=re.DOTALL)

# From here on more than one thread worked.
THREADS = 1.3


def generate(page: str, results: Results) -> str:
    """The page with everything between markers made anew."""

    def made(match: re.Match[str]) -> str:
        before, kind, name, _, after = match.groups()
        if kind == "about":
            text = f"\n{about(results)}\n"
        elif kind == "figures":
            text = f"\n{summary(results)}\n"
        elif kind == "table":
            measured = name.partition("/")[0] in results
            text = f"\n{in_markdown(table_of(results, name)) if measured else 'Not measured yet.'}\n"
        else:
            topic, _, fact = name.partition("/")
            text = results[topic]["facts"][fact] if topic in results else "(not measured yet)"
        return before + text + after

    return MARKED.sub(made, page)


def in_markdown(table: dict[str, Any]) -> str:
    """A table: one column a case, one row a route, times the yardstick of the first row."""
    cases = table["cases"]
    names = list(dict.fromkeys(cell["route"] for case in cases for cell in case["routes"]))
    cells = [{cell["route"]: cell for cell in case["routes"]} for case in cases]
    lines = [
        f"{table['title']}: times {table['against']}.",
        "",
        f"| | {' | '.join(case['name'] for case in cases)} |",
        f"|---|{'---|' * len(cases)}",
        f"| {cases[0]['yardstick']['route']} | {' | '.join(time(case['yardstick']['seconds']) for case in cases)} |",
    ]
    for name in names:
        found = [by_route.get(name) for by_route in cells]
        own = any(cell and cell["by"] == "ours" for cell in found)
        lines.append(f"| {bold(name, own)} | {' | '.join(bold(cell_text(cell), own) for cell in found)} |")
    if table.get("least"):
        lines += [
            f"| {name}, the fastest turn of each | {' | '.join(least(case, name) for case in cases)} |"
            for name in names
        ]
    targets = [next((cell["target"] for cell in case["routes"] if "target" in cell), None) for case in cases]
    if any(target is not None for target in targets):
        lines.append(f"| to reach | {' | '.join('' if target is None else number(target) for target in targets)} |")
    if "spread" in table:
        lines += ["", spread_text(table)]
    if table.get("not_measured"):
        lines += ["", f"Not measured, for want of memory: {', '.join(table['not_measured'])}."]
    return "\n".join(lines)


def cell_text(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return ""
    if "why_not" in cell:
        return "refuses" if cell["why_not"].startswith("refuses") else cell["why_not"].removeprefix("gives ")
    threads = f" ({cell['cpu']:.1f} cores)" if cell["cpu"] > THREADS else ""
    return number(cell["ratio"]) + threads


def least(case: dict[str, Any], route: str) -> str:
    """The fastest turn of a route by the yardstick's fastest."""
    cell = next((cell for cell in case["routes"] if cell["route"] == route), None)
    return number(cell["least"] / case["yardstick"]["least"]) if cell and "least" in cell else ""


def bold(text: str, wanted: bool) -> str:
    return f"**{text}**" if wanted and text else text


def number(ratio: float) -> str:
    """As many digits as there is something behind."""
    if ratio < 0.0995:
        return f"{ratio:.2g}"
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.1f}" if ratio < 99.95 else f"{ratio:,.0f}"


def time(seconds: float) -> str:
    """A time in the unit that leaves one to three digits before the point."""
    unit, size = next(
        (pair for pair in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)) if seconds >= pair[1]),
        ("ns", 1e-9),
    )
    return f"{seconds / size:.3g} {unit}"


def spread_text(table: dict[str, Any]) -> str:
    asked = table["spread"]
    own, copied = spread(table, asked["of"]), [case["yardstick"]["seconds"] / case["bytes"] for case in table["cases"]]
    return (
        f"The largest time per byte of `{asked['of']}` is {number(own)} times its smallest (to reach: "
        f"{number(asked['limit'])}); that of memcpy {number(max(copied) / min(copied))} times."
    )


def summary(results: Results) -> str:
    """The figures, one a line."""
    lines = ["| what | times | best library | by hand | to reach | measured |", "|---|---|---|---|---|---|"]
    for one in figures(results):
        peer, hand = one["peer"], one["hand"]
        told = f"{number(peer['ratio'])} {peer['route']}" if peer else ""
        by_hand = number(hand["ratio"]) if hand else ""
        measured = number(one["ratio"])
        # What rounds to the figure has reached it.
        judged = measured if float(measured.replace(",", "")) <= one["target"] else f"**{measured}, missed**"
        what = f"{one['what']}; `{one['route']}`"
        lines.append(f"| {what} | {one['against']} | {told} | {by_hand} | {number(one['target'])} | {judged} |")
    return "\n".join(lines)


def about(results: Results) -> str:
    """Where, when and with what."""
    lines = []
    for machine in sorted({result["about"]["machine"] for result in results.values()}):
        lines.append(f"- {machine}, Linux, the release wheel")
    versions: dict[str, set[str]] = {}
    for result in results.values():
        for name, version in result["about"]["versions"].items():
            versions.setdefault(name, set()).add(version)
    told = (f"{name} {' and '.join(sorted(found))}" for name, found in sorted(versions.items()))
    lines.append(f"- {', '.join(told)}")
    left_out = sorted({name for result in results.values() for name in result["left_out"]})
    lines.append(f"- left out, as not installed: {', '.join(left_out) or 'nothing'}")
    lines += ["", "| topic | date | load average before, after |", "|---|---|---|"]
    for topic, result in results.items():
        found = result["about"]
        lines.append(f"| {topic} | {found['date']} | {', '.join(map(str, found['load']))} |")
    return "\n".join(lines)


def write(results: Results) -> None:
    """The page and the plots."""
    import plots

    PAGE.write_text(generate(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    for name, svg in plots.draw(results).items():
        (RESULTS / f"{name}.svg").write_text(svg, encoding="utf-8")


def check(results: Results) -> list[str]:
    """What is not what the results make of it."""
    import plots

    page = PAGE.read_text(encoding="utf-8")
    faults = []
    if generate(page, results) != page:
        faults.append(str(PAGE.relative_to(ROOT)))
    drawn = plots.draw(results)
    for name, svg in drawn.items():
        file = RESULTS / f"{name}.svg"
        if not file.exists() or file.read_text(encoding="utf-8") != svg:
            faults.append(str(file.relative_to(ROOT)))
        if f"benchmarks/{file.name}" not in page:
            faults.append(f"{PAGE.relative_to(ROOT)} does not show {file.name}")
    shown = {match[3] for match in MARKED.finditer(page) if match[2] == "table"}
    made = {f"{topic}/{table['name']}" for topic, result in results.items() for table in result["tables"]}
    faults += [f"{PAGE.relative_to(ROOT)} does not show the table {name}" for name in sorted(made - shown)]
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--from", dest="folder", type=Path, default=RESULTS, metavar="DIR", help="where the results are"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something differs")
    arguments = parser.parse_args()
    results = read(arguments.folder)
    if not arguments.check:
        write(results)
    elif faults := check(results):
        sys.exit("not what the results make, so run `python benches/report.py`:\n" + "\n".join(faults))


if __name__ == "__main__":
    main()
