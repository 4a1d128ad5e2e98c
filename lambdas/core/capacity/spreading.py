"""Spreads a service over zones again: after a loss its Spot Instances may all run in one zone.

AZRebalance is suspended, because it ends serving instances. Here one instance more is requested; Auto Scaling
launches it in the zone with the fewest. If that is another zone, an instance of the crowded one ends once it
serves; if it is the same, it ends at once. What another zone has is not known before: a try comes after a
share of the age of the crowded pool, as the rate of losses falls with that age.
Source: Auto Scaling guide, "Auto Scaling benefits for application architecture", on balanced launches.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from contracts.group.control import Mode
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.plan import Plan
from lambdas.core.model import PurchaseOption, slots

MAX_TRIES_A_DAY: Final = 96
MIN_PAUSE_SECONDS: Final = 600.0
MAX_PAUSE_SECONDS: Final = 1500.0
PAUSE_SHARE: Final = 0.5
"""Pause between two tries relative to the age of the crowded pool's run."""
TRY_SECONDS: Final = 90.0
"""Time for which the additional instance is requested, less than that of a launch timeout."""
_DAY_SECONDS: Final = 86_400.0


def spread(plan: Plan, state: GroupState) -> Plan:
    """Return the plan, with one more slot of the primary group while the group tries another zone."""
    if (zone := _crowded_zone(plan, state)) is None:
        return plan
    booting = [i for i in state.primary if not state.is_up(i)]
    is_outside = any(i.pool.zone != zone for i in booting)
    if booting and not is_outside:
        return plan
    starts_at, ends_at = _next_try(state)
    if is_outside or starts_at <= state.now < ends_at:
        times = (plan.next_run_at, None if is_outside else ends_at)
        target = state.group.target + 1
        return replace(
            plan,
            primary=target,
            next_run_at=_first(*times),
            reason=f"{plan.reason}, tries another zone than {zone}",
        )
    return replace(plan, next_run_at=_first(plan.next_run_at, starts_at))


def without_failed_try(state: GroupState) -> GroupState:
    """Return the state with the end of a try whose instance came in the crowded zone."""
    tries = sorted(state.memory.spread_tries)
    zones = {i.pool.zone for i in state.stable(state.primary)}
    launched = [i for i in state.primary if tries and i.launched_at >= tries[-1] and not state.is_up(i)]
    if not any(i.pool.zone in zones for i in launched):
        return state
    ended = min(tries[-1], state.now - TRY_SECONDS)
    return replace(state, memory=replace(state.memory, spread_tries=(*tries[:-1], ended)))


def remember(memory: Memory, plan: Plan, state: GroupState) -> Memory:
    """Return the memory with the tries, and one that begins now."""
    tries = tuple(t for t in state.memory.spread_tries if 0 <= state.now - t < _DAY_SECONDS)
    is_running = bool(tries) and state.now < max(tries) + TRY_SECONDS
    begins = plan.primary == state.group.target + 1 and not is_running and _is_due(state)
    return replace(memory, spread_tries=(*tries, state.now) if begins else tries)


def _is_due(state: GroupState) -> bool:
    starts_at, ends_at = _next_try(state)
    return starts_at <= state.now < ends_at and all(map(state.is_up, state.primary))


def _crowded_zone(plan: Plan, state: GroupState) -> str | None:
    """Return the zone in which all that serves runs, if the group is filled and quiet; else ``None``."""
    group, stable = state.group, state.stable(state.primary)
    if group.config.break_before_make or group.control.mode is Mode.MANUAL or state.replacements:
        return None
    if len(stable) < 2 or len(group.config.zones) < 2 or plan.primary not in (None, group.target):
        return None
    zones = {i.pool.zone for i in stable}
    is_quiet = all(i.purchase_option is PurchaseOption.SPOT for i in stable) and not any(
        map(state.is_interrupted, state.primary)
    )
    has_room = group.maximum > group.target + state.committed_fallback
    if len(zones) != 1 or not is_quiet or not has_room or slots(stable) != group.target:
        return None
    return zones.pop()


def _next_try(state: GroupState) -> tuple[float, float]:
    """Return the beginning and the end of the try that runs, else of the next.

    A launch in the crowded zone says what a failed try says: the others had no capacity then.
    """
    tries = [t for t in state.memory.spread_tries if 0 <= state.now - t < _DAY_SECONDS]
    newest = max(tries, default=-math.inf)
    if state.now < newest + TRY_SECONDS:
        return newest, newest + TRY_SECONDS
    launched = max((i.launched_at for i in state.primary if state.is_up(i)), default=0.0)
    age = min((state.memory.history.record(i.pool).age(state.now) for i in state.primary), default=0.0)
    pause = min(max(MIN_PAUSE_SECONDS, PAUSE_SHARE * age), MAX_PAUSE_SECONDS)
    begins = max(newest, min(launched, state.now)) + pause
    if len(tries) >= MAX_TRIES_A_DAY:
        begins = max(begins, min(tries) + _DAY_SECONDS)
    begins = max(begins, state.now)
    return begins, begins + TRY_SECONDS


def _first(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)
