"""Spreads a service over zones again: after a loss its Spot Instances may all run in one zone.

AZRebalance is suspended, because it ends serving instances. Here one instance is launched in another zone
with ``LaunchInstances`` and without a retry: a zone without capacity costs a call. Once the new instance
serves, one of the crowded zone ends. At most one try in ``PAUSE_SECONDS``, and of a zone in ``TRY_SECONDS``.
Source: Auto Scaling guide, "Launch instances synchronously", note: groups of Spot alone, or of On-Demand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from contracts.group.control import Mode
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.plan import Plan
from lambdas.core.model import GroupRole, PurchaseOption, SetDesired

TRY_SECONDS: Final = 660.0
"""With a boot, an instance serves in a zone that has had capacity for a quarter of an hour."""
PAUSE_SECONDS: Final = 60.0
"""Time between tries of two zones, and in which a launched instance may be missing from the group's list."""


def keep_new_zone(plan: Plan, state: GroupState) -> Plan:
    """Return the plan, with one slot more of the primary group while the instance of the last try boots."""
    zone, target, tried_at = _only_zone(state), state.group.target, _last_try(state)
    booting = [i for i in state.primary if not state.is_up(i) and not state.is_interrupted(i)]
    # EC2 gives launch times in whole seconds.
    began = math.floor(tried_at)
    is_new = len(booting) == 1 and booting[0].pool.zone != zone and booting[0].launched_at >= began
    is_unlisted = not booting and state.now - tried_at < PAUSE_SECONDS
    if zone is None or not tried_at or not (is_new or is_unlisted) or plan.primary not in (None, target):
        return plan
    return replace(plan, primary=max(target, min(target + 1, state.primary_desired)))


def next_try(plan: Plan, state: GroupState) -> tuple[float, SetDesired] | None:
    """Return when another zone is tried next (epoch seconds), and the action.

    ``None`` if the group is spread, not filled, or not of Spot Instances alone.
    """
    zone = _only_zone(state)
    if zone is None or not state.group.config.spreads or not _is_quiet(plan, state):
        return None
    # Auto Scaling has just tried all for its own launch: it begins with the zone that has the fewest.
    launched, tries = max(i.launched_at for i in state.primary), state.memory.zone_tries
    zones = [name for name in state.group.config.zones if name != zone]
    times = {name: max(launched, tries.get(name, 0.0)) + TRY_SECONDS for name in zones}
    hazard = _hazard_by_zone(state)
    # Of those that are not too early the zone with the fewest losses.
    tried = min(zones, key=lambda name: (max(times[name], state.now), hazard.get(name, 1.0), name))
    reason = f"all {state.group.target} in {zone}: tries {tried}"
    action = SetDesired(GroupRole.PRIMARY, state.group.target + 1, reason, tried, only_there=True)
    return max(times[tried], _last_try(state) + PAUSE_SECONDS), action


def _is_quiet(plan: Plan, state: GroupState) -> bool:
    """Return whether stable Spot Instances of one slot fill the group, and it may have one more."""
    group = state.group
    return (
        group.control.mode in (Mode.AUTOMATIC, Mode.DRY_RUN)
        and group.target >= 2
        and plan.primary in (None, group.target)
        and state.primary_desired == group.target == len(state.stable(state.primary))
        and len(state.primary) == group.target
        and all(i.purchase_option is PurchaseOption.SPOT and i.slots == 1 for i in state.primary)
        and not state.replacements
        and group.maximum > group.target + state.committed_fallback + state.terminating_slots
    )


def _only_zone(state: GroupState) -> str | None:
    """Return the zone of all stable Spot Instances; ``None`` if there are several, or none."""
    zones = {i.pool.zone for i in state.stable(state.primary)}
    return zones.pop() if len(zones) == 1 else None


def _hazard_by_zone(state: GroupState) -> Mapping[str, float]:
    """Return the losses of each zone's best pool relative to a typical one's."""
    history, hazard = state.memory.history, dict[str, float]()
    group_factor = history.hazard_factor()
    for pool in history.pools:
        zone = pool.rpartition("@")[2]
        hazard[zone] = min(hazard.get(zone, 1.0), history.pool_hazard_factor(pool, group_factor))
    return hazard


def _last_try(state: GroupState) -> float:
    """Return the time of the newest try of any zone; a time in the future is that of another clock."""
    return max((at for at in state.memory.zone_tries.values() if at <= state.now), default=0.0)
