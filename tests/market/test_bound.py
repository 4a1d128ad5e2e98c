"""The clairvoyant bound against enumeration, and against what policies really pay."""

from __future__ import annotations

from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market.comparison.bound import bound, segments, spot_units
from market.comparison.contenders import named
from market.comparison.runs import compare
from market.rules import Rules, ticks
from market.supply.drawn_market import draw
from market.supply.trace import PoolTrace
from tests.market.markets import market, trace

LENGTH = 8
prices = st.lists(st.sampled_from([0.3, 1.0, 3.0]), min_size=LENGTH, max_size=LENGTH)
pools = st.lists(st.lists(st.integers(0, 2), min_size=LENGTH, max_size=LENGTH), min_size=1, max_size=2)
cold_starts = st.sampled_from([0.0, 60.0, 120.0])
Units: TypeAlias = list[tuple[float, ...]]


def slot_schedules(units: Units, slot: int, rules: Rules) -> list[tuple[int, float]]:
    """Return (down ticks, cost) of every schedule of one slot."""
    boots = {"spot": ticks(rules.spot_cold_start), "on-demand": ticks(rules.on_demand_cold_start), "down": 0}
    found = []
    for states in product(boots, repeat=len(units)):
        if any(state == "spot" and len(ready) < slot for state, ready in zip(states, units, strict=True)):
            continue
        rates = [
            {"spot": ready[slot - 1] if state == "spot" else 0.0, "on-demand": 1.0, "down": 0.0}[state]
            for state, ready in zip(states, units, strict=True)
        ]
        moves = [t for t in range(1, len(states)) if states[t] != states[t - 1]]
        cost = sum(rates) + sum(boots[states[t]] * rates[t] for t in moves)
        found.append((states.count("down"), cost))
    return found


def enumerated(units: Units, target: int, rules: Rules, allowed: float) -> float:
    """Return the least cost of all schedules of all slots with at most ``allowed`` down ticks together."""
    best = {0: 0.0}
    for slot in range(1, target + 1):
        least: dict[int, float] = {}
        for down, cost in slot_schedules(units, slot, rules):
            least[down] = min(cost, least.get(down, cost))
        sums: dict[int, float] = {}
        for (before, paid), (down, cost) in product(best.items(), least.items()):
            sums[before + down] = min(paid + cost, sums.get(before + down, paid + cost))
        best = sums
    return min(cost for down, cost in best.items() if down <= allowed)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(pools, prices, st.integers(1, 2), cold_starts, cold_starts, st.sampled_from([1.0, 0.8, 0.5]))
def test_no_schedule_undercuts_it_and_without_down_time_it_is_the_best_one(
    samples: list[list[int]],
    hours: list[float],
    target: int,
    spot: float,
    on_demand: float,
    availability: float,
) -> None:
    sold, rules = market(
        *(
            PoolTrace(str(i), 60.0, tuple(data), tuple(hours) if i == 0 else None)
            for i, data in enumerate(samples)
        ),
        spot_cold_start=spot,
        on_demand_cold_start=on_demand,
        on_demand_price=2.0,
    )
    units = spot_units(sold, rules, target)
    allowed = (1 - availability) * target * len(units)
    best = enumerated(units, target, rules, allowed) / (target * len(units))
    found = bound(sold, rules, target, availability)
    assert found <= best + 1e-9
    if availability == 1.0:
        assert found == pytest.approx(best)


def test_what_can_be_ready_is_what_was_there_for_a_whole_cold_start() -> None:
    sold, rules = market(
        trace(2, 2, 2, 1, 1, 1, 2, 2), trace(0, 1, 1, 1, 1, 0, 1, 1, name="b"), spot_cold_start=120.0
    )
    assert [len(units) for units in spot_units(sold, rules, 9)] == [0, 0, 2, 2, 2, 1, 1, 1]


def test_the_cheapest_that_is_ready_comes_first() -> None:
    cheap = PoolTrace("a", 60.0, (2, 2, 1, 1), (0.5, 2.0, 2.0, 0.5))
    sold, rules = market(cheap, trace(1, 1, 1, 1, name="b"), spot_cold_start=0.0, on_demand_price=2.0)
    assert spot_units(sold, rules, 2) == [(0.25, 0.25), (0.3, 1.0), (0.3, 1.0), (0.25, 0.3)]


def test_runs_of_a_slot() -> None:
    units = [(0.3, 0.5), (0.3, 0.5), (0.3,), (), (0.3,), (0.4, 0.5)]
    assert segments(units, 1) == ((3, 0.3), (1, None), (1, 0.3), (1, 0.4))
    assert segments(units, 2) == ((2, 0.5), (3, None), (1, 0.5))


def test_all_spot_costs_the_spot_price_and_no_spot_the_on_demand_price() -> None:
    up, rules = market(trace(*[4] * 500), spot_cold_start=0.0)
    assert bound(up, rules, 2, 1.0) == pytest.approx(0.3)
    down, rules = market(trace(*[0] * 500))
    assert bound(down, rules, 2, 1.0) == pytest.approx(1.0)
    assert 0.999 - 1e-9 <= bound(down, rules, 2, 0.999) <= 1.0


@pytest.mark.long
def test_no_policy_that_keeps_the_availability_undercuts_it() -> None:
    contenders = named("on-demand,ready-handover,expected-cost@300,spothedge-ideal")
    for outcome in compare(draw(3, 240, 5), Rules(on_demand_cold_start=60.0), contenders, 4):
        if outcome.availability >= 0.999:
            assert outcome.cost_vs_bound >= 1.0


def test_a_market_as_short_as_the_warm_up_is_refused() -> None:
    sold, rules = market(trace(1, 1), warm_up_ticks=60)
    with pytest.raises(ValueError, match="2 ticks are not longer than the warm-up of 60"):
        bound(sold, rules, 1)
