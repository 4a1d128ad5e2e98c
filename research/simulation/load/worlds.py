"""Random worlds in which scaler, health checker and controller must not oscillate."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Final

from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.memory import COOLDOWN_SECONDS
from market.rules import Rules
from market.supply.drawn_market import draw
from market.supply.spot import SpotMarket
from research.simulation.load.checked import CheckedFleet
from research.simulation.load.replay import play, reversals
from research.simulation.load.scaler_rule import ScalerRule
from research.simulation.load.shapes import SPEEDS, LoadShape

MAX_SLOTS: Final = 80
"""Bounds of the workers that a rule may request."""
BOOT: Final = 180.0


def shaken(seed: int, hours: float = 2.0) -> int:
    """Simulate scaler, health checker and controller; return the target's reversals within the cooldown.

    Under a random load on a random market, with instances that become unhealthy.
    """
    chance = random.Random(f"scaling/{seed}")
    shape = LoadShape(
        "random",
        peak=chance.uniform(0.1, 8.0),
        night=chance.uniform(0.0, 1.0),
        bursts=chance.uniform(0.0, 48.0),
        burst_factor=chance.uniform(1.2, 3.0),
        burst_minutes=chance.uniform(1.0, 60.0),
        drift=chance.uniform(0.0, 0.5),
        clumping=chance.uniform(0.0, 1.0),
        hourly=chance.choice((0.0, 1.0)),
    )
    zones = draw(3, hours + 1, seed)
    traces = [replace(trace, name=f"zone_{kind}") for trace, kind in zip(zones, SPEEDS, strict=True)]
    rules = Rules(seed=seed, notice=chance.random(), boot_spread=0.3, on_demand_refusal=0.2)
    arrivals = shape.arrivals(1, seed)[8 * 3600 :][: int(hours * 3600)]
    rule = ScalerRule(Bounds(chance.choice((5.0, 30.0, 60.0, 300.0)), 1, MAX_SLOTS), BOOT)
    build = partial(CheckedFleet, unhealthy_share=chance.uniform(0.0, 0.4), chance=chance)
    played = play(SpotMarket(traces, rules, 2 * MAX_SLOTS), rules, rule, arrivals, SPEEDS, MAX_SLOTS, build)
    return reversals(played.targets.tolist(), int(COOLDOWN_SECONDS // 60))
