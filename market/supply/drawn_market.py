"""A Spot market drawn from a model that is fitted to real traces, for use without traces.

Each pool is up or down. Its loss rate falls with the age of the up-run and its return rate with the age of
the down-run, both in steps; pools differ by a lasting factor, part of which the whole region shares; and a
regional "weather" (an Ornstein-Uhlenbeck process in the log rates) makes the zones of a region fail together.

The parameters are derived from the 0/1 traces of the public ``skypilot-org/spot-traces`` by
``research/fit/market.py``; no sample of them is kept here.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from market.rules import TICK_SECONDS
from market.supply.trace import PoolTrace, TraceError

AGE_BANDS: Final = (0.0, 0.25, 1.0, 3.0, 10.0)
"""From which age of a run, in hours, each rate holds."""
_TIGHTNESS_TICKS: Final = 10
_SETTLE_HOURS: Final = 48.0
_MOST_SPREADS: Final = 1.5
"""Maximum deviation of a pool in standard deviations: the traces show none beyond."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The fitted parameters.

    ``loss`` and ``back`` are rates per hour by age band, of a median pool in median weather; ``spread``
    the standard deviation of a pool's log hardness, which multiplies its loss and divides its return rate;
    ``regional`` the share of that variance which all pools of the region have in common; ``weather`` the
    standard deviation of the regional weather in the log rates, and ``weather_hours`` its correlation time.
    """

    loss: tuple[float, ...]
    back: tuple[float, ...]
    spread: float
    regional: float
    tightness: float
    tightness_hours: float


FITTED: Final = Parameters(
    loss=(1.468, 0.982, 0.404, 0.239, 0.104),
    back=(2.049, 1.296, 0.495, 0.308, 0.177),
    spread=0.396,
    regional=0.758,
    tightness=0.8,
    tightness_hours=6.0,
)


def draw(pools: int, hours: float, seed: int, parameters: Parameters = FITTED) -> tuple[PoolTrace, ...]:
    """Return ``pools`` traces of one region, ``model-1`` …, 0 or 1 every 60 s for ``hours``.

    The same arguments give the same traces. Raises ``TraceError`` for less than one pool or one tick.
    """
    if pools < 1:
        raise TraceError(f"pools must be at least 1, not {pools}")
    length = int(hours * 3600 // TICK_SECONDS) if math.isfinite(hours) else 0
    if length < 1:
        raise TraceError(f"hours must be at least one minute, not {hours:g}")
    chance = random.Random(f"model/{seed}/{pools}")
    settle = int(_SETTLE_HOURS * 3600 // TICK_SECONDS)
    tightness = _draw_tightness(settle + length, chance, parameters)
    common = _normal(chance)
    traces: list[PoolTrace] = []
    for index in range(1, pools + 1):
        pool_draw = _normal(chance)
        regional = parameters.regional
        hardness = parameters.spread * (math.sqrt(regional) * common + math.sqrt(1 - regional) * pool_draw)
        samples = _pool(hardness, tightness, chance, parameters)
        traces.append(PoolTrace(f"model-{index}", TICK_SECONDS, tuple(samples[settle : settle + length])))
    return tuple(traces)


def _normal(chance: random.Random) -> float:
    while abs(value := chance.gauss(0.0, 1.0)) > _MOST_SPREADS:
        pass
    return value


def _draw_tightness(length: int, chance: random.Random, parameters: Parameters) -> list[float]:
    """Return the regional log factor of the loss rates for every ``_WEATHER_TICKS``."""
    decay = math.exp(-_TIGHTNESS_TICKS * TICK_SECONDS / 3600 / parameters.tightness_hours)
    fresh = math.sqrt(1 - decay * decay)
    value, values = chance.gauss(0.0, 1.0), []
    for _ in range(length // _TIGHTNESS_TICKS + 1):
        values.append(parameters.tightness * value)
        value = decay * value + fresh * chance.gauss(0.0, 1.0)
    return values


def _pool(
    hardness: float, tightness: list[float], chance: random.Random, parameters: Parameters
) -> list[int]:
    per_tick = TICK_SECONDS / 3600
    up, age = chance.random() < 0.5, 0.0
    samples: list[int] = []
    for value in tightness:
        harder = math.exp(hardness + value)
        loss = [1 - math.exp(-rate * harder * per_tick) for rate in parameters.loss]
        back = [1 - math.exp(-rate / harder * per_tick) for rate in parameters.back]
        for _ in range(_TIGHTNESS_TICKS):
            rates = loss if up else back
            if chance.random() < rates[bisect_right(AGE_BANDS, age) - 1]:
                up, age = not up, 0.0
            else:
                age += per_tick
            samples.append(int(up))
    return samples
