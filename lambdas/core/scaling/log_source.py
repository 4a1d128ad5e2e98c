"""The load of a service from the requests in a log, counted each minute by a metric filter.

A minute without a value is unknown, a value of 0 is a minute in which the log had events, but no request:
the metric filter has the default value 0. Source: CloudWatch Logs guide, "Creating metrics from log events
using filters", default value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from contracts.registry.item import Worker
from lambdas.core.scaling.batches import BatchesDone
from lambdas.core.scaling.model import POLL_SECONDS, Load, Reason
from lambdas.core.scaling.throughput import ALL_TYPES, Throughput, WorkDone

SETTLED_SECONDS: Final = 60.0
"""A minute counts this long after its end: agents send in batches, and filters publish by the minute."""
STALE_SECONDS: Final = 300.0
"""The load is unknown if the newest minute ended longer ago."""


@dataclass(frozen=True, slots=True)
class LogMinute:
    """The requests in a log in the minute that ended at ``ended_at`` (epoch seconds).

    ``requests`` lines count as a request. ``measured`` lines have the seconds that a worker needed, in total
    ``seconds``; both are 0 if the log's values are not numbers. ``measured`` is None if seconds are stated.
    """

    ended_at: float
    requests: float
    measured: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class LogSource:
    """See `LoadSource`; ``minutes`` are those with a value, in any order.

    ``counts_ended``: a line that counts as a request is written at its end.
    """

    minutes: Sequence[LogMinute]
    counts_ended: bool

    @property
    def unknown(self) -> Reason:
        """See `LoadSource`."""
        return Reason.LOG_UNKNOWN

    def load(self, now: float) -> Load | None:
        """See `LoadSource`; a log shows neither what waits nor what workers process."""
        newest = self._newest(now)
        if newest is None:
            return None
        rate = newest.requests / POLL_SECONDS
        ended = None if newest.measured is None else newest.measured / POLL_SECONDS
        return Load(newest.ended_at, rate, start_rate=ended, counts_ended=self.counts_ended)

    def work_done(
        self, now: float, workers: Mapping[str, Sequence[Worker]], throughput: Throughput
    ) -> Mapping[str, WorkDone]:
        """See `LoadSource`; of all instance types together."""
        newest = self._newest(now)
        if newest is None:
            return {}
        requests = newest.requests if newest.measured is None else newest.measured
        return {ALL_TYPES: WorkDone(requests, newest.seconds)} if requests and newest.seconds else {}

    def batches(self, now: float, workers: Mapping[str, Sequence[Worker]]) -> Mapping[str, BatchesDone]:
        """See `LoadSource`; a log shows no batches."""
        return {}

    def _newest(self, now: float) -> LogMinute | None:
        settled = [
            minute for minute in self.minutes if SETTLED_SECONDS <= now - minute.ended_at <= STALE_SECONDS
        ]
        return max(settled, key=lambda minute: minute.ended_at, default=None)
