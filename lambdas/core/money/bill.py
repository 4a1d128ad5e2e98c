"""The estimated cost of a job's run, and alarms for its budget. It is an estimate, not the AWS bill.

Counted are instance seconds, from the launch until the first observation without the instance, at the last
Spot price and the declared On-Demand price. Not counted are volumes, snapshots, data transfer, EFS, taxes and
discounts of the account.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from contracts.limits import AtLeast
from contracts.stored import stored
from lambdas.core.model import Alarm, Instance, Observation, RunBudget
from lambdas.core.money import costs

WARNING_SHARE: Final = 0.8
"""The share of a budget that raises the first alarm."""
LOW: Final = "budget-low"
SHORT: Final = "budget-short"
SPENT: Final = "budget-spent"
ALARMS: Final = (LOW, SHORT, SPENT)
"""Causes of alarms: most of the budget is spent; it will not suffice; it is spent and the job is stopped."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of one run in US dollars; times are epoch seconds.

    Attributes:
        closed: cost of all finished periods; ``closed_at`` is the end of the last one.
        running: start and hourly price of the current period of each instance.
    """

    run: str = ""
    closed: Annotated[float, AtLeast(0)] = 0.0
    closed_at: float = 0.0
    running: Mapping[str, tuple[float, Annotated[float, AtLeast(0)]]] = field(default_factory=dict)

    def spent(self, now: float) -> float:
        """Return the cost of the run until ``now``."""
        return self.closed + sum(
            max(0.0, now - since) * hourly / 3600 for since, hourly in self.running.values()
        )

    def reaches_at(self, dollars: float, now: float) -> float:
        """Return when this amount will be spent at the current rate; infinity if never."""
        hourly = sum(hourly for _, hourly in self.running.values())
        remaining = dollars - self.spent(now)
        if remaining <= 0:
            return now
        return now + remaining / hourly * 3600 if hourly > 0 else math.inf


def update_bill(bill: Bill, observation: Observation, now: float) -> Bill:
    """Return the bill after one observation; an empty one for a group without a budget.

    It changes only if an instance is launched, terminates or has a new price.
    """
    group, budget = observation.group, observation.group.budget
    if budget is None:
        return Bill()
    if not bill.run:
        bill = Bill(run=group.config.run)
    elif bill.run != group.config.run:
        # Running instances belong to the new run from now on.
        running_periods = {i: (now, hourly) for i, (_, hourly) in bill.running.items()}
        bill = Bill(run=group.config.run, closed_at=now, running=running_periods)
    running: dict[str, tuple[float, float]] = {}
    closed, has_closed = bill.closed, False
    for instance in observation.instances:
        period = bill.running.get(instance.id)
        hourly = hourly_price(instance, budget, observation.spot_prices) if instance.is_described else None
        if period is None:
            if hourly is not None:
                # An instance that was missing in one observation was counted until then.
                running[instance.id] = (max(instance.launched_at, bill.closed_at), hourly)
        elif hourly is None or hourly == period[1]:
            running[instance.id] = period
        else:
            closed += max(0.0, now - period[0]) * period[1] / 3600
            running[instance.id] = (now, hourly)
    for instance_id in bill.running.keys() - {i.id for i in observation.instances}:
        since, hourly = bill.running[instance_id]
        closed, has_closed = closed + max(0.0, now - since) * hourly / 3600, True
    return replace(bill, closed=closed, closed_at=now if has_closed else bill.closed_at, running=running)


def hourly_price(instance: Instance, budget: RunBudget, spot_prices: Mapping[str, float]) -> float:
    """Return an instance's hourly price; if unknown, its On-Demand price, else the highest price."""
    price = costs.hourly_price_of(instance, budget.on_demand, budget.spot_unit, spot_prices)
    if price is not None:
        return price
    return budget.on_demand.get(instance.pool.instance_type, max(budget.on_demand.values(), default=0.0))


def is_spent(bill: Bill, budget: RunBudget | None, now: float) -> bool:
    """Return whether the budget is spent; the target of the job is then 0."""
    return budget is not None and bill.spent(now) >= budget.dollars


def threshold_times(bill: Bill, budget: RunBudget | None, now: float) -> tuple[float, ...]:
    """Return when the warning share and the whole budget are spent at the current rate."""
    if budget is None:
        return ()
    times = (bill.reaches_at(share * budget.dollars, now) for share in (WARNING_SHARE, 1.0))
    return tuple(time for time in times if math.isfinite(time))


def alarms(bill: Bill, observation: Observation, now: float) -> tuple[Alarm, ...]:
    """Return the alarms of the budget."""
    budget = observation.group.budget
    if budget is None:
        return ()
    spent = bill.spent(now)
    summary = f"${spent:,.2f} of the budget of ${budget.dollars:,.2f} is spent"
    if spent >= budget.dollars:
        return (Alarm(SPENT, f"{summary}: the job is stopped; raise the budget to resume it"),)
    found_alarms = [Alarm(LOW, summary)] if spent >= WARNING_SHARE * budget.dollars else []
    remaining_cost = min_remaining_cost(observation, budget)
    if remaining_cost is not None and spent + remaining_cost > budget.dollars:
        found_alarms.append(
            Alarm(SHORT, f"{summary}, and the remaining work costs at least ${remaining_cost:,.2f}")
        )
    return tuple(found_alarms)


def min_remaining_cost(observation: Observation, budget: RunBudget) -> float | None:
    """Return the minimum cost of the remaining work; None if no progress is measured.

    At the best measured rate and the lowest price of the instance type.
    """
    working = [i for i in observation.instances if i.progress is not None and i.progress.best_rate > 0]
    if not working:
        return None
    worker = max(working, key=lambda i: (i.ready_since or 0.0, i.id))
    progress = worker.progress
    assert progress is not None, "instances without progress are filtered out"
    kind = worker.pool.instance_type
    prices = [hourly_price(worker, budget, observation.spot_prices)]
    if kind in budget.spot_unit:
        shares = (share for pool, share in observation.spot_prices.items() if pool.startswith(f"{kind}@"))
        prices += [share * budget.spot_unit[kind] for share in shares]
    return (progress.steps - progress.step) / progress.best_rate / 3600 * min(prices)
