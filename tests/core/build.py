"""Small builders for observations, so that a test states only what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lambdas.core.capacity.availability import Decision
from lambdas.core.launch_failures import classify
from lambdas.core.model import (
    Action,
    Group,
    Instance,
    Market,
    Observation,
    Pool,
    Refusal,
    Release,
    SetDesired,
    Side,
    slots,
)

NOW = 1_000_000.0
POOL = Pool("g5.xlarge", "us-west-2a")


def group(**changes: Any) -> Group:
    """Return a group with target 4 and maximum 8, changed as asked."""
    return replace(Group("inference", target=4, maximum=8), **changes)


def spot(name: str, *, ready: bool = True, deadline: float | None = None, age: float = 3600.0) -> Instance:
    """Return a spot instance of the primary group, launched ``age`` seconds ago."""
    ready_since = NOW - age + 180 if ready else None
    return Instance(name, POOL, Market.SPOT, Side.PRIMARY, NOW - age, ready_since, deadline)


def on_demand(name: str, *, ready: bool = True, age: float = 600.0, side: Side = Side.FALLBACK) -> Instance:
    """Return an on-demand instance, of the fallback group unless told otherwise."""
    return Instance(name, POOL, Market.ON_DEMAND, side, NOW - age, NOW - age + 60 if ready else None)


def refusal(message: str, side: Side = Side.PRIMARY) -> Refusal:
    """Return a refusal with AWS's words."""
    return Refusal(side, classify(message), NOW - 10, message)


def observe(
    *instances: Instance,
    group: Group = group(),  # noqa: B008 - frozen
    primary_desired: int | None = None,
    fallback_desired: int | None = None,
    refusals: tuple[Refusal, ...] = (),
) -> Observation:
    """Return an observation; desired capacities are the target and the live fallback unless given."""
    live = slots(i for i in instances if i.side is Side.FALLBACK)
    return Observation(
        group,
        primary_desired=group.target if primary_desired is None else primary_desired,
        fallback_desired=live if fallback_desired is None else fallback_desired,
        instances=instances,
        refusals=refusals,
    )


def carried_out(observation: Observation, decision: Decision) -> Observation:
    """Return what an observer sees once AWS has taken the decision's requests and launched nothing."""
    desired = {Side.PRIMARY: observation.primary_desired, Side.FALLBACK: observation.fallback_desired}
    gone: set[str] = set()
    for action in decision.actions:
        match action:
            case SetDesired(side, capacity):
                desired[side] = capacity
            case Release(side, instance_ids, _, freed):
                desired[side] -= freed
                gone.update(instance_ids)
            case _:
                pass
    return replace(
        observation,
        primary_desired=desired[Side.PRIMARY],
        fallback_desired=desired[Side.FALLBACK],
        instances=tuple(i for i in observation.instances if i.id not in gone),
    )


def desired(actions: tuple[Action, ...], side: Side) -> int | None:
    """Return the capacity that the actions set for a side, ``None`` if they leave it."""
    return next((a.capacity for a in actions if isinstance(a, SetDesired) and a.side is side), None)


def released(actions: tuple[Action, ...]) -> tuple[str, ...]:
    """Return the ids that the actions let go."""
    return tuple(i for a in actions if isinstance(a, Release) for i in a.instance_ids)
