"""Which ends of a connection to RabbitMQ are final: a socket plays the broker's part of the login."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from pika import frame, spec

from spot_work import BrokerRefusedError
from spot_work.queue import backoff
from spot_work.queue.url_source import UrlSource
from spot_work.rabbitmq import link as links
from spot_work.rabbitmq.connection import Connection
from spot_work.rabbitmq.link import Link
from support.waiting import TIMEOUT_SECONDS, wait_until

Part = Callable[[socket.socket], None]
"""The broker's part of one connection, which ends with it."""


def send(client: socket.socket, method: Any) -> None:
    client.sendall(frame.Method(0, method).marshal())


def start(client: socket.socket) -> None:
    client.recv(8)  # the protocol's header
    send(client, spec.Connection.Start(0, 9, {"capabilities": {}}, b"PLAIN", b"en_US"))
    client.recv(4096)  # StartOk


def cut_while_logging_in(client: socket.socket) -> None:
    start(client)


def cut_while_tuning(client: socket.socket) -> None:
    start(client)
    send(client, spec.Connection.Tune(2047, 131072, 60))
    client.recv(4096)


def closing(code: int, text: str, after: Part = start) -> Part:
    def part(client: socket.socket) -> None:
        after(client)
        send(client, spec.Connection.Close(code, text, 0, 0))
        client.recv(4096)

    return part


LOGIN_REFUSED = closing(403, "ACCESS_REFUSED - Login was refused")
VHOST_FULL = closing(530, "NOT_ALLOWED - connection limit (2) is reached", cut_while_tuning)


@contextlib.contextmanager
def broker(parts: Sequence[Part]) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a broker that plays ``parts`` and then refuses connections, and the parts begun."""
    played: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for part in parts:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            played.append(getattr(part, "__name__", "part"))
            with client:
                client.settimeout(TIMEOUT_SECONDS)
                with contextlib.suppress(OSError):
                    part(client)
        listener.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"amqp://guest:secret@127.0.0.1:{listener.getsockname()[1]}/", played
    # Wakes accept.
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(TIMEOUT_SECONDS)


@pytest.fixture(autouse=True)
def without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_MIN_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(backoff, "_MAX_DELAY_SECONDS", 0.02)


Read = Callable[[str], str]
"""Returns the URL, given the broker's."""


def ended_by(parts: Sequence[Part], read: Read | None = None) -> tuple[Exception, int]:
    """Return the final error of a link, and how many connections the broker saw."""
    failures: list[Exception] = []
    with broker(parts) as (url, played):
        source = UrlSource(url if read is None else lambda: read(url))
        link = Link(source, lambda _: iter(()), lambda: None, failures.append, max_outage_seconds=0.5)
        link.start()
        wait_until(lambda: failures)
        link.close()
        return failures[0], len(played)


@pytest.mark.parametrize("part", [cut_while_logging_in, cut_while_tuning, VHOST_FULL])
def test_a_broken_login_or_a_full_broker_is_tried_again(part: Part) -> None:
    error, connections = ended_by([part] * 6)
    assert isinstance(error, ConnectionError)
    assert "unreachable for" in str(error)
    assert connections == 6


def test_a_login_that_the_broker_refuses_twice_is_final() -> None:
    error, connections = ended_by([LOGIN_REFUSED] * 6)
    assert isinstance(error, BrokerRefusedError)
    assert "403" in str(error)
    assert "secret" not in str(error)
    assert connections == 2


def test_refusals_count_in_a_row_only() -> None:
    error, connections = ended_by([LOGIN_REFUSED, cut_while_logging_in] * 3)
    assert isinstance(error, ConnectionError)
    assert connections == 6


def test_only_a_login_that_was_read_again_counts_as_refused() -> None:
    reads = []
    error, connections = ended_by([LOGIN_REFUSED] * 6, lambda url: reads.append(url) or url)
    assert isinstance(error, BrokerRefusedError)
    assert (connections, len(reads)) == (3, 3)  # the first one, and two that were read again


def test_a_login_that_cannot_be_read_again_is_an_outage() -> None:
    reads: list[str] = []

    def read(url: str) -> str:
        reads.append(url)
        if len(reads) > 1:
            raise RuntimeError("no secret")
        return url

    error, connections = ended_by([LOGIN_REFUSED] * 6, read)
    assert isinstance(error, ConnectionError)
    assert "no secret" in str(error)
    assert "guest" not in str(error)
    assert connections == 1
    assert len(reads) > 3


def test_what_is_no_url_is_an_outage_and_not_shown() -> None:
    reads: list[str] = []

    def read(url: str) -> str:
        reads.append(url)
        return url if len(reads) == 1 else ("amqp://a:secret@b:port/", "secret", "")[len(reads) % 3]

    error, connections = ended_by([LOGIN_REFUSED] * 6, read)
    assert isinstance(error, ConnectionError)
    assert "the login was refused, and what was read again is not a URL of AMQP" in str(error)
    assert "secret" not in str(error)
    assert connections == 1
    assert len(reads) > 3  # each time again


def test_a_login_that_is_good_after_a_text_that_is_no_url_connects() -> None:
    reads: list[str] = []

    def read(url: str) -> str:
        reads.append(url)
        return "" if len(reads) == 2 else url

    error, connections = ended_by([LOGIN_REFUSED, cut_while_logging_in], read)
    assert isinstance(error, ConnectionError)
    assert (connections, len(reads)) == (2, 3)


def test_a_connection_takes_the_login_that_another_one_has_read() -> None:
    reads: list[str] = []

    def read() -> str:
        reads.append("")
        return f"amqp://{len(reads)}@h/"

    source = UrlSource(read)
    first = source.url
    second = source.read_again(first)
    assert second != first
    assert (source.read_again(first), len(reads)) == (second, 2)
    assert source.read_again(second) != second


def test_pika_writes_a_refused_login_as_it_is_recognized() -> None:
    refused = pika.exceptions.ConnectionClosedByBroker(403, "ACCESS_REFUSED - Login was refused")
    assert repr(refused).startswith(links._LOGIN_REFUSED)
    assert not repr(pika.exceptions.ConnectionClosedByBroker(530, "")).startswith(links._LOGIN_REFUSED)


def ready_link(due: list[Callable[[], object]], later: list[Callable[[], object]]) -> Link:
    """Return a link whose loop's callbacks and timers the test runs."""
    link = Link(UrlSource("amqp://h/"), lambda _: iter(()), lambda: None, lambda _: None, 1.0)
    loop = SimpleNamespace(add_callback_threadsafe=due.append, call_later=lambda _, call: later.append(call))
    link._connection = SimpleNamespace(ioloop=loop, one_write=contextlib.nullcontext, is_open=False)
    link._channel = SimpleNamespace(is_open=True)
    link._is_ready = True
    return link


def test_calls_soon_after_others_run_together_and_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_GATHER_SECONDS", 3600.0)
    due: list[Callable[[], object]] = []
    later: list[Callable[[], object]] = []
    made: list[str] = []
    link, groups = ready_link(due, later), list[list[str]]()
    link._after_calls = lambda _: groups.append(made.copy())
    link._called_at = -3600.0
    for name in "abc":
        link.call(lambda _, name=name: made.append(name))
        if due:
            due.pop()()
    assert groups == [["a"]]
    later.pop()()
    assert groups == [["a"], ["a", "b", "c"]]
    link.call(lambda _: made.append("last"))
    link._connection.ioloop.stop = lambda: None  # type: ignore[union-attr]
    link._shut_down(link._connection)  # type: ignore[arg-type]
    assert made[-1] == "last"


def test_a_call_that_arrives_as_the_one_before_ends_is_made() -> None:
    due: list[Callable[[], object]] = []
    made: list[Any] = []
    link = ready_link(due, due)

    def run_loop() -> None:
        while due:
            due.pop()()

    class Overtaken(deque[Any]):
        def append(self, call: Any) -> None:
            run_loop()
            super().append(call)

    link._calls = Overtaken()
    for _ in range(3):
        link.call(made.append)
    run_loop()
    assert len(made) == 3


def test_frames_of_contexts_within_each_other_are_sent_in_their_order() -> None:
    sent: list[bytes] = []
    connection = Connection.__new__(Connection)
    connection._transport = SimpleNamespace(write=sent.append)
    with connection.one_write():
        connection._adapter_emit_data(b"a")
        with connection.one_write():
            connection._adapter_emit_data(b"b")
        connection._adapter_emit_data(b"c")
    connection._adapter_emit_data(b"d")
    assert sent == [b"abc", b"d"]
