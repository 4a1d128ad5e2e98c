"""Is a release any good? By what is wrong with the hosts that try it, and not with the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lambdas.core.health.fair_share import FEWEST_ENDED
from lambdas.core.health.model import FAMILY, HealthVerdict, HostFinding, WorkerHost
from lambdas.core.health.symptoms import CRASHES
from lambdas.core.rollout.state import Course, ended, started, tells

OF_A_RELEASE: Final = frozenset(
    {HealthVerdict.CRASHING, HealthVerdict.MISSING, HealthVerdict.STUCK, HealthVerdict.IDLE}
)
"""What a release may be to blame for: an Xid, silence and a wrong clock are a host's own."""
LATE: Final = "late"
FAILING: Final = "failing"
FAILED: Final = 0.5
"""A larger share that fails is too much, unless half as large a share fails without the release, too."""
PROVED_SECONDS: Final = 300.0
"""So long a host must be well with the release, once it has ended requests."""
_SAYS: Final = {
    "crashing": "starts again and again",
    "unheard": "does not show its workers",
    "unfinished": "finishes nothing while requests wait",
    LATE: "was not there in time",
    FAILING: "fails most requests",
}


@dataclass(frozen=True, slots=True)
class ReleaseVerdict:
    """``bad`` says in words why a release is none; ``in_doubt``: nothing more is begun with it now."""

    bad: str = ""
    in_doubt: bool = False


def judge(course: Course, findings: Iterable[HostFinding]) -> ReleaseVerdict:
    """Return what is to be thought of the trial.

    It is bad where half of those that try it show what a release may be to blame for. Where more than half
    of the others show the same, nobody can say, and it is waited.
    """
    placed = course.placed
    ids = {host.id for host in placed}
    shown: dict[str, set[str]] = {}
    for finding in findings:
        if finding.kind in OF_A_RELEASE:
            shown.setdefault(FAMILY[finding.kind], set()).add(finding.host)
    others = [host for host in course.hosts if host.id not in ids]
    elsewhere = {f for f, hosts in shown.items() if 2 * sum(h.id in hosts for h in others) > len(others) > 0}
    away = {host.id for host in placed if course.is_on_the_way(host)}
    found = {f: (hosts & ids) - (away if f == "unheard" else set()) for f, hosts in shown.items()}
    found["unfinished"] = found.get("unfinished", set()) | {
        h.id for h in course.unproven if _idles(course, h)
    }
    found["crashing"] = {host.id for host in placed if _crashes(course, host, found.get("crashing", set()))}
    found[LATE] = {host.id for host in course.unproven if _is_late(course, host)}
    found[FAILING] = ids if _fails(course, placed, others) else set()
    ill = {f: hosts for f, hosts in found.items() if hosts and f not in elsewhere}
    blamed = set().union(*ill.values())
    if blamed and 2 * len(blamed) >= len(placed):
        worst = max(ill, key=lambda family: (len(ill[family]), family))
        return ReleaseVerdict(
            f"{len(blamed)} of {len(placed)} instances with it are ill: each {_SAYS[worst]}"
        )
    return ReleaseVerdict(in_doubt=bool(blamed or any(found.get(family) for family in elsewhere)))


def is_proved(course: Course, host: WorkerHost) -> bool:
    """Say whether a host has worked with the trial for long enough.

    One that has ended no request must be there so long that it would be known as stuck. If it tells what it
    ends it is not believed while requests wait, nor where others end so many that it must have had one, nor
    where all that it ended failed, however few they were.
    """
    runs = course.memory.runs.get(host.id)
    if runs is None or host.id in course.ill or not course.runs(host, course.trial):
        return False
    done, failed = ended([host])
    good = done - failed
    age = course.sight.now - runs.since
    had_one = course.sight.requests_wait or course.fair_rate(host) * age >= 1
    if good == 0 and tells(host) and (had_one or done > 0):
        return False
    return age >= (PROVED_SECONDS if good > 0 else course.settings.stuck_seconds + PROVED_SECONDS)


def _crashes(course: Course, host: WorkerHost, known: set[str]) -> bool:
    """Say whether workers start again and again since they do so from the trial, not since before."""
    if host.id in known:
        return True
    runs = course.memory.runs.get(host.id)
    return runs is not None and course.trial in host.versions and started(host) - runs.first >= CRASHES


def _idles(course: Course, host: WorkerHost) -> bool:
    """Say whether a host has ended nothing with the trial for as long as makes one stuck.

    Its start itself hides that from the health checker for a while: who starts anew may be crashing. And
    where there are enough workers nothing waits, whatever one of them swallows.
    """
    runs = course.memory.runs.get(host.id)
    age = 0.0 if runs is None else course.sight.now - runs.since
    if age < course.settings.stuck_seconds:
        return False
    had_some = course.sight.requests_wait or course.fair_rate(host) * age >= FEWEST_ENDED
    return had_some and tells(host) and ended([host])[0] == 0


def _is_late(course: Course, host: WorkerHost) -> bool:
    asked = course.memory.asked.get(host.id)
    late = asked is not None and asked.version == course.trial and not course.is_on_the_way(host)
    return late and not course.runs(host, course.trial)


def _fails(course: Course, placed: Iterable[WorkerHost], others: Iterable[WorkerHost]) -> bool:
    done, failed = ended(host for host in placed if course.runs(host, course.trial))
    usual_done, usual = ended(others)
    is_usual = usual_done > 0 and usual / usual_done > FAILED / 2
    return done >= FEWEST_ENDED and failed / done > FAILED and not is_usual
