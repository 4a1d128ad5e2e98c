"""What a proxy counts: HAProxy's statistics, sampled, as a `ProxyState`; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts.registry.proxy_state import ProxyState, WorkerRequests
from userdata.agent.proxy.runtime import Statistics, StatisticsLine

_MAX_SAMPLES: Final = 4096
"""Samples of arrivals: more than an hour at one a second, longer than a request may wait."""


@dataclass(frozen=True)
class WorkerKey:
    """A worker: its host's name and its slot."""

    instance: str
    slot: int


@dataclass
class _WorkerSums:
    """A worker's counts at its first sample, and the seconds summed since."""

    first: StatisticsLine
    busy_seconds: float = 0.0
    request_seconds: float = 0.0
    was_up: bool = False


@dataclass
class Counts:
    """Sums samples of one HAProxy process; a new process needs a new object.

    ``started_at`` and all times are epoch seconds.
    """

    started_at: float
    _workers: dict[WorkerKey, _WorkerSums] = field(default_factory=dict)
    _arrivals: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))
    _sampled_at: float | None = None
    _statistics: Statistics | None = None
    _lines: dict[WorkerKey, StatisticsLine] = field(default_factory=dict)
    _closed: int = 0
    """Requests of whose outcome HAProxy counts nothing: it closed the caller's connection."""
    _missing: tuple[int, ...] = (0,)

    def sample(self, now: float, statistics: Statistics, servers: Mapping[str, WorkerKey]) -> None:
        """Add a sample; ``servers`` has the worker behind each server in use, by the server's name.

        Busy time and the sum of the requests' times are integrals of the requests in flight (Little's law),
        exact on average also for requests that are shorter than the interval.
        """
        seconds = max(now - self._sampled_at, 0.0) if self._sampled_at is not None else 0.0
        self._lines = {worker: statistics.servers[name] for name, worker in servers.items()}
        self._workers = {key: worker for key, worker in self._workers.items() if key in self._lines}
        for key, line in self._lines.items():
            worker = self._workers.setdefault(key, _WorkerSums(line))
            worker.was_up |= line.is_up
            worker.busy_seconds += seconds if line.in_flight else 0.0
            worker.request_seconds += seconds * line.in_flight
        self._arrivals.append((now, statistics.backend.total))
        self._sampled_at, self._statistics = now, statistics
        backend = statistics.backend
        missing = backend.total - backend.responses - backend.aborted - backend.in_flight
        # Three times in a row, as HAProxy's other threads count while it writes the line.
        self._missing = (*self._missing[-2:], missing)
        self._closed = max(self._closed, min(self._missing))

    def is_known_up(self, key: WorkerKey) -> bool:
        """Return whether a worker has taken requests."""
        return key in self._workers and self._workers[key].was_up

    def state(self) -> ProxyState | None:
        """Return the state at the last sample; None before the first.

        If a worker is lost before its response, HAProxy answers 502 to the first request of a connection. Old
        versions (``TX_NOT_FIRST`` in ``src/http_ana.c`` before 2.8.10) close the connection at a later one,
        which they do not count. Those are what is missing from the other counts: a lower bound while
        responses are in flight, as their headers are counted before their end. If the worker's connection was
        reset, they count such a request as cut, too, and no count tells the two apart: ``cut`` is then too
        high, ``ended`` too low, by the same number.
        """
        if self._statistics is None or self._sampled_at is None:
            return None
        backend, servers = self._statistics.backend, self._statistics.servers.values()
        return ProxyState(
            observed_at=self._sampled_at,
            started_at=self.started_at,
            waiting=self._statistics.waiting,
            in_flight=self._statistics.in_flight,
            oldest_seconds=round(self._oldest_seconds(), 3),
            arrived=backend.total,
            ended=sum(line.responses - line.cut for line in servers),  # the header of a cut one has arrived
            refused=backend.unanswered,
            cut=self._own_errors(self._statistics) + backend.cut + self._closed,
            repeated=backend.repeated,
            workers=tuple(self._requests(key) for key in self._lines if self.is_known_up(key)),
        )

    @staticmethod
    def _own_errors(statistics: Statistics) -> int:
        """Return how often HAProxy answered 502 or 504."""
        errors = sum(line.errors for line in statistics.servers.values())
        return max(statistics.backend.errors - errors - statistics.backend.unanswered, 0)

    def _oldest_seconds(self) -> float:
        """Return a lower bound of the oldest request's wait: the queue is in the order of arrival.

        The requests that have not waited to the end are the last ``waiting`` that arrived, or older ones.
        """
        assert self._statistics is not None
        assert self._sampled_at is not None
        if not self._statistics.waiting:
            return 0.0
        before = self._statistics.backend.total - self._statistics.waiting
        arrived_at = next((at for at, total in self._arrivals if total > before), self._sampled_at)
        return self._sampled_at - arrived_at

    def _requests(self, key: WorkerKey) -> WorkerRequests:
        worker, line = self._workers[key], self._lines[key]
        first = worker.first
        failed = max(line.errors - first.errors + line.lost - first.lost, 0)
        without_response = (line.lost - line.cut) - (first.lost - first.cut)
        return WorkerRequests(
            instance=key.instance,
            slot=key.slot,
            done=max(line.responses - first.responses + without_response, failed),
            failed=failed,
            in_flight=line.in_flight,
            busy_seconds=round(worker.busy_seconds, 3),
            request_seconds=round(worker.request_seconds, 3),
        )
