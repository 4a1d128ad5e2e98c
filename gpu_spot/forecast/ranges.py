"""Ranges of a forecast, from replayed history (docs/adr/0043)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

PART_HOURS: Final = 12.0
WEEK: Final = 14
"""Parts per week."""
HISTORY_PARTS: Final = 4 * WEEK
"""Maximum parts of a history that are used."""
_SHORTAGE_MEMORY: Final = 2.0 * WEEK
"""Decay constant in parts for shortage, which is too rare to estimate from one week."""


@dataclass(frozen=True, slots=True)
class CostLevel:
    """How the level of costs follows from a history (docs/adr/0058).

    ``memory`` is the decay constant, in parts, of the geometric mean of recent costs; ``recent`` its weight
    against the mean of the whole history, 0 to 1, in the logarithm.
    """

    memory: float
    recent: float


LEVEL: Final = CostLevel(memory=WEEK / 4, recent=0.7)
"""Chosen on the traces and the fitted model's markets; ``research/market/forecast.py`` shows what it is
worth on markets that were left out."""

_IDLE: Final = 0.1
"""Cost of a part, as a fraction of the mean, below which its group was idle for want of Spot capacity."""


@dataclass(frozen=True, slots=True)
class Spreads:
    """Deviation of weeks from their forecast, in four of five weeks.

    ``cost`` of the logarithm of the cost, ``shortage`` of the square root of shortage minutes per slot,
    ``losses`` of that of interruptions a day.
    """

    cost: float
    shortage: float
    losses: float = 0.0


FITTED: Final = Spreads(cost=0.239, shortage=1.202)
"""Fitted to the traces by ``research/fit/forecast.py``."""

ACROSS: Final = Spreads(cost=0.400, shortage=1.464, losses=1.449)
"""Of a recorded week from the middle of drawn markets; fitted so that the weeks of a market that was left out
are in the range four times in five (``research/market/forecast.py``)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Twelve hours of one slot of a replayed group.

    ``cost`` is a fraction of On-Demand for the whole time, ``spot_cost`` the part of it for Spot,
    ``shortage`` the minutes in which the slot was not ready, ``none_ready`` those in which no slot of the
    group was; ``losses`` are interruptions, ``unannounced`` those without notice.
    """

    cost: float
    shortage: float
    losses: float = 0.0
    unannounced: float = 0.0
    spot_cost: float = 0.0
    none_ready: float = 0.0


@dataclass(frozen=True, slots=True)
class Range:
    """A middle value, and the bounds that contain four weeks in five."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> Range:
        """Return the range multiplied by a factor."""
        return Range(self.low * factor, self.middle * factor, self.high * factor)

    def plus(self, addend: Range) -> Range:
        """Return the sum of fully correlated ranges, as of groups on one market."""
        return Range(self.low + addend.low, self.middle + addend.middle, self.high + addend.high)


NOTHING: Final = Range(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class SlotForecast:
    """A week of one slot: ``cost`` (a fraction of On-Demand), ``shortage`` minutes, and losses per day.

    ``spot_cost`` is the part of the cost that changes with Spot prices, ``none_ready`` the minutes a day in
    which no slot of the replayed group was ready.
    """

    cost: Range
    shortage: Range
    losses: Range
    unannounced: float
    spot_cost: float = 0.0
    none_ready: float = 0.0

    def cost_at(self, prices: Range) -> Range:
        """Return the cost with Spot prices that vary, too: ``prices`` ÷ those of the replay.

        Market and prices vary independently, so squares of the distances to the middle add up.
        """
        cheaper, dearer = self.spot_cost * (1 - prices.low), self.spot_cost * (prices.high - 1)
        middle = self.cost.middle
        low = middle - math.hypot(middle - self.cost.low, cheaper)
        return Range(max(0.0, low), middle, middle + math.hypot(self.cost.high - middle, dearer))


NO_SPOT: Final = SlotForecast(NOTHING, NOTHING, NOTHING, 0.0)


def cost_level(history: Sequence[Part], level: CostLevel = LEVEL) -> float:
    """Return the expected cost of the week after a history.

    Markets drift, so recent parts count more; a week's outages are partly chance, so the rest of the history
    counts, too. Parts in which hardly anything ran would pull the geometric mean to zero, so with such parts
    it is the arithmetic one, of at least ``_IDLE`` of the history's.
    """
    costs = [part.cost for part in history[-HISTORY_PARTS:]]
    floor = max(_IDLE * _mean(costs), 1e-6)
    if min(costs) < floor:
        recent = math.log(max(_weighted_mean(costs, level.memory), floor))
    else:
        recent = _weighted_mean([math.log(cost) for cost in costs], level.memory)
    return math.exp(level.recent * recent + (1 - level.recent) * math.log(max(_mean(costs), floor)))


def after(history: Sequence[Part], spreads: Spreads = FITTED) -> SlotForecast:
    """Return the week after a recorded history. Raises ``ValueError`` for less than a week of history."""
    if len(history) < WEEK:
        days = len(history) * PART_HOURS / 24
        raise ValueError(f"the recorded market has {days:g} days, at least 7 are required")
    history = history[-HISTORY_PARTS:]
    level = cost_level(history)
    spread = math.exp(spreads.cost)
    shortage = WEEK * _weighted_mean([part.shortage for part in history], _SHORTAGE_MEMORY)
    rates = [_rate(history[begin : begin + WEEK], "losses") for begin in range(len(history) - WEEK + 1)]
    return SlotForecast(
        Range(level / spread, level, level * spread),
        _around(shortage, spreads.shortage),
        Range(min(rates), max(min(rates), min(max(rates), _rate(history, "losses"))), max(rates)),
        _rate(history, "unannounced"),
        level * _mean([part.spot_cost for part in history]) / (_mean([part.cost for part in history]) or 1.0),
        _rate(history, "none_ready"),
    )


def across(markets: Sequence[Sequence[Part]], spreads: Spreads = ACROSS) -> SlotForecast:
    """Return a week in an unknown market, from weeks of drawn markets; a market differs more than a week."""
    every = [part for market in markets for part in market]
    middle = median(_mean([part.cost for part in market]) for market in markets)
    spread = math.exp(spreads.cost)
    return SlotForecast(
        Range(middle / spread, middle, middle * spread),
        _around(
            median(WEEK * _mean([part.shortage for part in market]) for market in markets), spreads.shortage
        ),
        _around(median(_rate(market, "losses") for market in markets), spreads.losses),
        _rate(every, "unannounced"),
        _mean([part.spot_cost for part in every]),
        _rate(every, "none_ready"),
    )


def _around(middle: float, spread: float) -> Range:
    root = math.sqrt(middle)
    return Range(max(0.0, root - spread) ** 2, middle, (root + spread) ** 2)


def _rate(parts: Sequence[Part], kind: str) -> float:
    """Return the events of a kind per day."""
    return math.fsum(getattr(part, kind) for part in parts) / (len(parts) * PART_HOURS / 24)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _weighted_mean(values: Sequence[float], memory: float) -> float:
    """Return the mean with exponentially decaying weights for older parts."""
    weights = [math.exp((index + 1 - len(values)) / memory) for index in range(len(values))]
    return math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)
