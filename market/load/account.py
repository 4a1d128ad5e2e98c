"""A service under load in a rehearsal: its queue by the minute, and the totals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np

from market.load.queue import Minute, RequestQueue
from market.load.shapes import DAY, LoadShape

STRETCH: Final = 10
"""Minutes over which waits are summed."""
_BUSIEST_SECONDS: Final = 300
"""Peak sizing, for comparison: capacity for the busiest five minutes, without reserve."""


@dataclass(frozen=True, slots=True)
class LoadMinute:
    """The minute from ``tick`` on: arrived requests per second, workers, US dollars.

    ``able``: requests per second that the ready workers could serve; ``waiting``: at the end of the minute.
    """

    tick: int
    arriving: float
    able: float
    target: int
    ready: int
    waiting: int
    paid: float


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits (seconds) of the requests that arrived in ``ticks`` minutes; None without requests."""

    tick: int
    ticks: int
    half: float | None
    p99_seconds: float | None
    """The 99th percentile."""


@dataclass(frozen=True, slots=True)
class PeakSize:
    """Cost of On-Demand instances of the cheapest type for the busiest five minutes (US dollars)."""

    instance_type: str
    count: int
    hourly: float


@dataclass(frozen=True, slots=True)
class LoadAccount:
    """The result of a service under load; ``minutes`` include the warm-up, all other fields exclude it.

    ``allowed`` is the wait that one request in a hundred may exceed, ``late`` the share that did. ``paid``
    is the bill in US dollars, ``on_demand`` that of the same hours sized for the peak.
    """

    speeds: Mapping[str, float]
    allowed: float
    minutes: Sequence[LoadMinute]
    waits: Sequence[Waits]
    requests: int
    half: float
    p99_seconds: float
    longest: float
    late: float
    paid: float
    peak: PeakSize
    on_demand: float


@dataclass(slots=True)
class LoadedService:
    """Simulates arrivals of a load shape and the workers that serve them, by the minute."""

    arrivals: Sequence[int]
    speeds: Mapping[str, float]
    queue: RequestQueue
    minutes: list[LoadMinute] = field(default_factory=list)

    @classmethod
    def of(cls, shape: LoadShape, peak: float, ticks: int, speeds: Mapping[str, float], seed: int) -> Self:
        """Return a service with this rate (requests per second) in a usual busy hour, for so many minutes."""
        arrivals = replace(shape, peak=peak).arrivals(math.ceil(ticks * 60 / DAY), seed)[: ticks * 60]
        return cls(arrivals.tolist(), speeds, RequestQueue(arrivals, seed))

    def minute(self, ready: Mapping[str, int], target: int, paid: float) -> Minute:
        """Simulate the next minute with so many ready workers of each instance type."""
        workers: dict[float, int] = {}
        for name, count in ready.items():
            workers[self.speeds[name]] = workers.get(self.speeds[name], 0) + count
        played = self.queue.minute(workers)
        able = sum(speed * count for speed, count in workers.items())
        tick = len(self.minutes)
        self.minutes.append(
            LoadMinute(
                tick, played.arrived / 60, able, target, sum(ready.values()), played.waiting, round(paid, 6)
            )
        )
        return played

    def account(
        self, allowed: float, warm_up: int, hourly: Mapping[str, float], workers: Mapping[str, int]
    ) -> LoadAccount:
        """Return the result after ``warm_up`` minutes.

        ``hourly`` are On-Demand prices (US dollars) and ``workers`` those on an instance, by type.
        """
        end = len(self.minutes)
        begin = min(warm_up, end - 1)
        waits = self.queue.waits(60 * begin, 60 * end)
        if not len(waits):
            waits = np.zeros(1, dtype=np.int64)
        peak = self._peak(begin, end, hourly, workers)
        return LoadAccount(
            speeds=self.speeds,
            allowed=allowed,
            minutes=tuple(self.minutes),
            waits=tuple(self._waits(tick, min(tick + STRETCH, end)) for tick in range(0, end, STRETCH)),
            requests=sum(self.arrivals[60 * begin : 60 * end]),
            half=float(np.percentile(waits, 50)),
            p99_seconds=float(np.percentile(waits, 99)),
            longest=float(waits.max()),
            late=float((waits > allowed).mean()),
            paid=sum(minute.paid for minute in self.minutes[begin:]),
            peak=peak,
            on_demand=peak.count * peak.hourly * (end - begin) / 60,
        )

    def _waits(self, begin: int, end: int) -> Waits:
        waits = self.queue.waits(60 * begin, 60 * end)
        if not len(waits):
            return Waits(begin, end - begin, None, None)
        half, p99 = (float(np.percentile(waits, q)) for q in (50, 99))
        return Waits(begin, end - begin, half, p99)

    def _peak(
        self, begin: int, end: int, hourly: Mapping[str, float], workers: Mapping[str, int]
    ) -> PeakSize:
        counted = np.asarray(self.arrivals[60 * begin : 60 * end])
        width = min(_BUSIEST_SECONDS, len(counted))
        busiest = float(np.convolve(counted, np.ones(width), "valid").max()) / width
        sizes = [
            PeakSize(name, max(1, math.ceil(busiest / speed / workers.get(name, 1))), hourly[name])
            for name, speed in self.speeds.items()
        ]
        return min(sizes, key=lambda size: size.count * size.hourly)
