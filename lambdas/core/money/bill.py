"""What a job's run has cost so far, and whether its budget still carries it: an estimate, no bill of AWS.

Counted are the seconds of instances, each from its launch until the first look that no longer finds it, at
the prices that the controller knows: spot's as read last, on-demand's as declared. Not counted are volumes,
snapshots, traffic, what is written to EFS, and taxes; discounts of an account are its own matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

from contracts.limits import AtLeast
from contracts.stored import stored
from lambdas.core.model import Alarm, Allowance, Instance, Observation
from lambdas.core.money import costs

WARNED_AT: Final = 0.8
"""The part of a budget from which on people are told."""
LOW: Final = "budget-low"
SHORT: Final = "budget-short"
SPENT: Final = "budget-spent"
ALARMS: Final = (LOW, SHORT, SPENT)
"""What people hear of a budget: most of it is spent, it will not do, it is spent and the job is held."""


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Bill:
    """What one run has cost, in US dollars; times are epoch seconds.

    ``closed`` is what was counted to its end, at ``closed_at`` the last time; ``running`` has since when an
    instance costs how much an hour.
    """

    run: str = ""
    closed: Annotated[float, AtLeast(0)] = 0.0
    closed_at: float = 0.0
    running: Mapping[str, tuple[float, Annotated[float, AtLeast(0)]]] = field(default_factory=dict)

    def spent(self, now: float) -> float:
        """Return what the run has cost by ``now``."""
        return self.closed + sum(
            max(0.0, now - since) * hourly / 3600 for since, hourly in self.running.values()
        )

    def reaches(self, dollars: float, now: float) -> float:
        """Return when so much will be spent if all goes on as it is; infinity: never."""
        hourly = sum(hourly for _, hourly in self.running.values())
        left = dollars - self.spent(now)
        if left <= 0:
            return now
        return now + left / hourly * 3600 if hourly > 0 else math.inf


def follow(bill: Bill, observation: Observation, now: float) -> Bill:
    """Return the bill after one look; an empty one for a group without a budget.

    It changes only where an instance comes, goes or has another price.
    """
    group, budget = observation.group, observation.group.budget
    if budget is None:
        return Bill()
    if not bill.run:
        bill = Bill(run=group.run)
    elif bill.run != group.run:
        # What stands already is the new run's from now on.
        stands = {i: (now, hourly) for i, (_, hourly) in bill.running.items()}
        bill = Bill(run=group.run, closed_at=now, running=stands)
    running: dict[str, tuple[float, float]] = {}
    closed, closes = bill.closed, False
    for instance in observation.instances:
        known = bill.running.get(instance.id)
        hourly = hourly_price(instance, budget, observation.spot_prices) if instance.described else None
        if known is None:
            if hourly is not None:
                # Whoever was out of sight for a look was counted until then.
                running[instance.id] = (max(instance.launched_at, bill.closed_at), hourly)
        elif hourly is None or hourly == known[1]:
            running[instance.id] = known
        else:
            closed += max(0.0, now - known[0]) * known[1] / 3600
            running[instance.id] = (now, hourly)
    for gone in bill.running.keys() - {i.id for i in observation.instances}:
        since, hourly = bill.running[gone]
        closed, closes = closed + max(0.0, now - since) * hourly / 3600, True
    return replace(bill, closed=closed, closed_at=now if closes else bill.closed_at, running=running)


def hourly_price(instance: Instance, budget: Allowance, spot_prices: Mapping[str, float]) -> float:
    """Return what an instance costs an hour; where nobody knows, its type on-demand, or else the dearest."""
    known = costs.price_of(instance, budget.on_demand, budget.spot_unit, spot_prices)
    if known is not None:
        return known
    return budget.on_demand.get(instance.pool.instance_type, max(budget.on_demand.values(), default=0.0))


def is_spent(bill: Bill, budget: Allowance | None, now: float) -> bool:
    """Tell whether the job is to be held: its target counts as 0."""
    return budget is not None and bill.spent(now) >= budget.dollars


def moments(bill: Bill, budget: Allowance | None, now: float) -> tuple[float, ...]:
    """Return when a budget is nearly spent, and spent, as things are."""
    if budget is None:
        return ()
    found = (bill.reaches(part * budget.dollars, now) for part in (WARNED_AT, 1.0))
    return tuple(moment for moment in found if math.isfinite(moment))


def alarms(bill: Bill, observation: Observation, now: float) -> tuple[Alarm, ...]:
    """Return what people must hear of the budget."""
    budget = observation.group.budget
    if budget is None:
        return ()
    spent = bill.spent(now)
    told = f"${spent:,.2f} of ${budget.dollars:,.2f} are spent"
    if spent >= budget.dollars:
        return (Alarm(SPENT, f"{told}: the job is held, a higher budget lets it go on"),)
    found = [Alarm(LOW, told)] if spent >= WARNED_AT * budget.dollars else []
    needed = least_needed(observation, budget)
    if needed is not None and spent + needed > budget.dollars:
        found.append(Alarm(SHORT, f"{told}, and the work left costs ${needed:,.2f} at the least"))
    return tuple(found)


def least_needed(observation: Observation, budget: Allowance) -> float | None:
    """Return what the work left costs at the faster measured rate and the least price of its instance's type.

    None where no progress is measured.
    """
    working = [i for i in observation.instances if i.progress is not None and i.progress.best > 0]
    if not working:
        return None
    worker = max(working, key=lambda i: (i.ready_since or 0.0, i.id))
    told = worker.progress
    assert told is not None, "who tells nothing was left out"
    kind = worker.pool.instance_type
    prices = [hourly_price(worker, budget, observation.spot_prices)]
    if kind in budget.spot_unit:
        shares = (share for pool, share in observation.spot_prices.items() if pool.startswith(f"{kind}@"))
        prices += [share * budget.spot_unit[kind] for share in shares]
    return (told.steps - told.step) / told.best / 3600 * min(prices)
