"""What a stack's functions and agents log, write and read in a month.

The figures of a minute are those that ``tests/forecast/test_control_plane.py`` counts by running functions
and agent; the prices are in ``gpu_spot/preflight/prices.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from contracts.agent.config import Config
from gpu_spot.forecast import groups
from gpu_spot.preflight import prices
from gpu_spot.preflight.prices import Line, listed
from infra.catalogue import accelerators
from infra.schema import Service, Settings, SharedHost, Training

_MINUTES: Final = prices.HOURS * 60


class Emission(NamedTuple):
    """Of each minute: bytes of log, CloudWatch metrics, heartbeats, items that functions read and write."""

    log_bytes: float = 0.0
    metrics: float = 0.0
    heartbeats: float = 0.0
    reads: float = 0.0
    writes: float = 0.0


CONTROLLER: Final = Emission(880, 5)
"""Of a group, all of whose instances are Spot: target, ready, Spot, and two costs."""
HEALTH: Final = Emission(280, 1)
SCALER: Final = Emission(620, 2, writes=1)
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
_INVOCATION: Final = Emission(700, writes=1)
"""Lambda's own lines of an invocation (assumed), and when it served which group."""
_POLLS_PER_MINUTE: Final = 18
"""Long polls of the controller's queue by Lambda's five pollers, and its messages (assumed)."""


def lines(settings: Settings, functions: int, region: str) -> Iterator[Line]:
    """Yield the lines that grow with groups, instances and workers; ``functions`` run each minute."""
    entries = [entry for entry in groups.all_entries(settings) if not groups.is_on_kubernetes(entry)]
    emissions = [Emission(), *[_INVOCATION] * functions] + [e for entry in entries for e in _emissions(entry)]
    log_bytes, metrics, heartbeats, reads, writes = map(sum, zip(*emissions, strict=True))
    first = min(metrics, prices.FIRST_METRICS)
    for item, count, price in (
        ("GB of logs", log_bytes * _MINUTES / 1e9, prices.LOG_GB),
        ("heartbeats, million", heartbeats * _MINUTES / 1e6, prices.WRITE_MILLION),
        ("items written, million", writes * _MINUTES / 1e6, prices.WRITE_MILLION),
        ("items read, million", reads * _MINUTES / 1e6, prices.READ_MILLION / 2),
        ("queue requests, million", _POLLS_PER_MINUTE * _MINUTES / 1e6, prices.QUEUE_MILLION),
        ("custom metrics", first, prices.METRIC_MONTH),
        ("custom metrics beyond 10,000", metrics - first, prices.FURTHER_METRIC_MONTH),
    ):
        yield listed(item, count, price, region)


def _emissions(entry: Service | Training | SharedHost) -> Iterator[Emission]:
    capacity = entry.capacity
    instances = math.ceil(capacity.target / min(capacity.weights.values()))
    yield CONTROLLER
    yield Emission(INSTANCE.log_bytes * instances, INSTANCE.metrics * capacity.is_nvidia)
    workers, readers = instances, 1
    if isinstance(entry, Service):
        workers, readers = capacity.target * entry.workers_per_slot, 2 + (entry.scaling is not None)
        yield HEALTH
        yield Emission(0, (entry.on_premises is not None) + _HTTP_METRICS * (entry.http is not None))
        if capacity.is_nvidia and max(accelerators.lookup(t).accelerators for t in capacity.types) > 1:
            yield Emission(SLOT.log_bytes * workers, SLOT.metrics * entry.max_slots)
        yield from (QUEUE,) if entry.queue is not None else ()
        yield from (SCALER,) if entry.scaling is not None else ()
    elif isinstance(entry, SharedHost):
        yield Emission(TENANT.log_bytes * len(entry.tenants))
    else:
        yield Emission(0, JOB_METRICS)
    yield Emission(0, 0, workers * 60 / Config.heartbeat_seconds, (workers + 1) * readers)
