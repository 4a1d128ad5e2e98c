"""A queue of requests and its workers, second by second."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Minute:
    """The totals of a minute, in requests; ``busy_seconds`` are summed over the workers.

    ``waiting`` and ``taken`` are at its end, ``oldest`` is the age of the oldest waiting request (seconds)
    then.
    """

    arrived: int
    ended: int
    busy_seconds: float
    waiting: int
    started: int
    oldest: int


class RequestQueue:
    """A first-in-first-out queue, one request per worker; served counts vary as in a Poisson process.

    Requests of a lost worker return to the queue, as a broker redelivers unacknowledged messages.
    """

    def __init__(self, arrivals: NDArray[np.int64], seed: int) -> None:
        """``arrivals`` are those of every second."""
        self._coming: list[int] = arrivals.tolist()
        self._noise: list[float] = np.random.default_rng([seed, 3]).normal(size=len(arrivals)).tolist()
        self._arrived: list[int] = []
        self._started: list[int] = []
        self._waiting = self._busy = self._oldest = 0
        self._credit = 0.0

    def minute(self, workers: Mapping[float, int]) -> Minute:
        """Simulate the next minute with so many workers, by their rate (requests per second)."""
        total = sum(workers.values())
        mean_rate = sum(rate * count for rate, count in workers.items()) / total if total else 0.0
        begin = len(self._started)
        arrived_before = self._arrived[-1] if begin else 0
        arrived, started = arrived_before, self._started[-1] if begin else 0
        waiting, busy, credit = self._waiting, self._busy, self._credit
        if busy > total:  # delivered again
            arrived += busy - total
            waiting += busy - total
            busy = total
        again, ended, busy_seconds = arrived - arrived_before, 0, 0
        for second in range(begin, min(begin + 60, len(self._coming))):
            came = self._coming[second]
            arrived += came
            waiting += came
            if busy:
                rate = busy * mean_rate
                credit += rate + math.sqrt(rate) * self._noise[second]
                done = int(credit) if 0 < credit < busy else busy if credit > 0 else 0
                credit -= done
                busy -= done
                ended += done
            newly_started = min(waiting, total - busy)
            busy += newly_started
            waiting -= newly_started
            started += newly_started
            busy_seconds += busy
            self._arrived.append(arrived)
            self._started.append(started)
        # Unused time of a busy worker is not carried over to a later burst.
        self._waiting, self._busy, self._credit = waiting, busy, min(credit, 1.0)
        while self._oldest < len(self._arrived) and self._arrived[self._oldest] <= started:
            self._oldest += 1
        return Minute(
            arrived=arrived - arrived_before - again,
            ended=ended,
            busy_seconds=busy_seconds,
            waiting=waiting,
            started=busy,
            oldest=max(0, len(self._arrived) - self._oldest) if waiting else 0,
        )

    def waits(self, begin: int = 0, end: int | None = None) -> NDArray[np.int64]:
        """Return the waits of the requests that arrived between two seconds.

        A request that still waits at the end of the replay counts as started then.
        """
        arrived, started = np.asarray(self._arrived), np.asarray(self._started)
        first = arrived[begin - 1] if begin else 0
        last = arrived[(len(arrived) if end is None else end) - 1]
        number = np.arange(first + 1, last + 1)
        return np.searchsorted(started, number) - np.searchsorted(arrived, number)
