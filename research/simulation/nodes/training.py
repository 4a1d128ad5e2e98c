"""A training of several nodes on a timeline: which of its steps count, by the rule for losses.

With ``fewest`` below the number of nodes survivors go on; with ``fewest`` equal to it a loss ends the steps
of all until all are there again. A step takes the same samples at any number of nodes (gradients are
accumulated), so k of n nodes make k/n of the steps: scaling is taken as perfect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from contracts.group.warm_pool import COLD_BOOT_SECONDS
from research.simulation.nodes.timeline import NodeChange, NodeEvent


@dataclass(frozen=True, slots=True)
class NodeCosts:
    """What losses, starts and joins cost, in seconds. Sources: docs/adr/0082, ``make bench-nodes``."""

    stall_seconds: float = 9.9
    """From a loss without a notice to the survivors' next step: measured, 95th percentile."""
    notice_stall_seconds: float = 1.6
    """From the last step before a node with a notice ends, or one joins, to the next: measured at notices."""
    start_seconds: float = 44.6
    """From the moment at which enough nodes are there to a first step, where none was made: plain torchrun's
    restart of all, measured."""
    boot_seconds: float = COLD_BOOT_SECONDS
    """From a launch to a node that is ready."""
    checkpoint_seconds: float = 600.0
    """From a save to the next: the maximum of `spot_training.Interval`."""
    first_checkpoint_seconds: float = 60.0
    """From a start to the first save, which measures what a save costs: also of `Interval`."""
    save_price_seconds: float = 0.0
    """Seconds of all nodes' price that a save costs where storage charges for writes (EFS)."""
    notice: float = 0.9
    """Probability of a notice, as in `market.rules.Rules`."""


@dataclass(frozen=True, slots=True)
class NodeRule:
    """What a training does at a loss: it goes on with ``fewest`` nodes or more.

    ``has_peers``: what a lost node had is in the memory of another, so that no step is repeated as long as a
    node of the world lives (too few nodes for a world save it). ``joins_early``: nodes that come join once
    they have waited as long as a save and another world cost the others
    (`spot_training.nodes.membership.is_join_due`); else at the next save that is due.
    """

    fewest: int
    has_peers: bool = False
    joins_early: bool = True


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """What a training made, as shares of the steps of its nodes if none is ever lost.

    ``repeated``: steps that were lost; ``ready``: the time of nodes that are ready and have no notice.
    ``losses``: nodes lost while they trained.
    """

    goodput: float
    repeated: float
    ready: float
    losses: int


@dataclass(slots=True)
class _Training:
    costs: NodeCosts
    rule: NodeRule
    now: float = 0.0
    begins: float = 0.0
    """When the present world makes its first step."""
    save_at: float = math.inf
    world: frozenset[int] = frozenset()
    ready: set[int] = field(default_factory=set)
    """Without a notice."""
    leaving: set[int] = field(default_factory=set)
    waited: float = 0.0
    """Seconds that nodes have waited to join, of all together."""
    saved: float = 0.0
    unsaved: float = 0.0
    repeated: float = 0.0
    ready_seconds: float = 0.0
    losses: int = 0

    def advance(self, second: float) -> None:
        """Train until ``second``, with the saves that are due."""
        while self.world and (due_at := min(self.save_at, self._join_at())) < second:
            self._train(due_at)
            self._save()
            if self.ready - self.world:
                self._form(self.costs.notice_stall_seconds)
        self._train(second)

    def apply(self, event: NodeEvent) -> None:
        """Apply an event of this moment."""
        if event.change is NodeChange.READY:
            self.ready |= event.nodes - self.leaving
        elif event.change is NodeChange.NOTICE:
            self.leaving |= event.nodes
            self.ready -= event.nodes
            if self.world & event.nodes:
                self.losses += len(self.world & event.nodes)
                self._save()
                self._form(self.costs.notice_stall_seconds)
        else:
            self.ready -= event.nodes
            self.leaving -= event.nodes
            if lost := self.world & event.nodes:
                self.losses += len(lost)
                if self.rule.has_peers and self.world - lost:
                    self._save()
                else:
                    self.repeated += self.unsaved
                    self.unsaved = 0.0
                self._form(self.costs.stall_seconds)

    def start(self) -> None:
        """Begin to train if enough nodes are there."""
        if not self.world and len(self.ready) >= self.rule.fewest:
            self._form(self.costs.start_seconds)

    def _join_at(self) -> float:
        waiting = len(self.ready - self.world)
        if not waiting or not self.rule.joins_early:
            return math.inf
        price = len(self.world) * (self.costs.notice_stall_seconds + self.costs.save_price_seconds)
        return max(self.begins, self.now + max(0.0, price - self.waited) / waiting)

    def _form(self, stall_seconds: float) -> None:
        is_enough = len(self.ready) >= self.rule.fewest
        self.world = frozenset(self.ready) if is_enough else frozenset()
        self.begins = max(self.begins, self.now + stall_seconds)
        self.save_at, self.waited = self.begins + self.costs.first_checkpoint_seconds, 0.0

    def _save(self) -> None:
        self.saved, self.unsaved = self.saved + self.unsaved, 0.0
        self.save_at = self.now + self.costs.checkpoint_seconds

    def _train(self, second: float) -> None:
        self.unsaved += len(self.world) * max(0.0, second - max(self.now, self.begins))
        self.waited += len(self.ready - self.world) * (second - self.now) if self.world else 0.0
        self.ready_seconds += len(self.ready) * (second - self.now)
        self.now = second


def train(
    events: Iterable[NodeEvent], rule: NodeRule, costs: NodeCosts, *, nodes: int, seconds: float
) -> NodeOutcome:
    """Return what a training of up to ``nodes`` nodes makes of ``seconds`` with these events."""
    training = _Training(costs, rule)
    for event in events:
        training.advance(event.second)
        training.apply(event)
        training.start()
    training.advance(seconds)
    whole = nodes * seconds
    return NodeOutcome(
        goodput=(training.saved + training.unsaved) / whole,
        repeated=training.repeated / whole,
        ready=training.ready_seconds / whole,
        losses=training.losses,
    )
