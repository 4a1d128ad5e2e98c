from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties

from spot_work import message
from spot_work.message import Message, Request
from spot_work.rabbitmq import wire

NOW = 1_700_000_000.0
VALUES = st.one_of(
    st.binary(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
)


def sent(value: Any = 1, *, again: bool = False) -> tuple[bytes, BasicProperties]:
    return on_the_wire(message.request(value, "r1", "ocr.answers.1", NOW, NOW + 30, again=again))


def on_the_wire(given: Message) -> tuple[bytes, BasicProperties]:
    return given.body, wire.properties(given)


def read(body: bytes, properties: BasicProperties, *, redelivered: bool = False, now: float = NOW) -> Request:
    tries = wire.tries(properties, redelivered=redelivered)
    return message.read_request(wire.read(body, properties), tries, now)


def answered(request: Request, value: Any, failed: str = "") -> message.Reply:
    return message.read_reply(wire.read(*on_the_wire(message.reply(request, value, failed))))


@given(VALUES)
def test_what_is_asked_arrives_and_what_is_answered_too(value: Any) -> None:
    request = read(*sent(value), now=NOW + 2)
    assert (request.id, request.value, request.age, request.reply_to) == ("r1", value, 2.0, "ocr.answers.1")
    assert (request.tries, request.is_repeat, request.has_expired) == (1, False, False)
    answer = answered(request, value)
    assert (answer.id, answer.value, answer.failed, answer.is_repeat) == ("r1", value, "", False)


def test_requests_outlive_the_brokers_restart() -> None:
    assert sent()[1].delivery_mode == 2


@pytest.mark.parametrize(
    ("count", "redelivered", "again", "tries"),
    [
        (None, False, False, 1),
        (None, True, False, 2),
        (3, True, False, 4),
        (None, False, True, 1),
        (0, True, True, 2),
    ],
)
def test_whatever_may_have_run_before_says_so(
    count: int | None, redelivered: bool, again: bool, tries: int
) -> None:
    body, properties = sent(again=again)
    if count is not None:
        properties.headers["x-delivery-count"] = count
    request = read(body, properties, redelivered=redelivered)
    assert request.tries == tries
    assert request.is_repeat is (redelivered or again)
    assert answered(request, 1).is_repeat is request.is_repeat


def test_after_its_time_it_has_expired() -> None:
    assert not read(*sent(), now=NOW + 29.9).has_expired
    assert read(*sent(), now=NOW + 30.1).has_expired


def test_a_clients_clock_that_is_ahead_makes_nothing_younger_than_new() -> None:
    assert read(*sent(), now=NOW - 60).age == 0.0


def test_a_failure_comes_as_words() -> None:
    answer = answered(read(*sent()), None, "ValueError: no image")
    assert (answer.value, answer.failed) == (None, "ValueError: no image")


@pytest.mark.parametrize("headers", [None, {}, {wire.SENT: "soon", wire.DEADLINE: b"x"}])
def test_a_request_of_somebody_elses_is_a_task_without_age_or_end(headers: dict[str, Any] | None) -> None:
    request = read(b"scan", BasicProperties(message_id="m7", headers=headers))
    assert (request.id, request.value, request.age, request.has_expired, request.reply_to) == (
        "m7",
        b"scan",
        -1.0,
        False,
        "",
    )


def test_a_body_that_is_not_what_it_says_is_an_error() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        read(b"{", BasicProperties(content_type="application/json"))


def test_what_json_does_not_know_is_refused_where_it_is_asked() -> None:
    with pytest.raises(TypeError, match="set"):
        sent({1})
