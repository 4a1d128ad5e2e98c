"""Measured requests a second of a busy worker, by instance type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts.stored import stored

_DECAY: Final = math.exp(-1 / 120)
"""Weight of the past per minute with work: a memory of two hours."""
_DECAY_OF_MIX: Final = math.exp(-1 / 15)
"""The same for all types together, whose mean changes with the mix: a memory of a quarter of an hour."""
ALL_TYPES: Final = "all types"
"""The name of work whose source does not say which type did it."""
MAX_TYPES: Final = 40
"""The maximum of overrides in a mixed instances policy. Source: Auto Scaling quotas."""


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Requests that workers of one instance type completed in the last minute, and the seconds spent."""

    requests: float
    busy_seconds: float


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Throughput:
    """Decayed sums of completed requests and busy seconds by type; last measured at ``measured_at``."""

    by_type: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    measured_at: float = 0.0

    def update(self, now: float, served: Mapping[str, WorkDone]) -> Throughput:
        """Return the sums after a minute; types without completed requests are skipped."""
        measured = {
            name: work for name, work in served.items() if work.requests > 0 and work.busy_seconds > 0
        }
        if not measured:
            return self
        by_type = dict(self.by_type)
        for name, work in measured.items():
            requests, seconds = by_type.pop(name, (0.0, 0.0))
            decay = _DECAY_OF_MIX if name == ALL_TYPES else _DECAY
            by_type[name] = (requests * decay + work.requests, seconds * decay + work.busy_seconds)
        return Throughput(dict(list(by_type.items())[-MAX_TYPES:]), now)

    def rate_of(self, name: str) -> float | None:
        """Return the requests a second of a worker of one type; None if never measured."""
        if name not in self.by_type:
            return None
        requests, seconds = self.by_type[name]
        return requests / seconds

    def mean_rate(self, counts: Mapping[str, int]) -> float | None:
        """Return the mean rate of these workers; an unmeasured type counts as the mean of all others."""
        rates = {name: requests / seconds for name, (requests, seconds) in self.by_type.items()}
        if not rates:
            return None
        mean = sum(rates.values()) / len(rates)
        workers = sum(counts.values())
        if workers == 0:
            return mean
        return sum(rates.get(name, mean) * count for name, count in counts.items()) / workers
