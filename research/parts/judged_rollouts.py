"""Roll-outs of releases that fail more, are slower or need more memory, with and without an outage.

Workers take requests in batches and report as the node agent does; `lambdas/core/rollout` decides every
minute. Arrivals, durations, failures, instances' speeds and types, peaks of memory, and the times of reports
and of the outage are random. A worker whose memory is full is killed. Times are simulated seconds.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import DesiredRelease
from contracts.registry.batches import BatchRow, difference
from contracts.registry.item import Worker
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health.model import ServiceSnapshot, WorkerHost
from lambdas.core.rollout.state import Rollout
from lambdas.core.rollout.step import RolloutStep, plan_step

OLD: Final = WorkerRelease("registry.example/ocr@sha256:old")
NEW: Final = WorkerRelease("registry.example/ocr@sha256:new")
USUAL_FAILURES: Final = 0.005
"""Share of the stable release's requests that fail."""
MAX_BATCH: Final = 8
FIXED_SECONDS: Final = 1.5
"""Time of a batch without requests."""
REQUEST_SECONDS: Final = 0.5
"""Additional time for each request of a batch."""
SPREAD: Final = 0.3
"""Coefficient of variation of a batch's duration."""
HOST_SPREAD: Final = 0.04
RATE: Final = 0.8
"""Requests a second for each worker of the target."""
TYPES: Final = {"g5.xlarge": 1.0, "g4dn.xlarge": 1.6}
"""Duration of a batch on an instance type, relative to the fastest."""
PASS_SECONDS: Final = 60.0
RESTART_SECONDS: Final = 150.0
BOOT_SECONDS: Final = 180.0
REPORT_SECONDS: Final = 300.0
OUTAGE_SECONDS: Final = 720.0
MAX_SECONDS: Final = 24 * 3600.0
START: Final = 1_767_571_200.0
MEMORY_SPREAD: Final = 0.005
"""Standard deviation of a minute's peak of memory, of what a worker may use."""
KILLED_SECONDS: Final = 60.0
"""Until a worker that was killed serves again."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A release's memory, in shares of what a worker may use.

    ``level`` after its start, ``growth`` an hour, and ``cache``, which fills with a time constant of
    ``cache_seconds``.
    """

    level: float = 0.5
    growth: float = 0.0
    cache: float = 0.0
    cache_seconds: float = 1800.0

    def at(self, age: float) -> float:
        """Return the mean at an age of the process in seconds."""
        cached = self.cache * -math.expm1(-age / self.cache_seconds)
        return self.level + self.growth * age / 3600 + cached


USUAL_MEMORY: Final = Memory(cache=0.02)
MEMORY: Final[dict[str, tuple[Memory, Memory]]] = {
    "as before": (USUAL_MEMORY, USUAL_MEMORY),
    "three fifths more": (Memory(0.8, cache=0.02), USUAL_MEMORY),
    "a cache of 30 % fills in half an hour": (Memory(cache=0.3), USUAL_MEMORY),
    "a cache of 30 % fills in two hours": (Memory(cache=0.3, cache_seconds=7200), USUAL_MEMORY),
    "both leak 10 % an hour": (Memory(0.3, 0.1), Memory(0.3, 0.1)),
    "leaks 60 % an hour": (Memory(growth=0.6), USUAL_MEMORY),
    "leaks 30 % an hour": (Memory(growth=0.3), USUAL_MEMORY),
    "96 % from its start": (Memory(0.96), USUAL_MEMORY),
}
"""The candidate's memory and the stable release's, by name."""
BAD_MEMORY: Final = frozenset(name for name in MEMORY if name.startswith(("leaks", "96")))
_SETTINGS: Final = HealthSettings(daily_report_hour=-1)


@dataclass(frozen=True, slots=True)
class Case:
    """A release: its share of failed requests, its slowdown, and the group that it is rolled out to."""

    failures: float
    slowdown: float
    has_outage: bool
    target: int
    memory: str = "as before"


@dataclass(frozen=True, slots=True)
class Result:
    """The end of a roll-out: ``rejected``, ``accepted`` or ``undecided``, and the reason of a rejection.

    ``seconds`` are from the first start of a candidate to the end; ``requests`` those that the candidate's
    workers ended until then, of which ``failed`` failed.
    """

    verdict: str
    seconds: float
    requests: int
    failed: int
    reason: str


_Batch: TypeAlias = tuple[float, int, int, float]
"""End of a batch, its requests, those that failed, and its duration."""
_Table: TypeAlias = dict[int, tuple[int, int, float]]
"""Batches, requests and seconds by maximum size."""


@dataclass(slots=True)
class _Process:
    """A worker since its start: ``running`` are batches that had not ended at its last report."""

    release: WorkerRelease
    since: float
    free_at: float
    last_seconds: float = 3.0
    running: deque[_Batch] = field(default_factory=deque)
    done: int = 0
    failed: int = 0
    busy: float = 0.0
    table: _Table = field(default_factory=dict)
    reported: deque[tuple[float, int, float, _Table]] = field(default_factory=deque)
    memory: float = 0.0
    """Peak of the last minute, as a share of what it may use."""

    def count(self, at: float) -> None:
        """Count the batches that have ended."""
        while self.running and self.running[0][0] <= at:
            _, size, failed, seconds = self.running.popleft()
            self.done += size
            self.failed += failed
            self.busy += seconds
            row = 1 << (size - 1).bit_length()
            batches, requests, total = self.table.get(row, (0, 0, 0.0))
            self.table[row] = (batches + 1, requests + size, total + seconds)

    def report(self, at: float, starts: int) -> WorkerReport:
        """Return the report at ``at``; rate, busy share and batches are those of the last minutes."""
        self.count(at)
        self.reported.append((at, self.done, self.busy, dict(self.table)))
        while len(self.reported) > 2 and at - self.reported[1][0] >= REPORT_SECONDS:
            self.reported.popleft()
        first_at, done, busy, before = self.reported[0]
        span = max(10.0, at - first_at)
        return WorkerReport(
            self.release.version,
            reported_at=at,
            done=self.done,
            failed=self.failed,
            rate=(self.done - done) / span,
            busy=min(1.0, (self.busy - busy) / span),
            starts=starts,
            batches=difference(_rows(self.table), _rows(before)),
            batch_size=MAX_BATCH,
        )


@dataclass(slots=True)
class _Machine:
    """An instance with one worker."""

    id: str
    speed: float
    launched_at: float
    process: _Process
    restart_at: float | None = None
    starts: int = 1


class JudgedRollout:
    """A roll-out of a case's release in one random world."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.chance = random.Random(f"{seed} {case}")
        self.memory_chance = random.Random(f"{seed} {case} memory")
        self.now = START
        self.machines: dict[str, _Machine] = {}
        self.memory = Rollout(stable=OLD)
        self.row = WorkerReleases(OLD)
        self.booting: list[float] = []
        self.first_start: float | None = None
        self.requests = self.failed = 0
        self.outage = (math.inf, math.inf)
        self.outage_share = self.chance.choice((0.6, 1.0))
        self.outage_pace = self.chance.choice((0.3, 1.0, 3.0))
        for _ in range(case.target):
            self._launch(age=7200.0)

    def run(self) -> Result:
        """Simulate until the release is rejected or accepted."""
        self._work(START)
        while self.now < START + MAX_SECONDS:
            self.now += PASS_SECONDS
            self._restart()
            self._use_memory()
            self._work(self.now)
            self._apply(self._plan())
            if self.memory.rejected or self.memory.stable == NEW:
                break
        verdict = "undecided"
        if self.memory.rejected:
            verdict = "rejected"
        elif self.memory.stable == NEW:
            verdict = "accepted"
        seconds = self.now - (self.first_start or self.now)
        return Result(verdict, seconds, self.requests, self.failed, self.memory.rejection_reason)

    def _launch(self, age: float = 0.0) -> None:
        name = f"i-{len(self.machines):08x}"
        kind = self.chance.choice(sorted(TYPES)) if self.case.target > 2 else "g5.xlarge"
        speed = TYPES[kind] * math.exp(HOST_SPREAD * self.chance.gauss(0, 1))
        since = self.now - age
        process = _Process(self.row.release_for(name), since, max(since, self.now - REPORT_SECONDS))
        self.machines[name] = _Machine(name, speed, since, process)

    def _restart(self) -> None:
        for machine in self.machines.values():
            if machine.restart_at is not None and machine.restart_at <= self.now:
                at = machine.restart_at
                machine.process = _Process(self.row.release_for(machine.id), at, at)
                machine.restart_at = None
                machine.starts += 1
                if machine.process.release == NEW and self.first_start is None:
                    self.first_start = self.now
                    if self.case.has_outage:
                        begin = self.now + self.chance.uniform(-300, 1200)
                        self.outage = (begin, begin + OUTAGE_SECONDS)
        for ready_at in [at for at in self.booting if at <= self.now]:
            self.booting.remove(ready_at)
            self._launch()

    def _use_memory(self) -> None:
        """Draw the last minute's peaks, and kill the workers whose memory is full."""
        new, old = MEMORY[self.case.memory]
        for machine in self.machines.values():
            process = machine.process
            mean = (new if process.release is NEW else old).at(self.now - process.since)
            process.memory = max(0.0, mean + MEMORY_SPREAD * self.memory_chance.gauss(0, 1))
            if process.memory >= 1 and machine.restart_at is None:
                machine.restart_at = self.now + KILLED_SECONDS

    def _work(self, end: float) -> None:
        """Let all workers work until ``end``; their requests are shared, up to what each can do."""
        working = [machine for machine in self.machines.values() if machine.restart_at is None]
        capacities = {m.id: 0.97 * MAX_BATCH / self._duration(m, MAX_BATCH) for m in working}
        share = self.case.target * RATE / max(1, len(working))
        slow = [machine for machine in working if capacities[machine.id] < share]
        remaining = self.case.target * RATE - sum(capacities[machine.id] for machine in slow)
        share = remaining / max(1, len(working) - len(slow))
        for machine in working:
            self._run_batches(machine, min(share, capacities[machine.id]), end)

    def _run_batches(self, machine: _Machine, rate: float, end: float) -> None:
        random, process = self.chance.random, machine.process
        is_new = process.release is NEW
        usual = self.case.failures if is_new else USUAL_FAILURES
        while process.free_at < end:
            arrived = _poisson(random, rate * process.last_seconds)
            start = process.free_at + (0.0 if arrived else self.chance.expovariate(rate))
            size = min(MAX_BATCH, max(1, arrived))
            seconds = self._duration(machine, size) * max(0.2, self.chance.gauss(1.0, SPREAD))
            share = usual
            if self.outage[0] <= start < self.outage[1]:
                share = max(share, self.outage_share)
                seconds *= self.outage_pace
            failed = _binomial(random, size, share)
            process.free_at = start + seconds
            process.last_seconds = seconds
            process.running.append((process.free_at, size, failed, seconds))
            if is_new:
                self.requests += size
                self.failed += failed

    def _duration(self, machine: _Machine, size: int) -> float:
        slowdown = self.case.slowdown if machine.process.release is NEW else 1.0
        return machine.speed * slowdown * (FIXED_SECONDS + REQUEST_SECONDS * size)

    def _plan(self) -> RolloutStep:
        hosts = tuple(self._host(machine) for machine in self.machines.values())
        target = self.case.target
        snapshot = ServiceSnapshot(
            self.now, hosts, boot_seconds=BOOT_SECONDS, target=target, maximum=target + 2
        )
        return plan_step(snapshot, (), _SETTINGS, DesiredRelease(NEW), self.memory)

    def _apply(self, step: RolloutStep) -> None:
        self.memory = step.memory
        self.row = step.releases or self.row
        for restart in step.restarts:
            machine = self.machines[restart.instance]
            if machine.restart_at is None:
                machine.restart_at = self.now + RESTART_SECONDS
        missing = self.case.target + step.request.surge - len(self.machines) - len(self.booting)
        self.booting += [self.now + BOOT_SECONDS] * missing

    def _host(self, machine: _Machine) -> WorkerHost:
        workers: tuple[Worker, ...] = ()
        process = machine.process
        if machine.restart_at is None:
            at = max(process.since, self.now - self.chance.uniform(0, 12))
            report = process.report(at, machine.starts)
            workers = (Worker("ocr", machine.id, 0, process.since, at, "ready", report=report),)
        return WorkerHost(machine.id, workers, 1, machine.launched_at)


def _rows(table: _Table) -> tuple[BatchRow, ...]:
    return tuple(BatchRow(size, *row) for size, row in sorted(table.items()))


def _poisson(random: Callable[[], float], mean: float) -> int:
    """Return a Poisson number."""
    limit, count, product = math.exp(-min(mean, 50.0)), 0, random()
    while product > limit:
        count += 1
        product *= random()
    return count


def _binomial(random: Callable[[], float], size: int, share: float) -> int:
    """Return how many of ``size`` fail."""
    if share >= 1:
        return size
    count, position, scale = 0, -1, math.log1p(-share)
    while True:
        position += 1 + int(math.log(1 - random()) / scale)
        if position >= size:
            return count
        count += 1
