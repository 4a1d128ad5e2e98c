"""The timeline of a run: its attempts, how each ended, lost work, downtime and cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from contracts.jobs.attempt import ATTEMPTS_RETAINED, JobAttempt
from gpu_spot.jobs.money import PriceBook
from gpu_spot.jobs.snapshot import JobSnapshot
from userdata.agent.work.training.record import WRITE_INTERVAL_SECONDS, lost_work_seconds

Ending: TypeAlias = Literal[
    "goes on", "notice", "hand-over", "loss", "host fault", "stopped", "done", "failed"
]
"""How an attempt ended; ``notice``, ``hand-over`` and ``loss`` as in `rehearsal.results.moves.Cause`."""

INTERRUPTION_ENDINGS: tuple[Ending, ...] = ("notice", "loss", "host fault")
"""Endings that count as interruptions."""

_HEARTBEAT_TIMEOUT_SECONDS: float = 2.5 * WRITE_INTERVAL_SECONDS
"""Without a heartbeat for longer, the instance that runs the job counts as lost."""


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    """One instance's part of a run. Times are epoch seconds, durations seconds.

    The instance was ``launched``, held the job's volume from ``began``, and ran the command from ``started``
    (None: never) to ``ended_at``; if the end was not recorded, ``ended_at`` is the last heartbeat.
    ``lost_seconds`` of its work were repeated, and the job was down for ``away_seconds`` until its command
    ran on another instance (None: not yet, or not necessary). ``cost`` is in US dollars, None if no price is
    known.
    """

    attempt: JobAttempt
    launched: float
    began: float
    started: float | None
    ended_at: float
    ending: Ending
    lost_seconds: float
    away_seconds: float | None
    cost: float | None

    @property
    def worked_seconds(self) -> float:
        """Run time of the command."""
        return 0.0 if self.started is None else max(0.0, self.ended_at - self.started)


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """The attempts of a run in order of time, with totals.

    ``is_cut``: earlier attempts may be missing, because the job table retains a limited number. ``cost`` is
    an estimate in US dollars of all attempts with a known price; ``unpriced_seconds`` of instances have none.
    """

    attempts: tuple[AttemptSummary, ...]
    is_cut: bool

    @property
    def interruptions(self) -> int:
        """Number of interruptions by AWS and host faults."""
        return sum(attempt.ending in INTERRUPTION_ENDINGS for attempt in self.attempts)

    @property
    def moves(self) -> int:
        """Number of moves to another zone."""
        return sum(a.attempt.zone != b.attempt.zone for a, b in pairwise(self.attempts))

    @property
    def worked_seconds(self) -> float:
        """Run time of the command."""
        return sum(attempt.worked_seconds for attempt in self.attempts)

    @property
    def lost_seconds(self) -> float:
        """Repeated work."""
        return sum(attempt.lost_seconds for attempt in self.attempts)

    @property
    def away_seconds(self) -> float:
        """Downtime between instances."""
        return sum(attempt.away_seconds or 0.0 for attempt in self.attempts)

    @property
    def cost(self) -> float:
        """Estimated cost; see the class."""
        return sum(attempt.cost or 0.0 for attempt in self.attempts)

    @property
    def unpriced_seconds(self) -> float:
        """Instance time without a known price; see the class."""
        return sum(attempt.ended_at - attempt.launched for attempt in self.attempts if attempt.cost is None)


def build_timeline(snapshot: JobSnapshot, prices: PriceBook) -> JobTimeline:
    """Return the timeline of the desired run."""
    parts = _merge_attempts(snapshot.run_attempts)
    attempts = []
    for number, part in enumerate(parts):
        next_started = next((part for part in parts[number + 1 :] if part.starts), None)
        ended_at = part.stopped or part.last_seen_at
        attempts.append(
            AttemptSummary(
                attempt=part,
                launched=part.launched,
                began=part.began,
                started=part.started if part.starts else None,
                ended_at=ended_at,
                ending=_ending(part, snapshot, is_last=number == len(parts) - 1),
                lost_seconds=part.lost
                + (0.0 if next_started is None else lost_work_seconds(part, next_started.resumed)),
                # Until the next attempt that started; attempts in between have their own downtime.
                away_seconds=_downtime(parts, number),
                cost=prices.cost(part, part.launched, part.ended or part.last_seen_at),
            )
        )
    oldest = max(1, snapshot.row.token - ATTEMPTS_RETAINED + 1)
    return JobTimeline(
        tuple(attempts), is_cut=oldest > 1 and any(t.token <= oldest for t in snapshot.run_attempts)
    )


def _merge_attempts(attempts: Sequence[JobAttempt]) -> list[JobAttempt]:
    """Merge consecutive attempts of one instance, whose agent was restarted."""
    merged: list[JobAttempt] = []
    for attempt in attempts:
        before = merged[-1] if merged else None
        if before is None or before.instance != attempt.instance:
            merged.append(attempt)
        elif not before.starts:
            merged[-1] = replace(attempt, launched=before.launched, began=before.began)
        elif not attempt.starts:
            merged[-1] = replace(
                before,
                last_seen_at=attempt.last_seen_at,
                notice_at=attempt.notice_at,
                cause=attempt.cause,
                ended=attempt.ended,
                end=attempt.end,
            )
        else:
            merged[-1] = replace(
                attempt,
                launched=before.launched,
                began=before.began,
                started=before.started,
                resumed=before.resumed,
                starts=before.starts + attempt.starts,
                lost=before.lost + lost_work_seconds(before, attempt.resumed) + attempt.lost,
            )
    return merged


def _ending(part: JobAttempt, snapshot: JobSnapshot, *, is_last: bool) -> Ending:
    if part.outcome == "hand-over":
        return "stopped" if is_last and snapshot.is_stopped else "hand-over"
    if part.outcome == "silent":
        return (
            "goes on" if is_last and snapshot.now - part.last_seen_at < _HEARTBEAT_TIMEOUT_SECONDS else "loss"
        )
    return part.outcome


def _downtime(parts: Sequence[JobAttempt], number: int) -> float | None:
    part = parts[number]
    next_started = next((part for part in parts[number + 1 :] if part.starts), None)
    if next_started is None or not part.starts:
        return None
    return max(0.0, next_started.started - (part.stopped or part.last_seen_at))


def priced_types(attempts: Iterable[JobAttempt]) -> tuple[str, ...]:
    """Return the instance types whose Spot prices are needed."""
    return tuple(sorted({attempt.instance_type for attempt in attempts if attempt.purchase_option == "spot"}))
