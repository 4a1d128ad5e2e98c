"""The clairvoyant bound against enumeration, and against what policies really pay."""

from __future__ import annotations

from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from market.rules import Rules, ticks
from market.supply.drawn_market import draw
from market.supply.trace import PoolTrace
from research.simulation.comparison.bound import bound, spot_units
from research.simulation.comparison.contenders import named
from research.simulation.comparison.runs import compare
from tests.market.markets import market

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


@pytest.mark.long
def test_no_policy_that_keeps_the_availability_undercuts_it() -> None:
    contenders = named("on-demand,ready-handover,expected-cost@300,spothedge-notices+1")
    for outcome in compare(draw(3, 240, 5), Rules(on_demand_cold_start=60.0), contenders, 4):
        if outcome.availability >= 0.999:
            assert outcome.cost_vs_bound >= 1.0
