"""Alarms of a capacity group: problems that more capacity cannot solve.

Each is raised once: a cause that comes back within an hour is the same alarm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from contracts.group.control import Mode
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.memory import MAX_BOOT_SECONDS, Memory
from lambdas.core.capacity.plan import Plan
from lambdas.core.model import Alarm, GroupRole, Observation, ids

ON_DEMAND_ONLY: Final = "on-demand-only"
"""Cause of an alarm: the group has run On-Demand alone for longer than its policy expected."""

# The kinds are stored and logged.
_NOT_REPORTING: Final = "silent"
_SUSPENDED: Final = "suspended"
_MISSING: Final = "missing"
_WARM_POOL: Final = "warm-pool"
WARM_POOL_SECONDS: Final = 3600.0
"""Time for which a warm pool may be below its size: each start takes an instance from it."""
RESOLVED_SECONDS: Final = 3600.0
"""Time without its cause after which an alarm may be raised again."""


def alarms(observation: Observation, state: GroupState) -> dict[str, Alarm | None]:
    """Return the alarms by cause; ``None``: it is active, and whether its cause still is cannot be read.

    A Spot shortage is not an alarm.
    """
    memory = state.memory
    unknown = [f"{kind}:{role}" for kind in (_SUSPENDED, _MISSING) for role in observation.unobserved]
    unknown += [_NOT_REPORTING] if observation.registry_unknown else []
    unknown += [_WARM_POOL] if observation.warm_pool_lacks is None else []
    causes: dict[str, Alarm | None] = dict.fromkeys(memory.active_alarms.intersection(unknown))
    for failure in memory.launch_failures:
        name = f"{failure.group_role}-{failure.kind}"
        causes[f"{failure.group_role}:{failure.kind}"] = Alarm(name, failure.reason)
    for role in GroupRole:
        if processes := observation.suspended.get(role):
            reason = f"processes suspended until resumed by an operator: {', '.join(sorted(processes))}"
            causes[f"{_SUSPENDED}:{role}"] = Alarm(f"{role}-{_SUSPENDED}", reason)
        if role in observation.missing:
            cure = "`pulumi up --refresh` creates it again"
            covered = "; On-Demand covers what it lacks" if role is GroupRole.PRIMARY else ""
            reason = f"{observation.unobserved[role]}: {cure}{covered}"
            causes[f"{_MISSING}:{role}"] = Alarm(f"{role}-{_MISSING}", reason)
    if state.not_reporting:
        names = ", ".join(ids(state.not_reporting))
        withheld = "" if state.unresponsive else "; most or all of the group: no instance is replaced"
        reason = f"no worker reports for {MAX_BOOT_SECONDS / 60:.0f} minutes: {names}{withheld}"
        causes[_NOT_REPORTING] = Alarm(_NOT_REPORTING, reason)
    since = memory.warm_pool_lacks_since
    if since is not None and state.now - since >= WARM_POOL_SECONDS and observation.warm_pool_lacks:
        reason = f"the warm pool is below its size for {(state.now - since) / 60:.0f} minutes"
        causes[_WARM_POOL] = Alarm(_WARM_POOL, f"{reason}: {observation.warm_pool_lacks}")
    return causes


def remember(memory: Memory, causes: Iterable[str], now: float) -> Memory:
    """Return the memory with the alarms whose cause is active, and those whose cause may come back."""
    present = frozenset(causes)
    ended = {**dict.fromkeys(memory.active_alarms, now), **memory.alarms_without_cause}
    recent = {c: at for c, at in ended.items() if c not in present and abs(now - at) < RESOLVED_SECONDS}
    return replace(memory, active_alarms=present, alarms_without_cause=recent)


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
