"""How large a warm pool is: it follows what a shortage costs, and never exceeds what spot can lose."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.core import policies
from lambdas.core.model import on_demand_share
from lambdas.core.policies.expected_cost import ExpectedCost
from lambdas.core.policies.ready_handover import ReadyHandover
from lambdas.core.warm_pool import size

targets, zones = st.integers(0, 64), st.integers(1, 6)
costs = st.floats(0, 1e4) | st.just(math.inf)


@given(targets, zones, costs, st.integers(0, 64), st.integers(0, 100))
def test_it_holds_at_most_the_spot_share(
    target: int, over: int, cost: float, base: int, percentage: int
) -> None:
    base = min(base, target)
    found = size(target, base, percentage, over, cost)
    assert 0 <= found <= target - on_demand_share(target, base, percentage)


@given(targets, zones, costs, costs)
def test_dearer_shortage_never_makes_it_smaller(target: int, over: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert size(target, 0, 100, over, low) <= size(target, 0, 100, over, high)


@pytest.mark.parametrize(
    ("cost", "expected"),
    [(0, 0), (1, 0), (3, 8), (100, 16), (math.inf, 16)],
)
def test_nothing_where_shortage_is_cheap_and_all_where_it_is_dear(cost: float, expected: int) -> None:
    # At 3 the half pays that a zone takes with it while two have spot; the other half is used too rarely.
    assert size(16, 0, 100, 3, cost) == expected


def test_a_policy_without_a_price_buys_whatever_it_costs() -> None:
    assert policies.shortage_cost(ExpectedCost(7.0)) == 7.0
    assert policies.shortage_cost(ReadyHandover()) == math.inf
