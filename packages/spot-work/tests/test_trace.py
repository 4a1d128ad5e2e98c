"""The trace context of a request reaches the worker's function, by both transports."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from spot_work import Batch, Client, Overflow, Request, trace_carriers
from spot_work.rabbitmq import wire as amqp
from spot_work.request import message
from spot_work.request.message import Message
from spot_work.request.pending import PendingRequests
from spot_work.request.trace import check, current, read
from spot_work.sqs import wire as sqs
from support.consumers import FakeConsumer

# The example of the recommendation.
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CARRIER = {"traceparent": PARENT, "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"}


def request(name: str, carrier: dict[str, str], **fields: Any) -> Request:
    return Request(name, name, reply_to="replies", trace=carrier, **fields)


def test_a_trace_survives_both_transports_and_a_dead_letters_resend() -> None:
    sent = message.request(1, "r1", "https://replies", 1.0, 2.0, is_resend=True, trace=CARRIER)
    properties = amqp.properties(sent)
    assert {name: (properties.headers or {})[name] for name in CARRIER} == CARRIER
    assert amqp.read(sent.body, properties) == sent
    assert amqp.read(sent.body, amqp.resend_properties(properties)).trace == CARRIER
    entry = sqs.to_entry(sent)
    assert len(sqs.copy({"Body": "1", **entry}, "a reason")["MessageAttributes"]) <= 10
    received = {"Body": entry["MessageBody"], "MessageAttributes": entry["MessageAttributes"]}
    assert sqs.read(received) == sent
    assert sqs.read({"Body": "1", **sqs.resend(received)}).trace == CARRIER


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"tracestate": "a=b"},
        {"traceparent": 7},
        {"traceparent": PARENT.upper()},
        {"traceparent": f"{PARENT}-more"},
        {"traceparent": f"ff{PARENT[2:]}"},
        {"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"},
        {"traceparent": f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01"},
    ],
)
def test_what_the_recommendation_forbids_is_no_trace(headers: dict[str, Any]) -> None:
    assert read(headers) == {}
    assert (
        not trace.get_current_span(
            TraceContextTextMapPropagator().extract({k: str(v) for k, v in headers.items()})
        )
        .get_span_context()
        .is_valid
    )
    with pytest.raises(ValueError, match=r"traceparent must be 00-<32 hex digits>"):
        check(headers)


def test_a_later_version_may_have_more_fields_and_a_long_state_is_left_out() -> None:
    later = f"cc{PARENT[2:]}-what-the-future-will-be-like"
    assert read({"traceparent": later, "tracestate": "x" * 513, "other": 1}) == {"traceparent": later}


def test_a_function_gets_the_traces_of_its_batch_in_order() -> None:
    carriers: list[Any] = []
    other = {"traceparent": PARENT.replace("b7ad", "b7ae")}
    FakeConsumer(request("a", CARRIER), request("b", {}), request("c", other)).run(
        lambda values: carriers.append(trace_carriers.get()) or values, Batch(3, 1.0)
    )
    assert carriers == [(CARRIER, {}, other)]
    assert trace_carriers.get() == ()


def test_repeats_and_overflow_threads_have_their_own_trace() -> None:
    carriers: dict[str, Any] = {}

    def read_pages(values: list[Request]) -> list[str]:
        if len(values) > 1:
            raise ValueError("one of these")
        carriers[values[0].id] = trace_carriers.get()
        return ["done"]

    def overflow(value: Request) -> str:
        carriers[value.id] = trace_carriers.get()
        assert threading.current_thread() is not threading.main_thread()
        return "done"

    other = {"traceparent": PARENT.replace("b7ad", "b7ae")}
    waiting = request("old", other, sent_at=time.time() - 60.0)
    consumer = FakeConsumer(request("a", CARRIER), request("b", {}), waiting)
    consumer.run(read_pages, Batch(3, 1.0), Overflow(overflow, after_seconds=30.0), requests=True)
    assert carriers == {"a": (CARRIER,), "b": ({},), "old": (other,)}


class FakePublisher:
    """Records what a client sends."""

    def __init__(self, pending: PendingRequests, sent: list[Message]) -> None:
        self._pending, self._sent = pending, sent

    def check(self, message: Message) -> None:
        self._sent.append(message)

    def send(self, request_id: str) -> None: ...

    def cancel(self, request_id: str) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    messages: list[Message] = []
    monkeypatch.setattr(
        "spot_work.transports.publisher", lambda _, __, pending: FakePublisher(pending, messages)
    )
    return messages


def test_a_callers_trace_is_sent_and_a_malformed_one_is_an_error(sent: list[Message]) -> None:
    with Client("amqp://any", "ocr") as client:
        client.submit(1, trace=CARRIER)
        client.submit(2)
        with pytest.raises(ValueError, match="traceparent"):
            client.submit(3, trace={"traceparent": "x"})
    assert [message.trace for message in sent] == [CARRIER, {}]


def test_what_a_function_sends_belongs_to_its_requests_trace(sent: list[Message]) -> None:
    with Client("amqp://any", "pages") as client:
        FakeConsumer(request("a", CARRIER)).run(lambda value: client.submit(value) and value)
        FakeConsumer(request("a", CARRIER), request("b", CARRIER)).run(
            lambda values: client.submit(1) and values, Batch(2, 1.0)
        )
    assert [message.trace for message in sent] == [CARRIER, {}]  # of a batch there is no single one


@pytest.fixture
def tracer() -> Iterator[trace.Tracer]:
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(TraceContextTextMapPropagator())
    yield TracerProvider().get_tracer("test")
    propagate.set_global_textmap(before)


def test_the_current_span_of_opentelemetry_is_the_parent(sent: list[Message], tracer: trace.Tracer) -> None:
    with Client("amqp://any", "ocr") as client:
        with tracer.start_as_current_span("call") as span:
            client.submit(1)
        client.submit(2)
    context = trace.get_current_span(propagate.extract(dict(sent[0].trace))).get_span_context()
    assert (context.trace_id, context.span_id, context.is_remote) == (
        *(span.get_span_context().trace_id, span.get_span_context().span_id),
        True,
    )
    assert sent[1].trace == {}


def test_a_program_without_opentelemetry_does_not_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    assert current() == {}
    assert "opentelemetry" not in sys.modules
