"""Scaler, health checker and controller on one fleet: unhealthy instances are replaced; a steady target."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.memory import COOLDOWN_SECONDS
from market.load.checked import CheckedFleet
from market.load.replay import play, reversals
from market.load.scaler_rule import ScalerRule
from market.rules import Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace

ZONES = [PoolTrace(f"zone{n}_g6.xlarge", 60.0, (1,) * 400) for n in range(2)]


@pytest.mark.parametrize("unhealthy_share", [0.0, 0.3])
def test_unhealthy_instances_are_replaced_and_the_target_is_stable(unhealthy_share: float) -> None:
    fleets: list[CheckedFleet] = []

    def build(*arguments: Any, **more: Any) -> CheckedFleet:
        fleets.append(
            CheckedFleet(*arguments, unhealthy_share=unhealthy_share, chance=random.Random(3), **more)
        )
        return fleets[-1]

    rules = Rules(seed=1)
    arrivals = np.random.default_rng(1).poisson(2.0, 5 * 3600)
    rule = ScalerRule(Bounds(60.0, 1, 40), 180.0)
    result = play(SpotMarket(ZONES, rules, 80), rules, rule, arrivals, {"g6.xlarge": 0.25}, 40, build)
    [fleet] = fleets
    replaced = {
        instance_id for instance_id in fleet.replaced_on_request if instance_id not in fleet._instances
    }
    assert bool(replaced) == bool(unhealthy_share)
    assert reversals(result.targets.tolist(), int(COOLDOWN_SECONDS // 60)) == 0
    # Eight workers suffice; unhealthy ones are compensated and replaced.
    assert result.targets[-60:].mean() < 24
    assert np.percentile(fleet.queue.waits(4 * 3600), 50) < 60
