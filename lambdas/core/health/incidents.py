"""What needs a person: each incident is told once when it begins, and once when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from contracts import names
from contracts.group.health_settings import HealthSettings
from lambdas.core.capacity.memory import LONGEST_BOOT
from lambdas.core.health.common import REGISTRY, CommonCause
from lambdas.core.health.memory import MOST_INCIDENTS, HealthMemory, Open
from lambdas.core.health.model import FAMILY, HealthVerdict, HostFinding, Remedy, Sight, WorkerHost
from lambdas.core.health.treatment import BUDGET, VAIN, Treatment, most_at_once

OVER_SECONDS: Final = 900.0
"""So long an incident must not have been seen to be over: what comes and goes is one incident."""
UNANSWERED_SECONDS: Final = 3600.0
"""A wish that stands for so long is not carried out."""
MOST_NAMED: Final = 5

_SHOWS: Final = {
    "unheard": "send no heartbeats",
    "unfinished": "finish nothing, or leave their GPU idle, while requests wait or others finish some",
    "crashing": "start again and again",
    "xid": "have a GPU with a grave Xid error",
}
_SAYS: Final = {
    HealthVerdict.XID: "a GPU with a grave Xid error",
    HealthVerdict.SILENT: "no heartbeats",
    HealthVerdict.CRASHING: "workers that start again and again",
    HealthVerdict.MISSING: "fewer workers than it should have",
    HealthVerdict.STUCK: "workers that finish nothing while requests wait or others finish some",
    HealthVerdict.IDLE: "an idle GPU while requests wait",
    HealthVerdict.CLOCK: "a clock that is wrong",
    HealthVerdict.VERSION: "an old version of the worker",
}
_ADVICE: Final = {
    "unheard": "Look at the registry's table, at the network, and at whether instances boot.",
    "unfinished": "Look at the queue's broker and at what the workers need beside it.",
    "crashing": "Look at the workers' log, and go back to the version before.",
    "xid": "Look at the driver and at what was deployed last.",
}


def opened(
    sight: Sight,
    causes: Iterable[CommonCause],
    treatment: Treatment,
    settings: HealthSettings,
    hosts: Mapping[str, WorkerHost],
) -> dict[str, str]:
    """Return what stands now that needs a person: by its key, in plain words."""
    found = {cause.key: _of_cause(cause) for cause in causes}
    families = {cause.family for cause in causes}
    found |= dict(_alone(treatment.only_told, hosts, families))
    if VAIN in treatment.held:
        found[VAIN] = (
            "instances fall ill as soon as they are there; the health checker replaces no more of them, "
            "since the next ones would be no better. Look at the image, the AMI and the boot log."
        )
    if BUDGET in treatment.held:
        found[BUDGET] = (
            "more instances are ill than may be restarted or replaced: "
            f"{most_at_once(settings, len(hosts))} of {len(hosts)} at the same time, and twice as many in an "
            "hour (health.mostAtOnce). The rest waits."
        )
    waiting = [
        host
        for host, one in treatment.treated.items()
        if one.step is Remedy.REPLACE and sight.now - one.at >= UNANSWERED_SECONDS
    ]
    if waiting:
        found["unanswered"] = f"{_named(waiting)} should have been replaced an hour ago. Is the group paused?"
    return found


def follow(
    memory: HealthMemory, standing: Mapping[str, str], now: float
) -> tuple[dict[str, Open], dict[str, Open]]:
    """Return the incidents that stand and those that are over, of which people must still be told."""
    incidents: dict[str, Open] = {}
    over = dict(memory.over)
    for key, one in memory.incidents.items():
        if key in standing:
            incidents[key] = Open(one.since, now, one.what, one.told)
        elif 0 <= now - one.seen < OVER_SECONDS:
            incidents[key] = one
        elif one.told:
            over[key] = one
    for key, what in standing.items():
        if key not in incidents and len(incidents) < MOST_INCIDENTS:
            over.pop(key, None)
            incidents[key] = Open(now, now, what)
    return incidents, dict(sorted(over.items())[:MOST_INCIDENTS])


def _alone(
    findings: Iterable[HostFinding], hosts: Mapping[str, WorkerHost], families: set[str]
) -> Iterator[tuple[str, str]]:
    by_kind: dict[tuple[HealthVerdict, str], list[str]] = {}
    for finding in findings:
        if FAMILY.get(finding.kind) not in families:
            place = finding.kind, hosts[finding.host].origin
            by_kind.setdefault(place, []).append(finding.host)
    for (kind, origin), ill in by_kind.items():
        yield f"{kind}/{origin}", f"{_named(ill)}: {_SAYS[kind]}. Nothing is done about that but by people."


def _of_cause(cause: CommonCause) -> str:
    if cause.where == REGISTRY:
        return (
            "no worker of the whole stack is heard: that is the registry or the network, not the workers. "
            "Nothing is restarted or replaced."
        )
    of = {names.ORIGIN_AWS: "instances", names.ORIGIN_ON_PREMISES: "machines on premises"}.get(
        cause.where, f"with {cause.where}"
    )
    return (
        f"{cause.hosts} of {cause.population} {of} {_SHOWS[cause.family]}: one cause, not each of them. "
        f"The health checker restarts and replaces nothing while it lasts.{_still(cause)} "
        f"{_ADVICE[cause.family]}"
    )


def _still(cause: CommonCause) -> str:
    """Say what the controller does all the same (``Situation.mute``): it counts its group, not versions."""
    if cause.family != FAMILY[HealthVerdict.SILENT] or cause.where == names.ORIGIN_ON_PREMISES:
        return ""
    return (
        f" The controller replaces an instance that is not heard for {LONGEST_BOOT / 60:.0f} minutes while "
        "half of its group or more are: pause the group if they serve."
    )


def _named(hosts: list[str]) -> str:
    named = sorted(hosts)
    more = len(named) - MOST_NAMED
    return ", ".join(named[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
