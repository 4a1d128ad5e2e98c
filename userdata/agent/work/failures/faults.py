"""Classification of a failed run and the response to it: pure functions of the failure and the diagnosis.

After a host fault the instance is replaced; the job's count does not change. If another server is
unavailable, the run is retried. Any other failure is the job's and is counted: after too many in a row
without a new checkpoint, the job has failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from userdata.agent.machine.background import backoff
from userdata.agent.machine.errors import AgentError, CommandError, DependencyUnavailableError

MIN_DELAY_SECONDS: Final = 5.0
MAX_DELAY_SECONDS: Final = 300.0
"""Seconds between two tries: doubled from the minimum to the maximum."""

MAX_UNAVAILABLE_TRIES: Final = 12
"""Tries in a row for which one host waits for an unavailable server: about half an hour of delays. A host in
another part of the network may reach it."""

MAX_HOSTS: Final = 3
"""Maximum host faults in a row without a new checkpoint; the next one counts as the job's failure."""

FATAL_XIDS: Final = frozenset(
    {46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
)
"""Xid codes after which a GPU needs a reset, a restart of the machine or manual repair. Source: NVIDIA's Xid
catalogue, resolution buckets RESET_GPU, RESTART_BM, CHECK_MECHANICALS and the workflows of 48 and NVLink; the
EKS node monitoring agent 1.6 replaces a node for each of them. The common codes that a program causes are not
included: 13, 31, 43, 45."""

# Error messages of git (libcurl), uv, pip, docker and botocore if a server did not respond or is overloaded.
_UNAVAILABLE: Final = re.compile(
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
# The server rejected the request; a connection error that follows in the same text does not count.
_REJECTED: Final = re.compile(
    r"not our ref|unadvertised object|couldn't find remote ref|repository .*not found|authentication failed"
    r"|could not read (username|password)|access denied|permission denied|returned error: 40[134]",
    re.IGNORECASE,
)


class Fault(StrEnum):
    """The cause of a failed run."""

    HOST = "host"
    JOB = "job"
    INTERRUPTED = "interrupted"
    """The instance is being terminated; failures do not count then."""
    DEPENDENCY = "dependency"
    """A server outside the job and the host."""


class NextAction(StrEnum):
    """The action after a failed run."""

    RETRY = "retry"
    FAILED = "failed"
    REPLACE = "replace"
    STOP = "stop"


@dataclass(frozen=True)
class DiskFacts:
    """Result of a test write to a disk; ``error`` is empty if it can be read and written."""

    error: str = ""
    is_full: bool = False


@dataclass(frozen=True)
class HostDiagnosis:
    """State of the host after a failed run; the defaults describe a healthy host.

    ``gpus_missing`` of ``gpus_expected`` do not respond; ``xids`` and ``ecc_errors`` (uncorrected) are new
    since the last diagnosis; ``unreachable`` names services that do not respond; ``data`` is the file system
    of the job's files, ``root`` the host's disk.
    """

    is_terminating: bool = False
    gpus_expected: int = 0
    gpus_missing: int = 0
    xids: tuple[int, ...] = ()
    ecc_errors: int = 0
    root: DiskFacts = DiskFacts()
    data: DiskFacts = DiskFacts()
    unreachable: tuple[str, ...] = ()


@dataclass(frozen=True)
class FailedRun:
    """Description of a failed run; ``is_dependency_unavailable``: a server could not be reached."""

    description: str
    is_dependency_unavailable: bool = False


@dataclass(frozen=True)
class FaultVerdict:
    """Cause of a failed run, with the reason."""

    fault: Fault
    reason: str


@dataclass(frozen=True)
class FailureCounts:
    """Job failures in a row without a new checkpoint, and failed tries for an unavailable server."""

    failures: int = 0
    unavailable_tries: int = 0


@dataclass(frozen=True)
class FaultResponse:
    """The next action, after ``delay_seconds``."""

    next: NextAction
    delay_seconds: float
    verdict: FaultVerdict


def of_error(error: Exception) -> FailedRun:
    """Return the failed run for an error of its preparation or start."""
    text = error.stderr if isinstance(error, CommandError) else str(error)
    if not isinstance(error, AgentError):
        return FailedRun(str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}")
    is_unavailable = bool(_UNAVAILABLE.search(text)) and not _REJECTED.search(text)
    return FailedRun(
        str(error), is_dependency_unavailable=is_unavailable or isinstance(error, DependencyUnavailableError)
    )


def of_exit(code: int) -> FailedRun:
    """Return the failed run for an exit code; a negative code is the signal that killed the process."""
    if code >= 0:
        return FailedRun(f"exit code {code}")
    return FailedRun(f"killed by signal {-code}" + (" (often: out of memory)" if code == -9 else ""))


def host_faults(diagnosis: HostDiagnosis) -> Iterator[str]:
    """Yield a description of each fault of the host."""
    if diagnosis.gpus_missing:
        total = max(diagnosis.gpus_expected, diagnosis.gpus_missing)
        yield f"{diagnosis.gpus_missing} of {total} GPUs do not respond"
    if fatal := sorted(FATAL_XIDS.intersection(diagnosis.xids)):
        yield f"Xid {', '.join(map(str, fatal))}"
    if diagnosis.ecc_errors:
        yield f"{diagnosis.ecc_errors} uncorrected ECC errors"
    if diagnosis.root.error:
        yield f"root disk: {diagnosis.root.error}"
    elif diagnosis.root.is_full:
        yield "the root disk is full"
    if diagnosis.data.error:
        yield f"data: {diagnosis.data.error}"
    for name in diagnosis.unreachable:
        yield f"{name} does not respond"


def classify(failure: FailedRun, diagnosis: HostDiagnosis) -> FaultVerdict:
    """Return the cause of a failed run. Host faults come first: a failure on a faulty host proves nothing."""
    if diagnosis.is_terminating:
        return FaultVerdict(Fault.INTERRUPTED, failure.description)
    if faults := "; ".join(host_faults(diagnosis)):
        return FaultVerdict(Fault.HOST, f"{faults} ({failure.description})")
    if failure.is_dependency_unavailable:
        return FaultVerdict(Fault.DEPENDENCY, failure.description)
    full = "; the data volume is full" if diagnosis.data.is_full else ""
    return FaultVerdict(Fault.JOB, failure.description + full)


def respond(
    counts: FailureCounts, verdict: FaultVerdict, allowed: int, *, has_progressed: bool, has_started: bool
) -> tuple[FailureCounts, FaultResponse]:
    """Return the updated counts and the response to a failed run.

    Args:
        counts: the counts so far.
        verdict: cause of this failure.
        allowed: maximum job failures in a row without a new checkpoint.
        has_progressed: there is a new checkpoint since the last failure.
        has_started: the command was started, so every server was available.
    """
    if verdict.fault is Fault.INTERRUPTED:
        return counts, FaultResponse(NextAction.STOP, 0.0, verdict)
    if verdict.fault is Fault.HOST:
        return counts, FaultResponse(NextAction.REPLACE, 0.0, verdict)
    if has_started:
        counts = replace(counts, unavailable_tries=0)
    if verdict.fault is Fault.DEPENDENCY:
        counts = replace(counts, unavailable_tries=counts.unavailable_tries + 1)
        if counts.unavailable_tries > MAX_UNAVAILABLE_TRIES:
            host_verdict = FaultVerdict(
                Fault.HOST, f"{counts.unavailable_tries} failed tries: {verdict.reason}"
            )
            return counts, FaultResponse(NextAction.REPLACE, 0.0, host_verdict)
        return counts, FaultResponse(NextAction.RETRY, retry_delay(counts.unavailable_tries), verdict)
    counts = replace(counts, failures=1 if has_progressed else counts.failures + 1)
    if counts.failures > allowed:
        return counts, FaultResponse(NextAction.FAILED, 0.0, verdict)
    return counts, FaultResponse(NextAction.RETRY, retry_delay(counts.failures), verdict)


def retry_delay(count: int) -> float:
    """Return the delay in seconds after ``count`` failures in a row."""
    return backoff(count, MIN_DELAY_SECONDS, MAX_DELAY_SECONDS)
