"""What a topic is made of: tables of cases, in each of which every route takes turns with a yardstick, in one process.

A turn is one call that is not timed, then as many as fill the time of a turn; slow calls are timed alone. The ratio of
a route is the median over its turns of its time by the yardstick's in the same round. Nothing is collected meanwhile.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import peers

# One thread in every library; each reads its variable when it is imported.
VARIABLES = [
    "ARROW_DLPACK_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
]
ONE_THREAD = dict.fromkeys(VARIABLES, "1")

# The sample of rows in which a route's result is compared with what it should be.
SAMPLE = 2_000


@dataclass(frozen=True)
class Route:
    """One way to get the result, called with no arguments."""

    name: str
    call: Callable[[], Any]
    # "ours"; "peer", a library; "hand", what one writes with NumPy; or "floor", which bounds the others.
    by: str = "peer"
    # Runs so many times and returns the seconds of all, where calling from Python would take time of its own.
    loop: Callable[[int], float] | None = None
    # What the result is compared by, as an array; None: it is not.
    read: Callable[[Any], np.ndarray] | None = np.asarray
    # For results that cannot be compared as one array: goes the whole way once, and says what is wrong, if anything.
    check: Callable[[], str | None] | None = None
    # Undoes what one call leaves for the next, untimed: each call is then a turn of its own, with none before it.
    before: Callable[[], object] | None = None
    # The figure that this route has to reach, as a ratio.
    target: float | None = None


@dataclass(frozen=True)
class Pace:
    """How much time a case may take."""

    rounds: int = 31
    # Each route has at least so many turns, and as many more as fit in its share of the seconds.
    turns: int = 3
    # Ours are what is judged.
    own_turns: int = 9
    share: float = 1.5
    turn: float = 0.02
    # Calls slower than this need no call before them to be warm.
    slow: float = 0.1


QUICK = Pace(rounds=2, turns=1, own_turns=1, share=0.0, turn=0.0, slow=0.0)


@dataclass
class Timed:
    """A route with its turns."""

    route: Route
    # Seconds of one call, roughly.
    once: float
    number: int = 1
    every: float = 1.0
    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    wall: float = 0.0
    cpu: float = 0.0


class Bench:
    """The tables of one topic, and what they were measured with."""

    def __init__(self, topic: str, *, quick: bool) -> None:
        self.topic = topic
        self.quick = quick
        self.tables: list[dict[str, Any]] = []
        # What is no ratio, as text.
        self.facts: dict[str, str] = {}
        self._load = [os.getloadavg()[0]]

    def rows(self, full: int, quick: int = 1_000) -> int:
        """The size of a case, which the quick mode shrinks."""
        return quick if self.quick else full

    def table(self, name: str, title: str, *, against: str, label: str = "") -> Table:
        """A new table; its ratios are against what `against` says, and its figures are told by `label`."""
        made = {"name": name, "title": title, "label": label, "against": against, "cases": []}
        self.tables.append(made)
        return Table(self, made)

    def results(self) -> dict[str, Any]:
        """What is written down."""
        self._load.append(os.getloadavg()[0])
        about = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "versions": peers.versions(),
            "load": [round(load, 1) for load in self._load],
        }
        found = {"topic": self.topic, "about": about, "left_out": peers.left_out()}
        return {**found, "facts": self.facts, "tables": self.tables}


class Table:
    """Cases that are measured by the same routes."""

    def __init__(self, bench: Bench, made: dict[str, Any]) -> None:
        self.bench = bench
        self.made = made

    def case(
        self,
        name: str,
        yardstick: Route,
        routes: Sequence[Route],
        *,
        expected: np.ndarray | None = None,
        nbytes: int | None = None,
        pace: Pace | None = None,
    ) -> dict[str, Any]:
        """Measures one case. Of a peer that refuses or gives another result than expected, that is told instead."""
        print(f"  {self.made['name']}, {name}", flush=True)
        start = time.perf_counter()
        chosen = QUICK if self.bench.quick else pace or Pace()
        refused: dict[str, str] = {}
        fit = [Timed(yardstick, once=seconds(yardstick, 1))]
        for route in routes:
            why, once = first_call(route, expected)
            if why is None:
                fit.append(Timed(route, once=once))
            elif route.by in ("ours", "floor"):
                raise AssertionError(f"{route.name}: {why}")
            else:
                refused[route.name] = why
                print(f"    {route.name}: {why}")
        take_turns(fit, chosen)
        timed = {one.route.name: one for one in fit}
        cells = [figures(timed[route.name]) if route.name in timed else told(route, refused) for route in routes]
        case = {"name": name, "yardstick": figures(timed[yardstick.name]), "routes": cells}
        if nbytes is not None:
            case["bytes"] = nbytes
        self.made["cases"].append(case)
        for cell in cells:
            if "ratio" in cell:
                print(f"    {cell['ratio']:9.2f}  {cell['route']}")
        print(f"    ({time.perf_counter() - start:.1f} s)", flush=True)
        return case


def first_call(route: Route, expected: np.ndarray | None) -> tuple[str | None, float]:
    """What is wrong with a route, if anything, and how long its first call takes."""
    start = time.perf_counter()
    try:
        if route.check is not None:
            return route.check(), time.perf_counter() - start
        result = route.call()
        taken = time.perf_counter() - start
        if expected is None or route.read is None:
            return None, taken
        found = route.read(result)
    except Exception as error:
        if route.by == "ours":
            raise
        return f"refuses: {type(error).__name__}", 0.0
    return difference(found, expected), taken


def difference(found: np.ndarray, expected: np.ndarray) -> str | None:
    """How a result differs from what it has to be; of the values, a sample is compared."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"gives {found.dtype} {found.shape}, not {expected.dtype} {expected.shape}"
    step = max(1, len(expected) // SAMPLE)
    equal_nan = expected.dtype.kind == "f"
    same = all(
        np.array_equal(found[part], expected[part], equal_nan) for part in (slice(0, None, step), slice(-20, None))
    )
    return None if same else "gives other values"


def take_turns(all_timed: Sequence[Timed], pace: Pace) -> None:
    """Gives each its turns; the first is the yardstick, which has one in every round."""
    for one in all_timed:
        # The first call may have imported, compiled or faulted pages in.
        if one.once < pace.slow * 10:
            one.once = min(seconds(one.route, 1) for _ in range(2))
        one.number = 1 if one.route.before else max(1, round(pace.turn / max(one.once, 1e-9)))
        least = pace.own_turns if one.route.by in ("ours", "floor") else pace.turns
        # Seconds are long enough to average over what else the machine does.
        least = min(least, 2 if one.once < 3.0 else 1) if one.once > 1.0 else least
        wanted = min(pace.rounds, max(least, int(pace.share / max(one.once * (one.number + 1), 1e-9))))
        # Spread over the rounds, so that no route has them all in one quiet moment.
        one.every = pace.rounds / wanted
    yardstick, routes = all_timed[0], all_timed[1:]
    gc.collect()
    gc.disable()
    try:
        for number in range(pace.rounds):
            due = [one for one in routes if number == 0 or int(number / one.every) != int((number - 1) / one.every)]
            if not due:
                continue
            by = take_turn(yardstick, pace)
            first = number % len(due)
            for one in due[first:] + due[:first]:
                one.ratios.append(take_turn(one, pace) / by)
    finally:
        gc.enable()
    yardstick.ratios = [1.0]


def take_turn(one: Timed, pace: Pace) -> float:
    """Seconds a call in this turn."""
    if one.route.before is not None:
        one.route.before()
    elif one.number > 1 or (one.seconds and one.seconds[-1] < pace.slow):
        seconds(one.route, 1)
    wall, cpu = time.perf_counter(), time.process_time()
    taken = seconds(one.route, one.number) / one.number
    one.wall += time.perf_counter() - wall
    one.cpu += time.process_time() - cpu
    one.seconds.append(taken)
    return taken


def seconds(route: Route, number: int) -> float:
    """Seconds for so many calls."""
    if route.loop is not None:
        return route.loop(number)
    call = route.call
    start = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - start


def figures(one: Timed) -> dict[str, Any]:
    """One cell of a table."""
    ratios = sorted(one.ratios)
    low, high = np.percentile(ratios, [25, 75])
    cell = {
        "route": one.route.name,
        "by": one.route.by,
        "seconds": short(statistics.median(one.seconds)),
        "least": short(min(one.seconds)),
        "ratio": short(statistics.median(ratios)),
        "quartiles": [short(float(low)), short(float(high))],
        "turns": len(one.seconds),
        # Above 1: more than one thread worked.
        "cpu": round(one.cpu / one.wall, 2) if one.wall else 1.0,
    }
    if one.route.target is not None:
        cell["target"] = one.route.target
    return cell


def told(route: Route, refused: dict[str, str]) -> dict[str, Any]:
    return {"route": route.name, "by": route.by, "why_not": refused[route.name]}


def short(number: float) -> float:
    """Four digits: more would be noise."""
    return float(f"{number:.4g}")


def machine() -> str:
    """The processor and how many cores of it, as the kernel names them."""
    model = processor("model name") or "an unknown processor"
    vectors = "AVX-512" if has("avx512f") else "AVX2" if has("avx2") else "no AVX2"
    return f"{len(os.sched_getaffinity(0))} cores of {model} ({vectors})"


def has(flag: str) -> bool:
    """Whether the processor has a feature, by the kernel's name for it."""
    return flag in processor("flags").split()


def processor(key: str) -> str:
    """What the kernel says of the first processor; empty if nothing."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == key), "")


def main(topic: str, run: Callable[[Bench], None]) -> None:
    """The main function of a topic: measures it, and writes what was found to DIR/topic.json."""
    parser = argparse.ArgumentParser(description=f"Measures the topic {topic}.")
    parser.add_argument("--quick", action="store_true", help="small sizes and two turns: does it run?")
    parser.add_argument("--to", type=Path, metavar="DIR", help="where the results go; nowhere by default")
    parser.add_argument("--without", default="", metavar="A,B", help="peers to leave out, though installed")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        # Some of them have been imported by now.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    peers.leave_out(arguments.without)
    bench = Bench(topic, quick=arguments.quick)
    print(f"{topic}", flush=True)
    run(bench)
    if not bench.tables and not bench.facts:
        print(f"  LEFT OUT: {', '.join(peers.left_out())} not installed")
    elif arguments.to:
        arguments.to.mkdir(parents=True, exist_ok=True)
        text = json.dumps(bench.results(), indent=1, ensure_ascii=False)
        (arguments.to / f"{topic}.json").write_text(text + "\n", encoding="utf-8")
