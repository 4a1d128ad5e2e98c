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
from lambdas.core.health.fair_share import MIN_REQUESTS
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
STALL_SECONDS: Final = 3600.0
"""A rollout without progress for this long, beyond the restart timeout, raises an incident."""
STALLED: Final = "roll-out/waits"
UNDECIDED: Final = "roll-out/undecided"
UNDECIDED_SECONDS: Final = 2700.0
"""A comparison that has proven nothing for this long raises an incident; later the estimates decide."""
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
    findings = tuple(f for f in findings if not _is_from_previous_release(f, memory, snapshot.now))
    memory = _follow_desired(desired.release, settings, memory, snapshot.now)
    state = _update_runs(_compare(RolloutState.of(snapshot, findings, settings, demand, memory)))
    can_step = snapshot.can_act and not snapshot.is_registry_stale and not snapshot.are_requests_unknown
    restart_hosts: list[WorkerHost] = []
    if can_step:
        verdict = evaluate_candidate(state, findings) if state.candidate_version else None
        if verdict is not None and verdict.rejection_reason:
            state = _roll_back(state, verdict.rejection_reason)
        elif verdict is not None and _is_complete(state) and _has_successful_requests(state):
            state = _promote(state)
        state, restart_hosts = _revert_hosts(state)
        if verdict is not None and state.candidate_version and not verdict.is_inconclusive:
            state, candidate_hosts = _extend_candidate(state)
            restart_hosts += candidate_hosts
    memory = state.memory
    restarting = frozenset(h.id for h in state.hosts if state.is_restarting(h))
    exempt_hosts = restarting | (
        frozenset() if state.verified else frozenset(h.id for h in state.unverified_hosts)
    )
    faulty_hosts = {f.host for f in findings if f.kind in HOST_FAULTS}
    recently_restarted = frozenset(
        host
        for host, request in memory.requested_restarts.items()
        if snapshot.now - request.requested_at < CRASH_LOOP_SECONDS
    )
    return RolloutStep(
        memory=memory,
        releases=_releases(state),
        request=_rollout_request(state, restarting),
        restarts=tuple(
            Restart(w.partition, w.instance, w.slot) for host in restart_hosts for w in host.workers
        ),
        exempt_hosts=exempt_hosts - faulty_hosts,
        recently_restarted=recently_restarted,
        versions=frozenset({state.candidate_version, memory.rejected, *memory.abandoned_versions} - {""}),
        open_incidents=_open_incidents(state, desired),
    )


def _is_from_previous_release(finding: HostFinding, memory: Rollout, now: float) -> bool:
    """Return whether a crash finding may count starts of the previous release; `verdict` counts its own."""
    request = memory.requested_restarts.get(finding.host)
    return (
        finding.kind is HealthVerdict.CRASHING
        and request is not None
        and now - request.requested_at < CRASH_LOOP_SECONDS
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
    stable = memory.stable
    if stable is None or settings.max_unavailable_percent == 0 or bool(stable.image) != bool(desired.image):
        # No release is verified, or workers must not be restarted: only new instances use the release. A
        # change between a process and a container also needs new instances.
        return replace(
            memory,
            stable=desired,
            candidate=None,
            verified={},
            runs={},
            abandoned_versions=(),
            comparison=Comparison(),
        )
    if desired.version in (memory.rejected, memory.candidate.version if memory.candidate else ""):
        return memory
    if memory.candidate is not None:
        memory = _abandon_candidate(memory)
    if desired.version == stable.version:
        return replace(memory, stable=desired)
    abandoned = tuple(version for version in memory.abandoned_versions if version != desired.version)
    return replace(
        memory,
        candidate=desired,
        abandoned_versions=abandoned,
        last_step_at=now,
        runs={},
        comparison=Comparison(),
    )


def _abandon_candidate(memory: Rollout) -> Rollout:
    """Abandon the candidate: its workers return to the stable release."""
    if memory.candidate is None:
        return memory
    abandoned = (
        *(v for v in memory.abandoned_versions if v != memory.candidate.version),
        memory.candidate.version,
    )[-MAX_ABANDONED_VERSIONS:]
    return replace(memory, candidate=None, abandoned_versions=abandoned, runs={}, comparison=Comparison())


def _roll_back(state: RolloutState, reason: str) -> RolloutState:
    rejected, now = state.candidate_version, state.snapshot.now
    return replace(
        state,
        memory=replace(
            _abandon_candidate(state.memory), rejected=rejected, rejection_reason=reason, last_step_at=now
        ),
    )


def _promote(state: RolloutState) -> RolloutState:
    memory = replace(
        state.memory,
        stable=state.memory.candidate,
        candidate=None,
        verified={},
        runs={},
        comparison=Comparison(),
    )
    return replace(state, memory=memory)


def _is_complete(state: RolloutState) -> bool:
    verified = state.verified
    return bool(verified) and all(host.id in verified for host in state.hosts)


def _has_successful_requests(state: RolloutState) -> bool:
    """Return whether a request has succeeded with the candidate, or workers do not report progress.

    Until then the candidate can be rolled back.
    """
    done, failed = count_requests(state.hosts)
    return done > failed or not any(reports_progress(host) for host in state.hosts)


def _compare(state: RolloutState) -> RolloutState:
    """Add the work since the last pass to the comparison of candidate and stable release."""
    memory = state.memory
    if memory.candidate is None or memory.stable is None or state.snapshot.are_requests_unknown:
        return state
    new = state.workers_with(memory.candidate.version)
    old = state.workers_with(memory.stable.version)
    comparison = comparisons.update(memory.comparison, new, old, state.snapshot.now)
    return replace(state, memory=replace(memory, comparison=comparison))


def _update_runs(state: RolloutState) -> RolloutState:
    """Record which hosts run the candidate and where it is verified; drop hosts that no longer exist."""
    memory, now = state.memory, state.snapshot.now
    ids = {host.id for host in state.hosts}
    runs: dict[str, CandidateRun] = {}
    for host in state.hosts:
        run = memory.runs.get(host.id)
        if state.candidate_version in host.versions:
            starts = count_starts(host)
            is_stable = (
                state.runs_only(host, state.candidate_version) and run is not None and run.starts == starts
            )
            runs[host.id] = (
                run if run and is_stable else CandidateRun(now, starts, run.first_starts if run else starts)
            )
        elif run is not None and state.candidate_version:
            runs[host.id] = replace(run, since=now)  # no registry item between two starts
    memory = replace(
        memory,
        requested_restarts={
            host: request for host, request in memory.requested_restarts.items() if host in ids
        },
        runs=runs,
        verified={host: version for host, version in memory.verified.items() if host in ids},
    )
    state = replace(state, memory=memory)
    verified = {
        host.id: state.candidate_version for host in state.unverified_hosts if is_verified(state, host)
    }
    if not verified:
        return state
    return replace(state, memory=replace(memory, verified={**memory.verified, **verified}, last_step_at=now))


def _revert_hosts(state: RolloutState) -> tuple[RolloutState, list[WorkerHost]]:
    """Restart hosts with an abandoned version: unhealthy ones at once, the others in batches."""
    stable = state.memory.stable
    hosts = _hosts_to_revert(state)
    if stable is None or not hosts:
        return state, []
    return _request_restarts(state, hosts, stable.version, len(hosts))


def _hosts_to_revert(state: RolloutState) -> list[WorkerHost]:
    """Return the hosts that run or were sent to an abandoned version and were not reverted yet."""
    stable, abandoned = state.memory.stable, state.memory.abandoned_versions
    hosts: list[WorkerHost] = []
    for host in state.hosts:
        request = state.memory.requested_restarts.get(host.id)
        version = request.version if request is not None else ""
        is_requested = stable is not None and version == stable.version
        if not is_requested and (version in abandoned or not host.versions.isdisjoint(abandoned)):
            hosts.append(host)
    return hosts


def _extend_candidate(state: RolloutState) -> tuple[RolloutState, list[WorkerHost]]:
    """Restart more hosts with the candidate, up to a batch: oldest first, hosts that are not ready last.

    Each has processed requests before: on a new host the effect of the release is unknown. The first is of
    the most frequent instance type, so that others of its type can be compared with it.
    """
    candidate_ids = {host.id for host in state.candidate_hosts}
    remaining = [
        h for h in state.hosts if h.id not in candidate_ids and not state.is_restarting(h) and h.workers
    ]
    is_verified_once = bool(state.verified)
    remaining = [
        h
        for h in remaining
        if state.has_processed_requests(h) or (is_verified_once and not state.is_ready(h))
    ]
    count = Counter(host.instance_type for host in state.hosts if not is_verified_once)
    remaining.sort(key=lambda h: (not state.is_ready(h), -count[h.instance_type], h.launched_at or 0.0, h.id))
    return _request_restarts(
        state, remaining, state.candidate_version, state.batch_size - len(state.unverified_hosts)
    )


def _request_restarts(
    state: RolloutState, hosts: Iterable[WorkerHost], version: str, max_hosts: int
) -> tuple[RolloutState, list[WorkerHost]]:
    """Request restarts of at most ``max_hosts`` hosts with a version, while enough others serve."""
    serving, restarting = state.serving_workers, sum(state.is_restarting(h) for h in state.hosts)
    restart_hosts: list[WorkerHost] = []
    requests = dict(state.memory.requested_restarts)
    verified = dict(state.memory.verified)
    for host in hosts:
        request = requests.get(host.id)
        if len(restart_hosts) >= max_hosts:
            break
        if request is not None and request.version == version:
            continue
        if state.can_serve(host):
            worker_count = expected_workers(host) if state.is_serving(host) else 0
            if (
                serving - worker_count < state.demand.min_serving_workers
                or restarting + len(restart_hosts) >= state.batch_size
            ):
                continue
            serving -= worker_count
        requests[host.id] = RestartRequest(version, state.snapshot.now)
        verified.pop(host.id, None)
        restart_hosts.append(host)
    if not restart_hosts:
        return state, []
    memory = replace(
        state.memory, requested_restarts=requests, verified=verified, last_step_at=state.snapshot.now
    )
    return replace(state, memory=memory), restart_hosts


def _releases(state: RolloutState) -> WorkerReleases | None:
    memory = state.memory
    if memory.stable is None:
        return None
    is_default = 2 * len(state.verified) > len(state.hosts)
    candidate_ids = frozenset(host.id for host in state.candidate_hosts)
    return WorkerReleases(
        memory.stable, memory.candidate, candidate_ids, bool(memory.candidate) and is_default
    )


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


def _is_undecided(state: RolloutState) -> bool:
    """Return whether the comparison takes unusually long although there are requests to compare."""
    comparison, now = state.memory.comparison, state.snapshot.now
    return (
        bool(state.candidate_version)
        and bool(comparison.began_at)
        and not comparison.is_accepted
        and not comparison.has_expired(now)
        and now - comparison.began_at >= UNDECIDED_SECONDS
        and (comparison.requests.new >= MIN_REQUESTS or comparison.is_outage(now))
    )


def _open_incidents(state: RolloutState, desired: DesiredRelease) -> dict[str, str]:
    memory, version = state.memory, desired.release.version
    if memory.rejected == version and memory.stable is not None:
        return {
            f"{ROLLED_BACK}/{version}": f"version {version} of the workers was rolled back: "
            f"{memory.rejection_reason}. The workers return to {memory.stable.version}. The version is not "
            "tried again until the stack file has named another one. Check the worker logs."
        }
    if _is_undecided(state):
        return {
            UNDECIDED: f"it is not proven whether version {version} of the workers is worse than the release "
            f"before it: {memory.comparison.describe(state.snapshot.now)}. The rollout waits; an hour after "
            "the first start, and not during an outage, the better estimate decides."
        }
    if (
        state.candidate_version
        and not _is_complete(state)
        and state.snapshot.now - memory.last_step_at >= STALL_SECONDS + state.restart_timeout
    ):
        return {
            STALLED: f"the rollout of version {version} makes no progress: it is verified on "
            f"{len(state.verified)} of {len(state.hosts)} instances, {state.serving_workers} workers serve, "
            f"and {state.demand.min_serving_workers} must serve while one restarts. Check "
            + (
                "why the requests at the proxies are unknown."
                if state.snapshot.are_requests_unknown
                else "whether capacity.max leaves room for one more instance."
            )
        }
    return {}
