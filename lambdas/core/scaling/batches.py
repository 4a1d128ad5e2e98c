"""Seconds of a batch by its size, ``a + c · size``, fitted to the batches that workers report.

A worker that takes requests in batches has no single rate: with few requests its batches are small and its
rate is low. A scaler that takes this rate for its capacity adds workers, so that batches stay small. The fit
gives the rate at the batch that the allowed wait permits, whatever the batches are now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts.stored import stored
from lambdas.core.scaling.throughput import MAX_TYPES, Throughput

_DECAY: Final = math.exp(-1 / 120)
"""Weight of the past per minute with batches of a size: a memory of two hours, which idle time leaves."""
_MIN_BATCHES: Final = 3.0
"""Batches from which the duration of a size counts as known."""
_PRIOR_BATCHES: Final = 5.0
"""Weight of the prior, in batches: ``a`` equals ``c``. It decides only while all batches have one size."""
_TRUST_FACTOR: Final = 2.0
"""The fit counts up to this multiple of the largest size known, so that a wrong prior costs little."""
_STEPS: Final = 24

BatchSums = tuple[float, float, float]
"""Batches of a size: their number, their requests, their seconds."""


@dataclass(frozen=True, slots=True)
class BatchesDone:
    """Batches of the workers of one type in the last minute, by the bound of their size.

    ``max_size`` is the largest that a worker runs. ``waiting_seconds`` is how long the requests waited that
    had been delivered to a worker while it ran another batch; 0 if these are fewer than one in a hundred.
    """

    rows: Mapping[int, BatchSums]
    max_size: int
    waiting_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchTime:
    """A worker's seconds for a batch: ``fixed + per_request · size``, for sizes from 1 to ``max_size``."""

    fixed: float
    per_request: float
    max_size: float = 1.0

    def rate(self, size: float) -> float:
        """Return the requests a second in batches of ``size``, or of its largest."""
        used = min(size, self.max_size)
        return used / (self.fixed + self.per_request * used)


@dataclass(frozen=True, slots=True)
class WorkerSpeed:
    """The mean worker of a group: the shares of its workers by their batch times."""

    parts: tuple[tuple[float, BatchTime], ...]

    @property
    def max_size(self) -> float:
        """The largest batch."""
        return max(time.max_size for _, time in self.parts)

    def rate(self, size: float) -> float:
        """Return the requests a second of a worker in batches of ``size``."""
        return sum(share * time.rate(size) for share, time in self.parts)

    def seconds(self, size: float) -> float:
        """Return the seconds of a batch of ``size``."""
        return size / self.rate(size)

    def size_within(self, seconds: float) -> float:
        """Return the largest size whose batch takes ``seconds`` at most; at least 1."""
        low, high = 1.0, self.max_size
        if self.seconds(high) <= seconds:
            return high
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.seconds(middle) <= seconds else (low, middle)
        return low


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class LearnedBatches:
    """Decayed sums of the batches of one type by the bound of their size, and the largest batch."""

    max_size: int = 1
    rows: Mapping[int, BatchSums] = field(default_factory=dict)

    def update(self, done: BatchesDone) -> LearnedBatches:
        """Return the sums after a minute; sizes without a batch keep theirs."""
        rows = dict(self.rows)
        for size, row in done.rows.items():
            before = rows.get(size, (0.0, 0.0, 0.0))
            batches, requests, seconds = (old * _DECAY + new for old, new in zip(before, row, strict=True))
            rows[size] = (batches, requests, seconds)
        return LearnedBatches(done.max_size, rows)

    def fit(self) -> BatchTime | None:
        """Return the batch time; None if no size is known.

        Least squares of the relative errors, with the prior that ``fixed`` equals ``per_request``.
        """
        measured = [row for row in self.rows.values() if row[0] >= _MIN_BATCHES and row[2] > 0]
        if not measured:
            return None
        weights = [batches * (batches / seconds) ** 2 for batches, _, seconds in measured]
        sizes = [requests / batches for batches, requests, _ in measured]
        times = [seconds / batches for batches, _, seconds in measured]
        prior = _PRIOR_BATCHES * (sum(row[0] for row in measured) / sum(row[2] for row in measured)) ** 2
        n = sum(weights)
        sum_sizes = _dot(weights, sizes)
        squares = _dot(weights, [size * size for size in sizes])
        sum_times = _dot(weights, times)
        products = _dot(weights, [size * time for size, time in zip(sizes, times, strict=True)])
        determinant = (n + prior) * (squares + prior) - (sum_sizes - prior) ** 2
        fixed = (sum_times * (squares + prior) - products * (sum_sizes - prior)) / determinant
        per_request = (products * (n + prior) - sum_times * (sum_sizes - prior)) / determinant
        if fixed < 0:
            fixed, per_request = 0.0, products / squares
        elif per_request < 0:
            fixed, per_request = sum_times / n, 0.0
        trusted = max(1.0, min(self.max_size, _TRUST_FACTOR * max(sizes)))
        return BatchTime(fixed, per_request, trusted)


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The learned batches by instance type."""

    by_type: Mapping[str, LearnedBatches] = field(default_factory=dict)

    def update(self, done: Mapping[str, BatchesDone]) -> BatchTimes:
        """Return the state after a minute."""
        by_type = dict(self.by_type)
        for name, batches in done.items():
            by_type[name] = by_type.pop(name, LearnedBatches()).update(batches)
        return BatchTimes(dict(list(by_type.items())[-MAX_TYPES:]))

    def speed(self, throughput: Throughput, counts: Mapping[str, int]) -> WorkerSpeed | None:
        """Return the mean speed of these workers; None if no type is measured.

        A type whose workers report no batches has the measured throughput, one request at a time; an
        unmeasured type counts as the mean of all others.
        """
        measured = {name: time for name in throughput.by_type if (time := self._time(name, throughput))}
        measured |= {name: time for name, learned in self.by_type.items() if (time := learned.fit())}
        if not measured:
            return None
        shares = dict.fromkeys(measured, 0.0)
        workers = sum(counts.values())
        unknown = workers - sum(counts.get(name, 0) for name in measured)
        for name in measured:
            shares[name] = (
                (counts.get(name, 0) + unknown / len(measured)) / workers if workers else 1 / len(measured)
            )
        return WorkerSpeed(tuple((share, measured[name]) for name, share in shares.items() if share > 0))

    @staticmethod
    def _time(name: str, throughput: Throughput) -> BatchTime | None:
        rate = throughput.rate_of(name)
        return BatchTime(0.0, 1 / rate) if rate else None


def _dot(weights: Iterable[float], values: Iterable[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
