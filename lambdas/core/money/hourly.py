"""Holds a group's hourly budget: the last check of a decision before it acts.

The budget is a maximum of slots, for all instances and for On-Demand (`contracts.group.hourly_budget`). It
lowers the group's own ``maximum`` and target, so that every plan fits; ``limit_actions`` then checks the
actions by the capacities of AWS alone, whatever plan they come from. Instances that AWS is terminating count
until they are gone: they are still billed. The check withholds launches and terminates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from contracts.group.hourly_budget import HourlyBudget
from contracts.group.on_demand_share import on_demand_share
from lambdas.core.model import (
    Alarm,
    Group,
    GroupRole,
    Observation,
    PurchaseOption,
    SetDesired,
    TerminateInstances,
    slots,
)

REACHED: Final = "hourly-budget"
"""Cause of an alarm: the hourly budget withholds capacity that the group lacks."""


def active_budget(group: Group, now: float) -> HourlyBudget | None:
    """Return the budget that applies now; ``None`` without one or while it is released."""
    release = group.control.budget_release
    return None if release is not None and release.is_active(now) else group.hourly_budget


def limit_group(group: Group, now: float) -> Group:
    """Return the group with its maximum and target limited to the budget.

    With a fallback the target leaves room for one more instance, so that Spot and On-Demand can be exchanged.
    """
    budget = active_budget(group, now)
    if budget is None or budget.slots is None:
        return group
    maximum = min(group.maximum, budget.slots)
    target = min(group.target, max(0, maximum - (budget.largest if group.fallback else 0)))
    return replace(
        group,
        maximum=maximum,
        target=target,
        base=min(group.base, target),
        reserved=min(group.reserved, target),
    )


def on_demand_room(group: Group, primary: int, on_demand: int, now: float) -> int | None:
    """Return the slots that the fallback group may hold; ``None`` if unlimited.

    ``primary`` are the slots of the primary group, live or requested, of which ``on_demand`` are known to be
    On-Demand Instances.
    """
    budget = active_budget(group, now)
    if budget is None or budget.on_demand_slots is None:
        return None
    return budget.on_demand_slots - max(
        on_demand, on_demand_share(primary, group.base, group.spot_percentage)
    )


@dataclass(frozen=True, slots=True)
class _Billed:
    """Slots that AWS may bill after a decision: requested or counted by group, and ending ones.

    ``on_demand`` are those of ``primary`` that run On-Demand now, ``ending_on_demand`` those of ``ending``.
    """

    by_role: Mapping[GroupRole, int]
    ending: int
    on_demand: int
    ending_on_demand: int

    @classmethod
    def now(cls, observation: Observation, unsettled: Mapping[GroupRole, int]) -> _Billed:
        """Return the slots before a decision; ``unsettled`` groups may reach these capacities."""
        ending = [i for i in observation.instances if i.is_terminating]
        return cls(
            {role: max(_current(observation, role), unsettled.get(role, 0)) for role in GroupRole},
            slots(ending),
            slots(
                i
                for i in observation.active_instances(GroupRole.PRIMARY)
                if i.purchase_option is PurchaseOption.ON_DEMAND
            ),
            slots(i for i in ending if i.purchase_option is PurchaseOption.ON_DEMAND),
        )

    def with_capacity(self, role: GroupRole, capacity: int) -> _Billed:
        """Return the slots once a group has this capacity as well."""
        return replace(self, by_role={**self.by_role, role: max(self.by_role[role], capacity)})

    @property
    def total(self) -> int:
        """All slots."""
        return sum(self.by_role.values()) + self.ending

    def total_on_demand(self, group: Group) -> int:
        """Return the On-Demand slots, those of the primary group by its mix."""
        share = on_demand_share(self.by_role[GroupRole.PRIMARY], group.base, group.spot_percentage)
        return max(self.on_demand, share) + self.by_role[GroupRole.FALLBACK] + self.ending_on_demand

    def fits(self, group: Group, budget: HourlyBudget) -> bool:
        """Return whether the budget allows these slots."""
        is_within = budget.slots is None or self.total <= budget.slots
        maximum = budget.on_demand_slots
        return is_within and (maximum is None or self.total_on_demand(group) <= maximum)


def limit_actions(
    actions: Sequence[SetDesired | TerminateInstances],
    observation: Observation,
    unsettled: Mapping[GroupRole, int],
    now: float,
) -> list[SetDesired | TerminateInstances]:
    """Return the actions with each raised capacity lowered to what the budget allows.

    A capacity is not lowered below what AWS counts already, which launches nothing.
    """
    group = observation.group
    budget = active_budget(group, now)
    if budget is None:
        return list(actions)
    terminating = {action.group_role for action in actions if isinstance(action, TerminateInstances)}
    billed, limited = _Billed.now(observation, unsettled), list[SetDesired | TerminateInstances]()
    for action in actions:
        if isinstance(action, SetDesired):
            role, current = action.group_role, _current(observation, action.group_role)
            capacity = action.capacity
            while capacity > current and not billed.with_capacity(role, capacity).fits(group, budget):
                capacity -= 1
            is_unchanged = capacity == observation.desired_capacity(role) and role not in terminating
            if capacity < action.capacity and is_unchanged:
                continue
            billed = billed.with_capacity(role, capacity)
            action = replace(action, capacity=capacity)
        limited.append(action)
    return limited


def alarms(
    configured: Group,
    observation: Observation,
    actions: Sequence[SetDesired | TerminateInstances],
    ready: int,
    now: float,
) -> tuple[Alarm, ...]:
    """Return the alarm of a budget that withholds capacity.

    That is if it lowers the target of ``configured``, or if less than the target is ``ready`` and
    one more instance does not fit.
    """
    group = observation.group
    budget = active_budget(group, now)
    if budget is None:
        return ()
    billed = _Billed.now(observation, {})
    for action in actions:
        if isinstance(action, SetDesired):
            billed = billed.with_capacity(action.group_role, action.capacity)
    one_more = billed.with_capacity(GroupRole.FALLBACK, billed.by_role[GroupRole.FALLBACK] + budget.largest)
    is_lowered = limit_group(configured, now).target < configured.target
    if not is_lowered and (ready >= group.target or one_more.fits(group, budget)):
        return ()
    limits = [
        f"${dollars:,.2f} an hour {label}allow {count} slots"
        for dollars, count, label in (
            (budget.dollars, budget.slots, ""),
            (budget.on_demand_dollars, budget.on_demand_slots, "of On-Demand "),
        )
        if count is not None
    ]
    price = f"${budget.slot_price:,.4g}"
    if budget.assumed:
        price += f" (assumed for {', '.join(budget.assumed)})"
    reason = f"{' and '.join(limits)} at {price}: {ready} of {configured.target} are ready"
    return (Alarm(REACHED, reason),)


def release_note(group: Group, now: float) -> str:
    """Return the part of a decision's reason about a release; empty without one."""
    release = group.control.budget_release
    if group.hourly_budget is None or release is None or not release.is_active(now):
        return ""
    end = datetime.fromtimestamp(release.ends_at, UTC)
    return f"hourly budget released until {end:%H:%M} UTC: {release.reason}"


def release_ends_at(group: Group, now: float) -> float | None:
    """Return when a release ends that applies now."""
    release = group.control.budget_release
    return release.ends_at if release is not None and release.is_active(now) else None


def _current(observation: Observation, role: GroupRole) -> int:
    return max(observation.desired_capacity(role), observation.counted_slots(role))
