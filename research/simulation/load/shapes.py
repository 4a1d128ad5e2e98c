"""Generator of realistic service loads: daily and weekly curve, timers, bursts, silences.

Not a recording: the parameters are assumed, after published shapes. The services of
the Azure LLM inference traces of 2024 (Stojkovic et al., DynamoLLM, HPCA 2025) are the models of
``conversation``, which people use all day, and ``coding``, which sleeps at night and at weekends. That
arrivals are burstier than Poisson's, as if their rate were drawn from a Gamma distribution, is BurstGPT's
finding (Wang et al., arXiv 2401.17644). That much work comes by timers, at full hours, is that of the Azure
Functions traces (Shahrad et al., Serverless in the Wild, ATC 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

DAY: Final = 86400
SPEEDS: Final = {"g6.xlarge": 0.25, "g5.xlarge": 0.31, "g4dn.xlarge": 0.16}
"""Requests per second of a saturated worker by instance type: assumed ratio of an L4, an A10G and a T4."""
MEAN: Final = sum(SPEEDS.values()) / len(SPEEDS)
"""Mean of `SPEEDS`."""
_DRIFT_HOURS: Final = 6.0


@dataclass(frozen=True, slots=True)
class LoadShape:
    """A load: ``peak`` is the rate (requests a second) of a usual busy hour, the others shares of it.

    ``night`` is the rate of the quietest hour, ``weekend`` the factor of Saturday and Sunday; the day is
    ``office`` where it has a plateau from 9 to 18. ``hourly`` and ``daily`` are what timers add at full hours
    for five minutes and at 6:00 for half an hour. ``bursts`` a day multiply the load by about
    ``burst_factor`` for about ``burst_minutes``. ``drift`` is the spread of the log rate around its curve,
    slow over hours; ``clumping`` the coefficient of variation of the rate from one ten seconds to the next.
    ``silences`` a week are two hours in which nothing comes.
    """

    name: str
    peak: float = 6.0
    night: float = 0.3
    weekend: float = 0.8
    office: bool = False
    hourly: float = 0.0
    daily: float = 0.0
    bursts: float = 2.0
    burst_factor: float = 1.6
    burst_minutes: float = 10.0
    drift: float = 0.1
    clumping: float = 0.3
    silences: int = 1

    def rates(self, days: int, seed: int) -> NDArray[np.float64]:
        """Return the rate of every second from a Monday's midnight on."""
        chance = np.random.default_rng([seed, 1])
        at = np.arange(days * DAY)
        rates = self._curve(at) * np.exp(self._drifting(days, chance))
        for _ in range(chance.poisson(self.bursts * days)):
            begin = int(chance.integers(0, days * DAY))
            factor = float(np.clip(self.burst_factor * chance.lognormal(0, 0.3), 1.2, 3.5))
            length = int(60 * max(2.0, chance.exponential(self.burst_minutes)))
            rise = np.minimum(1.0, np.arange(len(rates[begin : begin + length])) / 60)
            rates[begin : begin + length] *= 1 + (factor - 1) * rise
        for week in range((days + 6) // 7):
            for _ in range(self.silences):
                begin = int(week * 7 * DAY + chance.integers(0, 7 * DAY))
                rates[begin : begin + 7200] = 0.0
        return rates

    def arrivals(self, days: int, seed: int) -> NDArray[np.int64]:
        """Return the number of requests in every second."""
        chance = np.random.default_rng([seed, 2])
        rates = self.rates(days, seed)
        if self.clumping > 0:
            form = 1 / self.clumping**2
            rates = rates * np.repeat(chance.gamma(form, 1 / form, len(rates) // 10), 10)
        return chance.poisson(rates)

    def _curve(self, at: NDArray[np.int64]) -> NDArray[np.float64]:
        hour = at % DAY / 3600
        if self.office:
            day = np.clip(np.minimum(hour - 7, 20 - hour) / 2, 0, 1)
        else:
            day = 0.5 - 0.5 * np.cos(2 * np.pi * (hour - 3) / 24)
        curve = self.peak * (self.night + (1 - self.night) * day)
        curve *= np.where(at // DAY % 7 >= 5, self.weekend, 1.0)
        curve += self.peak * self.hourly * (at % 3600 < 300)
        curve += self.peak * self.daily * ((hour >= 6) & (hour < 6.5))
        return np.asarray(curve, dtype=np.float64)

    def _drifting(self, days: int, chance: np.random.Generator) -> NDArray[np.float64]:
        """Return a slow mean-reverting random walk around 0 with a memory of hours."""
        minutes = days * 1440
        decay = np.exp(-1 / (60 * _DRIFT_HOURS))
        fresh = chance.normal(0, np.sqrt(1 - decay**2), minutes)
        values, value = np.empty(minutes), chance.normal()
        for index in range(minutes):
            value = decay * value + fresh[index]
            values[index] = value
        return np.repeat(self.drift * values, 60)


SHAPES: Final = (
    LoadShape("conversation"),
    LoadShape("coding", night=0.03, weekend=0.15, office=True),
    LoadShape("timers", night=0.2, hourly=0.25, daily=0.6),
)
