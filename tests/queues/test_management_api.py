"""Parsing of responses of RabbitMQ's management API; tests/real uses a real broker."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdas.core.queues.history import QueueCounts
from lambdas.core.queues.management_api import ManagementApi, from_broker_url, parse_counts

# From RabbitMQ 3.10.8: 100 published, a consumer that acknowledges every other one of ten.
BUSY: dict[str, Any] = {
    "consumers": 1,
    "message_stats": {"ack": 3, "publish": 100},
    "messages_ready": 92,
    "messages_unacknowledged": 5,
    "state": "running",
}
JUST_STARTED: list[Any] = []
STARTED = {"consumers": 0, "messages_ready": 97, "messages_unacknowledged": 0, "state": "running"}
WITHOUT_COLLECTOR = {"state": "live"}


def read(response: Any, status: int = 200) -> QueueCounts:
    return parse_counts(status, json.dumps(response).encode())


def test_counts_are_read() -> None:
    assert read(BUSY) == QueueCounts(ready=92, in_flight=5, consumers=1, published=100, acknowledged=3)


def test_before_the_first_message_after_a_start_there_are_no_totals() -> None:
    assert read(STARTED) == QueueCounts(97, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("status", "response", "message"),
    [
        (200, JUST_STARTED, "returned no queue length: the broker has just started"),
        (200, WITHOUT_COLLECTOR, "metrics collector is disabled"),
        (200, {**BUSY, "state": "minority"}, "the queue is minority"),
        (200, {**BUSY, "messages_ready": None}, "messages_ready must be a whole number from 0, not 'None'"),
        (200, {**BUSY, "messages_ready": True}, "messages_ready must be a whole number from 0, not 'True'"),
        (200, {**BUSY, "messages_unacknowledged": -1}, "messages_unacknowledged must be .* not '-1'"),
        (200, {**STARTED, "consumers": "1"}, "consumers must be a whole number from 0, not '1'"),
        (200, {**BUSY, "message_stats": []}, "message_stats is not a JSON object"),
        (200, {**BUSY, "message_stats": {"publish": 1.5}}, "publish must be a whole number from 0"),
        (401, {"error": "not_authorized"}, "rejects the user in the secret"),
        (403, {}, "has no permission for the queue"),
        (404, {"error": "Object Not Found"}, "no such queue"),
        (503, "", "status 503"),
        (301, "", "status 301"),
    ],
)
def test_a_response_without_counters_is_a_one_line_error(status: int, response: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(response, status)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"", b"<html><body>Gateway\nTimeout</body></html>", b"\xff\xfe", b"[" * 9999]
)
def test_a_response_that_is_not_json_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="did not return JSON"):
        parse_counts(200, body)


@settings(max_examples=100)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.sampled_from(list(BUSY)), s),
    )
)
def test_any_response_is_parsed_or_rejected(response: Any) -> None:
    with contextlib.suppress(ValueError):
        read(response)


@pytest.mark.parametrize(
    ("url", "management", "shown", "vhost"),
    [
        ("amqps://u:p@b-1.mq.us-west-2.on.aws:5671", "", "https://b-1.mq.us-west-2.on.aws:443", "/"),
        ("amqps://u:p@b-1.mq.amazonaws.com.cn:5671/", "", "https://b-1.mq.amazonaws.com.cn:443", "/"),
        ("amqps://u:p@rabbit.example.com:5671/ocr", "", "https://rabbit.example.com:15671", "ocr"),
        ("amqp://u:p@rabbit/%2Fteam", "", "http://rabbit:15672", "/team"),
        ("amqps://u:p@rabbit?heartbeat=9", "https://console/mq/", "https://console:443/mq", "/"),
        ("amqps://u:p@rabbit\n", "http://127.0.0.1:8080", "http://127.0.0.1:8080", "/"),
    ],
)
def test_the_address_follows_from_the_url_of_the_broker(
    url: str, management: str, shown: str, vhost: str
) -> None:
    api = from_broker_url(url, management)
    assert (repr(api), api.vhost, api.user, api.password) == (shown, vhost, "u", "p")


def test_names_are_quoted_in_the_path() -> None:
    api = ManagementApi("https", "rabbit", 443, "/mq", "u", "p", "/")
    assert api.queue_path("pages a/b").startswith("/mq/api/queues/%2F/pages%20a%2Fb?columns=state,")


@pytest.mark.parametrize(
    "url", ["", "nonsense", "https://u:secret@b", "amqps://b", "amqps://u@b", "amqps://u:secret@b:port", "{}"]
)
def test_a_malformed_url_is_rejected_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="the broker's URL") as caught:
        from_broker_url(url)
    assert "secret" not in str(caught.value)
