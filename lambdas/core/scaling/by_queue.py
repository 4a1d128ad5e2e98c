"""Workers for a queue's load where nothing reports throughput: those in work, and some for what waits."""

from __future__ import annotations

from contracts.registry.queue_state import QueueState


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


def _divided(requests: int, per_worker: int) -> int:
    """Divide and round up."""
    return -(-requests // per_worker)
