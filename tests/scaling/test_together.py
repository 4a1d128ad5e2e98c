"""Scaler, health checker and controller on one fleet: who is ill is replaced, the target does not swing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from contracts.group.scaling_settings import Bounds
from lambdas.core.scaling.memory import COOLDOWN
from market.load.checked import CheckedFleet
from market.load.replay import play, reversals
from market.load.scaler_rule import Ours
from market.rules import Rules
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace

ZONES = [PoolTrace(f"zone{n}_g6.xlarge", 60.0, (1,) * 400) for n in range(2)]


@pytest.mark.parametrize("ill", [0.0, 0.3])
def test_who_is_ill_is_replaced_by_the_controller_and_the_target_does_not_swing(ill: float) -> None:
    made: list[CheckedFleet] = []

    def build(*arguments: Any, **more: Any) -> CheckedFleet:
        made.append(CheckedFleet(*arguments, ill=ill, chance=random.Random(3), **more))
        return made[-1]

    rules = Rules(seed=1)
    arrivals = np.random.default_rng(1).poisson(2.0, 5 * 3600)
    rule = Ours(Bounds(60.0, 1, 40), 180.0)
    played = play(SpotMarket(ZONES, rules, 80), rules, rule, arrivals, {"g6.xlarge": 0.25}, 40, build)
    [fleet] = made
    gone = {one for one in fleet.wished if one not in fleet._instances}
    assert bool(gone) == bool(ill)
    assert reversals(played.targets.tolist(), int(COOLDOWN // 60)) == 0
    # Eight workers would do. Those of whom nothing comes are made up for, and replaced.
    assert played.targets[-60:].mean() < 24
    assert np.percentile(fleet.queue.waits(4 * 3600), 50) < 60
