"""Functions that take longer than the broker's ``consumer_timeout``: one run each, and smaller batches."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from rabbitmq import RabbitServer

from spot_work import Batch, Client, Queue, Worker
from spot_work.rabbitmq.consumer import RabbitMQConsumer
from spot_work.rabbitmq.inspector import RabbitMQInspector
from support.waiting import wait_until


def test_a_batch_that_outlasts_the_timeout_runs_once_and_the_next_ones_are_smaller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spot_work")
    queue, batches = Queue("batches"), list[list[int]]()

    def run(values: list[int]) -> list[int]:
        batches.append(values)
        time.sleep(0.4 * len(values))
        return values

    # A channel looks at its deliveries at each tick, of a minute by default.
    broker = RabbitServer(tmp_path, consumer_timeout=1000, channel_tick_interval=200)
    try:
        broker.start()
        status = RabbitMQInspector(broker.url, queue).status
        with Client(broker.url, queue) as client:
            wait_until(lambda: client._publisher._can_receive.is_set())  # type: ignore[attr-defined]
            futures = [client.submit(number) for number in range(8)]
            wait_until(lambda: status().waiting == 8)
            consumer = RabbitMQConsumer(broker.url, queue, 4)
            worker = Worker(consumer, run, Batch(4, 0.5))
            thread = threading.Thread(target=worker.run)
            thread.start()
            assert [future.result(60) for future in futures] == list(range(8))
            wait_until(lambda: not consumer.held_replies)
            worker.drain()
            thread.join(60)
            wait_until(lambda: status().consumers == 0)  # what was not acknowledged is returned
            assert status().waiting == client.unmatched_replies == 0
    finally:
        broker.remove()
    assert consumer._link.connections == 2  # broken once
    assert sorted(value for batch in batches for value in batch) == list(range(8))
    assert [len(batch) for batch in batches if len(batch) > 1] == [4]
    assert caplog.text.count("consumer_timeout unknown") == 1
    assert "4 requests took 1.6 s; what is not settled within 1.0 s is delivered again" in caplog.text
