"""Sequential tests of a candidate: each side's evidence grows as a bet's capital, and a bound decides.

A test has two null hypotheses: the candidate is not worse, and the candidate is worse. The capital of a bet
against a true null hypothesis exceeds 1/α with a probability of at most α, however often it is read.

Sources: Ville, Étude critique de la notion de collectif (1939), the inequality; Waudby-Smith and Ramdas,
Estimating means of bounded random variables by betting (J. R. Stat. Soc. B 86, 2024), the bets on a
difference of proportions; Wald, Sequential Analysis (1947), the likelihood ratio of a normal mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from contracts.stored import stored

ERROR_RATE: Final = 0.002
"""Probability that a test decides wrongly."""
BOUND: Final = -math.log(ERROR_RATE)
"""Logarithm of the capital that decides."""
MAX_WINDOW_GAIN: Final = BOUND / 2.5
"""Maximum logarithmic gain of one window: three windows decide, so that no single incident does."""
MIN_LOG_CAPITAL: Final = -3.0
"""A bet loses no more than this: a release that becomes worse later is still detected."""
BETS: Final = (0.1, 0.3, 0.6, 0.95)
"""Stakes; the capital is the mean of the bets' (the method of mixtures)."""
MAX_HARMLESS_DIFFERENCE: Final = 0.015
"""A share of failed requests that is at most this much higher is not rejected."""
MIN_HARMFUL_DIFFERENCE: Final = 0.04
"""A share of failed requests that is at least this much higher is not accepted."""
SLOWDOWN: Final = 1.3
"""A release is slower if it takes this many times as long for a request."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Requests of the same minutes: how many the candidate's workers and the others ended, and failed."""

    new: int = 0
    new_failed: int = 0
    old: int = 0
    old_failed: int = 0

    @property
    def new_share(self) -> float:
        """Share of the candidate's requests that failed."""
        return self.new_failed / self.new if self.new else 0.0

    @property
    def old_share(self) -> float:
        """Share of the others' requests that failed."""
        return self.old_failed / self.old if self.old else 0.0


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Evidence:
    """Logarithms of the capital of each bet that the candidate is worse, and that it is not."""

    worse: tuple[float, ...] = (0.0,)
    harmless: tuple[float, ...] = (0.0,)

    @property
    def is_worse(self) -> bool:
        """Whether the candidate is proven worse."""
        return _log_mean(self.worse) >= BOUND

    @property
    def is_harmless(self) -> bool:
        """Whether the candidate is proven not worse."""
        return _log_mean(self.harmless) >= BOUND


def add_failures(evidence: Evidence, window: Tally) -> Evidence:
    """Return the evidence after a window with requests of both sides.

    Each request of the smaller side is paired with one of the other side. The difference of the two failures
    (1, 0 or -1) has the difference of the proportions as its mean, whatever the proportions of this window.
    The gain is the geometric mean over all pairings, which is at most the arithmetic mean.
    """
    return replace(
        evidence,
        worse=_add(evidence.worse, _gains(window, MAX_HARMLESS_DIFFERENCE, 1)),
        harmless=_add(evidence.harmless, _gains(window, MIN_HARMFUL_DIFFERENCE, -1)),
    )


def add_speed(evidence: Evidence, low: float, high: float, variance: float) -> Evidence:
    """Return the evidence after a window in which a request took between e^low and e^high times as long."""
    step = math.log(SLOWDOWN)
    return replace(
        evidence,
        worse=_add(evidence.worse, (step / variance * (low - step / 2),)),
        harmless=_add(evidence.harmless, (step / variance * (step / 2 - high),)),
    )


def _gains(window: Tally, margin: float, sign: int) -> tuple[float, ...]:
    pairs, new, old = min(window.new, window.old), window.new_share, window.old_share
    up, down = new * (1 - old), (1 - new) * old
    weights = ((1.0, up), (-1.0, down), (0.0, 1 - up - down))
    return tuple(
        pairs * sum(weight * math.log1p(bet * sign * (value - margin)) for value, weight in weights)
        for bet in BETS
    )


def _add(capital: tuple[float, ...], gains: tuple[float, ...]) -> tuple[float, ...]:
    before = capital if len(capital) == len(gains) else (0.0,) * len(gains)
    return tuple(
        round(max(MIN_LOG_CAPITAL, earlier + min(gain, MAX_WINDOW_GAIN)), 4)
        for earlier, gain in zip(before, gains, strict=True)
    )


def _log_mean(logarithms: tuple[float, ...]) -> float:
    largest = max(logarithms)
    return largest + math.log(sum(math.exp(value - largest) for value in logarithms) / len(logarithms))
