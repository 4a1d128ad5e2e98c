"""A service in simulated time: agents start the registered release, the health checker runs each minute."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import DesiredRelease
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health import decision as health
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.memory import HealthMemory, dump, parse
from lambdas.core.health.model import ServiceSnapshot, WorkerHost
from lambdas.core.rollout.state import MIN_SERVING_SHARE, Rollout

START = 1_767_571_200.0
POLL_SECONDS = 60.0
Fault = Literal["well", "crashes", "never ready", "finishes nothing", "fails all", "cannot be pulled"]
BAD: tuple[Fault, ...] = ("crashes", "never ready", "finishes nothing", "fails all", "cannot be pulled")


def release(name: str) -> WorkerRelease:
    return WorkerRelease(f"registry.example/ocr@sha256:{name}")


OLD, NEW = release("old"), release("new")


@dataclass
class Instance:
    """An instance with an agent: the release of its workers since ``since``, and a requested restart."""

    id: str
    launched_at: float
    release: WorkerRelease
    since: float
    restart_requested_at: float | None = None
    starts: int = 1


@dataclass
class SimulatedService:
    """A service group; a worker starts ``restart_seconds`` after its restart was requested."""

    target: int
    maximum: int
    per_slot: int = 1
    restart_seconds: float = 150.0
    boot_seconds: float = 180.0
    faults: dict[str, Fault] = field(default_factory=dict)
    settings: HealthSettings = field(default_factory=lambda: HealthSettings(daily_report_hour=-1))
    waiting_requests: int = 20
    worker_rate: float = 0.5
    now: float = START
    instances: dict[str, Instance] = field(default_factory=dict)
    memory: HealthMemory = field(default_factory=HealthMemory)
    desired: WorkerRelease = OLD
    row: WorkerReleases = field(default_factory=lambda: WorkerReleases(OLD))
    failed_shares: dict[str, float] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    """Instances whose workers complete nothing with any release; of an empty queue this is expected."""
    silent: set[str] = field(default_factory=set)
    failed_since: float | None = None
    """Since when a dependency fails the requests of all workers."""
    booting: list[float] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    min_served: int = 10**9
    """The minimum of workers that really served since it was set."""
    violations: list[tuple[float, int]] = field(default_factory=list)
    """Times at which serving workers were restarted although too few were left, and how many were left."""
    replaced: list[str] = field(default_factory=list)
    launch_count: int = 0
    last_decision: HealthDecision | None = None

    def __post_init__(self) -> None:
        for _ in range(self.target):
            self.launch(age=7200.0)
        self.run(2)

    def launch(self, age: float = 0.0) -> None:
        self.launch_count += 1
        name = f"i-{self.launch_count:08x}"
        self.instances[name] = Instance(name, self.now - age, self.row.release_for(name), self.now - age)

    def fault(self, instance: Instance) -> Fault:
        return self.faults.get(instance.release.version, "well")

    def serves(self, instance: Instance) -> bool:
        return (
            instance.restart_requested_at is None
            and self.fault(instance) == "well"
            and instance.id not in self.hanging
        )

    @property
    def served(self) -> int:
        return self.per_slot * sum(self.serves(instance) for instance in self.instances.values())

    def lose(self, name: str) -> None:
        del self.instances[name]

    def run(self, passes: int) -> None:
        for _ in range(passes):
            self.now += POLL_SECONDS
            self._agents()
            self.min_served = min(self.min_served, self.served)
            self._run_health_checker()
            self.min_served = min(self.min_served, self.served)

    def run_until(self, done: Callable[[], bool], passes: int) -> float:
        started_at = self.now
        for _ in range(passes):
            if done():
                return self.now - started_at
            self.run(1)
        raise AssertionError(f"not done after {passes} passes: {self.rollout}")

    def roll_out(self, desired: WorkerRelease, passes: int = 120) -> float:
        """Name ``desired`` in the stack file; return the seconds until all instances run it."""
        self.desired = desired
        return self.run_until(lambda: self.all_run(desired), passes)

    def run_until_rejected(self, passes: int = 120) -> None:
        self.run_until(lambda: self.rollout.rejected == NEW.version, passes)

    @property
    def rollout(self) -> Rollout:
        return self.memory.rollout

    @property
    def verified(self) -> list[str]:
        return [host for host, progress in self.rollout.hosts.items() if progress.is_verified]

    @property
    def releases(self) -> list[WorkerRelease]:
        return [instance.release for instance in self.instances.values()]

    def all_run(self, desired: WorkerRelease) -> bool:
        is_complete = all(
            instance.release == desired and self.serves(instance) for instance in self.instances.values()
        )
        return is_complete and len(self.instances) >= self.target

    def _agents(self) -> None:
        for instance in self.instances.values():
            requested_at, registered = instance.restart_requested_at, self.row.release_for(instance.id)
            if requested_at is not None and self.now - requested_at >= self.restart_seconds:
                instance.release, instance.restart_requested_at, instance.since = registered, None, self.now
                instance.starts += 1
            if self.fault(instance) == "crashes":
                instance.starts += 2
            is_waiting = self.fault(instance) == "never ready" and instance.restart_requested_at is None
            if is_waiting and registered != instance.release:
                instance.restart_requested_at = self.now  # without requests the agent polls
        surge = self.last_decision.rollout.request.surge if self.last_decision else 0
        desired = min(self.maximum, self.target + surge)
        self.booting += [self.now + self.boot_seconds] * (desired - len(self.instances) - len(self.booting))
        for ready_at in [at for at in self.booting if at <= self.now]:
            self.booting.remove(ready_at)
            self.launch()
        for name in sorted(self.instances, reverse=True)[: max(0, len(self.instances) - desired)]:
            if self.served - self.per_slot * self.serves(self.instances[name]) >= self.target * self.per_slot:
                del self.instances[name]

    def snapshot(self) -> ServiceSnapshot:
        queue = QueueState(self.now - 20, self.waiting_requests, 4, 30.0, 2.0, 2.0, len(self.instances))
        hosts = tuple(map(self._host, self.instances.values()))
        return ServiceSnapshot(
            self.now, hosts, queue, self.boot_seconds, target=self.target, maximum=self.maximum
        )

    def _run_health_checker(self) -> None:
        snapshot = self.snapshot()
        desired = DesiredRelease(self.desired, self.per_slot)
        decision = health.decide(snapshot, self.settings, parse(dump(self.memory)), desired)
        self.messages += [instance.key for instance in decision.new_incidents]
        self.memory, self.last_decision = health.mark_notified(decision.memory), decision
        if decision.rollout.releases is not None:
            self.row = decision.rollout.releases
        restarted = {restart.instance for restart in decision.rollout.restarts}
        remaining = self.per_slot * sum(
            self.serves(i) for i in self.instances.values() if i.id not in restarted
        )
        if remaining < self.served and remaining < MIN_SERVING_SHARE * self.target * self.per_slot:
            self.violations.append((self.now, remaining))
        for restart in (*decision.restarts, *decision.rollout.restarts):
            instance = self.instances[restart.instance]
            if self.faults.get(self.row.release_for(instance.id).version) == "cannot be pulled":
                continue  # the old workers continue
            if instance.restart_requested_at is None:
                instance.restart_requested_at = self.now
        for request in decision.replacement_requests:
            self.replaced.append(request.instance)
            del self.instances[request.instance]

    def _host(self, instance: Instance) -> WorkerHost:
        fault, heartbeat = self.fault(instance), self.now - 5
        rows: list[Worker] = []
        done = max(0, int((self.now - instance.since) * self.worker_rate))
        report = WorkerReport(
            instance.release.version,
            reported_at=heartbeat,
            done=done,
            rate=self.worker_rate,
            gpu_use=70.0,
            starts=instance.starts,
        )
        if fault == "finishes nothing" or instance.id in self.hanging:
            report = replace(report, done=0, rate=0.0)
        share = 1.0 if fault == "fails all" else self.failed_shares.get(instance.release.version, 0.0)
        failed = int(share * report.done)
        if self.failed_since is not None:
            lost = int(self.worker_rate * (self.now - max(self.failed_since, instance.since)))
            failed = min(report.done, failed + lost)
        report = replace(report, failed=failed)
        if instance.release.version in self.silent:
            report = replace(report, reported_at=0.0, done=0, failed=0, rate=0.0)
        if (
            instance.restart_requested_at is None
            and fault != "never ready"
            and not (fault == "crashes" and instance.starts % 4 < 2)
        ):
            rows = [
                Worker("ocr", instance.id, slot, instance.since, heartbeat, "ready", report=report)
                for slot in range(self.per_slot)
            ]
        return WorkerHost(instance.id, tuple(rows), self.per_slot, instance.launched_at, is_spot=True)


def min_served_share(service: SimulatedService) -> float:
    return service.min_served / (service.target * service.per_slot)


def churn(service: SimulatedService, seed: int, hourly: float) -> Callable[[], None]:
    chance = random.Random(seed)

    def interrupt() -> None:
        for name in sorted(service.instances):
            if chance.random() < hourly * POLL_SECONDS / 3600:
                service.lose(name)

    return interrupt
