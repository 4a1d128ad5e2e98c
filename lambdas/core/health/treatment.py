"""What is done about findings: restart, then replace, then only tell, and never more than the budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.group.replacement_requests import MOST
from lambdas.core.health.memory import MOST_LOGGED, HealthMemory, Logged, Treated
from lambdas.core.health.model import (
    ONLY_TOLD,
    RESTARTABLE,
    HealthVerdict,
    HostFinding,
    Remedy,
    Restart,
    Sight,
    WorkerHost,
)
from lambdas.core.health.symptoms import MISSING_SECONDS

RESTART_SECONDS: Final = 900.0
"""A worker has this long to end its requests, to start and to report; then the restart has not helped."""
ESCALATE_SECONDS: Final = 6 * 3600.0
"""Who falls ill again so soon after a restart is replaced."""
HOUR: Final = 3600.0
DAY: Final = 86_400.0
YOUNG_SECONDS: Final = 3600.0
"""An instance that falls ill so soon after its grace was hardly ever well."""
MOST_IN_VAIN: Final = 3
"""So many young instances are replaced in a day, or a fiftieth of all; then something else is wrong."""
VAIN: Final = "in-vain"
BUDGET: Final = "budget"


@dataclass(frozen=True, slots=True)
class Treatment:
    """What is to be done now, and remembered of it.

    ``held`` says why not all was done that should be: `VAIN`, `BUDGET`. ``only_told`` are findings that
    nothing can be done about, but by people.
    """

    restarts: tuple[Restart, ...]
    treated: Mapping[str, Treated]
    log: tuple[Logged, ...]
    held: frozenset[str]
    only_told: tuple[HostFinding, ...]


def most_at_once(settings: HealthSettings, hosts: int) -> int:
    """Return how many hosts may be under treatment at the same time."""
    if settings.most_at_once == 0:
        return 0
    return min(MOST, max(1, hosts * settings.most_at_once // 100))


def treat(
    sight: Sight,
    findings: Iterable[HostFinding],
    settings: HealthSettings,
    memory: HealthMemory,
    held_at: frozenset[str],
) -> Treatment:
    """Decide about findings; at the origins ``held_at`` nothing is begun, and nobody is wished replaced."""
    now = sight.now
    hosts = {host.id: host for host in sight.hosts}
    worst = _worst(findings)
    log = [entry for entry in memory.log if 0 <= now - entry.at < DAY]
    treated = _standing(memory, hosts, worst, now, held_at)
    at_once = most_at_once(settings, len(hosts))
    begun = sum(now - entry.at < HOUR for entry in log)
    under = sum(_is_under(one, now) for one in treated.values())
    grace = max(float(settings.grace_seconds), 2 * sight.boot_seconds)
    young, well = grace + YOUNG_SECONDS, _newest_well(sight, worst, grace)
    restarts: list[Restart] = []
    held: set[str] = set()
    told: list[HostFinding] = []
    order = sorted(worst.values(), key=lambda f: (list(HealthVerdict).index(f.kind), f.since, f.host))
    for finding in order:
        host, before = hosts[finding.host], treated.get(finding.host)
        step = _next(finding, host, before, now)
        if step is None:
            if not (before is not None and _is_under(before, now)):
                told.append(finding)
            continue
        if host.origin in held_at or not sight.may_act:
            continue
        if step is Remedy.REPLACE and _vain(log, memory, well) >= max(MOST_IN_VAIN, len(hosts) // 50):
            held.add(VAIN)
            continue
        if under >= at_once or begun >= 2 * at_once:
            held.add(BUDGET)
            continue
        if not (before is not None and _is_under(before, now)):
            under += 1  # who goes on from a restart is counted already
        begun += 1
        treated[host.id] = Treated(step, now, finding.kind)
        log.append(Logged(now, step, step is Remedy.REPLACE and now - (host.launched_at or 0) < young))
        if step is Remedy.RESTART:
            restarts += _restarts(host, finding)
    return Treatment(tuple(restarts), treated, tuple(log[-MOST_LOGGED:]), frozenset(held), tuple(told))


def _restarts(host: WorkerHost, finding: HostFinding) -> list[Restart]:
    return [Restart(w.group, w.instance, w.slot) for w in host.workers if w.slot in finding.slots]


def _worst(findings: Iterable[HostFinding]) -> dict[str, HostFinding]:
    """Return the gravest finding of each host."""
    worst: dict[str, HostFinding] = {}
    for finding in sorted(findings, key=lambda f: list(HealthVerdict).index(f.kind)):
        worst.setdefault(finding.host, finding)
    return worst


def _standing(
    memory: HealthMemory,
    hosts: Mapping[str, WorkerHost],
    worst: Mapping[str, HostFinding],
    now: float,
    held_at: frozenset[str],
) -> dict[str, Treated]:
    """Return what was done and still counts: who recovered, drains or is gone is wished for no longer."""
    kept: dict[str, Treated] = {}
    for host_id, one in memory.treated.items():
        host = hosts.get(host_id)
        if host is None or not 0 <= now - one.at < DAY:
            continue
        if one.step is Remedy.REPLACE:
            ill = host_id in worst and worst[host_id].kind not in ONLY_TOLD
            if ill and host.origin not in held_at:
                kept[host_id] = one
        elif now - one.at < ESCALATE_SECONDS:
            kept[host_id] = one
    return kept


def _is_under(treated: Treated, now: float) -> bool:
    return treated.step is Remedy.REPLACE or now - treated.at < RESTART_SECONDS


def _next(finding: HostFinding, host: WorkerHost, before: Treated | None, now: float) -> Remedy | None:
    """Return the next step about a host; None where one is under way, or nothing can be done."""
    if finding.kind in ONLY_TOLD or (before is not None and before.step is Remedy.REPLACE):
        return None
    if before is not None and _is_under(before, now) and finding.kind is not HealthVerdict.XID:
        return None  # it is away, and starts
    if finding.kind in RESTARTABLE and before is None:
        return Remedy.RESTART
    return None if host.on_premises else Remedy.REPLACE


def _newest_well(sight: Sight, worst: Mapping[str, HostFinding], grace: float) -> float:
    """Return when the newest instance was launched that is past its grace, and well."""
    launches = [h.launched_at for h in sight.hosts if h.launched_at is not None and h.id not in worst]
    return max((at for at in launches if sight.now - at > grace + MISSING_SECONDS), default=0.0)


def _vain(log: Iterable[Logged], memory: HealthMemory, well: float) -> int:
    """Return how many young instances were replaced since the newest version came, and since one was well."""
    since = max(well, *memory.versions.values(), 0.0)
    return sum(entry.young and entry.at >= since for entry in log)
