"""What a drill cost the training jobs that it took instances of: from looks at them, and stories; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_spot.jobs.account import JobAccount
from gpu_spot.jobs.status import Phase
from gpu_spot.jobs.timeline import Chapter, Story

_ENDED: Final[tuple[Phase, ...]] = ("stopped", "done", "failed")


@dataclass(frozen=True, slots=True)
class JobLoss:
    """What one job lost. Lengths are seconds; None is what is not known, or has not come to pass.

    Its command ran again at ``went_on`` (epoch seconds) after ``away_seconds``; ``lost_seconds`` of work were
    done again. ``step_before`` was the last that a taken instance told, ``step_after`` the first that its
    successor told.
    """

    job: str
    went_on: float | None
    away_seconds: float | None
    lost_seconds: float
    step_before: int | None
    step_after: int | None

    @property
    def lost_steps(self) -> int | None:
        """How many steps were done again, as far as the job's own words show."""
        if self.step_before is None or self.step_after is None:
            return None
        return max(0, self.step_before - self.step_after)

    def to_json(self, started: float) -> dict[str, Any]:
        """Return it as JSON values: times in seconds after ``started``."""
        return {
            "job": self.job,
            "went_on_after": None if self.went_on is None else round(self.went_on - started, 1),
            "away_seconds": None if self.away_seconds is None else round(self.away_seconds, 1),
            "lost_seconds": round(self.lost_seconds, 1),
            "lost_steps": self.lost_steps,
            "step_before": self.step_before,
            "step_after": self.step_after,
        }


@dataclass(slots=True)
class _Watched:
    """One job: who had it last, who of them was taken, and the first and the last step that each told."""

    host: str = ""
    told: dict[str, tuple[int, int]] = field(default_factory=dict)
    taken: dict[str, None] = field(default_factory=dict)
    goes_on: bool = True


@dataclass(slots=True)
class JobsCourse:
    """Hears looks at a group's jobs; of one that it has taken from, ``stories`` are added in the end."""

    stories: dict[str, Story] = field(default_factory=dict)
    _jobs: dict[str, _Watched] = field(default_factory=dict)

    def see(self, jobs: Iterable[JobAccount], lost: Collection[str]) -> None:
        """Hear how the jobs stand; ``lost`` are the instances that the drill took until now."""
        for one in jobs:
            if one.seen.experiments:
                continue  # a group of experiments: each is a job
            job = self._jobs.setdefault(one.seen.name, _Watched())
            for instance, (step, _) in one.seen.steps.items():
                job.told[instance] = (job.told.get(instance, (step, step))[0], step)
            if job.host in lost:
                job.taken[job.host] = None
            if one.standing.host is not None:
                job.host = one.standing.host.instance
            if job.host in lost:
                job.taken[job.host] = None
            has_told = job.host in job.told or not job.told.keys() & job.taken.keys()
            is_elsewhere = one.standing.phase == "running" and job.host not in job.taken
            job.goes_on = not job.taken or one.standing.phase in _ENDED or (is_elsewhere and has_told)

    @property
    def taken(self) -> tuple[str, ...]:
        """The jobs that lost an instance."""
        return tuple(name for name, job in self._jobs.items() if job.taken)

    @property
    def is_over(self) -> bool:
        """Whether all of these go on, or have ended."""
        return all(job.goes_on for job in self._jobs.values())

    def losses(self) -> list[JobLoss]:
        """Return what each of them lost."""
        return [_loss(name, self._jobs[name], self.stories.get(name)) for name in self.taken]


def _loss(name: str, job: _Watched, story: Story | None) -> JobLoss:
    chapters = () if story is None else story.chapters
    hit = [one for one in chapters if one.stint.instance in job.taken]
    after = chapters[chapters.index(hit[-1]) + 1 :] if hit else ()
    next_one: Chapter | None = next((one for one in after if one.started is not None), None)
    successor = "" if next_one is None else next_one.stint.instance
    away = [one.away_seconds for one in hit if one.away_seconds is not None]
    return JobLoss(
        job=name,
        went_on=None if next_one is None else next_one.started,
        away_seconds=sum(away) if next_one is not None else None,
        lost_seconds=sum(one.lost_seconds for one in hit),
        step_before=max((job.told[one][1] for one in job.taken if one in job.told), default=None),
        step_after=job.told[successor][0] if successor in job.told else None,
    )
