"""A roll-out at one moment: who runs what, who serves, how many must."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from contracts.group.health_settings import HealthSettings
from lambdas.core.health.fair_share import FEWEST_ENDED, WorkRate
from lambdas.core.health.model import ONLY_TOLD, HostFinding, Sight, WorkerHost
from lambdas.core.health.treatment import RESTART_SECONDS
from lambdas.core.rollout.memory import Rollout

SERVED: Final = 0.9
"""The share of the target that serves whatever is rolled out."""


@dataclass(frozen=True, slots=True)
class RolloutDemand:
    """What a group is to hold, in slots: ``target``, ``maximum``; a slot has ``per_slot`` workers."""

    target: int
    maximum: int
    per_slot: int = 1

    @property
    def least(self) -> int:
        """How many workers must serve."""
        return math.ceil(SERVED * self.target * self.per_slot)


@dataclass(frozen=True, slots=True)
class Course:
    """Who is where; ``hosts`` are the instances that nobody is about to take or to let go.

    ``trying`` have not proved the trial when the look begins, ``pace`` is that of all others.
    """

    sight: Sight
    hosts: tuple[WorkerHost, ...]
    settings: HealthSettings
    demand: RolloutDemand
    memory: Rollout
    ill: frozenset[str]
    trying: frozenset[str] = frozenset()
    pace: WorkRate = field(default_factory=WorkRate)

    @classmethod
    def of(
        cls,
        sight: Sight,
        findings: Iterable[HostFinding],
        settings: HealthSettings,
        demand: RolloutDemand,
        memory: Rollout,
    ) -> Course:
        """Return the course that a look shows."""
        hosts = tuple(h for h in sight.hosts if not h.on_premises and not h.spared)
        ill = frozenset(f.host for f in findings if f.kind not in ONLY_TOLD)
        course = cls(sight, hosts, settings, demand, memory, ill)
        trying = frozenset(host.id for host in course.unproven)
        pace = WorkRate.of((host for host in hosts if host.id not in trying), sight.now)
        return replace(course, trying=trying, pace=pace)

    @property
    def patience(self) -> float:
        """How long workers may take to end, to fetch what they need, and to report."""
        return max(RESTART_SECONDS, float(self.settings.grace_seconds), 2 * self.sight.boot_seconds)

    @property
    def batch(self) -> int:
        """How many hosts may be under way at once: one until one has proved the release."""
        if not self.proven:
            return 1
        return max(1, -(-len(self.hosts) * self.settings.most_at_once // 100))

    def is_up(self, host: WorkerHost) -> bool:
        """Say whether all workers of a host are heard and take requests."""
        ready = [w for w in host.workers if w.is_fresh(self.sight.now) and w.state == "ready"]
        return len(ready) >= max(1, host.expected)

    def runs(self, host: WorkerHost, version: str) -> bool:
        """Say whether a host is up, with that version and no other."""
        return self.is_up(host) and host.versions == {version}

    def is_on_the_way(self, host: WorkerHost) -> bool:
        """Say whether a host was asked to start from another version, and has not yet had its time."""
        asked = self.memory.asked.get(host.id)
        if asked is None or self.runs(host, asked.version):
            return False
        return self.sight.now - asked.at < self.patience

    @property
    def trial(self) -> str:
        """The version that is tried, empty without one."""
        return self.memory.trial.version if self.memory.trial else ""

    @property
    def proven(self) -> frozenset[str]:
        """The hosts on which the trial has proved itself."""
        return frozenset(host for host, version in self.memory.proven.items() if version == self.trial)

    @property
    def placed(self) -> tuple[WorkerHost, ...]:
        """Who runs the trial, or was asked to."""
        asked = self.memory.asked
        return tuple(
            h
            for h in self.hosts
            if self.trial
            and ((h.id in asked and asked[h.id].version == self.trial) or self.trial in h.versions)
        )

    @property
    def unproven(self) -> tuple[WorkerHost, ...]:
        """Who runs the trial, or was asked to, and has not proved it yet."""
        return tuple(h for h in self.placed if h.id not in self.proven)

    def serves(self, host: WorkerHost) -> bool:
        """Say whether a host's workers count as serving: not on the way, well, and of a proved release."""
        doubted = {self.trial, *self.memory.left} - {""}
        proved = self.memory.proven.get(host.id, "")
        is_proved = host.versions.isdisjoint(doubted) or host.versions == {proved}
        is_well = is_proved and host.id not in self.ill and self.is_up(host) and self.has_worked(host)
        return is_well and not self.is_on_the_way(host)

    def has_worked(self, host: WorkerHost) -> bool:
        """Say whether a host has ended requests, or cannot have shown it.

        It does not tell, nobody has any to end, or for ``stuckSeconds`` few came to its share. Who hangs
        while no request waits is no finding of the health checker's, and serves nobody all the same.
        """
        done, _ = ended([host])
        if done or not tells(host) or host.id in self.memory.proven:
            return True
        age = self.sight.now - max(w.since for w in host.workers)
        rate = self.fair_rate(host)
        return rate == 0 or (age >= self.settings.stuck_seconds and rate * age < FEWEST_ENDED)

    def fair_rate(self, host: WorkerHost) -> float:
        """Return the requests a second that such a host should end, by what the others do.

        Who tries a release and has not proved it is none of them.
        """
        others = self.pace
        if host.id not in self.trying:
            others = others.without(WorkRate.of([host], self.sight.now))
        return others.each * len(host.workers)

    def may_serve(self, host: WorkerHost) -> bool:
        """Say whether requests may be answered there, counted on or not: not with a refused release."""
        is_well = self.is_up(host) and host.id not in self.ill and not self.is_on_the_way(host)
        return self.serves(host) or (is_well and self.memory.refused not in host.versions)

    @property
    def serving(self) -> int:
        """How many workers serve, those on premises with them."""
        now = self.sight.now
        elsewhere = sum(
            w.is_fresh(now) and w.state == "ready"
            for h in self.sight.hosts
            if h.on_premises and not h.spared
            for w in h.workers
        )
        return elsewhere + sum(workers(h) for h in self.hosts if self.serves(h))


def workers(host: WorkerHost) -> int:
    """Return how many workers an instance is to show."""
    return max(1, host.expected)


def tells(host: WorkerHost) -> bool:
    """Say whether a worker of a host says how many requests it ends."""
    return any(w.pulse is not None and w.pulse.at > 0 for w in host.workers)


def ended(hosts: Iterable[WorkerHost]) -> tuple[int, int]:
    """Return how many requests the workers of hosts have ended since they started, and how many in vain."""
    pulses = [w.pulse for host in hosts for w in host.workers if w.pulse is not None]
    return sum(p.done for p in pulses), sum(p.failed for p in pulses)


def started(host: WorkerHost) -> int:
    """Return how often the workers of a host have started, summed up."""
    return sum(w.pulse.starts for w in host.workers if w.pulse is not None)
