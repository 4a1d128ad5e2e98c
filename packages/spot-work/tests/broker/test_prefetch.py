"""No request waits behind a busy worker while another one is idle, on a real RabbitMQ server."""

from __future__ import annotations

import threading
import time

from rabbitmq import RabbitServer

from spot_work import Batch, Client, Queue, Worker
from spot_work.rabbitmq.consumer import RabbitMQConsumer
from spot_work.rabbitmq.inspector import RabbitMQInspector
from support.waiting import wait_until

LONG_SECONDS = 2.0
QUEUE = Queue("prefetch")


def serve(worker: Worker) -> threading.Thread:
    thread = threading.Thread(target=worker.run)
    thread.start()
    return thread


def test_requests_go_to_the_idle_worker(broker: RabbitServer) -> None:
    started_at: dict[str, float] = {}
    long_begins = threading.Event()

    def run(values: list[str]) -> list[str]:
        started_at.update(dict.fromkeys(values, time.monotonic()))
        if "long" in values:
            long_begins.set()
            time.sleep(LONG_SECONDS)
        return values

    workers = [Worker(RabbitMQConsumer(broker.url, QUEUE, 4), run, Batch(4)) for _ in range(2)]
    threads = [serve(worker) for worker in workers]
    client = Client(broker.url, QUEUE)
    try:
        client.submit("first", timeout=30).result()
        answers = [client.submit("long", timeout=30)]
        assert long_begins.wait(20)
        time.sleep(0.2)  # the broker has cancelled the busy worker's consumer
        sent: dict[str, float] = {}
        for number in range(12):
            sent[f"{number}"] = time.monotonic()
            answers.append(client.submit(f"{number}", timeout=30))
            time.sleep(0.05)
        assert [answer.result() for answer in answers] == ["long", *sent]
        assert max(started_at[name] - sent[name] for name in sent) < LONG_SECONDS / 2
        # The worker that was busy is delivered to again.
        answers = [client.submit("long", timeout=30) for _ in range(2)]
        started = time.monotonic()
        assert [answer.result() for answer in answers] == ["long", "long"]
        assert time.monotonic() - started < 1.7 * LONG_SECONDS
        assert not any(worker.batches.rows() == [] for worker in workers)
    finally:
        client.close()
        for worker in workers:
            worker.drain()
        for thread in threads:
            thread.join(30)


def test_what_waits_behind_an_unusually_long_request_goes_to_the_idle_worker(broker: RabbitServer) -> None:
    ended_at: dict[str, float] = {}

    def run(value: str) -> str:
        time.sleep(LONG_SECONDS if value == "long" else 0.0)
        ended_at[value] = time.monotonic()
        return value

    queue = Queue("unusual")
    workers = [Worker(RabbitMQConsumer(broker.url, queue, 1), run) for _ in range(2)]
    threads = [serve(worker) for worker in workers]
    client = Client(broker.url, queue)
    try:
        for answer in [client.submit(f"before {number}", timeout=30) for number in range(400)]:
            answer.result()
        sent_at = time.monotonic()
        names = [*(f"{number}" for number in range(10)), "long", *(f"{number}" for number in range(10, 60))]
        answers = [client.submit(name, timeout=30) for name in names]
        assert [answer.result() for answer in answers] == names
        waits = {name: ended_at[name] - sent_at for name in names if name != "long"}
        assert max(waits.values()) < LONG_SECONDS / 2, waits
    finally:
        client.close()
        for worker in workers:
            worker.drain()
        for thread in threads:
            thread.join(30)


def test_what_was_on_its_way_when_the_consumer_is_cancelled_is_taken(broker: RabbitServer) -> None:
    queue, is_cancelling = Queue("on-its-way"), threading.Event()
    consumer = RabbitMQConsumer(broker.url, queue, 16)
    inspector = RabbitMQInspector(broker.url, queue)
    try:
        with Client(broker.url, queue) as client:
            assert consumer.is_connected.wait(60)
            consumer._link.call(lambda _: is_cancelling.wait(60))  # what is delivered stays in the socket
            for number in range(16):
                client.submit(number)
            link = client._publisher._requests  # type: ignore[attr-defined]
            wait_until(lambda: link._published_count == 16 and not link._unconfirmed)
            wait_until(lambda: inspector.status().waiting == 0)
            consumer.set_prefetch(1)
            is_cancelling.set()
            for _ in range(16):
                delivery = consumer.receive(30)
                assert delivery is not None
                assert delivery.request.delivery_count == 1
    finally:
        consumer.close(1)


def test_what_came_back_before_is_handed_back_for_a_quarter_of_its_deliveries(broker: RabbitServer) -> None:
    queue = Queue("came-back", max_deliveries=12)
    consumer = RabbitMQConsumer(broker.url, queue, 4)
    inspector = RabbitMQInspector(broker.url, queue)
    try:
        with Client(broker.url, queue) as client:
            for number in range(4):
                client.submit(number)
            for _ in range(3):
                wait_until(lambda: consumer.waiting_count == 4)
                consumer.hand_back()
                assert consumer.waiting_count == 0
                wait_until(lambda: inspector.status().waiting == 4)
                consumer.set_prefetch(4)
            wait_until(lambda: consumer.waiting_count == 4)
            consumer.hand_back()
            counts = [delivery.request.delivery_count for _ in range(4) if (delivery := consumer.receive(1))]
            assert counts in ([4] * 4, [])  # RabbitMQ 4.3 does not count what is handed back: all went back
    finally:
        consumer.close(1)
