"""The options of an advice, and the choice among them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_spot.forecast import advice
from gpu_spot.forecast.advice import Option, Trial, choose, efficient
from gpu_spot.forecast.groups import entries
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import SlotForecast
from tests.forecast.conftest import ZONES, job, pods, service, settings_of

LISTED = Prices("us-west-2")
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


def test_options_vary_types_zones_shortage_cost_and_warm_pool_only() -> None:
    [entry] = entries(
        settings_of([service(instanceTypes=["g5.xlarge", "g6.xlarge", "g4dn.xlarge"], onDemandBase=1)])
    )
    tried = list(advice.options(entry, ZONES, LISTED))
    assert {option.types for option, _ in tried} == {
        ("g4dn.xlarge",),
        ("g6.xlarge", "g4dn.xlarge"),
        ("g5.xlarge", "g6.xlarge", "g4dn.xlarge"),
    }
    assert {len(option.zones) for option, _ in tried} == {2, 3}
    assert {option.warm for option, _ in tried} == {0, 8}
    for option, other in tried:
        assert other.capacity.fallback.policy_parameters == {"shortageCost": option.shortage_cost}
        assert other.capacity.warm_instances == option.warm
        assert other.capacity.on_demand_base == 1


def test_on_kubernetes_only_types_and_zones_are_tried() -> None:
    [entry] = entries(settings_of([pods(service())]))
    tried = [option for option, _ in advice.options(entry, ZONES, LISTED)]
    assert len(tried) == 4
    assert {(option.shortage_cost, option.warm) for option in tried} == {(None, 0)}


def test_a_job_has_no_warm_pool() -> None:
    [entry] = entries(settings_of([], [job()]))
    assert {option.warm for option, _ in advice.options(entry, ZONES, LISTED)} == {0}


def test_a_warm_pool_costs_its_disks(week: SlotForecast) -> None:
    [entry] = entries(settings_of([service()]))
    tried = [one for one in advice.options(entry, ZONES, LISTED) if one[0].shortage_cost == 100.0]
    outlooks = {one: week for one in advice.slot_questions(tried, LISTED) if one is not None}
    found = {one.option: one.cost for one in advice.trials(tried, LISTED, outlooks, disk=0.08)}
    option = next(one for one in found if one.warm == 8)
    without = Option(option.types, option.zones, option.shortage_cost, 0)
    assert found[option] - found[without] == pytest.approx(8 * 125 * 0.08)


def test_no_advice_without_a_price(week: SlotForecast) -> None:
    [entry] = entries(settings_of([service()]))
    unpriced = Prices("eu-west-1")
    tried = list(advice.options(entry, ZONES, unpriced))
    outlooks = {one: week for one in advice.slot_questions(tried, unpriced) if one is not None}
    with pytest.raises(ValueError, match="the On-Demand price in eu-west-1 is unknown"):
        advice.trials(tried, unpriced, outlooks, disk=0.08)
