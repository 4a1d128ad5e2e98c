"""A service group played for the checker's core, a look each minute: what stands, breaks and recovers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from contracts.registry.queue_state import Backlog
from contracts.registry.worker_report import Pulse
from lambdas.core.health.decision import HealthDecision, decide, told
from lambdas.core.health.memory import HealthMemory, dump, parse
from lambdas.core.health.model import Sight, WorkerHost

START = 1_767_571_200.0 + 8 * 3600
MINUTE = 60.0
AWS = "inference"
ELSEWHERE = "inference@on-premises"


@dataclass
class Play:
    """A group of healthy hosts that finish requests, with ``breaks`` by host: what is wrong with it.

    A break takes its worker as it would be, and returns it as it is; None is no row.
    """

    settings: HealthSettings = field(default_factory=HealthSettings)
    now: float = START
    hosts: dict[str, WorkerHost] = field(default_factory=dict)
    breaks: dict[str, Callable[[Worker], Worker | None]] = field(default_factory=dict)
    waiting: int | None = 50
    memory: HealthMemory = field(default_factory=HealthMemory)
    silent_registry: bool = False
    boot: float = 180.0
    may_act: bool = True

    def add(self, *ids: str, on_premises: bool = False, age: float = 86_400.0, version: str = "v1") -> Play:
        for one in ids:
            launched = None if on_premises else self.now - age
            pulse = Pulse(version, gpu=f"GPU-{one}", at=self.now, done=0, rate=0.5, gpu_use=80.0)
            since = self.now - age + 120
            group = ELSEWHERE if on_premises else AWS
            worker = Worker(group, one, 0, since, self.now, "ready", pulse=pulse)
            expected = 0 if on_premises else 1
            self.hosts[one] = WorkerHost(one, (worker,), expected, launched, spot=not on_premises)
        return self

    def sight(self) -> Sight:
        backlog = None
        if self.waiting is not None:
            backlog = Backlog(self.now - 20, self.waiting, 4, 30.0, 2.0, 2.0, len(self.hosts))
        return Sight(
            self.now,
            tuple(self._as_it_is(host) for host in self.hosts.values()),
            backlog,
            self.boot,
            self.silent_registry,
            self.may_act,
        )

    def look(self, minutes: int = 1) -> list[HealthDecision]:
        """Let time pass, and look each minute; people hear of everything."""
        made = []
        for _ in range(minutes):
            self.now += MINUTE
            decision = decide(self.sight(), self.settings, parse(dump(self.memory)))
            self.memory = told(decision.memory)
            made.append(decision)
        return made

    def _as_it_is(self, host: WorkerHost) -> WorkerHost:
        [worker] = host.workers
        assert worker.pulse is not None
        done = max(0, int((self.now - START) / 2))
        well = replace(
            worker, heartbeat=self.now - 10, pulse=replace(worker.pulse, at=self.now - 10, done=done)
        )
        broken = self.breaks.get(host.id)
        is_now = well if broken is None else broken(well)
        return replace(host, workers=() if is_now is None else (is_now,))


def pulse(worker: Worker, **changes: object) -> Worker:
    """Return the worker with another pulse."""
    assert worker.pulse is not None
    return replace(worker, pulse=replace(worker.pulse, **changes))  # type: ignore[arg-type]


def silent(since: float = START) -> Callable[[Worker], Worker]:
    return lambda worker: replace(worker, heartbeat=since)


def stuck(worker: Worker) -> Worker:
    return pulse(worker, done=7, rate=0.0)


def idle(worker: Worker) -> Worker:
    return pulse(worker, gpu_use=0.0)


def xid(worker: Worker) -> Worker:
    return pulse(worker, xid=79)


def missing(worker: Worker) -> None:
    return None


def crashing(every: float = 120.0, version: str = "v1") -> Callable[[Worker], Worker]:
    """Starts anew every so many seconds, from the first look on."""

    def broken(worker: Worker) -> Worker:
        starts = max(1, 1 + int((worker.heartbeat + 10 - START) / every))
        return pulse(worker, starts=starts, version=version, done=0, rate=0.0)

    return broken


def wished(decisions: list[HealthDecision]) -> dict[str, str]:
    """Every instance that was ever wished for in these looks, and why."""
    return {wish.instance: wish.reason for decision in decisions for wish in decision.wishes}


def restarted(decisions: list[HealthDecision]) -> list[str]:
    return [f"{r.instance}/{r.slot}" for decision in decisions for r in decision.restarts]


def begun(decisions: list[HealthDecision]) -> list[str]:
    return [one.key for decision in decisions for one in decision.begun]


def over(decisions: list[HealthDecision]) -> list[str]:
    return [one.key for decision in decisions for one in decision.over]
