"""A run's story: where it was, how long, how each stay ended, what was lost, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from contracts.jobs.attempt import ATTEMPTS_RETAINED, JobAttempt
from gpu_spot.jobs.money import PriceBook
from gpu_spot.jobs.observed import JobObserved
from userdata.agent.work.training.record import EVERY, lost

Ending: TypeAlias = Literal[
    "goes on", "notice", "hand-over", "loss", "host fault", "stopped", "done", "failed"
]
"""How a chapter ended; ``notice``, ``hand-over`` and ``loss`` as in `rehearsal.results.moves.Cause`."""

INTERRUPTIONS: tuple[Ending, ...] = ("notice", "loss", "host fault")
"""What nobody here has wanted."""

_SILENT: float = 2.5 * EVERY
"""Unheard for so long, whoever has the job is lost."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """One instance's part of a run. Times are epoch seconds, lengths seconds.

    It was ``launched``, had the job's volume at ``began`` and ran the command from ``started`` (None: never)
    to ``until``, by when it was seen last where nobody saw the end. ``lost_seconds`` of its work were done
    again, and the job was ``away_seconds`` until its command ran elsewhere (None: it has not, or there was
    no need). ``cost`` is in US dollars, None where no price is known.
    """

    stint: JobAttempt
    launched: float
    began: float
    started: float | None
    until: float
    ending: Ending
    lost_seconds: float
    away_seconds: float | None
    cost: float | None

    @property
    def worked_seconds(self) -> float:
        """How long its command ran."""
        return 0.0 if self.started is None else max(0.0, self.until - self.started)


@dataclass(frozen=True, slots=True)
class Story:
    """A run's chapters in order of time, and what they come to.

    ``is_cut``: there may have been earlier ones, of which the job table keeps no more. ``cost`` is an
    estimate in US dollars of all chapters with a known price; ``unpriced_seconds`` of instances have none.
    """

    chapters: tuple[Chapter, ...]
    is_cut: bool

    @property
    def interruptions(self) -> int:
        """How often AWS took the instance, or it broke."""
        return sum(one.ending in INTERRUPTIONS for one in self.chapters)

    @property
    def moves(self) -> int:
        """How often it went on in another zone."""
        return sum(a.stint.zone != b.stint.zone for a, b in pairwise(self.chapters))

    @property
    def worked_seconds(self) -> float:
        """How long its command ran."""
        return sum(one.worked_seconds for one in self.chapters)

    @property
    def lost_seconds(self) -> float:
        """How much of that was done again."""
        return sum(one.lost_seconds for one in self.chapters)

    @property
    def away_seconds(self) -> float:
        """How long it waited and moved between two instances."""
        return sum(one.away_seconds or 0.0 for one in self.chapters)

    @property
    def cost(self) -> float:
        """See above."""
        return sum(one.cost or 0.0 for one in self.chapters)

    @property
    def unpriced_seconds(self) -> float:
        """See above."""
        return sum(one.until - one.launched for one in self.chapters if one.cost is None)


def tell(seen: JobObserved, prices: PriceBook) -> Story:
    """Return the story of the run that the stack asks for."""
    parts = _merged(seen.own_stints)
    chapters = []
    for number, part in enumerate(parts):
        later = next((one for one in parts[number + 1 :] if one.starts), None)
        until = part.stopped or part.seen
        chapters.append(
            Chapter(
                stint=part,
                launched=part.launched,
                began=part.began,
                started=part.started if part.starts else None,
                until=until,
                ending=_ending(part, seen, is_last=number == len(parts) - 1),
                lost_seconds=part.lost + (0.0 if later is None else lost(part, later.resumed)),
                # Until the very next one: who came in between and could not start counts for itself.
                away_seconds=_away(parts, number),
                cost=prices.cost(part, part.launched, part.ended or part.seen),
            )
        )
    oldest = max(1, seen.row.token - ATTEMPTS_RETAINED + 1)
    return Story(tuple(chapters), is_cut=oldest > 1 and any(t.token <= oldest for t in seen.own_stints))


def _merged(stints: Sequence[JobAttempt]) -> list[JobAttempt]:
    """Return the stints, those in a row of one instance as one: its agent gave up and began again."""
    found: list[JobAttempt] = []
    for one in stints:
        before = found[-1] if found else None
        if before is None or before.instance != one.instance:
            found.append(one)
        elif not before.starts:
            found[-1] = replace(one, launched=before.launched, began=before.began)
        elif not one.starts:
            found[-1] = replace(
                before, seen=one.seen, told=one.told, cause=one.cause, ended=one.ended, end=one.end
            )
        else:
            found[-1] = replace(
                one,
                launched=before.launched,
                began=before.began,
                started=before.started,
                resumed=before.resumed,
                starts=before.starts + one.starts,
                lost=before.lost + lost(before, one.resumed) + one.lost,
            )
    return found


def _ending(part: JobAttempt, seen: JobObserved, *, is_last: bool) -> Ending:
    if part.outcome == "hand-over":
        return "stopped" if is_last and seen.is_stopped else "hand-over"
    if part.outcome == "silent":
        return "goes on" if is_last and seen.now - part.seen < _SILENT else "loss"
    return part.outcome


def _away(parts: Sequence[JobAttempt], number: int) -> float | None:
    part = parts[number]
    later = next((one for one in parts[number + 1 :] if one.starts), None)
    if later is None or not part.starts:
        return None
    return max(0.0, later.started - (part.stopped or part.seen))


def priced_types(stints: Iterable[JobAttempt]) -> tuple[str, ...]:
    """Return the instance types of which spot's price is asked for."""
    return tuple(sorted({one.instance_type for one in stints if one.market == "spot"}))
