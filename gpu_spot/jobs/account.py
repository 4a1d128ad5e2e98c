"""A job's whole account, and its form for machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_spot.jobs.observed import JobObserved
from gpu_spot.jobs.status import Standing
from gpu_spot.jobs.timeline import Chapter, Story


@dataclass(frozen=True, slots=True)
class JobAccount:
    """What was seen of a job, how it stands, and the story of its run (None: not asked for)."""

    seen: JobObserved
    standing: Standing
    story: Story | None = None

    @property
    def progress(self) -> tuple[int, int | None] | None:
        """Steps done and planned by the word of the instance that has the job, or else of any.

        Of a job that is done None: what was told last was told before its end.
        """
        if self.standing.phase == "done":
            return None
        told, host = self.seen.steps, self.standing.host
        if host is not None and host.instance in told:
            return told[host.instance]
        return max(told.values(), key=lambda one: one[0], default=None)


def to_json(job: JobAccount) -> dict[str, Any]:
    """Return an account as JSON values: times as epoch seconds, lengths in seconds, money in US dollars."""
    seen, now, story = job.seen, job.standing, job.story
    progress = job.progress
    return {
        "job": seen.name,
        "state": now.phase,
        "why": now.why,
        "at": seen.now,
        "since": now.since,
        "revision": seen.run,
        "retries": seen.row.retries_of(seen.run),
        "step": progress[0] if progress else None,
        "steps": progress[1] if progress else None,
        "budget_usd": seen.budget or None,
        "spent_usd": round(seen.spent, 4) if seen.budget else None,
        "host": {
            "instance": now.host.instance,
            "type": now.host.instance_type,
            "zone": now.host.zone,
            "market": now.host.market,
        }
        if now.host
        else None,
        **({} if story is None else _story(story)),
    }


def _story(story: Story) -> dict[str, Any]:
    return {
        "interruptions": story.interruptions,
        "moves": story.moves,
        "worked_seconds": story.worked_seconds,
        "lost_seconds": story.lost_seconds,
        "away_seconds": story.away_seconds,
        "estimated_cost_usd": round(story.cost, 4),
        "unpriced_seconds": story.unpriced_seconds,
        "timeline_is_cut": story.is_cut,
        "timeline": [_chapter(one) for one in story.chapters],
    }


def _chapter(one: Chapter) -> dict[str, Any]:
    stint = one.stint
    return {
        "instance": stint.instance,
        "type": stint.instance_type,
        "zone": stint.zone,
        "market": stint.market,
        "launched": one.launched,
        "began": one.began,
        "started": one.started,
        "starts": stint.starts,
        "until": one.until,
        "ending": one.ending,
        "lost_seconds": one.lost_seconds,
        "away_seconds": one.away_seconds,
        "estimated_cost_usd": None if one.cost is None else round(one.cost, 4),
    }
