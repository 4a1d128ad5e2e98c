"""Callbacks of futures, and a client in a forked process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from spot_work import Client, ExpiredError, LostError, Queue, transports
from spot_work.queue.publisher import resolve_reply
from spot_work.queue.url_source import UrlSource
from spot_work.rabbitmq.link import Link
from spot_work.rabbitmq.publisher import RabbitMQPublisher
from spot_work.request import message
from spot_work.request.message import Message
from spot_work.request.pending import PendingRequests
from support.waiting import wait_until


class EchoPublisher:
    """Replies with the value, in one thread, as the connections of a client do."""

    def __init__(self, url: str, queue: object, pending: PendingRequests) -> None:
        self.pending, self.thread = pending, ThreadPoolExecutor(1)
        self.closed = 0

    def check(self, message: Message) -> None: ...

    def send(self, request_id: str) -> None:
        request = self.pending.get(request_id)
        assert request is not None
        received = message.read_request(request.to_message("r"), 1)
        if received.value != "silent":
            self.thread.submit(resolve_reply, self.pending, "q", message.reply(received, received.value))

    def cancel(self, request_id: str) -> None: ...

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(transports, "publisher", EchoPublisher)
    with Client("amqp://any", "q") as opened:
        yield opened


def test_a_callback_may_send_the_next_request_and_wait_for_it(client: Client) -> None:
    chained: list[Any] = []

    def follow(future: Future[Any]) -> None:
        chained.append((future.result(), client.request("second", timeout=60)))

    client.submit("first").add_done_callback(follow)
    wait_until(lambda: chained, 10)
    assert chained == [("first", "second")]


def test_a_slow_or_failing_callback_delays_no_other_reply(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    go, ended = threading.Event(), threading.Event()
    client.submit(1).add_done_callback(lambda _: go.wait(60))

    def fail(_: Future[Any]) -> None:
        ended.set()
        raise SystemExit("a mistake of the caller")

    client.submit(2).add_done_callback(fail)
    assert [client.request(number, timeout=10) for number in range(20)] == list(range(20))
    go.set()
    assert ended.wait(10)
    done = threading.Event()
    client.submit(3).add_done_callback(lambda _: done.set())
    assert done.wait(10)  # the thread has survived it
    assert "a mistake of the caller" in caplog.text


def test_the_callbacks_of_a_future_run_once_each_in_their_order(client: Client) -> None:
    seen: list[str] = []
    future = client.submit("silent")
    future.add_done_callback(lambda _: seen.append("first"))
    future.add_done_callback(lambda _: seen.append("second"))
    assert future.cancel()
    future.add_done_callback(lambda _: seen.append("third"))
    wait_until(lambda: len(seen) == 3, 10)
    assert seen == ["first", "second", "third"]


def in_child(call: Callable[[], object]) -> str:
    """Return what a call raises in a forked process."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            text = f"returned {call()!r}"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_client_in_a_forked_process_says_so_at_once(client: Client) -> None:
    done, still_open = client.submit("done"), client.submit("silent")
    assert done.result(10) == "done"
    refused = f"RuntimeError: this client is of process {os.getpid()}, which forked this one; make one here"
    for call in (
        lambda: client.submit(1),
        lambda: client.request(1),
        still_open.result,
        still_open.exception,
    ):
        assert in_child(call).startswith(refused)
    assert in_child(done.result) == "returned 'done'"
    assert in_child(client.close) == "returned None"
    assert client._publisher.closed == 0  # type: ignore[attr-defined]
    assert client.request("here", timeout=10) == "here"


def test_requests_that_are_open_when_a_thread_of_the_library_ends_fail(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def overdue(now: float) -> Iterator[str]:
        raise LookupError("a mistake")

    future = client.submit("silent")
    monkeypatch.setattr(client._pending, "overdue", overdue)
    with pytest.raises(RuntimeError, match=r"spot-work-expiry has ended: LookupError"):
        future.result(10)
    with pytest.raises(RuntimeError, match="spot-work-expiry has ended"):
        client.submit(1)
    assert "a mistake" in caplog.text


def test_nothing_is_sent_to_a_blocked_broker_until_it_takes_messages_again() -> None:
    pending, sent = PendingRequests(), list[Any]()
    publisher = RabbitMQPublisher.__new__(RabbitMQPublisher)
    link = Link(UrlSource("amqp://h/"), lambda _: iter(()), lambda: None, pytest.fail, 1.0)
    link.publish = lambda *arguments, **_: sent.append(arguments[1])  # type: ignore[method-assign]
    link.call = lambda function: function(None)  # type: ignore[assignment,method-assign]
    link._on_ready, link._is_ready = publisher._send_unconfirmed, True
    vars(publisher).update(_queue=Queue("q"), _pending=pending, _reply_queue="r", _requests=link)
    vars(publisher).update(_can_receive=threading.Event(), _must_send_all=False)
    publisher._can_receive.set()
    link._on_blocked(None, SimpleNamespace(method=SimpleNamespace(reason="low on memory")))
    for name in ("expired", "open"):
        pending.add(message.request(name, name, "", 0.0, 1.0, is_resend=False), Future(), 60.0)
        publisher.send(name)
    pending.resolve("expired", ExpiredError())
    publisher.cancel("expired")
    assert sent == []
    link._on_unblocked()
    assert sent == [b'"open"']


def test_what_is_open_when_the_client_closes_is_lost(client: Client) -> None:
    future, lost = client.submit("silent"), []
    future.add_done_callback(lambda future: lost.append(type(future.exception())))
    client.close()
    wait_until(lambda: lost, 10)
    assert lost == [LostError]
