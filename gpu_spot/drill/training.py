"""The effect of a drill on training jobs, from successive job reports and the final timelines."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.status import Phase
from userdata.agent.cost.timeline import AttemptSummary, JobTimeline

_ENDED: Final[tuple[Phase, ...]] = ("stopped", "done", "failed")


@dataclass(frozen=True, slots=True)
class JobLoss:
    """The loss of one job. Durations are seconds; None: unknown, or not yet happened.

    Its command ran again at ``resumed_at`` (epoch seconds) after ``away_seconds``; ``lost_seconds`` of work
    were repeated. ``step_before`` is the last step that an interrupted instance reported, ``step_after`` the
    first that its successor reported.
    """

    job: str
    resumed_at: float | None
    away_seconds: float | None
    lost_seconds: float
    step_before: int | None
    step_after: int | None

    @property
    def lost_steps(self) -> int | None:
        """Number of repeated steps, from the steps that the job reports."""
        if self.step_before is None or self.step_after is None:
            return None
        return max(0, self.step_before - self.step_after)

    def to_json(self, started: float) -> dict[str, Any]:
        """Return the loss as JSON values; times are seconds after ``started``."""
        return {
            "job": self.job,
            "went_on_after": None if self.resumed_at is None else round(self.resumed_at - started, 1),
            "away_seconds": None if self.away_seconds is None else round(self.away_seconds, 1),
            "lost_seconds": round(self.lost_seconds, 1),
            "lost_steps": self.lost_steps,
            "step_before": self.step_before,
            "step_after": self.step_after,
        }


@dataclass(slots=True)
class _WatchedJob:
    """A job: its last host, its interrupted hosts, and the first and last step that each reported."""

    host: str = ""
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost_instances: dict[str, None] = field(default_factory=dict)
    is_running: bool = True


@dataclass(slots=True)
class JobsProgress:
    """The jobs of a group during a drill. ``timelines`` of interrupted jobs are added at its end."""

    timelines: dict[str, JobTimeline] = field(default_factory=dict)
    _jobs: dict[str, _WatchedJob] = field(default_factory=dict)

    def update(self, jobs: Iterable[JobReport], lost: Collection[str]) -> None:
        """Add reports of the jobs; ``lost`` are the instances interrupted so far."""
        for report in jobs:
            if report.snapshot.experiments:
                continue  # a group of experiments; each experiment is a job
            job = self._jobs.setdefault(report.snapshot.name, _WatchedJob())
            for instance, (step, _) in report.snapshot.steps.items():
                job.steps[instance] = (job.steps.get(instance, (step, step))[0], step)
            if job.host in lost:
                job.lost_instances[job.host] = None
            if report.status.host is not None:
                job.host = report.status.host.instance
            if job.host in lost:
                job.lost_instances[job.host] = None
            has_reported_step = job.host in job.steps or not job.steps.keys() & job.lost_instances.keys()
            has_moved = report.status.phase == "running" and job.host not in job.lost_instances
            job.is_running = (
                not job.lost_instances or report.status.phase in _ENDED or (has_moved and has_reported_step)
            )

    @property
    def interrupted_jobs(self) -> tuple[str, ...]:
        """The jobs that lost an instance."""
        return tuple(name for name, job in self._jobs.items() if job.lost_instances)

    @property
    def is_finished(self) -> bool:
        """Whether all of these jobs have resumed or finished."""
        return all(job.is_running for job in self._jobs.values())

    def losses(self) -> list[JobLoss]:
        """Return the loss of each interrupted job."""
        return [_loss(name, self._jobs[name], self.timelines.get(name)) for name in self.interrupted_jobs]


def _loss(name: str, job: _WatchedJob, timeline: JobTimeline | None) -> JobLoss:
    attempts = () if timeline is None else timeline.attempts
    interrupted = [summary for summary in attempts if summary.attempt.instance in job.lost_instances]
    after = attempts[attempts.index(interrupted[-1]) + 1 :] if interrupted else ()
    next_started: AttemptSummary | None = next(
        (summary for summary in after if summary.started is not None), None
    )
    successor = "" if next_started is None else next_started.attempt.instance
    away = [summary.away_seconds for summary in interrupted if summary.away_seconds is not None]
    return JobLoss(
        job=name,
        resumed_at=None if next_started is None else next_started.started,
        away_seconds=sum(away) if next_started is not None else None,
        lost_seconds=sum(summary.lost_seconds for summary in interrupted),
        step_before=max(
            (job.steps[instance][1] for instance in job.lost_instances if instance in job.steps), default=None
        ),
        step_after=job.steps[successor][0] if successor in job.steps else None,
    )
