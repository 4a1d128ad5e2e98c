"""Alarms of a capacity group: problems that more capacity cannot solve."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Final

from contracts.group.control import Mode
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.memory import MAX_BOOT_SECONDS
from lambdas.core.capacity.plan import Plan
from lambdas.core.model import Alarm, GroupRole, LaunchFailureKind, Observation, ids

ON_DEMAND_ONLY: Final = "on-demand-only"
"""Cause of an alarm: the group has run On-Demand alone for longer than its policy expected."""

# The kinds are stored and logged.
_NOT_REPORTING: Final = "silent"
_SUSPENDED: Final = "suspended"


def alarms(observation: Observation, state: GroupState) -> tuple[tuple[Alarm, ...], frozenset[str]]:
    """Return the newly raised alarms, and the causes of all active ones. A Spot shortage is not an alarm."""
    active = state.memory.active_alarms
    # An alarm stays active while its group's activities cannot be read.
    unknown = {cause for cause in active if any(cause.startswith(r) for r in observation.activities_unknown)}
    causes: dict[str, Alarm] = {}
    for role in GroupRole:
        for failure in observation.launch_failures_of(role):
            if role is not GroupRole.PRIMARY or failure.kind is not LaunchFailureKind.CAPACITY:
                causes[_launch_cause(role, failure.kind)] = Alarm(f"{role}-{failure.kind}", failure.reason)
        if processes := observation.suspended.get(role):
            reason = f"processes suspended until resumed by an operator: {', '.join(sorted(processes))}"
            causes[f"{_SUSPENDED}:{role}"] = Alarm(f"{role}-{_SUSPENDED}", reason)
    if state.not_reporting:
        names = ", ".join(ids(state.not_reporting))
        withheld = "" if state.unresponsive else "; most or all of the group: no instance is replaced"
        reason = f"no worker reports for {MAX_BOOT_SECONDS / 60:.0f} minutes: {names}{withheld}"
        causes[_NOT_REPORTING] = Alarm(_NOT_REPORTING, reason)
    new = tuple(alarm for cause, alarm in causes.items() if cause not in active)
    return new, frozenset(unknown | causes.keys())


def on_demand_only(state: GroupState, plan: Plan) -> tuple[Alarm, ...]:
    """Return the alarm of a group that has run On-Demand alone for longer than its policy expected."""
    since, raised_at = state.memory.without_spot_since, on_demand_only_at(state, plan)
    if since is None or raised_at is None or state.now < raised_at:
        return ()
    minutes, expected = ((time - since) / 60 for time in (state.now, raised_at))
    reason = f"no Spot Instance for {minutes:.0f} minutes, at most {expected:.0f} were expected"
    return (Alarm(ON_DEMAND_ONLY, f"{reason}: {plan.reason}"),)


def on_demand_only_at(state: GroupState, plan: Plan) -> float | None:
    """Return when that alarm is due; ``None`` if the group holds Spot or is to run On-Demand alone."""
    since, seconds = state.memory.without_spot_since, plan.without_spot_seconds
    if since is None or math.isinf(seconds) or state.group.control.mode is Mode.MANUAL:
        return None
    return since + seconds + MAX_BOOT_SECONDS


def withhold_on_demand(causes: Set[str]) -> bool:
    """Return whether the primary group cannot launch for a reason that operators must fix.

    Not if an unknown failure is reported as well: On-Demand covers it (decision 0048).
    """
    if _launch_cause(GroupRole.PRIMARY, LaunchFailureKind.UNKNOWN) in causes:
        return False
    kinds = (kind for kind in LaunchFailureKind if kind.withholds_on_demand)
    return any(_launch_cause(GroupRole.PRIMARY, kind) in causes for kind in kinds)


def _launch_cause(role: GroupRole, kind: LaunchFailureKind) -> str:
    return f"{role}:{kind}"
