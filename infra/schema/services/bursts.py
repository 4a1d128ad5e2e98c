"""What a burst makes requests wait, and what workers in reserve cost.

The model: within the time in which instances ordered now become ready, the load rises by a quarter.
The backlog that grows meanwhile is served by the workers that are ready, so that the last of these requests
waits the share ``1 - (1 + headroom) / 1.25`` of that time. `make bench-scaling`: with 10 s allowed
one request in a hundred waits 25 to 46 s (research/performance.md, "Scaling by worker").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from infra.catalogue.on_demand_prices import highest_slot_price
from infra.schema.services.service import Service

RISE: Final = 1.25
"""The load after a burst, as a multiple of the load before."""
READY_SECONDS: Final = 240.0
"""Seconds until instances are ready: three minutes to boot, and one until the scaler has seen the load."""


def held_wait(headroom: float) -> float:
    """Return the wait (seconds) that a service with this headroom holds in a burst."""
    return READY_SECONDS * max(0.0, 1 - (1 + headroom) / RISE)


def needed_headroom(wait: float) -> float:
    """Return the headroom that holds this wait (seconds) in a burst, in hundredths."""
    return max(0.0, math.ceil(100 * (RISE * (1 - wait / READY_SECONDS) - 1) - 1e-9) / 100)


def wait_warnings(services: Sequence[Service], region: str) -> Iterator[str]:
    """Yield a warning for each service whose allowed wait a burst exceeds, with what would hold it."""
    for index, service in enumerate(services):
        scaling = service.scaling
        if scaling is None or service.runs_on != "instances":
            continue
        wait = math.ceil(held_wait(scaling.headroom))
        if scaling.wait_seconds >= wait:
            continue
        capacity, needed = service.capacity, needed_headroom(scaling.wait_seconds)
        price, _ = highest_slot_price(capacity.types, region, capacity.weights)
        dollars = math.ceil(capacity.target * (needed - scaling.headroom)) * price
        yield (
            f"gpu-spot:services[{index}].scaling.waitSeconds: {scaling.wait_seconds} s is less than a burst "
            f"allows: if the load rises by a quarter within {READY_SECONDS:g} s, until new instances are "
            f"ready, requests wait up to {wait} s; scaling.headroom {needed:g} holds "
            f"{scaling.wait_seconds} s, for up to {dollars:.2f} dollars an hour at a load of "
            f"{capacity.target} (On-Demand price)"
        )
