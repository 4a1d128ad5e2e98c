"""What a stack's functions and agents log, write and read in a month.

The figures of a minute are those that ``tests/forecast/test_control_plane.py`` counts by running functions
and agent; the prices are in ``gpu_spot/preflight/prices.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from contracts.agent.config import Config
from gpu_spot.forecast import groups
from gpu_spot.preflight import prices
from gpu_spot.preflight.prices import Line, listed
from infra.catalogue import accelerators
from infra.schema import Service, Settings, SharedHost, Training

_MINUTES: Final = prices.HOURS * 60


@dataclass(frozen=True, slots=True)
class Emission:
    """What is emitted in each minute: bytes of log, and CloudWatch metrics."""

    log_bytes: float = 0.0
    metrics: float = 0.0

    def times(self, count: float, metrics: float | None = None) -> Emission:
        """Return that of ``count`` emitters with ``metrics`` times the metrics, by default as many."""
        return Emission(self.log_bytes * count, self.metrics * (count if metrics is None else metrics))


CONTROLLER: Final = Emission(970, 5)
"""Of a group, all of whose instances are Spot: target, ready, Spot, and two costs."""
HEALTH: Final = Emission(340, 1)
SCALER: Final = Emission(720, 2)
QUEUE: Final = Emission(670, 7)
"""Of a service."""
INSTANCE: Final = Emission(750, 5)
"""Of an instance with NVIDIA GPUs, whose metrics are those of its group."""
SLOT: Final = Emission(640, 2)
"""Of a worker beside others on an instance."""
TENANT: Final = Emission(460)
JOB_METRICS: Final = 2
"""Age of the checkpoint, free space of the volume."""
_HTTP_METRICS: Final = 8
_INVOCATION: Final = Emission(700)
"""Lambda's own lines of an invocation (assumed)."""
_POLLS_PER_MINUTE: Final = 18
"""Long polls of the controller's queue by Lambda's five pollers, and its messages (assumed)."""


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Of a group in each minute: its emission, heartbeats, items that functions read, other writes."""

    emission: Emission = Emission()
    heartbeats: float = 0.0
    reads: float = 0.0
    writes: float = 0.0


def lines(settings: Settings, functions: int, region: str) -> Iterator[Line]:
    """Yield the lines that grow with groups, instances and workers; ``functions`` run each minute."""
    traffic = [
        _traffic(entry) for entry in groups.all_entries(settings) if not groups.is_on_kubernetes(entry)
    ]
    metrics = sum(group.emission.metrics for group in traffic)
    gigabytes = sum(group.emission.log_bytes for group in traffic) + functions * _INVOCATION.log_bytes
    heartbeats = sum(group.heartbeats for group in traffic)
    writes, reads = sum(group.writes for group in traffic) + functions, sum(group.reads for group in traffic)
    first = min(metrics, prices.FIRST_METRICS)
    for item, count, price in (
        ("custom metrics", first, prices.METRIC_MONTH),
        ("custom metrics beyond 10,000", metrics - first, prices.FURTHER_METRIC_MONTH),
        ("GB of logs", gigabytes * _MINUTES / 1e9, prices.LOG_GB),
        ("heartbeats, million", heartbeats * _MINUTES / 1e6, prices.WRITE_MILLION),
        ("items written, million", writes * _MINUTES / 1e6, prices.WRITE_MILLION),
        ("items read, million", reads * _MINUTES / 1e6, prices.READ_MILLION / 2),
        ("queue requests, million", _POLLS_PER_MINUTE * _MINUTES / 1e6, prices.QUEUE_MILLION),
    ):
        yield listed(item, count, price, region)


def _traffic(entry: Service | Training | SharedHost) -> _Traffic:
    capacity = entry.capacity
    instances = math.ceil(capacity.target / min(capacity.weights.values()))
    several = capacity.is_nvidia and max(accelerators.lookup(t).accelerators for t in capacity.types) > 1
    emissions = [CONTROLLER, INSTANCE.times(instances, 1 if capacity.is_nvidia else 0)]
    workers, readers, writes = float(instances), 1, 0
    if isinstance(entry, Service):
        workers, readers = capacity.target * entry.workers_per_slot, 2
        on_premises = Emission(0, 0 if entry.on_premises is None else 1)
        emissions += [HEALTH, on_premises, Emission(0, 0 if entry.http is None else _HTTP_METRICS)]
        if several:
            emissions.append(SLOT.times(workers, entry.max_slots))
        if entry.queue is not None:
            emissions.append(QUEUE)
        if entry.scaling is not None:
            emissions.append(SCALER)
            readers, writes = 3, 1
    elif isinstance(entry, SharedHost):
        emissions.append(TENANT.times(len(entry.tenants)))
    else:
        emissions.append(Emission(0, JOB_METRICS))
    total = Emission(sum(e.log_bytes for e in emissions), sum(e.metrics for e in emissions))
    return _Traffic(total, workers * 60 / Config.heartbeat_seconds, workers * readers + readers, writes)
