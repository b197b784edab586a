"""Medians of calls that take turns in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bare import Driver
from record import SMOKE

ROUNDS, WARM_UP = (1, 1) if SMOKE else (21, 3)
# Calls that are measured together on the device, and how much is filled before them: about 20 ms.
CALLS = 2 if SMOKE else 8
DELAY, DELAY_FILLS = (64, 1) if SMOKE else (1 << 32, 16)

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


def device_medians(driver: Driver, *routes: Route) -> list[float]:
    """The median time of a call of each route on the device in seconds, without what the host takes."""
    plug = driver.allocate(DELAY)
    times: list[list[float]] = [[] for _ in routes]

    def delay() -> None:
        for _ in range(DELAY_FILLS):
            driver.fill(plug, DELAY)

    def calls(route: Route) -> Callable[[], None]:
        def run() -> None:
            for _ in range(CALLS):
                route()

        return run

    for number in range(WARM_UP + ROUNDS):
        for index, route in enumerate(routes):
            taken = driver.time_on_device(calls(route), delay)
            if number >= WARM_UP:
                times[index].append(taken / CALLS)
    driver.free(plug)
    return [statistics.median(series) for series in times]
