"""Users of RabbitMQ brokers: permissions, URLs, rotation, and runs that stop."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import boto3
import pika
import pytest

from contracts.broker_users import BrokerQueue, BrokerRole, BrokerUser, ManagedBroker
from lambdas.aws.queues.broker_users import BrokerUserManager, generate_password
from lambdas.core.queues import broker_users, management_api
from lambdas.core.queues.broker_users import ROTATION_SECONDS, BrokerLogin
from spot_work import Queue
from spot_work.rabbitmq import declare
from tests import models
from tests.served import Handler, served

MONITOR = BrokerUser("monitor", BrokerRole.MONITOR, "mq-monitor")
WORKERS = BrokerUser("ocr.workers", BrokerRole.WORKERS, "mq-workers", "ocr")
CLIENTS = BrokerUser("ocr.clients", BrokerRole.CLIENTS, "mq-clients", "ocr")
CALLERS = BrokerUser("pages.workers", BrokerRole.WORKERS, "pages-workers", "pages", ("ocr",))
OCR = BrokerQueue("ocr", 20, 100_000)
BROKER = ManagedBroker("mq", (OCR,), (WORKERS, CLIENTS, MONITOR))
ADMINISTRATOR = "amqps://gpu-spot:first@b-1.mq.us-west-2.amazonaws.com:5671"


def matches(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


@pytest.mark.parametrize("user", [MONITOR, WORKERS, CLIENTS, CALLERS], ids=lambda user: user.name)
def test_no_user_reaches_the_default_exchange_another_queue_or_the_declarations(user: BrokerUser) -> None:
    granted = broker_users.permissions(user)
    for name in ("amq.default", "amq.rabbitmq.trace", "asr", "ocr2", "xocr", "ocrxreplies", "ocrxdead"):
        assert not any(matches(pattern, name) for pattern in (granted.configure, granted.write, granted.read))
    # Workers add dead letters; operators read them.
    assert not any(matches(pattern, "ocr.dead") for pattern in (granted.configure, granted.read))
    assert matches(granted.write, "ocr.dead") == (user is WORKERS)
    for name in ("ocr", "ocr.requests", "ocr.replies", "ocr.withdrawn", "pages"):
        assert not matches(granted.configure, name)


def test_a_queue_named_like_a_pattern_is_only_itself() -> None:
    granted = broker_users.permissions(BrokerUser("a", BrokerRole.WORKERS, "s", "o.r"))
    assert matches(granted.read, "o.r")
    assert not matches(granted.read, "oor")


@dataclass
class Recorder:
    """A channel that records declarations."""

    made: list[tuple[Any, ...]] = field(default_factory=list)

    def queue_declare(self, name: str, *, durable: bool, arguments: dict[str, Any], callback: Any) -> None:
        self.made.append(("queue", name, durable, arguments))

    def exchange_declare(self, name: str, kind: str, *, durable: bool, callback: Any) -> None:
        self.made.append(("exchange", name, kind, durable))

    def queue_bind(self, queue: str, exchange: str, key: str, *, callback: Any) -> None:
        self.made.append(("binding", exchange, queue, key))


@pytest.mark.parametrize(("deliveries", "length"), [(20, 100_000), (1, 0)])
def test_the_function_declares_what_workers_do(deliveries: int, length: int) -> None:
    recorder = Recorder()
    for declaration in declare.request_queue(recorder, Queue("ocr", deliveries, length), is_declared=False):
        declaration(callback=None)
    made = []
    for call in broker_users.declarations(BrokerQueue("ocr", deliveries, length), "/"):
        kind, _, rest = call.path.partition("/%2F/")
        if kind == "queues":
            made.append(("queue", rest, call.body["durable"], call.body["arguments"]))
        elif kind == "exchanges":
            made.append(("exchange", rest, call.body["type"], call.body["durable"]))
        else:
            _, exchange, _, queue = rest.split("/")
            made.append(("binding", exchange, queue, call.body["routing_key"]))
    assert sorted(made, key=str) == sorted(recorder.made, key=str)


def test_the_url_of_a_user_is_read_by_pika_the_watcher_and_spot_work() -> None:
    url = broker_users.url(ADMINISTRATOR, BrokerLogin("gpu-spot.ocr.clients.1", "s3cret"))
    parameters = pika.URLParameters(url)
    assert (parameters.host, parameters.port, parameters.virtual_host) == (
        "b-1.mq.us-west-2.amazonaws.com",
        5671,
        "/",
    )
    assert (parameters.credentials.username, parameters.credentials.password) == (
        "gpu-spot.ocr.clients.1",
        "s3cret",
    )
    api = management_api.from_broker_url(url)
    assert (api.user, api.password, api.vhost, api.port) == ("gpu-spot.ocr.clients.1", "s3cret", "/", 443)
    assert declare.is_declared(url)
    assert not declare.is_declared(ADMINISTRATOR)
    assert broker_users.login_of(url) == BrokerLogin("gpu-spot.ocr.clients.1", "s3cret")


def test_a_password_needs_no_quoting_and_fits_amazon_mq() -> None:
    """At least 12 characters, 4 of them different, without comma, colon and equal sign."""
    passwords = {generate_password() for _ in range(100)}
    assert len(passwords) == 100
    assert all(re.fullmatch("[A-Za-z0-9]{32}", password) for password in passwords)


def test_a_login_does_not_show_its_password() -> None:
    assert "s3cret" not in repr(BrokerLogin("a", "s3cret"))


@dataclass
class Broker:
    """RabbitMQ's management API as far as it is used; stops the run after ``calls_left`` changes."""

    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    permissions: dict[str, dict[str, str]] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    rejected: str = ""
    """Beginning of a path that is rejected."""

    def answer(self, method: str, path: str, login: tuple[str, str], body: Any) -> tuple[int, Any]:
        if self.passwords.get(login[0]) != login[1]:
            return 401, {"error": "not_authorized", "reason": "Login failed"}
        if self.rejected and path.startswith(self.rejected):
            return 400, {"error": "bad_request", "reason": "inequivalent arg"}
        kind, _, rest = path.partition("/")
        if method == "GET":
            listed = [{"user": name, "vhost": "/", **granted} for name, granted in self.permissions.items()]
            return 200, {"whoami": {}, "users": [*self.users.values()], "permissions": listed}[kind]
        self.changes.append(f"{method} {path}")
        name = unquote(rest.rpartition("/")[2])
        if kind == "users" and method == "DELETE":
            del self.users[name], self.passwords[name]
        elif kind == "users":
            self.add(name, body["password"], body["tags"])
        elif kind == "permissions":
            self.permissions[name] = body
        return 204, None

    def add(self, name: str, password: str, tags: str = "") -> None:
        digest = hashlib.sha256(b"salt" + password.encode()).digest()
        self.users[name] = {
            "name": name,
            "password_hash": base64.b64encode(b"salt" + digest).decode(),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": [tags] if tags else [],
        }
        self.passwords[name] = password


@pytest.fixture
def broker() -> Broker:
    broker = Broker()
    broker.add("gpu-spot", "first", "administrator")
    return broker


@pytest.fixture
def address(broker: Broker) -> Iterator[str]:
    class Api(Handler):
        def respond(self, text: bytes) -> None:
            basic = base64.b64decode(self.headers["Authorization"].partition(" ")[2]).decode()
            user, _, password = basic.partition(":")
            path = self.path.removeprefix("/api/")
            status, body = broker.answer(
                self.command, path, (user, password), json.loads(text) if text else None
            )
            self.answer(status, b"" if body is None else json.dumps(body).encode())

    with served(Api) as port:
        yield f"http://127.0.0.1:{port}"


class StoppedError(Exception):
    """The run ends here, as a function that Lambda stops."""


@dataclass
class Account:
    """Secrets in moto, and a manager whose calls of Secrets Manager can stop the run."""

    secrets: Any
    address: str
    now: float = field(default_factory=time.time)
    calls_left: float = float("inf")

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            if name != "get_secret_value":
                self.calls_left -= 1
                if self.calls_left < 0:
                    raise StoppedError
            return getattr(self.secrets, name)(**arguments)

        return self.secrets.exceptions if name == "exceptions" else call

    def run(self, *rotate: str, broker: ManagedBroker = BROKER) -> list[str]:
        """Run in a new process: nothing is remembered."""
        manager = BrokerUserManager(self, lambda: self.now, api_of=self.api)
        return manager.run([broker], frozenset(rotate), 30.0)

    def api(self, url: str) -> management_api.ManagementApi:
        return management_api.from_broker_url(url, self.address)

    def url(self, secret: str, stage: str = "AWSCURRENT") -> str:
        response = self.secrets.get_secret_value(SecretId=secret, VersionStage=stage)
        return str(response["SecretString"])

    def login(self, secret: str, stage: str = "AWSCURRENT") -> BrokerLogin:
        login = broker_users.login_of(self.url(secret, stage))
        assert login is not None
        return login

    def accepts(self, broker: Broker, secret: str, stage: str = "AWSCURRENT") -> bool:
        login = self.login(secret, stage)
        return broker.passwords.get(login.name) == login.password


@pytest.fixture
def account(address: str) -> Iterator[Account]:
    with models.moto():
        secrets = boto3.client("secretsmanager", region_name="us-west-2")
        for user in BROKER.users:
            secrets.create_secret(Name=user.secret)
        secrets.create_secret(Name="mq", SecretString=ADMINISTRATOR)
        yield Account(secrets, address)


def test_users_are_created_with_their_permissions_and_then_left_alone(
    account: Account, broker: Broker
) -> None:
    assert account.run() == []
    for user in BROKER.users:
        login = account.login(user.secret)
        assert login.name == f"gpu-spot.{user.name}.1"
        assert account.accepts(broker, user.secret)
        granted = broker_users.permissions(user)
        assert broker_users.has_permissions(broker.permissions[login.name], granted)
        assert broker_users.has_tags(broker.users[login.name], granted.tags)
    broker.changes.clear()
    assert account.run() == []
    assert not [change for change in broker.changes if "users" in change or "permissions" in change]


def test_a_rotation_uses_the_other_name_and_the_url_before_stays_valid(
    account: Account, broker: Broker
) -> None:
    account.run()
    assert account.run("ocr.workers") == []
    assert account.login("mq-workers").name == "gpu-spot.ocr.workers.2"
    assert account.login("mq-clients").name == "gpu-spot.ocr.clients.1"
    for stage in ("AWSCURRENT", "AWSPREVIOUS"):
        assert account.accepts(broker, "mq-workers", stage)
    before = account.login("mq-workers", "AWSPREVIOUS")
    assert account.run("ocr.workers") == []
    assert account.login("mq-workers").name == before.name
    assert broker.passwords[before.name] != before.password


def test_a_password_is_rotated_after_thirty_days(account: Account) -> None:
    account.run()
    before = account.url("mq-clients")
    account.now += ROTATION_SECONDS - 60
    account.run()
    assert account.url("mq-clients") == before
    account.now += 120
    account.run()
    assert account.url("mq-clients") != before
    assert account.url("mq") == ADMINISTRATOR  # only when a person asks for it


@pytest.mark.parametrize("rotated", [(), ("ocr.workers", "ocr.clients", "monitor", "administrator")])
def test_a_run_that_stops_anywhere_is_completed_by_the_next(
    account: Account, broker: Broker, rotated: tuple[str, ...]
) -> None:
    """What is current is accepted by the broker at each stop, but the administrator between two calls."""
    if rotated:
        assert account.run() == []
    for calls in range(12):
        account.calls_left = calls
        errors = account.run(*rotated)
        for user in BROKER.users:
            response = account.secrets.get_secret_value
            text = ""
            try:
                text = response(SecretId=user.secret, VersionStage="AWSCURRENT")["SecretString"]
            except account.secrets.exceptions.ClientError:
                continue
            if broker_users.login_of(text) is not None:
                assert account.accepts(broker, user.secret), (calls, user.name)
        account.calls_left = float("inf")
        assert account.run() == [], calls
        assert all(account.accepts(broker, user.secret) for user in BROKER.users)
        assert account.accepts(broker, "mq")
        if not errors:
            return
    raise AssertionError("never complete")


def test_two_runs_at_once_agree_on_the_password(account: Account, broker: Broker) -> None:
    """The other run stores its version after this one has looked for it."""
    account.run()
    get, other, calls = account.secrets.get_secret_value, Account(account.secrets, account.address), []

    def read_late(**arguments: Any) -> Any:
        try:
            return get(**arguments)
        except account.secrets.exceptions.ResourceNotFoundException:
            if not calls:
                calls.append(arguments)
                assert other.run("ocr.workers") == []
            raise

    def put(**arguments: Any) -> Any:
        # As AWS, unlike moto: a version cannot be changed.
        if calls and arguments["ClientRequestToken"] == calls[0]["VersionId"]:
            error = {"Error": {"Code": "ResourceExistsException", "Message": "exists"}}
            raise account.secrets.exceptions.ResourceExistsException(error, "PutSecretValue")
        return write(**arguments)

    write = account.secrets.put_secret_value
    late = Account(account.secrets, account.address)
    late.__dict__ |= {"get_secret_value": read_late, "put_secret_value": put}
    errors = late.run("ocr.workers")
    assert calls
    # The other run has moved the label, so this one cannot: it is an error, and nothing is broken.
    assert len(errors) <= 1
    assert account.accepts(broker, "mq-workers")
    assert account.run() == []


def test_a_broker_that_was_replaced_gets_its_users_and_queue(account: Account, broker: Broker) -> None:
    account.run()
    broker.users.clear()
    broker.permissions.clear()
    broker.passwords.clear()
    broker.add("gpu-spot", "first", "administrator")
    replaced = ADMINISTRATOR.replace("b-1", "b-2")
    account.secrets.put_secret_value(SecretId="mq", SecretString=replaced)
    assert account.run() == []
    for user in BROKER.users:
        assert account.accepts(broker, user.secret)
        assert "@b-2.mq" in account.url(user.secret)


def test_a_password_or_permission_that_was_changed_is_set_again(account: Account, broker: Broker) -> None:
    account.run()
    broker.add("gpu-spot.ocr.workers.1", "other", "administrator")
    broker.permissions["gpu-spot.ocr.workers.1"] = {"configure": ".*", "write": ".*", "read": ".*"}
    assert account.run() == []
    assert account.accepts(broker, "mq-workers")
    assert broker.users["gpu-spot.ocr.workers.1"]["tags"] == []
    assert broker.permissions["gpu-spot.ocr.workers.1"]["configure"] != ".*"


def test_a_user_that_calls_another_service_has_it_under_both_names(account: Account, broker: Broker) -> None:
    account.run()
    account.run("ocr.workers")
    calling = BrokerUser("ocr.workers", BrokerRole.WORKERS, "mq-workers", "ocr", ("asr",))
    assert account.run(broker=ManagedBroker("mq", (OCR,), (calling, CLIENTS, MONITOR))) == []
    for name in broker_users.names_of(calling):
        assert matches(broker.permissions[name]["write"], "asr.requests")


def test_users_of_former_services_are_deleted_and_no_others(account: Account, broker: Broker) -> None:
    account.run()
    account.run("ocr.clients")
    broker.add("monitoring-AWS-OWNED-DO-NOT-DELETE", "a", "monitoring")
    broker.add("gpu-spot-of-a-person", "a")
    assert account.run(broker=ManagedBroker("mq", (OCR,), (WORKERS, MONITOR))) == []
    assert broker.users.keys() == {
        *("gpu-spot", "gpu-spot.ocr.workers.1", "gpu-spot.monitor.1"),
        *("monitoring-AWS-OWNED-DO-NOT-DELETE", "gpu-spot-of-a-person"),
    }


def test_a_user_that_another_run_has_deleted_stops_nothing(account: Account, broker: Broker) -> None:
    account.run()
    answer, before = broker.answer, account.url("mq")

    def late(method: str, *rest: Any) -> tuple[int, Any]:
        return (404, {"reason": "Not Found"}) if method == "DELETE" else answer(method, *rest)

    broker.answer = late
    assert account.run("administrator", broker=ManagedBroker("mq", (OCR,), (WORKERS, MONITOR))) == []
    assert account.url("mq") != before


def test_a_queue_that_differs_is_an_error_and_the_users_are_maintained(
    account: Account, broker: Broker
) -> None:
    broker.rejected = "queues/%2F/ocr"
    [error] = account.run()
    assert error == "queue ocr: PUT queues/%2F/ocr.dead: status 400 inequivalent arg"
    assert account.accepts(broker, "mq-workers")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda broker: broker.add("gpu-spot", "other"), "rejects the administrator (401)"),
        (lambda broker: setattr(broker, "rejected", "users"), "GET users: status 400 inequivalent arg"),
    ],
)
def test_a_broker_that_rejects_is_an_error_without_a_password(
    account: Account, broker: Broker, change: Callable[[Broker], object], message: str
) -> None:
    change(broker)
    [error] = account.run()
    assert error.startswith("broker of mq: ")
    assert message in error
    assert "first" not in error


def test_an_unknown_user_to_rotate_is_rejected_with_the_allowed_ones(account: Account) -> None:
    assert account.run("ocr") == [
        "rotate must be administrator, monitor, ocr.clients or ocr.workers, not 'ocr'"
    ]


def test_checks_pause_for_five_minutes_unless_they_failed(account: Account, broker: Broker) -> None:
    manager = BrokerUserManager(account, lambda: account.now, api_of=account.api)

    def checks() -> bool:
        broker.changes.clear()
        manager.run([BROKER], frozenset(), 30.0)
        return bool(broker.changes)

    broker.rejected = "exchanges"
    assert (checks(), checks()) == (True, True)
    broker.rejected = ""
    assert (checks(), checks()) == (True, False)
    account.now += 299
    assert not checks()
    account.now += 2
    assert checks()
