"""Plans the next step of a rollout in each pass: one host first, then batches, then the release is stable.

Invariant: a serving host is restarted only if `MIN_SERVING_SHARE` of the target's workers serve without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from contracts.group.health_settings import HealthSettings
from contracts.group.release import WorkerRelease, WorkerReleases
from contracts.group.release_settings import DesiredRelease
from contracts.group.rollout_request import NO_REQUEST, RolloutRequest
from lambdas.core.health.model import HealthVerdict, HostFinding, Restart, ServiceSnapshot, WorkerHost
from lambdas.core.health.symptoms import CRASH_LOOP_SECONDS
from lambdas.core.rollout.comparison import Comparison, update
from lambdas.core.rollout.state import HostProgress, Rollout, RolloutState, count_requests, workers_of
from lambdas.core.rollout.verdict import HOST_FAULTS, evaluate_candidate, has_proved_itself

REWRITE_SECONDS: Final = 1800
"""Seconds after which an unchanged request to the controller is written again."""
MAX_RESTARTING: Final = 180
"""Instances in a request: more would not fit into the 4,096 bytes of a standard-tier parameter.

Source: Systems Manager user guide, "Parameter tiers".
"""
STALL_SECONDS: Final = 1800.0
"""A rollout without progress for this long, beyond the restart and stall timeouts, raises an incident."""
STALLED: Final = "roll-out/waits"
ROLLED_BACK: Final = "roll-back"


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The decision of one pass.

    Attributes:
        releases: the desired registry row; None if there is none.
        request: the request to the controller; `NO_REQUEST` without a rollout.
        restarts: worker restarts to request now.
        findings: the findings that the rollout leaves to the health checker.
        versions: versions whose common causes the rollout handles.
        open_incidents: descriptions by incident key.
    """

    memory: Rollout
    releases: WorkerReleases | None = None
    request: RolloutRequest = NO_REQUEST
    restarts: tuple[Restart, ...] = ()
    findings: tuple[HostFinding, ...] = ()
    versions: frozenset[str] = frozenset()
    open_incidents: Mapping[str, str] = field(default_factory=dict)


def plan_step(
    snapshot: ServiceSnapshot,
    findings: Iterable[HostFinding],
    settings: HealthSettings,
    desired: DesiredRelease | None,
    memory: Rollout,
) -> RolloutStep:
    """Return the next step; none if no release is desired."""
    if desired is None:
        return RolloutStep(memory, findings=tuple(findings))
    now = snapshot.now
    restarted = {host for host, p in memory.hosts.items() if now - p.sent_at < CRASH_LOOP_SECONDS}
    # Starts that were counted in this time may be those of restarts by the rollout.
    findings = tuple(f for f in findings if f.kind is not HealthVerdict.CRASHING or f.host not in restarted)
    memory = _follow_desired(desired.release, settings, memory, now)
    state = RolloutState(snapshot, findings, settings, desired.per_slot, memory)
    _follow_hosts(state)
    is_known = not (snapshot.are_requests_unknown or snapshot.is_registry_stale)
    if is_known:
        _compare(state)
    restart_hosts = _act(state) if is_known and snapshot.can_act else []
    restarting = frozenset(h.id for h in state.hosts if state.is_restarting(h))
    request = _request(state, restarting)
    exempt = restarting if state.verified_hosts else restarting | {h.id for h in state.unverified_hosts}
    exempt -= {f.host for f in findings if f.kind in HOST_FAULTS}
    ignored = {HealthVerdict.OLD_VERSION} if request != NO_REQUEST else set()
    return RolloutStep(
        memory=state.memory,
        releases=WorkerReleases(
            state.memory.stable or desired.release,
            state.memory.candidate,
            frozenset(host.id for host in state.candidate_hosts),
            2 * len(state.verified_hosts) > len(state.hosts),
        ),
        request=request,
        restarts=tuple(Restart(w.partition, w.instance, w.slot) for h in restart_hosts for w in h.workers),
        findings=tuple(f for f in findings if f.host not in exempt and f.kind not in ignored),
        versions=frozenset({state.candidate_version, state.memory.abandoned} - {""}),
        open_incidents=_open_incidents(state, desired.release.version),
    )


def _follow_desired(desired: WorkerRelease, settings: HealthSettings, memory: Rollout, now: float) -> Rollout:
    """Start the rollout of the desired release, and abandon a candidate that is no longer desired."""
    if desired.version != memory.rejected:
        memory = replace(memory, rejection_reason="")
    stable, candidate = memory.stable, memory.candidate
    if stable is None or settings.max_unavailable_percent == 0 or bool(stable.image) != bool(desired.image):
        # No release is verified, or workers must not be restarted: only new instances use the release. A
        # change between a process and a container also needs new instances.
        return Rollout(desired, written_hash=memory.written_hash)
    if desired.version in (memory.rejected, candidate.version if candidate else ""):
        return memory
    abandoned = candidate.version if candidate else memory.abandoned
    memory = replace(memory, candidate=None, comparison=Comparison(), abandoned=abandoned)
    if desired.version == stable.version:
        return replace(memory, stable=desired)
    return replace(memory, candidate=desired, last_step_at=now)


def _follow_hosts(state: RolloutState) -> None:
    """Record which hosts run the candidate; forget hosts that no longer exist."""
    version, hosts = state.candidate_version, {}
    for host in state.hosts:
        progress = state.progress(host)
        if version and version in host.versions:
            if progress.version != version:
                progress = HostProgress(version)  # it booted with the candidate
            if progress.first_starts is None:
                progress = replace(progress, first_starts=host.starts)
        if progress.version:
            hosts[host.id] = progress
    state.memory = replace(state.memory, hosts=hosts)


def _compare(state: RolloutState) -> None:
    """Add the work since the last pass to the comparison, and record where the candidate is verified."""
    if not state.candidate_version:
        return
    new, old = map(state.workers_with, (state.candidate_version, state.stable_version))
    comparison = update(state.memory.comparison, new, old, state.snapshot.now)
    state.memory = replace(state.memory, comparison=comparison)
    verified = [host for host in state.unverified_hosts if has_proved_itself(state, host)]
    _step(state, {host.id: replace(state.progress(host), is_verified=True) for host in verified})


def _step(state: RolloutState, hosts: Mapping[str, HostProgress]) -> None:
    if hosts:
        hosts = {**state.memory.hosts, **hosts}
        state.memory = replace(state.memory, hosts=hosts, last_step_at=state.snapshot.now)


def _act(state: RolloutState) -> list[WorkerHost]:
    """Roll back, end or extend the rollout; return the hosts to restart."""
    reason, is_inconclusive = evaluate_candidate(state)
    done, failed = count_requests(state.hosts)
    memory = replace(state.memory, candidate=None, comparison=Comparison(), last_step_at=state.snapshot.now)
    if reason:
        state.memory = replace(memory, abandoned=state.candidate_version, rejection_reason=reason)
    elif len(state.verified_hosts) == len(state.hosts) > 0 and (
        done > failed or not any(host.has_progress for host in state.hosts)
    ):
        # Until a request has succeeded, the candidate can be rolled back.
        state.memory = replace(memory, stable=state.memory.candidate, abandoned="")
    hosts = _request_restarts(state, _hosts_to_revert(state), state.stable_version, len(state.hosts))
    return hosts if is_inconclusive else hosts + _extend_candidate(state)


def _hosts_to_revert(state: RolloutState) -> list[WorkerHost]:
    """Return the hosts that run or were sent to a release that is neither candidate nor stable any more.

    Hosts that no rollout has touched stay: they may run releases from before the stable one.
    """
    current = {"", state.stable_version, state.candidate_version}
    return [
        host
        for host in state.hosts
        if (version := state.progress(host).version) not in current
        or (state.memory.abandoned in host.versions - current and version != state.stable_version)
    ]


def _extend_candidate(state: RolloutState) -> list[WorkerHost]:
    """Restart more hosts with the candidate, up to a batch: oldest first, hosts that are not ready last.

    Each has processed requests before: on a new host the effect of the release is unknown.
    """
    version, is_first = state.candidate_version, not state.verified_hosts
    remaining = [
        host
        for host in state.hosts
        if version
        and host.workers
        and state.progress(host).version != version
        and not state.is_restarting(host)
        and (state.has_processed_requests(host) or not (is_first or state.is_ready(host)))
    ]
    remaining.sort(key=lambda host: (not state.is_ready(host), host.launched_at or 0.0, host.id))
    return _request_restarts(state, remaining, version, state.batch_size - len(state.unverified_hosts))


def _request_restarts(
    state: RolloutState, hosts: Iterable[WorkerHost], version: str, max_hosts: int
) -> list[WorkerHost]:
    """Request restarts of at most ``max_hosts`` hosts with a version, while enough others serve."""
    serving, restarting = state.serving_workers, sum(map(state.is_restarting, state.hosts))
    restart_hosts: list[WorkerHost] = []
    for host in hosts:
        if len(restart_hosts) >= max_hosts:
            break
        is_serving = state.is_serving(host)
        # A host that may process requests, though it does not count as serving, also waits for its turn.
        if is_serving or (state.is_healthy(host) and state.memory.rejected not in host.versions):
            remaining = serving - is_serving * workers_of(host)
            is_batch_full = restarting + len(restart_hosts) >= state.batch_size
            if remaining < state.min_serving_workers or is_batch_full:
                continue
            serving = remaining
        restart_hosts.append(host)
    _step(state, {host.id: HostProgress(version, state.snapshot.now) for host in restart_hosts})
    return restart_hosts


def _request(state: RolloutState, restarting: frozenset[str]) -> RolloutRequest:
    """Return the request to the controller: surge slots for a batch while hosts remain to be restarted."""
    version, progress = state.candidate_version, map(state.progress, state.hosts)
    has_remaining_hosts = version and any(
        p.version != version or (p.sent_at and not p.is_verified) for p in progress
    )
    if not (has_remaining_hosts or restarting or _hosts_to_revert(state)):
        return NO_REQUEST
    max_workers = max(map(workers_of, state.hosts), default=0)
    surge = state.batch_size * -(-max_workers // state.workers_per_slot)
    return RolloutRequest(
        int(state.snapshot.now // REWRITE_SECONDS * REWRITE_SECONDS),
        max(0, min(surge, state.snapshot.maximum - state.snapshot.target)),
        tuple(sorted(restarting)[:MAX_RESTARTING]),
    )


def _open_incidents(state: RolloutState, version: str) -> dict[str, str]:
    memory, now, comparison = state.memory, state.snapshot.now, state.memory.comparison
    if memory.rejected == version:
        return {
            f"{ROLLED_BACK}/{version}": f"version {version} of the workers was rolled back: "
            f"{memory.rejection_reason}. The workers return to {state.stable_version}. The version is not "
            "tried again until the stack file has named another one. Check the worker logs."
        }
    timeout = STALL_SECONDS + state.restart_timeout + state.settings.stall_timeout_seconds
    is_complete = len(state.verified_hosts) == len(state.hosts)
    if not state.candidate_version or is_complete or now - memory.last_step_at < timeout:
        return {}
    reason = "Check whether capacity.max leaves room for one more instance."
    if state.snapshot.are_requests_unknown:
        reason = "Check why the requests at the proxies are unknown."
    elif comparison.is_outage:
        reason = "Requests fail with both releases, which points to a dependency."
    elif comparison.began_at and not comparison.is_good() and not comparison.has_expired(now):
        reason = (
            f"Too few requests tell whether it fails more: {comparison.describe()}. An hour after its first "
            "start it goes on, unless it probably fails more."
        )
    return {
        STALLED: f"the rollout of version {version} makes no progress: it is verified on "
        f"{len(state.verified_hosts)} of {len(state.hosts)} instances, {state.serving_workers} workers "
        f"serve, and {state.min_serving_workers} must serve while one restarts. {reason}"
    }
