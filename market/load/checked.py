"""A scaled fleet with the health checker beside scaler and controller: some instances stop working."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health import decision as judge
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.memory import HealthMemory
from lambdas.core.health.model import ServiceSnapshot, WorkerHost
from lambdas.core.model import Instance, PurchaseOption
from market.load.replay import ScaledFleet
from market.load.rules import View
from market.rules import TICK_SECONDS

_XID = 79
"""The GPU has fallen off the bus."""
_RATE_MINUTES = 5
"""Over so many a worker tells its rate."""


@dataclass(slots=True, kw_only=True)
class CheckedFleet(ScaledFleet):
    """Of the instances a share falls ``ill`` once ready: the worker hangs, or its GPU is lost.

    Both go on telling that they live. The checker's wishes go to the controller.
    """

    ill: float
    chance: random.Random
    health: HealthMemory = field(default_factory=HealthMemory)
    wished: set[str] = field(default_factory=set)
    _ill: dict[str, int] = field(default_factory=dict)
    _each: deque[float] = field(default_factory=lambda: deque(maxlen=_RATE_MINUTES))
    _done: dict[str, float] = field(default_factory=dict)
    _judged: set[str] = field(default_factory=set)

    def tick(self, now: float) -> None:
        """See ``Fleet``: scaler first, then the checker, each by what it sees itself."""
        ScaledFleet.tick(self, now)
        for instance in self._instances.values():
            if instance.ready_since is not None and instance.id not in self._judged:
                self._judged.add(instance.id)
                if self.chance.random() < self.ill:
                    self._ill[instance.id] = self.chance.choice((0, _XID))
        if self.seen is not None:
            working = [o.id for o in self._instances.values() if o.ready_since is not None and self.works(o)]
            self._each.append(self.seen.leaving / max(1, len(working)))
            for name in working:
                self._done[name] = self._done.get(name, 0.0) + self._each[-1] * TICK_SECONDS
            decision = self._check(self._snapshot(now, self.seen), HealthSettings())
            self.health, self.wishes = judge.mark_notified(decision.memory), decision.replacement_requests
            self.wished |= {wish.instance for wish in decision.replacement_requests}
            self._stirred = self._stirred or bool(self.wishes)

    def works(self, instance: Instance) -> bool:
        """See ``ScaledFleet``."""
        return instance.id not in self._ill

    def _check(self, sight: ServiceSnapshot, settings: HealthSettings) -> HealthDecision:
        """Return what the health checker decides."""
        return judge.decide(sight, settings, self.health)

    def _snapshot(self, now: float, view: View) -> ServiceSnapshot:
        queue = QueueState(now, view.waiting, view.taken, view.oldest, view.arriving, view.leaving, 1)
        return ServiceSnapshot(now, tuple(self._host(instance, now) for instance in self._instances.values()), queue, 180.0)

    def _host(self, one: Instance, now: float) -> WorkerHost:
        spared = "a notice" if one.deadline is not None else ""
        workers: tuple[Worker, ...] = ()
        if one.ready_since is not None:
            works = self.works(one) and self._each
            done = int(self._done.get(one.id, 0.0))
            rate = sum(self._each) / len(self._each) if works else 0.0
            pulse = WorkerReport("v1", gpu=one.id, reported_at=now, done=done, rate=rate, xid=self._ill.get(one.id, 0))
            workers = (Worker("replay", one.id, 0, one.ready_since, now, "ready", report=pulse),)
        return WorkerHost(one.id, workers, 1, one.launched_at, spared, is_spot=one.purchase_option is PurchaseOption.SPOT)
