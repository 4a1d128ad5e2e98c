"""The mapping of messages to SQS bodies and attributes.

A body is text of at least one character, restricted to the characters of XML (SQS API reference,
``SendMessage``): bytes are sent as base64, JSON as ASCII.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from spot_work.command.inspector import DeadLetter
from spot_work.request import trace
from spot_work.request.deadline import QueueDelay
from spot_work.request.message import MAX_MILLISECONDS, Message

MAX_BYTES: Final = 1_048_576
"""Size limit of a message with attributes, and of a batch. Source: SQS guide, "Amazon SQS batch actions"."""
MAX_BATCH_ENTRIES: Final = 10

_ID: Final = "spot-id"
_TYPE: Final = "spot-type"
_REPLY_TO: Final = "spot-reply-to"
_SENT_AT: Final = "spot-sent"
_DEADLINE: Final = "spot-deadline"
_FLAGS: Final = "spot-marks"
_RETRY_AFTER: Final = "spot-retry-after"
_WAIT: Final = "spot-wait"
_RUN: Final = "spot-run"
REASON: Final = "spot-reason"
"""Attribute of a dead-lettered request: why."""
_MAX_REASON: Final = 1000
_MAX_ATTRIBUTES: Final = 10
"""Source: SQS guide, "Amazon SQS message metadata"."""
_EMPTY_BODY: Final = " "
"""Body of a message of zero bytes, whose base64 would be empty."""


def to_entry(message: Message) -> dict[str, Any]:
    """Return body and attributes, as parameters of ``SendMessage``."""
    flags = (("again", message.is_resend), ("repeat", message.is_repeat), ("failed", message.is_error))
    delay = message.delay
    attributes = {
        _ID: message.id,
        _TYPE: "json" if message.is_json else "bytes",
        _REPLY_TO: message.reply_to,
        _SENT_AT: _milliseconds(message.sent_at),
        _DEADLINE: _milliseconds(message.deadline),
        _FLAGS: " ".join(name for name, is_set in flags if is_set),
        _RETRY_AFTER: _milliseconds(message.retry_after),
        _WAIT: _milliseconds(None if delay is None else delay.wait_seconds),
        _RUN: _milliseconds(None if delay is None else delay.run_seconds),
        **message.trace,
    }
    return {
        "MessageBody": message.body.decode()
        if message.is_json
        else base64.b64encode(message.body).decode() or _EMPTY_BODY,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items() if value
        },
    }


def read(received: Mapping[str, Any]) -> Message:
    """Return a message of this package or of another sender, which may lack attributes.

    Raises:
        ValueError: the body is not valid base64.
    """
    attributes = {
        name: str(attribute["StringValue"])
        for name, attribute in received.get("MessageAttributes", {}).items()
        if "StringValue" in attribute
    }
    body, flags = received["Body"].encode(), attributes.get(_FLAGS, "").split()
    if attributes.get(_TYPE) == "bytes":
        try:
            body = base64.b64decode(body.strip(), validate=True)
        except binascii.Error as error:
            raise ValueError(f"the body is not valid base64: {error}") from None
    wait, run = _seconds(attributes.get(_WAIT)), _seconds(attributes.get(_RUN))
    return Message(
        id=attributes.get(_ID) or received.get("MessageId", ""),
        body=body,
        is_json=attributes.get(_TYPE) == "json",
        reply_to=attributes.get(_REPLY_TO, ""),
        sent_at=_seconds(attributes.get(_SENT_AT)),
        deadline=_seconds(attributes.get(_DEADLINE)),
        is_resend="again" in flags,
        is_repeat="repeat" in flags,
        is_error="failed" in flags,
        retry_after=_seconds(attributes.get(_RETRY_AFTER)),
        delay=None if wait is None or run is None else QueueDelay(wait, run),
        trace=trace.read(attributes),
    )


def read_dead_letter(received: Mapping[str, Any]) -> DeadLetter:
    """Return what is known of a dead letter, from all its attributes.

    SQS says neither why nor when it moved a message: it keeps the time of the first sending (SQS guide,
    "Using dead-letter queues"). A copy by a worker is as old as its own sending.
    """
    attributes, of_sqs = received.get("MessageAttributes", {}), received.get("Attributes", {})
    reason, time = str(attributes.get(REASON, {}).get("StringValue", "")), None
    if reason:
        time = _seconds(of_sqs.get("SentTimestamp"))
    elif "DeadLetterQueueSourceArn" in of_sqs:
        reason = "delivery limit"
    id_ = attributes.get(_ID, {}).get("StringValue") or received.get("MessageId", "")
    return DeadLetter(id_, reason, time, len(received["Body"].encode()))


def resend(received: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter as a request: marked, and nothing waits for its reply."""
    entry = copy(received)
    attributes = entry["MessageAttributes"]
    flags = attributes.get(_FLAGS, {}).get("StringValue", "").split()
    for name in (REASON, _REPLY_TO, _SENT_AT, _DEADLINE):
        attributes.pop(name, None)
    text = " ".join(dict.fromkeys([*flags, "again"]))
    attributes[_FLAGS] = {"DataType": "String", "StringValue": text}
    return entry


def delivery_count(received: Mapping[str, Any]) -> int:
    """Return the number of deliveries, including this one; SQS calls its count approximate."""
    return max(int(received.get("Attributes", {}).get("ApproximateReceiveCount", 1)), 1)


def size(entry: Mapping[str, Any]) -> int:
    """Return the size of an entry in bytes; SQS counts attribute names and types, too."""
    return len(entry.get("MessageBody", "").encode()) + sum(
        len(name.encode())
        + len(attribute["DataType"])
        + len(attribute.get("StringValue", "").encode() + attribute.get("BinaryValue", b""))
        for name, attribute in entry.get("MessageAttributes", {}).items()
    )


def copy(received: Mapping[str, Any], reason: str = "") -> dict[str, Any]:
    """Return body and attributes of a received message, as parameters of ``SendMessage``.

    The reason is left out if the message has no room for it.
    """
    keys = ("DataType", "StringValue", "BinaryValue")
    attributes = {
        name: {key: attribute[key] for key in keys if key in attribute}
        for name, attribute in received.get("MessageAttributes", {}).items()
    }
    entry = {"MessageBody": received["Body"], "MessageAttributes": attributes}
    text = reason[:_MAX_REASON].encode("ascii", "replace").decode()
    with_reason = {**attributes, REASON: {"DataType": "String", "StringValue": " ".join(text.split())}}
    larger = {**entry, "MessageAttributes": with_reason}
    has_room = len(with_reason) <= _MAX_ATTRIBUTES and size(larger) <= MAX_BYTES
    return larger if reason and has_room else entry


def batches(entries: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """Yield entries in as few batches as possible, each with its key as ``Id``.

    Each entry must be within `MAX_BYTES`.
    """
    batch: list[dict[str, Any]] = []
    batch_bytes = 0
    for key, entry in entries:
        entry_bytes = size(entry)
        if batch and (len(batch) == MAX_BATCH_ENTRIES or batch_bytes + entry_bytes > MAX_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append({"Id": key, **entry})
        batch_bytes += entry_bytes
    if batch:
        yield batch


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else str(round(seconds * 1000))


def _seconds(milliseconds: str | None) -> float | None:
    """Return seconds of an attribute that another sender may have set to anything."""
    try:
        value = int(milliseconds or "")
    except ValueError:
        return None
    return value / 1000 if 0 <= value < MAX_MILLISECONDS else None
