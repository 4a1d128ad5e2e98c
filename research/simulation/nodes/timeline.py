"""When the nodes of a training are ready, have a notice and are lost, by the capacity of the market.

A node is launched as soon as its pool has room, and the training's rule decides nothing but the zone; so all
rules that stay in one zone are compared on the same nodes.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from market.rules import TICK_SECONDS
from market.supply.spot import SpotMarket, draw


class NodeChange(enum.IntEnum):
    """What happens to a node; of one moment in this order."""

    LOST = 0
    NOTICE = 1
    READY = 2


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """``nodes`` (numbers that never return) change at ``second`` of the replay."""

    second: float
    change: NodeChange
    nodes: frozenset[int]


@dataclass(slots=True)
class _Fleet:
    """The nodes that are there, and all that has happened."""

    boot_seconds: float
    launched: dict[int, float] = field(default_factory=dict)
    noticed: set[int] = field(default_factory=set)
    changes: dict[tuple[float, NodeChange], set[int]] = field(default_factory=lambda: defaultdict(set))
    count: int = 0

    def launch(self, second: float) -> None:
        self.launched[self.count] = second
        self.count += 1

    def lose(self, second: float, nodes: Sequence[int]) -> None:
        for node in nodes:
            ready_at = self.launched.pop(node) + self.boot_seconds
            if ready_at < second:
                self.changes[ready_at, NodeChange.READY].add(node)
            self.changes[second, NodeChange.LOST].add(node)
        self.noticed.difference_update(nodes)

    def notice(self, second: float, nodes: Sequence[int]) -> None:
        self.noticed.update(nodes)
        self.changes[second, NodeChange.NOTICE].update(nodes)

    def end(self, second: float) -> list[NodeEvent]:
        for node, launched_at in self.launched.items():
            if launched_at + self.boot_seconds < second:
                self.changes[launched_at + self.boot_seconds, NodeChange.READY].add(node)
        return [
            NodeEvent(at, change, frozenset(nodes)) for (at, change), nodes in sorted(self.changes.items())
        ]


def node_events(
    market: SpotMarket, pools: Sequence[int], *, nodes: int, fewest: int, boot_seconds: float, seed: int
) -> list[NodeEvent]:
    """Return the events of up to ``nodes`` nodes, all in one pool, in order.

    Of several ``pools`` the first has them, until it has fewer than ``fewest`` and another has ``fewest``
    or more: then all go to the one with the most, and boot there. Which nodes are lost is drawn by ``seed``.
    """
    pool, fleet, tick = pools[0], _Fleet(boot_seconds), 0
    while tick < market.ticks:
        second = tick * TICK_SECONDS
        capacity = market.capacity(pool, tick)
        excess = len(fleet.launched) - capacity
        if excess > 0:
            announced = sorted(fleet.noticed)[:excess]
            unnoticed = sorted(fleet.launched.keys() - fleet.noticed)
            chance = draw(seed, "lost nodes", pool, tick)
            fleet.lose(second, announced + chance.sample(unnoticed, excess - len(announced)))
        if capacity < fewest:
            best = max(pools, key=lambda candidate: (market.capacity(candidate, tick), candidate == pool))
            if best != pool and market.capacity(best, tick) >= fewest:
                fleet.lose(second, sorted(fleet.launched))
                pool, capacity = best, market.capacity(best, tick)
        for _ in range(min(nodes, capacity) - len(fleet.launched)):
            fleet.launch(second)
        for drop in market.announcements(tick):
            if drop.pool == pool:
                unnoticed = sorted(fleet.launched.keys() - fleet.noticed)
                chance = draw(seed, "noticed nodes", pool, drop.tick)
                fleet.notice(second, chance.sample(unnoticed, max(0, len(unnoticed) - drop.capacity)))
        tick = market.next_change(tick)
    return fleet.end(market.ticks * TICK_SECONDS)
