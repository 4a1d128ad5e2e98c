"""Replay of a load on a market: a scaling rule sets the target each minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lambdas.core.capacity import policies
from lambdas.core.model import GroupRole, Instance, Pool, PurchaseOption
from market.replay.engine import Replay
from market.replay.fleet import LightFleet, Orders, simulated_group
from market.replay.groups import GroupShape
from market.replay.ledger import Span
from market.rules import TICK_SECONDS, Rules
from market.supply import placement
from market.supply.spot import SpotMarket
from research.simulation.load.queue import RequestQueue
from research.simulation.load.rules import Rule, View

MONDAY: Final = 4 * 86400.0
"""The first Monday of the epoch, at which replays and loads begin."""


@dataclass(slots=True)
class ScaledFleet(LightFleet):
    """A light fleet whose workers serve a queue, by ``speeds`` (requests a second by instance type)."""

    rule: Rule = field(kw_only=True)
    queue: RequestQueue = field(kw_only=True)
    speeds: Mapping[str, float] = field(kw_only=True)
    begin: float = field(kw_only=True)
    max_workers: int = field(kw_only=True)
    targets: list[int] = field(default_factory=list)
    view: View | None = None
    _orders: Orders | None = None
    _has_changed: bool = True

    def tick(self, now: float) -> None:
        """See ``Fleet``: simulates the past minute, then the rule sets the target."""
        LightFleet.tick(self, now)
        if now > self.begin:
            self.view = self.passed(now)
            target = min(self.max_workers, max(0, self.rule.target(self.view)))
            if target != self.group.target:
                self.group = replace(self.group, target=target)
                self._has_changed = True
        self.targets.append(self.group.target)

    def reconcile(self) -> Orders:
        """See ``Fleet``: without events the controller would repeat its last decision."""
        is_due = self._orders is None or (
            self._orders.wake_at is not None and self._orders.wake_at <= self._now
        )
        if self._has_changed or is_due or self._events:
            self._has_changed = False
            decided = LightFleet.reconcile(self)
            self._has_changed = bool(decided.released)
            self._orders = replace(decided, released=())
            # Every minute is simulated, as its load differs.
            return replace(decided, wake_at=self._now + TICK_SECONDS)
        return Orders(dict(self._desired), wake_at=self._now + TICK_SECONDS)

    def launched(self, pool: Pool, market: PurchaseOption, side: GroupRole, *, warm: bool) -> str:
        """See ``Fleet``."""
        self._has_changed = True
        return LightFleet.launched(self, pool, market, side, warm=warm)

    def ready(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        self._has_changed = True
        LightFleet.ready(self, instance_ids)

    def died(self, instance_ids: Iterable[str]) -> None:
        """See ``Fleet``."""
        self._has_changed = True
        LightFleet.died(self, instance_ids)

    def refused(self, side: GroupRole, message: str | None) -> None:
        """See ``Fleet``."""
        self._has_changed = True
        LightFleet.refused(self, side, message)

    def passed(self, now: float) -> View:
        """Simulate the past minute with the ready instances, and return the rule's input."""
        reporting = [instance for instance in self._instances.values() if instance.ready_since is not None]
        ready = Counter(instance.pool.instance_type for instance in reporting)
        working = Counter(instance.pool.instance_type for instance in reporting if self.works(instance))
        workers: Counter[float] = Counter()
        for name, count in working.items():
            workers[self.speeds[name]] += count
        minute = self.queue.minute(workers)
        total = sum(working.values())
        speed = sum(self.speeds[name] * count for name, count in working.items())
        served = {
            name: (minute.ended * self.speeds[name] * count / speed, minute.busy_seconds * count / total)
            for name, count in working.items()
        }
        booting = [i.launched_at for i in self._instances.values() if i.ready_since is None]
        return View(
            now=now,
            target=self.group.target,
            ready=dict(ready),
            booting=len(booting),
            booting_seconds=now - sum(booting) / len(booting) if booting else None,
            arriving=minute.arrived / TICK_SECONDS,
            leaving=minute.ended / TICK_SECONDS,
            waiting=minute.waiting,
            in_flight=minute.started,
            oldest=minute.oldest,
            busy=minute.busy_seconds / TICK_SECONDS / total if total else 0.0,
            served=served,
            scarce=any(
                instance.purchase_option is PurchaseOption.ON_DEMAND for instance in self._instances.values()
            ),
        )

    def works(self, instance: Instance) -> bool:
        """Return whether an instance with a heartbeat also serves requests."""
        return True


@dataclass(frozen=True, slots=True)
class Played:
    """A replay by the minute: targets, cost (in On-Demand workers), and the wait of each request."""

    targets: NDArray[np.int64]
    paid: NDArray[np.float64]
    queue: RequestQueue

    def cost(self, begin: int, end: int) -> float:
        """Return the mean cost between two minutes, in On-Demand workers."""
        return float(self.paid[begin:end].mean())


def p99(waits: Iterable[NDArray[np.int64]]) -> float:
    """Return the 99th percentile of the wait (seconds) over all of them."""
    return float(np.percentile(np.concatenate(list(waits)), 99))


def play(
    market: SpotMarket,
    rules: Rules,
    rule: Rule,
    arrivals: NDArray[np.int64],
    speeds: Mapping[str, float],
    max_workers: int,
    build: Callable[..., ScaledFleet] = ScaledFleet,
) -> Played:
    """Replay a load on a market with a scaling rule and a maximum number of workers.

    The group has a stack's defaults; ``market`` is at least as long as the load. ``build`` creates the fleet.
    """
    pools = placement.named(market.names)
    policy = policies.build(policies.DEFAULT)
    fleet = build(
        simulated_group(1, int(rules.ceiling * max_workers)),
        policy,
        rule=rule,
        queue=RequestQueue(arrivals, rules.seed),
        speeds=speeds,
        begin=MONDAY,
        max_workers=max_workers,
    )
    minutes = len(arrivals) // 60
    paid = np.zeros(minutes)

    def on_tick(tick: int, span: Span) -> None:
        paid[tick : tick + span.ticks] = span.cost + span.standby

    engine = Replay(market, rules, fleet, GroupShape(pools), 1, start=MONDAY, keep_spans=False)
    engine.run(minutes, on_tick)
    fleet.passed(MONDAY + minutes * TICK_SECONDS)
    return Played(np.asarray(fleet.targets), paid, fleet.queue)


def reversals(targets: Sequence[int], within: int) -> int:
    """Return how often a target decreased within so many minutes after an increase."""
    count, up = 0, -within - 1
    for minute in range(1, len(targets)):
        if targets[minute] > targets[minute - 1]:
            up = minute
        elif targets[minute] < targets[minute - 1] and minute - up < within:
            count += 1
    return count
