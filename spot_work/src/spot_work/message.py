"""Requests and answers as messages; what of them stands where is known to each transport's `wire`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    """A request or an answer on its way.

    ``id`` is the request's, in its answer, too. Of a request: ``sent`` is when the client sent it first,
    ``deadline`` when nobody waits any more (epoch seconds, by the client's clock; None: not told);
    ``is_again`` says that the client sent it before and does not know whether that arrived. Of an answer:
    ``is_repeat`` says that the request may have been run more than once, ``has_failed`` that the worker's
    function failed; the body says how.
    """

    id: str
    body: bytes
    is_json: bool
    reply_to: str = ""
    sent: float | None = None
    deadline: float | None = None
    is_again: bool = False
    is_repeat: bool = False
    has_failed: bool = False


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
) -> Message:
    """Return a request.

    Raises:
        TypeError: the value is neither bytes nor anything that JSON knows.
    """
    body, is_json = _encode(value)
    return Message(identity, body, is_json, reply_to, sent, deadline, is_again=again)


def read_request(message: Message, tries: int, now: float) -> Request:
    """Return a request that was delivered ``tries`` times, this one counted.

    Raises:
        ValueError: the body is not what its content type says.
    """
    return Request(
        id=message.id,
        value=_decode(message),
        age=-1.0 if message.sent is None else max(now - message.sent, 0.0),
        tries=tries,
        is_repeat=tries > 1 or message.is_again,
        has_expired=message.deadline is not None and now > message.deadline,
        reply_to=message.reply_to,
    )


def reply(request: Request, value: Any, failed: str = "") -> Message:
    """Return the answer to a request; with ``failed`` the value is left out.

    Raises:
        TypeError: the value is neither bytes nor anything that JSON knows.
    """
    body, is_json = _encode(failed or value)
    return Message(request.id, body, is_json, is_repeat=request.is_repeat, has_failed=bool(failed))


def read_reply(message: Message) -> Reply:
    """Return an answer.

    Raises:
        ValueError: the body is not what its content type says.
    """
    value = _decode(message)
    return Reply(
        id=message.id,
        value=None if message.has_failed else value,
        failed=str(value) if message.has_failed else "",
        is_repeat=message.is_repeat,
    )


def _encode(value: Any) -> tuple[bytes, bool]:
    if isinstance(value, bytes):
        return value, False
    return json.dumps(value, separators=(",", ":")).encode(), True


def _decode(message: Message) -> Any:
    return json.loads(message.body) if message.is_json else message.body
