"""The open requests of a client: sent, or to be sent, and without a reply."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from spot_work.errors import ExpiredError
from spot_work.request.deadline import WaitEstimate
from spot_work.request.message import Message

_MAX_EXPIRED: Final = 10_000
"""Expired requests whose late replies still tell how long the queue is."""


@dataclass
class PendingRequest:
    """A request without a reply.

    ``expires_at`` and ``submitted_at`` are monotonic: a step of the clock moves no timeout. ``sent_via`` is
    the publisher's reference to the connection that sent it last; None: not sent yet. ``is_confirmed``: the
    broker has confirmed it.
    """

    message: Message
    future: Future[Any]
    expires_at: float
    sent_via: object = None
    is_confirmed: bool = False
    submitted_at: float = field(default_factory=time.monotonic)

    def to_message(self, reply_to: str) -> Message:
        """Return the message to publish now; ``reply_to`` is the address of the reply queue."""
        return self.message._replace(reply_to=reply_to, is_resend=self.sent_via is not None)


class PendingRequests:
    """The open requests of a client by request id; safe to use from many threads.

    Invariant: only the caller that removes a request from the table resolves it, so each is resolved once.
    """

    def __init__(self) -> None:
        self._open: dict[str, PendingRequest] = {}
        self._expired: OrderedDict[str, float] = OrderedDict()  # when each was submitted
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self.waits = WaitEstimate()
        """How long a request would wait, by the replies so far."""
        self.unmatched_replies = 0
        """Number of replies without an open request: duplicates, and those that arrived too late."""

    def add(self, message: Message, future: Future[Any], timeout: float) -> None:
        """Add a request, for ``timeout`` seconds; raises the error that `fail_all` was called with."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._open[message.id] = PendingRequest(message, future, time.monotonic() + timeout)

    @property
    def is_empty(self) -> bool:
        """Whether no request is open."""
        return not self._open

    def get(self, request_id: str) -> PendingRequest | None:
        """Return a request; None if it is not open any more."""
        return self._open.get(request_id)

    def age_seconds(self, request_id: str) -> float | None:
        """Return how long ago a request was submitted, by this process's clock; None if unknown."""
        with self._lock:
            request = self._open.get(request_id)
            submitted_at = request.submitted_at if request else self._expired.get(request_id)
        return None if submitted_at is None else time.monotonic() - submitted_at

    def unconfirmed(self, *, reset: bool = False) -> Iterator[str]:
        """Yield the ids of unconfirmed requests; ``reset`` makes all requests unconfirmed first."""
        with self._lock:
            for request in self._open.values() if reset else ():
                request.is_confirmed = False
            request_ids = [id_ for id_, request in self._open.items() if not request.is_confirmed]
        yield from request_ids

    def overdue(self, now: float) -> Iterator[str]:
        """Yield the ids of requests whose timeout has passed; ``now`` is monotonic."""
        with self._lock:
            request_ids = [id_ for id_, request in self._open.items() if request.expires_at < now]
        yield from request_ids

    def discard(self, request_id: str) -> None:
        """Remove a request whose future was cancelled."""
        with self._lock:
            self._open.pop(request_id, None)

    def resolve_reply(self, request_id: str, error: Exception | None, value: Any) -> None:
        """Resolve a request with its reply, and count the reply if the request is not open."""
        self.unmatched_replies += not self.resolve(request_id, error, value)

    def resolve(self, request_id: str, error: Exception | None, value: Any = None) -> bool:
        """Resolve a request with an error or a value; return whether it was open."""
        with self._lock:
            request = self._open.pop(request_id, None)
            if request is not None and isinstance(error, ExpiredError):
                self._expired[request_id] = request.submitted_at  # not its body
                if len(self._expired) > _MAX_EXPIRED:
                    self._expired.popitem(last=False)
        if request is None or not request.future.set_running_or_notify_cancel():
            return False
        if error is not None:
            request.future.set_exception(error)
        else:
            request.future.set_result(value)
        return True

    def fail_all(self, error: Exception) -> None:
        """Resolve all requests with an error; `add` raises it from now on."""
        with self._lock:
            self._failure = self._failure or error
            request_ids = list(self._open)
        for request_id in request_ids:
            self.resolve(request_id, error)
