"""Ranges of a forecast, from replayed history (docs/adr/0043)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Spreads:
    """Deviation of weeks from their forecast, in four of five weeks.

    ``cost`` of the logarithm of the cost, ``shortage`` of the square root of shortage minutes per slot.
    """

    cost: float
    shortage: float


FITTED: Final = Spreads(cost=0.239, shortage=1.202)
"""Fitted to the traces by ``research/fit/forecast.py``."""


@dataclass(frozen=True, slots=True)
class Part:
    """Twelve hours of one slot of a replayed group.

    ``cost`` is a fraction of On-Demand for the whole time, ``shortage`` the minutes in which the slot was not
    ready; ``losses`` are interruptions, ``unannounced`` those without notice.
    """

    cost: float
    shortage: float
    losses: float = 0.0
    unannounced: float = 0.0


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
    """A week of one slot: ``cost`` (a fraction of On-Demand), ``shortage`` minutes, and losses per day."""

    cost: Range
    shortage: Range
    losses: float
    unannounced: float


def cost_level(history: Sequence[Part], level: CostLevel = LEVEL) -> float:
    """Return the expected cost of the week after a history.

    Markets drift, so recent parts count more; a week's outages are partly chance, so the rest of the history
    counts, too.
    """
    costs = [max(part.cost, 1e-6) for part in history[-HISTORY_PARTS:]]
    recent = _weighted_mean([math.log(cost) for cost in costs], level.memory)
    return math.exp(level.recent * recent + (1 - level.recent) * math.log(_mean(costs)))


def after(history: Sequence[Part], spreads: Spreads = FITTED) -> SlotForecast:
    """Return the week after a recorded history. Raises ``ValueError`` for less than a week of history."""
    if len(history) < WEEK:
        days = len(history) * PART_HOURS / 24
        raise ValueError(f"the recorded market has {days:g} days, at least 7 are required")
    history = history[-HISTORY_PARTS:]
    level = cost_level(history)
    root = math.sqrt(WEEK * _weighted_mean([part.shortage for part in history], _SHORTAGE_MEMORY))
    spread, wide = math.exp(spreads.cost), spreads.shortage
    return SlotForecast(
        Range(level / spread, level, level * spread),
        Range(max(0.0, root - wide) ** 2, root**2, (root + wide) ** 2),
        *_rates(history),
    )


def across(markets: Sequence[Sequence[Part]]) -> SlotForecast:
    """Return a week in an unknown market, from a good, a median and a bad market."""
    costs = sorted(_mean([part.cost for part in market]) for market in markets)
    shortages = sorted(WEEK * _mean([part.shortage for part in market]) for market in markets)
    return SlotForecast(
        _ends(costs), _ends(shortages), *_rates([part for market in markets for part in market])
    )


def _ends(values: Sequence[float]) -> Range:
    return Range(values[0], values[len(values) // 2], values[-1])


def _rates(parts: Sequence[Part]) -> tuple[float, float]:
    days = len(parts) * PART_HOURS / 24
    return sum(part.losses for part in parts) / days, sum(part.unannounced for part in parts) / days


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _weighted_mean(values: Sequence[float], memory: float) -> float:
    """Return the mean with exponentially decaying weights for older parts."""
    weights = [math.exp((index + 1 - len(values)) / memory) for index in range(len(values))]
    return math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)
