"""The options of an advice, and the choice among them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_spot.forecast import advice
from gpu_spot.forecast.advice import RegionMarket
from gpu_spot.forecast.advisor import Rate
from gpu_spot.forecast.choice import MarketOutcome, Option, Trial, choose, efficient, reason, regret, sound
from gpu_spot.forecast.groups import entries
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import SlotForecast
from infra.schema import Settings
from market.supply.trace import PoolTrace
from tests.forecast.conftest import ZONES, job, pods, service, settings_of

LISTED = RegionMarket(Prices("us-west-2"), ZONES)
trials = st.lists(
    st.builds(Trial, st.just(Option((), (), 1.0, 0)), st.floats(1, 100), st.floats(0, 1)),
    min_size=1,
    max_size=12,
)


@given(trials, st.floats(0, 1))
def test_the_choice_for_an_availability_is_the_cheapest(found: list[Trial], wanted: float) -> None:
    best = choose(found, availability=wanted)
    enough = [one for one in found if one.availability >= wanted]
    assert (best is None) == (not enough)
    assert best is None or best.cost == min(one.cost for one in enough)


@given(trials, st.floats(1, 100))
def test_the_choice_for_a_budget_is_the_most_available(found: list[Trial], budget: float) -> None:
    best = choose(found, budget=budget)
    fits = [one for one in found if one.cost <= budget]
    assert (best is None) == (not fits)
    assert best is None or best.availability == max(one.availability for one in fits)


@given(trials)
def test_the_frontier_has_increasing_cost_and_availability(found: list[Trial]) -> None:
    frontier = efficient(found)
    for less, more in pairwise(frontier):
        assert less.cost <= more.cost
        assert less.availability < more.availability
    assert frontier[-1].availability == max(one.availability for one in found)


def test_options_vary_types_zones_mix_shortage_cost_and_warm_pool_only() -> None:
    [entry] = entries(
        settings_of([service(instanceTypes=["g5.xlarge", "g6.xlarge", "g4dn.xlarge"], onDemandBase=1)])
    )
    tried = list(advice.options(entry, LISTED))
    assert {option.types for option, _ in tried} == {
        ("g4dn.xlarge",),
        ("g6.xlarge", "g4dn.xlarge"),
        ("g5.xlarge", "g6.xlarge", "g4dn.xlarge"),
    }
    assert {len(option.zones) for option, _ in tried} == {2, 3}
    assert {option.warm for option, _ in tried if option.spot_percentage} == {0, 8}
    for option, other in tried:
        assert other.capacity.fallback.policy_parameters == {"shortageCost": option.shortage_cost}
        assert other.capacity.warm_instances == option.warm
        assert other.capacity.on_demand_base == option.on_demand_base
        assert other.capacity.spot_percentage == option.spot_percentage
        assert other.capacity.kind == entry.capacity.kind
    mixes = list(dict.fromkeys((option.on_demand_base, option.spot_percentage) for option, _ in tried))
    assert mixes == [(1, 100), (0, 100), (0, 75), (0, 50), (0, 25), (1, 75), (1, 50), (1, 25), (0, 0)]
    without_spot = [option for option, _ in tried if option.spot_percentage == 0]
    assert [(option.types, option.zones) for option in without_spot] == [
        (("g5.xlarge", "g6.xlarge", "g4dn.xlarge"), ZONES)
    ]


def test_on_kubernetes_only_types_and_zones_are_tried() -> None:
    [entry] = entries(settings_of([pods(service())]))
    tried = [option for option, _ in advice.options(entry, LISTED)]
    assert len(tried) == 4
    assert {(option.shortage_cost, option.warm) for option in tried} == {(None, 0)}


def test_a_job_has_no_warm_pool() -> None:
    [entry] = entries(settings_of([], [job()]))
    assert {option.warm for option, _ in advice.options(entry, LISTED)} == {0}


def test_a_warm_pool_costs_its_disks(week: SlotForecast) -> None:
    [entry] = entries(settings_of([service()]))
    tried = [one for one in advice.options(entry, LISTED) if one[0].shortage_cost == 100.0]
    outlooks = {one: week for one in advice.slot_questions(tried, LISTED) if one is not None}
    found = {one.option: one.cost for one in advice.trials(tried, LISTED, outlooks, disk=0.08)}
    option = next(one for one in found if one.warm == 8)
    without = replace(option, warm=0)
    assert found[option] - found[without] == pytest.approx(8 * 125 * 0.08)


def test_no_advice_without_a_price(week: SlotForecast) -> None:
    [entry] = entries(settings_of([service()]))
    unpriced = RegionMarket(Prices("ap-east-2"), ZONES)
    tried = list(advice.options(entry, unpriced))
    outlooks = {one: week for one in advice.slot_questions(tried, unpriced) if one is not None}
    with pytest.raises(ValueError, match=r"not priced: g6\.xlarge.* in ap-east-2; gpu-spot prices --update"):
        advice.trials(tried, unpriced, outlooks, disk=0.08)


def pods_or_deadline(name: str) -> Settings:
    entry = job(deadline="2027-01-01T00:00:00Z") if name == "deadline" else pods(job())
    return settings_of([], [entry])


@pytest.mark.parametrize("name", ["deadline", "kubernetes"])
def test_a_mix_that_the_schema_rejects_is_not_tried(name: str) -> None:
    [entry] = entries(pods_or_deadline(name))
    tried = list(advice.options(entry, LISTED))
    assert {(option.on_demand_base, option.spot_percentage) for option, _ in tried} == {(0, 100)}


def test_every_option_is_allowed_by_the_schema() -> None:
    [entry] = entries(settings_of([service(onDemandBase=2, spotPercentage=60)]))
    for _, changed in advice.options(entry, LISTED):
        capacity = changed.capacity
        again = {"instanceTypes": list(capacity.types), "onDemandBase": capacity.on_demand_base}
        settings_of([service(**again, spotPercentage=capacity.spot_percentage)])


def test_options_with_an_on_demand_share_need_no_replay_of_their_own(week: SlotForecast) -> None:
    [entry] = entries(settings_of([service()]))
    tried = list(advice.options(entry, LISTED))
    questions = {one for one in advice.slot_questions(tried, LISTED) if one is not None}
    assert len(questions) == 2 * 2 * len(advice.SHORTAGE_COSTS) * 2  # types, zones, and a warm pool or none
    found = {one.option: one for one in advice.trials(tried, LISTED, dict.fromkeys(questions, week), 0.08)}
    best = max(found, key=lambda option: len(option.types) + len(option.zones))
    shares = [found[replace(best, spot_percentage=percentage)].availability for percentage in (100, 50)]
    assert 1 - shares[1] == pytest.approx((1 - shares[0]) / 2)
    only = next(found[option] for option in found if option.spot_percentage == 0)
    assert only.availability == 1.0


def test_fewer_interruptions_are_a_subset_of_types_and_decide_between_equal_options(
    week: SlotForecast,
) -> None:
    [entry] = entries(settings_of([service(instanceTypes=["g5.xlarge", "g6.xlarge", "g6e.xlarge"])]))
    rates = {"g5.xlarge": Rate(3, "15-20%", 0.7), "g6.xlarge": Rate(2, "10-15%", 0.7)}
    region = replace(LISTED, rates={**rates, "g6e.xlarge": Rate(0, "<5%", 0.7)})
    tried = list(advice.options(entry, region))
    assert {option.types for option, _ in tried if len(option.types) == 1} == {
        ("g6.xlarge",),
        ("g6e.xlarge",),
    }
    questions = [one for one in advice.slot_questions(tried, region) if one is not None]
    found = advice.trials(tried, region, dict.fromkeys(questions, week), 0.08)
    by_types = {one.option.types: one.option.interruptions for one in found}
    assert by_types["g6e.xlarge",] == "<5%"
    assert by_types["g6.xlarge", "g6e.xlarge"] == "10-15%"
    assert by_types["g5.xlarge", "g6.xlarge", "g6e.xlarge"] == "15-20%"
    unrated = replace(LISTED, rates=rates)
    assert {
        one.option.interruptions for one in advice.trials(tried, unrated, dict.fromkeys(questions, week), 0)
    } == {"10-15%", "15-20%", ""}
    equal = [
        Trial(Option((kind,), (), 100.0, 0, rank=rank), 10.0, 1.0) for kind, rank in (("a", 3), ("b", 0))
    ]
    for constraint in ({"availability": 0.9}, {"budget": 20.0}):
        chosen = choose(equal, **constraint)
        assert chosen is not None
        assert chosen.option.types == ("b",)


def test_a_recorded_market_is_replayed_on_the_pools_that_an_option_uses() -> None:
    [entry] = entries(settings_of([service()]))
    names = ("us-west-2a_g6.xlarge", "us-west-2b_v100_1", "us-east-1a_g6.xlarge", "us-west-2a_g5.xlarge")
    recorded = tuple(PoolTrace(name, 60.0, (1,)) for name in names)
    region = replace(LISTED, zones=("us-west-2a", "us-west-2b"), recorded=recorded)
    tried = list(advice.options(entry, region))
    drawn = {
        option.types: question.drawn
        for (option, _), question in zip(tried, advice.slot_questions(tried, region), strict=True)
        if question is not None
    }
    assert drawn == {("g6.xlarge",): (0, 1), ("g6.xlarge", "g5.xlarge"): (0, 1, 3)}


def trial(cost: float, ready: float, zones: str = "ab", **settings: Any) -> Trial:
    return Trial(
        Option(("g6",), tuple(zones), settings.pop("shortage_cost", 100.0), 0, **settings), cost, ready
    )


def test_fewer_pools_must_be_cheaper() -> None:
    more, fewer = trial(10.0, 0.998, "abc"), trial(10.0, 0.999, "ab")
    cheaper, otherwise = trial(9.9, 0.99, "a"), trial(20.0, 0.999, "ab", shortage_cost=300.0)
    assert sound([fewer, more, cheaper, otherwise]) == [more, cheaper, otherwise]
    assert sound([trial(10.0, 0.9, "ab", region="us-east-1"), more]) != [more]


def test_the_choice_has_the_least_regret_over_the_markets() -> None:
    flexible = replace(
        trial(11.0, 0.9995),
        outcomes=(MarketOutcome(6.0, 1.0), MarketOutcome(11.0, 0.9995), MarketOutcome(13, 0.999)),
    )
    fixed = replace(
        trial(10.9, 0.9995),
        outcomes=(MarketOutcome(9.0, 1.0), MarketOutcome(10.9, 0.9995), MarketOutcome(12, 0.999)),
    )
    both = [fixed, flexible]
    assert regret(fixed, both, 0.999) == pytest.approx(0.5)
    assert regret(flexible, both, 0.999) == pytest.approx(1 / 12)
    assert choose(both, availability=0.999) == flexible
    assert choose([*both, trial(1.0, 0.5)], availability=0.999) == flexible  # not available enough to count
    said = reason(None, 0.999, both, flexible)
    assert said.startswith("the safest of 2 that is available 99.9 %: at most 8 % above the best")
    assert "the cheapest costs $0.10 less" in said
    assert choose([fixed], availability=0.999) == fixed
