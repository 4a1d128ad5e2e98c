"""What a worker ends in a second, by instance type, as measured while it worked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts.stored import stored
from lambdas.core.scaling.model import WorkDone

_KEPT: Final = math.exp(-1 / 120)
"""Per minute in which a type worked: two hours are remembered."""
MOST_TYPES: Final = 40
"""A mixed-instances group has at most so many overrides (Auto Scaling quotas)."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class Throughput:
    """Requests ended and seconds spent on them by type, older ones counting less; last told at ``at``."""

    by_type: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    at: float = 0.0

    def seen(self, now: float, served: Mapping[str, WorkDone]) -> Throughput:
        """Return the memory after a minute; what ended nothing says nothing."""
        told = {name: s for name, s in served.items() if s.requests > 0 and s.seconds > 0}
        if not told:
            return self
        by_type = dict(self.by_type)
        for name, one in told.items():
            requests, seconds = by_type.pop(name, (0.0, 0.0))
            by_type[name] = (requests * _KEPT + one.requests, seconds * _KEPT + one.seconds)
        return Throughput(dict(list(by_type.items())[-MOST_TYPES:]), now)

    def of(self, name: str) -> float | None:
        """Return what a worker of one type ends in a second, None where nobody has seen one."""
        if name not in self.by_type:
            return None
        requests, seconds = self.by_type[name]
        return requests / seconds

    def each(self, counts: Mapping[str, int]) -> float | None:
        """Return the mean of such workers; a type that nobody has seen counts as the mean of all others."""
        known = {name: requests / seconds for name, (requests, seconds) in self.by_type.items()}
        if not known:
            return None
        usual = sum(known.values()) / len(known)
        workers = sum(counts.values())
        if workers == 0:
            return usual
        return sum(known.get(name, usual) * count for name, count in counts.items()) / workers
