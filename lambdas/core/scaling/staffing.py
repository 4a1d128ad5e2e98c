"""The queueing rule: the minimum number of workers for which few requests wait too long.

The queue of many workers near full load is approximated by a Brownian motion reflected at 0, whose
distribution at any time is known. Unlike Erlang C, one formula covers an existing backlog, a load above the
capacity, and the time until equilibrium.

Sources: J. M. Harrison, Brownian Motion and Stochastic Flow Systems, 1985, section 1.8. The probability that
all workers are busy (square-root staffing): Halfin, Whitt, Heavy-traffic limits for queues with many
exponential servers, Operations Research 29, 1981.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lambdas.core.scaling.batches import WorkerSpeed
from lambdas.core.scaling.dispersion import Dispersion

LATE_SHARE: Final = 0.01
"""The share of requests that may wait longer: the 99th percentile."""
SCARCE_LATE_SHARE: Final = 0.1
"""That share while the next worker would be On-Demand, the most expensive capacity."""
FORECAST_ERROR: Final = 0.1
"""Standard deviation of the load around its forecast, as a share of the forecast."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A load of ``rate`` requests a second for ``seconds``, with ``waiting`` requests at the start."""

    rate: float
    waiting: float
    seconds: float
    dispersion: Dispersion = field(default_factory=Dispersion)


def all_busy_probability(load: float, workers: float) -> float:
    """Return the probability that a request finds no idle worker; ``load`` is the mean of busy workers."""
    if workers <= load:
        return 1.0
    spare = (workers - load) / math.sqrt(workers)
    density = math.exp(-spare * spare / 2) / math.sqrt(2 * math.pi)
    return density / (density + spare * _below(spare))


def permitted_batch(speed: WorkerSpeed, workers: int, wait: float) -> tuple[float, float]:
    """Return the largest batch that ``wait`` seconds permit, and the wait for a worker that ends one.

    While all of ``workers`` are busy a request waits until the first of them ends its batch; the phases of
    their batches are independent, so all but `LATE_SHARE` of requests wait this long at most. Workers that
    take one request at a time end them as a Poisson process does, which `late_probability` counts.
    """
    if speed.max_size == 1:
        return 1.0, 0.0
    share_of_batch = 1 - LATE_SHARE ** (1 / max(1, workers))
    size = speed.size_within(wait / share_of_batch)
    return size, speed.seconds(size) * share_of_batch


def late_probability(demand: Demand, speed: WorkerSpeed, workers: int, wait: float) -> float:
    """Return the probability that a request at the end of the demand waits longer than ``wait`` seconds.

    It waits until a worker begins with it. Service times vary as in a Poisson process, arrivals by the
    learned dispersion, and the rate by `FORECAST_ERROR`.
    """
    size, until_free = permitted_batch(speed, workers, wait)
    capacity, rate, seconds = workers * speed.rate(size), demand.rate, demand.seconds
    drift, max_backlog = (rate - capacity) * seconds, max(0.0, wait - until_free) * capacity
    requests = rate * seconds
    # The variances of services, arrivals and forecast.
    variance = requests + demand.dispersion.variance(requests, seconds) + (FORECAST_ERROR * requests) ** 2
    if variance == 0 or capacity == 0:
        return float(demand.waiting + drift > max_backlog)
    spread = math.sqrt(variance)
    probability = _below((demand.waiting - max_backlog + drift) / spread)
    reflected = _below((-demand.waiting - max_backlog - drift) / spread)
    if reflected > 0:
        # With a positive drift this is the product of a large number and a tiny one: add logarithms.
        probability += math.exp(min(0.0, 2 * drift * max_backlog / variance + math.log(reflected)))
    busy_probability = 1.0 if demand.waiting > 0 else all_busy_probability(rate / speed.rate(1), workers)
    return min(1.0, busy_probability * probability)


def min_workers(
    demand: Callable[[int], Demand],
    speed: WorkerSpeed,
    wait: float,
    max_workers: int,
    share: float = LATE_SHARE,
) -> int:
    """Return the minimum number of workers for which at most ``share`` of the requests wait too long.

    At most ``max_workers``, even if these are too few. ``demand`` is that of so many workers: its rate is the
    same of any number, and the more there are, the fewer requests wait.
    """
    # With fewer workers the queue would grow without bound.
    low = min(max_workers, math.ceil(demand(max_workers).rate / speed.rate(speed.max_size)))
    high = max_workers
    while low < high:
        middle = (low + high) // 2
        if late_probability(demand(middle), speed, middle, wait) <= share:
            high = middle
        else:
            low = middle + 1
    return low


def _below(deviations: float) -> float:
    return 0.5 * math.erfc(-deviations / math.sqrt(2))
