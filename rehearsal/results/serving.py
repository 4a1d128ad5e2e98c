"""Counts of a service whose real workers ran while a simulated market interrupted instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """Number of unanswered requests and of ready workers at the start of ``tick``."""

    tick: int
    waiting: int
    workers: int


@dataclass(frozen=True, slots=True)
class Served:
    """Counts of the requests of a real client. Waits are in real seconds.

    ``pace`` is the number of simulated seconds per real second. ``unmarked_duplicates``, ``run_again`` and
    ``came_back`` are counted by the run recorder: requests with more than one run that is not marked as
    repeat; runs beyond the first; requests that another worker had received before. ``killed`` workers got no
    notice, ``overdue`` ones had not ended at the deadline of their notice; ``drained`` ones ended in time.
    """

    command: tuple[str, ...]
    pace: float
    requests: int
    answered: int
    lost: int
    unmarked_duplicates: int
    run_again: int
    came_back: int
    longest_wait: float
    mean_wait: float
    drained: int
    overdue: int
    killed: int
    samples: Sequence[Sample]

    @property
    def is_whole(self) -> bool:
        """Whether every request was answered and no repeat was unmarked."""
        return self.answered == self.requests and not self.unmarked_duplicates


def to_json(served: Served) -> dict[str, Any]:
    """Return the counts as JSON values."""
    return {
        "command": list(served.command),
        "pace": served.pace,
        "requests": served.requests,
        "answered": served.answered,
        "lost": served.lost,
        "unmarked_duplicates": served.unmarked_duplicates,
        "run_again": served.run_again,
        "came_back": served.came_back,
        "longest_wait_seconds": round(served.longest_wait, 3),
        "mean_wait_seconds": round(served.mean_wait, 4),
        "drained": served.drained,
        "overdue": served.overdue,
        "killed": served.killed,
        "over_time": [[sample.tick, sample.workers, sample.waiting] for sample in served.samples],
    }
