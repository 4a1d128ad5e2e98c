"""From what workers tell to findings: a suspicion must stand, by our own clock, before it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.registry.item import SKEW_SECONDS, Worker
from lambdas.core.health.fair_share import FEWEST_ENDED, WorkRate
from lambdas.core.health.memory import MOST_VERSIONS, MOST_WATCHES, HealthMemory, Watch
from lambdas.core.health.model import (
    FAMILY,
    HealthVerdict,
    HostFinding,
    Sight,
    WorkerHost,
)

SILENT_SECONDS: Final = 120.0
"""From the first suspicion on."""
CLOCK_SECONDS: Final = 300.0
MISSING_SECONDS: Final = 300.0
"""A worker that is started anew is away for a while: the agent waits up to 300 s between two starts."""
CRASHES: Final = 3
"""So many starts more within `CRASH_SECONDS` are no accident."""
CRASH_SECONDS: Final = 1800.0
EXPLAINED: Final = frozenset({HealthVerdict.STUCK, HealthVerdict.IDLE})
"""What follows from starting anew all the time."""
QUIET_SECONDS: Final = 120.0
"""A worker that has told no number for so long may be stuck."""
ROLL_OUT_SECONDS: Final = 7200.0
"""So long after a version was first seen, another one is an old one."""


@dataclass(frozen=True, slots=True)
class HealthSigns:
    """What stands (``findings``), which hosts are suspected by family of kinds, and what to remember."""

    findings: tuple[HostFinding, ...]
    suspects: Mapping[str, frozenset[str]]
    watches: Mapping[str, Watch]
    versions: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Symptom:
    """A suspicion about a worker (or with slot -1 a host) that stands while ``value`` is the same."""

    kind: HealthVerdict
    host: str
    slot: int
    value: float
    lasts: float
    since: float | None = None

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.host}/{self.slot}"


def look(sight: Sight, settings: HealthSettings, memory: HealthMemory) -> HealthSigns:
    """Return what is wrong in a group now."""
    versions = _versions(sight, memory)
    newest = _newest(sight, versions)
    watches = dict(_crashes(sight, memory))
    crashing = list(_crashing(sight, watches))
    anew = {(finding.host, slot) for finding, _ in crashing for slot in finding.slots}
    found: dict[tuple[HealthVerdict, str], HostFinding] = {}
    suspects: dict[str, set[str]] = {}
    busy = _where_each_has_some(sight, settings)
    for host in sight.hosts:
        if host.spared:
            continue
        for symptom in _symptoms(host, sight, settings, memory, had_some=host.origin in busy):
            if symptom.kind in EXPLAINED and (host.id, symptom.slot) in anew:
                continue
            if symptom.kind in FAMILY:
                suspects.setdefault(FAMILY[symptom.kind], set()).add(host.id)
            watch = _watched(symptom, memory, sight.now)
            watches[symptom.key] = watch
            if sight.now - watch.since >= symptom.lasts:
                _add(found, symptom, watch.since)
        for finding in _old(host, sight.now, newest):
            found[finding.kind, host.id] = finding
    for finding, often in crashing:
        suspects.setdefault(FAMILY[HealthVerdict.CRASHING], set()).add(finding.host)
        if often:
            found[finding.kind, finding.host] = finding
    return HealthSigns(
        tuple(found.values()), {f: frozenset(h) for f, h in suspects.items()}, _bounded(watches), versions
    )


def _bounded(watches: Mapping[str, Watch]) -> dict[str, Watch]:
    """Keep the oldest; counts of starts, which a healthy worker may have too, go first."""
    order = sorted(watches, key=lambda key: (key.startswith(HealthVerdict.CRASHING), watches[key].since, key))
    return {key: watches[key] for key in order[:MOST_WATCHES]}


def _add(found: dict[tuple[HealthVerdict, str], HostFinding], symptom: _Symptom, since: float) -> None:
    slots = () if symptom.slot < 0 else (symptom.slot,)
    before = found.get((symptom.kind, symptom.host))
    if before is not None:
        slots, since = (*before.slots, *slots), min(since, before.since)
    found[symptom.kind, symptom.host] = HostFinding(symptom.kind, symptom.host, since, slots)


def _watched(symptom: _Symptom, memory: HealthMemory, now: float) -> Watch:
    watch = memory.watches.get(symptom.key)
    stands = watch is not None and watch.value == symptom.value and watch.since <= now
    since = watch.since if watch is not None and stands else now
    return Watch(symptom.value, since if symptom.since is None else max(since, min(now, symptom.since)))


def _symptoms(
    host: WorkerHost, sight: Sight, settings: HealthSettings, memory: HealthMemory, *, had_some: bool
) -> Iterator[_Symptom]:
    present = of_this_start(host)
    for worker in present:
        yield from _of_worker(host, worker, sight, settings, memory, had_some=had_some)
    if host.launched_at is None or host.unclear or len(present) >= host.expected:
        return
    grace = max(float(settings.grace_seconds), 2 * sight.boot_seconds)
    if sight.now - host.launched_at >= grace:
        yield _Symptom(HealthVerdict.MISSING, host.id, -1, 0.0, max(MISSING_SECONDS, sight.boot_seconds))


def of_this_start(host: WorkerHost) -> tuple[Worker, ...]:
    """Return a host's workers without rows of its service before a warm pool took it back."""
    if host.launched_at is None:
        return host.workers
    return tuple(w for w in host.workers if w.heartbeat > host.launched_at - SKEW_SECONDS)


def _of_worker(
    host: WorkerHost,
    worker: Worker,
    sight: Sight,
    settings: HealthSettings,
    memory: HealthMemory,
    *,
    had_some: bool,
) -> Iterator[_Symptom]:
    pulse, now, slot = worker.pulse, sight.now, worker.slot
    if not worker.is_fresh(now):
        silent = _Symptom(HealthVerdict.SILENT, host.id, slot, worker.heartbeat, SILENT_SECONDS)
        watch = memory.watches.get(silent.key)
        if watch is None or watch.value == worker.heartbeat:
            yield silent
            return
        # It beats, and its clock is wrong: only its own times are.
        yield _Symptom(HealthVerdict.CLOCK, host.id, slot, 0.0, CLOCK_SECONDS)
        yield silent
    if pulse is None or worker.state != "ready":
        return
    if pulse.xid:
        yield _Symptom(HealthVerdict.XID, host.id, slot, float(pulse.xid), 0.0)
    quiet = pulse.rate == 0 or now - pulse.at > QUIET_SECONDS
    started = worker.since if worker.since <= now else None
    if pulse.at and quiet and (sight.requests_wait or had_some):
        yield _Symptom(HealthVerdict.STUCK, host.id, slot, float(pulse.done), settings.stuck_seconds, started)
    if pulse.gpu_use == 0 and sight.requests_wait:
        yield _Symptom(HealthVerdict.IDLE, host.id, slot, 0.0, settings.stuck_seconds, started)


def _where_each_has_some(sight: Sight, settings: HealthSettings) -> set[str]:
    """Return at which origins workers end so many that one which ends none does not lack requests."""
    hosts: dict[str, list[WorkerHost]] = {}
    for host in sight.hosts:
        if not host.spared:
            hosts.setdefault(host.origin, []).append(host)
    return {
        o
        for o, its in hosts.items()
        if WorkRate.of(its, sight.now).each * settings.stuck_seconds >= FEWEST_ENDED
    }


def _crashes(sight: Sight, memory: HealthMemory) -> Iterator[tuple[str, Watch]]:
    """Yield, of each worker that was started more than once, the starts that are counted from, and when."""
    for host in sight.hosts:
        for worker in of_this_start(host):
            if worker.pulse is None or worker.pulse.starts <= 1:
                continue
            key = _Symptom(HealthVerdict.CRASHING, host.id, worker.slot, 0.0, 0.0).key
            watch = memory.watches.get(key)
            starts = float(worker.pulse.starts)
            if watch is None:
                young = host.launched_at is not None and sight.now - host.launched_at < CRASH_SECONDS
                watch = Watch(1.0 if young else starts, sight.now)
            elif not 0 <= sight.now - watch.since < CRASH_SECONDS or starts < watch.value:
                watch = Watch(starts, sight.now)
            yield key, watch
    # Between two starts a worker has no row: what was counted stays counted.
    seen = {host.id for host in sight.hosts}
    rows = {f"{w.instance}/{w.slot}" for host in sight.hosts for w in of_this_start(host)}
    for key, watch in memory.watches.items():
        kind, _, place = key.partition(":")
        away = place.rpartition("/")[0] in seen and place not in rows
        if kind == HealthVerdict.CRASHING and away and 0 <= sight.now - watch.since < CRASH_SECONDS:
            yield key, watch


def _crashing(sight: Sight, watches: Mapping[str, Watch]) -> Iterator[tuple[HostFinding, bool]]:
    """Yield where workers have started anew since they are watched, and whether one did so too often."""
    for host in sight.hosts:
        anew: list[tuple[int, float, float]] = []
        for worker in of_this_start(host):
            watch = watches.get(f"{HealthVerdict.CRASHING}:{host.id}/{worker.slot}")
            if watch is not None and worker.pulse is not None and worker.pulse.starts > watch.value:
                anew.append((worker.slot, worker.pulse.starts - watch.value, watch.since))
        if anew and not host.spared:
            slots = tuple(slot for slot, _, _ in anew)
            finding = HostFinding(HealthVerdict.CRASHING, host.id, min(since for *_, since in anew), slots)
            yield finding, any(times >= CRASHES for _, times, _ in anew)


def _versions(sight: Sight, memory: HealthMemory) -> dict[str, float]:
    """Return when each version was first seen, by origin: of those that run, and the newest of the others."""
    running = {_version(host, version) for host in sight.hosts for version in host.versions}
    found = {**dict.fromkeys(running, sight.now), **memory.versions}
    order = sorted(found, key=lambda key: (key not in running, -found[key], key))
    return {key: found[key] for key in order[:MOST_VERSIONS]}


def _newest(sight: Sight, versions: Mapping[str, float]) -> dict[str, tuple[str, float]]:
    """Return the newest version that runs, and since when it does, by origin; none where nobody can say."""
    running: dict[str, set[str]] = {}
    for host in sight.hosts:
        keys = {_version(host, version) for version in host.versions}
        running.setdefault(host.origin, set()).update(keys & versions.keys())
    newest: dict[str, tuple[str, float]] = {}
    for origin, keys in running.items():
        at = max((versions[key] for key in keys), default=0.0)
        # Several that were there at the first look: which of them is new, nobody knows.
        if sum(versions[key] == at for key in keys) == 1:
            newest[origin] = next(key for key in keys if versions[key] == at), at
    return newest


def _old(host: WorkerHost, now: float, newest: Mapping[str, tuple[str, float]]) -> Iterator[HostFinding]:
    version, at = newest.get(host.origin, ("", now))
    if {_version(host, one) for one in host.versions} - {version} and now - at >= ROLL_OUT_SECONDS:
        yield HostFinding(HealthVerdict.VERSION, host.id, at)


def _version(host: WorkerHost, version: str) -> str:
    return f"{host.origin}:{version}"
