"""Decisions of the controller: from an observation to actions, each with its reason.

A policy plans the On-Demand slots. The safety rules for every policy are implemented here: maximum, base,
handover to ready successors, classification of launch failures, manual override and pause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from contracts.group.control import Mode
from contracts.group.warm_pool import on_demand_share
from lambdas.core.capacity import on_premises, spreading
from lambdas.core.capacity.alarms import alarms, on_demand_only, on_demand_only_at, remember
from lambdas.core.capacity.group_state import GroupState
from lambdas.core.capacity.launch_causes import withhold_on_demand
from lambdas.core.capacity.memory import (
    SETTLE_SECONDS,
    Memory,
    pending_capacity,
    record_requests,
    update_memory,
)
from lambdas.core.capacity.plan import Plan, Policy
from lambdas.core.capacity.replacements import with_removed_zones
from lambdas.core.model import (
    Action,
    GroupRole,
    Instance,
    Observation,
    PurchaseOption,
    SetDesired,
    TerminateInstances,
    ids,
    slots,
    slots_by_option,
)
from lambdas.core.money import bill
from lambdas.core.rollout import surge


@dataclass(frozen=True, slots=True)
class Decision:
    """Actions in the order of execution, their reason, and the new memory.

    ``next_run_at`` is the first time at which the same observation may lead to other actions; ``None``:
    never.
    """

    actions: tuple[Action, ...]
    memory: Memory
    reason: str
    state: GroupState
    next_run_at: float | None = None


def decide(observation: Observation, policy: Policy, memory: Memory, now: float) -> Decision:
    """Return the decision for one group. Pure, and idempotent once its actions are visible in AWS."""
    observation = _with_remembered_workers(observation, memory)
    memory = update_memory(memory, observation, now)
    observation = surge.with_surge(_without_spent_budget(observation, memory, now), now)
    observation = with_removed_zones(observation, now)
    observation = on_premises.with_offset(observation, memory.on_premises_offset.slots)
    state = GroupState.from_observation(observation, memory, now)
    control = observation.group.control
    if control.mode is Mode.PAUSED:
        return Decision((), memory, "paused by the control parameter", state)
    is_blocked = withhold_on_demand(memory.launch_failures)
    plan, capacity_actions = _plan_actions(state, policy, is_blocked, _bounds(observation))
    unsettled = pending_capacity(memory, observation, now)
    capacity_actions += _on_demand_target_changes(capacity_actions, observation, memory, now)
    # A group that has not settled accepts no change now.
    capacity_actions = [action for action in capacity_actions if action.group_role not in unsettled]
    capacity_actions = _in_volume_zone(capacity_actions, observation, memory)
    capacity_actions = _limit_to_maximum(capacity_actions, observation, unsettled)
    trial = None if capacity_actions or unsettled or is_blocked else spreading.next_try(plan, state)
    tries = (trial[1],) if trial and trial[0] <= now else ()
    try_at = (now + spreading.PAUSE_SECONDS if tries else trial[0]) if trial else None
    raised = (*plan.alarms, *bill.alarms(memory.bill, observation, now), *on_demand_only(state, plan))
    causes = {**alarms(observation, state), **{alarm.kind: alarm for alarm in raised}}
    raised_before = memory.active_alarms | memory.alarms_without_cause.keys()
    new_alarms = [alarm for cause, alarm in causes.items() if alarm and cause not in raised_before]
    actions = (*new_alarms, *capacity_actions, *tries)
    memory = remember(memory, causes, now)
    if tries:
        memory = replace(memory, zone_tries={**memory.zone_tries, tries[0].zone: now})
    if control.mode is not Mode.DRY_RUN:
        memory = record_requests(memory, observation, capacity_actions, now, state.replacements.keys())
        if state.lone_silent and memory.termination_requests.get(state.lone_silent[0].id) == now:
            memory = replace(memory, lone_replaced_at=now)
    return Decision(actions, memory, plan.reason, state, _next_run_at(state, plan, try_at))


def _with_remembered_workers(observation: Observation, memory: Memory) -> Observation:
    """Return the observation with the instances that have booted as serving, if the registry is unknown.

    Like instances with malformed records, none is terminated as one that serves no more.
    """
    if not observation.registry_unknown:
        return observation
    instances = (
        replace(i, ready_since=i.launched_at if i.id in memory.booted else None, has_malformed_records=True)
        for i in observation.instances
    )
    return replace(observation, instances=tuple(instances))


def _without_spent_budget(observation: Observation, memory: Memory, now: float) -> Observation:
    """Return the observation with target 0 if the budget of the group's job is spent."""
    if not bill.is_spent(memory.bill, observation.group.budget, now):
        return observation
    return replace(observation, group=replace(observation.group, target=0, reserved=0))


def _bounds(observation: Observation) -> dict[GroupRole, tuple[int, int]]:
    """Return the capacities that AWS accepts of each group: ``MinSize`` and ``MaxSize``."""
    return {role: observation.bounds.get(role, (0, observation.group.maximum)) for role in GroupRole}


def _plan_actions(
    state: GroupState, policy: Policy, is_blocked: bool, bounds: Mapping[GroupRole, tuple[int, int]]
) -> tuple[Plan, list[SetDesired | TerminateInstances]]:
    """Return the plan, and the actions that bring both groups to it."""
    replaced = _instances_to_replace(state)
    primary_terminations = [i for i in replaced if i.group_role is GroupRole.PRIMARY]
    fallback_terminations = [i for i in replaced if i.group_role is GroupRole.FALLBACK]
    if replaced:
        # Plan without them, as the next observation does; otherwise the next plan would differ.
        state = state.without(replaced)
    plan = _plan(state, policy)
    fallback = _fallback_target(state, plan, is_blocked)
    primary = _primary_target(state, plan, fallback, is_blocked)
    candidates = [i for i in state.primary if i.id not in state.memory.termination_deadlines]
    surplus = slots(candidates) - primary
    minimum = state.minimum_slots(GroupRole.PRIMARY, primary)
    if selected := _select_for_termination(state, candidates, surplus, minimum, plan.handover):
        primary_terminations += selected
        state = state.without(selected)
        plan = _plan(state, policy)
        fallback = _fallback_target(state, plan, is_blocked)
        primary = _primary_target(state, plan, fallback, is_blocked)
    candidates = [i for i in state.fallback if i.id not in state.replacements]
    surplus = slots(state.fallback) - fallback
    minimum = state.minimum_slots(GroupRole.FALLBACK, fallback)
    selected = _select_for_termination(state, candidates, surplus, minimum, plan.handover)
    fallback_terminations += selected
    # A requested termination that is not visible yet may have failed: until it is visible it reduces nothing.
    freed = slots(selected)
    live = {role: state.counted_slots[role] + state.unterminated_slots[role] for role in GroupRole}
    defective = frozenset(ids(replaced))
    targets = {GroupRole.PRIMARY: primary, GroupRole.FALLBACK: fallback}
    desired = {GroupRole.PRIMARY: state.primary_desired, GroupRole.FALLBACK: state.fallback_desired - freed}
    live[GroupRole.FALLBACK] -= freed
    terminations = {GroupRole.PRIMARY: primary_terminations, GroupRole.FALLBACK: fallback_terminations}
    return plan, [
        action
        for role in GroupRole
        for action in _reach_target(
            role,
            targets[role],
            desired[role],
            live[role],
            terminations[role],
            state.pending_reduction[role],
            bounds[role],
            defective,
            plan.reason,
        )
    ]


def _instances_to_replace(state: GroupState) -> list[Instance]:
    """Return the instances to replace under any plan: unresponsive, by request, or retired by AWS.

    An unresponsive On-Demand instance of the base is kept and raises an alarm: the base is always held.
    """
    unresponsive = [
        i
        for i in state.unresponsive
        if i.group_role is GroupRole.FALLBACK or i.purchase_option is PurchaseOption.SPOT
    ]
    failed = state.failed
    retiring = [i for i in state.retiring if i not in failed]
    return [*unresponsive, *failed, *retiring]


def _on_demand_target_changes(
    actions: Sequence[SetDesired | TerminateInstances], observation: Observation, memory: Memory, now: float
) -> list[SetDesired]:
    """Return the changes of groups whose On-Demand part is not the share of their capacity.

    With each other change of capacity the share is set as well. A change may not be visible for a while.
    """
    group, changed = observation.group, {action.group_role for action in actions}
    changes: list[SetDesired] = []
    for role, on_demand in observation.on_demand_targets.items():
        capacity = observation.desired_capacity(role)
        share = on_demand_share(capacity, group.config.base, group.config.spot_percentage)
        _, requested_at = memory.requested_capacity.get(role, (capacity, -math.inf))
        if role not in changed and on_demand != share and abs(now - requested_at) >= SETTLE_SECONDS:
            reason = f"On-Demand target of the {role} group: {share} of {capacity}, was {on_demand}"
            changes.append(SetDesired(role, capacity, reason))
    return changes


def _limit_to_maximum(
    actions: Sequence[SetDesired | TerminateInstances],
    observation: Observation,
    unsettled: Mapping[GroupRole, int],
) -> list[SetDesired | TerminateInstances]:
    """Return the actions with each raised capacity lowered to what the maximum leaves.

    It counts by AWS's own lists, whatever signals the plan follows, so that the maximum bounds the bill when
    heartbeats, marks or on-premises workers lie. Instances that AWS is terminating are still billed, and
    ``unsettled`` is the capacity that a group without settled requests may reach. The base is held whatever
    else runs.
    """
    ending = slots(i for i in observation.instances if i.is_terminating)
    counted = {role: max(observation.counted_slots(role), unsettled.get(role, 0)) for role in GroupRole}
    desired = {role: observation.desired_capacity(role) for role in GroupRole}
    terminating = {action.group_role for action in actions if isinstance(action, TerminateInstances)}
    lowered = {
        a.group_role: a.capacity
        for a in actions
        if isinstance(a, SetDesired) and a.capacity < desired[a.group_role]
    }
    limited = list[SetDesired | TerminateInstances]()
    for action in actions:
        if isinstance(action, SetDesired):
            role = action.group_role
            in_other = sum(max(counted[r], lowered.get(r, desired[r])) for r in GroupRole if r is not role)
            current = max(observation.desired_capacity(role), counted[role])
            base = observation.group.config.base if role is GroupRole.PRIMARY else 0
            room = max(current, base, observation.group.maximum - ending - in_other)
            capacity = min(action.capacity, room)
            is_unchanged = capacity == observation.desired_capacity(role) and role not in terminating
            if capacity < action.capacity and is_unchanged:
                continue
            action = replace(action, capacity=capacity)
            desired[role] = capacity
        else:
            minimum, _ = _bounds(observation)[action.group_role]
            lowered_by = max(0, desired[action.group_role] - minimum)
            action = replace(action, slots=min(action.slots, lowered_by))
        limited.append(action)
    return limited


def _in_volume_zone(
    actions: Sequence[SetDesired | TerminateInstances], observation: Observation, memory: Memory
) -> list[SetDesired | TerminateInstances]:
    """Request On-Demand capacity in the zone of the job's volume; elsewhere the volume would have to move."""
    config = observation.group.config
    is_offered = config.by_zone and (not config.zones or memory.volume_zone in config.zones)
    zone = memory.volume_zone if is_offered else ""
    current = observation.fallback_desired
    return [
        replace(action, zone=zone)
        if zone
        and isinstance(action, SetDesired)
        and action.group_role is GroupRole.FALLBACK
        and action.capacity > current
        else action
        for action in actions
    ]


def _plan(state: GroupState, policy: Policy) -> Plan:
    plan, notes = spreading.keep_new_zone(_apply_overrides(state, policy), state), state.notes
    return replace(plan, reason=f"{plan.reason}; {notes}") if notes else plan


def _apply_overrides(state: GroupState, policy: Policy) -> Plan:
    """Return the policy's plan, subject to manual mode and reserved capacity."""
    control = state.group.control
    if control.mode is Mode.MANUAL:
        on_demand = state.committed_fallback if control.on_demand is None else control.on_demand
        return Plan(on_demand, f"{on_demand} on-demand set by the control parameter", handover=False)
    if not state.reserved:
        return policy.plan(state)
    rest = state.beyond_reserved()
    running = state.group.target - rest.group.target
    plan = policy.plan(rest)
    return replace(
        plan,
        on_demand=max(state.reserved, running + plan.on_demand),
        primary=rest.group.target if plan.primary is None else plan.primary,
        reason=f"{running} of {state.reserved} reserved; of the rest: {plan.reason}",
    )


def _fallback_target(state: GroupState, plan: Plan, is_blocked: bool) -> int:
    """Return the target capacity of the fallback group.

    ``is_blocked``: the primary group cannot launch because of a limit, permissions or configuration.
    """
    if not state.group.fallback:
        return 0
    target, committed = max(0, plan.on_demand), state.committed_fallback
    # The plan does not count instances that are replaced by request.
    target += slots(i for i in state.fallback if i.id in state.replacements)
    if is_blocked and state.group.control.mode is not Mode.MANUAL:
        # On-Demand must not replace what limits, permissions or configuration withhold: operators fix those.
        target = max(target - state.missing_spot, min(target, committed), state.reserved)
    # AWS replaces the instances that it counts, and the base is always requested.
    primary = max(slots(state.primary), state.counted_slots[GroupRole.PRIMARY], state.group.config.base)
    room = state.group.maximum - primary - state.terminating_slots
    return min(target, max(room, slots(state.fallback)))


def _primary_target(state: GroupState, plan: Plan, fallback: int, is_blocked: bool) -> int:
    """Return the target capacity of the primary group: the planned one, limited by the maximum."""
    target = state.group.target if plan.primary is None else plan.primary
    if is_blocked:
        # What On-Demand does not replace is tried here: only a launch shows that the cause is gone.
        target = max(target, min(state.group.target, target + plan.on_demand - fallback))
    committed = max(fallback, slots(state.fallback), state.counted_slots[GroupRole.FALLBACK])
    room = state.group.maximum - committed - state.terminating_slots
    deadlines, replacements = state.memory.termination_deadlines, state.replacements
    uninterrupted = slots(i for i in state.primary if i.id not in deadlines)
    if replacements:
        # The primary group itself launches the successors that the fallback does not provide, and keeps them
        # while they boot, whatever the plan wants of it.
        lacking = state.group.target - fallback + slots(i for i in state.fallback if i.id in replacements)
        replaced = slots(i for i in state.primary if i.id in replacements)
        launched = min(uninterrupted, lacking, target + replaced)
        target = max(target + min(replaced, max(0, lacking - uninterrupted)), launched)
    return max(state.group.config.base, min(target, max(room, uninterrupted)))


def _reach_target(
    role: GroupRole,
    target: int,
    desired: int,
    live: int,
    terminations: Sequence[Instance],
    pending: int,
    bounds: tuple[int, int],
    defective: Set[str],
    reason: str,
) -> list[SetDesired | TerminateInstances]:
    """Return the actions that terminate instances and bring the rest of a group to its target.

    ``desired`` and ``live`` are the counts of AWS without ``terminations`` and without the ``pending`` slots
    of instances whose termination is requested but not visible: they reduce the desired capacity later, or
    stay. AWS refuses a capacity outside ``bounds``, also one that the terminations lower at once: what runs
    above it is terminated without lowering it. ``defective`` instances must not return to a warm pool.
    """
    minimum, maximum = bounds
    # Below the live slots AWS would select instances itself; raising to an overshoot would make it permanent.
    capacity = max(min(desired, max(target, live)), target)
    freed = slots(terminations)
    current = desired + freed + pending
    maximum = max(maximum, current)  # AWS has it, so it is allowed
    capacity = max(minimum, min(capacity, maximum))
    before = min(capacity + freed + pending, maximum)
    actions: list[SetDesired | TerminateInstances] = []
    if before != current:
        # The termination that follows lowers the desired capacity by its slots.
        actions.append(SetDesired(role, before, reason))
    if terminations:
        terminated = ids(terminations)
        lowered = max(0, min(freed, before - capacity))
        skip_warm_pool = not defective.isdisjoint(terminated)
        actions.append(TerminateInstances(role, terminated, reason, lowered, skip_warm_pool=skip_warm_pool))
    return actions


def _select_for_termination(
    state: GroupState,
    candidates: Sequence[Instance],
    surplus: int,
    minimum: Mapping[PurchaseOption, int],
    handover: bool,
) -> list[Instance]:
    """Select instances to terminate in scale-in order: at most ``surplus`` slots, none below the ``minimum``.

    With ``handover``, a serving instance is terminated only if the others fill the target. A booting
    successor of an instance at risk is kept: Capacity Rebalancing would launch the next one at once.
    """
    if surplus <= 0:
        return []
    at_risk = state.memory.at_risk
    surplus_successors = surplus - slots(i for i in candidates if i.id in at_risk)
    serving = slots(state.stable((*state.primary, *state.fallback)))
    spare = max(0, serving - state.group.target) if handover else serving
    stable = set(ids(state.stable(candidates)))
    remaining = slots_by_option(candidates)
    selected: list[Instance] = []
    for instance in state.scale_in_order(candidates):
        count = instance.slots
        if surplus <= 0:
            break
        if count > surplus:
            continue  # without it the group would lack slots and launch again
        if not instance.is_described or instance.has_malformed_records:
            continue  # unknown whether it serves; if it does not report, it is replaced as unresponsive
        option = instance.purchase_option
        if remaining[option] - count < minimum[option]:
            continue
        if instance.id in stable:
            if spare < count:
                continue
            spare -= count
        elif instance.id not in at_risk and surplus_successors < count:
            continue
        if instance.id not in at_risk:
            surplus_successors -= count
        remaining[option] -= count
        surplus -= count
        selected.append(instance)
    return selected


def _next_run_at(state: GroupState, plan: Plan, try_at: float | None) -> float | None:
    """Return the first time after now at which the decision may change without a new observation.

    That is when an instance starts to drain, a launch times out, the plan changes, a budget threshold is
    reached, another zone is tried, or the alarm about On-Demand alone is due.
    """
    # The deadlines of requested replacements move on with every run.
    interrupted = state.memory.termination_deadlines.keys() - state.replacements.keys()
    drains = (state.drain_at(i) for i in (*state.primary, *state.fallback) if i.id in interrupted)
    budget_times = bill.threshold_times(state.memory.bill, state.group.budget, state.now)
    alarm_at = on_demand_only_at(state, plan)
    times = (
        *(plan.next_run_at, state.memory.history.unavailable_at, alarm_at, try_at),
        *budget_times,
        *drains,
    )
    return min((time for time in times if time is not None and time > state.now), default=None)
