"""The queueing rule: the fewest workers with which hardly a request waits too long.

Many workers on one queue near full load are a Brownian motion that is reflected at the empty queue, whose
distribution after any time is known (J. M. Harrison, Brownian Motion and Stochastic Flow Systems, 1985,
section 1.8). So one formula covers what the textbook's Erlang C does not: a queue that is already there, a
load that rises above what the workers do, and the minutes until a balance is reached. The chance that all
workers are busy is Halfin's and Whitt's (Heavy-traffic limits for queues with many exponential servers,
Operations Research 29, 1981), the source of square-root staffing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from lambdas.core.scaling.dispersion import Dispersion

LATE_SHARE: Final = 0.01
"""One request in a hundred may wait longer: the 99th percentile."""
SCARCE_LATE_SHARE: Final = 0.1
"""While the next worker would be an on-demand one: where it costs most, the most of them are late."""
DOUBT: Final = 0.1
"""The standard deviation of the load that comes around the one foretold, as a share of it."""


@dataclass(frozen=True, slots=True)
class Demand:
    """``rate`` requests a second come for ``seconds``, while at first ``waiting`` requests wait."""

    rate: float
    waiting: float
    seconds: float
    dispersion: Dispersion = field(default_factory=Dispersion)


def all_busy(load: float, workers: float) -> float:
    """Return the chance that a request finds no idle worker; ``load`` is how many would be busy at least."""
    if workers <= load:
        return 1.0
    spare = (workers - load) / math.sqrt(workers)
    density = math.exp(-spare * spare / 2) / math.sqrt(2 * math.pi)
    return density / (density + spare * _below(spare))


def late(demand: Demand, each: float, workers: int, wait: float) -> float:
    """Return the chance that a request at the demand's end waits longer than ``wait``.

    ``each`` is what a worker ends in a second. Services vary as if by pure chance, arrivals by as much more
    as they were seen to, and the rate by ``DOUBT``.
    """
    capacity, rate, seconds = workers * each, demand.rate, demand.seconds
    drift, most = (rate - capacity) * seconds, wait * capacity
    requests = rate * seconds
    # Of services by chance, of arrivals by chance and in clumps, and of what was foretold.
    variance = requests + demand.dispersion.variance(requests, seconds) + (DOUBT * requests) ** 2
    if variance == 0 or capacity == 0:
        return float(demand.waiting + drift > most)
    spread = math.sqrt(variance)
    beyond = _below((demand.waiting - most + drift) / spread)
    reflected = _below((-demand.waiting - most - drift) / spread)
    if reflected > 0:
        # Where the drift is upwards the product is of a large number and a tiny one.
        beyond += math.exp(min(0.0, 2 * drift * most / variance + math.log(reflected)))
    busy = 1.0 if demand.waiting > 0 else all_busy(rate / each, workers)
    return min(1.0, busy * beyond)


def needed(demand: Demand, each: float, wait: float, most: int, share: float = LATE_SHARE) -> int:
    """Return the fewest workers, at most ``most``, with which no more than ``share`` wait too long."""
    # The allowed wait is no reserve to live on: the queue of fewer would grow for ever.
    low, high = min(most, math.ceil(demand.rate / each)), most
    while low < high:
        middle = (low + high) // 2
        if late(demand, each, middle, wait) <= share:
            high = middle
        else:
            low = middle + 1
    return low


def _below(deviations: float) -> float:
    return 0.5 * math.erfc(-deviations / math.sqrt(2))
