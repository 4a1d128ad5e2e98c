"""Remediation of findings: restart the worker, then replace the instance, else report; within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.group.replacement_requests import MAX_REQUESTS
from lambdas.core.health.memory import MAX_LOG_ENTRIES, HealthMemory, RemediationLogEntry, RemediationRecord
from lambdas.core.health.model import (
    REPORT_ONLY,
    RESTART_SECONDS,
    RESTARTABLE,
    HealthVerdict,
    HostFinding,
    Remedy,
    Restart,
    ServiceSnapshot,
    WorkerHost,
)
from lambdas.core.health.symptoms import MISSING_SECONDS

ESCALATE_SECONDS: Final = 6 * 3600.0
"""An instance that is unhealthy again within this time after a restart is replaced."""
HOUR: Final = 3600.0
DAY: Final = 86_400.0
NEW_INSTANCE_SECONDS: Final = 3600.0
"""A replacement within this time after the grace period counts as ineffective."""
MAX_INEFFECTIVE: Final = 3
"""Replacements of new instances a day, or 1/50 of the hosts if that is more, before replacement stops."""
INEFFECTIVE: Final = "in-vain"
BUDGET: Final = "budget"


@dataclass(frozen=True, slots=True)
class RemediationPlan:
    """The remediations to start now, and the state to store.

    Attributes:
        suppressed: why some remediations were withheld: `INEFFECTIVE`, `BUDGET`.
        report_only: findings without automatic remediation.
    """

    restarts: tuple[Restart, ...]
    remediations: Mapping[str, RemediationRecord]
    log: tuple[RemediationLogEntry, ...]
    suppressed: frozenset[str]
    report_only: tuple[HostFinding, ...]


def max_unavailable(settings: HealthSettings, hosts: int) -> int:
    """Return how many hosts may be restarted or replaced at the same time."""
    if settings.max_unavailable_percent == 0:
        return 0
    return min(MAX_REQUESTS, max(1, hosts * settings.max_unavailable_percent // 100))


def plan_remediation(
    snapshot: ServiceSnapshot,
    findings: Iterable[HostFinding],
    settings: HealthSettings,
    memory: HealthMemory,
    suppressed_origins: frozenset[str],
) -> RemediationPlan:
    """Plan remediations; at ``suppressed_origins`` none is started and no replacement is requested."""
    now = snapshot.now
    hosts = {host.id: host for host in snapshot.hosts}
    worst = _worst(findings)
    log = [entry for entry in memory.log if 0 <= now - entry.at < DAY]
    replaceable = worst if snapshot.can_replace else {}
    remediations = _current_remediations(memory, hosts, replaceable, now, suppressed_origins)
    max_hosts = max_unavailable(settings, len(hosts))
    started = sum(now - entry.at < HOUR for entry in log)
    in_progress = sum(_is_in_progress(record, now) for record in remediations.values())
    grace = max(float(settings.grace_seconds), 2 * snapshot.boot_seconds)
    new_instance_seconds = grace + NEW_INSTANCE_SECONDS
    last_healthy_launch = _last_healthy_launch(snapshot, worst, grace)
    restarts: list[Restart] = []
    suppressed: set[str] = set()
    report_only: list[HostFinding] = []
    ordered = sorted(worst.values(), key=lambda f: (list(HealthVerdict).index(f.kind), f.since, f.host))
    for finding in ordered:
        host, record = hosts[finding.host], remediations.get(finding.host)
        remedy = _next_remedy(finding, host, record, now)
        if remedy is None:
            if not (record is not None and _is_in_progress(record, now)):
                report_only.append(finding)
            continue
        if host.origin in suppressed_origins or not snapshot.can_act:
            continue
        if remedy is Remedy.REPLACE and not snapshot.can_replace:
            continue
        if remedy is Remedy.REPLACE and _count_ineffective(log, memory, last_healthy_launch) >= max(
            MAX_INEFFECTIVE, len(hosts) // 50
        ):
            suppressed.add(INEFFECTIVE)
            continue
        if in_progress >= max_hosts or started >= 2 * max_hosts:
            suppressed.add(BUDGET)
            continue
        if not (record is not None and _is_in_progress(record, now)):
            in_progress += 1  # an escalated restart is already counted
        started += 1
        remediations[host.id] = RemediationRecord(remedy, now, finding.kind)
        is_new = remedy is Remedy.REPLACE and now - (host.launched_at or 0) < new_instance_seconds
        log.append(RemediationLogEntry(now, remedy, is_new))
        if remedy is Remedy.RESTART:
            restarts += _restarts(host, finding)
    return RemediationPlan(
        tuple(restarts),
        remediations,
        tuple(log[-MAX_LOG_ENTRIES:]),
        frozenset(suppressed),
        tuple(report_only),
    )


def _restarts(host: WorkerHost, finding: HostFinding) -> list[Restart]:
    return [Restart(w.partition, w.instance, w.slot) for w in host.workers if w.slot in finding.slots]


def _worst(findings: Iterable[HostFinding]) -> dict[str, HostFinding]:
    """Return the most severe finding of each host."""
    worst: dict[str, HostFinding] = {}
    for finding in sorted(findings, key=lambda f: list(HealthVerdict).index(f.kind)):
        worst.setdefault(finding.host, finding)
    return worst


def _current_remediations(
    memory: HealthMemory,
    hosts: Mapping[str, WorkerHost],
    worst: Mapping[str, HostFinding],
    now: float,
    suppressed_origins: frozenset[str],
) -> dict[str, RemediationRecord]:
    """Return the remediations that still apply.

    A replacement is withdrawn if the host has recovered, drains or no longer exists.
    """
    current: dict[str, RemediationRecord] = {}
    for host_id, record in memory.remediations.items():
        host = hosts.get(host_id)
        if host is None or not 0 <= now - record.at < DAY:
            continue
        if record.remedy is Remedy.REPLACE:
            is_unhealthy = host_id in worst and worst[host_id].kind not in REPORT_ONLY
            if is_unhealthy and host.origin not in suppressed_origins:
                current[host_id] = record
        elif now - record.at < ESCALATE_SECONDS:
            current[host_id] = record
    return current


def _is_in_progress(record: RemediationRecord, now: float) -> bool:
    return record.remedy is Remedy.REPLACE or now - record.at < RESTART_SECONDS


def _next_remedy(
    finding: HostFinding, host: WorkerHost, record: RemediationRecord | None, now: float
) -> Remedy | None:
    """Return the next remedy for a host; None if one is in progress or none is possible."""
    if finding.kind in REPORT_ONLY or (record is not None and record.remedy is Remedy.REPLACE):
        return None
    if record is not None and _is_in_progress(record, now) and finding.kind is not HealthVerdict.XID:
        return None  # the worker is restarting
    if finding.kind in RESTARTABLE and record is None:
        return Remedy.RESTART
    return None if host.is_on_premises else Remedy.REPLACE


def _last_healthy_launch(snapshot: ServiceSnapshot, worst: Mapping[str, HostFinding], grace: float) -> float:
    """Return the launch time of the newest healthy instance after its grace period; 0 without any."""
    launches = [h.launched_at for h in snapshot.hosts if h.launched_at is not None and h.id not in worst]
    return max((at for at in launches if snapshot.now - at > grace + MISSING_SECONDS), default=0.0)


def _count_ineffective(
    log: Iterable[RemediationLogEntry], memory: HealthMemory, last_healthy_launch: float
) -> int:
    """Return how many new instances were replaced since the newest version and the last healthy launch."""
    since = max(last_healthy_launch, *memory.versions.values(), 0.0)
    return sum(entry.is_new_instance and entry.at >= since for entry in log)
