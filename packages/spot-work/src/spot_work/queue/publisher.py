"""The client's side of a queue: the interface that each transport implements."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from spot_work.errors import OverloadedError, WorkError
from spot_work.request import message
from spot_work.request.message import Message
from spot_work.request.pending import PendingRequests

log: Final = logging.getLogger("spot_work")


class RequestPublisher(Protocol):
    """Publishes the requests of a `PendingRequests` and resolves them with the replies."""

    def check(self, message: Message) -> None:
        """Raise ``ValueError`` for a request that is too large, or whose priority the transport has not."""
        ...

    def send(self, request_id: str) -> None:
        """Send a request; retry until the broker confirms it or this publisher is closed. Returns at once."""
        ...

    def cancel(self, request_id: str) -> None:
        """Notify the workers, if the transport can, that a request was cancelled."""
        ...

    def close(self) -> None:
        """Close the connection and delete this client's reply queue."""
        ...


def resolve_reply(pending: PendingRequests, queue_name: str, received: Message) -> None:
    """Resolve a request with its reply; a malformed reply is logged and dropped.

    The wait that a reply reports counts also if it arrives too late for its request.
    """
    try:
        reply = message.read_reply(received)
    except ValueError as error:
        log.error("%s: malformed reply: %s", queue_name, error)
        return
    if received.delay is not None:
        pending.waits.record(received.priority, received.delay)
    failure: WorkError | None = None
    if reply.retry_after is not None:
        failure = OverloadedError(f"{queue_name}: {reply.error}", reply.retry_after)
    elif reply.error:
        failure = WorkError(reply.error)
    pending.resolve_reply(reply.id, failure, reply.value)
