"""A node's way into the next world: it polls the registry, and forms a world once the rules allow one."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from spot_training.errors import say
from spot_training.nodes.membership import NodeLimits, NodeWorld, TrainingNode, enter, form
from spot_training.nodes.registry import NodeRegistry

GATHER_SECONDS: Final = 30.0
"""How long enough nodes wait for more before the first world, and survivors for one that does not come."""
_POLL_SECONDS: Final = 0.25
_LOG_SECONDS: Final = 60.0


def join(
    registry: NodeRegistry,
    limits: NodeLimits,
    node: TrainingNode,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> NodeWorld:
    """Let a node wait for a world and return the one that it is in; called by its first rank."""
    registry.update(partial(enter, node=node))
    enough_since: float | None = None
    next_log_at = clock() + _LOG_SECONDS
    while True:
        membership = registry.read()
        if membership.world is None:
            since = clock() if enough_since is None else enough_since
            enough_since = since if len(membership.waiting) >= limits.minimum else None
            is_overdue = enough_since is not None and clock() - enough_since > GATHER_SECONDS
            step = partial(form, limits=limits, is_overdue=is_overdue)
            if step(membership) is not membership:
                membership = registry.update(step)
        if (world := membership.world_of(node.token)) is not None:
            return world
        if membership.world is None and node not in (*membership.waiting, *membership.expected):
            membership = registry.update(partial(enter, node=node))  # it was taken for lost
        if clock() >= next_log_at:
            next_log_at = clock() + _LOG_SECONDS
            reason = f"{len(membership.waiting)} nodes wait, at least {limits.minimum} are needed"
            if membership.world is not None:
                reason = f"world {membership.number} trains; this node joins at its next save"
            say(f"{registry.root}: {reason}")
        sleep(_POLL_SECONDS)


def follow(registry: NodeRegistry, name: str, after: int) -> NodeWorld:
    """Return the first world after number ``after`` that has a node; called by its other ranks."""
    while True:
        world = registry.read().world
        if world is not None and world.number > after and name in (node.name for node in world.nodes):
            return world
        time.sleep(_POLL_SECONDS)
