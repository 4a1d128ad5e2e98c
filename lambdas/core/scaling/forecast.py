"""The load when what is ordered now is ready: that of the last minutes, carried on by the time of day."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.model import LOOK_SECONDS
from lambdas.core.scaling.profile import Profile

_Curve: TypeAlias = Callable[[float], float]

_WINDOWS: Final = (2, 5)
"""Minutes: where they differ from the longer mean by more than chance does, the load has changed."""
_SURE: Final = 3.0
"""Standard deviations that are no chance."""
_MOST_RISE: Final = 3.0
"""A usual day raises the forecast at most so far above the load of now."""
_STEP: Final = 300.0


def level(arrivals: Sequence[tuple[float, float]], shape: _Curve, dispersion: Dispersion) -> float:
    """Return the load of now in multiples of the shape: the newest minutes alone where they contradict."""
    rates = [(rate, shape(at)) for at, rate in arrivals]
    rate, usual = _sum(rates)
    for minutes in _WINDOWS:
        newest, expected = _sum(rates[-minutes:])
        foretold = rate / usual * expected
        requests = max(1.0, foretold * LOOK_SECONDS)
        chance = math.sqrt(dispersion.variance(requests, minutes * LOOK_SECONDS))
        if abs(newest - foretold) * LOOK_SECONDS > _SURE * chance:
            return newest / expected
    return rate / usual


def forecast(
    arrivals: Sequence[tuple[float, float]],
    profile: Profile,
    dispersion: Dispersion,
    now: float,
    until: float,
) -> float:
    """Return the most requests a second that are expected from now ``until`` a time."""
    if not arrivals:
        return 0.0
    ahead = [min(now + k * _STEP, until) for k in range(2 + int((until - now) / _STEP))]
    shape = _usual(profile, [*(at for at, _ in arrivals), *ahead])
    today = shape(now)
    return level(arrivals, shape, dispersion) * min(max(map(shape, ahead)), _MOST_RISE * today)


def _usual(profile: Profile, times: Sequence[float]) -> _Curve:
    """Return the shape of a usual day, a flat one where it is not known at all these times."""
    if any(profile.at(at) is None for at in times):
        return lambda _: 1.0
    return lambda at: max(profile.at(at) or 0.0, 1e-3)


def _sum(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(rate for rate, _ in pairs), sum(usual for _, usual in pairs)
