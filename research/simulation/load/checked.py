"""A scaled fleet with scaler, controller and health checker, in which some instances become unhealthy."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health.decision import decide, mark_notified
from lambdas.core.health.memory import HealthMemory
from lambdas.core.health.model import ServiceSnapshot, WorkerHost
from lambdas.core.model import Instance, PurchaseOption
from market.rules import TICK_SECONDS
from research.simulation.load.replay import ScaledFleet
from research.simulation.load.rules import View

_XID = 79
"""XID of a GPU that has fallen off the bus."""
_RATE_MINUTES = 5
"""Minutes over which a worker measures its rate."""


@dataclass(slots=True, kw_only=True)
class CheckedFleet(ScaledFleet):
    """A share of the instances becomes unhealthy once ready: the worker hangs, or its GPU is lost.

    Both keep sending heartbeats. The health checker's replacement requests go to the controller.
    """

    unhealthy_share: float
    chance: random.Random
    health: HealthMemory = field(default_factory=HealthMemory)
    replaced_on_request: set[str] = field(default_factory=set)
    _xid_of: dict[str, int] = field(default_factory=dict)
    _worker_rates: deque[float] = field(default_factory=lambda: deque(maxlen=_RATE_MINUTES))
    _done: dict[str, float] = field(default_factory=dict)
    _judged: set[str] = field(default_factory=set)

    def tick(self, now: float) -> None:
        """See ``Fleet``: scaler first, then the checker, each with its own observations."""
        ScaledFleet.tick(self, now)
        for instance in self._instances.values():
            if instance.ready_since is not None and instance.id not in self._judged:
                self._judged.add(instance.id)
                if self.chance.random() < self.unhealthy_share:
                    self._xid_of[instance.id] = self.chance.choice((0, _XID))
        if self.view is not None:
            working = [o.id for o in self._instances.values() if o.ready_since is not None and self.works(o)]
            self._worker_rates.append(self.view.leaving / max(1, len(working)))
            for name in working:
                self._done[name] = self._done.get(name, 0.0) + self._worker_rates[-1] * TICK_SECONDS
            decision = decide(self._snapshot(now, self.view), HealthSettings(), self.health)
            self.health = mark_notified(decision.memory)
            self.replacement_requests = decision.replacement_requests
            self.replaced_on_request |= {request.instance for request in decision.replacement_requests}
            self._has_changed = self._has_changed or bool(self.replacement_requests)

    def works(self, instance: Instance) -> bool:
        """See ``ScaledFleet``."""
        return instance.id not in self._xid_of

    def _snapshot(self, now: float, view: View) -> ServiceSnapshot:
        queue = QueueState(now, view.waiting, view.in_flight, view.oldest, view.arriving, view.leaving, 1)
        return ServiceSnapshot(
            now, tuple(self._host(instance, now) for instance in self._instances.values()), queue, 180.0
        )

    def _host(self, instance: Instance, now: float) -> WorkerHost:
        exemption_reason = "a notice" if instance.deadline is not None else ""
        workers: tuple[Worker, ...] = ()
        if instance.ready_since is not None:
            works = self.works(instance) and self._worker_rates
            done = int(self._done.get(instance.id, 0.0))
            rate = sum(self._worker_rates) / len(self._worker_rates) if works else 0.0
            report = WorkerReport(
                "v1",
                gpu=instance.id,
                reported_at=now,
                done=done,
                rate=rate,
                xid=self._xid_of.get(instance.id, 0),
            )
            workers = (Worker("replay", instance.id, 0, instance.ready_since, now, "ready", report=report),)
        return WorkerHost(
            instance.id,
            workers,
            1,
            instance.launched_at,
            exemption_reason,
            is_spot=instance.purchase_option is PurchaseOption.SPOT,
        )
