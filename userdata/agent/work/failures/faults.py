"""Whose fault was it, and what comes next? Pure: from what happened and what a look at the host found.

A host's fault costs the job nothing: the instance is replaced. Somebody else's server that is away is waited
for. All else is the job's own, and is counted: so many in a row without a new checkpoint, and it has failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from userdata.agent.machine.errors import AgentError, CommandError, ElsewhereError

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
"""Seconds between two tries: they double from the first to the longest."""

MOST_ABSENCES: Final = 12
"""Tries in a row for which one host waits for somebody else's server: about half an hour of pauses. A host
elsewhere in the network may fare better."""

MOST_HOSTS: Final = 3
"""Hosts in a row that may be to blame before a new checkpoint; the next one blames the job after all."""

FATAL_XIDS: Final = frozenset(
    {46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
)
"""Xid codes after which a GPU needs a reset, a restart of the machine or a hand (NVIDIA's Xid catalogue, the
resolution buckets RESET_GPU, RESTART_BM, CHECK_MECHANICALS and the workflows of 48 and of NVLink; all of them
make the EKS node monitoring agent 1.6 have a node replaced). The common ones of a program's own are not among
them: 13, 31, 43, 45."""

# What git (which has libcurl's words), uv, pip, docker and botocore say when a server did not answer, or said
# that it cannot now.
_AWAY: Final = re.compile(
    r"could not resolve|temporary failure in name resolution|name or service not known"
    r"|failed to lookup address|dns error|no such host|network is unreachable|no route to host"
    r"|connection (was )?(refused|reset|timed out|aborted)|(failed|couldn't|could not) (to )?connect"
    r"|timed? ?out|recv failure|send failure|recv error|empty reply from server|early eof"
    r"|remote end hung up|unexpected disconnect|unexpected eof|transfer closed"
    r"|(returned error:|status code|response status):? *(408|425|429|5\d\d)"
    r"|502 bad gateway|503 service|504 gateway|too many requests"
    r"|endpointconnectionerror|connecttimeouterror|readtimeouterror|throttl",
    re.IGNORECASE,
)
# It answered, and what it answered is no: a connection that it then cuts says nothing more.
_REFUSED: Final = re.compile(
    r"not our ref|unadvertised object|couldn't find remote ref|repository .*not found|authentication failed"
    r"|could not read (username|password)|access denied|permission denied|returned error: 40[134]",
    re.IGNORECASE,
)


class Fault(StrEnum):
    """Whose it was."""

    HOST = "host"
    JOB = "job"
    TAKEN = "taken"
    """Nobody's: the instance is being taken, and what breaks then does not count."""
    ELSEWHERE = "elsewhere"
    """A server's that is neither the job's nor the host's."""


class Next(StrEnum):
    """What comes after a fault."""

    AGAIN = "again"
    FAILED = "failed"
    REPLACE = "replace"
    LEAVE = "leave"


@dataclass(frozen=True)
class DiskFacts:
    """What a try to write on a disk showed; ``error`` is empty where it could be read and written."""

    error: str = ""
    is_full: bool = False


@dataclass(frozen=True)
class Examination:
    """What a look at the host found after a fault; by default all is well.

    ``gpus_missing`` of ``gpus_expected`` do not answer; ``xids`` and ``ecc_errors`` (uncorrected) are new
    since the last look; ``silent`` names what of AWS does not answer; ``data`` is where the job's files lie,
    ``root`` the host's disk.
    """

    is_taken: bool = False
    gpus_expected: int = 0
    gpus_missing: int = 0
    xids: tuple[int, ...] = ()
    ecc_errors: int = 0
    root: DiskFacts = DiskFacts()
    data: DiskFacts = DiskFacts()
    silent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Breakdown:
    """What went wrong, in words; ``is_away``: somebody's server could not be reached."""

    what: str
    is_away: bool = False


@dataclass(frozen=True)
class Judgement:
    """Whose fault a failure was, and why."""

    fault: Fault
    reason: str


@dataclass(frozen=True)
class Tally:
    """What has been counted: the job's faults without a new checkpoint, and tries for a server in vain."""

    failures: int = 0
    absences: int = 0


@dataclass(frozen=True)
class Sequel:
    """What comes next, after ``pause`` seconds."""

    next: Next
    pause: float
    verdict: Judgement


def of_error(error: AgentError | OSError) -> Breakdown:
    """Return the failure behind an error of a preparation or a start."""
    said = error.said if isinstance(error, CommandError) else str(error)
    if isinstance(error, OSError):
        return Breakdown(str(error))
    away = bool(_AWAY.search(said)) and not _REFUSED.search(said)
    return Breakdown(str(error), is_away=away or isinstance(error, ElsewhereError))


def of_exit(code: int) -> Breakdown:
    """Return the failure behind an exit code; below 0 it is the signal that killed the process."""
    if code >= 0:
        return Breakdown(f"exit code {code}")
    return Breakdown(f"killed by signal {-code}" + (" (often: out of memory)" if code == -9 else ""))


def host_faults(seen: Examination) -> Iterator[str]:
    """Yield what is wrong with the host itself."""
    if seen.gpus_missing:
        yield f"{seen.gpus_missing} of {max(seen.gpus_expected, seen.gpus_missing)} GPUs do not answer"
    if fatal := sorted(FATAL_XIDS.intersection(seen.xids)):
        yield f"Xid {', '.join(map(str, fatal))}"
    if seen.ecc_errors:
        yield f"{seen.ecc_errors} uncorrected ECC errors"
    if seen.root.error:
        yield f"root disk: {seen.root.error}"
    elif seen.root.is_full:
        yield "the root disk is full"
    if seen.data.error:
        yield f"data: {seen.data.error}"
    for name in seen.silent:
        yield f"{name} does not answer"


def judge(failure: Breakdown, seen: Examination) -> Judgement:
    """Say whose fault it was. The host comes first: what breaks on a broken host proves nothing."""
    if seen.is_taken:
        return Judgement(Fault.TAKEN, failure.what)
    if found := "; ".join(host_faults(seen)):
        return Judgement(Fault.HOST, f"{found} ({failure.what})")
    if failure.is_away:
        return Judgement(Fault.ELSEWHERE, failure.what)
    full = "; the data volume is full" if seen.data.is_full else ""
    return Judgement(Fault.JOB, failure.what + full)


def after(
    tally: Tally, verdict: Judgement, allowed: int, *, has_progressed: bool, has_started: bool
) -> tuple[Tally, Sequel]:
    """Count a fault and say what comes next.

    Args:
        tally: what was counted before.
        verdict: whose fault it is this time.
        allowed: how many faults of the job's in a row may go without a new checkpoint.
        has_progressed: there is a new checkpoint since the last fault.
        has_started: the command was started: every server was there.
    """
    if verdict.fault is Fault.TAKEN:
        return tally, Sequel(Next.LEAVE, 0.0, verdict)
    if verdict.fault is Fault.HOST:
        return tally, Sequel(Next.REPLACE, 0.0, verdict)
    if has_started:
        tally = replace(tally, absences=0)
    if verdict.fault is Fault.ELSEWHERE:
        tally = replace(tally, absences=tally.absences + 1)
        if tally.absences > MOST_ABSENCES:
            blamed = Judgement(Fault.HOST, f"{tally.absences} tries in vain: {verdict.reason}")
            return tally, Sequel(Next.REPLACE, 0.0, blamed)
        return tally, Sequel(Next.AGAIN, pause(tally.absences), verdict)
    tally = replace(tally, failures=1 if has_progressed else tally.failures + 1)
    if tally.failures > allowed:
        return tally, Sequel(Next.FAILED, 0.0, verdict)
    return tally, Sequel(Next.AGAIN, pause(tally.failures), verdict)


def pause(times: int) -> float:
    """Return the seconds to wait after so many faults in a row."""
    return min(FIRST_PAUSE * 2.0 ** (times - 1), LONGEST_PAUSE)
