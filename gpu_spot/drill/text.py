"""The result of a drill as text."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_spot.drill.progress import DrillProgress
from gpu_spot.drill.training import JobLoss
from gpu_spot.text import counted, percent, span


def lines(progress: DrillProgress) -> Iterator[str]:
    """Yield the result of a drill, one line each."""
    if not progress.losses:
        yield f"no instance of {progress.group} was interrupted within {span(progress.watched_seconds)}"
        return
    for loss in progress.losses.values():
        termination = (
            "not terminated yet"
            if loss.terminated_at is None
            else f"terminated after {span(loss.terminated_at - progress.started_at)}"
        )
        noticed = progress.started_at if loss.noticed_at is None else loss.noticed_at
        instance = f"{loss.instance} ({loss.instance_type}, {loss.zone})"
        yield f"{instance}: notice after {span(noticed - progress.started_at)}, {termination}"
    if progress.recovered_at is None:
        elapsed = span(progress.watched_seconds)
        yield f"not recovered within {elapsed}: see `gpu-spot status --group {progress.group}`"
    else:
        yield f"recovered after {span(progress.recovered_at - progress.started_at)}"
    yield (
        f"minimum {progress.min_serving} of {counted(progress.target, 'worker slot')} serving, "
        f"{percent(progress.served_share, 2)} of the desired slot time served, "
        f"{span(progress.shortage_seconds)} of slot time lost"
    )
    for job_loss in progress.jobs.losses():
        yield _job_line(job_loss, progress.started_at)


def _job_line(loss: JobLoss, started: float) -> str:
    lost_work = f"{span(loss.lost_seconds)} of work lost"
    if loss.lost_steps is not None:
        lost_work += f", {counted(loss.lost_steps, 'step')}"
    if loss.resumed_at is None or loss.away_seconds is None:
        return f"{loss.job}: has not resumed; {lost_work}: see `gpu-spot jobs show {loss.job}`"
    at = "" if loss.step_after is None else f" at step {loss.step_after:,}"
    resumed = f"resumed after {span(loss.resumed_at - started)}{at}"
    return f"{loss.job}: {resumed}; downtime {span(loss.away_seconds)}, {lost_work}"
