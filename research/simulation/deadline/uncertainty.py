"""Uncertainty of a job's world besides the pool's capacity, and the random draws for one pool.

``UncertaintyModel`` has an axis per kind; its default is the world as declared. ``Draws`` is one world in one
pool. Values are drawn by pool and tick, not in the order of a job's actions: every policy and the feasibility
check get the same world.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lambdas.core.deadline.model import JobMode
from market.rules import ticks
from research.simulation.deadline.pool import PoolRuns

HOUR = ticks(3600)


@dataclass(frozen=True, slots=True)
class UncertaintyModel:
    """How a world deviates from the plan. Values without a source are assumed.

    - ``longer``: the factor of a restart's duration on the expected one; ``spread``: each restart has a
      further random factor between 1 ÷ (1 + spread) and 1 + spread, each as likely as its inverse.
    - ``refused_with_spot``: the share of the pool's Spot losses at which On-Demand launches fail, too, for
      ``refusal_seconds``; ``refusals_a_day``: the number of independent such episodes. After each of them
      On-Demand is available for at least as long.
      AWS may "not currently have enough available On-Demand capacity": EC2 guide, "Troubleshoot instance
      launch issues".
    - ``slowest``: the minimum throughput as a fraction of the plan; ``drift``: a daily cycle in hourly steps;
      ``steps``: a new throughput every 4 to 16 hours.
    - ``prices``: Spot prices as fractions of On-Demand, each valid for ``price_hours``; empty: the job's
      price.
    - ``saved``: the share of interruptions before which the work was saved; otherwise the work since the last
      checkpoint is lost. Notices come "on a best effort basis": EC2 guide, "Spot Instance
      interruption notices".

    The job defines the polling interval and the work between two checkpoints.
    """

    seed: int = 1
    longer: float = 1.0
    spread: float = 0.0
    refused_with_spot: float = 0.0
    refusals_a_day: float = 0.0
    refusal_seconds: float = 3600.0
    slowest: float = 1.0
    progress: Literal["drift", "steps"] = "drift"
    prices: tuple[float, ...] = ()
    price_hours: float = 12.0
    saved: float = 1.0


class PricePeriod(NamedTuple):
    """A value, and the tick until which it is valid."""

    value: float
    end: int


class Draws:
    """One world's random draws in one pool. Ticks are the pool's."""

    def __init__(self, uncertainty: UncertaintyModel, pool: PoolRuns) -> None:
        """Draw what does not depend on the job."""
        self.uncertainty, self.pool = uncertainty, pool
        hours = pool.ticks // HOUR + 1
        periods = int(hours // uncertainty.price_hours) + 1
        self.refusals = _episodes(uncertainty, pool, self._random("refusals"))
        self._paces = _paces(uncertainty, hours, self._random("pace"))
        self._prices = _prices(uncertainty, periods, self._random("price"))

    def restart_seconds(self, expected_seconds: float, mode: JobMode, tick: int) -> int:
        """Return the actual ticks of a start at ``tick`` that is expected to take ``expected_seconds``."""
        uncertainty, factor = self.uncertainty, self.uncertainty.longer
        if uncertainty.spread:
            factor *= (1 + uncertainty.spread) ** self._random(f"{mode}/{tick}").uniform(-1, 1)
        return ticks(expected_seconds * factor)

    def refused(self, tick: int) -> bool:
        """Return whether an On-Demand launch fails at ``tick``."""
        index = bisect_right(self.refusals, (tick, self.pool.ticks + tick)) - 1
        return index >= 0 and tick < self.refusals[index][1]

    def pace(self, tick: int) -> PricePeriod:
        """Return the progress at ``tick`` as a fraction of the plan."""
        if self.uncertainty.slowest == 1:
            return PricePeriod(1.0, self.pool.ticks)
        return PricePeriod(self._paces[tick // HOUR], (tick // HOUR + 1) * HOUR)

    def price(self, tick: int, expected_price: float) -> PricePeriod:
        """Return the Spot price at ``tick`` as a fraction of On-Demand."""
        if not self._prices:
            return PricePeriod(expected_price, self.pool.ticks)
        length = ticks(self.uncertainty.price_hours * 3600)
        return PricePeriod(self._prices[tick // length], (tick // length + 1) * length)

    def saved(self, tick: int) -> bool:
        """Return whether the work was saved before an interruption at ``tick``."""
        return self.uncertainty.saved == 1 or self._random(f"saved/{tick}").random() < self.uncertainty.saved

    def _random(self, purpose: str) -> random.Random:
        return random.Random(f"{self.uncertainty.seed}/{self.pool.name}/{purpose}")


def _episodes(uncertainty: UncertaintyModel, pool: PoolRuns, rng: random.Random) -> list[tuple[int, int]]:
    """Return the episodes without On-Demand capacity as [start, end), in order."""
    begins = [
        run.start for run in pool.runs[1:] if not run.up and rng.random() < uncertainty.refused_with_spot
    ]
    alone = round(uncertainty.refusals_a_day * pool.ticks / (24 * HOUR))
    begins += [rng.randrange(pool.ticks) for _ in range(alone)]
    length, episodes = ticks(uncertainty.refusal_seconds), list[tuple[int, int]]()
    for begin in sorted(begins):
        if not episodes or begin >= episodes[-1][1] + length:
            episodes.append((begin, begin + length))
    return episodes


def _paces(uncertainty: UncertaintyModel, hours: int, rng: random.Random) -> list[float]:
    """Return the throughput of each hour."""
    if uncertainty.progress == "drift":
        phase, middle = rng.random(), (1 + uncertainty.slowest) / 2
        return [middle + (1 - middle) * math.sin(2 * math.pi * (hour / 24 + phase)) for hour in range(hours)]
    paces: list[float] = []
    while len(paces) < hours:
        paces += [rng.uniform(uncertainty.slowest, 1)] * rng.randint(4, 16)
    return paces[:hours]


def _prices(uncertainty: UncertaintyModel, periods: int, rng: random.Random) -> list[float]:
    """Return the price of each period; with several prices, consecutive periods differ."""
    prices: list[float] = []
    for _ in range(periods if uncertainty.prices else 0):
        other_prices = [price for price in uncertainty.prices if price not in prices[-1:]]
        prices.append(rng.choice(other_prices or list(uncertainty.prices)))
    return prices
