"""What a worker should have ended, by what the others end: they all take from one queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lambdas.core.health.model import WorkerHost

FEWEST_ENDED: Final = 10
"""So many requests must have ended, or come to one's share, before they say something.

Who takes its turn by chance gets none of so many once in 22,000 times.
"""


def each_ends(hosts: Iterable[WorkerHost], now: float) -> float:
    """Return the requests a second that a worker of these hosts ends, in the mean of those that tell."""
    workers = [w for host in hosts for w in host.workers if w.is_fresh(now) and w.state == "ready"]
    rates = [w.pulse.rate for w in workers if w.pulse is not None and w.pulse.at > 0]
    return sum(rates) / len(rates) if rates else 0.0
