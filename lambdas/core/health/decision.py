"""The health checker's decision for one observation of a service group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from contracts.group.health_settings import NO_DAILY_REPORT, HealthSettings
from contracts.group.release_settings import DesiredRelease
from contracts.group.replacement_requests import ReplacementRequest
from lambdas.core.health import stopped_workers
from lambdas.core.health.common import find_common_causes, suppressed_origins
from lambdas.core.health.incidents import RESOLVE_AFTER_SECONDS, find_open_incidents, update_incidents
from lambdas.core.health.memory import HealthMemory, OpenIncident
from lambdas.core.health.model import HealthSummary, HostFinding, Incident, Remedy, Restart, ServiceSnapshot
from lambdas.core.health.remediation import plan_remediation
from lambdas.core.health.symptoms import detect_symptoms
from lambdas.core.rollout.step import RolloutStep, plan_step

_DAY = 86_400
_HOUR = 3_600
_NOT_REPORTING = "not reporting"


@dataclass(frozen=True, slots=True)
class HealthDecision:
    """The result of one pass over a group.

    Attributes:
        replacement_requests: all current requests to the controller, not only new ones.
        restarts: worker restarts to request now; those of the rollout are in ``rollout``.
        new_incidents, resolved_incidents: incidents to send a notification for now.
        open_incidents: all open incidents.
        memory: the state to store.
        rollout: the next step of the rollout.
    """

    replacement_requests: tuple[ReplacementRequest, ...]
    restarts: tuple[Restart, ...]
    findings: tuple[HostFinding, ...]
    new_incidents: tuple[Incident, ...]
    resolved_incidents: tuple[Incident, ...]
    open_incidents: tuple[Incident, ...]
    summary: HealthSummary
    is_daily_report_due: bool
    memory: HealthMemory
    rollout: RolloutStep


def decide(
    snapshot: ServiceSnapshot,
    settings: HealthSettings,
    memory: HealthMemory,
    desired: DesiredRelease | None = None,
) -> HealthDecision:
    """Return the decision for one observation of a group.

    Idempotent: a second call with the memory of the first, at the same time, starts nothing new.
    ``desired`` is the release that the workers should run, None if the stack sets none.
    """
    now = snapshot.now
    symptoms = detect_symptoms(snapshot, settings, memory)
    rollout = plan_step(snapshot, symptoms.findings, settings, desired, memory.rollout)
    memory = replace(
        memory, pending_symptoms=symptoms.pending, versions=symptoms.versions, rollout=rollout.memory
    )
    causes = [
        c
        for c in find_common_causes(snapshot, symptoms)
        if c.scope.removeprefix("version ") not in rollout.versions
    ]
    # An intermittent cause suppresses remediation until its incident is resolved.
    unresolved = [
        key
        for key, incident in memory.incidents.items()
        if now - incident.last_seen_at < RESOLVE_AFTER_SECONDS
    ]
    suppressed = suppressed_origins([*(cause.key for cause in causes), *unresolved])
    plan = plan_remediation(snapshot, rollout.findings, settings, memory, suppressed)
    hosts = {host.id: host for host in snapshot.hosts}
    open_incidents = {
        **find_open_incidents(snapshot, causes, plan, settings, hosts),
        **rollout.open_incidents,
    }
    incidents, resolved = update_incidents(memory, open_incidents, now)
    new = {key: incident for key, incident in incidents.items() if not incident.is_notified}
    memory = replace(
        memory, remediations=plan.remediations, log=plan.log, incidents=incidents, resolved_incidents=resolved
    )
    replacement_requests = tuple(
        ReplacementRequest(host, int(record.at), record.verdict)
        for host, record in sorted(plan.remediations.items())
        if record.remedy is Remedy.REPLACE
    )
    return HealthDecision(
        replacement_requests=replacement_requests,
        restarts=plan.restarts,
        findings=symptoms.findings,
        new_incidents=_as_incidents(new),
        resolved_incidents=_as_incidents(resolved),
        open_incidents=_as_incidents(incidents),
        summary=_summarize(snapshot, memory),
        is_daily_report_due=_is_daily_report_due(settings, memory, now),
        memory=memory,
        rollout=rollout,
    )


def _as_incidents(incidents: Mapping[str, OpenIncident]) -> tuple[Incident, ...]:
    return tuple(Incident(key, incident.since, incident.description) for key, incident in incidents.items())


def mark_notified(memory: HealthMemory, unsent: Collection[str] = ()) -> HealthMemory:
    """Return the memory after the notifications were sent, except those about the keys ``unsent``."""
    incidents = {k: replace(i, is_notified=k not in unsent) for k, i in memory.incidents.items()}
    resolved = {key: incident for key, incident in memory.resolved_incidents.items() if key in unsent}
    return replace(memory, incidents=incidents, resolved_incidents=resolved)


def mark_daily_report_sent(memory: HealthMemory, now: float) -> HealthMemory:
    """Return the memory after the daily report was sent."""
    return replace(memory, daily_report_day=int(now // _DAY))


def without_remediation(memory: HealthMemory, host: str) -> HealthMemory:
    """Return the memory without a host's remediation, which failed: the next pass tries it again."""
    failed, log = memory.remediations[host], list(memory.log)
    log.remove(next(e for e in reversed(log) if (e.at, e.remedy) == (failed.at, failed.remedy)))
    return replace(
        memory,
        log=tuple(log),
        remediations={host_id: record for host_id, record in memory.remediations.items() if host_id != host},
    )


def _is_daily_report_due(settings: HealthSettings, memory: HealthMemory, now: float) -> bool:
    is_late_enough = now % _DAY >= settings.daily_report_hour * _HOUR
    return (
        settings.daily_report_hour != NO_DAILY_REPORT
        and is_late_enough
        and int(now // _DAY) > memory.daily_report_day
    )


def _summarize(snapshot: ServiceSnapshot, memory: HealthMemory) -> HealthSummary:
    counts: Mapping[str, Counter[str]] = {
        "ready": Counter(),
        "draining": Counter(),
        _NOT_REPORTING: Counter(),
    }
    refused: dict[str, float] = {}
    reports = []
    for host in snapshot.hosts:
        for worker in host.workers:
            state = worker.state if worker.is_fresh(snapshot.now) else _NOT_REPORTING
            if state != _NOT_REPORTING and worker.report is not None:
                refused[host.origin] = refused.get(host.origin, 0.0) + (worker.report.refused or 0.0)
                reports.append(worker.report)
            if state in counts:
                counts[state][host.origin] += 1
    instances = [host for host in snapshot.hosts if not host.is_on_premises]
    steps = Counter(entry.remedy for entry in memory.log)
    return HealthSummary(
        ready=dict(counts["ready"]),
        draining=dict(counts["draining"]),
        not_reporting=dict(counts[_NOT_REPORTING]),
        refused=refused,
        completed=sum(report.rate for report in reports),
        stopped=stopped_workers.count(reports),
        instances=len(instances),
        spot_instances=sum(host.is_spot for host in instances),
        restarts=steps[Remedy.RESTART],
        replacements=steps[Remedy.REPLACE],
    )
