"""Random worlds in which scaler, health checker, its roll-outs and controller must not swing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contracts.group.release import WorkerRelease
from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.memory import COOLDOWN_SECONDS
from market.load.replay import MONDAY, play, reversals
from market.load.rolled import FAULTS, ReleaseFault, RolledFleet, RolloutToll, Upgrade
from market.load.scaler_rule import Ours
from market.load.shapes import LoadShape
from market.load.speeds import SPEEDS
from market.rules import Rules
from market.supply.drawn_market import draw
from market.supply.spot import SpotMarket

MOST: Final = 80
"""Workers that a rule may ask for."""
BOOT: Final = 180.0


@dataclass(frozen=True)
class Shaken:
    """What came of a random world; ``reversals`` of the target are those within the cooldown."""

    reversals: int
    toll: RolloutToll


def shaken(seed: int, hours: float = 2.0) -> Shaken:
    """Play scaler, health checker, its roll-outs and controller together.

    Under a random load on a random market, with instances that fall ill, and two new releases.
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
    rule = Ours(Bounds(chance.choice((5.0, 30.0, 60.0, 300.0)), 1, MOST), BOOT)
    ill = chance.uniform(0.0, 0.4)
    upgrades = [_upgrade(number, hours, chance) for number in range(2)]
    made: list[RolledFleet] = []

    def build(*arguments: Any, **more: Any) -> RolledFleet:
        made.append(RolledFleet(*arguments, ill=ill, chance=chance, upgrades=upgrades, **more))
        return made[-1]

    played = play(SpotMarket(traces, rules, 2 * MOST), rules, rule, arrivals, SPEEDS, MOST, build)
    return Shaken(reversals(played.targets.tolist(), int(COOLDOWN_SECONDS // 60)), made[0].toll)


def rolled_out(played: Sequence[Shaken]) -> dict[str, Any]:
    """Return what roll-outs came to in the random worlds: the worst of them, and counts."""
    tolls = [one.toll for one in played]
    return {
        "random_worlds": len(played),
        "served_despite_rollouts": min((toll.share for toll in tolls), default=1.0),
        "worlds_below_nine_tenths": sum(toll.share < 0.9 for toll in tolls),
        "most_on_a_bad_release": max((toll.on_bad for toll in tolls), default=0),
        "asked_with_too_few_left": sum(toll.robbed for toll in tolls),
        "taken_back": sum(len(toll.taken_back) for toll in tolls),
    }


def _upgrade(number: int, hours: float, chance: random.Random) -> Upgrade:
    """Return a new release in this half of the time, every other one bad."""
    fault: ReleaseFault = chance.choice(FAULTS) if chance.random() < 0.5 else "well"
    at = MONDAY + 3600 * hours * chance.uniform(0.1 + 0.5 * number, 0.2 + 0.5 * number)
    return Upgrade(at, WorkerRelease(f"registry.example/ocr@sha256:{number}"), fault)
