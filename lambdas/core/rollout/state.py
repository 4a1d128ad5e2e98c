"""The state of a rollout: what is stored of it, and the hosts that are observed in a pass."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease
from contracts.registry.item import Worker
from contracts.stored import stored
from lambdas.core.health.fair_share import WorkRate
from lambdas.core.health.model import REPORT_ONLY, RESTART_SECONDS, HostFinding, ServiceSnapshot, WorkerHost
from lambdas.core.rollout.comparison import Comparison

MIN_SERVING_SHARE: Final = 0.9
"""The share of the target that must keep serving during a rollout."""
VERIFY_SECONDS: Final = 300.0
"""A host that has processed requests must be healthy with the candidate for this long."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class HostProgress:
    """A host with the release that a rollout last gave it.

    Attributes:
        version: the release's version.
        sent_at: when a restart with it was requested (epoch seconds); 0 if the host booted with it.
        first_starts: the total of its workers' starts when it was first observed with the candidate.
        is_verified: the release has proved itself on the host.
    """

    version: str = ""
    sent_at: float = 0.0
    first_starts: int | None = None
    is_verified: bool = False


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Rollout:
    """The progress of a rollout.

    Attributes:
        stable: the verified release.
        candidate: the release under rollout; None without a rollout.
        last_step_at: when the last step was made (epoch seconds).
        hosts: the hosts that a rollout has restarted, and those that run its candidate.
        abandoned: the version of the last candidate that hosts are moved away from.
        rejection_reason: why it was rolled back; empty if the stack file has named another one instead.
        comparison: the candidate in comparison with the release before it.
        written_hash: hash of the registry row as it was last written.
    """

    stable: WorkerRelease | None = None
    candidate: WorkerRelease | None = None
    last_step_at: float = 0.0
    hosts: Mapping[str, HostProgress] = field(default_factory=dict)
    abandoned: str = ""
    rejection_reason: str = ""
    comparison: Comparison = field(default_factory=Comparison)
    written_hash: str = ""

    @property
    def rejected(self) -> str:
        """The version that was rolled back and is not tried again; empty if there is none."""
        return self.abandoned if self.rejection_reason else ""

    def without_hosts(self, hosts: Iterable[str]) -> Rollout:
        """Return the state without hosts whose restart failed to be requested: the next pass tries again."""
        return replace(self, hosts={host: self.hosts[host] for host in self.hosts.keys() - set(hosts)})


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
    workers_per_slot: int
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
    def other_hosts(self) -> list[WorkerHost]:
        """The other hosts."""
        ids = {host.id for host in self.candidate_hosts}
        return [host for host in self.hosts if host.id not in ids]

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
        return len(self._ready(host)) >= workers_of(host)

    def runs(self, host: WorkerHost) -> bool:
        """Return whether a host is ready and runs only the release that a rollout last gave it."""
        return self.is_ready(host) and host.versions == {self.progress(host).version}

    def is_restarting(self, host: WorkerHost) -> bool:
        """Return whether a requested restart of a host is neither complete nor timed out."""
        is_recent = self.snapshot.now - self.progress(host).sent_at < self.restart_timeout
        return is_recent and not self.runs(host)

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
        return self.progress(host).is_verified and self.runs(host)

    def is_serving(self, host: WorkerHost) -> bool:
        """Return whether a host counts as serving: healthy, with a verified release, and has had requests."""
        unverified = {self.candidate_version, self.memory.abandoned, self.progress(host).version}
        is_known = host.versions.isdisjoint(unverified - {self.stable_version}) or self.is_verified(host)
        return is_known and self.is_healthy(host) and self.has_processed_requests(host)

    def has_processed_requests(self, host: WorkerHost) -> bool:
        """Return whether a host has processed requests, or cannot be expected to have.

        The latter if it does not report progress, if no other host has requests, or if it is healthy after
        longer than the health checker needs to find that it is stuck.
        """
        if count_requests([host])[0] or not host.has_progress or self.is_verified(host):
            return True
        if self.age(host) >= self.longest_idle_seconds and host.id not in self.unhealthy:
            return True
        return not WorkRate.of((peer for peer in self.hosts if peer.id != host.id), self.snapshot.now).rate

    @property
    def min_serving_workers(self) -> int:
        """How many workers must serve at any time."""
        return math.ceil(MIN_SERVING_SHARE * self.snapshot.target * self.workers_per_slot)

    @property
    def serving_workers(self) -> int:
        """The number of serving workers, including those on premises."""
        on_premises = [h for h in self.snapshot.hosts if h.is_on_premises and not h.exemption_reason]
        serving = sum(workers_of(host) for host in self.hosts if self.is_serving(host))
        return serving + sum(len(self._ready(host)) for host in on_premises)


def workers_of(host: WorkerHost) -> int:
    """Return how many workers should run on an instance."""
    return max(1, host.expected_workers)


def count_requests(hosts: Iterable[WorkerHost]) -> tuple[int, int]:
    """Return how many requests the workers of hosts have processed since their start, and how many failed."""
    reports = [report for host in hosts for report in host.reports]
    return sum(report.done for report in reports), sum(report.failed for report in reports)
