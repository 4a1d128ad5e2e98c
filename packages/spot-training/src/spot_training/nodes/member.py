"""A node's way into the next world."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from spot_training.errors import say
from spot_training.nodes.membership import Membership, NodeLimits, NodeWorld, TrainingNode, enter, form
from spot_training.nodes.registry import NodeRegistry

GATHER_SECONDS: Final = 30.0
"""How long enough nodes wait for more before the first world, and survivors for one that does not come."""
_POLL_SECONDS: Final = 0.25
_LOG_SECONDS: Final = 60.0


class WorldEntry:
    """Waits for worlds; polls the registry, and forms a world as soon as the rules allow one."""

    def __init__(
        self,
        registry: NodeRegistry,
        limits: NodeLimits,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._registry, self._limits = registry, limits
        self._clock, self._sleep = clock, sleep
        self._enough_since: float | None = None

    def join(self, node: TrainingNode) -> NodeWorld:
        """Let a node wait for a world and return the one that it is in; called by its first rank."""
        self._registry.update(partial(enter, node=node))
        next_log_at = self._clock() + _LOG_SECONDS
        while True:
            membership = self._registry.read()
            if membership.world is None:
                self._count(membership)
                step = partial(form, limits=self._limits, is_overdue=self._is_overdue)
                if step(membership) is not membership:
                    membership = self._registry.update(step)
            if (world := membership.world_of(node.token)) is not None:
                return world
            if membership.world is None and node not in (*membership.waiting, *membership.expected):
                membership = self._registry.update(partial(enter, node=node))  # it was taken for lost
            if self._clock() >= next_log_at:
                next_log_at = self._clock() + _LOG_SECONDS
                reason = f"{len(membership.waiting)} nodes wait, at least {self._limits.minimum} are needed"
                if membership.world is not None:
                    reason = f"world {membership.number} trains; this node joins at its next save"
                say(f"{self._registry.root}: {reason}")
            self._sleep(_POLL_SECONDS)

    def follow(self, name: str, after: int) -> NodeWorld:
        """Return the first world after number ``after`` that has a node; called by its other ranks."""
        while True:
            world = self._registry.read().world
            if world is not None and world.number > after and name in (node.name for node in world.nodes):
                return world
            self._sleep(_POLL_SECONDS)

    def _count(self, membership: Membership) -> None:
        is_enough = len(membership.waiting) >= self._limits.minimum
        since = self._clock() if self._enough_since is None else self._enough_since
        self._enough_since = since if is_enough else None

    def _is_overdue(self) -> bool:
        return self._enough_since is not None and self._clock() - self._enough_since > GATHER_SECONDS
