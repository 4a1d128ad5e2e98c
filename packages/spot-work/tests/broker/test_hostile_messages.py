"""What another AMQP client may send: one dead letter each, and its neighbours run once, on one connection."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pika.data
import pytest
from rabbitmq import RabbitServer

from spot_work import Batch, Client, Queue, Worker, WorkError
from spot_work.queue.backoff import Backoff
from spot_work.rabbitmq import consumer as consumers
from spot_work.rabbitmq import wire
from spot_work.rabbitmq.consumer import RabbitMQConsumer
from spot_work.rabbitmq.inspector import RabbitMQInspector
from spot_work.request.message import Message
from support.waiting import wait_until

JSON = "application/json"


class Raw(bytes):
    """A value of a header as AMQP has it: its type and its octets."""


encode_value = pika.data.encode_value


def encode(pieces: list[bytes], value: Any) -> int:
    if not isinstance(value, Raw):
        return encode_value(pieces, value)
    pieces.append(bytes(value))
    return len(value)


MALFORMED: dict[str, dict[str, Any]] = {
    "a time in milliseconds": {"headers": {"created": Raw(struct.pack(">cQ", b"T", 1_772_000_000_000))}},
    "one within a list": {"headers": {"x": [1, Raw(struct.pack(">cQ", b"T", 2**63))]}},
    "a reply queue that is not UTF-8": {"reply_to": b"r\xe9"},
    "deep JSON": {"body": b"[" * 200_000, "content_type": JSON},
    "no JSON": {"body": b"{", "content_type": f"{JSON}; charset=utf-8"},
}
HARMLESS: dict[str, dict[str, Any]] = {
    "times of an age": {"headers": {"spot-sent": -(2**63), "spot-deadline": 2**62}},
    "an id that is not UTF-8": {"correlation_id": b"\xe9"},
    "numbers for texts": {"headers": {"traceparent": 5, "spot-again": "no", "x-delivery-count": "many"}},
    "a charset": {"content_type": f"{JSON}; charset=utf-8"},
}


def send(broker: RabbitServer, queue: Queue, body: bytes = b'"x"', **properties: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pika.data, "encode_value", encode)
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        connection.channel().basic_publish("", queue.name, body, pika.BasicProperties(**properties))
        connection.close()


@pytest.mark.parametrize("sent", [*MALFORMED.values(), *HARMLESS.values()], ids=[*MALFORMED, *HARMLESS])
def test_a_hostile_message_costs_its_neighbours_nothing(broker: RabbitServer, sent: dict[str, Any]) -> None:
    queue, runs = Queue("hostile"), Counter[Any]()

    def run(values: list[Any]) -> list[Any]:
        runs.update(map(repr, values))
        return values

    with Client(broker.url, queue) as client:
        wait_until(lambda: client._publisher._can_receive.is_set())  # type: ignore[attr-defined]
        futures = [client.submit(number) for number in range(8)]
        wait_until(lambda: RabbitMQInspector(broker.url, queue).status().waiting == 8)
        send(broker, queue, **sent)
        consumer = RabbitMQConsumer(broker.url, queue, 16)
        consumer._on_cancellation(None, None, None, b"")  # of another client: it is not of all without an id
        worker = Worker(consumer, run, Batch(16, 0.5))
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert [future.result(60) for future in futures] == list(range(8))
        assert client.request("after") == "after"
        is_bad = sent in MALFORMED.values()
        letters = RabbitMQInspector(broker.url, queue).dead_letters
        if is_bad:
            [letter] = wait_until(letters)
            assert letter.reason.startswith("malformed: ")
        else:
            assert not letters()
        worker.drain()
        thread.join(60)
    assert max(runs.values()) == 1
    assert ("'x'" in runs or "b'\"x\"'" in runs) is not is_bad
    assert consumer._link.connections == consumer._outbox._link.connections == 1
    assert RabbitMQInspector(broker.url, queue).status().waiting == 0
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_purge(f"{queue.name}.dead")


def drawn(chance: random.Random) -> dict[str, Any]:
    """Return a message that some client may send: each property in its range, or far out of it."""
    raw = [Raw(struct.pack(">cQ", b"T", chance.getrandbits(64))), Raw(struct.pack(">cd", b"d", 1.5))]
    raw += [Raw(b"S" + struct.pack(">I", 3) + b"\xff\xfe\x00"), Raw(b"I\xff\xff\xff\xff"), Raw(b"V")]
    values = [*raw, "x" * chance.randrange(2000), "\ud7ff", -1, 2**62, True, None, b"\xff", [1, [2, {}]]]
    names = ["spot-sent", "spot-deadline", "spot-again", "spot-type", "traceparent", "x-delivery-count"]
    properties: dict[str, Any] = {
        "headers": {name: chance.choice(values) for name in chance.sample([*names, "é", "x" * 120], 3)},
        "content_type": chance.choice(
            [JSON, f"{JSON}; charset=latin-1", "text/plain", "", "\u00e9/;;=", None]
        ),
        "content_encoding": chance.choice([None, "gzip", "utf-16", "nonsense"]),
        "correlation_id": chance.choice([None, "", "x" * 255, b"\xe9\xff", "good-1"]),
        "message_id": chance.choice([None, "y" * 255, b"\xff"]),
        "reply_to": chance.choice([None, "no-such-queue", ""]),
        "timestamp": chance.choice([None, 0, 2**40, 2**63 - 1]),
        "priority": chance.choice([None, 0, 255]),
        "expiration": chance.choice([None, "600000"]),
    }
    kept = chance.sample(sorted(properties), chance.randrange(1, 6))
    bodies = [b"", b'"x"', b"{", b"[" * 50_000, b"\xff\xfe", b"NaN", b"9" * 5000, bytes(200_000)]
    return {"body": chance.choice(bodies), **{name: properties[name] for name in kept}}


@pytest.mark.parametrize(("foreign", "good"), [(60, 600), pytest.param(5000, 50_000, marks=pytest.mark.soak)])
def test_drawn_messages_lose_none_of_their_neighbours(broker: RabbitServer, foreign: int, good: int) -> None:
    queue, runs, chance = Queue(f"drawn-{foreign}"), Counter[Any](), random.Random(foreign)

    def run(values: list[Any]) -> list[Any]:
        runs.update(value for value in values if isinstance(value, int))
        return values

    consumer = RabbitMQConsumer(broker.url, queue, 32)
    worker = Worker(consumer, run, Batch(16, 0.01))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch, Client(broker.url, queue) as client:
        patch.setattr(pika.data, "encode_value", encode)
        assert client.request(-1) == -1
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            for begin in range(0, good, 500):
                futures = [client.submit(number, 120.0) for number in range(begin, min(good, begin + 500))]
                for _ in range(len(futures) * foreign // good):
                    sent = drawn(chance)
                    channel.basic_publish("", queue.name, sent.pop("body"), pika.BasicProperties(**sent))
                assert [future.result(120) for future in futures] == list(range(begin, begin + len(futures)))
                connection.process_data_events()
        inspector = RabbitMQInspector(broker.url, queue)
        wait_until(lambda: inspector.status().waiting == 0, 120)
        assert not [letter for letter in inspector.dead_letters() if len(letter.id) == len(uuid.uuid4().hex)]
    worker.drain()
    thread.join(60)
    again = sum(runs[number] - 1 for number in range(good))
    assert again <= good / 1000, again
    assert consumer._link.connections == consumer._outbox._link.connections == 1
    assert worker.completed_count >= good


def test_a_dead_letter_that_pika_cannot_decode_is_listed(broker: RabbitServer) -> None:
    queue = Queue("unreadable")
    with Client(broker.url, queue) as client:
        wait_until(lambda: client._publisher._can_receive.is_set())  # type: ignore[attr-defined]
    send(broker, Queue(f"{queue.name}.dead"), **MALFORMED["a time in milliseconds"])
    [letter] = wait_until(RabbitMQInspector(broker.url, queue).dead_letters)
    assert "year 58122" in letter.reason


def test_a_failure_with_a_text_that_is_not_utf_8_is_a_dead_letter_and_a_reply(
    broker: RabbitServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "spot_work")  # pytest-xdist cannot send a surrogate of a log
    queue = Queue("names")

    def run(value: str) -> None:
        raise FileNotFoundError(os.fsdecode(b"/data/caf\xe9.jpg"))

    worker = Worker(RabbitMQConsumer(broker.url, queue, 1), run)
    thread = threading.Thread(target=worker.run)
    thread.start()
    with Client(broker.url, queue) as client:
        with pytest.raises(WorkError, match=r"caf.*jpg"):
            client.request(1)
        send(broker, queue)
        [letter] = wait_until(RabbitMQInspector(broker.url, queue).dead_letters)
        assert letter.reason == "FileNotFoundError: /data/caf?.jpg"
        with pytest.raises(WorkError, match=r"caf.*jpg"):
            client.request(2)
    worker.drain()
    thread.join(60)


def test_a_reply_that_amqp_cannot_express_is_an_error(
    broker: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = wire.properties

    def hostile(message: Message, reason: str = "") -> pika.BasicProperties:
        result = properties(message, reason)
        if message.body == b'"bad"' and not message.reply_to and not reason:
            result.headers["wait"] = 2**64
        return result

    queue = Queue("inexpressible")
    worker = Worker(RabbitMQConsumer(broker.url, queue, 4), lambda value: value)
    thread = threading.Thread(target=worker.run)
    thread.start()
    with Client(broker.url, queue) as client:
        assert client.request("first") == "first"
        monkeypatch.setattr(wire, "properties", hostile)
        with pytest.raises(WorkError, match="headers that AMQP cannot express"):
            client.request("bad")
        assert client.request("good") == "good"
    worker.drain()
    thread.join(60)


def control(broker: RabbitServer, *arguments: str) -> None:
    program, node = Path(broker._program).with_name("rabbitmqctl"), broker._environment["RABBITMQ_NODENAME"]
    subprocess.run([program, "-q", "-n", node, *arguments], env=broker._environment, check=True)


def test_what_the_broker_refuses_of_one_request_costs_the_others_nothing(broker: RabbitServer) -> None:
    queue, own = Queue("refused"), "^(refused|amq.gen).*"
    control(broker, "add_user", "worker", "w")
    control(broker, "set_permissions", "worker", own, own, own)  # without the default exchange
    with Client(broker.url, queue) as client:
        wait_until(client._publisher._can_receive.is_set)  # type: ignore[attr-defined]
        consumer = RabbitMQConsumer(broker.url.replace("guest:guest", "worker:w"), queue, 4)
        worker = Worker(consumer, lambda value: value if value != b"x" * 2000 else 1 / 0)
        thread = threading.Thread(target=worker.run)
        thread.start()
        send(broker, queue, b"foreign", reply_to="mine", correlation_id="1")
        assert client.request(1) == 1
        consumer._outbox._link.max_bytes = 1500  # what a refusal sets, after the limit was lowered
        send(broker, queue, b"x" * 2000, correlation_id="2")
        assert client.request(2) == 2
        name, arguments = "refused.replies.full", {"x-max-length": 0, "x-overflow": "reject-publish"}
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_declare(name, arguments=arguments)
            connection.channel().queue_bind(name, "refused.replies")
        send(broker, queue, b"3", reply_to=name, correlation_id="3")
        read = RabbitMQInspector(broker.url, queue).dead_letters
        letters = wait_until(lambda: found if len(found := read()) == 3 else [])
    reasons = ["the user may not publish to the default exchange", "rejected", "its queue rejects it"]
    assert sorted(letter.reason.rpartition(": ")[2] for letter in letters) == sorted(reasons)
    worker.drain()
    thread.join(60)
    assert not consumer.held_replies


CALLBACKS = [
    *(("RabbitMQConsumer", name) for name in ("_on_request", "_on_ready", "_ack", "_prepare")),
    *(("Outbox", name) for name in ("_publish", "_on_outcome")),
]


@pytest.mark.parametrize("is_once", [True, False], ids=["once", "always"])
@pytest.mark.parametrize(("owner", "name"), CALLBACKS)
def test_an_error_in_a_callback_ends_the_worker_or_it_goes_on(
    broker: RabbitServer, monkeypatch: pytest.MonkeyPatch, owner: str, name: str, is_once: bool
) -> None:
    raised = threading.Event()
    kind = getattr(consumers, owner)
    original: Callable[..., Any] = getattr(kind, name)

    def broken(*arguments: Any, **options: Any) -> Any:
        if is_once and raised.is_set():
            return original(*arguments, **options)
        raised.set()
        raise LookupError("a mistake")

    monkeypatch.setattr(kind, name, broken)
    monkeypatch.setattr(Backoff, "next_delay", lambda _: 0.01)
    queue, ended = Queue(f"callbacks-{owner}-{name}"), []
    consumer = RabbitMQConsumer(broker.url, queue, 1)
    worker = Worker(consumer, lambda value: value)

    def run() -> None:
        try:
            worker.run()
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    with Client(broker.url, queue) as client:
        future = client.submit("x", timeout=30.0)
        wait_until(lambda: ended or future.done() or not is_once, 60)
        if is_once:
            assert ended or future.result() == "x"
        time.sleep(0.5)
        link_threads = [consumer._link._thread, consumer._outbox._link._thread]
        assert ended or all(one is not None and one.is_alive() for one in link_threads)
        worker.drain()
        thread.join(90)
        assert not thread.is_alive()
    assert raised.is_set()
