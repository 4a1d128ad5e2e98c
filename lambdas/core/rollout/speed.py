"""Seconds per request of two releases: at one batch size, on one instance type, in the same minutes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from contracts.registry.item import Worker
from lambdas.core.health.model import WorkerHost

WINDOW_SECONDS: Final = 300.0
"""Time that a worker's report covers."""
WARM_UP_SECONDS: Final = 60.0
"""The first batches of a process take longer: they load kernels and fill caches."""
HOST_SPREAD: Final = 0.05
"""Standard deviation of the logarithm of the speed between instances of a type."""
Stratum: TypeAlias = tuple[str, int]
"""Instance type, and maximum batch size."""


@dataclass(slots=True)
class StratumTimes:
    """Batches of one size that workers ran, the requests in them, and their seconds."""

    batches: int = 0
    requests: int = 0
    seconds: float = 0.0
    workers: int = 0


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """The logarithm of the ratio of two releases' seconds per request is between ``low`` and ``high``.

    Mean batch sizes within a row may differ: by the time per request the side with the larger batches looks
    faster, by the time per batch slower.
    """

    low: float
    high: float
    variance: float


def measure(workers: Iterable[tuple[WorkerHost, Worker]], now: float) -> dict[Stratum, StratumTimes]:
    """Return the batches of workers in the last `WINDOW_SECONDS`, without those that are warming up."""
    times: dict[Stratum, StratumTimes] = {}
    for host, worker in workers:
        report = worker.report
        if report is None or now - worker.since < WINDOW_SECONDS + WARM_UP_SECONDS:
            continue
        for row in report.batches or ():
            total = times.setdefault((host.instance_type, row.max_size), StratumTimes())
            total.batches += row.batches
            total.requests += row.requests
            total.seconds += row.seconds
            total.workers += 1
    return times


def compare(new: dict[Stratum, StratumTimes], old: dict[Stratum, StratumTimes]) -> SpeedRatio | None:
    """Return how much longer the new release takes; None without a batch size that both had.

    The mean over the batch sizes, weighted by precision. A batch's duration varies at most as an exponential
    distribution: the variance of the logarithm of a mean of n is 1/n.
    """
    weights = low = high = 0.0
    for stratum in new.keys() & old.keys():
        n, o = new[stratum], old[stratum]
        if min(n.seconds, o.seconds) <= 0:
            continue
        weight = 1 / (1 / n.batches + 1 / o.batches)
        per_batch = math.log(n.seconds / n.batches * o.batches / o.seconds)
        per_request = math.log(n.seconds / n.requests * o.requests / o.seconds)
        weights += weight
        low += weight * min(per_batch, per_request)
        high += weight * max(per_batch, per_request)
    if not weights:
        return None
    hosts = 1 / max(t.workers for t in new.values()) + 1 / max(t.workers for t in old.values())
    return SpeedRatio(low / weights, high / weights, 1 / weights + hosts * HOST_SPREAD**2)
