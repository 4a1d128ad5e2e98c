"""Small builders for observations, so that a test states only what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contracts.group.config import GroupConfig, PolicyChoice
from contracts.group.control import Control
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory
from lambdas.core.capacity.policies.ready_handover import ReadyHandover
from lambdas.core.launch_failures import classify
from lambdas.core.model import (
    Action,
    Alarm,
    Group,
    GroupRole,
    Instance,
    LaunchFailure,
    Observation,
    Pool,
    PurchaseOption,
    RunBudget,
    SetDesired,
    TerminateInstances,
    slots,
)

NOW = 1_000_000.0
POOL = Pool("g5.xlarge", "us-west-2a")


def group(
    name: str = "inference",
    target: int = 4,
    maximum: int = 8,
    *,
    fallback: bool = True,
    control: Control | None = None,
    budget: RunBudget | None = None,
    **settings: Any,
) -> Group:
    """Return a group; ``settings`` are fields of its `GroupConfig`."""
    settings = {"base": 0, "spot_percentage": 100, **settings}
    config = GroupConfig(
        kind="mixed-asg",
        primary="primary",
        fallback="fallback" if fallback else None,
        maximum=maximum,
        slots={},
        policy=PolicyChoice("ready-handover"),
        **settings,
    )
    return Group.of(name, config, target, control, budget)


def spot(name: str, *, ready: bool = True, deadline: float | None = None, age: float = 3600.0) -> Instance:
    """Return a spot instance of the primary group, launched ``age`` seconds ago."""
    ready_since = NOW - age + 180 if ready else None
    return Instance(name, POOL, PurchaseOption.SPOT, GroupRole.PRIMARY, NOW - age, ready_since, deadline)


def on_demand(
    name: str, *, ready: bool = True, age: float = 600.0, side: GroupRole = GroupRole.FALLBACK
) -> Instance:
    """Return an on-demand instance, of the fallback group unless told otherwise."""
    return Instance(name, POOL, PurchaseOption.ON_DEMAND, side, NOW - age, NOW - age + 60 if ready else None)


def refusal(message: str, side: GroupRole = GroupRole.PRIMARY) -> LaunchFailure:
    """Return a refusal with AWS's words."""
    return LaunchFailure(side, classify(message), NOW - 10, message)


def observe(
    *instances: Instance,
    group: Group = group(),  # noqa: B008 - frozen
    primary_desired: int | None = None,
    fallback_desired: int | None = None,
    refusals: tuple[LaunchFailure, ...] = (),
    **more: Any,
) -> Observation:
    """Return an observation; desired capacities are the target and the live fallback unless given."""
    live = slots(i for i in instances if i.group_role is GroupRole.FALLBACK)
    return Observation(
        group,
        primary_desired=group.target if primary_desired is None else primary_desired,
        fallback_desired=live if fallback_desired is None else fallback_desired,
        instances=instances,
        launch_failures=refusals,
        **more,
    )


def run(observation: Observation, memory: Memory | None = None, now: float = NOW) -> Decision:
    """Return what the simplest policy decides."""
    return decide(observation, ReadyHandover(), memory or Memory(), now)


def taken(observation: Observation, decision: Decision) -> Observation:
    """Return what shows before AWS has ended those who were released."""
    asked = {a.group_role: a.capacity for a in decision.actions if isinstance(a, SetDesired)}
    return replace(
        observation,
        primary_desired=asked.get(GroupRole.PRIMARY, observation.primary_desired),
        fallback_desired=asked.get(GroupRole.FALLBACK, observation.fallback_desired),
    )


def carried_out(observation: Observation, decision: Decision) -> Observation:
    """Return what an observer sees once AWS has taken the decision's requests and launched nothing."""
    desired = {
        GroupRole.PRIMARY: observation.primary_desired,
        GroupRole.FALLBACK: observation.fallback_desired,
    }
    gone: set[str] = set()
    for action in decision.actions:
        match action:
            case SetDesired(side, capacity):
                desired[side] = capacity
            case TerminateInstances(side, instance_ids, _, freed):
                desired[side] -= freed
                gone.update(instance_ids)
    return replace(
        observation,
        primary_desired=desired[GroupRole.PRIMARY],
        fallback_desired=desired[GroupRole.FALLBACK],
        instances=tuple(i for i in observation.instances if i.id not in gone),
    )


def desired(actions: tuple[Action, ...], side: GroupRole) -> int | None:
    """Return the capacity that the actions set for a side, ``None`` if they leave it."""
    return next((a.capacity for a in actions if isinstance(a, SetDesired) and a.group_role is side), None)


def alarms(decision: Decision) -> list[str]:
    return [action.kind for action in decision.actions if isinstance(action, Alarm)]


def released(actions: tuple[Action, ...]) -> tuple[str, ...]:
    return tuple(i for a in actions if isinstance(a, TerminateInstances) for i in a.instance_ids)
