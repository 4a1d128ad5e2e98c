"""The expected request rate of a worker, from the rates of the other workers on the same queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from lambdas.core.health.model import WorkerHost

MIN_REQUESTS: Final = 10
"""The minimum sample: fewer requests, processed or expected, prove nothing.

A worker that receives requests at random receives none of ten expected ones once in 22,000 times.
"""


@dataclass(frozen=True, slots=True)
class WorkRate:
    """The request rate that ``workers`` report: ``rate`` is their total, in requests a second."""

    workers: int = 0
    rate: float = 0.0

    @classmethod
    def of(cls, hosts: Iterable[WorkerHost], now: float) -> Self:
        """Return the rate of all workers of these hosts that are ready and report progress."""
        workers = [w for host in hosts for w in host.workers if w.is_fresh(now) and w.state == "ready"]
        rates = [w.report.rate for w in workers if w.report is not None and w.report.reported_at > 0]
        return cls(len(rates), sum(rates))

    def without(self, subset: Self) -> Self:
        """Return the rate without a subset of the workers; a negative rounding error becomes 0."""
        return replace(self, workers=self.workers - subset.workers, rate=max(0.0, self.rate - subset.rate))

    @property
    def per_worker(self) -> float:
        """Requests a second per worker; 0 without workers."""
        return self.rate / self.workers if self.workers else 0.0
