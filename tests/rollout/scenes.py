"""A service in simulated time: agents start from what the row says, the checker's core looks each minute."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import Wanted
from contracts.registry.item import Worker
from contracts.registry.queue_state import Backlog
from contracts.registry.worker_report import Pulse
from lambdas.core.health import decision as judge
from lambdas.core.health.decision import HealthDecision
from lambdas.core.health.memory import HealthMemory, dump, parse
from lambdas.core.health.model import Sight, WorkerHost
from lambdas.core.rollout.state import RolloutDemand

START = 1_767_571_200.0
LOOK = 60.0
Fault = Literal["well", "crashes", "never ready", "finishes nothing", "fails all", "cannot be pulled"]
BAD: tuple[Fault, ...] = ("crashes", "never ready", "finishes nothing", "fails all", "cannot be pulled")


def release(name: str) -> WorkerRelease:
    return WorkerRelease(f"registry.example/ocr@sha256:{name}")


OLD, NEW = release("old"), release("new")


@dataclass
class Instance:
    """An instance under an agent: what its workers run since when, and since when they start anew."""

    id: str
    launched: float
    runs: WorkerRelease
    since: float
    heard: Callable[[float], float] | None = None
    asked: float | None = None
    starts: int = 1


@dataclass
class Service:
    """So many instances, some workers on each; ``anew`` seconds lie between a wish and the worker's start."""

    target: int
    maximum: int
    per_slot: int = 1
    anew: float = 150.0
    boot: float = 180.0
    faults: dict[str, Fault] = field(default_factory=dict)
    settings: HealthSettings = field(default_factory=lambda: HealthSettings(digest=-1))
    waiting: int = 20
    each: float = 0.5
    """Requests a second that a worker ends."""
    now: float = START
    instances: dict[str, Instance] = field(default_factory=dict)
    memory: HealthMemory = field(default_factory=HealthMemory)
    wanted: WorkerRelease = OLD
    row: WorkerReleases = field(default_factory=lambda: WorkerReleases(OLD))
    failing: dict[str, float] = field(default_factory=dict)
    """The share of its requests that a release fails, by version."""
    hangs: set[str] = field(default_factory=set)
    """Whose workers end nothing, whatever they run; while no request waits that is no finding."""
    booting: list[float] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    least: int = 10**9
    """The fewest workers that served, in truth, since it was set."""
    robbed: list[tuple[float, int]] = field(default_factory=list)
    """When workers that served were asked to start anew although too few were left, and how many."""
    replaced: list[str] = field(default_factory=list)
    names: int = 0
    last: HealthDecision | None = None

    def __post_init__(self) -> None:
        for _ in range(self.target):
            self.launch(age=7200.0)
        self.play(2)

    def launch(self, age: float = 0.0) -> None:
        self.names += 1
        name = f"i-{self.names:08x}"
        self.instances[name] = Instance(name, self.now - age, self.row.of(name), self.now - age)

    def fault(self, one: Instance) -> Fault:
        return self.faults.get(one.runs.version, "well")

    def serves(self, one: Instance) -> bool:
        """Say whether requests are really answered there."""
        return one.asked is None and self.fault(one) == "well" and one.id not in self.hangs

    @property
    def served(self) -> int:
        return self.per_slot * sum(self.serves(one) for one in self.instances.values())

    def lose(self, name: str) -> None:
        """Spot takes an instance without a word; another boots in its place."""
        del self.instances[name]

    def play(self, looks: int) -> None:
        for _ in range(looks):
            self.now += LOOK
            self._agents()
            self.least = min(self.least, self.served)
            self._look()
            self.least = min(self.least, self.served)

    def until(self, done: Callable[[], bool], looks: int) -> float:
        """Play until it is done; return the seconds that it took, fail where it takes longer."""
        began = self.now
        for _ in range(looks):
            if done():
                return self.now - began
            self.play(1)
        raise AssertionError(f"not done after {looks} looks: {self.memory.rollout}")

    def all_run(self, wanted: WorkerRelease) -> bool:
        runs = all(one.runs == wanted and self.serves(one) for one in self.instances.values())
        return runs and len(self.instances) >= self.target

    def _agents(self) -> None:
        for one in self.instances.values():
            if one.asked is not None and self.now - one.asked >= self.anew:
                one.runs, one.asked, one.since = self.row.of(one.id), None, self.now
                one.starts += 1
            if self.fault(one) == "crashes":
                one.starts += 2
            if self.fault(one) == "never ready" and one.asked is None and self.row.of(one.id) != one.runs:
                one.asked = self.now  # no wish is heard without a beat: the agent looks itself
        asked = self.last.rollout.rolling.surge if self.last and self.last.rollout.rolling else 0
        wanted = min(self.maximum, self.target + asked)
        self.booting += [self.now + self.boot] * (wanted - len(self.instances) - len(self.booting))
        for due in [at for at in self.booting if at <= self.now]:
            self.booting.remove(due)
            self.launch()
        for name in sorted(self.instances, reverse=True)[: max(0, len(self.instances) - wanted)]:
            if self.served - self.per_slot * self.serves(self.instances[name]) >= self.target * self.per_slot:
                del self.instances[name]

    def _look(self) -> None:
        backlog = Backlog(self.now - 20, self.waiting, 4, 30.0, 2.0, 2.0, len(self.instances))
        sight = Sight(self.now, tuple(map(self._host, self.instances.values())), backlog, self.boot)
        demand = RolloutDemand(self.target, self.maximum, self.per_slot)
        wanted = Wanted(self.wanted, self.per_slot)
        decision = judge.decide(sight, self.settings, parse(dump(self.memory)), wanted, demand)
        self.messages += [one.key for one in decision.begun]
        self.memory, self.last = judge.told(decision.memory), decision
        if decision.rollout.releases is not None:
            self.row = decision.rollout.releases
        asked = {restart.instance for restart in decision.rollout.restarts}
        left = self.per_slot * sum(self.serves(i) for i in self.instances.values() if i.id not in asked)
        if left < self.served and left < demand.least:
            self.robbed.append((self.now, left))
        for restart in (*decision.restarts, *decision.rollout.restarts):
            one = self.instances[restart.instance]
            if self.faults.get(self.row.of(one.id).version) == "cannot be pulled":
                continue  # they go on as they were
            if one.asked is None:
                one.asked = self.now
        for wish in decision.wishes:
            self.replaced.append(wish.instance)
            del self.instances[wish.instance]

    def _host(self, one: Instance) -> WorkerHost:
        fault, at = self.fault(one), self.now - 5
        rows: list[Worker] = []
        done = max(0, int((self.now - one.since) * self.each))
        told = Pulse(one.runs.version, at=at, done=done, rate=self.each, gpu_use=70.0, starts=one.starts)
        if fault == "finishes nothing" or one.id in self.hangs:
            told = replace(told, done=0, rate=0.0)
        share = 1.0 if fault == "fails all" else self.failing.get(one.runs.version, 0.0)
        told = replace(told, failed=int(share * told.done))
        if one.asked is None and fault != "never ready" and not (fault == "crashes" and one.starts % 4 < 2):
            rows = [
                Worker("ocr", one.id, slot, one.since, at, "ready", pulse=told)
                for slot in range(self.per_slot)
            ]
        return WorkerHost(one.id, tuple(rows), self.per_slot, one.launched, spot=True)


def share(service: Service) -> float:
    """The least share of the target that was served."""
    return service.least / (service.target * service.per_slot)


def churn(service: Service, seed: int, hourly: float) -> Callable[[], None]:
    """Return who takes an instance now and then, so many of each an hour."""
    chance = random.Random(seed)

    def take() -> None:
        for name in sorted(service.instances):
            if chance.random() < hourly * LOOK / 3600:
                service.lose(name)

    return take
