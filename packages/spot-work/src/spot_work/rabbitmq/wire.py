"""The mapping of messages to AMQP properties and headers."""

from __future__ import annotations

import copy
import time
from datetime import UTC, datetime
from typing import Any, Final

from pika import BasicProperties

from spot_work.command.inspector import DeadLetter
from spot_work.rabbitmq.connection import UNREADABLE
from spot_work.request import trace
from spot_work.request.deadline import QueueDelay
from spot_work.request.message import MAX_MILLISECONDS, Message

_BYTES: Final = "application/octet-stream"
_JSON: Final = "application/json"
_PERSISTENT: Final = 2
_HIGH_PRIORITY: Final = 5
"""The lowest priority above that of messages without one, 4. Source: RabbitMQ guide "Quorum Queues"."""

SENT_AT: Final = "spot-sent"
DEADLINE: Final = "spot-deadline"
_RESEND: Final = "spot-again"
_REPEAT: Final = "spot-repeat"
_ERROR: Final = "spot-failed"
_RETRY_AFTER: Final = "spot-retry-after"
_WAIT: Final = "spot-wait"
_RUN: Final = "spot-run"
REASON: Final = "spot-reason"
"""Header of a dead-lettered request: why."""

_MAX_REASON: Final = 1000
"""Characters of a reason: the frame of all headers has at most 128 KiB."""

_DELIVERY_COUNT: Final = "x-delivery-count"
"""Set by RabbitMQ's quorum queues: the number of returns so far."""
_DEATHS: Final = "x-death"
"""Set by RabbitMQ for what it dead-letters itself: a table for each queue and reason, newest first."""
_OF_BROKER: Final = (_DEATHS, "x-first-death-", "x-last-death-", _DELIVERY_COUNT, "x-acquired-count")
"""Beginnings of the headers that RabbitMQ sets."""


def properties(message: Message, reason: str = "") -> BasicProperties:
    """Return the AMQP properties of a message; ``reason``: why it is dead-lettered."""
    headers: dict[str, Any] = {}
    delay = message.delay
    times = {
        SENT_AT: message.sent_at,
        DEADLINE: message.deadline,
        _RETRY_AFTER: message.retry_after,
        _WAIT: None if delay is None else delay.wait_seconds,
        _RUN: None if delay is None else delay.run_seconds,
    }
    for name, seconds in times.items():
        if seconds is not None:
            # Integer milliseconds: clients encode fractions in AMQP 0-9-1 tables in different ways.
            headers[name] = round(seconds * 1000)
    flags = ((_RESEND, message.is_resend), (_REPEAT, message.is_repeat), (_ERROR, message.is_error))
    headers |= {name: True for name, is_set in flags if is_set} | dict(message.trace)
    if reason:
        headers[REASON] = reason[:_MAX_REASON].encode(errors="replace").decode()  # a file's name may be any
    return BasicProperties(
        content_type=_JSON if message.is_json else _BYTES,
        delivery_mode=_PERSISTENT,
        priority=_HIGH_PRIORITY if message.priority == "high" else None,
        message_id=message.id,
        correlation_id=message.id,
        reply_to=message.reply_to or None,
        headers=headers,
        timestamp=int(time.time()) if reason else None,
    )


def read(body: bytes, properties: BasicProperties) -> Message:
    """Return a message of this package or of another AMQP client, which may lack headers.

    Raises:
        ValueError: its headers cannot be decoded, or the name of its reply queue is not text.
    """
    headers = properties.headers or {}
    wait, run = _time(headers.get(_WAIT)), _time(headers.get(_RUN))
    if UNREADABLE in headers:
        raise ValueError(f"headers: {headers[UNREADABLE]}")
    if isinstance(properties.reply_to, bytes):
        raise ValueError(f"the reply queue must be a name in UTF-8, not {properties.reply_to!r}")
    return Message(
        id=properties.correlation_id or properties.message_id or "",
        body=body,
        is_json=str(properties.content_type or "").partition(";")[0].strip().lower() == _JSON,
        reply_to=properties.reply_to or "",
        sent_at=_time(headers.get(SENT_AT)),
        deadline=_time(headers.get(DEADLINE)),
        is_resend=bool(headers.get(_RESEND)),
        is_repeat=bool(headers.get(_REPEAT)),
        is_error=bool(headers.get(_ERROR)),
        priority="high" if (properties.priority or 0) >= _HIGH_PRIORITY else "normal",
        retry_after=_time(headers.get(_RETRY_AFTER)),
        delay=None if wait is None or run is None else QueueDelay(wait, run),
        trace=trace.read(headers),
    )


def read_dead_letter(body: bytes, properties: BasicProperties) -> DeadLetter:
    """Return what is known of a dead letter: of a worker, or of the broker."""
    headers = properties.headers or {}
    reason, died_at = headers.get(REASON, headers.get(UNREADABLE)), properties.timestamp
    if reason is None:
        deaths = headers.get(_DEATHS)
        death = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}
        reason, died_at = str(death.get("reason", "")).replace("_", " "), death.get("time")
    if isinstance(died_at, datetime):
        died_at = (died_at if died_at.tzinfo else died_at.replace(tzinfo=UTC)).timestamp()
    id_ = properties.correlation_id or properties.message_id or ""
    if isinstance(id_, bytes):  # pika's of what is not UTF-8
        id_ = id_.decode(errors="backslashreplace")
    is_time = isinstance(died_at, int | float) and 0 <= died_at < MAX_MILLISECONDS / 1000
    return DeadLetter(id_, str(reason), died_at if is_time else None, len(body))


def resend_properties(properties: BasicProperties) -> BasicProperties:
    """Return the properties of a dead letter as a request: marked, and nothing waits for its reply."""
    sent = copy.copy(properties)
    sent.headers = {
        name: value
        for name, value in (properties.headers or {}).items()
        if name not in (REASON, SENT_AT, DEADLINE)
        and not str(name).startswith(_OF_BROKER)  # pika has bytes for what is not UTF-8
    }
    sent.headers[_RESEND] = True
    sent.delivery_mode, sent.reply_to, sent.expiration, sent.timestamp = _PERSISTENT, None, None, None
    return sent


def delivery_count(properties: BasicProperties, *, redelivered: bool) -> int:
    """Return the number of deliveries, including this one; without a count 2 means "more than one"."""
    returns = (properties.headers or {}).get(_DELIVERY_COUNT)
    return 1 + returns if isinstance(returns, int) and returns > 0 else 1 + bool(redelivered)


def _time(value: object) -> float | None:
    """Return seconds of a header that another client may have set to anything."""
    return value / 1000 if isinstance(value, int) and 0 <= value < MAX_MILLISECONDS else None
