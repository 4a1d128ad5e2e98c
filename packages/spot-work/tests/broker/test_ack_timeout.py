"""Functions that take longer than the broker's ``consumer_timeout``: one run each, and smaller batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rabbitmq import RabbitServer

from spot_work import Batch, Client, Queue, Worker
from spot_work.rabbitmq.consumer import RabbitMQConsumer
from spot_work.rabbitmq.inspector import RabbitMQInspector
from support.waiting import wait_until

TIMEOUT = 1.0
REQUEST_SECONDS = 0.4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    # A channel looks at its deliveries at each tick, of a minute by default.
    started = RabbitServer(
        tmp_path_factory.mktemp("broker"), consumer_timeout=int(TIMEOUT * 1000), channel_tick_interval=200
    )
    try:
        started.start()
        yield started
    finally:
        started.remove()


def serve(broker: RabbitServer, queue: Queue, size: int, function: Callable[[Any], Any]) -> int:
    """Answer eight requests, and return the number of the worker's connections."""
    with Client(broker.url, queue) as client:
        wait_until(lambda: client._publisher._can_receive.is_set())  # type: ignore[attr-defined]
        futures = [client.submit(number) for number in range(8)]
        status = RabbitMQInspector(broker.url, queue).status
        wait_until(lambda: status().waiting == 8)
        consumer = RabbitMQConsumer(broker.url, queue, size)
        worker = Worker(consumer, function, Batch(size, 0.5))
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert [future.result(60) for future in futures] == list(range(8))
        wait_until(lambda: not consumer.held_replies)
        worker.drain()
        thread.join(60)
        wait_until(lambda: status().consumers == 0)  # what was not acknowledged is returned
        assert status().waiting == 0
        assert client.unmatched_replies == 0
    return consumer._link.connections


def test_a_batch_that_outlasts_the_timeout_runs_once_and_the_next_ones_are_smaller(
    broker: RabbitServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spot_work")
    batches: list[list[int]] = []

    def run(values: list[int]) -> list[int]:
        batches.append(values)
        time.sleep(REQUEST_SECONDS * len(values))
        return values

    assert serve(broker, Queue("batches"), 4, run) == 2  # broken once
    assert sorted(value for batch in batches for value in batch) == list(range(8))
    assert [len(batch) for batch in batches if len(batch) > 1] == [4]
    assert caplog.text.count("consumer_timeout unknown") == 1
    assert "4 requests took 1.6 s; what is not settled within 1.0 s is delivered again" in caplog.text


def test_a_request_that_outlasts_the_timeout_runs_once(
    broker: RabbitServer, caplog: pytest.LogCaptureFixture
) -> None:
    runs = []

    def run(value: int) -> int:
        runs.append(value)
        time.sleep(2 * TIMEOUT if value == 3 else 0)
        return value

    serve(broker, Queue("single"), 1, run)
    assert runs == list(range(8))
    assert "1 requests took 2.0 s; what is not settled within 1.0 s is delivered again" in caplog.text
