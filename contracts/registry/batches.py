"""Batches that a service's worker ran, counted by their size: a part of its report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from contracts.stored import stored

WINDOW_SECONDS: Final = 300.0
"""Time that the table of a report covers."""
MAX_ROWS: Final = 13
"""Rows of a table: batches of 1, 2, up to 4, up to 8, … up to 4,096 requests; larger ones are in the last."""


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class BatchRow:
    """Batches of more than half of ``max_size`` requests, and of ``max_size`` at most.

    ``requests`` and ``seconds`` are those of all of them, so that ``requests / batches`` is their mean size
    and ``seconds / batches`` their mean duration. ``waiting`` are the requests that had been delivered to the
    worker and did not fit in, summed over the batches' starts.
    """

    max_size: int
    batches: int
    requests: int
    seconds: float
    waiting: int = 0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for impossible values."""
        is_counted = self.max_size >= 1 and 1 <= self.batches <= self.requests and self.waiting >= 0
        if not (is_counted and math.isfinite(self.seconds) and self.seconds >= 0):
            raise ValueError(
                "max_size, batches, requests, seconds and waiting must be 0 or more and batches ≤ requests, "
                f"not {self.max_size}, {self.batches}, {self.requests}, {self.seconds:g} and {self.waiting}"
            )


def difference(after: Iterable[BatchRow], before: Iterable[BatchRow]) -> tuple[BatchRow, ...]:
    """Return the batches between two tables of one worker, which count since its start."""
    earlier = {row.max_size: row for row in before}
    rows = []
    for row in after:
        old = earlier.get(row.max_size)
        if old is None:
            rows.append(row)
        elif row.batches > old.batches:
            batches, requests = row.batches - old.batches, row.requests - old.requests
            seconds = round(max(0.0, row.seconds - old.seconds), 3)
            waiting = max(0, row.waiting - old.waiting)
            rows.append(BatchRow(row.max_size, batches, max(batches, requests), seconds, waiting))
    return tuple(rows)
