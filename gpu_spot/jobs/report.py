"""The report of a job: snapshot, status and timeline, and its JSON form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_spot.jobs import account as accounts
from gpu_spot.jobs.account import RunAccount
from gpu_spot.jobs.prices import PriceBook
from gpu_spot.jobs.snapshot import JobSnapshot
from gpu_spot.jobs.status import JobStatus
from gpu_spot.jobs.timeline import AttemptSummary, JobTimeline, build_timeline


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job's snapshot and status, and the timeline and account of its run (None if not requested)."""

    snapshot: JobSnapshot
    status: JobStatus
    timeline: JobTimeline | None = None
    account: RunAccount | None = None

    @property
    def progress(self) -> tuple[int, int | None] | None:
        """Steps done and planned, as last reported by the instance that runs the job, else by any.

        None for a job that is done: its last report is older than its end.
        """
        if self.status.phase == "done":
            return None
        steps, host = self.snapshot.steps, self.status.host
        if host is not None and host.instance in steps:
            return steps[host.instance]
        return max(steps.values(), key=lambda step_and_total: step_and_total[0], default=None)


def timeline_of(snapshot: JobSnapshot, prices: PriceBook) -> JobTimeline:
    """Return the timeline of the desired run."""
    return build_timeline(
        snapshot.run_attempts,
        prices,
        now=snapshot.now,
        newest_token=snapshot.row.token,
        is_stopped=snapshot.is_stopped,
    )


def with_account(snapshot: JobSnapshot, status: JobStatus, prices: PriceBook) -> JobReport:
    """Return a report with the timeline of the desired run and its account."""
    timeline = timeline_of(snapshot, prices)
    is_over = bool(snapshot.outcome) or snapshot.is_stopped
    account = accounts.account_of(timeline, prices, at=snapshot.now, is_over=is_over)
    return JobReport(snapshot, status, timeline, account)


def to_json(job: JobReport) -> dict[str, Any]:
    """Return a report as JSON values.

    Times are epoch seconds, durations seconds, money US dollars.
    """
    snapshot, status, timeline = job.snapshot, job.status, job.timeline
    progress, nodes = job.progress, snapshot.row.nodes
    return {
        "job": snapshot.name,
        "state": status.phase,
        "why": status.reason,
        "at": snapshot.now,
        "since": status.since,
        "revision": snapshot.run,
        "retries": snapshot.row.retries_of(snapshot.run),
        "step": progress[0] if progress else None,
        "steps": progress[1] if progress else None,
        "nodes": {"present": snapshot.present_nodes, "min": nodes.min, "max": nodes.max} if nodes else None,
        "budget_usd": snapshot.budget or None,
        "spent_usd": round(snapshot.spent, 4) if snapshot.budget else None,
        "host": {
            "instance": status.host.instance,
            "type": status.host.instance_type,
            "zone": status.host.zone,
            "market": status.host.market,
        }
        if status.host
        else None,
        **({} if timeline is None else _timeline_totals(timeline)),
        **({} if job.account is None else {"account": accounts.to_json(job.account)}),
    }


def _timeline_totals(timeline: JobTimeline) -> dict[str, Any]:
    return {
        "interruptions": timeline.interruptions,
        "moves": timeline.moves,
        "worked_seconds": timeline.worked_seconds,
        "lost_seconds": timeline.lost_seconds,
        "away_seconds": timeline.away_seconds,
        "estimated_cost_usd": round(timeline.charge.dollars, 4),
        "unpriced_seconds": timeline.charge.unpriced_seconds,
        "timeline_is_cut": timeline.is_cut,
        "timeline": [_attempt(attempt) for attempt in timeline.attempts],
    }


def _attempt(summary: AttemptSummary) -> dict[str, Any]:
    attempt = summary.attempt
    return {
        "instance": attempt.instance,
        "type": attempt.instance_type,
        "zone": attempt.zone,
        "market": attempt.purchase_option,
        "launched": attempt.launched,
        "began": attempt.began,
        "started": summary.started,
        "starts": attempt.starts,
        "until": summary.ended_at,
        "ending": summary.ending,
        "lost_seconds": summary.lost_seconds,
        "away_seconds": summary.away_seconds,
        "repeated_steps": summary.repeated_steps,
        "estimated_cost_usd": None if summary.cost is None else round(summary.cost, 4),
    }
