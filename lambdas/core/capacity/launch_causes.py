"""Why launches fail, remembered until something changes: not for a time, and not only the newest text.

AWS retries a refused launch after minutes, hours or a day, and suspends launches after a day. So an old
failure is as true as a new one until a launch succeeds, the group is filled, or an operator changes the
configuration, the ``control`` parameter or the launch template.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lambdas.core.model import GroupRole, LaunchFailure, LaunchFailureKind, Observation, PurchaseOption, slots

if TYPE_CHECKING:
    from lambdas.core.capacity.memory import Memory

_MAX_MESSAGE: Final = 500
"""Maximum characters of a message that is remembered."""
_SAME_TRY_SECONDS: Final = 300.0
"""Failures of one try of a Spot Fleet, which reports several at once."""


def update(
    memory: Memory, observation: Observation, now: float
) -> tuple[tuple[LaunchFailure, ...], dict[GroupRole, float]]:
    """Return the failures that raise alarms, and by group the time before which failures are past."""
    is_changed = bool(memory.configuration) and observation.configuration not in ("", memory.configuration)
    settled_at = {role: min(at, now) for role, at in memory.settled_at.items()}
    active: list[LaunchFailure] = []
    for role in GroupRole:
        failures = {f.kind: f for f in memory.launch_failures if f.group_role is role}
        if is_changed or _is_filled(observation, role):
            # AWS shows the last failure of a group for weeks.
            has_failed = failures or observation.launch_failures_of(role)
            settled_at |= {role: now} if has_failed or is_changed else {}
            continue
        past = settled_at.get(role, -math.inf)
        for failure in observation.launch_failures_of(role):
            if _raises_alarm(failure) and past < failure.failed_at:
                failures[failure.kind] = replace(failure, message=failure.message[:_MAX_MESSAGE])
        newest = {failure.kind for failure in observation.launch_failures_of(role)}
        active += [f for f in failures.values() if f.kind in newest or not _has_succeeded(observation, f)]
    return tuple(active), settled_at


def withhold_on_demand(failures: Sequence[LaunchFailure]) -> bool:
    """Return whether the primary group cannot launch for a reason that operators must fix.

    Not if an unknown failure is at least as new: On-Demand covers it (decision 0048).
    """
    primary = [f for f in failures if f.group_role is GroupRole.PRIMARY]
    withheld_at = max((f.failed_at for f in primary if f.kind.withholds_on_demand), default=math.inf)
    unknown = (f.failed_at for f in primary if f.kind is LaunchFailureKind.UNKNOWN)
    return withheld_at < math.inf and max(unknown, default=-math.inf) < withheld_at - _SAME_TRY_SECONDS


def _raises_alarm(failure: LaunchFailure) -> bool:
    """A shortage of Spot is not an alarm."""
    return failure.group_role is GroupRole.FALLBACK or failure.kind is not LaunchFailureKind.CAPACITY


def _is_filled(observation: Observation, role: GroupRole) -> bool:
    """Return whether the group has what it is for: the primary group the target, not what is desired."""
    if role in observation.unobserved:
        return False
    required = observation.desired_capacity(role)
    if role is GroupRole.PRIMARY:
        required = max(required, observation.group.target)
    return slots(observation.active_instances(role)) >= required


def _has_succeeded(observation: Observation, failure: LaunchFailure) -> bool:
    """Return whether a launch of the group has succeeded since; against a Spot limit only one of Spot."""
    role, config = failure.group_role, observation.group.config
    is_spot = failure.kind is LaunchFailureKind.SPOT_LIMIT
    is_mixed = config.base > 0 or config.spot_percentage < 100
    if role in observation.launches_succeed and not (is_spot and is_mixed):
        return True
    return any(
        i.is_described
        and i.launched_at > failure.failed_at
        and not (is_spot and i.purchase_option is not PurchaseOption.SPOT)
        for i in observation.active_instances(role)
    )
