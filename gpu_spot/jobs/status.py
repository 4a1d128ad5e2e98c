"""The status of a job: a phase and the reason, derived from its snapshot."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from contracts.registry.item import Worker
from gpu_spot.jobs.snapshot import JobHost, JobSnapshot

Phase: TypeAlias = Literal[
    "pending",  # never ran: no host yet, or it boots
    "preparing",  # its dataset or first volume is being created
    "running",
    "interrupted",  # its host has a termination notice, or does not report
    "moving",  # the next host boots, or prepares the volume
    "waiting for a host",  # ran before, and has no host now
    "stopped",  # by a user, or because its budget is spent; the volume is kept
    "done",
    "failed",
]

PASSIVE_MODES: Final = ("paused", "dry-run", "manual")
"""Controller modes in which the controller launches and terminates no instances for a job."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job's phase, the reason, and the instance concerned; ``since`` is when that instance started."""

    phase: Phase
    reason: str
    host: JobHost | None = None
    since: float | None = None


def job_status(snapshot: JobSnapshot) -> JobStatus:
    """Return the status of a job."""
    status = _job_status(snapshot)
    if status.phase == "running" and _has_too_few_nodes(snapshot):
        status = replace(status, phase="waiting for a host", reason=_reason_without_host(snapshot))
    if note := snapshot.request_note:
        return replace(status, reason="; ".join(filter(None, (status.reason, note))))
    summary = snapshot.experiment_summary or ("" if status.phase == "done" else snapshot.node_summary)
    if not summary or status.phase == "stopped":
        return status
    return replace(status, reason="; ".join(filter(None, (summary, status.reason))))


def _has_too_few_nodes(snapshot: JobSnapshot) -> bool:
    """Return whether nodes are missing, and not only ended while the one with rank 0 exports the model."""
    at_work = sum(worker.state != "waiting" for worker in _fresh_workers(snapshot))
    nodes = snapshot.row.nodes
    return nodes is not None and max(snapshot.present_nodes, at_work) < nodes.min


def _job_status(snapshot: JobSnapshot) -> JobStatus:
    at_work = [worker for worker in _fresh_workers(snapshot) if worker.state != "waiting"]
    if snapshot.awaits_first_run:
        return JobStatus("pending", "no run yet: its schedule or `gpu-spot jobs run` starts one")
    if snapshot.outcome == "done":
        return JobStatus("done", "", since=snapshot.row.changed_at or None)
    if snapshot.outcome == "failed":
        return JobStatus("failed", snapshot.row.reason, since=snapshot.row.changed_at or None)
    if snapshot.is_stopped:
        if at_work:
            return JobStatus(
                "stopped",
                f"{at_work[0].instance} saves a checkpoint and releases the volume",
                _host(snapshot, at_work),
            )
        return JobStatus("stopped", "its volume is kept; resume it with `gpu-spot jobs resume`")
    if snapshot.is_over_budget:
        reason = (
            f"its budget of ${snapshot.budget:,.2f} is spent; resume it with `gpu-spot jobs resume --budget`"
        )
        if at_work:
            return JobStatus(
                "stopped", f"{at_work[0].instance} saves a checkpoint: {reason}", _host(snapshot, at_work)
            )
        return JobStatus("stopped", reason)
    if not snapshot.target:
        return JobStatus("stopped", "its target is 0")
    if snapshot.waits_for:
        return JobStatus("preparing", f"group {snapshot.prepared_by} prepares dataset {snapshot.waits_for}")
    if at_work:
        return _status_at_work(snapshot, at_work)
    return _status_between_hosts(snapshot)


def _status_at_work(snapshot: JobSnapshot, workers: list[Worker]) -> JobStatus:
    # During a hand-over two workers may report: the one that holds the lease counts.
    # Of several nodes one without a notice says how the job is.
    without_notice = [worker for worker in workers if snapshot.nodes and worker.deadline is None]
    workers = without_notice or workers
    worker = next((worker for worker in workers if worker.instance == snapshot.row.holder), workers[0])
    host = _host(snapshot, [worker])
    if worker.deadline is None:
        return JobStatus("running", "", host, worker.since)
    remaining = max(0.0, worker.deadline - snapshot.now)
    return JobStatus("interrupted", f"{worker.instance} terminates in {remaining:.0f} s", host, worker.since)


def _status_between_hosts(snapshot: JobSnapshot) -> JobStatus:
    has_run = any(attempt.starts for attempt in snapshot.run_attempts) or (
        snapshot.row.revision == snapshot.run and snapshot.row.state == "running"
    )
    if snapshot.group and not snapshot.workers:
        phase_now: Phase = "waiting for a host" if has_run else "pending"
        return JobStatus(phase_now, f"waiting for an instance of {snapshot.group}")
    standby = [worker for worker in _fresh_workers(snapshot) if worker.deadline is None]
    preparing = [
        w
        for w in standby
        if w.instance == snapshot.row.holder and snapshot.row.lease_expires_at > snapshot.now
    ]
    if preparing:
        reason = f"{preparing[0].instance} prepares its volume"
        return JobStatus(
            "moving" if has_run else "preparing", reason, _host(snapshot, preparing), preparing[0].since
        )
    finished = {attempt.instance for attempt in snapshot.run_attempts if attempt.ended}
    unfinished = {attempt.instance: attempt for attempt in snapshot.run_attempts if not attempt.ended}
    live = [host for host in snapshot.hosts if host.is_live]
    if not standby and (lost := next((host for host in live if host.instance in unfinished), None)):
        seconds = snapshot.now - unfinished[lost.instance].last_seen_at
        return JobStatus("interrupted", f"no heartbeat from {lost.instance} for {seconds:.0f} s", lost)
    phase: Phase = "moving" if has_run else "pending"
    if standby:
        holder = snapshot.row.holder if snapshot.row.lease_expires_at > snapshot.now else ""
        reason = f"{standby[0].instance} waits for " + (
            f"{holder} to release the lease" if holder else "the lease"
        )
        return JobStatus(phase, reason, _host(snapshot, standby), standby[0].since)
    if booting := _booting(snapshot, finished):
        return JobStatus(phase, _reason_without_host(snapshot, finished), booting, booting.launched)
    waits: Phase = "waiting for a host" if has_run else "pending"
    return JobStatus(waits, _reason_without_host(snapshot, finished))


def _booting(snapshot: JobSnapshot, finished: Set[str] = frozenset()) -> JobHost | None:
    """Return the newest instance that boots; ``finished``: instances whose part has ended."""
    up_or_finished = {worker.instance for worker in _fresh_workers(snapshot)} | finished
    booting = [host for host in snapshot.hosts if host.is_live and host.instance not in up_or_finished]
    return max(booting, key=lambda host: host.launched, default=None)


def _reason_without_host(snapshot: JobSnapshot, finished: Set[str] = frozenset()) -> str:
    """Return what a job waits for whose instances are too few."""
    if booting := _booting(snapshot, finished):
        return f"{booting.instance} is booting"
    if snapshot.mode in PASSIVE_MODES:
        return f"the controller is in mode {snapshot.mode}"
    return "Spot or On-Demand capacity is requested"


def _fresh_workers(snapshot: JobSnapshot) -> list[Worker]:
    """Return the workers with a recent heartbeat, by the controller's rule."""
    return [worker for worker in snapshot.workers if worker.is_fresh(snapshot.now)]


def _host(snapshot: JobSnapshot, workers: list[Worker]) -> JobHost | None:
    return next((host for host in snapshot.hosts if host.instance == workers[0].instance), None)
