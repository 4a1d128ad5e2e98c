"""Plans the next step of a rollout in each pass: one host first, then batches, then the release is stable.

Invariant: a serving host is restarted only if `MIN_SERVING_SHARE` of the target's workers serve without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import DesiredRelease
from contracts.group.rollout_request import RolloutRequest
from lambdas.core.health.model import HealthVerdict, HostFinding, Restart, ServiceSnapshot, WorkerHost
from lambdas.core.health.symptoms import CRASH_LOOP_SECONDS
from lambdas.core.rollout import comparison as comparisons
from lambdas.core.rollout.comparison import Comparison
from lambdas.core.rollout.memory import MAX_ABANDONED_VERSIONS, CandidateRun, RestartRequest, Rollout
from lambdas.core.rollout.state import (
    RolloutDemand,
    RolloutState,
    count_requests,
    count_starts,
    expected_workers,
    reports_progress,
)
from lambdas.core.rollout.verdict import evaluate_candidate, is_verified

REWRITE_SECONDS: Final = 1800
"""Seconds after which an unchanged request to the controller is written again."""
STALL_SECONDS: Final = 1800.0
"""A rollout without progress for this long, beyond the restart and stall timeouts, raises an incident."""
STALLED: Final = "roll-out/waits"
ROLLED_BACK: Final = "roll-back"
HOST_FAULTS: Final = frozenset({HealthVerdict.XID, HealthVerdict.NOT_REPORTING})
"""Faults of the host, independent of the release."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The decision of one pass.

    Attributes:
        releases: the desired registry row; None if there is none.
        request: the request to the controller; None without a rollout.
        restarts: worker restarts to request now.
        exempt_hosts: hosts that the health checker ignores meanwhile.
        recently_restarted: hosts whose counted starts may belong to the previous release.
        versions: versions whose common causes the rollout handles.
        open_incidents: descriptions by incident key.
    """

    memory: Rollout
    releases: WorkerReleases | None = None
    request: RolloutRequest | None = None
    restarts: tuple[Restart, ...] = ()
    exempt_hosts: frozenset[str] = frozenset()
    recently_restarted: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    open_incidents: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_under_way(self) -> bool:
        """Whether a rollout is in progress, so several versions are expected."""
        return self.request is not None


def plan_step(
    snapshot: ServiceSnapshot,
    findings: Iterable[HostFinding],
    settings: HealthSettings,
    desired: DesiredRelease | None,
    demand: RolloutDemand,
    memory: Rollout,
) -> RolloutStep:
    """Return the next step; none if no release is desired."""
    if desired is None:
        return RolloutStep(memory)
    now = snapshot.now
    recently_restarted = frozenset(
        host
        for host, request in memory.requested_restarts.items()
        if now - request.requested_at < CRASH_LOOP_SECONDS
    )
    findings = tuple(
        f for f in findings if f.kind is not HealthVerdict.CRASHING or f.host not in recently_restarted
    )
    memory = _follow_desired(desired.release, settings, memory, now)
    state = RolloutState.of(snapshot, findings, settings, demand, memory)
    _compare(state)
    _update_runs(state)
    restart_hosts: list[WorkerHost] = []
    if snapshot.can_act and not snapshot.is_registry_stale and not snapshot.are_requests_unknown:
        verdict = evaluate_candidate(state, findings)
        if verdict.rejection_reason:
            _roll_back(state, verdict.rejection_reason)
        elif _is_complete(state) and _has_successful_requests(state):
            state.memory = replace(
                _without_candidate(state.memory), stable=state.memory.candidate, verified={}
            )
        hosts = _hosts_to_revert(state)
        restart_hosts = _request_restarts(state, hosts, state.stable_version, len(hosts))
        if state.candidate_version and not verdict.is_inconclusive:
            restart_hosts += _extend_candidate(state)
    restarting = frozenset(h.id for h in state.hosts if state.is_restarting(h))
    exempt_hosts = restarting | (
        frozenset() if state.verified else frozenset(h.id for h in state.unverified_hosts)
    )
    return RolloutStep(
        memory=state.memory,
        releases=WorkerReleases(
            state.memory.stable or desired.release,
            state.memory.candidate,
            frozenset(host.id for host in state.candidate_hosts),
            bool(state.candidate_version) and 2 * len(state.verified) > len(state.hosts),
        ),
        request=_rollout_request(state, restarting),
        restarts=tuple(
            Restart(w.partition, w.instance, w.slot) for host in restart_hosts for w in host.workers
        ),
        exempt_hosts=exempt_hosts - {f.host for f in findings if f.kind in HOST_FAULTS},
        recently_restarted=recently_restarted | {restart.id for restart in restart_hosts},
        versions=frozenset(
            {state.candidate_version, state.memory.rejected, *state.memory.abandoned_versions} - {""}
        ),
        open_incidents=_open_incidents(state, desired),
    )


def without_restart_requests(memory: Rollout, hosts: Iterable[str]) -> Rollout:
    """Return the state without the restart requests of hosts where they failed: the next pass tries again."""
    failed = set(hosts)
    return replace(
        memory,
        requested_restarts={
            host: request for host, request in memory.requested_restarts.items() if host not in failed
        },
    )


def _follow_desired(desired: WorkerRelease, settings: HealthSettings, memory: Rollout, now: float) -> Rollout:
    """Start the rollout of the desired release, and abandon a candidate that is no longer desired."""
    if memory.rejected and desired.version != memory.rejected:
        memory = replace(memory, rejected="", rejection_reason="")
    stable, candidate = memory.stable, memory.candidate
    if stable is None or settings.max_unavailable_percent == 0 or bool(stable.image) != bool(desired.image):
        # No release is verified, or workers must not be restarted: only new instances use the release. A
        # change between a process and a container also needs new instances.
        return replace(_without_candidate(memory), stable=desired, verified={}, abandoned_versions=())
    if desired.version in (memory.rejected, candidate.version if candidate else ""):
        return memory
    memory = _abandon_candidate(memory)
    if desired.version == stable.version:
        return replace(memory, stable=desired)
    abandoned = tuple(version for version in memory.abandoned_versions if version != desired.version)
    return replace(memory, candidate=desired, abandoned_versions=abandoned, last_step_at=now)


def _without_candidate(memory: Rollout) -> Rollout:
    return replace(memory, candidate=None, runs={}, comparison=Comparison())


def _abandon_candidate(memory: Rollout) -> Rollout:
    """Abandon the candidate, if there is one: its workers return to the stable release."""
    abandoned = memory.abandoned_versions
    if memory.candidate is not None:
        version = memory.candidate.version
        abandoned = (*(v for v in abandoned if v != version), version)[-MAX_ABANDONED_VERSIONS:]
    return replace(_without_candidate(memory), abandoned_versions=abandoned)


def _roll_back(state: RolloutState, reason: str) -> None:
    state.memory = replace(
        _abandon_candidate(state.memory),
        rejected=state.candidate_version,
        rejection_reason=reason,
        last_step_at=state.snapshot.now,
    )


def _is_complete(state: RolloutState) -> bool:
    verified = state.verified
    return bool(verified) and all(host.id in verified for host in state.hosts)


def _has_successful_requests(state: RolloutState) -> bool:
    """Return whether a request has succeeded with the candidate, or workers do not report progress.

    Until then the candidate can be rolled back.
    """
    done, failed = count_requests(state.hosts)
    return done > failed or not any(reports_progress(host) for host in state.hosts)


def _compare(state: RolloutState) -> None:
    """Add the work since the last pass to the comparison of candidate and stable release."""
    if state.candidate_version and not state.snapshot.are_requests_unknown:
        new, old = map(state.workers_with, (state.candidate_version, state.stable_version))
        comparison = comparisons.update(state.memory.comparison, new, old, state.snapshot.now)
        state.memory = replace(state.memory, comparison=comparison)


def _update_runs(state: RolloutState) -> None:
    """Record which hosts run the candidate and where it is verified; drop hosts that no longer exist."""
    memory, now, candidate = state.memory, state.snapshot.now, state.candidate_version
    ids = {host.id for host in state.hosts}
    runs: dict[str, CandidateRun] = {}
    for host in state.hosts:
        run = memory.runs.get(host.id)
        if candidate in host.versions:
            starts = count_starts(host)
            if run is None or run.starts != starts or not state.runs_only(host, candidate):
                run = CandidateRun(now, starts, run.first_starts if run else starts)
            runs[host.id] = run
        elif run is not None and candidate:
            runs[host.id] = replace(run, since=now)  # no registry item between two starts
    requests = {host: request for host, request in memory.requested_restarts.items() if host in ids}
    verified = {host: version for host, version in memory.verified.items() if host in ids}
    state.memory = replace(memory, requested_restarts=requests, runs=runs, verified=verified)
    new = {host.id: candidate for host in state.unverified_hosts if is_verified(state, host)}
    if new:
        state.memory = replace(state.memory, verified={**verified, **new}, last_step_at=now)


def _hosts_to_revert(state: RolloutState) -> list[WorkerHost]:
    """Return the hosts that run or were sent to an abandoned version and were not reverted yet."""
    abandoned, hosts = state.memory.abandoned_versions, []
    for host in state.hosts:
        request = state.memory.requested_restarts.get(host.id)
        version = request.version if request is not None else ""
        is_affected = version in abandoned or not host.versions.isdisjoint(abandoned)
        if is_affected and version != state.stable_version:
            hosts.append(host)
    return hosts


def _extend_candidate(state: RolloutState) -> list[WorkerHost]:
    """Restart more hosts with the candidate, up to a batch: oldest first, hosts that are not ready last.

    Each has processed requests before: on a new host the effect of the release is unknown. The first is of
    the most frequent instance type, so that others of its type can be compared with it.
    """
    candidate_ids = {host.id for host in state.candidate_hosts}
    is_first = not state.verified
    remaining = [
        h
        for h in state.hosts
        if h.workers
        and h.id not in candidate_ids
        and not state.is_restarting(h)
        and (state.has_processed_requests(h) or not (is_first or state.is_ready(h)))
    ]
    count = Counter(host.instance_type for host in state.hosts if is_first)
    remaining.sort(key=lambda h: (not state.is_ready(h), -count[h.instance_type], h.launched_at or 0.0, h.id))
    batch = state.batch_size - len(state.unverified_hosts)
    return _request_restarts(state, remaining, state.candidate_version, batch)


def _request_restarts(
    state: RolloutState, hosts: Iterable[WorkerHost], version: str, max_hosts: int
) -> list[WorkerHost]:
    """Request restarts of at most ``max_hosts`` hosts with a version, while enough others serve."""
    serving, restarting = state.serving_workers, sum(state.is_restarting(h) for h in state.hosts)
    restart_hosts: list[WorkerHost] = []
    requests, verified = dict(state.memory.requested_restarts), dict(state.memory.verified)
    for host in hosts:
        request = requests.get(host.id)
        if len(restart_hosts) >= max_hosts:
            break
        if request is not None and request.version == version:
            continue
        if state.can_serve(host):
            remaining = serving - (expected_workers(host) if state.is_serving(host) else 0)
            is_batch_full = restarting + len(restart_hosts) >= state.batch_size
            if remaining < state.demand.min_serving_workers or is_batch_full:
                continue
            serving = remaining
        requests[host.id] = RestartRequest(version, state.snapshot.now)
        verified.pop(host.id, None)
        restart_hosts.append(host)
    if restart_hosts:
        state.memory = replace(
            state.memory, requested_restarts=requests, verified=verified, last_step_at=state.snapshot.now
        )
    return restart_hosts


def _rollout_request(state: RolloutState, restarting: frozenset[str]) -> RolloutRequest | None:
    """Return the request to the controller: surge slots for a batch while hosts remain to be restarted."""
    requests = state.memory.requested_restarts
    has_remaining_hosts = len(state.candidate_hosts) < len(state.hosts) or any(
        h.id in requests for h in state.unverified_hosts
    )
    if not ((state.candidate_version and has_remaining_hosts) or restarting or _hosts_to_revert(state)):
        return None
    max_workers = max((expected_workers(host) for host in state.hosts), default=0)
    surge_slots = state.batch_size * -(-max_workers // state.demand.workers_per_slot)
    surge = max(0, min(surge_slots, state.demand.maximum - state.demand.target))
    requested_at = int(state.snapshot.now // REWRITE_SECONDS * REWRITE_SECONDS)
    return RolloutRequest(requested_at, surge, tuple(sorted(restarting)))


def _why_it_waits(state: RolloutState) -> str:
    """Return what keeps a rollout from going on, in a sentence."""
    comparison, now = state.memory.comparison, state.snapshot.now
    if state.snapshot.are_requests_unknown:
        return "Check why the requests at the proxies are unknown."
    if comparison.is_outage(now):
        return "Requests fail with both releases, which points to a dependency."
    if comparison.began_at and not comparison.is_good(now) and not comparison.has_expired(now):
        return (
            f"Too few requests tell whether it fails more: {comparison.describe()}. An hour after its first "
            "start it goes on, unless it probably fails more."
        )
    return "Check whether capacity.max leaves room for one more instance."


def _open_incidents(state: RolloutState, desired: DesiredRelease) -> dict[str, str]:
    memory, version = state.memory, desired.release.version
    if memory.rejected == version:
        return {
            f"{ROLLED_BACK}/{version}": f"version {version} of the workers was rolled back: "
            f"{memory.rejection_reason}. The workers return to {state.stable_version}. The version is not "
            "tried again until the stack file has named another one. Check the worker logs."
        }
    if (
        state.candidate_version
        and not _is_complete(state)
        and state.snapshot.now - memory.last_step_at
        >= STALL_SECONDS + state.restart_timeout + state.settings.stall_timeout_seconds
    ):
        return {
            STALLED: f"the rollout of version {version} makes no progress: it is verified on "
            f"{len(state.verified)} of {len(state.hosts)} instances, {state.serving_workers} workers serve, "
            f"and {state.demand.min_serving_workers} must serve while one restarts. {_why_it_waits(state)}"
        }
    return {}
