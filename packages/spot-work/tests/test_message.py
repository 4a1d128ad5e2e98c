from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from pika import BasicProperties

from spot_work.queue.settings import Queue
from spot_work.rabbitmq import wire
from spot_work.request import message
from spot_work.request.message import Message, Request
from support.values import NOW, VALUES


def sent(value: Any = 1, *, is_resend: bool = False) -> tuple[bytes, BasicProperties]:
    return on_the_wire(message.request(value, "r1", "ocr.answers.1", NOW, NOW + 30, is_resend=is_resend))


def on_the_wire(message_: Message) -> tuple[bytes, BasicProperties]:
    return message_.body, wire.properties(message_)


def read(body: bytes, properties: BasicProperties, *, redelivered: bool = False) -> Request:
    delivery_count = wire.delivery_count(properties, redelivered=redelivered)
    return message.read_request(wire.read(body, properties), delivery_count)


def replied(request: Request, value: Any, error: str = "") -> message.Reply:
    return message.read_reply(wire.read(*on_the_wire(message.reply(request, value, error))))


@given(VALUES)
def test_requests_and_replies_survive_the_round_trip(value: Any) -> None:
    request = read(*sent(value))
    assert (request.id, request.value, request.reply_to) == ("r1", value, "ocr.answers.1")
    assert (request.delivery_count, request.is_repeat, request.deadline) == (1, False, NOW + 30.0)
    reply = replied(request, value)
    assert (reply.id, reply.value, reply.error, reply.is_repeat) == ("r1", value, "", False)


def test_requests_are_persistent() -> None:
    assert sent()[1].delivery_mode == 2


@pytest.mark.parametrize(
    ("count", "redelivered", "is_resend", "delivery_count"),
    [
        (None, False, False, 1),
        (None, True, False, 2),
        (3, True, False, 4),
        (None, False, True, 1),
        (0, True, True, 2),
    ],
)
def test_a_request_that_may_have_run_before_is_a_repeat(
    count: int | None, redelivered: bool, is_resend: bool, delivery_count: int
) -> None:
    body, properties = sent(is_resend=is_resend)
    if count is not None:
        properties.headers["x-delivery-count"] = count
    request = read(body, properties, redelivered=redelivered)
    assert request.delivery_count == delivery_count
    assert request.is_repeat is (redelivered or is_resend)
    assert replied(request, 1).is_repeat is request.is_repeat


def test_age_and_expiry_are_those_of_the_moment() -> None:
    request = read(*sent())
    at = [request.at(NOW + seconds) for seconds in (-60, 29.5, 30.5)]
    seen = [(one.age_seconds, one.has_expired) for one in at]
    assert seen == [(0.0, False), (29.5, False), (30.5, True)]  # not negative if the client's clock is ahead


def test_an_error_reply_has_a_message_and_no_value() -> None:
    reply = replied(read(*sent()), None, "ValueError: no image")
    assert (reply.value, reply.error) == (None, "ValueError: no image")


@pytest.mark.parametrize("headers", [None, {}, {wire.SENT_AT: "soon", wire.DEADLINE: b"x"}])
def test_a_message_of_another_client_has_no_age_and_no_deadline(headers: dict[str, Any] | None) -> None:
    request = read(b"scan", BasicProperties(message_id="m7", headers=headers))
    assert (request.id, request.value, request.age_seconds, request.has_expired, request.reply_to) == (
        "m7",
        b"scan",
        -1.0,
        False,
        "",
    )
    assert request.deadline is None


def test_a_malformed_json_body_is_an_error() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        read(b"{", BasicProperties(content_type="application/json"))


def test_a_value_that_json_cannot_hold_is_rejected() -> None:
    with pytest.raises(TypeError, match="set"):
        sent({1})


@pytest.mark.parametrize(
    ("name", "deliveries", "length", "expected"),
    [
        ("", 20, 0, "1 to 214 bytes"),
        ("ü" * 108, 20, 0, "1 to 214 bytes"),
        ("amq.requests", 20, 0, "not begin with 'amq.'"),
        ("ocr", 0, 0, "at least one delivery"),
        ("ocr", 20, -1, "max_length=-1"),
    ],
)
def test_a_queue_that_no_broker_accepts_is_an_error(
    name: str, deliveries: int, length: int, expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        Queue(name, deliveries, length)
    assert Queue("ü" * 107).name == "ü" * 107
