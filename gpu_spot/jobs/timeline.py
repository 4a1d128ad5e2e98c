"""The timeline of a run: its attempts, how each ended, lost work, downtime and cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from contracts.jobs.attempt import ATTEMPTS_RETAINED, WRITE_INTERVAL_SECONDS, JobAttempt, sum_of_saving
from gpu_spot.jobs.prices import Charge, PriceBook

RunPhase: TypeAlias = Literal[
    "boot", "boot or data", "data", "training", "training or saving", "saving", "export"
]
PHASES: Final[tuple[RunPhase, ...]] = (
    "boot",
    "boot or data",
    "data",
    "training",
    "training or saving",
    "saving",
    "export",
)
"""In order of time. What was not recorded stays together with its neighbor."""

Ending: TypeAlias = Literal[
    "goes on", "notice", "hand-over", "loss", "host fault", "stopped", "done", "failed"
]
"""How an attempt ended; ``notice``, ``hand-over`` and ``loss`` as in `rehearsal.results.moves.Cause`."""

_HEARTBEAT_TIMEOUT_SECONDS: float = 2.5 * WRITE_INTERVAL_SECONDS
"""Without a heartbeat for longer, the instance that runs the job counts as lost."""


@dataclass(frozen=True, slots=True)
class AttemptSummary:
    """One instance's part of a run. Times are epoch seconds, durations seconds.

    The instance ran the command from ``started`` (None: never) to ``ended_at``; if the end was not recorded,
    ``ended_at`` is the last heartbeat. ``lost_seconds`` of its work were repeated, and the job was down for
    ``away_seconds`` until its command ran on another instance (None: not yet, or not necessary).
    ``repeated_steps`` were done again here or on the next instance; None if the command did not report them.
    The instance is charged until ``charged_until``, by ``phases``.
    """

    attempt: JobAttempt
    started: float | None
    ended_at: float
    ending: Ending
    lost_seconds: float
    away_seconds: float | None
    repeated_steps: int | None
    charged_until: float
    charge: Charge
    phases: Mapping[RunPhase, float]

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

    ``is_cut``: earlier attempts may be missing, because the job table retains a limited number.
    """

    attempts: tuple[AttemptSummary, ...]
    is_cut: bool

    @property
    def interruptions(self) -> int:
        """Number of interruptions by AWS and of host faults."""
        return sum(attempt.ending in ("notice", "loss", "host fault") for attempt in self.attempts)

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
        """Seconds of repeated work."""
        return sum(attempt.lost_seconds for attempt in self.attempts)

    @property
    def away_seconds(self) -> float:
        """Downtime between instances."""
        return sum(attempt.away_seconds or 0.0 for attempt in self.attempts)

    @property
    def charge(self) -> Charge:
        """Hours and estimated cost of all attempts."""
        return sum((attempt.charge for attempt in self.attempts), Charge())


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
                started=part.started if part.starts else None,
                ended_at=part.stopped or part.last_seen_at,
                ending=ending,
                lost_seconds=part.lost
                + (0.0 if next_started is None else part.lost_seconds(next_started.resumed)),
                # Until the next attempt that started; attempts in between have their own downtime.
                away_seconds=_downtime(part, next_started),
                repeated_steps=_repeated_steps(part, next_started),
                charged_until=charged_until,
                charge=prices.charge(part, part.launched, charged_until),
                phases=_split(part, charged_until),
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
                repeated=before.repeated + attempt.repeated + (_steps_again(before, attempt) or 0),
                saving=sum_of_saving(before.saving, attempt.saving),
                started=before.started,
                resumed=before.resumed,
                starts=before.starts + attempt.starts,
                lost=before.lost + before.lost_seconds(attempt.resumed) + attempt.lost,
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
    again = _steps_again(part, next_started)
    return None if again is None else part.repeated + again


def _split(part: JobAttempt, end: float) -> dict[RunPhase, float]:
    """Return the seconds of each phase from the launch until ``end`` (epoch seconds); they sum up to it.

    ``boot``: until the agent asks for the job. ``data``: lease, volume, dataset, code and environment, until
    the command starts. ``saving``: pauses for saves. ``export``: from the last step to the job's release.
    """
    end = max(end, part.launched)

    def within(at: float, begin: float) -> float:
        return min(max(at, begin), end)

    phases: dict[RunPhase, float] = {}
    booted = within(part.booted, part.launched)
    started = within(part.started, booted) if part.starts else end
    if part.booted:
        phases |= {"boot": booted - part.launched, "data": started - booted}
    else:
        phases["boot or data"] = started - part.launched
    if part.starts:
        stopped = part.exporting or part.stopped or end
        trained = within(stopped, started)
        phases["export"] = end - trained
        if part.saving is None:
            phases["training or saving"] = trained - started
        else:
            saving = min(max(part.saving, 0.0), trained - started)
            phases |= {"training": trained - started - saving, "saving": saving}
    return {phase: phases[phase] for phase in PHASES if phases.get(phase)}


def _steps_again(part: JobAttempt, following: JobAttempt) -> int | None:
    """Return the steps that ``following`` does again; None if one of both reported none.

    Steps after the last report before a loss are missing: up to a minute of work.
    """
    if part.step is None or following.first_step is None:
        return None
    return max(0, part.step - following.first_step)


def priced_types(attempts: Iterable[JobAttempt]) -> tuple[str, ...]:
    """Return the instance types whose Spot prices are needed."""
    return tuple(sorted({attempt.instance_type for attempt in attempts if attempt.purchase_option == "spot"}))
