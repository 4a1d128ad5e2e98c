"""The waiting requests of a service whose load source does not see them, as a balance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from contracts.stored import stored
from lambdas.core.scaling.model import POLL_SECONDS, Load

IDLE_SHARE: Final = 0.8
"""Share of busy time below which no request waits."""
_MAX_GAP_SECONDS: Final = 300.0
"""After a longer gap the balance continues as if it had been this long."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class WaitingEstimate:
    """Requests that wait at ``ended_at`` (epoch seconds): those that arrived less those workers could do."""

    requests: float = 0.0
    ended_at: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        if not (0 <= self.requests < math.inf and 0 <= self.ended_at < math.inf):
            raise ValueError(
                f"waiting requests and their time must be finite numbers from 0, not {self.requests} "
                f"at {self.ended_at}"
            )

    def update(self, load: Load, capacity: float, busy_share: float, max_requests: float) -> WaitingEstimate:
        """Return the balance at the load's end; an interval counts once.

        While workers are idle nothing waits, so that requests whose end is missing do not add up. If the
        source does not see what ends, all workers count as busy.

        Args:
            load: the last interval; without a balance if its source sees the waiting requests.
            capacity: requests a second that all ready workers complete; 0 if unknown.
            busy_share: share of the last minute in which the ready workers were busy.
            max_requests: requests that arrived in the last minutes; older ones no longer wait.
        """
        if load.waiting is not None:
            return WaitingEstimate()
        if load.ended_at <= self.ended_at:
            return self
        seconds = min(load.ended_at - self.ended_at, _MAX_GAP_SECONDS) if self.ended_at else POLL_SECONDS
        if load.start_rate is not None and busy_share < IDLE_SHARE:
            return WaitingEstimate(0.0, load.ended_at)
        completed = capacity if load.start_rate is None else load.start_rate
        balance = self.requests + ((load.arrival_rate or 0.0) - completed) * seconds
        return WaitingEstimate(min(max(0.0, balance), max_requests), load.ended_at)
