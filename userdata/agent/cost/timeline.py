"""The timeline of a run: its attempts, how each ended, lost work, downtime and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from contracts.jobs.attempt import ATTEMPTS_RETAINED, JobAttempt
from userdata.agent.cost.phases import RunPhase, split, steps_again, sum_of_saving
from userdata.agent.cost.prices import Charge, PriceBook
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
    ran on another instance (None: not yet, or not necessary). ``repeated_steps`` were done again here or on
    the next instance; None if the command did not report them. The instance is charged until
    ``charged_until``, by ``phases``.
    """

    attempt: JobAttempt
    launched: float
    began: float
    started: float | None
    ended_at: float
    ending: Ending
    lost_seconds: float
    away_seconds: float | None
    repeated_steps: int | None
    charged_until: float
    charge: Charge
    phases: Mapping[RunPhase, float] = field(default_factory=dict)

    @property
    def worked_seconds(self) -> float:
        """Run time of the command."""
        return 0.0 if self.started is None else max(0.0, self.ended_at - self.started)

    @property
    def cost(self) -> float | None:
        """Estimated cost in US dollars; None if a part of it has no price."""
        return None if self.charge.unpriced_seconds else self.charge.dollars


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
    def charge(self) -> Charge:
        """Hours and estimated cost of all attempts."""
        return sum((attempt.charge for attempt in self.attempts), Charge())

    @property
    def cost(self) -> float:
        """Estimated cost; see the class."""
        return self.charge.dollars

    @property
    def unpriced_seconds(self) -> float:
        """Instance time without a known price; see the class."""
        return self.charge.unpriced_seconds


def build_timeline(
    run_attempts: Sequence[JobAttempt],
    prices: PriceBook,
    *,
    now: float,
    newest_token: int,
    is_stopped: bool = False,
) -> JobTimeline:
    """Return the timeline of a run.

    Args:
        run_attempts: Its attempts, in order of time.
        prices: Prices of their instances.
        now: The time (epoch seconds).
        newest_token: Fencing token of the job's last lease.
        is_stopped: Whether the controller counts the run as finished, for any reason.
    """
    parts = _merge_attempts(run_attempts)
    attempts = []
    for number, part in enumerate(parts):
        next_started = next((part for part in parts[number + 1 :] if part.starts), None)
        ending = _ending(part, now, is_last=number == len(parts) - 1, is_stopped=is_stopped)
        charged_until = _charged_until(part, ending, now)
        attempts.append(
            AttemptSummary(
                attempt=part,
                launched=part.launched,
                began=part.began,
                started=part.started if part.starts else None,
                ended_at=part.stopped or part.last_seen_at,
                ending=ending,
                lost_seconds=part.lost
                + (0.0 if next_started is None else lost_work_seconds(part, next_started.resumed)),
                # Until the next attempt that started; attempts in between have their own downtime.
                away_seconds=_downtime(part, next_started),
                repeated_steps=_repeated_steps(part, next_started),
                charged_until=charged_until,
                charge=prices.charge(part, part.launched, charged_until),
                phases=split(part, charged_until),
            )
        )
    oldest = max(1, newest_token - ATTEMPTS_RETAINED + 1)
    return JobTimeline(tuple(attempts), is_cut=oldest > 1 and any(t.token <= oldest for t in run_attempts))


def _merge_attempts(attempts: Sequence[JobAttempt]) -> list[JobAttempt]:
    """Merge consecutive attempts of one instance, whose agent was restarted."""
    merged: list[JobAttempt] = []
    for attempt in attempts:
        before = merged[-1] if merged else None
        if before is None or before.instance != attempt.instance:
            merged.append(attempt)
        elif not before.starts:
            merged[-1] = replace(attempt, launched=before.launched, booted=before.booted, began=before.began)
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
                booted=before.booted,
                began=before.began,
                first_step=attempt.first_step if before.first_step is None else before.first_step,
                step=before.step if attempt.step is None else attempt.step,
                repeated=before.repeated + attempt.repeated + (steps_again(before, attempt) or 0),
                saving=sum_of_saving(before.saving, attempt.saving),
                started=before.started,
                resumed=before.resumed,
                starts=before.starts + attempt.starts,
                lost=before.lost + lost_work_seconds(before, attempt.resumed) + attempt.lost,
            )
    return merged


def _ending(part: JobAttempt, now: float, *, is_last: bool, is_stopped: bool) -> Ending:
    if part.outcome == "hand-over":
        return "stopped" if is_last and is_stopped else "hand-over"
    if part.outcome == "silent":
        return "goes on" if is_last and now - part.last_seen_at < _HEARTBEAT_TIMEOUT_SECONDS else "loss"
    return part.outcome


def _charged_until(part: JobAttempt, ending: Ending, now: float) -> float:
    """Return until when an instance is charged; without a recorded end as late as it may have run."""
    if ending == "goes on":
        return max(now, part.last_seen_at)
    return part.ended or max(part.last_seen_at, min(now, part.last_seen_at + WRITE_INTERVAL_SECONDS))


def _downtime(part: JobAttempt, next_started: JobAttempt | None) -> float | None:
    if next_started is None or not part.starts:
        return None
    return max(0.0, next_started.started - (part.stopped or part.last_seen_at))


def _repeated_steps(part: JobAttempt, next_started: JobAttempt | None) -> int | None:
    if not part.starts:
        return 0
    if next_started is None:
        return None if part.step is None and part.starts > 1 else part.repeated
    again = steps_again(part, next_started)
    return None if again is None else part.repeated + again


def priced_types(attempts: Iterable[JobAttempt]) -> tuple[str, ...]:
    """Return the instance types whose Spot prices are needed."""
    return tuple(sorted({attempt.instance_type for attempt in attempts if attempt.purchase_option == "spot"}))
