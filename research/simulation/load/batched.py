"""Replay of a load on workers that take requests in batches, on a market that never lacks instances.

A worker takes what waits, up to its largest batch, as soon as it is free; nothing waits behind a busy worker.
Instances launch at once, are ready after a boot, and cost the same from their launch on.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lambdas.core.scaling.batches import BatchesDone, BatchSums, BatchTime
from research.simulation.load.replay import MONDAY
from research.simulation.load.rules import Rule, View

STEP_SECONDS: Final = 30
"""KEDA's default polling interval; other rules look every second step."""
_RATE_STEPS: Final = 2
_NOISE: Final = 0.2
"""Coefficient of variation of a batch's duration."""
TYPE: Final = "g6.xlarge"


@dataclass(slots=True)
class BatchQueue:
    """A first-in-first-out queue and the workers that take batches from it.

    ``arrivals`` are those of every second; ``time`` is a worker's seconds for a batch. ``leaving``
    workers leave after their batch.
    """

    arrivals: NDArray[np.int64]
    time: BatchTime
    seed: int = 1
    workers: int = 0
    idle: int = 0
    leaving: int = 0
    started_count: int = 0
    ended: int = 0
    busy_seconds: float = 0.0
    rows: dict[int, BatchSums] = field(default_factory=dict)
    _arrived: list[int] = field(default_factory=list)
    _ends: list[tuple[float, int, float]] = field(default_factory=list)
    _begin_times: list[float] = field(default_factory=list)
    _begin_counts: list[int] = field(default_factory=list)
    _noise: list[float] = field(default_factory=list)
    _counts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Count the arrivals, and draw how durations vary."""
        self._counts = np.cumsum(self.arrivals)
        self._arrived = self._counts.tolist()
        form = 1 / _NOISE**2
        self._noise = np.random.default_rng([self.seed, 4]).gamma(form, 1 / form, 4096).tolist()

    @property
    def in_flight(self) -> int:
        """Requests in running batches."""
        return sum(size for _, size, _ in self._ends)

    def set_workers(self, workers: int) -> None:
        """Change the number of workers; idle ones leave first, others after their batch."""
        change = workers - self.workers
        self.workers = workers
        if change > 0:
            back = min(change, self.leaving)
            self.leaving -= back
            self.idle += change - back
        else:
            at_once = min(-change, self.idle)
            self.idle -= at_once
            self.leaving += -change - at_once

    def run(self, begin: int, end: int) -> None:
        """Simulate the seconds from ``begin`` to ``end``."""
        ends, arrived = self._ends, self._arrived
        for second in range(begin, end):
            waiting = arrived[second] - self.started_count
            while waiting and self.idle:
                size = min(int(self.time.max_size), -(-waiting // self.idle))
                self.idle -= 1
                self._start(second, size)
                waiting -= size
            while ends and ends[0][0] < second + 1:
                at, size, seconds = heapq.heappop(ends)
                self._count(size, seconds)
                waiting = arrived[second] - self.started_count
                if self.leaving:
                    self.leaving -= 1
                elif waiting:
                    self._start(at, min(int(self.time.max_size), waiting))
                else:
                    self.idle += 1
            self.busy_seconds += len(ends)

    def waiting(self, second: int) -> int:
        """Return the requests that wait at the end of a second."""
        return self._arrived[second] - self.started_count

    def arrived(self, begin: int, end: int) -> int:
        """Return the requests that arrive from the second ``begin`` on and before ``end``."""
        return self._arrived[end - 1] - (self._arrived[begin - 1] if begin else 0)

    def oldest(self, second: int) -> int:
        """Return the age of the oldest waiting request at the end of a second; 0 without any."""
        if self.waiting(second) == 0:
            return 0
        return second + 1 - int(np.searchsorted(self._counts, self.started_count + 1))

    def waits(self, begin: int, end: int) -> NDArray[np.float64]:
        """Return the waits until a worker begins, of the requests that arrive between two seconds.

        A request that still waits at the end of the replay counts as begun then.
        """
        arrived = self._counts
        first = int(arrived[begin - 1]) if begin else 0
        number = np.arange(first + 1, int(arrived[end - 1]) + 1)
        times = np.append(self._begin_times, float(len(arrived)))
        began = times[np.searchsorted(np.asarray(self._begin_counts, dtype=np.int64), number)]
        return np.maximum(0.0, began - np.searchsorted(arrived, number))

    def _start(self, at: float, size: int) -> None:
        seconds = (self.time.fixed + self.time.per_request * size) * self._noise[
            len(self._begin_times) % 4096
        ]
        heapq.heappush(self._ends, (at + seconds, size, seconds))
        self.started_count += size
        self._begin_times.append(at)
        self._begin_counts.append(self.started_count)

    def _count(self, size: int, seconds: float) -> None:
        max_size = 1 << (size - 1).bit_length()
        batches, requests, total = self.rows.get(max_size, (0.0, 0.0, 0.0))
        self.rows[max_size] = (batches + 1, requests + size, total + seconds)
        self.ended += size


@dataclass(frozen=True, slots=True)
class PlayedBatches:
    """A replay by the step: targets, instances that are paid for, and the wait of each request."""

    targets: NDArray[np.int64]
    paid: NDArray[np.int64]
    queue: BatchQueue

    def p99(self, begin: int, end: int) -> float:
        """Return the 99th percentile of the wait (seconds) of requests that arrive between two seconds."""
        return float(np.percentile(self.queue.waits(begin, end), 99))

    def cost(self, begin: int, end: int) -> float:
        """Return the mean number of instances that are paid for between two seconds."""
        return float(self.paid[begin // STEP_SECONDS : end // STEP_SECONDS].mean())


def play_batches(
    arrivals: NDArray[np.int64],
    time: BatchTime,
    rule: Rule,
    boot_seconds: float,
    max_workers: int,
    *,
    first: int = 1,
    poll_seconds: int = 60,
    seed: int = 1,
) -> PlayedBatches:
    """Replay a load with a scaling rule that looks every ``poll_seconds``, from ``first`` workers on."""
    queue = BatchQueue(arrivals, time, seed)
    queue.set_workers(first)
    booting: list[float] = []
    targets, paid, target = [], [], first
    history: list[tuple[int, float]] = [(0, 0.0)]
    for begin in range(0, len(arrivals) - STEP_SECONDS + 1, STEP_SECONDS):
        end = begin + STEP_SECONDS
        ready = sum(at <= begin for at in booting)
        booting = booting[ready:]
        queue.set_workers(min(target, queue.workers + ready))
        queue.run(begin, end)
        history.append((queue.ended, queue.busy_seconds))
        if end % poll_seconds == 0:
            target = min(
                max_workers, max(1, rule.target(_view(queue, end, target, booting, history, boot_seconds)))
            )
            queue.rows = {}
        missing = target - queue.workers - len(booting)
        booting = booting[: len(booting) + missing] if missing < 0 and booting else booting
        booting += [end + boot_seconds] * max(0, missing)
        if target < queue.workers:
            booting = []
            queue.set_workers(target)
        targets.append(target)
        paid.append(queue.workers + len(booting) + queue.leaving)
    return PlayedBatches(np.asarray(targets), np.asarray(paid), queue)


def _view(
    queue: BatchQueue,
    end: int,
    target: int,
    booting: list[float],
    history: list[tuple[int, float]],
    boot_seconds: float,
) -> View:
    """Return what a rule sees: rates and busy time of the last minute, the queue now."""
    before, seconds = history[-1 - min(_RATE_STEPS, len(history) - 1)], min(end, _RATE_STEPS * STEP_SECONDS)
    ended, busy = queue.ended - before[0], queue.busy_seconds - before[1]
    done = BatchesDone(queue.rows, int(queue.time.max_size)) if queue.rows else None
    return View(
        now=MONDAY + end,
        target=target,
        ready={TYPE: queue.workers} if queue.workers else {},
        booting=len(booting),
        booting_seconds=boot_seconds + end - sum(booting) / len(booting) if booting else None,
        arriving=queue.arrived(end - seconds, end) / seconds,
        leaving=ended / seconds,
        waiting=queue.waiting(end - 1),
        in_flight=queue.in_flight,
        oldest=queue.oldest(end - 1),
        busy=min(1.0, busy / seconds / queue.workers) if queue.workers else 0.0,
        served={TYPE: (float(ended), busy)} if ended else {},
        batches={TYPE: done} if done else {},
    )
