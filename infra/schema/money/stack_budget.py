"""The stack's hourly budget: the most that its groups may cost together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from contracts.group.on_demand_share import on_demand_share
from infra.schema.capacity import Capacity
from infra.schema.money.budget import BudgetLimits


def check_stack_budget(budget: BudgetLimits, capacities: Mapping[str, Capacity], region: str) -> None:
    """Raise ``ValueError`` if the groups may cost more than the stack's budget.

    Each group holds its own maximum, so their sum holds without a count that they would have to share.
    """
    for key, dollars, highest in (
        ("dollarsAnHour", budget.dollars_an_hour, _highest_cost),
        ("onDemandDollarsAnHour", budget.on_demand_dollars_an_hour, _highest_on_demand_cost),
    ):
        costs = {name: highest(capacity, budget, region) for name, capacity in capacities.items()}
        total = sum(costs.values())
        if dollars is not None and total > dollars + 1e-6:
            parts = ", ".join(f"{name} {_cents(cost):.2f}" for name, cost in costs.items())
            raise ValueError(
                f"{key} is {dollars:g}, but the groups may cost {_cents(total):.2f} ({parts}), allowed: "
                "at least that, or less by capacity.budget or capacity.max"
            )


def budget_warnings(
    capacities: Mapping[str, Capacity], region: str, stack_budget: BudgetLimits | None
) -> Iterator[str]:
    """Yield a warning for each group whose budget assumes a price."""
    for name, capacity in capacities.items():
        hourly = capacity.hourly_budget(region, capacity.budget or stack_budget)
        if hourly is not None and hourly.assumed:
            yield (
                f"{name}: the hourly budget assumes {hourly.slot_price:g} dollars per slot, because the "
                f"price of {', '.join(hourly.assumed)} in {region} is not known"
            )


def _cents(dollars: float) -> float:
    return math.ceil(100 * dollars - 1e-6) / 100


def _highest_cost(capacity: Capacity, stack_budget: BudgetLimits, region: str) -> float:
    hourly = capacity.hourly_budget(region, capacity.budget or stack_budget)
    assert hourly is not None, "there is a budget"
    limit = hourly.slots if capacity.budget is not None else None
    return hourly.slot_price * (capacity.maximum if limit is None else min(limit, capacity.maximum))


def _highest_on_demand_cost(capacity: Capacity, stack_budget: BudgetLimits, region: str) -> float:
    hourly = capacity.hourly_budget(region, capacity.budget or stack_budget)
    assert hourly is not None, "there is a budget"
    maximum = round(_highest_cost(capacity, stack_budget, region) / hourly.slot_price)
    if not capacity.fallback.enabled:
        maximum = on_demand_share(maximum, capacity.on_demand_base, capacity.spot_percentage)
    limit = hourly.on_demand_slots if capacity.budget is not None else None
    return hourly.slot_price * (maximum if limit is None else min(limit, maximum))
