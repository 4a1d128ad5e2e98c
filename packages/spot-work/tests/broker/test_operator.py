"""The operator's commands on a real RabbitMQ server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika import BasicProperties
from rabbitmq import RabbitServer

from spot_work import Queue
from spot_work import __main__ as command
from spot_work.command.inspector import DeadLetter
from spot_work.rabbitmq import declare, versions, wire
from spot_work.rabbitmq.consumer import RabbitMQConsumer
from support.waiting import wait_until

Run = Callable[..., tuple[int, Any, str]]
QUEUE = Queue("ocr", max_deliveries=2, max_length=4)
DEAD = declare.dead_letter_queue(QUEUE)


@pytest.fixture
def channel(broker: RabbitServer) -> Iterator[Any]:
    """A channel, with the queue declared as workers do, and empty."""
    consumer = RabbitMQConsumer(broker.url, QUEUE, 1)
    wait_until(consumer.is_connected.is_set)
    consumer.stop()
    consumer.close(10)
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.confirm_delivery()
    for name in (QUEUE.name, DEAD):
        channel.queue_purge(name)
    yield channel
    if connection.is_open:
        connection.close()


@pytest.fixture
def run(broker: RabbitServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv(command.URL, broker.url)
    monkeypatch.setenv(command.QUEUE, QUEUE.name)

    def call(*arguments: str) -> tuple[int, Any, str]:
        status = command.main(arguments)
        captured = capsys.readouterr()
        is_json = "--json" in arguments and captured.out
        return status, json.loads(captured.out) if is_json else captured.out, captured.err

    return call


def dead_letter(channel: Any, *numbers: int, **headers: Any) -> None:
    for number in numbers:
        id_ = f"r{number}"
        properties = BasicProperties(message_id=id_, correlation_id=id_, headers=headers, delivery_mode=2)
        channel.basic_publish("", DEAD, f"scan {number}".encode(), properties)


def ids(run: Run) -> list[str]:
    status, output, _ = run("dead-letters", "--json")
    assert status == 0
    return [letter["id"] for letter in output["dead_letters"]]


def bodies(channel: Any, queue: str) -> list[bytes]:
    taken = []
    while (message := channel.basic_get(queue, auto_ack=True))[0] is not None:
        taken.append(message[2])
    return taken


def test_status_says_what_amqp_says(channel: Any, run: Run) -> None:
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", QUEUE.name, body)
    dead_letter(channel, 1, 2)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(QUEUE.name, lambda *_: None)
    wait_until(lambda: channel.queue_declare(QUEUE.name, passive=True).method.message_count == 2)
    status, output, _ = run("status", "--json")
    assert (status, output["waiting"], output["consumers"], output["dead_letters"]) == (0, 2, 1, 2)
    assert (output["in_work"], output["oldest_seconds"]) == (None, None)


@pytest.mark.parametrize("version", [None, (4, 3)])
def test_listings_neither_lose_nor_reorder(
    channel: Any, run: Run, monkeypatch: pytest.MonkeyPatch, version: versions.BrokerVersion | None
) -> None:
    if version is not None:  # there they are returned without counting
        monkeypatch.setattr(versions, "read", lambda _: version)
    dead_letter(channel, *range(30))
    for _ in range(25):  # more often than the default delivery limit since RabbitMQ 4.0
        # What a listing returned is listed again once its channel is closed.
        wait_until(lambda: ids(run) == [f"r{number}" for number in range(30)])
    dead_letter(channel, 30)
    wait_until(lambda: ids(run) == [f"r{number}" for number in range(31)])


def test_reasons_and_times_of_workers_and_of_the_broker(channel: Any, run: Run) -> None:
    before = time.time()
    received = wire.read(b"scan", BasicProperties(message_id="w1"))
    channel.basic_publish("", DEAD, b"scan", wire.properties(received, "ValueError: no image"))
    channel.basic_publish("", QUEUE.name, b"poison", BasicProperties(message_id="b1"))
    for _ in range(QUEUE.max_deliveries):
        method = wait_until(lambda: channel.basic_get(QUEUE.name)[0])
        channel.basic_reject(method.delivery_tag, requeue=True)
    wait_until(lambda: len(ids(run)) == 2)
    _, output, _ = run("dead-letters", "--json")
    letters = {letter["id"]: letter for letter in output["dead_letters"]}
    assert letters["w1"]["reason"] == "ValueError: no image"
    assert letters["b1"]["reason"] == "delivery limit"
    assert (letters["w1"]["size"], letters["b1"]["size"]) == (4, 6)
    assert all(before - 2 <= letter["time"] <= time.time() + 2 for letter in letters.values())


def test_one_is_sent_again_and_the_others_stay_in_order(channel: Any, run: Run) -> None:
    dead_letter(channel, *range(5), **{wire.DEADLINE: 1, wire.SENT_AT: 1, wire.REASON: "bad", "tenant": "a"})
    assert run("resend", "r2", "r3")[:2] == (0, "r2\nr3\n2 sent again\n")
    assert ids(run) == ["r0", "r1", "r4"]
    method, properties, body = channel.basic_get(QUEUE.name)
    request = wire.read(body, properties)
    assert (request.id, body, request.is_resend, request.deadline) == ("r2", b"scan 2", True, None)
    assert properties.headers.keys() - {"x-delivery-count"} == {"spot-again", "tenant"}
    assert method.routing_key == QUEUE.name


def test_what_the_broker_rejects_stays_a_dead_letter(channel: Any, run: Run) -> None:
    numbers = range(60)  # a queue that is full rejects with a delay
    dead_letter(channel, *numbers)
    status, output, error = run("resend", "--all", "--json")
    assert status == 1
    assert "the queue is full" in error
    resent = len(output["resent"])
    assert resent < 60
    # What the command had fetched is listed again once the broker has closed its channel.
    wait_until(lambda: len(ids(run)) == 60 - resent, interval_seconds=0.5)
    remaining = ids(run)
    assert remaining == [f"r{number}" for number in numbers][len(output["resent"]) :]
    assert (
        bodies(channel, QUEUE.name)
        == [f"scan {number}".encode() for number in numbers][: len(output["resent"])]
    )


def test_all_are_sent_again(channel: Any, run: Run) -> None:
    dead_letter(channel, 1, 2, 3)
    assert run("resend", "--all")[0] == 0
    assert (ids(run), bodies(channel, QUEUE.name)) == ([], [b"scan 1", b"scan 2", b"scan 3"])
    assert run("resend", "r1")[0] == 1


def test_dead_letters_near_the_delivery_limit_are_copied_in_order(
    channel: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on RabbitMQ 4.0 to 4.2, where the limit of 20 counts each listing."""
    monkeypatch.setattr(versions, "read", lambda _: (4, 2))
    monkeypatch.setattr(versions, "_MAX_RETURNS", 3)
    seen, counts, read = list[int](), list[int](), wire.read_dead_letter

    def count(body: bytes, properties: BasicProperties) -> DeadLetter:
        seen.append((properties.headers or {}).get("x-delivery-count", 0))
        return read(body, properties)

    monkeypatch.setattr(wire, "read_dead_letter", count)
    dead_letter(channel, *range(4), **{wire.REASON: "bad", "tenant": "a"})
    for _ in range(9):
        assert ids(run) == ["r0", "r1", "r2", "r3"]
        counts += seen
        seen.clear()
    assert len(counts) == 9 * 4
    assert max(counts) == 3  # those that are copied had been returned three times
    _, output, _ = run("dead-letters", "--json")
    assert {letter["reason"] for letter in output["dead_letters"]} == {"bad"}


def test_a_limited_user_gets_one_line(
    broker: RabbitServer, channel: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(command.URL, broker.url.replace("guest:guest", "guest:secret"))
    status, text, error = run("status")
    assert (status, text) == (1, "")
    assert error.count("\n") == 1
    assert "ACCESS_REFUSED" in error
    assert "secret" not in error
    monkeypatch.setenv(command.URL, broker.url)
    status, _, error = run("dead-letters", "--queue", "missing")
    assert (status, error.count("\n")) == (1, 1)
    assert "no queue 'missing.dead'" in error
