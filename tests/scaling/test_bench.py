"""The results of `make bench-scaling`, on two days of one load and on a few random worlds."""

from __future__ import annotations

import pytest

from bench.services import http_scaling, scaling
from market.load import worlds
from market.load.shapes import LoadShape

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def result() -> dict:
    references = [s for s in scaling.rivals() if s[0] in ("KEDA rate", "GPU use")][1::5]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "rivals", lambda: references)
        patch.setattr(scaling, "KNOB", (30.0, scaling.WAIT, 300.0))
        load = LoadShape("small", peak=3.0, bursts=6.0)
        return scaling.measure(scaling.worlds(2, [load], seeds=(1,)), scaling.WAIT, workers=1)


def test_the_scaler_rule_costs_less_at_the_same_wait(result: dict) -> None:
    assert result["p99_wait_ratio"] <= 1.0 or result["loads"]["small"]["p99_wait"] <= scaling.WAIT
    assert result["cost_ratio"] <= 0.95
    assert result["reversals"] == 0


def test_reference_rules_are_tuned_without_the_held_out_days(result: dict) -> None:
    assert all("held_out" not in entry for entry in result["trained"])
    assert (result["days"], result["held_out"]) == (2, 1)


def test_a_longer_allowed_wait_costs_less(result: dict) -> None:
    ours = [entry["held_out"]["cost"] for entry in result["judged"] if entry["family"] == scaling.OURS]
    assert ours == sorted(ours, reverse=True)


def test_random_worlds_have_no_reversals_and_rollouts_keep_nine_tenths_serving() -> None:
    # World 7 has a release that loses requests while the queue never grows.
    results = [worlds.shaken(seed, hours=2) for seed in (3, 7)]
    assert [result.reversals for result in results] == [0] * 2
    summary = worlds.rolled_out(results)
    assert summary["served_despite_rollouts"] >= 0.9
    assert summary["most_on_a_bad_release"] == 1
    assert summary["asked_with_too_few_left"] == 0
    assert summary["taken_back"] >= 2


def test_requests_at_proxies_cost_less_than_target_tracking_at_no_later_a_wait() -> None:
    name = "8 + 0.25 b, b ≤ 16"
    result = http_scaling.measure(2, [name], [LoadShape("small", bursts=6.0)], workers=1)
    assert len(result["rows"]) == len(http_scaling.WAITS)
    assert result["never_as_early"] == 0
    assert result["cost_ratio"] <= 1.0
    for row in result["rows"]:
        assert row["tracking"]["cost"] > 1
        assert http_scaling.SHARES[0] <= row["share"] <= http_scaling.SHARES[1]
