"""Evaluation of a candidate release: health and crashes of the hosts that run it, and failed requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lambdas.core.health.fair_share import MIN_REQUESTS, WorkRate
from lambdas.core.health.model import FAMILY, HealthVerdict, HostFinding, WorkerHost
from lambdas.core.health.symptoms import CRASH_LOOP_STARTS
from lambdas.core.rollout.state import (
    VERIFY_SECONDS,
    RolloutState,
    count_requests,
    count_starts,
    reports_progress,
)

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
CRASHING: Final = FAMILY[HealthVerdict.CRASHING]
FAILING: Final = FAMILY[HealthVerdict.FAILING]
NOT_REPORTING: Final = FAMILY[HealthVerdict.MISSING]
LATE: Final = "late"
MAX_FAILED_SHARE: Final = 0.5
"""The candidate is rejected above this share of failed requests.

Only where no other worker ends requests in the same minutes.
"""
_SYMPTOMS: Final = {
    CRASHING: "workers are in a crash loop",
    NOT_REPORTING: "workers do not report",
    FAMILY[HealthVerdict.STUCK]: "workers complete no requests",
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

    Reject it if it fails more requests than the release before it in the same minutes, or if at least half
    of the hosts that run it are unhealthy. If more than half of the other hosts show the same symptom, or a
    dependency is out, wait: the cause is unknown.
    """
    now, comparison = state.snapshot.now, state.memory.comparison
    if comparison.is_bad(now):
        return ReleaseVerdict(comparison.describe())
    if _is_silent(state):
        return ReleaseVerdict(
            "its workers do not report how many requests they end, and those with the release before it do"
        )
    ids = {host.id for host in state.candidate_hosts}
    peers = [host for host in state.hosts if host.id not in ids]
    affected: dict[str, set[str]] = {NOT_REPORTING: set()}
    for finding in findings:
        if finding.kind in RELEASE_SYMPTOMS:
            affected.setdefault(FAMILY[finding.kind], set()).add(finding.host)
    common = {CRASHING} if comparison.is_usual_crash_rate() else set()
    for family, sick in affected.items():
        if 2 * sum(host.id in sick for host in peers) > len(peers) > 0:
            common.add(family)
    symptoms = {family: sick & ids for family, sick in affected.items()}
    symptoms[NOT_REPORTING] -= {h.id for h in state.candidate_hosts if state.is_restarting(h)}
    symptoms[CRASHING] = {h.id for h in state.candidate_hosts if _is_crashing(state, h)}
    symptoms[LATE] = {h.id for h in state.unverified_hosts if _is_late(state, h)}
    if _has_failing_requests(state, peers):
        symptoms[FAILING] = ids
    blamed = {family: sick for family, sick in symptoms.items() if sick and family not in common}
    unhealthy = set().union(*blamed.values())
    if unhealthy and 2 * len(unhealthy) >= len(ids):
        worst = max(blamed, key=lambda family: (len(blamed[family]), family))
        return ReleaseVerdict(
            f"{len(unhealthy)} of {len(ids)} instances with it are unhealthy: {_SYMPTOMS[worst]}"
        )
    return ReleaseVerdict(is_inconclusive=any(symptoms.values()) or comparison.is_outage(now))


def is_verified(state: RolloutState, host: WorkerHost) -> bool:
    """Return whether the candidate is verified on a host.

    A host with successful requests must run the candidate for `VERIFY_SECONDS`, and a host without any for
    the stall timeout more; if that one reports progress, it is not verified if all its requests failed, while
    the queue has messages, or if others process so many that it should have had one. While other hosts serve,
    the comparison with them must have found the candidate good, or have expired. While the requests at a
    service's proxies are unknown, no host is verified.
    """
    run, now = state.memory.runs.get(host.id), state.snapshot.now
    if (
        run is None
        or state.snapshot.are_requests_unknown
        or host.id in state.unhealthy
        or not state.runs_only(host, state.candidate_version)
    ):
        return False
    done, failed = count_requests([host])
    age = now - run.since
    if done > failed:
        return age >= VERIFY_SECONDS and not _awaits_comparison(state)
    if age < state.settings.stall_timeout_seconds + VERIFY_SECONDS:
        return False
    if not reports_progress(host):
        return not _awaits_comparison(state)
    unverified = {peer.id for peer in state.unverified_hosts}
    rate = WorkRate.of((peer for peer in state.hosts if peer.id not in unverified), now)
    expected = rate.per_worker * len(host.workers) * age
    return not done and not state.snapshot.has_waiting_requests and expected < 1


def _do_others_report(state: RolloutState) -> bool:
    """Return whether a healthy host that does not run the candidate reports progress."""
    ids = {host.id for host in state.candidate_hosts} | state.unhealthy
    return any(reports_progress(host) for host in state.hosts if host.id not in ids)


def _awaits_comparison(state: RolloutState) -> bool:
    """Return whether the comparison with other hosts is undecided; without other hosts there is none."""
    comparison, now = state.memory.comparison, state.snapshot.now
    is_decided = comparison.is_good(now) or comparison.has_expired(now)
    return not is_decided and _do_others_report(state)


def _is_silent(state: RolloutState) -> bool:
    """Return whether a candidate never reported requests, although other workers report them."""
    if not state.memory.comparison.has_expired(state.snapshot.now):
        return False
    running = [host for host in state.candidate_hosts if state.runs_only(host, state.candidate_version)]
    return bool(running) and not any(map(reports_progress, running)) and _do_others_report(state)


def _is_crashing(state: RolloutState, host: WorkerHost) -> bool:
    """Return whether a host's workers are in a crash loop with the candidate; earlier starts do not count."""
    run = state.memory.runs.get(host.id)
    return (
        run is not None
        and state.candidate_version in host.versions
        and count_starts(host) - run.first_starts >= CRASH_LOOP_STARTS
    )


def _is_late(state: RolloutState, host: WorkerHost) -> bool:
    """Return whether a host was sent to the candidate and does not run it in time."""
    request, version = state.memory.requested_restarts.get(host.id), state.candidate_version
    is_sent = request is not None and request.version == version
    return is_sent and not state.is_restarting(host) and not state.runs_only(host, version)


def _has_failing_requests(state: RolloutState, peers: Iterable[WorkerHost]) -> bool:
    """Return whether most requests fail, where no other worker ends any that they could be compared with."""
    comparison, now = state.memory.comparison, state.snapshot.now
    if comparison.total.old >= MIN_REQUESTS or comparison.is_outage(now) or WorkRate.of(peers, now).rate > 0:
        return False
    done, failed = count_requests(
        host for host in state.candidate_hosts if state.runs_only(host, state.candidate_version)
    )
    return done >= MIN_REQUESTS and failed / done > MAX_FAILED_SHARE
