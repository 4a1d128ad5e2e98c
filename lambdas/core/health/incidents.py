"""Incidents: conditions that need a person. Each is notified when it opens and when it is resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from contracts import names
from contracts.group.health_settings import HealthSettings
from lambdas.core.capacity.memory import MAX_BOOT_SECONDS
from lambdas.core.health.common import REGISTRY_SCOPE, CommonCause
from lambdas.core.health.memory import MAX_INCIDENTS, HealthMemory, OpenIncident
from lambdas.core.health.model import FAMILY, HealthVerdict, HostFinding, Remedy, ServiceSnapshot, WorkerHost
from lambdas.core.health.remediation import BUDGET, INEFFECTIVE, RemediationPlan, max_unavailable

RESOLVE_AFTER_SECONDS: Final = 900.0
"""An incident is resolved when its condition was absent for this long; an intermittent one stays open."""
STALE_REQUEST_SECONDS: Final = 3600.0
"""The controller has not carried out a replacement request of this age."""
MAX_NAMED_HOSTS: Final = 5

COMMON_SYMPTOMS: Final = {
    "unheard": "have workers that send no heartbeats",
    "unfinished": "complete no requests or leave their GPU idle, although the queue has messages or other "
    "hosts complete requests",
    "crashing": "have workers in a crash loop",
    "failing": "answer most requests with an error",
    "xid": "have a GPU with a critical Xid error",
}
_SYMPTOMS: Final = {
    HealthVerdict.XID: "a GPU has a critical Xid error",
    HealthVerdict.NOT_REPORTING: "workers send no heartbeats",
    HealthVerdict.CRASHING: "workers are in a crash loop",
    HealthVerdict.MISSING: "fewer workers run than expected",
    HealthVerdict.STUCK: "workers complete no requests, although the queue has messages or other workers "
    "complete requests",
    HealthVerdict.FAILING: "workers answer most requests with an error",
    HealthVerdict.IDLE_GPU: "a GPU is idle, although the queue has messages",
    HealthVerdict.CLOCK: "the clock is wrong",
    HealthVerdict.OLD_VERSION: "workers run an old version",
}
_ADVICE: Final = {
    "unheard": "Check the registry table, the network, and whether instances boot.",
    "unfinished": "Check the message broker and the other services that the workers depend on.",
    "failing": "Check the worker logs and the services that the workers depend on.",
    "crashing": "Check the worker logs, and roll back to the previous version.",
    "xid": "Check the GPU driver and the latest deployment.",
}


def find_open_incidents(
    snapshot: ServiceSnapshot,
    causes: Iterable[CommonCause],
    plan: RemediationPlan,
    settings: HealthSettings,
    hosts: Mapping[str, WorkerHost],
) -> dict[str, str]:
    """Return the descriptions of all conditions that need a person now, by incident key."""
    incidents = {cause.key: _describe(cause) for cause in causes}
    families = {cause.family for cause in causes}
    incidents |= dict(_unremediated(plan.report_only, hosts, families))
    if INEFFECTIVE in plan.suppressed:
        incidents[INEFFECTIVE] = (
            "new instances become unhealthy soon after launch, so the health checker has stopped replacing "
            "them. Check the image, the AMI and the boot log."
        )
    if BUDGET in plan.suppressed:
        incidents[BUDGET] = (
            "more instances are unhealthy than may be restarted or replaced: at most "
            f"{max_unavailable(settings, len(hosts))} of {len(hosts)} at the same time, and twice as many an "
            "hour (health.maxUnavailablePercent). The others wait."
        )
    overdue = [
        host
        for host, record in plan.remediations.items()
        if record.remedy is Remedy.REPLACE and snapshot.now - record.at >= STALE_REQUEST_SECONDS
    ]
    if overdue:
        incidents["unanswered"] = (
            f"{_join(overdue)}: replacement was requested over an hour ago and has not happened. "
            "Check whether the group is paused."
        )
    return incidents


def update_incidents(
    memory: HealthMemory, descriptions: Mapping[str, str], now: float
) -> tuple[dict[str, OpenIncident], dict[str, OpenIncident]]:
    """Return the open incidents, and the resolved ones that still need a notification."""
    incidents: dict[str, OpenIncident] = {}
    resolved = dict(memory.resolved_incidents)
    for key, incident in memory.incidents.items():
        if key in descriptions:
            incidents[key] = OpenIncident(incident.since, now, incident.description, incident.is_notified)
        elif 0 <= now - incident.last_seen_at < RESOLVE_AFTER_SECONDS:
            incidents[key] = incident
        elif incident.is_notified:
            resolved[key] = incident
    for key, description in descriptions.items():
        if key not in incidents and len(incidents) < MAX_INCIDENTS:
            resolved.pop(key, None)
            incidents[key] = OpenIncident(now, now, description)
    return incidents, dict(sorted(resolved.items())[:MAX_INCIDENTS])


def _unremediated(
    findings: Iterable[HostFinding], hosts: Mapping[str, WorkerHost], families: set[str]
) -> Iterator[tuple[str, str]]:
    by_kind: dict[tuple[HealthVerdict, str], list[str]] = {}
    for finding in findings:
        if FAMILY.get(finding.kind) not in families:
            scope = finding.kind, hosts[finding.host].origin
            by_kind.setdefault(scope, []).append(finding.host)
    for (kind, origin), host_ids in by_kind.items():
        text = f"{_join(host_ids)}: {_SYMPTOMS[kind]}."
        yield f"{kind}/{origin}", f"{text} There is no automatic remediation: manual action is needed."


def _describe(cause: CommonCause) -> str:
    if cause.scope == REGISTRY_SCOPE:
        return (
            "no worker of the stack sends heartbeats, so the cause is the worker registry or the network, "
            "not the workers. The health checker restarts and replaces nothing. Check the registry table and "
            "the network."
        )
    affected = {names.ORIGIN_AWS: "instances", names.ORIGIN_ON_PREMISES: "on-premises hosts"}.get(
        cause.scope, f"hosts with {cause.scope}"
    )
    return (
        f"{cause.hosts} of {cause.population} {affected} {COMMON_SYMPTOMS[cause.family]}. This points to "
        "one common cause, so the health checker restarts and replaces nothing while it lasts."
        f"{_controller_note(cause)} {_ADVICE[cause.family]}"
    )


def _controller_note(cause: CommonCause) -> str:
    """Return a note that the controller still acts: it counts the hosts of its group, not of a version."""
    if cause.family != FAMILY[HealthVerdict.NOT_REPORTING] or cause.scope == names.ORIGIN_ON_PREMISES:
        return ""
    return (
        " The controller still replaces an instance that sends no heartbeats for "
        f"{MAX_BOOT_SECONDS / 60:.0f} minutes if at least half of its group still sends them. Pause the "
        "group if these instances serve requests."
    )


def _join(hosts: list[str]) -> str:
    host_ids = sorted(hosts)
    omitted = len(host_ids) - MAX_NAMED_HOSTS
    return ", ".join(host_ids[:MAX_NAMED_HOSTS]) + (f" and {omitted} more" if omitted > 0 else "")
