"""The queue watcher's reader on a real RabbitMQ server's management API."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues.rabbitmq import RabbitMqReader
from lambdas.core.queues.history import QueueHistory
from packages.rabbitmq import RabbitServer, free_port

TIMEOUT_SECONDS = 120.0
_CONFIG = "loopback_users = none\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"


class Secrets:
    """Secrets Manager with one secret."""

    text = ""

    def get_secret_value(self, SecretId: str) -> dict[str, str]:  # noqa: N803
        assert SecretId == "broker"
        return {"SecretString": self.text}


class Watched:
    """A broker with its management plugin, and a reader of its queue ``pages`` that remembers."""

    def __init__(self, folder: Path) -> None:
        self.broker, self._folder, self._port = RabbitServer(folder), folder, free_port()
        (folder / "plugins").write_text("[rabbitmq_management].\n")
        self.configure("")
        self.secrets = Secrets()
        self.secrets.text = self.broker.url
        self.reader = RabbitMqReader(self.secrets)
        self.past = QueueHistory()

    def configure(self, more: str) -> None:
        (self._folder / "rabbitmq.conf").write_text(_CONFIG.format(port=self._port) + more)

    def look(self) -> QueueState | None:
        queue = WatchedQueue("ocr", "rabbitmq", "pages", "broker", f"http://127.0.0.1:{self._port}")
        seen, self.past = self.reader.observe(queue, self.past, time.time(), 10.0)
        return seen

    def until(self, ready: int) -> QueueState:
        """Poll until so many messages wait; RabbitMQ statistics lag by some seconds."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < end:
            time.sleep(1.0)
            with contextlib.suppress(ValueError):
                seen = self.look()
                if seen is not None and seen.ready == ready:
                    return seen
        raise AssertionError(f"never {ready} ready: {self.failure()}")

    def failure(self, says: str = "") -> str:
        """Poll until the queue is unreachable with an error that contains this text."""
        end, message = time.monotonic() + TIMEOUT_SECONDS, "none"
        while time.monotonic() < end:
            try:
                self.look()
            except ValueError as error:
                message = str(error)
                if says in message:
                    return message
            time.sleep(0.5)
        raise AssertionError(f"never {says!r}, but {message}")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("watched"))
    try:
        made.broker.start()
        yield made
    finally:
        made.broker.remove()


@contextlib.contextmanager
def open_connection(url: str) -> Iterator[pika.BlockingConnection]:
    """Yield a connection, and close it unless the broker did."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    yield connection
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()


@pytest.mark.soak
def test_a_real_brokers_queue_is_seen_through_its_life(watched: Watched) -> None:
    watched.failure("no such queue (404)")
    with open_connection(watched.broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("pages", durable=True, arguments={"x-queue-type": "quorum"})
        began = time.time()
        for _ in range(100):
            channel.basic_publish("", "pages", b"x", pika.BasicProperties(delivery_mode=2))
        channel.confirm_delivery()
        published = time.time()
        first = watched.until(100)
        assert (first.in_flight, first.consumers) == (0, 0)
        time.sleep(3.0)
        later = watched.until(100)
        # At least, and never more than it is; the totals were there some seconds after the messages.
        assert 2.0 <= later.oldest_seconds <= time.time() - began
        assert later.observed_at - published - later.oldest_seconds < TIMEOUT_SECONDS

        channel.basic_qos(prefetch_count=5)
        taking = channel.consume("pages", inactivity_timeout=10.0)
        for method, _, _ in itertools.islice(taking, 30):
            assert method is not None
            channel.basic_ack(method.delivery_tag)
        end = time.monotonic() + TIMEOUT_SECONDS
        while (seen := watched.until(65)).in_flight != 5:
            assert time.monotonic() < end
        assert seen.consumers == 1
        assert watched.past.acknowledged == 30

        right, watched.secrets.text = watched.secrets.text, watched.broker.url.replace(":guest@", ":old@")
        watched.reader = RabbitMqReader(watched.secrets)
        watched.failure("rejects the user in the secret")
        watched.secrets.text = right

        end = time.monotonic() + TIMEOUT_SECONDS
        while not watched.broker.has_queue("pages"):
            assert time.monotonic() < end
            time.sleep(0.1)
        watched.broker.kill()
        watched.failure("does not respond: ConnectionRefusedError")
    watched.broker.start()
    assert watched.until(70).in_flight == 0  # those that were taken wait again

    watched.broker.kill()
    watched.configure("management_agent.disable_metrics_collector = true\n")
    watched.broker.start()
    time.sleep(10.0)  # no zero comes, however long one waits
    watched.failure("metrics collector is disabled")
