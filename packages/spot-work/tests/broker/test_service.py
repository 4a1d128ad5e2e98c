"""Workers on a real RabbitMQ server: what comes back, what is refused, what ends among the dead."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from rabbitmq import RabbitServer, free_port

from spot_work import (
    BrokerRefusedError,
    Client,
    ExpiredError,
    LostError,
    Queue,
    QueueFullError,
    Requeue,
    Worker,
    WorkError,
)
from spot_work.rabbitmq.consumer import RabbitMQConsumer
from spot_work.rabbitmq.declare import dead_letter_queue
from support.waiting import wait_until


@pytest.fixture
def at_work(broker: RabbitServer) -> Iterator[Callable[..., Worker]]:
    """Workers in threads of this process."""
    started_at: list[tuple[Worker, threading.Thread]] = []

    def begin(queue: Queue, function: Callable[[Any], Any], prefetch: int = 4) -> Worker:
        worker = Worker(RabbitMQConsumer(broker.url, queue, prefetch), function)
        thread = threading.Thread(target=worker.run)
        thread.start()
        started_at.append((worker, thread))
        return worker

    yield begin
    for worker, _ in started_at:
        worker.drain()
    for _, thread in started_at:
        thread.join(60)
        assert not thread.is_alive()


def test_values_and_failures_come_back(broker: RabbitServer, at_work: Callable[..., Worker]) -> None:
    queue = Queue("values")
    at_work(queue, lambda value: {"n": value["n"] + 1} if value["n"] else 1 // 0)
    with Client(broker.url, queue) as client:
        assert client.request({"n": 1}) == {"n": 2}
        with pytest.raises(WorkError, match="ZeroDivisionError"):
            client.request({"n": 0})


def test_a_caller_without_a_reply_in_time_gets_an_error(broker: RabbitServer) -> None:
    with Client(broker.url, "alone") as client, pytest.raises(ExpiredError, match="alone: no reply in time"):
        client.request(1, timeout=0.5)


def test_what_has_expired_or_was_cancelled_is_not_run(
    broker: RabbitServer, at_work: Callable[..., Worker]
) -> None:
    queue, ran = Queue("late"), []
    with Client(broker.url, queue) as client:
        with pytest.raises(ExpiredError):
            client.request("expired", timeout=0.5)
        go = threading.Event()

        def hold(value: str) -> str:
            ran.append(value)
            go.wait(60)
            return value

        at_work(queue, hold, prefetch=1)
        first = client.submit("first")
        wait_until(lambda: ran == ["first"])  # a worker is there, and hears of what is withdrawn
        second, third = client.submit("second"), client.submit("third")
        assert second.cancel()
        time.sleep(0.5)  # the broker brings it to the worker, which has its hands full
        go.set()
        assert (first.result(60), third.result(60)) == ("first", "third")
    assert ran == ["first", "third"]


def test_a_full_queue_refuses(broker: RabbitServer) -> None:
    def fill(client: Client) -> None:
        """Send until one is refused; what is on its way while the queue fills is kept as well."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                client.submit("one more", timeout=120).result(0.1)

    with (
        Client(broker.url, Queue("full", max_length=5)) as client,
        pytest.raises(QueueFullError, match="full: queue full, maximum length 5"),
    ):
        fill(client)


def test_a_task_that_is_handed_back_too_often_ends_among_the_dead(
    broker: RabbitServer, at_work: Callable[..., Worker]
) -> None:
    queue, tries = Queue("poison", max_deliveries=3), []

    def refuse(value: object) -> object:
        tries.append(value)
        raise Requeue

    at_work(queue, refuse)
    with Client(broker.url, queue) as client, pytest.raises(ExpiredError):
        client.request("poison", timeout=5)
    assert len(tries) == 3
    assert _dead(broker, queue) == [b'"poison"']


def test_a_failed_request_without_a_waiting_client_is_dead_lettered(
    broker: RabbitServer, at_work: Callable[..., Worker]
) -> None:
    queue = Queue("forgotten")
    worker = at_work(queue, lambda _: 1 // 0)
    wait_until(lambda: worker._consumer.is_connected.is_set())
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().basic_publish("", queue.name, b"scan")
        wait_until(lambda: worker.completed_count == 1)
    wait_until(lambda: _dead(broker, queue) == [b"scan"])


def test_a_request_to_a_queue_that_was_deleted_waits_for_the_new_one(
    broker: RabbitServer, at_work: Callable[..., Worker]
) -> None:
    queue = Queue("deleted")
    with Client(broker.url, queue) as client:
        wait_until(lambda: client._publisher._can_receive.is_set())  # type: ignore[attr-defined]
        _delete(broker, queue.name)
        futures = [client.submit(number) for number in range(3)]
        wait_until(lambda: not [*client._pending.unconfirmed()])
        at_work(queue, lambda value: value)
        assert [future.result(60) for future in futures] == [0, 1, 2]


@pytest.mark.parametrize("is_declared", [False, True])
def test_a_dead_letter_without_its_queue_is_sent_later_and_delays_no_reply(
    broker: RabbitServer, at_work: Callable[..., Worker], is_declared: bool
) -> None:
    queue = Queue(f"undertaker-{is_declared}")
    with Client(broker.url, queue) as client:
        wait_until(lambda: client._publisher._can_receive.is_set())  # type: ignore[attr-defined]
        url = f"{broker.url}#declared" if is_declared else broker.url
        worker = Worker(RabbitMQConsumer(url, queue, 4), lambda value: value if value else 1 // value)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        assert client.request(7) == 7
        _delete(broker, dead_letter_queue(queue))
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            for _ in range(3):
                sent = pika.BasicProperties(content_type="application/json")  # three without an id
                connection.channel().basic_publish("", queue.name, b"0", sent)
        wait_until(lambda: worker.failed_count == 3)
        assert [client.request(number) for number in range(1, 200)] == [*range(1, 200)]
    with Client(broker.url, queue) as client:  # declares it, if the worker may not
        assert client.request(7) == 7
    wait_until(lambda: len(_dead(broker, queue)) >= 3)
    assert worker._consumer.held_replies == 0
    worker.drain()
    thread.join(60)


def test_a_reply_that_the_broker_never_stores_is_an_error_and_its_request_a_dead_letter(
    broker: RabbitServer, at_work: Callable[..., Worker]
) -> None:
    queue = Queue("large")
    worker = at_work(queue, lambda value: b"x" * value)
    with Client(broker.url, queue) as client:
        assert len(client.request(1000)) == 1000
        # What the broker's refusal sets: its own limit is 128 MiB.
        worker._consumer._outbox._link.max_bytes = 1500  # type: ignore[attr-defined]
        with pytest.raises(WorkError, match="it has 2000 bytes, more than the broker's maximum message size"):
            client.request(2000)
    wait_until(lambda: _dead(broker, queue) == [b"2000"])
    assert _dead_reasons(broker, queue) == [
        "the reply cannot be sent: it has 2000 bytes, more than the broker's maximum message size, 1500"
    ]


def test_a_request_that_the_broker_never_stores_fails_alone(
    broker: RabbitServer, at_work: Callable[..., Worker]
) -> None:
    """The limit is 128 MiB, since RabbitMQ 4.0 16 MiB."""
    queue, too_large = Queue("largest"), bytes(128 * 1024 * 1024 + 1)
    at_work(queue, len)
    with Client(broker.url, queue) as client:
        assert client.request(b"small") == 5
        large = client.submit(too_large)
        with pytest.raises(
            WorkError, match=r"134217729 bytes, more than the broker's maximum message size, [0-9]+"
        ):
            large.result(60)
        with pytest.raises(ValueError, match="134217729 bytes, more than"):
            client.submit(too_large)
        assert client.request(b"small again") == 11


def test_a_reply_queue_that_is_lost_is_made_again_and_open_requests_are_marked(
    broker: RabbitServer, at_work: Callable[..., Worker]
) -> None:
    queue, marks, go = Queue("answers"), [], threading.Event()

    def hold(request: Any) -> int:
        marks.append(request.is_repeat)
        go.wait(60)
        return len(marks)

    worker = Worker(RabbitMQConsumer(broker.url, queue, 4), hold, requests=True)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        with Client(broker.url, queue) as client:
            answer = client.submit(1)
            wait_until(lambda: marks == [False])
            lost = client._publisher._reply_queue  # type: ignore[attr-defined]
            with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
                connection.channel().queue_delete(lost)
            wait_until(lambda: client._publisher._reply_queue != lost)  # type: ignore[attr-defined]
            go.set()
            assert answer.result(60) == 2
    finally:
        worker.drain()
        thread.join(60)
    assert marks == [False, True]


def test_a_queue_that_is_declared_otherwise_is_refused_at_once(broker: RabbitServer) -> None:
    with Client(broker.url, Queue("twice", max_length=10)) as client, pytest.raises(ExpiredError):
        client.request(1, timeout=1)
    with (
        Client(broker.url, Queue("twice", max_length=20)) as client,
        pytest.raises(BrokerRefusedError, match=r"x-max-length.*twice"),
    ):
        client.request(1)


def test_wrong_credentials_are_refused_at_once_and_never_shown(broker: RabbitServer) -> None:
    url = broker.url.replace("guest:guest", "guest:secret")
    consumer = RabbitMQConsumer(url, Queue("any"), 1)
    with pytest.raises(BrokerRefusedError) as caught:
        consumer.receive(60)
    assert "secret" not in str(caught.value)
    assert str(broker.port) in str(caught.value)


def test_a_broker_that_is_not_there_is_waited_for_so_long() -> None:
    port = free_port()
    url = f"amqp://guest:guest@127.0.0.1:{port}/"
    consumer = RabbitMQConsumer(url, Queue("any"), 1, max_outage_seconds=1.0)
    with pytest.raises(ConnectionError, match=rf"127.0.0.1:{port}: unreachable for"):
        consumer.receive(60)
    consumer.close(1.0)


def test_closing_ends_what_is_open(broker: RabbitServer) -> None:
    client = Client(broker.url, "closed")
    answer = client.submit(1)
    client.close()
    with pytest.raises(LostError):
        answer.result(5)
    with pytest.raises(LostError):
        client.submit(2)


def _delete(broker: RabbitServer, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_delete(queue)


def _dead(broker: RabbitServer, queue: Queue) -> list[bytes]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel, found = connection.channel(), list[bytes]()
        while True:
            method, _, body = channel.basic_get(dead_letter_queue(queue))
            if method is None:
                return found  # unacknowledged: back in the queue when this connection closes
            found.append(body)


def _dead_reasons(broker: RabbitServer, queue: Queue) -> list[str]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        _, properties, _ = connection.channel().basic_get(dead_letter_queue(queue))
        return [(properties.headers or {})["spot-reason"]]
