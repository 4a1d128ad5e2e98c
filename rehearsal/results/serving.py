"""What came of a service whose own workers were really run while a market took their instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """At the beginning of ``tick``: ``waiting`` requests had no answer yet, ``workers`` were ready."""

    tick: int
    waiting: int
    workers: int


@dataclass(frozen=True, slots=True)
class Served:
    """Requests that a client really sent, and what became of them. Waits are in real seconds.

    ``pace`` is the simulated seconds for each real one. ``unmarked_duplicates``, ``run_again`` and
    ``came_back`` are counted where the workers' function runs: requests run twice of which neither run knew
    that it might not be the first; runs beyond the first; requests that a worker had and another one ran.
    ``killed`` workers got no notice, ``overdue`` had one and had not ended when it was over; ``drained``
    ended in time.
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
        """Whether every request got its answer, and none was run twice unmarked."""
        return self.answered == self.requests and not self.unmarked_duplicates


def to_json(served: Served) -> dict[str, Any]:
    """Return it as JSON values."""
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
