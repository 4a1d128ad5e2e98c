"""The replay engine against its rules, one small market each."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import pytest

from lambdas.core.capacity.policies import DEFAULT, build
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from lambdas.core.model import GroupRole, Pool, PurchaseOption
from market.replay.engine import Replay
from market.replay.fleet import LightFleet, Orders, SelfReporting, simulated_group
from market.replay.groups import GroupShape
from market.replay.ledger import Ledger
from market.rules import Rules
from market.supply import placement
from market.supply.drawn_market import draw
from market.supply.spot import SpotMarket
from market.supply.trace import PoolTrace, TraceError
from research.simulation.comparison.contenders import everyone, named
from research.simulation.comparison.runs import play
from tests.fleets import RecordingFleet, SilentFleet
from tests.market.markets import EveryTick, market, ready, trace
from tests.soak import sample


def failures_of(ledger: Ledger, kind: str) -> list[tuple[int, int]]:
    return [(h.tick, h.count) for h in ledger.happenings if h.kind == kind]


def run(name: str, *traces: PoolTrace, target: int = 1, pool_size: int = 1, **rules: Any) -> Ledger:
    sold, chosen = market(*traces, pool_size=pool_size, **rules)
    (contender,) = named(name)
    return play(sold, chosen, contender, target, keep_spans=True)


def test_an_instance_is_paid_from_launch_and_ready_a_cold_start_later() -> None:
    ledger = run("spot-only", trace(*[1] * 10))
    assert ready(ledger) == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert ledger.cost == pytest.approx(0.3)
    assert ledger.availability == pytest.approx(0.7)


def test_a_launch_beyond_capacity_fails_and_costs_nothing() -> None:
    ledger = run("spot-only", trace(*[1] * 10), target=3)
    assert ledger.counts["launch-spot"] == 1
    assert ledger.cost == pytest.approx(0.3 / 3)


def test_an_unannounced_drop_takes_the_excess_at_once() -> None:
    ledger = run("spot-only", trace(3, 3, 3, 3, 3, 1, 1, 1), target=3, notice=0.0)
    assert failures_of(ledger, "interruption") == [(5, 2)]
    assert ready(ledger) == [0, 0, 0, 3, 3, 1, 1, 1]


def test_an_announced_drop_has_its_notice_two_minutes_ahead() -> None:
    ledger = run("ready-handover", trace(*[1] * 8, *[0] * 8), notice=1.0)
    assert failures_of(ledger, "notice") == [(6, 1)]
    assert failures_of(ledger, "interruption") == [(8, 1)]
    assert ready(ledger)[3:] == [1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1]  # its successor is there at 7


def test_the_successor_starts_at_the_notice() -> None:
    ledger = run("expected-cost@10", trace(*[1] * 10, *[0] * 8), notice=1.0)
    assert failures_of(ledger, "notice") == [(8, 1)]
    assert failures_of(ledger, "launch-on-demand") == [(0, 1), (8, 1)]
    assert ready(ledger)[3:] == [1, 1, 1, 1, 1, 1, 2, *[1] * 8]  # it is there at 9, the other goes at 10


def test_a_pool_that_calls_back_is_not_bought_in() -> None:
    ledger = run("spot-only", trace(*[1] * 8, *[0] * 8), target=1, pool_size=8, notice=1.0)
    assert failures_of(ledger, "launch-spot") == [(0, 1)]
    late = run("ready-handover", trace(*[1] * 8, *[0] * 8), target=1, pool_size=8, notice=1.0)
    assert failures_of(late, "launch-spot") == [(0, 1)]


@pytest.mark.long
@pytest.mark.parametrize("contender", sample(everyone(), 4), ids=lambda c: c.name)
def test_skipping_ticks_changes_nothing(contender: Any) -> None:
    rules = Rules(seed=3, notice=0.5)
    sold = SpotMarket(draw(3, 36, 11), rules)
    pools = tuple(Pool("any", name) for name in sold.names)
    accounts = []
    for engine in (Replay, EveryTick):
        fleet = LightFleet(simulated_group(4, 16), contender.policy)
        replay = engine(sold, rules, fleet, contender.shape(pools), 4, keep_spans=True)
        ledger = replay.run()
        accounts.append((ledger.happenings, ready(ledger), pytest.approx(ledger.cost)))
    assert accounts[0] == accounts[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "faults",
    [{"on_demand_refusal": 0.3}, {"api_failure": 0.3}, {"retry_seconds": 600.0}, {"look_seconds": 300.0}],
    ids=lambda t: next(iter(t)),
)
def test_faults_cost_availability_and_are_skipped_exactly(faults: dict[str, float]) -> None:
    def account(engine: type[Replay], **rules: float) -> Ledger:
        chosen = Rules(seed=3, **rules)  # type: ignore[arg-type]
        sold = SpotMarket(draw(3, 72, 11), chosen)
        shape = GroupShape(tuple(Pool("any", name) for name in sold.names))
        return engine(
            sold, chosen, LightFleet(simulated_group(4, 16), build("ready-handover")), shape, 4
        ).run()

    quiet, troubled = account(Replay), account(Replay, **faults)
    if "retry_seconds" not in faults:  # a late retry costs money: on-demand stays longer
        assert troubled.availability < quiet.availability
    else:
        assert troubled.cost > quiet.cost
    assert ready(troubled) == ready(account(EveryTick, **faults))


@pytest.mark.parametrize("shortage_cost", [1.2, 100.0])
def test_a_fleet_that_does_not_say_that_spot_is_short_is_covered_all_the_same(shortage_cost: float) -> None:
    sold, rules = market(trace(*[2] * 30, *[0] * 90), notice=1.0)
    replays = []
    for kind in (LightFleet, SilentFleet):
        fleet = kind(simulated_group(2, 4), ExpectedCost(shortage_cost))
        replay = Replay(sold, rules, fleet, GroupShape((Pool("any", "a"),)), 2)
        replays.append(ready(replay.run()))
    reported, silent = replays
    assert silent[-80:] == reported[-80:] == [2] * 80
    # A refusal comes with the notice, when the group tries to replace the doomed. Without one it takes the
    # loss and two minutes without a launch to know; only cheap shortage waits for that.
    assert sum(reported) - sum(silent) <= 2 * 3


def test_real_prices_count_where_they_are_asked_for() -> None:
    priced = PoolTrace("a", 60.0, (1,) * 10, prices=(1.0,) * 5 + (2.0,) * 5)
    ledger = run("spot-only", priced, on_demand_price=4.0)
    assert ledger.cost == pytest.approx((5 * 0.25 + 5 * 0.5) / 10)
    with pytest.raises(TraceError, match="trace a has no prices"):
        run("spot-only", trace(1, 1), on_demand_price=4.0)


def test_the_controller_knows_a_price_once_it_reads_prices_again() -> None:
    priced = PoolTrace("us-west-2a_g5.xlarge", 60.0, (1,) * 40, prices=(1.0,) * 2 + (2.0,) * 28 + (4.0,) * 10)
    constant = PoolTrace("us-west-2b_g5.xlarge", 60.0, (1,) * 40, prices=(3.0,) * 40)
    sold, rules = market(priced, constant, on_demand_price=4.0)
    fleet = RecordingFleet(simulated_group(1, 4), build("ready-handover"))
    shape = GroupShape(placement.named(sold.names))
    Replay(sold, rules, fleet, shape, 1).run()
    seen = {now / 60: decision.state.spot_price for now, decision in fleet.decisions}
    assert [seen[tick] for tick in (0, 2, 12, 30)] == [0.25, 0.25, 0.5, 0.75]


def test_a_notice_counts_though_the_instance_ends_before_the_next_pass() -> None:
    sold, rules = market(trace(*[1] * 14, *[0] * 4), notice=1.0, look_seconds=300.0)
    fleet = RecordingFleet(simulated_group(1, 4), build("ready-handover"))
    Replay(sold, rules, fleet, GroupShape((Pool("any", "a"),)), 1).run()
    assert fleet.memory.history.losses == 1
    assert fleet.memory.history.unannounced == 0


def test_rejected_on_demand_is_tried_again_each_tick_and_each_try_is_recorded() -> None:
    sold, rules = market(trace(*[0] * 40), on_demand_episodes=1.0)
    fleet = RecordingFleet(simulated_group(1, 4), build("ready-handover"))
    Replay(sold, rules, fleet, GroupShape((Pool("any", "a"),)), 1).run()
    failed_at = [o.failed_at for o in fleet._refusals.values() if o.group_role is GroupRole.FALLBACK]
    assert failed_at == [39 * 60.0]


def test_zones_are_balanced_and_within_them_the_cheapest_type_is_bought() -> None:
    prices = {"a_g5": 2.0, "a_g6": 1.0, "b_g5": 3.0, "b_g6": 4.0}
    pools = [PoolTrace(name, 60.0, (8,) * 10, prices=(price,) * 10) for name, price in prices.items()]
    ledger = run("spot-only", *pools, target=4, on_demand_price=4.0)
    bought = [h.where for h in ledger.happenings if h.kind == "launch-spot"]
    assert bought == ["g6@a", "g5@b", "g6@a", "g5@b"]
    assert ledger.cost == pytest.approx((2 * 1.0 + 2 * 3.0) / (4 * 4.0))


@pytest.mark.soak
@pytest.mark.long
def test_forty_five_days_of_seven_pools_take_seconds() -> None:
    """About 2.7 s on a quiet core, as a market of 5 days takes a ninth: were it a square, an 81st."""

    def seconds(days: int) -> float:
        sold = SpotMarket(draw(7, days * 24, 2), rules := Rules())
        started = time.process_time()
        play(sold, rules, named("expected-cost")[0], 4)
        return time.process_time() - started

    assert seconds(45) < 27 * seconds(5)


@pytest.mark.soak
@pytest.mark.long
def test_memory_does_not_grow_with_the_length_of_a_run() -> None:
    peaks = []
    for days in (1, 5, 20):  # the first run imports and caches
        sold, rules = SpotMarket(draw(3, days * 24, 2), Rules()), Rules()
        tracemalloc.start()
        play(sold, rules, named("expected-cost")[0], 4)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < peaks[1] + 200_000  # bytes; the market itself, loaded before, is not counted


POOL = Pool("g6.xlarge", "us-west-2a")


@dataclass
class Slow(LightFleet):
    """Works from the tenth to the twentieth minute after the first launch, whatever a cold start takes."""

    began: float | None = None
    all_ids: set[str] = field(default_factory=set)

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        self.began = self._now if self.began is None else self.began
        instance_id = LightFleet.launched(self, pool, market, side, warm=warm)
        self.all_ids.add(instance_id)
        return instance_id

    def working(self) -> set[str]:
        if self.began is None or not 600 <= self._now - self.began < 1200:
            return set()
        return self.all_ids

    def reconcile(self) -> Orders:
        orders = LightFleet.reconcile(self)
        return Orders(orders.desired, orders.released, self._now + 60)


def test_readiness_is_what_the_fleet_reports() -> None:
    fleet = Slow(simulated_group(1, 2, fallback=False), build(DEFAULT))
    assert isinstance(fleet, SelfReporting)
    assert not isinstance(LightFleet(fleet.group, fleet.policy), SelfReporting)
    rules = Rules(warm_up_ticks=0)
    market = SpotMarket([PoolTrace("us-west-2a", 60.0, (1,) * 40)], rules, 1)
    replay = Replay(market, rules, fleet, GroupShape((POOL,)), 1)
    ledger = replay.run()
    ready = [tick for span in ledger.spans if span.ready for tick in range(span.tick, span.tick + span.ticks)]
    assert ready == list(range(10, 20))
