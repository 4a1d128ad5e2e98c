"""The next step of a roll-out, a look at a time: one host tries a release, then batches, then it is stable.

No host that serves is asked to start anew unless nine tenths of the target's workers serve without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import Wanted
from contracts.group.rolling import Rolling
from lambdas.core.health.model import HealthVerdict, HostFinding, Restart, Sight, WorkerHost
from lambdas.core.health.symptoms import CRASH_SECONDS
from lambdas.core.rollout.memory import MOST_LEFT, Rollout, StartAsked, TrialRun
from lambdas.core.rollout.state import Course, RolloutDemand, ended, started, tells, workers
from lambdas.core.rollout.verdict import is_proved, judge

SAID_EVERY: Final = 1800
"""Seconds after which what the controller is asked is said anew."""
STANDSTILL_SECONDS: Final = 3600.0
"""So long without a step, and people hear of it."""
WAITS: Final = "roll-out/waits"
TAKEN_BACK: Final = "roll-back"
OWN: Final = frozenset({HealthVerdict.XID, HealthVerdict.SILENT})
"""What is a host's own fault, whatever it runs."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """What follows from a look.

    ``releases`` is the registry's row as it should be, ``rolling`` what the controller is asked. ``spared``
    are hosts that the health checker lets alone meanwhile, ``sent`` those of which starts are remembered that
    were another release's, ``versions`` those whose common troubles are the roll-out's. ``standing`` is what
    people must know, by incident.
    """

    memory: Rollout
    releases: WorkerReleases | None = None
    rolling: Rolling | None = None
    restarts: tuple[Restart, ...] = ()
    spared: frozenset[str] = frozenset()
    sent: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    standing: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_under_way(self) -> bool:
        """Whether several versions are as it should be."""
        return self.rolling is not None


def step(
    sight: Sight,
    findings: Iterable[HostFinding],
    settings: HealthSettings,
    wanted: Wanted | None,
    demand: RolloutDemand,
    memory: Rollout,
) -> RolloutStep:
    """Return the next step; where nothing is ``wanted`` there is none."""
    if wanted is None:
        return RolloutStep(memory)
    findings = tuple(f for f in findings if not _is_of_before(f, memory, sight.now))
    memory = _towards(wanted.release, settings, memory, sight.now)
    course = _seen(Course.of(sight, findings, settings, demand, memory))
    may_step = sight.may_act and not sight.registry_silent
    asked: list[WorkerHost] = []
    if may_step:
        judgement = judge(course, findings) if course.trial else None
        if judgement is not None and judgement.bad:
            course = _taken_back(course, judgement.bad)
        elif judgement is not None and _is_complete(course) and _is_shown(course):
            course = _promoted(course)
        course, asked = _back(course)
        if judgement is not None and course.trial and not judgement.in_doubt:
            course, more = _forward(course)
            asked += more
    memory = course.memory
    away = frozenset(h.id for h in course.hosts if course.is_on_the_way(h))
    spared = away | (frozenset() if course.proven else frozenset(h.id for h in course.unproven))
    is_own = {f.host for f in findings if f.kind in OWN}
    sent = frozenset(host for host, one in memory.asked.items() if sight.now - one.at < CRASH_SECONDS)
    return RolloutStep(
        memory=memory,
        releases=_releases(course),
        rolling=_rolling(course, away),
        restarts=tuple(Restart(w.group, w.instance, w.slot) for host in asked for w in host.workers),
        spared=spared - is_own,
        sent=sent,
        versions=frozenset({course.trial, memory.refused, *memory.left} - {""}),
        standing=_standing(course, wanted),
    )


def _is_of_before(finding: HostFinding, memory: Rollout, now: float) -> bool:
    """Say whether starts are told of a host that may have been those of another release: see `verdict`."""
    asked = memory.asked.get(finding.host)
    return finding.kind is HealthVerdict.CRASHING and asked is not None and now - asked.at < CRASH_SECONDS


def unasked(memory: Rollout, hosts: Iterable[str]) -> Rollout:
    """Return the memory for when hosts could not be asked: it is tried again."""
    gone = set(hosts)
    return replace(memory, asked={host: one for host, one in memory.asked.items() if host not in gone})


def _towards(wanted: WorkerRelease, settings: HealthSettings, memory: Rollout, now: float) -> Rollout:
    """Begin what the stack file asks for, and give up what it no longer does."""
    if memory.refused and wanted.version != memory.refused:
        memory = replace(memory, refused="", why="")
    stable = memory.stable
    if stable is None or settings.most_at_once == 0 or bool(stable.image) != bool(wanted.image):
        # Nothing is known to be better, or no worker may be started anew: whoever is new begins with it. A
        # container in the place of a process, or the reverse, comes with new instances only.
        return replace(memory, stable=wanted, trial=None, proven={}, runs={}, left=())
    if wanted.version in (memory.refused, memory.trial.version if memory.trial else ""):
        return memory
    if memory.trial is not None:
        memory = _left(memory)
    if wanted.version == stable.version:
        return replace(memory, stable=wanted)
    left = tuple(version for version in memory.left if version != wanted.version)
    return replace(memory, trial=wanted, left=left, moved=now, runs={})


def _left(memory: Rollout) -> Rollout:
    """Give the trial up: its workers go back."""
    if memory.trial is None:
        return memory
    left = (*(v for v in memory.left if v != memory.trial.version), memory.trial.version)[-MOST_LEFT:]
    return replace(memory, trial=None, left=left, runs={})


def _taken_back(course: Course, why: str) -> Course:
    refused, now = course.trial, course.sight.now
    return replace(course, memory=replace(_left(course.memory), refused=refused, why=why, moved=now))


def _promoted(course: Course) -> Course:
    memory = replace(course.memory, stable=course.memory.trial, trial=None, proven={}, runs={})
    return replace(course, memory=memory)


def _is_complete(course: Course) -> bool:
    return bool(course.proven) and all(host.id in course.proven for host in course.hosts)


def _is_shown(course: Course) -> bool:
    """Say whether a request has gone well with the trial, where workers tell: until then it can go back."""
    done, failed = ended(course.hosts)
    return done > failed or not any(tells(host) for host in course.hosts)


def _seen(course: Course) -> Course:
    """Note since when hosts run the trial, and who has proved it; forget who is gone or is taken."""
    memory, now = course.memory, course.sight.now
    ids = {host.id for host in course.hosts}
    runs: dict[str, TrialRun] = {}
    for host in course.hosts:
        before = memory.runs.get(host.id)
        if course.trial in host.versions:
            starts = started(host)
            whole = course.runs(host, course.trial) and before is not None and before.starts == starts
            runs[host.id] = (
                before if before and whole else TrialRun(now, starts, before.first if before else starts)
            )
        elif before is not None and course.trial:
            runs[host.id] = replace(before, since=now)  # away between two starts
    memory = replace(
        memory,
        asked={host: one for host, one in memory.asked.items() if host in ids},
        runs=runs,
        proven={host: version for host, version in memory.proven.items() if host in ids},
    )
    course = replace(course, memory=memory)
    new = {host.id: course.trial for host in course.unproven if is_proved(course, host)}
    if not new:
        return course
    return replace(course, memory=replace(memory, proven={**memory.proven, **new}, moved=now))


def _back(course: Course) -> tuple[Course, list[WorkerHost]]:
    """Ask hosts with a version that was given up to go back: the ill at once, the others in batches."""
    stable = course.memory.stable
    lost = _lost(course)
    if stable is None or not lost:
        return course, []
    return _ask(course, lost, stable.version, len(lost))


def _lost(course: Course) -> list[WorkerHost]:
    """Return who runs a version that was given up, or was sent to one, and was not called back yet."""
    stable, left = course.memory.stable, course.memory.left
    found: list[WorkerHost] = []
    for host in course.hosts:
        asked = course.memory.asked.get(host.id)
        version = asked.version if asked is not None else ""
        is_called = stable is not None and version == stable.version
        if not is_called and (version in left or not host.versions.isdisjoint(left)):
            found.append(host)
    return found


def _forward(course: Course) -> tuple[Course, list[WorkerHost]]:
    """Ask more hosts to try the trial, as far as a batch goes; the oldest first, who does not serve last.

    Each has worked before: of one that has just come up nobody could say what the release does to it.
    """
    placed = {host.id for host in course.placed}
    rest = [h for h in course.hosts if h.id not in placed and not course.is_on_the_way(h) and h.workers]
    is_proven = bool(course.proven)
    rest = [h for h in rest if course.has_worked(h) or (is_proven and not course.is_up(h))]
    rest.sort(key=lambda h: (not course.is_up(h), h.launched_at or 0.0, h.id))
    return _ask(course, rest, course.trial, course.batch - len(course.unproven))


def _ask(
    course: Course, hosts: Iterable[WorkerHost], version: str, most: int
) -> tuple[Course, list[WorkerHost]]:
    """Ask at most so many hosts to start from a version, each once, while enough others serve."""
    serving, under = course.serving, sum(course.is_on_the_way(h) for h in course.hosts)
    asked: list[WorkerHost] = []
    known = dict(course.memory.asked)
    proven = dict(course.memory.proven)
    for host in hosts:
        before = known.get(host.id)
        if len(asked) >= most:
            break
        if before is not None and before.version == version:
            continue
        if course.may_serve(host):
            counted = workers(host) if course.serves(host) else 0
            if serving - counted < course.demand.least or under + len(asked) >= course.batch:
                continue
            serving -= counted
        known[host.id] = StartAsked(version, course.sight.now)
        proven.pop(host.id, None)
        asked.append(host)
    if not asked:
        return course, []
    memory = replace(course.memory, asked=known, proven=proven, moved=course.sight.now)
    return replace(course, memory=memory), asked


def _releases(course: Course) -> WorkerReleases | None:
    memory = course.memory
    if memory.stable is None:
        return None
    mostly = 2 * len(course.proven) > len(course.hosts)
    on = frozenset(host.id for host in course.placed)
    return WorkerReleases(memory.stable, memory.trial, on, bool(memory.trial) and mostly)


def _rolling(course: Course, away: frozenset[str]) -> Rolling | None:
    """Return what the controller is asked: slots for a batch, while there is somebody left to ask."""
    asked = course.memory.asked
    is_left = len(course.placed) < len(course.hosts) or any(h.id in asked for h in course.unproven)
    if not ((course.trial and is_left) or away or _lost(course)):
        return None
    most = max((workers(host) for host in course.hosts), default=0)
    wanted = course.batch * -(-most // course.demand.per_slot)
    surge = max(0, min(wanted, course.demand.maximum - course.demand.target))
    said = int(course.sight.now // SAID_EVERY * SAID_EVERY)
    return Rolling(said, surge, tuple(sorted(away)))


def _standing(course: Course, wanted: Wanted) -> dict[str, str]:
    memory, version = course.memory, wanted.release.version
    if memory.refused == version and memory.stable is not None:
        return {
            f"{TAKEN_BACK}/{version}": f"version {version} of the workers is taken back: {memory.why}. They "
            f"go back to {memory.stable.version}. It is not tried again until the stack file has named "
            "another; look at the workers' log."
        }
    if (
        course.trial
        and not _is_complete(course)
        and course.sight.now - memory.moved >= STANDSTILL_SECONDS + course.patience
    ):
        return {
            WAITS: f"version {version} of the workers makes no way: {len(course.proven)} of "
            f"{len(course.hosts)} instances have it, {course.serving} workers serve, and "
            f"{course.demand.least} must while one starts anew. Does capacity.max leave room for one more?"
        }
    return {}
