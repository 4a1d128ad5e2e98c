"""How long the oldest request waits at least, and the rates of a queue, from counters looked at each minute.

A quorum queue does not tell when its first message came (rabbitmq-server, issue 6813, open; only classic
queues have ``head_message_timestamp``). But of ``ready`` messages the oldest is at least as old as the
``ready``-th newest that was published, in whatever order they were taken and given back. So it has waited
since the first look that had counted that one already.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, replace
from typing import Annotated, Final, TypeAlias

from contracts import codec
from contracts.limits import AtLeast
from contracts.registry.queue_state import Backlog
from contracts.stored import stored

_EVERY_SECONDS: Final = 600.0
"""For so long back every look is kept; of older ones fewer."""
_COARSENESS: Final = 0.1
"""The distance of two older looks, as a share of their age: by so much the age may be told too low."""
_MOST_MARKS: Final = 120

_Seconds: TypeAlias = Annotated[float, AtLeast(0)]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a queue tells: its length now, and its totals since some beginning of its own.

    ``ready`` and ``taken`` messages are in it, ``readers`` take from it; ``published`` came and ``ended``
    were acknowledged.
    """

    ready: int
    taken: int
    readers: int
    published: int
    ended: int

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a number below 0."""
        if min(astuple(self)) < 0:
            raise ValueError(f"counts of a queue below 0: {self}")


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class QueueHistory:
    """What is remembered between two looks: the last one, and the totals of those before.

    ``at`` (epoch seconds) is None before the first look. ``marks`` are pairs of a time and how many had been
    published by then, oldest first.
    """

    at: _Seconds | None = None
    published: int = 0
    ended: int = 0
    oldest: _Seconds = 0.0
    marks: tuple[tuple[_Seconds, int], ...] = ()


def look(past: QueueHistory, counts: Counts, at: float) -> tuple[Backlog | None, QueueHistory]:
    """Return how the queue stands and what to remember of it.

    None where nothing can be said of rates yet: at the first look, and at the first one after the broker
    began to count anew, which it does when it starts.
    """
    if past.at is None or at <= past.at or counts.published < past.published or counts.ended < past.ended:
        return None, QueueHistory(at, counts.published, counts.ended, 0.0, ((at, counts.published),))
    elapsed = at - past.at
    # Length and totals are some seconds apart in the broker, and a burst between them would look old. What
    # waits now is no older than what waited then, and the time since.
    oldest = min(_waits_since(past, counts, at), past.oldest + elapsed)
    backlog = Backlog(
        at=at,
        ready=counts.ready,
        taken=counts.taken,
        oldest=oldest,
        arriving=(counts.published - past.published) / elapsed,
        leaving=(counts.ended - past.ended) / elapsed,
        readers=counts.readers,
    )
    # Who is in the queue now is, later too, among the newest so many: looks before these say nothing more.
    gone = counts.published - counts.ready - counts.taken
    marks = [mark for mark in past.marks if mark[1] > gone]
    marks.append((at, counts.published))
    history = replace(past, at=at, published=counts.published, ended=counts.ended, oldest=oldest)
    return backlog, replace(history, marks=_thinned(marks, at))


def _waits_since(past: QueueHistory, counts: Counts, at: float) -> float:
    if not counts.ready:
        return 0.0
    before = counts.published - counts.ready
    return at - next((time for time, published in past.marks if published > before), at)


def _thinned(marks: list[tuple[float, int]], at: float) -> tuple[tuple[float, int], ...]:
    """Leave out looks that are close to the one before, for their age."""
    kept: list[tuple[float, int]] = []
    for mark in marks:
        age = at - mark[0]
        if not kept or age <= _EVERY_SECONDS or mark[0] - kept[-1][0] >= _COARSENESS * age:
            kept.append(mark)
    return tuple(kept[-_MOST_MARKS:])


def dumps(history: QueueHistory) -> str:
    """Return the history as text."""
    return json.dumps(codec.dump(history), separators=(",", ":"))


def parse(text: str) -> QueueHistory:
    """Read a history; raise ``ValueError`` for one that makes no sense."""
    return codec.parse_text(QueueHistory, text, "malformed history of a queue")
