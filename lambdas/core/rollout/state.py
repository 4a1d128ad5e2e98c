"""The observed state of a rollout: which hosts serve, which run the candidate, how many must serve."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import Worker
from lambdas.core.health.model import REPORT_ONLY, HostFinding, ServiceSnapshot, WorkerHost
from lambdas.core.health.remediation import RESTART_SECONDS
from lambdas.core.rollout.memory import HostProgress, Rollout

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
        findings: faults of hosts, without crashes that may be restarts by the rollout.
        hosts: the instances that stay: without on-premises hosts and exempt instances.
        unhealthy: the hosts with a finding.
    """

    snapshot: ServiceSnapshot
    findings: tuple[HostFinding, ...]
    settings: HealthSettings
    demand: RolloutDemand
    memory: Rollout
    hosts: tuple[WorkerHost, ...] = field(init=False)
    unhealthy: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.hosts = tuple(h for h in self.snapshot.hosts if not h.is_on_premises and not h.exemption_reason)
        self.unhealthy = frozenset(f.host for f in self.findings if f.kind not in REPORT_ONLY)

    @property
    def candidate_version(self) -> str:
        """The candidate's version; empty without a candidate."""
        return self.memory.candidate.version if self.memory.candidate else ""

    @property
    def stable_version(self) -> str:
        """The version of the verified release; empty if there is none."""
        return self.memory.stable.version if self.memory.stable else ""

    @property
    def candidate_hosts(self) -> list[WorkerHost]:
        """The hosts that run the candidate or were requested to."""
        version = self.candidate_version
        return [h for h in self.hosts if version and self.progress(h).version == version]

    @property
    def unverified_hosts(self) -> list[WorkerHost]:
        """The candidate hosts on which the candidate is not verified yet."""
        return [h for h in self.candidate_hosts if not self.progress(h).is_verified]

    @property
    def verified_hosts(self) -> list[WorkerHost]:
        """The hosts on which the candidate is verified."""
        return [h for h in self.candidate_hosts if self.progress(h).is_verified]

    @property
    def restart_timeout(self) -> float:
        """How long workers may take to drain, pull the release, start and report, in seconds."""
        return max(RESTART_SECONDS, float(self.settings.grace_seconds), 2 * self.snapshot.boot_seconds)

    @property
    def batch_size(self) -> int:
        """How many hosts may restart at once; 1 until the candidate is verified on one host."""
        if not self.verified_hosts:
            return 1
        return max(1, -(-len(self.hosts) * self.settings.max_unavailable_percent // 100))

    def progress(self, host: WorkerHost) -> HostProgress:
        """Return the release that a rollout last gave a host; one without a version if there is none."""
        return self.memory.hosts.get(host.id, HostProgress())

    def workers_with(self, version: str) -> list[Worker]:
        """Return the ready workers that run a version, without those whose GPU is faulty."""
        ready = [worker for host in self.hosts for worker in self._ready(host)]
        return [w for w in ready if (r := w.report) is not None and r.version == version and not r.xid]

    def _ready(self, host: WorkerHost) -> list[Worker]:
        return [w for w in host.workers if w.is_fresh(self.snapshot.now) and w.state == "ready"]

    def is_ready(self, host: WorkerHost) -> bool:
        """Return whether all workers of a host report and are ready."""
        return len(self._ready(host)) >= expected_workers(host)

    def runs_only(self, host: WorkerHost, version: str) -> bool:
        """Return whether a host is ready and runs this version only."""
        return self.is_ready(host) and host.versions == {version}

    def runs_candidate(self, host: WorkerHost) -> bool:
        """Return whether a host is ready and runs the candidate only."""
        return self.runs_only(host, self.candidate_version)

    def is_restarting(self, host: WorkerHost) -> bool:
        """Return whether a requested restart of a host is neither complete nor timed out."""
        progress = self.progress(host)
        is_recent = self.snapshot.now - progress.sent_at < self.restart_timeout
        return is_recent and not self.runs_only(host, progress.version)

    @property
    def longest_idle_seconds(self) -> float:
        """After so long the health checker has found whether a host without requests is stuck."""
        return self.settings.stall_timeout_seconds + VERIFY_SECONDS

    def age(self, host: WorkerHost) -> float:
        """Return the seconds since the last start of one of a host's workers."""
        return self.snapshot.now - max(worker.since for worker in host.workers)

    def is_healthy(self, host: WorkerHost) -> bool:
        """Return whether a host is ready, without a finding and not restarting."""
        return self.is_ready(host) and host.id not in self.unhealthy and not self.is_restarting(host)

    def is_verified(self, host: WorkerHost) -> bool:
        """Return whether a host runs only the release that was verified on it."""
        progress = self.progress(host)
        return progress.is_verified and host.versions == {progress.version}

    def is_serving(self, host: WorkerHost) -> bool:
        """Return whether a host counts as serving: healthy, with a verified release, and has had requests."""
        unverified = {self.candidate_version, self.memory.abandoned, self.progress(host).version}
        is_known = self.is_verified(host) or host.versions.isdisjoint(unverified - {self.stable_version})
        return is_known and self.is_healthy(host) and self.has_processed_requests(host)

    def has_processed_requests(self, host: WorkerHost) -> bool:
        """Return whether a host has processed requests, or cannot be expected to have.

        The latter if it does not report progress, if no other host has requests, or if it is healthy after
        longer than the health checker needs to find that it is stuck.
        """
        if count_requests([host])[0] or not reports_progress(host) or self.is_verified(host):
            return True
        if self.age(host) >= self.longest_idle_seconds and host.id not in self.unhealthy:
            return True
        workers = (worker for peer in self.hosts if peer.id != host.id for worker in peer.workers)
        return not any(worker.report is not None and worker.report.rate > 0 for worker in workers)

    @property
    def serving_workers(self) -> int:
        """The number of serving workers, including those on premises."""
        on_premises = [h for h in self.snapshot.hosts if h.is_on_premises and not h.exemption_reason]
        serving = sum(expected_workers(host) for host in self.hosts if self.is_serving(host))
        return serving + sum(len(self._ready(host)) for host in on_premises)


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
