"""Requests and replies as messages; each transport's ``wire`` module maps their fields to its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from spot_work.request.deadline import QueueDelay
from spot_work.request.trace import TraceCarrier

Priority = Literal["normal", "high"]
_JSON: Final = json.JSONEncoder(separators=(",", ":"))
MAX_MILLISECONDS: Final = 10**14
"""Bound of a time or a duration that a message has: another client may set it to anything."""
PRIORITIES: Final[tuple[Priority, ...]] = ("normal", "high")


class Message(NamedTuple):
    """A request or a reply, as it is sent.

    ``id`` is the request's id, also in its reply. Fields of a request: ``sent_at`` and ``deadline`` are epoch
    seconds by the client's clock, None if unknown; ``is_resend``: the client has sent it before and does not
    know whether it arrived. Fields of a reply: ``is_repeat``: the request may have run more than once;
    ``is_error``: the body is the error message of the worker's function; ``retry_after``: seconds, if the
    worker has refused the request; ``delay`` of the queue, if the worker knows it. ``priority`` is that of
    the request, also in its reply; ``trace`` is a request's, empty if it has none.
    """

    id: str
    body: bytes
    is_json: bool
    reply_to: str = ""
    sent_at: float | None = None
    deadline: float | None = None
    is_resend: bool = False
    is_repeat: bool = False
    is_error: bool = False
    priority: Priority = "normal"
    retry_after: float | None = None
    delay: QueueDelay | None = None
    trace: TraceCarrier = MappingProxyType({})


@dataclass(frozen=True)
class Request:
    """A request, as passed to a worker's function with ``requests=True``.

    ``is_repeat``: a worker that was lost may have run it before; check it if the function's effects must not
    happen twice. ``age_seconds``, when it begins to run, compares the client's clock to the worker's; -1 if
    the sender gave no time. ``delivery_count`` is 1 for the first delivery. ``deadline`` is the epoch second,
    by the client's clock, at which the request expires; None if the sender gave none. A function that sends
    requests of its own passes it on: ``client.submit(value, timeout=request.deadline - time.time())``.
    ``sent_at`` is when it was sent, by the same clock; None if unknown. ``trace`` is the W3C trace context,
    empty if the sender gave none.
    """

    id: str
    value: Any
    age_seconds: float = -1.0
    delivery_count: int = 1
    is_repeat: bool = False
    has_expired: bool = False
    reply_to: str = ""
    deadline: float | None = None
    sent_at: float | None = None
    priority: Priority = "normal"
    trace: TraceCarrier = field(default_factory=dict)

    def at(self, now: float) -> Request:
        """Return it with the age and the expiry that it has at an epoch second, by this process's clock."""
        if self.sent_at is None and self.deadline is None:
            return self
        age = self.age_seconds if self.sent_at is None else max(now - self.sent_at, 0.0)
        return replace(self, age_seconds=age, has_expired=self.deadline is not None and now > self.deadline)


@dataclass(frozen=True)
class Reply:
    """A reply: the value, or the message of the error; ``retry_after`` as in `Message`."""

    id: str
    value: Any
    error: str = ""
    is_repeat: bool = False
    retry_after: float | None = None


def request(
    value: Any,
    request_id: str,
    reply_to: str,
    sent_at: float,
    deadline: float,
    *,
    is_resend: bool,
    priority: Priority = "normal",
    trace: TraceCarrier | None = None,
) -> Message:
    """Return the message of a request.

    Raises:
        TypeError: the value is neither bytes nor serializable as JSON.
    """
    body, is_json = _encode(value)
    return Message(
        request_id,
        body,
        is_json,
        reply_to,
        sent_at,
        deadline,
        is_resend=is_resend,
        priority=priority,
        trace=trace or {},
    )


def read_request(message: Message, delivery_count: int) -> Request:
    """Return the request in a message; ``delivery_count`` includes this delivery.

    Raises:
        ValueError: the body does not match its content type.
    """
    return Request(
        id=message.id,
        value=read_value(message),
        delivery_count=delivery_count,
        is_repeat=delivery_count > 1 or message.is_resend,
        reply_to=message.reply_to,
        deadline=message.deadline,
        sent_at=message.sent_at,
        priority=message.priority,
        trace=message.trace,
    )


def reply(request: Request, value: Any, error: str = "", delay: QueueDelay | None = None) -> Message:
    """Return the message of a reply; with ``error`` the value is left out.

    Raises:
        Exception: the value is neither bytes nor serializable as JSON.
    """
    body, is_json = _encode(error or value)
    return Message(
        request.id,
        body,
        is_json,
        is_repeat=request.is_repeat,
        is_error=bool(error),
        priority=request.priority,
        delay=delay,
    )


def refusal(request: Request, retry_after: float, delay: QueueDelay | None) -> Message:
    """Return the reply to a request that cannot meet its deadline."""
    text = f"the request cannot meet its deadline, retry in {retry_after:.0f} s"
    return reply(request, None, text, delay)._replace(retry_after=retry_after)


def read_reply(message: Message) -> Reply:
    """Return the reply in a message.

    Raises:
        ValueError: the body does not match its content type.
    """
    value = read_value(message)
    return Reply(
        id=message.id,
        value=None if message.is_error else value,
        error=str(value) if message.is_error else "",
        is_repeat=message.is_repeat,
        retry_after=message.retry_after,
    )


def _encode(value: Any) -> tuple[bytes, bool]:
    if isinstance(value, bytes):
        return value, False
    return _JSON.encode(value).encode(), True


def read_value(message: Message) -> Any:
    """Return the value in a message; raises ``ValueError`` if the body does not match its content type."""
    try:
        return json.loads(message.body) if message.is_json else message.body
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
