"""An overloaded queue on a real RabbitMQ server: what is late is refused, and what is run is in time."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from rabbitmq import RabbitServer

from spot_work import Client, ExpiredError, OverloadedError, Queue, Worker, WorkError
from spot_work.rabbitmq.consumer import RabbitMQConsumer

RUN_SECONDS, TIMEOUT = 0.1, 2.0


def test_an_overloaded_worker_runs_only_what_is_in_time(broker: RabbitServer) -> None:
    queue = Queue("overloaded")
    started_at: dict[int, float] = {}
    sent: dict[int, float] = {}

    def work(number: int) -> int:
        started_at[number] = time.time()
        time.sleep(RUN_SECONDS)
        return number

    worker = Worker(RabbitMQConsumer(broker.url, queue, 1), work)
    thread = threading.Thread(target=worker.run)
    thread.start()
    outcomes: dict[str, list[Any]] = {"done": [], "refused": [], "expired": []}
    try:
        with Client(broker.url, queue) as client:
            assert client.request(-1, timeout=60) == -1  # connected
            futures = {}
            for number in range(80):  # four times what two seconds hold
                sent[number] = time.time()
                futures[number] = client.submit(number, timeout=TIMEOUT)
            for number, future in futures.items():
                try:
                    outcomes["done"].append(future.result())
                except OverloadedError as error:
                    outcomes["refused"].append(error.retry_after)
                except ExpiredError:
                    outcomes["expired"].append(number)
            error = None
            for _ in range(20):  # until a reply has reported the wait
                try:
                    client.submit(-2, timeout=0.2).result()
                except OverloadedError as refused:
                    error = refused
                    break
                except ExpiredError:
                    continue
            if error is not None:
                time.sleep(error.retry_after)
            assert client.request(-3, timeout=30) == -3
    finally:
        worker.drain()
        thread.join(60)
    late = {number for number, at in started_at.items() if number >= 0 and at > sent[number] + TIMEOUT}
    assert not late
    assert len(outcomes["done"]) >= 10
    assert outcomes["refused"]
    assert all(seconds >= 1.0 for seconds in outcomes["refused"])
    assert worker.refused_count >= 40
    # What was run and came too late is what was at the edge: one batch of it.
    in_vain = {number for number in started_at if number in outcomes["expired"]}
    assert len(in_vain) <= 3


def test_a_priority_needs_rabbitmq_4(broker: RabbitServer) -> None:
    with Client(broker.url, "urgent") as client:
        future = client.submit(1, timeout=60, priority="high")  # the version is not known yet
        try:
            error: Exception | None = future.exception(timeout=5)
        except TimeoutError:
            error = None  # RabbitMQ 4.0 or later: it waits for a worker
        if error is None:
            pytest.skip("a server that has priorities")
        assert isinstance(error, WorkError)
        assert "priority must be 'normal' before RabbitMQ 4.0 (this is 3." in str(error)
        with pytest.raises(ValueError, match=r"priority must be 'normal' before RabbitMQ 4\.0"):
            client.submit(1, priority="high")
