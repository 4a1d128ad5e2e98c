"""Rates and a lower bound of the oldest message age of a queue, from counters that are polled each minute.

A quorum queue does not report when its first message was published; only classic queues have
``head_message_timestamp``. Source: rabbitmq-server, issue 6813 (open). But of ``ready`` messages the oldest
is at least as old as the ``ready``-th newest published one, in whatever order messages were delivered and
requeued. So it has waited since the first poll that had counted that message.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, replace
from typing import Annotated, Final, TypeAlias

from contracts import codec
from contracts.limits import AtLeast
from contracts.registry.queue_state import QueueState
from contracts.stored import stored

_ALL_MARKS_SECONDS: Final = 600.0
"""Every mark of this time is retained; older marks are thinned out."""
_MARK_SPACING: Final = 0.1
"""Distance of two older marks as a share of their age; the age may be too low by this share."""
_MAX_MARKS: Final = 120

_Seconds: TypeAlias = Annotated[float, AtLeast(0)]


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Counters of a queue.

    ``ready``, ``in_flight`` (delivered, not acknowledged) and ``consumers`` are current; ``published`` and
    ``acknowledged`` are totals, which restart from 0 with the broker.
    """

    ready: int
    in_flight: int
    consumers: int
    published: int
    acknowledged: int

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a negative count."""
        if min(astuple(self)) < 0:
            raise ValueError(f"a count of a queue cannot be negative: {self}")


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class QueueHistory:
    """The state between two polls.

    Attributes:
        at: time of the last poll (epoch seconds); None before the first.
        marks: pairs of a time and the total published by then, oldest first.
    """

    at: _Seconds | None = None
    published: int = 0
    acknowledged: int = 0
    oldest_seconds: _Seconds = 0.0
    marks: tuple[tuple[_Seconds, int], ...] = ()


def observe(history: QueueHistory, counts: QueueCounts, at: float) -> tuple[QueueState | None, QueueHistory]:
    """Return the state of the queue and the new history.

    The state is None at the first poll, and at the first poll after a restart of the broker: its counters
    restart from 0, so there are no rates yet.
    """
    if (
        history.at is None
        or at <= history.at
        or counts.published < history.published
        or counts.acknowledged < history.acknowledged
    ):
        return None, QueueHistory(at, counts.published, counts.acknowledged, 0.0, ((at, counts.published),))
    elapsed = at - history.at
    # The broker updates length and totals some seconds apart, and a burst between them would look old. The
    # oldest message can be no older than the oldest one of the last poll, plus the time since.
    oldest_seconds = min(_oldest_age(history, counts, at), history.oldest_seconds + elapsed)
    state = QueueState(
        observed_at=at,
        ready=counts.ready,
        in_flight=counts.in_flight,
        oldest_seconds=oldest_seconds,
        publish_rate=(counts.published - history.published) / elapsed,
        ack_rate=(counts.acknowledged - history.acknowledged) / elapsed,
        consumers=counts.consumers,
    )
    # Marks from before the oldest message that can still be in the queue are no longer needed.
    acknowledged_before = counts.published - counts.ready - counts.in_flight
    marks = [mark for mark in history.marks if mark[1] > acknowledged_before]
    marks.append((at, counts.published))
    new_history = replace(
        history,
        at=at,
        published=counts.published,
        acknowledged=counts.acknowledged,
        oldest_seconds=oldest_seconds,
    )
    return state, replace(new_history, marks=_thin_out(marks, at))


def _oldest_age(history: QueueHistory, counts: QueueCounts, at: float) -> float:
    if not counts.ready:
        return 0.0
    published_before = counts.published - counts.ready
    return at - next((time for time, published in history.marks if published > published_before), at)


def _thin_out(marks: list[tuple[float, int]], at: float) -> tuple[tuple[float, int], ...]:
    """Return the marks without those that are close to the previous one, relative to their age."""
    retained: list[tuple[float, int]] = []
    for mark in marks:
        age = at - mark[0]
        if not retained or age <= _ALL_MARKS_SECONDS or mark[0] - retained[-1][0] >= _MARK_SPACING * age:
            retained.append(mark)
    return tuple(retained[-_MAX_MARKS:])


def dumps(history: QueueHistory) -> str:
    """Return the history as JSON."""
    return json.dumps(codec.dump(history), separators=(",", ":"))


def parse(text: str) -> QueueHistory:
    """Parse the text of `dumps`; raise ``ValueError`` if it is malformed."""
    return codec.parse_text(QueueHistory, text, "history of a queue")
