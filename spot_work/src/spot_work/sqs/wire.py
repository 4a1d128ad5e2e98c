"""Messages as SQS has them: what of them stands where.

A message is text, at least one character of it, and only what XML may hold (SQS API, ``SendMessage``): bytes
go as base64, and JSON without anything but ASCII.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from spot_work.message import Message

LARGEST: Final = 1_048_576
"""Bytes of a message with its attributes, and of all in a call (SQS guide, "Amazon SQS batch actions")."""
MOST_IN_A_CALL: Final = 10

_ID: Final = "spot-id"
_TYPE: Final = "spot-type"
_REPLY_TO: Final = "spot-reply-to"
_SENT: Final = "spot-sent"
_DEADLINE: Final = "spot-deadline"
_MARKS: Final = "spot-marks"
_NOTHING: Final = " "
"""The base64 of no bytes would be no text."""


def entry(message: Message) -> dict[str, Any]:
    """Return body and attributes, as `SendMessage` takes them."""
    marks = (("again", message.is_again), ("repeat", message.is_repeat), ("failed", message.has_failed))
    told = {
        _ID: message.id,
        _TYPE: "json" if message.is_json else "bytes",
        _REPLY_TO: message.reply_to,
        _SENT: _number(message.sent),
        _DEADLINE: _number(message.deadline),
        _MARKS: " ".join(name for name, is_set in marks if is_set),
    }
    return {
        "MessageBody": message.body.decode()
        if message.is_json
        else base64.b64encode(message.body).decode() or _NOTHING,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in told.items() if value
        },
    }


def read(received: Mapping[str, Any]) -> Message:
    """Return a message, of us or of somebody else, who may say less.

    Raises:
        ValueError: bytes that are no base64.
    """
    said = received.get("MessageAttributes", {})
    told = {name: str(one["StringValue"]) for name, one in said.items() if "StringValue" in one}
    body, marks = received["Body"].encode(), told.get(_MARKS, "").split()
    if told.get(_TYPE) == "bytes":
        try:
            body = base64.b64decode(body.strip(), validate=True)
        except binascii.Error as error:
            raise ValueError(f"no base64: {error}") from None
    return Message(
        id=told.get(_ID) or received.get("MessageId", ""),
        body=body,
        is_json=told.get(_TYPE) == "json",
        reply_to=told.get(_REPLY_TO, ""),
        sent=_time(told.get(_SENT)),
        deadline=_time(told.get(_DEADLINE)),
        is_again="again" in marks,
        is_repeat="repeat" in marks,
        has_failed="failed" in marks,
    )


def tries(received: Mapping[str, Any]) -> int:
    """Return how often a message was delivered, this time counted; SQS calls the number approximate."""
    return max(int(received.get("Attributes", {}).get("ApproximateReceiveCount", 1)), 1)


def size(given: Mapping[str, Any]) -> int:
    """Return the bytes of an entry as SQS counts them: names, types and values of attributes, too."""
    told = given.get("MessageAttributes", {}).items()
    return len(given.get("MessageBody", "").encode()) + sum(
        len(name.encode())
        + len(one["DataType"])
        + len(one.get("StringValue", "").encode() + one.get("BinaryValue", b""))
        for name, one in told
    )


def copy(received: Mapping[str, Any]) -> dict[str, Any]:
    """Return body and attributes of a message that was received, to send it on."""
    kept = ("DataType", "StringValue", "BinaryValue")
    said = received.get("MessageAttributes", {})
    told = {name: {part: one[part] for part in kept if part in one} for name, one in said.items()}
    return {"MessageBody": received["Body"], "MessageAttributes": told}


def calls(entries: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """Yield entries in as few calls as hold them, each with its key as ``Id``; none is above `LARGEST`."""
    call: list[dict[str, Any]] = []
    filled = 0
    for key, one in entries:
        more = size(one)
        if call and (len(call) == MOST_IN_A_CALL or filled + more > LARGEST):
            yield call
            call, filled = [], 0
        call.append({"Id": key, **one})
        filled += more
    if call:
        yield call


def _number(seconds: float | None) -> str:
    return "" if seconds is None else str(round(seconds * 1000))


def _time(text: str | None) -> float | None:
    try:
        return None if text is None else int(text) / 1000
    except ValueError:
        return None
