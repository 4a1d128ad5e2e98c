"""Evaluation of a candidate release: health and crashes of the hosts that run it, and failed requests."""

from __future__ import annotations

from typing import Final

from lambdas.core.health.fair_share import MIN_REQUESTS, WorkRate
from lambdas.core.health.incidents import COMMON_SYMPTOMS
from lambdas.core.health.model import FAMILY, HealthVerdict, WorkerHost
from lambdas.core.health.symptoms import CRASH_LOOP_STARTS
from lambdas.core.rollout.state import VERIFY_SECONDS, RolloutState, count_requests

HOST_FAULTS: Final = frozenset({HealthVerdict.XID, HealthVerdict.NOT_REPORTING})
"""Faults of the host, independent of the release."""
CRASHING: Final = FAMILY[HealthVerdict.CRASHING]
LATE: Final = "late"
SYMPTOMS: Final = COMMON_SYMPTOMS | {LATE: "did not start their workers in time"}
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
    if comparison.is_silent(now):
        return "its workers report no requests, and those with the release before it do", False
    ids, peers = {host.id for host in hosts}, {host.id for host in state.other_hosts}
    confirmed = [(FAMILY[f.kind], f.host) for f in state.findings if f.kind in FAMILY.keys() - HOST_FAULTS]
    affected = {family: {host for kind, host in confirmed if kind == family} for family in SYMPTOMS}
    common = {family for family, sick in affected.items() if 2 * len(sick & peers) > len(peers) > 0}
    if comparison.is_usual_crash_rate():
        common.add(CRASHING)
    restarted = {host.id for host in hosts if not state.is_restarting(host)}
    symptoms = {family: sick & restarted for family, sick in affected.items()}
    symptoms[CRASHING] = {
        host.id
        for host in hosts
        if (before := state.progress(host).first_starts) is not None
        and host.starts - before >= CRASH_LOOP_STARTS
    }
    sent = {host.id for host in state.unverified_hosts if state.progress(host).sent_at}
    symptoms[LATE] = restarted & sent - {host.id for host in hosts if state.runs(host)}
    done, failed = count_requests(host for host in hosts if state.runs(host))
    is_alone = comparison.total.old < MIN_REQUESTS and not WorkRate.of(state.other_hosts, now).rate
    if is_alone and not comparison.is_outage and done >= MIN_REQUESTS and failed / done > MAX_FAILED_SHARE:
        symptoms[FAMILY[HealthVerdict.FAILING]] = ids
    blamed = {family: sick for family, sick in symptoms.items() if sick and family not in common}
    unhealthy = set().union(*blamed.values())
    if unhealthy and 2 * len(unhealthy) >= len(ids):
        worst = max(blamed, key=lambda family: (len(blamed[family]), family))
        return f"{len(unhealthy)} of {len(ids)} instances with it {SYMPTOMS[worst]}", False
    return "", any(symptoms.values()) or comparison.is_outage


def has_proved_itself(state: RolloutState, host: WorkerHost) -> bool:
    """Return whether the candidate has proved itself on a host.

    A host with successful requests must run the candidate for `VERIFY_SECONDS`, and a host without any for
    the stall timeout more; if that one reports progress, it is not verified if all its requests failed, while
    the queue has messages, or if others process so many that it should have had one. While other hosts serve,
    the comparison with them must have found the candidate good, or have expired.
    """
    comparison, now = state.memory.comparison, state.snapshot.now
    if host.id in state.unhealthy or not state.runs(host):
        return False
    healthy = [peer for peer in state.other_hosts if peer.id not in state.unhealthy]
    is_decided = comparison.is_good() or comparison.has_expired(now)
    is_compared = is_decided or not any(peer.has_progress for peer in healthy)
    done, failed = count_requests([host])
    age = state.age(host)
    if done > failed:
        return age >= VERIFY_SECONDS and is_compared
    if age < state.longest_idle_seconds:
        return False
    if not host.has_progress:
        return is_compared
    unverified = {peer.id for peer in state.unverified_hosts}
    rate = WorkRate.of((peer for peer in state.hosts if peer.id not in unverified), now)
    expected = rate.per_worker * len(host.workers) * age
    return not done and not state.snapshot.has_waiting_requests and expected < 1
