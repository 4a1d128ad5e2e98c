"""The observed state of a rollout: the hosts' versions, serving workers, and how many workers must serve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from lambdas.core.health.model import REPORT_ONLY, HostFinding, ServiceSnapshot, WorkerHost
from lambdas.core.health.remediation import RESTART_SECONDS
from lambdas.core.rollout.memory import Rollout

MIN_SERVING_SHARE: Final = 0.9
"""The share of the target that must keep serving during a rollout."""
VERIFY_SECONDS: Final = 300.0
"""A host that has processed requests must be healthy with the candidate for this long."""


@dataclass(frozen=True, slots=True)
class RolloutDemand:
    """The size of a group: ``target`` and ``maximum`` in slots of ``workers_per_slot`` workers."""

    target: int
    maximum: int
    workers_per_slot: int = 1

    @property
    def min_serving_workers(self) -> int:
        """How many workers must serve at any time."""
        return math.ceil(MIN_SERVING_SHARE * self.target * self.workers_per_slot)


@dataclass(slots=True)
class RolloutState:
    """A rollout in one pass, which changes ``memory`` only.

    Attributes:
        hosts: the instances that stay: without on-premises hosts and exempt instances.
        unhealthy: the hosts with a finding.
    """

    snapshot: ServiceSnapshot
    hosts: tuple[WorkerHost, ...]
    settings: HealthSettings
    demand: RolloutDemand
    memory: Rollout
    unhealthy: frozenset[str]

    @classmethod
    def of(
        cls,
        snapshot: ServiceSnapshot,
        findings: Iterable[HostFinding],
        settings: HealthSettings,
        demand: RolloutDemand,
        memory: Rollout,
    ) -> RolloutState:
        """Return the state for one observation of a group."""
        hosts = tuple(h for h in snapshot.hosts if not h.is_on_premises and not h.exemption_reason)
        unhealthy = frozenset(f.host for f in findings if f.kind not in REPORT_ONLY)
        return cls(snapshot, hosts, settings, demand, memory, unhealthy)

    @property
    def restart_timeout(self) -> float:
        """How long workers may take to drain, pull the release, start and report, in seconds."""
        return max(RESTART_SECONDS, float(self.settings.grace_seconds), 2 * self.snapshot.boot_seconds)

    @property
    def batch_size(self) -> int:
        """How many hosts may restart at once; 1 until the candidate is verified on one host."""
        if not self.verified:
            return 1
        return max(1, -(-len(self.hosts) * self.settings.max_unavailable_percent // 100))

    def workers_with(self, version: str) -> list[tuple[WorkerHost, Worker]]:
        """Return the ready workers that run a version, without those whose GPU is faulty."""
        now = self.snapshot.now
        return [
            (host, worker)
            for host in self.hosts
            for worker in host.workers
            if worker.is_fresh(now)
            and worker.state == "ready"
            and worker.report is not None
            and worker.report.version == version
            and not worker.report.xid
        ]

    def is_ready(self, host: WorkerHost) -> bool:
        """Return whether all workers of a host report and are ready."""
        ready = [w for w in host.workers if w.is_fresh(self.snapshot.now) and w.state == "ready"]
        return len(ready) >= expected_workers(host)

    def runs_only(self, host: WorkerHost, version: str) -> bool:
        """Return whether a host is ready and runs this version only."""
        return self.is_ready(host) and host.versions == {version}

    def is_restarting(self, host: WorkerHost) -> bool:
        """Return whether a requested restart of a host is neither complete nor timed out."""
        request = self.memory.requested_restarts.get(host.id)
        if request is None or self.runs_only(host, request.version):
            return False
        return self.snapshot.now - request.requested_at < self.restart_timeout

    @property
    def candidate_version(self) -> str:
        """The candidate's version; empty without a candidate."""
        return self.memory.candidate.version if self.memory.candidate else ""

    @property
    def stable_version(self) -> str:
        """The version of the verified release; empty if there is none."""
        return self.memory.stable.version if self.memory.stable else ""

    @property
    def verified(self) -> frozenset[str]:
        """The hosts on which the candidate is verified."""
        candidate = self.candidate_version
        return frozenset(host for host, version in self.memory.verified.items() if version == candidate)

    @property
    def candidate_hosts(self) -> tuple[WorkerHost, ...]:
        """The hosts that run the candidate or were requested to."""
        requests, version = self.memory.requested_restarts, self.candidate_version
        if not version:
            return ()
        return tuple(
            h
            for h in self.hosts
            if (h.id in requests and requests[h.id].version == version) or version in h.versions
        )

    @property
    def unverified_hosts(self) -> tuple[WorkerHost, ...]:
        """The candidate hosts on which the candidate is not verified yet."""
        verified = self.verified
        return tuple(h for h in self.candidate_hosts if h.id not in verified)

    def is_healthy(self, host: WorkerHost) -> bool:
        """Return whether a host is ready, without a finding and not restarting."""
        return self.is_ready(host) and host.id not in self.unhealthy and not self.is_restarting(host)

    def is_serving(self, host: WorkerHost) -> bool:
        """Return whether a host counts as serving: healthy, with a verified release, and has had requests."""
        unverified = {self.candidate_version, *self.memory.abandoned_versions} - {""}
        is_verified = host.versions == {self.memory.verified.get(host.id, "")}
        has_verified_version = is_verified or host.versions.isdisjoint(unverified)
        return self.is_healthy(host) and has_verified_version and self.has_processed_requests(host)

    def has_processed_requests(self, host: WorkerHost) -> bool:
        """Return whether a host has processed requests, or cannot be expected to have.

        The latter if it does not report progress, if no other host has requests, or if it is healthy after
        longer than the health checker needs to find that it is stuck.
        """
        done, _ = count_requests([host])
        if done or not reports_progress(host) or host.id in self.memory.verified:
            return True
        age = self.snapshot.now - max(worker.since for worker in host.workers)
        if age >= self.settings.stall_timeout_seconds + VERIFY_SECONDS and host.id not in self.unhealthy:
            return True
        workers = (worker for peer in self.hosts if peer.id != host.id for worker in peer.workers)
        return not any(worker.report is not None and worker.report.rate > 0 for worker in workers)

    def can_serve(self, host: WorkerHost) -> bool:
        """Return whether a host may process requests, even if it does not count as serving.

        False with a rejected release.
        """
        is_rejected = self.memory.rejected in host.versions
        return self.is_serving(host) or (self.is_healthy(host) and not is_rejected)

    @property
    def serving_workers(self) -> int:
        """The number of serving workers, including those on premises."""
        now = self.snapshot.now
        on_premises_workers = sum(
            w.is_fresh(now) and w.state == "ready"
            for h in self.snapshot.hosts
            if h.is_on_premises and not h.exemption_reason
            for w in h.workers
        )
        return on_premises_workers + sum(expected_workers(h) for h in self.hosts if self.is_serving(h))


def expected_workers(host: WorkerHost) -> int:
    """Return how many workers should run on an instance."""
    return max(1, host.expected_workers)


def reports_progress(host: WorkerHost) -> bool:
    """Return whether a worker of a host reports its progress."""
    return any(w.report is not None and w.report.reported_at > 0 for w in host.workers)


def count_requests(hosts: Iterable[WorkerHost]) -> tuple[int, int]:
    """Return how many requests the workers of hosts have processed since their start, and how many failed."""
    reports = [w.report for host in hosts for w in host.workers if w.report is not None]
    return sum(p.done for p in reports), sum(p.failed for p in reports)


def count_starts(host: WorkerHost) -> int:
    """Return the total of starts of a host's workers."""
    return sum(w.report.starts for w in host.workers if w.report is not None)
