"""The load forecast for the time when instances launched now are ready: recent load times daily profile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from lambdas.core.scaling.dispersion import Dispersion
from lambdas.core.scaling.model import POLL_SECONDS
from lambdas.core.scaling.profile import Profile

_Curve: TypeAlias = Callable[[float], float]

_WINDOW_MINUTES: Final = (1, 2, 5)
"""If these last minutes differ significantly from the longer mean, the load has changed."""
_SIGNIFICANT_DEVIATIONS: Final = 3.0
"""Standard deviations that make a difference significant."""
_MAX_RISE: Final = 3.0
"""The profile raises the forecast at most by this factor above the current load."""
_STEP_SECONDS: Final = 300.0


def estimate_level(arrivals: Sequence[tuple[float, float]], shape: _Curve, dispersion: Dispersion) -> float:
    """Return the current load as a multiple of the shape, from the last minutes only if they differ."""
    rates = [(rate, shape(at)) for at, rate in arrivals]
    rate, profile_sum = _sum(rates)
    for minutes in _WINDOW_MINUTES:
        recent, expected = _sum(rates[-minutes:])
        predicted = rate / profile_sum * expected
        predicted_requests = max(1.0, predicted * POLL_SECONDS)
        deviation = math.sqrt(dispersion.variance(predicted_requests, minutes * POLL_SECONDS))
        if abs(recent - predicted) * POLL_SECONDS > _SIGNIFICANT_DEVIATIONS * deviation:
            return recent / expected
    return rate / profile_sum


def forecast(
    arrivals: Sequence[tuple[float, float]], profile: Profile, dispersion: Dispersion, now: float, end: float
) -> float:
    """Return the maximum requests a second expected between ``now`` and ``end`` (epoch seconds)."""
    if not arrivals:
        return 0.0
    times = [min(now + k * _STEP_SECONDS, end) for k in range(2 + int((end - now) / _STEP_SECONDS))]
    shape = _shape(profile, [*(at for at, _ in arrivals), *times])
    current = shape(now)
    return estimate_level(arrivals, shape, dispersion) * min(max(map(shape, times)), _MAX_RISE * current)


def _shape(profile: Profile, times: Sequence[float]) -> _Curve:
    """Return the daily profile, or a flat shape if the profile is unknown at any of these times."""
    if any(profile.rate_at(at) is None for at in times):
        return lambda _: 1.0
    return lambda at: max(profile.rate_at(at) or 0.0, 1e-3)


def _sum(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(rate for rate, _ in pairs), sum(profile_rate for _, profile_rate in pairs)
