"""Requests and answers as AMQP messages: what of them stands where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from pika import BasicProperties

_BYTES: Final = "application/octet-stream"
_JSON: Final = "application/json"
_PERSISTENT: Final = 2

# Headers of ours.
SENT: Final = "spot-sent"
"""When the client sent it first (epoch seconds, by the client's clock)."""
DEADLINE: Final = "spot-deadline"
"""When nobody waits any more (epoch seconds, by the client's clock)."""
AGAIN: Final = "spot-again"
"""The client sent it before and does not know whether that arrived."""
REPEAT: Final = "spot-repeat"
"""In an answer: the request may have been run more than once."""
FAILED: Final = "spot-failed"
"""In an answer: the worker's function failed; the body says how."""

_COUNT: Final = "x-delivery-count"  # RabbitMQ's own, of quorum queues: returns so far


@dataclass(frozen=True)
class Request:
    """A request as a worker's function sees it, if it asks for requests in place of values.

    ``is_repeat`` says that it may have been run before, by a worker that was lost before it could say so: a
    function whose effects must not happen twice looks at it. ``age`` is in seconds, by the client's clock
    against ours; -1 where the sender did not say. ``tries`` counts from 1.
    """

    id: str
    value: Any
    age: float = -1.0
    tries: int = 1
    is_repeat: bool = False
    has_expired: bool = False
    reply_to: str = ""


@dataclass(frozen=True)
class Reply:
    """What comes back: the value, or what failed, in words."""

    id: str
    value: Any
    failed: str = ""
    is_repeat: bool = False


def request(
    value: Any, identity: str, reply_to: str, sent: float, deadline: float, *, again: bool
) -> tuple[bytes, BasicProperties]:
    """Return body and properties of a request.

    Raises:
        TypeError: the value is neither bytes nor anything that JSON knows.
    """
    body, kind = _encode(value)
    headers: dict[str, Any] = {SENT: _number(sent), DEADLINE: _number(deadline)}
    if again:
        headers[AGAIN] = True
    return body, BasicProperties(
        content_type=kind,
        delivery_mode=_PERSISTENT,
        message_id=identity,
        correlation_id=identity,
        reply_to=reply_to,
        headers=headers,
    )


def read_request(body: bytes, properties: BasicProperties, *, redelivered: bool, now: float) -> Request:
    """Return a request as a request.

    Raises:
        ValueError: the body is not what its content type says.
    """
    headers = properties.headers or {}
    returns = headers.get(_COUNT)
    tries = 1 + returns if isinstance(returns, int) and returns > 0 else 1 + bool(redelivered)
    sent, deadline = _time(headers.get(SENT)), _time(headers.get(DEADLINE))
    return Request(
        id=properties.correlation_id or properties.message_id or "",
        value=_decode(body, properties.content_type),
        age=-1.0 if sent is None else max(now - sent, 0.0),
        tries=tries,
        is_repeat=tries > 1 or bool(headers.get(AGAIN)),
        has_expired=deadline is not None and now > deadline,
        reply_to=properties.reply_to or "",
    )


def reply(request: Request, value: Any, failed: str = "") -> tuple[bytes, BasicProperties]:
    """Return body and properties of the answer to a request; with ``failed`` the value is left out.

    Raises:
        TypeError: the value is neither bytes nor anything that JSON knows.
    """
    body, kind = _encode(failed or value)
    headers: dict[str, Any] = {FAILED: True} if failed else {}
    if request.is_repeat:
        headers[REPEAT] = True
    return body, BasicProperties(
        content_type=kind, delivery_mode=_PERSISTENT, correlation_id=request.id, headers=headers
    )


def read_reply(body: bytes, properties: BasicProperties) -> Reply:
    """Return an answer.

    Raises:
        ValueError: the body is not what its content type says.
    """
    headers = properties.headers or {}
    value = _decode(body, properties.content_type)
    return Reply(
        id=properties.correlation_id or "",
        value=None if headers.get(FAILED) else value,
        failed=str(value) if headers.get(FAILED) else "",
        is_repeat=bool(headers.get(REPEAT)),
    )


def _encode(value: Any) -> tuple[bytes, str]:
    if isinstance(value, bytes):
        return value, _BYTES
    return json.dumps(value, separators=(",", ":")).encode(), _JSON


def _decode(body: bytes, content_type: str | None) -> Any:
    return json.loads(body) if content_type == _JSON else body


def _number(seconds: float) -> int:
    # AMQP 0-9-1 tables have no exact fractions that every client writes alike: milliseconds as an integer.
    return round(seconds * 1000)


def _time(value: object) -> float | None:
    return value / 1000 if isinstance(value, int) else None
