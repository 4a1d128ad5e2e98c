"""How a range is made of what was replayed (docs/adr/0043)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PART_HOURS: Final = 12.0
WEEK: Final = 14
"""Parts in a week."""
LOOK_BACK: Final = 4 * WEEK
"""Parts of a history that are looked at."""
_COST_MEMORY: Final = WEEK / 4
"""Parts until a part counts 1/e for the level of costs, half of the week that is forecast."""
_SHORTAGE_MEMORY: Final = 2.0 * WEEK
"""The same for shortage, of which a week has too little to learn from."""


@dataclass(frozen=True, slots=True)
class Spreads:
    """By how much weeks differ from what was forecast for them, in four of five.

    ``cost`` of the logarithm of the cost, ``shortage`` of the square root of shortage minutes a slot.
    """

    cost: float
    shortage: float


FITTED: Final = Spreads(cost=0.275, shortage=1.202)
"""Fitted to the traces by ``bench/fit/forecast.py``."""


@dataclass(frozen=True, slots=True)
class Part:
    """Twelve hours of one slot of a replayed group.

    ``cost`` is a fraction of on-demand all the time, ``shortage`` the minutes in which it was not ready;
    ``losses`` are interruptions, ``unannounced`` those of them without a notice.
    """

    cost: float
    shortage: float
    losses: float = 0.0
    unannounced: float = 0.0


@dataclass(frozen=True, slots=True)
class Likely:
    """A middle, and the ends between which four weeks in five shall be."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> Likely:
        """Return it in another unit."""
        return Likely(self.low * factor, self.middle * factor, self.high * factor)

    def plus(self, other: Likely) -> Likely:
        """Return the sum where both are high together, as groups on one market are."""
        return Likely(self.low + other.low, self.middle + other.middle, self.high + other.high)


NOTHING: Final = Likely(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """A week of one slot: ``cost`` (a fraction of on-demand), ``shortage`` minutes, and losses a day."""

    cost: Likely
    shortage: Likely
    losses: float
    unannounced: float


def after(history: Sequence[Part], spreads: Spreads = FITTED) -> Outlook:
    """Return the week after a recorded history. Raises ``ValueError`` for less than a week of it."""
    if len(history) < WEEK:
        days = len(history) * PART_HOURS / 24
        raise ValueError(f"{days:g} days of market are too short, at least 7 are needed")
    history = history[-LOOK_BACK:]
    level = math.exp(_fading([math.log(max(part.cost, 1e-6)) for part in history], _COST_MEMORY))
    root = math.sqrt(WEEK * _fading([part.shortage for part in history], _SHORTAGE_MEMORY))
    spread, wide = math.exp(spreads.cost), spreads.shortage
    return Outlook(
        Likely(level / spread, level, level * spread),
        Likely(max(0.0, root - wide) ** 2, root**2, (root + wide) ** 2),
        *_rates(history),
    )


def across(worlds: Sequence[Sequence[Part]]) -> Outlook:
    """Return a week in markets of which nobody knows which it will be: an easy, a middling and a hard one."""
    costs = sorted(_mean([part.cost for part in world]) for world in worlds)
    shortages = sorted(WEEK * _mean([part.shortage for part in world]) for world in worlds)
    return Outlook(_ends(costs), _ends(shortages), *_rates([part for world in worlds for part in world]))


def _ends(values: Sequence[float]) -> Likely:
    return Likely(values[0], values[len(values) // 2], values[-1])


def _rates(parts: Sequence[Part]) -> tuple[float, float]:
    days = len(parts) * PART_HOURS / 24
    return sum(part.losses for part in parts) / days, sum(part.unannounced for part in parts) / days


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _fading(values: Sequence[float], memory: float) -> float:
    """Return the mean in which each part counts less than the one after it."""
    weights = [math.exp((index + 1 - len(values)) / memory) for index in range(len(values))]
    return math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)
