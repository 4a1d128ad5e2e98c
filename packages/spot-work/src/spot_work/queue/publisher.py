"""The client's side of a queue: the interface that each transport implements."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from spot_work.errors import OverloadedError, WorkError
from spot_work.request import deadline, message
from spot_work.request.message import Message
from spot_work.request.pending import PendingRequests

log: Final = logging.getLogger("spot_work")

_MAX_CLOCK_ERROR_SECONDS: Final = 5.0
"""Difference of two synchronized clocks, at the most."""


class RequestPublisher(Protocol):
    """Publishes the requests of a `PendingRequests` and resolves them with the replies."""

    def check(self, message: Message) -> None:
        """Raise ``ValueError`` for a request that is too large, or whose priority the transport has not."""

    def send(self, request_id: str) -> None:
        """Send a request; retry until the broker confirms it or this publisher is closed. Returns at once."""

    def cancel(self, request_id: str) -> None:
        """Notify the workers, if the transport can, that a request was cancelled."""

    def close(self) -> None:
        """Close the connection and delete this client's reply queue."""


def resolve_reply(pending: PendingRequests, queue_name: str, received: Message) -> None:
    """Resolve a request with its reply; raises ``ValueError`` for a malformed one.

    The wait that a reply reports counts also if it arrives too late for its request. A request has waited no
    longer than since it was submitted: what a worker whose clock is fast reports beyond that is cut off.
    """
    reply, age = message.read_reply(received), pending.age_seconds(received.id)
    if received.delay is not None and age is not None:
        if received.delay.wait_seconds > age + _MAX_CLOCK_ERROR_SECONDS:
            seconds = received.delay.wait_seconds - age
            log.warning("%s: the clock of a worker is %.0f s fast, or this one slow", queue_name, seconds)
        pending.waits.record(received.priority, received.delay.within(age))
    failure: WorkError | None = None
    if reply.retry_after is not None:
        retry_after = min(reply.retry_after, deadline.retry_after(age or 0.0))
        text = f"{queue_name}: refused by a worker, the queue's wait is too long"
        failure = OverloadedError(f"{text}, retry in {retry_after:.0f} s", retry_after)
    elif reply.error:
        failure = WorkError(reply.error)
    pending.resolve_reply(reply.id, failure, reply.value)
