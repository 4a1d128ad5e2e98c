"""Random worlds in which scaler, health checker, roll-outs and controller must not oscillate."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contracts.group.release import WorkerRelease
from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.memory import COOLDOWN_SECONDS
from market.load.replay import MONDAY, play, reversals
from market.load.rolled import FAULTS, ReleaseFault, RolledFleet, RolloutCosts, Upgrade
from market.load.scaler_rule import ScalerRule
from market.load.shapes import LoadShape
from market.load.speeds import SPEEDS
from market.rules import Rules
from market.supply.drawn_market import draw
from market.supply.spot import SpotMarket

MAX_SLOTS: Final = 80
"""Bounds of the workers that a rule may request."""
BOOT: Final = 180.0


@dataclass(frozen=True)
class Shaken:
    """The result of a random world; ``reversals`` counts reversals of the target within the cooldown."""

    reversals: int
    costs: RolloutCosts


def shaken(seed: int, hours: float = 2.0) -> Shaken:
    """Simulate scaler, health checker, roll-outs and controller together.

    Under a random load on a random market, with instances that become unhealthy, and two new releases.
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
    unhealthy_share = chance.uniform(0.0, 0.4)
    upgrades = [_upgrade(number, hours, chance) for number in range(2)]
    fleets: list[RolledFleet] = []

    def build(*arguments: Any, **more: Any) -> RolledFleet:
        fleets.append(
            RolledFleet(*arguments, unhealthy_share=unhealthy_share, chance=chance, upgrades=upgrades, **more)
        )
        return fleets[-1]

    played = play(SpotMarket(traces, rules, 2 * MAX_SLOTS), rules, rule, arrivals, SPEEDS, MAX_SLOTS, build)
    return Shaken(reversals(played.targets.tolist(), int(COOLDOWN_SECONDS // 60)), fleets[0].costs)


def rolled_out(played: Sequence[Shaken]) -> dict[str, Any]:
    """Return the results of roll-outs in the random worlds: the worst values, and counts."""
    costs_of_worlds = [world.costs for world in played]
    return {
        "random_worlds": len(played),
        "served_despite_rollouts": min((costs.share for costs in costs_of_worlds), default=1.0),
        "worlds_below_nine_tenths": sum(costs.share < 0.9 for costs in costs_of_worlds),
        "most_on_a_bad_release": max((costs.on_bad for costs in costs_of_worlds), default=0),
        "asked_with_too_few_left": sum(costs.robbed for costs in costs_of_worlds),
        "taken_back": sum(len(costs.taken_back) for costs in costs_of_worlds),
    }


def _upgrade(number: int, hours: float, chance: random.Random) -> Upgrade:
    """Return a new release in this half of the time; every second one is bad."""
    fault: ReleaseFault = chance.choice(FAULTS) if chance.random() < 0.5 else "well"
    at = MONDAY + 3600 * hours * chance.uniform(0.1 + 0.5 * number, 0.2 + 0.5 * number)
    return Upgrade(at, WorkerRelease(f"registry.example/ocr@sha256:{number}"), fault)
