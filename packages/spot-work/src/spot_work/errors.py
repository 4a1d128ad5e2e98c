"""Exceptions of clients and workers."""

from __future__ import annotations

from typing import Any


class WorkError(Exception):
    """Base class of this package's errors; as a reply: the message of the worker's exception."""


class QueueFullError(WorkError):
    """The queue is at its maximum length and rejected the request, which was not stored."""


class ExpiredError(WorkError, TimeoutError):
    """No reply arrived in time. A worker may have run the request, or may still run it."""


class OverloadedError(WorkError):
    """The request cannot meet its deadline and is refused; no worker has run it in this delivery.

    ``retry_after`` is the time in seconds after which it may be sent again with the same timeout.
    """

    def __init__(self, text: str, retry_after: float) -> None:
        super().__init__(text)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.retry_after)


class LostError(WorkError):
    """The client was closed before the reply arrived."""


class BrokerRefusedError(WorkError):
    """The broker refuses credentials, permissions or a queue's declaration; a retry cannot succeed."""


class Requeue(Exception):  # noqa: N818 - a control-flow signal, like StopIteration
    """Raised by a worker's function, or returned for a request, to have another worker run the request.

    The delivery counts towards `Queue.max_deliveries`.
    """
