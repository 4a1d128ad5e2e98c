"""The client's side of a queue: the interface that each transport implements."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from spot_work import message
from spot_work.errors import WorkError
from spot_work.message import Message
from spot_work.pending import PendingRequests

log: Final = logging.getLogger("spot_work")


class RequestPublisher(Protocol):
    """Publishes the requests of a `PendingRequests` and resolves them with the replies."""

    def check(self, message: Message) -> None:
        """Raise ``ValueError`` for a request that is too large for this transport."""
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
    """Resolve a request with its reply; a malformed reply is logged and dropped."""
    try:
        reply = message.read_reply(received)
    except ValueError as error:
        log.error("%s: malformed reply: %s", queue_name, error)
        return
    pending.resolve_reply(reply.id, WorkError(reply.error) if reply.error else None, reply.value)
