"""The users of a real RabbitMQ server: what each may do, and their rotation while a worker serves."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import boto3
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ProbableAuthenticationError

from contracts.broker_users import BrokerQueue, BrokerRole, BrokerUser, ManagedBroker
from contracts.registry.queue_state import QueueState
from contracts.watched_queue import WatchedQueue
from lambdas.aws.queues import management_client
from lambdas.aws.queues.broker_users import BrokerUserManager
from lambdas.aws.queues.rabbitmq import RabbitMqReader
from lambdas.core.queues import management_api
from lambdas.core.queues.history import QueueHistory
from packages.rabbitmq import RabbitServer, free_port
from spot_work import BrokerRefusedError, Client, Queue, Worker
from spot_work import __main__ as command
from spot_work.callers import AsyncClient
from spot_work.rabbitmq.consumer import RabbitMQConsumer
from tests import models
from tests.waiting import wait_until

CONFIG = "loopback_users = none\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
OCR, PAGES = BrokerQueue("ocr", 20, 100_000), BrokerQueue("pages", 3, 0)
USERS = (
    BrokerUser("monitor", BrokerRole.MONITOR, "s/monitor"),
    BrokerUser("ocr.workers", BrokerRole.WORKERS, "s/ocr-workers", "ocr"),
    BrokerUser("ocr.clients", BrokerRole.CLIENTS, "s/ocr-clients", "ocr"),
    BrokerUser("pages.workers", BrokerRole.WORKERS, "s/pages-workers", "pages", ("ocr",)),
    BrokerUser("pages.clients", BrokerRole.CLIENTS, "s/pages-clients", "pages"),
)
BROKER = ManagedBroker("s/administrator", (OCR, PAGES), USERS)
WAIT_SECONDS = 60.0


def current(secrets: Any, secret: str) -> dict[str, Any]:
    """Return the current version; moto's default is the one that was written last."""
    response: dict[str, Any] = secrets.get_secret_value(SecretId=secret, VersionStage="AWSCURRENT")
    return response


@dataclass
class Monitor:
    """Secrets Manager as the queue watcher reads it."""

    secrets: Any

    def get_secret_value(self, SecretId: str) -> dict[str, Any]:  # noqa: N803
        return current(self.secrets, SecretId)


@dataclass
class Users:
    """A broker with its management plugin, its secrets in moto, and the manager of its users."""

    server: RabbitServer
    secrets: Any
    management: str
    manager: BrokerUserManager = field(init=False)
    now: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.manager = BrokerUserManager(self.secrets, lambda: self.now, api_of=self.api)

    def api(self, url: str) -> management_api.ManagementApi:
        return management_api.from_broker_url(url, self.management)

    def run(self, *rotate: str, broker: ManagedBroker = BROKER) -> list[str]:
        self.now = max(self.now, time.time()) + 301
        return self.manager.run([broker], frozenset(rotate), 60.0)

    def url(self, name: str) -> str:
        return str(current(self.secrets, f"s/{name}")["SecretString"])

    def version(self, name: str) -> str:
        return str(current(self.secrets, f"s/{name}")["VersionId"])

    def ask(self, url: str, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        """Call the management API with a URL's user."""
        tls = ssl.create_default_context()
        status, text = management_client.call(
            self.api(url), f"/api/{path}", tls, time.monotonic() + 30, method, body
        )
        return status, json.loads(text) if text and status == 200 else text

    def close_connections(self) -> int:
        """Close all AMQP connections as a broker that restarts does; return their number."""
        url = self.url("administrator")
        connections = wait_until(lambda: self.ask(url, "connections")[1], WAIT_SECONDS)  # the list lags
        for connection in connections:
            self.ask(url, f"connections/{quote(connection['name'])}", "DELETE")
        return len(connections)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    folder, port = tmp_path_factory.mktemp("users"), free_port()
    server = RabbitServer(folder)
    (folder / "plugins").write_text("[rabbitmq_management].\n")
    (folder / "rabbitmq.conf").write_text(CONFIG.format(port=port))
    with models.moto():
        secrets = boto3.client("secretsmanager", region_name="us-west-2")
        for name in ("administrator", *(user.secret.removeprefix("s/") for user in USERS)):
            secrets.create_secret(Name=f"s/{name}")
        # As of Amazon MQ, whose administrator is not "guest".
        address = f"127.0.0.1:{server.port}"
        secrets.put_secret_value(SecretId="s/administrator", SecretString=f"amqp://gpu-spot:first@{address}")
        try:
            server.start()
            users = Users(server, secrets, f"http://127.0.0.1:{port}")
            _create_administrator(users)
            assert users.run() == []
            yield users
        finally:
            server.remove()


def _create_administrator(users: Users) -> None:
    guest, body = users.server.url, {"password": "first", "tags": "administrator"}

    def is_created() -> bool:
        with contextlib.suppress(OSError):  # the plugin listens later than the broker
            return users.ask(guest, "users/gpu-spot", "PUT", body)[0] == 201
        return False

    wait_until(is_created, WAIT_SECONDS, 0.2)
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    assert users.ask(guest, "permissions/%2F/gpu-spot", "PUT", every)[0] == 201


Operation = Callable[[Any], object]


def outcome(url: str, operation: Operation) -> str:
    """Return "done", or the name of the broker's refusal, of an operation on a new channel."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        operation(channel)
        connection.process_data_events(0.2)  # a refusal of what has no response arrives later
        channel.queue_declare("ocr", passive=True)
    except ChannelClosedByBroker as error:
        return str(error.reply_text).partition(" ")[0]
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()
    return "done"


def consume(queue: str) -> Operation:
    return lambda channel: channel.basic_consume(queue, lambda *_: None)


def publish(exchange: str, key: str) -> Operation:
    return lambda channel: channel.basic_publish(exchange, key, b"1")


def own_queue(queue: str, exchange: str) -> Operation:
    """Declare the reply queue that `spot_work` would, bind and consume it."""

    def operation(channel: Any) -> None:
        name = f"{queue}.replies.{uuid.uuid4().hex}"
        channel.queue_declare(name, durable=True, arguments={"x-expires": 60_000})
        channel.queue_bind(name, exchange, name)
        channel.basic_consume(name, lambda *_: None)

    return operation


def cancellations(channel: Any) -> None:
    channel.queue_declare("", exclusive=True, auto_delete=True)
    channel.queue_bind("", "ocr.withdrawn")
    channel.basic_consume("", lambda *_: None)


OPERATIONS: dict[str, Operation] = {
    "consume requests": consume("ocr"),
    "consume dead letters": consume("ocr.dead"),
    "get a request": lambda channel: channel.basic_get("ocr"),
    "reply": publish("ocr.replies", "ocr.replies.1"),
    "dead-letter": publish("ocr.dead", "ocr.dead"),
    "request": publish("ocr.requests", "ocr"),
    "cancel": publish("ocr.withdrawn", ""),
    "hear of cancellations": cancellations,
    "own a reply queue": own_queue("ocr", "ocr.replies"),
    "hear of requests": own_queue("ocr", "ocr.requests"),
    "publish to any queue": publish("", "pages"),
    "declare the queue": lambda channel: channel.queue_declare("ocr", durable=True),
    "delete the queue": lambda channel: channel.queue_delete("ocr"),
    "purge the queue": lambda channel: channel.queue_purge("ocr"),
    "delete an exchange": lambda channel: channel.exchange_delete("ocr.replies"),
    "declare another queue": lambda channel: channel.queue_declare("mine", exclusive=True),
    "declare an exchange": lambda channel: channel.exchange_declare("mine"),
    "consume another service's requests": consume("pages"),
    "request another service": publish("pages.requests", "pages"),
    "reply as another service": publish("pages.replies", "pages.replies.1"),
    "own another service's reply queue": own_queue("pages", "pages.replies"),
    "trace": lambda channel: channel.queue_bind("ocr", "amq.rabbitmq.trace", "#"),
}
MAY = {
    "administrator": set(OPERATIONS) - {"declare the queue"},
    "ocr-workers": {
        *("consume requests", "get a request", "reply", "dead-letter", "hear of cancellations"),
        "purge the queue",
    },
    "ocr-clients": {"request", "cancel", "own a reply queue"},
    # It calls ocr.
    "pages-workers": {
        *("request", "cancel", "own a reply queue"),
        *("consume another service's requests", "reply as another service"),
    },
    "pages-clients": {"request another service", "own another service's reply queue"},
    "monitor": set[str](),
}


@pytest.mark.parametrize("name", sorted(MAY.keys() - {"administrator"}))
def test_a_user_may_do_its_part_and_nothing_else(users: Users, name: str) -> None:
    seen = {operation: outcome(users.url(name), run) for operation, run in OPERATIONS.items()}
    assert {operation for operation, result in seen.items() if result == "done"} == MAY[name]
    assert set(seen.values()) <= {"done", "ACCESS_REFUSED"}


@pytest.mark.parametrize("arguments", [["dead-letters"], ["resend", "--all"]])
def test_a_worker_that_lists_dead_letters_gets_one_line(
    users: Users, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pika.BlockingConnection(pika.URLParameters(users.url("administrator"))) as connection:
        connection.channel().basic_publish("", "ocr.dead", b"1")
    monkeypatch.setenv(command.URL, users.url("ocr-workers"))
    assert command.main([*arguments, "--queue", "ocr"]) == 1
    output, error = capsys.readouterr()
    assert (output.replace("0 sent again\n", ""), error.count("\n")) == ("", 1)
    assert "ACCESS_REFUSED" in error
    assert "'ocr.dead'" in error
    monkeypatch.setenv(command.URL, users.url("administrator"))
    assert command.main(["dead-letters", "--queue", "ocr", "--json"]) == 0
    letters = json.loads(capsys.readouterr().out)["dead_letters"]
    assert command.main(["resend", "--all", "--queue", "ocr"]) == 0
    assert letters
    with pika.BlockingConnection(pika.URLParameters(users.url("administrator"))) as connection:
        connection.channel().queue_purge("ocr")


def test_only_the_monitor_reads_the_management_api_and_only_counts(users: Users) -> None:
    for name in MAY.keys() - {"administrator", "monitor"}:
        assert users.ask(users.url(name), "queues/%2F/ocr")[0] == 401
    reader = RabbitMqReader(Monitor(users.secrets))
    watched = WatchedQueue("ocr", "rabbitmq", "ocr", "s/monitor", users.management)

    history = QueueHistory()

    def observed() -> QueueState | None:
        nonlocal history
        state = None
        with contextlib.suppress(ValueError):  # no length for some seconds after a start
            state, history = reader.observe(watched, history, time.time(), 10.0)
        return state

    state = wait_until(observed, WAIT_SECONDS, 0.5)
    assert state is not None
    assert state.consumers == 0
    url, body = users.url("monitor"), {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    message = {"properties": {}, "routing_key": "ocr", "payload": "1", "payload_encoding": "string"}
    for path, method, sent in (
        ("queues/%2F/ocr/get", "POST", body),
        ("exchanges/%2F/ocr.requests/publish", "POST", message),
        ("queues/%2F/ocr/contents", "DELETE", None),
        ("queues/%2F/ocr", "DELETE", None),
        ("users", "GET", None),
        ("definitions", "GET", None),
        ("users/gpu-spot.monitor.1", "PUT", {"password": "a", "tags": "administrator"}),
        ("connections", "GET", None),
    ):
        status, seen = users.ask(url, path, method, sent)
        is_refused = status in (401, 403) or b"ACCESS_REFUSED" in (seen if isinstance(seen, bytes) else b"")
        assert is_refused or (path, seen) == ("connections", []), (path, status, seen)


def test_a_second_check_changes_nothing(users: Users) -> None:
    names = ("administrator", *(user.secret.removeprefix("s/") for user in USERS))
    before = {name: users.version(name) for name in names}
    _, listed = users.ask(users.url("administrator"), "users")
    assert users.run() == []
    assert {name: users.version(name) for name in names} == before
    assert users.ask(users.url("administrator"), "users")[1] == listed  # with the salted hashes


def test_what_was_changed_on_the_broker_is_set_right(users: Users) -> None:
    url, name = users.url("administrator"), pika.URLParameters(users.url("ocr-workers")).credentials.username
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    assert users.ask(url, f"permissions/%2F/{name}", "PUT", every)[0] == 204
    assert users.ask(url, f"users/{name}", "PUT", {"password": "a", "tags": "administrator"})[0] == 204
    assert users.ask(url, "users/gpu-spot.former.clients.1", "PUT", {"password": "a", "tags": ""})[0] == 201
    assert users.run() == []
    assert outcome(users.url("ocr-workers"), OPERATIONS["request"]) == "ACCESS_REFUSED"
    assert users.ask(users.url("ocr-workers"), "whoami")[0] == 401
    listed = {user["name"] for user in users.ask(url, "users")[1]}
    assert "gpu-spot.former.clients.1" not in listed
    assert {"guest", "gpu-spot"} <= listed  # names of others


def test_a_queue_with_other_settings_is_an_error_and_the_users_are_maintained(users: Users) -> None:
    changed = ManagedBroker(BROKER.administrator, (BrokerQueue("ocr", 7, 100_000), PAGES), USERS)
    before = users.version("ocr-clients")
    [error] = users.run("ocr.clients", broker=changed)
    assert error.startswith("queue ocr: PUT queues/%2F/ocr: status 400 inequivalent arg 'x-delivery-limit'")
    assert users.version("ocr-clients") != before


def test_the_administrators_password_is_rotated_even_by_a_run_that_stops_halfway(users: Users) -> None:
    first = users.url("administrator")
    assert users.run("administrator") == []
    second = users.url("administrator")
    assert (users.ask(first, "whoami")[0], users.ask(second, "whoami")[0]) == (401, 200)

    class StoppedError(Exception):
        pass

    def stop(**_: Any) -> None:
        raise StoppedError

    move, users.secrets.update_secret_version_stage = users.secrets.update_secret_version_stage, stop
    try:
        [error] = users.run("administrator")
    finally:
        users.secrets.update_secret_version_stage = move
    assert "Stopped" in error
    assert users.ask(second, "whoami")[0] == 401
    assert users.run() == []
    assert users.url("administrator") != second
    assert users.ask(users.url("administrator"), "whoami")[0] == 200


@dataclass
class Load:
    """A client that sends numbers without a pause, and a worker that doubles them."""

    client: Client
    futures: list[Future[Any]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def send(self) -> None:
        for number in itertools.count():
            if self.ended.is_set():
                return
            self.futures.append(self.client.submit(number, timeout=120))
            time.sleep(0.005)


@contextlib.contextmanager
def loaded(client: Client) -> Iterator[Load]:
    """Send while the block runs."""
    load = Load(client)
    sender = threading.Thread(target=load.send)
    sender.start()
    try:
        yield load
    finally:
        load.ended.set()
        sender.join()


@contextlib.contextmanager
def doubling(url: str | Callable[[], str]) -> Iterator[None]:
    """Run a worker of ``ocr`` while the block runs; it must be alive at its end."""
    worker = Worker(RabbitMQConsumer(url, Queue("ocr"), 8), lambda number: 2 * number)
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        yield
        assert running.is_alive()
    finally:
        worker.drain()
        running.join(60)


def test_rotations_while_a_worker_serves_lose_nothing(users: Users) -> None:
    """Connections are closed after each: both log in again, with the login of before the rotation."""
    before = users.url("ocr-workers"), users.url("ocr-clients")
    with doubling(before[0]), Client(before[1], Queue("ocr")) as client:
        with loaded(client) as load:
            assert users.run("ocr.workers", "ocr.clients", "monitor") == []
            assert users.url("ocr-workers") != before[0]
            assert users.url("ocr-clients") != before[1]
            assert users.close_connections() >= 2
            time.sleep(3.0)
        results = [future.result(120) for future in load.futures]
    assert results == [2 * number for number in range(len(results))]
    assert len(results) > 200


def test_the_login_before_the_previous_one_is_refused(users: Users) -> None:
    first = users.url("ocr-clients")
    assert users.run("ocr.clients") == []
    pika.BlockingConnection(pika.URLParameters(first)).close()
    assert users.run("ocr.clients") == []
    with pytest.raises(ProbableAuthenticationError):
        pika.BlockingConnection(pika.URLParameters(first))
    with Client(first, "ocr") as client, pytest.raises(BrokerRefusedError):
        client.request(1)


def test_clients_with_an_outdated_login_read_it_again(users: Users) -> None:
    """After two rotations the login that they started with is refused; requests that are open stay so."""
    reads: list[str] = []

    def read() -> str:
        reads.append(users.url("ocr-clients"))
        return reads[-1]

    async def ask_asynchronously() -> list[int]:
        async with AsyncClient(read, "ocr") as asynchronous:
            requests = [asynchronous.submit(number, timeout=60) for number in range(20)]
            first = list(await asyncio.gather(*requests))
            before = await asyncio.to_thread(users.url, "ocr-clients")
            for _ in range(2):
                assert await asyncio.to_thread(users.run, "ocr.clients", "ocr.workers") == []
            assert await asyncio.to_thread(outcome_of_login, before) == "refused"
            end = time.monotonic() + WAIT_SECONDS
            while len(reads) < 4:  # the broker lists new connections after some seconds
                assert time.monotonic() < end
                await asyncio.to_thread(users.close_connections)
            requests = [asynchronous.submit(number, timeout=60) for number in range(20)]
            return first + list(await asyncio.gather(*requests))

    with doubling(lambda: users.url("ocr-workers")), Client(read, "ocr") as client:
        with loaded(client) as load:
            assert asyncio.run(ask_asynchronously()) == [2 * n for n in range(20)] * 2
        assert [future.result(60) for future in load.futures] == [2 * n for n in range(len(load.futures))]
    # At its start, and again after the refusals: not once for each connection that is refused.
    assert 4 <= len(reads) <= 8


def outcome_of_login(url: str) -> str:
    try:
        pika.BlockingConnection(pika.URLParameters(url)).close()
    except ProbableAuthenticationError:
        return "refused"
    return "accepted"


def test_a_request_with_a_reply_queue_out_of_reach_is_dead_lettered(users: Users) -> None:
    """A client with the administrator's login and a reply queue of the default exchange."""
    with doubling(users.url("ocr-workers")):
        with pika.BlockingConnection(pika.URLParameters(users.url("administrator"))) as connection:
            channel = connection.channel()
            properties = pika.BasicProperties(
                reply_to="mine", correlation_id="1", content_type="application/json"
            )
            channel.basic_publish("", "ocr", b"1", properties)
            wait_until(lambda: channel.basic_get("ocr.dead", auto_ack=True)[2], WAIT_SECONDS, 0.1)
        with Client(users.url("ocr-clients"), "ocr") as client:
            assert client.request(4) == 8  # the channel is still open
