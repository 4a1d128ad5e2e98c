"""Data model of the health checker: the observed state of a group, verdicts and incidents.

Times are epoch seconds, durations seconds. A *host* is an EC2 instance or an on-premises machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from contracts import names
from contracts.registry.item import Worker
from contracts.registry.queue_state import QueueState
from contracts.registry.worker_report import WorkerReport

ORIGINS: Final = (names.ORIGIN_AWS, names.ORIGIN_ON_PREMISES)


class HealthVerdict(StrEnum):
    """Faults of a host, most severe first; only the most severe fault of a host counts.

    The values are part of the stored state, replacement requests and log lines.
    """

    XID = "xid"
    NOT_REPORTING = "silent"
    CRASHING = "crashing"
    MISSING = "missing"
    STUCK = "stuck"
    FAILING = "failing"
    IDLE_GPU = "idle-gpu"
    CLOCK = "clock"
    OLD_VERSION = "old-version"


class Remedy(StrEnum):
    """An automatic remediation of a host."""

    RESTART = "restart"
    REPLACE = "replace"


RESTARTABLE: Final = frozenset({HealthVerdict.STUCK, HealthVerdict.FAILING, HealthVerdict.IDLE_GPU})
"""A worker restart is tried before a replacement.

A worker that does not report cannot receive the request, the agent restarts a crashed worker itself, and a
GPU with a critical Xid error needs more than a restart.
"""
RESTART_SECONDS: Final = 900.0
"""A restart fails if the worker has not drained, started and reported within this time."""
REPORT_ONLY: Final = frozenset({HealthVerdict.CLOCK, HealthVerdict.OLD_VERSION})
"""Verdicts that raise an incident without automatic remediation."""
FAMILY: Final[Mapping[HealthVerdict, str]] = {
    HealthVerdict.NOT_REPORTING: "unheard",
    HealthVerdict.MISSING: "unheard",
    HealthVerdict.STUCK: "unfinished",
    HealthVerdict.IDLE_GPU: "unfinished",
    HealthVerdict.CRASHING: "crashing",
    HealthVerdict.FAILING: "failing",
    HealthVerdict.XID: "xid",
}
"""Families of verdicts: one common cause can show as different verdicts of a family on different hosts.

The values are part of incident keys (stored state, log lines, subjects of notifications).
"""


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """A machine with workers.

    Attributes:
        expected_workers: how many workers should run on it; 0 if unknown.
        launched_at: None for an on-premises machine.
        exemption_reason: why the health checker ignores it (draining, interrupted, terminating); else empty.
        has_malformed_records: registry items of its workers are malformed; a missing worker may run.
        is_spot: bought as Spot.
    """

    id: str
    workers: tuple[Worker, ...] = ()
    expected_workers: int = 0
    launched_at: float | None = None
    exemption_reason: str = ""
    has_malformed_records: bool = False
    is_spot: bool = False

    @property
    def is_on_premises(self) -> bool:
        """Whether it is an on-premises machine: its workers can be restarted, but it cannot be replaced."""
        return self.launched_at is None

    @property
    def origin(self) -> str:
        """The value of the metric dimension ``origin``."""
        return names.ORIGIN_ON_PREMISES if self.is_on_premises else names.ORIGIN_AWS

    @property
    def versions(self) -> frozenset[str]:
        """The versions that its workers report."""
        return frozenset(report.version for report in self.reports if report.version)

    @property
    def reports(self) -> tuple[WorkerReport, ...]:
        """The reports of its workers."""
        return tuple(worker.report for worker in self.workers if worker.report is not None)

    @property
    def has_progress(self) -> bool:
        """Whether a worker reports its progress."""
        return any(report.reported_at > 0 for report in self.reports)

    @property
    def starts(self) -> int:
        """Starts of its workers, added."""
        return sum(report.starts for report in self.reports)


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """The observed state of a group at ``now``.

    Attributes:
        queue: None if the state of the queue is unknown.
        boot_seconds: the boot time that the controller has measured.
        is_registry_stale: no worker of the whole stack has a fresh heartbeat.
        can_act: False while the group is paused, or in a dry run.
        can_replace: False where the controller follows no request for a replacement: also in mode manual.
        are_requests_unknown: the workers are HTTP servers, and requests at a proxy are unknown.
        target, maximum: the group's, in slots.
    """

    now: float
    hosts: tuple[WorkerHost, ...]
    queue: QueueState | None = None
    boot_seconds: float = 0.0
    is_registry_stale: bool = False
    can_act: bool = True
    can_replace: bool = True
    are_requests_unknown: bool = False
    target: int = 0
    maximum: int = 0

    @property
    def has_waiting_requests(self) -> bool:
        """Whether the queue is known to have messages now."""
        queue = self.queue
        return queue is not None and queue.is_fresh(self.now) and queue.ready > 0


@dataclass(frozen=True, slots=True)
class HostFinding:
    """A confirmed verdict about a host, or about its workers in ``slots``, first observed at ``since``."""

    kind: HealthVerdict
    host: str
    since: float
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Restart:
    """A worker to restart; ``partition`` is that of its item in the worker registry."""

    partition: str
    instance: str
    slot: int


@dataclass(frozen=True, slots=True)
class Incident:
    """A condition that needs a person, open since ``since``; ``key`` is unique in its group."""

    key: str
    since: float
    description: str


@dataclass(frozen=True, slots=True)
class HealthSummary:
    """Counts of a group for metrics and the daily report.

    ``ready``, ``draining`` and ``not_reporting`` are workers by origin, ``refused`` are requests per second
    that they refuse, ``completed`` those that all of them end, ``stopped`` are workers that take none, by
    reason; ``restarts`` and ``replacements`` are those of the last day.
    """

    ready: Mapping[str, int] = field(default_factory=dict)
    draining: Mapping[str, int] = field(default_factory=dict)
    not_reporting: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, float] = field(default_factory=dict)
    completed: float = 0.0
    stopped: Mapping[str, int] = field(default_factory=dict)
    instances: int = 0
    spot_instances: int = 0
    restarts: int = 0
    replacements: int = 0

    @property
    def refused_percent(self) -> float | None:
        """Refused requests in percent of all that workers ended or refused; None without any."""
        refused = sum(self.refused.values())
        arrived = refused + self.completed
        return 100 * refused / arrived if arrived else None
