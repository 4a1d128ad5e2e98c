"""Workers for a load where nothing reports throughput: those in work, and some for what waits."""

from __future__ import annotations

from math import ceil
from typing import Final

from contracts.registry.http_state import HttpState
from contracts.registry.queue_state import QueueState

TARGET_SHARE: Final = 0.7
"""Share of the requests that a worker serves at once above which another worker is added: the default of
Knative's autoscaler. Source: Knative, "Configuring concurrency", "Target utilization"."""


def workers_for_queue(state: QueueState, queued_per_worker: int) -> int:
    """Return the workers that a queue needs, at one for each ``queued_per_worker`` requests.

    Never fewer than the workers in work and those for the requests that wait. A worker is in work if it has a
    request; a broker does not say how many have one, but not more than there are requests in flight, or
    consumers. SQS knows no consumers but one: with ``queued_per_worker`` 1 each request in flight counts.
    """
    in_work = min(state.in_flight, state.consumers)
    return max(
        in_work + _divided(state.ready, queued_per_worker),
        _divided(state.ready + state.in_flight, queued_per_worker),
    )


def workers_for_requests(state: HttpState, concurrency: int) -> int:
    """Return the workers for the requests at proxies, of which a worker serves ``concurrency`` at once.

    At least one while requests arrive, also such as are refused because there is no worker. A proxy that
    cannot be read counts as the busiest of the others.
    """
    requests = state.waiting + state.in_flight
    arrives = state.arrival_rate > 0 or state.refused_rate > 0
    return max(int(arrives), ceil(requests / (TARGET_SHARE * concurrency) - 1e-9))


def _divided(requests: int, per_worker: int) -> int:
    """Divide and round up."""
    return -(-requests // per_worker)
