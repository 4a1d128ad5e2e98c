"""Alarms of a capacity group: problems that more capacity cannot solve."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.memory import MAX_BOOT_SECONDS
from lambdas.core.model import Alarm, GroupRole, LaunchFailureKind, Observation, ids

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
