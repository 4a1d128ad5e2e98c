"""What follows from a look at a group: wishes, restarts, incidents, and what to remember."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from contracts.group.health_settings import NO_DIGEST, HealthSettings
from contracts.group.release_settings import Wanted
from contracts.group.replacement_requests import Wish
from lambdas.core.health.common import causes, held_at
from lambdas.core.health.incidents import OVER_SECONDS, follow, opened
from lambdas.core.health.memory import HealthMemory
from lambdas.core.health.model import Facts, HealthVerdict, HostFinding, Incident, Remedy, Restart, Sight
from lambdas.core.health.symptoms import look
from lambdas.core.health.treatment import treat
from lambdas.core.rollout.state import RolloutDemand
from lambdas.core.rollout.step import RolloutStep, step

_NO_DEMAND = RolloutDemand(0, 0)
_DAY = 86_400
_HOUR = 3_600


@dataclass(frozen=True, slots=True)
class HealthDecision:
    """One look's result.

    ``wishes`` are all that stand, ``restarts`` what is to be asked now; ``begun`` and ``over`` are incidents
    of which people are to be told now, ``standing`` all that there are. ``digest_due`` says that the daily
    message is. ``rollout`` is the next step of a roll-out; its restarts are its own.
    """

    wishes: tuple[Wish, ...]
    restarts: tuple[Restart, ...]
    findings: tuple[HostFinding, ...]
    begun: tuple[Incident, ...]
    over: tuple[Incident, ...]
    standing: tuple[Incident, ...]
    facts: Facts
    digest_due: bool
    memory: HealthMemory
    rollout: RolloutStep


def decide(
    sight: Sight,
    settings: HealthSettings,
    memory: HealthMemory,
    wanted: Wanted | None = None,
    demand: RolloutDemand = _NO_DEMAND,
) -> HealthDecision:
    """Return what follows. A second call with the memory of the first, at the same moment, begins nothing.

    ``wanted`` is the release that the workers are to run, None where nobody says; ``demand`` the target.
    """
    now = sight.now
    signs = look(sight, settings, memory)
    rolled = step(sight, signs.findings, settings, wanted, demand, memory.rollout)
    memory = replace(memory, watches=signs.watches, versions=signs.versions, rollout=rolled.memory)
    found = [c for c in causes(sight, signs) if c.where.removeprefix("version ") not in rolled.versions]
    # A cause that comes and goes is still there: nothing is begun before it is known to be over.
    lasting = [key for key, one in memory.incidents.items() if now - one.seen < OVER_SECONDS]
    held = held_at([*(cause.key for cause in found), *lasting])
    findings = [f for f in signs.findings if not _is_rolled(f, rolled)]
    treatment = treat(sight, findings, settings, memory, held)
    hosts = {host.id: host for host in sight.hosts}
    standing = {**opened(sight, found, treatment, settings, hosts), **rolled.standing}
    incidents, over = follow(memory, standing, now)
    memory = replace(
        memory,
        treated=treatment.treated,
        log=treatment.log,
        incidents=incidents,
        over=over,
    )
    wishes = tuple(
        Wish(host, int(one.at), one.why)
        for host, one in sorted(treatment.treated.items())
        if one.step is Remedy.REPLACE
    )
    return HealthDecision(
        wishes=wishes,
        restarts=treatment.restarts,
        findings=signs.findings,
        begun=tuple(Incident(key, one.since, one.what) for key, one in incidents.items() if not one.told),
        over=tuple(Incident(key, one.since, one.what) for key, one in over.items()),
        standing=tuple(Incident(key, one.since, one.what) for key, one in incidents.items()),
        facts=_facts(sight, memory),
        digest_due=_digest_due(settings, memory, now),
        memory=memory,
        rollout=rolled,
    )


def _is_rolled(finding: HostFinding, rolled: RolloutStep) -> bool:
    """Say whether what a host shows is the roll-out's to mend."""
    if finding.kind is HealthVerdict.VERSION:
        return rolled.is_under_way
    if finding.kind is HealthVerdict.CRASHING and finding.host in rolled.sent:
        return True
    return finding.host in rolled.spared


def told(memory: HealthMemory) -> HealthMemory:
    """Return the memory once people have been told of all that there was to tell."""
    incidents = {key: replace(one, told=True) for key, one in memory.incidents.items()}
    return replace(memory, incidents=incidents, over={})


def digested(memory: HealthMemory, now: float) -> HealthMemory:
    """Return the memory once the daily message is out."""
    return replace(memory, digest_day=int(now // _DAY))


def unasked(memory: HealthMemory, host: str) -> HealthMemory:
    """Return the memory for when a host could not be asked to restart: it is tried again."""
    return replace(memory, treated={h: one for h, one in memory.treated.items() if h != host})


def _digest_due(settings: HealthSettings, memory: HealthMemory, now: float) -> bool:
    is_late_enough = now % _DAY >= settings.digest * _HOUR
    return settings.digest != NO_DIGEST and is_late_enough and int(now // _DAY) > memory.digest_day


def _facts(sight: Sight, memory: HealthMemory) -> Facts:
    counts: Mapping[str, Counter[str]] = {"ready": Counter(), "draining": Counter(), "silent": Counter()}
    for host in sight.hosts:
        for worker in host.workers:
            state = worker.state if worker.is_fresh(sight.now) else "silent"
            if state in counts:
                counts[state][host.origin] += 1
    instances = [host for host in sight.hosts if not host.on_premises]
    steps = Counter(entry.step for entry in memory.log)
    return Facts(
        **{state: dict(counted) for state, counted in counts.items()},
        instances=len(instances),
        spot=sum(host.spot for host in instances),
        restarts=steps[Remedy.RESTART],
        replacements=steps[Remedy.REPLACE],
    )
