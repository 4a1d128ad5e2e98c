"""Evaluation of a candidate release: symptoms of the hosts that run it, compared with the other hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lambdas.core.health.fair_share import MIN_REQUESTS, WorkRate
from lambdas.core.health.model import FAMILY, HealthVerdict, HostFinding, WorkerHost
from lambdas.core.health.symptoms import CRASH_LOOP_STARTS
from lambdas.core.rollout.state import RolloutState, count_requests, count_starts, reports_progress

RELEASE_SYMPTOMS: Final = frozenset(
    {
        HealthVerdict.CRASHING,
        HealthVerdict.FAILING,
        HealthVerdict.MISSING,
        HealthVerdict.STUCK,
        HealthVerdict.IDLE_GPU,
    }
)
"""Verdicts that a release can cause; an Xid error, missing heartbeats and a wrong clock are host faults."""
LATE: Final = "late"
FAILING: Final = FAMILY[HealthVerdict.FAILING]
MAX_FAILED_SHARE: Final = 0.5
"""The candidate is rejected above this share of failed requests.

Only where no other worker ends requests in the same minutes.
"""
VERIFY_SECONDS: Final = 300.0
"""A host that has processed requests must be healthy with the candidate for this long."""
_SYMPTOMS: Final = {
    "crashing": "workers are in a crash loop",
    "unheard": "workers do not report",
    "unfinished": "workers complete no requests",
    LATE: "workers did not start in time",
    FAILING: "most requests fail",
}


@dataclass(frozen=True, slots=True)
class ReleaseVerdict:
    """The evaluation of a candidate.

    Attributes:
        rejection_reason: why the candidate is rejected; empty if it is not.
        is_inconclusive: the candidate must not be extended to more hosts now.
    """

    rejection_reason: str = ""
    is_inconclusive: bool = False


def evaluate_candidate(state: RolloutState, findings: Iterable[HostFinding]) -> ReleaseVerdict:
    """Evaluate the candidate.

    Reject it if it is worse than the release before it in the same minutes (`comparison`), or if at least
    half of the hosts that run it are unhealthy. If more than half of the other hosts show the same symptom,
    or a dependency is out, wait: the cause is unknown.
    """
    now, comparison = state.snapshot.now, state.memory.comparison
    if reason := comparison.rejection_reason(now) or _unreadable_reason(state):
        return ReleaseVerdict(reason)
    candidate_hosts = state.candidate_hosts
    ids = {host.id for host in candidate_hosts}
    symptomatic: dict[str, set[str]] = {}
    for finding in findings:
        if finding.kind in RELEASE_SYMPTOMS:
            symptomatic.setdefault(FAMILY[finding.kind], set()).add(finding.host)
    other_hosts = [host for host in state.hosts if host.id not in ids]
    common_families = {
        f
        for f, hosts in symptomatic.items()
        if 2 * sum(h.id in hosts for h in other_hosts) > len(other_hosts) > 0
    }
    restarting = {host.id for host in candidate_hosts if state.is_restarting(host)}
    symptoms = {
        f: (hosts & ids) - (restarting if f == "unheard" else set()) for f, hosts in symptomatic.items()
    }
    symptoms["unfinished"] = symptoms.get("unfinished", set()) | {
        h.id for h in state.unverified_hosts if _is_stuck(state, h)
    }
    symptoms["crashing"] = {
        host.id for host in candidate_hosts if _is_crashing(state, host, symptoms.get("crashing", set()))
    }
    if comparison.is_usual_crash_rate():
        common_families.add("crashing")
    symptoms[LATE] = {host.id for host in state.unverified_hosts if _is_late(state, host)}
    if _has_failing_requests(state, candidate_hosts, other_hosts):
        symptoms[FAILING] = ids
    blamed_on_release = {f: hosts for f, hosts in symptoms.items() if hosts and f not in common_families}
    unhealthy = set().union(*blamed_on_release.values())
    if unhealthy and 2 * len(unhealthy) >= len(candidate_hosts):
        worst = max(blamed_on_release, key=lambda family: (len(blamed_on_release[family]), family))
        return ReleaseVerdict(
            f"{len(unhealthy)} of {len(candidate_hosts)} instances with it are unhealthy: {_SYMPTOMS[worst]}"
        )
    return ReleaseVerdict(
        is_inconclusive=bool(unhealthy or any(symptoms.get(family) for family in common_families))
        or comparison.is_outage(now)
    )


def is_verified(state: RolloutState, host: WorkerHost) -> bool:
    """Return whether the candidate is verified on a host.

    A host with successful requests must run the candidate for `VERIFY_SECONDS`. A host without any must also
    run it for the stall timeout; if it reports progress, it is not verified while the queue has messages, if
    other hosts process so many requests that it should have had one, or if all its requests failed. While
    other hosts serve, the comparison with them must have accepted the candidate, or have expired. While the
    requests at a service's proxies are unknown, no host is verified.
    """
    run = state.memory.runs.get(host.id)
    if (
        run is None
        or state.snapshot.are_requests_unknown
        or host.id in state.unhealthy
        or not state.runs_only(host, state.candidate_version)
    ):
        return False
    done, failed = count_requests([host])
    succeeded = done - failed
    age = state.snapshot.now - run.since
    should_have_processed = state.snapshot.has_waiting_requests or state.expected_rate(host) * age >= 1
    if (succeeded > 0 or not reports_progress(host)) and _awaits_comparison(state):
        return False
    if succeeded == 0 and reports_progress(host) and (should_have_processed or done > 0):
        return False
    return age >= (VERIFY_SECONDS if succeeded > 0 else state.settings.stall_timeout_seconds + VERIFY_SECONDS)


def _other_hosts(state: RolloutState) -> list[WorkerHost]:
    """Return the healthy hosts that do not run the candidate."""
    ids = {host.id for host in state.candidate_hosts}
    return [host for host in state.hosts if host.id not in ids and host.id not in state.unhealthy]


def _awaits_comparison(state: RolloutState) -> bool:
    """Return whether the comparison with other hosts is undecided; without other hosts there is none."""
    comparison = state.memory.comparison
    is_decided = comparison.is_accepted or comparison.has_expired(state.snapshot.now)
    return not is_decided and any(reports_progress(host) for host in _other_hosts(state))


def _unreadable_reason(state: RolloutState) -> str:
    """Return why a candidate that reports no requests is rejected, although other workers report them."""
    comparison = state.memory.comparison
    if comparison.is_accepted or not comparison.has_expired(state.snapshot.now):
        return ""
    running = [host for host in state.candidate_hosts if state.runs_only(host, state.candidate_version)]
    other_hosts = _other_hosts(state)
    if not running or any(map(reports_progress, running)) or not any(map(reports_progress, other_hosts)):
        return ""
    return "its workers do not report how many requests they end, and those with the release before it do"


def _is_crashing(state: RolloutState, host: WorkerHost, crashing: set[str]) -> bool:
    """Return whether a host's workers are in a crash loop with the candidate; earlier starts do not count."""
    if host.id in crashing:
        return True
    run = state.memory.runs.get(host.id)
    return (
        run is not None
        and state.candidate_version in host.versions
        and count_starts(host) - run.first_starts >= CRASH_LOOP_STARTS
    )


def _is_stuck(state: RolloutState, host: WorkerHost) -> bool:
    """Return whether a host has completed no request with the candidate for the stall timeout.

    The health checker does not detect this: it ignores a worker after a restart for a while, and with enough
    workers the queue stays empty even if one worker completes nothing.
    """
    run = state.memory.runs.get(host.id)
    age = 0.0 if run is None else state.snapshot.now - run.since
    if age < state.settings.stall_timeout_seconds:
        return False
    should_have_processed = (
        state.snapshot.has_waiting_requests or state.expected_rate(host) * age >= MIN_REQUESTS
    )
    return should_have_processed and reports_progress(host) and count_requests([host])[0] == 0


def _is_late(state: RolloutState, host: WorkerHost) -> bool:
    request = state.memory.requested_restarts.get(host.id)
    is_overdue = (
        request is not None and request.version == state.candidate_version and not state.is_restarting(host)
    )
    return is_overdue and not state.runs_only(host, state.candidate_version)


def _has_failing_requests(
    state: RolloutState, candidate_hosts: Iterable[WorkerHost], other_hosts: Iterable[WorkerHost]
) -> bool:
    """Return whether most requests fail, where no other worker ends any that they could be compared with."""
    comparison = state.memory.comparison
    if comparison.requests.old >= MIN_REQUESTS or comparison.is_outage(state.snapshot.now):
        return False
    done, failed = count_requests(
        host for host in candidate_hosts if state.runs_only(host, state.candidate_version)
    )
    has_comparable = WorkRate.of(other_hosts, state.snapshot.now).rate > 0
    return done >= MIN_REQUESTS and failed / done > MAX_FAILED_SHARE and not has_comparable
