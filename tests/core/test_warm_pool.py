"""How large a warm pool is: what spot can lose, where a shortage is dear."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.group.on_demand_share import on_demand_share
from contracts.group.warm_pool import MIN_SHORTAGE_COST, size
from lambdas.core.capacity import policies
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from lambdas.core.capacity.policies.ready_handover import ReadyHandover

costs = st.floats(0, 1e4) | st.just(math.inf)


@given(st.integers(0, 64), costs, st.integers(0, 64), st.integers(0, 100))
def test_it_is_the_spot_share_or_nothing(target: int, cost: float, base: int, percentage: int) -> None:
    base = min(base, target)
    spot = target - on_demand_share(target, base, percentage)
    assert size(target, base, percentage, cost) == (spot if cost >= MIN_SHORTAGE_COST else 0)


@pytest.mark.parametrize(("cost", "expected"), [(0, 0), (1, 0), (2, 12), (100, 12), (math.inf, 12)])
def test_nothing_where_shortage_is_cheap_and_all_that_spot_can_lose_where_it_is_dear(
    cost: float, expected: int
) -> None:
    assert size(16, 4, 100, cost) == expected


def test_a_policy_without_a_price_buys_whatever_it_costs() -> None:
    assert policies.shortage_cost(ExpectedCost(7.0)) == 7.0
    assert policies.shortage_cost(ReadyHandover()) == math.inf
