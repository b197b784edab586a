"""Plots of the results, as SVG that is the same for the same results and readable on light and on dark pages."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib

matplotlib.use("svg")  # there may be no display
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from results import Results, table_of
from results import figures as figures_of

# Of even contrast with white and with black.
GREY = "#7d7d7d"
OURS = "#d9572b"
TARGET = "#2b9d6a"
PEERS = [
    "#4a86d8",
    "#9a6fd0",
    "#2f9fae",
    "#b08a2e",
    "#c65d9a",
    "#6c8f3c",
    "#8a7d72",
    "#5f7fa8",
    "#a8705f",
    "#7a8fb8",
    "#7f9f8f",
]
STYLE = {
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "grid.alpha": 0.25,
    "grid.color": GREY,
    "legend.frameon": False,
    "legend.labelcolor": GREY,
    "savefig.transparent": True,
    # Text stays text, and the names of elements do not depend on the run.
    "svg.fonttype": "none",
    "svg.hashsalt": "arrow-dlpack",
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def draw(results: Results) -> dict[str, str]:
    """Every plot that there are results for, by name."""
    needs: dict[str, tuple[str, Callable[[Results], Figure]]] = {
        "figures": ("pack", figures),
        "widths": ("pack", widths),
        "sizes": ("scaling", sizes),
    }
    with matplotlib.rc_context(STYLE):
        return {name: svg(plot(results)) for name, (topic, plot) in needs.items() if topic in results}


def svg(figure: Figure) -> str:
    """The text of a figure, without what changes from day to day."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    pyplot.close(figure)
    return re.sub(r"[ \t]+$", "", text.getvalue(), flags=re.MULTILINE)


def figures(results: Results) -> Figure:
    """What was to be reached, what is, and the best library, on one logarithmic axis."""
    found = list(figures_of(results))[::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.8 + 0.24 * len(found)))
    for height, one in enumerate(found):
        if one["peer"]:
            axes.plot(
                [one["ratio"], one["peer"]["ratio"]], [height, height], color=GREY, linewidth=0.6, alpha=0.6, zorder=1
            )
    points = [("the best library", "o", PEERS[0], [one["peer"] and one["peer"]["ratio"] for one in found])]
    points.append(("to reach", "|", TARGET, [one["target"] for one in found]))
    points.append(("arrow-dlpack", "D", OURS, [one["ratio"] for one in found]))
    for label, marker, color, ratios in points:
        heights = [height for height, ratio in enumerate(ratios) if ratio is not None]
        size = 90 if marker == "|" else 22
        axes.scatter(
            [ratios[height] for height in heights], heights, s=size, marker=marker, color=color, label=label, zorder=2
        )
    axes.set_yticks(range(len(found)), [short(one["what"]) for one in found], fontsize=7)
    logarithmic(axes, "x")
    axes.set_xlabel("times what each row is against; less is better")
    axes.grid(axis="x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def widths(results: Results) -> Figure:
    """Packing float32 columns, by how many."""
    table = table_of(results, "pack/float32")
    figure, axes = pyplot.subplots(figsize=(7, 4))
    width = [int(case["name"].split()[0]) for case in table["cases"]]
    lines(axes, table, width)
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.set_xticks(width, [str(columns) for columns in width])
    axes.set(xlabel="float32 columns, of 1,000,000 rows each", ylabel="times a warm memcpy of the output")
    logarithmic(axes, "y")
    axes.grid(axis="y")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def sizes(results: Results) -> Figure:
    """Time per byte, by the size of the output."""
    table = table_of(results, "scaling/scaling")
    figure, axes = pyplot.subplots(figsize=(7, 3.6))
    ordered = sorted(table["cases"], key=lambda case: case["bytes"])
    gigabytes = [case["bytes"] / 1e9 for case in ordered]
    copied = [case["yardstick"]["seconds"] / case["bytes"] * 1e9 for case in ordered]
    axes.plot(gigabytes, copied, color=GREY, linestyle="--", label="memcpy, warm")
    per_byte = {**table, "cases": ordered}
    lines(axes, per_byte, gigabytes, lambda case, cell: cell["seconds"] / case["bytes"] * 1e9)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set(xlabel="gigabytes of output", ylabel="nanoseconds a byte")
    logarithmic(axes, "y")
    axes.grid(axis="y")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def lines(
    axes: Axes,
    table: dict[str, Any],
    across: list[float],
    value: Callable[[dict[str, Any], dict[str, Any]], float] = lambda _, cell: cell["ratio"],
) -> None:
    """A line for each of ours and of the libraries; ours on top."""
    cells = [{cell["route"]: cell for cell in case["routes"]} for case in table["cases"]]
    names = list(dict.fromkeys(cell["route"] for case in table["cases"] for cell in case["routes"]))
    colors = iter(PEERS * 2)
    for name in names:
        found = [(x, case, by[name]) for x, case, by in zip(across, table["cases"], cells, strict=True) if name in by]
        by = found[0][2]["by"]
        points = [(x, value(case, cell)) for x, case, cell in found if "ratio" in cell]
        if by not in ("ours", "peer", "hand") or not points:
            continue
        color = OURS if by == "ours" else next(colors)
        dashed = ":" if by == "ours" and "out=" not in name else "-"
        x, y = zip(*points, strict=True)
        axes.plot(
            x,
            y,
            color=color,
            linestyle=dashed,
            linewidth=2 if by == "ours" else 1,
            marker="o",
            markersize=3,
            label=name,
            zorder=3 if by == "ours" else 2,
        )


def logarithmic(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers on it."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def short(what: str) -> str:
    """A label that leaves room for the plot."""
    return what if len(what) <= 74 else what[:71] + "..."
