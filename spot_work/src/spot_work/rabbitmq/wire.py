"""Messages as AMQP has them: what of them stands where."""

from __future__ import annotations

from typing import Any, Final

from pika import BasicProperties

from spot_work.message import Message

_BYTES: Final = "application/octet-stream"
_JSON: Final = "application/json"
_PERSISTENT: Final = 2

# Headers of ours.
SENT: Final = "spot-sent"
DEADLINE: Final = "spot-deadline"
_AGAIN: Final = "spot-again"
_REPEAT: Final = "spot-repeat"
_FAILED: Final = "spot-failed"

_COUNT: Final = "x-delivery-count"  # RabbitMQ's own, of quorum queues: returns so far


def properties(message: Message) -> BasicProperties:
    """Return what goes beside a message's body."""
    headers: dict[str, Any] = {}
    for name, time in ((SENT, message.sent), (DEADLINE, message.deadline)):
        if time is not None:
            # AMQP 0-9-1 tables have no exact fractions that every client writes alike: milliseconds.
            headers[name] = round(time * 1000)
    marks = ((_AGAIN, message.is_again), (_REPEAT, message.is_repeat), (_FAILED, message.has_failed))
    headers |= {name: True for name, is_set in marks if is_set}
    return BasicProperties(
        content_type=_JSON if message.is_json else _BYTES,
        delivery_mode=_PERSISTENT,
        message_id=message.id,
        correlation_id=message.id,
        reply_to=message.reply_to or None,
        headers=headers,
    )


def read(body: bytes, given: BasicProperties) -> Message:
    """Return a message, of us or of somebody else, who may say less."""
    headers = given.headers or {}
    return Message(
        id=given.correlation_id or given.message_id or "",
        body=body,
        is_json=given.content_type == _JSON,
        reply_to=given.reply_to or "",
        sent=_time(headers.get(SENT)),
        deadline=_time(headers.get(DEADLINE)),
        is_again=bool(headers.get(_AGAIN)),
        is_repeat=bool(headers.get(_REPEAT)),
        has_failed=bool(headers.get(_FAILED)),
    )


def tries(given: BasicProperties, *, redelivered: bool) -> int:
    """Return how often a request was delivered, this time counted; 2 is "more than once" without a count."""
    returns = (given.headers or {}).get(_COUNT)
    return 1 + returns if isinstance(returns, int) and returns > 0 else 1 + bool(redelivered)


def _time(value: object) -> float | None:
    return value / 1000 if isinstance(value, int) else None
