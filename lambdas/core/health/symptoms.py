"""Detection of symptoms: a symptom becomes a finding if it persists, measured by the checker's own clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.registry.batches import WINDOW_SECONDS
from contracts.registry.item import MAX_CLOCK_SKEW_SECONDS, Worker
from contracts.registry.worker_report import WorkerReport
from lambdas.core.health.fair_share import MIN_REQUESTS, WorkRate
from lambdas.core.health.memory import MAX_PENDING_SYMPTOMS, MAX_VERSIONS, HealthMemory, PendingSymptom
from lambdas.core.health.model import FAMILY, HealthVerdict, HostFinding, ServiceSnapshot, WorkerHost

NOT_REPORTING_SECONDS: Final = 120.0
"""Seconds after the first observation of a missed heartbeat."""
WRONG_CLOCK_SECONDS: Final = 300.0
MISSING_SECONDS: Final = 300.0
"""A restarting worker has no registry item for a while: the agent waits up to 300 s between two starts."""
CRASH_LOOP_STARTS: Final = 3
"""Restarts within `CRASH_LOOP_SECONDS` that make a crash loop."""
CRASH_LOOP_SECONDS: Final = 1800.0
EXPLAINED_BY_CRASHING: Final = frozenset({HealthVerdict.STUCK, HealthVerdict.FAILING, HealthVerdict.IDLE_GPU})
"""Symptoms that a crash loop explains."""
STALE_REPORT_SECONDS: Final = 120.0
"""A worker whose progress report is older than this may be stuck."""
FAILING_SHARE: Final = 0.5
"""A worker is failing if this share of its requests of the last minutes failed, at least `MIN_REQUESTS`."""
FAILING_SECONDS: Final = 60.0
OLD_VERSION_SECONDS: Final = 7200.0
"""Other versions are old this long after the newest version was first observed."""


@dataclass(frozen=True, slots=True)
class DetectedSymptoms:
    """The result of detection.

    Attributes:
        findings: confirmed symptoms.
        suspects: hosts with a symptom, confirmed or not, by family (`FAMILY`).
        pending, versions: the state to store.
    """

    findings: tuple[HostFinding, ...]
    suspects: Mapping[str, frozenset[str]]
    pending: Mapping[str, PendingSymptom]
    versions: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Symptom:
    """A symptom of a worker, or of a host if ``slot`` is -1; it persists while ``value`` is the same.

    It is confirmed after ``confirm_seconds``, counted from ``since`` if set.
    """

    kind: HealthVerdict
    host: str
    slot: int
    value: float
    confirm_seconds: float
    since: float | None = None

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.host}/{self.slot}"


def detect_symptoms(
    snapshot: ServiceSnapshot, settings: HealthSettings, memory: HealthMemory
) -> DetectedSymptoms:
    """Return the findings and suspects of a group, and the state to store."""
    versions = _first_seen(snapshot, memory)
    newest = _newest_versions(snapshot, versions)
    pending = dict(_start_counts(snapshot, memory))
    restarting = list(_restarting_hosts(snapshot, pending))
    restarting_slots = {(finding.host, slot) for finding, _ in restarting for slot in finding.slots}
    findings: dict[tuple[HealthVerdict, str], HostFinding] = {}
    suspects: dict[str, set[str]] = {}
    busy_origins = _busy_origins(snapshot, settings)
    for host in snapshot.hosts:
        if host.exemption_reason:
            continue
        is_busy = host.origin in busy_origins
        for symptom in _symptoms(host, snapshot, settings, memory, has_other_work=is_busy):
            if symptom.kind in EXPLAINED_BY_CRASHING and (host.id, symptom.slot) in restarting_slots:
                continue
            if symptom.kind in FAMILY:
                suspects.setdefault(FAMILY[symptom.kind], set()).add(host.id)
            entry = _pending_symptom(symptom, memory, snapshot.now)
            pending[symptom.key] = entry
            if snapshot.now - entry.since >= symptom.confirm_seconds:
                _add_finding(findings, symptom, entry.since)
        for finding in _old_versions(host, snapshot.now, newest):
            findings[finding.kind, host.id] = finding
    for finding, is_crash_loop in restarting:
        suspects.setdefault(FAMILY[HealthVerdict.CRASHING], set()).add(finding.host)
        if is_crash_loop:
            findings[finding.kind, finding.host] = finding
    return DetectedSymptoms(
        tuple(findings.values()), {f: frozenset(h) for f, h in suspects.items()}, _limit(pending), versions
    )


def _limit(pending: Mapping[str, PendingSymptom]) -> dict[str, PendingSymptom]:
    """Return the oldest symptoms; counts of starts, which healthy workers have too, are dropped first."""
    order = sorted(pending, key=lambda key: (key.startswith(HealthVerdict.CRASHING), pending[key].since, key))
    return {key: pending[key] for key in order[:MAX_PENDING_SYMPTOMS]}


def _add_finding(
    findings: dict[tuple[HealthVerdict, str], HostFinding], symptom: _Symptom, since: float
) -> None:
    slots = () if symptom.slot < 0 else (symptom.slot,)
    earlier = findings.get((symptom.kind, symptom.host))
    if earlier is not None:
        slots, since = (*earlier.slots, *slots), min(since, earlier.since)
    findings[symptom.kind, symptom.host] = HostFinding(symptom.kind, symptom.host, since, slots)


def _pending_symptom(symptom: _Symptom, memory: HealthMemory, now: float) -> PendingSymptom:
    entry = memory.pending_symptoms.get(symptom.key)
    is_unchanged = entry is not None and entry.value == symptom.value and entry.since <= now
    since = entry.since if entry is not None and is_unchanged else now
    return PendingSymptom(
        symptom.value, since if symptom.since is None else max(since, min(now, symptom.since))
    )


def _symptoms(
    host: WorkerHost,
    snapshot: ServiceSnapshot,
    settings: HealthSettings,
    memory: HealthMemory,
    *,
    has_other_work: bool,
) -> Iterator[_Symptom]:
    workers = workers_since_launch(host)
    for worker in workers:
        yield from _worker_symptoms(host, worker, snapshot, settings, memory, has_other_work=has_other_work)
    if host.launched_at is None or host.has_malformed_records or len(workers) >= host.expected_workers:
        return
    grace = max(float(settings.grace_seconds), 2 * snapshot.boot_seconds)
    if snapshot.now - host.launched_at >= grace:
        yield _Symptom(HealthVerdict.MISSING, host.id, -1, 0.0, max(MISSING_SECONDS, snapshot.boot_seconds))


def workers_since_launch(host: WorkerHost) -> tuple[Worker, ...]:
    """Return a host's workers without those from before its return to the warm pool."""
    if host.launched_at is None:
        return host.workers
    return tuple(w for w in host.workers if w.heartbeat > host.launched_at - MAX_CLOCK_SKEW_SECONDS)


def _worker_symptoms(
    host: WorkerHost,
    worker: Worker,
    snapshot: ServiceSnapshot,
    settings: HealthSettings,
    memory: HealthMemory,
    *,
    has_other_work: bool,
) -> Iterator[_Symptom]:
    report, now, slot = worker.report, snapshot.now, worker.slot
    if not worker.is_fresh(now):
        not_reporting = _Symptom(
            HealthVerdict.NOT_REPORTING, host.id, slot, worker.heartbeat, NOT_REPORTING_SECONDS
        )
        entry = memory.pending_symptoms.get(not_reporting.key)
        if entry is None or entry.value == worker.heartbeat:
            yield not_reporting
            return
        # The heartbeat changes although it is never fresh: the worker runs, but its clock is wrong.
        yield _Symptom(HealthVerdict.CLOCK, host.id, slot, 0.0, WRONG_CLOCK_SECONDS)
        yield not_reporting
    if report is None or worker.state != "ready":
        return
    if report.xid:
        yield _Symptom(HealthVerdict.XID, host.id, slot, float(report.xid), 0.0)
    has_no_progress = report.rate == 0 or now - report.reported_at > STALE_REPORT_SECONDS
    ready_since, stall = worker.since if worker.since <= now else None, settings.stall_timeout_seconds
    if report.reported_at and has_no_progress and (snapshot.has_waiting_requests or has_other_work):
        yield _Symptom(HealthVerdict.STUCK, host.id, slot, float(report.done), stall, ready_since)
    if _is_failing(report):
        yield _Symptom(HealthVerdict.FAILING, host.id, slot, 0.0, FAILING_SECONDS)
    if report.gpu_use == 0 and snapshot.has_waiting_requests:
        yield _Symptom(HealthVerdict.IDLE_GPU, host.id, slot, 0.0, stall, ready_since)


def _is_failing(report: WorkerReport) -> bool:
    """Return whether most requests of the last minutes failed; a worker that answers quickly gets many."""
    failed_rate = report.failed_rate or 0.0
    return failed_rate * WINDOW_SECONDS >= MIN_REQUESTS and failed_rate >= FAILING_SHARE * report.rate


def _busy_origins(snapshot: ServiceSnapshot, settings: HealthSettings) -> set[str]:
    """Return the origins whose workers process so many requests that an idle worker must be stuck."""
    hosts: dict[str, list[WorkerHost]] = {}
    for host in snapshot.hosts:
        if not host.exemption_reason:
            hosts.setdefault(host.origin, []).append(host)
    return {
        origin
        for origin, members in hosts.items()
        if WorkRate.of(members, snapshot.now).per_worker * settings.stall_timeout_seconds >= MIN_REQUESTS
    }


def _start_counts(snapshot: ServiceSnapshot, memory: HealthMemory) -> Iterator[tuple[str, PendingSymptom]]:
    """Yield the reference count of starts, and its time, for each worker that was started more than once."""
    for host in snapshot.hosts:
        for worker in workers_since_launch(host):
            if worker.report is None or worker.report.starts <= 1:
                continue
            key = _Symptom(HealthVerdict.CRASHING, host.id, worker.slot, 0.0, 0.0).key
            entry = memory.pending_symptoms.get(key)
            starts = float(worker.report.starts)
            if entry is None:
                is_new = host.launched_at is not None and snapshot.now - host.launched_at < CRASH_LOOP_SECONDS
                entry = PendingSymptom(1.0 if is_new else starts, snapshot.now)
            elif not 0 <= snapshot.now - entry.since < CRASH_LOOP_SECONDS or starts < entry.value:
                entry = PendingSymptom(starts, snapshot.now)
            yield key, entry
    # Between two starts a worker has no registry item: keep its count.
    host_ids = {host.id for host in snapshot.hosts}
    worker_ids = {f"{w.instance}/{w.slot}" for host in snapshot.hosts for w in workers_since_launch(host)}
    for key, entry in memory.pending_symptoms.items():
        kind, _, worker_id = key.partition(":")
        is_missing = worker_id.rpartition("/")[0] in host_ids and worker_id not in worker_ids
        is_recent = 0 <= snapshot.now - entry.since < CRASH_LOOP_SECONDS
        if kind == HealthVerdict.CRASHING and is_missing and is_recent:
            yield key, entry


def _restarting_hosts(
    snapshot: ServiceSnapshot, pending: Mapping[str, PendingSymptom]
) -> Iterator[tuple[HostFinding, bool]]:
    """Yield a finding for each host with restarts since the reference, and whether it is a crash loop."""
    for host in snapshot.hosts:
        restarts: list[tuple[int, float, float]] = []
        for worker in workers_since_launch(host):
            entry = pending.get(f"{HealthVerdict.CRASHING}:{host.id}/{worker.slot}")
            if entry is not None and worker.report is not None and worker.report.starts > entry.value:
                restarts.append((worker.slot, worker.report.starts - entry.value, entry.since))
        if restarts and not host.exemption_reason:
            slots = tuple(slot for slot, _, _ in restarts)
            since = min(since for *_, since in restarts)
            finding = HostFinding(HealthVerdict.CRASHING, host.id, since, slots)
            yield finding, any(count >= CRASH_LOOP_STARTS for _, count, _ in restarts)


def _first_seen(snapshot: ServiceSnapshot, memory: HealthMemory) -> dict[str, float]:
    """Return when each version was first observed, by origin: running versions first, then others."""
    running = {_version_key(host, version) for host in snapshot.hosts for version in host.versions}
    first_seen = {**dict.fromkeys(running, snapshot.now), **memory.versions}
    order = sorted(first_seen, key=lambda key: (key not in running, -first_seen[key], key))
    return {key: first_seen[key] for key in order[:MAX_VERSIONS]}


def _newest_versions(
    snapshot: ServiceSnapshot, versions: Mapping[str, float]
) -> dict[str, tuple[str, float]]:
    """Return the newest running version and when it was first observed, by origin, where it is known."""
    running: dict[str, set[str]] = {}
    for host in snapshot.hosts:
        keys = {_version_key(host, version) for version in host.versions}
        running.setdefault(host.origin, set()).update(keys & versions.keys())
    newest: dict[str, tuple[str, float]] = {}
    for origin, keys in running.items():
        first_seen_at = max((versions[key] for key in keys), default=0.0)
        # Versions that were first observed at the same time cannot be ordered.
        if sum(versions[key] == first_seen_at for key in keys) == 1:
            newest[origin] = next(key for key in keys if versions[key] == first_seen_at), first_seen_at
    return newest


def _old_versions(
    host: WorkerHost, now: float, newest: Mapping[str, tuple[str, float]]
) -> Iterator[HostFinding]:
    version, first_seen_at = newest.get(host.origin, ("", now))
    if {_version_key(host, reported) for reported in host.versions} - {
        version
    } and now - first_seen_at >= OLD_VERSION_SECONDS:
        yield HostFinding(HealthVerdict.OLD_VERSION, host.id, first_seen_at)


def _version_key(host: WorkerHost, version: str) -> str:
    return f"{host.origin}:{version}"
