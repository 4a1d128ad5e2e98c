"""The baselines against the published reference figures, and the dynamic placer by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.parts.scenarios import real
from market.comparison.baselines import DynamicPlacer
from market.comparison.contenders import named
from market.comparison.runs import compare
from market.replay.groups import Offer
from market.rules import Rules

# Cost and availability (%) of the reference replay in the traces' README, by scenario, and the bound's row.
REFERENCE = {
    "us-west-2 x3 N=4": {"spot-only": (0.288, 95.4), "static-mix": (0.644, 97.7), "bound": (0.332, 0)},
    "us-east-1 x4 N=4": {"spot-only": (0.214, 69.1), "static-mix": (0.607, 84.5), "bound": (0.531, 0)},
    "v100_8 x2 N=4": {"spot-only": (0.179, 56.3), "static-mix": (0.589, 78.2), "bound": (0.634, 0)},
    "4-node x3 N=4": {"spot-only": (0.291, 96.4), "static-mix": (0.647, 98.6), "bound": (0.326, 0)},
    "preempt x4 N=4 pool size 8": {
        "spot-only": (0.269, 87.9),
        "static-mix": (0.634, 94.0),
        "bound": (0.385, 0),
    },
}


def test_the_reference_figures_come_out(traces: Path | None) -> None:
    if traces is None:
        pytest.skip("GPU_SPOT_TRACES is not set: the reference figures are of those traces")
    rules = Rules(on_demand_cold_start=180.0)
    for scenario in real(traces):
        if scenario.name not in REFERENCE:
            continue
        expected = REFERENCE[scenario.name]
        found = list(compare(scenario.traces, rules, named("spot-only,static-mix"), scenario.target))
        assert found[0].bound == pytest.approx(expected["bound"][0], abs=0.0006)
        for outcome in found:
            cost, available = expected[outcome.policy]
            assert outcome.cost == pytest.approx(cost, abs=0.0006), scenario.name
            assert 100 * outcome.availability == pytest.approx(available, abs=0.06), scenario.name


def offers(*holding: int) -> list[Offer]:
    return [Offer(pool, 0, held, held, False, False, 0.3) for pool, held in enumerate(holding)]


def test_the_placer_spreads_over_active_zones() -> None:
    placer = DynamicPlacer()
    assert placer.pick(offers(1, 0, 2)) == 1
    assert placer.pick(offers(1, 1, 0)) == 2


def test_a_zone_that_preempted_is_left_alone_until_few_are_left() -> None:
    placer = DynamicPlacer()
    placer.pick(offers(0, 0, 0))
    placer.lost(0)
    assert placer.pick(offers(0, 1, 1)) == 1
    placer.lost(1)  # one active zone is too few: all are active again
    assert placer.pick(offers(0, 1, 1)) == 0


def test_a_round_of_attempts_ends_when_every_zone_refused() -> None:
    placer = DynamicPlacer()
    tried = []
    while (pool := placer.pick(offers(0, 0, 0))) is not None:
        tried.append(pool)
        placer.refused(pool)
    assert sorted(tried) == [0, 1, 2]
    assert placer.pick(offers(0, 0, 0)) is not None
