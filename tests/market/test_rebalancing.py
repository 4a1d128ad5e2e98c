"""Who replaces an instance, and when: at a recommendation, at the notice, or after its end."""

from __future__ import annotations

from typing import Any

import pytest

from lambdas.core.capacity.policies import DEFAULT, build
from market.replay.engine import Replay
from market.replay.fleet import LightFleet, simulated_group
from market.replay.groups import GroupShape
from market.replay.ledger import Ledger
from market.rules import HOSTILE, Rules
from market.supply import placement
from market.supply.drawn_market import draw
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace
from tests.fleets import RecordingFleet
from tests.market.markets import EveryTick, market, ready, trace

RIGHT = {"early": 1.0, "shortest_lead_seconds": 600.0, "longest_lead_seconds": 600.0}
"""A recommendation ten minutes ahead of every drop."""


def replayed(
    *pools: PoolTrace,
    rebalance: bool,
    target: int = 1,
    pool_size: int = 1,
    fallback: bool = False,
    engine: type[Replay] = Replay,
    **rules: Any,
) -> Ledger:
    sold, chosen = market(*pools, pool_size=pool_size, **rules)
    fleet = LightFleet(simulated_group(target, 4 * target, fallback=fallback), build(DEFAULT))
    shape = GroupShape(placement.named(sold.names), capacity_rebalance=rebalance)
    return engine(sold, chosen, fleet, shape, target).run()


def ticks_of(ledger: Ledger, kind: str) -> list[int]:
    return [h.tick for h in ledger.happenings if h.kind == kind for _ in range(h.count)]


A = trace(*[1] * 20, *[0] * 10, name="a")
B = trace(*[1] * 30, name="b")


def test_without_rebalancing_an_instance_is_replaced_once_it_has_ended_and_its_health_check_fails() -> None:
    ledger = replayed(A, B, rebalance=False, notice=1.0, replace_seconds=120.0, **RIGHT)
    assert ticks_of(ledger, "recommendation") == [10]
    assert ticks_of(ledger, "interruption") == [20]
    assert ticks_of(ledger, "launch-spot") == [0, 22]
    assert ready(ledger)[19:26] == [1, 0, 0, 0, 0, 0, 1]


def test_with_it_at_the_notice_at_once() -> None:
    ledger = replayed(A, B, rebalance=True, notice=1.0, replace_seconds=120.0)
    assert ticks_of(ledger, "launch-spot") == [0, 18]
    unannounced = replayed(A, B, rebalance=True, notice=0.0, replace_seconds=120.0)
    assert ticks_of(unannounced, "launch-spot") == [0, 22]


def test_with_it_at_the_recommendation_and_the_old_one_ends_when_the_new_one_is_healthy_not_ready() -> None:
    ledger = replayed(A, B, rebalance=True, spot_cold_start=300.0, **RIGHT)
    assert ticks_of(ledger, "launch-spot") == [0, 10]
    assert ticks_of(ledger, "rebalance") == [11]
    # The hook holds the old one for two minutes; the successor takes five to be ready.
    assert ready(ledger)[12:16] == [1, 0, 0, 1]
    assert ticks_of(ledger, "interruption") == []


def test_a_pool_at_risk_is_the_last_choice() -> None:
    ledger = replayed(A, B, rebalance=True, **RIGHT)
    assert [h.where for h in ledger.happenings if h.kind == "launch-spot"] == ["any@a", "any@b"]
    alone = replayed(A, rebalance=True, pool_size=2, **RIGHT)
    assert ticks_of(alone, "launch-spot") == [0, 10]


@pytest.mark.parametrize("rebalance", [False, True])
def test_no_successor_is_let_go_while_it_boots(rebalance: bool) -> None:
    pools = draw(3, 240, 5)
    ledger = replayed(
        *pools, rebalance=rebalance, target=4, pool_size=8, fallback=True, **{**HOSTILE, "false_alarms": 10.0}
    )
    assert ledger.counts["recommendation"] > 20
    assert bool(ledger.counts.get("rebalance")) is rebalance
    assert ledger.counts.get("release-booting", 0) == 0
    assert ledger.availability > 0.995


def test_a_fleet_that_does_not_play_rebalancing_is_refused() -> None:
    sold, rules = market(A)
    shape = GroupShape(placement.named(sold.names), capacity_rebalance=True)
    with pytest.raises(ValueError, match="must be false without a fleet that plays it, not true"):
        Replay(sold, rules, object(), shape, 1)  # type: ignore[arg-type]


def recommendations(**rules: Any) -> list[tuple[int, int]]:
    sold = SpotMarket(draw(3, 240, 3), Rules(**rules))
    return [(tick, pool) for tick in range(sold.ticks) for pool in sold.recommendations(tick)]


def test_recommendations_come_ahead_of_their_share_of_drops_and_false_ones_on_top() -> None:
    assert recommendations() == []
    drops = len(recommendations(early=1.0, shortest_lead_seconds=120.0, longest_lead_seconds=120.0))
    assert drops > 100
    right = len(recommendations(early=0.5))
    assert 0.4 * drops < right < 0.6 * drops
    assert len(recommendations(early=0.5, false_alarms=3.0)) == pytest.approx(4 * right, abs=3)
    assert recommendations(early=0.5, seed=2) != recommendations(early=0.5)


def test_leads_lie_between_the_two_that_are_given() -> None:
    sold = market(A, early=1.0, shortest_lead_seconds=180.0, longest_lead_seconds=600.0)[0]
    (tick,) = [t for t in range(sold.ticks) if sold.recommendations(t)]
    assert 10 <= tick <= 17
    with pytest.raises(ValueError, match="leads must be 120 s or more, the shortest first, not 600 and 180"):
        Rules(shortest_lead_seconds=600.0, longest_lead_seconds=180.0)


def test_a_warm_instance_that_is_not_started_is_lost_and_another_boots_from_nothing() -> None:
    class Counting(RecordingFleet):
        lost = 0

        def warm_lost(self) -> None:
            self.lost += 1

    ready_after = {}
    for probability in (0.0, 1.0):
        sold, rules = market(
            trace(*[1] * 10, *[0] * 10), pool_size=2, notice=0.0, warm_instances=2, warm_refusal=probability
        )
        fleet = Counting(simulated_group(2, 8), build("ready-handover"))
        ledger = Replay(sold, rules, fleet, GroupShape(placement.named(sold.names)), 2).run()
        ready_after[probability] = ready(ledger)[10:14]
        assert fleet.lost == len(ticks_of(ledger, "warm-refusal")) == 4 * probability
    assert ready_after == {0.0: [0, 2, 2, 2], 1.0: [0, 0, 0, 2]}


@pytest.mark.long
@pytest.mark.parametrize("rebalance", [False, True])
def test_hostile_ticks_are_skipped_exactly(rebalance: bool) -> None:
    accounts = [
        replayed(
            *draw(3, 48, 11),
            rebalance=rebalance,
            target=4,
            pool_size=8,
            fallback=True,
            engine=engine,
            warm_instances=4,
            drain_seconds=30.0,
            **HOSTILE,
        )
        for engine in (Replay, EveryTick)
    ]
    assert accounts[0].happenings == accounts[1].happenings
    assert ready(accounts[0]) == ready(accounts[1])
