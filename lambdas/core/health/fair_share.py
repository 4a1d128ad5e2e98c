"""What a worker should have ended, by what the others end: they all take from one queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from lambdas.core.health.model import WorkerHost

FEWEST_ENDED: Final = 10
"""So many requests must have ended, or come to one's share, before they say something.

Who takes its turn by chance gets none of so many once in 22,000 times.
"""


@dataclass(frozen=True, slots=True)
class WorkRate:
    """What workers end, by their own word: so many, and together so many requests a second."""

    workers: int = 0
    rate: float = 0.0

    @classmethod
    def of(cls, hosts: Iterable[WorkerHost], now: float) -> Self:
        """Return that of all workers of these hosts that are ready, heard, and tell."""
        workers = [w for host in hosts for w in host.workers if w.is_fresh(now) and w.state == "ready"]
        rates = [w.pulse.rate for w in workers if w.pulse is not None and w.pulse.at > 0]
        return cls(len(rates), sum(rates))

    def without(self, other: Self) -> Self:
        """Return that of the others; what rounding leaves of nothing is nothing."""
        return replace(self, workers=self.workers - other.workers, rate=max(0.0, self.rate - other.rate))

    @property
    def each(self) -> float:
        """Requests a second that one worker ends, 0 without any."""
        return self.rate / self.workers if self.workers else 0.0
