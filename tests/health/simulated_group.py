"""A simulated service group for the core of the health checker, one pass a minute, with faults by host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health.decision import HealthDecision, decide, mark_notified
from lambdas.core.health.memory import HealthMemory, dump, parse
from lambdas.core.health.model import ServiceSnapshot, WorkerHost

START = 1_767_571_200.0 + 8 * 3600
MINUTE = 60.0
GROUP = "inference"
ON_PREMISES = "inference@on-premises"


@dataclass(frozen=True)
class Acts:
    """What passes did: instances to replace with the reason, restarted workers, incidents by their key."""

    replaced: dict[str, str] = field(default_factory=dict)
    restarted: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)


NONE = Acts()


@dataclass
class SimulatedGroup:
    """A group of healthy hosts that complete requests, with ``faults`` by host.

    A fault takes the healthy worker and returns the faulty one; None: the worker has no registry item.
    """

    settings: HealthSettings = field(default_factory=HealthSettings)
    now: float = START
    hosts: dict[str, WorkerHost] = field(default_factory=dict)
    faults: dict[str, Callable[[Worker], Worker | None]] = field(default_factory=dict)
    waiting_requests: int | None = 50
    memory: HealthMemory = field(default_factory=HealthMemory)
    is_registry_stale: bool = False
    boot_seconds: float = 180.0
    can_act: bool = True

    def add(
        self, *ids: str, on_premises: bool = False, age: float = 86_400.0, version: str = "v1"
    ) -> SimulatedGroup:
        for host_id in ids:
            launched_at = None if on_premises else self.now - age
            report = WorkerReport(
                version, gpu=f"GPU-{host_id}", reported_at=self.now, done=0, rate=0.5, gpu_use=80.0
            )
            since = self.now - age + 120
            group = ON_PREMISES if on_premises else GROUP
            worker = Worker(group, host_id, 0, since, self.now, "ready", report=report)
            expected = 0 if on_premises else 1
            self.hosts[host_id] = WorkerHost(
                host_id, (worker,), expected, launched_at, is_spot=not on_premises
            )
        return self

    def snapshot(self) -> ServiceSnapshot:
        queue = None
        if self.waiting_requests is not None:
            queue = QueueState(self.now - 20, self.waiting_requests, 4, 30.0, 2.0, 2.0, len(self.hosts))
        return ServiceSnapshot(
            self.now,
            tuple(self._host_now(host) for host in self.hosts.values()),
            queue,
            self.boot_seconds,
            self.is_registry_stale,
            self.can_act,
        )

    def run(self, minutes: int = 1) -> list[HealthDecision]:
        """Run one pass a minute; all notifications are sent."""
        decisions = []
        for _ in range(minutes):
            self.now += MINUTE
            decision = decide(self.snapshot(), self.settings, parse(dump(self.memory)))
            self.memory = mark_notified(decision.memory)
            decisions.append(decision)
        return decisions

    def acts(self, minutes: int = 1) -> Acts:
        return acts(self.run(minutes))

    def _host_now(self, host: WorkerHost) -> WorkerHost:
        [worker] = host.workers
        assert worker.report is not None
        done = max(0, int((self.now - START) / 2))
        healthy = replace(
            worker,
            heartbeat=self.now - 10,
            report=replace(worker.report, reported_at=self.now - 10, done=done),
        )
        fault = self.faults.get(host.id)
        worker_now = healthy if fault is None else fault(healthy)
        return replace(host, workers=() if worker_now is None else (worker_now,))


def acts(decisions: list[HealthDecision]) -> Acts:
    return Acts(
        {request.instance: request.reason for one in decisions for request in one.replacement_requests},
        [f"{restart.instance}/{restart.slot}" for one in decisions for restart in one.restarts],
        [incident.key for one in decisions for incident in one.new_incidents],
        [incident.key for one in decisions for incident in one.resolved_incidents],
    )


def with_report(worker: Worker, **changes: object) -> Worker:
    assert worker.report is not None
    return replace(worker, report=replace(worker.report, **changes))  # type: ignore[arg-type]


def not_reporting(since: float = START) -> Callable[[Worker], Worker]:
    return lambda worker: replace(worker, heartbeat=since)


def stuck(worker: Worker) -> Worker:
    return with_report(worker, done=7, rate=0.0)


def idle(worker: Worker) -> Worker:
    return with_report(worker, gpu_use=0.0)


def xid(worker: Worker) -> Worker:
    return with_report(worker, xid=79)


def missing(worker: Worker) -> None:
    return None


def crashing(interval_seconds: float = 120.0, version: str = "v1") -> Callable[[Worker], Worker]:
    """Return a fault: the worker restarts once an interval, from the first pass on."""

    def fault(worker: Worker) -> Worker:
        starts = max(1, 1 + int((worker.heartbeat + 10 - START) / interval_seconds))
        return with_report(worker, starts=starts, version=version, done=0, rate=0.0)

    return fault
