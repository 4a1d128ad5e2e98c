"""Evaluation of a candidate release: health and crashes of the hosts that run it, and failed requests."""

from __future__ import annotations

from typing import Final

from lambdas.core.health.fair_share import MIN_REQUESTS, WorkRate
from lambdas.core.health.model import FAMILY, HealthVerdict, WorkerHost
from lambdas.core.health.symptoms import CRASH_LOOP_STARTS
from lambdas.core.rollout.state import (
    VERIFY_SECONDS,
    RolloutState,
    count_requests,
    count_starts,
    reports_progress,
)

HOST_FAULTS: Final = frozenset({HealthVerdict.XID, HealthVerdict.NOT_REPORTING})
"""Faults of the host, independent of the release."""
CRASHING: Final = FAMILY[HealthVerdict.CRASHING]
FAILING: Final = FAMILY[HealthVerdict.FAILING]
LATE: Final = "late"
SYMPTOMS: Final = {
    CRASHING: "workers are in a crash loop",
    FAMILY[HealthVerdict.MISSING]: "workers do not report",
    FAMILY[HealthVerdict.STUCK]: "workers complete no requests",
    LATE: "workers did not start in time",
    FAILING: "most requests fail",
}
MAX_FAILED_SHARE: Final = 0.5
"""The candidate is rejected above this share where no other worker ends requests in the same minutes."""


def evaluate_candidate(state: RolloutState) -> tuple[str, bool]:
    """Return why the candidate is rejected (empty if it is not), and whether it must not be extended now.

    It is rejected if it fails more requests than the release before it in the same minutes, or if at least
    half of the hosts that run it are unhealthy. If more than half of the other hosts show the same symptom,
    or a dependency is out, wait: the cause is unknown.
    """
    now, comparison, hosts = state.snapshot.now, state.memory.comparison, state.candidate_hosts
    if comparison.is_bad(now):
        return comparison.describe(), False
    if _is_silent(state):
        return "its workers report no requests, and those with the release before it do", False
    affected: dict[str, set[str]] = {}
    for finding in state.findings:
        if finding.kind in FAMILY and finding.kind not in HOST_FAULTS:
            affected.setdefault(FAMILY[finding.kind], set()).add(finding.host)
    ids = {host.id for host in hosts}
    peers = {host.id for host in state.hosts} - ids
    common = {family for family, sick in affected.items() if 2 * len(sick & peers) > len(peers) > 0}
    if comparison.is_usual_crash_rate():
        common.add(CRASHING)
    restarted = {host.id for host in hosts if not state.is_restarting(host)}
    symptoms = {family: sick & restarted for family, sick in affected.items()}
    symptoms[CRASHING] = {host.id for host in hosts if _is_crashing(state, host)}
    symptoms[LATE] = {
        host.id
        for host in state.unverified_hosts
        if host.id in restarted and state.progress(host).sent_at and not state.runs_candidate(host)
    }
    if _has_failing_requests(state):
        symptoms[FAILING] = ids
    blamed = {family: sick for family, sick in symptoms.items() if sick and family not in common}
    unhealthy = set().union(*blamed.values())
    if unhealthy and 2 * len(unhealthy) >= len(ids):
        worst = max(blamed, key=lambda family: (len(blamed[family]), family))
        return f"{len(unhealthy)} of {len(ids)} instances with it are unhealthy: {SYMPTOMS[worst]}", False
    return "", any(symptoms.values()) or comparison.is_outage


def has_proved_itself(state: RolloutState, host: WorkerHost) -> bool:
    """Return whether the candidate has proved itself on a host.

    A host with successful requests must run the candidate for `VERIFY_SECONDS`, and a host without any for
    the stall timeout more; if that one reports progress, it is not verified if all its requests failed, while
    the queue has messages, or if others process so many that it should have had one. While other hosts serve,
    the comparison with them must have found the candidate good, or have expired.
    """
    comparison, now = state.memory.comparison, state.snapshot.now
    if host.id in state.unhealthy or not state.runs_candidate(host):
        return False
    is_compared = comparison.is_good() or comparison.has_expired(now) or not _do_others_report(state)
    done, failed = count_requests([host])
    age = state.age(host)
    if done > failed:
        return age >= VERIFY_SECONDS and is_compared
    if age < state.longest_idle_seconds:
        return False
    if not reports_progress(host):
        return is_compared
    unverified = {peer.id for peer in state.unverified_hosts}
    rate = WorkRate.of((peer for peer in state.hosts if peer.id not in unverified), now)
    expected = rate.per_worker * len(host.workers) * age
    return not done and not state.snapshot.has_waiting_requests and expected < 1


def _do_others_report(state: RolloutState) -> bool:
    """Return whether a healthy host that does not run the candidate reports progress."""
    ids = {host.id for host in state.candidate_hosts} | state.unhealthy
    return any(reports_progress(host) for host in state.hosts if host.id not in ids)


def _is_silent(state: RolloutState) -> bool:
    """Return whether a candidate never reported requests, although other workers report them."""
    running = [host for host in state.candidate_hosts if state.runs_candidate(host)]
    is_silent = bool(running) and not any(map(reports_progress, running)) and _do_others_report(state)
    return is_silent and state.memory.comparison.has_expired(state.snapshot.now)


def _is_crashing(state: RolloutState, host: WorkerHost) -> bool:
    """Return whether a host's workers are in a crash loop with the candidate; earlier starts do not count."""
    before = state.progress(host).first_starts
    is_running = state.candidate_version in host.versions
    return is_running and before is not None and count_starts(host) - before >= CRASH_LOOP_STARTS


def _has_failing_requests(state: RolloutState) -> bool:
    """Return whether most requests fail, where no other worker ends any that they could be compared with."""
    comparison, now = state.memory.comparison, state.snapshot.now
    ids = {host.id for host in state.candidate_hosts}
    rate = WorkRate.of((host for host in state.hosts if host.id not in ids), now).rate
    if comparison.total.old >= MIN_REQUESTS or comparison.is_outage or rate > 0:
        return False
    done, failed = count_requests(host for host in state.candidate_hosts if state.runs_candidate(host))
    return done >= MIN_REQUESTS and failed / done > MAX_FAILED_SHARE
