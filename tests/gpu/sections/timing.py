"""Medians of calls that take turns in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bare import Driver
from record import SMOKE

ROUNDS, WARM_UP = (1, 1) if SMOKE else (21, 3)

Route = Callable[[], object]


def medians(driver: Driver, *routes: Route) -> list[float]:
    """The median time of each route in seconds, until all that it started is done; the routes take turns."""
    times: list[list[float]] = [[] for _ in routes]
    for number in range(WARM_UP + ROUNDS):
        for index, route in enumerate(routes):
            driver.synchronize()
            start = time.perf_counter()
            result = route()
            driver.synchronize()
            if number >= WARM_UP:
                times[index].append(time.perf_counter() - start)
            # Not a part of it; and its memory is there for the next round.
            del result
    return [statistics.median(series) for series in times]
